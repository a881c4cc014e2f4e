#!/bin/sh
# Formats of what the optimizer keeps (optim.master, optim.moments): runs that go on bit by bit, refusals that say what is wrong.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
# Every format of what the optimizer keeps: stopped and taken up it gives the same bits; another format is refused by name.
formats="--train.steps=8 --checkpoint.every=4 --eval.every=0"
for format in "--optim.master=split --optim.moments=bf16" "--optim.master=none --optim.moments=bf16" "--train.precision=fp32 --optim.moments=bf16"; do
	rm -rf at-once in-two
	run 0 train $tiny $formats $format --run.dir=at-once --checkpoint.keep=0
	mkdir -p in-two/checkpoints
	cp -R at-once/data in-two/data
	cp -R "at-once/$(checkpoint . 4)" "in-two/$(checkpoint . 4)"
	run 0 train $tiny $formats $format --run.dir=in-two
	says "^Resume:  *after step 4\$"
	for file in model state; do
		same "at-once/$(checkpoint . 8)/$file.safetensors" "in-two/$(checkpoint . 8)/$file.safetensors"
	done
	grep -q '"moments": "bf16"' "in-two/$(checkpoint . 8)/training.json" || wrong "training.json does not say the format of the moments"
	refused 2 "optim.moments is bf16 there and fp32 here" train $tiny $formats $format --optim.moments=fp32 --run.dir=in-two
done
run 0 train $tiny $formats --optim.master=split --run.dir=split
refused 2 "optim.master is split there and none here" train $tiny $formats --optim.master=none --run.dir=split
refused 2 "optim.master is split there and fp32 here" train $tiny $formats --run.dir=split
run 0 train $tiny $formats --optim.master=split --run.dir=split
# The plan of a run says which format it has.
run 0 train $tiny $formats --optim.master=none --optim.moments=bf16 --run.dir=plan --cli.dry-run
says "master=none" "moments=bf16"
# fp16 is answered, not merely unknown.
refused 2 "one of bf16, fp32, got 'fp16': numbers below 6e-8 are lost .* bf16 takes the same bytes" train $tiny --train.precision=fp16 --run.dir=fp16
refused 2 "optim.master=split is about bf16 weights" train $tiny --train.precision=fp32 --optim.master=split --run.dir=fp16
finish
