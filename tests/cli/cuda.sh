#!/bin/sh
# A run on a CUDA device, on the tests' software model of one: what is asked for is what computes, its losses are the processor's but for
# rounding, checkpoints belong to neither, an interruption changes no bit, and what cannot run is refused.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
FLATOUT_CACHE=$tmp/cache
export FLATOUT_CACHE

refused 2 "train.device must be auto, cpu, cuda or cuda:N, got 'gpu'" train $tiny --run.dir=no --train.device=gpu
refused 2 "train.device must be auto" train $tiny --run.dir=no --train.device=cuda:x
run 0 train $tiny --run.dir=cpu --train.device=cpu --log.every=1
mv out cpu.out

# Without a driver.
if ! "$bin" devices --local >out 2>err && grep -q "libcuda.so.1' was not found\|has no CUDA backend" out; then
	refused 3 "CUDA" train $tiny --run.dir=no --train.device=cuda
	! grep -q "was not found" err || grep -q "it comes with the NVIDIA driver" err || wrong "who brings the driver is not said: $(cat err)"
	refused 3 "CUDA" eval cpu --device=cuda
	refused 3 "CUDA" generate cpu --device=cuda --prompt=the
	run 0 train $tiny --run.dir=auto --train.device=auto
	[ "$(losses auto)" = "$(losses cpu)" ] || wrong "auto without a device is not the processor"
fi
refused 2 "the device must be auto, cpu, cuda or cuda:N, got 'gpu'" eval cpu --device=gpu
refused 2 "the device must be auto" verify --device=gpu

refused 3 "a step on a CUDA device is not predicted" predict $tiny --train.device=cuda

# What a run on a device logged, and its MFU in factors: 0.752 x 0.806 x 1.09 is 0.66.
mkdir logged
cat >logged/log.jsonl <<-'END'
	{"event":"start","step":0,"peak_dtype":"bf16","peak_flop_s":9.89e14,"device":"NVIDIA H200","time":1}
	{"event":"step","step":1,"loss":5.1,"grad_norm":1,"lr":1e-3,"seconds":1,"tokens":10,"loss_tokens":10,"mfu":0.66,"hfu":0.606,"time":2}
	{"event":"end","step":1,"how":"done","steps":1,"device":{"sm_clock_hz":1.376e9,"watts":698,"joules_per_token":0.05,"throttled_power":0.93,"throttled_thermal":null,"mfu_clock":0.752,"mfu_work":0.806,"mfu_counted":1.09,"peak_clock_hz":1.83e9},"time":3}
END
run 0 report logged
says "^Device: *NVIDIA H200, mean clock 1.38 GHz, power 698 W, energy 0.05 J/token" "^MFU = clock 75.2 % (of 1.83 GHz) x work per clock 80.6 %"
! grep -q "nan" out || wrong "a rate that nobody logged: $(grep nan out)"
run 0 report logged --html=logged.html
for text in 'NVIDIA H200' '1.38 GHz' '698 W' '0.05 J/token' 'held back by power' 'MFU = clock 75.2' 'x work per clock 80.6' 'x 1.090 counted per FLOP run'; do
	grep -q -F "$text" logged.html || wrong "the page does not say '$text'"
done
run 0 report logged --json
keys out device mfu_clock mfu_work mfu_counted throttled_power tensor_pipes ofu mfu_useful
grep -q '"ofu": null' out || wrong "an OFU that nobody logged: $(grep ofu out)"
grep -q '"throttled_thermal": null' out || wrong "what was not readable got a figure"


