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
flat "What more would give at least"
! grep -q 'nan' out || wrong "$(grep nan out)"

run 0 plan $eight --framework megatron --top 12 --json=one
valid one
holds 'd["timed"] + d["too_large"] == d["legal"] and d["timed"] > 100' one
holds 'all(a["step_seconds"] <= b["step_seconds"] for a, b in zip(d["points"], d["points"][1:]))' one
holds 'd["best"][0]["step_seconds"] <= 1.05 * d["points"][0]["step_seconds"]' one
holds 'd["ties"] > 12' one # more than rows are shown
holds 'all(p["memory_bytes"] < 80 * 2**30 and p["zero"] <= 1 for p in d["points"])' one
holds 'all(p["step_seconds_low"] < p["step_seconds"] < p["step_seconds_high"] for p in d["points"])' one
holds 'd["settings"]["megatron"] is not None and d["settings"]["deepspeed"] is None or d["best"][0]["tp"] == d["best"][0]["pp"] == d["best"][0]["cp"] == 1' one

# The time that is planned is the time that is predicted.
"$python" -c 'import json
d = json.load(open("one"))
open("args", "w").write(d["settings"]["megatron"] + "--num-layers 32 --hidden-size 4096 --num-attention-heads 32\n")' || wrong "no arguments"
run 0 predict --megatron args --model llama-3.1-8b --cluster 2xHGX-H100 --json=two
holds 'abs(d["step_seconds"]["mid"] / json.load(open("one"))["best"][0]["step_seconds"] - 1) < 1e-6' two

# Experts are whole, as the prediction has them: the arguments divide as the plan does.
run 0 plan --model deepseek-v3 --cluster 32xHGX-H100 --seq 4096 --global-batch 4096 --framework megatron --json=moe
holds 'd["best"][0]["ep"] > 1' moe
"$python" -c 'import json
open("args", "w").write(json.load(open("moe"))["settings"]["megatron"])' || wrong "no arguments"
run 0 predict --megatron args --model deepseek-v3 --cluster 32xHGX-H100 --json=two
holds 'abs(d["step_seconds"]["mid"] / json.load(open("moe"))["best"][0]["step_seconds"] - 1) < 1e-6' two

# A torchtitan file names its model, or says that it does not.
for model in deepseek-v3 qwen3-32b llama-4-scout; do
	run 0 plan --model $model --cluster 32xHGX-H100 --seq 4096 --global-batch 1024 --framework torchtitan --json=titan
	"$python" -c 'import json
open("titan.toml", "w").write(json.load(open("titan"))["settings"]["torchtitan"])' || wrong "no file"
	run 0 predict --torchtitan titan.toml --cluster 32xHGX-H100
	flat "$model on 256 x"
done

# Megatron Bridge keeps gradients in 16 or 32 bits: Megatron-LM's arguments, with 32, fit too. DeepSpeed's buckets and
# logits take more than torchtitan's.
run 0 plan --model qwen3-32b --cluster 4xHGX-H200 --seq 32768 --global-batch 64 --framework megatron-bridge
flat "Settings: Megatron-LM (arguments)"
run 0 plan --model llama-3.1-8b --cluster 1xHGX-H100 --seq 8192 --global-batch 128 --framework torchtitan
flat "DeepSpeed (JSON): cannot state it: with its habits it may not fit"

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

holds 'abs(d["best"][0]["device_hours_per_million_tokens"] * 3600 * d["best"][0]["tokens_per_second_per_device"] / 1e6 - 1) < 1e-9' cost
run 0 plan $eight --objective cost
flat "no price is used"
flat "expo% cost"

# What to take is a row, and rows fit 80 columns.
seventy="--model llama-3.1-70b --cluster 16xHGX-H100 --seq 8192 --global-batch 512"
run 0 plan $seventy --top 1
grep -q '^  > dp' out || wrong "what to take is no row: $(grep '^  [>=]' out)"
run 0 plan $seventy --top 1 --json=row
holds 'd["points"][d["named"]] == d["best"][0]' row
run 0 plan $seventy --top 12
[ "$(sed '/^Settings/,$d' out | awk 'length > 80' | wc -l)" = 0 ] || wrong "wide: $(awk 'length > 80' out | head -n 2)"

