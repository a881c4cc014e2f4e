#!/bin/sh
# flatout audit: published baselines and what their publishers changed, exit codes, JSON, files that are none.
. "$(dirname "$0")/lib_expect.sh"
bin=$FLATOUT_BIN
data=$FLATOUT_SOURCE/tests/data/audit
wrong() { echo "FAILED: audit: $*"; failed=1; }
cd "$tmp" || exit 1
for nodes in 32 64; do sed "s/nodes: 1/nodes: $nodes/" "$data/h100_96gb.yaml" >h$nodes.yaml; done
cp "$data/h100_96gb.yaml" h1.yaml

# found FILE CLUSTER: "level id" of each finding, in order
found() {
	"$bin" audit "$data/$1" --cluster "$2" --json 2>err | python3 -c '
import json, sys
for f in json.load(sys.stdin)["findings"]:
    print(f["level"], f["id"])' >found || wrong "$1: no JSON: $(cat err)"
}
# names ID...: all of them are found; "A<B": A before B
names() {
	for id in "$@"; do
		for one in $(echo "$id" | tr '<' ' '); do
			cut -d' ' -f2 found | grep -qxF "$one" || wrong "$file: '$one' is not found in: $(tr '\n' ',' <found)"
		done
		case $id in *"<"*) ;; *) continue ;; esac
		[ "$(cut -d' ' -f2 found | grep -nxF "${id%<*}" | cut -d: -f1)" -lt "$(cut -d' ' -f2 found | grep -nxF "${id#*<}" | cut -d: -f1)" ] ||
			wrong "$file: not $id: $(tr '\n' ',' <found)"
	done
}
no_serious() { ! grep -q ^serious found || wrong "$file: serious: $(tr '\n' ',' <found)"; }

# What the publishers changed, in the order of what it gave them where they say that, and nothing serious once they had
# (tests/data/audit/README.md).
pair() { # NAME CLUSTER ID...
	name=$1 cluster=$2
	shift 2
	file=${name}_baseline.toml
	found "$file" "$cluster"
	names "$@"
	file=${name}_tuned.toml
	found "$file" "$cluster"
	no_serious
	for id; do
		# Lambda kept tensor parallel 2 and bf16; two chunks halve a bubble and do not end it.
		case $id in *"<"* | micro-batch | tensor-more-than-needed | fp8-unused | pipeline-bubble) continue ;; esac
		! grep -qx "advice $id" found || wrong "$file: '$id' was changed and is still found"
	done
}
pair titan_8b_8xh100 h1.yaml compile fp8-unused # published 1.16 and 1.28: the two intervals overlap
pair titan_70b_256xh100 h32.yaml tensor-overlap
pair titan_405b_512xh100 h64.yaml pipeline-bubble
pair lambda_8b_8xb200 1xHGX-B200 compile recompute-selective micro-batch 'compile<grad-reduce-fp32'
pair lambda_70b_16xb200 2xHGX-B200 'tensor-more-than-needed<compile' 'recompute-full<compile' 'compile<grad-reduce-fp32'
pair lambda_405b_128xgb300 128xGB300 recompute-full micro-batch tensor-more-than-needed grad-reduce-fp32 hybrid-sharding
for one in nvidia_8b_8xh100_tuned,1xHGX-H100 nvidia_70b_64xh100_tuned,8xHGX-H100 nvidia_405b_1024xh100_tuned,128xHGX-H100 \
	nvidia_405b_256xgb200_tuned,256xGB200 nvidia_8b_8xh100_baseline,1xHGX-H100; do
	file=${one%,*}.args
	found "$file" "${one#*,}"
	no_serious
done

# ---- what it says ----

printf '{"zero_optimization": {"stage": 2}}\n' >one.json
A="audit $data/lambda_70b_16xb200_baseline.toml --cluster 2xHGX-B200"
expect 0 "Audit:   no serious finding" $A
expect 0 "GiB a device: fits" $A
expect 0 "activations" $A
expect 0 "parallelism.tensor_parallel_degree: 8" $A
expect 0 "       tensor_parallel_degree = 1" $A
expect 0 "baseline.toml:17" $A
expect 0 "llama-3.1-70b, from" $A
expect 0 '"origin": "stated"' $A --settings --json
expect 0 '"total_bytes"' $A --json
# A setting that an option gives goes before the file's.
expect 0 "Tensor parallelism of 4 is more" $A --set tp=4
expect 1 "Does not fit" audit $data/titan_8b_8xh100_baseline.toml --cluster 1xHGX-H100 --set micro_batch=16,local_batch=16
# More devices than a fast fabric has.
expect 1 "Tensor parallelism of 16 leaves the 8 devices of a fast fabric" $A --set tp=16,dp_shard=1
expect 1 "devices are not divisible by" $A --set tp=3

