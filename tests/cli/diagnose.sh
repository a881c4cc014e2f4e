#!/bin/sh
# flatout diagnose: the ledger of a small trace as text and JSON, options, bad input.
. "$(dirname "$0")/lib_expect.sh"

# Two devices' worth of what matters: steps, operators, a loader, a collective half hidden, a copy, an operation left over.
event() { # NAME CAT TID TS DUR [ARGS]
	printf '%s{"ph": "X", "cat": "%s", "name": "%s", "pid": 1, "tid": %s, "ts": %s, "dur": %s, "args": {%s}}' "$comma" "$2" "$1" "$3" "$4" "$5" "${6:-}"
	comma=,
}
# step NUMBER BEGIN: a matrix product, an all-reduce of which 100 us are hidden, a copy, and 300 us of data loading
step()
{
	n=$1 at=$2
	event "ProfilerStep#$n" user_annotation 1 "$at" 990
	event "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" user_annotation 1 $((at + 10)) 300
	event "aten::mm" cpu_op 1 $((at + 320)) 40
	event cudaLaunchKernel cuda_runtime 1 $((at + 330)) 5 "\"correlation\": $((n * 10))"
	event sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64 kernel 7 $((at + 340)) 200 "\"correlation\": $((n * 10)), \"device\": 0, \"stream\": 7"
	event cudaLaunchKernel cuda_runtime 1 $((at + 350)) 5 "\"correlation\": $((n * 10 + 1))"
	event 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)' kernel 8 $((at + 440)) 300 "\"correlation\": $((n * 10 + 1)), \"device\": 0, \"stream\": 8"
	event cudaMemcpyAsync cuda_runtime 1 $((at + 360)) 5 "\"correlation\": $((n * 10 + 2))"
	event 'Memcpy DtoH (Device -> Pinned)' gpu_memcpy 7 $((at + 740)) 60 "\"correlation\": $((n * 10 + 2)), \"device\": 0, \"stream\": 7, \"bytes\": 4096"
}
trace()
{
	comma=
	printf '{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": ['
	event left_over kernel 7 1005 20 '"correlation": 99, "device": 0, "stream": 7'
	for n in 3 4 5; do
		step $n $((n * 1000 - 2000))
	done
	printf ']}\n'
}
trace >"$tmp/trace.json"
gzip -kf "$tmp/trace.json"

# What is there already and is not our own is not replaced: a list of traces behind --html loses none of them.
cp "$tmp/trace.json" "$tmp/another.json"
expect 2 "another.json' is there and is nothing that this command wrote" diagnose "$tmp/trace.json" --html "$tmp/another.json"
expect 2 "another.json' is there and is nothing that this command wrote" diagnose "$tmp/trace.json" --json="$tmp/another.json"
expect 2 "is read by this very command: not replaced" export "$tmp/trace.json" --csv "$tmp/trace.json"
cmp "$tmp/trace.json" "$tmp/another.json" || failed=1
for again in 1 2; do
	expect 1 "" diagnose "$tmp/trace.json" --html "$tmp/page.html" --json="$tmp/page.json"
done

# What cannot be diagnosed is no healthy trace: it is said, and nothing is claimed of it.
printf '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}]}\n' >"$tmp/host.json"
# One judgement: text (the reason first), JSON, page and exit status say the same.
cannot() { # REASON JUDGEMENT TRACE
	expect 1 "Cannot be diagnosed: $1" diagnose "$3" --html "$tmp/page.html"
	[ "$(head -1 "$tmp/out" | cut -c 1-20)" = "Cannot be diagnosed:" ] || { echo "FAILED: the reason is not the first line"; failed=1; }
	grep -q "worth a change\|nvidia-smi\|^Bottleneck" "$tmp/out" && { echo "FAILED: a verdict in the text on $3"; failed=1; }
	grep -q "worth a change\|No bottleneck" "$tmp/page.html" && { echo "FAILED: a verdict on the page of $3"; failed=1; }
	grep -q "Cannot be diagnosed: $1" "$tmp/page.html" || { echo "FAILED: the page does not say why $3 cannot be diagnosed"; failed=1; }
	expect 1 "\"judgement\": \"$2\"" diagnose "$3" --json -
	expect 1 "\"cannot_be_diagnosed\": \"$1" diagnose "$3" --json -
	expect 1 "Cannot be diagnosed: $1" diagnose "$3" --brief
}
cannot "no GPU work in this trace" no_gpu_work "$tmp/host.json"
expect 1 '"resident": null' diagnose "$tmp/host.json" --json -
expect 1 '"slowest": null' diagnose "$tmp/host.json" --json -
printf '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5, "args": {"device": 0, "stream": 7}}]}\n' >"$tmp/one.json"
cannot "too little GPU work to diagnose: 1 operation" too_little_gpu_work "$tmp/one.json"
expect 1 '"judgement": "serious"' diagnose "$tmp/trace.json" --json -
printf '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "na' >"$tmp/stub.json"
expect 1 "Cannot be diagnosed: the file ends inside its events, and what is left holds" diagnose "$tmp/stub.json"
expect 1 "Copy the file again, or" diagnose "$tmp/stub.json"
head -c 2000 "$tmp/trace.json" >"$tmp/cut.json"
expect 1 "Note: the file ends inside an event: 12 events read" diagnose "$tmp/cut.json"

