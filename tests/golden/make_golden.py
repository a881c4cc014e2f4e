#!/usr/bin/env python3
"""Makes every stored reference value in this directory from Hugging Face transformers on PyTorch (CPU).

    python3.11 -m venv venv && venv/bin/pip install -r tests/golden/requirements.txt
    venv/bin/python tests/golden/make_golden.py          # rewrites the files beside this script
    venv/bin/python tests/golden/make_golden.py --out D  # writes below D instead (to compare)

Versions are pinned in requirements.txt and written into the metadata of every expected*.safetensors.
One thread, fixed seeds and deterministic algorithms: the same versions on the same kind of CPU give the
same bytes. What each file holds is in README.md; the C tests read these files and never run Python.
"""

import argparse
import copy
import json
import math
import os
import platform
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# MKL and ATen would otherwise choose kernels by CPU; AVX2 is the least that they are asked for here.
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")

import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
NO_TARGET = -100  # the label that cross_entropy ignores, as everywhere in PyTorch
VERSIONS = {
    "torch": torch.__version__.split("+")[0],
    "transformers": transformers.__version__,
    "safetensors": safetensors.__version__,
    "python": platform.python_version(),
}


def config_json(vocab, hidden, ffn, layers, heads, kv, tied=False, head_dim=None, theta=10000.0, scaling=None,
                max_positions=128, eps=1e-5, dtype="float32"):
    """The config.json of published Llama checkpoints (rope_theta and rope_scaling at top level)."""
    c = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": ffn,
        "max_position_embeddings": max_positions,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv,
        "pretraining_tp": 1,
        "rms_norm_eps": eps,
        "rope_scaling": scaling,
        "rope_theta": theta,
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
        "use_cache": True,
        "vocab_size": vocab,
    }
    if head_dim is not None:
        c["head_dim"] = head_dim
    return c


def make_model(config_dict, seed):
    """A random model. Matrices have variance 1/fan_in (queries and keys 1.5 times the deviation, so that
    attention is far from uniform), embeddings deviation 0.5, norm weights 1 + 0.1 randn: no gradient is tiny."""
    return random_model(LlamaForCausalLM, LlamaConfig.from_dict(copy.deepcopy(config_dict)), seed)


def random_model(cls, config, seed):
    config._attn_implementation = "eager"
    config.use_cache = False
    model = cls(config).to(torch.float32)
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=gen, dtype=torch.float32)
            if name.endswith("bias"):
                p.copy_(0.3 * r)
            elif p.dim() == 1:
                p.copy_(1.0 + 0.1 * r)
            elif "embed_tokens" in name:
                # A tied head multiplies by these weights too: unit variance of the logits asks 1/sqrt(hidden).
                p.copy_(r * (p.shape[1] ** -0.5 if config.tie_word_embeddings else 0.5))
            else:
                gain = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
                p.copy_(r * gain / math.sqrt(p.shape[1]))
    model.train()
    return model, gen


def to_bf16(model):
    """The model with bf16 parameters; the rotary table stays fp32, as when transformers loads a bf16 checkpoint."""
    inv_freq = model.model.rotary_emb.inv_freq.clone()
    model = model.to(torch.bfloat16)
    model.model.rotary_emb.inv_freq = inv_freq
    return model


def make_batch(gen, vocab, batch, seq, docs=None, drop=0):
    """tokens, targets, position_ids, doc_start, all [batch, seq]. docs[b] lists the document lengths of row b
    (None: one document per row). The target is the next token of the same document, else NO_TARGET;
    drop more targets are removed per row."""
    tokens = torch.randint(0, vocab, (batch, seq), generator=gen)
    targets = torch.full((batch, seq), NO_TARGET)
    position_ids = torch.zeros((batch, seq), dtype=torch.long)
    doc_start = torch.zeros((batch, seq), dtype=torch.long)
    for b in range(batch):
        at = 0
        for n in docs[b] if docs else [seq]:
            position_ids[b, at:at + n] = torch.arange(n)
            doc_start[b, at:at + n] = at
            targets[b, at:at + n - 1] = tokens[b, at + 1:at + n]
            at += n
        assert at == seq
        targets[b, torch.randperm(seq, generator=gen)[:drop]] = NO_TARGET
    return tokens, targets, position_ids, doc_start