# Stages that Megatron-LM can have: 126 layers and two more on 32, not on 36.
huge="--model llama-3.1-405b --seq 8192 --framework megatron"
run 0 plan $huge --cluster 128xHGX-H100 --global-batch 2048 --pp 32
flat "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
run 0 plan $huge --cluster 144xHGX-H100 --global-batch 2304 --pp 18
! grep -q 'account-for' out || wrong "18 stages divide 126 layers"
refused 2 "is the nearest that works" $huge --cluster 144xHGX-H100 --global-batch 2304 --pp 36

# Number types: what settings can state, and by name what they cannot; no run.yaml that 'train' refuses.
small="--model llama-3.2-1b --cluster 1xHGX-B200 --seq 8192 --global-batch 32 --framework torchtitan --fix tp=1,cp=1,pp=1"
run 0 plan $small --precision fp8
flat 'converters = ["quantize.linear.float8"]'
flat "torchtitan has no flavor of this model that plan knows"
value=$(sed -n 's/^ *fp8: //p' out)
if "$FLATOUT_BIN" train --help >help 2>/dev/null; then # where it has an engine
	tr -s '\n ' '  ' <help | grep -qE -e "--pass.fp8 NAME [^(]*\([^)]*\)[^(]*\([^)]*\)[^(]*\([^)]*[ ;]$value[,)]" || wrong "train has no pass.fp8=$value"
fi
run 0 plan $small --precision mxfp8
flat 'converters = ["quantize.linear.mx"]'
flat "run.yaml: cannot state it: its settings cannot state mxfp8."
run 0 plan $small --precision fp4
flat "torchtitan (TOML): cannot state it: its settings cannot state fp4."
run 0 plan $small --precision fp16
flat '"fp16": {"enabled": true}'
run 0 plan $small --precision fp32
flat "precision: fp32"
# Several number types and formats of states: searched where they are named, said where they are not.
run 0 plan $eight --framework megatron --precision bf16,fp8 --state fp32,bf16 --json=numbers
holds '{p["precision"] for p in d["points"]} <= {"bf16", "fp8"} and d["type"] == d["best"][0]["precision"] == "fp8"' numbers
holds 'd["best"][0]["step_seconds"] <= 1.05 * d["points"][0]["step_seconds"] < json.load(open("one"))["points"][0]["step_seconds"]' numbers
holds '{p["precision"] + p["state"] for p in d["points"]} == {"bf16fp32"} and d["more"][5]["with"] == "fp8" and d["more"][5]["times"] > 1.2' one
run 0 plan $eight --framework megatron --precision fp8,bf16 --state bf16 --fix zero=1,tp=2,cp=1 --json=numbers
holds '{p["state"] for p in d["points"]} == {"bf16"} and "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16" in d["settings"]["megatron"]' numbers
"$python" -c 'import json
open("args", "w").write(json.load(open("numbers"))["settings"]["megatron"] + "--num-layers 32 --hidden-size 4096 --num-attention-heads 32\n")' || wrong "no arguments"
run 0 predict --megatron args --model llama-3.1-8b --cluster 2xHGX-H100 --json=two
holds 'abs(d["step_seconds"]["mid"] / json.load(open("numbers"))["best"][0]["step_seconds"] - 1) < 1e-6' two
run 0 plan $eight --framework torchtitan --precision any --state any --json=numbers
holds 'd["settings"]["torchtitan"] and {p["state"] for p in d["points"]} <= {"fp32", "all-bf16"}' numbers
run 0 price numbers
refused 2 "searches both" $eight --precision fp9
refused 2 "searches both" $eight --state bf16,
refused 2 "it has fp32, bf16, 8bit" $eight --framework megatron --state split
refused 2 "it has bf16, fp32, fp16" $eight --framework deepspeed --precision fp8,bf16
refused 2 "it has bf16, fp8, fp32, fp16" $eight --framework megatron --precision fp8,mxfp8
refused 2 "name one of them" $eight --precision fp16,bf16
refused 2 "name one of them" $eight --precision fp8,fp16
refused 2 "name one of them" $eight --precision fp16,any
refused 2 "leave out what was asked of number type, states or ZeRO stage" $eight --framework megatron --state bf16 --zero 0

