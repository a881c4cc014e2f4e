#!/bin/sh
# train.inputs-ahead on the software device: batches that are copied while the step before runs change no bit, with other documents in each
# step, over an interruption, in runs that skip steps and that go back, with evaluation and checkpoints between.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
FLATOUT_CACHE=$tmp/cache
export FLATOUT_CACHE

refused 2 "train.inputs-ahead" config --train.inputs-ahead=some
run 0 config --train.inputs-ahead=no
says "^ *train.inputs-ahead  *no "

[ -n "${FLATOUT_SOFT_CUDA:-}" ] || finish
FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA
export FLATOUT_CUDA_LIBRARIES
gpu="$tiny --train.device=cuda --train.tune=off --train.timed-every=2 --checkpoint.every=2 --optim.schedule=constant"

# both NAME STEPS ARGUMENT...: the same losses and the same last checkpoint, with and without.
both() {
	name=$1 steps=$2
	shift 2
	for ahead in yes no; do
		run 0 train $gpu --run.dir="$name.$ahead" --train.steps="$steps" --train.inputs-ahead=$ahead "$@"
		losses "$name.$ahead" >"$name.$ahead.losses"
	done
	same "$name.yes.losses" "$name.no.losses"
	for file in model state; do
		same "$(checkpoint "$name.yes" "$steps")/$file.safetensors" "$(checkpoint "$name.no" "$steps")/$file.safetensors"
	done
}
both plain 6
both bestfit 6 --data.packing=bestfit --pass.wgrad-lane=yes
FLATOUT_SOFT_SEED=7
export FLATOUT_SOFT_SEED

# Interrupted, and on with the other choice: the batch that was there already is neither lost nor used twice.
for first in yes no; do
	second=$([ $first = yes ] && echo no || echo yes)
	run 0 train $gpu --run.dir=half.$first --train.steps=4 --train.inputs-ahead=$first
	run 0 train $gpu --run.dir=half.$first --train.steps=6 --train.inputs-ahead=$second
	losses half.$first >half.losses
	same half.losses plain.yes.losses
	same "$(checkpoint half.$first 6)/state.safetensors" "$(checkpoint plain.yes 6)/state.safetensors"
done

# A rate so high that losses jump: steps are skipped, or the run goes back and around their data.
for spike in skip rewind; do
	both $spike 40 --optim.lr=0.1 --guard.spike=$spike --guard.spike-z=1 --guard.spike-window=8 --guard.limit=100
	grep -q '"event":"spike","step":[0-9]*,.*"action":"'$spike'"' $spike.yes/log.jsonl || wrong "no step was a spike: nothing is shown"
done
finish
