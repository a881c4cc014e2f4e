#!/usr/bin/env python3
"""Makes data/step_values.inc: what `flatout verify` holds a training step to.

    venv/bin/python tests/golden/make_step.py            # rewrites the file (venv: see make_golden.py)
    venv/bin/python tests/golden/make_step.py --out F    # writes F instead (to compare)

The truth is a Llama in double precision throughout, written here in plain PyTorch operations. (transformers computes
norms, softmax and rotary tables in fp32 whatever the weights are, so its double precision is not one.) It is held to
transformers in fp32 on the same weights, and the errors of transformers in fp32 and in bf16 against it are stored too:
they are what "at most twice the naive implementation's" refers to.

Weights are not stored: both sides draw them from SplitMix64 (base/clock.h, fo_rng_u64), as multiples of 1/128 times a
power of two, which bf16 holds exactly.
"""

import argparse
import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from make_golden import HERE, NO_TARGET, VERSIONS, check_rope, config_json, document_mask, to_bf16
from transformers import LlamaConfig

OUT = os.path.join(HERE, "..", "..", "data", "step_values.inc")
VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV, DIM = 40, 16, 40, 2, 2, 1, 8
ROWS, SEQ, MICRO, STEPS = 2, 24, 2, 3
THETA, NORM_EPS = 10000.0, 1e-5
LR, BETAS, EPS, DECAY, MAX_NORM = 1e-2, (0.9, 0.95), 1e-8, 0.1, 1.0
DOCS = [[[24], [9, 15]], [[1, 5, 18], [24]]]  # by micro-batch and row
BATCH_STREAM = 1000
MASK = (1 << 64) - 1


def rng(stream, index):
    """fo_rng_u64 of base/clock.h."""
    x = (stream * 0xD1342543DE82EF95 + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def exponent(name):
    """Weights are uniform in +-2^exponent: about the deviation 1 / sqrt(fan_in) that keeps activations near one."""
    return 0 if "embed" in name else -2 if "down_proj" in name else -1


def draw(stream, name, shape):
    n = math.prod(shape)
    r = torch.tensor([(rng(stream, i) >> 56) - 128 for i in range(n)], dtype=torch.float64) / 128
    return 1 + (r * 16).floor() / 128 if len(shape) == 1 else (r * 2.0 ** exponent(name)).reshape(shape)


def make_model():
    config = LlamaConfig.from_dict(config_json(VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV, head_dim=DIM, theta=THETA,
                                               eps=NORM_EPS))
    config._attn_implementation = "eager"
    config.use_cache = False
    model = LlamaForCausalLM(config).to(torch.float32)
    check_rope(model, {"rope_theta": THETA, "rope_scaling": None})
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            w = draw(i, name, tuple(p.shape))
            assert torch.equal(w.to(torch.bfloat16).double(), w), name
            p.copy_(w)
    model.train()
    return model


def make_batch():
    """[micro][rows, seq]: tokens, targets, positions, first token of the document within the row."""
    batch, k = [], 0
    for m in range(MICRO):
        token, target, position, start = (torch.zeros((ROWS, SEQ), dtype=torch.long) for _ in range(4))
        for r in range(ROWS):
            for s in range(SEQ):
                token[r, s] = rng(BATCH_STREAM, k) % VOCAB
                k += 1
            at = 0
            for n in DOCS[m][r]:
                position[r, at:at + n] = torch.arange(n)
                start[r, at:at + n] = at
                target[r, at:at + n - 1] = token[r, at + 1:at + n]
                target[r, at + n - 1] = NO_TARGET
                at += n
            assert at == SEQ
        target[0, 3 + m] = NO_TARGET
        batch.append((token, target, position, start))
    return batch


def rotate(x, cos, sin):
    a, b = x[..., :DIM // 2], x[..., DIM // 2:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def norm(x, g):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * g


def forward64(w, token, position, start):
    """Logits of the model in double precision; w: parameters by name."""
    freq = THETA ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    angle = position[:, None, :, None].double() * freq
    cos, sin = angle.cos(), angle.sin()
    mask = document_mask(start, torch.float64)
    x = w["model.embed_tokens.weight"][token]
    for layer in range(LAYERS):
        def p(name):
            return w[f"model.layers.{layer}.{name}.weight"]

        def heads(name, n):
            return (y @ p("self_attn." + name).T).reshape(ROWS, SEQ, n, DIM).transpose(1, 2)

        y = norm(x, p("input_layernorm"))
        q, k, v = heads("q_proj", HEADS), heads("k_proj", KV), heads("v_proj", KV)
        k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (rotate(k, cos, sin), v))
        score = rotate(q, cos, sin) @ k.transpose(2, 3) / math.sqrt(DIM) + mask
        o = (score.softmax(-1) @ v).transpose(1, 2).reshape(ROWS, SEQ, HEADS * DIM)
        x = x + o @ p("self_attn.o_proj").T
        y = norm(x, p("post_attention_layernorm"))
        x = x + (F.silu(y @ p("mlp.gate_proj").T) * (y @ p("mlp.up_proj").T)) @ p("mlp.down_proj").T
    return norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T


def forward_hf(model, token, position, start):
    mask = document_mask(start, next(model.parameters()).dtype)
    return model(input_ids=token, position_ids=position, attention_mask=mask, use_cache=False).logits.float()


def train(batch, precision):
    """Loss and gradient norm of each step, gradients of the first by name, as doubles."""
    model = make_model()
    names = [n for n, _ in model.named_parameters()]
    params = [p.detach().to(torch.float64 if precision == "f64" else torch.float32).requires_grad_()
              for p in model.parameters()]
    run = to_bf16(model) if precision == "bf16" else model
    groups = [{"params": [p for p in params if p.dim() == 2], "weight_decay": DECAY},
              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=False, foreach=False)
    count = sum(int((b[1] != NO_TARGET).sum()) for b in batch)
    losses, norms, first = [], [], None
    for _ in range(STEPS):
        for p in params:
            p.grad = torch.zeros_like(p)
        total = 0.0
        for token, target, position, start in batch:
            if precision == "f64":
                logits = forward64(dict(zip(names, params)), token, position, start)
            else:
                logits = forward_hf(run, token, position, start)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=NO_TARGET,
                                   reduction="sum") / count
            loss.backward()
            total += float(loss.detach())
            if precision != "f64":
                for p, q in zip(params, run.parameters()):
                    p.grad += q.grad.to(p.dtype)
                    q.grad = None
        first = first or {n: p.grad.double().clone() for n, p in zip(names, params)}
        norms.append(float(torch.nn.utils.clip_grad_norm_(params, MAX_NORM, foreach=False)))
        losses.append(total)
        opt.step()
        with torch.no_grad():
            for p, q in zip(params, run.parameters()):
                q.copy_(p)
    return losses, norms, first


