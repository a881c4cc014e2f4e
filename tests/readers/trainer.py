"""A tiny model trained by transformers' Trainer with Flatout's callback: what is logged is what the command counts."""
import json
import subprocess
import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import flatout

SEQ, ROWS, STEPS, PEAK = 64, 4, 12, 1e12
config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=SEQ)
data = [{"input_ids": t, "labels": t} for t in torch.randint(0, 256, (ROWS * STEPS * 2, SEQ))]
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=LlamaForCausalLM(config), train_dataset=data, callbacks=[flatout.trainer_callback(peak=PEAK)],
        args=TrainingArguments(output_dir=folder, per_device_train_batch_size=ROWS, gradient_accumulation_steps=2, max_steps=STEPS,
                               logging_steps=3, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True))
    trainer.train()
    logged = [e for e in trainer.state.log_history if "mfu" in e]
    assert len(logged) == STEPS // 3, trainer.state.log_history
    config.save_pretrained(folder)
    told = json.loads(subprocess.check_output([sys.argv[1], "flops", "--model", folder, "--seq", str(SEQ), "--json"]))
flop = flatout.Model(config=config.to_json_string(use_diff=False)).flop_per_token(SEQ)
for e in logged:
    assert abs(e["mfu"] / (flop * e["tokens_per_second"] / PEAK) - 1) < 1e-9, e
    assert e["mfu_causal"] < e["mfu"]
# Two micro-batches of four rows: 512 tokens a step, so tokens/s over steps/s is 512.
rate = logged[-1]["tokens_per_second"]
assert 512 < rate < 512 * 1e5, rate
assert str(int(flop)) in json.dumps(told) or abs(flop / told["flop_per_token"]["mfu"] - 1) < 1e-9, told
print("trainer: %d lines with MFU, the last %s" % (len(logged), logged[-1]))