# Without a cluster or a model: what is not known, and which option would tell.
expect 0 "the devices, their memory and links; --cluster" audit $data/titan_8b_8xh100_tuned.toml
printf '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}\n' >ds.json
expect 0 "not known: no model is named" audit ds.json --cluster 1xHGX-H100
expect 0 "bf16.enabled (type of matmuls)" audit ds.json
expect 0 "GiB a device" audit ds.json --cluster 1xHGX-H100 --model llama-3.1-8b --set seq=4096,micro_batch=1

# Another file that is missing, everything in host memory, another framework's spelling.
printf 'distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: zero9.json\nnum_processes: 8\n' >acc.yaml
expect 1 "The settings are in another file: zero9.json" audit acc.yaml
printf '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}\n' >off.json
expect 1 "Weights and optimizer are kept in host memory, although all fits" audit off.json --model llama-3.1-8b --cluster 1xHGX-H100 --set seq=4096
expect 1 '"zero_optimization": {"offload_param": {"device": "none"}}' audit off.json --model llama-3.1-8b --cluster 1xHGX-H100 --set seq=4096
printf -- '--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 --tensor-model-parallel-size 8 --use-distributed-optimizer --no-load-optim --load x --save x\n' >meg.args
expect 1 "A restart throws the optimizer's state away" audit meg.args --cluster 4xHGX-H100
expect 1 "       --sequence-parallel" audit meg.args --cluster 4xHGX-H100
expect 1 "       --overlap-grad-reduce" audit meg.args --cluster 4xHGX-H100
expect 1 "--no-load-optim: given" audit meg.args --cluster 4xHGX-H100
expect 1 "remove it, except for the first start" audit meg.args --cluster 4xHGX-H100
sed 's/--bf16/--fp16/' meg.args >fp16.args
expect 1 "bf16 (remove --fp16)" audit fp16.args --cluster 4xHGX-H100
expect 1 "       --bf16" audit fp16.args --cluster 4xHGX-H100
# What Megatron asks for together stands together, each once, and what it refuses beside it is to be removed.
llama='--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --bf16 --swiglu --untie-embeddings-and-output-weights --vocab-size 128256 --micro-batch-size 2 --global-batch-size 128'
echo "$llama --tensor-model-parallel-size 2 --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1" >full.args
expect 0 "selective (remove --recompute-method and --recompute-num-layers), --micro-batch-size 1" audit full.args --cluster 2xHGX-H100 --json
expect 0 '"paste": "--recompute-granularity selective --micro-batch-size 1"' audit full.args --cluster 2xHGX-H100 --json
expect 0 '"paste": "--overlap-param-gather --overlap-grad-reduce --use-distributed-optimizer"' audit full.args --cluster 2xHGX-H100 --json
echo "$llama --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 --use-distributed-optimizer" | sed 's/--global-batch-size 128/--global-batch-size 32/' >chunks.args
expect 0 '"now": "2 chunks"' audit chunks.args --cluster 2xHGX-H100 --json
expect 0 '"paste": "--num-layers-per-virtual-pipeline-stage 2"' audit chunks.args --cluster 2xHGX-H100 --json
! grep -q 'num-virtual-stages' "$tmp/out" || wrong "both of Megatron's settings of chunks: it refuses two"
sed 's/--num-layers-per-virtual-pipeline-stage 4/--num-virtual-stages-per-pipeline-rank 2/' chunks.args >stages.args
expect 0 '"paste": "--num-virtual-stages-per-pipeline-rank 4"' audit stages.args --cluster 2xHGX-H100 --json
# In its YAML each is a key of its own; in a recipe of Bridge, where the recipe has it, below one heading.
{ echo MODEL_ARGS:; echo "$llama" | tr ' ' '\n' | awk '/^--/ { if (k) print "  " k ": " (v ? v : "true"); k = $0; v = ""; next } { v = $0 } END { print "  " k ": " v }'; } >args.yaml
expect 1 '"paste": "--overlap-param-gather: true\n--overlap-grad-reduce: true\n--use-distributed-optimizer: true"' audit args.yaml --cluster 2xHGX-H100 --json
printf 'model:\n  num_layers: 32\n  tensor_model_parallel_size: 1\n  recompute_granularity: full\n  recompute_method: uniform\n  recompute_num_layers: 1\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 128\nddp:\n  overlap_grad_reduce: false\n  overlap_param_gather: false\n  use_distributed_optimizer: true\n  grad_reduce_in_fp32: true\n' >bridge.yaml
expect 0 '"paste": "ddp:\n  overlap_param_gather: true\n  overlap_grad_reduce: true\n  use_distributed_optimizer: true"' audit bridge.yaml --cluster 2xHGX-H100 --json --model llama-3.1-8b --set seq=8192
! grep -q '"paste": "--' "$tmp/out" || wrong "arguments of Megatron-LM for a recipe of Megatron-Bridge"
! grep -q 'without --' "$tmp/out" || wrong "a flag to be left out stands in the text to paste"
expect 1 "Try:       hybrid" audit meg.args --cluster 4xHGX-H100
# Many devices behind a pipeline hide what gradients cost: a gain of less than 1 % is a note.
sed 's/--no-load-optim //;s/--tensor-model-parallel-size 8/--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4/' meg.args >pipe.args
"$bin" audit pipe.args --cluster 4xHGX-H100 --json >out 2>err
python3 - out <<'END' || wrong "levels and gains do not agree"
import json, sys
for f in json.load(open(sys.argv[1]))["findings"]:
    g = f["gain"]
    assert not g or g["high"] > 1, f
    assert not g or g["high"] >= 1.01 or f["level"] == "note", f
    assert f["id"] != "grad-overlap" or (f["level"] == "serious") == bool(g and g["low"] >= 1.05), f