# With performance counters: 0.752 x 0.81 is 0.609, and 0.66 of that 1.084. Where there were none the reason stands in its place.
mkdir active none
sed 's/"peak_clock_hz":1.83e9/&,"sm_active":0.95,"dram_active":0.4,"tensor_pipes":0.81,"ofu":0.60912,"mfu_useful":1.0835,"ofu_why":null/' logged/log.jsonl >active/log.jsonl
sed 's/"peak_clock_hz":1.83e9/&,"tensor_pipes":null,"ofu":null,"mfu_useful":null,"ofu_why":"no <counters>"/' logged/log.jsonl >none/log.jsonl
ofu='60.9 %: MFU = clock 75.2 % x tensor pipes active 81.0 % x 1.08[34]'
run 0 report active
says "^MFU = clock 75.2 %" "^OFU $ofu"
run 0 report active --html=active.html
grep -q 'OFU 60.9.*MFU = clock 75.2.*x tensor pipes active 81.0.*x 1.08[34] useful' active.html || wrong "the page has no OFU"
for text in 'tensor pipes active' 'multiprocessors active' 'memory active'; do
	grep -q -F "$text" active.html || wrong "the page does not say '$text'"
done
run 0 report active --json
grep -q '"ofu": 0.60912' out || wrong "no OFU: $(grep ofu out)"
run 0 report none
says "^OFU not measured: no <counters>"
run 0 report none --html=none.html
grep -q 'OFU not measured: no .*counters' none.html && ! grep -q '<counters>' none.html || wrong "the page gives no reason"
run 0 report logged
says "^OFU not measured: the log does not tell it"

[ -n "${FLATOUT_SOFT_CUDA:-}" ] || finish
FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA
export FLATOUT_CUDA_LIBRARIES
gpu="$tiny --train.device=cuda --train.tune=off --train.timed-every=2"

run "0|1" devices --local
says "^[Cc]uda:0: " "^Software: " "^cuDNN: .*attention" "$FLATOUT_SOFT_CUDA/libcudnn.so"
mkdir some
ln -s "$FLATOUT_SOFT_CUDA"/libcuda.so.1 "$FLATOUT_SOFT_CUDA"/libcublasLt.so.* some
FLATOUT_CUDA_LIBRARIES=$PWD/some
run "0|1" devices --local
says "^[Cc]uda:0: " "software driver only FLATOUT_CUDA_LIBRARIES is looked at"
FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA
run "0|1" devices --local --json
valid out
keys out built devices libraries software compute_capability can_train

# A software device is never chosen unasked.
run 0 train $tiny --run.dir=auto2 --train.device=auto
[ "$(losses auto2)" = "$(losses cpu)" ] || wrong "auto took the software device"

losses cpu >cpu.losses
run 0 train $gpu --run.dir=gpu
says "^Device:  *cuda:0, " "^Memory:  *of the device " "MFU:  *unknown: a software device has no peak"
losses gpu >gpu.losses
near cpu.losses gpu.losses 1
keys gpu/log.jsonl device device_reserve_bytes host_bytes
keys gpu/run.json device
valid gpu/log.jsonl

# What the device did, by an NVML of the tests': beside a software device only one that is named counts.
! grep -q '"tensor_active":0' gpu/log.jsonl || wrong "counters of no device: $(grep -m 1 tensor_active gpu/log.jsonl)"
if [ -n "${FLATOUT_FAKE_NVML:-}" ]; then
	FLATOUT_NVML=$FLATOUT_FAKE_NVML FAKE_NVML_PCI=0000:00:00.0 run 0 train $gpu --run.dir=counted --train.steps=120 --eval.every=0
	tr -s '\n ' '  ' <out | grep -q 'Device: software CUDA device, mean clock 1.38 GHz, .*, tensor pipes active in 81 % of the cycles, memory in 40 %' ||
		wrong "no counters on the screen: $(cat out)"
	valid counted/log.jsonl
	grep '"event":"end"' counted/log.jsonl | grep -q '"tensor_active":0.8[01].*,"tensor_imma":null,.*"tensor_pipes":0.8[01].*,"ofu":null' ||
		wrong "no counters in the log: $(grep '"event":"end"' counted/log.jsonl)"
	# Evaluations are no part of it: what counters cover is no longer than the steps were (a tenth more for what lies between them).
	FLATOUT_NVML=$FLATOUT_FAKE_NVML FAKE_NVML_PCI=0000:00:00.0 run 0 train $gpu --run.dir=evaluated --train.steps=6 --eval.every=1 --eval.batches=30
	sed -n 's/.*"event":"step".*"seconds":\([0-9.e-]*\),.*/\1/p; s/.*"event":"end".*"active_seconds":\([0-9.e-]*\),.*/end \1/p' evaluated/log.jsonl |
		awk '$1 == "end" { seen++; active = $2; next } { steps += $1 } END { exit !(seen == 1 && steps > 0 && active <= 1.1 * steps) }' ||
		wrong "evaluations are in the counters: $(grep -o '"active_seconds":[^,]*' evaluated/log.jsonl | tail -n 1) s"
