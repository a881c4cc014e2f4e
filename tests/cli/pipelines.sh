#!/bin/sh
# flatout program --schedule: every schedule as text, picture and JSON, its bubble by formula and walk, and what is refused.
. "$(dirname "$0")/lib.sh"

# value KEY: the first number of that name in ./out.
value() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" out | head -n 1; }
close_to() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-9 && d > -1e-9) }'; }

for kind in gpipe 1f1b interleaved zb-h1 zb-h2 dualpipe-v; do
	for m in 8 9 30; do
		run 0 program --schedule=$kind --micro-batches=$m
		says "^schedule .*: 4 stages.*, $m micro-batches" "^stage 3 " "^Bubble: " "^Formula: " "^In flight: "
		if LC_ALL=C.UTF-8 awk 'length($0) > 80' out | grep -q .; then
			wrong "$kind, $m: wider than 80 columns: $(awk 'length($0) > 80' out | head -n 2)"
		fi
	done
	run 0 program --schedule=$kind --micro-batches=8 --json --svg=$kind.svg
	valid out
	keys out schema schedule stages micro_batches chunks forward backward_input backward_weight send step longest_stage bubble formula_bubble formula_of \
		formula_is_bound formula source condition in_order_lanes stage in_flight in_flight_before_input busy slots work micro_batch chunk begin end
	[ "$(grep -c '"in_flight":' out)" = 4 ] || wrong "$kind: not 4 stages"
	grep -q '"in_order_lanes": true' out || wrong "$kind: does not run on lanes"
	case $kind in
	zb-h2) close_to "$(value formula_bubble)" 0 || wrong "$kind: bubble $(value formula_bubble)" ;;
	dualpipe-v) awk -v a="$(value bubble)" -v b="$(value formula_bubble)" 'BEGIN { exit !(a <= b) }' || wrong "$kind: above its bound" ;;
	*) close_to "$(value formula_bubble)" "$(value bubble)" || wrong "$kind: $(value formula_bubble) is not $(value bubble)" ;;
	esac
	if command -v xmllint >/dev/null && ! xmllint --noout --nonet $kind.svg; then
		wrong "$kind.svg is no XML"
	fi
	grep -q '<title id="t">schedule ' $kind.svg || wrong "$kind.svg has no title"
done

# 1F1B by hand: (p - 1) / (m + p - 1) of the step, 4 to 1 in flight; its first lines as they are.
run 0 program --schedule=1f1b --micro-batches=8 --stages=4
says '27.3 % of the step by the walk: 33 turns, 24 of them work' '^In flight:  4, 3, 2, 1 micro-batches at most, by stage$' \
	'^stage 0 F0F1F2F3\.\.\.\.\.\.\.\.\.\.\.\.B0--F4B1--F5B2--F6B3--F7B4--\.\.B5--\.\.B6--\.\.B7--$'
run 0 program --schedule=1f1b --micro-batches=8 --times=1,2,1 --send=0.5 --json
close_to "$(value forward)" 1 && close_to "$(value backward_input)" 2 && close_to "$(value send)" 0.5 || wrong "times are not those given"

# What the picture leaves out it says.
run 0 program --schedule=1f1b --micro-batches=400 --stages=32 --svg=big.svg
says 'this is the first [0-9]* % of the time' '^\.\.\. 16 more$'
run 0 program --schedule=1f1b --micro-batches=30
says 'numbers have no room here'
run 0 program --schedule=interleaved --micro-batches=2 --stages=4
says 'Note: 2 micro-batches for 4 stages leave a stage idle for 56 % of the step'
run 0 program --schedule=dualpipe-v --micro-batches=16 --stages=8
says 'Note: This order needs messages that overtake each other'
run 0 program --schedule=zb-h1 --times=1,1,2
says 'Formula: .* does not hold for these figures'
run 0 program --schedule=zb-h2 --micro-batches=8
says "of the whole step by the walk" "from its first slot"
run 0 program --schedule=gpipe --stages=1 --micro-batches=1
says "one stage is no pipeline"
says '^Bubble: *0.0 % of the step'

refused 2 "schedule" program --schedule=2f2b
refused 2 "schedule 1F1B has 1 chunk per stage, not 2" program --schedule=1f1b --chunks=2
refused 2 "with 1 it is 1f1b" program --schedule=interleaved --chunks=1
refused 2 "wants two micro-batches per stage, for 4 stages 8 or more, not 7" program --schedule=dualpipe-v --micro-batches=7
refused 2 "more than 8388608: the most micro-batches are" program --schedule=gpipe --stages=4096 --micro-batches=65536
for times in 1,1 1,1,0 1,1,-1 1,1,1,1 a,b,c 1,1,nan 1,1,1e30 ''; do
	refused 2 "times wants three numbers above 0" program --schedule=1f1b "--times=$times"
done
refused 2 "stages is of a pipeline's schedule, and none is asked for" program --stages=4
refused 2 "stages" program --schedule=1f1b --stages=0
refused 3 "no/folder/x.svg" program --schedule=1f1b --svg=no/folder/x.svg
echo mine >mine.svg
refused 2 "mine.svg" program --schedule=1f1b --svg=mine.svg
[ "$(cat mine.svg)" = mine ] || wrong "a foreign file was written over"
run 0 program --schedule=gpipe --svg=1f1b.svg # ours is written anew
grep -q 'schedule GPipe' 1f1b.svg || wrong "the picture is the old one"

