#!/bin/sh
# flatout ladder --plan: document 001's three jobs in that document's order, each rung alone and on top, what cannot be.
. "$(dirname "$0")/lib.sh"
holds() { # EXPRESSION FILE
	"$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); r = {x["id"]: x for x in d["rungs"]}; sys.exit(not eval(sys.argv[1]))' "$1" "$2" || wrong "$2: not $1"
}
refused() { # STATUS TEXT ARGUMENTS...
	status=$1 text=$2
	shift 2
	run "$status" ladder --plan "$@"
	grep -qF -e "$text" err || wrong "no '$text': $(cat err)"
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "more than one sentence: $(cat err)"
}
data=$source/tests/data/audit

# The document's uplifts: 8B 1.24, 70B 2.11, 405B 1.84.
run 0 ladder --plan "$data/lambda_8b_8xb200_baseline.toml" --cluster 1xHGX-B200 --json=8b
run 0 ladder --plan "$data/lambda_70b_16xb200_baseline.toml" --cluster 2xHGX-B200 --json=70b
run 0 ladder --plan "$data/lambda_405b_128xgb300_baseline.toml" --cluster 128xGB300 --json=405b
holds 'd["together"]["gain"] > json.load(open("405b"))["together"]["gain"] > json.load(open("8b"))["together"]["gain"] > 1' 70b
# What made the 70B job twice as fast: tp 8 -> 1, recomputation full -> selective. The 8B job: three sequences, nothing computed again.
holds 'd["baseline"]["tp"] == 8 and d["top"]["tp"] == 1 and d["baseline"]["recompute"] == 1 and d["top"]["recompute"] < 1' 70b
holds 'max((x["step"]["gain"], x["id"]) for x in d["rungs"] if x["state"] == "taken")[1] == "tp"' 70b
holds 'd["top"]["recompute"] == 0 and d["top"]["micro_batch"] == 3' 8b
for job in 8b 70b 405b; do
	# A rung's gain is inside its interval; those that were taken multiply to all of it, and the top is the last one.
	holds 'all(x[k]["low"] <= x[k]["gain"] <= x[k]["high"] for x in d["rungs"] for k in ("step", "alone", "together") if x[k]["gain"])' $job
	holds 'abs(__import__("math").prod(x["step"]["gain"] for x in d["rungs"] if x["state"] == "taken") / d["together"]["gain"] - 1) < 1e-9' $job
	holds 'abs(d["top"]["tokens_per_second_per_device"] / d["baseline"]["tokens_per_second_per_device"] / d["together"]["gain"] - 1) < 1e-9' $job
	holds 'all((x["step"]["gain"] >= 0.9999) for x in d["rungs"] if x["state"] == "taken")' $job
	holds 'r["qkv"]["state"] == "not told apart" and r["fp8"]["state"] == "beside"' $job
	holds 'd["top"]["memory_bytes"] < (260 if "405" in d["model"] else 178) * 2**30' $job
done
# The baseline is what predict says of the same file, and so is the top of its settings.
run 0 predict "$data/lambda_70b_16xb200_baseline.toml" --cluster 2xHGX-B200 --json=predicted
holds 'abs(json.load(open("predicted"))["step_seconds"]["mid"] / d["baseline"]["step_seconds"] - 1) < 1e-9' 70b
run 0 predict "$data/lambda_70b_16xb200_baseline.toml" --cluster 2xHGX-B200 --json=predicted --set tp=1,micro_batch=1,local_batch=1,recompute=selective,compile=on,compile_loss=on,param_dtype=bf16,optimizer_in_backward=on,grad_reduce=bf16
holds 'abs(json.load(open("predicted"))["step_seconds"]["mid"] / d["top"]["step_seconds"] - 1) < 1e-9' 70b

# Text within 80 columns, a page, a model without a configuration, one GPU, a tuned job.
run 0 ladder --plan "$data/lambda_70b_16xb200_baseline.toml" --cluster 2xHGX-B200 --html page.html
awk 'length > 80' out | grep . && wrong "lines over 80 columns"
grep -q 'What each change gains' page.html || wrong "no picture"
run 0 ladder --plan --model llama-3.1-70b --cluster 2xHGX-B200 --seq 8192 --json=model
holds 'abs(d["together"]["gain"] / json.load(open("70b"))["together"]["gain"] - 1) < 1e-9 and "70B" in d["assumed"]' model
run 0 ladder --plan --model llama-3.2-1b --cluster 1xH100 --seq 8192 --json=single
holds 'd["devices"] == 1 and r["tp"]["state"] == r["hsdp"]["state"] == "nothing to change" and d["together"]["gain"] > 1' single
run 0 ladder --plan "$data/nvidia_8b_8xh100_baseline.args" --cluster 1xHGX-H100 --json=megatron
holds 'r["compile"]["state"] == "nothing to change"' megatron
run 0 ladder --plan --model llama-3.1-8b --cluster 1xHGX-B200 --seq 8192 --global-batch 64 --micro-batch 1 --json=fixed
holds 'all(x["global_batch"] == 64 for x in d["rungs"])' fixed
# A stated batch of a step is several passes of the baseline's own local batch, or of the most that divides it.
run 0 ladder --plan --model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096 --json=own
run 0 ladder --plan --model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096 --global-batch 512 --json=passes
holds 'd["baseline"]["micro_batch"] == 8 and d["baseline"]["global_batch"] == 512 and "micro-batch of 8" in d["assumed"]' passes
holds 'abs(d["baseline"]["mfu_causal"] / json.load(open("own"))["baseline"]["mfu_causal"] - 1) < 0.02' passes
run 0 ladder --plan --model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096 --global-batch 520 --json=part
holds 'd["baseline"]["micro_batch"] == 5 and "micro-batch of 5" in d["assumed"]' part
run 0 ladder --plan --model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096 --micro-batch 2 --recompute selective --json=stated
holds 'd["baseline"]["micro_batch"] == 2 and "batch" not in d["assumed"] and "recomputation" not in d["assumed"]' stated
# An interval has the unit of its figure.
run 0 ladder --plan --model llama-3.1-70b --cluster 8xHGX-H100 --seq 4096
tr -s "\n " "  " <out | grep -q "Baseline:.* [0-9]* tok/s a device ([0-9][0-9]* to [0-9][0-9]*)" || wrong "an interval in another unit: $(cat out)"

# What cannot be.
refused 3 "the baseline takes" --model llama-3.1-405b --cluster 1xHGX-B200 --seq 8192
refused 2 "--cluster" "$data/lambda_8b_8xb200_baseline.toml"
refused 2 "no job is named" --cluster 1xHGX-B200
refused 2 "begins at torchtitan" --model llama-3.1-8b --cluster 1xHGX-B200 --seq 8192 --framework megatron
refused 2 "Q1000" "$data/lambda_8b_8xb200_baseline.toml" --cluster 4xQ1000
head -c 150 "$data/lambda_8b_8xb200_baseline.toml" >half.toml
run '2|3' ladder --plan half.toml --cluster 1xHGX-B200
refused 3 "nowhere.toml" nowhere.toml --cluster 1xHGX-B200

finish
