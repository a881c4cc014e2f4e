#!/bin/sh
# What reads a plan's JSON: price, compare, health; and clusters beside each other. Damaged, foreign, contradictory files are refused in one sentence.
. "$(dirname "$0")/lib.sh"
holds() { # EXPRESSION FILE
	"$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); p = json.load(open("plan.json")); sys.exit(not eval(sys.argv[1]))' "$1" "$2" || wrong "$2: not $1"
}
refused() { # STATUS TEXT ARGUMENTS...
	status=$1 text=$2
	shift 2
	run "$status" "$@"
	grep -qF -e "$text" err || wrong "no '$text': $(cat err)"
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "more than one sentence: $(cat err)"
}

run 0 plan --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128 --framework megatron --tokens 1T --rent 2..3 --kwh 0.1 --json=plan.json
holds 'd["of"] == "plan" and abs(sum(x["share"] for x in d["losses"]) + d["best"][0]["mfu_causal"] - 1) < 1e-9' plan.json
holds 'd["cost"]["all_tokens"]["usd"]["low"] < d["cost"]["all_tokens"]["usd"]["high"]' plan.json
# A million tokens, by hand: at $2 and the fast end, at $3 and the slow one; 700 W at most.
holds 'abs(d["cost"]["million_tokens"]["usd"]["low"] / (16 * 1e6 / (128 * 8192 / d["best"][0]["step_seconds_low"]) / 3600 * 2) - 1) < 1e-9' plan.json
holds 'abs(d["cost"]["million_tokens"]["usd"]["high"] / (16 * 1e6 / (128 * 8192 / d["best"][0]["step_seconds_high"]) / 3600 * 3) - 1) < 1e-9' plan.json
holds 'abs(d["cost"]["million_tokens"]["electricity_usd_at_most"] / (0.1 * 0.7 * 16 * 1e6 / (128 * 8192 / d["best"][0]["step_seconds_high"]) / 3600) - 1) < 1e-9' plan.json

# price: the plan's devices, MFU and length; the cost of a run is that of plan.
run 0 price plan.json --tokens 1T --rent 2..3 --json=price.json
holds 'd["devices"] == 16 and abs(d["cost"]["low"] / p["cost"]["all_tokens"]["usd"]["low"] - 1) < 1e-9' price.json
holds 'abs(d["cost"]["high"] / p["cost"]["all_tokens"]["usd"]["high"] - 1) < 1e-9' price.json
holds 'd["mfu"]["low"] < p["best"][0]["mfu_causal"] < d["mfu"]["high"]' price.json
# With failures the same steps take longer: by what counts of the time.
run 0 price plan.json --tokens 1T --rent 2..3 --failures 4 --json=lost.json
holds 'abs(d["cost"]["high"] * d["goodput"]["low"] / p["cost"]["all_tokens"]["usd"]["high"] - 1) < 1e-9 and d["goodput"]["high"] < 1' lost.json
run 2 price plan.json --failures 4
run 0 price plan.json --days 30 --to 60
grep -q 'saved for the same work' out || wrong "nothing saved: $(cat out)"
run 0 price plan.json --tokens 1T --other b200 --other-mfu 40
grep -q 'the same work on the other device' out || wrong "no other device: $(cat out)"
refused 2 "both say what trains" price plan.json --mfu 40
refused 2 "both say what trains" price plan.json --device h100
refused 2 "both say how long" price plan.json --days 3 --tokens 1T
refused 2 "it needs a plan" price --mfu 40 --devices 8 --tokens 1T
refused 2 "unexpected argument" price plan.json plan.json

# Half a file, another file, another version, another device, none.
head -c 900 plan.json >half.json
refused 2 "half.json" price half.json
: >empty.json
refused 2 "empty.json" price empty.json
echo '{"schema": 1, "mfu": 0.4}' >other.json
refused 2 "other.json" price other.json
sed 's/"schema": 1/"schema": 7/' plan.json >newer.json
refused 2 "schema" price newer.json
sed 's/"devices": 16/"devices": 12/' plan.json >wrong.json
refused 2 "wrong.json" price wrong.json
sed 's/"device": "[^"]*"/"device": "Q1000"/' plan.json >unknown.json
refused 2 "Q1000" price unknown.json
refused 3 "nowhere.json" price nowhere.json
refused '2|3' "$tmp" price "$tmp"

