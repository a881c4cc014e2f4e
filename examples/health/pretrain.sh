#!/bin/bash
#SBATCH --nodes=16 --gpus-per-node=8
torchrun --nnodes 16 --nproc-per-node 8 pretrain_gpt.py \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size 1 --global-batch-size 128 \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
    --bf16 --use-flash-attn --optimizer adam --lr 2e-4 \
    --train-iters 500000 --log-interval 10 --log-throughput \
    --vocab-size 50304 --make-vocab-size-divisible-by 128
