// The settings of buckets that a framework's users can choose from, and the buckets that each makes of one step's
// gradients: what diagnose weighs.
//
//   for (const BucketCandidate& c : bucket_candidates(framework("megatron"), gradients)) ...
//   c.setting   "--ddp-bucket-size 6553600"        c.ends   {12, 40, 161}
//
// Gradients are in gradient-ready order; where a framework goes by the reverse of their definition that order is
// meant.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "frameworks/framework.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::frameworks {

// What is known of the gradients of a step, in gradient-ready order.
struct StepGradients {
  std::vector<Bytes> bytes;
  std::vector<Duration> ready;  // from the first one, not falling
  Bytes element{4};
  std::int64_t ranks = 1;
};

struct BucketCandidate {
  std::string setting;               // as it is written: "bucket_cap_mb=25"
  std::string line;                  // the whole line to paste
  std::optional<std::int64_t> size;  // the number in it that says how large a bucket may be
  std::vector<std::size_t> ends;     // of the buckets, exclusive, in gradient-ready order
  InFlight in_flight = InFlight::Any;
  bool is_default = false;
  bool is_list = false;  // every bucket by itself
};

// The default first, then sizes from small to large up to the first that makes one bucket. REQUIRES:
// has_settings(framework).
std::vector<BucketCandidate> bucket_candidates(const Framework& framework,
                                               const StepGradients& gradients);

// These buckets, one by one, in the framework's words; nothing where it has none: DeepSpeed, and FSDP2,
// whose groups are whole modules.
std::optional<BucketCandidate> list_candidate(
    const Framework& framework, const StepGradients& gradients, std::vector<std::size_t> ends,
    schedule::BucketMode mode = schedule::BucketMode::Copy);

// The buckets of the rule; with a cycle, everything that is ready at a multiple of it goes at once.
std::vector<std::size_t> ends_of(const StepGradients& gradients, const schedule::BucketRule& rule,
                                 Duration cycle = {});

}  // namespace dovetail::frameworks
