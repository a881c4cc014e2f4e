"""Compares what other readers say with what flatout's own log says.

check.py tensorboard LOG SCALARS.json | prometheus LOG FILE.prom | trace TRACE.json ROWS.json"""
import json
import struct
import sys

TAGS = {"loss/train": "loss", "optimizer/grad_norm": "grad_norm", "optimizer/learning_rate": "lr", "speed/step_seconds": "seconds",
        "speed/tokens_per_second": "tokens_per_second", "mfu/mfu": "mfu", "mfu/mfu_causal": "mfu_causal",
        "mfu/mfu_document": "mfu_document", "mfu/mfu_6n": "mfu_6n", "mfu/hfu": "hfu"}


def fail(text):
    print(text)
    sys.exit(1)


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def log(path):
    """{step: fields} and {step: held-out loss}, the newest line of a step counts."""
    steps, evals = {}, {}
    for line in open(path, encoding="utf-8"):
        e = json.loads(line)
        if e["event"] == "step":
            for s in [s for s in steps if s >= e["step"]]:
                del steps[s]
            for s in [s for s in evals if s >= e["step"]]:
                del evals[s]
            steps[e["step"]] = e
        elif e["event"] == "eval":
            evals[e["step"]] = e["loss"]
    return steps, evals


def tensorboard(path, scalars):
    steps, evals = log(path)
    got = json.load(open(scalars, encoding="utf-8"))
    for tag, field in TAGS.items():
        want = [[s, single(steps[s][field])] for s in sorted(steps) if steps[s][field] is not None and not (field == "seconds" and steps[s].get("metered"))]
        if got.get(tag, []) != want:
            fail(f"{tag}: TensorBoard reads {got.get(tag)}, the log has {want}")
    want = [[s, single(evals[s])] for s in sorted(evals)]
    if got.get("loss/held_out", []) != want:
        fail(f"held-out: {got.get('loss/held_out')}, expected {want}")


def prometheus(path, file):
    from prometheus_client.parser import text_string_to_metric_families as families
    steps, evals = log(path)
    last = steps[max(steps)]
    found = {}
    for family in families(open(file, encoding="utf-8").read()):
        if not family.documentation or family.type == "unknown":
            fail(f"{family.name} has no HELP or TYPE")
        for s in family.samples:
            found[s.name + s.labels.get("rule", "")] = s.value
    want = {"flatout_step": last["step"], "flatout_loss_nats": last["loss"], "flatout_gradient_norm": last["grad_norm"],
            "flatout_learning_rate": last["lr"], "flatout_last_step_seconds": last["seconds"],
            "flatout_held_out_loss_nats": evals[max(evals)], "flatout_held_out_step": max(evals),
            "flatout_checkpoint_step": last["step"], "flatout_skipped_steps": 0}
    for name, value in want.items():
        if found.get(name) != value:
            fail(f"{name} is {found.get(name)}, expected {value}")
    for name in ("flatout_mfu_ratiomfu", "flatout_median_step_seconds", "flatout_memory_planned_bytes", "flatout_memory_measured_bytes",
                 "flatout_checkpoint_timestamp_seconds", "flatout_run_info", "flatout_tokens_per_second"):
        if not found.get(name, 0) > 0:
            fail(f"{name} is {found.get(name)}")


def trace(path, rows):
    """What Perfetto's SQL counted against the file's own events."""
    events = json.load(open(path, encoding="utf-8"))["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    want, counters = {}, {}
    for e in events:
        if e["ph"] == "X":
            key = (names[e["pid"]], threads[e["pid"], e["tid"]], e["name"])
            n, ns = want.get(key, (0, 0))
            want[key] = (n + 1, ns + round(e["dur"] * 1000))
        elif e["ph"] == "C":
            counters[names[e["pid"]], e["name"]] = counters.get((names[e["pid"]], e["name"]), 0) + len(e["args"])
    lines = [json.loads(line) for line in open(rows, encoding="utf-8")]
    errors, slices, counted, shapes = lines
    if errors:
        fail(f"Perfetto found errors: {errors}")
    got = {tuple(row[:3]): tuple(row[3:]) for row in slices}
    if set(got) != set(want):
        fail(f"other slices: {set(got) ^ set(want)}")
    for key, (n, ns) in want.items():
        # It reads microseconds as floating point: a nanosecond may be lost per end of a slice.
        if got[key][0] != n or abs(got[key][1] - ns) > 2 * n:
            fail(f"{key}: Perfetto sums {got[key]}, the file {n, ns}")
    if sum(n for _, n in counted) != sum(counters.values()):
        fail(f"counters: {counted}, expected {counters}")
    if not shapes or not shapes[0][0]:
        fail("no arguments were kept")
    print(f"{sum(n for n, _ in want.values())} slices, {sum(counters.values())} counts, {len(names)} processes")


{"tensorboard": tensorboard, "prometheus": prometheus, "trace": trace}[sys.argv[1]](*sys.argv[2:])