def document_mask(doc_start, dtype):
    """Additive mask [B, 1, S, S]: query i sees keys doc_start[i] .. i."""
    seq = doc_start.shape[1]
    i = torch.arange(seq)[None, :, None]
    j = torch.arange(seq)[None, None, :]
    seen = (j <= i) & (j >= doc_start[:, :, None])
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]


def forward(model, tokens, position_ids, doc_start):
    mask = None
    if int(doc_start.max()) > 0:
        mask = document_mask(doc_start, next(model.parameters()).dtype)
    return model(input_ids=tokens, position_ids=position_ids, attention_mask=mask, use_cache=False).logits


def loss_sum(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET, reduction="sum")


def save_tensors(store, path, metadata):
    # One metadata entry only: the library writes several in an order that changes from run to run.
    save_file(store, path, metadata={"made_with": " ".join(f"{k}={v}" for k, v in metadata.items())})
    os.chmod(path, 0o644)


def i32(t):
    return t.to(torch.int32).contiguous()


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, sort_keys=True)
        f.write("\n")


def save_model(out, config_dict, model, dtype=torch.float32):
    """model.safetensors holds what transformers stores: the head is absent when it is tied."""
    os.makedirs(out, exist_ok=True)
    write_json(os.path.join(out, "config.json"), dict(config_dict, transformers_version=VERSIONS["transformers"]))
    state = {n: p.detach().to(dtype).contiguous().clone() for n, p in model.named_parameters()}
    path = os.path.join(out, "model.safetensors")
    save_file(state, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)  # save_file makes it private


def check_rope(model, config_dict):
    """from_dict must have understood the published layout: a silent default would make a wrong golden file."""
    rope = model.config.rope_parameters
    assert rope["rope_theta"] == config_dict["rope_theta"], rope
    want = (config_dict["rope_scaling"] or {}).get("rope_type", "default")
    assert rope["rope_type"] == want, rope


def check_packing(model, logits, tokens, position_ids, doc_start):
    """A document inside a packed row gives the logits that it gives alone."""
    for b in range(tokens.shape[0]):
        for start in sorted(set(doc_start[b].tolist())):
            idx = (doc_start[b] == start).nonzero().flatten()
            alone = model(input_ids=tokens[b:b + 1, idx], use_cache=False).logits[0]
            assert torch.allclose(alone, logits[b, idx], rtol=1e-4, atol=1e-5), (b, start)


def make_case(out, name, seed, config_dict, batch, seq, docs=None, drop=0, v5_config=False):
    model, gen = make_model(config_dict, seed)
    check_rope(model, config_dict)
    tokens, targets, position_ids, doc_start = make_batch(gen, config_dict["vocab_size"], batch, seq, docs, drop)
    logits = forward(model, tokens, position_ids, doc_start)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)
    loss.backward()
    if docs:
        check_packing(model, logits.detach(), tokens, position_ids, doc_start)
    where = os.path.join(out, name)
    save_model(where, config_dict, model)
    if v5_config:
        # transformers 5 writes rope_parameters instead; both layouts describe this model.
        write_json(os.path.join(where, "config_v5.json"), json.loads(model.config.to_json_string(use_diff=True)))
    store = {
        "tokens": i32(tokens), "targets": i32(targets), "position_ids": i32(position_ids),
        "doc_start": i32(doc_start), "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1),
    }
    for n, p in model.named_parameters():
        assert p.grad is not None and float(p.grad.abs().max()) > 1e-5, n
        store["grad." + n] = p.grad.contiguous()
    save_tensors(store, os.path.join(where, "expected.safetensors"), metadata=VERSIONS)
    print(f"{name}: loss {float(loss.detach()):.6f}, {sum(p.numel() for p in model.parameters())} parameters")


def window_mask(seq, window):
    """Additive mask [1, 1, S, S]: query i sees the keys i - window + 1 .. i."""
    i, j = torch.arange(seq)[:, None], torch.arange(seq)[None, :]
    seen = (j <= i) & (j > i - window)
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]


