// Generates the order in which each role of a pipeline runs its forwards and backwards, by playing
// all roles together and letting each take the next step that its kind of order prefers.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

std::vector<PipelineStep> sequential_order(const PipelineShape& shape) {
  std::vector<PipelineStep> order;
  for (std::int32_t m = 0; m < shape.micro_steps; ++m) {
    for (std::int32_t c = 0; c < shape.chunks; ++c) order.push_back({Pass::Forward, m, c});
    for (std::int32_t c = shape.chunks; c-- > 0;) order.push_back({Pass::Backward, m, c});
  }
  return order;
}

// Written for as many micro-batches as fill the pipeline; of those that there are not, no step is kept.
class ZbvOrder {
 public:
  explicit ZbvOrder(std::int32_t micro_steps) : micro_steps_(micro_steps) {}

  std::vector<PipelineStep> run(std::int32_t stages, std::int32_t role) && {
    const std::int32_t all = std::max(2 * stages - 1, micro_steps_);
    for (std::int32_t i = 0; i < 2 * (stages - role) - 1; ++i) add(Pass::Forward, 0);
    for (std::int32_t i = 0; i < role; ++i) {
      add(Pass::Forward, 1);
      add(Pass::Forward, 0);
    }
    for (std::int32_t i = 0; i < stages - role; ++i) {
      add(Pass::Forward, 1);
      add_backward(1);
    }
    while (count(Pass::Forward, 1) < all) {
      if (count(Pass::Forward, 0) < all) add(Pass::Forward, 0);
      add_backward(0);
      add(Pass::Forward, 1);
      add_backward(1);
    }
    for (std::int32_t i = 0; i < role; ++i) {  // cooldown
      add(Pass::Backward, 0);
      add(Pass::Backward, 1);
    }
    for (std::int32_t i = 0; i < stages - role; ++i) {
      add(Pass::Backward, 0);
      add(Pass::Weights, 0);
    }
    for (const std::int32_t chunk : {1, 0}) {
      while (count(Pass::Weights, chunk) < all) add(Pass::Weights, chunk);
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] std::int32_t& count(Pass pass, std::int32_t chunk) {
    return counts_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(chunk)];
  }
  void add(Pass pass, std::int32_t chunk) {
    const std::int32_t micro_step = count(pass, chunk)++;
    if (micro_step < micro_steps_) order_.push_back({pass, micro_step, chunk});
  }
  void add_backward(std::int32_t chunk) {
    add(Pass::Backward, chunk);
    add(Pass::Weights, chunk);
  }

  std::int32_t micro_steps_;
  std::array<std::array<std::int32_t, 2>, 3> counts_ = {};  // by pass and chunk
  std::vector<PipelineStep> order_;
};

// Which steps have run: one flag per pass, virtual stage and micro-batch.
class Progress {
 public:
  explicit Progress(const PipelineShape& shape)
      : shape_(shape),
        done_(static_cast<std::size_t>(3 * shape.virtual_stages() * shape.micro_steps)) {}

  [[nodiscard]] bool ready(const RoleStep& step) const {
    const std::optional<RoleStep> needed = step_needed(shape_, step);
    if (needed && !done_[index(*needed)]) return false;
    if (step.step.pass == Pass::Forward) return true;
    RoleStep before = step;
    before.step.pass = step.step.pass == Pass::Weights ? Pass::Backward : Pass::Forward;
    return done_[index(before)];
  }
  void finish(const RoleStep& step) { done_[index(step)] = true; }

