// The members of a JSON value by their paths, as a reader of options takes them.
//
//   {"zero_optimization": {"stage": 2}, "fsdp": ["full_shard", "auto_wrap"], "seed": null}
//   becomes  {"zero_optimization.stage", "2"}, {"fsdp", "full_shard,auto_wrap"}  and  the null "seed"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "frameworks/jobs/options.h"

namespace dovetail::frameworks {

struct Flat {
  std::vector<OptionText> options = {};
  std::vector<std::string> nulls = {};  // keys that are there without a value
  [[nodiscard]] bool has(
      std::string_view name) const;  // with or without a value, or anything below it
};

Flat flat(const nlohmann::json& value);
// Of a file of JSON, in which comments are allowed, or of YAML, by its name. Throws InputError, which names the file, where it is no
// object.
Flat read_flat(const std::string& file);
// JSON alone, without its nulls.
std::vector<OptionText> flat_json(const std::string& file, const std::string& text);

}  // namespace dovetail::frameworks