# compare: the same plan twice is a tie; a cluster of newer devices is faster; what the ranges do not tell apart is a tie.
run 0 compare plan.json plan.json --json=same
holds 'd["of"] == "plans" and d["sides"][1]["speed_ties"] and d["sides"][1]["cost_ties"] and d["sides"][1]["speed_over_first"]["mid"] == 1' same
holds 'd["sides"][0]["tokens_per_second"]["low"] < d["sides"][0]["tokens_per_second"]["mid"] < d["sides"][0]["tokens_per_second"]["high"]' same
job="--model llama-3.1-8b --seq 8192 --global-batch 128 --framework megatron"
# shellcheck disable=SC2086 # words on purpose, here and below
run 0 compare --clusters 2xHGX-H100,2xHGX-B200 $job --tokens 1T --rent 2..3,4..5 --json=two --html=two.html
holds 'abs(d["sides"][0]["step_seconds"]["mid"] / p["best"][0]["step_seconds"] - 1) < 1e-9' two
holds 'not d["sides"][1]["speed_ties"] and d["sides"][1]["speed_over_first"]["low"] > 1' two
holds 'd["sides"][1]["cost"]["rent_usd_per_hour"] == {"low": 4, "high": 5} and d["sides"][0]["cost"]["rent_usd_per_hour"] == {"low": 2, "high": 3}' two
holds 'd["sides"][1]["cost"]["all_tokens"]["days"]["high"] < d["sides"][0]["cost"]["all_tokens"]["days"]["low"] * 1.01' two
grep -q 'Rent of a million tokens' two.html || wrong "no picture of the rent"
run 0 plan $job --cluster 2xHGX-B200 --json=b200.json
run 0 compare plan.json b200.json --rent 2..3,4..5 --tokens 1T --json=files
holds '[x["tokens_per_second"] for x in d["sides"]] == [x["tokens_per_second"] for x in json.load(open("two"))["sides"]]' files
run 0 compare plan.json b200.json --tokens 1T
awk 'length > 80' out | grep . && wrong "lines over 80 columns"
says "faster than A" "a tie"
run 0 compare --clusters 1xH100,1xB200,1xH200 --model llama-3.2-1b --seq 8192 --global-batch 8 --json=three
holds 'len(d["sides"]) == 3 and d["sides"][0]["devices"] == 1' three
run 0 compare --clusters 1xHGX-H100,1xHGX-B200,1xHGX-H200 --model llama-3.1-8b --seq 8192 --global-batch 64 --tokens 1T
awk 'length > 80' out | grep . && wrong "lines over 80 columns"
refused 2 "expected two to 4" compare --clusters 2xHGX-H100 $job
refused 2 "Q1000" compare --clusters 2xHGX-H100,2xQ1000 $job
refused 2 "both say where" compare --clusters 2xHGX-H100,2xHGX-B200 --cluster 2xHGX-A100 $job
refused 2 "2 plans" compare --clusters 2xHGX-H100,2xHGX-B200 $job --rent 1,2,3
refused 3 "fits on '1xHGX-H100'" compare --clusters 1xHGX-H100,1xHGX-B200 --model llama-3.1-405b --seq 8192 --global-batch 128
run 0 compare plan.json b200.json --rent 0..3
says "has no ratio"
grep -q 'nan' out && wrong "$(grep nan out)"
refused 2 "'flatout compare --help'" compare plan.json b200.json plan.json
grep -qF 'x0a' err && wrong "a line break in a hint: $(cat err)"
refused 2 "half.json" compare plan.json half.json
refused 2 "schema" compare plan.json newer.json
refused 2 "is a plan and" compare plan.json other.json
refused 3 "nowhere.json" compare plan.json nowhere.json
refused 2 "leave them out" compare plan.json b200.json --model llama-3.1-8b
sed 's/"model": "[^"]*"/"model": "gpt2"/' plan.json >gpt2.json
refused 2 "not alike" compare plan.json gpt2.json
refused 2 "are for plans" compare other.json other.json --tokens 1T

# health: the plan's tokens/s over those of the log; without a log nothing is known of its worth; of another job no gain rests on it.
for i in 1 2 3 4 5 6 7 8; do
	echo "[titan] 2026-01-01 00:00:0$i,000 - root - INFO - step: ${i}0  loss:  5.$i  grad_norm: 1.0  memory: 40.00GiB(50.00%)  tps: 5,000  tflops: 280.00  mfu: 28.00%"
done >titan.log
run '0|1' health titan.log plan.json --model llama-3.1-8b --seq 8192 --devices 16 --device h100 --json=health.json
holds '[f["kind"] for f in d["files"]] == ["log", "plan"]' health.json
holds '[abs(c["gain"]["low"] * 5000 * 16 * p["best"][0]["step_seconds_high"] / (128 * 8192) - 1) < 1e-9 for c in d["changes"] if c["id"].startswith("plan:")] == [True]' health.json
run '0|1' health titan.log plan.json --model llama-3.1-8b --seq 8192 --devices 8 --device h100
tr -s "\n " "  " <out | grep -q "no gain rests on it" || wrong "a gain rests on another job's plan"
run '0|1' health plan.json --json=alone.json
holds 'd["devices"] == 16 and d["devices_from"] == "plan.json" and d["mfu"]["now"] is None and d["changes"][0]["gain"] is None' alone.json
run '0|1' health plan.json
tr -s "\n " "  " <out | grep -q "Worth not known: The division of the plan 'plan.json' (nothing tells the speed now" || wrong "no reason: $(cat out)"
# A change to 8 bit goes above the best published run: the limit that is told is the one that holds.
run '0|1' health "$source/tests/data/audit/lambda_8b_8xb200_baseline.toml" plan.json --cluster 1xHGX-B200 --mfu 60
tr -s "\n " "  " <out >words
grep -q "never above 100.0 % MFU (the peak of 16 bit, for 8 bit doubles the rate of matmuls; the limit of 16 bit is 6[0-9.]* %, the best published" words || wrong "another limit: $(cat out)"
grep -q "cut at the limit of 100.0 %" words || wrong "the table tells no limit"
# One device is not "1 devices".
run 0 plan --model llama-3.2-1b --cluster 1xH100 --seq 2048 --global-batch 8 --json=one.json
run '0|1' health one.json --device h100 --devices 2
tr -s "\n " "  " <out | grep -q "it is of 1 device, this job of 2" || wrong "a plan of one device: $(cat out)"
run '0|1' health one.json
grep -q "1 devices" out && wrong "a plural of one"
run 2 health half.json
says "half.json" "is not used"

finish
