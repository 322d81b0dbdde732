// dovetail show program|schedule|commands|workloads|clusters|policies, or show PLAN: things as text.
//
// A plan file shows its buckets, why each was closed, and what each pass of lowering did:
//
//   schedule source-first-fit:elements=50331648  scale loss-gradient
//     bucket 0  31.2 KiB  8 gradients  all-reduce over dp on comm0  ...  closed by end
//   8 all-reduces fused into 1: 31.2 KiB, padding 0 B, 0 single gradients apart
//   buckets closed by end 1
//   passes
//     lay out: 8 gradients in 1 bucket, 31.2 KiB, padding 0 B
//     ...
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>

namespace dovetail::cli {

struct ShowOptions {
  std::string what;      // one of the words above, or a plan file
  std::string plan;      // schedule, commands and program take a plan ...
  std::string workload;  // ... or a workload with a policy
  std::string policy;    // empty: torch-ddp
  std::string data_dir;
  std::optional<std::int64_t> world;
};

void show(const ShowOptions& options, std::ostream& out);

}  // namespace dovetail::cli
