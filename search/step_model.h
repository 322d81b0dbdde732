// StepModel: the steady step of any placement of one Program's gradients on one machine, without
// lowering it.
//
//   StepModel::Made made = StepModel::make(program, costs, frame);    // or made.refusal says why not
//   StepWorkspace memory = made.model->workspace();
//   Duration step = made.model->evaluate(choices, memory);
//
// Built once, by lowering one probe schedule and asking Costs for every op. A candidate is a flat
// array of BucketChoice in launch order; its graph is written and played (step_writer.h). The answer is that of
// the simulator, to the nanosecond:
//   evaluate(choices) == find_steady_state(lower(program, schedule_of(choices)), costs).summary.step_ns
//
// It serves all-reduces and sharded updates, whose parameters are gathered after the update, in the next forward or
// before each use, with replicas of the shards and beside frozen blocks, in pipelines and without; gradients of several kinds; on unlike
// ranks, with contention, several streams, hosts of both kinds, micro-steps that are all reduced or only the last, and collectives of
// the Program's own on any stream. `make` refuses gradients that owe two reductions without shards, and groups that join several stages of
// a pipeline. The caller then asks the simulator (planner.h).
//
// Why the graph is written anew for each candidate, rather than kept and changed: four fifths of the time of a sharded
// candidate went into rewriting the Program and into commands (780 of them a second at 300 gradients), which this leaves
// out; writing is a third of what is left, playing with rates most of the rest, and that begins at the start anyway.
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

#include "base/units.h"
#include "models/costs/costs.h"
#include "schedule/policies/decisions.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "sim/simulate.h"

namespace dovetail::search {

inline constexpr std::int32_t kWhenReady = 0;  // no launch is before the first op
inline constexpr std::int32_t kInline = -1;    // no communication stream: on the compute stream

// When the parameters of a bucket are gathered, where that is before each use. A place: before this op (position) is
// issued, 0: when the micro-step begins; at the latest before the first reader.
struct GatherChoice {
  std::optional<std::int32_t> forward = std::nullopt;   // for the readers in forward
  std::optional<std::int32_t> backward = std::nullopt;  // for those in backward
  bool keeps = false;  // what was gathered for forward stays until backward has read it
  std::int32_t stream = 0;
  friend bool operator==(const GatherChoice&, const GatherChoice&) = default;
};

// One bucket: gradients begin .. end - 1, kind by kind in gradient-ready order (schedule::kinds_of).
struct BucketChoice {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t launch = kWhenReady;  // not before this op (position) has been issued
  std::int32_t stream = 0;           // communication stream, 0 .. kMostStreams - 1, or kInline
  std::optional<std::int32_t> batch = std::nullopt;  // for WaitPoint::BeforeNextBatch
  schedule::BucketMode mode = schedule::BucketMode::View;
  schedule::WaitPoint wait = schedule::WaitPoint::FirstUse;
  schedule::WaitScope scope = schedule::WaitScope::Event;
  // Where gradients are cut: elements of the first one that an earlier bucket holds, and of the last one that this
  // bucket holds (0: all that are left).
  std::int64_t skip = 0;
  std::int64_t take = 0;
  GatherChoice gather = {};
  friend bool operator==(const BucketChoice&, const BucketChoice&) = default;
};
using Choices =
    std::vector<BucketChoice>;  // in launch order; together they hold every gradient once

inline constexpr std::int32_t kMostStreams = 16;

// What bounds tell apart of placements in consecutive buckets on one stream.
struct BoundKind {
  bool is_inline = false;
  bool waits_at_end = false;   // of backward,
  bool is_copied = false;      // and copies,
  bool is_when_ready = false;  // or is launched when ready, by hosts that keep ahead
  // Of parameters that are gathered before each use: bytes of gradients whose parameters are gathered at a time, whether they
  // are gathered again for backward, and whether gathers and reductions share a stream.
  std::int64_t most_gathered = 0;
  bool reshards = false;
  bool shares_stream = true;
  friend bool operator==(const BoundKind&, const BoundKind&) = default;
};

// No placement of this kind is faster.
struct StepBound {
  Duration step{};
  Duration held_back{};                // the same if launches may be later than when ready
  std::string kind;                    // "whole gradients in consecutive buckets on one stream"
  std::vector<std::size_t> ends = {};  // of the buckets that the bound thinks of; may be none
  Duration known{};                    // what it was given
  bool is_spent = false;               // a lower one may give a higher bound
};

struct StepData;
struct BoundKnots;
class StepWriter;

// What evaluations work on. Belongs to the model that made it; one per thread.
class StepWorkspace {
 public:
  StepWorkspace(StepWorkspace&&) noexcept;
  StepWorkspace& operator=(StepWorkspace&&) noexcept;
  ~StepWorkspace();

