#!/bin/sh
# Ranks on CUDA devices, on the tests' software model of them: two on one device, through host memory, and on two over NCCL. Losses are those of
# ranks on the processor but for rounding, memory is what was planned, checkpoints belong to no device and no number of ranks.
. "$(dirname "$0")/lib.sh"
needs_engine
[ -n "${FLATOUT_SOFT_CUDA:-}" ] || { echo "$name: no software device in this build"; exit 77; }
make_text text
FLATOUT_CACHE=$tmp/cache FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA
export FLATOUT_CACHE FLATOUT_CUDA_LIBRARIES
job="$tiny --train.precision=fp32 --ranks=2 --train.tune=off --train.timed-every=2 --optim.schedule=constant"

run 0 train $job --run.dir=cpu --train.device=cpu
losses cpu >cpu.losses
run 0 train $job --run.dir=ddp --train.device=cuda
says "^Ranks:  *on 1 device; calls between them go through host memory" "^Memory:  *of the device planned .*(+0.0 %)" "exposed communication"
losses ddp >ddp.losses
near cpu.losses ddp.losses 0.01
run 0 report ddp
says "^Ranks, milliseconds of a step: mean of 3 steps" "^  *data, rank 1 "

# Each on a device of its own; ranks that share all, as many devices or not.
FLATOUT_SOFT_DEVICES=2 run 0 train $job --run.dir=nccl --train.device=cuda --pass.zero=3
says "^Ranks:  *on 2 devices; calls between them go over NCCL" "^Memory:  *of the device planned .*(+0.0 %)"
losses nccl >nccl.losses
near cpu.losses nccl.losses 0.01
FLATOUT_SOFT_DEVICES=2 run 0 train $job --run.dir=host --train.device=cuda --pass.zero=3 --mesh.over=host --train.steps=3
says "^Ranks:  *on 2 devices; calls between them go through host memory"
FLATOUT_SOFT_DEVICES=2 run 0 train $job --run.dir=one --train.device=cuda:1 --pass.zero=2 --train.steps=3
says "^Ranks:  *on 1 device; " "^Device:  *cuda:1, "
losses host >host.losses
losses one >one.losses
head -n 3 cpu.losses >first.losses
near first.losses host.losses 0.01
near first.losses one.losses 0.01

# A run goes on with other ranks, elsewhere.
run 0 train $job --run.dir=one --train.device=cuda --ranks=1 --train.steps=4
run 0 train $job --run.dir=one --train.device=cuda --train.steps=5 --pass.zero=3
run 0 train $job --run.dir=one --train.device=cpu --train.steps=6
losses one >one.losses
near cpu.losses one.losses 0.01

# What cannot be.
refused 2 "mesh.over=nccl needs a device of its own for each rank, and ranks 0 and 1 of 2 share 0000:00:00.0" train $job --run.dir=no \
	--train.device=cuda --mesh.over=nccl
refused 2 "cannot be combined with train.kernel-times: CUPTI sees" train $job --run.dir=no --train.device=cuda --train.kernel-times=1
refused 2 "only links through host memory are emulated" train $job --run.dir=no --train.device=cuda --mesh.over=nccl --link-gbps=1
refused 2 "there is no CUDA device 3" train $job --run.dir=no --train.device=cuda:3
# Two ranks take 16 MiB of a device.
FLATOUT_SOFT_MEMORY=$((14 << 20)) refused 3 "no plan of this step fits into 13.8 MiB: the least that was tried takes 16.0 MiB" train $job --run.dir=no --train.device=cuda
FLATOUT_SOFT_MEMORY=$((17 << 20)) run 0 train $job --run.dir=fits --train.device=cuda --dry-run
finish
