#!/bin/sh
# flatout scale: each size has its own plan, what is not known says so, and what cannot be is refused.
. "$(dirname "$0")/lib.sh"
number() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); print(eval(sys.argv[1]))' "$1" "$2"; }
holds() { [ "$(number "$1" "$2")" = True ] || wrong "$2: not $1"; }
flat() { tr -s '\n ' '  ' <out | grep -qF -e "$1" || wrong "nowhere '$1': $(head -n 8 out)"; }
refused() { # STATUS HINT ARGUMENTS...
	status=$1 hint=$2
	shift 2
	run "$status" scale "$@"
	grep -qF -e "$hint" err || wrong "no '$hint': $(cat err)"
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "more than one sentence: $(cat err)"
	[ ! -s out ] || wrong "a table beside an error: $(head -n 2 out)"
}
eight="--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128 --framework megatron"
few="--sizes 8,64,16384"

# shellcheck disable=SC2086 # words on purpose, here and below
run 0 scale $eight $few --json=one --html=page.html
valid one
holds '[p["devices"] for p in d["strong"]] == [8, 64, 16384] == [p["devices"] for p in d["weak"]]' one
holds '[p["global_batch"] for p in d["weak"]] == [64, 512, 131072]' one
holds 'all(p["global_batch"] == 128 for p in d["strong"])' one
holds '[p["known"] for p in d["weak"]] == [True, True, False]' one
holds 'all(p["mfu_causal"]["low"] < p["mfu_causal"]["mid"] < p["mfu_causal"]["high"] < 1 for p in d["weak"])' one
holds 'all(a["goodput"]["mid"] > b["goodput"]["mid"] > 0 for a, b in zip(d["weak"], d["weak"][1:]))' one
holds 'all(abs(p["goodput"]["mid"] + p["saving_share"] + p["failing_share"] - 1) < 1e-9 for p in d["weak"])' one
grep -q 'MFU over the number of devices' page.html || wrong "no picture"

# A size is what plan says of it.
run 0 plan --model llama-3.1-8b --cluster 8xHGX-H100 --seq 8192 --global-batch 512 --framework megatron --json=plan
holds 'abs(d["best"][0]["step_seconds"] / json.load(open("one"))["weak"][1]["step_seconds"]["mid"] - 1) < 1e-9' plan

# Money and energy: a device-hour at the rent and the power that are given, over the tokens that count.
run 0 scale $eight --sizes 64 --scaling weak --rent 2 --watts 500 --pue 1.2 --json=price
holds 'd["strong"] == []' price
holds 'all(abs(p["usd_per_billion_tokens"][e] - 2 * p["device_hours_per_billion_tokens"][e]) < 1e-6 * p["usd_per_billion_tokens"][e] for p in d["weak"] for e in ("low", "high"))' price
holds 'all(abs(p["kwh_per_billion_tokens"][e] - 0.6 * p["device_hours_per_billion_tokens"][e]) < 1e-6 * p["kwh_per_billion_tokens"][e] for p in d["weak"] for e in ("low", "high"))' price
holds 'all(abs(p["device_hours_per_billion_tokens"]["low"] * p["kept_tokens_per_second"]["high"] * 3600 / 1e9 / p["devices"] - 1) < 1e-9 for p in d["weak"])' price

# Without failures and saves all of the time counts; checkpoints too seldom or too often cost more than the best.
run 0 scale $eight --sizes 2048 --scaling weak --failures 0 --save 0 --json=never
holds 'd["weak"][0]["goodput"]["mid"] == 1 and d["weak"][0]["goodput"]["low"] == 1' never
for every in 60 6000; do
	run 0 scale $eight --sizes 2048 --scaling weak --checkpoint-every $every --json=other
	holds 'd["weak"][0]["goodput"]["mid"] < '"$(number 'json.load(open("one"))["weak"][1]["goodput"]["mid"]' one)" other
done

# What is not known: in words, in 80 columns; a network that was measured is no guess.
seventy="--model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 --global-batch 512 --framework megatron"
run 0 scale $seventy --sizes 8,1024,16384
flat "does not fit"
flat "the smallest division may take more memory than a device has"
flat "?: not known: no published run"
grep -qE '^ +16384 .* \? +\([0-9]+-[0-9]+\)' out || wrong "no question mark: $(grep 16384 out)"
[ "$(awk 'length > 80' out | wc -l)" = 0 ] || wrong "wide: $(awk 'length > 80' out | head -n 2)"
! grep -qw 'nan\|inf' out || wrong "$(grep -w 'nan\|inf' out)"
run 0 scale $seventy --sizes 1024,16384 --measured-bandwidth 38
! grep -qF '?: not known' out || wrong "not known with a measured network"
run 0 scale --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 24 --sizes 8,64 --framework megatron --scaling weak
run 0 scale --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 17 --sizes 8,16 --framework megatron --scaling weak
flat "no whole number of sequences"

# What cannot be.
refused 2 "--sizes=8,64,1024" $eight --sizes 0
refused 2 "--sizes=8,64,1024" $eight --sizes 8,
refused 2 "--sizes=8,64,1024" $eight --sizes 8,x
refused 2 "--sizes=8,64,1024" $eight --sizes 1e7
refused 2 "104 devices fill whole nodes" $eight --sizes 8,100
refused 2 "'1xHGX-H100' has one" --model llama-3.1-8b --cluster 0xHGX-H100 --seq 8192 --global-batch 128
refused 3 "fits on none of these sizes" --model llama-3.1-405b --cluster 1xHGX-H100 --seq 8192 --global-batch 128 --sizes 8,16
refused 2 "--global-tokens" --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192
refused 2 "2.5, or 2..3" $eight --failures many
refused 2 "is the most that it may be" $eight --failures 1e12
refused 2 "expected 1 or more" $eight --pue 0.5
refused 2 "--watts=700" $eight --watts 0
refused 2 "devices are" $eight --fix tp=3 --sizes 8,16
# fp16 is not called bf16, whose rate it has.
run 0 scale --model llama-3.1-8b --cluster 8xV100-SXM2-32GB --seq 2048 --global-batch 64 --precision fp16 --sizes 8,64
says '2048 tokens, fp16'
finish
