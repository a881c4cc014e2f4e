#!/bin/sh
# flatout plan: the best division, ties, what is fixed, what cannot be.
. "$(dirname "$0")/lib.sh"
number() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); print(eval(sys.argv[1]))' "$1" "$2"; }
holds() { [ "$(number "$1" "$2")" = True ] || wrong "$2: not $1"; }
flat() { tr -s '\n ' '  ' <out | grep -qF -e "$1" || wrong "nowhere '$1': $(head -n 8 out)"; }
refused() { # STATUS HINT ARGUMENTS...
	status=$1 hint=$2
	shift 2
	run "$status" plan "$@"
	grep -qF -e "$hint" err || wrong "no '$hint': $(cat err)"
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "more than one sentence: $(cat err)"
}
eight="--model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192 --global-batch 128"

# shellcheck disable=SC2086 # words on purpose, here and below
run 0 plan $eight --framework torchtitan
flat "legal divisions in"
flat "Settings: torchtitan (TOML)"
flat "Why others lose to the fastest"
flat "What twice of it would give at least"
! grep -q 'nan' out || wrong "$(grep nan out)"

run 0 plan $eight --framework megatron --top 12 --json=one
valid one
holds 'd["timed"] + d["too_large"] == d["legal"] and d["timed"] > 100' one
holds 'all(a["step_seconds"] <= b["step_seconds"] for a, b in zip(d["points"], d["points"][1:]))' one
holds 'd["best"][0]["step_seconds"] <= 1.05 * d["points"][0]["step_seconds"]' one
holds 'all(p["memory_bytes"] < 80 * 2**30 and p["zero"] <= 1 for p in d["points"])' one
holds 'all(p["step_seconds_low"] < p["step_seconds"] < p["step_seconds_high"] for p in d["points"])' one
holds 'd["settings"]["megatron"] is not None and d["settings"]["deepspeed"] is None or d["best"][0]["tp"] == d["best"][0]["pp"] == d["best"][0]["cp"] == 1' one

# The time that is planned is the time that is predicted.
"$python" -c 'import json
d = json.load(open("one"))
open("args", "w").write(d["settings"]["megatron"] + "--num-layers 32 --hidden-size 4096 --num-attention-heads 32\n")' || wrong "no arguments"
run 0 predict --megatron args --model llama-3.1-8b --cluster 2xHGX-H100 --json=two
holds 'abs(d["step_seconds"]["mid"] / json.load(open("one"))["best"][0]["step_seconds"] - 1) < 1e-6' two

# What is fixed, in either way, and one hand's numbers.
run 0 plan $eight --fix tp=4,zero=1 --json=fix
run 0 plan $eight --tp 4 --zero 1 --json=option
holds 'all(p["tp"] == 4 and p["zero"] == 1 for p in d["points"])' fix
holds '[p["step_seconds"] for p in d["points"]] == [p["step_seconds"] for p in json.load(open("fix"))["points"]]' option
run 0 plan $eight --objective cost --json=cost
run 0 plan $eight --json=time
holds 'd["devices"] * d["points"][0]["step_seconds"] <= 16 * json.load(open("time"))["points"][0]["step_seconds"]' cost
run 0 plan $eight --html page.html
grep -q 'Plan: llama-3.1-8b' page.html || wrong "no page"

# What cannot be.
refused 2 "tp=8" $eight --fix tp
refused 2 "tp, cp, pp" $eight --fix speed=2
refused 2 "devices are" $eight --fix tp=3
refused 2 "--global-tokens" --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192
refused 2 "--seq" --model llama-3.1-8b --cluster 2xHGX-H100 --global-batch 8
refused 2 "has one for each device" $eight --framework deepspeed --global-batch 7
refused 2 "give one kind" --model llama-3.1-8b --cluster 8xH100+8xA100 --seq 8192 --global-batch 128
refused 3 "devices hold it" --model llama-3.1-405b --cluster 1xHGX-H100 --seq 8192 --global-batch 128
refused 2 "1F1B takes as long" $eight --schedule gpipe

finish