fi

# Kernels of the first steps, with whose they are: the software CUPTI hears of those that are launched one by one, in the first step.
run 0 train $gpu --run.dir=kernels --train.kernel-times=2 --train.steps=3 --optim.warmup=1
if grep -q "CUPTI" err; then
	says "no kernel is timed: "
else
	valid kernels/kernels.jsonl
	[ "$(grep -c '"schema"' kernels/kernels.jsonl)" = 2 ] || wrong "not two steps: $(grep '"schema"' kernels/kernels.jsonl)"
	[ "$(grep -c '"step":1,.*"kernel":' kernels/kernels.jsonl)" -gt 50 ] || wrong "few kernels: $(grep -c kernel kernels/kernels.jsonl)"
	grep '"kernel":"swiglu' kernels/kernels.jsonl | head -n 1 | grep -q '"operation":"swiglu","phase":"forward","layer":0,"micro_batch":0' ||
		wrong "swiglu is not its operation's: $(grep -m 1 swiglu kernels/kernels.jsonl)"
fi
run 0 train $tiny --run.dir=cpu-kernels --train.device=cpu --train.kernel-times=2
says "no kernel is timed: train.kernel-times is for a CUDA device"
run 0 train $gpu --run.dir=gpu-dry --dry-run --json
valid out
keys out device code products reserve_bytes host_bytes

# The same bits again, and after an interruption; the checkpoint in the middle is written while training goes on.
run 0 train $gpu --run.dir=half --checkpoint.every=2 --train.steps=4 --optim.schedule=constant
run 0 train $gpu --run.dir=whole --checkpoint.every=2 --optim.schedule=constant
run 0 train $gpu --run.dir=half --checkpoint.every=2 --optim.schedule=constant
losses half >half.losses
losses whole >whole.losses
same half.losses whole.losses
same "$(checkpoint half 6)/model.safetensors" "$(checkpoint whole 6)/model.safetensors"
same "$(checkpoint half 6)/state.safetensors" "$(checkpoint whole 6)/state.safetensors"

# The chunk of the loss: all of the micro-batch where the device has the memory, 512 where it has just enough for that; a run that goes on keeps its
# chunk, and so its bits, whatever memory there is by then.
chunky="$gpu --train.micro-batches=1 --model.vocab=12000 --data.vocab=300 --data.seq=640 --train.rows=1 --train.steps=2 --optim.warmup=0 --eval.every=0 --optim.schedule=constant \
--checkpoint.every=1 --pass.wgrad-lane=no"
run 0 train $chunky --run.dir=chunk --dry-run
says "^Auto:  *head and loss at once for all 640 tokens on this device: up to" "^Hint:  *train.micro-batches=32 would share the optimizer"
run 0 train $chunky --run.dir=chunk --dry-run --json --pass.fuse-loss=512
limit=$(sed -n 's/.*"total_bytes": \([0-9]*\),/\1/p' out)
run 0 train $chunky --run.dir=chunk --memory.limit=$((limit + (2 << 20))) --train.steps=1
grep -q "^pass fuse-loss 512$" chunk/program.txt || wrong "a device of $limit bytes does not get chunks of 512 tokens"
run 0 train $chunky --run.dir=chunk
says "^Resume:  *after step 1"
grep -q "^pass fuse-loss 512$" chunk/program.txt || wrong "a run that goes on did not keep its chunk"
run 0 train $chunky --run.dir=chunk512 --pass.fuse-loss=512
same "$(checkpoint chunk 2)/model.safetensors" "$(checkpoint chunk512 2)/model.safetensors"
run 0 train $chunky --run.dir=wide
grep -q "^pass fuse-loss 640$" wide/program.txt || wrong "a device with room does not take the whole micro-batch"
grep -q '"passes": ".*fuse-loss=640' wide/run.json || wrong "run.json does not say the chunk"
differ "$(checkpoint wide 2)/state.safetensors" "$(checkpoint chunk 2)/state.safetensors"
run 0 train $chunky --train.device=cpu --run.dir=chunk-cpu --dry-run
says "^Passes: .*fuse-loss=512"

