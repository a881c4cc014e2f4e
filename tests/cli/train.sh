#!/bin/sh
# flatout train: what a run leaves behind, its figures, the same bits again.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text

run 0 train $tiny --run.dir=r1 --json
cp out result.json
[ ! -s out ] || valid result.json
keys result.json schema steps tokens loss_tokens first_loss last_loss mean_loss val_loss bigram_loss seconds tokens_per_second mfu \
	mfu_causal mfu_document mfu_6n hfu peak_flop_s peak_median_flop_s peak_dtype peak_source profile matmul attention_forward \
	attention_backward elementwise loss optimizer communication data unattributed planned_bytes measured_bytes padding truncated \
	checkpoint sample
grep -q '"steps": 6,' result.json || wrong "not six steps"
grep -q '"padding": 0,' result.json || wrong "packed rows have padding"
says "^step 6/6 loss " "held-out loss" "^checkpoint r1/checkpoints/step-00000006"
# Parts of the step time sum to 1.
sum() {
	awk '/"profile"/ { on = 1; next } on && /}/ { on = 0 } on { gsub(/,/, ""); s += $2; n++ }
		END { d = s - 1; print (n == 9 && d < 1e-9 && d > -1e-9) ? "ok" : n " parts, sum " s }' "$1"
}
[ "$(sum result.json)" = ok ] || wrong "the profile's parts: $(sum result.json)"

for file in run.json log.jsonl program.txt timeline.fot data/tokenizer.json data/train.shard data/val.shard; do
	[ -s "r1/$file" ] || wrong "no r1/$file"
done
for file in config.json model.safetensors tokenizer.json state.safetensors training.json manifest.json run.json; do
	[ -s "r1/checkpoints/step-00000006/$file" ] || wrong "no $file in the checkpoint"
done
[ -z "$(find r1 -name '*.tmp*')" ] || wrong "temporary files are left: $(find r1 -name '*.tmp*')"
valid r1/run.json
valid r1/log.jsonl
for file in config.json training.json manifest.json tokenizer.json run.json; do
	valid "r1/checkpoints/step-00000006/$file"
done
keys r1/run.json options origin where commit libraries compiler cpu threads isa seed tokenizer_checksum train_shard_checksum \
	val_shard_checksum program_hash peak_source started
grep -q '"origin": "flag"' r1/run.json && grep -q '"origin": "default"' r1/run.json || wrong "run.json has no origins"
[ "$(grep -c '"event":"step"' r1/log.jsonl)" = 6 ] || wrong "not six steps in the log"
[ "$(grep -c '"event":"eval"' r1/log.jsonl)" = 2 ] || wrong "not two evaluations in the log"
[ "$(grep -c '"event":"checkpoint"' r1/log.jsonl)" = 1 ] || wrong "not one checkpoint in the log"
# The first loss is that of a model that knows nothing: about ln 300 = 5.70.
losses r1 | awk 'NR == 1 { exit !($2 > 5.4 && $2 < 6.1) }' || wrong "the first loss is $(losses r1 | head -n 1)"

