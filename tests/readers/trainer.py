"""Flatout's callbacks in transformers' Trainer and in Lightning: what they log against clocks of our own, and `flatout mfu` on what
the Trainer prints and saves. trainer.py FLATOUT"""
import ast
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import flatout

SEQ, ROWS, MICRO, STEPS, EVERY, PEAK = 64, 4, 2, 12, 3, 1e12
TOKENS = SEQ * ROWS * MICRO
FADE = 1 - 1 / 20  # FLATOUT_SMOOTH in include/flatout.h
CONFIG = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=SEQ)


def fail(*text):
    print("trainer:", *text)
    sys.exit(1)


class Watch:
    """When each step ended: between two readings of the clock, around the call of the callback that takes its own."""

    def __init__(self, callback, name):
        self.ends = []
        inner = getattr(callback, name)

        def call(*args, **more):
            begin = time.perf_counter()
            result = inner(*args, **more)
            self.ends.append((begin, time.perf_counter()))
            return result
        setattr(callback, name, call)

    def rates(self, steps, tokens):
        """The least and the greatest tokens/s that the smoothed figure may have after `steps` ended steps: the first one starts
        the clock."""
        low = high = weight = 0
        for (begin, end), (next_begin, next_end) in zip(self.ends[:steps], self.ends[1:steps]):
            low, high, weight = FADE * low + (next_begin - end), FADE * high + (next_end - begin), FADE * weight + tokens
        return weight / high, weight / low


def check(what, logged, watch, steps, tokens, flop):
    """A line's figures against our clocks. 1e-9: sums of doubles in another order."""
    low, high = watch.rates(steps, tokens)
    if not low * (1 - 1e-9) <= logged["tokens_per_second"] <= high * (1 + 1e-9):
        fail(what, "logs", logged["tokens_per_second"], "tokens/s, our clocks say", low, "to", high)
    if abs(logged["mfu"] / (flop["mfu"] * logged["tokens_per_second"] / PEAK) - 1) > 1e-9:
        fail(what, "logs an MFU of", logged["mfu"], "for", logged["tokens_per_second"], "tokens/s of", flop)
    if abs(logged["mfu_causal"] / (flop["mfu_causal"] * logged["tokens_per_second"] / PEAK) - 1) > 1e-9:
        fail(what, "logs a causal MFU of", logged["mfu_causal"])
    return high / low - 1


def counted():
    """FLOP per token by hand (docs/metrics.md): 6 N, without the input embedding and with the norms, and attention."""
    c = CONFIG
    head = c["hidden_size"] // c["num_attention_heads"]
    layer = c["hidden_size"] * head * (2 * c["num_attention_heads"] + 2 * c["num_key_value_heads"]) + 3 * c["hidden_size"] * c["intermediate_size"] + \
        2 * c["hidden_size"]
    weights = c["num_hidden_layers"] * layer + c["vocab_size"] * c["hidden_size"] + c["hidden_size"]
    full = 12 * c["num_hidden_layers"] * c["num_attention_heads"] * head * SEQ
    return {"mfu": 6 * weights + full, "mfu_causal": 6 * weights + full / 2}


def read(binary, path, *options):
    p = subprocess.run([binary, "mfu", path, "--json", *options], capture_output=True, text=True)
    if p.returncode not in (0, 1):
        fail("flatout mfu", path, "ends with", p.returncode, p.stderr)
    return json.loads(p.stdout)


