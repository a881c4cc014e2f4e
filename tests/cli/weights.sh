#!/bin/sh
# flatout train --model.weights: a folder in Hugging Face's layout as the start, its model, its tokenizer; refusals.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text

# Ours goes out and comes in: model and tokenizer follow from the folder, the loss goes on where it was.
run 0 train $tiny --run.dir=a --train.steps=30 --optim.lr=1e-2 --train.precision=fp32
start=$(checkpoint a 30)
data="--data.path=text --data.seq=32 --data.holdout=10 --train.rows=2 --train.micro-batches=2 --run.threads=1 --eval.batches=2 \
--train.precision=fp32"
run 0 train $data --model.weights=$start --run.dir=b --train.steps=1 --optim.lr=0
losses a | tail -n 1 >before
losses b | head -n 1 >after
awk 'NR == FNR { a = $2; next } { d = $2 - a; exit !(d < 0.5 && d > -0.5 && $2 < 5) }' before after ||
	wrong "the loss was $(cat before), began again at $(cat after)"
same $start/config.json $(checkpoint b 1)/config.json
grep -q '"num_hidden_layers": 1' $(checkpoint b 1)/config.json || wrong "not the folder's model"
# A rate of 0 and no decay of it: the weights are those that were loaded.
same $start/model.safetensors $(checkpoint b 1)/model.safetensors
same $start/tokenizer.json $(checkpoint b 1)/tokenizer.json
run 0 config --model.weights=$start
grep -q "^ *model.name  *$start  *model.weights" out && grep -q "^ *data.tokenizer  *$start/tokenizer.json  *model.weights" out ||
	wrong "config does not show what follows from model.weights: $(grep -e name -e tokenizer out)"

# The run's own checkpoint is further on than its start.
run 0 train $data --model.weights=$start --run.dir=c --train.steps=4 --optim.lr=1e-2
run 0 train $data --model.weights=$start --run.dir=c --train.steps=8 --optim.lr=1e-2
[ "$(losses c | wc -l)" = 8 ] || wrong "the second run did not go on: $(losses c | wc -l) steps"

# Every architecture of tests/golden is one that the engine lowers; two of them train here, a checkpoint of each goes on.
for model in mha llama32 llama_bias mistral qwen2 qwen2_window qwen3; do
	run 0 train $data --model.weights="$source/tests/golden/$model" --run.dir=g --dry-run
	says "^Model:  *.*/tests/golden/$model" "^Kernels:"
done
common='"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
"intermediate_size": 48, "vocab_size": 300'
printf '{"model_type": "mistral", "sliding_window": 9, %s}' "$common" >mistral.json
printf '{"model_type": "qwen3", "attention_bias": true, "tie_word_embeddings": true, %s}' "$common" >qwen3.json
for type in mistral qwen3; do
	run 0 train $data --model.name=$type.json --run.dir=$type --train.steps=12 --optim.lr=1e-2 --optim.warmup=1
	losses $type | awk 'NR == 1 { a = $2 } END { exit !(NR == 12 && $2 < a - 0.2) }' || wrong "$type does not learn: $(losses $type)"
	grep -q "\"model_type\": \"$type\"" $(checkpoint $type 12)/config.json || wrong "$type's config.json is another's"
	run 0 train $data --model.weights=$(checkpoint $type 12) --run.dir=$type-on --train.steps=1 --optim.lr=0
	same $(checkpoint $type 12)/model.safetensors $(checkpoint $type-on 1)/model.safetensors
	same $(checkpoint $type 12)/config.json $(checkpoint $type-on 1)/config.json
done

# What does not fit is named, all at once, before anything is prepared.
run 2 train $data --model.weights=$start --model.layers=2 --model.ffn=48 --run.dir=d
says "^flatout: cannot load weights: the tensors in '$start' do not fit the model: 9 missing: 'model.layers.1.input_layernorm.weight'" \
	" 3 of another shape: 'model.layers.0.mlp.gate_proj.weight' is 64 x 32, the model's 48 x 32"
[ ! -e d/data ] || wrong "a refused run has prepared its text"
run 3 train $data --model.name=$start --model.weights=text --run.dir=d
says "^flatout: cannot load weights: 'text' holds neither model.safetensors nor model.safetensors.index.json"
mkdir evil
cp $start/config.json $start/tokenizer.json evil
printf '{"weight_map": {"model.norm.weight": "../a/model.safetensors"}}' >evil/model.safetensors.index.json
run 2 train $data --model.weights=evil --run.dir=d
says "shard '../a/model.safetensors' is not a plain file name"
printf '{"model_type": "gemma2"}' >evil/config.json
run 2 train $data --model.weights=evil --run.dir=d
says "^flatout: .*model_type 'gemma2' is not supported: it has norm weights stored as w - 1, norms after the blocks, capped logits"
finish
