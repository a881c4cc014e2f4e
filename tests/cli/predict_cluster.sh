#!/bin/sh
# flatout predict --cluster: a job of any framework on any cluster; what is refused and what is offered instead.
. "$(dirname "$0")/lib.sh"
data=$source/tests/data/audit
seventy="--model llama-3.1-70b --seq 8192 --global-batch 512"
# number EXPRESSION FILE: of the JSON object d
number() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); print(eval(sys.argv[1]))' "$1" "$2"; }
holds() { [ "$(number "$1" "$2")" = True ] || wrong "$2: not $1"; }
flat() { tr -s '\n ' '  ' <out | grep -qF -e "$1" || wrong "nowhere '$1': $(head -n 8 out)"; }
refused() { # HINT ARGUMENTS...
	hint=$1
	shift
	run 2 predict "$@"
	grep -qF -e "$hint" err || wrong "no '$hint': $(cat err)"
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "more than one sentence: $(cat err)"
}

# shellcheck disable=SC2086 # words on purpose, here and below
run 0 predict $seventy --cluster 16xHGX-H100 --framework megatron --tp 8 --pp 4
flat "dp 4 tp 8 pp 4 ZeRO 1, "
flat "128 micro-batches of 1, bf16"
flat "--measured-bandwidth says what yours reach"
for part in matmul attention tensor pipeline weights optimizer activations; do flat " $part "; done
! grep -qw 'nan' out || wrong "$(grep nan out)"
! awk 'length($0) > 80' out | grep . || wrong "wider than 80 columns"

# The parts are the step, and the sum of memory is the memory; intervals hold their middle; the event-by-event simulation agrees.
run 0 predict $seventy --cluster 16xHGX-H100 --framework megatron --tp 8 --pp 4 --html page.html --svg t.svg --trace t.json --json=one
valid one
holds 'abs(sum(d["parts_seconds"].values()) / d["step_seconds"]["mid"] - 1) < 1e-6' one
holds 'abs(sum(d["memory_parts_bytes"].values()) / d["memory_bytes"]["mid"] - 1) < 1e-6' one
holds 'all(d[k]["low"] <= d[k]["mid"] <= d[k]["high"] for k in ("step_seconds", "mfu", "mfu_causal", "memory_bytes", "tokens_per_second_per_device"))' one
holds 'all(v["low"] <= v["mid"] <= v["high"] for k in ("parts_intervals_seconds", "memory_intervals_bytes") for v in d[k].values())' one
holds 'd["parts_intervals_seconds"]["tensor"]["low"] < d["parts_intervals_seconds"]["tensor"]["high"]' one
holds 'abs(d["simulated_seconds"] / d["step_seconds"]["mid"] - 1) < 0.02' one
holds 'len(d["moves_most"]) == 3 and len(d["rests_on"]) > 3' one
holds 'abs(d["tokens_per_second_per_device"]["mid"] * d["devices"] * d["step_seconds"]["mid"] / (512 * 8192) - 1) < 1e-6' one
valid t.json
grep -q 'stage 3' t.svg || wrong "no stage 3 in the picture"
"$python" -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("t.svg")' || wrong "t.svg is no XML"
grep -q 'From the peak to the MFU' page.html || wrong "no waterfall on the page"
run 0 predict $seventy --cluster 16xHGX-H100 --framework megatron --tp 8 --pp 4 --svg t.svg --html page.html # its own files are written anew
# More micro-batches than are simulated: the page goes without a timeline.
run 0 predict --model llama-3.2-1b --cluster 1xHGX-H100 --seq 128 --global-batch 100000000 --pp 8 --html many.html
echo mine >mine.svg
run 2 predict $seventy --cluster 16xHGX-H100 --tp 8 --svg mine.svg
[ "$(cat mine.svg)" = mine ] || wrong "a file of the user's is gone"

