#!/usr/bin/env python3
"""How far predicted steps are from measured ones (docs/simulator.md).

    bench/predict/predict.py build/release/flatout run.yaml FOLDER [--steps 40] [--seconds S] [-- OPTION...] >>results.jsonl
    bench/predict/predict.py build/release/flatout --runs FOLDER/* [--seconds S] >>results.jsonl

The first form trains the configurations below, one change from run.yaml each, with every second step metered (each
operation between two bursts of known work), in FOLDER; what stands there already is not trained again. The second takes run folders
that have metered steps, such as the rungs of a ladder. Either way the operations of all of them are then calibrated, in two passes
so that a phase of the machine does not decide, into FOLDER/profile.json (./profile.json), and each run is predicted and set beside its
quiet step time. One JSON line per run and one for all; a table on standard error. Python's standard library suffices.

--general FILE: predict from this profile (of `flatout calibrate` without a run) too: what interpolation is worth.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

# What a ladder climbs: from a stack that nobody tuned to all that pays, and sideways.
UNTUNED = ["--pass.merge-qkv=no", "--pass.merge-gate-up=no", "--pass.fuse-loss=0", "--pass.fuse-elementwise=no",
           "--pass.fused-optimizer=no", "--pass.recompute=full", "--pass.attention=eager"]
RUNGS = {
    "untuned": UNTUNED,
    "no-recompute": UNTUNED[:5] + ["--pass.recompute=none", UNTUNED[6]],
    "fused-attention": UNTUNED[:5] + ["--pass.recompute=none"],
    "merged": UNTUNED[2:5] + ["--pass.recompute=none"],
    "fused-loss": UNTUNED[3:5] + ["--pass.recompute=none"],
    "fused-elementwise": UNTUNED[4:5] + ["--pass.recompute=none"],
    "all": ["--pass.recompute=none"],
    "selective": ["--pass.recompute=selective"],
    "full-recompute": ["--pass.recompute=full"],
    "optimizer-in-backward": ["--pass.recompute=none", "--pass.optimizer-in-backward=yes", "--optim.clip-norm=previous"],
    "small-state": ["--pass.recompute=none", "--optim.master=split", "--optim.moments=bf16"],
    "fp32": ["--pass.recompute=none", "--train.precision=fp32"],
}


def call(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr.strip()))
    return done.stdout


def score(flatout, run, profile, which):
    r = json.loads(call([flatout, "predict", "--compare=" + run, "--profile=" + profile, "--json"]))
    c = r["compared"]
    step = r["step_seconds"]
    # Between operations nothing is metered: the executor's overhead, which stands in the step, is left out on both sides.
    error = c["predicted_seconds"] / c["measured_seconds"] - 1
    return {"bench": "predict", "schema": 1, "run": os.path.basename(run.rstrip("/")), "profile": which, "with": c["with"],
            "metered_steps": c["steps"], "quiet_share": c["quiet_share"], "measured_seconds": c["measured_seconds"],
            "predicted_seconds": c["predicted_seconds"], "predicted_step_seconds": step, "error": error,
            "sure_share": r["sure_share"], "busy_share": r["busy_share"], "threads": r["threads"]}


def main():
    argv, options = sys.argv[1:], []
    if "--" in argv:
        argv, options = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("flatout")
    a.add_argument("run", nargs="?")
    a.add_argument("folder", nargs="?")
    a.add_argument("--runs", nargs="+", default=[])
    a.add_argument("--steps", type=int, default=40)
    a.add_argument("--seconds", type=float, default=0)
    a.add_argument("--only", help="names of configurations, with commas between them")
    a.add_argument("--general")
    a = a.parse_args(argv)
    runs = [r for r in a.runs if os.path.exists(os.path.join(r, "metered.fom"))]
    if a.run:
        if not a.folder:
            sys.exit("predict.py: no FOLDER beside '%s'" % a.run)
        os.makedirs(a.folder, exist_ok=True)
        names = a.only.split(",") if a.only else list(RUNGS)
        for name in names:
            folder = os.path.join(a.folder, name)
            if os.path.exists(os.path.join(folder, "metered.fom")):
                continue
            call([a.flatout, "train", a.run, "--run.dir=" + folder, "--train.steps=%d" % a.steps, "--train.metered-every=2",
                  "--eval.every=0", "--sample.tokens=0"] + RUNGS[name] + options)
            shutil.rmtree(os.path.join(folder, "checkpoints"), ignore_errors=True)  # gigabytes that nobody needs here
            print("trained %s" % name, file=sys.stderr)
        runs += [os.path.join(a.folder, name) for name in names]
    if not runs:
        sys.exit("predict.py: no run folder with metered steps")
    profile = os.path.join(a.folder or ".", "profile.json")
    for part in range(2):
        mine = profile + ".%d" % part
        for run in runs:
            call([a.flatout, "calibrate", "--for=" + run, "--out=" + mine, "--json"] + (["--seconds=%g" % a.seconds] if a.seconds else []))
            print("calibrated %s" % run, file=sys.stderr)
    merge([profile + ".%d" % part for part in range(2)], profile)
    lines = []
    for which, path in [("run", profile)] + ([("general", a.general)] if a.general else []):
        for run in runs:
            lines.append(score(a.flatout, run, path, which))
            print(json.dumps(lines[-1]))
        mine = [abs(x["error"]) for x in lines if x["profile"] == which]
        print(json.dumps({"bench": "predict", "schema": 1, "profile": which, "runs": len(mine), "median_error": statistics.median(mine),
                          "worst_error": max(mine)}))
        for x in lines:
            if x["profile"] == which:
                print("%-8s %-24s measured %8.4f s (quiet %3.0f %%)  predicted %8.4f s  %+6.1f %%  exact %3.0f %%  busy %3.0f %%" %
                      (which, x["run"], x["measured_seconds"], 100 * (x["quiet_share"] or 0), x["predicted_seconds"], 100 * x["error"],
                       100 * x["sure_share"]["exact"], 100 * x["busy_share"]), file=sys.stderr)
        print("%s: median error %.1f %%, worst %.1f %%" % (which, 100 * statistics.median(mine), 100 * max(mine)), file=sys.stderr)


def merge(paths, out):
    """Rows of the same work become one: medians weighted by the spans behind them."""
    profiles = [json.load(open(p)) for p in paths]
    rows = {}
    for p in profiles:
        for row in p["rows"]:
            key = (row["kind"], row["variant"], row["dtype"], row["threads"], tuple(row["shape"]), row.get("key"), row.get("cold"), row["flop"])
            rows.setdefault(key, []).append(row)
    profiles[-1]["rows"] = [pool(same) for same in rows.values()]
    json.dump(profiles[-1], open(out, "w"), indent=1)


def pool(rows):
    r = dict(rows[-1])
    for count, median, best in (("spans", "median_s", "best_s"), ("quiet", "quiet_median_s", "quiet_best_s")):
        r[count] = sum(x[count] for x in rows)
        if r[count]:
            r[median] = sum(x[count] * x[median] for x in rows if x[count]) / r[count]
            r[best] = min(x[best] for x in rows if x[count])
    return r


if __name__ == "__main__":
    main()
