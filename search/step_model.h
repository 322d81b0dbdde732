// StepModel: the steady step of any placement of one Program's gradients on one machine, without
// lowering it.
//
//   StepModel::Made made = StepModel::make(program, costs, frame);    // or made.refusal says why not
//   StepWorkspace memory = made.model->workspace();
//   std::optional<sim::StepSummary> found = made.model->evaluate(choices, memory);
//
// Built once, by lowering one probe schedule and asking Costs for every op. A candidate is a flat
// array of BucketChoice in launch order. The answer is that of the simulator, to the nanosecond:
//   evaluate(choices) == find_steady_state(lower(program, schedule_of(choices)), costs).summary
// and nothing is allocated once the workspace has seen candidates of the same size.
//
// Three walks, and the conditions decide which (tests/search/step_model_test.cc holds all against the
// simulator):
//   quick  (quick_walk.h)  a few operations per bucket. Holds where collectives run at one rate whatever
//          computes, one stream carries them, and the host keeps ahead of the device. Then a
//          transfer's end is known when it begins.
//   full   (full_walk.h)   one step from event to event: several streams that share links, collectives
//          that compute slows down or that take processor time, modes and orders of any kind.
//   steps  (full_walk.h)   the same step after step until they repeat: where the host limits, or the
//          pause between two steps matters.
// The first two restart behind an unchanged prefix of the settled candidate.
// None applies to pipelines, sharded updates, micro-steps that are all reduced, ranks that are
// simulated apart, collectives of the Program's own: `make` refuses them. Where steps do not settle
// into equal ones `evaluate` gives nothing. The caller then asks the simulator (planner.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/costs.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "sim/simulate.h"

namespace dovetail::search {

inline constexpr std::int32_t kWhenReady = -1;

// One bucket: gradients begin .. end - 1 in gradient-ready order.
struct BucketChoice {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t launch = kWhenReady;  // not before this op (position) has been issued
  std::int32_t stream = 0;           // communication stream, 0 .. kMostStreams - 1
  schedule::BucketMode mode = schedule::BucketMode::View;
  schedule::WaitPoint wait = schedule::WaitPoint::FirstUse;  // not BeforeNextBatch
  schedule::WaitScope scope = schedule::WaitScope::Event;
  friend bool operator==(const BucketChoice&, const BucketChoice&) = default;
};
using Choices =
    std::vector<BucketChoice>;  // in launch order; together they hold every gradient once

inline constexpr std::int32_t kMostStreams = 16;

struct StepData;
struct StepMemory;

// What evaluations work on. Belongs to the model that made it; one per thread.
class StepWorkspace {
 public:
  StepWorkspace();
  StepWorkspace(StepWorkspace&&) noexcept;
  StepWorkspace& operator=(StepWorkspace&&) noexcept;
  ~StepWorkspace();

 private:
  friend class StepModel;
  std::unique_ptr<StepMemory> memory_;
};

class StepModel {
 public:
  struct Made;  // a model, or a sentence that says why there is none

  // `frame` gives what is the same for all candidates: scaling, micro-steps, and of its first bucket
  // padding, alignment and CTAs. REQUIRES: problems(program) is empty, frame has a bucket.
  static Made make(const schedule::Program& program, const models::Costs& costs,
                   const schedule::Schedule& frame);

  [[nodiscard]] StepWorkspace workspace() const;
  [[nodiscard]] std::int32_t gradients() const;
  // Positions of ops: the producer of a gradient, and the last op of backward, behind which no
  // bucket may be launched.
  [[nodiscard]] std::int32_t ready(std::int32_t gradient) const;
  [[nodiscard]] std::int32_t backward_end() const;
  [[nodiscard]] Bytes bytes(std::int32_t gradient) const;

  // The same placement as a Schedule, and the other way round; nothing for a Schedule that is none of
  // this model's.
  [[nodiscard]] schedule::Schedule schedule_of(std::span<const BucketChoice> choices) const;
  [[nodiscard]] std::optional<Choices> choices_of(const schedule::Schedule& schedule) const;

  // The steady step, or nothing where steps do not become equal. REQUIRES: choices hold every gradient
  // once, launch <= backward_end(), wait != BeforeNextBatch.
  [[nodiscard]] std::optional<sim::StepSummary> evaluate(std::span<const BucketChoice> choices,
                                                         StepWorkspace& workspace) const;
  // The same, and keeps the way there, so that changes of it are cheap.
  [[nodiscard]] std::optional<sim::StepSummary> settle(std::span<const BucketChoice> choices,
                                                       StepWorkspace& workspace) const;
  // The same for choices that differ from the last settled ones from bucket `first` on, in any way.
  [[nodiscard]] std::optional<sim::StepSummary> evaluate_change(
      std::span<const BucketChoice> choices, std::size_t first, StepWorkspace& workspace) const;

  // Which of the walks answered, for tests and benchmarks.
  struct Counts {
    std::int64_t quick = 0;
    std::int64_t full = 0;
    std::int64_t steps = 0;
    std::int64_t none = 0;
    std::int64_t rejoined = 0;  // of `full`: ended where the settled candidate went on alike
  };
  [[nodiscard]] static const Counts& counts(const StepWorkspace& workspace);

 private:
  explicit StepModel(std::shared_ptr<const StepData> data) : data_(std::move(data)) {}
  std::shared_ptr<const StepData> data_;
};

struct StepModel::Made {
  std::optional<StepModel> model = std::nullopt;
  std::string refusal = {};
};

}  // namespace dovetail::search
