// A Message: what one command that communicates sends from where to where, as offsets into the
// device block of layout.h.
//
//   kind            send         recv         count
//   all-reduce      everything   everything   elements
//   reduce-scatter  everything   one part     elements / ranks
//   all-gather      one part     everything   elements / ranks
//   all-to-all      everything   everything   elements / ranks: part i goes to the rank at index i
//   broadcast       everything   everything   elements; `send` matters at the root alone
//   send-recv       everything   everything   elements; the root sends, the other receives
// Buckets travel in place. Ops use their tensors where exec/values/op_message.h says so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rational.h"
#include "exec/device/layout.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <string>

namespace dovetail::exec {

struct Message {
  schedule::Collective kind = schedule::Collective::AllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::Sum;
  Region send = {};
  Region recv = {};
  std::int64_t count = 0;
  std::int32_t ranks = 1;
  std::int32_t index = 0;  // of this rank in its instance of the group
  std::int32_t root = 0;
  Rational factor = {};    // on every element, before it is summed; a sum only
  Region scratch = {};     // memory beside them, of an op
  std::string label = {};  // "all-reduce of bucket 3", for errors and ranges

  // Bytes of the larger side: what a stand-in sends to itself.
  [[nodiscard]] std::int64_t payload_bytes() const;
};

enum class Peers { Real, StandIn };  // a stand-in plays alone, also a send-recv
// Throws InputError for what cannot be executed: a rank outside the group, a bucket that is
// broadcast, a send-recv among other than two ranks.
Message message_of(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                   const schedule::Communicate& action, Peers peers);

}  // namespace dovetail::exec
