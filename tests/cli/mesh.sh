#!/bin/sh
# mesh.shard and mesh.replicate: ranks that share state, gradients and weights by rows train as one does, leave the same
# files, and a run goes on with another mesh; what cannot be is refused with what could.
. "$(dirname "$0")/lib.sh"

small="$tiny --train.rows=4 --train.precision=fp32"
# Meshes: what is not given follows, what does not fit is refused with what would.
run 0 program $small --mesh.shard=2 --mesh.replicate=2 --no-operations --dump=mesh.txt
says "4 ranks x 2 micro-batches x 1 row" "^layer.f.g: .*gather"
grep -q '^mesh 2 2$' mesh.txt || wrong "not a mesh of 2 x 2"
grep -q '^pass zero 3$' mesh.txt || wrong "ranks of a shard group do not share weights unless told otherwise"
run 0 program $small --ranks=4 --mesh.replicate=2 --dump=same.txt
same mesh.txt same.txt
run 0 program $small --ranks=4 --pass.zero=1 --dump=zero.txt
grep -q '^mesh 1 4$' zero.txt || wrong "pass.zero alone does not make one shard group"
run 0 program $small --ranks=4 --dump=ddp.txt
! grep -q '^pass zero' ddp.txt || wrong "ranks without a shard group share something"
# A 0 asks for what follows, as if nothing were given.
run 0 program $small --ranks=4 --mesh.shard=0 --mesh.replicate=2 --dump=same.txt
same mesh.txt same.txt
run 0 program $small --ranks=4 --mesh.shard=0 --mesh.replicate=0 --dump=same.txt
same ddp.txt same.txt
# A run file with every default asks for no shard group.
printf 'pass: {zero: 3}\nmesh: {ranks: 4}\n' >all.yaml
run 0 program all.yaml $small --dump=same.txt
same ddp.txt same.txt
refused 2 "mesh.shard=3 x mesh.replicate=1 are not mesh.ranks=4: the nearest .* are 2 x 2 or 4 x 1" program $small --ranks=4 --mesh.shard=3
refused 2 "mesh.shard=4 x mesh.replicate=2 are not mesh.ranks=4: .* 2 x 2 or 4 x 1" program $small --ranks=4 --mesh.shard=4 --mesh.replicate=2
refused 2 "6 ranks cannot share .* the nearest that can be shared are 6 rows, or 4 ranks" program $small --mesh.shard=3 --mesh.replicate=2
refused 2 "pass.zero=2 is about .* mesh.shard is 1" program $small --pass.zero=2
refused 2 "no weight has as many rows as there are ranks in a shard group, 512" program $small --train.rows=512 --mesh.shard=512
# tp groups: a third axis, whose ranks have the same rows.
wide="$small --model.heads=4 --model.kv-heads=2"
run 0 program $wide --mesh.tp=2 --no-operations --dump=tp.txt
says "1 group of 2 ranks x 2 micro-batches x 4 rows" "2 ranks"
grep -q '^mesh 1 1 2$' tp.txt || wrong "not a tp group of 2"
grep -q '^pass tp 2$' tp.txt || wrong "ranks of a tp group have the residual stream of all tokens unless told otherwise"
# What the model needs per token does not depend on the mesh.
token=$(grep -o 'per token [0-9.]* [kM]*FLOP' out)
run 0 program $wide --no-operations
says "$token"
run 0 program $wide --ranks=4 --mesh.tp=2 --mesh.shard=2 --pass.tp-sequence=no --dump=tp.txt
grep -q '^mesh 1 2 2$' tp.txt || wrong "not a mesh of 1 x 2 x 2"
grep -q '^pass tp 1$' tp.txt || wrong "pass.tp-sequence=no does not count"
refused 2 "mesh.tp=3 does not divide mesh.ranks=4: the nearest that do are 2 and 4" program $wide --ranks=4 --mesh.tp=3
refused 2 "pass tp: 8 ranks of a tp group cannot share 4 attention heads evenly" program $wide --mesh.tp=8
refused 2 "3 tp groups cannot share the rows .* 3 or 6 rows, or 2 or 4 tp groups" program $wide --ranks=6 --mesh.tp=2

needs_engine
make_text text
at=$(checkpoint . 6)
# losses DIR: of its steps, one in a line.
losses() { sed -n 's/^{"event":"step",.*"loss":\([-0-9.e]*\),.*/\1/p' "$1/log.jsonl"; }
# Shared by rows, the same state is the same files, byte for byte: without clipping nothing is summed in another order.
free="$small --optim.clip=0 --ranks=4 --run.threads=4"
run 0 train $free --run.dir=ddp
once=--pass.zero-sync=step # as ddp adds gradients up; behind each micro-batch is another order
for zero in 1 2 3; do
	[ $zero = 1 ] && sync= || sync=$once
	run 0 train $free --run.dir=zero$zero --mesh.shard=4 --pass.zero=$zero $sync
	same ddp/$at/model.safetensors zero$zero/$at/model.safetensors
	same ddp/$at/state.safetensors zero$zero/$at/state.safetensors
	losses ddp >a
	losses zero$zero >b
	same a b
