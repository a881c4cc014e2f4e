#!/usr/bin/env python3
"""This machine's own runs as rows that `flatout score` reads: measured steps, with the options and the profile to predict them from.

  python3 bench/ranks/here.py build/release/flatout FOLDER [--meshes 1x1,2x1,1x2:3,1x1x2] [--gbps 0.25,1] [--seconds 12] [--paced] [--realtime]

Appends to FOLDER/runs.csv. Runs with real kernels: one rank, and two where there are two cores; before each mesh the operations of its run and the calls
between its ranks are calibrated into FOLDER/profile.json (--seconds, 0: it is there). With --paced the runs have paced kernels that take the times of
that profile, for which one rank's operations and calls of two ranks (one link) are calibrated, once. Meshes as in exposed.py.
"""
import argparse, csv, json, os, shutil, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runs import MODEL, Mesh, call, favoured, instead, realtime, text

COLUMNS = ["group", "ranks", "mesh", "gbps", "paced", "first", "options", "profile", "step_seconds", "steps", "load"]


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("flatout")
    a.add_argument("folder")
    a.add_argument("--meshes", default="1x1,2x1,1x2:3,1x1x2")
    a.add_argument("--gbps", default="0.25,1")
    a.add_argument("--model", default="--train.rows=8 --train.micro-batches=2")
    a.add_argument("--steps", type=int, default=12)
    a.add_argument("--seconds", type=float, default=12, help="of calibration, for each mesh")
    a.add_argument("--paced", action="store_true")
    a.add_argument("--realtime", action="store_true", help="with --paced: run under chrt -r 1")
    a.add_argument("--favoured", action="store_true", help="run under nice -n -15, where others share the machine")
    o = a.parse_args()
    if o.realtime and not o.paced:
        sys.exit("--realtime is for kernels that use no processor: --paced")
    model, data, profile = instead(o.model.split(), MODEL), f"{o.folder}/text", f"{o.folder}/profile.json"
    first = realtime() if o.realtime else favoured() if o.favoured else []
    text(data)
    if o.paced and o.seconds:
        call(*favoured(), o.flatout, "calibrate", *instead(Mesh("1x1").options, model), f"--data.path={data}", f"--seconds={o.seconds:g}", f"--out={profile}")
        call(*favoured(), o.flatout, "calibrate", "--ranks=2", f"--seconds={o.seconds:g}", f"--out={profile}")
    fresh = not os.path.exists(f"{o.folder}/runs.csv")
    with open(f"{o.folder}/runs.csv", "a", newline="") as f:
        out = csv.DictWriter(f, COLUMNS)
        if fresh:
            out.writeheader()
        for m in map(Mesh, o.meshes.split(",")):
            options = instead(m.options, model)
            if o.seconds and not o.paced:
                call(*first, o.flatout, "calibrate", *options, f"--data.path={data}", f"--seconds={o.seconds:g}", f"--out={profile}")
            for rate in o.gbps.split(",") if m.ranks > 1 else [""]:
                asked = options + ([f"--link-gbps={rate}"] if rate else []) + (["--train.paced=profile.json"] if o.paced else [])
                ran = [w.replace("=profile.json", f"={profile}") for w in asked]
                run, load = f"{o.folder}/run", os.getloadavg()[0]
                shutil.rmtree(run, ignore_errors=True)
                call(*first, o.flatout, "train", *ran, f"--data.path={data}", f"--train.steps={o.steps}", f"--run.dir={run}")
                took = json.loads(call(o.flatout, "report", run, "--json"))["step_seconds"]["median"]
                out.writerow({"group": "paced" if o.paced else "here", "ranks": m.ranks, "mesh": m.text, "gbps": rate, "paced": int(o.paced),
                              "first": " ".join(first), "options": " ".join(asked), "profile": "profile.json",
                              "step_seconds": f"{took:.6g}", "steps": o.steps, "load": f"{load:.1f}"})
                f.flush()


main()
