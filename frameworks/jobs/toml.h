// The part of TOML in which configurations are written: tables, keys (also dotted), strings of one line, numbers,
// booleans, arrays, inline tables and comments.
//
//   [training]
//   seq_len = 8_192          # becomes {"training.seq_len", "8192"}
//   dataset = "c4"           # becomes {"training.dataset", "c4"}
//   betas = [0.9, 0.95]      # becomes {"training.betas", "0.9,0.95"}
//   parts = [["a", "b"], []] # becomes {"training.parts", "[a,b],[]"}
//
// Refused by name: arrays of tables, strings over several lines.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/options.h"

namespace dovetail::frameworks {

// Names are dotted paths. Throws InputError "FILE:LINE: MESSAGE", also where a key is there twice.
std::vector<OptionText> read_toml(const std::string& file, std::string_view text);

}  // namespace dovetail::frameworks
