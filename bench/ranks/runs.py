"""What the benchmarks of ranks share: small runs, their meshes, and profiles of given times for paced kernels."""
import json, os, subprocess, sys

# A small model with few tokens a step, so that communication takes much of it.
MODEL = """--model.layers=4 --model.hidden=256 --model.heads=4 --model.kv-heads=2 --model.head-dim=64 --model.ffn=768
--model.vocab=300 --data.seq=64 --train.rows=4 --train.micro-batches=1 --eval.every=0 --checkpoint.every=0 --checkpoint.last=no
--sample.tokens=0""".split()


def text(folder):
    os.makedirs(folder, exist_ok=True)
    line = "the quick brown fox jumps over the lazy dog and goes on into the forest, where it sleeps\n"
    for i in range(100):
        with open(f"{folder}/{i:03}.txt", "w") as f:
            f.write(line * 20)


def realtime():
    """Words in front of a command whose threads shall run as soon as they wake, whatever else fills the processors: for paced
    kernels, which use next to nothing of them. Empty where that is not allowed."""
    can = not subprocess.run(["chrt", "-r", "1", "true"], capture_output=True).returncode
    return ["chrt", "-r", "1"] if can else []


def favoured():
    """The same for commands that compute: they get nearly all of the processors' time, and share it among themselves as ever."""
    can = not subprocess.run(["nice", "-n", "-15", "true"], capture_output=True).stderr
    return ["nice", "-n", "-15"] if can else []


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def instead(options, of):
    """Options `of`, but for those that `options` gives."""
    given = {w.split("=")[0] for w in options}
    return [w for w in of if w.split("=")[0] not in given] + list(options)


class Mesh:
    """REPLICATExSHARD[xTP[xCP[xPP]]], then :ZERO, @PIECES (pass.tp-async) and +SCHEDULE (pass.pp)."""

    def __init__(self, text, threads=1):
        self.text = text
        rest, _, schedule = text.partition("+")
        rest, _, pieces = rest.partition("@")
        self.mesh, _, zero = rest.partition(":")
        self.replicate, self.shard, self.tp, self.cp, self.pp = ([int(n) for n in self.mesh.split("x")] + [1] * 3)[:5]
        self.ranks, self.zero = self.replicate * self.shard * self.tp * self.cp * self.pp, int(zero or 0)
        self.name = text.replace(":", "-").replace("@", "-").replace("+", "-")
        self.options = [f"--ranks={self.ranks}", f"--mesh.shard={self.shard}", f"--run.threads={self.ranks * threads}"]
        for axis, n in (("tp", self.tp), ("cp", self.cp), ("pp", self.pp)):
            self.options += [f"--mesh.{axis}={n}"] if n > 1 else []
        self.options += [f"--pass.zero={self.zero}"] if self.zero else []
        self.options += [f"--pass.tp-async={pieces}"] if pieces else []
        self.options += [f"--pass.pp={schedule}"] if schedule else []
        self.says = {"ranks": self.ranks, "replicate": self.replicate, "shard": self.shard, "tp": self.tp, "cp": self.cp,
                     "pp": self.pp, "zero": self.zero, "tp_async": pieces or "auto" if self.tp > 1 else None,
                     "schedule": schedule or "1f1b" if self.pp > 1 else None}


def row(kind, variant, dtype, shape, flop, size, seconds, threads):
    return {"kind": kind, "variant": variant, "dtype": dtype, "set": "given", "threads": threads, "shape": shape, "flop": flop,
            "bytes": size, "quiet_median_s": None, "quiet_best_s": None, "quiet": 0, "median_s": seconds, "best_s": seconds,
            "spans": 1, "date": "given"}


def products(tokens, out, size):
    """Shapes m, n, k of the matmuls of a weight of out x size: forward, input's and weight's gradient."""
    return {"forward": (tokens, out, size), "dgrad": (tokens, size, out), "wgrad": (out, size, tokens)}


def given(path, flop_s, byte_s, threads=1, tokens=512, even=((1024, 1024),), fast=(), calls=None):
    """Writes a profile of given times: matmuls and attention at flop_s, what moves memory at byte_s. even: weights (rows,
    columns) whose matmuls on so many tokens have a row of their own; fast: weights whose matmuls take a thousandth. calls:
    a measured profile, whose rows of calls between ranks are taken."""
    rows = []
    for weights, rate in ((even, flop_s), (fast, 1e3 * flop_s)):
        for w in weights:
            for variant, (m, n, k) in products(tokens, *w).items():
                flop = 2.0 * m * n * k
                rows.append(row("matmul", variant, "bf16", [m, n, k], flop, 2.0 * (m * k + n * k + m * n), flop / rate, threads))
    for kind in ("attention", "attention_bwd"):
        rows.append(row(kind, "causal", "bf16", [1024, 16, 16, 64], flop_s, 1 << 24, 1, threads))
    rows.append(row("copy", "plain", "-", [1 << 24], 0, 1 << 24, (1 << 24) / byte_s, threads))
    if calls:
        rows += [r for r in json.load(open(calls))["rows"] if r["variant"] == "ranks"]
    with open(path, "w") as f:
        json.dump({"schema": 1, "cpu": "given times", "isa": "given", "cache_bytes": 0, "date": "given",
                   "method": f"given: {flop_s:g} FLOP/s, {byte_s:g} bytes/s", "peaks": [], "rows": rows}, f)