# Readers of frameworks' files, and options before them.
run 0 predict --torchtitan "$data/lambda_70b_16xb200_baseline.toml" --cluster 2xHGX-B200 --json=two
holds 'd["layout"]["tp"] == 8 and d["layout"]["zero"] == 3 and d["device"].startswith("B200")' two
run 0 predict --megatron "$data/nvidia_70b_64xh100_tuned.args" --cluster 8xHGX-H100 --json=three
holds 'd["type"] == "fp8" and d["layout"]["pp"] > 1' three
run 0 predict --megatron='--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --vocab-size 32000 --seq-length 4096
	--micro-batch-size 1 --global-batch-size 256 --tensor-model-parallel-size 2 --bf16 --position-embedding-type rope' --cluster 1xHGX-H100 --json=four
holds 'd["layout"]["tp"] == 2 and d["layout"]["micro_batches"] == 64' four
printf 'model:\n  name: llama-3.1-8b\ndata:\n  seq: 4096\ntrain:\n  rows: 4\n  micro-batches: 8\nmesh:\n  tp: 2\n  ranks: 8\npass:\n  zero: 3\n' >run.yaml
run 0 predict run.yaml --cluster 4xHGX-H100 --json=five
holds 'd["layout"]["tp"] == 2 and d["layout"]["dp"] == 16 and d["layout"]["seq"] == 4096 and d["style"] == "flatout"' five
run 0 predict run.yaml --cluster 4xHGX-H100 --tp 4 --seq 8k --json=six
# What a run file says of fp8 and of its model's dimensions counts; keys that train refuses are named.
printf 'model:\n  name: flatout-134m\n  layers: 3\n  layerz: 4\ndata:\n  seq: 512\nrun:\n  dir: x\npass:\n  fp8: delayed\nbogus: 1\n' >odd.yaml
run 0 predict odd.yaml --cluster 1xHGX-H100 --json=odd
holds 'd["type"] == "fp8" and d["model"] == "flatout-134m, changed"' odd
holds 'd["unread"] == ["odd.yaml:4 model.layerz", "odd.yaml:11 bogus"]' odd
run 0 predict odd.yaml --cluster 1xHGX-H100
flat "odd.yaml:4 model.layerz, odd.yaml:11 bogus: 'flatout train' knows no such keys"
# Stages that Megatron-LM's flags make uneven: 405B has 126 layers, and 128 with both ends.
big="--num-layers 126 --hidden-size 16384 --num-attention-heads 128 --group-query-attention --num-query-groups 8 --ffn-hidden-size 53248"
big="$big --swiglu --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256 --untie-embeddings-and-output-weights"
big="$big --micro-batch-size 1 --global-batch-size 128 --bf16 --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 16"
big="$big --num-virtual-stages-per-pipeline-rank 8 --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
refused "--account-for-embedding-in-pipeline-split" --megatron "$big" --cluster 16xHGX-H100
run 0 predict --megatron "$big --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split" --cluster 16xHGX-H100 --json=ends
holds 'd["layout"]["chunks"] == 8 and d["layout"]["first_layers"] == 7 and d["layout"]["middle_layers"] == 8' ends
run 0 predict --megatron "$big --pipeline-model-parallel-layout 'Et*7|(t*8|)*14t*7,L'" --cluster 16xHGX-H100 --json=layout
holds 'd["layout"]["chunks"] == 1 and d["layout"]["last_layers"] == 7' layout
refused "" --megatron "$big --decoder-first-pipeline-num-layers 5" --cluster 16xHGX-H100
holds 'd["layout"]["tp"] == 4 and d["layout"]["seq"] == 8192' six

# A run file divides its work as train would: stages, shards and rows of a micro-batch.
of_run() { # ROWS MESH-AND-PASSES
	printf 'model:\n  name: llama-3.1-8b\ndata:\n  seq: 8192\ntrain:\n  rows: %s\n  micro-batches: 64\nmesh:\n  ranks: 8\n' "$1" >own.yaml
	printf "$2" >>own.yaml
}
for kind in gpipe 1f1b interleaved zb-h1 zb-h2; do
	of_run 2 "  pp: 4\n  shard: 2\npass:\n  pp: $kind\n"
	run '0|1' predict own.yaml --cluster 1xHGX-H100 --json=own # 1: GPipe keeps more than fits
	holds 'd["layout"]["pp"] == 4 and d["layout"]["dp"] == 2 and d["layout"]["zero"] == 3 and d["layout"]["global_batch"] == 128' own
