#!/bin/sh
# mesh.ranks: several ranks train as one does; runs go on with the same bits; what cannot be is refused with what could.
. "$(dirname "$0")/lib.sh"

small="$tiny --train.rows=4 --train.precision=fp32"
run 0 program $small --ranks=2 --no-operations
says "2 ranks x 2 micro-batches x 2 rows x 32 tokens" "^Received: .* per step from the other ranks" "^layer.b.r: "
run 0 program $small --ranks=2 --json --dump=two.txt
says '"ranks": 2,' '"received_bytes": '
grep -q '^mesh 2 0$' two.txt || wrong "the dump has no mesh"
run 0 program $small --dump=one.txt
! grep -q '^mesh' one.txt || wrong "a program of one rank names a mesh"
refused 2 "3 ranks cannot share .* train.rows=4: the nearest that can be shared are 3 or 6 rows, or 2 or 4 ranks" program $small --ranks=3
refused 2 "8 ranks cannot share .* the nearest that can be shared are 8 rows, or 4 ranks" program $small --ranks=8
refused 2 "from 1 to 1024 ranks, got '0'" program $small --ranks=0
for other in pass.fp8=current run.affinity=cores train.device=cuda; do
	refused 2 "mesh.ranks=2 cannot be combined with ${other%%=*}" program $small --ranks=2 --$other
done
refused 2 "mesh.ranks=2 cannot be combined with program.file" program $small --ranks=2 --program.file=two.txt

needs_engine
make_text text
at=$(checkpoint . 6)
# losses DIR: of its steps, one in a line.
losses() { sed -n 's/^{"event":"step",.*"loss":\([-0-9.e]*\),.*/\1/p' "$1/log.jsonl"; }
run 0 train $small --run.dir=one
for ranks in 2 4; do
	run 0 train $small --run.dir=by$ranks --ranks=$ranks --run.threads=$ranks
	losses one >a
	losses by$ranks >b
	[ "$(wc -l <b)" = 6 ] || wrong "$ranks ranks: not six losses"
	# Six steps of fp32: sums in another order.
	paste a b | awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > 1e-5 * $1) bad++ } END { exit bad > 0 }' ||
		wrong "$ranks ranks have other losses: $(paste a b | tail -n 2)"
done
# The same again, and in two parts: the same bits.
run 0 train $small --run.dir=again --ranks=2 --run.threads=2
same by2/$at/model.safetensors again/$at/model.safetensors
same by2/$at/state.safetensors again/$at/state.safetensors
whole="--optim.schedule=constant --ranks=2"
run 0 train $small $whole --run.dir=whole
run 0 train $small $whole --run.dir=parts --train.steps=3
run 0 train $small $whole --run.dir=parts
says "^Resume: .*after step 3"
same whole/$at/model.safetensors parts/$at/model.safetensors
same whole/$at/state.safetensors parts/$at/state.safetensors
# A run goes on with another number of ranks, and its folder is read as any other.
run 0 train $small --optim.schedule=constant --run.dir=parts --ranks=4 --train.steps=8
run 0 report parts
says "2 x 4 rows of 32 tokens per step"
run 0 eval parts
says "^Logged: .* the same"

# A value that is not finite: the rank that made it is named.
refused 1 "on rank [01] of 2, .* the first value that is not finite" train $small --run.dir=nan --ranks=2 --optim.lr=10 \
	--optim.warmup=0 --optim.clip=0 --optim.eps=0 --train.steps=400
finish