run 0 plan --model llama-3.2-1b --cluster 256xHGX-H100 --seq 8192 --global-batch 2048 --framework flatout --fix pp=1,tp=1
flat "takes at most 1024 ranks"
run 0 plan --model gpt2 --cluster 1xHGX-H100 --seq 1024 --global-batch 32 --framework flatout
flat "run.yaml: cannot state it: Flatout cannot train this model"

# What a plan takes fits by the prediction of the run.yaml that it prints.
for framework in megatron torchtitan deepspeed flatout; do
	run 0 plan $eight --framework $framework --fix pp=1,tp=1,cp=1 --json=fits
	"$python" -c 'import json
t = json.load(open("fits"))["settings"]["flatout"]
open("fits.yaml", "w").write(t or "")' || wrong "no settings"
	[ -s fits.yaml ] || continue
	run 0 predict fits.yaml --cluster 2xHGX-H100 --json=fit
	holds 'd["fit"] == "fits"' fit
done
[ -s fits.yaml ] || wrong "no run.yaml of a plan for Flatout"

# One model of memory: predict and audit say of a plan's settings, to the byte, what the plan says of its division.
for framework in torchtitan megatron; do
	run 0 plan --model deepseek-v3 --seq 4096 --global-tokens 16M --cluster 64xHGX-H100 --framework $framework --json=own
	"$python" -c 'import json, sys
open("own.conf", "w").write(json.load(open("own"))["settings"][sys.argv[1]])' $framework || wrong "no settings"
	set -- --model deepseek-v3 --cluster 64xHGX-H100
	run 0 predict own.conf "$@" --json=predicted
	"$bin" audit own.conf "$@" --json >audited || [ $? = 1 ] || wrong "audit of the plan's settings fails"
	"$python" - <<'END' || wrong "plan, predict and audit differ in the memory of a plan for $framework"
import json
plan, predicted, audited = (json.load(open(f)) for f in ("own", "predicted", "audited"))
m, a = predicted["memory_bytes"], audited["memory"]
best = plan["points"][plan["named"]]["memory_bytes"]
assert predicted["fit"] == a["fit"] == "fits", (predicted["fit"], a["fit"])
assert (m["low"], m["high"]) == (a["total_bytes"]["low"], a["total_bytes"]["high"]), (m, a["total_bytes"])
assert abs(best / m["mid"] - 1) < 1e-6, (best, m)
END
done

# From a configuration as it is: its own batch and sequence, changes that gain one after the other.
titan=$source/tests/data/audit/lambda_70b_16xb200_baseline.toml
run 0 plan --torchtitan "$titan" --cluster 2xHGX-B200 --json=from
holds 'd["from_seconds"] > d["best"][0]["step_seconds"] and d["seq"] == 8192' from
holds 'all(c["after_seconds"] < c["before_seconds"] and c["fields"] for c in d["changes"]) and len(d["changes"]) > 0' from
holds 'd["changes"][-1]["after_seconds"] <= 1.01 * d["best"][0]["step_seconds"]' from
run 0 plan --torchtitan "$titan" --cluster 2xHGX-B200
flat "From the configuration as it is"
own="--megatron $source/examples/health/pretrain.sh --cluster 1xHGX-H100"
run 0 plan $own --json=from
holds 'all(c["after_seconds"] < 0.999 * c["before_seconds"] for c in d["changes"]) and d["from_fits"]' from
holds 'd["changes"][-1]["after_seconds"] <= 1.01 * d["best"][0]["step_seconds"]' from
run 0 plan $own
! grep -qE "from 1 to 1([^0-9]|$)" out || wrong "no change: $(grep 'from 1 to 1' out)"
run 0 plan --torchtitan "$titan" --cluster 4xHGX-H100 --set recompute=none # of what it starts from
flat "From the configuration as it is, which does not fit in memory:"

