#!/usr/bin/env python3
"""Makes the files of examples/health: a cluster of 16 nodes with 8 A100 each at the figures of a published text (docs/seed-figures.md,
document 002). Nothing was measured and no GPU ran.

    make_health.py FOLDER

Taken from the document: 128 A100 in 16 nodes, a GPT of 1.3 billion parameters, MFU 7 %, GPU utilisation 61 %, about 10 s of communication and
idling per second of computation, 2,048 tokens per GPU and step, no overlap, and the variables of its first fix. Invented: the layers (24 of
2,048), that a step has its gradients reduced in 24 parts, where its gaps lie, and the run on 8 GPUs with its 30 %."""
import gzip
import json
import os
import random
import sys

LAYERS, HIDDEN, HEADS, VOCAB, SEQ = 24, 2048, 16, 50304, 2048
PEAK = 312e12  # dense bf16 of an A100 (NVIDIA's data sheet)
MFU, UTILISATION, WAITING = 0.07, 0.61, 10.0
MATMULS = LAYERS * 12 * HIDDEN**2 + VOCAB * HIDDEN
FLOP = 6 * MATMULS + 12 * LAYERS * HIDDEN * SEQ  # per token, rule mfu
STEP_US = SEQ * FLOP / (MFU * PEAK) * 1e6        # of one GPU with one sequence
COMPUTE_US = STEP_US / (1 + WAITING)
COMMUNICATION_US = UTILISATION * STEP_US - COMPUTE_US
IDLE_US = STEP_US - COMPUTE_US - COMMUNICATION_US


# ---- logs, as Megatron-LM prints them ----

def log(devices, mfu, seed, steps=400, every=10):
    rng = random.Random(seed)
    lines = [f"using world size: {devices}, data-parallel size: {devices}, context-parallel size: 1, tensor-model-parallel size: 1, "
             "pipeline-model-parallel size: 1",
             "------------------------ arguments ------------------------"]
    for key, value in [("accumulate_allreduce_grads_in_fp32", False), ("bf16", True), ("context_parallel_size", 1), ("ffn_hidden_size", 4 * HIDDEN),
                       ("global_batch_size", devices), ("group_query_attention", False), ("hidden_size", HIDDEN),
                       ("kv_channels", HIDDEN // HEADS), ("log_interval", every), ("make_vocab_size_divisible_by", 128),
                       ("micro_batch_size", 1), ("num_attention_heads", HEADS), ("num_layers", LAYERS), ("overlap_grad_reduce", False),
                       ("padded_vocab_size", VOCAB), ("pipeline_model_parallel_size", 1), ("seq_length", SEQ), ("swiglu", False),
                       ("tensor_model_parallel_size", 1), ("train_iters", 500000), ("use_distributed_optimizer", False),
                       ("world_size", devices)]:
        lines.append(f"  {key} {'.' * (48 - len(key))} {value}")
    lines.append("-------------------- end of arguments ---------------------")
    usual = SEQ * FLOP / (mfu * PEAK) * 1e3
    for i in range(every, steps + 1, every):
        ms = usual * rng.gauss(1, 0.02) * (3 if i == every else 1)  # the first lines hold the start
        tflops = SEQ * FLOP / (ms * 1e-3) * 1e-12
        loss = 2.9 + 8 / (1 + i / 40) + rng.gauss(0, 0.03)
        lines.append(f" [2026-03-02 09:{i * usual / 6e4 % 60 // 1:02.0f}:{i * usual / 1e3 % 60 // 1:02.0f}] iteration {i:8d}/  500000 | consumed "
                     f"samples: {i * devices:12d} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | "
                     f"learning rate: 2.000000E-04 | global batch size: {devices:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | "
                     "grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |")
    return "\n".join(lines) + "\n"


# ---- a trace of one rank, as PyTorch's profiler writes it ----

GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADAM = ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
        "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, float, 4> >")
FORWARD = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >"
BACKWARD = ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<128, 64, 128, 8, 4, 4, 4, "
            "false, false, cutlass::bfloat16_t> >")
SHARE = {"optimizer": 0.05}