 private:
  friend class StepModel;
  explicit StepWorkspace(std::shared_ptr<const StepData> data);
  std::shared_ptr<const StepData> data_;
  std::unique_ptr<StepWriter> writer_;
};

class StepModel {
 public:
  struct Made;  // a model, or a sentence that says why there is none

  // `frame` gives what is the same for all candidates: scaling, micro-steps, when parameters are gathered, and of its
  // first bucket collective, padding, alignment and CTAs. REQUIRES: problems(program) is empty, frame has a bucket.
  static Made make(const schedule::Program& program, const models::Costs& costs,
                   const schedule::Schedule& frame);

  [[nodiscard]] StepWorkspace workspace() const;
  [[nodiscard]] std::int32_t gradients() const;
  // The kind of a gradient, which its bucket must not leave: what it travels over, types, and of a pipeline its stage.
  [[nodiscard]] std::int32_t kind(std::int32_t gradient) const;
  // Positions of ops: the producer of a gradient, and the last op of backward (of a pipeline: in its first stage),
  // behind which no bucket may be launched.
  [[nodiscard]] std::int32_t ready(std::int32_t gradient) const;
  [[nodiscard]] std::int32_t backward_end() const;
  [[nodiscard]] Bytes bytes(std::int32_t gradient) const;

  // The same placement as a Schedule, and the other way round; nothing for a Schedule that is none of
  // this model's.
  [[nodiscard]] schedule::Schedule schedule_of(std::span<const BucketChoice> choices) const;
  [[nodiscard]] std::optional<Choices> choices_of(const schedule::Schedule& schedule) const;

  // Gathers of these buckets as the policy places them (schedule/policies/fsdp.h), on this stream; false where the limits do not
  // allow them. REQUIRES: parameters are gathered before each use; how far ahead is a number.
  [[nodiscard]] bool place_gathers(Choices& choices, const schedule::Gathers& gathers,
                                   std::int32_t stream) const;

  // Whether a search may try to launch buckets later than when they are ready: not where every micro-step reduces, nor in a pipeline.
  [[nodiscard]] bool delays() const;

  // The steady step. REQUIRES: choices hold every gradient once, those of one bucket are of one stage, launch <=
  // backward_end(); a batch is launched together, once its last bucket is ready; gradients are cut only in copy mode and not where parameters are gathered
  // before each use; what is gathered has a reader. Throws InputError as simulating does.
  [[nodiscard]] Duration evaluate(std::span<const BucketChoice> choices,
                                  StepWorkspace& workspace) const;
  // The same with all that is told of a step, in several times the time.
  [[nodiscard]] sim::StepSummary summary(std::span<const BucketChoice> choices,
                                         StepWorkspace& workspace) const;

  // The kind of a placement with this step; nothing where no bound is known for it.
  [[nodiscard]] std::optional<BoundKind> bound_kind(std::span<const BucketChoice> choices,
                                                    Duration step) const;
  // How fast any placement of this frame and kind can be. `known`: a step that one of them reaches; no bound is above it.
  [[nodiscard]] StepBound lower_bound(const BoundKind& kind, Duration known) const;

  // How evaluations were answered, for tests and benchmarks.
  struct Counts {
    std::int64_t one_step = 0;    // by a step that is the copy of the one before
    std::int64_t many_steps = 0;  // by steps until they repeat
  };
  [[nodiscard]] static const Counts& counts(const StepWorkspace& workspace);

 private:
  explicit StepModel(std::shared_ptr<const StepData> data);
  std::shared_ptr<const StepData> data_;
  std::shared_ptr<BoundKnots> knots_;  // made when a bound first asks for them
};

struct StepModel::Made {
  std::optional<StepModel> model = std::nullopt;
  std::string refusal = {};
};

}  // namespace dovetail::search
