#!/usr/bin/env python3
"""Loads checkpoints of ours in Hugging Face transformers and compares logits.

    FLATOUT_EXPORT_DIR=D build/release/tests/test_export      # writes D/NAME/step-*/ and D/NAME/expected.safetensors
    venv/bin/python tests/golden/check_export.py D

tests/cli/export.sh does both where python3 (or FLATOUT_PYTHON) has transformers, and is skipped elsewhere. For every model:
no tensor missing, too many or initialised anew, the class that config.json names, and logits in fp32, eager and with
PyTorch's own attention, within TIGHT of the largest logit. Exit 0: all equal; 1: some are not; 77: no transformers here.
"""

import glob
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

# Both sides compute in fp32. The same bound as tests/step/test_golden.c has for ours against transformers.
TIGHT = 8e-6


def check(name, folder, expected):
    e = load_file(expected)
    tokens = e["tokens"].long()
    ours = e["logits"].reshape(*tokens.shape, -1)
    worst = 0.0
    for attention in ("eager", "sdpa"):
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                                           attn_implementation=attention)
        problems = {k: v for k, v in info.items() if v}
        if problems:
            print(f"{name}: loading: {problems}")
            return False
        with torch.no_grad():
            theirs = model(input_ids=tokens, use_cache=False).logits
        worst = max(worst, float((theirs - ours).abs().max() / theirs.abs().max()))
    ok = worst <= TIGHT
    print(f"{name:28s} {type(model).__name__:20s} logits differ by {worst:.1e} of the largest{'' if ok else ': NOT EQUAL'}")
    return ok


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}")
    root = sys.argv[1]
    cases = [(os.path.basename(d), sorted(glob.glob(d + "/step-*"))[-1], d + "/expected.safetensors")
             for d in sorted(glob.glob(root + "/*")) if os.path.exists(d + "/expected.safetensors")]
    if not cases:
        print(f"no checkpoints in '{root}'")
        return 1
    return 0 if all([check(*c) for c in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