class Trace:
    def __init__(self):
        self.events, self.correlation, self.host, self.gpu = [], 0, 1000.0, 0.0
        self.rng = random.Random(7)

    def event(self, category, name, thread, begin, end, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 0 if category == "kernel" else 900, "tid": thread, "ts": round(begin, 1),
                            "dur": round(end - begin, 1), "args": args})

    def op(self, operator, kernel, us, dims=None, stream=7, **args):
        begin, self.correlation = self.host, self.correlation + 1
        self.event("cuda_runtime", "cudaLaunchKernel", 901, begin + 3, begin + 6, correlation=self.correlation)
        self.host = begin + 8
        shapes = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)} if dims else {}
        self.event("cpu_op", operator, 901, begin, self.host, **shapes)
        start = max(self.gpu + 0.8, begin + 8)
        self.gpu = start + us
        self.event("kernel", kernel, stream, start, self.gpu, device=0, stream=stream, correlation=self.correlation, **args)

    def products(self, backward):
        return [(3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN)][:: -1 if backward else 1]

    def matmul(self, m, n, k, rate):
        self.op("aten::mm", GEMM, 2.0 * m * n * k / rate * 1e6, dims=[[m, k], [k, n]])

    def attention(self, rate, backward):
        flop = (8 if backward else 4) * HIDDEN * SEQ * SEQ
        shape = [1, HEADS, SEQ, HIDDEN // HEADS]
        name = "aten::_scaled_dot_product_flash_attention" + ("_backward" if backward else "")
        self.op(name, BACKWARD if backward else FORWARD, flop / rate * 1e6, dims=[shape] * (4 if backward else 3))

    def step(self, number):
        begin = self.host
        rate = SEQ * FLOP / (COMPUTE_US * (1 - SHARE["optimizer"]) * 1e-6)  # what the document's figures ask of every kernel
        for _ in range(LAYERS):
            for n, k in self.products(False):
                self.matmul(SEQ, n, k, rate)
            self.attention(rate, False)
        self.matmul(SEQ, VOCAB, HIDDEN, rate)
        self.matmul(SEQ, HIDDEN, VOCAB, rate)
        self.matmul(VOCAB, HIDDEN, SEQ, rate)
        for _ in range(LAYERS):
            self.attention(rate, True)
            for n, k in self.products(True):
                self.matmul(SEQ, k, n, rate)
                self.matmul(n, k, SEQ, rate)
        # The gradients, when all of them are there: 24 parts one after the other, each behind a gap in which nothing runs.
        elements = MATMULS // LAYERS
        for _ in range(LAYERS):
            vary = self.rng.uniform(0.9, 1.1)
            self.host = self.gpu + IDLE_US / LAYERS * vary - 8
            self.op("c10d::allreduce_", NCCL, COMMUNICATION_US / LAYERS * vary, stream=20,
                    **{"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "Group size": 128,
                       "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg"})
        self.op("aten::_fused_adamw_", ADAM, COMPUTE_US * SHARE["optimizer"])
        self.host = self.gpu + 4
        self.event("user_annotation", f"ProfilerStep#{number}", 901, begin, self.host)


def trace():
    t = Trace()
    for number in range(8, 11):
        t.step(number)
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85031714816, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    head = {"schemaVersion": 1, "traceName": "made by examples/make_health.py, not measured", "deviceProperties": [device],
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 128}}
    return json.dumps({**head, "traceEvents": sorted(t.events, key=lambda e: (e["ts"], -e["dur"]))}, separators=(",", ":"))


# ---- the job script, hosts, and what the document says ----

SCRIPT = f"""#!/bin/bash
#SBATCH --nodes=16 --gpus-per-node=8
torchrun --nnodes 16 --nproc-per-node 8 pretrain_gpt.py \\
    --num-layers {LAYERS} --hidden-size {HIDDEN} --num-attention-heads {HEADS} \\
    --seq-length {SEQ} --max-position-embeddings {SEQ} \\
    --micro-batch-size 1 --global-batch-size 128 \\
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \\
    --bf16 --use-flash-attn --optimizer adam --lr 2e-4 \\
    --train-iters 500000 --log-interval 10 --log-throughput \\
    --vocab-size {VOCAB} --make-vocab-size-divisible-by 128
"""

CLAIM = """# What document 002 of docs/seed-figures.md says of its own change.
claim:
  about: a 16-node A100 cluster from 7 % to 40 %
  mfu-before: 7
  mfu-after: 40
  throughput: 4
  days-before: 7
  days-after: 0.75
  year-savings: 480000..600000
"""

ENVIRONMENT = """NCCL_SOCKET_NTHREADS=4
NCCL_NSOCKS_PERTHREAD=4
NCCL_BUFFSIZE=4194304
NCCL_NET_GDR_LEVEL=5
NCCL_IB_DISABLE=0
NCCL_IB_GID_INDEX=3
CUDA_DEVICE_MAX_CONNECTIONS=1
OMP_NUM_THREADS=8
"""


