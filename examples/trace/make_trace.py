#!/usr/bin/env python3
"""Makes a trace as PyTorch's profiler writes them, of a training run with a data loader that is too slow. Nothing was measured: no GPU
ran. Times follow from each kernel's arithmetic and bytes at shares of an H100's peaks that kernels of that kind usually reach.

    make_trace.py [--workers N] [--steps N] [--seed N] FILE.json.gz

The run: llama-3.2-1b in bf16 on one H100, 4 rows of 2,048 tokens a step, eager PyTorch with flash attention and a fused AdamW, which
reads its loss after every step. With --workers=0 (default) the main process tokenizes each batch itself, 62 ms a step; with workers
the batch is there when it is asked for."""
import argparse
import gzip
import json
import random

HIDDEN, LAYERS, HEADS, KV, HEAD_DIM, FFN, VOCAB = 2048, 16, 32, 8, 64, 8192, 128256  # llama-3.2-1b
ROWS, SEQ = 4, 2048
TOKENS = ROWS * SEQ
PEAK, BANDWIDTH = 989e6, 3.35e6  # per microsecond: dense bf16 FLOP, bytes of memory (NVIDIA's H100 SXM data sheet)
LOADER_US, LOG_US = 62000.0, 4000.0


class Run:
    def __init__(self, steps, workers, seed):
        self.rng, self.workers = random.Random(seed), workers
        self.events, self.correlation = [], 0
        self.host = 1000.0  # the launching thread's time
        self.gpu = 0.0      # when the device will have done all that is queued
        self.thread = 4201  # 4202 is autograd's
        for step in range(steps):
            self.step(step + 10)

    def vary(self, us, share=0.03):
        return us * (1 + self.rng.uniform(-share, share))

    def event(self, category, name, thread, begin, end, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 0 if category in GPU else 4201, "tid": thread,
                            "ts": round(begin, 1), "dur": round(end - begin, 1), "args": args})

    # An operator whose only work is one launch.
    def op(self, operator, kernel, us, dims=None, category="kernel", **args):
        begin = self.host
        launch = begin + self.vary(3.0, 0.2)
        self.correlation += 1
        call = "cudaLaunchKernel" if category == "kernel" else "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaMemsetAsync"
        self.event("cuda_runtime", call, self.thread, launch, launch + 3, correlation=self.correlation)
        self.host = launch + self.vary(4.5, 0.2)
        shapes = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)} if dims else {}
        self.event("cpu_op", operator, self.thread, begin, self.host, **shapes)
        start = max(self.gpu + 0.8, launch + 5)
        self.gpu = start + self.vary(us)
        self.event(category, kernel, 7, start, self.gpu, device=0, stream=7, correlation=self.correlation, **args)

    def matmul(self, m, n, k, operator="aten::mm"):
        flop = 2.0 * m * n * k
        tiles = -(-m // 128) * -(-n // 256)
        reached = 0.74 if tiles >= 4 * 132 else 0.66 if tiles >= 132 else 0.5
        self.op(operator, "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", flop / (reached * PEAK), dims=[[m, k], [k, n]])

    # A kernel that only moves bytes.
    def bytes(self, operator, kernel, count):
        self.op(operator, kernel, 2.0 + count / (0.8 * BANDWIDTH))

    def norm(self, backward=False):
        if backward:
            self.bytes("aten::_fused_rms_norm_backward", "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized"
                       "<c10::BFloat16, float, true>", 3 * 2 * TOKENS * HIDDEN)
            self.bytes("aten::_fused_rms_norm_backward", "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate"
                       "<c10::BFloat16, float, 32u, 1u, true>", 2 * 2 * TOKENS * HIDDEN)
        else:
            self.bytes("aten::_fused_rms_norm", "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel"
                       "<c10::BFloat16, float, true>", 2 * 2 * TOKENS * HIDDEN)

    def elementwise(self, operator, functor, columns, operands=3):
        self.bytes(operator, f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<c10::BFloat16>, std::array<char*, 3ul> >",
                   operands * 2 * TOKENS * columns)

    def attention(self, backward=False):
        # Causal: half of the pairs; backward runs five products where forward runs two.
        flop = (5 if backward else 2) * 2.0 * ROWS * HEADS * HEAD_DIM * SEQ * SEQ / 2
        shape = [[ROWS, HEADS, SEQ, HEAD_DIM], [ROWS, KV, SEQ, HEAD_DIM], [ROWS, KV, SEQ, HEAD_DIM]]
        if backward:
            self.op("aten::_scaled_dot_product_flash_attention_backward", "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"
                    "<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t>, false, true>",
                    flop / (0.33 * PEAK), dims=[shape[0]] + shape)
        else:
            self.op("aten::_scaled_dot_product_flash_attention", "void pytorch_flash::flash_fwd_kernel"
                    "<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>, false, true>",
                    flop / (0.36 * PEAK), dims=shape)

    def products(self):
        kv = KV * HEAD_DIM
        return {"q": (HIDDEN, HIDDEN), "k": (kv, HIDDEN), "v": (kv, HIDDEN), "o": (HIDDEN, HIDDEN), "gate": (FFN, HIDDEN), "up": (FFN, HIDDEN),
                "down": (HIDDEN, FFN)}

    def forward_layer(self):
        p = self.products()
        self.norm()
        for name in "q", "k", "v":
            self.matmul(TOKENS, *p[name])
        self.elementwise("aten::mul", "BinaryFunctor", HIDDEN)  # rotary positions of q, then of k
        self.elementwise("aten::mul", "BinaryFunctor", KV * HEAD_DIM)
        self.attention()
        self.matmul(TOKENS, *p["o"])
        self.elementwise("aten::add", "CUDAFunctor_add", HIDDEN)
        self.norm()
        self.matmul(TOKENS, *p["gate"])
        self.elementwise("aten::silu", "silu_kernel", FFN, 2)
        self.matmul(TOKENS, *p["up"])
        self.elementwise("aten::mul", "BinaryFunctor", FFN)
        self.matmul(TOKENS, *p["down"])
        self.elementwise("aten::add", "CUDAFunctor_add", HIDDEN)

    # Both gradients of y = x W.
    def backward_product(self, n, k):
        self.matmul(TOKENS, k, n)
        self.matmul(n, k, TOKENS)

    def backward_layer(self):
        p = self.products()
        self.backward_product(*p["down"])
        self.elementwise("aten::mul", "BinaryFunctor", FFN)
        self.elementwise("aten::mul", "BinaryFunctor", FFN)
        self.elementwise("aten::silu_backward", "silu_backward_kernel", FFN)
        self.backward_product(*p["up"])
        self.backward_product(*p["gate"])
        self.elementwise("aten::add_", "CUDAFunctor_add", HIDDEN)
        self.norm(backward=True)
        self.elementwise("aten::add_", "CUDAFunctor_add", HIDDEN)
        self.backward_product(*p["o"])
        self.attention(backward=True)
        self.elementwise("aten::mul", "BinaryFunctor", HIDDEN)
        self.elementwise("aten::mul", "BinaryFunctor", KV * HEAD_DIM)
        for name in "q", "k", "v":
            self.backward_product(*p[name])
        self.elementwise("aten::add_", "CUDAFunctor_add", HIDDEN)
        self.elementwise("aten::add_", "CUDAFunctor_add", HIDDEN)
        self.norm(backward=True)
        self.elementwise("aten::add_", "CUDAFunctor_add", HIDDEN)

    def loss(self, backward=False):
        logits = TOKENS * VOCAB
        if backward:
            self.bytes("aten::_log_softmax_backward_data", "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, "
                       "at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>", 3 * 4 * logits)
            self.bytes("aten::copy_", "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda, "
                       "std::array<char*, 2ul> >", 6 * logits)
        else:
            self.bytes("aten::copy_", "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, std::array<char*, 2ul> >",
                       6 * logits)
            self.bytes("aten::_log_softmax", "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
                       "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>", 3 * 4 * logits)
            self.op("aten::nll_loss_forward", "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>", 9)

    def range(self, name, begin, category="user_annotation"):
        self.event(category, name, self.thread, begin, self.host)

    def step(self, number):
        step = begin = self.host
        self.host += self.vary(LOADER_US, 0.05) if self.workers == 0 else self.vary(180, 0.2)
        self.range("enumerate(DataLoader)#_%sDataLoaderIter.__next__" % ("MultiProcessing" if self.workers else "SingleProcess"), begin)
        memory = "Pinned" if self.workers else "Pageable"
        self.op("aten::copy_", f"Memcpy HtoD ({memory} -> Device)", 8 * TOKENS / 24e3, category="gpu_memcpy", bytes=8 * TOKENS)
        self.bytes("aten::embedding", "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>",
                   2 * 2 * TOKENS * HIDDEN)
        for _ in range(LAYERS):
            self.forward_layer()
        self.norm()
        self.matmul(TOKENS, VOCAB, HIDDEN)
        self.loss()
        self.thread, begin = 4202, self.host
        self.loss(backward=True)
        self.backward_product(VOCAB, HIDDEN)
        self.norm(backward=True)
        for _ in range(LAYERS):
            self.backward_layer()
        self.bytes("aten::embedding_dense_backward", "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>",
                   2 * 2 * TOKENS * HIDDEN)
        self.thread = 4201
        begin = self.host
        parameters = LAYERS * sum(n * k for n, k in self.products().values()) + VOCAB * HIDDEN
        for _ in range(4):
            # Weights, gradients and two states of 2 bytes: read all, write all but the gradients.
            self.bytes("aten::_fused_adamw_", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
                       "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<c10::BFloat16, float, 4> >",
                       7 * 2 * parameters / 4)
        self.range("Optimizer.step#AdamW.step", begin)
        # loss.item(): the host waits for all that it queued.
        begin = self.host
        self.op("aten::_local_scalar_dense", "Memcpy DtoH (Device -> Pinned)", 1.2, category="gpu_memcpy", bytes=4)
        waits = self.host
        self.host = self.gpu + 8
        self.event("cuda_runtime", "cudaStreamSynchronize", self.thread, waits, self.host)
        self.range("aten::item", begin, category="cpu_op")
        self.host += self.vary(LOG_US, 0.2)  # progress bar, schedule, log: Python that no operator tells of
        self.range(f"ProfilerStep#{number}", step)


GPU = {"kernel", "gpu_memcpy", "gpu_memset"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    run = Run(a.steps, a.workers, a.seed)
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    head = {"schemaVersion": 1, "traceName": "made by examples/trace/make_trace.py, not measured", "deviceProperties": [device]}
    text = json.dumps({**head, "traceEvents": sorted(run.events, key=lambda e: (e["ts"], -e["dur"]))}, separators=(",", ":"))
    with open(a.file, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:  # neither name nor time: the same bytes every time
        z.write(text.encode())


if __name__ == "__main__":
    main()