done
run 0 plan own.yaml --cluster 1xHGX-H100
flat "128 sequences of"
for case in '16 0 1024' '8 0 512' '8 2 512'; do
	# shellcheck disable=SC2086 # three words
	set -- $case
	of_run "$1" "pass:\n  zero: $2\n"
	[ "$2" != 0 ] || of_run "$1" ''
	run '0|1' predict own.yaml --cluster 1xHGX-H100 --json=own
	holds "d['layout']['zero'] == $2 and d['layout']['global_batch'] == $3" own
done
for rows in 4 2; do
	of_run $rows ''
	refused "train.rows=8" own.yaml --cluster 1xHGX-H100
done
of_run 2 '  cp: 2\n  tp: 2\n'
run '0|1' predict own.yaml --cluster 1xHGX-H100 --json=own
holds 'd["layout"]["cp"] == 2 and d["layout"]["tp"] == 2 and d["layout"]["dp"] == 2 and d["layout"]["global_batch"] == 128' own
of_run 2 '  pp: 4\npass:\n  pp-chunks: 2\n'
refused "set pass.pp=interleaved" own.yaml --cluster 1xHGX-H100
of_run 2 '  tp: 0\n'
refused "tp (tensor parallel) is 0" own.yaml --cluster 1xHGX-H100
of_run 2 '  pp: 4\n  shard: 2\n  replicate: 3\n'
refused "make their product 2" own.yaml --cluster 1xHGX-H100

# torchtitan is named whether it compiles or not; --set adds up.
run 0 predict $seventy --cluster 16xHGX-H100 --framework torchtitan --tp 8
flat "as torchtitan without compilation"
run 0 predict $seventy --cluster 16xHGX-H100 --framework torchtitan --set tp=8 --set compile=on --json=own
holds 'd["style"] == "torchtitan" and d["layout"]["tp"] == 8' own

# A slower network and a lower power limit make a step longer.
run 0 predict $seventy --cluster 16xHGX-H100 --tp 8 --pp 4 --json=fast
run 0 predict $seventy --cluster 16xHGX-H100 --tp 8 --pp 4 --measured-bandwidth 2 --json=slow
run 0 predict $seventy --cluster 16xHGX-H100 --tp 8 --pp 4 --power-limit 400 --json=cool
for other in slow cool; do
	[ "$("$python" -c 'import json, sys; a, b = (json.load(open(f))["step_seconds"]["mid"] for f in sys.argv[1:]); print(a < b)' fast $other)" = True ] ||
		wrong "$other is not slower"
done

# What cannot be.
refused "'1xHGX-H100' has one" $seventy --cluster 0xHGX-H100
refused "give one kind: '8xH100'" $seventy --cluster 8xH100+8xA100
refused "50x8xH100" $seventy --cluster 4x100xH100
refused "H200-SXM-141GB" $seventy --cluster 16xHGX-H900
refused "tp 2 does" $seventy --cluster 2xHGX-H100 --tp 3
refused "the next number of devices that fits: 32" $seventy --cluster 2xHGX-H100 --pp 32
refused "lists the options" $seventy --cluster 2xHGX-H100 --tp 0
refused "the next batch that fits: 504" --model llama-3.1-70b --seq 8192 --global-batch 500 --cluster 2xHGX-H100 --tp 2
refused "--global-tokens=999424" --model llama-3.1-70b --seq 8192 --global-tokens 1000000 --cluster 2xHGX-H100
refused "recognised by what it says" --torchtitan "$data/nvidia_70b_64xh100_tuned.args" --cluster 8xHGX-H100
refused "llama-3.1-70b" --cluster 2xHGX-H100
refused "pp 80 is the most" $seventy --cluster 32xHGX-H100 --pp 128
refused "ep 2 divides experts" $seventy --cluster 2xHGX-H100 --ep 2
refused "give --pp too, or leave the schedule out" $seventy --cluster 2xHGX-H100 --schedule interleaved
refused "give --pp too, or leave the chunks out" $seventy --cluster 2xHGX-H100 --chunks 4
refused "80 are all" $seventy --cluster 2xHGX-H100 --recompute full --recompute-layers 99
refused "--seq=1024 is the most" --model gpt2 --seq 8192 --global-batch 64 --cluster 2xHGX-H100
refused "'-1xHGX-H100' is not a cluster" $seventy --cluster=-1xHGX-H100
refused "the arguments:1: the model's layers: -3" --megatron '--num-layers -3 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --vocab-size 32000 --seq-length 4096 --micro-batch-size 1' --cluster 1xHGX-H100
printf '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}' >ds.json
refused "flatout: no model is named" --deepspeed ds.json --cluster 1xHGX-H100
refused "hint: --micro-batch=N" --deepspeed ds.json --model llama-3.1-8b --seq 8192 --cluster 1xHGX-H100
run 3 predict $seventy --cluster 8xTPU-v5p
run 3 predict $seventy --cluster 2xHGX-H100 --precision fp4
run 1 predict --model llama-3.1-405b --seq 8192 --global-batch 512 --cluster 1xHGX-A100
flat "does not fit on these devices"
flat "devices with full recomputation"

