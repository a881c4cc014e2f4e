"""What three published accounts of slow clusters say, asked of flatout predict: predict_seeds.py PROGRAM SOURCE

The MFU of a remedy must lie above that without it. How far predictions are from published figures is the business of
docs/accuracy.md; here only the order counts, and the sizes that an account is about."""
import json
import subprocess
import sys

program, source = sys.argv[1:]
failed = 0


def mfu(*options):
    """MFU with all scores counted, in %."""
    call = [program, "predict", "--json", *map(str, options)]
    done = subprocess.run(call, capture_output=True, text=True)
    try:
        return 100 * json.loads(done.stdout)["mfu"]["mid"]
    except (ValueError, KeyError):
        sys.exit("predict_seeds: %s: %s" % (" ".join(call), done.stderr))


def holds(what, true):
    global failed
    if not true:
        print("predict_seeds: not so:", what)
        failed = 1


# ---- Lambda 2026: torchtitan on B200 and GB300; published 44.5 to 55.3, 23.8 to 50.2 and 28.6 to 52.7 % ----

audit = source + "/tests/data/audit/lambda_"
before = {}
for name, cluster in (("8b_8xb200", "1xHGX-B200"), ("70b_16xb200", "2xHGX-B200"), ("405b_128xgb300", "128xGB300")):
    at = {}
    for kind in ("baseline", "tuned"):
        at[kind] = [mfu("--torchtitan", audit + name + "_" + kind + ".toml", "--cluster", cluster, "--seq", seq)
                    for seq in (8192, 16384, 32768)]
    before[name] = at["baseline"][0]
    for i in range(3):
        holds("%s at %dk: tuned %.1f above baseline %.1f" % (name, 8 << i, at["tuned"][i], at["baseline"][i]),
              at["tuned"][i] > 1.05 * at["baseline"][i])
    # By this rule attention counts double, so that longer sequences seem to gain.
    holds("%s: 32k %.1f not below 8k %.1f" % (name, at["tuned"][2], at["tuned"][0]), at["tuned"][2] > 0.97 * at["tuned"][0])
    if name.startswith("70b"):
        holds("70B gains the most: %.2f" % (at["tuned"][0] / at["baseline"][0]), at["tuned"][0] > 1.35 * at["baseline"][0])
holds("the 70B's preset for A100 is the worst baseline: %s" % before, before["70b_16xb200"] == min(before.values()))

# One change alone: tensor parallelism of 8 with full recomputation against sharding with selective recomputation.
for model, cluster, batch in (("llama-3.1-8b", "1xHGX-B200", 64), ("llama-3.1-70b", "2xHGX-B200", 64), ("llama-3.1-405b", "128xGB300", 512)):
    for seq in (8192, 16384, 32768):
        job = ("--model", model, "--cluster", cluster, "--seq", seq, "--global-batch", batch * 8192 // seq, "--framework", "torchtitan",
               "--set", "compile=on")
        slow = mfu(*job, "--tp", 8, "--recompute", "full")
        tensor = mfu(*job, "--tp", 8, "--recompute", "selective")
        again = mfu(*job, "--recompute", "full")
        fast = mfu(*job, "--recompute", "selective")
        holds("%s at %d: both remedies %.1f above each alone (%.1f, %.1f) above none %.1f" % (model, seq, fast, tensor, again, slow),
              fast > max(tensor, again) and min(tensor, again) > slow)

# More devices change little where each replica stays in its rack.
sizes = [mfu("--torchtitan", audit + "405b_128xgb300_tuned.toml", "--cluster", "%dxGB300" % n, "--set", "dp_replicate=1,dp_shard=-1")
         for n in (8, 16, 32, 64, 128)]
holds("405B from 8 to 128 devices within 5 points: %s" % sizes, max(sizes) - min(sizes) < 5)


# The exception: on large clusters moderate tensor parallelism beats sharding over all devices, on small ones it does not.
def large(nodes, tp, model):
    return mfu("--model", model, "--cluster", "%dxHGX-H100" % nodes, "--seq", 2048 if nodes > 100 else 8192, "--global-batch", 8 * nodes,
               "--framework", "torchtitan", "--set", "compile=on", "--recompute", "full", "--zero", 3, "--tp", tp, "--micro-batch", tp)


holds("70B on 16 nodes: tp 1 %.1f above tp 8 %.1f" % (large(16, 1, "llama-3.1-70b"), large(16, 8, "llama-3.1-70b")),
      large(16, 1, "llama-3.1-70b") > large(16, 8, "llama-3.1-70b"))
holds("405B on 2,048 nodes: tp 8 %.1f above tp 1 %.1f" % (large(2048, 8, "llama-3.1-405b"), large(2048, 1, "llama-3.1-405b")),
      large(2048, 8, "llama-3.1-405b") > large(2048, 1, "llama-3.1-405b"))

# ---- Vector Labs 2026: tensor parallelism over nodes without sufficient bandwidth loses 15 points or more ----

for bandwidth in ((), ("--measured-bandwidth", 20)):
    job = ("--model", "llama-3.1-70b", "--cluster", "16xHGX-H100", "--seq", 8192, "--global-batch", 512, "--framework", "megatron",
           "--recompute", "selective", *bandwidth)
    inside, across = mfu(*job, "--tp", 8, "--pp", 4), mfu(*job, "--tp", 16, "--pp", 2)
    least = 15 if bandwidth else 10
    holds("70B %s: tp 8 x pp 4 %.1f is %d points above tp 16 x pp 2 %.1f" % (bandwidth, inside, least, across), inside - across > least)

# ---- a cluster of 128 A100 at 7 %: transport, batch, overlap; published 40 % with all three ----

# As found: NCCL over sockets, 12 Gbit/s of a device (the account gives no figure: this one makes its 7 %).
found = ("--model", "gpt3-1.3b", "--cluster", "16xHGX-A100", "--seq", 2048, "--zero", 0)
slow, fast = ("--measured-bandwidth", 1.5), ("--measured-bandwidth", 20)
few, many = ("--micro-batch", 1, "--global-batch", 128), ("--micro-batch", 4, "--global-batch", 512)
after, beside = ("--set", "grad_overlap=off"), ("--set", "grad_overlap=on")
none = mfu(*found, *slow, *few, *after)
alone = {"transport": mfu(*found, *fast, *few, *after), "batch": mfu(*found, *slow, *many, *after), "overlap": mfu(*found, *slow, *few, *beside)}
both = mfu(*found, *fast, *many, *beside)
holds("as found %.1f, published 7" % none, 5 < none < 9)
for fix, got in alone.items():
    holds("%s alone: %.1f above %.1f, below all %.1f" % (fix, got, none, both), none < got < both)
holds("transport is most of it: %s" % alone, alone["transport"] == max(alone.values()))
holds("all three %.1f, published 40" % both, both > 35)
sys.exit(failed)
