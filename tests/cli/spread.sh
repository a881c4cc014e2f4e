#!/bin/sh
# flatout predict with ranks and steps that differ, and with failures: on a cluster, and of ranks on this machine.
. "$(dirname "$0")/lib.sh"
number() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); print(eval(sys.argv[1]))' "$1" "$2"; }
holds() { [ "$(number "$1" "$2")" = True ] || wrong "$2: not $1"; }
refused() { # HINT ARGUMENTS...
	hint=$1
	shift
	run 2 predict "$@"
	grep -qF -e "$hint" err || wrong "no '$hint': $(cat err)"
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "more than one sentence: $(cat err)"
	[ ! -s out ] || wrong "text beside an error: $(head -n 2 out)"
}
cluster="--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 64 --framework megatron --tp 2 --pp 4"
ranks="$tiny --profile=$source/fuzz/corpus/profile/two_cores.json --ranks=2 --train.rows=2 --run.threads=2"

# shellcheck disable=SC2086 # words on purpose, here and below
run 0 predict $cluster --straggler 3:1.5 --draws 3 --json=slow
valid slow
holds 'd["spread"]["steps"] == 3 and d["spread"]["low_seconds"] == d["spread"]["high_seconds"]' slow
holds 'abs(d["spread"]["alike_seconds"] - d["simulated_seconds"]) < 1e-12' slow
holds '1.05 < d["spread"]["median_seconds"] / d["spread"]["alike_seconds"] < 1.5' slow
holds 'd["spread"]["rank"] == 3 and d["spread"]["rank_share"] > 0.5' slow
holds 'd["spread"]["path"][0]["rank"] == 3' slow
refused "nothing is drawn" $cluster --draw-seed 7
run 0 predict $cluster --jitter 3% --draws 1
grep -q 's for one step: ' out || wrong "$(grep Drawn out)"
run 0 predict $cluster --jitter 3% --json=one --html=page.html
run 0 predict $cluster --jitter 3% --json=two
cmp -s one two || wrong "one seed, two answers"
run 0 predict $cluster --jitter 3% --draw-seed 2 --json=other
! cmp -s one other || wrong "two seeds, one answer"
holds 'd["spread"]["steps"] >= 10 and d["spread"]["alike_seconds"] < d["spread"]["low_seconds"] < d["spread"]["median_seconds"] < d["spread"]["high_seconds"]' one
holds 'd["spread"]["step_seconds"] == sorted(d["spread"]["step_seconds"])' one
grep -q 'Drawn steps, shortest first' page.html || wrong "no picture of the steps"

# Failures: a curve over the time between checkpoints, highest at the best.
run 0 predict $cluster --failures 500 --html=page.html --json=goodput
holds 'max(d["goodput"], key=lambda g: g["mid"])["best"]' goodput
holds 'sum(g["best"] for g in d["goodput"]) == 1 and len(d["goodput"]) == 9' goodput
holds 'all(g["low"] <= g["mid"] <= g["high"] for g in d["goodput"])' goodput
grep -q 'Goodput over the time between checkpoints' page.html || wrong "no picture of goodput"
run 0 predict $cluster --failures 500 --checkpoint-every 100 --json=given
holds '[g["checkpoint_every_seconds"] for g in d["goodput"] if g["given"]] == [100]' given
run 0 predict $cluster --failures 500 --days 1 --checkpoint-every 1e9
grep -q '31.7 years' out || wrong "$(grep Between out)"
! grep -q 'of 1 days' out || wrong "$(grep 'of 1 days' out)"
run 0 predict $cluster --failures 0 --save 0
grep -q 'none are assumed' out || wrong "$(tail -n 5 out)"
! grep -qw 'nan\|inf' out || wrong "$(grep -w 'nan\|inf' out)"
run 0 predict $cluster --json=plain
holds '"spread" not in d and "goodput" not in d' plain

# Ranks of this machine.
run 0 predict $ranks --straggler=1:2 --json=two
holds 'd["ranks"]["spread"]["rank"] == 1 and d["ranks"]["spread"]["median_seconds"] > 1.3 * d["ranks"]["spread"]["alike_seconds"]' two
run 0 predict $ranks --jitter=5% --draws=20
grep -q 'of 20 steps' out || wrong "$(head -n 20 out)"

# The bubble has a line of its own, beside the formula of its schedule.
holds 'd["bubble"]["seconds"] == d["parts_seconds"]["pipeline"] > 0.9 * d["bubble"]["formula_seconds"] > 0' plain
run 0 predict $cluster
grep -q '^Bubble: .* of the step' out || wrong "no bubble: $(head -n 20 out)"
run 0 predict --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 64 --framework megatron --tp 2 --json=without
holds '"bubble" not in d' without
run 0 predict $tiny --model.layers=4 --profile="$source/fuzz/corpus/profile/two_cores.json" --mesh.pp=2 --train.rows=2 --run.threads=2 --json=stages
holds 'd["ranks"]["pipeline"]["stages"] == 2 and d["ranks"]["pipeline"]["bubble"] >= d["ranks"]["pipeline"]["formula_bubble"] > 0' stages
run 0 predict $tiny --model.layers=4 --profile="$source/fuzz/corpus/profile/two_cores.json" --mesh.pp=2 --train.rows=2 --run.threads=2
grep -q '^Bubble: ' out || wrong "no bubble of stages: $(head -n 20 out)"

# What cannot be.
refused "--jitter=2%" $cluster --jitter 2
refused "--jitter=2%" $cluster --jitter 0x2%
refused "--jitter=2%" $cluster --jitter=-1%
refused "--straggler=3:1.2" $cluster --straggler 3
refused "--straggler=3:1.2" $cluster --straggler 3:0
refused "--straggler=3:1.2" $cluster --straggler 3:1.2,
refused "--straggler=3:1.2" $cluster --straggler 200%:1.2
refused "leave one of them out" $cluster --straggler 3:1.2,3:1.3
refused "there is no rank 16" $cluster --straggler 16:1.2
refused "draws" $cluster --draws 5
refused "there is no rank 2" $ranks --straggler=2:1.2
refused "--ranks=8" $tiny --profile="$source/fuzz/corpus/profile/two_cores.json" --run.threads=2 --jitter=2%
refused "--ranks=8" --device=h100 --jitter=2%
refused "2.5, or 2..3" $cluster --failures often
finish