# What cannot be.
refused 2 "--recompute fixes it" $eight --set recompute=full,pp=4
refused 2 "--tp fixes it" $eight --set seq=8192,tp=4
refused 2 "--shard=8" $eight --replicate 2
refused 2 "--global-batch=512" $eight --micro-batches 4
refused 2 "--recompute=none" $eight --recompute-layers 3
refused 2 "tp=8" $eight --fix tp
refused 2 "tp, cp, pp" $eight --fix speed=2
refused 2 "from 1 to 1000000" $eight --fix tp=inf
refused 2 "devices are" $eight --fix tp=3
refused 2 "--global-tokens" --model llama-3.1-8b --cluster 2xHGX-H100 --seq 8192
refused 2 "--seq" --model llama-3.1-8b --cluster 2xHGX-H100 --global-batch 8
refused 2 "has one for each device; 7 have a division on 1 of the devices" $eight --framework deepspeed --global-batch 7
refused 2 "of one device, one direction" $eight --measured-bandwidth 1e9
refused 2 "give one kind" --model llama-3.1-8b --cluster 8xH100+8xA100 --seq 8192 --global-batch 128
# Odd numbers of devices: the nearest batch and the part of the devices that work do.
odd="--model llama-3.1-8b --seq 8192"
refused 2 "a batch of 120 sequences has 5 for each device; 128 have a division on 16 of the devices" $odd --cluster 3xHGX-H100 --global-batch 128
run 0 plan $odd --cluster 3xHGX-H100 --global-batch 120
run 0 plan $odd --cluster 2xHGX-H100 --global-batch 128
refused 2 "1024 have a division on 512 of the devices" $odd --cluster 1000xH100 --global-batch 1024
run 0 plan $odd --cluster 512xH100 --global-batch 1024
run 0 plan $odd --cluster 1000xH100 --global-batch 1000 --json=thousand
holds 'd["best"][0]["dp"] * d["best"][0]["tp"] * d["best"][0]["cp"] * d["best"][0]["pp"] == 1000' thousand
run 0 plan $odd --cluster 16xHGX-H100 --global-batch 4 --json=few
holds 'all(p["dp"] <= 4 and p["dp"] * p["micro_batch"] * p["micro_batches"] == 4 for p in d["points"])' few
run 1 plan --model llama-3.1-8b --seq 1048576 --cluster 1xHGX-H100 --global-batch 8
flat "32 such devices would hold it"
run 0 plan --model llama-3.1-8b --seq 1048576 --cluster 4xHGX-H100 --global-batch 8
run 1 plan --model deepseek-v3 --seq 4096 --cluster 1xHGX-H100 --global-batch 64
run 0 plan --model mixtral-8x7b --seq 4096 --cluster 2xHGX-H100 --global-batch 64 --json=moe
holds 'all(8 % p["ep"] == 0 for p in d["points"])' moe