def topology():
    names = [f"GPU{i}" for i in range(8)] + [f"NIC{i}" for i in range(8)]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for a in range(16):
        row = [names[a]]
        for b in range(16):
            if a == b:
                row.append(" X ")
            elif a < 8 and b < 8:
                row.append("NV12")
            else:
                row.append("PXB" if a % 8 // 2 == b % 8 // 2 else "NODE" if a % 8 // 4 == b % 8 // 4 else "SYS")
        rows.append("\t".join(row) + (f"\t{'0-63' if a < 4 else '64-127'}\t{0 if a < 4 else 1}" if a < 8 else ""))
    legend = "\n".join(["", "Legend:", "", "  X    = Self", "", "NIC Legend:", ""] + [f"  NIC{i}: mlx5_{i}" for i in range(8)])
    return "\n".join(rows) + "\n" + legend + "\n"


def ibstat():
    port = ("CA 'mlx5_{0}'\n\tCA type: MT4123\n\tNumber of ports: 1\n\tFirmware version: 20.35.2000\n\tHardware version: 0\n"
            "\tNode GUID: 0x{1:016x}\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 200\n\t\tBase lid: {2}\n\t\tLMC: 0\n"
            "\t\tSM lid: 1\n\t\tCapability mask: 0x2651e84a\n\t\tPort GUID: 0x{1:016x}\n\t\tLink layer: InfiniBand\n")
    return "".join(port.format(i, 0xB83FD20300A10000 + i, 100 + i) for i in range(8))


def query():
    gpu = """GPU 00000000:{0:02X}:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    Compute Mode                          : Default
    Performance State                     : P0
    GPU Link Info
        PCIe Generation
            Max                           : 4
            Current                       : 4
        Link Width
            Max                           : 16x
            Current                       : 16x
    Clocks Event Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    Utilization
        Gpu                               : 61 %
        Memory                            : 23 %
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    Temperature
        GPU Current Temp                  : 47 C
    GPU Power Readings
        Power Draw                        : 171.22 W
        Current Power Limit               : 400.00 W
        Default Power Limit               : 400.00 W
    Clocks
        SM                                : 1410 MHz
        Memory                            : 1593 MHz
    Max Clocks
        SM                                : 1410 MHz
        Memory                            : 1593 MHz

"""
    head = ("==============NVSMI LOG==============\n\nTimestamp                                 : Mon Mar  2 09:10:00 2026\n"
            "Driver Version                            : 535.129.03\nCUDA Version                              : 12.2\n\n"
            "Attached GPUs                             : 8\n")
    return head + "".join(gpu.format(b) for b in (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD))


def nccl_log():
    lines = ["node01:900:900 [0] NCCL INFO Bootstrap : Using ib0:10.1.0.1<0>",
             "node01:900:900 [0] NCCL INFO NET/Plugin : No plugin found, using internal implementation",
             "node01:900:900 [0] NCCL INFO cudaDriverVersion 12020", "NCCL version 2.18.5+cuda12.2"]
    adapters = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(8))
    lines.append(f"node01:900:951 [0] NCCL INFO NET/IB : Using {adapters} ; OOB ib0:10.1.0.1<0>")
    lines.append("node01:900:951 [0] NCCL INFO Using network IB")
    for c in range(4):
        lines.append(f"node01:900:951 [0] NCCL INFO Channel {c:02d}/0 : 0[7000] -> 1[f000] via P2P/IPC")
        lines.append(f"node01:900:951 [0] NCCL INFO Channel {c:02d}/0 : 121[f000] -> 0[7000] [receive] via NET/IB/{c}")
    lines.append("node01:900:951 [0] NCCL INFO comm 0x55d0c0de0000 rank 0 nranks 128 cudaDev 0 busId 7000 - Init COMPLETE")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    os.makedirs(os.path.join(out, "node01"), exist_ok=True)
    files = {"train-128.log": log(128, MFU, 1), "train-8.log": log(8, 0.30, 2), "pretrain.sh": SCRIPT, "claim.yaml": CLAIM,
             "node01/env.txt": ENVIRONMENT, "node01/topo.txt": topology(), "node01/ibstat.txt": ibstat(), "node01/nvidia-smi-q.txt": query(),
             "node01/nccl.log": nccl_log()}
    for name, text in files.items():
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(text)
    with open(os.path.join(out, "trace.json.gz"), "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:  # the same bytes every time
        z.write(trace().encode())


if __name__ == "__main__":
    main()
