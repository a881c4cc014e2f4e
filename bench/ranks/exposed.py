#!/usr/bin/env python3
"""Predicted beside measured steps and exposed communication, on emulated links (mesh.link-gbps).

  python3 bench/ranks/exposed.py build/release/flatout FOLDER [--meshes 2x1,4x1,1x4:3,1x1x2@4,1x1x1x1x4+1f1b] [--gbps 0.25,0.5,1] [--rounds 3]
                                 [--steps 12] [--paced GFLOP/s]

A mesh is REPLICATExSHARD[xTP[xCP[xPP]]], with pass.zero behind a colon where ranks share something, pass.tp-async behind an @ and pass.pp
behind a +. Trains a small model with few tokens a step, so that communication takes most of it, on each mesh and each rate, one after the other,
and all of that in each of several rounds. Before that the operations of the run and the calls between its ranks are calibrated; no prediction uses a
measured step. One JSON line per run, then one per mesh and rate: the ratios predicted / measured over rounds, of exposed communication and of steps
(beside the median of a run's steps its lower quartile: on a machine that others use, too, most steps are slower than quiet ones).

With --paced kernels are paced (train.paced): operations take given times, at so many GFLOP/s, and use no processor, so that more ranks
than cores measure the executor, messages and links alone; only the calls between ranks are calibrated, and their own work.
"""
import argparse, json, os, shutil, statistics, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runs import MODEL, Mesh, call, favoured, given, instead, realtime, text


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


def says(of, ratios):
    near = lambda limit: sum(abs(q - 1) <= limit for q in ratios)
    return {f"{of}_ratio_median": statistics.median(ratios), f"{of}_error_median": statistics.median(abs(q - 1) for q in ratios),
            f"{of}_within_5_percent": near(0.05), f"{of}_within_10_percent": near(0.1), f"{of}_from": min(ratios), f"{of}_to": max(ratios)}


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
    a.add_argument("--paced", type=float, default=0, help="paced kernels of so many GFLOP/s; 0: real ones")
    a.add_argument("--realtime", action="store_true", help="run under chrt -r 1: on a machine that others fill, with --paced alone")
    a.add_argument("--favoured", action="store_true", help="run under nice -n -15: real kernels on such a machine")
    o = a.parse_args()
    if o.realtime and not o.paced:
        sys.exit("--realtime is for kernels that use no processor: --paced")
    model = instead(o.model.split(), MODEL)
    data, profile = f"{o.folder}/text", f"{o.folder}/profile.json"
    text(data)
    meshes = [Mesh(m) for m in o.meshes.split(",")]
    first = realtime() if o.realtime else favoured() if o.favoured else []
    most = {m.ranks for m in meshes}
    for n in sorted(n for n in most if not any(k > n and k % n == 0 for k in most)) if o.paced and o.seconds else []: # and their divisors
        call(*first, o.flatout, "calibrate", f"--ranks={n}", f"--seconds={o.seconds:g}", f"--out={profile}")
    for m in meshes if o.seconds and not o.paced else []:
        call(*first, o.flatout, "calibrate", *model, f"--data.path={data}", *m.options, f"--seconds={o.seconds:g}", f"--out={profile}")
    if o.paced:
        given(f"{o.folder}/given.json", 1e9 * o.paced, 1e10, calls=profile)
    ratios = {}
    for n in range(o.rounds):
        for m in meshes:
            for rate in o.gbps.split(","):
                run = f"{o.folder}/r{m.name}-{rate}-{n}"
                paced = [f"--train.paced={o.folder}/given.json"] if o.paced else []
                load = os.getloadavg()[0]
                shutil.rmtree(run, ignore_errors=True)
                call(*first, o.flatout, "train", *model, f"--data.path={data}", *m.options, *paced, f"--link-gbps={rate}",
                     f"--train.steps={o.steps}", f"--run.dir={run}")
                by = [] if o.paced else [f"--profile={profile}", f"--run.threads={m.ranks}"]
                p = json.loads(call(o.flatout, "predict", "--compare", run, *by, "--json"))
                x = p["ranks"]
                report = json.loads(call(o.flatout, "report", run, "--json"))
                got, say = x["measured"]["exposed_median_seconds"], x["measured"]["predicted_exposed_seconds"]
                took = report["step_seconds"]["median"]
                ratio, steps = say / got, x["step_seconds"]["mid"] / took
                ratios.setdefault((m, rate), []).append((ratio, steps))
                print(json.dumps({**m.says, "gbps": float(rate), "round": n, "paced": bool(o.paced), "first": " ".join(first), "steps": x["measured"]["steps"],
                                  "measured_step_s": took, "measured_step_quarter_s": report["step_seconds"]["low"], "predicted_step_s": x["step_seconds"], "step_ratio": steps,
                                  "measured_exposed_s": got, "least_exposed_s": x["measured"]["exposed_least_seconds"],
                                  "predicted_exposed_s": say, "predicted_most_exposed_s": x["exposed_seconds"], "ratio": ratio,
                                  "computing_measured_s": p["compared"]["measured_seconds"],
                                  "computing_predicted_s": p["compared"]["predicted_seconds"],
                                  "received_bytes": x["received_bytes"], "load": load,
                                  "predicted_lanes": x["lanes"], **lanes(report)}), flush=True)
    for (m, rate), v in ratios.items():
        exposed, steps = zip(*v)
        print(json.dumps({**m.says, "gbps": float(rate), "paced": bool(o.paced), "ratio_median": statistics.median(exposed),
                          "ratio_best": min(exposed, key=lambda q: abs(q - 1)), "ratios": sorted(exposed),
                          "step_ratio_median": statistics.median(steps), "step_ratios": sorted(steps)}))
    exposed, steps = zip(*[q for v in ratios.values() for q in v])
    print(json.dumps({"runs": len(steps), "paced": bool(o.paced), **says("exposed", exposed), **says("step", steps)}))


main()
