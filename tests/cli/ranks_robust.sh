#!/bin/sh
# Several ranks behave as one does: Ctrl-C, metered steps, choices by memory, values that are not finite.
. "$(dirname "$0")/lib.sh"

small="$tiny --train.rows=4 --train.precision=fp32"
# ---- choices: the step's rows are split for one rank's share of the memory, and every rank has the same split ----
refused 2 "3 ranks cannot share the rows of a step evenly, train.batch-rows=16: the nearest that can be shared are 15 or 18 rows, or 2 or 4 ranks" \
	program $small --ranks=3 --train.batch-rows=16
run 0 program $small --ranks=2 --train.batch-rows=16 --no-operations
says "2 ranks x 1 micro-batch x 8 rows x 32 tokens"
# A tight budget takes more micro-batches.
run 0 program $small --ranks=2 --train.batch-rows=16 --memory.budget=1500KB --no-operations
says "2 ranks x [248] micro-batches x [421] rows* x 32 tokens"
for bad in program.file=x run.affinity=cores; do
	refused 2 "mesh.ranks=2 cannot be combined with ${bad%%=*}: .*one rank; leave it out" program $small --ranks=2 --$bad
done

needs_engine
make_text text
# equal A B: six steps of fp32 whose sums are in another order.
equal() {
	losses $1 >a
	losses $2 >b
	[ "$(wc -l <a)" = "$(wc -l <b)" ] && [ -s a ] || wrong "$1 and $2: not as many losses"
	paste a b | awk '{ d = $2 > $5 ? $2 - $5 : $5 - $2; if (d > 1e-5 * $2) bad++ } END { exit bad > 0 }' ||
		wrong "$1 and $2 have other losses: $(paste a b | tail -n 2)"
}
run 0 train $small --run.dir=one --train.micro-batches=4
run 0 train $small --run.dir=split --ranks=2 --run.threads=2 --train.batch-rows=16 --memory.budget=30MB
equal one split
# A run goes on with the split that it has, whatever memory is free and however many ranks there are.
run 0 train $small --run.dir=split --ranks=4 --run.threads=4 --train.batch-rows=16 --train.steps=8

# ---- metered steps: the same bits ----
for at in plain metered; do
	every=0
	[ $at = plain ] || every=3
	run 0 train $small --run.dir=$at --ranks=2 --run.threads=2 --train.metered-every=$every
done
same "$(checkpoint plain 6)/model.safetensors" "$(checkpoint metered 6)/model.safetensors"
[ -s metered/metered.fom ] || wrong "no step was metered"

# ---- Ctrl-C: the first ends after the step, with a checkpoint; the second at once ----
long="$small --train.steps=100000 --optim.schedule=constant --eval.every=0 --log.every=1 --ranks=2 --run.threads=2"
"$bin" train $long --run.dir=stop >out 2>err </dev/null &
pid=$!
wait_for_lines stop/log.jsonl 3 $pid
kill -INT $pid
want=130 code=0
wait $pid || code=$?
judge "a run of two ranks, interrupted"
says "stopped after step [0-9]* of 100000; the state is saved in "
step=$(sed -n 's/.*stopped after step \([0-9]*\) of.*/\1/p' err)
run 0 train $long --run.dir=stop --train.steps=$((step + 2))
says "^Resume: .*after step $step"
"$bin" train $long --run.dir=twice >out 2>err </dev/null &
pid=$!
wait_for_lines twice/log.jsonl 3 $pid
kill -INT $pid
kill -INT $pid
want="130" code=0
wait $pid || code=$?
judge "a run of two ranks, interrupted twice"

# ---- a value that is not finite, rank and operation are named ----
refused 1 "on rank [01] of 2, .* of .* the first value that is not finite" train $small --run.dir=nan --ranks=2 --run.threads=2 \
	--train.batch-rows=6 --optim.lr=10 --optim.warmup=0 --optim.clip=0 --optim.eps=0 --train.steps=400
# No rank of a run that failed says that it is done.
run 1 status nan --json
grep -q '"phase": "done"' out && wrong "a rank of a run that failed says done: $(cat out)"
finish
