"""Logs of every kind, written here as the frameworks print them, with a known speed: 2 s per step, 65,536 tokens, 8 devices.

Each must be told by its content alone and give these figures again. Further logs have restarts, several ranks, a slow stretch, a
cut line, colours; others are no logs at all.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

FLATOUT = sys.argv[1]
SECONDS, TOKENS, DEVICES, SEQ = 2.0, 65536, 8, 4096
RATE = TOKENS / SECONDS / DEVICES
failed = 0


def stamp(i, start=8 * 3600):
    t = start + i * SECONDS
    return "2026-05-04 %02d:%02d:%02d" % (t // 3600 % 24, t // 60 % 60, t % 60)


def torchtitan(i):
    return "[titan] %s,000 - root - INFO - step: %2d  loss:  4.03  grad_norm:  3.36  memory:  2.34GiB(1.25%%)  tps: %s  tflops: 210.00  mfu: 21.23%%" % (
        stamp(i), i, format(int(RATE), ","))


KINDS = {
    "torchtitan": torchtitan,
    "megatron": lambda i: " [%s.123456] iteration %8d/     100 | consumed samples: %12d | elapsed time per iteration (ms): 2000.0 | throughput per GPU (TFLOP/s/GPU): 210.0 | learning rate: 1.500E-04 | global batch size:    16 | lm loss: 2.247505E+00 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |" % (stamp(i), i, 16 * i),
    "megatron-deepspeed": lambda i: " iteration %8d/     100 | consumed samples: %12d | consumed tokens: %12d | elapsed time per iteration (s): 2.00 | learning rate: 1.500E-04 | global batch size:    16 | lm loss: 2.247505E+00 | samples per second: 8.000 | TFLOPs: 140.00 |" % (i, 16 * i, TOKENS * i),
    "neox": lambda i: " samples/sec: 8.000 | iteration %8d/     100 | elapsed time per iteration (ms): 2000.0 | learning rate: 1.500E-04 | approx flops per GPU: 140.3TFLOPS | lm_loss: 2.2E+00 | number of skipped iterations:   0 |" % i,
    "argonne": lambda i: "[%s][I][megatron/training_log:1] iteration=%8d/     100 | consumed_samples=%12d | consumed_tokens=%12d | elapsed_time_per_iteration_ms=2000.0 | learning_rate=1.5e-4 | global_batch_size=   16 | lm_loss=2.2 | samples_per_second=8.0 | tokens_per_gpu_per_second_tgs=%.1f | TFLOPs=140.0 |" % (stamp(i), i, 16 * i, TOKENS * i, RATE),
    "bridge": lambda i: "Step Time : 2.00s GPU utilization: 210.0MODEL_TFLOP/s/GPU",
    "nemo": lambda i: "0: Training epoch 0, iteration %d/99 | lr: 1e-05 | global_batch_size: 16 | global_step: %d | reduced_train_loss: 2.2 | train_step_timing in s: 2.000e+00 | tokens_per_sec_per_gpu: 4.096e+03 | consumed_samples: %d" % (i, i, 16 * i),
    "dllogger": lambda i: 'DLLL {"timestamp": "%d.5", "type": "LOG", "step": %d, "data": {"reduced_train_loss": 2.2, "global_step": %d.0, "train_step_timing in s": 2.0}}' % (1727486904 + 2 * i, i, i),
    "automodel": lambda i: '{"step": %d, "timestamp": %d, "loss": 2.2, "tps": 32768.0, "tps_per_gpu": 4096.0, "mfu": 21.2, "num_tokens_per_step": 65536, "mem": 40.0}' % (i, 1727486904 + 2 * i),
    "deepspeed": lambda i: "[%s,171] [INFO] [timer.py:199:stop] epoch=0/micro_step=%d/global_step=%d, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=8.0, MemAllocated=3.96GB, MaxMemAllocated=22.95GB" % (stamp(i), i, i),
    "deepspeed-pipe": lambda i: "steps: %d loss: 2.2000 iter time (s): 2.000 samples/sec: 8.000" % i,
    "llamafactory": lambda i: json.dumps({"current_steps": i, "total_steps": 100, "loss": 2.2, "lr": 1e-5, "epoch": 0.1, "percentage": i, "elapsed_time": "%d:%02d:%02d" % (2 * i // 3600, 2 * i // 60 % 60, 2 * i % 60), "remaining_time": "1 day, 2:03:04"}),
    "axolotl": lambda i: "{'loss': 2.2, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1, 'tokens/train_per_sec_per_gpu': 4096.0, 'tokens/total': %d}" % (TOKENS * i),
    "litgpt": lambda i: "Epoch 1 | iter %d step %d | loss train: 1.646, val: n/a | iter time: 1200.00 ms\nEpoch 1 | iter %d step %d | loss train: 1.646, val: n/a | iter time: 800.00 ms (step)" % (2 * i - 1, i - 1, 2 * i, i),
    "composer": lambda i: "[batch=%d/100]:\n\t Train time/batch: %d\n\t Train loss/train/total: 2.2\n\t Train throughput/tokens_per_sec: 32768.0\n\t Train throughput/device/tokens_per_sec: 4096.0\n\t Train throughput/device/mfu: 0.2123\n\t Train time/train: %.8f" % (i, i, 2 * i / 3600),
    "nanogpt": lambda i: "iter %d: loss 2.2000, time 2000.00ms, mfu 21.23%%" % i,
    "nanochat": lambda i: "step %05d/00100 (%.2f%%) | loss: 2.200000 | lrm: 1.00 | dt: 2000.00ms | tok/sec: 32,768 | bf16_mfu: 21.23 | epoch: 1 | total time: %.2fm" % (i, i, i / 30),
    "llm.c": lambda i: "step %4d/100 | loss 10.002686 (+nanz)| norm 4.5098 (+nanz)| lr 8.57e-06 | 2000.00 ms | 21.2%% bf16 MFU | 32768 tok/s" % i,
    "modded-nanogpt": lambda i: "step:%d/100 train_time:%dms step_avg:2000.00ms" % (i, 2000 * i),
    "olmo-core": lambda i: "%s\thost:0\tolmo_core.train.callbacks.console_logger:103\tINFO\t[step=%d/100,epoch=1,eta=0:01:00]\n    train/CE loss=2.200\n    throughput/device/TPS=4,096\n    throughput/device/TPS (actual avg)=4,000\n    throughput/device/MFU=21.23\n    throughput/total tokens=%s" % (stamp(i), i, format(TOKENS * i, ",")),
    "olmo": lambda i: "%s\tolmo.train:900\tINFO\t[step=%d/100]\n    train/CrossEntropyLoss=2.200\n    throughput/total_tokens=%s\n    throughput/device/tokens_per_second=4,096" % (stamp(i), i, format(TOKENS * i, ",")),
    "fms-fsdp": lambda i: "step: %d\nloss: 2.2\nLR: 0.0003\ntokens seen: %d\ngradient norm: 1.0\nreserved memory: 1\nallocated memory: 1\ncurrent step time: 2.0\noverall step time: 2.1\ncurrent token per gpu per sec: 4096\noverall token per gpu per sec: 3900" % (i, TOKENS * i),
    "nanotron": lambda i: "%s [INFO|DP=0|PP=0|TP=0]: iteration: %d / 100 | consumed_tokens: %.1fK | time_per_iteration_ms: 2K | tokens_per_sec: 32.8K | tokens_per_sec_per_gpu: 4.096K | global_batch_size: 16 | lm_loss: 2.2 | lr: 0.0003 | model_tflops_per_gpu: 210 | eta: 0:01:00" % (stamp(i), i, TOKENS * i / 1e3),
    "picotron": lambda i: "[rank 0] Step: %d     | Loss: 2.2000 | Global batch size:  65.54K | Tokens/s:  32.77K | Tokens/s/GPU:   4.10K | Tokens: %.2fM | MFU: 21.23%% | Memory usage:  40.00GB" % (i, TOKENS * i / 1e6),
    "internevo": lambda i: "%s,000 INFO train.py:1 in record -- tflops=140.0,step=%d,loss=2.2,tgs (tokens/gpu/second)=4096.0,tgs/last_tgs_1=4096.0,lr=1e-05,num_consumed_tokens=%d" % (stamp(i), i, TOKENS * i),
    "torchtune": lambda i: "Step %d | loss:2.2 lr:1e-05 tokens_per_second_per_gpu:4096.0 peak_memory_active:40.0" % i,
    "maxtext": lambda i: "completed step: %d, seconds: 2.000, TFLOP/s/device: 210.0, Tokens/s/device: 4096.000, total_weights: 65536, loss: 2.200" % i,
    "prime-rl": lambda i: "%s    INFO Step %d | Time: 2.00s | Loss: 2.2000 | Grad. Norm: 1.0 | LR: 1e-05 | Throughput: 32768 tokens/s | MFU: 21.2%% | Peak Mem.: 40.0 GiB" % (stamp(i)[11:], i),
    "flatout": lambda i: '{"event": "step", "step": %d, "loss": 2.2, "tokens": 65536, "seconds": 2.0, "mfu": 0.21, "time": %d}' % (i, 1727486904 + 2 * i),
}
NO_TIMES = {"torchtune", "axolotl", "composer"}  # print a rate per device and no time


def check(what, condition, more=""):
    global failed
    if not condition:
        print("FAILED: %s %s" % (what, more))
        failed = 1


def read(folder, files, *options):
    paths = []
    for name, text in files.items():
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
    p = subprocess.run([FLATOUT, "mfu", *paths, "--json", *options], capture_output=True, text=True)
    if p.returncode not in (0, 1):
        return p
    return json.loads(p.stdout)


def near(a, b, part=0.005):
    return a is not None and abs(a / b - 1) < part


def kinds(folder):
    options = ["--model", "llama-3.2-1b", "--seq", str(SEQ), "--device", "h100", "--devices", str(DEVICES), "--tokens-per-step", str(TOKENS)]
    for kind, line in KINDS.items():
        text = "\n".join(["something before", *(line(i) for i in range(1, 31)), "something behind", ""])
        j = read(folder, {"log": text}, *options)
        if isinstance(j, subprocess.CompletedProcess):
            check(kind, False, j.stderr)
            continue
        check(kind + ": kind", j["kind"] == kind, j["kind"])
        check(kind + ": lines", j["lines"] == 30, j["lines"])
        check(kind + ": rate", near(j["tokens_per_second_per_device"], RATE), j["tokens_per_second_per_device"])
        check(kind + ": step", kind in NO_TIMES or near(j["step_seconds"]["median"], SECONDS, 0.011), j["step_seconds"])
        check(kind + ": MFU", near(j["mfu"]["median"], 0.0374, 0.05), j["mfu"])


def shapes(folder):
    # A process that begins again from step 20: steps 20 to 29 are done twice, and 100 s pass before the first.
    again = [torchtitan(i) for i in range(1, 30)] + [torchtitan(i).replace(stamp(i), stamp(i + 60)) for i in range(20, 50)]
    j = read(folder, {"log": "\n".join(again)})
    check("restart: lines", j["lines"] == 49, j["lines"])
    check("restart: where", len(j["restarts"]) == 1 and j["restarts"][0]["step"] == 20, j["restarts"])
    check("restart: lost", near(j["restarts"][0]["lost_seconds"], 60 * SECONDS, 0.1), j["restarts"])
    # The same in two files, given in the wrong order.
    j = read(folder, {"b": "\n".join(again[29:]), "a": "\n".join(again[:29])})
    check("two files", j["lines"] == 49 and len(j["restarts"]) == 1, j["restarts"])
    # Eight ranks that print the same steps, each in a file, and all in one.
    j = read(folder, {"rank%d" % r: "\n".join(torchtitan(i) for i in range(1, 31)) for r in range(8)})
    check("ranks in files", j["lines"] == 30 and not j["restarts"], (j["lines"], j["restarts"]))
    j = read(folder, {"log": "\n".join("[rank%d]:%s" % (r, torchtitan(i)) for i in range(1, 31) for r in range(8))})
    check("ranks in lines", j["lines"] == 30 and not j["restarts"], j["lines"])
    # A slow stretch.
    slow = [KINDS["nanogpt"](i).replace("2000.00ms", "4000.00ms" if 40 <= i < 50 else "2000.00ms") for i in range(1, 101)]
    j = read(folder, {"log": "\n".join(slow)})
    check("slow", len(j["slow"]) == 1 and (j["slow"][0]["first"], j["slow"][0]["last"]) == (40, 49), j["slow"])
    # Colours, carriage returns, a cut last line.
    coloured = "\r\n".join("\x1b[38;2;180;60;0m%s\x1b[39m" % torchtitan(i).replace("tps: ", "\x1b[34mtps: ") for i in range(1, 31))
    check("colours", near(read(folder, {"log": coloured})["tokens_per_second_per_device"], RATE))
    cut = "\n".join(torchtitan(i) for i in range(1, 31))[:-60]
    check("cut", read(folder, {"log": cut})["lines"] in (29, 30))


def coarse(folder):
    bar = lambda s, dt, of: "\r 1%%| | %d/%d [%02d:%02d<01:00, 1.00s/it]" % (s, of, int(s * dt) // 60, int(s * dt) % 60)
    for dt in (0.3, 1.4, 2.45):
        text = "".join(bar(s, dt, 300) + ("\n{'loss': 1.2}\n" if s % 10 == 0 else "") for s in range(1, 301))
        text += "".join(bar(s, 1, 999) for s in range(1, 1000))  # evaluation, longer than the training
        j = read(folder, {"log": text})
        check("bar of %g s" % dt, near(j["step_seconds"]["median"], dt, 0.03) and not j["slow"], j["step_seconds"])
    text = "\n".join("Epoch 1 | iter %d step %d | loss train: 1.6, val: n/a | iter time: 350.00 ms (step)" % (4 * i, i) for i in range(1, 60))
    check("litgpt, steps only", near(read(folder, {"log": text})["step_seconds"]["median"], 1.4))
    gap = "\n".join(torchtitan(i).replace(stamp(i), stamp(i + (1000 if i > 50 else 0))) for i in range(1, 101))
    j = read(folder, {"log": gap})
    check("gap", len(j["restarts"]) == 1 and j["restarts"][0]["step"] == 51 and not j["slow"], j["restarts"])
    # Lines of two runs in one file, the second half as fast: nothing is told of either. One run alone is.
    fast = [(i, torchtitan(i).replace(stamp(i), stamp(i + 1))) for i in range(1, 101)]
    slow = [(2 * i + 0.5, torchtitan(i).replace(stamp(i), stamp(2 * i + 1))) for i in range(1, 51)]
    both = read(folder, {"log": "\n".join(line for _, line in sorted(fast + slow))})
    check("two runs", isinstance(both, subprocess.CompletedProcess) and both.returncode == 2 and "several runs alternate" in both.stderr, both)
    crashes = [torchtitan(i).replace(stamp(i), stamp(i + 60 * n)) for n in range(6) for i in range(10 * n + 1, 10 * n + 18)]
    j = read(folder, {"log": "\n".join(crashes)})
    check("crashes", len(j["restarts"]) == 5, j)
    ranks = {"rank%d" % r: "\n".join(KINDS["maxtext"](i) for i in range(60)) for r in range(2)}
    check("ranks without stamps", not read(folder, ranks)["restarts"])
    mixed = "\n".join(KINDS["maxtext"](i) for s in range(2, 60) for i in (s, s - 1))
    check("ranks that alternate", not read(folder, {"log": mixed})["restarts"])
    table = 'note,%s,step,step_time\n' % ",".join("c%d" % i for i in range(99)) + "".join('"a,7",%s%d,0.5\n' % ("," * 99, i) for i in range(30))
    check("wide CSV", near(read(folder, {"log": table})["step_seconds"]["median"], 0.5))
    check("CSV of step times", read(folder, {"log": "step,loss,time\n" + "".join("%d,2,0.%d\n" % (i, 50 + i % 3) for i in range(30))})["step_seconds"]["median"] is None)


def facts(folder):
    gpt = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "seq_length": 1024, "padded_vocab_size": 50304,
           "global_batch_size": 16, "world_size": 8, "fp16": "False", "tensor_model_parallel_size": 2}
    dump = "\n".join("  %s %s %s" % (k, "." * (48 - len(k)), v) for k, v in gpt.items())
    log = dump + "\n" + "\n".join(KINDS["megatron"](i) for i in range(1, 31))
    j = read(folder, {"log": log}, "--device", "a100")
    check("dump: tokens", j["tokens_per_step"] == 16 * 1024, j["tokens_per_step"])
    check("dump: flop", near(j["flop_per_token"]["mfu"], 855383040, 1e-9), j["flop_per_token"])
    check("dump: devices", j["devices"] == 8, j["devices"])
    # An argument that a program only mentions is no fact, and the trainable part of a LoRA run is not its model.
    j = read(folder, {"log": "hidden_size is good\nNumber of trainable parameters: 12,226,560\n" + KINDS["megatron"](1)})
    check("mentioned", j["model"] is None and j["mfu"]["median"] is None, j["model"])
    # What is missing is asked for by name.
    j = read(folder, {"log": "\n".join(KINDS["litgpt"](i) for i in range(1, 31))})
    asked = " ".join(j["missing"])
    check("asks", all(o in asked for o in ("--device ", "--model", "--devices", "--tokens-per-step")), asked)
    # The convention behind a printed figure: full attention over the sparse peak of an H100.
    flop = 6 * 1235814400 + 12 * 16 * 2048 * SEQ
    mfu = 100 * RATE * flop / 1979e12
    text = "\n".join("iter %d: loss 2.2000, time 2000.00ms, mfu %.3f%%" % (i, mfu) for i in range(1, 31))
    j = read(folder, {"log": text}, "--model", "llama-3.2-1b", "--seq", str(SEQ), "--device", "h100", "--devices", "8", "--tokens-per-step", "65536")
    check("convention", "sparsity" in (j["printed"]["convention"] or ""), j["printed"])


def doubts(folder):
    args = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "seq_length": 1024, "padded_vocab_size": 50304,
            "global_batch_size": 16, "world_size": 8}
    lines = "\n".join(KINDS["megatron"](i) for i in range(1, 31))

    def log(**more):
        return "\n".join("  %s %s %s" % (k, "." * (48 - len(k)), v) for k, v in {**args, **more}.items()) + "\n" + lines

    # A model that is not dense is asked for, and arguments that leave it dense change nothing.
    for key, value in (("num_experts", 8), ("num_experts", "[64]"), ("multi_latent_attention", True),
                       ("hybrid_override_pattern", "M-M*"), ("mtp_num_layers", 1)):
        j = read(folder, {"log": log(**{key: value})})
        check("not dense: " + key, j["model"] is None and "--model" in " ".join(j["missing"]) and key.split("_")[0] in " ".join(j["notes"]), j["notes"])
    j = read(folder, {"log": log(num_experts=None, multi_latent_attention=False, hybrid_override_pattern=None, hybrid_attention_ratio=0.0)})
    check("dense", j["model"] is not None, j["notes"])
    # Multi-token-prediction modules: counted when asked for, of a model that the log prints or the option names.
    with_one = {"log": log(mtp_num_layers=1)}
    check("mtp: says", "--mtp" in " ".join(read(folder, with_one)["notes"]))
    counted = read(folder, with_one, "--mtp")
    d = args["hidden_size"]  # a layer with biases, two vectors per norm; then projection, three norms, head
    layer = 3 * d * d + 3 * d + d * d + d + 8 * d * d + 5 * d + 4 * d
    more = counted["flop_per_token"]["mfu_6n"] - j["flop_per_token"]["mfu_6n"]
    check("mtp", counted["mtp_counted"] == 1 and more == 6 * (layer + 2 * d * d + 6 * d + args["padded_vocab_size"] * d), more)
    check("mtp: others", read(folder, {"log": log(mtp_num_layers=1, num_experts=8)}, "--mtp")["model"] is None)
    named = ("--model", "llama-3.2-1b", "--device", "h100")
    without, counted = read(folder, with_one, *named), read(folder, with_one, *named, "--mtp")
    check("mtp: noted", without["mtp_modules"] == 1 and "not counted" in " ".join(without["notes"]), without["notes"])
    check("mtp: named", counted["flop_per_token"]["mfu_6n"] - without["flop_per_token"]["mfu_6n"] ==
          6 * (2048 * 3072 + 2048 ** 2 + 3 * 2048 * 8192 + 2 * 2048 + 2 * 2048 ** 2 + 3 * 2048 + 128256 * 2048), counted)
    # Another number of devices in a later dump, of the same file or of the next.
    for files in ({"log": log() + "\n" + log(world_size=4)}, {"a": log(), "b": log(world_size=4)}):
        check("two sizes", "the log names 8 and 4 devices: figures use 8" in read(folder, files)["notes"])
    j = read(folder, {"log": log(fp8="hybrid")}, "--device", "h100")
    check("fp8", "fp8" in " ".join(j["notes"]) and [d["type"] for d in j["denominators"]] == ["bf16", "fp8"], j["denominators"])
    check("fp8: over each", near(j["denominators"][0]["mfu"], j["mfu"]["median"]) and
          near(j["denominators"][1]["mfu"], j["mfu"]["median"] * 989 / 1979), j["denominators"])
    share = 12 * 12 * 768 ** 2 * 6 / j["flop_per_token"]["mfu"]
    check("fp8: which share", any("--share fp8=%.3f " % share in n for n in j["notes"]), (share, j["notes"]))
    weighted = read(folder, {"log": log(fp8="hybrid")}, "--device", "h100", "--share", "fp8=0.8")
    check("shares", near(weighted["peak_tflops"], 1 / (0.8 / 1979 + 0.2 / 989)) and weighted["dtype"] == "mixed" and
          near(weighted["mfu"]["median"], j["mfu"]["median"] * (0.8 * 989 / 1979 + 0.2)), weighted["denominators"])
    check("no shares", [d["type"] for d in read(folder, {"log": log()}, "--device", "h100")["denominators"]] == ["bf16"])
    # Tokens over time and rate are a number of devices only where they are nearly whole and few.
    for tokens, devices in ((4096 * 8 * 2, 8), (4096 * 8.3 * 2, None), (4096 * 100 * 2, None)):
        text = "\n".join("completed step: %d, seconds: 2.000, TFLOP/s/device: 210.0, Tokens/s/device: 4096.000, total_weights: %d, loss: 2.2" % (i, tokens) for i in range(30))
        check("implied devices", read(folder, {"log": text})["devices"] == devices, tokens)
    # Steps left of a plan in tokens count from the last step; time stamps that contradict the steps give no time between them.
    j = read(folder, {"log": "\n".join(torchtitan(i) for i in range(71, 101))}, "--tokens", str(200 * TOKENS), "--tokens-per-step", str(TOKENS))
    check("left", near(j["steps_left"], 100), j["steps_left"])
    j = read(folder, {"log": "\n".join(KINDS["megatron"](i).replace("(ms): 2000.0", "(ms): 4000.0") for i in range(1, 31))})
    check("other", j["seconds"]["other"] is None and "time stamps" in " ".join(j["notes"]), j["seconds"])
    # Only the rule of the kind is stated as what the log counts.
    options = ("--model", "llama-3.2-1b", "--seq", str(SEQ), "--device", "h100", "--devices", "8", "--tokens-per-step", "65536")
    flop = 6 * 1235814400 + 12 * 16 * 2048 * SEQ
    for share, words in ((flop, "the log counts 6 N + 12"), (6 * 1235814400, "fits: 6 N without")):
        text = "\n".join(torchtitan(i).replace("21.23%", "%.3f%%" % (100 * RATE * share / 989.4e12)).replace("210.00", "%.3f" % (RATE * share / 1e12)) for i in range(1, 31))
        check("states", words in (read(folder, {"log": text}, *options)["printed"]["convention"] or ""), words)
    # A device that publishes no peak that fits: no failure, all but MFU, and what to give. As an option it is refused.
    for name in ("AMD Instinct MI308X", "NVIDIA GB10"):
        text = "[titan] CUDA capacity: %s with 191.98GiB memory\n" % name + "\n".join(torchtitan(i) for i in range(1, 31))
        j = read(folder, {"log": text}, "--model", "llama-3.2-1b", "--seq", str(SEQ))
        check("no peak", j["device"] == name.split()[-1] and j["mfu"]["median"] is None and near(j["tokens_per_second_per_device"], RATE), j)
        check("no peak: asks", any("--devices-file" in m for m in j["missing"]), j["missing"])
    # MLPerf: blocks of ten steps, counted in tokens, with an evaluation between them; 8 devices of one DGX.
    def event(ms, key, value=None, **more):
        return ':::MLLOG ' + json.dumps({"time_ms": 1700000000000 + ms, "key": key, "value": value, "metadata": more})
    events = [event(0, "submission_benchmark", "llama31_8b"), event(0, "submission_platform", "1xNVIDIA DGX H100"),
             event(0, "global_batch_size", 16), event(0, "max_sequence_length", SEQ), event(10, "run_start")]
    for block in range(4):
        begin, tokens = 1000 + block * 25000, 10 * TOKENS
        events += [event(begin, "block_start", first_epoch_num=block * tokens, epoch_count=tokens),
                  event(begin + 20000, "block_stop", first_epoch_num=block * tokens, epoch_count=tokens),
                  event(begin + 20001, "eval_start", epoch_num=tokens), event(begin + 24000, "eval_stop", epoch_num=tokens)]
    j = read(folder, {"log": "\n".join(events + [event(100000, "run_stop")])})
    check("mlperf", j["kind"] == "mlperf" and near(j["step_seconds"]["median"], SECONDS), j["step_seconds"])
    check("mlperf: rest", (j["devices"], j["device"], j["model"], j["tokens_per_step"]) == (8, "H100-SXM5-80GB", "llama-3.1-8b", TOKENS), j)
    # Numbers that no run has.
    text = "[titan] Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=-1, cp=1, tp=1\n"
    check("mesh", read(folder, {"log": text + "\n".join(torchtitan(i) for i in range(1, 31))})["devices"] is None)
    flat = KINDS["flatout"]
    j = read(folder, {"log": "\n".join(flat(i).replace('"step": %d,' % i, '"step": %d,' % (i * 10**18)) for i in range(1, 31))})
    check("huge steps", isinstance(j, dict), j)
    check("huge lengths", isinstance(read(folder, {"log": log(seq_length="1" + "0" * 300)}), dict))
    # Long lines full of words that begin a fact or an event.
    for name, text in (("events", ":::MLLOG {\"key\": 1} " + "::: {" * 200000), ("facts", "tp=cp=pp= " * 200000)):
        begin = time.monotonic()
        read(folder, {"log": text})
        check("hangs: " + name, time.monotonic() - begin < 120)


def others(folder):
    random.seed(1)
    for name, text in {
        "empty": b"", "one line": b"hello\n", "words": b"step loss tps mfu\n" * 100,
        "numbers": b"\n".join(b"%d" % random.randrange(10**9) for _ in range(1000)),
        "html": b"<html><body>step: 1</body></html>", "json": b"{}", "half json": b'{"log_history": [{"loss": 1',
        "csv of others": b"name,price\na,1\nb,2\n", "newlines": b"\n" * 5000, "marks": b"tps: tps: step: step:\n" * 50,
    }.items():
        j = read(folder, {"log": text})
        check("others: " + name, not isinstance(j, subprocess.CompletedProcess) and j["lines"] == 0 or
              isinstance(j, dict) and j["mfu"]["median"] is None and not j["timed_by"], j)
    p = read(folder, {"log": bytes(random.randrange(256) for _ in range(5000))})
    check("others: binary", isinstance(p, subprocess.CompletedProcess) and p.returncode == 2 and "no text" in p.stderr, p)


with tempfile.TemporaryDirectory() as folder:
    for part in (kinds, shapes, coarse, facts, doubts, others):
        part(folder)
sys.exit(failed)
