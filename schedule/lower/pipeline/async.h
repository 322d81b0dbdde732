// Beside which backward of a pipeline the gradient communication may start.
//
// A gradient is complete after the last micro-batch's backward. When its collective may start is a
// second question: it slows the compute that it runs beside, and on every role but the first a
// bubble follows the last backward, in which it costs nothing.
//
//   Sequential   beside the last micro-batch's backward                          (rule AS1)
//   OneFOneB     role 0: beside its last backward; other roles: after it         (AS3, AI8)
//                one stage only: beside the last backward (AS5; the source system never overlaps)
//   Interleaved  each chunk beside its own last backward                         (AS9)
//                aligned across stages: role r starts it after its own r-th backward from there
//                on, so that all roles communicate at the same time; what would start beyond the
//                last backward is left to the end                              (AS10)
//   ZeroBubble,  as soon as a chunk's last weights are done: hardly a bubble follows them
//   Zbv
//
//   P = 4, v = 2, m = 8: last backwards are ids 11 (chunk 1) and 15 (chunk 0); aligned, role 2
//   starts chunk 1 after id 13 and leaves chunk 0 to the end.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "schedule/lower/pipeline/order.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

// When the collectives of one chunk's gradients may start. `backward`: the id of the role's
// backward (0, 1, ... in its order; where backward is in two, of its weights) that makes the chunk's last gradients, or
// that must have ended.
struct BesideBackward {  // as soon as a gradient is ready
  std::int32_t backward = 0;
  friend bool operator==(const BesideBackward&, const BesideBackward&) = default;
};
struct AfterBackward {  // once this later backward has ended
  std::int32_t backward = 0;
  friend bool operator==(const AfterBackward&, const AfterBackward&) = default;
};
struct AfterAllBackwards {
  friend bool operator==(const AfterAllBackwards&, const AfterAllBackwards&) = default;
};
using LaunchPermission = std::variant<BesideBackward, AfterBackward, AfterAllBackwards>;

// The backward of the role that completes the chunk's gradients.
std::int32_t final_backward(const PipelineShape& shape, std::int32_t role, std::int32_t chunk);

// REQUIRES, here and below: no problem(shape), role and chunk in range.
LaunchPermission launch_permission(const PipelineShape& shape, LaunchAlignment alignment,
                                   std::int32_t role, std::int32_t chunk);

// The pipeline that the two describe together.
PipelineShape pipeline_shape(const Program& program, const Schedule& schedule);

// For lower: the op after which a bucket whose gradients are made on virtual stage `stage` may be
// launched; nothing: as soon as it is ready. `program` is what split_pipeline left behind; ops of a
// step that no longer exist count as ended.
std::optional<OpId> earliest_launch(const Program& program, const Schedule& schedule,
                                    std::int32_t stage);
std::optional<OpId> earliest_launch(const Program& program, const PipelineShape& shape,
                                    LaunchAlignment alignment, std::int32_t stage);

}  // namespace dovetail::schedule