# A run that goes back reads its checkpoint to the device: the same losses whether checkpoints are written from a copy or piece by piece.
for async in yes no; do
	run 0 train $gpu --run.dir=back-$async --checkpoint.async=$async --checkpoint.every=3 --train.micro-batches=1 --train.steps=40 --eval.every=0 \
		--guard.spike=rewind --guard.spike-z=1.5 --guard.spike-window=8 --guard.limit=50
	says "^Guards: .*went back [1-9]"
	losses back-$async >back-$async.losses
done
same back-yes.losses back-no.losses

# The processor goes on from a checkpoint of the device, and the other way.
cp -r half half-cpu
run 0 train $tiny --run.dir=half-cpu --train.device=cpu --train.steps=8 --optim.schedule=constant
[ -d "$(checkpoint half-cpu 8)" ] || wrong "the processor did not go on from the device's checkpoint"
run 0 train $gpu --run.dir=half-cpu --train.steps=9 --optim.schedule=constant
[ -d "$(checkpoint half-cpu 9)" ] || wrong "the device did not go on from the processor's checkpoint"

run 0 eval gpu --device=cuda --json
valid out
sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out >gpu.eval
run 0 eval gpu --device=cpu --json
sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out >cpu.eval
paste cpu.eval gpu.eval | awk '{ d = $1 - $2; exit !(NF == 2 && d < 0.02 && d > -0.02) }' || wrong "eval differs: $(paste cpu.eval gpu.eval)"
run 0 generate gpu --device=cuda --prompt=the --tokens=8 --temperature=0
says "tokens/s"

# A number that is not one is found on the device, too, and named.
cp -r "$(checkpoint gpu 6)" bad
rm bad/manifest.json
n=$(wc -c <bad/model.safetensors)
printf '\300\177' | dd of=bad/model.safetensors bs=1 seek=$((n - 2)) conv=notrunc 2>/dev/null
run 1 train --model.weights=bad --data.path=text --data.seq=32 --data.holdout=10 --train.rows=2 --train.steps=2 --run.threads=1 \
	--eval.every=0 --train.device=cuda --train.tune=off --run.dir=bad-run
says "the first value that is not finite: the weight 'lm_head.weight'.row 299, column 31. = "

# A ladder says that its times are the device's, takes fp8 for what it is there, and predicts nothing from a processor's profile.
printf 'fp8:\n  pass.fp8: current\n  numerics-only: yes\n' >rungs.yaml
run 0 ladder $gpu --train.steps=20 --rungs=rungs.yaml --run.dir=lad
says "^Device: *software CUDA device: " "^ *fp8 .* baseline" "Predicted: profiles are of processors"
grep -q '"device": "software CUDA device"' lad/ladder.json || wrong "ladder.json names no device"
[ "$(grep -c '"numerics_only": false' lad/ladder.json)" = 1 ] || wrong "fp8 is still said to be emulated"
grep -q '"timed_steps": 10,' lad/ladder.json || wrong "not two of four steps timed: $(grep timed_steps lad/ladder.json)"
[ "$(grep -c "no step is metered" err)" = 1 ] || wrong "a warning for every turn: $(grep -c "no step is metered" err)"

run 0 verify --device=cuda --short
says " 0 failed" "^ *kernels cuda bf16 " "^ *step cuda bf16 " "^ *repeat cuda bf16 .* pass"
! grep -q "inf of" out || wrong "a check without a bound: $(grep "inf of" out)"

refused 3 "may use\|no plan of this step fits" train $gpu --run.dir=large --memory.limit=1MiB
refused 3 "attention_eager" train $gpu --run.dir=eager --pass.attention=eager
finish