def trainer(binary, flop, quiet):
    rows = [{"input_ids": t, "labels": t} for t in torch.randint(0, 256, (ROWS * MICRO * STEPS, SEQ))]
    with tempfile.TemporaryDirectory() as folder:
        callback = flatout.trainer_callback(peak=PEAK)
        watch = Watch(callback, "on_step_end")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            t = Trainer(model=LlamaForCausalLM(LlamaConfig(**CONFIG)), train_dataset=rows, callbacks=[callback],
                        args=TrainingArguments(output_dir=folder, per_device_train_batch_size=ROWS, gradient_accumulation_steps=MICRO,
                                               max_steps=STEPS, logging_steps=EVERY, report_to=[], use_cpu=True, save_strategy="no",
                                               include_num_input_tokens_seen="all", disable_tqdm=quiet))
            begin = time.perf_counter()
            t.train()
            took = time.perf_counter() - begin
        lines = [e for e in t.state.log_history if "loss" in e]
        if len(lines) != STEPS // EVERY or not all("mfu" in e for e in lines):
            fail("not each line has an MFU:", t.state.log_history)
        apart = max(check("the Trainer", e, watch, e["step"], TOKENS, flop) for e in lines)
        text = out.getvalue()
        for e in lines:
            if "'mfu': '%.4g'" % e["mfu"] not in text and "'mfu': %r" % e["mfu"] not in text:
                fail("the printed line lacks mfu", e["mfu"], ":", text)
        # What it prints and saves, read again: tokens/s from one logged step to the next, by the Trainer's own clock.
        t.state.save_to_json(os.path.join(folder, "trainer_state.json"))
        with open(os.path.join(folder, "printed.log"), "w") as f:
            f.write(text)
        state = read(binary, os.path.join(folder, "trainer_state.json"), "--devices", "1")
        printed = read(binary, os.path.join(folder, "printed.log"), "--devices", "1")
        if state["kind"] != "trainer_state" or printed["kind"] != "trainer":
            fail("read as", state["kind"], printed["kind"])
        if state["tokens_per_step"] != TOKENS or state["tokens_so_far"] != TOKENS * STEPS:
            fail("trainer_state.json has", state["tokens_per_step"], "tokens per step,", state["tokens_so_far"], "in all")
        dicts = [ast.literal_eval(line) for line in re.findall(r"\{'loss'.*?\}", text)]
        for what, got, entries in (("trainer_state.json", state, lines), ("what is printed", printed, dicts if quiet else [])):
            times = [float(e["train_runtime"]) for e in entries]
            want = [TOKENS * EVERY / (b - a) for a, b in zip(times, times[1:]) if b > a]
            if want and abs(got["tokens_per_second_per_device"] / statistics.median(want) - 1) > 1e-9:
                fail(what, "has", got["tokens_per_second_per_device"], "tokens/s, its entries", want)
        # An entry is logged between the end of its step and that of the next one.
        for a, b in zip(lines, lines[1:]):
            begin, end = watch.ends[a["step"] - 1][0], watch.ends[min(b["step"], STEPS - 1)][1]
            if b["train_runtime"] - a["train_runtime"] > end - begin + 1e-4 and b["step"] < STEPS:
                fail("the Trainer's clock says", b["train_runtime"] - a["train_runtime"], "s, ours at most", end - begin)
        if not 0 < printed["summary"]["seconds"] <= took + 1e-3:  # printed with four digits
            fail("the summary says", printed["summary"], "the run took", took)
        print("trainer: transformers %s, %d lines with MFU within %.2g of our clocks, the last %.4g at %.0f tokens/s"
              % (importlib.metadata.version("transformers"), len(lines), apart, lines[-1]["mfu"], lines[-1]["tokens_per_second"]))


def lightning(flop):
    import lightning as package
    from torch.utils.data import DataLoader

    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = LlamaForCausalLM(LlamaConfig(**CONFIG))

        def training_step(self, batch, index):
            return self.model(input_ids=batch, labels=batch).loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    meter = flatout.Meter(flatout.Model(config=LlamaConfig(**CONFIG).to_json_string(use_diff=False)), SEQ, peak=PEAK)
    callback = flatout.lightning_callback(meter, tokens=lambda batch: batch.numel())
    watch = Watch(meter, "step")
    lines = []

    class Keep(package.pytorch.loggers.logger.DummyLogger):
        def log_metrics(self, metrics, step=None):
            if "mfu" in metrics:
                lines.append((len(watch.ends), metrics))

    with tempfile.TemporaryDirectory() as folder:
        t = package.Trainer(max_steps=STEPS, accelerator="cpu", logger=Keep(), callbacks=[callback], accumulate_grad_batches=MICRO,
                            log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
                            default_root_dir=folder)
        t.fit(Module(), DataLoader(torch.randint(0, 256, (ROWS * MICRO * STEPS, SEQ)), batch_size=ROWS))
    if len(lines) < STEPS - 1 or len(watch.ends) != STEPS:
        fail("Lightning logged", len(lines), "lines of", STEPS, "steps, the meter had", len(watch.ends))
    for steps, e in lines:
        # Its logger keeps single precision: 24 bits.
        one = dict(e)
        low, high = watch.rates(steps, TOKENS)
        if not low * (1 - 2**-23) <= one["tokens_per_second"] <= high * (1 + 2**-23):
            fail("Lightning logs", one, "our clocks say", low, "to", high)
        if abs(one["mfu"] / (flop["mfu"] * one["tokens_per_second"] / PEAK) - 1) > 2**-22:
            fail("Lightning logs an MFU of", one)
    print("trainer: lightning %s, %d lines with MFU" % (importlib.metadata.version("lightning"), len(lines)))


flop = counted()
for rule, value in flop.items():
    got = flatout.Model(config=LlamaConfig(**CONFIG).to_json_string(use_diff=False)).flop_per_token(SEQ, rule)
    if abs(got / value - 1) > 1e-12:
        fail(rule, "counts", got, "FLOP per token, by hand", value)
trainer(sys.argv[1], flop, True)
trainer(sys.argv[1], flop, False)
if importlib.util.find_spec("lightning"):
    lightning(flop)
else:
    print("trainer: no lightning package: left out")
