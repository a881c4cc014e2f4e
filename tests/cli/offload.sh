#!/bin/sh
# pass.offload: the same losses and weights, device and host memory apart in every plan; what cannot be is refused with what could.
. "$(dirname "$0")/lib.sh"

wide="--model.layers=4 --model.hidden=64 --model.heads=4 --model.ffn=160 --model.vocab=256 --data.seq=128 --train.rows=4 --train.micro-batches=1"
# bytes KEY: the first one of that name.
bytes() { sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" out | head -n 1; }
run 0 program $wide --json
arena=$(bytes arena_bytes)
[ "$(bytes host_arena_bytes)" = 0 ] || wrong "host memory without pass.offload"
run 0 program $wide --json --pass.offload=2
[ "$(bytes host_arena_bytes)" -gt 0 ] || wrong "no host memory with pass.offload"
[ "$(bytes arena_bytes)" -lt "$arena" ] || wrong "the arena does not fall: $arena, $(bytes arena_bytes)"
run 0 program $wide --pass.offload=2 --dump=p.txt
says "of activations wait for backward in host memory" "^layer.f.out: "
run 0 program --program.file=p.txt
says "of activations wait for backward in host memory"
refused 2 "contradict the program in 'p.txt': pass.offload is 2 there, not 1" program --program.file=p.txt --pass.offload=1
run 0 passes $wide --pass.offload=3
says "^ *+ offload=3 " "^ *\* offload: beside that .* of activations wait in host memory"
if LC_ALL=C.UTF-8 awk 'length($0) > 80' out | grep -q .; then
	wrong "wider than 80 columns: $(awk 'length($0) > 80' out | head -n 2)"
fi
run 0 config --pass.offload=3
says "^ *pass.offload  *3 layers "
refused 2 "pass offload: activations of 4 of 4 layers: .* at most those of 3 can wait elsewhere" program $wide --pass.offload=4
refused 2 "pass.offload" program $wide --pass.offload=-1

# Training: the same files, the plan's host bytes in the total.
needs_engine
make_text text
small="$tiny --model.layers=3 --data.path=text"
at=$(checkpoint . 6)
run 0 train $small --run.dir=plain
run 0 train $small --run.dir=off --pass.offload=2
says "of activations that wait for backward in host memory"
same plain/$at/model.safetensors off/$at/model.safetensors
same plain/$at/state.safetensors off/$at/state.safetensors
finish
