// Launch permissions per role and chunk, and the op behind which a bucket may be launched.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/async.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

// The last op of the role's backward with this id; of all its backwards, without one.
std::optional<OpId> last_op(const Program& program, std::int32_t role,
                            const std::optional<PipelineStep>& step) {
  const auto is_of_it = [&](const Op& op) {
    if (op.phase != Phase::Backward || !is_repeated(op) || program.role_of(op) != role)
      return false;
    return !step || (op.micro_step == step->micro_step && op.stage / program.stages == step->chunk);
  };
  const auto last = std::find_if(program.ops.rbegin(), program.ops.rend(), is_of_it);
  return last == program.ops.rend() ? std::nullopt : std::optional(last->id);
}

}  // namespace

std::int32_t final_backward(const PipelineShape& shape, std::int32_t role, std::int32_t chunk) {
  const PipelineStep last{shape.last_pass(), shape.micro_steps - 1, chunk};
  std::int32_t id = 0;
  for (const PipelineStep& step : stage_order(shape, role)) {
    if (step == last) return id;
    if (step.pass == last.pass) ++id;
  }
  DOVETAIL_CHECK(false) << "chunk " << chunk << " of " << shape.chunks;
  return 0;
}

LaunchPermission launch_permission(const PipelineShape& shape, LaunchAlignment alignment,
                                   std::int32_t role, std::int32_t chunk) {
  const std::int32_t ready = final_backward(shape, role, chunk);
  switch (shape.kind) {
    case PipelineKind::Sequential:
    case PipelineKind::ZeroBubble:
    case PipelineKind::Zbv:
      return BesideBackward{ready};
    case PipelineKind::OneFOneB:
      if (role > 0) return AfterAllBackwards{};
      return BesideBackward{ready};
    case PipelineKind::Interleaved:
      if (alignment == LaunchAlignment::PerStage) return BesideBackward{ready};
      if (ready + role < shape.steps_per_direction()) return AfterBackward{ready + role};
      return AfterAllBackwards{};
  }
  return AfterAllBackwards{};
}

PipelineShape pipeline_shape(const Program& program, const Schedule& schedule) {
  std::int32_t last_stage = 0;
  for (const Op& op : program.ops) last_stage = std::max(last_stage, op.stage);
  return {.kind = schedule.pipeline.kind,
          .stages = program.stages,
          .chunks = last_stage / program.stages + 1,
          .micro_steps = std::max(program.micro_steps, schedule.merge.micro_steps)};
}

std::optional<OpId> earliest_launch(const Program& program, const Schedule& schedule,
                                    std::int32_t stage) {
  return earliest_launch(program, pipeline_shape(program, schedule), schedule.pipeline.alignment,
                         stage);
}

std::optional<OpId> earliest_launch(const Program& program, const PipelineShape& shape,
                                    LaunchAlignment alignment, std::int32_t stage) {
  const std::int32_t role = shape.role_of(stage);
  using Floor = std::optional<OpId>;
  return std::visit(
      Visitor{
          [](const BesideBackward&) -> Floor { return std::nullopt; },
          [&](const AfterBackward& at) -> Floor {
            return last_op(program, role, nth_step(shape, Pass::Backward, at.backward));
          },
          [&](const AfterAllBackwards&) -> Floor { return last_op(program, role, std::nullopt); }},
      launch_permission(shape, alignment, role, stage / shape.stages));
}

}  // namespace dovetail::schedule
