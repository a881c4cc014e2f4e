#!/usr/bin/env python3
"""Plans of this machine, run beside their alternatives: is the plan the fastest?

  python3 bench/plan_here/plan_here.py build/release/flatout FOLDER [--cases 10] [--seed 1] [--runs 12] [--steps 4] [--realtime]

Draws cases: a small model, 2 to 8 ranks, an emulated link. `flatout plan --ranks=N` orders all divisions of the job over the ranks; its answer and up to
a dozen others (the next best, and random ones of the rest) are run with paced kernels (train.paced), because ranks that compute on two cores would measure the cores. One JSON line per run, one per
case: how much slower the plan's own step is than the fastest that ran (regret), and whether that lies within the plan's interval; then all together.
"""
import argparse, json, os, random, shutil, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ranks"))
from runs import call, given, instead, realtime, text


def draw(rng, of):
    """A case's options and its given rate. With 8 ranks there are thousands of divisions, so the job is small."""
    ranks = rng.choice(of)
    heads = rng.choice([4, 8])
    hidden = heads * rng.choice([32, 64])
    return [f"--model.layers={rng.choice([4, 6, 8]) if ranks < 8 else 4}", f"--model.hidden={hidden}", f"--model.heads={heads}",
            f"--model.kv-heads={heads // 2}", f"--model.head-dim={hidden // heads}", f"--model.ffn={3 * hidden}", "--model.vocab=304",
            f"--data.seq={rng.choice([64, 128])}", f"--train.rows={rng.choice([8, 16]) if ranks < 8 else 8}", "--train.micro-batches=1", f"--ranks={ranks}",
            f"--link-gbps={rng.choice([0.1, 0.25, 0.5, 1])}", f"--link-us={rng.choice([0, 50, 200])}"], rng.choice([20, 40, 80])


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("flatout")
    a.add_argument("folder")
    a.add_argument("--cases", type=int, default=10)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--ranks", default="2,2,4,4,8", help="how many a case may have, each entry as likely")
    a.add_argument("--runs", type=int, default=12, help="of a case")
    a.add_argument("--steps", type=int, default=4)
    a.add_argument("--calls", default="", help="a measured profile, for calls between ranks (flatout calibrate --ranks=8); empty: measured now")
    a.add_argument("--realtime", action="store_true", help="run under chrt -r 1: on a machine that others fill")
    o = a.parse_args()
    first, data, calls = realtime() if o.realtime else [], f"{o.folder}/text", o.calls
    text(data)
    if not calls:
        calls = f"{o.folder}/calls.json"
        call(*first, o.flatout, "calibrate", "--ranks=8", "--seconds=20", f"--out={calls}")
    regrets = []
    for case in range(o.cases):
        rng = random.Random(1000 * o.seed + case)
        options, gflops = draw(rng, [int(n) for n in o.ranks.split(",")])
        options += [f"--data.path={data}"]
        profile = f"{o.folder}/given-{case}.json"
        given(profile, 1e9 * gflops, 1e10, calls=calls)
        options += [f"--train.paced={profile}"]
        plan = json.loads(call(o.flatout, "plan", *options, "--top=0", "--json"))
        points = plan["points"]
        named = plan["named"]
        others = [i for i in range(len(points)) if i != named]
        near, far = others[: o.runs // 2], others[o.runs // 2 :]
        picked = [named] + near + rng.sample(far, min(len(far), o.runs - 1 - len(near)))
        took = {}
        for i in picked:
            run = f"{o.folder}/run"
            shutil.rmtree(run, ignore_errors=True)
            load = os.getloadavg()[0]
            call(*first, o.flatout, "train", *instead(points[i]["options"].split(), options), f"--train.steps={o.steps}", f"--run.dir={run}")
            took[i] = json.loads(call(o.flatout, "report", run, "--json"))["step_seconds"]["median"]
            print(json.dumps({"case": case, "rank_in_plan": i, "named": i == named, "options": points[i]["options"], "measured_step_s": took[i],
                              "predicted_step_s": points[i]["step_seconds"], "tie": points[i]["tie"], "realtime": bool(first), "load": load}), flush=True)
        best = min(took, key=took.get)
        regret = took[named] / took[best] - 1
        regrets.append(regret)
        print(json.dumps({"case": case, "asked": options[:-2], "search_s": plan["search_seconds"], "gflops": gflops, "divisions": len(points), "run": len(took), "named": points[named]["options"],
                          "fastest": points[best]["options"], "regret": regret, "is_fastest": best == named,
                          "within_interval": took[best] >= points[named]["step_seconds"]["low"],
                          "step_errors": sorted(points[i]["step_seconds"]["mid"] / took[i] - 1 for i in took)}), flush=True)
    print(json.dumps({"cases": len(regrets), "fastest": sum(r == 0 for r in regrets), "within_1_percent": sum(r <= 0.01 for r in regrets), "regret_mean": sum(regrets) / len(regrets), "regret_most": max(regrets)}))


main()