# What names a run of the same seed, threads and instruction set gives the same bits; another seed does not.
run 0 train $tiny --run.dir=r2
losses r1 >l1
losses r2 >l2
same l1 l2
same r1/checkpoints/step-00000006/model.safetensors r2/checkpoints/step-00000006/model.safetensors
same r1/checkpoints/step-00000006/state.safetensors r2/checkpoints/step-00000006/state.safetensors
same r1/data/tokenizer.json r2/data/tokenizer.json
same r1/data/train.shard r2/data/train.shard
same r1/program.txt r2/program.txt
# Metered steps change no bit, are no part of the step time, and leave their spans; the first step of a process is never one.
run 0 train $tiny --run.dir=m1 --train.metered-every=3
losses m1 >lm
same l1 lm
same r1/checkpoints/step-00000006/model.safetensors m1/checkpoints/step-00000006/model.safetensors
same r1/checkpoints/step-00000006/state.safetensors m1/checkpoints/step-00000006/state.safetensors
[ -s m1/metered.fom ] && [ ! -e r1/metered.fom ] || wrong "metered.fom is missing, or there without metered steps"
[ "$(sed -n 's/^{"event":"step","step":\([0-9]*\),.*"metered":true,.*}$/\1/p' m1/log.jsonl | tr '\n' ' ')" = "3 6 " ] || wrong "not steps 3 and 6 are metered"
grep -q '"metered":true' r1/log.jsonl && wrong "a step is metered that nobody asked for"
[ "$(grep '"metered":true' m1/log.jsonl | grep -c '"tokens_per_second":null,"mfu":null')" = 2 ] || wrong "a metered step has a rate"
grep '"event":"end"' m1/log.jsonl | grep -q '"steps":6,"timed_steps":3,' || wrong "metered steps are in the step time"
valid m1/log.jsonl
refused 2 "train.metered-every=1 leaves no step" train $tiny --run.dir=m2 --train.metered-every=1
run 0 train $tiny --run.dir=r3 --run.seed=2
losses r3 >l3
differ l1 l3
differ r1/checkpoints/step-00000006/model.safetensors r3/checkpoints/step-00000006/model.safetensors
same r1/data/train.shard r3/data/train.shard

# All steps are done: nothing happens, and it says so.
run 0 train $tiny --run.dir=r1
says "nothing to do"
same r1/checkpoints/step-00000006/model.safetensors r2/checkpoints/step-00000006/model.safetensors
run 0 train $tiny --run.dir=r1 --json
cp out again.json
valid again.json
grep -q '"steps": 0,' again.json || wrong "nothing to do, and yet steps"

# Learning: more steps make the loss fall clearly below the start.
run 0 train $tiny --run.dir=r4 --train.steps=60 --optim.lr=1e-2 --optim.warmup=5 --eval.every=0
losses r4 | awk 'NR == 1 { a = $2 } { b = $2 } END { exit !(b < a - 1) }' || wrong "it does not learn: $(losses r4 | tail -n 1)"

# Every precision, packing, thread count and instruction set.
run 0 train $tiny --run.dir=fp32 --train.precision=fp32
grep -q '"F32"' fp32/checkpoints/step-00000006/model.safetensors || wrong "fp32 weights are not stored as F32"
grep -q '"BF16"' r1/checkpoints/step-00000006/model.safetensors || wrong "bf16 weights are not stored as BF16"
run 0 train $tiny --run.dir=padded --data.packing=padded --json
awk '/"padding"|"truncated"/ { gsub(/,/, ""); n++; if ($2 < 0 || $2 >= 1) bad = 1; s += $2 } END { exit !(n == 2 && !bad && s > 0) }' out ||
	wrong "padded rows report neither padding nor truncation: $(grep -E 'padding|truncated' out)"
valid padded/log.jsonl
run 0 train $tiny --run.dir=t2 --run.threads=2
run 0 train $tiny --run.dir=t2b --run.threads=2
same t2/checkpoints/step-00000006/model.safetensors t2b/checkpoints/step-00000006/model.safetensors
run 0 train $tiny --run.dir=tied --model.tied=yes --sample.tokens=5 --sample.prompt=the
says "^Sample: "
isa=${FLATOUT_ISA:-}
FLATOUT_ISA=ref
export FLATOUT_ISA
run 0 train $tiny --run.dir=ref
says "^Kernels:  *ref"
run 0 train $tiny --run.dir=ref32 --train.precision=fp32
FLATOUT_ISA=quantum
refused 2 "FLATOUT_ISA is 'quantum'" train $tiny --run.dir=isa
says "^hint: it may be ref"
if ! grep -q amx_tile /proc/cpuinfo; then
	FLATOUT_ISA=amx
	refused 3 "FLATOUT_ISA is 'amx', but this machine has only" train $tiny --run.dir=isa
	refused 3 "FLATOUT_ISA is 'amx'" train $tiny --run.dir=isa --dry-run
