#!/bin/sh
# flatout diagnose on several ranks and on logs of pipeline schedules: text, JSON, exit status, mistakes.
. "$(dirname "$0")/lib_expect.sh"

# rank R LATE: a product, then an all-reduce that ends on all at once
rank()
{
	printf '{"distributedInfo": {"backend": "nccl", "rank": %d, "world_size": 2}, "traceEvents": [' "$1"
	printf '{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 2, "args": {"correlation": 1}},'
	printf '{"ph": "X", "cat": "kernel", "name": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "pid": 0, "tid": 7, "ts": 20, "dur": %d, "args": {"device": 0, "stream": 7, "correlation": 1}},' $((100 + $2))
	printf '{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 14, "dur": 2, "args": {"correlation": 2}},'
	printf '{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "pid": 0, "tid": 9, "ts": %d, "dur": %d, "args": {"device": 0, "stream": 9, "correlation": 2}}]}\n' $((120 + $2)) $((300 - $2))
}
mkdir "$tmp/job"
rank 0 0 >"$tmp/job/rank0.json"
rank 1 200 >"$tmp/job/rank1.json"
expect 1 "2 of 2 kernels matched" diagnose "$tmp/job"
narrow
expect 1 "Rank 1 is who the others wait for: 100 % of all waiting." diagnose "$tmp/job"
# Both figures of each, and no median of two.
expect 1 "slowest     1        0.400          0.400" diagnose "$tmp/job"
expect 1 "fastest     0        0.200          0.400" diagnose "$tmp/job"
grep -q "^  median" "$tmp/out" && { echo "FAILED: a median of two ranks"; failed=1; }
expect 1 "without waiting for others: 400 us of its own" diagnose "$tmp/job/rank0.json" "$tmp/job/rank1.json"
expect 1 '"wait_ns": 200000' diagnose "$tmp/job/rank*.json" --json -
expect 1 '"transfer_ns": 100000' diagnose "$tmp/job" --json -
expect 1 '"excess_ns": 200000' diagnose "$tmp/job" --json -
# Two of three ranks: nothing can be matched, which is unknown and not zero, and no step "without waiting" is claimed.
mkdir "$tmp/part"
for r in 0 1; do
	sed 's/"world_size": 2/"world_size": 3/; s/"correlation": 2}/"correlation": 2, "Collective name": "allreduce", "Group size": 3, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2]", "Seq": 1}/2' \
		"$tmp/job/rank$r.json" >"$tmp/part/rank$r.json"
