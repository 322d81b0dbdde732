#!/bin/bash
TP=2 EP=${EP:-"8"}
WORLD_SIZE=$((8 * (4 + 4)))
ARGS=(
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128
  --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope
  --untie-embeddings-and-output-weights --vocab-size 129280 # the tokenizer's
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-layer-freq "([0]*3+[1]*58)"
)
export MORE="--bf16 --seq-length 4096 --tensor-model-parallel-size $TP --sequence-parallel \
  --expert-model-parallel-size ${EP} --expert-tensor-parallel-size=1 --hidden-dropout 0.1"
if [ -n "$X" ]; then ARGS+=(--use-distributed-optimizer --overlap-grad-reduce --lr 1e-4); fi
torchrun pretrain_gpt.py "${ARGS[@]}" $MORE --micro-batch-size 1 --global-batch-size 256
