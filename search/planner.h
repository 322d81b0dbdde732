// The planner: weighs policies for one Program on one machine, solves the exact one, and bounds
// them all from below.
//
//   Planner planner(workload program, costs);
//   Candidate ddp = planner.evaluate(parse_policy("torch-ddp:cap=25MiB,first=1MiB"));
//   ddp.summary.step_ns; ddp.buckets; planner.lower_bound(ddp);
//
// Policies that group by a machine's times get their buckets here: mg-wfbp and asc-wfbp by a rule (merge_rule.h), exact as below.
// With ctas=search any policy is weighed with several numbers of thread blocks, the same for all its collectives.
//
// A candidate is lowered and simulated until its steps repeat; the steady one counts (sim/steady.h). Of several
// that differ in their buckets only, the evaluator finds the same step without lowering (step_model.h).
// Schedules seen before are not weighed again. Policies are legal by construction
// (tests/schedule); what leaves the planner to be shown as best or written to a file is verified
// all the same.
//
// Gradients may differ in process group, dtype or reduction; buckets hold one kind each. Then exact solves each run of
// one kind in ready order, and each kind as if it travelled alone, and climbs from there as with one kind.
//
// Policy exact. DESIGN's recursion gives the grouping with the earliest last completion for given
// ready times and a cost that depends only on the bucket. Contention, copies and wake-ups shift
// ready times, so the planner solves it several times: with the lone, the queued and the lesser of
// both times per collective, with the processor time of a collective added, and again with the
// ready times that the best of those had in simulation; then it tries even groupings and the one that the lower bound
// thinks of, and, unless one is within 0.01 % of that bound, climbs from the best of all these by merges, splits, moved borders and, where that pays, launches that are held back,
// with the evaluator (local_search.h) where it applies. Of up to six gradients it weighs all
// groupings. Joined with sharded updates it searches whole tensors (sharded+exact), with gathers before each use
// blocks of whole layers or modules and how far ahead they are gathered (fsdp+exact), no more at a time than a block for each layer unless a limit is given. It keeps what has the shortest step. Without contention, copies and host cost the first solution is already optimal.
//
// Lower bound. Where there is an evaluator of the candidate's kind, the one that it knows: that of its clock (clock_bound.h) for
// all-reduces and sharded updates, also of several micro-steps, sums for parameters that are gathered before each use
// (gather_bound.h), a relaxed step for pipelines (step_bound.cc). Of all-reduces of one micro-step it is the larger one of
// that and of another. For each rank: the exact optimum of the relaxed problem (no contention, no copies,
// no host cost, the lesser of both times per collective, made non-decreasing) plus the shortest
// optimizer op that reads a gradient, which must follow the last collective; the rank's compute; and what a host
// that runs ahead needs to issue all ops and one bucket.
// No schedule of whole gradients, in consecutive buckets in gradient-ready order, on one communication
// stream is faster. It says nothing of others: with tables in which two halves are faster than the
// whole, or with links that two streams do not share, those can be.
//
// Of several kinds buckets join gradients over those of others, so consecutive ones are no bound. There the collective's
// time is replaced by lines a + b x below it, with a, b >= 0, for which consecutive buckets are the best of all: take
// any buckets on one stream, and instead of bucket k all gradients that are ready when it may start and have not
// travelled yet. So far these hold D_k >= 0 bytes more than the first k buckets did, and end at most b D_k later: both
// start when the same gradients are ready or when what was before has ended, and D is 0 at last. Behind each gradient
// there is also a bucket of every kind that is left. The best line counts, and the bound holds for whole gradients in
// any buckets and order.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/costs/costs.h"
#include "models/rates/collective_table.h"
#include "schedule/id_table.h"
#include "schedule/policies/grouping.h"
#include "schedule/policies/policies.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "schedule/sharding.h"
#include "search/exact.h"
#include "search/local_search.h"
#include "search/schedule_memo.h"
#include "search/step_model.h"
#include "sim/steady.h"

namespace dovetail::search {

// A Schedule that somebody has, as a Schedule file holds it.
struct NamedSchedule {
  std::string name;
  schedule::Schedule schedule;
};

// Where a plan comes from.
using Start = std::variant<schedule::Policy, NamedSchedule>;

struct Candidate {
  schedule::Policy spec;                           // who proposed it,
  std::optional<std::string> plan = std::nullopt;  // unless it is a NamedSchedule of this name
  schedule::Schedule schedule = {};
  sim::StepSummary summary = {};
  bool bounded = true;                     // lower_bound() says something of it
  std::vector<std::string> report = {};    // one line per decision; of plan() also of its buckets
  std::vector<std::string> left_out = {};  // steps that the policy left out, and why
  Bytes most_gathered{};                   // of the policy: PolicyResult::most_gathered

