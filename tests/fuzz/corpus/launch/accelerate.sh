#!/bin/bash
ARGS="--per_device_train_batch_size 1 --bf16 True"
accelerate launch --num_processes 64 --mixed_precision bf16 --use_fsdp --fsdp_version 2 train.py --model_name_or_path Qwen/Qwen3-8B $ARGS