def make_family_case(out, name, seed, cls, config, batch, seq, dtype=torch.float32, max_shard_size="5GB"):
    """A model of another architecture, saved by transformers itself: its own config.json, one file or shards. The weights
    are rounded to `dtype` first; everything is computed in fp32 with exactly these."""
    model, gen = random_model(cls, config, seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(dtype).to(torch.float32))
    tokens, targets, position_ids, doc_start = make_batch(gen, config.vocab_size, batch, seq, drop=2)
    logits = forward(model, tokens, position_ids, doc_start)
    window = getattr(config, "sliding_window", None)
    if window:
        # The window is what we take it for, and it matters.
        mask = window_mask(seq, window).expand(batch, 1, seq, seq)
        ours = model(input_ids=tokens, position_ids=position_ids, attention_mask=mask, use_cache=False).logits
        assert torch.allclose(ours, logits, rtol=1e-4, atol=1e-5)
        wide = window_mask(seq, seq).expand(batch, 1, seq, seq)
        full = model(input_ids=tokens, position_ids=position_ids, attention_mask=wide, use_cache=False).logits
        assert not torch.allclose(full, logits, rtol=1e-2, atol=1e-2)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)
    loss.backward()
    where = os.path.join(out, name)
    copy.deepcopy(model).to(dtype).save_pretrained(where, max_shard_size=max_shard_size)
    os.remove(os.path.join(where, "generation_config.json"))
    for f in os.listdir(where):
        os.chmod(os.path.join(where, f), 0o644)
    store = {
        "tokens": i32(tokens), "targets": i32(targets), "position_ids": i32(position_ids),
        "doc_start": i32(doc_start), "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1),
    }
    for n, p in model.named_parameters():
        assert p.grad is not None and float(p.grad.abs().max()) > 1e-5, n
        store["grad." + n] = p.grad.contiguous()
    save_tensors(store, os.path.join(where, "expected.safetensors"), metadata=VERSIONS)
    print(f"{name}: loss {float(loss.detach()):.6f}, {sum(p.numel() for p in model.parameters())} parameters")


def make_families(out):
    small = dict(vocab_size=48, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5)
    llama3 = dict(LLAMA31_SCALING, factor=32.0, original_max_position_embeddings=32, rope_theta=10000.0)
    make_family_case(out, "llama32", 11, LlamaForCausalLM,
                     LlamaConfig(**dict(small, head_dim=16, tie_word_embeddings=True, rope_parameters=llama3)), 2, 24,
                     dtype=torch.bfloat16)
    linear = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}
    make_family_case(out, "llama_bias", 12, LlamaForCausalLM,
                     LlamaConfig(**small, attention_bias=True, mlp_bias=True, rope_parameters=linear), 2, 20)
    make_family_case(out, "mistral", 13, MistralForCausalLM,
                     MistralConfig(**small, sliding_window=7), 2, 24, max_shard_size="12KB")
    make_family_case(out, "qwen2", 14, Qwen2ForCausalLM,
                     Qwen2Config(**small, tie_word_embeddings=True), 2, 20, dtype=torch.float16)
    make_family_case(out, "qwen2_window", 15, Qwen2ForCausalLM,
                     Qwen2Config(**small, use_sliding_window=True, sliding_window=5, max_window_layers=0), 1, 24)
    make_family_case(out, "qwen3", 16, Qwen3ForCausalLM, Qwen3Config(**small, head_dim=20), 2, 20,
                     dtype=torch.bfloat16, max_shard_size="16KB")


STEPS, MICRO = 10, 2
LR, BETAS, EPS, DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


