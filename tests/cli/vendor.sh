#!/bin/sh
# A trace of an AMD device: text, JSON and page of its diagnosis have AMD's words, none of NVIDIA's.
. "$(dirname "$0")/lib_expect.sh"

event() { # NAME CAT TID TS DUR [ARGS]
	printf '%s{"ph": "X", "cat": "%s", "name": "%s", "pid": 1, "tid": %s, "ts": %s, "dur": %s, "args": {%s}}' "$comma" "$2" "$1" "$3" "$4" "$5" "${6:-}"
	comma=,
}
# launched NAME TID AT BEGIN DURATION: with the call before it
launched()
{
	id=$((id + 1))
	event hipLaunchKernel cuda_runtime 1 "$3" 2 "\"correlation\": $id"
	event "$1" kernel "$2" "$4" "$5" "\"correlation\": $id, \"device\": 2, \"stream\": $2"
}
# Everything that has words of its own at once: products of unequal times, small operators, idling behind launches, a wait, a collective
# without a partner's trace, copies, an eager update, float32.
trace() # KIND
{
	comma= id=0
	printf '{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}, "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304, "totalGlobalMem": 206141652992}], "traceEvents": ['
	for n in 1 2 3 4; do
		at=$((n * 10000))
		event "ProfilerStep#$n" user_annotation 1 $at 9990
		event aten::mm cpu_op 1 $((at + 5)) 20 '"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]'
		launched "Cijk_Ailk_Bljk_$1_MT64x64x16" 0 $((at + 10)) $((at + 20)) $((400 + 500 * (n % 2)))
		event "Optimizer.step#AdamW.step" user_annotation 1 $((at + 1000)) 2000
		for k in 0 1 2 3 4 5 6 7; do
			event aten::_foreach_add_ cpu_op 1 $((at + 1000 + 200 * k)) 150
			launched "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)" 0 $((at + 1100 + 200 * k)) $((at + 1110 + 200 * k)) 60
		done
		event hipDeviceSynchronize cuda_runtime 1 $((at + 3000)) 1500
		launched "Cijk_Ailk_Bljk_$1_MT64x64x16" 0 $((at + 4510)) $((at + 4520)) 500
		launched "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)" 3 $((at + 4520)) $((at + 5100)) 1500
		id=$((id + 1))
		event hipMemcpyAsync cuda_runtime 1 $((at + 6500)) 5 "\"correlation\": $id"
		event 'Memcpy HtoD (Host -> Device)' gpu_memcpy 0 $((at + 6700)) 900 "\"correlation\": $id, \"device\": 2, \"stream\": 0, \"bytes\": 4096"
		launched "Cijk_Ailk_Bljk_$1_MT64x64x16" 0 $((at + 9000)) $((at + 9100)) 500
	done
	printf ']}\n'
}

# What is no name of an interface: ROCm's builds of PyTorch call theirs torch.cuda, device_type="cuda", backend="nccl", and RCCL reads
# variables that begin with NCCL_; kernels and operators are the trace's own.
words='nvidia|cuda graph|cublas|cudnn|tensor core|nvlink|nsight|nsys|NCCL[^_]|CUDA_VISIBLE|PYTORCH_CUDA'
for kind in SB_BH BBS_BH; do
	trace $kind >"$tmp/amd.json"
	expect 1 "" diagnose "$tmp/amd.json" --html "$tmp/page.html" --json="$tmp/page.json"
	cp "$tmp/out" "$tmp/text"
	[ -s "$tmp/page.json" ] || { echo "FAILED: no JSON"; failed=1; }
	for of in text page.html page.json; do
		sed 's/ncclDev[^ <]*//g; s/CUDAFunctor[^ <]*//g; s/"backend": "nccl"//g' "$tmp/$of" | grep -niE -- "$words" && {
			echo "FAILED: NVIDIA's words in $of of an AMD trace ($kind)"
			failed=1
		}
	done
	grep -q "amd-smi would have shown" "$tmp/text" || { echo "FAILED: no word of AMD's tool"; failed=1; }
	grep -q "RCCL" "$tmp/text" || { echo "FAILED: no word of AMD's collectives"; failed=1; }
done
# The same trace of an NVIDIA device has NVIDIA's.
sed 's/AMD Instinct MI300X/NVIDIA H100 80GB HBM3/; s/"numSms": 304/"numSms": 132/; s/hip/cuda/g' "$tmp/amd.json" >"$tmp/nvidia.json"
expect 1 "nvidia-smi would have shown" diagnose "$tmp/nvidia.json"
expect 1 "NCCL" diagnose "$tmp/nvidia.json"
# An Intel device has neither's.
sed 's/AMD Instinct MI300X/Intel(R) Data Center GPU Max 1550/' "$tmp/amd.json" >"$tmp/intel.json"
expect 1 "xpu-smi would have shown" diagnose "$tmp/intel.json"
sed 's/ncclDev[^ <]*//g; s/CUDAFunctor[^ <]*//g' "$tmp/out" | grep -niE -- "$words|amd-smi|HIP graph|RCCL|device_type=\"cuda\"" && {
	echo "FAILED: words of another maker in an Intel trace"
	failed=1
}
exit $failed