# One more node; a part of the devices that is faster than all of them, which is the plan for that part.
run 0 plan --model llama-3.2-1b --seq 8192 --cluster 1xH100 --global-batch 8
flat "1 more device "
! grep -q "^Fewer" out || wrong "fewer than one device"
slow="--model llama-3.2-1b --seq 1024 --global-batch 64 --measured-bandwidth 0.2 --framework deepspeed"
run 0 plan $slow --cluster 8xHGX-H100
flat "fewer devices are faster: 8 of 64 take"
flat "More devices: not possible, no number of them up to 128 has a division for a batch of 64 sequences"
run 0 plan $slow --cluster 8xHGX-H100 --json=slow
run 0 plan $slow --cluster 1xHGX-H100 --json=part
holds 'd["fewer_devices"] == 8 and d["fewer"] == json.load(open("part"))["best"]' slow
holds '[m["gains"] for m in d["more"][:5]] == ["no", "yes", "no", "yes", "not possible"]' slow
holds 'd["fewer_devices"] == 0 and d["fewer"] == [] and d["more"][4]["devices"] == 16 and d["more"][4]["times"] < 1' part
run 0 price slow
# More devices than anyone published: one mark and one sentence, here and wherever the plan goes.
many="--model llama-3.1-8b --cluster 512xHGX-H100 --seq 8192 --global-batch 4096 --fix tp=1,pp=1,cp=1"
run 0 plan $many
flat "% ? mfu_causal"
flat "no published run behind the prediction has more than 2048 devices"
run 0 plan $many --json=many
holds '"no published run" in d["size_doubt"]' many
run 0 price many
flat "?: the plan: no published run behind"
run 0 compare many many
flat "?: B: no published run behind"
run 0 plan $many --measured-bandwidth 40
! grep -q 'no published run' out || wrong "the network was measured"
run 0 plan $eight --json=few
holds 'd["size_doubt"] is None' few
run 0 predict --model llama-3.1-8b --framework torchtitan --cluster 512xHGX-H100 --seq 8192 --global-batch 4096
flat "% ? ("
# What a plan says of recomputation can be given back, also to predict: a part of the layers.
again="--model llama-3.1-405b --cluster 16xHGX-H100 --seq 8192 --global-batch 128"
for word in quarter half three-quarters; do
	run 0 plan $again --recompute $word --json=again
	holds "all(p['recompute'] == '$word' for p in d['points'] + d['best'])" again
done
run 0 predict --model llama-3.1-8b --framework flatout --cluster 1xHGX-H100 --seq 8192 --global-batch 8 --recompute half --json=half
holds 'abs(d["layout"]["recompute"] - 0.5) < 1e-9' half
refused 2 "leave one of them out" --model llama-3.1-8b --torchtitan "$titan" --cluster 2xHGX-B200 --recompute half --recompute-layers 3
# What does not fit is said as predict says it, with its status.
large="--model llama-3.1-405b --cluster 1xHGX-H100 --seq 8192 --global-batch 128"
run 1 plan $large
flat "llama-3.1-405b does not fit on these devices: the smallest of"
flat "such devices would hold it"
run 1 plan $large --json=large
holds 'd["fit"] == "does not fit" and d["smallest_bytes"] > d["usable_bytes"] and d["devices_that_hold_it"] == 112 and d["batch_that_they_hold"] == 128' large
run 0 plan --model llama-3.1-405b --cluster 14xHGX-H100 --seq 8192 --global-batch 128 --json=held
holds 'd["timed"] > 0' held
run 1 predict --model llama-3.1-405b --cluster 1xHGX-H100 --seq 8192 --global-batch 128
flat "llama-3.1-405b does not fit on these devices:"
run 1 predict --model deepseek-v3 --framework torchtitan --cluster 32xHGX-H100 --seq 4096 --global-batch 1024
flat "full recomputation with ep 8 would"

# A limit of power and what a device lacks are checked as predict does.
refused 2 "leave it out for the device's own" $eight --power-limit 50
refused 3 "--precision=fp16" --model llama-3.2-1b --cluster 8xV100-SXM2-32GB --seq 2048 --global-batch 64
run 0 plan $eight --framework torchtitan --power-limit 500 --json=limited
run 0 plan $eight --framework torchtitan --json=free
holds 'd["best"][0]["step_seconds"] > json.load(open("free"))["points"][0]["step_seconds"]' limited
refused 2 "leave one of them out" $eight --fix tp=2,tp=4
refused 2 "leave one of them out" $eight --fix tp=2 --tp 4
refused 2 "leave one of them out" $eight --chunks 2 --schedule 1f1b
refused 2 "leave one of them out" $eight --chunks 2 --pp 1
run 2 plan $eight --framework megatron --schedule zero-bubble
grep -q "no schedule of Megatron-LM of the kind that is fixed" err || wrong "$(cat err)"
# A pipeline's run file is one that the executor takes.
run 0 plan --model llama-3.1-8b --cluster 6xH100-SXM5-80GB --seq 8192 --global-batch 96 --framework flatout --pp 3 --json=stages
python3 -c 'import json; open("stages.yaml", "w").write(json.load(open("stages"))["settings"]["flatout"])'
grep -q "^  pp: 3$" stages.yaml || wrong "no three stages: $(cat stages.yaml)"
grep -q "^  pp-layers: 11,11,10$" stages.yaml || wrong "not the layers that were planned: $(cat stages.yaml)"
run 0 config stages.yaml
refused 2 "1F1B takes as long" $eight --schedule gpipe
# The first stages alone recompute: the model's first layers of the run file, which predict reads so.
run 0 plan --model llama-3.1-8b --seq 16384 --cluster 4xA100-SXM4-80GB --global-batch 16 --framework flatout --fix pp=4,tp=1,cp=1 --json=front
"$python" -c 'import json
open("front.yaml", "w").write(json.load(open("front"))["settings"]["flatout"])'
holds 'd["best"][0]["recompute"] == "first-stages" and 0 < d["best"][0]["recompute_stages"] < 4' front
run 0 predict front.yaml --cluster 4xA100-SXM4-80GB --json=two
holds 'abs(d["step_seconds"]["mid"] / json.load(open("front"))["best"][0]["step_seconds"] - 1) < 1e-6' two

