#!/bin/sh
# flatout predict --device: the parts of a step on an accelerator, what it says of files and options that are wrong, and that
# docs/performance.md shows what it prints.
. "$(dirname "$0")/lib.sh"
auto="--model.name=llama-3.1-8b --optim.master=split --optim.moments=bf16 --train.rows=1"
eight="$auto --pass.fuse-loss=2048 --pass.recompute=none --pass.wgrad-lane=no --pass.fuse-rope=no"
small="--model.name=llama-3.2-1b --data.seq=2048 --train.rows=1 --train.micro-batches=2"
# sum KEY FILE: of a part's seconds, or of the step
number() { "$python" -c 'import json, sys; print(eval("d" + sys.argv[2], {"d": json.load(open(sys.argv[1])), "sum": sum}))' "$2" "$1"; }
# flat PATTERN: somewhere in ./out, whatever lines it is broken into
flat() { tr -s '\n ' '  ' <out | grep -q -e "$1" || wrong "nowhere '$1': $(head -n 8 out)"; }
narrow() { ! awk 'length($0) > 80' out | grep . || wrong "wider than 80 columns"; }

# shellcheck disable=SC2086 # words on purpose, here and below
run 0 predict --device h200 $eight --data.seq=8192 --train.micro-batches=16
says "^Predict: *llama-3.1-8b: 16 micro-batches x 1 row x 8192 tokens, bf16" "^Device: *H200-SXM-141GB: " "^Rests on" "^Step: " "^MFU: " \
	"^Memory: .* planned" "^ *linear matmuls, 343 TFLOP " "^ *head, 25.8 TFLOP " "^ *attention, " "^ *norm, rope, SwiGLU, " "^ *cross-entropy, " "^ *gaps, " \
	"^ *sum  " "^ *bf16 matmuls: .* of 989"
narrow
flat "unproven on hardware"
! grep -q 'does not fit\|nan' out || wrong "$(grep 'does not fit\|nan' out)"
cp out whole
run 0 predict --device H200-sxm-141gb $eight --data.seq=8192 --train.micro-batches=16
same out whole
run 0 predict --device h200 $eight --data.seq=8192 --train.micro-batches=16 --budget
cp out budget
# What the page shows, line by line.
while IFS= read -r line; do
	grep -qxF -e "$line" "$source/docs/performance.md" || wrong "docs/performance.md does not have '$line': docs/commands/predict.md says how it is made"
done <budget
[ "$(grep -c '^|' budget)" -ge 12 ] || wrong "a short budget: $(cat budget)"

run 0 predict --device b200 $small
flat "the interval is wide"
flat "unproven on hardware"
narrow
run 0 predict --device h200 $small --json=one
valid one
keys one schema model device published profile measured_share micro_batches fits step_seconds tokens_per_second mfu mfu_causal mfu_document hfu parts linear seconds \
	flop bytes rates origin arena_bytes persistent_bytes memory_bytes
run 0 program $small --train.device=cuda --json
grep -q "\"arena_bytes\": $(sed -n 's/^ *"arena_bytes": \([0-9]*\),/\1/p' one)," out || wrong "another arena than flatout program's"
run 0 predict --device h200 $small --all
says "^ *operations of a step  *times  *middle, ms  *measured" "^ *layer.b matmul.wgrad d.wgu  *[0-9]*  *[0-9.]*  no" "^ *layer.b attention_bwd[_a-z]*.backward "
narrow
sed -n '/^operations/,/^$/p' out | sed '1,2d; s/  .*//' | sort | uniq -d >twice
[ ! -s twice ] || wrong "rows alike: $(cat twice)"
run 0 predict --device h200 $small --timeline=t.fot
run 0 program $small --train.device=cuda --dump=t.txt
run 0 export --program t.txt --predicted t.fot --trace t.json
run 0 predict --device h200 --program.file=t.txt --json=two
same one two
run 0 predict --device h200 $small --documents=256 --json=documents
run 0 predict --device h200 $small --pass.recompute=full --json=again
if [ -n "$python" ]; then
	[ "$(number '["step_seconds"]["mid"] - sum(p["seconds"]["mid"] for p in d["parts"].values()) < 1e-9' one)" = True ] || wrong "parts do not sum to the step"
	for other in documents again; do
		number '["step_seconds"]["mid"]' $other >$other.s
	done
	number '["step_seconds"]["mid"]' one >one.s
	awk -v a="$(cat documents.s)" -v b="$(cat one.s)" -v c="$(cat again.s)" 'BEGIN { exit !(a < b && b < c) }' ||
		wrong "documents $(cat documents.s), plain $(cat one.s), all again $(cat again.s)"
