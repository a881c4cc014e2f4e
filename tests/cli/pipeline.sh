#!/bin/sh
# mesh.pp: stages of a pipeline leave the files of one rank, byte for byte; a run goes on with other stages; a value that is not
# finite is found on the stage that made it; what cannot be is refused by name.
. "$(dirname "$0")/lib.sh"

deep="$tiny --model.layers=4 --model.heads=4 --model.kv-heads=2 --train.precision=fp32 --optim.clip=0 --run.threads=4"
run 0 program $deep --ranks=4 --mesh.pp=2 --no-operations --dump=pp.txt
grep -q '^mesh 2 1 1 1 2$' pp.txt || wrong "not two stages of two ranks"
grep -q '^pass pp 2$' pp.txt || wrong "1F1B is not what stages do unless told otherwise"
run 0 program $deep --ranks=2 --mesh.pp=2 --pass.pp=zb-h1 --no-operations --dump=zb.txt
grep -q '^block .*\.w wgrad layer$' zb.txt || wrong "zero bubble has no gradients of weights that come later"
refused 2 "mesh.pp=3 does not divide mesh.ranks=4: the nearest that do are 2 and 4" program $deep --ranks=4 --mesh.pp=3
refused 2 "8 stages x 1 part of the model cannot share 4 layers: each needs one" program $deep --mesh.pp=8
refused 2 "2 stages x 2 parts of the model cannot share 3 layers" program $deep --model.layers=3 --mesh.pp=2 --pass.pp=interleaved
refused 2 "pass offload copies those of layers that other stages have" program $deep --mesh.pp=2 --pass.offload=1

needs_engine
make_text text
# Files of one rank, whatever the schedule, with fewer micro-batches than stages too.
same_tensors() {
	for file in model.safetensors state.safetensors; do
		same "$(checkpoint "$1" 6)/$file" "$(checkpoint "$2" 6)/$file"
	done
}
run 0 train $deep --run.dir=alone
for kind in gpipe 1f1b interleaved zb-h1 zb-h2; do
	run 0 train $deep --run.dir=$kind --mesh.pp=2 --pass.pp=$kind
	same_tensors alone $kind
done
run 0 train $deep --run.dir=uneven --mesh.pp=2 --mesh.pp-layers=3,1
same_tensors alone uneven
run 0 train $deep --run.dir=four --mesh.pp=4
says "2 micro-batches for 4 stages leave a stage idle"
same_tensors alone four
run 0 eval 1f1b

# A head that shares the embedding's weights, on both ends; a run goes on with other stages.
tied="$deep --model.tied=yes --optim.clip=1 --optim.schedule=constant --checkpoint.every=3"
run 0 train $tied --run.dir=whole --train.steps=9
run 0 train $tied --run.dir=parts --train.steps=3 --mesh.pp=2 --ranks=4 --mesh.tp=2
run 0 train $tied --run.dir=parts --train.steps=6 --mesh.pp=3
says "^Resume: .*after step 3"
run 0 train $tied --run.dir=parts --train.steps=9 --ranks=4 --mesh.pp=2 --mesh.shard=2 --sample.tokens=4
says "^Resume: .*after step 6" "^Sample: "
losses whole >a
losses parts >b
near a b 0.001

# Steps that a rank runs one by one: metered ones, and the search for a value that is not finite.
run 0 train $deep --run.dir=metered --mesh.pp=2 --train.metered-every=2
same_tensors alone metered
refused 1 "on rank [01] of 2, .* the first value that is not finite" train $deep --run.dir=nan --mesh.pp=2 --optim.lr=10 \
	--optim.warmup=0 --optim.eps=0 --train.steps=400
run 0 report 1f1b
run 0 verify --short --ranks=2
says "pp=2"
finish
