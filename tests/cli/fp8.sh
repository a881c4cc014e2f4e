#!/bin/sh
# Training in fp8: the bits of an uninterrupted run with every recipe, histories in checkpoints, weights cast once or every time.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
at3=$(checkpoint . 3)
at6=$(checkpoint . 6)
small="$tiny --checkpoint.every=3 --checkpoint.keep=0 --data.path=text"

run 0 train $small --run.dir=bf16
for recipe in current delayed rowwise rowwise-hp; do
	run 0 train $small --run.dir=$recipe --pass.fp8=$recipe
	says "^step 6/6"
	cmp -s bf16/$at6/model.safetensors $recipe/$at6/model.safetensors && wrong "pass.fp8=$recipe changes nothing"
	# Weights cast behind their optimizer step: the same bits, and nothing of them in the checkpoint.
	run 0 train $small --run.dir=kept --pass.fp8=$recipe --pass.fp8-scale-precompute=yes
	same $recipe/$at6/model.safetensors kept/$at6/model.safetensors
	same $recipe/$at6/state.safetensors kept/$at6/state.safetensors
	# Gone on after step 3, one way and the other.
	for how in no yes; do
		rm -rf half && cp -r $recipe half && rm -r half/$at6
		run 0 train $small --run.dir=half --pass.fp8=$recipe --pass.fp8-scale-precompute=$how
		says "^Resume:  *after step 3"
		same $recipe/$at6/model.safetensors half/$at6/model.safetensors
		same $recipe/$at6/state.safetensors half/$at6/state.safetensors
	done
	history=0
	[ $recipe = delayed ] && history=1
	[ "$(grep -ac 'state\.fp8\.history\.0' $recipe/$at6/state.safetensors)" = $history ] || wrong "histories in the checkpoint of $recipe"
	rm -rf kept
done
# From one recipe to another is another run: both are named, with all that follows from them.
rm -rf half && cp -r bf16 half && rm -r half/$at6
refused 2 "pass.fp8 is off there and delayed here; pass.fp8-history is 0 there and 1024 here" train $small --run.dir=half --pass.fp8=delayed
refused 2 "pass.fp8 is delayed there and off here" train $small --run.dir=delayed --train.steps=9
says "^hint: set pass.fp8=delayed, pass.fp8-history=1024 or choose another run.dir"
# Another length of the history is another state, other layers are another recipe.
refused 2 "pass.fp8-history is 1024 there and 7 here" train $small --run.dir=delayed --train.steps=9 --pass.fp8=delayed --pass.fp8-history=7
says "^hint: set pass.fp8-history=1024 or choose another run.dir"

# Weight gradients as they are: other bits than the recipe alone. Layers that keep their precision leave some to fp8.
apart="--pass.fp8=delayed --pass.fp8-wgrad=bf16 --pass.fp8-scale-precompute=yes"
run 0 train $small --run.dir=apart $apart
cmp -s apart/$at6/model.safetensors delayed/$at6/model.safetensors && wrong "pass.fp8-wgrad changes nothing"
refused 2 "pass.fp8-wgrad is about fp8 matmuls" train $small --run.dir=apart2 --pass.fp8-wgrad=bf16
refused 2 "keep their precision: none is left for fp8" train $small --run.dir=apart2 --pass.fp8=current --pass.fp8-skip-first=100
run 0 program $tiny --pass.fp8=rowwise --pass.fp8-wgrad=bf16 --dump=w.txt
refused 2 "pass.fp8-wgrad is bf16 there, not fp8" train $small --run.dir=filed --program.file=w.txt --pass.fp8-wgrad=fp8

# Casts inside of what makes their numbers: the same bits as by themselves.
run 0 train $small --run.dir=fused --pass.fp8=delayed --pass.fp8-scale-precompute=yes --pass.fp8-transposed=yes --pass.fp8-fuse=yes
same delayed/$at6/model.safetensors fused/$at6/model.safetensors
same delayed/$at6/state.safetensors fused/$at6/state.safetensors
refused 2 "pass.fp8-fuse=yes is about scales that are known before" train $small --run.dir=fused2 --pass.fp8=current --pass.fp8-fuse=yes

run 0 passes $tiny --pass.fp8=delayed --pass.fp8-scale-precompute=yes
says "^ *+ fp8=delayed " "^ *+ fp8-scale-precompute "
run 0 program $tiny --pass.fp8=rowwise --dump=p.txt
run 0 train $small --run.dir=filed --program.file=p.txt
same rowwise/$at6/model.safetensors filed/$at6/model.safetensors
refused 2 "contradict the program in 'p.txt': pass.fp8 is rowwise there, not delayed" train $small --run.dir=filed --program.file=p.txt \
	--pass.fp8=delayed
sed 's/^pass fp8 3$/pass fp8 9/' p.txt >bad.txt
refused 2 "no fp8 recipe 9" train $small --run.dir=bad --program.file=bad.txt
refused 2 "pass.fp8" train $small --run.dir=bad --pass.fp8=fp4
finish
