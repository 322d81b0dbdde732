// The bucket settings of six frameworks: how their users write them, and which buckets each makes.
//
//   for (const BucketCandidate& c : bucket_candidates(Framework::Megatron, gradients, 8)) ...
//   c.setting   "--ddp-bucket-size 6553600"        c.ends   {12, 40, 161}
//
//   framework   closes a bucket                                       in flight   source
//   torch       once its bytes reach bucket_cap_mb; first 1 MiB if    any         torch 2.14 nn/parallel/distributed.py
//               no cap is given                                                   c10d/reducer.cpp
//   fsdp        where a list of modules given to fully_shard ends     1, or K     torch 2.14 distributed/fsdp
//   megatron    once its elements reach --ddp-bucket-size             any         Megatron-Core 0.20 arguments.py,
//                                                                                 core/distributed
//   deepspeed   before its elements would exceed reduce_bucket_size   1           zero/stage_1_and_2.py, config.py
//   horovod     at every cycle of the background thread, and before   any         horovod operations.cc, controller.cc
//               its bytes would exceed the fusion threshold
//   xla         before its bytes would exceed the combiner's          any         xla gpu flags
//               threshold
//
// "1 in flight": compute waits for the reduction before it once the next bucket is full. Gradients are in
// gradient-ready order; where a framework goes by the reverse of their definition that order is meant.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

// How many buckets of a step may travel at once. One: what its last gradient's stream runs after a bucket
// is full also waits for the bucket before it, whose buffer the next one takes.
enum class InFlight : std::uint8_t { Any, One };

enum class Framework : std::uint8_t { Torch, Fsdp, Megatron, DeepSpeed, Horovod, Xla };

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

// The default first, then sizes from small to large up to the first that makes one bucket.
std::vector<BucketCandidate> bucket_candidates(Framework framework, const StepGradients& gradients);

// These buckets, one by one, in the framework's words; nothing where it has none: DeepSpeed, and FSDP2,
// whose groups are whole modules.
std::optional<BucketCandidate> list_candidate(Framework framework, const StepGradients& gradients,
                                              std::vector<std::size_t> ends);

// What of a step of this framework a replay of DDP's does not hold, one sentence each.
std::vector<std::string> not_replayed(Framework framework);

// What the framework's name is for people: "Megatron-Core".
std::string_view name_of(Framework framework);

// A bucket is closed before it would hold more than `most`; what is larger is alone.
std::vector<std::size_t> ends_below(const std::vector<Bytes>& gradients, Bytes most);

// The same, and everything that is ready at a multiple of `cycle` goes at once.
std::vector<std::size_t> ends_by_cycle(const StepGradients& gradients, Bytes most, Duration cycle);

}  // namespace dovetail::imports