# What is cut of a name is shown as cut.
sed 's/DataLoaderIter\.__next__/DataLoaderIter.__next__ of a data set whose name is longer than a line can be/g' "$tmp/trace.json" >"$tmp/long.json"
expect 1 "of a data set who..." diagnose "$tmp/long.json"

# It waits for its data 30 % of the time: serious, so the exit status is 1.
expect 1 "rank 0 of 2" diagnose "$tmp/trace.json"
narrow
expect 1 "Try first:   PyTorch: DataLoader(num_workers=) (now 0) -> 4" diagnose "$tmp/trace.json" --brief
expect 1 "device 0: NVIDIA H100 80GB HBM3" diagnose "$tmp/trace.json"
expect 1 "2 steps (3 to 4): what was launched in each of the host's steps." diagnose "$tmp/trace.json"
expect 1 "1 GPU operations at the front have no launch record" diagnose "$tmp/trace.json"
# 200 of 1000 us compute, 200 exposed communication, 60 copying, 540 idle: 300 loading, 10 launch latency, the rest the host's.
expect 1 "compute                    20.0 %" diagnose "$tmp/trace.json"
expect 1 "exposed communication      20.0 %" diagnose "$tmp/trace.json"
expect 1 "exposed copies              6.0 %" diagnose "$tmp/trace.json.gz"
expect 1 "idle                       54.0 %" diagnose "$tmp/trace.json"
expect 1 "step                      100.0 %" diagnose "$tmp/trace.json"
expect 1 "33.3 % lies under computation" diagnose "$tmp/trace.json"
expect 1 "A kernel was resident for 40.0 % of the time" diagnose "$tmp/trace.json"
expect 1 "The host's step, mean of 3" diagnose "$tmp/trace.json"
expect 1 "median step (3)" diagnose "$tmp/trace.json"
expect 1 "sm90_xmma_gemm_bf16bf16_bf16f3...  matmuls               1   20.0 %  0.200" diagnose "$tmp/trace.json"
expect 1 "Shares and gains are of the median step (3), 1.00 ms." diagnose "$tmp/trace.json"
expect 1 "Shares and gains are of the whole trace from the first GPU operation to the" diagnose "$tmp/trace.json" --whole-trace
expect 1 '"words": "the median step (3), 1.00 ms"' diagnose "$tmp/trace.json" --json -
expect 1 "The whole trace, as one step." diagnose "$tmp/trace.json" --whole-trace
expect 1 "1 GPU operations without a launch record are left out" diagnose "$tmp/trace.json" --exclude-unlinked
narrow

expect 1 '"span_ns": 2000000' diagnose "$tmp/trace.json" --json -
expect 1 '"steps_from": "launched_steps"' diagnose "$tmp/trace.json" --json=-
expect 1 '"host_data": 600000' diagnose "$tmp/trace.json" --json -
expect 1 '"launch_latency": 20000' diagnose "$tmp/trace.json" --json -
expect 1 '"host_data": 600000' diagnose "$tmp/trace.json" --json
expect 1 '"host_data": 600000' diagnose --json "$tmp/trace.json"
expect 1 '"span_ns": 2795000' diagnose "$tmp/trace.json" --json - --whole-trace
expect 1 '"excluded_ops": 1' diagnose "$tmp/trace.json" --json - --exclude-unlinked
expect 1 "rank 0 of 2" diagnose "$tmp/trace.json" --json="$tmp/out.json"
if command -v python3 >/dev/null; then
	python3 - "$tmp/out.json" <<-'END' || failed=1
	import json, sys
	d = json.load(open(sys.argv[1]))
	device = d["ranks"][0]["devices"][0]
	assert d["schema"] == 1 and d["ranks"][0]["rank"] == 0 and device["device"] == 0 and isinstance(d["findings"], list)
	for x in [device] + device["steps"]:
	    assert x["comp_ns"] + x["exposed_comm_ns"] + x["exposed_mem_ns"] + x["idle_ns"] == x["span_ns"], x
	    assert sum(x["idle"].values()) == x["idle_ns"] and sum(x["categories"].values()) == x["comp_ns"], x
	assert [s["number"] for s in device["steps"]] == [3, 4], device["steps"]
	assert device["categories"] == {"gemm": 400000} and device["exposed_comm"]["unknown_ns"] == 400000
	END
