#!/bin/sh
# flatout eval: the loss that training logged, text in order, other data; its refusals.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
run 0 train $tiny --run.dir=run --data.vocab=290

value() { tr -d ' ' <"$1" | sed -n "s/^\"$2\":\\([^,]*\\),*\$/\\1/p"; }
# The run's own rows: the very number of the log.
run 0 eval run --threads 1 --json
valid out
keys out schema model step precision isa threads data in_order seq rows batches loss_tokens tokens loss perplexity bytes \
	bits_per_byte logged_loss seconds tokens_per_second mfu mfu_causal mfu_document mfu_6n hfu peak_flop_s peak_source
logged=$(sed -n 's/^{"event":"eval","step":6,"loss":\([^,}]*\).*/\1/p' run/log.jsonl)
[ -n "$logged" ] || wrong "training logged no evaluation"
[ "$(value out loss)" = "$logged" ] || wrong "the loss is $(value out loss), training logged $logged"
[ "$(value out logged_loss)" = "$logged" ] || wrong "the logged loss is $(value out logged_loss), not $logged"
says '"in_order": false' '"batches": 2' '"rows": 2' '"seq": 32'
run 0 eval run --threads 1
says "^Logged: .*: the same" "^Loss: .* perplexity" "bits per byte" "forward: a third"
# An older checkpoint of a run has its own line in the log.
run 0 train $tiny --run.dir=two --data.vocab=290 --checkpoint.every=3
run 0 eval "$(checkpoint two 3)" --threads 1
says "at step 3: the same"
# A run of split rows is evaluated as it was.
run 0 train $tiny --run.dir=split --data.vocab=290 --data.packing=split
run 0 eval split --threads 1
says "at step 6: the same"
# A run on a prepared folder has its held-out text there; another text in its place is told.
run 0 data prepare text --vocab=290 --holdout=10 --out=prepared
run 0 train $tiny --run.dir=three --data.path=prepared --data.packing=bestfit
[ ! -e three/data ] || wrong "a run on a prepared folder made shards of its own"
run 0 eval three --threads 1
says "prepared/val.shard" "at step 6: the same"
run 0 eval "$(checkpoint three 6)" --threads 1
says "at step 6: the same"
run 0 data prepare text --tokenizer=prepared/tokenizer.json --holdout=3 --out=prepared --replace
refused 2 "is not what the run in 'three' held out" eval three
mv prepared elsewhere
refused 3 "held out is not in .prepared., nor" eval three
# Everything, in order: each token of the held-out text once.
run 0 eval run --batches all --json
says '"in_order": true'
all=$(value out loss_tokens)
run 0 eval run --data run/data --json
[ "$(value out loss_tokens)" = "$all" ] || wrong "the prepared folder has other tokens than the run"
run 0 eval run --data run/data/val.shard --batches 1 --json
says '"batches": 1'
# A run on a folder that was prepared before it: its held-out text lies there.
run 0 train --run.dir=onfolder $tiny --data.path=run/data
run 0 eval onfolder --threads 1
says "^Text: .*run/data/val.shard" "^Logged: .*: the same"
run 0 eval "$(checkpoint onfolder 6)" --threads 1
says "^Text: .*run/data/val.shard" "^Logged: .*: the same"
# Text: its bytes are all counted, and bits per byte are what loss, tokens and bytes say.
run 0 eval run --data text/doc03.txt --json
[ "$(value out bytes)" = "$(wc -c <text/doc03.txt | tr -d ' ')" ] || wrong "$(value out bytes) bytes counted"
awk -v l="$(value out loss)" -v t="$(value out loss_tokens)" -v b="$(value out bytes)" -v have="$(value out bits_per_byte)" \
	-v p="$(value out perplexity)" 'BEGIN {
	want = l * t / log(2) / b
	exit !(have > want * 0.999999 && have < want * 1.000001 && p > exp(l) * 0.999999 && p < exp(l) * 1.000001) }' ||
	wrong "bits per byte or perplexity do not follow from the loss"
# The length of a row changes how the text is cut, not which tokens are charged.
tokens=$(value out loss_tokens)
run 0 eval run --data text/doc03.txt --seq 7 --json
[ "$(value out loss_tokens)" = "$tokens" ] || wrong "rows of 7 tokens charge $(value out loss_tokens), not $tokens"
run 0 eval run --data text --json
valid out
# A folder that is no run of ours needs text.
mkdir hf
cp "$(checkpoint run 6)"/config.json "$(checkpoint run 6)"/model.safetensors "$(checkpoint run 6)"/tokenizer.json hf
refused 2 "does not belong to a run" eval hf
run 0 eval hf --data text/doc03.txt --json
says '"step": null' '"logged_loss": null'

refused 2 "which model" eval
refused 2 "'--batches' must be" eval run --batches some
refused 2 "'--batches' must be" eval run --batches 0
refused 2 "longer than the model's" eval run --seq 1000000
refused 3 "no-such-file" eval run --data no-such-file
: >empty.txt
refused 2 "no text in" eval run --data empty.txt
printf 'FLATSHRD' >bad.shard
refused 2 "bad.shard" eval run --data bad.shard
# A model that the engine does not run is wrong input, not a machine that cannot.
mkdir experts && cp hf/tokenizer.json experts
printf '{"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 300, "num_local_experts": 4, "num_experts_per_tok": 2}\n' >experts/config.json
refused 2 "it has mixture-of-experts layers" eval experts --data text
rm hf/tokenizer.json
refused 2 "has no tokenizer.json" eval hf --data text
finish