# A run in two stages: report and diagnose draw what was measured.
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	refused 2 "pass.pp=zb-h1 is about stages of a pipeline" train --pass.pp=zb-h1
	refused 2 "pass.pp-chunks=2 is about stages of a pipeline" train --pass.pp-chunks=2
	for layers in 3,x even,3 0,4 4, '' 1,-1; do
		refused 2 "mesh.pp-layers must be balanced, even, or at most" train --ranks=2 --mesh.pp=2 "--mesh.pp-layers=$layers"
	done
	refused 2 "mesh.pp-layers=3,1 is about stages of a pipeline" train --mesh.pp-layers=3,1
	refused 2 "mesh.pp-layers=3,1 is a list of 2, and mesh.pp=2 stages of 2 parts each take 4" train --ranks=2 --mesh.pp=2 \
		--pass.pp=interleaved --mesh.pp-layers=3,1
	make_text text
	# shellcheck disable=SC2086 # words on purpose
	run 0 train $tiny --model.layers=4 --train.micro-batches=4 --ranks=2 --mesh.pp=2 --pass.pp=interleaved --run.dir=two
	run 0 report two
	says '^Pipeline, schedule interleaved 1F1B: 2 stages, 4 micro-batches; step 5,' '^stage 0 F' '^stage 1 .*B' 'without passes' \
		'^Bubble: *[0-9.]* % of the time from the first pass to the last of step 5' '^Memory: *at each stage.s peak'
	run 0 report two --json
	valid out
	sed -n '/"pipeline"/,/}/p' out | grep -q '"schedule": "interleaved"' || wrong "not in the report's JSON"
	run '0|1' diagnose two
	says 'Pipeline, schedule interleaved 1F1B: 2 stages, 4 micro-batches; step 5,' 'stage 1 .*B' 'waiting for another stage, the bubble' \
		'Bubble: *[0-9.]* % of the time from the first pass'
	run '0|1' diagnose two --json
	valid out
	grep '"bubble_ns"' out | grep -qv ': 0,*$' || wrong "a pipeline whose ranks have no bubble"
	rm two/timeline-rank1.fot
	run 0 report two
	says '^Bubble: *not known: stage 1 left no timeline'
	! grep -q '^Pipeline, schedule' out || wrong "a pipeline of which one stage left nothing"
	run 0 report two --json
	grep -q '"pipeline": null' out || wrong "a pipeline in JSON of which one stage left nothing"

	# dualpipe-v trains on up to five stages, with two micro-batches for each; else it says why not.
	# shellcheck disable=SC2086
	run 0 train $tiny --model.layers=4 --train.micro-batches=4 --ranks=2 --mesh.pp=2 --pass.pp=dualpipe-v --train.steps=2 --run.dir=dual
	# shellcheck disable=SC2086
	refused 2 "wants two micro-batches per stage, for 2 stages 4 or more, not 3" program $tiny --model.layers=4 --train.micro-batches=3 \
		--ranks=2 --mesh.pp=2 --pass.pp=dualpipe-v
	# shellcheck disable=SC2086
	refused 2 "dualpipe-v of 6 stages needs messages that overtake each other" program $tiny --model.layers=12 --train.micro-batches=12 \
		--mesh.pp=6 --pass.pp=dualpipe-v

	# Stages of unlike layers, told by program and passes; the same run goes on in other stages.
	stages="--ranks=2 --mesh.pp=2 --model.layers=4 --train.micro-batches=4"
	# shellcheck disable=SC2086
	refused 2 "have 5 layers together, and the model has 4" program $tiny $stages --mesh.pp-layers=3,2
	# shellcheck disable=SC2086
	run 0 program $tiny $stages --mesh.pp-layers=3,1 --no-operations
	says '^Stages: *2, with 3, 1 layers' '^ *0  *3  nothing ' '^ *1  *1  nothing '
	# shellcheck disable=SC2086
	run 0 program $tiny $stages --json
	valid out
	keys out pp_layers stages recompute layers embedding head
	bytes_of_stages() { sed -n '/"stages": \[/,/\]/p' "$1" | grep -E '"(arena|persistent)_bytes"' | tr -d ' ,'; }
	bytes_of_stages out >planned
	# shellcheck disable=SC2086
	run 0 passes $tiny $stages --mesh.pp-layers=even
	says '^ *Stages: *2, with 2, 2 layers .*: even'
	# shellcheck disable=SC2086
	run 0 train $tiny $stages --mesh.pp-layers=3,1 --train.steps=3 --run.dir=uneven
	says '^Stages: *with 3, 1 layers'
	# shellcheck disable=SC2086
	run 0 train $tiny $stages --mesh.pp-layers=1,3 --train.steps=5 --run.dir=uneven
	says "^Resume: .*after step 3"
	# The report's stages are those of the program, each with its own bytes.
	# shellcheck disable=SC2086
	run 0 program $tiny $stages --mesh.pp-layers=1,3 --json
	bytes_of_stages out >planned
	run 0 report uneven --json
	valid out
	bytes_of_stages out >reported
	same planned reported
	[ "$(sort -u planned | wc -l)" = 4 ] || wrong "stages of 1 and 3 layers plan the same: $(cat planned)"
	run 0 report uneven --html=uneven.html
	grep -q 'of stage 1, the fullest' uneven.html || wrong "the page does not say whose memory it draws"
	grep -q '^part 1$' uneven/program.txt || wrong "program.txt has another division"
fi
finish
