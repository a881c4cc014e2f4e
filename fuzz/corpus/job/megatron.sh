#!/bin/bash
#SBATCH --nodes=16 --job-name=x
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_ALGO="Ring"
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-4}
WORLD=$(($GPUS_PER_NODE*$NUM_NODES))
TP=${1:-8}
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr ${MASTER_ADDR:-localhost}
)
GPT_MODEL_ARGS="
    --num-layers 96 \
    --hidden-size 12288 \
    --num-attention-heads 96 \
    --seq-length 2048 --max-position-embeddings 2048
"
TRAINING_ARGS=(
    --micro-batch-size 1   # a comment
    --global-batch-size $(( 2 * $WORLD ))
    --step-batch-size-schedule "0:16 2.4B:320 12B:1536"
    --fp16
    --lr 6.0e-5
)
if [ "$X" = 1 ]; then
    TRAINING_ARGS+=(--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${UNKNOWN})
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    $GPT_MODEL_ARGS \
    "${TRAINING_ARGS[@]}" \
    --vocab-file v.json --merge-file m.txt 2>&1 | tee log.txt