fi

# The page's other figures.
if [ -n "$python" ]; then
	row() { number '["step_seconds"]["'$1'"] / d["micro_batches"] * 1e3' $2 | xargs printf %.$3f; }
	share() { number '["mfu"]["'$1'"] * 100' $2 | xargs printf %.1f; }
	page() { tr -s '\n' ' ' <"$source/docs/performance.md" | grep -qF "$1" || wrong "docs/performance.md does not have $1"; }
	at="--data.seq=8192 --train.micro-batches=16"
	fp8="--pass.fp8=delayed --pass.fp8-scale-precompute=yes --pass.fp8-transposed=yes"
	run 0 predict --device h200 $auto $at --json=chosen
	page "$(row low chosen 1), $(row mid chosen 1) and $(row high chosen 1) ms: $(share high chosen), $(share mid chosen) and $(share low chosen) %"
	run 0 predict --device h200 $eight $at $fp8 --pass.fp8-fuse=no --json=fp8
	page "$(row low fp8 0), $(row mid fp8 0) and $(row high fp8 0) ms a row"
	run 0 predict --device h200 $auto --pass.fuse-loss=2048 --pass.recompute=none $at $fp8 --json=fp8
	page "$(row low fp8 0), $(row mid fp8 0) and $(row high fp8 0) with what"
	run 0 predict --device h200 --model.name=llama-3.1-8b --optim.master=none --optim.moments=bf16 --data.seq=32768 \
		--train.rows=1 --train.micro-batches=4 --json=long
	page "$(share low long), $(share mid long) and $(share high long) %"
fi

# auto: what is predicted to pay is taken on a device, and only there; what would not fit is not.
run 0 predict --device h200 $auto $at --json=chosen
run 0 predict --device h200 $auto $at --pass.wgrad-lane=yes --pass.fuse-rope=yes --json=given
same chosen given
run 0 program $auto $at --train.device=cuda --dump=t.txt
grep -q "^pass wgrad-lane 1$" t.txt && grep -q "^pass fuse-rope 1$" t.txt || wrong "auto takes nothing on a device: $(grep '^pass' t.txt)"
run 0 program $auto $at --train.device=cpu --dump=t.txt
! grep -q "^pass \(wgrad-lane\|fuse-rope\) 1$" t.txt || wrong "auto takes a device's passes on the processor"
run 0 program $auto $at --train.device=cuda --pass.wgrad-lane=no --pass.recompute=none --pass.fuse-loss=2048 --no-operations --json
need=$(($(sed -n 's/.*"arena_bytes": \([0-9]*\),.*/\1/p' out) + $(sed -n 's/.*"persistent_bytes": \([0-9]*\),.*/\1/p' out)))
run 0 program $auto $at --train.device=cuda --pass.recompute=none --pass.fuse-loss=2048 --memory.budget=$need --dump=t.txt
grep -q "^pass fuse-rope 1$" t.txt && ! grep -q "^pass wgrad-lane 1$" t.txt || wrong "a lane that does not fit was taken: $(grep '^pass' t.txt)"

# What does not fit comes first, with what would.
run 0 predict --device h200 $eight --data.seq=16384 --pass.recompute=selective
head -n 1 out | grep -q '^Too large: *does not fit: ' || wrong "does not begin with what does not fit: $(head -n 1 out)"
flat "pass.recompute=auto would fit"
says "^ *sum  "
narrow
run 0 predict --device h200 $eight --data.seq=16384 --pass.recompute=selective --budget
says "^Does not fit on H200-SXM-141GB: pass.recompute=auto would fit"
run 0 predict --device h200 $eight --data.seq=16384 --pass.recompute=selective --json
says '"fits": false' '"would_fit": "pass.recompute=auto would fit'
refused 3 "llama-3.1-8b does not fit on H100-SXM5-80GB: no plan of this step fits into" predict --device h100 --model.name=llama-3.1-8b
says "^hint: .* would fit"
refused 3 "llama-3.1-405b does not fit on H200-SXM-141GB" predict --device h200 --model.name=llama-3.1-405b
says "^hint: a smaller model"