fi

# No GPU operation is no error.
printf '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}' >"$tmp/host.json"
expect 1 "No GPU operation" diagnose "$tmp/host.json"
expect 1 '"devices": []' diagnose "$tmp/host.json" --json -

# An export without any GPU table.
if command -v python3 >/dev/null; then
	python3 - "$tmp/host.sqlite" <<-'END'
	import sqlite3, sys
	db = sqlite3.connect(sys.argv[1])
	db.execute("create table META_DATA_EXPORT (name text, value text)")
	db.execute("insert into META_DATA_EXPORT values ('EXPORT_SCHEMA_VERSION', '3.17.2')")
	db.execute("create table StringIds (id integer, value text)")
	db.execute("create table NVTX_EVENTS (start integer, end integer, eventType integer, text text, globalTid integer)")
	db.execute("insert into NVTX_EVENTS values (1, 2, 59, 'step', 1)")
	db.commit()
	END
	expect 1 "No GPU operation" diagnose "$tmp/host.sqlite"
fi

expect 2 "no trace" diagnose
expect 3 "none.json" diagnose "$tmp/none.json"
echo "not a trace" >"$tmp/bad.json"
expect 2 "bad.json" diagnose "$tmp/bad.json"
expect 2 "unknown option" diagnose "$tmp/trace.json" --whole

# Advice: the answer first, money, the way to MFU, what only more flags would tell, the page.
expect 1 "Bottleneck:  the GPU waits for data: 30.0 % of the step" diagnose "$tmp/trace.json"
expect 1 "DataLoader(num_workers=) (now 0) -> 4" diagnose "$tmp/trace.json"
narrow
expect 1 "a day; an estimate, of 2 devices)" diagnose "$tmp/trace.json" --price 2
narrow
expect 1 '"class": "gemm"' diagnose "$tmp/trace.json" --json -
# Brief: the answer and titles, neither ledger nor evidence; notes of the trace stand behind the findings and have no number.
expect 1 "  1. the GPU waits for data: 30.0 % of the step [bottleneck, serious]" diagnose "$tmp/trace.json" --brief
expect 1 "Worth:  1.22 x (1.06 to 1.43; at best" diagnose "$tmp/trace.json" --brief
grep -q "evidence\|device 0" "$tmp/out" && { echo "FAILED: --brief prints evidence or the ledger"; failed=1; }
expect 1 "Note: 2 complete steps: too few for a median" diagnose "$tmp/trace.json"
awk '/^ *Note: /{note = NR} / 1\. the GPU waits/{first = NR} END{exit !(first && first < note)}' "$tmp/out" ||
	{ echo "FAILED: a note stands in front of the bottleneck"; failed=1; }
