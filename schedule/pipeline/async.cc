// Launch permissions per role and chunk, and what follows from them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/pipeline/async.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

// Steps of a role's order outside the context: [begin, end); empty between two steps.
struct Opening {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// In rising order.
std::vector<Opening> openings(const PipelineShape& shape, LaunchAlignment alignment,
                              std::int32_t role) {
  const std::vector<PipelineStep> order = stage_order(shape, role);
  if (shape.kind == PipelineKind::Sequential) {
    // Without pipelining the whole last micro-batch is outside, its forward too.
    return {{order.size() - static_cast<std::size_t>(2 * shape.chunks), order.size()}};
  }
  std::vector<std::size_t> position;  // of each backward
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].phase == Phase::Backward) position.push_back(i);
  }
  std::vector<Opening> open;
  for (std::int32_t chunk = shape.chunks; chunk-- > 0;) {  // the last chunk is complete first
    std::visit(Visitor{[&](const BesideBackward& at) {
                         const std::size_t step = position[static_cast<std::size_t>(at.backward)];
                         open.push_back({step, step + 1});
                       },
                       [&](const AfterBackward& at) {
                         const std::size_t step = position[static_cast<std::size_t>(at.backward)];
                         open.push_back({step + 1, step + 1});
                       },
                       [](const AfterAllBackwards&) {}},
               launch_permission(shape, alignment, role, chunk));
  }
  return open;
}

// The last op of the role's backward with this id; of all its backwards, without one.
std::optional<OpId> last_op(const Program& program, std::int32_t role,
                            const std::optional<PipelineStep>& step) {
  std::optional<OpId> last;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Backward || op.stage % program.stages != role) continue;
    const bool of_step =
        !step || (op.micro_step == step->micro_step && op.stage / program.stages == step->chunk);
    if (of_step) last = op.id;
  }
  return last;
}

}  // namespace

std::int32_t final_backward(const PipelineShape& shape, std::int32_t chunk) {
  const std::int32_t all = shape.steps_per_direction();
  for (std::int32_t id = all; id-- > 0;) {
    const PipelineStep step = nth_step(shape, Phase::Backward, id);
    if (step.chunk == chunk && step.micro_step == shape.micro_steps - 1) return id;
  }
  DOVETAIL_CHECK(false) << "chunk " << chunk << " of " << shape.chunks;
  return 0;
}

LaunchPermission launch_permission(const PipelineShape& shape, LaunchAlignment alignment,
                                   std::int32_t role, std::int32_t chunk) {
  const std::int32_t ready = final_backward(shape, chunk);
  switch (shape.kind) {
    case PipelineKind::Sequential:
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

std::vector<ContextEvent> context_events(const PipelineShape& shape, LaunchAlignment alignment,
                                         std::int32_t role, Pass pass) {
  std::vector<ContextEvent> events{{ContextChange::Enter, 0}};
  auto length = static_cast<std::size_t>(shape.steps_per_direction());
  if (pass == Pass::ForwardOnly) {
    events.push_back({ContextChange::Exit, length});
    return events;
  }
  length *= 2;
  for (const Opening& open : openings(shape, alignment, role)) {
    if (events.back() == ContextEvent{ContextChange::Enter, open.begin} && events.size() > 1) {
      events.pop_back();  // the opening before goes on
    } else {
      events.push_back({ContextChange::Exit, open.begin});
    }
    if (open.end < length) events.push_back({ContextChange::Enter, open.end});
  }
  if (events.back().change == ContextChange::Enter) {
    events.push_back({ContextChange::Exit, length});
  }
  return events;
}

std::vector<ParameterGather> parameter_gathers(const PipelineShape& shape, std::int32_t role) {
  std::vector<ParameterGather> gathers;
  for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
    // The first forward of the chunk before stands at id (chunk - 1) P.
    const std::int32_t before = chunk < 2 ? 0 : (chunk - 1) * shape.stages - role;
    gathers.push_back({chunk, before});
  }
  return gathers;
}

PipelineShape pipeline_shape(const Program& program, const Schedule& schedule) {
  std::int32_t last_stage = 0;
  for (const Op& op : program.ops) last_stage = std::max(last_stage, op.stage);
  return {.kind = schedule.pipeline.kind,
          .stages = program.stages,
          .chunks = last_stage / program.stages + 1,
          .micro_steps = std::max(program.micro_steps, schedule.merge.micro_steps)};
}

bool may_launch_in_backward(const Program& program, const Schedule& schedule, std::int32_t role) {
  const PipelineShape shape = pipeline_shape(program, schedule);
  for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const LaunchPermission permission =
        launch_permission(shape, schedule.pipeline.alignment, role, chunk);
    if (!std::holds_alternative<AfterAllBackwards>(permission)) return true;
  }
  return false;
}

std::optional<OpId> earliest_launch(const Program& program, const Schedule& schedule,
                                    std::int32_t stage) {
  const PipelineShape shape = pipeline_shape(program, schedule);
  const std::int32_t role = stage % shape.stages;
  using Floor = std::optional<OpId>;
  return std::visit(
      Visitor{
          [](const BesideBackward&) -> Floor { return std::nullopt; },
          [&](const AfterBackward& at) -> Floor {
            return last_op(program, role, nth_step(shape, Phase::Backward, at.backward));
          },
          [&](const AfterAllBackwards&) -> Floor { return last_op(program, role, std::nullopt); }},
      launch_permission(shape, schedule.pipeline.alignment, role, stage / shape.stages));
}

}  // namespace dovetail::schedule
