#!/usr/bin/env python3
"""Casts to fp8 and scaled products of PyTorch, for tests/unit/test_fp8.c. Writes fp8.safetensors beside itself.

    python make_fp8.py        (versions: requirements.txt)

Inputs of the casts are normal numbers of many sizes and, for both formats, every number of the format, the middle between
two neighbours and what lies next to the middle. PyTorch does not saturate, so inputs end at the format's largest number.
"""
import pathlib

import torch
from safetensors.torch import save_file

torch.manual_seed(20261121)
out = {}
for name, dtype, top in (("e4m3", torch.float8_e4m3fn, 448.0), ("e5m2", torch.float8_e5m2, 57344.0)):
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    every = every[every.isfinite()].unique()
    middle = (every[1:] + every[:-1]) / 2
    up, down = torch.full_like(middle, torch.inf), torch.full_like(middle, -torch.inf)
    x = torch.randn(4096) * torch.exp2(torch.empty(4096).uniform_(-22, 18))
    x = torch.cat([x, every, middle, middle.nextafter(up), middle.nextafter(down)]).clamp(-top, top)
    out[f"{name}.x"] = x
    out[f"{name}.y"] = x.to(dtype)
    out[f"{name}.values"] = torch.arange(256, dtype=torch.uint8).view(dtype).float()

# y = x w' with a scale per tensor, and with a scale per row of either factor.
x = (torch.randn(48, 96) * 30).to(torch.float8_e4m3fn)
w = (torch.randn(32, 96) * 30).to(torch.float8_e4m3fn)
one = torch.tensor(0.0123), torch.tensor(0.00456)
row = torch.rand(48, 1) * 0.01 + 0.001, torch.rand(1, 32) * 0.01 + 0.001
for name, (sx, sw) in (("tensor", one), ("rows", row)):
    y = torch._scaled_mm(x, w.t(), scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16)
    out[f"{name}.sx"], out[f"{name}.sw"], out[f"{name}.y"] = sx.reshape(-1, 1), sw.reshape(1, -1), y
out["product.x"], out["product.w"] = x, w
save_file(out, pathlib.Path(__file__).with_name("fp8.safetensors"), metadata={"torch": torch.__version__})
