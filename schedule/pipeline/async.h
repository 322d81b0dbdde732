// Beside which backward of a pipeline the gradient communication may start.
//
// A gradient is complete after the last micro-batch's backward. When its collective may start is a
// second question: it slows the compute that it runs beside, and on every role but the first a
// bubble follows the last backward, in which it costs nothing (slack.h).
//
//   Sequential   beside the last micro-batch's backward                          (rule AS1)
//   OneFOneB     role 0: beside its last backward; other roles: after it         (AS3, AI8)
//                one stage only: beside the last backward (AS5; the source system never overlaps)
//   Interleaved  each chunk beside its own last backward                         (AS9)
//                aligned across stages: role r starts it after its own r-th backward from there
//                on, so that all roles communicate at the same time; what would start beyond the
//                last backward is left to the end                              (AS10)
//
//   P = 4, v = 2, m = 8: last backwards are ids 11 (chunk 1) and 15 (chunk 0); aligned, role 2 starts
//   chunk 1 after id 13 and leaves chunk 0 to the end.
//
// The source systems express this as a context inside which nothing is launched; context_events()
// gives its entries and exits, derived from the same permissions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "schedule/pipeline/order.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

// When the collectives of one chunk's gradients may start. `backward`: the id of the role's backward
// (0, 1, ... in its order) that makes the chunk's last gradients, or that must have ended.
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
std::int32_t final_backward(const PipelineShape& shape, std::int32_t chunk);

// REQUIRES, here and below: no problem(shape), role and chunk in range.
LaunchPermission launch_permission(const PipelineShape& shape, LaunchAlignment alignment,
                                   std::int32_t role, std::int32_t chunk);

enum class Pass { Training, ForwardOnly };
enum class ContextChange { Enter, Exit };
struct ContextEvent {
  ContextChange change = ContextChange::Enter;
  std::size_t before_step = 0;  // position in the role's order; its length: at the end
  friend bool operator==(const ContextEvent&, const ContextEvent&) = default;
};

// The no-launch context of a role: entered before the first step, left before a step beside which
// something may start (or after the step that it must wait for), entered again when more steps
// follow, and left at the end. Entries and exits alternate, the last is an exit; without chunks
// there is exactly one exit on every path (AS6).
std::vector<ContextEvent> context_events(const PipelineShape& shape, LaunchAlignment alignment,
                                         std::int32_t role, Pass pass);

// When the all-gather of a chunk's updated parameters starts (rule AS11): chunks 0 and 1 before the
// pipeline begins, chunk c + 1 with the forward that is r ids before the first one of chunk c, so
// that all roles communicate at the same time.
struct ParameterGather {
  std::int32_t chunk = 0;
  std::int32_t before_forward = 0;  // id; 0: before the pipeline begins
  friend bool operator==(const ParameterGather&, const ParameterGather&) = default;
};
std::vector<ParameterGather> parameter_gathers(const PipelineShape& shape, std::int32_t role);

// The pipeline that the two describe together.
PipelineShape pipeline_shape(const Program& program, const Schedule& schedule);

// For lower: whether any bucket of this role may be launched before its last backward has ended.
bool may_launch_in_backward(const Program& program, const Schedule& schedule, std::int32_t role);

// For lower: the op after which a bucket whose gradients are made on virtual stage `stage` may be
// launched; nothing: as soon as it is ready. `program` is what split_pipeline left behind; ops of a
// step that no longer exist count as ended.
std::optional<OpId> earliest_launch(const Program& program, const Schedule& schedule,
                                    std::int32_t stage);

}  // namespace dovetail::schedule
