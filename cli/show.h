// dovetail show program|schedule|commands|workloads|clusters|policies: things as text.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>

namespace dovetail::cli {

struct ShowOptions {
  std::string what;      // one of show_words()
  std::string plan;      // schedule, commands and program take a plan ...
  std::string workload;  // ... or a workload with a policy
  std::string policy = "torch-ddp";
  std::string data_dir;
  std::optional<std::int64_t> world;
};

void show(const ShowOptions& options, std::ostream& out);

}  // namespace dovetail::cli
