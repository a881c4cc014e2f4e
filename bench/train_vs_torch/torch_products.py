#!/usr/bin/env python3
"""PyTorch's bf16 products (oneDNN) and attention alone, by the shapes of the benchmark model.

    venv/bin/python bench/train_vs_torch/torch_products.py --threads 2 [--seconds 1]

One JSON line per product: FLOP/s, median and best of calls; set them against the register-only rate that bench_products prints
on the same machine (burst_flop_s_best). The head's product has 512 rows, as in chunks of the loss. Attention counts causal FLOP
(half of the square), forward 4 and backward 8 S S H D / 2 per head, recomputed scores not.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

LAYERS = [(768, 768), (2304, 768), (4096, 768), (768, 2048), (2048, 2048), (32000, 768)]


def measure(call, flop, seconds):
    for _ in range(3):
        call()
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"flop_s_median": flop / statistics.median(times), "flop_s_best": flop / min(times), "calls": len(times)}


def say(**fields):
    print(json.dumps(fields), flush=True)


def products(seconds):
    for out, inner in LAYERS:
        rows = 512 if out == 32000 else 2048
        x, w, g = (torch.randn(*s).bfloat16() for s in ((rows, inner), (out, inner), (rows, out)))
        calls = {"forward": lambda: x @ w.t(), "dgrad": lambda: g @ w, "wgrad": lambda: g.t() @ x}
        for name, call in calls.items():
            say(product=f"{out}x{inner}", rows=rows, **{"pass": name}, **measure(call, 2 * rows * out * inner, seconds))


def attention(seconds, seq=2048, heads=12, dim=64):
    q, k, v, dout = (torch.randn(1, heads, seq, dim).bfloat16() for _ in range(4))
    forward = 4 * heads * seq * seq * dim / 2
    say(attention="forward", seq=seq, heads=heads, dim=dim,
        **measure(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), forward, seconds))
    for t in (q, k, v):
        t.requires_grad_()

    def both():
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dout)

    say(attention="forward and backward", seq=seq, heads=heads, dim=dim, **measure(both, 3 * forward, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1, help="for each line")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    say(torch=torch.__version__, threads=args.threads, capability=torch.backends.cpu.get_cpu_capability(),
        mkldnn_bf16=bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
    products(args.seconds)
    attention(args.seconds)


if __name__ == "__main__":
    main()
