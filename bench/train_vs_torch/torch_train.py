#!/usr/bin/env python3
"""The PyTorch peer of the training benchmarks: one Llama, trained on random tokens.

Prints one JSON line per step, {"step":i,"seconds":s,"tokens":n,"loss":l}, on stdout and everything else on
stderr. A step is everything that training needs: forward, loss, backward, clipping, AdamW, refreshed weights.
With --lockstep it waits for a line on stdin before each step (and stops at end of file), so that another
program can interleave its own steps with these. Defaults are the benchmark: 12 layers, 768 wide, 134M parameters.

    --dtype fp32                       parameters, activations and products in fp32
    --dtype bf16 --bf16-mode pure      bf16 weights and activations, fp32 master weights and AdamW
    --dtype bf16 --bf16-mode autocast  fp32 weights, torch.autocast to bf16
    --dtype bf16 --bf16-mode bare      bf16 weights and moments, no master weights
    --device cuda                      on the first GPU; memory that does not suffice: {"error":"out of memory"}, exit 5
    --recompute full | selective       each layer is computed again in backward; all but its products and attention
    --sdpa cudnn | flash               the attention that PyTorch may take; auto: its own choice
    --check DIR                        no training: compares this model with a stored case of tests/golden
"""

import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as ckpt


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.heads, c.kv_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, s, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, s, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, self.heads * self.head_dim))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.eps = c.eps
        self.weight = nn.Parameter(torch.ones(c.hidden))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c)
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = Norm(c)
        self.recompute = c.recompute

    def forward(self, tokens, cos, sin):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = again(layer, self.recompute, x, cos, sin) if self.recompute != "none" else layer(x, cos, sin)
        return self.norm(x)


# What selective recomputation keeps: results of the expensive operations.
KEPT = [torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default]


def again(layer, how, *args):
    """A layer whose activations are computed again in backward."""
    more = {}
    if how == "selective":
        more["context_fn"] = lambda: ckpt.create_selective_checkpoint_contexts(KEPT)
    return ckpt.checkpoint(layer, *args, use_reentrant=False, **more)


class Llama(nn.Module):
    """Module names give the parameters the names of published Llama checkpoints."""

    def __init__(self, c):
        super().__init__()
        self.model = Trunk(c)
        self.lm_head = nn.Linear(c.hidden, c.vocab, bias=False)
        if c.tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, cos, sin):
        return self.lm_head(self.model(tokens, cos, sin))