# Uneven stages: no part is negative, the parts are the step, and the simulation agrees.
run 0 predict --model llama-3.1-405b --cluster 128xHGX-H100 --seq 8192 --framework megatron --global-batch 2048 --tp 4 --cp 4 --pp 32 --micro-batch 1 --zero 1 --svg uneven.svg --json=uneven
holds 'all(v >= 0 for v in d["parts_seconds"].values())' uneven
holds 'abs(sum(d["parts_seconds"].values()) / d["step_seconds"]["mid"] - 1) < 1e-6' uneven
holds 'abs(d["simulated_seconds"] / d["step_seconds"]["mid"] - 1) < 0.02' uneven
# An interval above the device's memory is a job that does not fit, and none has a low end near nothing.
run 1 predict --model deepseek-v3 --seq 4096 --global-batch 1024 --micro-batch 4 --framework torchtitan --cluster 32xHGX-H100 --json=large
holds 'd["fit"] == "does not fit" and d["memory_bytes"]["low"] > d["usable_bytes"]' large
holds 'd["memory_bytes"]["low"] >= 0.5 * d["memory_bytes"]["mid"]' uneven

# One answer on memory for one configuration: predict says what audit says.
same() { # CLUSTER FILE
	run 0 predict "$2" --cluster "$1" --json=mine
	"$bin" audit "$2" --cluster "$1" --json >theirs || [ $? = 1 ] || wrong "audit $2 fails"
	"$python" - mine theirs <<'END' || wrong "predict and audit do not count the same memory of $2"
import json, sys
p, a = (json.load(open(f)) for f in sys.argv[1:])
m = a["memory"]
assert p["fit"] == m["fit"], (p["fit"], m["fit"])
assert (p["memory_bytes"]["low"], p["memory_bytes"]["high"]) == (m["total_bytes"]["low"], m["total_bytes"]["high"]), m
assert all((p["memory_intervals_bytes"][k]["low"], p["memory_intervals_bytes"][k]["high"]) == (v["low"], v["high"])
           for k, v in m["parts"].items()), m
assert abs(sum(p["memory_parts_bytes"].values()) / p["memory_bytes"]["mid"] - 1) < 1e-6
END
}
same 8xHGX-H100 "$data/nvidia_70b_64xh100_tuned.args"
same 2xHGX-B200 "$data/lambda_70b_16xb200_baseline.toml"
same 4xHGX-H100 run.yaml
gpt3="--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --ffn-hidden-size 49152 --seq-length 2048 --max-position-embeddings 2048"
gpt3="$gpt3 --vocab-size 51200 --micro-batch-size 1 --global-batch-size 128 --bf16 --fp8-format hybrid --transformer-impl transformer_engine"
gpt3="$gpt3 --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 8 --use-distributed-optimizer"
echo "$gpt3" >gpt3.args
same 8xHGX-B200 gpt3.args
run 1 predict --megatron "$(echo "$gpt3" | sed 's/micro-batch-size 1/micro-batch-size 4/')" --cluster 8xHGX-H100 --json=large
holds 'd["fit"] == "does not fit" and d["would_fit"] and d["flag"] == "more memory than the device has"' large

