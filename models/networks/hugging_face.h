// A model's shape from the config.json that Hugging Face's transformers write.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/networks/model.h"

namespace dovetail::jobs {

// Of the decoders whose layers are attention and a feed-forward network or experts (model_type llama,
// mistral, mixtral, qwen2, qwen3, qwen3_moe, gpt_oss, deepseek_v2, deepseek_v3). Model::name is the path. Throws
// InputError with file, path and expectation, for another model_type with those that can be read.
Model load_config(const std::string& path);

}  // namespace dovetail::jobs