 private:
  [[nodiscard]] std::size_t index(const RoleStep& at) const {
    const std::int32_t stage = shape_.stage_of(at.role, at.step.chunk);
    const std::int32_t row = static_cast<std::int32_t>(at.step.pass) * shape_.virtual_stages();
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
  if (shape.kind == PipelineKind::Zbv && shape.chunks != 2) {
    return "the order zbv has two chunks per stage, not " + std::to_string(shape.chunks);
  }
  const bool grouped = shape.kind == PipelineKind::Interleaved ||
                       (shape.kind == PipelineKind::ZeroBubble && shape.chunks > 1);
  if (grouped && shape.micro_steps % shape.stages != 0) {
    return "interleaved pipelines need a multiple of " + std::to_string(shape.stages) +
           " micro-batches, not " + std::to_string(shape.micro_steps);
  }
  return std::nullopt;
}

PipelineStep nth_step(const PipelineShape& shape, Pass pass, std::int32_t id) {
  DOVETAIL_CHECK(shape.kind != PipelineKind::Zbv) << "step " << id << " differs from role to role";
  const bool grouped = shape.chunks > 1 && shape.kind != PipelineKind::Sequential;
  const std::int32_t width = grouped ? shape.stages : 1;  // micro-batches of one group
  const std::int32_t group = id / (width * shape.chunks);
  const std::int32_t within = id % (width * shape.chunks);
  const std::int32_t chunk = within / width;
  return {.pass = pass,
          .micro_step = group * width + within % width,
          .chunk = pass == Pass::Forward ? chunk : shape.chunks - 1 - chunk};
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
    case PipelineKind::ZeroBubble:
      return std::min(behind + (shape.chunks - 1) * shape.stages, all);
    case PipelineKind::Zbv:
      break;
  }
  DOVETAIL_CHECK(false) << "an order without one warm-up";
  return 0;
}

std::vector<PipelineStep> stage_order(const PipelineShape& shape, std::int32_t role) {
  DOVETAIL_CHECK(!problem(shape)) << *problem(shape);
  DOVETAIL_CHECK(role >= 0 && role < shape.stages) << "role " << role;
  if (shape.kind == PipelineKind::Sequential) return sequential_order(shape);
  if (shape.kind == PipelineKind::Zbv) return ZbvOrder(shape.micro_steps).run(shape.stages, role);
  const std::int32_t all = shape.steps_per_direction();
  const std::int32_t warm_up = warm_up_steps(shape, role);
  std::vector<PipelineStep> order;
  order.reserve(static_cast<std::size_t>(3 * all));
  const auto add = [&](Pass pass, std::int32_t id) { order.push_back(nth_step(shape, pass, id)); };
  for (std::int32_t id = 0; id < warm_up; ++id) add(Pass::Forward, id);
  const std::int32_t delay = splits_backward(shape.kind) ? role : all;  // of weights
  for (std::int32_t id = 0; id < all; ++id) {                           // pairs, then the cooldown
    if (id + warm_up < all) add(Pass::Forward, id + warm_up);
    add(Pass::Backward, id);
    if (id >= delay) add(Pass::Weights, id - delay);
  }
  if (!splits_backward(shape.kind)) return order;
  for (std::int32_t id = std::max(0, all - delay); id < all; ++id) add(Pass::Weights, id);
  return order;
}

// A role whose forwards and backwards take turns never holds more than when it has begun the first pair, or where weights come later
// the first of theirs.
std::int32_t most_in_flight(const PipelineShape& shape, std::int32_t role) {
  if (shape.kind == PipelineKind::Sequential) return shape.chunks;
  if (shape.kind != PipelineKind::Zbv) {
    const std::int32_t delay = splits_backward(shape.kind) ? role : 0;
    return std::min(warm_up_steps(shape, role) + 1 + delay, shape.steps_per_direction());
  }
  PipelineShape filled = shape;
  filled.micro_steps = std::min(shape.micro_steps, 2 * shape.stages);
  std::int32_t most = 0;
  std::int32_t now = 0;
  for (const PipelineStep& step : stage_order(filled, role)) {
    if (step.pass == Pass::Forward) most = std::max(most, ++now);
    if (step.pass == shape.last_pass()) --now;
  }
  return most;
}

std::optional<RoleStep> step_needed(const PipelineShape& shape, const RoleStep& step) {
  if (step.step.pass == Pass::Weights) return std::nullopt;
  const std::int32_t stage = shape.stage_of(step.role, step.step.chunk);
  const std::int32_t other = step.step.pass == Pass::Forward ? stage - 1 : stage + 1;
  if (other < 0 || other >= shape.virtual_stages()) return std::nullopt;
  return RoleStep{shape.role_of(other),
                  {step.step.pass, step.step.micro_step, other / shape.stages}};
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
