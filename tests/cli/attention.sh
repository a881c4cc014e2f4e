#!/bin/sh
# pass.attention: probabilities in memory and whole squares where eager is asked for; dumps, resumption and decoding with it.
. "$(dirname "$0")/lib.sh"

figure() { sed -n "s/^ *\"$1\": \([0-9.e+]*\),*\$/\1/p" "$2" | head -n 1; }
wide="--model.layers=2 --model.hidden=64 --model.heads=4 --model.ffn=160 --model.vocab=64 --data.seq=256 --train.rows=2 --train.micro-batches=1 \
--pass.fuse-loss=0"
for kernel in flash eager; do
	run 0 program $wide --pass.attention=$kernel --json --dump=$kernel.txt
	cp out $kernel.json
done
# Two layers, two rows, four heads, 256 x 256 bf16 probabilities less fp32 log sums; documents die early.
[ $(($(figure arena_bytes eager.json) - $(figure arena_bytes flash.json))) -eq $((2 * 2 * 256 * 4 * (256 * 2 - 4) - 2 * 256 * 4)) ] ||
	wrong "the arena grows from $(figure arena_bytes flash.json) to $(figure arena_bytes eager.json)"
[ "$(figure model_flop eager.json)" = "$(figure model_flop flash.json)" ] || wrong "model FLOP depend on the kernel"
awk "BEGIN { exit !($(figure executed_flop eager.json) > $(figure executed_flop flash.json)) }" || wrong "executed FLOP do not rise"
grep -q '^pass attention 1$' eager.txt || wrong "the dump does not say which attention it has"
! grep -q '^pass attention' flash.txt || wrong "the dump names the default"
run 0 program --program.file=eager.txt --json --dump=again.txt
same eager.txt again.txt
# A dump whose probabilities have another size, or none, is no program.
sed 's/^\(buffer prob .*\) 1024 \([0-9]*\)$/\1 1020 \2/; s/^\(arg prob .*\) 1024$/\1 1020/' eager.txt >bad.txt
refused 2 "the shape of 'prob' does not agree" program --program.file=bad.txt
run 0 passes $tiny --pass.attention=eager
says "^ *+ attention=eager "
run 0 passes $tiny
says "^ *attention=eager "
refused 2 "pass.attention" program $tiny --pass.attention=sdpa

[ -n "${FLATOUT_HAS_ENGINE:-}" ] || finish
make_text text
run 0 train $tiny --run.dir=flash
run 0 train $tiny --run.dir=eager --pass.attention=eager --checkpoint.every=3 --checkpoint.keep=0 --sample.tokens=8
says "attention=eager"
losses flash >a
losses eager >b
paste -d ' ' a b | awk '{ d = $2 - $5; if (d < -0.02 || d > 0.02) bad = 1; n++ } END { exit bad || n != 6 }' ||
	wrong "losses leave those of flash: $(paste -d ' ' a b)"
differ "flash/$(checkpoint . 6)/model.safetensors" "eager/$(checkpoint . 6)/model.safetensors"
# From a dump: the same bits. Recomputed: the same bits. Stopped and gone on: the same bits; with the other kernel it goes on too.
run 0 program $tiny --pass.attention=eager --dump=p.txt
run 0 train $tiny --run.dir=filed --program.file=p.txt
run 0 train $tiny --run.dir=full --pass.attention=eager --pass.recompute=full
cp -r eager half && rm -r "half/$(checkpoint . 6)"
run 0 train $tiny --run.dir=half --pass.attention=eager
for dir in filed full half; do
	same "eager/$(checkpoint . 6)/model.safetensors" "$dir/$(checkpoint . 6)/model.safetensors"
	same "eager/$(checkpoint . 6)/state.safetensors" "$dir/$(checkpoint . 6)/state.safetensors"
done
rm -r "half/$(checkpoint . 6)"
run 0 train $tiny --run.dir=half
says "^Resume:  *after step 3\$"
finish
