#!/bin/sh
# flatout compare on traces: files, folders and patterns of several ranks; what it names, what it does not resolve, what it refuses.
. "$(dirname "$0")/lib.sh"
fits() { ! awk 'length > 80' out | grep . || wrong "lines over 80 columns"; }

# trace FILE RANK LOADER TAIL [STEP [LATE [NOISE]]]: six steps of LOADER us of data loading, a matrix product of 6 ms, a kernel TAIL of 1 ms
# and an all-reduce of 2 ms; STEP: how steps are called; LATE: us that this rank works longer before the collective; NOISE: us that
# each step loads longer than the one before; STALL: us that one step stands still.
trace() {
	awk -v rank="$2" -v loader="$3" -v tail="$4" -v step="${5:-ProfilerStep#}" -v late="${6:-0}" -v noise="${7:-0}" -v stall="${8:-0}" '
	function event(name, cat, tid, ts, dur, args) {
		printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %d, \"ts\": %d.000, \"dur\": %d.000, \"args\": {%s}}", comma, cat, name, tid, ts, dur, args
		comma = ",\n"
	}
	function kernel(name, stream, launched, begin, dur) {
		id++
		event("cudaLaunchKernel", "cuda_runtime", 1, launched, 3, "\"correlation\": " id)
		event(name, "kernel", stream, begin, dur, "\"correlation\": " id ", \"device\": 0, \"stream\": " stream)
	}
	BEGIN {
		printf "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %d, \"world_size\": 2},\n\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100 80GB HBM3\"}], \"traceEvents\": [\n", rank
		for (n = 0; n < 7; n++) {
			from = at
			load = loader + n * noise + (n == 3 ? stall : 0)
			if (load)
				event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", 1, at, load)
			at += load
			event("aten::mm", "cpu_op", 1, at + 1, 20)
			kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", 7, at + 5, at + 10, 6000 + late)
			kernel(tail, 7, at + 15, at + 10 + 6000 + late, 1000)
			reduce = at + 7010 + late
			finish = at + 9010 + (late ? late : 500)
			kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, at + 21, reduce, finish - reduce)
			at = finish
			event(step n, "user_annotation", 1, from, at - from - 1)
		}
		print "]}"
	}' >"$1"
}

trace a.json 0 4000 'void at::native::vectorized_elementwise_kernel<4, float>(int)'
trace b.json 0 1000 triton_poi_fused_add_0
run 0 compare a.json b.json
fits
! grep ' $' out || wrong "lines end in spaces"
# 4 + 6 + 1 + 2.5 ms and 10 us beside 3 ms less; all of that is data loading.
says '^A: *a.json (rank 0, 6 steps' '^B.s step takes 0.778 times as long' 'step, median  *13.510 ms  *10.510 ms  *-22.2 %' \
	'^ *-3.000 ms  *100.0 %  *idle: data loading' 'whole step  *13.510 ms  *10.510 ms  *-3.000 ms' 'matmuls  *6.000 ms  *6.000 ms .*the same' \
	'vectorized_elementwise.* none .* -1.000  *gone' 'triton_poi_fused_add_0  *none .* +1.000  *new' \
	'1 name of kernels that only A runs: 1.000 ms' 'ncclDevKernel_AllReduce_Sum.* 1  *1 .* 2.500  *2.500' 'waiting or transfer  *2.500 ms'
! grep -q 'not resolved' out || wrong "steps that do not vary are not resolved"
# One step of A stands still for 40 ms: the verdict goes by medians, as the table below it does, and the mean is named.
trace stalled.json 0 4000 'void at::native::vectorized_elementwise_kernel<4, float>(int)' '' 0 0 40000
run 0 compare stalled.json b.json
fits
says '^B.s step takes 0.778 times as long as A.s (medians)' 'step, median  *13.510 ms  *10.510 ms  *-22.2 %' '  mean  *20.177 ms  *10.510 ms'
! grep -q 'different jobs' out || wrong "two versions of a job are called different jobs"
# Another program: no kernel of its products is the other's.
sed 's/sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64/sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x32/' b.json >other.json
run 0 compare a.json other.json
fits
says '^\* these look like different jobs: kernels of matmuls' 'time in A, 0.0 % in B'
sed 's/H100 80GB/H200 141GB/' other.json >device.json
run 0 compare a.json device.json
! grep -q 'different jobs' out || wrong "another device has other kernels"
# Steps of seconds and of hours keep to the width, parts that cancel out too, and so does the diagnosis of one.
trace g.json 0 1000 k ProfilerStep# 0 900
trace h.json 0 5000 other_kernel ProfilerStep# 3000 -400
for zeros in 000 0000 00000 000000; do
	for job in a b g h; do
		sed "s/\([1-9][0-9]*\)\.000/\1$zeros.000/g" $job.json >slow_$job.json
	done
	for pair in 'a b' 'g h' 'a h'; do
		run 0 compare "slow_${pair% *}.json" "slow_${pair#* }.json" --all
		fits
	done
	run 1 diagnose slow_a.json
	fits
	run 1 diagnose slow_h.json
	fits