# Names of current releases: what they decide is read, what changes no cost is known, what may change it is named.
printf 'per_device_train_batch_size: 1\nnum_train_epochs: 1\nbf16: true\nactivation_checkpointing: true\nproject: x\nuse_cache: false\nactivation_checkpointing_kwargs:\n  every_n_layers: 2\n' >hf.yaml
run '0|1' predict hf.yaml --model llama-3.2-1b --seq 4096 --cluster 1xHGX-H100 --json=hf
holds 'd["layout"]["recompute"] == 1 and [u.split()[-1] for u in d["unread"]] == ["activation_checkpointing_kwargs.every_n_layers"]' hf
echo '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bfloat16": {"enabled": true}, "zero_optimization": {"stage": 3, "elastic_checkpoint": true}, "dataloader_drop_last": true}' >ds.json
run '0|1' predict ds.json --model llama-3.2-1b --seq 4096 --cluster 1xHGX-H100 --json=ds
holds 'd["type"] == "bf16" and d["unread"] == []' ds
run '0|1' predict --megatron "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 --inprocess-restart --one-logger-project x --rl-profile --window-size 128" --model llama-3.1-8b --cluster 1xHGX-H100 --json=meg
holds '[u.split()[-1] for u in d["unread"]] == ["--window-size"]' meg

# A device without the number type, and power limits that it does not have.
eight="--model llama-3.1-8b --seq 8192 --global-batch 64"
run 3 predict $eight --cluster 8xV100-SXM2-32GB
grep -qF -e "no dense bf16 peak of V100" err || wrong "$(cat err)"
run 1 predict $eight --cluster 8xV100-SXM2-32GB --precision fp16
flat "of 125 TFLOP/s (fp16)"
flat "Doubt: no run on a V100 is fitted"
for device in 8xMI300X 1xHGX-H100; do
	run 3 predict $eight --cluster $device --precision mxfp8
	grep -qF -e "no units for mxfp8" err || wrong "$(cat err)"
done
run 0 predict $eight --cluster 8xMI355X --precision mxfp8
# A mixture of experts that fits once its experts are divided further.
run 1 predict --model deepseek-v3 --seq 4096 --global-batch 256 --micro-batch 1 --cluster 32xHGX-H100 --framework torchtitan --recompute full --zero 3 --json=experts
holds '"ep " in d["would_fit"] and "no division" not in d["would_fit"]' experts
printf '[model]\nname = "deepseek_v3"\nflavor = "671B"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n' >experts.toml
printf '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n' >>experts.toml
run 1 predict experts.toml --cluster 32xHGX-H100 --json=experts
holds '"ep " in d["would_fit"] and "no division" not in d["would_fit"]' experts
printf 'device: H100\nnodes: 1\nper_node: 8\nmemory_gb: 96\n' >more.yaml
run '0|1' predict $eight --cluster more.yaml
flat "the catalogue's H100-SXM5-80GB has 80 GB"
for watts in 50 5000; do refused "leave it out" $eight --cluster 1xHGX-H100 --power-limit $watts; done

# Memory of Flatout's own job is what the executor plans for the same file, to the byte.
printf 'model:\n  name: llama-3.2-1b\ndata:\n  seq: 256\ntrain:\n  rows: 4\n  micro-batches: 3\nmesh:\n  ranks: 4\n  shard: 2\n  tp: 2\npass:\n  zero: 3\n  recompute: none\n' >own.yaml
run 0 predict own.yaml --cluster 4xH100-SXM5-80GB --json=own
holds 'd["memory_planned"] and d["memory_not_planned"] is None' own
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	for _ in $(seq 300); do echo 'a line of some book'; done >book.txt
	"$bin" train own.yaml --dry-run --data.path=book.txt --json=dry >/dev/null 2>&1 || : # a machine with less memory refuses it, and says the plan
	"$python" - <<'END' || wrong "predict's memory is not what train --dry-run plans"
import json, sys
own, dry = json.load(open("own")), json.load(open("dry"))["memory"]
said = sum(v for k, v in own["memory_parts_bytes"].items() if k != "reserve")
sys.exit(said * 4 != dry["arena_bytes"] + dry["persistent_bytes"])
END
fi
# What changes the file is not planned, and says so.
run 0 predict own.yaml --cluster 4xH100-SXM5-80GB --seq 512
flat "Not planned: the memory is an estimate: options change what the run file says"
finish
