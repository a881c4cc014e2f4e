#!/usr/bin/env python3
"""How many divisions a second calculon (github.com/calculon-ai/calculon, Apache-2.0) evaluates, and flatout beside it in turns.

    PYTHONPATH=CALCULON beside_calculon.py CALCULON BENCH [TURNS [SECONDS]]

CALCULON: a checkout of it outside of this tree; it needs numpy, pandas and psutil. BENCH: bench_plan_speed. One process evaluates
the division of calculon's own example (Megatron 1T on 3,072 A100) again and again, as its search does for each division."""
import json
import logging
import subprocess
import sys
import time

from calculon.llm import Llm
from calculon.system import System


def rate(folder, seconds):
    read = lambda name: json.load(open(f"{folder}/{name}"))
    log = logging.getLogger("calculon")
    log.setLevel(logging.CRITICAL)
    application = Llm.Application(read("models/megatron-1T.json"))
    system = System(read("systems/a100_80g.json"))
    division = read("examples/3072_t4_p64_d12_mbs4_full.json")
    begin, wall, done = time.process_time(), time.time(), 0
    while time.time() - wall < seconds:
        model = Llm(application, log)
        model.compile(system, Llm.Execution.from_json(division))
        model.run(system)
        done += 1
    return done, time.process_time() - begin, model.get_total_time()


folder, bench = sys.argv[1:3]
turns = int(sys.argv[3]) if len(sys.argv) > 3 else 2
for turn in range(turns):
    done, busy, step = rate(folder, float(sys.argv[4]) if len(sys.argv) > 4 else 10)
    print(f"calculon: {done} divisions in {busy:.2f} s of a processor: {done / busy:.0f} a second of one, {2 * done / busy:.0f} of two; its step {step:.2f} s", flush=True)
    subprocess.run([bench, "1"], check=True)
