// What starts a training of Hugging Face's tools, as one command or a script: who starts the ranks, and what it hands to the program.
//
//   accelerate launch --config_file fsdp.yaml train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1
//   torchrun --nproc_per_node 8 train.py --deepspeed ds.json --bf16 ...        deepspeed --num_gpus 8 train.py --deepspeed ds.json ...
//   FORCE_TORCHRUN=1 llamafactory-cli train sft.yaml                           axolotl train lora.yml --micro_batch_size 2
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/trainer.h"

namespace dovetail::frameworks {

// A file of YAML or JSON by what it says: accelerate's, axolotl's, LLaMA-Factory's, Primus's, DeepSpeed's. Throws InputError where it is
// none of them.
jobs::Job read_keys(const std::string& file, std::vector<OptionText> flags, const Behind& said);

// A file of torchtitan's, and keys that go before its own.
jobs::Job read_titan_file(const std::string& file, std::vector<OptionText> flags,
                          const Behind& said);

// Nothing where no command of the script is of these.
std::optional<jobs::Job> read_launch(const Script& script, const Behind& said);

// Of a script that starts several.
void note_trainings(jobs::Job& job, const std::string& where, std::size_t count);

// Whether a command begins with a word that starts such a training.
bool starts_training(std::string_view command);

// "--bf16 --optim sgd" as keys: {"bf16", "true"}, {"optim", "sgd"}.
std::vector<OptionText> without_dashes(std::vector<OptionText> flags);

}  // namespace dovetail::frameworks
