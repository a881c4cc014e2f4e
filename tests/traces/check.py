#!/usr/bin/env python3
"""`flatout diagnose` on public traces against figures that others published, and those of independent reference programs.

    check.py FLATOUT TRACES [REFERENCE.jsonl]

TRACES holds one folder per trace, EXPECTED.md, and REF_exact.jsonl, REF_idle.jsonl, REF_nsys.jsonl: the output of ref.py,
ref_idle.py and ref_nsys.py over all of them. With REFERENCE.jsonl only ref.py's figures in that file are compared, of files by
their whole path. Standard library only. Last line: "N compared, N wrong"; exit status 1 if any is wrong."""

import json
import os
import re
import subprocess
import sys

compared = wrong = 0


def check(what, got, want, allowed=0):
    global compared, wrong
    compared += 1
    if got is None or abs(got - want) > allowed:
        wrong += 1
        print(f"WRONG: {what}: {got}, expected {want}" + (f" within {allowed}" if allowed else ""))


def fail(what):
    global compared, wrong
    compared += 1
    wrong += 1
    print("WRONG: " + what)


def diagnose(flatout, path, *flags):
    done = subprocess.run([flatout, "diagnose", path, "--json", "-", *flags], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        fail(f"{path}: exit {done.returncode}: {done.stderr.strip()}")
        return None
    return json.loads(done.stdout)


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def ns(us):
    return round(us * 1000)


def sums(what, part):
    """Every sum that docs/metrics.md promises, exactly."""
    check(what + " span", part["comp_ns"] + part["exposed_comm_ns"] + part["exposed_mem_ns"] + part["idle_ns"], part["span_ns"])
    check(what + " busy", part["busy_ns"] + part["idle_ns"], part["span_ns"])
    check(what + " idle", sum(part["idle"].values()), part["idle_ns"])
    check(what + " categories", sum(part["categories"].values()), part["comp_ns"])
    check(what + " exposed_comm", sum(part["exposed_comm"].values()), part["exposed_comm_ns"])
    check(what + " exposed_mem", sum(part["exposed_mem"].values()), part["exposed_mem_ns"])


def all_sums(name, d):
    for rank in d["ranks"]:
        for device in rank["devices"]:
            what = f"{name} device {device['device']}"
            sums(what, device)
            for step in device["steps"]:
                sums(f"{what} step {step['number']}", step)
            for key in ("span_ns", "busy_ns", "comp_ns", "comm_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns"):
                check(f"{what} {key} of its steps", sum(s[key] for s in device["steps"]), device[key])


def exact(name, d, ref):
    """ref.py: every GPU operation of the trace."""
    devices = {str(x["device"]): x for rank in d["ranks"] for x in rank["devices"]}
    if sorted(devices) != sorted(x["dev"] for x in ref["dev"]):
        fail(f"{name}: devices {sorted(devices)}, expected {sorted(x['dev'] for x in ref['dev'])}")
        return
    for want in ref["dev"]:
        got = devices[want["dev"]]
        for key in ("span", "busy", "idle", "comp", "comm", "exposed_comm", "exposed_mem", "mem"):
            check(f"{name} device {want['dev']} {key}", got[key + "_ns"], ns(want[key + "_us"]))
        check(f"{name} device {want['dev']} operations", got["ops"], sum(want["n"].values()))
        for key, classes in (("comm", ["communication"]), ("mem", ["memory"])):
            check(f"{name} device {want['dev']} {key} operations", sum(got["sums"].get(c, {"ops": 0})["ops"] for c in classes),
                  want["n"].get(key, 0))
    sum_dur = sum(ns(x["sum_dur_us"]) for x in ref["dev"])
    check(f"{name} durations", sum(c["ns"] for x in devices.values() for c in x["sums"].values()), sum_dur)


IDLE = {"host_dataloader": ["host_data"], "host_sync": ["host_sync"], "host_other": ["host_launch_bound", "host_other"],
        "launch_latency": ["launch_latency"], "kernel_gap": ["kernel_gap"], "dependency_or_queue": ["dependency"],
        "unattributed": ["unknown"]}


def idle(name, d, ref):
    """ref_idle.py, which rounds to 0.1 us."""
    device = d["ranks"][0]["devices"][0]
    for key, ours in IDLE.items():
        check(f"{name} idle {key}", sum(device["idle"][k] for k in ours), ns(ref["parts_us"].get(key, 0)), 50)
    check(f"{name} idle in all", device["idle_ns"], ns(ref["idle_us"]))


def nsys(name, d, ref):
    devices = {x["device"]: x for rank in d["ranks"] for x in rank["devices"]}
    for want in ref["dev"]:
        if want["scope"] != "with_mem":
            continue
        got = devices.get(want["dev"])
        if got is None:
            fail(f"{name}: no device {want['dev']}")
            continue
        for key in ("span", "busy", "idle", "comp", "comm", "exposed_comm", "mem"):
            check(f"{name} device {want['dev']} {key}", got[key + "_ns"], round(want[key + "_ms"] * 1e6))


# TraceLens' golden gpu_timeline.csv (EXPECTED.md, section 3), ms; GPU operations without a launch record are not in them.
# trace: computation, exposed communication, exposed copies, total; None: not printed there with digits.
TICK = 100  # ns: TraceLens adds up microseconds since 1970 as doubles, which have a quarter of one, and the table rounds to 10 ns
TRACELENS = {
    "tl_gpu_only_mi210": (5.34337, 0, 0, 5.97950),
    "tl_qwen0.5b_mi300x": (29.74317, 0, None, 33.13133),
    "tl_bert_h100": (0.307198, 0, None, 3.90782),
    "tl_torch_compile_llm_block_mi300x": (12.54902, 0, 0, 12.54903),
    "tl_norm_fwdbwd_mi300x": (0.99199, 0, None, 1068.7798),
}


def tracelens(flatout, traces):
    for folder, (comp, comm, mem, total) in TRACELENS.items():
        place = os.path.join(traces, folder)
        for file in sorted(os.listdir(place)):
            d = diagnose(flatout, os.path.join(place, file), "--exclude-unlinked")
            if d is None:
                continue
            device = d["ranks"][0]["devices"][0]
            check(f"{folder} computation", device["comp_ns"], comp * 1e6, TICK)
            check(f"{folder} exposed communication", device["exposed_comm_ns"], comm * 1e6, TICK)
            if mem is not None:
                check(f"{folder} exposed copies", device["exposed_mem_ns"], mem * 1e6, TICK)
            check(f"{folder} total", device["span_ns"], total * 1e6, TICK)
    # Its recomputed kernels stand in a ledger of their own.
    place = os.path.join(traces, "tl_resnet_actckpt_ddp8_mi300x")
    d = diagnose(flatout, os.path.join(place, sorted(os.listdir(place))[0]), "--exclude-unlinked")
    if d is not None:
        device = d["ranks"][0]["devices"][0]
        check("tl_resnet_actckpt recomputed", device["recompute_ns"], 4.12224e6, TICK)
        once = device["without_recompute"]
        sums("tl_resnet_actckpt without recompute", once)
        for key, want in (("comp", 15.1119), ("exposed_comm", 38.3432), ("comm", 47.2003), ("exposed_mem", 1.5836), ("idle", 1.4789),
                          ("span", 56.5176)):
            check(f"tl_resnet_actckpt without recompute: {key}", once[key + "_ns"], want * 1e6, TICK)


# The TensorBoard view's golden file (EXPECTED.md, section 2), us: steps 5 to 10 of workers 0, and the means of both traces.
VIEW = {
    "kernel": (98598, 98570, 98596, 98623, 98504, 98641),
    "memcpy": (1941, 1947, 1931, 1938, 1937, 1798),
    "memset": (90, 89, 91, 89, 87, 88),
    "runtime": (2796, 2762, 2877, 2841, 2788, 3381),
    "data_loader": (69317, 57669, 61257, 56453, 62690, 48185),
    "cpu_exec": (14091, 12968, 13768, 13420, 15025, 12773),
    "other": (1115, 1148, 1213, 1200, 1141, 1117),
}
VIEW_MEAN = {
    "resnet50_num_workers_0": (177592, 98589, 1915, 89, 2908, 59262, 13674, 1156),
    "resnet50_num_workers_4": (141068, 99145, 3160, 98, 10564, 1186, 22665, 4251),
}


def view(flatout, traces):
    place = os.path.join(traces, "kineto_resnet50_v100_2021")
    for file in sorted(os.listdir(place)):
        d = diagnose(flatout, os.path.join(place, file))
        if d is None:
            continue
        steps = d["ranks"][0]["host_steps"]
        key = next(k for k in VIEW_MEAN if file.startswith(k))
        total, *parts = VIEW_MEAN[key]
        n = max(1, len(steps))
        check(f"{key} mean step", sum(s["span_ns"] for s in steps) / n, total * 1000, 500)
        for name, want in zip(VIEW, parts):
            check(f"{key} mean {name}", sum(s["parts"][name] for s in steps) / n, want * 1000, 500)
        if key.endswith("_0"):
            check(f"{key} steps", len(steps), 6)
            for name, values in VIEW.items():
                for s, want in zip(steps, values):
                    check(f"{key} step {s['number']} {name}", s["parts"][name], want * 1000)
        for s in steps:
            check(f"{key} step {s['number']} parts", sum(s["parts"].values()), s["span_ns"])


# With a model, its sequence, a device, tokens per step and the number of steps MFU is known wherever there is work to speak of. The model
# is none of these traces' own: it is whether the figure can be had that is looked at, so the tokens are few.
GIVEN = ("--model", "flatout-134m", "--seq", "128", "--device", "h100", "--tokens-per-step", "64", "--steps", "1")
MFU_KNOWN = 12
CANNOT = ("no_gpu_work", "too_little_gpu_work", "warm_up")


def mfu(flatout, traces):
    known = []
    for folder in sorted(os.listdir(traces)):
        place = os.path.join(traces, folder)
        files = sorted(f for f in os.listdir(place) if f.endswith((".json", ".json.gz", ".sqlite"))) if os.path.isdir(place) else []
        if not files or folder in ("ref", "bytedance_ST"):
            continue
        d = diagnose(flatout, place if folder.startswith("param_dlrm") else os.path.join(place, files[0]), *GIVEN)
        if d is None:
            continue
        if d["bridge"]["known"]:
            known.append(folder)
            check(f"{folder} rows of the bridge", sum(r["share"] for r in d["bridge"]["rows"]), 1, 1e-9)
            if not 0 < d["bridge"]["mfu"] <= 1:
                fail(f"{folder}: MFU {d['bridge']['mfu']}")
        elif d["judgement"] not in CANNOT:
            fail(f"{folder}: MFU is not known: {d['bridge']['why_not']}")
        for key in ("resident", "computing"):
            if d["utilisation"][key] is not None and not 0 <= d["utilisation"][key] <= 1:
                fail(f"{folder}: {key} {d['utilisation'][key]}")
    print(f"MFU known in {len(known)} folders: {', '.join(known)}")
    if len(known) < MFU_KNOWN:
        fail(f"MFU is known in {len(known)} folders, expected {MFU_KNOWN}")


# What cannot be diagnosed says so everywhere, and its exit status is 1.
def judged(flatout, traces):
    for folder in ("kineto_out_of_order_h100", "hta_quirk_old_cat", "hta_triton_a100", "nsys_mock_small", "nsys_no_gpu_work", "tl_norm_fwdbwd_mi300x"):
        place = os.path.join(traces, folder)
        for file in sorted(os.listdir(place)):
            done = subprocess.run([flatout, "diagnose", os.path.join(place, file), "--brief"], capture_output=True, text=True)
            check(f"{folder} exit status", done.returncode, 1)
            if not done.stdout.startswith("Cannot be diagnosed: "):
                fail(f"{folder}: {done.stdout[:80]!r}")


# Every text: no line above 80 columns but for a path or a flag that has no blank, no share of more than all there is. Only a pipeline's
# schedule has some above 100 %, which its own definition allows and the text explains.
def texts(flatout, traces):
    for folder in sorted(os.listdir(traces)):
        place = os.path.join(traces, folder)
        for file in sorted(os.listdir(place)) if os.path.isdir(place) else []:
            if not file.endswith((".json", ".json.gz", ".sqlite")):
                continue
            done = subprocess.run([flatout, "diagnose", os.path.join(place, file)], capture_output=True, text=True)
            for line in done.stdout.splitlines():
                check(f"{folder}/{file}: columns of '{line}'", max(0, len(line) - 80) if " " in line.strip() and traces not in line else 0, 0)
            for share in re.findall(r"(-?\d+(?:\.\d+)?) %", done.stdout):
                if float(share) < 0 or (float(share) > 100 and "Pipeline schedule" not in done.stdout):
                    fail(f"{folder}/{file}: {share} %")


def main():
    flatout, traces = sys.argv[1:3]
    if len(sys.argv) > 3:
        for ref in lines(sys.argv[3]):
            if "error" not in ref:
                d = diagnose(flatout, ref["file"], "--whole-trace")
                if d is not None:
                    all_sums(ref["file"], d)
                    exact(ref["file"], d, ref)
                d = diagnose(flatout, ref["file"])
                if d is not None:
                    all_sums(ref["file"] + " by steps", d)
    else:
        of_idle = {x["file"]: x for x in lines(os.path.join(traces, "REF_idle.jsonl"))}
        for ref in lines(os.path.join(traces, "REF_exact.jsonl")) + lines(os.path.join(traces, "REF_nsys.jsonl")):
            name, path = ref["file"], os.path.join(traces, ref["file"])
            if "error" in ref and not name.endswith(".sqlite"):
                continue
            d = diagnose(flatout, path, "--whole-trace")
            if d is None:
                continue
            all_sums(name, d)
            if name.endswith(".sqlite"):
                nsys(name, d, ref if "dev" in ref else {"dev": []})
            else:
                exact(name, d, ref)
            if name in of_idle and "idle_us" in of_idle[name]:
                idle(name, d, of_idle[name])
            d = diagnose(flatout, path)
            if d is not None:
                all_sums(name + " by steps", d)
        tracelens(flatout, traces)
        view(flatout, traces)
        mfu(flatout, traces)
        judged(flatout, traces)
        texts(flatout, traces)
    print(f"{compared} compared, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
