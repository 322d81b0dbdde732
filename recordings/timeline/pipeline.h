// Whether the ranks of a job are stages of a pipeline, by what they send each other.
//
//   std::optional<Pipeline> pipeline = pipeline_of(ranks);
//   pipeline->stages         4
//   pipeline->micro_batches  8
//
// A pipeline's schedule sends and receives between passes; a ring (context parallelism) does so within forward and backward, so
// messages that autograd's functions launched are none of a pipeline's. Nor is a single message a step, nor what neither says whether it
// sends or receives nor can be held against autograd (a trace of kernels alone).
//   stages         where all ranks of the job are given and tell whom they send to, the ranks that messages join; else those of the
//                  messages' group
//   micro_batches  messages of a step in one direction between two neighbours; where messages are joined into one kernel, the
//                  sends that the host called (c10d::send) of the stage with the fewest. 0: not known
//   chunks         of a stage (virtual stages). Where the last stage also sends to the first, a micro-batch passes each pair of
//                  neighbours `chunks` times forward and that one chunks - 1 times. Of two stages nobody can tell: 1
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace dovetail::imports {

struct JobTrace;

struct Pipeline {
  std::int64_t stages = 0;
  std::int64_t micro_batches = 0;
  std::int64_t chunks = 1;
};

// REQUIRES: collectives of all ranks are described, steps numbered.
std::optional<Pipeline> pipeline_of(const JobTrace& job);

}  // namespace dovetail::imports