fi
# Going on with other kernels is said: the bits are those of one set.
FLATOUT_ISA=ref
run 0 train $tiny --run.dir=ref --train.steps=7
! grep -q "kernels, this run goes on" out err || wrong "the same kernels are called others"
if grep -q avx2 /proc/cpuinfo; then
	FLATOUT_ISA=avx2
	run 0 train $tiny --run.dir=ref --train.steps=8
	says "^warning: kernels: ref in the checkpoint, avx2 from here on"
fi
if [ -n "$isa" ]; then FLATOUT_ISA=$isa; else unset FLATOUT_ISA; fi
run 0 train $tiny --run.dir=best32 --train.precision=fp32
# Two instruction sets differ in rounding only: the losses of fp32 agree to five digits.
losses ref32 >a
losses best32 >b
paste -d ' ' a b | awk '{ d = $2 - $5; if (d < 0) d = -d; if (d > 1e-4) bad = 1; n++ } END { exit !(n == 6 && !bad) }' ||
	wrong "fp32 losses of ref and of the best set differ: $(paste -d ' ' a b)"

# Dry runs write nothing and need no text.
run 0 train $tiny --run.dir=dry --dry-run
says "^Model: " "^Memory: "
[ ! -e dry ] || wrong "a dry run made its folder"
run 0 train $tiny --run.dir=dry --data.path= --dry-run

# The plan of a model that this machine could never hold.
run "0|3" train --model.name=llama-3.1-405b --data.seq=512 --dry-run
says "^Memory: "
[ $code = 0 ] || says "^flatout: no plan of this step fits into "

# Memory: a run that plans more than it may use is refused with what to change.
fixed="$tiny --pass.recompute=none"
refused 3 "the run plans .* and may use 64.0 KiB" train $fixed --run.dir=small --memory.limit=64KiB
says "^hint: .*halve train.rows"
refused 3 "the run plans" train $fixed --run.dir=small --memory.limit=64KiB --train.rows=1
says "^hint: .*data.seq"
refused 3 "the run plans" train $fixed --memory.limit=64KiB --dry-run
refused 3 "no plan of this step fits into 64.0 KiB: the least .* takes .*; no shorter rows would fit" train $tiny --memory.limit=64KiB --dry-run

# Text: what there is too little of, what is no text, what is not UTF-8.
refused 2 "data.path" train $tiny --run.dir=none --data.path=
refused 3 "nowhere" train $tiny --run.dir=none --data.path=nowhere
says "^hint: data.path names the text"
mkdir no_files
refused 2 "'no_files' holds no files$" train $tiny --run.dir=none --data.path=no_files
: >empty.txt
head -c 100000 /dev/zero >nul.txt
printf 'ten bytes.' >ten.txt
mkdir -p hollow/below
refused "2|3" "empty.txt" train $tiny --run.dir=none --data.path=empty.txt
refused "2|3" "nul.txt" train $tiny --run.dir=none --data.path=nul.txt
refused "2|3" "hollow" train $tiny --run.dir=none --data.path=hollow
run "0|2" train $tiny --run.dir=ten --data.path=ten.txt
[ "$code" = 0 ] || sentence
head -c 60000 /dev/urandom | LC_ALL=C tr -d '\000' >latin.txt
run 0 train $tiny --run.dir=latin --data.path=latin.txt
mkdir -p mixed
cp text/* empty.txt nul.txt latin.txt mixed/
run 0 train $tiny --run.dir=mixed1 --data.path=mixed
refused 2 "the tokenizer has 300 tokens, the model's vocabulary 290" train $tiny --run.dir=vocab --data.tokenizer=r1/data/tokenizer.json --model.vocab=290
run 0 train $tiny --run.dir=vocab2 --data.tokenizer=r1/data/tokenizer.json --model.vocab=320

# Non-finite numbers end the run with a sentence and exit 1.
refused 1 "the loss is" train $tiny --run.dir=nan --optim.lr=10 --optim.clip=0 --optim.eps=0 --optim.weight-decay=10 --train.steps=400 \
	--eval.every=0 --optim.warmup=0
finish