expect 1 '"id": "data-loading"' diagnose "$tmp/trace.json" --json - --price 2
expect 1 '"kind": "communication"' diagnose "$tmp/trace.json" --json -
expect 1 "\"flag\": \"the traces of all ranks, from the same steps\"" diagnose "$tmp/trace.json" --json -
# 256 tokens a step of two devices: 128 x 6 x 0.1e9 FLOP take a tenth of 1 ms at 989 TFLOP/s.
expect 1 "MFU:" diagnose "$tmp/trace.json" --model flatout-134m --seq 128 --tokens-per-step 256
expect 1 "matmuls and attention above ideal" diagnose "$tmp/trace.json" --model flatout-134m --seq 128 --tokens-per-step 256
# Where attention cannot be told from matmuls, nothing is said of the rate of matmuls alone.
expect 1 '"rows"' diagnose "$tmp/trace.json" --model flatout-134m --seq 128 --tokens-per-step 256 --json -
grep -q '"id": "gemm-efficiency"' "$tmp/out" && { echo "FAILED: a rate of matmuls from a row that holds attention too"; failed=1; }
expect 1 "cannot be right" diagnose "$tmp/trace.json" --model flatout-134m --seq 128 --tokens-per-step 3000
expect 2 "doubt --tokens-per-step, --model, --device or --dtype" diagnose "$tmp/trace.json" --model llama-3.1-8b --seq 8192 --tokens-per-step 8192
# Of a window without steps: how many it covers, or the time of one.
expect 1 "MFU:         not known: the trace shows no steps" diagnose "$tmp/trace.json" --whole-trace --model flatout-134m --seq 128 --tokens-per-step 256
expect 1 "the window is taken as 3 steps, as given" diagnose "$tmp/trace.json" --whole-trace --model flatout-134m --seq 128 --tokens-per-step 256 --steps 3
expect 1 "2.795 steps" diagnose "$tmp/trace.json" --whole-trace --model flatout-134m --seq 128 --tokens-per-step 256 --step-seconds 1ms
expect 1 '"steps_in_window": 3' diagnose "$tmp/trace.json" --whole-trace --model flatout-134m --seq 128 --tokens-per-step 256 --steps 3 --json -
expect 2 "give one of them" diagnose "$tmp/trace.json" --steps 3 --step-seconds 1ms
expect 2 "doubt --steps" diagnose "$tmp/trace.json" --whole-trace --model flatout-134m --seq 128 --tokens-per-step 256 --steps 300
expect 2 "a model needs the sequence length and the tokens of a step" diagnose "$tmp/trace.json" --model llama-3.1-8b
expect 2 "unknown device" diagnose "$tmp/trace.json" --device h1000
expect 2 "unknown precision" diagnose "$tmp/trace.json" --device h100 --dtype bf17
# One step of three takes three times as long: the ledger is of the mean, as the findings are, and says so.
uneven()
{
	comma=
	printf '{"traceEvents": ['
	for n in 1 2 3 4; do
		at=$((n * 1000 + (n > 2 ? 3000 : 0)))
		event "ProfilerStep#$n" user_annotation 1 $at $((n == 2 ? 3990 : 990))
		event "aten::mm" cpu_op 1 $((at + 5)) 60
		event cudaLaunchKernel cuda_runtime 1 $((at + 10)) 5 "\"correlation\": $n"
		event gemm kernel 7 $((at + 20)) 900 "\"correlation\": $n, \"device\": 0, \"stream\": 7"
	done
	printf ']}\n'
}
uneven >"$tmp/uneven.json"
expect 1 "  mean of 3 steps" diagnose "$tmp/uneven.json"
expect 1 "  step                      100.0 %  2.000" diagnose "$tmp/uneven.json"
expect 1 "Bottleneck" diagnose "$tmp/trace.json" --html "$tmp/page.html"
# One marked step whose loader comes behind the last kernel: the picture has the thread that loads, and its words.
{
	comma=
	printf '{"traceEvents": ['
	event "ProfilerStep#7" user_annotation 1 1000 391000
	for n in 1 2 3 4 5 6 7 8; do
		event "aten::mm" cpu_op 1 $((1000 + 100 * n)) 60
		event cudaLaunchKernel cuda_runtime 1 $((1010 + 100 * n)) 5 "\"correlation\": $n"
		event gemm kernel 7 $((1000 + 10000 * n)) 9990 "\"correlation\": $n, \"device\": 0, \"stream\": 7"
	done
	event "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" user_annotation 1 92000 299000
	printf ']}\n'
} >"$tmp/behind.json"
expect 1 "Bottleneck:  the GPU waits for data: 76.5 % of the step" diagnose "$tmp/behind.json" --html="$tmp/behind.html"
expect 1 "Step 7: on the host from its begin to its end" diagnose "$tmp/behind.json"
expect 1 "Shares and gains are of step 7 as marked on the host, 391 ms." diagnose "$tmp/behind.json"
grep -q "thread 1 had launched nothing more, and was in .*DataLoader" "$tmp/behind.html" || { echo "FAILED: the page does not say what came behind the last kernel"; failed=1; }
grep -q "data-loading\|waits for data" "$tmp/page.html" || { echo "FAILED: the page does not name the bottleneck"; failed=1; }
exit $failed
