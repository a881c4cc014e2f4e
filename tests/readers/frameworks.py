"""Feeds the settings of plans to the parsers of the frameworks themselves: tests/readers/README.md.

    python frameworks.py FLATOUT FRAMEWORK [FOLDER]

FRAMEWORK: torchtitan, megatron or deepspeed; FOLDER: what else is put in front of the modules' path. Prints a line for
each plan and ends with 1 where a parser refuses one, with 77 where it is not installed."""
import importlib.abc
import importlib.machinery
import json
import os
import shlex
import subprocess
import sys
import types
import unittest.mock
import warnings

PLANS = {
    "torchtitan": [
        "--model llama-3.1-8b --cluster 1xHGX-H100 --seq 8192 --global-batch 64",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128 --fix tp=2",
        "--model llama-3.1-8b --cluster 4xHGX-H100 --seq 32768 --global-batch 32 --fix cp=4",
        "--model llama-3.1-8b --cluster 2xHGX-B200 --seq 8192 --global-batch 128 --precision mxfp8",
        "--model llama-3.1-8b --cluster 4xHGX-A100 --seq 4096 --global-batch 256 --fix zero=0",
        "--model llama-3.1-8b --cluster 4xHGX-A100 --seq 4096 --global-batch 256 --fix shard=8",
        "--model llama-3.1-70b --cluster 8xHGX-H100 --seq 8192 --global-batch 256",
        "--model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 --global-batch 512 --fix pp=4",
        "--model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 --global-batch 512 --fix pp=4,chunks=2",
        "--model llama-3.1-70b --cluster 16xHGX-H200 --seq 131072 --global-batch 32 --fix cp=8",
        "--model llama-3.1-405b --cluster 64xHGX-H100 --seq 8192 --global-batch 512 --precision fp8",
        "--model llama-3.1-405b --cluster 128xHGX-H100 --seq 8192 --global-batch 1024 --precision fp8 --fix pp=16,tp=8",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128 --state all-bf16",
        "--model llama-3.1-8b --cluster 2xHGX-B200 --seq 8192 --global-batch 128 --precision bf16,mxfp8 --state any",
    ],
    "megatron": [
        "--model llama-3.1-8b --cluster 1xHGX-H100 --seq 8192 --global-batch 64",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128 --fix tp=2",
        "--model llama-3.1-8b --cluster 4xHGX-H100 --seq 32768 --global-batch 32 --fix cp=4",
        "--model llama-3.1-8b --cluster 2xHGX-B200 --seq 8192 --global-batch 128 --precision mxfp8",
        "--model llama-3.1-8b --cluster 2xHGX-B200 --seq 8192 --global-batch 128 --precision fp4",
        "--model llama-3.1-8b --cluster 4xHGX-A100 --seq 4096 --global-batch 256 --precision fp16 --fix zero=0",
        "--model llama-3.1-70b --cluster 8xHGX-H100 --seq 8192 --global-batch 256 --precision fp8",
        "--model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 --global-batch 512 --fix pp=4,chunks=5",
        "--model llama-3.1-70b --cluster 4xHGX-A100 --seq 4096 --global-batch 64 --recompute full",
        "--model llama-3.1-405b --cluster 128xHGX-H100 --seq 8192 --global-batch 2048 --fix pp=32",
        "--model llama-3.1-405b --cluster 144xHGX-H100 --seq 8192 --global-batch 2304 --fix pp=18,tp=8",
        "--model mixtral-8x7b --cluster 8xHGX-H100 --seq 4096 --global-batch 256 --fix ep=8",
        "--model llama-3.2-1b --cluster 2xHGX-H100 --seq 2048 --global-batch 64 --precision fp32",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128 --state bf16 --fix zero=1",
        "--model llama-3.1-70b --cluster 8xHGX-H100 --seq 8192 --global-batch 256 --precision bf16,fp8 --state 8bit --fix zero=1",
        "--model llama-3.1-8b --cluster 2xHGX-B200 --seq 8192 --global-batch 128 --precision any --state any",
    ],
    "deepspeed": [
        "--model llama-3.1-8b --cluster 1xHGX-H100 --seq 8192 --global-batch 64",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 4096 --global-batch 256 --fix zero=1",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 4096 --global-batch 256 --fix zero=2",
        "--model llama-3.2-1b --cluster 1xHGX-A100 --seq 2048 --global-batch 64 --fix zero=0",
        "--model llama-3.2-1b --cluster 8xV100-SXM2-32GB --seq 2048 --global-batch 64 --precision fp16",
        "--model llama-3.2-1b --cluster 1xHGX-H100 --seq 2048 --global-batch 64 --precision fp32",
        "--model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096 --global-batch 256",
        "--model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096 --global-batch 256 --recompute full --micro-batch 1",
        "--model llama-3.1-8b --cluster 2xHGX-H100 --seq 4096 --global-batch 256 --state all-bf16",
    ],
}


class Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {}) if name[0].isupper() else unittest.mock.MagicMock(name=name)
        setattr(self, name, value)
        return value


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that hold data or draw curves, where they are not installed: no parser of settings uses them."""

    names = ("tensorboard", "google", "torchdata", "datasets", "wandb", "PIL", "torch_checkpointing", "tokenizers")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        made = Empty(spec.name)
        made.__path__, made.__version__ = [], "99.0"
        return made

    def exec_module(self, module):
        pass


def plan(flatout, framework, options):
    made = subprocess.run([flatout, "plan", "--framework", framework, "--json"] + options.split(), capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"flatout plan {options}: {made.stderr}")
    answer = json.loads(made.stdout)
    text = answer["settings"][framework]
    if not text:
        raise SystemExit(f"flatout plan {options}: no settings of {framework}")
    return answer, text


def torchtitan():
    import torch._dynamo  # these look at modules that are stood in for below
    import torch._inductor.config

    sys.meta_path.append(StandIn())
    from torchtitan.config.manager import ConfigManager

    # What a configuration asks of the machine that trains: a Blackwell device. Only then: imports ask, too.
    import torchtitan.models.llama3.config_registry

    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *device: (10, 0)

    def parse(answer, text):
        best = answer["best"][0]
        lines = [line[2:] for line in text.splitlines() if line.startswith("# --")]
        if not lines:
            raise SystemExit("no arguments: " + text)
        c = ConfigManager().parse_args(shlex.split(" ".join(lines)))
        p = c.parallelism
        got = (p.tensor_parallel_degree, p.context_parallel_degree, p.pipeline_parallel_degree, c.training.global_batch_size, c.training.seq_len)
        want = (best["tp"], best["cp"], best["pp"], answer["global_batch"], answer["seq"])
        if got != want or p.data_parallel_replicate_degree * p.data_parallel_shard_degree != best["dp"] or not c.compile.enable:
            raise ValueError(f"read as {got}, meant {want}")
        if p.data_parallel_shard_degree < 1 or type(c.activation_checkpoint).__qualname__.split(".")[0].lower()[:4] not in ("none", "full", "sele"):
            raise ValueError(f"{p} {c.activation_checkpoint}")
        if (c.training.dtype == "bfloat16") != (best["state"] == "all-bf16"):
            raise ValueError(f"{c.training.dtype} for {best['state']}")

    return parse


SHAPES = {
    "llama-3.1-8b": (32, 4096, 32, 8, 14336),
    "llama-3.1-70b": (80, 8192, 64, 8, 28672),
    "llama-3.1-405b": (126, 16384, 128, 8, 53248),
    "llama-3.2-1b": (16, 2048, 32, 8, 8192),
    "mixtral-8x7b": (32, 4096, 32, 8, 14336),
}


def megatron():
    import typing

    import typing_extensions

    if not hasattr(typing, "override"):  # it is written for Python 3.12, and its parser needs nothing else of that
        typing.override = typing_extensions.override
    import torch
    from megatron.training import arguments
    from megatron.training.arguments import parse_args, validate_args

    # It asks the machine that trains: a Hopper device with Transformer Engine.
    torch.cuda.get_device_capability = lambda *device: (9, 0)
    torch.cuda.get_device_properties = lambda *device: types.SimpleNamespace(major=9, minor=0, name="H100", total_memory=80 << 30)
    arguments.is_te_min_version = lambda *version, **more: True

    def parse(answer, text):
        best = answer["best"][0]
        layers, hidden, heads, groups, ffn = SHAPES[answer["model"]]
        model = (
            f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} --group-query-attention "
            f"--num-query-groups {groups} --ffn-hidden-size {ffn} --swiglu --disable-bias-linear --normalization RMSNorm "
            f"--max-position-embeddings {int(answer['seq'])} --position-embedding-type rope --untie-embeddings-and-output-weights "
            "--train-iters 10 --lr 1e-4 --tokenizer-type NullTokenizer --vocab-size 128000 --mock-data --transformer-impl transformer_engine"
        )
        if answer["model"].startswith("mixtral"):
            model += " --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm"
        os.environ["WORLD_SIZE"], os.environ["RANK"] = str(int(answer["devices"])), "0"
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        sys.argv = ["pretrain"] + shlex.split(text) + shlex.split(model)
        args = parse_args()  # ends the process where an argument is unknown
        validate_args(args, {})
        got = (args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.context_parallel_size, args.micro_batch_size, args.global_batch_size)
        want = (best["tp"], best["pp"], best["cp"], best["micro_batch"], answer["global_batch"])
        if got != want or args.data_parallel_size != best["dp"]:
            raise ValueError(f"read as {got} dp {args.data_parallel_size}, meant {want} dp {best['dp']}")
        if bool(args.sequence_parallel) != best["sequence_parallel"]:
            raise ValueError("sequence parallelism")
        moments = {"fp32": torch.float32, "bf16": torch.bfloat16, "8bit": torch.uint8}[best["state"]]
        if args.exp_avg_dtype != moments or args.exp_avg_sq_dtype != moments or bool(args.fp8) != ("fp8" in best["precision"]):
            raise ValueError(f"{args.exp_avg_dtype} {args.exp_avg_sq_dtype} {args.fp8}")
        if args.use_precision_aware_optimizer != (best["state"] != "fp32") or (args.use_precision_aware_optimizer and not args.use_distributed_optimizer):
            raise ValueError("precision-aware optimizer")

    return parse


def deepspeed():
    from deepspeed.runtime import config
    from deepspeed.runtime.config import DeepSpeedConfig

    def parse(answer, text):
        best = answer["best"][0]
        # It asks the job that runs how many ranks there are.
        config.dist = types.SimpleNamespace(
            get_rank=lambda *group: 0, get_world_size=lambda *group: int(answer["devices"]), is_initialized=lambda: True
        )
        c = DeepSpeedConfig(json.loads(text))
        got = (c.train_batch_size, c.train_micro_batch_size_per_gpu, c.gradient_accumulation_steps, c.zero_optimization_stage)
        want = (answer["global_batch"], best["micro_batch"], best["micro_batches"], best["zero"])
        if got != want:
            raise ValueError(f"read as {got}, meant {want}")
        if c.bfloat16_config.bf16_optimizer_states != (best["state"] == "all-bf16"):
            raise ValueError(best["state"])

    return parse


def main():
    warnings.simplefilter("ignore")
    flatout, framework = sys.argv[1:3]
    sys.path[:0] = sys.argv[3:]
    try:
        parse = {"torchtitan": torchtitan, "megatron": megatron, "deepspeed": deepspeed}[framework]()
    except ModuleNotFoundError as error:
        print(f"{framework}: {error}")
        return 77
    failed = 0
    for options in PLANS[framework]:
        answer, text = plan(flatout, framework, options)
        try:
            parse(answer, text)
            print(f"{framework}: read: {options}")
        except (Exception, SystemExit) as error:
            failed += 1
            print(f"{framework}: REFUSED: {options}: {error!r}\n{text}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