# Changes reach a division that fits by the plan of its program alone: the estimate's most is more than the memory.
printf 'model:\n  name: llama-3.1-8b\ndata:\n  seq: 8192\ntrain:\n  rows: 8\n  micro-batches: 4\nmesh:\n  ranks: 8\n  tp: 8\npass:\n  recompute: full\n' >full.yaml
run 0 plan full.yaml --cluster 8xA100-SXM4-40GB --fix pp=1,cp=1,tp=4 --json=planned
holds 'd["best"][0]["memory_planned"] and d["changes"][-1]["after_seconds"] == d["best"][0]["step_seconds"] < 0.8 * d["from_seconds"]' planned

# Ranks of a machine that was measured: the time that is planned is the one that is predicted, what a flag says is kept.
profile=$source/fuzz/corpus/profile/two_cores.json
printf 'model:\n  name: flatout-134m\n  layers: 2\n  hidden: 128\n  heads: 4\n  kv-heads: 2\n  ffn: 256\n  vocab: 512\ndata:\n  seq: 128\ntrain:\n  rows: 2\n  micro-batches: 2\nmesh:\n  tp: 2\n' >run.yaml
run 0 plan run.yaml --profile "$profile" --link-gbps=1 --top 0 --json=mesh
holds 'd["ranks"] == 2 and d["simulated"] == len(d["points"]) > 30 and d["simulated"] + d["refused"] == d["tried"]' mesh
holds 'all(a["step_seconds"]["mid"] <= b["step_seconds"]["mid"] for a, b in zip(d["points"], d["points"][1:]))' mesh
holds 'd["model"] == "custom"' mesh
run 0 plan run.yaml --profile "$profile" --link-gbps=1 --top 0
[ "$(sed -n '/^  mesh /,/^  > is/p' out | awk 'length > 80' | wc -l)" = 0 ] || wrong "wide: $(awk 'length > 80' out | head -n 2)"
holds 'len(set(p["options"] for p in d["points"])) == len(d["points"]) and {p["pp"] for p in d["points"]} == {p["tp"] for p in d["points"]} == {1, 2}' mesh
for i in 0 7 -1; do
	run 0 predict run.yaml --profile "$profile" --link-gbps=1 $(number "d['points'][$i]['options']" mesh) --json=one
	holds "d['ranks']['step_seconds']['mid'] == json.load(open('mesh'))['points'][$i]['step_seconds']['mid']" one
done
run 0 plan run.yaml --profile "$profile" --mesh.pp=2 --pass.pp=zb-h1
flat "dp 1 pp 2 zb-h1"
! grep -q 'tp 2' out || wrong "$(grep 'tp 2' out)"
run 0 plan run.yaml --profile "$profile" --ranks=1 --fix micro-batch=2
flat "2 micro-batches of 2 rows"
refused 2 "" run.yaml --profile "$profile" --ranks=3 --fix pp=1,tp=1,cp=1
refused 2 "" run.yaml --profile "$profile" --ranks=2 --fix ep=2
run 1 plan run.yaml --profile "$profile" --memory.limit=1MiB
finish
