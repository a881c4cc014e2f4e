#!/usr/bin/env python3
"""Makes generate.safetensors beside each small model of this directory: what transformers' generate() continues a prompt with
(greedy, its own KV cache) and the loss of a document longer than a row. Reads the models that make_golden.py made, and has to
follow it: that one empties their folders.

    venv/bin/python tests/golden/make_generate.py

Versions as in requirements.txt; one thread, so the same versions on the same kind of CPU give the same bytes.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["mha", "gqa", "gqa_tied", "rope_llama3", "odd", "llama_bias", "mistral", "qwen2", "qwen2_window", "qwen3"]
PROMPT, TOKENS, SEQ, ROWS = 37, 32, 24, 3


def make(name, seed):
    where = os.path.join(HERE, name)
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="eager").eval()
    gen = torch.Generator().manual_seed(seed)
    vocab = model.config.vocab_size
    model.generation_config.eos_token_id = None  # all 32 tokens, whatever they are
    # The likeliest token must lead by more than rounding can take away; another prompt where it does not.
    for _ in range(100):
        prompt = torch.randint(0, vocab, (1, PROMPT), generator=gen)
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS, do_sample=False,
                             use_cache=True, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
        logits = torch.stack(out.logits)[:, 0]
        best = logits.topk(2, dim=-1).values
        margin = float((best[:, 0] - best[:, 1]).min())
        if margin > 5e-3:
            break
    assert margin > 5e-3, (name, margin)
    tokens = out.sequences[0, PROMPT:]
    assert tokens.shape == (TOKENS,) and bool((logits.argmax(-1) == tokens).all())
    # Rows are separate for attention; the last token of a row predicts the first of the next.
    document = torch.randint(0, vocab, (ROWS * SEQ + 1,), generator=gen)
    with torch.no_grad():
        rows = model(input_ids=document[:-1].view(ROWS, SEQ), use_cache=False).logits
    loss = F.cross_entropy(rows.flatten(0, 1).double(), document[1:])
    store = {
        "prompt": prompt[0].to(torch.int32), "greedy": tokens.to(torch.int32).contiguous(),
        "logits": logits.detach().float().contiguous(), "document": document.to(torch.int32),
        "loss": loss.float().reshape(1),
    }
    path = os.path.join(where, "generate.safetensors")
    save_file(store, path, metadata={"made_with": f"torch={torch.__version__.split('+')[0]} "
                                                  f"transformers={transformers.__version__}"})
    os.chmod(path, 0o644)
    print(f"{name}: margin {margin:.4f}, loss {float(loss):.6f}, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, name in enumerate(MODELS):
        make(name, 100 + i)
