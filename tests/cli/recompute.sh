#!/bin/sh
# pass.recompute, memory.budget, train.batch-rows: the same losses and weights, less memory; what cannot be is refused with what could.
. "$(dirname "$0")/lib.sh"

make_text text
# arena FILE: the planned activations and gradients.
arena() { sed -n 's/^ *"arena_bytes": \([0-9]*\),*$/\1/p' "$1" | head -n 1; }
executed() { sed -n 's/^ *"executed_flop": \([0-9.e+]*\),*$/\1/p' "$1" | head -n 1; }
wide="--model.layers=4 --model.hidden=64 --model.heads=4 --model.ffn=160 --model.vocab=256 --data.seq=128 --train.rows=4 --train.micro-batches=1"
for mode in none selective full; do
	run 0 program $wide --pass.recompute=$mode --json
	cp out $mode.json
done
[ "$(arena none.json)" -gt "$(arena selective.json)" ] && [ "$(arena selective.json)" -gt "$(arena full.json)" ] ||
	wrong "the arena does not fall: $(arena none.json) $(arena selective.json) $(arena full.json)"
awk "BEGIN { exit !($(executed none.json) < $(executed selective.json) && $(executed selective.json) < $(executed full.json)) }" ||
	wrong "executed FLOP do not rise"
# auto: nothing without a budget, what fits with one, and a sentence where nothing does.
run 0 program $wide --json
cmp -s out none.json || wrong "auto without a budget is not none"
state=$(sed -n 's/^ *"persistent_bytes": \([0-9]*\),*$/\1/p' none.json)
for mode in none selective full; do
	budget=$((state + $(arena $mode.json)))
	run 0 program $wide --json --memory.budget=$budget
	[ "$(arena out)" -le "$(arena $mode.json)" ] || wrong "auto takes more than its budget"
	awk "BEGIN { exit !($(executed out) <= $(executed $mode.json)) }" || wrong "auto repeats more than $mode does"
done
refused 3 "no plan of this step fits into .*: the least .* takes .* would fit" program $wide --memory.budget=$((state + $(arena full.json) / 2))
refused 3 "no plan of this step fits into 64.0 KiB.*no shorter rows would fit" program $wide --memory.budget=64KiB
# The format of the state: no choice without a limit; where recomputing everything is not enough, bf16 moments, and then no masters.
bytes() { sed -n 's/^ *"persistent_bytes": \([0-9]*\),*$/\1/p' out | head -n 1; }
run 0 program $wide --json --optim.state=auto
[ "$(bytes)" = "$state" ] || wrong "the state's format changes without a budget"
run 0 program $wide --json --optim.state=auto --memory.budget=$((state * 9 / 14 + $(arena full.json)))
[ "$(bytes)" -le $((state * 8 / 14 + 65536)) ] && [ "$(bytes)" -gt $((state * 7 / 14)) ] || wrong "bf16 moments: $(bytes) of $state"
refused 3 "no plan of this step fits" program $wide --optim.state=exact --memory.budget=$((state * 9 / 14 + $(arena full.json)))
for state in exact auto; do
	refused 2 "optim.state=$state chooses what is stored beside bf16 weights: with train.precision=fp32 leave it out" program $wide \
		--train.precision=fp32 --optim.state=$state
done
# Trained: the same bits.
[ -n "${FLATOUT_HAS_ENGINE:-}" ] || finish
run 0 train $tiny --run.dir=plain --pass.recompute=none
run 0 train $tiny --run.dir=again --pass.recompute=full
says "recompute=full"
for file in model.safetensors state.safetensors; do
	cmp "plain/checkpoints/step-00000006/$file" "again/checkpoints/step-00000006/$file" || wrong "recompute changes $file"
done
# A step of four rows, however it is split; a run that goes on keeps its split.
split=$(echo "$tiny" | sed 's/--train.rows=2 --train.micro-batches=2//')
run 0 train $split --run.dir=split --train.batch-rows=4 --train.steps=3 --optim.warmup=0
says "^Step:  *1 micro-batch x 4 rows x 32 tokens"
run 0 train $split --run.dir=split --train.batch-rows=4 --optim.warmup=0 --train.steps=4
says "^Step:  *1 micro-batch x 4 rows x 32 tokens"
# A run file that flatout init wrote says everything, and auto still takes over.
run 0 init auto.yaml --data.path=text
run 0 program auto.yaml --no-operations --train.batch-rows=8
says "1 micro-batch x 8 rows"
finish