def rms(x):
    return float(x.square().mean().sqrt())


def hex32(x):
    return "0x%08x" % (torch.tensor(x, dtype=torch.float32).view(torch.int32).item() & 0xFFFFFFFF)


def numbers(values, form, per_line):
    text = [form(v) for v in values]
    return "".join("\t" + ", ".join(text[i:i + per_line]) + ",\n" for i in range(0, len(text), per_line))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=OUT)
    out = ap.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    batch = make_batch()
    truth, fp32, bf16 = (train(batch, p) for p in ("f64", "fp32", "bf16"))
    assert max(truth[1]) > MAX_NORM, "clipping must bind"
    # The stored cases of make_golden.py differ by up to 2e-6; a wrong formula by 1e-3 and more.
    far = max(float((fp32[2][n] - g).abs().max() / g.abs().max()) for n, g in truth[2].items())
    assert far < 5e-6, f"this script's model is not transformers' Llama: gradients differ by {far}"
    print("loss", truth[0], "norm", truth[1], "fp32 gradients within %.2e" % far)

    def off(got, i):
        return max(abs(a - b) for a, b in zip(got[i], truth[i]))

    flat = [torch.stack([b[i] for b in batch]).flatten().tolist() for i in range(4)]
    rows = [(r * SEQ + s) for _ in range(MICRO) for r, s in ((i // SEQ, 0) for i in range(ROWS * SEQ))]
    flat[1] = [-1 if t == NO_TARGET else t for t in flat[1]]
    flat[3] = [a + b for a, b in zip(flat[3], rows)]  # flat over the micro-batch, as the engine takes it
    with open(out, "w", encoding="ascii") as f:
        f.write("/* Made by tests/golden/make_step.py (" + ", ".join(f"{k} {v}" for k, v in VERSIONS.items()) +
                "); do not edit. */\n\n")
        f.write(f"#define STEP_MODEL .layers = {LAYERS}, .hidden = {HIDDEN}, .heads = {HEADS}, .kv_heads = {KV}, "
                f".head_dim = {DIM}, .ffn = {FFN}, .vocab = {VOCAB}, .norm_eps = {NORM_EPS}, "
                f".rope = {{ .theta = {THETA} }}\n")
        f.write(f"enum {{ STEP_SEQ = {SEQ}, STEP_ROWS = {ROWS}, STEP_MICRO = {MICRO}, STEP_STEPS = {STEPS}, "
                f"STEP_TENSORS = {len(truth[2])} }};\n")
        f.write(f"static const double step_lr = {LR}, step_beta1 = {BETAS[0]}, step_beta2 = {BETAS[1]}, "
                f"step_eps = {EPS}, step_decay = {DECAY}, step_clip = {MAX_NORM};\n\n")
        for i, name in enumerate(("token", "target", "position", "doc_start")):
            f.write(f"static const int32_t step_{name}[] = {{\n{numbers(flat[i], str, 24)}}};\n")
        f.write("\n/* In double precision: loss and gradient norm (before clipping) of each step. */\n")
        for i, name in enumerate(("loss", "norm")):
            f.write(f"static const double step_{name}[] = {{ {', '.join(repr(x) for x in truth[i])} }};\n")
        f.write("/* How far transformers is from that at most: fp32, bf16. */\n")
        for i, name in enumerate(("loss", "norm")):
            f.write(f"static const double step_{name}_naive[] = {{ {off(fp32, i):.3e}, {off(bf16, i):.3e} }};\n")
        f.write("\n/* Tensor i is drawn from stream i, uniform in +-2^exponent (norm weights: 1 +- 1/8). naive: transformers'\n"
                " * error of its gradient, fp32: worst element over the largest; bf16: rms over rms. */\n"
                "static const struct {\n\tconst char *name;\n\tint rows, cols, exponent;\n\tdouble naive[2];\n} "
                "step_tensor[STEP_TENSORS] = {\n")
        for n, g in truth[2].items():
            r, c = (1, g.shape[0]) if g.dim() == 1 else g.shape
            d32, d16 = fp32[2][n] - g, bf16[2][n] - g
            assert float(g.abs().max()) > 1e-4, n
            f.write(f"\t{{ \"{n}\", {r}, {c}, {exponent(n)}, {{ {float(d32.abs().max() / g.abs().max()):.3e}, "
                    f"{rms(d16) / rms(g):.3e} }} }},\n")
        f.write("};\n\n/* Gradients of the first step, one tensor behind the other, rounded to fp32: the bits. */\n"
                "static const uint32_t step_gradient[] = {\n")
        f.write(numbers([x for g in truth[2].values() for x in g.flatten().tolist()], hex32, 10))
        f.write("};\n")


if __name__ == "__main__":
    main()