done
# Split by layer into files of a bounded size: all files are the same whichever mesh wrote them, the manifest too, but for the
# settings in run.json, and the gradient norm in training.json, which is summed in another order.
manifest() { sed '/"run.json": {/,/}/d; /"training.json": {/,/}/d' "$1/manifest.json"; }
same_checkpoint() {
	[ "$(ls "$1")" = "$(ls "$2")" ] || wrong "'$1' and '$2' have other files"
	for file in $(ls "$1"); do
		case $file in
		run.json) ;;
		training.json) grep -v grad_norm "$1/$file" >a && grep -v grad_norm "$2/$file" >b && same a b ;;
		manifest.json) manifest "$1" >a && manifest "$2" >b && same a b ;;
		*) same "$1/$file" "$2/$file" ;;
		esac
	done
}
cut="$free --checkpoint.file-size=60kB"
run 0 train $cut --run.dir=cut
for stem in model state; do
	[ "$(ls cut/$at/$stem-*-of-*.safetensors | wc -l)" -ge 3 ] && [ -s cut/$at/$stem.safetensors.index.json ] ||
		wrong "not split: $(ls cut/$at | tr '\n' ' ')"
done
for zero in 1 3; do
	same_checkpoint ddp/$at zero$zero/$at
	[ $zero = 1 ] && sync= || sync=$once
	run 0 train $cut --mesh.shard=4 --pass.zero=$zero $sync --run.dir=cut$zero --checkpoint.every=3 --checkpoint.keep=0
	same_checkpoint cut/$at cut$zero/$at
done
# All that read weights read such files; a run goes on from them with any mesh, as from one file.
run 0 eval cut3
says "^Logged: .* the same"
run 0 generate cut3 --prompt=a --tokens=2
run 0 train $small --run.dir=fresh --model.name=cut3/$at --model.weights=cut3/$at --cli.dry-run
constant="$free --optim.schedule=constant --train.steps=8"
cp -r ddp onefile
run 0 train $constant --run.dir=onefile
for mesh in "--pass.zero=1 --mesh.shard=4" "--pass.zero=3 --mesh.shard=4 $once"; do
	rm -rf on
	cp -r cut3 on
	run 0 train $constant $mesh --run.dir=on
	says "^Resume: .*after step 6"
	same "onefile/$(checkpoint . 8)/model.safetensors" "on/$(checkpoint . 8)/model.safetensors"
	same "onefile/$(checkpoint . 8)/state.safetensors" "on/$(checkpoint . 8)/state.safetensors"
done
mv cut3/$at/model-00002-of-*.safetensors aside
refused 3 "model-00002-of-.*safetensors" eval cut3/$at
run 0 train $cut --mesh.shard=4 $once --run.dir=cut3 # the checkpoint before it is taken
says "^warning: .*model-00002-of-.*safetensors.*going on from .*step-00000003"
same_checkpoint cut/$at cut3/$at

# tp groups divide tensors by columns too. Files have one layout: a run goes on with any mesh, and its losses are those of one rank
# but for rounding.
near() {
	losses "$1" >a
	losses "$2" >b
	paste a b | awk -v n="$3" '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (!(d <= 1e-5 * $1)) bad++ } END { exit bad > 0 || NR != n }' ||
		wrong "'$1' and '$2' have other losses: $(paste a b | tail -n 3)"
}
heads="$wide --optim.schedule=constant --run.threads=4 --checkpoint.every=3 --checkpoint.file-size=60kB"
run 0 train $heads --run.dir=alone --train.steps=12
run 0 train $heads --run.dir=divided --mesh.tp=2
[ "$(ls "alone/$(checkpoint . 12)")" = "$(ls divided/$at)" ] || wrong "a tp group has other files"
logged_near divided
run 0 train $heads --run.dir=divided --train.steps=8
says "^Resume: .*after step 6"
run 0 train $heads --run.dir=divided --train.steps=10 --mesh.shard=4
run 0 train $heads --run.dir=divided --train.steps=12 --mesh.tp=2 --mesh.shard=2 --pass.tp-sequence=no --sample.tokens=4
says "^Resume: .*after step 10" "^Sample: "
near alone divided 12
# bf16: the optimizer in backward, a split master, moments that are rounded at random.
run 0 train $tiny --train.rows=4 --model.heads=4 --model.kv-heads=2 --mesh.tp=2 --ranks=4 --run.dir=tpb --optim.master=split \
	--optim.moments=bf16 --optim.clip-norm=previous --pass.optimizer-in-backward=yes --sample.tokens=4 --train.steps=3
run 0 train $tiny --train.rows=4 --model.heads=4 --model.kv-heads=2 --run.dir=tpb --optim.master=split --optim.moments=bf16 \
	--optim.clip-norm=previous
says "^Resume: .*after step 3"

