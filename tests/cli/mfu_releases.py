"""Lines as releases print them: each was made by the format strings of the release that docs/commands/mfu.md names, with values of
our own. 12 steps of 2.56 s (the first two ten times as long), 81,920 tokens and 8 devices: 4,000 tokens/s each."""
import json
import os
import subprocess
import sys
import tempfile

FLATOUT = sys.argv[1]
SECONDS, TOKENS, DEVICES, SEQ, STEPS = 2.56, 81920, 8, 4096, 12
RATE = TOKENS / SECONDS / DEVICES
failed = 0


def took(i):
    return SECONDS * (10 if i <= 2 else 1)


def at(i):
    """Seconds since the beginning at the end of step i."""
    return sum(took(k) for k in range(1, i + 1))


def stamp(i, format="2026-05-04 %02d:%02d:%06.3f"):
    t = 8 * 3600 + at(i)
    return format % (t // 3600, t // 60 % 60, t % 60)


def rate(i):
    return TOKENS / took(i) / DEVICES


def four(logs):
    """transformers 5 prints its floats with four digits, as texts."""
    return str({k: "%.4g" % v if isinstance(v, float) else v for k, v in logs.items()})


def suffixed(v):
    """nanotron's human_format, below a million."""
    return "%gK" % (float("%.3g" % v) / 1e3) if v >= 1000 else "%.3g" % v


def text_of_time(s):
    """ms-swift's and prime-rl's."""
    s = round(s)
    return "%dm %ds" % (s // 60, s % 60) if s >= 60 else "%ds" % s


HF = {"loss": 2.2345678, "grad_norm": 1.0123, "learning_rate": 1e-05}
RED, BLUE, END = "\033[31m", "\033[34m", "\033[39m"
TITAN = ["torchtitan version: 0.3.0 (0.0.0 means __version__ is not defined correctly).",
         "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1",
         "Successfully created meshes with active dimensions: ['batch', 'loss', 'fsdp', 'tp']",
         "[GC] Initial GC collection took 0.00 seconds", "Loading tokenizer from tokenizer.json", "Preparing c4 dataset from allenai/c4", "Building llama3 8B",
         "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory",
         "%sModel llama3 8B %ssize: 8,030,261,248 total parameters%s" % (BLUE, RED, END),
         "Peak FLOPS used for computing MFU: 9.890e+14",
         "Trainer is initialized with local batch size 5, global batch size 20, gradient accumulation steps 1, sequence length 4096, total steps 1000 (warmup 2)",
         "CUDA memory usage for model: 7.48GiB(9.46%)", "Training starts at step 1"]


def titan(i, red="", blue="", end=""):
    start = "".join("[titan] %s - root - INFO - %s\n" % (stamp(0).replace(".", ","), t) for t in TITAN) if i == 1 else ""
    return start + "[titan] %s - root - INFO - %sstep: %2d  loss:  2.20000  grad_norm:  1.0000  memory:  2.34GiB(1.25%%)  %stps: %s  tflops: 196.61  mfu: 19.88%%%s" % (
        stamp(i).replace(".", ","), red, i, blue, format(round(rate(i)), ","), end)


def megatron(i, more="throughput per GPU (TFLOP/s/GPU): 210.1 | energy per GPU (J/iter/GPU): 1200.0 | power per GPU (W/GPU): 600.0 | learning rate: 1.000000E-04"):
    return " [%s000] iteration %8d/    1000 | consumed samples: %12d | elapsed time per iteration (ms): %.1f | %s | global batch size:    20 | lm loss: 2.200000E+00 | mtp_1 loss: 2.900000E+00 | loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | number of nan iterations:   0 |" % (
        stamp(i), i, 20 * i, 1000 * took(i), more)


def composer(i, head):
    values = (("time/batch", i), ("time/sample", 20 * i), ("time/batch_in_epoch", (i - 1) % 4 + 1), ("loss/train/total", 2.2),
              ("throughput/batches_per_sec", 1 / took(i)), ("throughput/samples_per_sec", 20 / took(i)), ("throughput/device/batches_per_sec", 1 / took(i) / 8),
              ("throughput/tokens_per_sec", TOKENS / took(i)), ("throughput/device/tokens_per_sec", rate(i)), ("throughput/device/mfu", 0.1988),
              ("time/train", at(i) / 3600), ("time/val", 0.0), ("time/total", at(i) / 3600))
    return head + ":" + "".join("\n\t Train %s: %s" % (k, v if isinstance(v, int) else "%.4f" % v) for k, v in values)


def olmo_core(i):
    """Its first block has no speed; from a thousand million on numbers have a letter."""
    speed = ["throughput/device/TPS=%s" % format(int(rate(i)), ","), "throughput/device/TPS (actual avg)=3,900",
             "throughput/total tokens=%.3fB" % (TOKENS * i / 1e6), "throughput/device/flopsPS=196.6T", "throughput/device/TFLOPs_per_GPU=196.6",
             "throughput/device/BPS=%.4f" % (1 / took(i)), "throughput/device/BPS (actual avg)=0.3800", "throughput/device/MFU=19.88",
             "throughput/device/MFU (actual avg)=19.10"]
    return "%s\thost:0\tolmo_core.train.callbacks.console_logger:123\tINFO\t[step=%d/100,epoch=1,eta=1h]\n" % (stamp(i), i) + "\n".join(
        "    " + v for v in ["train/CE loss=2.200", "optim/LR (group 0)=0.0003", "throughput/device/data loading (s)=0.0010", *(speed if i > 1 else [])])


def swift(i):
    return {"loss": 2.23, "token_acc": 0.6, "global_step/max_steps": "%d/30" % i, "elapsed_time": text_of_time(at(i)), "remaining_time": "1h 2m 3s",
            "memory(GiB)": 40.1, "train_speed(s/it)": round(at(i) / i, 6)}


# kind, line of step i, and what else must be read
LINES = {
    "torchtitan 0.3.0": ("torchtitan", titan, dict(devices=8, model="llama-3.1-8b", device="H100-SXM5-80GB", tokens_per_step=TOKENS)),
    "torchtitan 0.3.0 in colours": ("torchtitan", lambda i: titan(i, RED, BLUE, END), dict(devices=8, model="llama-3.1-8b")),
    "Megatron-LM core 0.20.0": ("megatron", megatron, dict(steps_left=1000 - STEPS)),
    "Megatron-DeepSpeed": ("megatron-deepspeed", lambda i: megatron(i, "learning rate: 1.000E-04").replace(" [%s000]" % stamp(i), "") +
                           " samples per second: %.3f | tokens per gpu per second (tgs): %.3f | TFLOPs: 140.00 |" % (20 / took(i), rate(i)), {}),
    "Megatron-Bridge 0.3.1": ("megatron", lambda i: "Step Time : %.2fs GPU utilization: 210.1MODEL_TFLOP/s/GPU\n%s" % (took(i), megatron(i)), {}),
    "GPT-NeoX": ("neox", lambda i: " samples/sec: %.3f | iteration %8d/    1000 | elapsed time per iteration (ms): %.1f | learning rate: 1.000E-04 | approx flops per GPU: 1.2PFLOPS | MFU: 19.88%% | HFU: 26.51%% | lm_loss: 2.200000E+00 | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |" % (
        20 / took(i), i, 1000 * took(i)), {"printed.tflops": 1200, "printed.mfu": 0.1988}),
    "NeMo 3.0.0, DeltaTimingCallback": ("nemo", lambda i: "[NeMo I %s exp_manager:451] Step %d: train_step_timing in s=%r" % (stamp(i)[:19], i % 4, took(i)), {}),
    "NeMo 2.6, epochs": ("nemo", lambda i: "Training epoch %d, iteration %d/999 | lr: 1.073e-05 | global_batch_size: 20 | global_step: %d | reduced_train_loss: 2.2 | train_step_timing in s: %.4g | tokens_per_sec_per_gpu: %.4g | consumed_samples: %d" % (
        i // 4, i % 4, i, took(i), rate(i), 20 * i), {}),
    "NeMo 2.6, behind labels": ("nemo", lambda i: 'i.pretrain/0 "[default0]:Training epoch 0, iteration %d/999 | lr: 1.073e-05 | global_batch_size: 20 | global_step: %d | train_step_timing in s: %.4g | consumed_samples: %d"' % (
        i, i, took(i), 20 * i), {}),
    "NeMo, progress bar": ("nemo", lambda i: "\rEpoch 0:   1%%| | %d/999 [00:10<16:00,  2.56s/it, v_num=0, reduced_train_loss=2.200, global_step=%d.000, consumed_samples=%d.0, train_step_timing in s=%.3f]" % (
        i, i, 20 * i, took(i)), {}),
    "NeMo Automodel 0.7.0": ("automodel", lambda i: json.dumps({"step": i, "epoch": 0, "timestamp": stamp(i, "2026-05-04T%02d:%02d:%06.3fZ"), "loss": 2.2, "grad_norm": 1.0, "lr": 1e-5, "mem": 40.0,
        "tps": TOKENS / took(i), "tps_per_gpu": rate(i), "mfu": 19.88, "num_tokens_per_step": TOKENS, "num_label_tokens": 60000}), {"printed.mfu": 0.1988}),
    "NeMo Automodel 0.7.0, console": ("automodel", lambda i: "%s | INFO | nemo_automodel.recipes.llm.train_ft | step %d | epoch 0 | loss 2.2000 | grad_norm 1.0000 | lr 1.00e-05 | mem 40.00 GiB | tps %.2f(%.2f/gpu) | num_label_tokens 60000" % (
        stamp(i)[:19], i, TOKENS / took(i), rate(i)), {}),
    "transformers 5.23.0, bars": ("trainer", lambda i: "\r %2d%%|####      | %d/50 [%02d:%02d<02:08,  2.56s/it]\n%s" % (2 * i, i, at(i) // 60, at(i) % 60, four({**HF, "epoch": i / 50})), {}),
    "axolotl 0.19.0": ("axolotl", lambda i: four({**HF, "epoch": 0.1, "ppl": 9.02, "tokens/train_per_sec_per_gpu": round(rate(i), 2), "tokens/trainable": TOKENS * i - 5, "tokens/total": TOKENS * i}), {}),
    "ms-swift 4.6.0": ("swift", lambda i: str(swift(i)), dict(steps_left=18)),
    "ms-swift 4.6.0, logging.jsonl": ("swift", lambda i: json.dumps(swift(i)), {}),
    "LLaMA-Factory 0.9.5": ("llamafactory", lambda i: json.dumps({"current_steps": i, "total_steps": 30, "loss": 2.2, "lr": 1e-5, "epoch": i / 30, "percentage": 3.33 * i,
        "elapsed_time": "0:%02d:%02d" % (at(i) // 60, at(i) % 60), "remaining_time": "1 day, 2:03:04", "throughput": 32768.1, "total_tokens": TOKENS * i}), dict(tokens_so_far=TOKENS * STEPS)),
    "verl 0.9.1": ("verl", lambda i: "\x1b[36m(TaskRunner pid=1234)\x1b[0m step:%d - training/global_step:%d - actor/loss:0.1 - perf/mfu/actor:0.21 - timing_s/step:%r - perf/total_num_tokens:%d - perf/time_per_step:%r - perf/throughput:%r" % (
        i, i, took(i), TOKENS, took(i), rate(i)), {}),
    "DeepSpeed 0.19.6": ("deepspeed", lambda i: "[%s] [INFO] [timer.py:264:stop] [Rank 0] epoch=0/micro_step=%d/global_step=%d, RunningAvgSamplesPerSec=5.1, CurrSamplesPerSec=%r, MemAllocated=3.96GB, MaxMemAllocated=22.95GB" % (
        stamp(i).replace(".", ","), 4 * i, i, 20 / took(i)), {}),
    "DeepSpeed 0.19.6, pipelines": ("deepspeed-pipe", lambda i: "steps: %d loss: 2.2000 iter time (s): %.3f samples/sec: %.3f" % (i, took(i), 20 / took(i)), {}),
    "Composer 0.32.1, batches": ("composer", lambda i: composer(i, "[batch=%d/100]" % i), dict(steps_left=100 - STEPS)),
    "Composer 0.32.1, epochs": ("composer", lambda i: composer(i, "[epoch=%d][batch=%d/4]" % ((i - 1) // 4 + 1, (i - 1) % 4 + 1)), dict(restarts=[])),
    "Composer 0.32.1, tokens": ("composer", lambda i: composer(i, "[token=%d/%d]" % (TOKENS * i, TOKENS * 100)), dict(tokens_so_far=TOKENS * STEPS)),
    "nanochat 92d63d4, fine-tuning": ("nanochat", lambda i: "step %05d (%.2f%%) | loss: 2.200000 | lrm: 1.00 | dt: %.2fms | tok/sec: %s | mfu: 19.88 | epoch: 1 | total time: 0.50m" % (
        i, i, 1000 * took(i), format(int(TOKENS / took(i)), ",")), {"printed.mfu": 0.1988}),
    "llm.c f1e2ace, train_gpt2.py": ("llm.c", lambda i: "step %4d/100 | train loss 2.200000 | norm 1.0000 | lr 1.00e-04 | (%.2f ms | %.0f tok/s)" % (i, 1000 * took(i), TOKENS / took(i)), {}),
    "llm.c f1e2ace, train_gpt2_fp32.cu": ("llm.c", lambda i: "step %4d/100: train loss 2.200000 (%f ms, %d tok/s)" % (i, 1000 * took(i), TOKENS / took(i)), {}),
    "llm.c f1e2ace, train_gpt2.c": ("llm.c", lambda i: "step %d: train loss 2.200000 (took %f ms)" % (i, 1000 * took(i)), {}),
    "modded-nanogpt f411b3d3": ("modded-nanogpt", lambda i: "step:%d/100 train_time:%.0fms step_avg:%.2fms" % (i, 1000 * at(i), 1000 * at(i) / i), {}),
    "OLMo-core 3.0.0": ("olmo-core", olmo_core, {"printed.mfu": 0.1988, "tokens_so_far": TOKENS * STEPS * 1000, "lines": STEPS - 1}),
    "OLMo 0.6.0": ("olmo", lambda i: "%s\thost:0\tolmo.train:979\tINFO\t[step=%d/100,epoch=0]\n    train/CrossEntropyLoss=2.200\n    throughput/total_tokens=%s\n    throughput/device/tokens_per_second=%s\n    throughput/device/batches_per_second=%.4f" % (
        stamp(i), i, format(TOKENS * i, ","), format(int(rate(i)), ","), 1 / took(i)), dict(tokens_so_far=TOKENS * STEPS)),
    "nanotron 2411b022": ("nanotron", lambda i: "05/04/2026 08:00:00 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: %d / 100 | consumed_tokens: %s | time_per_iteration_ms: %s | tokens_per_sec: %s | tokens_per_sec_per_gpu: %s | global_batch_size: 81.9K | grad_norm: 1 | lm_loss: 2.2 | lr: 0.0003 | model_tflops_per_gpu: 210 | eta: 0:01:00" % (
        i, suffixed(TOKENS * i), suffixed(1000 * took(i)), suffixed(TOKENS / took(i)), suffixed(rate(i))), {}),
    "nanotron 0.4": ("nanotron", lambda i: "[INFO|DP=0]: iteration: %d / 100 | consumed_tokens: %s | elapsed_time_per_iteration_ms: %s | tokens_per_sec: %s | tokens_per_sec_per_gpu: %s | global_batch_size: 20 | lm_loss: 2.2 | lr: 0.0003 | model_tflops_per_gpu: 210 | hardware_tflops_per_gpu: 250" % (
        i, suffixed(TOKENS * i), suffixed(1000 * took(i)), suffixed(TOKENS / took(i)), suffixed(rate(i))), {"printed.tflops": 210}),
    "torchtune 0.7.0": ("torchtune", lambda i: "Step %d | loss:2.2 lr:1e-05 tokens_per_second_per_gpu:%r peak_memory_active:40.0 grad_norm:1.0 " % (i, rate(i)), {}),
    "torchtune 0.7.0, jsonl": ("torchtune", lambda i: json.dumps({"step": i, "loss": 2.2, "lr": 1e-5, "tokens_per_second_per_gpu": rate(i), "peak_memory_active": 40.0}), {}),
    "MaxText e591f30c": ("maxtext", lambda i: "I0504 08:00:00.000000 139 metric_logger.py:198] completed step: %d, seconds: %.3f, TFLOP/s/device: 210.000, Tokens/s/device: %.3f, total_weights: %d, loss: 2.200, lm_loss: 2.100, perplexity: 9.000" % (
        i, took(i), rate(i), TOKENS), {"printed.tflops": 210}),
    "prime-rl 0.8.0": ("prime-rl", lambda i: "08:00:00 SUCCESS Step %d | %7s | Loss 2.2000 | Grad. Norm 1.0000 | LR 1.00e-05 | Throughput %.0f tokens/s | MFU 19.9%% | Peak Mem. 40.0/80.0 GiB (50.0%%)" % (
        i, "%.2fs" % took(i), TOKENS / took(i)), {"printed.mfu": 0.199}),
    "InternEvo 0.3.4": ("internevo", lambda i: "%s INFO pipeline.py:626 in record_current_batch_training_metrics -- tflops=140.0 step=%d loss=2.2 tgs (tokens/gpu/second)=%.2f tgs/last_tgs_1=%.2f tgs/tgs_all=3900.0 lr=1e-05 loss_scale=65536.0 grad_norm={'0_default': 1.0} micro_num=4 num_consumed_tokens=%d " % (
        stamp(i).replace(".", ","), i, rate(i), rate(i), TOKENS * i), {"printed.tflops": 140, "tokens_so_far": TOKENS * STEPS}),
    "picotron 59714b1": ("picotron", lambda i: "[rank 0] Step: %-5d | Loss: 2.2000 | Global batch size:  81.92K | Tokens/s: %6.2fK | Tokens/s/GPU: %6.2fK | Tokens: %.2fM/1.00B | MFU: 19.88%% | Memory usage:  40.00GB" % (
        i, TOKENS / took(i) / 1e3, rate(i) / 1e3, TOKENS * i / 1e6), {"printed.mfu": 0.1988}),
    "fms-fsdp 5a296af": ("fms-fsdp", lambda i: "step: %d\nloss: 2.2\nLR: 0.0003\ntokens seen: %d\ngradient norm: 1.0\nreserved memory: 1\nallocated memory: 1\ncurrent step time: %r\noverall step time: 3.1\ncurrent token per gpu per sec: %r\noverall token per gpu per sec: 3900\noverall token per day: 1" % (
        i, TOKENS * i, took(i), rate(i)), dict(lines=STEPS)),
}
NO_TIMES = ("axolotl", "torchtune")  # print a rate and no time


def check(what, condition, more=""):
    global failed
    if not condition:
        print("FAILED: %s %s" % (what, more))
        failed = 1


def read(folder, text, *options):
    paths = []
    for n, t in enumerate(text if isinstance(text, list) else [text]):
        paths.append(os.path.join(folder, "log%d" % n))
        with open(paths[-1], "w") as f:
            f.write(t)
    p = subprocess.run([FLATOUT, "mfu", *paths, "--json", *options], capture_output=True, text=True)
    if p.returncode not in (0, 1):
        print("FAILED: exit status %d: %s" % (p.returncode, p.stderr))
        sys.exit(1)
    return json.loads(p.stdout)


def near(a, b, part=0.005):
    return a is not None and abs(a / b - 1) < part


OPTIONS = ("--seq", str(SEQ), "--device", "h100", "--devices", str(DEVICES), "--tokens-per-step", str(TOKENS))


def releases(folder):
    for name, (kind, line, more) in LINES.items():
        j = read(folder, "\n".join([*(line(i) for i in range(1, STEPS + 1)), ""]), *([] if "devices" in more else OPTIONS))
        check(name + ": kind", j["kind"] == kind, j["kind"])
        check(name + ": lines", j["lines"] == more.get("lines", STEPS), j["lines"])
        check(name + ": rate", near(j["tokens_per_second_per_device"], RATE, 0.03 if kind in ("trainer", "swift", "llamafactory") else 0.005), j["tokens_per_second_per_device"])
        coarse = kind in ("trainer", "swift", "llamafactory") or "console" in name  # clocks of whole seconds
        check(name + ": step", kind in NO_TIMES or near(j["step_seconds"]["median"], SECONDS, 0.03 if coarse else 0.005), j["step_seconds"])
        check(name + ": restarts", not j["restarts"], j["restarts"])
        for key, value in more.items():
            got = j
            for k in key.split("."):
                got = got[k]
            check("%s: %s" % (name, key), near(got, value) if isinstance(value, (int, float)) and value else got == value, got)


def prefixes(folder):
    """What launchers put in front of each line."""
    for prefix in ("0: ", "[default0]:", "[rank0]: ", "trainer-1  | ", "pod/train-abc-0 ", "[pod/train-abc-0/main] ", "2026-05-04T%sZ ", "\x1b[36mtrainer-1  | \x1b[0m"):
        for name in ("torchtitan 0.3.0", "Megatron-LM core 0.20.0", "nanotron 2411b022", "llm.c f1e2ace, train_gpt2.py", "Composer 0.32.1, batches", "OLMo-core 3.0.0", "MaxText e591f30c",
                     "NeMo 2.6, epochs", "DeepSpeed 0.19.6", "ms-swift 4.6.0", "prime-rl 0.8.0", "torchtune 0.7.0"):
            kind, line, more = LINES[name]
            text = "".join(prefix.replace("%s", stamp(i)[11:] + "456789") + t + "\n" for i in range(1, STEPS + 1) for t in line(i).split("\n"))
            j = read(folder, text, *OPTIONS)
            check("%r before %s" % (prefix, name), j["kind"] == kind and near(j["tokens_per_second_per_device"], RATE, 0.03) and j["lines"] == more.get("lines", STEPS),
                  (j["kind"], j["lines"], j["tokens_per_second_per_device"]))


def trainer(folder):
    """Where the Trainer counts tokens, each of its entries has a running time, and only the last one is the summary."""
    counted = lambda i: {**HF, "epoch": i / 50, "num_input_tokens_seen": TOKENS * i, "train_runtime": round(at(i), 4), "train_tokens_per_second": round(TOKENS * i / at(i), 3)}
    end = {"train_runtime": 79.5123, "train_samples_per_second": 3.019, "train_steps_per_second": 0.151, "train_loss": 2.2, "epoch": 0.3}
    steps = range(1, STEPS + 1)
    j = read(folder, "\n".join([*(four(counted(i)) for i in steps), four(end), ""]), "--devices", "8")
    check("counted tokens", j["kind"] == "trainer" and near(j["tokens_per_second_per_device"], RATE) and near(j["summary"]["seconds"], 79.51), (j["tokens_per_second_per_device"], j["summary"]))
    check("counted tokens: no step is named", j["step_seconds"]["median"] is None and j["tokens_so_far"] == TOKENS * STEPS, j["step_seconds"])
    for name, entry in (("with tokens", counted), ("without", lambda i: {**HF, "epoch": i / 50})):
        state = {"global_step": STEPS, "max_steps": 50, "log_history": [{**entry(i), "step": i} for i in steps] + [{**end, "step": STEPS}]}
        j = read(folder, json.dumps(state, indent=2), "--devices", "8")
        check("trainer_state " + name, j["kind"] == "trainer_state" and j["lines"] == STEPS and near(j["summary"]["seconds"], 79.5123), (j["lines"], j["summary"]))
        check("trainer_state %s: times" % name, near(j["step_seconds"]["median"], SECONDS) and near(j["tokens_per_second_per_device"], RATE) if name == "with tokens" else
              j["step_seconds"]["median"] is None, j["step_seconds"])


def tables(folder):
    steps = range(1, STEPS + 1)
    monitor = "epoch,step,train/device/batches_per_sec,train/device/flops_per_sec,train/device/items_per_sec,train/device/mfu,train/time,train_loss\n" + "".join(
        "0,%d,0.1,2.1e14,%r,0.1988,%r,2.2\n" % (4 * i, rate(i), at(i)) for i in steps)
    j = read(folder, monitor, *OPTIONS)
    check("Lightning 2.6.6, ThroughputMonitor", j["kind"] == "csv" and near(j["tokens_per_second_per_device"], RATE) and near(j["printed"]["mfu"], 0.1988) and j["step_seconds"]["median"] is None,
          (j["tokens_per_second_per_device"], j["step_seconds"]))
    litgpt = "epoch,iter,iter_time,learning_rate,loss,remaining_time,step,throughput/device/items_per_sec,tokens,total_tokens\n" + "".join(
        "0,%d,0.64,1e-4,2.2,60.0,%d,%r,%d,%d\n" % (4 * i, 4 * i - 1, rate(i), TOKENS // 8 * i, TOKENS * i) for i in steps)
    j = read(folder, litgpt, *OPTIONS)
    check("litgpt 0.5.13, CSV of micro-batches", near(j["tokens_per_second_per_device"], RATE) and j["step_seconds"]["median"] is None, (j["tokens_per_second_per_device"], j["step_seconds"]))
    wide = ",".join("a_rather_long_name_of_a_column_%d" % i for i in range(4000))
    j = read(folder, "%s,step,step_time\n" % wide + "".join("%s%d,%r\n" % ("," * 4000, i, took(i)) for i in steps))
    check("a header of %d bytes" % len(wide), near(j["step_seconds"]["median"], SECONDS), j["step_seconds"])


def mlperf(folder):
    """mlperf_logging 4.1.68, counts of samples: blocks of ten steps of 2 s, the first one from 0 on, with an evaluation behind each."""
    clock = [1700000000000]

    def event(after, type, key, value=None, **more):
        clock[0] += after
        return ":::MLLOG " + json.dumps({"namespace": "", "time_ms": clock[0], "event_type": type, "key": key, "value": value, "metadata": {"file": "train.py", "lineno": 259, **more}})
    lines = [event(0, "POINT_IN_TIME", k, v) for k, v in (("submission_benchmark", "llama31_8b"), ("submission_platform", "1xNVIDIA DGX H100"), ("global_batch_size", 16), ("max_sequence_length", SEQ))]
    lines += [event(0, "INTERVAL_START", "init_start"), event(1000, "INTERVAL_END", "init_stop"), event(10, "INTERVAL_START", "run_start")]
    for b in range(4):
        lines += [event(1000, "INTERVAL_START", "block_start", samples_count=160 * b), event(20000, "INTERVAL_END", "block_stop", samples_count=160 * b + 160),
                  event(1, "INTERVAL_START", "eval_start", samples_count=160 * b + 160), event(3000, "INTERVAL_END", "eval_stop", samples_count=160 * b + 160)]
    j = read(folder, "\n".join([*lines, event(10, "INTERVAL_END", "run_stop", status="success", samples_count=640)]))
    check("MLPerf", (j["kind"], j["lines"], j["tokens_so_far"], j["devices"]) == ("mlperf", 4, 40 * 16 * SEQ, 8) and near(j["step_seconds"]["median"], 2), (j["lines"], j["tokens_so_far"], j["step_seconds"]))


def sums(folder):
    """The time in steps."""
    # One line of ten steps times one of them: the first one here is slow, and its nine untimed steps are not.
    nano = lambda i, ms: "iter %d: loss 2.2000, time %.2fms, mfu 21.23%%" % (i, ms)
    j = read(folder, "\n".join(nano(10 * i, 50000 if i in (1, 20) else 2560) for i in range(1, 41)))
    check("one of ten", near(j["seconds"]["steps"], 398 * 2.56 + 2 * 50, 0.01) and "estimate" in " ".join(j["notes"]), j["seconds"])
    j = read(folder, "\n".join(nano(i, 50000 if i == 20 else 2560) for i in range(1, 41)))
    check("one of one", near(j["seconds"]["steps"], 39 * 2.56 + 50, 1e-6) and "estimate" not in " ".join(j["notes"]), j["seconds"])
    # Megatron's first line is its first step, which the mean of the next line holds again; once more behind a restart.
    first = [(1, 60.0), (10, 7.8), (20, 2.0), (30, 2.0), (31, 40.0), (40, 5.8), (50, 2.0), (60, 2.0)]
    text = "\n".join(megatron(i).replace("(ms): %.1f" % (1000 * took(i)), "(ms): %.1f" % (1000 * s)).replace("[%s000]" % stamp(i), "[none]") for i, s in first)
    j = read(folder, text)
    check("first step again", near(j["seconds"]["steps"], 78 + 40 + 58 + 40, 1e-6), j["seconds"])
    # A process that begins again before all that was done, with clocks of whole seconds and with times of its own.
    for name in ("LLaMA-Factory 0.9.5", "llm.c f1e2ace, train_gpt2.py", "modded-nanogpt f411b3d3"):
        line = LINES[name][1]
        j = read(folder, "\n".join([*(line(i) for i in range(5, 13)), *(line(i) for i in range(1, 13))]))
        check("all done again: " + name, j["lines"] == STEPS and len(j["restarts"]) == 1 and near(j["step_seconds"]["median"], SECONDS, 0.03), (j["lines"], j["step_seconds"]))
    # A sawtooth: each sixth step saves. Its sum is the sum, its median a usual step, its MFU the usual one.
    saw = [2.0 if i % 6 else 9.0 for i in range(1, 121)]
    j = read(folder, "\n".join("completed step: %d, seconds: %.3f, TFLOP/s/device: 210.000, Tokens/s/device: 4096.000, total_weights: 65536, loss: 2.2" % (i + 1, s) for i, s in enumerate(saw)))
    check("sawtooth", near(j["step_seconds"]["median"], 2.0, 1e-9) and near(j["seconds"]["steps"], sum(saw), 1e-9), (j["step_seconds"], j["seconds"]))
    check("sawtooth: slow", len(j["slow"]) >= 18 and all(s["first"] == s["last"] and s["first"] % 6 == 0 for s in j["slow"]), j["slow"])


def sizes(folder):
    """A process that begins again with other devices: each step counts with its own."""
    def dump(devices):
        args = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "seq_length": 4096, "padded_vocab_size": 50304, "world_size": devices}
        args.update(("some_other_argument_%d" % n, n) for n in range(40))
        return "".join("  %s %s %s\n" % (k, "." * (48 - len(k)), v) for k, v in args.items())

    def part(steps, seconds):
        return "\n".join(megatron(i).replace("(ms): %.1f" % (1000 * took(i)), "(ms): %.1f" % (1000 * seconds)).replace("[%s000]" % stamp(i), "[none]") for i in steps) + "\n"

    junk = "a warning of no interest\n" * 300000  # 7 MB: further than facts are looked for
    begin, go_on = dump(8) + part(range(1, 41), 2.56), dump(4) + part(range(41, 101), 5.12)
    for name, text in (("in one file", begin + go_on), ("behind much else", begin + junk + go_on), ("in two files", [begin, go_on])):
        j = read(folder, text, "--device", "a100")
        rates = [j["mfu"][k] for k in ("low", "median", "high")]
        check("devices change " + name, near(j["tokens_per_second_per_device"], RATE) and near(rates[0], rates[2]) and j["devices"] == 4 and "4 at the end" in " ".join(j["notes"]),
              (j["devices"], j["tokens_per_second_per_device"], rates, j["notes"]))
    j = read(folder, begin + go_on, "--device", "a100", "--rent", "1")
    check("device-hours", near(j["cost_low_usd"], (40 * 2.56 * 8 + 60 * 5.12 * 4) / 3600, 0.001), j["cost_low_usd"])
    again = "".join("[titan] %s - root - INFO - %s\n" % (stamp(12).replace(".", ","), t.replace("dp_shard=4", "dp_shard=2")) for t in TITAN)
    text = "\n".join(titan(i) for i in range(1, 13)) + "\n" + again + "\n".join(titan(i) for i in range(13, 31))
    j = read(folder, text)
    check("a second mesh", j["devices"] == 4 and j["lines"] == 30 and near(j["tokens_per_second_per_device"], RATE) and near(j["step_seconds"]["high"], 2 * SECONDS), (j["devices"], j["step_seconds"]))
    groups = ["Synchronizing and adjusting timeout for all ProcessGroups to 0:01:40", "Process group destroyed"]
    text = "\n".join(t for i in range(1, 31) for t in (titan(i), *("[titan] %s - root - INFO - %s" % (stamp(i).replace(".", ","), g) for g in groups[i % 2:])))
    j = read(folder, text)
    check("lines of process groups", j["devices"] == 8 and j["lines"] == 30 and not j["restarts"] and not j["notes"], (j["devices"], j["lines"], j["notes"]))


with tempfile.TemporaryDirectory() as folder:
    for part in (releases, prefixes, trainer, tables, mlperf, sums, sizes):
        part(folder)
sys.exit(failed)
