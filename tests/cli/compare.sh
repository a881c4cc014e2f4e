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
says '^step time, median' '^MFU, rule mfu' '^memory measured' '^training data .*the same' 'layer.b .*recompute  *none' \
	'pass.recompute  auto  *full' 'optim.lr' 'B recomputes activations, A keeps them: +' 'B executes 1\.[0-9]* times the FLOP' \
	'common steps, the first 1 with the same bits' '^A  a: custom, begun ' '^B  b: custom, begun '
run 0 compare a b --all
fits
! grep -q -e '--all' out || wrong "--all leaves something out"
run 0 compare a b --json
cp out ab.json
valid ab.json
keys ab.json schema step_seconds lower_quartile parts_seconds beyond_medians_seconds operations difference_seconds resolved options \
	losses identical_steps causes step_time_resolved
grep -q '"a_seconds": null' ab.json || wrong "nothing is only in B"
# The same seed: the same bits, the same program.
run 0 compare a c
says 'the same bits in all 12 common steps' 'the same program on the same processor' '^program .*the same' 'train.metered-every  *0  *3'
run 0 compare a a
says 'not resolved' 'No option differs'
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
refused 2 "takes two run directories, got 1" compare a
refused 2 "'text' is not a run directory" compare a text
refused 3 "'none'" compare none a
finish
