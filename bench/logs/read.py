"""How fast `flatout mfu LOG` reads: a log of SIZE bytes of Megatron's and one of torchtitan's lines, each read in turn with
`wc -l` and `grep -c`, which do less. read.py FLATOUT [SIZE [REPEATS]]; prints medians, best and worst."""
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

BLOCK = 20000  # lines that are made at once


def stamp(i):
    """Steps of 0.4 s: the days of a month hold 6 million."""
    t = 2 * i // 5
    return f"2026-05-{1 + t // 86400:02d} {t // 3600 % 24:02d}:{t // 60 % 60:02d}:{t % 60:02d}"


def megatron(i):
    return (f" [{stamp(i)}.123456] iteration {i:8d}/ 9000000 | consumed samples: {16 * i:12d} | "
            f"elapsed time per iteration (ms): {395 + i * 7919 % 97 / 10:.1f} | throughput per GPU (TFLOP/s/GPU): {210 + i * 31 % 17 / 10:.1f} | learning rate: 1.500000E-04 | "
            f"global batch size:    16 | lm loss: {2.2 + i % 1000 / 1e4:.6E} | loss scale: 1.0 | grad norm: {1 + i % 77 / 100:.3f} | number of skipped iterations:   0 | "
            f"number of nan iterations:   0 |\n")


def torchtitan(i):
    return (f"[titan] {stamp(i)},{i % 1000:03d} - root - INFO - step: {i:2}  loss: {2.2 + i % 1000 / 1e4:8.5f}  "
            f"grad_norm: {1 + i % 77 / 100:7.4f}  memory: 40.34GiB(51.25%)  tps: {4096 + i * 31 % 97:,}  tflops: {210 + i * 31 % 17 / 10:,.2f}  mfu: {21 + i % 100 / 100:.2f}%\n")


def chatter(i):
    """A line of progress among nine of something else, as most long logs have it."""
    return megatron(i) if i % 10 == 0 else f"2026-05-04 08:00:{i % 60:02d} WARNING worker {i % 512}: shard {i} was slow to arrive ({i * 7919 % 997} ms), trying the next one of the list\n"


def write(path, line, size):
    done = i = 0
    with open(path, "w") as f:
        while done < size:
            block = "".join(line(k) for k in range(i + 1, i + BLOCK + 1))
            i += BLOCK
            done += f.write(block)
    return done


def run(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, capture_output=True)  # grep stops at the first line where nobody reads
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


flatout, size, repeats = sys.argv[1], int(float(sys.argv[2] if len(sys.argv) > 2 else 1e9)), int(sys.argv[3] if len(sys.argv) > 3 else 5)
print("%-12s %-8s %10s %8s %8s %10s %12s" % ("log", "program", "wall s", "best", "worst", "cpu s", "MB/s of core"))
with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
    for line in (megatron, torchtitan, chatter):
        path = os.path.join(folder, "log")
        size = write(path, line, size)
        programs = {"flatout": [flatout, "mfu", path, "--json"], "wc -l": ["wc", "-l", path], "grep -c": ["grep", "-c", "i", path]}
        took = {name: [] for name in programs}
        for command in programs.values():
            run(command)  # the file into memory
        for _ in range(repeats):
            for name, command in programs.items():
                took[name].append(run(command))
        for name, t in took.items():
            wall, cpu = [w for w, _ in t], statistics.median(c for _, c in t)
            print("%-12s %-8s %10.2f %8.2f %8.2f %10.2f %12.0f" % (line.__name__, name, statistics.median(wall), min(wall), max(wall), cpu, size / 1e6 / cpu))
