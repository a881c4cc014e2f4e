#!/bin/sh
# pass.wgrad-lane: the same losses and weights from a second compute lane; what is said of the step stays whole.
. "$(dirname "$0")/lib.sh"

wide="--model.layers=4 --model.hidden=64 --model.heads=4 --model.ffn=160 --model.vocab=256 --data.seq=128 --train.rows=4 --train.micro-batches=1"
run 0 program $wide --pass.wgrad-lane=yes --dump=p.txt
says "matmul.wgrad on lane wgrad "
grep -q "matmul.forward on lane" out && wrong "a forward product changed lanes"
refused 2 "contradict the program in 'p.txt': pass.wgrad-lane is yes there, not no" program --program.file=p.txt --pass.wgrad-lane=no
run 0 program $wide
grep -q "lane wgrad" out && wrong "a product is on the lane without being asked for"
run 0 passes $wide --pass.wgrad-lane=yes
says "^ *+ wgrad-lane "
run 0 config --pass.wgrad-lane=yes
says "^ *pass.wgrad-lane  *yes "
refused 2 "pass.wgrad-lane" config --pass.wgrad-lane=2

needs_engine
make_text text
at=$(checkpoint . 6)
run 0 train $tiny --run.dir=plain
run 0 train $tiny --run.dir=lane --pass.wgrad-lane=yes
same plain/$at/model.safetensors lane/$at/model.safetensors
same plain/$at/state.safetensors lane/$at/state.safetensors

# The record: parts sum to the step and the second lane's work is compute, wherever it is looked at.
sums='
import json, sys
r = json.load(open("out"))
p = r["profile"]
assert abs(sum(p.values()) - 1) < 1e-9 and min(p.values()) > -1e-9, p
assert p["matmul"] > 0
'
run 0 report lane --json
[ -z "$python" ] || "$python" -c "$sums" || wrong "the parts of the profile do not sum to the step"
run "0|1" diagnose lane
says "matmuls" "^ *step  *100.0 %"
run 0 export lane --trace lane.json
grep -q '"wgrad"' lane.json || wrong "no lane of weight gradients in the exported trace"
run 0 compare plain lane
finish
