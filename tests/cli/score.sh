#!/bin/sh
# flatout score: its table, its JSON, the file of rows, and tables that are none.
. "$(dirname "$0")/lib_expect.sh"

wrong()
{
	printf "FAILED: %s\n" "$1"
	failed=1
}
runs="$FLATOUT_SOURCE/data/published_runs.csv"
expect 0 "overall " score "$runs" --fit=no
expect 0 "no run is fitted to" score "$runs" --fit=no
expect 0 '"interval_coverage"' score "$runs" --fit=no --json
expect 0 '"guess_mean_abs_error"' score "$runs" --fit=no --json
expect 0 "CEIL_HOPPER_BF16" score "$runs" --fit=no --constants
expect 0 "bloom" score "$runs" --fit=no --alone --out "$tmp/rows.csv"
grep -q '^line,measured_tokens_s' "$tmp/rows.csv" || wrong "rows.csv has no head"
grep -q 'chunks: ' "$tmp/rows.csv" || wrong "rows.csv does not say what was inferred"
[ "$(wc -l <"$tmp/rows.csv")" -gt 700 ] || wrong "rows.csv has too few rows"
# Twice into the same file is fine; a file of somebody else is not.
expect 0 "overall" score "$runs" --fit=no --out "$tmp/rows.csv"
echo mine >"$tmp/mine.csv"
expect 2 "mine.csv" score "$runs" --fit=no --out "$tmp/mine.csv"
[ "$(cat "$tmp/mine.csv")" = mine ] || wrong "a file was overwritten"

expect 2 "which table" score
expect 3 "cannot" score "$tmp/absent.csv"
printf 'a,b\n1,2\n' >"$tmp/foreign.csv"
expect 2 "no column 'model'" score "$tmp/foreign.csv"
head -c 3000 "$runs" >"$tmp/half.csv"
expect 2 "half.csv:" score "$tmp/half.csv"
printf 'model,gpu,gpus,seq_len\nx,TPUv5p,8,8192\n' >"$tmp/none.csv"
expect 2 "no row" score "$tmp/none.csv" --out "$tmp/why.csv"
grep -q 'not a GPU' "$tmp/why.csv" || wrong "why.csv does not say why"
# vTrain's table, whose first column looks like a comment, and SimuMax's.
printf '\357\273\277# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n2,16,8,1024,16,24,1024,1,1,2,372.160408\n' >"$tmp/vtrain.csv"
expect 0 "vtrain" score "$tmp/vtrain.csv"
printf 'case,real_ms,simumax_ms,real_alloc_gib,simumax_alloc_gib\nllama3_70b_l12_tp1_pp2_dp4_mbc4_cef,843.00,828.76,66.55,66.44\n' >"$tmp/simumax.csv"
expect 0 "simumax" score "$tmp/simumax.csv"

# A rate above the device's peak is left out by its line, and counted; a publisher without a name has one.
printf 'model,gpu,gpus,seq_len,tokens_per_s_per_gpu\nllama3-8b,H100,8,8192,99999999\nllama3-8b,H100,8,8192,13000\n' >"$tmp/peak.csv"
expect 0 "more than the device's dense peak: line 2" score "$tmp/peak.csv" --fit=no
grep -q '1 of 2 rows were left out' "$tmp/out" || wrong "rows that were dropped are not counted"
grep -q 'unnamed' "$tmp/out" || wrong "a publisher has no name"
head -n 2 "$tmp/peak.csv" >"$tmp/above.csv"
expect 2 "line 2: its tokens/s need more than" score "$tmp/above.csv" --fit=no

exit $failed