done
expect 1 "0 of 2 kernels matched" diagnose "$tmp/part"
narrow
expect 1 " 0      -         -           -     -           -    0.300" diagnose "$tmp/part"
expect 1 "traces of 2 of the job's 3 ranks" diagnose "$tmp/part"
expect 1 "own work ms, at most" diagnose "$tmp/part"
expect 1 '"wait_ns": null' diagnose "$tmp/part" --json -
# One rank alone does not know.
expect 1 '"unknown_ns": 300000' diagnose "$tmp/job/rank0.json" --json -
cp "$tmp/job/rank0.json" "$tmp/job/again.json"
expect 1 "is a copy of" diagnose "$tmp/job"
expect 1 '"kind": "copy"' diagnose "$tmp/job" --json -
expect 2 "is a copy of" diagnose "$tmp/job/rank0.json" "$tmp/job/again.json"
echo >>"$tmp/job/again.json" # no copy any more
expect 2 "two traces of rank 0" diagnose "$tmp/job"
expect 2 "rank0.json' is given twice" diagnose "$tmp/job/rank0.json" "$tmp/job/rank0.json"
ln "$tmp/job/rank0.json" "$tmp/job/linked.json"
expect 2 "are one file" diagnose "$tmp/job/rank0.json" "$tmp/job/linked.json"
rm "$tmp/job/linked.json"
# Two files that do not say whose they are: numbered, told so, and nobody blamed.
rank 0 0 | sed 's/"distributedInfo": {[^}]*},//' >"$tmp/one.json"
rank 1 200 | sed 's/"distributedInfo": {[^}]*},//' >"$tmp/two.json"
expect 1 "Ranks by the order of the files" diagnose "$tmp/one.json" "$tmp/two.json"
narrow
expect 1 "0 of 2 kernels matched" diagnose "$tmp/one.json" "$tmp/two.json"
expect 1 '"rank_from": "order"' diagnose "$tmp/one.json" "$tmp/two.json" --json -
expect 1 '"culprit": null' diagnose "$tmp/one.json" "$tmp/two.json" --json -
expect 1 '"rank_from": "recorded"' diagnose "$tmp/job/rank0.json" "$tmp/job/rank1.json" --json -
expect 1 "which rank each trace is" diagnose "$tmp/one.json" "$tmp/two.json" --html "$tmp/order.html"
grep -q "hich rank each trace is" "$tmp/order.html" || { echo "FAILED: the page does not say that ranks are by order"; failed=1; }
# A pipe that nobody writes into is no trace, and no log of a schedule.
if mkfifo "$tmp/pipe" 2>/dev/null && command -v timeout >/dev/null; then
	mkdir "$tmp/pipes"
	cp "$tmp/job/rank0.json" "$tmp/pipes"
	mkfifo "$tmp/pipes/pipe.json" "$tmp/pipes/pp_rank_0.json"
	# pipe_ends STATUS TEXT PATH: it ends by itself
	pipe_ends()
	{
		timeout 20 "$FLATOUT_BIN" diagnose "$3" >"$tmp/out" 2>&1 </dev/null
		got=$?
		if [ $got != "$1" ] || ! grep -q "$2" "$tmp/out"; then
			echo "FAILED: diagnose $3: exit $got, expected $1 and: $2"
			cat "$tmp/out"
			failed=1
		fi
	}
	pipe_ends 3 "not a regular file" "$tmp/pipe"
	pipe_ends 3 "not a regular file" "$tmp/pipes/pp_rank_0.json"
	pipe_ends 1 "rank 0 of 2" "$tmp/pipes"
fi
expect 2 "no file matches" diagnose "$tmp/none*.json"
mkdir "$tmp/empty"
expect 2 "no traces in" diagnose "$tmp/empty"

mkdir "$tmp/pp"
echo '{"pp_size": 2, "vp_size": 1, "num_mbs": 2}' >"$tmp/pp/config.json"
echo '{"1": {"total": 90, "fwd_start": [0, 10], "fwd_end": [10, 20], "bwd_start": [50, 75], "bwd_end": [65, 90]}}' >"$tmp/pp/pp_rank_0.json"
echo '{"1": {"total": 80, "fwd_start": [10, 45], "fwd_end": [25, 60], "bwd_start": [25, 60], "bwd_end": [45, 75]}}' >"$tmp/pp/pp_rank_1.json"
expect 1 "2 stages, 1 chunk, 2 microbatches, 1 replica; 1 steps" diagnose "$tmp/pp"
narrow
expect 1 "1 / 2 of the work: 33.3 % of the" diagnose "$tmp/pp"
expect 1 "1.04 x" diagnose "$tmp/pp"
expect 1 '"ideal": 0.5' diagnose "$tmp/pp" --json -
expect 1 '"id": "pipeline-bubble"' diagnose "$tmp/pp/pp_rank_0.json" --json -
expect 1 '"stages": 2' diagnose "$tmp/pp/pp_rank_0.json" "$tmp/pp/pp_rank_1.json" --json -
expect 2 "are not one pipeline schedule's log" diagnose "$tmp/pp" "$tmp/job"
expect 1 "Pipeline schedule: $tmp/pp" diagnose "$tmp/pp" --html "$tmp/page.html"
grep -q "Pipeline bubble by stage" "$tmp/page.html" || { echo "FAILED: the page of a schedule has no bars"; failed=1; }
# A log of a schedule beside traces hides none of them, and is named.
cp -r "$tmp/pp" "$tmp/job/pp"
rm "$tmp/job/again.json"
expect 1 "2 of 2 kernels matched" diagnose "$tmp/job"
narrow
expect 1 "is the log of a pipeline schedule: give it alone" diagnose "$tmp/job" --json -
rm -r "$tmp/job/pp"
# Of several iterations the newest whole one; a cut rank, a lost one and what is no trace are named in text, JSON and page.
mkdir -p "$tmp/titan/iteration_10" "$tmp/titan/iteration_20" "$tmp/titan/iteration_30"
for n in 10 20; do
	rank 0 0 >"$tmp/titan/iteration_$n/rank0_trace.json"
	rank 1 200 >"$tmp/titan/iteration_$n/rank1_trace.json"
