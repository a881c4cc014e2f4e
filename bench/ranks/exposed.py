#!/usr/bin/env python3
"""Predicted beside measured exposed communication, on emulated links (mesh.link-gbps).

  python3 bench/ranks/exposed.py build/release/flatout FOLDER [--meshes 2x1,4x1,1x4:3,1x1x2@4] [--gbps 0.25,0.5,1] [--rounds 3] [--steps 12]

A mesh is REPLICATExSHARD or REPLICATExSHARDxTP, with pass.zero behind a colon where ranks share something, and pass.tp-async behind an @. Trains a small model with few tokens a step, so that
communication takes most of it, on each mesh and each rate, one after the other, and all of that in each of several rounds. Before that the
operations of the run and the calls between its ranks are calibrated; no prediction uses a measured step. One JSON line per run, then one per
mesh and rate: the ratios predicted / measured over rounds.
"""
import argparse, json, os, statistics, subprocess, sys

MODEL = """--model.layers=4 --model.hidden=256 --model.heads=4 --model.kv-heads=2 --model.head-dim=64 --model.ffn=768
--model.vocab=300 --data.seq=64 --train.rows=4 --train.micro-batches=1 --eval.every=0 --checkpoint.every=0 --checkpoint.last=no
--sample.tokens=0""".split()


def text(folder):
    os.makedirs(folder, exist_ok=True)
    line = "the quick brown fox jumps over the lazy dog and goes on into the forest, where it sleeps\n"
    for i in range(100):
        with open(f"{folder}/{i:03}.txt", "w") as f:
            f.write(line * 20)


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


class Mesh:
    def __init__(self, text):
        self.text = text
        rest, _, pieces = text.partition("@")
        self.mesh, _, zero = rest.partition(":")
        self.replicate, self.shard, self.tp = ([int(n) for n in self.mesh.split("x")] + [1])[:3]
        self.ranks, self.zero = self.replicate * self.shard * self.tp, int(zero or 0)
        self.options = [f"--ranks={self.ranks}", f"--mesh.shard={self.shard}", f"--run.threads={self.ranks}"]
        self.options += [f"--mesh.tp={self.tp}"] if self.tp > 1 else []
        self.options += [f"--pass.zero={self.zero}"] if self.zero else []
        self.options += [f"--pass.tp-async={pieces}"] if pieces else []
        self.says = {"ranks": self.ranks, "replicate": self.replicate, "shard": self.shard, "tp": self.tp, "zero": self.zero,
                     "tp_async": pieces or "auto" if self.tp > 1 else None}


def lanes(report):
    """Milliseconds of a step by what travels, mean of the ranks: exposed and hidden as the run's timelines have them."""
    ranks, of = report["ranks"]["rank"], {}
    for r in ranks:
        for l in r["lanes"]:
            x = of.setdefault(l["lane"], [0, 0])
            x[0] += 1e3 * l["exposed_seconds"] / len(ranks)
            x[1] += 1e3 * l["hidden_seconds"] / len(ranks)
    return {"step_ms": 1e3 * sum(r["step_seconds"] for r in ranks) / len(ranks),
            "compute_ms": 1e3 * sum(r["compute_seconds"] for r in ranks) / len(ranks),
            "lanes_ms": {n: {"exposed": e, "hidden": h, "hidden_share": h / (e + h)} for n, (e, h) in of.items() if e + h}}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("flatout")
    a.add_argument("folder")
    a.add_argument("--meshes", default="2x1,4x1")
    a.add_argument("--gbps", default="0.25,0.5,1")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--steps", type=int, default=12)
    a.add_argument("--model", default="", help="options of a run that replace those of the small one")
    a.add_argument("--seconds", type=float, default=20, help="of calibration, for each mesh; 0: FOLDER has a profile already")
    o = a.parse_args()
    given = {w.split("=")[0] for w in o.model.split()}
    model = [w for w in MODEL if w.split("=")[0] not in given] + o.model.split()
    data, profile = f"{o.folder}/text", f"{o.folder}/profile.json"
    text(data)
    meshes = [Mesh(m) for m in o.meshes.split(",")]
    for m in meshes if o.seconds else []:
        call(o.flatout, "calibrate", *model, f"--data.path={data}", *m.options, f"--seconds={o.seconds:g}", f"--out={profile}")
    ratios = {}
    for n in range(o.rounds):
        for m in meshes:
            for rate in o.gbps.split(","):
                run = f"{o.folder}/r{m.text.replace(':', '-')}-{rate}-{n}"
                load = os.getloadavg()[0]
                call(o.flatout, "train", *model, f"--data.path={data}", *m.options, f"--link-gbps={rate}",
                     f"--train.steps={o.steps}", f"--run.dir={run}")
                p = json.loads(call(o.flatout, "predict", "--compare", run, f"--profile={profile}", f"--run.threads={m.ranks}",
                                    "--json"))
                x = p["ranks"]
                seen = lanes(json.loads(call(o.flatout, "report", run, "--json")))
                got, say = x["measured"]["exposed_median_seconds"], x["exposed_seconds"]
                ratio = say["mid"] / got
                ratios.setdefault((m, rate), []).append(ratio)
                print(json.dumps({**m.says, "gbps": float(rate), "round": n, "steps": x["measured"]["steps"],
                                  "measured_exposed_s": got, "least_exposed_s": x["measured"]["exposed_least_seconds"],
                                  "predicted_exposed_s": say, "predicted_step_s": x["step_seconds"], "ratio": ratio,
                                  "computing_measured_s": p["compared"]["measured_seconds"],
                                  "computing_predicted_s": p["compared"]["predicted_seconds"],
                                  "received_bytes": x["received_bytes"], "load": load,
                                  "predicted_lanes": x["lanes"], **seen}), flush=True)
    for (m, rate), v in ratios.items():
        print(json.dumps({**m.says, "gbps": float(rate), "ratio_median": statistics.median(v),
                          "ratio_best": min(v, key=lambda q: abs(q - 1)), "ratios": sorted(v)}))
    all_of = [q for v in ratios.values() for q in v]
    print(json.dumps({"runs": len(all_of), "within_10_percent": sum(abs(q - 1) <= 0.1 for q in all_of),
                      "ratio_median": statistics.median(all_of), "ratios_from": min(all_of), "to": max(all_of)}))


main()
