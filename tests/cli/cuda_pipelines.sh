#!/bin/sh
# Pipelines on CUDA devices, on the tests' software model of them: stages on one device through host memory, and on devices of their own over
# NCCL. Losses are one rank's but for rounding, memory is what was planned, a run goes on with other stages, a value that is not finite is
# found on the stage that made it.
. "$(dirname "$0")/lib.sh"
needs_engine
[ -n "${FLATOUT_SOFT_CUDA:-}" ] || { echo "$name: no software device in this build"; exit 77; }
make_text text
FLATOUT_CACHE=$tmp/cache FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA
export FLATOUT_CACHE FLATOUT_CUDA_LIBRARIES
job="$tiny --model.layers=2 --train.precision=fp32 --train.tune=off --train.timed-every=2 --optim.schedule=constant --train.device=cuda"

run 0 train $job --run.dir=one
losses one >one.losses
FLATOUT_SOFT_DEVICES=2 run 0 train $job --run.dir=nccl --mesh.pp=2 --pass.pp=zb-h1
says "^Ranks:  *on 2 devices; calls between them go over NCCL" "^Memory:  *of the device planned .*(+0.0 %)"
losses nccl >nccl.losses
near one.losses nccl.losses 0.01
run 0 report nccl
says "^Bubble: "

# The same folder with other stages, elsewhere.
run 0 train $job --run.dir=parts --mesh.pp=2 --train.steps=3
says "^Ranks:  *on 1 device; calls between them go through host memory" "^Memory:  *of the device planned .*(+0.0 %)"
run 0 train $job --run.dir=parts --train.steps=6
losses parts >parts.losses
near one.losses parts.losses 0.01

# The search runs each rank's operations one by one, sends and receives beside them.
bad="$job --mesh.pp=2 --optim.lr=10 --optim.warmup=0 --optim.eps=0 --train.steps=400"
refused 1 "on rank [01] of 2, .* the first value that is not finite" train $bad --run.dir=nan
FLATOUT_SOFT_DEVICES=2 refused 1 "on rank [01] of 2, .* the first value that is not finite" train $bad --run.dir=nan2
finish