def rotate(x, cos, sin):
    """RoPE, half rotation: element i is paired with element i + head_dim / 2."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rope_tables(seq, head_dim, theta, dtype):
    """cos and sin, each [seq, head_dim / 2]; angles are computed in fp64."""
    inv_freq = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.outer(torch.arange(seq, dtype=torch.float64), inv_freq)
    return angle.cos().to(dtype), angle.sin().to(dtype)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.pure = args.dtype == "bf16" and args.bf16_mode == "pure"
        with torch.device(args.device):
            self.model = Llama(args)
        if args.dtype == "bf16" and args.bf16_mode == "bare":
            self.model = self.model.to(torch.bfloat16)
        self.master = list(self.model.parameters())
        if self.pure:
            self.master = [nn.Parameter(p.detach().clone()) for p in self.master]
            self.model = self.model.to(torch.bfloat16)
        self.params = list(self.model.parameters())
        groups = [{"params": [p for p in self.master if p.dim() == 2], "weight_decay": args.weight_decay},
                  {"params": [p for p in self.master if p.dim() == 1], "weight_decay": 0.0}]
        self.opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.run = torch.compile(self.loss) if args.compile else self.loss
        table = torch.bfloat16 if args.dtype == "bf16" else torch.float32
        self.cos, self.sin = (t.to(args.device) for t in rope_tables(args.seq, args.head_dim, args.theta, table))
        self.gen = torch.Generator().manual_seed(args.seed)

    def loss(self, tokens, targets):
        logits = self.model(tokens, self.cos, self.sin)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def batch(self):
        x = torch.randint(0, self.args.vocab, (self.args.batch, self.args.seq + 1), generator=self.gen).to(self.args.device)
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    def step(self, tokens, targets):
        auto = self.args.dtype == "bf16" and self.args.bf16_mode == "autocast"
        with torch.autocast(self.args.device, torch.bfloat16) if auto else contextlib.nullcontext():
            loss = self.run(tokens, targets)
        loss.backward()
        if self.pure:
            for m, p in zip(self.master, self.params):
                m.grad, p.grad = p.grad.float(), None
        if self.args.clip > 0:
            nn.utils.clip_grad_norm_(self.master, self.args.clip)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        if self.pure:
            with torch.no_grad():
                torch._foreach_copy_(self.params, self.master)
        return loss.item()


def train(args):
    if args.sdpa != "auto":
        torch.backends.cuda.enable_cudnn_sdp(args.sdpa == "cudnn")
        torch.backends.cuda.enable_flash_sdp(args.sdpa == "flash")
    trainer = Trainer(args)
    count = sum(p.numel() for p in trainer.params)
    mode = args.dtype + (" " + args.bf16_mode if args.dtype == "bf16" else "") + (" compiled" if args.compile else "")
    where = (f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}, sdpa {args.sdpa}" if args.device == "cuda"
             else f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    print(f"torch {torch.__version__}, {where}, {mode}, recompute {args.recompute}, {count} parameters, "
          f"{args.batch} x {args.seq} tokens per step", file=sys.stderr)
    for i in range(args.steps):
        tokens, targets = trainer.batch()
        if args.lockstep and not sys.stdin.readline():
            return 0
        start = time.perf_counter()
        loss = trainer.step(tokens, targets)
        line = {"step": i, "seconds": round(time.perf_counter() - start, 6), "tokens": tokens.numel(),
                "loss": round(loss, 6)}
        print(json.dumps(line, separators=(",", ":")), flush=True)
    return 0


def check(args):
    """Logits, loss and all gradients of a stored case (default RoPE, one document per row) in --dtype fp32 | fp64."""
    from safetensors.torch import load_file
    with open(os.path.join(args.check, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    want = load_file(os.path.join(args.check, "expected.safetensors"))
    if c["rope_scaling"] or int(want["doc_start"].max()) > 0:
        print(f"'{args.check}' has scaled RoPE or packed rows, which this program does not train", file=sys.stderr)
        return 2
    args.vocab, args.hidden, args.ffn = c["vocab_size"], c["hidden_size"], c["intermediate_size"]
    args.layers, args.heads, args.kv_heads = (c["num_hidden_layers"], c["num_attention_heads"],
                                              c["num_key_value_heads"])
    args.head_dim = c.get("head_dim", args.hidden // args.heads)
    args.eps, args.tied = c["rms_norm_eps"], c["tie_word_embeddings"]
    dtype = torch.float64 if args.dtype == "fp64" else torch.float32
    model = Llama(args)
    state = load_file(os.path.join(args.check, "model.safetensors"))
    if args.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    model = model.to(dtype)
    cos, sin = rope_tables(want["tokens"].shape[1], args.head_dim, c["rope_theta"], dtype)
    logits = model(want["tokens"].long(), cos, sin)
    loss = F.cross_entropy(logits.flatten(0, 1), want["targets"].long().flatten())
    loss.backward()
    got = {"grad." + n: p.grad for n, p in model.named_parameters()} | {"logits": logits, "loss": loss.reshape(1)}
    worst = 0.0
    for n, t in got.items():
        t, w = t.detach().double(), want[n].double()
        worst = max(worst, float((t - w).abs().max() / w.abs().max()))
    print(f"{args.check}: {len(got)} tensors, largest error {worst:.2e} of the tensor's largest value")
    return 0 if worst < 1e-4 else 1


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--dtype", choices=("bf16", "fp32", "fp64"), default="bf16", help="fp64 for --check only")
    ap.add_argument("--bf16-mode", choices=("pure", "autocast", "bare"), default="pure")
    ap.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    ap.add_argument("--recompute", choices=("none", "selective", "full"), default="none")
    ap.add_argument("--sdpa", choices=("auto", "cudnn", "flash"), default="auto")
    ap.add_argument("--compile", action="store_true", help="torch.compile (needs a C++ compiler)")
    ap.add_argument("--lockstep", action="store_true", help="wait for a line on stdin before each step")
    ap.add_argument("--check", metavar="DIR")
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--batch", type=int, default=1, help="rows per step")
    ap.add_argument("--seq", type=int, default=2048)
    ap.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--hidden", type=int, default=768)
    ap.add_argument("--ffn", type=int, default=2048)
    ap.add_argument("--heads", type=int, default=12)
    ap.add_argument("--kv-heads", type=int, default=0, help="0: as many as heads")
    ap.add_argument("--vocab", type=int, default=32000)
    ap.add_argument("--tied", action="store_true")
    ap.add_argument("--theta", type=float, default=10000.0)
    ap.add_argument("--eps", type=float, default=1e-5)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--weight-decay", type=float, default=0.1)
    ap.add_argument("--clip", type=float, default=1.0, help="global gradient norm; 0: no clipping")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    if args.dtype == "fp64" and not args.check:
        ap.error("--dtype fp64 is for --check only")
    args.kv_heads = args.kv_heads or args.heads
    if args.hidden % args.heads or args.heads % args.kv_heads:
        ap.error("--hidden must be a multiple of --heads, and --heads of --kv-heads")
    args.head_dim = args.hidden // args.heads
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.check:
        return check(args)
    try:
        return train(args)
    except torch.cuda.OutOfMemoryError:
        print('{"error":"out of memory"}', flush=True)
        return 5


if __name__ == "__main__":
    sys.exit(main())