END

# fp8: over which peak; the other one beside it.
expect 0 "MFU of the bf16 peak" audit $data/titan_8b_8xh100_tuned.toml --cluster 1xHGX-H100
expect 0 "MFU of the fp8 peak" audit $data/titan_8b_8xh100_tuned.toml --cluster 1xHGX-H100
expect 0 "1 setting that rules know" audit one.json
"$bin" audit "$data/titan_8b_8xh100_tuned.toml" --html page.html >/dev/null 2>err
grep -q "Audit of titan_8b_8xh100_tuned.toml" page.html || wrong "the page's title: $(grep -o '<title>[^<]*' page.html)"

# The last command did not say it.
without() { ! grep -qF -- "$1" "$tmp/out" || wrong "said: $1"; }

# ---- what a launcher decides, adapters, little that is known ----

printf 'model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 2\ngradient_checkpointing: true\nbf16: true\nlr_scheduler_type: cosine\nnum_train_epochs: 1\nmax_length: 4096\npacking: true\n' >sft.yaml
expect 0 "how states are sharded" audit sft.yaml --cluster 1xHGX-H100
without "Does not fit"
expect 0 "GiB a device: fits" audit sft.yaml ds.json --cluster 1xHGX-H100
{ cat sft.yaml; printf 'use_peft: true\nlora_r: 16\nload_in_4bit: true\n'; } >lora.yaml
expect 0 "GiB a device: fits" audit lora.yaml --cluster 1xHGX-H100
expect 0 "rank" audit lora.yaml --cluster 1xHGX-H100 --set zero=0 --settings
without "hold and update the same optimizer states"
expect 0 "little is known" audit ds.json
expect 0 '"little_known": true' audit ds.json --json
expect 0 '"little_known": false' $A --json

# ---- what one file does not tell ----

printf '#!/bin/bash\nsource $(dirname $0)/common.sh\nO="--load $CKPT --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu --seq-length 4096 --micro-batch-size 1 --use-mcore-models"\n' >part.sh
expect 1 "The settings are in another file: common.sh" audit part.sh --cluster 1xHGX-H100
without "Matmuls run in fp32"
without "default of Megatron-LM"
printf '#!/bin/bash\ntorchrun tools/run_text_generation_server.py --num-layers 32 --use-mcore-models --swiglu\n' >serve.sh
expect 2 "serve.sh:2: 'run_text_generation_server.py' is inference" audit serve.sh
printf 'a: 1\n{{- if .Values.more }}\nb: {{ .Values.b }}\n{{- end }}\n' >chart.yaml
expect 2 "a template, not a configuration: render it first" audit chart.yaml
printf -- '--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu --seq-length 4096 --vocab-size 32000\n--micro-batch-size 2 --global-batch-size 100 --fp16 --use-mcore-models\n' >fp16.args
expect 0 "4294967296 (2^32)" audit fp16.args --cluster 1xHGX-A100 --set global_batch=64
expect 0 "65536 (2^16)" audit fp16.args --cluster 1xHGX-A100 --set global_batch=64
expect 0 "--initial-loss-scale 65536" audit fp16.args --cluster 1xHGX-A100 --set global_batch=64
expect 1 "the next batch that fits: 112" audit fp16.args --cluster 1xHGX-A100
expect 1 "fp16.args:2" audit fp16.args --cluster 1xHGX-A100
sed 's/dp: 4/dp: 1/;s/tp: 8/tp: 1/;s/pp: 2/pp: 1/' "$FLATOUT_SOURCE/fuzz/corpus/job/nanotron.yaml" >alone.yaml
expect 1 "the file divides over 1 device (dp 1), the cluster has 32" audit alone.yaml --cluster 4xHGX-H100
expect 1 "--cluster of 1 device, or dp 32" audit alone.yaml --cluster 4xHGX-H100

