#!/bin/sh
# A run on a device whose weights and optimizer state are more than the host may hold: it trains, evaluates, saves piece by piece, goes on
# from what it saved, starts from Hugging Face weights and samples. Beside it: checkpoints that the disk has no room for are told before
# the run. The device is the tests' software model, whose memory a limit on the process's data does not count.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text

# ---- room on the disk ----
if [ -e "${FLATOUT_FAULT:-}" ]; then
	# with_free BYTES CODE ARGUMENT...
	with_free() {
		free=$1 want=$2 code=0
		shift 2
		ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} FAULT_FREE=$free LD_PRELOAD=$FLATOUT_FAULT "$bin" "$@" >out 2>err </dev/null || code=$?
		judge "$* with $free bytes free"
	}
	# 28,512 parameters in 14 bytes each: a checkpoint is 399,168 bytes.
	with_free 100000 3 train $tiny --run.dir=small
	says "^flatout: a checkpoint of this run takes 390 KiB, and the disk of 'small' has 96.0 KiB free" "^hint: make room.*checkpoint.last=no"
	[ ! -e small/checkpoints ] && [ ! -e small/log.jsonl ] || wrong "a run that was refused for its disk began"
	with_free 100000 3 train $tiny --run.dir=small --dry-run
	says "^Saves:  *checkpoints of 390 KiB, 1 more at one time; the disk has 96.0 KiB free" "^flatout: a checkpoint of this run takes"
	with_free 100000 0 train $tiny --run.dir=none --checkpoint.last=no --checkpoint.every=0
	with_free 900000 0 train $tiny --run.dir=some --checkpoint.every=1
	says "^warning: the disk of 'some' has 876 KiB free, and the run writes checkpoints of 390 KiB, 1.14 MiB at one time: not all will fit"
	with_free 900000 0 train $tiny --run.dir=two --checkpoint.every=3
	! grep -q "^warning" err || wrong "two checkpoints fit: $(cat err)"
	# What lies there is not asked for again, and a run that goes on needs room for one.
	with_free 500000 0 train $tiny --run.dir=two --checkpoint.every=3 --train.steps=9
	! grep -q "^warning" err || wrong "one more checkpoint fits: $(cat err)"
	with_free 100000 0 train $tiny --run.dir=two --checkpoint.every=3 --train.steps=9
fi

[ -n "${FLATOUT_SOFT_CUDA:-}" ] || finish
FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA FLATOUT_CACHE=$tmp/cache
export FLATOUT_CUDA_LIBRARIES FLATOUT_CACHE
# 17 million parameters in 14 bytes each: 227 MiB of state.
big="--model.layers=1 --model.hidden=256 --model.heads=2 --model.kv-heads=1 --model.head-dim=32 --model.ffn=512 --model.vocab=32768 --data.vocab=300 \
--data.path=text --data.seq=32 --data.holdout=10 --train.rows=1 --train.micro-batches=1 --train.steps=2 --optim.schedule=constant --optim.warmup=1 \
--run.threads=1 --eval.every=2 --eval.batches=1 --train.device=cuda --train.tune=off"
kib=200000
# A sanitizer's shadow alone is more.
(ulimit -d $kib && "$bin" --version) >/dev/null 2>&1 || { echo "$name: the program does not start with $kib KiB of data"; finish; }
limited() { # CODE ARGUMENT...
	want=$1 code=0
	shift
	(ulimit -d $kib && exec "$bin" "$@") >out 2>err </dev/null || code=$?
	judge "flatout $* within $kib KiB"
}
json_of() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" out | head -n 1; }

run 0 train $big --run.dir=wide --checkpoint.every=1 --checkpoint.keep=0
losses wide >wide.losses

# What the plan says of the host: with room the copy that checkpoints are written from, else none, and that training waits.
run 0 train $big --run.dir=dry --dry-run --json --checkpoint.every=1
with=$(json_of host_bytes) copy=$(json_of host_copy_bytes) state=$(json_of persistent_bytes)
[ "$state" -gt $((kib * 1024)) ] || wrong "the state, $state bytes, is within the limit: nothing is shown"
[ "$copy" -ge "$state" ] && [ "$with" -gt "$copy" ] || wrong "the host's $with bytes do not hold the copy of $state ($copy)"
limited 0 train $big --run.dir=dry --dry-run --json --checkpoint.every=1
[ "$(json_of host_copy_bytes)" = 0 ] && [ "$(json_of host_bytes)" -lt $((64 << 20)) ] ||
	wrong "without room the host holds $(json_of host_bytes) bytes, $(json_of host_copy_bytes) of them a copy"
says "^warning: no memory on the host for a copy of the state (2[23][0-9] MiB): training waits while a checkpoint is written"

# No weights saved; saved in pieces, of which each byte is that of the run with a copy; gone on with.
limited 0 train $big --run.dir=unsaved --checkpoint.last=no --checkpoint.every=0
losses unsaved >unsaved.losses
same wide.losses unsaved.losses
limited 0 train $big --run.dir=tight --checkpoint.every=1 --checkpoint.keep=0 --sample.tokens=4
for step in 1 2; do
	for file in model.safetensors state.safetensors config.json tokenizer.json training.json; do
		same "$(checkpoint wide $step)/$file" "$(checkpoint tight $step)/$file"
	done
done
rm -rf "$(checkpoint tight 2)"
limited 0 train $big --run.dir=tight --checkpoint.every=1 --checkpoint.keep=0
says "^Resume:  *after step 1\$"
for file in model.safetensors state.safetensors; do
	same "$(checkpoint wide 2)/$file" "$(checkpoint tight 2)/$file"
done

# From Hugging Face's layout: a weight and its low half are two destinations of one tensor.
from="$big --model.weights=$(checkpoint wide 1) --optim.master=split --train.steps=1 --eval.every=0"
run 0 train $from --run.dir=hf-wide
limited 0 train $from --run.dir=hf
for file in model.safetensors state.safetensors; do
	same "$(checkpoint hf-wide 1)/$file" "$(checkpoint hf 1)/$file"
done
finish
