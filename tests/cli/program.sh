#!/bin/sh
# flatout program: the listing, its JSON, a dump that is the same program again.
. "$(dirname "$0")/lib.sh"

run 0 program $tiny
says "^step program of " "^Memory: " "matmul.forward" "attention_bwd.backward" "adamw.optimizer"
if LC_ALL=C.UTF-8 awk 'length($0) > 80' out | grep -q .; then
	wrong "wider than 80 columns: $(awk 'length($0) > 80' out | head -n 2)"
fi
run 0 program $tiny --no-operations
! grep -q "matmul.forward" out || wrong "--no-operations lists operations"
run 0 program $tiny --json --dump=one.txt
cp out one.json
valid one.json
keys one.json schema hash model tokens_per_step model_flop model_causal_flop executed_flop moved_bytes arena_bytes max_live_bytes persistent_bytes rank ranks roles received_bytes \
	instances blocks operations kind phase lane operands role slots
grep -q '"tokens_per_step": 128,' one.json || wrong "not 2 x 2 x 32 tokens per step"

# Dumped, read, dumped: the same text, the same hash; a foreign default does not matter.
run 0 program $tiny --program.file=one.txt --json --dump=two.txt
cp out two.json
same one.txt two.txt
same one.json two.json
run 0 program --program.file=one.txt --json
same out one.json
run 0 program $tiny --train.precision=fp32 --json
differ out one.json
# Options beside the file must say the same; the file is no run file.
refused 2 "contradict the program in 'one.txt': model.layers is 1 there, not 2; data.seq is 32 there, not 64" program \
	--program.file=one.txt --data.seq=64 --model.layers=2
refused 2 "contradict .*train.precision is bf16 there, not fp32" program $tiny --train.precision=fp32 --program.file=one.txt
# Passes: what is given is compared, by flag or by file; defaults, and what is left to auto, give way.
run 0 program $tiny --dump=passes.txt --pass.merge-qkv=no --pass.fuse-loss=0 --pass.recompute=full --optim.master=split --optim.moments=bf16 \
	--optim.rounding=nearest --pass.attention=eager
run 0 program --program.file=passes.txt --pass.merge-qkv=no --pass.fuse-loss=0 --pass.recompute=full --optim.master=split --optim.moments=bf16 \
	--optim.rounding=nearest --pass.attention=eager --no-operations
run 0 program --program.file=passes.txt --pass.recompute=auto --optim.state=auto --optim.master=fp32 --no-operations
refused 2 "pass.merge-qkv is no there, not yes; pass.fuse-loss is 0 there, not 512; pass.recompute is full there, not none; pass.attention is eager there, not flash; optim.master is split there, not fp32; optim.moments is bf16 there, not fp32; optim.rounding is nearest there, not stochastic" \
	program --program.file=passes.txt --pass.merge-qkv=yes --pass.fuse-loss=512 --pass.recompute=none --pass.attention=flash --optim.master=fp32 \
	--optim.moments=fp32 --optim.rounding=stochastic --pass.fused-optimizer=yes
refused 2 "pass.recompute is full there, not selective" program --program.file=passes.txt --pass.recompute=selective
refused 2 "optim.clip-norm is exact there, not previous" program --program.file=passes.txt --optim.clip-norm=previous
refused 2 "pass.fuse-loss is 512 there, not 0" program --program.file=one.txt --pass.fuse-loss=0
printf 'pass:\n  fp8: delayed\n  fp8-history: 7\n' >fp8.yaml
run 0 program $tiny fp8.yaml --dump=fp8.txt
printf 'pass:\n  fp8: delayed\n  fp8-history: 8\n  fp8-scale-precompute: yes\n' >fp8.yaml
refused 2 "pass.fp8-history is 7 there, not 8; pass.fp8-scale-precompute is no there, not yes" program fp8.yaml --program.file=fp8.txt
refused 2 "another model than 'llama-3.2-1b'" program --model.name=llama-3.2-1b --program.file=one.txt
refused 2 "'one.txt' is a step program" program one.txt
says "^hint: .*--program.file=one.txt"
refused 3 "nowhere/x.txt" program $tiny --dump=nowhere/x.txt
refused 3 "cannot read 'none.txt'" program --program.file=none.txt

# The model's FLOP are those of `flatout flops` for the same architecture.
"$bin" program --model.name=llama-3.2-1b --data.seq=1024 --train.micro-batches=1 --json >p.json || wrong "the program of llama-3.2-1b"
"$bin" flops --model llama-3.2-1b --seq 1024 --json >f.json || wrong "flops of llama-3.2-1b"
a=$(sed -n 's/^  "model_flop": \([0-9.e+]*\),.*/\1/p' p.json)
b=$(sed -n 's/.*"mfu": \([0-9.e+]*\),.*/\1/p' f.json | head -n 1)
awk -v a="$a" -v b="$b" 'BEGIN { d = a / (b * 1024) - 1; exit !(d < 1e-12 && d > -1e-12) }' || wrong "program: $a FLOP, flops: $b x 1024"

if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text text
	run 0 train $tiny --run.dir=lowered
	run 0 train $tiny --run.dir=reloaded --program.file=one.txt
	# Without times: those of steps, of lines, of the profile.
	for dir in lowered reloaded; do
		sed '/"event":"profile"/d; /checkpoint/d; s/"seconds".*//; s/,"time":.*//' $dir/log.jsonl >$dir.log
	done
	[ "$(grep -c '"event":"step"' lowered.log)" = 6 ] || wrong "not six steps"
	same lowered.log reloaded.log
	last=$(checkpoint . 6)
	same "lowered/$last/model.safetensors" "reloaded/$last/model.safetensors"
	same "lowered/$last/state.safetensors" "reloaded/$last/state.safetensors"
	same lowered/program.txt one.txt
	same reloaded/program.txt one.txt
	# A program of another run is refused.
	refused 2 "the program in 'one.txt' was made for train.micro-batches=2, train.rows=2, data.seq=32, train.precision=bf16" train $tiny --run.dir=x --program.file=one.txt --train.rows=1
	refused 2 "was made for" train $tiny --run.dir=x --program.file=one.txt --train.precision=fp32
	refused 2 "contradict the program in 'one.txt': pass.merge-qkv is yes there, not no" train $tiny --run.dir=x --program.file=one.txt \
		--pass.merge-qkv=no
fi
finish
