#!/bin/sh
# flatout compare: two runs, what it names and what it refuses.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
# fits: what was printed last is at most 80 columns wide.
fits() { ! awk 'length > 80' out | grep . || wrong "lines over 80 columns"; }

run 0 train $tiny --run.dir=a --train.steps=12
run 0 train $tiny --run.dir=b --train.steps=12 --pass.recompute=full --optim.lr=1e-3
run 0 train $tiny --run.dir=c --train.steps=12 --train.metered-every=3
run 0 compare a b
fits
says '^ *step time, median' '^ *MFU, rule mfu' '^ *memory measured' '^ *training data .*the same' 'layer.b .*recompute  *none' \
	'pass.recompute  auto  *full' 'optim.lr' 'B recomputes activations, A keeps them: +' 'B executes 1\.[0-9]* times the FLOP' \
	'common steps, the first 1 with the same bits' '^A: *a (custom, begun ' '^B: *b (custom, begun '
run 0 compare a b --all
fits
! grep -q -e '--all' out || wrong "--all leaves something out"
run 0 compare a b --json
cp out ab.json
valid ab.json
keys ab.json schema step_seconds lower_quartile parts_seconds beyond_medians_seconds operations difference_seconds resolved options \
	losses identical_steps causes step_time_resolved
grep -q '"a_seconds": null' ab.json || wrong "nothing is only in B"
# Steps of unlike size are compared by tokens per second.
run 0 train $tiny --run.dir=d --train.steps=12 --train.micro-batches=4
run 0 compare a d
says "^B's step has [0-9.]* times A's tokens"
! grep -q 'times as long' out || wrong "step times of unlike steps are compared"
# The same seed: the same bits, the same program.
run 0 compare a c
says 'the same bits in all 12 common steps' 'the same program on the same processor' '^ *program .*the same' 'train.metered-every  *0  *3'
run 0 compare a a
says 'A and B are the same run' 'No option differs'
! grep -q 'not resolved' out || wrong "a run does not resolve from itself"
ln -s a again
run 0 compare a again --json
grep -q '"same_run": true' out || wrong "one folder under two names is not the same run"
# The verdict stands above every figure; where it is that nothing is resolved, no row says otherwise.
run 0 compare a c
awk '/^ *step time, median/ { exit !told } /Step time: not resolved|times as long as A|Tokens per second: not resolved|times as many per second/ { told = 1 }' out || wrong "figures before the verdict"
if grep -q '^Step time: not resolved' out; then
	! grep -E '^  (matmuls|optimizer|norms and elementwise|whole step) .*ms$' out || wrong "parts resolved of a step that is not"
fi
! grep ' $' out || wrong "lines end in spaces"
# The same with step times that surely overlap, of programs whose newest steps surely differ.
cp -r a a2
cp -r b b2
for d in a2 b2; do
	awk '/"event":"step"/ { n++; sub(/"seconds":[0-9.e+-]*/, "\"seconds\":" (n % 2 ? "0.001" : "0.01")) } { print }' $d/log.jsonl >log && mv log $d/log.jsonl
done
run 0 compare a2 b2
says '^Step time: not resolved' 'so no difference of parts or operations is' 'recompute  *none'
! grep -E '^  (matmuls|optimizer|norms and elementwise|attention [a-z]*|whole step) .*ms$' out || wrong "parts resolved of a step that is not"
# What is missing or damaged is told, and the rest is shown.
rm b/timeline.fot
run 0 compare a b
fits
says 'means (no timeline of both runs'
printf x >>c/timeline.fot
run 0 compare a c
says 'left out: .*c/timeline.fot'
rm c/run.json
run 0 compare a c
says 'options of both runs are not known'
refused 2 "takes two run directories, two traces or two plans, got 1" compare a
refused 2 "'text' is not a run directory" compare a text
refused 3 "'none'" compare none a
# A page of the same.
run 0 compare a b --html=ab.html
grep -q '<svg\|class="bar' ab.html && grep -q 'B&#39;s step takes\|not resolved' ab.html || wrong "the page shows nothing"
refused 2 "both write" compare a b --html=- --json
finish