def train(config_dict, seed, batches, bf16):
    """Loss and gradient norm (before clipping) of each step, and the final master weights."""
    master, _ = make_model(config_dict, seed)
    run = to_bf16(make_model(config_dict, seed)[0]) if bf16 else master
    params = list(master.parameters())
    groups = [
        {"params": [p for p in params if p.dim() == 2], "weight_decay": DECAY},
        {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0},
    ]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=False, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        count = sum(int((targets != NO_TARGET).sum()) for _, targets, _, _ in batches[step])
        opt.zero_grad(set_to_none=True)
        total = 0.0
        for tokens, targets, position_ids, doc_start in batches[step]:
            loss = loss_sum(forward(run, tokens, position_ids, doc_start), targets) / count
            loss.backward()
            total += float(loss.detach())
            if bf16:
                for p, q in zip(params, run.parameters()):
                    p.grad = q.grad.float() if p.grad is None else p.grad + q.grad.float()
                    q.grad = None
        norms.append(float(torch.nn.utils.clip_grad_norm_(params, MAX_NORM, foreach=False)))
        losses.append(total)
        opt.step()
        if bf16:
            with torch.no_grad():
                for p, q in zip(params, run.parameters()):
                    q.copy_(p)
    return losses, norms, {n: p.detach() for n, p in master.named_parameters()}


def make_chain_batch(gen, vocab, batch, seq, drop):
    """A batch that can be learnt: the next token is 5 t + 3 mod vocab, except one in five, which is random."""
    tokens = torch.randint(0, vocab, (batch, seq + 1), generator=gen)
    follow = torch.rand((batch, seq + 1), generator=gen) >= 0.2
    for t in range(1, seq + 1):
        tokens[:, t] = torch.where(follow[:, t], (5 * tokens[:, t - 1] + 3) % vocab, tokens[:, t])
    targets = tokens[:, 1:].clone()
    for b in range(batch):
        targets[b, torch.randperm(seq, generator=gen)[:drop]] = NO_TARGET
    positions = torch.arange(seq).expand(batch, seq)
    return tokens[:, :seq], targets, positions, torch.zeros_like(positions)


def make_training(out, name, seed, config_dict, batch, seq):
    model, gen = make_model(config_dict, seed)
    check_rope(model, config_dict)
    # The second micro-batch loses more targets: normalising each by its own count would give another loss.
    batches = [[make_chain_batch(gen, config_dict["vocab_size"], batch, seq, m * 9) for m in range(MICRO)]
               for _ in range(STEPS)]
    where = os.path.join(out, name)
    save_model(where, config_dict, model)
    store = {
        "tokens": i32(torch.stack([torch.stack([m[0] for m in s]) for s in batches])),
        "targets": i32(torch.stack([torch.stack([m[1] for m in s]) for s in batches])),
    }
    for mode, bf16 in (("fp32", False), ("bf16", True)):
        losses, norms, final = train(config_dict, seed, batches, bf16)
        store["loss_" + mode] = torch.tensor(losses, dtype=torch.float32)
        store["grad_norm_" + mode] = torch.tensor(norms, dtype=torch.float32)
        if mode == "fp32":
            for n in ("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.norm.weight"):
                store["final." + n] = final[n].contiguous()
        print(f"{name} {mode}: loss", " ".join(f"{x:.6f}" for x in losses))
        print(f"{name} {mode}: norm", " ".join(f"{x:.6f}" for x in norms))
    meta = dict(VERSIONS, lr=str(LR), beta1=str(BETAS[0]), beta2=str(BETAS[1]), eps=str(EPS),
                weight_decay=str(DECAY), max_norm=str(MAX_NORM), steps=str(STEPS), micro_batches=str(MICRO))
    save_tensors(store, os.path.join(where, "expected_train.safetensors"), metadata=meta)


