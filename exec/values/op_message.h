// Which memory an op that is a collective sends from and receives into.
//
//   kind            source (reads[0])     target (writes[0])    elements
//   all-reduce      elements              elements
//   reduce-scatter  elements              elements / ranks
//   all-gather      elements / ranks      elements
//   all-to-all      elements              elements              part i goes to the rank at index i
//   broadcast       elements, at the root elements
//   send-recv       elements, the sender  elements, the receiver
// A tensor is used where it is f32 and has just the size that the row asks for (CollectiveWork::bytes
// says the whole). Otherwise, as in programs made from profiles, the same bytes travel through
// scratch memory. The source is never changed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/program.h"

#include <cstddef>
#include <optional>

namespace dovetail::exec::values {

struct OpMessage {
  std::size_t elements = 0;  // of the whole message; a multiple of the ranks where it is cut
  std::optional<TensorId> source;
  std::optional<TensorId> target;
  std::size_t scratch = 0;  // elements needed beside them
};

// REQUIRES: the op's work is a CollectiveWork whose group exists.
OpMessage message_of(const schedule::Program& program, const schedule::Op& op);

}  // namespace dovetail::exec::values
