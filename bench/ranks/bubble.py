#!/usr/bin/env python3
"""Measured bubbles of pipelines beside the closed formula and the walk, with paced kernels (train.paced).

  python3 bench/ranks/bubble.py build/release/flatout FOLDER [--schedules gpipe,1f1b] [--stages 2,4,8] [--micro-batches 4,8,16,32]
                                [--steps 4] [--slot-ms 10]

Each stage is a rank, a thread of one process. Operations take given times and use no processor, so eight stages run on
two cores; messages, lanes and the order of slots are the executor's. Every stage has as many layers, and the head's
matmuls take next to nothing, as the formulas assume. One JSON line per run: the measured bubble of `flatout report`, the
formula with the slots' own measured times, the walk (`flatout program --schedule`) with the same times, and the step that
`flatout predict` says; then one with the largest differences.
"""
import argparse, json, os, shutil, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runs import call, given, realtime, text

HIDDEN, FFN, VOCAB, SEQ = 512, 1536, 300, 64
HEADS, KV, DIM = 8, 4, 64
OPTIONS = f"""--model.hidden={HIDDEN} --model.heads={HEADS} --model.kv-heads={KV} --model.head-dim={DIM} --model.ffn={FFN}
--model.vocab={VOCAB} --data.seq={SEQ} --train.rows=1 --pass.recompute=none --optim.moments=bf16 --optim.master=none
--pass.fuse-loss=0""".split()


def walk_of(flatout, kind, stages, micro_batches, chunks, ms):
    """Matmuls of an input's and of a weight's gradient take as long as those forward."""
    return json.loads(call(flatout, "program", f"--schedule={kind}", f"--stages={stages}", f"--micro-batches={micro_batches}",
                           f"--chunks={chunks}", f"--times={chunks * ms:g},{chunks * ms:g},{chunks * ms:g}", "--json"))


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("flatout")
    a.add_argument("folder")
    a.add_argument("--schedules", default="gpipe,1f1b,interleaved,zb-h1,zb-h2")
    a.add_argument("--stages", default="2,4,8")
    a.add_argument("--micro-batches", default="4,8,16,32")
    a.add_argument("--steps", type=int, default=4)
    a.add_argument("--slot-ms", type=float, default=20, help="of a layer forward")
    a.add_argument("--realtime", action="store_true", help="run under chrt -r 1: on a machine that others fill")
    o = a.parse_args()
    data, profile = f"{o.folder}/text", f"{o.folder}/given.json"
    text(data)
    qkv = (HEADS + 2 * KV) * DIM
    even = ((qkv, HIDDEN), (HIDDEN, HEADS * DIM), (2 * FFN, HIDDEN), (HIDDEN, FFN))
    flop = sum(2.0 * SEQ * m * n for m, n in even)
    given(profile, flop / (1e-3 * o.slot_ms), 1e12, tokens=SEQ, even=even, fast=((VOCAB, HIDDEN),))
    first = realtime() if o.realtime else []
    lines = {}
    for kind in o.schedules.split(","):
        chunks = 2 if kind == "interleaved" else 1
        for stages in map(int, o.stages.split(",")):
            for mb in map(int, o.micro_batches.split(",")):
                run = f"{o.folder}/{kind}-{stages}-{mb}"
                options = OPTIONS + [f"--model.layers={stages * chunks}", f"--train.micro-batches={mb}", f"--ranks={stages}",
                                     f"--mesh.pp={stages}", f"--pass.pp={kind}", "--mesh.pp-layers=even", f"--run.threads={stages}", f"--data.path={data}"]
                shutil.rmtree(run, ignore_errors=True)
                load = os.getloadavg()[0]
                call(*first, o.flatout, "train", *options, f"--train.paced={profile}", f"--train.steps={o.steps}", f"--run.dir={run}")
                seen = json.loads(call(o.flatout, "report", run, "--json"))
                said = json.loads(call(o.flatout, "predict", "--compare", run, "--json"))
                p, took, predicted = seen["pipeline"], seen["step_seconds"]["median"], said["ranks"]["step_seconds"]["mid"]
                whole = p["formula_of"] == "step"
                got, formula = p["bubble" if whole else "longest_stage_bubble"], p["formula_bubble"]
                walk = walk_of(o.flatout, kind, stages, mb, chunks, o.slot_ms)
                line = {"schedule": kind, "stages": stages, "micro_batches": mb, "chunks": chunks, "of": p["formula_of"],
                        "bubble": got, "formula_bubble": formula, "walk_bubble": walk["bubble"], "step_bubble": p["bubble"],
                        "step_s": took, "predicted_step_s": predicted, "step_ratio": predicted / took,
                        "condition": p["condition"], "realtime": bool(first), "load": load}
                if formula is not None:
                    # off: of the bubble. time_off: of the time that the formula is about, which counts where the bubble is next to nothing.
                    line.update(off=got / formula - 1, time_off=(1 - formula) / (1 - got) - 1)
                print(json.dumps(line), flush=True)
                lines.setdefault(kind, []).append(line)
    for kind, of in lines.items():
        said = {"schedule": kind, "runs": len(of), "with_formula": sum("off" in x for x in of)}
        for name, v in (("bubble", [x["off"] for x in of if "off" in x]), ("time", [x["time_off"] for x in of if "off" in x]),
                        ("walk", [x["step_bubble"] / x["walk_bubble"] - 1 for x in of]), ("step", [1 / x["step_ratio"] - 1 for x in of])):
            said.update({f"{name}_within_5_percent": sum(abs(x) <= 0.05 for x in v), f"{name}_from": min(v), f"{name}_to": max(v)})
        print(json.dumps(said))


main()