expect 1 "the next number of devices that fits: 32" audit "$FLATOUT_SOURCE/fuzz/corpus/job/titan.toml" --cluster 3xHGX-H100
expect 1 "--cluster of 32 devices, or ranks that shard x replicas = 12" audit "$FLATOUT_SOURCE/fuzz/corpus/job/maxtext.yaml" --cluster 3xHGX-H100
expect 1 "maxtext.yaml:" audit "$FLATOUT_SOURCE/fuzz/corpus/job/maxtext.yaml" --cluster 3xHGX-H100

# ---- files that are none ----

printf 'import nemo_run as run\n\ndef main():\n    run.do()\n' >program.py
expect 2 "is a Python program, no configuration" audit program.py

: >empty
expect 2 "empty" audit empty
printf 'my thesis, chapter 1\n' >thesis.txt
expect 2 "thesis.txt" audit thesis.txt
head -c 300 "$data/titan_8b_8xh100_tuned.toml" >half.toml
"$bin" audit half.toml >out 2>err
code=$?
[ $code -le 2 ] || wrong "half a file ends with $code: $(cat err)"
printf '{"model_type": "llama", "hidden_size": 64' >cut.json
expect 2 "cut.json" audit cut.json
printf '<html><body>404</body></html>\n' >page.html
expect 2 "page.html" audit page.html
head -c 4096 /dev/urandom >noise
expect 2 "noise" audit noise
expect 3 "nosuch.toml" audit nosuch.toml
expect 2 "nosuch" $A --set nosuch=1
expect 2 "tp" $A --set tp
expect 2 "cluster" $A --cluster 0xH100
expect 2 "it needs a configuration" audit --cluster 1xHGX-H100
expect 2 "it needs a configuration" audit --set tp=1
# Two configurations of different frameworks are no one job.
"$bin" audit "$data/titan_8b_8xh100_tuned.toml" ds.json >out 2>err
code=$?
[ $code -le 2 ] || wrong "two frameworks end with $code: $(cat err)"

cp "$data/titan_8b_8xh100_tuned.toml" titan.toml
expect 2 "'titan.toml' is of torchtitan (TOML) and 'meg.args' of Megatron-LM: these are two jobs" audit titan.toml meg.args
# FSDP 2 of accelerate takes no forward_prefetch; FSDP 1 does.
printf 'compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n  fsdp_forward_prefetch: false\nnum_machines: 2\nnum_processes: 16\n' >fsdp2.yaml
expect 0 "Audit:" audit fsdp2.yaml --cluster 2xHGX-H100
! grep -q "gathered ahead" "$tmp/out" || wrong "a setting that does nothing is proposed"
sed 's/fsdp_version: 2/fsdp_version: 1/' fsdp2.yaml >fsdp1.yaml
expect 0 "gathered ahead" audit fsdp1.yaml --cluster 2xHGX-H100
sed 's/seq_len = [0-9]*/seq_len = 8192000000/' titan.toml >long.toml
expect 1 "is 8192000000 and must be at most 1000000000" audit long.toml --cluster 1xHGX-H100

# ---- hosts beside it ----

printf 'NCCL_IB_DISABLE=1\nNCCL_P2P_DISABLE=1\n' >env.txt
"$bin" audit --from env.txt --json >out 2>err
[ $? -le 1 ] || wrong "--from: $(cat err)"
grep -q NCCL_P2P_DISABLE out || wrong "--from: NCCL_P2P_DISABLE is not found"
"$bin" audit "$data/titan_8b_8xh100_tuned.toml" --cluster h1.yaml --from env.txt --json >out 2>err
grep -q NCCL_P2P_DISABLE out || wrong "a configuration and --from: no NCCL_P2P_DISABLE"
grep -q '"shape"' out || wrong "a configuration and --from: no shape"
"$bin" audit --json >out 2>err
[ $? -le 1 ] || wrong "this machine: $(cat err)"
grep -q '"findings"' out || wrong "this machine: no findings"
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
	"$bin" audit >out 2>err
	tr '\n' ' ' <out | tr -s ' ' | grep -q "little is known: no GPU on this machine; give --from FOLDER of a node, or a CONFIG" ||
		wrong "no GPU: $(head -3 out)"
	grep -q "no serious finding" out && wrong "no GPU, and it says that all is well"
fi
exit $failed