# cp groups: ranks have tokens of the same rows. They write the files that one rank writes, and go on with its state.
run 0 program $heads --ranks=4 --mesh.cp=2 --no-operations --dump=cp.txt
grep -q '^mesh 2 1 1 2$' cp.txt || wrong "not a mesh of 2 x 1 x 2 x 1"
grep -q '^pass zero 3$' cp.txt || wrong "a cp group does not share weights"
refused 2 "mesh.cp=3 does not divide mesh.ranks=4: the nearest that do are 2 and 4" program $heads --ranks=4 --mesh.cp=3
refused 2 "5 ranks of a cp group cannot share rows of .* tokens evenly" program $heads --mesh.cp=5
run 0 train $heads --run.dir=ring --train.steps=6 --ranks=4 --mesh.cp=4
run 0 eval ring
run 0 train $heads --run.dir=ring --train.steps=9 --mesh.cp=2 --mesh.tp=2
says "^Resume: .*after step 6"
run 0 train $heads --run.dir=ring --train.steps=12 --mesh.cp=2 --mesh.shard=2 --pass.zero=2 --sample.tokens=4
says "^Resume: .*after step 9" "^Sample: "
near alone ring 12

# In two parts: the same bits; with another mesh, or as one rank: the same losses but for rounding. What a rank shares
# may change too.
whole="--optim.schedule=constant --mesh.shard=2 --mesh.replicate=2"
run 0 train $small $whole --run.dir=hsdp
run 0 train $small $whole --run.dir=hparts --train.steps=3
cp -r hparts other
cp -r hparts single
run 0 train $small $whole --run.dir=hparts
says "^Resume: .*after step 3"
same hsdp/$at/model.safetensors hparts/$at/model.safetensors
same hsdp/$at/state.safetensors hparts/$at/state.safetensors
run 0 train $small --optim.schedule=constant --mesh.shard=4 --pass.zero=1 --run.dir=other
run 0 train $small --optim.schedule=constant --run.dir=single
losses hsdp >a
for dir in other single; do
	losses $dir >b
	paste a b | awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > 1e-5 * $1) bad++ } END { exit bad > 0 || NR != 6 }' ||
		wrong "$dir goes on with other losses: $(paste a b | tail -n 3)"
done
run 0 eval hsdp
says "^Logged: .* the same"
# bf16: masters in halves, moments rounded at random, the optimizer in backward, a sample of the whole weights.
run 0 train $tiny --train.rows=4 --mesh.shard=4 --run.dir=bf16 --optim.master=split --optim.moments=bf16 \
	--optim.clip-norm=previous --pass.optimizer-in-backward=yes --pass.zero-prefetch=0 --pass.zero-reshard=step --sample.tokens=4
run 0 eval bf16
says "^Logged: .* the same"

# fp8: a scale is that of all rows, so a first loss is one rank's; histories are the same, and a run goes on as one rank.
run 0 train $tiny --train.rows=4 --pass.fp8=current --run.dir=cur
run 0 train $tiny --train.rows=4 --pass.fp8=current --run.dir=cur4 --mesh.shard=2 --mesh.replicate=2
losses cur | sed -n 1p >a
losses cur4 | sed -n 1p >b
paste a b | awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; exit !(d <= 1e-12 * $1) }' || wrong "four ranks have other scales than one: $(paste a b)"
run 0 train $tiny --train.rows=4 --pass.fp8=delayed --pass.fp8-scale-precompute=yes --run.dir=del --mesh.shard=4 --pass.zero=2 --train.steps=3
run 0 train $tiny --train.rows=4 --pass.fp8=delayed --pass.fp8-scale-precompute=yes --run.dir=del
says "^Resume: .*after step 3"
refused 2 "fp8-scale-precompute: with zero=3 a weight is whole only between" train $tiny --train.rows=4 --pass.fp8=delayed \
	--pass.fp8-scale-precompute=yes --run.dir=del3 --mesh.shard=4
says "pass.zero=2 keeps whole weights"

# And on tp groups; what another mesh casts otherwise (here the copies of a key head) begins with empty histories.
run 0 train $wide --pass.fp8=delayed --pass.fp8-scale-precompute=yes --run.dir=delt --mesh.tp=2 --mesh.shard=2 --pass.zero=2 --train.steps=3
run 0 train $wide --pass.fp8=delayed --pass.fp8-scale-precompute=yes --run.dir=delt --train.steps=4
says "^Resume: .*after step 3"
run 0 train $wide --pass.fp8=delayed --pass.fp8-scale-precompute=yes --run.dir=delt --mesh.tp=4
says "^Resume: .*after step 4"
says "histories of fp8 maxima begin empty: this mesh or its passes cast other tensors"

# A value that is not finite: the rank that made it is named.
refused 1 "on rank [0-3] of 4, .* the first value that is not finite" train $small --run.dir=nan4 --mesh.shard=2 \
	--mesh.replicate=2 --optim.lr=10 --optim.warmup=0 --optim.clip=0 --optim.eps=0 --train.steps=400
refused 1 "on rank [0-3] of 4, .* the first value that is not finite" train $wide --run.dir=nan2 --mesh.shard=2 \
	--mesh.tp=2 --optim.lr=10 --optim.warmup=0 --optim.clip=0 --optim.eps=0 --train.steps=400
finish
