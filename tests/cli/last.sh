#!/bin/sh
# checkpoint.last=no: what it saves and what not, and that every command says so.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
none="--checkpoint.last=no --checkpoint.every=0"

# Nothing but the run's record is left, and the end says that no weights are.
run 0 train $tiny --run.dir=none $none
says "^Saved:  *no weights of the last 6 steps: checkpoint.last=no" "^Next:  *flatout report none\$"
[ ! -e none/checkpoints ] || wrong "checkpoint.last=no left $(find none/checkpoints)"
! find none -name '*.safetensors' | grep -q . || wrong "checkpoint.last=no left weights"
for file in run.json log.jsonl program.txt timeline.fot; do
	[ -s "none/$file" ] || wrong "no none/$file"
done
run 0 train $tiny --run.dir=saved
losses saved >l1
losses none >l2
same l1 l2
run 0 train $tiny --run.dir=json $none --json
grep -q '"checkpoint": null' out || wrong "the JSON result names a checkpoint"
grep -q '"steps_unsaved": 6' out || wrong "the JSON result has no steps_unsaved"

# Whoever needs the weights is told why there are none and what to do; the run's folder is left as it is.
cp none/log.jsonl log
run 2 train $tiny --run.dir=none $none
says "^flatout: the run in 'none' did 6 steps and has no checkpoint to go on from: with checkpoint.last=no" "^hint: choose another run.dir"
run 2 train $tiny --run.dir=none --checkpoint.last=yes
says "has no checkpoint to go on from"
same log none/log.jsonl
for command in "generate none --prompt=a --tokens=1" "eval none"; do
	run 2 $command
	says "^flatout: the run in 'none' has no checkpoint: with checkpoint.last=no" "^hint: train it again in another run.dir with checkpoint.last=yes"
done
run 0 report none
says "there is no checkpoint: checkpoint.last=no"
run 0 report saved
! grep -q "no checkpoint" out || wrong "report says that a saved run has no checkpoint"

# Periodic checkpoints stay what they are: one that is due at the last step is written, and a run goes on from the newest.
run 0 train $tiny --run.dir=some --checkpoint.last=no --checkpoint.every=4
says "^Saved:  *some/checkpoints/step-00000004\$" "^  *no weights of the last 2 steps: checkpoint.last=no"
[ "$(ls some/checkpoints)" = step-00000004 ] || wrong "not the one checkpoint of step 4: $(ls some/checkpoints)"
run 0 train $tiny --run.dir=due --checkpoint.last=no --checkpoint.every=3
says "^Saved:  *due/checkpoints/step-00000006\$"
! grep -q "no weights" out || wrong "a run that saved its last step says it did not"
same saved/checkpoints/step-00000006/model.safetensors due/checkpoints/step-00000006/model.safetensors
run 0 train $tiny --run.dir=some --checkpoint.every=0
same saved/checkpoints/step-00000006/model.safetensors some/checkpoints/step-00000006/model.safetensors

# Stopped: no checkpoint, and the sentence says so.
"$bin" train $tiny --run.dir=stopped $none --train.steps=100000 --eval.every=0 >out 2>err </dev/null &
pid=$!
wait_for_lines stopped/log.jsonl 3 $pid
kill -INT $pid
code=0 want=130
wait $pid || code=$?
judge "train with checkpoint.last=no, interrupted"
says "^flatout: stopped after step [0-9]* of 100000; no weights of the last [0-9]* steps* were saved: checkpoint.last=no" "^hint: choose another run.dir"
[ ! -e stopped/checkpoints ] || wrong "a stopped run with checkpoint.last=no left a checkpoint"

# A guard that ends the run saves nothing either.
run 1 train $tiny --run.dir=guard $none --optim.lr=9 --optim.warmup=0 --optim.clip=0 --train.steps=400 --guard.spike=skip --guard.limit=1 --guard.spike-window=8 \
	--guard.spike-z=1 --eval.every=0
says "no weights of the last [0-9]* steps were saved: checkpoint.last=no"
[ ! -e guard/checkpoints ] || wrong "a run that a guard stopped left a checkpoint in spite of checkpoint.last=no"
finish
