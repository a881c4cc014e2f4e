#!/bin/sh
# flatout export of anybody's traces: a table and slices; and our own runs as traces (flatout diagnose RUN).
. "$(dirname "$0")/lib.sh"

# Two steps of a process: three kernels with launches, a copy, a gap behind the data loader; a name that wants to be a formula.
cat >rank0.json <<'END'
{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}, "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 1, "tid": 1, "ts": 100, "dur": 100},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 200, "dur": 100},
{"ph": "X", "cat": "cpu_op", "name": "aten::native_layer_norm", "pid": 1, "tid": 1, "ts": 9, "dur": 5, "args": {"External id": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 2, "args": {"correlation": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 20, "dur": 2, "args": {"correlation": 2}},
{"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "pid": 1, "tid": 1, "ts": 60, "dur": 50},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1, "tid": 1, "ts": 120, "dur": 2, "args": {"correlation": 3}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 220, "dur": 2, "args": {"correlation": 4}},
{"ph": "X", "cat": "kernel", "name": "elementwise_kernel", "pid": 0, "tid": 7, "ts": 15, "dur": 10.5, "args": {"device": 0, "stream": 7, "correlation": 1}},
{"ph": "X", "cat": "kernel", "name": "=nvjet_tst_\"x\",2", "pid": 0, "tid": 7, "ts": 26, "dur": 14, "args": {"device": 0, "stream": 7, "correlation": 2}},
{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 9, "ts": 125, "dur": 5, "args": {"device": 0, "stream": 9, "correlation": 3, "bytes": 64}},
{"ph": "X", "cat": "kernel", "name": "nvjet_tst", "pid": 0, "tid": 7, "ts": 225, "dur": 5, "args": {"device": 0, "stream": 7, "correlation": 4}}]}
END
run 0 export rank0.json --csv ops.csv --chrome ops.json
says 'wrote ops.csv: 4 operations of 1 rank'
tr -d '\r' <ops.csv >unix.csv
sed -n 1p unix.csv | grep -q '^rank,device,stream,step,begin_us,' || wrong "the table has no head"
sed -n 2p unix.csv | grep -q '^0,0,7,1,0.000,10.500,kernel,norm,elementwise,forward,"elementwise_kernel","aten::native_layer_norm","",,-5.000,0.000,$' ||
	wrong "first line: $(sed -n 2p unix.csv)"
sed -n 3p unix.csv | grep -q ",gemm,gemm,forward,\"'=nvjet_tst_\"\"x\"\",2\"," || wrong "a name is not quoted: $(sed -n 3p unix.csv)"
sed -n 4p unix.csv | grep -q '^0,0,9,2,110.000,5.000,memcpy,memory,memory,forward,.*,64,105.000,85.000,host_data$' || wrong "copy: $(sed -n 4p unix.csv)"
[ "$(wc -l <unix.csv)" -eq 5 ] || wrong "not a line for each operation"
valid ops.json
grep -q '"name":"host_data"' ops.json && grep -q '"name":"step 1"' ops.json || wrong "no gaps or steps among the slices"

# What was written is a trace that can be read again: the same operations.
run 0 export ops.json --csv again.csv
cut -d , -f 1-3,6,7 again.csv >a
cut -d , -f 1-3,6,7 ops.csv >b
same a b
run 0 export rank0.json --csv ops.csv.gz --json
valid out
keys out schema csv
if command -v gzip >/dev/null; then
	gzip -dc ops.csv.gz >plain.csv
	same ops.csv plain.csv
fi
refused 2 'which traces' export --csv x.csv
refused 2 'two commands' export rank0.json --csv x.csv --trace y.json
refused 3 'cannot read\|no such' export nowhere.json --csv x.csv
refused 2 'is a folder' export rank0.json --csv .
echo "{\"schemaVersion\": 1, \"traceEvents\": []}" >empty.json
refused 2 'no GPU operations' export empty.json --csv x.csv
[ -e x.csv ] && wrong "a command that failed left a file"

# A run of our own is a trace, too: parts sum to its span, and what ran is compute.
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text text
	# shellcheck disable=SC2086
	run 0 train $tiny --run.dir=r1
	run '0|1' diagnose r1 --json -
	cp out r1.json
	valid r1.json
	[ -n "$python" ] && { "$python" - <<-'END' || wrong "the ledger of a run"; }
	import json
	d = json.load(open("r1.json"))["ranks"][0]["devices"][0]
	assert d["span_ns"] > 0 and d["busy_ns"] + d["idle_ns"] == d["span_ns"], d
	assert sum(d["idle"].values()) == d["idle_ns"], d["idle"]
	for c in ("gemm", "attention_forward", "attention_backward", "norm", "rope", "loss", "optimizer", "embedding"):
	    assert d["categories"].get(c, 0) > 0, (c, d["categories"])
	assert len(d["steps"]) >= 4, len(d["steps"])
	END
	# In words of a processor and with our own options; the MFU is the record's, as the report has it.
	run '0|1' diagnose r1 --html r1.html
	if grep -qi 'GPU\|torch\|nvidia\|kernel\|DataLoader' out || sed 's/<style>.*<\/style>//; s/<[^>]*>/ /g' r1.html | grep -qi 'GPU\|torch\|nvidia'; then
		wrong "a run on a processor is told of GPUs: $(grep -i 'GPU\|torch\|nvidia\|kernel' out | head -n 3)"
	fi
	says '^MFU: .*by rule mfu' '^ *device: .'
	cp out diagnosed
	run 0 report r1
	mfu=$(sed -n 's/^MFU:  *\([0-9.]*\) %.*/\1/p' out)
	# Below 1 % the report has two decimals and the diagnosis one, each rounded from the record: 0.2499 is 0.25 and 0.2.
	said=$(sed -n 's/^MFU:  *\([0-9.]*\) % by rule mfu.*/\1/p' diagnosed)
	awk -v a="$said" -v b="$mfu" 'BEGIN { exit !(a == b && a != "" || b < 1 && a - b <= .055 && b - a <= .055 && a != "") }' ||
		wrong "diagnose has another MFU than report's $mfu: $(grep MFU diagnosed)"
	# Other programs that ran beside it stand in front of every verdict; of a quiet machine nothing is said.
	cp r1/log.jsonl log.kept
	for load in 0.5 99; do
		grep '"event":"machine"' log.kept | grep -q '"load":' || wrong "the log tells no load"
		sed "s/\"load\":[^,}]*/\"load\":$load/" log.kept >r1/log.jsonl
		run '0|1' diagnose r1
		cp out "diagnosed-$load"
		run 0 report r1 --html="r1-$load.html"
		cp out "reported-$load"
	done
	cp log.kept r1/log.jsonl
	grep -q 'load 99.0 on [0-9]* processors*: other programs ran too' diagnosed-99 || wrong "diagnose does not say that others ran"
	awk '/other programs ran too/ { told = 1 } /^Bottleneck:/ { exit !told }' diagnosed-99 || wrong "others that ran stand behind the figures"
	grep -q '^Busy:  *at load 99.0 on .*other programs ran too' reported-99 || wrong "report does not say that others ran"
	grep -q 'load 99.0 on .*other programs ran too' r1-99.html || wrong "the page does not say that others ran"
	! grep -q 'no slow phase' reported-99 || wrong "a busy machine had no slow phase"
	! grep -q 'other programs ran' diagnosed-0.5 reported-0.5 r1-0.5.html || wrong "others ran on a quiet machine"
	# Another run in a folder below is another run; a folder of runs is none.
	mkdir -p r1/ladder
	cp -r r1/timeline.fot r1/program.txt r1/ladder
	run '0|1' diagnose r1
	says 'is of another run'
	mkdir runs
	cp -r r1 runs/a
	cp -r r1 runs/b
	refused 2 'which are not ranks of one job' diagnose runs
	run 0 export r1 --csv run.csv
	grep -q ',norm,norm,backward,' run.csv || wrong "no norm in the backward pass of the run"
	mkdir alone && cp r1/timeline.fot alone
	refused 2 'numbers without its program' diagnose alone/timeline.fot
	sed 's/5/4/' r1/program.txt >alone/program.txt
	refused 2 '' diagnose alone/timeline.fot
fi
finish