done
rank 0 0 >"$tmp/titan/iteration_30/rank0_trace.json"
expect 1 "Traces:      of several recordings" diagnose "$tmp/titan" --brief
narrow
expect 1 "titan/iteration_20' was taken (2 files)" diagnose "$tmp/titan" --json -
expect 1 "is another recording, of fewer workers" diagnose "$tmp/titan" --json -
expect 1 '"kind": "earlier"' diagnose "$tmp/titan" --json -
printf 'memory' >"$tmp/job/snapshot.pickle"
head -c 700 "$tmp/job/rank1.json" >"$tmp/job/cut"
mv "$tmp/job/cut" "$tmp/job/rank1.json"
expect 1 "rank 1 ('$tmp/job/rank1.json') is cut" diagnose "$tmp/job" --json -
expect 1 "snapshot.pickle' is a pickle of Python" diagnose "$tmp/job" --json -
expect 1 "Traces:      rank 1 (" diagnose "$tmp/job" --html "$tmp/found.html"
grep -q "rank1.json&#39;) is cut" "$tmp/found.html" || { echo "FAILED: the page does not say that a rank is cut"; failed=1; }
rm "$tmp/job/rank1.json"
expect 1 "rank 0 alone, of the job's 2" diagnose "$tmp/job"
narrow
# What is no trace: exit code 2, its name, and the way on.
printf '[2026-01-31 12:00:00] step 5 loss 10.5\n' >"$tmp/train.log"
expect 2 "is a training log" diagnose "$tmp/train.log"
expect 2 "flatout mfu takes" diagnose "$tmp/train.log"
printf '[]' >"$tmp/nothing.json"
expect 2 "its list of events is empty, and ends at byte" diagnose "$tmp/nothing.json"
mkdir "$tmp/both"
cp -r "$tmp/pp" "$tmp/both"
expect 2 "holds no traces but logs of pipeline schedules" diagnose "$tmp/both"
# Both folders are named.
cp -r "$tmp/pp" "$tmp/both/second"
expect 2 "$tmp/both/pp, $tmp/both/second" diagnose "$tmp/both"
# Chunks are there: the interleaved schedule is not proposed again, the plain one's is.
expect 1 "Interleaved1F1B" diagnose "$tmp/pp" --json -
mkdir "$tmp/chunks"
echo '{"pp_size": 2, "vp_size": 2, "num_mbs": 2}' >"$tmp/chunks/config.json"
echo '{"1": {"total": 90, "fwd_start": [0, 5, 10, 15], "fwd_end": [5, 10, 15, 20], "bwd_start": [50, 58, 66, 78], "bwd_end": [58, 66, 74, 86]}}' >"$tmp/chunks/pp_rank_0.json"
cp "$tmp/chunks/pp_rank_0.json" "$tmp/chunks/pp_rank_1.json"
expect 1 "more than 2 chunks per stage" diagnose "$tmp/chunks" --json -
if grep -q Interleaved1F1B "$tmp/out"; then
	printf "FAILED: an interleaved schedule is told to interleave\n"
	failed=1
fi
echo '{"1": {"total": -1}}' >"$tmp/pp/pp_rank_1.json"
expect 2 '"total" is no time' diagnose "$tmp/pp"
rm "$tmp/pp/pp_rank_1.json"
expect 3 "pp_rank_1.json" diagnose "$tmp/pp"
exit $failed