done
run 0 compare slow_a.json slow_b.json
says 'whole step  *13510000 ms  *10510000 ms  *-3000000 ms'
# A side that shows too little is no measure of the other.
printf '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5, "args": {"device": 0, "stream": 7}}]}\n' >one.json
run 0 compare one.json b.json
says '^\* A cannot be diagnosed: too little GPU work to diagnose: 1 operation'
run 0 compare a.json b.json --json
valid out
keys out schema of a b steps_on_both_sides step_time_resolved parts leaf a_seconds difference_seconds kernels collectives products causes
if [ -n "$python" ]; then
	"$python" - out <<-'END' || wrong "parts do not sum to the step"
	import json, sys
	d = json.load(open(sys.argv[1]))
	step = d["parts"][0]
	for key in ("a_seconds", "b_seconds"):
	    for leaf in (True, False):
	        assert abs(sum(p[key]["mean"] for p in d["parts"][1:] if p["leaf"] == leaf) - step[key]["mean"]) < 1e-12
	assert abs(sum(p["difference_seconds"] for p in d["parts"] if p["leaf"]) - step["difference_seconds"]) < 1e-12
	assert d["step_time_resolved"] and d["steps_on_both_sides"]
	END
fi
run 0 compare a.json a.json
says 'the same time to the nanosecond'
# Each event twice in the file is the same trace.
sed '/^{"ph".*,$/p' a.json >twice.json
run 0 compare a.json twice.json
says 'the same time to the nanosecond' 'events twice: one of each'
# Steps that vary by more than they differ.
trace c.json 0 1000 k ProfilerStep# 0 900
trace d.json 0 1500 k ProfilerStep# 0 900
run 0 compare c.json d.json
fits
says '^Step time: not resolved' 'idle: data loading  *not resolved' 'whole step .* not resolved'
# No steps: shares of windows.
trace e.json 0 1000 k phase_
run 0 compare a.json e.json
fits
says 'only shares can be compared' 'B has no steps' 'part .*of A  *of B  *points'
! grep -q 'sum to it' out || wrong "windows of any length explain each other"
run 0 compare a.json e.json --json
grep -q '"steps_on_both_sides": false' out || wrong "a trace without steps has steps"

# Two ranks: folders and patterns; the second works longer before the collective, which the first waits for.
mkdir before after
trace before/r0.json 0 1000 k
trace before/r1.json 1 1000 k ProfilerStep# 500
trace after/r0.json 0 1000 k
trace after/r1.json 1 1000 k
run 0 compare before after
fits
says 'the slowest of 2 ranks' 'matched collectives' '^ *0.0  *3.500 ms  *0.000 ms  *14.000 ms' '^ *1.0 .* 7  '
printf 'memory' >after/snapshot.pickle
run 0 compare before after
fits
says "left out: 'after/snapshot.pickle' is a pickle of Python"
rm after/snapshot.pickle
run 0 compare 'before/r*.json' 'after/r*.json'
says 'the slowest of 2 ranks'

# What cannot be compared.
printf '{"schemaVersion": 1, "traceEvents": []}\n' >none.json
refused 2 "'none.json' has no GPU operations" compare a.json none.json
refused 2 "takes two run directories, two traces or two plans, got 1" compare a.json
refused 3 "'absent.json'" compare a.json absent.json
printf 'no trace' >text
refused 2 "'text'" compare text a.json
mkdir run
printf '{"event":"step","step":1,"loss":2,"seconds":1}\n' >run/log.jsonl
refused 2 "a.json" compare run a.json
refused 2 "are for traces" compare run run --seq=5

# A hostile name stays on its line and in its column.
trace evil.json 0 1000 '\\u001b[2J\\u202e</b>'
run 0 compare a.json evil.json
fits
LC_ALL=C grep -q "$(printf '\033')" out && wrong "an escape sequence reaches the terminal"

# The published pair: less data loading, part of which the host takes back.
if [ -n "${FLATOUT_TRACES:-}" ] && [ -d "$FLATOUT_TRACES/kineto_resnet50_v100_2021" ]; then
	pair=$FLATOUT_TRACES/kineto_resnet50_v100_2021
	ln -s "$pair"/*workers_0_* workers-0
	ln -s "$pair"/*workers_4_* workers-4
	run 0 compare workers-0 workers-4
	fits
	says 'apart' 'idle: data loading' '^ *-[0-9.]* ms  *1[0-9][0-9]\.[0-9] %  *idle: data loading' '^ *+[0-9.]* ms  *-[0-9.]* %  *idle: host'
	ln -s "$FLATOUT_TRACES/nsys_h100_mfu_before" nsys-before
	ln -s "$FLATOUT_TRACES/nsys_h100_mfu_after" nsys-after
	run 0 compare nsys-before nsys-after
	fits
	says 'only shares can be compared' 'flash_fwd_kernel' 'matched collectives'
fi
finish
