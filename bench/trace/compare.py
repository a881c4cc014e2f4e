#!/usr/bin/env python3
"""What other readers need for the same traces: seconds of reading one file, and the peak memory of a process that does nothing else.

  bench/trace/compare.py [--rounds N] BENCH_TRACE FILE...

Beside bench_trace: Python's json module, and HolisticTraceAnalysis where it is installed (pip install HolisticTraceAnalysis). Rounds are
interleaved, best and median are given; one JSON line per file. Files are plain or .gz: HTA knows no other."""
import json
import os
import statistics
import subprocess
import sys

PLAIN = """
import sys, gzip, json, time
begin = time.monotonic()
f = open(sys.argv[1], 'rb')
f = gzip.open(f) if f.peek(2)[:2] == b'\\x1f\\x8b' else f
d = json.load(f)
print(time.monotonic() - begin)
"""
HTA = """
import sys, time
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
cfg = ParserConfig.get_default_cfg() if hasattr(ParserConfig, 'get_default_cfg') else ParserConfig()
begin = time.monotonic()
parse_trace_dataframe(sys.argv[1], cfg)
print(time.monotonic() - begin)
"""


def run(command):
    """Seconds of the reading alone and MiB of the whole process; None where it failed."""
    wrapper = "import resource, subprocess, sys; p = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL); " \
              "sys.stdout.buffer.write(p.stdout); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    lines = subprocess.run([sys.executable, "-c", wrapper] + command, capture_output=True, text=True).stdout.split("\n")
    if len(lines) < 3:
        return None
    if lines[0].startswith("{"):
        own = json.loads(lines[0])
        return own["median_s"], own["peak_mib"]
    return float(lines[-3]), float(lines[-2])


def main():
    args = sys.argv[1:]
    rounds = 3
    if args[:1] == ["--rounds"]:
        rounds, args = int(args[1]), args[2:]
    if len(args) < 2:
        sys.exit(__doc__)
    readers = {"flatout": [args[0], "--rounds", "1"], "python_json": [sys.executable, "-c", PLAIN], "hta": [sys.executable, "-c", HTA]}
    for path in args[1:]:
        row = {"file": os.path.basename(path), "bytes": os.path.getsize(path)}
        got = {name: [] for name in readers}
        for _ in range(rounds):
            for name, command in readers.items():
                got[name].append(run(command + [path]))
        for name in readers:
            if None in got[name]:
                row[name] = None
                continue
            times = [seconds for seconds, _ in got[name]]
            row[name] = {"best_s": round(min(times), 3), "median_s": round(statistics.median(times), 3),
                         "peak_mib": round(max(mib for _, mib in got[name]), 1)}
        for name in ("python_json", "hta"):
            if row[name] and row["flatout"]:
                row[name]["times_slower"] = round(row[name]["median_s"] / row["flatout"]["median_s"], 1)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