def make_bf16(out, name, seed, config_dict, batch, seq):
    """One set of bf16-representable weights, computed in fp32 and in PyTorch's own bf16."""
    base, gen = make_model(config_dict, seed)
    tokens, targets, position_ids, doc_start = make_batch(gen, config_dict["vocab_size"], batch, seq)
    save_model(os.path.join(out, name), config_dict, base, torch.bfloat16)
    some = [n for n, p in base.named_parameters() if p.dim() == 1] + ["model.layers.0.self_attn.k_proj.weight"]
    store = {"tokens": i32(tokens), "targets": i32(targets)}
    results = {}
    for mode in ("fp32", "bf16"):
        model = to_bf16(make_model(config_dict, seed)[0])
        if mode == "fp32":
            model = model.to(torch.float32)
        logits = forward(model, tokens, position_ids, doc_start)
        loss = loss_sum(logits, targets) / int((targets != NO_TARGET).sum())
        loss.backward()
        grads = {n: p.grad for n, p in model.named_parameters()}
        results[mode] = (logits.detach().float(), float(loss.detach()), grads)
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))
        store["logits_" + mode] = logits.detach().contiguous()
        store["loss_" + mode] = loss.detach().float().reshape(1)
        store["grad_norm_" + mode] = torch.tensor([norm], dtype=torch.float32)
        for n in some:
            store[f"grad_{mode}." + n] = grads[n].contiguous()
    save_tensors(store, os.path.join(out, name, "expected_bf16.safetensors"), metadata=VERSIONS)
    diff = results["bf16"][0] - results["fp32"][0]
    rms = float(diff.square().mean().sqrt())
    print(f"{name}: loss fp32 {results['fp32'][1]:.6f} bf16 {results['bf16'][1]:.6f}; logits of bf16 less fp32: "
          f"rms {rms:.3e}, max {float(diff.abs().max()):.3e}")


LLAMA31_SCALING = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"}


def make_rope(out):
    """The inverse frequencies of Llama-3.1-8B (head_dim 128), scaled and not, from transformers' own module."""
    store = {}
    for kind, scaling in (("default", None), ("llama3", LLAMA31_SCALING)):
        c = config_json(8, 4096, 8, 1, 32, 8, theta=500000.0, scaling=scaling, max_positions=131072)
        emb = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(LlamaConfig.from_dict(copy.deepcopy(c)))
        assert emb.inv_freq.shape == (64,) and emb.inv_freq.dtype == torch.float32 and emb.attention_scaling == 1.0
        store["inv_freq_" + kind] = emb.inv_freq.contiguous().clone()
    assert not torch.equal(store["inv_freq_default"], store["inv_freq_llama3"])
    meta = dict(VERSIONS, theta="500000", head_dim="128", factor="8", low_freq_factor="1", high_freq_factor="4",
                original_max_position_embeddings="8192")
    save_tensors(store, os.path.join(out, "rope_tables.safetensors"), metadata=meta)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=HERE, help="directory that receives the files (default: this script's)")
    out = ap.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    print(" ".join(f"{k} {v}" for k, v in VERSIONS.items()))

    names = ["mha", "gqa", "gqa_tied", "rope_llama3", "odd", "packed", "train", "bf16", "llama32", "llama_bias",
             "mistral", "qwen2", "qwen2_window", "qwen3"]
    for n in names:
        shutil.rmtree(os.path.join(out, n), ignore_errors=True)
    os.makedirs(out, exist_ok=True)
    make_case(out, "mha", 1, config_json(128, 32, 96, 2, 4, 4), 2, 24)
    make_case(out, "gqa", 2, config_json(64, 32, 80, 2, 4, 2), 2, 32, drop=3)
    make_case(out, "gqa_tied", 3, config_json(96, 32, 64, 3, 4, 2, tied=True, eps=1e-6), 2, 16)
    # With theta 10000, head_dim 16 and original length 32 the wavelengths 6.3, 19.9, 62.8 ... fall into all three
    # bands (kept below 8, blended up to 32, divided by 8 above).
    scaling = dict(LLAMA31_SCALING, original_max_position_embeddings=32)
    make_case(out, "rope_llama3", 4, config_json(64, 32, 64, 2, 2, 1, scaling=scaling, max_positions=256), 2, 32,
              v5_config=True)
    make_case(out, "odd", 5, config_json(97, 42, 75, 2, 3, 1, head_dim=12, theta=500000.0), 2, 19, drop=2)
    # A document of one token, a row of two and a row of four documents.
    make_case(out, "packed", 6, config_json(80, 32, 64, 2, 4, 2), 2, 32, docs=[[19, 13], [7, 1, 16, 8]])
    make_training(out, "train", 7, config_json(64, 32, 80, 2, 4, 2), 2, 32)
    make_bf16(out, "bf16", 8, config_json(512, 128, 352, 2, 4, 2, tied=True, dtype="bfloat16"), 2, 64)
    make_rope(out)
    make_families(out)
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(out) for f in fs)
    print(f"total {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
