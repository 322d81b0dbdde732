// Generates the order in which each role of a pipeline runs its forwards and backwards, by playing
// all roles together and letting each take the next step that its kind of order prefers.
//
// SPDX-License-Identifier: Apache-2.0
#include "lower/pipeline/order.h"

#include <algorithm>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

std::vector<PipelineStep> sequential_order(const PipelineShape& shape) {
  std::vector<PipelineStep> order;
  for (std::int32_t m = 0; m < shape.micro_steps; ++m) {
    for (std::int32_t c = 0; c < shape.chunks; ++c) order.push_back({Phase::Forward, m, c});
    for (std::int32_t c = shape.chunks; c-- > 0;) order.push_back({Phase::Backward, m, c});
  }
  return order;
}

// Which steps have run: one flag per direction, virtual stage and micro-batch.
class Progress {
 public:
  explicit Progress(const PipelineShape& shape)
      : shape_(shape),
        done_(static_cast<std::size_t>(2 * shape.virtual_stages() * shape.micro_steps)) {}

  [[nodiscard]] bool ready(const RoleStep& step) const {
    const std::optional<RoleStep> needed = step_needed(shape_, step);
    if (needed && !done_[index(*needed)]) return false;
    if (step.step.phase == Phase::Forward) return true;
    return done_[index({step.role, {Phase::Forward, step.step.micro_step, step.step.chunk}})];
  }
  void finish(const RoleStep& step) { done_[index(step)] = true; }

 private:
  [[nodiscard]] std::size_t index(const RoleStep& at) const {
    const std::int32_t stage = at.step.chunk * shape_.stages + at.role;
    const std::int32_t row = at.step.phase == Phase::Forward ? 0 : shape_.virtual_stages();
    return static_cast<std::size_t>((row + stage) * shape_.micro_steps + at.step.micro_step);
  }

  PipelineShape shape_;
  std::vector<bool> done_;
};

}  // namespace

std::optional<std::string> problem(const PipelineShape& shape) {
  if (std::min({shape.stages, shape.chunks, shape.micro_steps}) < 1) {
    return "a pipeline of " + std::to_string(shape.stages) + " stages, " +
           std::to_string(shape.chunks) + " chunks and " + std::to_string(shape.micro_steps) +
           " micro-batches: each must be at least 1";
  }
  if (shape.kind == PipelineKind::OneFOneB && shape.chunks > 1) {
    return "the order 1F1B has one chunk per stage, not " + std::to_string(shape.chunks) +
           " (use interleaved)";
  }
  if (shape.kind == PipelineKind::Interleaved && shape.micro_steps % shape.stages != 0) {
    return "interleaved pipelines need a multiple of " + std::to_string(shape.stages) +
           " micro-batches, not " + std::to_string(shape.micro_steps);
  }
  return std::nullopt;
}

PipelineStep nth_step(const PipelineShape& shape, Phase phase, std::int32_t id) {
  const bool grouped = shape.kind == PipelineKind::Interleaved;
  const std::int32_t width = grouped ? shape.stages : 1;  // micro-batches of one group
  const std::int32_t group = id / (width * shape.chunks);
  const std::int32_t within = id % (width * shape.chunks);
  const std::int32_t chunk = within / width;
  return {.phase = phase,
          .micro_step = group * width + within % width,
          .chunk = phase == Phase::Forward ? chunk : shape.chunks - 1 - chunk};
}

std::int32_t warm_up_steps(const PipelineShape& shape, std::int32_t role) {
  const std::int32_t behind = shape.stages - role - 1;
  const std::int32_t all = shape.steps_per_direction();
  switch (shape.kind) {
    case PipelineKind::Sequential:
      return 0;
    case PipelineKind::OneFOneB:
      return std::min(behind, all);
    case PipelineKind::Interleaved:
      if (shape.micro_steps == shape.stages) return all;
      return std::min(2 * behind + (shape.chunks - 1) * shape.stages, all);
  }
  return 0;
}

std::vector<PipelineStep> stage_order(const PipelineShape& shape, std::int32_t role) {
  DOVETAIL_CHECK(!problem(shape)) << *problem(shape);
  DOVETAIL_CHECK(role >= 0 && role < shape.stages) << "role " << role;
  if (shape.kind == PipelineKind::Sequential) return sequential_order(shape);
  const std::int32_t all = shape.steps_per_direction();
  const std::int32_t warm_up = warm_up_steps(shape, role);
  std::vector<PipelineStep> order;
  order.reserve(static_cast<std::size_t>(2 * all));
  for (std::int32_t id = 0; id < warm_up; ++id) {
    order.push_back(nth_step(shape, Phase::Forward, id));
  }
  for (std::int32_t id = 0; id < all; ++id) {  // pairs, then the cooldown
    if (id + warm_up < all) order.push_back(nth_step(shape, Phase::Forward, id + warm_up));
    order.push_back(nth_step(shape, Phase::Backward, id));
  }
  return order;
}

std::optional<RoleStep> step_needed(const PipelineShape& shape, const RoleStep& step) {
  const std::int32_t stage = step.step.chunk * shape.stages + step.role;
  const std::int32_t other = step.step.phase == Phase::Forward ? stage - 1 : stage + 1;
  if (other < 0 || other >= shape.virtual_stages()) return std::nullopt;
  return RoleStep{other % shape.stages,
                  {step.step.phase, step.step.micro_step, other / shape.stages}};
}

std::vector<RoleStep> serial_order(const PipelineShape& shape) {
  std::vector<std::vector<PipelineStep>> orders;
  for (std::int32_t role = 0; role < shape.stages; ++role) {
    orders.push_back(stage_order(shape, role));
  }
  std::vector<std::size_t> next(orders.size());
  Progress progress(shape);
  std::vector<RoleStep> serial;
  const std::size_t total = orders.size() * orders.front().size();
  while (serial.size() < total) {
    const std::size_t before = serial.size();
    for (std::int32_t role = 0; role < shape.stages; ++role) {
      const auto r = static_cast<std::size_t>(role);
      if (next[r] == orders[r].size()) continue;
      const RoleStep step{role, orders[r][next[r]]};
      if (!progress.ready(step)) continue;
      progress.finish(step);
      serial.push_back(step);
      ++next[r];
    }
    DOVETAIL_CHECK(serial.size() > before) << "the pipeline jams after " << before << " steps";
  }
  return serial;
}

}  // namespace dovetail::schedule