  [[nodiscard]] std::string name() const { return plan ? *plan : schedule::to_string(spec); }
  [[nodiscard]] std::size_t buckets() const { return schedule.buckets.size(); }
  [[nodiscard]] bool sharded() const { return is_sharded(schedule); }  // reduce-scattered gradients
};

// A policy's Candidate, or why it cannot be applied to the Program at all.
struct Weighed {
  std::optional<Candidate> candidate = std::nullopt;
  std::string refusal = {};
};

// A lower bound of the step time, in steady state; absent where none is known. Where it does not hold for what was found,
// `problem` says so in one line instead.
struct Bound {
  std::optional<Duration> time = std::nullopt;
  std::string schedules = {};  // that are not faster: "whole gradients on one stream"
  std::string problem = {};
};
Bound checked_bound(Duration bound, const Candidate& found);

// A policy's Schedule with its commands, and how they play.
struct Planned {
  Candidate candidate;
  schedule::ScheduledProgram program;
  sim::SteadyState steady;
};

class Planner {
 public:
  // Groupings that are simulated where there is no evaluator: at least, and times ops.
  static constexpr std::size_t kClimbs = 48;
  static constexpr std::size_t kSimulatedWork = 400'000;
  // With the evaluator: candidates times ops, so that a search takes about as long for every model.
  static constexpr std::int64_t kSearchWork = 4'000'000;
  // Groupings of blocks in one climb: several follow each other, with one prefetch after another.
  static constexpr std::size_t kBlockClimbs = 400;
  // Thread blocks that ctas=search tries: NCCL's choice (0), and those with which others measured (models/costs/multiprocessors.h).
  static constexpr std::array kTriedCtas = {0, 4, 8, 12, 16, 20, 24};
  // So few gradients have no more groupings than that: all are simulated.
  static constexpr std::size_t kFewGradients = 6;

  // REQUIRES: problems(program) is empty. Where gradients owe two reductions nothing is searched or bounded.
  // Throws InputError when the costs have no all-reduce over the largest group that owes a reduction.
  Planner(schedule::Program program, models::Costs costs);

  // Why the policy cannot be applied to this Program at all.
  [[nodiscard]] std::optional<std::string> refusal_of(const schedule::Policy& spec) const;

  // A policy's Schedule and its step.
  Weighed try_policy(const schedule::Policy& spec);

  // The same of any start. Throws InputError when a policy cannot be applied to this Program, or a Schedule cannot be
  // lowered.
  Candidate evaluate(const Start& start);

  // The same with the commands: made, lowered, verified and simulated once. Throws InputError also if
  // verify finds a problem.
  Planned plan(const Start& start);

  // Policy exact climbs from this Schedule too, with its own mode and waits.
  void add_start(schedule::Schedule start) { starts_.push_back(std::move(start)); }

  // The steady step of any Schedule, found unless that of an equal one is known. Throws InputError when
  // it cannot be lowered.
  sim::StepSummary evaluate(const schedule::Schedule& schedule);

  // The commands of a Schedule. Throws InputError if verify finds a problem.
  [[nodiscard]] schedule::ScheduledProgram verified(const schedule::Schedule& schedule) const;

  // Whether the lower bound is one for this Schedule: whole gradients, each reduced once per step,
  // in groups of one size and on one stream. Where all gradients are of one kind: in buckets that are consecutive in gradient-ready order and launched in it. Of several kinds only all-reduces of one micro-step, and those of a pipeline's stages.
  [[nodiscard]] bool is_bounded(const schedule::Schedule& schedule) const;

  // When each owed gradient is ready on its slowest rank where nothing but compute runs, from the start of the step; in the order
  // of owed_gradients(program()).
  [[nodiscard]] std::vector<Duration> ready_alone() const { return slowest_problem(owed_).ready; }

  // Of schedules of the candidate's kind; none where nothing is known of it. REQUIRES: it is bounded.
  Bound lower_bound(const Candidate& found);

  [[nodiscard]] const schedule::Program& program() const { return program_; }
  [[nodiscard]] const models::Costs& costs() const { return costs_; }
  // Candidates whose step was found, by the simulator or by the evaluator.
  [[nodiscard]] std::size_t simulated() const { return simulated_; }

 private:
  [[nodiscard]] PartitionProblem relaxed_problem(
      std::int32_t rank, std::span<const schedule::OwedGradient> gradients) const;
  // The same when the slowest rank is that far.
  [[nodiscard]] PartitionProblem slowest_problem(
      std::span<const schedule::OwedGradient> gradients) const;
  // What the policy reduces gradients by.
  [[nodiscard]] const models::CollectiveTable& reduction_of(
      const schedule::Policy& spec, const schedule::GradientKinds& kinds) const;
  [[nodiscard]] std::vector<std::vector<LinearPiece>> cost_curves(
      const models::CollectiveTable& table) const;
  [[nodiscard]] Duration one_of_each_kind(const PartitionProblem& problem,
                                          const LinearPiece& line) const;
  [[nodiscard]] bool is_relaxed(const schedule::Schedule& schedule) const;
  [[nodiscard]] Duration shortest_reader(Rank rank) const;
  [[nodiscard]] Duration relaxed_bound() const;
  [[nodiscard]] schedule::PolicyResult decide(const schedule::Policy& spec) const;
  // Both without the step.
  Weighed propose(const schedule::Policy& spec);
  Weighed choose_ctas(const schedule::Policy& spec);
  Candidate proposed(const Start& start);
  void weigh(Candidate& candidate);

