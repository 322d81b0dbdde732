// A job as people say it: in one line, or in the files and flags with which they start it.
//
//   llama3_70b:tp=8,pp=4,dp=2,seq=8192                      models/networks/text.h; world=64 in place of dp=
//   config.json:tp=8,world=64                               a model of Hugging Face
//   train.toml   train.toml --training.seq_len 4096         torchtitan; the flags change the file
//   "--num-layers 80 --hidden-size 8192 ...:world=64"       Megatron-LM
//   train.sh     train.sh --micro-batch-size 2              a script that starts Megatron-LM
//   ds_config.json:model=llama3_8b,world=64,seq=8192        DeepSpeed
//   fsdp.yaml:model=llama3_8b,seq=4096,mbs=1            accelerate; also axolotl's, LLaMA-Factory's and Primus's YAML
//   "torchrun --nproc_per_node 8 train.py --bf16 ..."   a command that starts transformers' Trainer (launch.h), or a script of it
//
// After each there may be a colon and keys of models/networks/text.h, which go before what the file says, and `world=`, the number of
// ranks: what the other degrees leave of it is dp, or dp_shard where that is asked for (zero=3 without dp_shard=, or
// data_parallel_shard_degree = -1). Where it is said and no degree is free it has to be their product.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "models/networks/job.h"

namespace dovetail::frameworks {

// Throws InputError, which names the file and the key. Options that matter and are not modelled are notes of the
// job; those that nobody could model without being wrong (moving states to the host) are refused.
jobs::Job load_job(const std::string& text);

// The file of a job that is said by the log of its own run; nothing of any other.
std::optional<std::string> log_of_job(const std::string& text);

}  // namespace dovetail::frameworks