# What is not known is said to be.
refused 2 "unknown device 'h2000', nearest names: 'H200-SXM-141GB'" predict --device h2000 $small
refused 2 "not known from this: device 'V100-SXM2-32GB' has no published dense peak for bf16" predict --device v100 $small
refused 3 "not known from this: Flatout has no kernels for a TPU" predict --device tpu-v4 $small
refused 3 "not known from this: Flatout has no kernels for a GPU without CUDA" predict --device mi300 $small
refused 3 "fp32 matmuls on H200-SXM-141GB are not known from this" predict --device h200 $small --train.precision=fp32
refused 3 "fp8 matmuls on A100-SXM4-80GB are not known from this" predict --device a100 $small --pass.fp8=current
refused 3 "no source has the rate of that link" predict --device h200 $small --pass.offload=2
refused 3 "has no kernels on a device" predict --device h200 $small --pass.attention=eager
printf 'name,aliases,kind,bf16_dense_tflops,memory_tb_s,source,date\nMine,mine,gpu,100,1,me,2026-11-22\n' >mine.csv
FLATOUT_DEVICES=$tmp/mine.csv run 0 predict --device mine $small
flat "Room: not known"
flat "nothing is published that this program knows"
printf 'name,aliases,kind,bf16_dense_tflops,source,date\nMine,mine,gpu,100,me,2026-11-22\n' >mine.csv
FLATOUT_DEVICES=$tmp/mine.csv refused 3 "not known from this: the catalogue has no memory bandwidth of it" predict --device mine $small

# Options that contradict.
refused 2 "contradict" predict --device h200 --compare run
refused 2 "train.device=cpu contradict" predict --device h200 $small --train.device=cpu
refused 2 "both say what is printed" predict --device h200 $small --budget --json=x
refused 2 "--budget is of a device" predict $small --budget
refused 3 "a step on a CUDA device is not predicted" predict $small --train.device=cuda
says "^hint: --device=h200"

# What was measured on a device.
profile=$source/fuzz/corpus/device_profile/h200.jsonl
run 0 predict --device h200 $small --profile="$profile"
flat "operations that were measured alone on NVIDIA H200"
flat "the mean of the profile's operations"
narrow
! grep -q "ended early" out || wrong "a whole file is called short"
head -n 6 "$profile" >half
run 0 predict --device h200 $small --profile=half
flat "the file holds 2 of 4 operations: the measurement was ended early"
{ head -n 4 "$profile" && sed -n 5p "$profile" | head -c 60; } >cut
refused 2 "line 5 of 'cut' is no JSON object" predict --device h200 $small --profile=cut
says "^hint: .*without --profile"
head -n 2 "$profile" >none
refused 2 "'none' holds no operation of a device" predict --device h200 $small --profile=none
sed 's/"key":"[0-9a-f]*",//' "$profile" >keyless
refused 2 "lacks the operation's key" predict --device h200 $small --profile=keyless
refused 2 "measured on 'NVIDIA H200', which is not H100-SXM5-80GB" predict --device h100 $small --profile="$profile"
sed 's/NVIDIA H200/software CUDA device/' "$profile" >soft
refused 2 "measured on 'software CUDA device', which is not" predict --device h200 $small --profile=soft
refused 2 "is no JSON object" predict --device h200 $small --profile="$source/fuzz/corpus/profile/two_cores.json"
says "^hint: a profile of 'flatout calibrate' is of a processor"
refused 2 "is not a machine profile" predict $small --profile="$profile"
says "^hint: .*is read with --device"
# bench_gpu's own lines, of the software device under another name: every operation is found again.
if [ -n "${FLATOUT_SOFT_CUDA:-}" ] && [ -x "$(dirname "$bin")/bench_gpu" ]; then
	shape="--model.layers=1 --model.hidden=64 --model.heads=4 --model.kv-heads=2 --model.head-dim=16 --model.ffn=128 --model.vocab=256 --data.seq=64 \
--train.rows=1 --train.micro-batches=1"
	FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA "$(dirname "$bin")/bench_gpu" $shape --bench.square=64 --bench.seconds=0.001 >lines 2>err ||
		wrong "bench_gpu: $(cat err)"
	sed 's/software CUDA device/NVIDIA H200/' lines >own
	run 0 predict --device h200 $shape --profile=own --json=measured
	[ -z "$python" ] || [ "$(number '["measured_share"] > 0.999' measured)" = True ] || wrong "only $(number '["measured_share"]' measured) was found again"
fi
refused 3 "nowhere" predict --device h200 $small --profile=nowhere
finish
