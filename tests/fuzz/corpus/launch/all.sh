#!/bin/bash
GPUS=8
ARGS="--per_device_train_batch_size 1 --bf16 True --fsdp 'full_shard auto_wrap'"
accelerate launch --num_processes 64 --mixed_precision bf16 --use_fsdp --fsdp_version 2 train.py --model_name_or_path Qwen/Qwen3-8B $ARGS
torchrun --nproc_per_node $GPUS --nnodes 8 train.py --output_dir out --gradient_checkpointing --optim=adamw_torch $ARGS
