#!/usr/bin/env python3
"""Two ranks beside one rank with two threads, and what an asynchronous checkpoint takes of a step.

  python3 bench/ranks/two.py build/release/flatout FOLDER [--rounds 1] [--steps 4] [--tokens 2048]

Trains a Llama of 134M parameters on the same rows in three ways, in turn: one process with two threads, two ranks that are threads, two
ranks that are processes (mpirun). The checkpoint behind step 2 is written beside training. One JSON line per run: the steps' seconds, of the
checkpoint what blocked training, in seconds and over the median step; then one with medians over rounds, over the first way.
"""
import argparse, json, os, shutil, statistics, subprocess, sys

MODEL = """--model.layers=12 --model.hidden=768 --model.heads=12 --model.kv-heads=12 --model.head-dim=64 --model.ffn=2048
--model.vocab=32000 --data.vocab=1000 --train.rows=2 --train.micro-batches=1 --eval.every=0 --checkpoint.every=2 --checkpoint.last=no
--checkpoint.keep=1 --sample.tokens=0 --guard.spike=off --log.every=1000""".split()
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
WAYS = {"one rank, two threads": ([], ["--run.threads=2"]),
        "two ranks, threads": ([], ["--ranks=2", "--run.threads=2"]),
        "two ranks, processes": (["mpirun", *ROOT, "--oversubscribe", "--bind-to", "none", "-n", "2"], ["--run.threads=1"])}


def text(folder):
    if os.path.isdir(folder):
        return
    os.makedirs(folder)
    for i in range(40):
        with open(f"{folder}/{i:03}.txt", "w") as f:
            f.write("".join(f"the fox {i * k % 97} jumps over {k % 31} lazy dogs and {k % 7} stones\n" for k in range(1500)))


def run(o, way, number):
    before, options = WAYS[way]
    folder = f"{o.folder}/run-{number}"
    shutil.rmtree(f"{folder}/checkpoints", ignore_errors=True)
    if os.path.exists(f"{folder}/log.jsonl"):
        os.remove(f"{folder}/log.jsonl")
    load = os.getloadavg()[0]
    done = subprocess.run([*before, o.flatout, "train", *MODEL, f"--data.path={o.folder}/text", f"--data.seq={o.tokens}", *options,
                           f"--train.steps={o.steps}", f"--run.dir={folder}"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{way}: {done.stderr or done.stdout}")
    lines = [json.loads(x) for x in open(f"{folder}/log.jsonl")]
    step = [x["seconds"] for x in lines if x["event"] == "step"][1:]  # the first one touches all memory
    saved = [x for x in lines if x["event"] == "checkpoint"]
    out = {"way": way, "steps_s": step, "median_s": statistics.median(step), "best_s": min(step), "load": load}
    if saved:
        blocked = saved[0]["blocked_seconds"]
        out |= {"blocked_s": blocked, "written_in_s": saved[0]["seconds"], "blocked_of_a_step": blocked / out["median_s"]}
    return out


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("flatout")
    a.add_argument("folder")
    a.add_argument("--rounds", type=int, default=1)
    a.add_argument("--steps", type=int, default=4)
    a.add_argument("--tokens", type=int, default=2048, help="of a row")
    o = a.parse_args()
    o.flatout = os.path.realpath(o.flatout)
    text(f"{o.folder}/text")
    runs = []
    for _ in range(o.rounds):
        for i, way in enumerate(WAYS):
            runs.append(run(o, way, i))
            print(json.dumps(runs[-1]), flush=True)
    of = {w: [r for r in runs if r["way"] == w] for w in WAYS}
    first = next(iter(WAYS))
    for key in "median_s", "best_s":
        base = statistics.median(r[key] for r in of[first])
        print(json.dumps({"over": first, "of": key, **{w: statistics.median(r[key] for r in v) / base for w, v in of.items()}}))


if __name__ == "__main__":
    main()
