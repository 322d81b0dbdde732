// The arguments that Megatron-LM prints at the head of its log, as the flags that they were.
//
//   ------------------------ arguments ------------------------
//     add_bias_linear ................................. False        becomes {"--disable-bias-linear", ""}
//     num_layers ...................................... 80           becomes {"--num-layers", "80"}
//   -------------------- end of arguments ---------------------
//
// Read in Megatron-Core 0.20 (commit d98e8a6): _print_args of megatron/training/arguments.py.
// Lines may begin with what a launcher puts before them. All attributes are printed, those that follow from others, too: names
// that are no arguments are passed over.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/shell.h"

namespace dovetail::frameworks {

// Whether such arguments stand in it.
bool has_megatron_arguments(std::string_view text);
// Of several runs the last, from its arguments on; all of a text without any.
std::string_view last_megatron_run(std::string_view text);

// Of several runs the last. WORLD_SIZE is among its variables. Throws InputError where they are cut off.
// REQUIRES: has_megatron_arguments(text).
Script read_megatron_log(const std::string& file, std::string_view text);

// Attributes of Megatron-LM's arguments ("num_layers", "80"; "bf16", "true") as its flags, those that a job depends on.
std::vector<OptionText> megatron_flags(const std::vector<OptionText>& attributes);
bool is_megatron_attribute(std::string_view name);

}  // namespace dovetail::frameworks
