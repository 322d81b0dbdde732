// The bucket settings of a framework, as its users write them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "imports/kineto/diagnosis.h"

namespace dovetail::cli {

enum class Framework { Torch, Fsdp, Megatron, DeepSpeed, Horovod, Xla };

// Throws InputError with the nearest word.
Framework parse_framework(const std::string& word);
std::string_view to_string(Framework framework);

// The flat range, then the line to paste, or that no line would help.
std::vector<std::string> advice_lines(const imports::BucketAdvice& advice, Framework framework);

}  // namespace dovetail::cli