  // Weighs Schedules that differ in their buckets only.
  struct Evaluator {
    StepModel model;
    StepWorkspace memory;
    // Of each kind that was asked for, the highest found; whether that was also sought without a known step.
    struct Known {
      BoundKind kind;
      StepBound bound;
      bool is_sought = false;
    };
    std::vector<Known> bounds = {};
  };
  // What such Schedules have in common, as a Schedule with one empty bucket.
  struct Frame {
    schedule::Schedule frame;
    bool asked = false;  // for an evaluator
    std::optional<Evaluator> evaluator = std::nullopt;
  };
  // Whether an evaluator is worth being made for one Schedule, or with the second one of its kind.
  enum class Wanted { Now, Twice };
  Evaluator* evaluator_of(const schedule::Schedule& schedule, Wanted wanted);
  // Sought: also without a known step, where one that was given up may be lower for it; then plans of a kind have one bound. `other`: a bound that
  // is known besides.
  enum class Bounding { Known, Sought };
  static std::optional<StepBound> bound_of(Evaluator& evaluator, const Placed& found,
                                           Bounding bounding, Duration other);

  // When these gradients were ready.
  struct ReadyTimes {
    std::span<const schedule::OwedGradient> of;
    std::vector<Duration> times;
  };
  // How many candidates a search may weigh with the evaluator, to which a sharded one is about three others: its buckets have
  // an update and a gather each.
  [[nodiscard]] std::int64_t evaluations(const schedule::Policy& spec) const {
    const std::int64_t each = std::ssize(program_.ops) * (spec.decisions.sharding ? 3 : 1);
    return std::clamp<std::int64_t>(kSearchWork / each, 200, 4000);
  }
  [[nodiscard]] schedule::PolicyResult merge_by_times(const schedule::Policy& spec) const;
  schedule::PolicyResult solve_exact(const schedule::Policy& spec);
  schedule::PolicyResult search_blocks(schedule::Policy spec);
  struct Search;
  // Blocks that are gathered before each use, how far ahead, and the step.
  struct Blocks {
    std::vector<std::size_t> ends;
    schedule::Gathers gathers;
    std::int64_t step_ns = 0;
  };
  Search search_of(const schedule::Policy& spec, schedule::BlockUnit unit);
  void try_optima(Search& search);
  // How hard blocks are searched with one prefetch.
  enum class Effort { Look, Climb };
  Blocks blocks_at(const schedule::Policy& spec, schedule::BlockUnit unit, Effort effort,
                   const Blocks* known);
  Blocks seek_blocks(schedule::Policy spec, schedule::BlockUnit unit, std::optional<Blocks> known);
  [[nodiscard]] static bool is_small(const Search& search);
  schedule::Schedule search_on(const Search& search);
  std::int64_t step_of(const Search& search, const std::vector<std::size_t>& ends,
                       ReadyTimes& ready);
  bool improves(Search& search, const std::vector<std::size_t>& proposed);
  void try_all_groupings(Search& search);
  void try_even_groupings(Search& search);
  void climb(Search& search);
  void take_smallest_blocks(Search& search) const;
  // Lowers and simulates.
  sim::StepSummary simulate(const schedule::Schedule& schedule, ReadyTimes* ready);
  [[nodiscard]] std::vector<Duration> ready_times(
      const schedule::ScheduledProgram& program,
      std::span<const schedule::OwedGradient> gradients) const;

  schedule::Program program_;
  models::Costs costs_;
  models::CollectiveTable all_reduce_;  // over the largest group that owes a reduction
  std::vector<schedule::OwedGradient> owed_;
  schedule::BackwardReaders readers_;                            // of these
  schedule::IdTable<TensorId, std::size_t> position_{SIZE_MAX};  // of a gradient in owed_
  std::set<schedule::BucketKey> kinds_;                          // of gradients
  // One stage, one micro-step, all groups of one size and on as many nodes.
  bool one_curve_ = false;
  bool owes_two_ = false;                      // some gradient, as in hybrid sharding
  Bytes total_;                                // of all owed gradients
  std::vector<std::vector<Duration>> op_end_;  // [rank][op]: end of the op when nothing else runs
  ScheduleMemo memo_;
  std::list<Frame> frames_;  // an Evaluator in it stays where it is
  std::vector<schedule::Schedule> starts_;
  sim::CompiledProgram compiled_;  // of the last candidate; its memory serves the next
  sim::Workspace workspace_;
  std::size_t simulated_ = 0;
  std::optional<Duration> relaxed_ =
      std::nullopt;  // the bound of all Schedules that are not sharded, once it is known
};

}  // namespace dovetail::search
