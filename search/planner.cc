// Weighing policies and Schedules, searching the best grouping, and bounding all of them from below.
//
// Schedules that differ in their buckets only are weighed by one StepModel: the first of them is simulated, as it
// may be the only one, and with the second the model is made.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/interruption.h"
#include "schedule/id_table.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/report.h"
#include "schedule/sharding.h"
#include "schedule/verify/verify.h"
#include "search/local_search.h"
#include "search/merge_rule.h"

namespace dovetail::search {
namespace {

// Groupings that differ from this one by one merge, one border moved, one split, or by a few buckets with all borders
// moved.
std::vector<std::vector<std::size_t>> neighbours(const std::vector<std::size_t>& ends) {
  std::vector<std::vector<std::size_t>> all;
  for (std::size_t b = 0; b + 1 < ends.size(); ++b) {  // the last border stays
    all.push_back(ends);
    all.back().erase(all.back().begin() + static_cast<std::ptrdiff_t>(b));
    const std::size_t before = b == 0 ? 0 : ends[b - 1];
    for (const std::size_t by : {1, 2, 4}) {
      if (ends[b] > before + by) {
        all.push_back(ends);
        all.back()[b] -= by;
      }
      if (ends[b] + by < ends[b + 1]) {
        all.push_back(ends);
        all.back()[b] += by;
      }
    }
  }
  for (std::size_t b = 0; b < ends.size(); ++b) {
    const std::size_t before = b == 0 ? 0 : ends[b - 1];
    if (ends[b] < before + 2) continue;
    all.push_back(ends);
    all.back().insert(all.back().begin() + static_cast<std::ptrdiff_t>(b),
                      before + (ends[b] - before) / 2);
  }
  for (const std::size_t count : counts_near(ends.size(), ends.back())) {
    all.push_back(resampled(ends, count));
  }
  return all;
}

// Gradients that no other rank holds travel nowhere, in no time.
models::CollectiveTable all_reduce_of(const schedule::Program& program,
                                      const models::Costs& costs) {
  const schedule::ProcessGroup* largest = nullptr;
  for (const schedule::Reduction& reduction : program.reductions) {
    const schedule::ProcessGroup& group = program.group(reduction.group);
    if (largest == nullptr || group.size() > largest->size()) largest = &group;
  }
  if (largest == nullptr || largest->size() == 1) {
    return models::CollectiveTable(models::AlphaBeta{});
  }
  static_cast<void>(costs.collective(schedule::Collective::AllReduce, *largest, Bytes(1)));
  return costs.find(costs.key(schedule::Collective::AllReduce, *largest))->time;
}

// The table's hull with a fixed time added to every collective.
std::vector<LinearPiece> pieces_of(const models::CollectiveTable& table, models::TimeKind kind,
                                   Duration extra) {
  std::vector<LinearPiece> pieces = table.hull(kind);
  for (auto& piece : pieces) piece.base_ns += static_cast<double>(extra.count());
  return pieces;
}

using schedule::GradientKinds;

PartitionProblem part_of(const PartitionProblem& problem, std::size_t begin, std::size_t end) {
  const auto of = [&](const auto& all) {
    return std::vector(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(end));
  };
  return {.ready = of(problem.ready), .size = of(problem.size)};
}

// Buckets that are consecutive in ready order and hold one kind each: solve(run, when the link is free) of run after run.
template <class Solve>
std::vector<std::size_t> partition_runs(const PartitionProblem& problem, const GradientKinds& kinds,
                                        const Solve& solve) {
  std::vector<std::size_t> ends;
  Duration finish{};
  for (const GradientKinds::Run& run : kinds.runs) {
    const Partition found = solve(part_of(problem, run.begin, run.end), finish);
    for (const std::size_t end : found.ends) ends.push_back(run.begin + end);
    finish = found.finish;
  }
  std::ranges::sort(ends);
  return ends;
}

// The grouping cut where a kind ends and moved to where buckets may end.
std::vector<std::size_t> allowed_ends(const std::vector<std::size_t>& proposed,
                                      const std::vector<std::size_t>& borders,
                                      const GradientKinds& kinds) {
  std::vector<std::size_t> ends = kinds.ends;
  for (const std::size_t end : proposed) {
    ends.push_back(*std::ranges::lower_bound(borders, end));
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// The optimum of each kind, as if the others did not travel.
std::vector<std::size_t> partition_kinds(const PartitionProblem& problem,
                                         const GradientKinds& kinds,
                                         const std::vector<LinearPiece>& pieces) {
  std::vector<std::size_t> ends;
  std::size_t begin = 0;
  for (const std::size_t kind : kinds.ends) {
    for (const std::size_t end : exact_partition(part_of(problem, begin, kind), pieces).ends) {
      ends.push_back(begin + end);
    }
    begin = kind;
  }
  return ends;
}

// Costs a + b x, a and b not negative, that lie nowhere above the curve up to `most`: the edges of its lower convex
// hull, and the steepest one through the origin.
std::vector<LinearPiece> lines_below(const std::vector<LinearPiece>& pieces, Bytes most) {
  struct Point {
    double bytes = 0;
    double ns = 0;
  };
  std::vector<Point> hull;
  double slope = std::numeric_limits<double>::max();  // through the origin
  const auto add = [&](const LinearPiece& piece, Bytes at) {
    const auto bytes = static_cast<double>(at.count());
    const Point next{bytes, piece.base_ns + piece.ns_per_byte * bytes};
    if (bytes > 0) slope = std::min(slope, next.ns / bytes);
    const auto turns_down = [&](const Point& a, const Point& b) {
      return (b.ns - a.ns) * (next.bytes - b.bytes) >= (next.ns - b.ns) * (b.bytes - a.bytes);
    };
    while (hull.size() > 1 && turns_down(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(next);
  };
  for (std::size_t i = 0; i < pieces.size() && pieces[i].from < most; ++i) {
    add(pieces[i], pieces[i].from);
    add(pieces[i], i + 1 < pieces.size() ? std::min(pieces[i + 1].from, most) : most);
  }
  std::vector<LinearPiece> lines = {{.from = Bytes(0), .base_ns = 0, .ns_per_byte = slope}};
  for (std::size_t i = 1; i < hull.size(); ++i) {
    if (hull[i].bytes <= hull[i - 1].bytes) continue;
    const double rise = (hull[i].ns - hull[i - 1].ns) / (hull[i].bytes - hull[i - 1].bytes);
    const double base = hull[i].ns - rise * hull[i].bytes;
    if (base >= 0) lines.push_back({.from = Bytes(0), .base_ns = base, .ns_per_byte = rise});
  }
  return lines;
}

// What the policy is with as many buckets as it may have.
schedule::Policy unsearched(schedule::Policy policy) {
  policy.decisions.grouping = schedule::EachAlone{};
  if (policy.decisions.gathers) {
    policy.decisions.grouping = schedule::ByLayer{};
    schedule::Gathers& gathers = *policy.decisions.gathers;
    for (std::int32_t* const ahead : {&gathers.forward, &gathers.backward}) {
      if (*ahead == schedule::kSearchedPrefetch) *ahead = 1;
    }
  }
  return schedule::with_ctas(policy, 0);
}

constexpr const char* kOneReduction =
    "gradients owe two reductions, over shards and over their replicas; a grouping by times is for "
    "one";

}  // namespace

Planner::Planner(schedule::Program program, models::Costs costs)
    : program_(std::move(program)),
      costs_(std::move(costs)),
      all_reduce_(all_reduce_of(program_, costs_)),
      owed_(schedule::owed_gradients(program_)),
      readers_(program_, owed_) {
  if (owed_.empty()) {
    throw InputError(
        "workload " + program_.name +
        " has no gradients to reduce: there is nothing to plan; dovetail predict --workload plays "
        "the step as it stands");
  }
  for (const schedule::OwedGradient& gradient : owed_) {
    total_ += gradient.bytes;
    owes_two_ = owes_two_ || position_.at(gradient.tensor) < owed_.size();
    position_[gradient.tensor] = static_cast<std::size_t>(&gradient - owed_.data());
  }
  const auto key = [&](const schedule::OwedGradient& gradient) {
    return costs_.key(schedule::Collective::AllReduce, program_.group(gradient.group));
  };
  for (const schedule::OwedGradient& gradient : owed_) {
    kinds_.insert(schedule::key_of(program_, gradient));
  }
  one_curve_ = !owes_two_ && program_.stages == 1 && program_.micro_steps == 1 &&
               std::ranges::all_of(owed_, [&](const schedule::OwedGradient& gradient) {
                 return key(gradient) == key(owed_.front());
               });
  const auto ranks =
      std::min(program_.world_size, std::max<std::int64_t>(1, costs_.distinct_ranks));
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    Duration now{};
    op_end_.emplace_back();
    for (const schedule::Op& op : program_.ops) {
      now += costs_.op(op, Rank{rank});
      op_end_.back().push_back(now);
    }
  }
}

sim::StepSummary Planner::simulate(const schedule::Schedule& schedule, ReadyTimes* ready) {
  throw_if_interrupted();
  const schedule::Lowered lowered = schedule::lower(program_, schedule);
  const sim::SteadyState steady =
      sim::find_steady_state(lowered.program, costs_, compiled_, workspace_);
  if (ready != nullptr) ready->times = ready_times(lowered.program, ready->of);
  return steady.summary;
}

// The end of each gradient's producer on its slowest rank, in the first step of what was just played.
std::vector<Duration> Planner::ready_times(
    const schedule::ScheduledProgram& program,
    std::span<const schedule::OwedGradient> gradients) const {
  schedule::IdTable<OpId, Duration> op_end;
  for (const sim::CommandNode& entry : compiled_.command_nodes) {
    const schedule::Command& command = program.roles[static_cast<std::size_t>(entry.role)]
                                           .commands[static_cast<std::size_t>(entry.command)];
    const std::optional<OpId> op = schedule::op_run_by(command);
    if (entry.step > 0 || !op) continue;
    const sim::LaneRange lanes = compiled_.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const Duration end(workspace_.timeline.end_of(compiled_.on_lane(entry, lane)));
      op_end[*op] = std::max(op_end[*op], end);
    }
  }
  std::vector<Duration> ready;
  for (const schedule::OwedGradient& gradient : gradients) {
    ready.push_back(op_end.at(gradient.producer));
  }
  return ready;
}

schedule::PolicyResult Planner::decide(const schedule::Policy& spec) const {
  return schedule::decide(program_, spec, owed_, readers_);
}

Weighed Planner::propose(const schedule::Policy& spec) {
  if (schedule::placement(spec).max_ctas == schedule::kSearchedCtas) return choose_ctas(spec);
  Candidate candidate{.spec = spec};
  if (schedule::groups_by_times(spec)) {
    if (std::optional<std::string> refusal = refusal_of(spec)) return {.refusal = *refusal};
    schedule::PolicyResult found = !schedule::is_searched(spec) ? merge_by_times(spec)
                                   : spec.decisions.gathers     ? search_blocks(spec)
                                                                : solve_exact(spec);
    if (found.failure) return {.refusal = *std::move(found.failure)};
    candidate.schedule = std::move(found.schedule);
    candidate.report = std::move(found.report);
    candidate.most_gathered = found.most_gathered;
    candidate.schedule.policy = schedule::to_string(spec);
    return {.candidate = std::move(candidate)};
  }
  schedule::PolicyResult result = decide(spec);
  if (result.failure) return {.refusal = *std::move(result.failure)};
  candidate.schedule = std::move(result.schedule);
  candidate.report = std::move(result.report);
  candidate.most_gathered = result.most_gathered;
  candidate.left_out = std::move(result.refusals);
  return {.candidate = std::move(candidate)};
}

Weighed Planner::choose_ctas(const schedule::Policy& spec) {
  Weighed best;
  std::int64_t by_itself = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::int32_t ctas : kTriedCtas) {
    Weighed weighed = propose(schedule::with_ctas(spec, ctas));
    if (!weighed.candidate) return weighed;
    const std::int64_t step_ns = evaluate(weighed.candidate->schedule).step_ns;
    if (ctas == 0) by_itself = step_ns;
    if (step_ns >= least) continue;
    least = step_ns;
    best = std::move(weighed);
    best.candidate->report.push_back(
        ctas == 0 ? std::string("thread blocks of collectives: NCCL's choice is the best")
                  : "thread blocks of collectives: at most " + std::to_string(ctas) +
                        ", a step of " + to_string(Duration(step_ns)) + " for " +
                        to_string(Duration(by_itself)) + " with NCCL's choice");
  }
  best.candidate->spec = spec;
  best.candidate->schedule.policy = schedule::to_string(spec);
  return best;
}

Candidate Planner::proposed(const Start& start) {
  if (const auto* plan = std::get_if<NamedSchedule>(&start)) {
    return {.spec = {}, .plan = plan->name, .schedule = plan->schedule};
  }
  const auto& spec = std::get<schedule::Policy>(start);
  Weighed weighed = propose(spec);
  if (weighed.candidate) return *std::move(weighed.candidate);
  throw InputError("policy " + schedule::to_string(spec) + ": " + weighed.refusal);
}

schedule::ScheduledProgram Planner::verified(const schedule::Schedule& schedule) const {
  schedule::Lowered lowered = schedule::lower(program_, schedule);
  for (const schedule::Problem& problem :
       schedule::verify(program_, lowered.program, schedule.merge)) {
    throw InputError("schedule " + schedule.policy + " is illegal: " + problem.message);
  }
  return std::move(lowered.program);
}

std::optional<std::string> Planner::refusal_of(const schedule::Policy& spec) const {
  if (!schedule::groups_by_times(spec)) {
    return decide(schedule::with_ctas(spec, 0)).failure;
  }
  if (spec.decisions.sharding) return decide(unsearched(spec)).failure;
  return owes_two_ ? std::optional<std::string>(kOneReduction) : std::nullopt;
}

// Pipelines, several micro-steps and gathers before each use have only the bound of an evaluator.
bool Planner::is_relaxed(const schedule::Schedule& schedule) const {
  return one_curve_ && schedule.merge.micro_steps == 1 && schedule.gathers.empty();
}

bool Planner::is_bounded(const schedule::Schedule& schedule) const {
  if (owes_two_ || schedule.buckets.empty()) return false;
  if (!schedule.collectives.empty()) return false;  // its compute counts them as they stand
  const schedule::Collective collective = schedule.buckets.front().collective;
  const bool is_alike = kinds_.size() == 1 || program_.stages > 1;
  if (!is_relaxed(schedule) && (!is_alike || !schedule.frozen.empty())) return false;
  if (collective != schedule::Collective::AllReduce && !is_alike) return false;
  if (program_.stages > 1 && collective != schedule::Collective::AllReduce) return false;
  std::map<std::int32_t, std::size_t> next;  // in gradient-ready order, of each stage
  std::size_t count = 0;
  for (const schedule::Bucket& bucket : schedule.buckets) {
    if (bucket.collective != collective || bucket.replicas) return false;
    if (bucket.stream != schedule.buckets.front().stream) return false;
    for (const schedule::Slice& slice : bucket.gradients) {
      const std::size_t at = position_.at(slice.tensor);
      if (at >= owed_.size()) return false;
      const bool whole = slice.first == 0 && (slice.count == 0 || slice.count == owed_[at].numel);
      if (!whole) return false;
      ++count;
      if (!is_alike || program_.stages > 1) continue;
      // Within one bucket in any order.
      if (at < next[0] || at >= next[0] + bucket.gradients.size()) return false;
    }
    next[0] += bucket.gradients.size();
  }
  return count == owed_.size();
}

Bound checked_bound(Duration bound, const Candidate& found) {
  const Duration step(found.summary.step_ns);
  if (bound <= step) return {.time = bound};
  return {.problem = "the lower bound of " + to_string(bound) +
                     " does not hold, so none is given: " + found.name() + " takes " +
                     to_string(step)};
}

void Planner::weigh(Candidate& candidate) {
  candidate.summary = evaluate(candidate.schedule);
  candidate.bounded = is_bounded(candidate.schedule);
}

Weighed Planner::try_policy(const schedule::Policy& spec) {
  Weighed weighed = propose(spec);
  if (weighed.candidate) weigh(*weighed.candidate);
  return weighed;
}

Candidate Planner::evaluate(const Start& start) {
  Candidate candidate = proposed(start);
  weigh(candidate);
  return candidate;
}

Planned Planner::plan(const Start& start) {
  Planned result{.candidate = proposed(start), .program = {}, .steady = {}};
  std::ranges::move(schedule::bucket_report(program_, result.candidate.schedule),
                    std::back_inserter(result.candidate.report));
  result.program = verified(result.candidate.schedule);
  result.steady = sim::find_steady_state(result.program, costs_, compiled_, workspace_);
  ++simulated_;
  result.candidate.summary = result.steady.summary;
  result.candidate.bounded = is_bounded(result.candidate.schedule);
  return result;
}

sim::StepSummary Planner::evaluate(const schedule::Schedule& schedule) {
  throw_if_interrupted();
  if (const sim::StepSummary* known = memo_.find(schedule)) return *known;
  ++simulated_;
  std::optional<sim::StepSummary> summary;
  if (!schedule.buckets.empty()) {
    if (Evaluator* evaluator = evaluator_of(schedule, Wanted::Twice)) {
      if (const auto choices = evaluator->model.choices_of(schedule)) {
        summary = evaluator->model.summary(*choices, evaluator->memory);
      }
    }
  }
  if (!summary) summary = simulate(schedule, nullptr);
  memo_.keep(schedule, *summary);
  return *summary;
}

// Null where no model applies, or where it was not wanted often enough to be made.
Planner::Evaluator* Planner::evaluator_of(const schedule::Schedule& schedule, Wanted wanted) {
  schedule::Bucket like;
  like.collective = schedule.buckets.front().collective;
  like.sums_whole = schedule.buckets.front().sums_whole;
  // Of several kinds of gradients some may have none.
  for (const schedule::Bucket& bucket : schedule.buckets) {
    if (!like.replicas) like.replicas = bucket.replicas;
  }
  like.pad_to = schedule.buckets.front().pad_to;
  like.align_to = schedule.buckets.front().align_to;
  like.max_ctas = schedule.buckets.front().max_ctas;
  schedule::Schedule frame{.policy = {},
                           .buckets = {like},
                           .scale = schedule.scale,
                           .merge = schedule.merge,
                           .parameters = schedule.parameters,
                           .pipeline = schedule.pipeline,
                           .gather_limit = schedule.gather_limit,
                           .frozen = schedule.frozen,
                           .collectives = schedule.collectives};
  // Behind the buckets, however many these are.
  for (std::size_t k = 0; k < frame.frozen.size(); ++k) {
    frame.frozen[k].id = BucketId{static_cast<std::int32_t>(k)};
  }
  auto known = std::ranges::find(frames_, frame, &Frame::frame);
  if (known == frames_.end()) {
    frames_.push_back({.frame = std::move(frame)});
    if (wanted == Wanted::Twice) return nullptr;
    known = std::prev(frames_.end());
  }
  if (!known->asked) {
    known->asked = true;
    StepModel::Made made = StepModel::make(program_, costs_, known->frame);
    if (made.model)
      known->evaluator = Evaluator{.model = *made.model, .memory = made.model->workspace()};
  }
  return known->evaluator ? &*known->evaluator : nullptr;
}

PartitionProblem Planner::relaxed_problem(std::int32_t rank,
                                          std::span<const schedule::OwedGradient> gradients) const {
  PartitionProblem problem;
  for (const schedule::OwedGradient& gradient : gradients) {
    problem.ready.push_back(op_end_[static_cast<std::size_t>(rank)][gradient.producer_index]);
    problem.size.push_back(gradient.bytes);
  }
  return problem;
}

std::vector<std::vector<LinearPiece>> Planner::cost_curves(
    const models::CollectiveTable& table) const {
  const Duration cpu = costs_.contention(Rank{0}).collective_cpu;
  std::vector<std::vector<LinearPiece>> curves;
  for (const models::TimeKind kind :
       {models::TimeKind::Smaller, models::TimeKind::BackToBack, models::TimeKind::Isolated}) {
    curves.push_back(pieces_of(table, kind, Duration{}));
  }
  const Duration host = costs_.host.kind == models::HostModel::Kind::Inline
                            ? costs_.host.collective + costs_.host.event
                            : Duration{};
  if (cpu + host > Duration{}) {
    curves.push_back(pieces_of(table, models::TimeKind::BackToBack, cpu + host));
  }
  return curves;
}

// The best grouping so far, and which were weighed.
struct Planner::Search {
  const schedule::Policy& spec;
  GradientKinds kinds = {};               // `ends` are of its gradients
  std::vector<std::size_t> borders = {};  // where a bucket may end, rising
  Evaluator* evaluator = nullptr;
  BucketChoice like = {};  // what all buckets have in common, for the evaluator
  std::vector<std::size_t> ends = {};
  std::int64_t step_ns = 0;
  std::vector<Duration> ready = {};  // of the best, unless there is an evaluator
  std::map<std::vector<std::size_t>, std::int64_t> tried = {};

  // In the order in which schedule::partition launches them.
  [[nodiscard]] Choices choices(const std::vector<std::size_t>& of) const {
    Choices all;
    std::int32_t begin = 0;
    for (const std::size_t end : of) {
      all.push_back(like);
      all.back().begin = begin;
      all.back().end = begin = static_cast<std::int32_t>(end);
    }
    if (kinds.ends.size() > 1) {
      std::ranges::stable_sort(all, {}, [this](const BucketChoice& choice) {
        return kinds.gradients[static_cast<std::size_t>(choice.end) - 1].producer_index;
      });
    }
    return all;
  }
};

// The step of a grouping; of one that cannot be, the longest there is.
std::int64_t Planner::step_of(const Search& search, const std::vector<std::size_t>& ends,
                              ReadyTimes& ready) {
  constexpr std::int64_t kNeverNs = std::numeric_limits<std::int64_t>::max();
  const auto& gathers = search.spec.decisions.gathers;
  if (search.evaluator != nullptr) {
    const StepModel& model = search.evaluator->model;
    Choices choices = search.choices(ends);
    const std::int32_t stream = schedule::placement(search.spec).streams - 1;
    if (gathers && !model.place_gathers(choices, *gathers, stream)) return kNeverNs;
    return model.evaluate(choices, search.evaluator->memory).count();
  }
  const schedule::PolicyResult made = schedule::try_partition(program_, ends, search.spec);
  if (made.failure) return kNeverNs;
  return simulate(made.schedule, &ready).step_ns;
}

// Whether all groupings are weighed.
bool Planner::is_small(const Search& search) {
  return search.kinds.gradients.size() <= kFewGradients;
}

// Whether the grouping, as far as it may be, is new and better than all before.
bool Planner::improves(Search& search, const std::vector<std::size_t>& proposed) {
  std::vector<std::size_t> ends = allowed_ends(proposed, search.borders, search.kinds);
  const auto [entry, fresh] = search.tried.try_emplace(ends, 0);
  if (!fresh) return false;
  ++simulated_;
  ReadyTimes ready{.of = search.kinds.gradients, .times = {}};
  entry->second = step_of(search, ends, ready);
  if (!search.ends.empty() && entry->second >= search.step_ns) return false;
  search.ends = std::move(ends);
  search.step_ns = entry->second;
  search.ready = std::move(ready.times);
  return true;
}

// Groupings that close a bucket once it holds a share of all bytes: where launching costs more than
// the relaxed problem knows.
void Planner::try_even_groupings(Search& search) {
  for (const std::int64_t buckets : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}) {
    if (buckets > std::ssize(search.borders)) break;
    std::vector<std::size_t> ends;
    Bytes open{};
    const std::vector<schedule::OwedGradient>& gradients = search.kinds.gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      open += gradients[i].bytes;
      const bool closes = open * buckets >= total_;
      if (!closes && i + 1 < gradients.size()) continue;
      ends.push_back(i + 1);
      open = Bytes(0);
    }
    improves(search, ends);
  }
}

// Each gradient but the last one ends a bucket or not.
void Planner::try_all_groupings(Search& search) {
  const std::size_t borders = search.kinds.gradients.size() - 1;
  for (std::size_t choice = 0; choice < std::size_t{1} << borders; ++choice) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < borders; ++i) {
      if ((choice >> i & 1) != 0) ends.push_back(i + 1);
    }
    ends.push_back(borders + 1);
    improves(search, ends);
  }
}

// Merges, splits and moves single gradients over borders as long as that helps.
void Planner::climb(Search& search) {
  auto climbs = std::clamp<std::size_t>(kSimulatedWork / program_.ops.size(), kClimbs, 400);
  if (search.evaluator != nullptr) climbs = static_cast<std::size_t>(evaluations(search.spec));
  if (search.spec.decisions.gathers) climbs = std::min<std::size_t>(climbs, kBlockClimbs);
  const std::size_t most = search.tried.size() + climbs;
  for (bool better = true; better && search.tried.size() < most;) {
    better = false;
    // Borders are counted among those that there may be.
    std::vector<std::size_t> at;
    for (const std::size_t end : search.ends) {
      const auto border = std::ranges::lower_bound(search.borders, end);
      at.push_back(static_cast<std::size_t>(border - search.borders.begin()) + 1);
    }
    for (std::vector<std::size_t>& ends : neighbours(at)) {
      for (std::size_t& end : ends) end = search.borders[end - 1];
      better = improves(search, ends);
      if (better || search.tried.size() >= most) break;
    }
  }
}

namespace {

// The best of each number of buckets.
std::vector<Placed> unlike(std::vector<Placed> starts) {
  std::ranges::stable_sort(starts, {}, &Placed::step);
  std::vector<Placed> all;
  for (Placed& start : starts) {
    const auto alike = [&](const Placed& other) {
      return other.choices.size() == start.choices.size();
    };
    if (std::ranges::none_of(all, alike)) all.push_back(std::move(start));
  }
  return all;
}

}  // namespace

// With the evaluator: from the best grouping of each size that was weighed, from the starts that were given and from the grouping that the
// lower bound thinks of, unless one of them is as good as the bound. Launches are only held back where that pays.
schedule::Schedule Planner::search_on(const Search& search) {
  Evaluator& evaluator = *search.evaluator;
  const bool few = is_small(search);
  std::vector<Placed> starts;
  for (const auto& [ends, step_ns] : search.tried) {
    starts.push_back({search.choices(ends), Duration(step_ns)});
  }
  const auto add = [&](Choices choices) {
    const Duration step = evaluator.model.evaluate(choices, evaluator.memory);
    starts.push_back({std::move(choices), step});
  };
  for (const schedule::Schedule& start : starts_) {
    std::optional<Choices> choices = evaluator.model.choices_of(start);
    if (!choices) continue;
    for (BucketChoice& choice : *choices) {
      choice.mode = search.like.mode;
      choice.wait = search.like.wait;
      choice.scope = search.like.scope;
    }
    add(*std::move(choices));
  }
  LocalSearchResult found{.best = *std::ranges::min_element(starts, {}, &Placed::step)};
  LocalSearchOptions options;
  options.evaluations = evaluations(search.spec);
  const auto climb = [&](std::vector<Placed> from) {
    LocalSearchResult climbed = local_search(evaluator.model, std::move(from), options);
    simulated_ += static_cast<std::size_t>(climbed.evaluations);
    return climbed;
  };
  const auto bound = bound_of(evaluator, found.best, Bounding::Known, {});
  constexpr double kNearly = 1.003;  // times the bound
  options.enough = Duration::max();
  const auto is_enough = [&] {
    constexpr double kEnough = 1 + 1e-4;  // times the bound
    return bound && to_us(found.best.step) <= kEnough * to_us(bound->step);
  };
  if (bound && !bound->ends.empty()) {
    add(search.choices(bound->ends));
    ++simulated_;
    if (starts.back().step < found.best.step) found.best = starts.back();
    if (!is_enough()) found = climb({starts.back()});
  }
  if (!is_enough()) {
    options.enough = {};
    if (bound)
      options.enough = Duration(std::llround(kNearly * static_cast<double>(bound->step.count())));
    // Where much may be left, from the best of each number of buckets: climbs seldom leave it.
    if (found.best.step > options.enough) starts = unlike(std::move(starts));
    const LocalSearchResult other = climb(starts);
    if (other.best.step < found.best.step) found = other;
  }
  constexpr double kPays = 0.995;
  const bool may_pay = !bound || to_us(bound->held_back) < kPays * to_us(found.best.step);
  if (evaluator.model.delays() && may_pay) {
    options.moves = Moves::Delays;
    // Of few gradients another grouping may be the best one to hold back.
    if (few) {
      options.climbs = starts.size();
    } else {
      starts.clear();
    }
    starts.push_back(found.best);
    const LocalSearchResult delayed = climb(std::move(starts));
    if (to_us(delayed.best.step) < kPays * to_us(found.best.step)) found = delayed;
  }
  if (found.best.step.count() >= search.step_ns) {
    return schedule::partition(program_, search.ends, search.spec);
  }
  return evaluator.model.schedule_of(found.best.choices);
}

// Of groupings that are as good the one whose largest block is the smallest: it is what must lie gathered in memory.
void Planner::take_smallest_blocks(Search& search) const {
  constexpr double kAsGood = 1.001;
  const auto largest = [&](const std::vector<std::size_t>& ends) {
    Bytes most;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      Bytes bytes;
      for (; begin < end; ++begin) bytes += search.kinds.gradients[begin].bytes;
      most = std::max(most, bytes);
    }
    return most;
  };
  const double enough = kAsGood * static_cast<double>(search.step_ns);
  Bytes least = largest(search.ends);
  for (const auto& [ends, step_ns] : search.tried) {
    if (static_cast<double>(step_ns) > enough || largest(ends) >= least) continue;
    search.ends = ends;
    least = largest(ends);
  }
}

PartitionProblem Planner::slowest_problem(std::span<const schedule::OwedGradient> gradients) const {
  PartitionProblem problem = relaxed_problem(0, gradients);
  for (std::size_t rank = 1; rank < op_end_.size(); ++rank) {
    const PartitionProblem other = relaxed_problem(static_cast<std::int32_t>(rank), gradients);
    for (std::size_t i = 0; i < problem.ready.size(); ++i) {
      problem.ready[i] = std::max(problem.ready[i], other.ready[i]);
    }
  }
  return problem;
}

const models::CollectiveTable& Planner::reduction_of(const schedule::Policy& spec,
                                                     const GradientKinds& kinds) const {
  const models::CollectiveCost* sharded = nullptr;
  if (spec.decisions.sharding) {
    const schedule::ProcessGroup& group = program_.group(kinds.gradients.front().group);
    sharded = costs_.find(costs_.key(schedule::Collective::ReduceScatter, group));
  }
  return sharded != nullptr ? sharded->time : all_reduce_;
}

schedule::PolicyResult Planner::merge_by_times(const schedule::Policy& spec) const {
  const GradientKinds kinds = schedule::kinds_of(program_, spec);
  const LinearPiece cost = start_up_line(reduction_of(spec, kinds));
  const auto merges = std::get<schedule::ByMerging>(*spec.decisions.grouping).merges;
  const std::vector<std::size_t> ends =
      partition_runs(slowest_problem(kinds.gradients), kinds,
                     [&](const PartitionProblem& part, Duration free_from) {
                       return merged_partition(part, cost, merges, free_from);
                     });
  return schedule::try_partition(
      program_, allowed_ends(ends, schedule::borders_of(program_, kinds, spec), kinds), spec);
}

// What is to be grouped, where it may be, and by what it is weighed.
Planner::Search Planner::search_of(const schedule::Policy& spec, schedule::BlockUnit unit) {
  Search search{.spec = spec};
  search.kinds = schedule::kinds_of(program_, spec);
  search.borders = schedule::borders_of(program_, search.kinds, spec, unit);
  const schedule::Schedule any = schedule::partition(program_, search.borders, spec);
  if (schedule::placement(spec).batch <= 1) search.evaluator = evaluator_of(any, Wanted::Now);
  if (search.evaluator != nullptr) {
    const std::optional<Choices> choices = search.evaluator->model.choices_of(any);
    std::vector<std::size_t> ends;  // of those with gradients
    for (const BucketChoice& choice : choices.value_or(Choices())) {
      if (choice.end <= search.evaluator->model.gradients())
        ends.push_back(static_cast<std::size_t>(choice.end));
    }
    std::ranges::sort(ends);
    if (ends == search.borders) search.like = choices->front();
    if (ends != search.borders) search.evaluator = nullptr;
  }
  return search;
}

// The optima of relaxed problems, with the ready times of nothing but compute and then of the best of them; and even groupings.
void Planner::try_optima(Search& search) {
  const GradientKinds& kinds = search.kinds;
  PartitionProblem problem = slowest_problem(kinds.gradients);
  const auto curves = cost_curves(reduction_of(search.spec, kinds));
  for (int round = 0; round < 2; ++round) {
    for (const auto& pieces : curves) {
      const auto solve = [&](PartitionProblem part, Duration free_from) {
        for (Duration& ready : part.ready) ready = std::max(ready, free_from);
        return exact_partition(part, pieces);
      };
      improves(search, partition_runs(problem, kinds, solve));
      if (kinds.runs.size() > 1) improves(search, partition_kinds(problem, kinds, pieces));
    }
    if (round == 1) break;
    if (search.evaluator != nullptr) {
      ReadyTimes ready{.of = kinds.gradients, .times = {}};
      static_cast<void>(simulate(schedule::partition(program_, search.ends, search.spec), &ready));
      search.ready = std::move(ready.times);
    }
    problem.ready = search.ready;
    std::size_t begin = 0;
    for (const std::size_t end : kinds.ends) {
      for (std::size_t i = begin + 1; i < end; ++i) {
        problem.ready[i] = std::max(problem.ready[i], problem.ready[i - 1]);
      }
      begin = end;
    }
  }
  is_small(search) ? try_all_groupings(search) : try_even_groupings(search);
}

schedule::PolicyResult Planner::solve_exact(const schedule::Policy& spec) {
  Search search = search_of(spec, schedule::BlockUnit::Layer);
  if (spec.decisions.sharding) improves(search, search.borders);
  try_optima(search);
  if (search.evaluator != nullptr) return {.schedule = search_on(search)};
  if (!is_small(search)) climb(search);
  return schedule::try_partition(program_, search.ends, spec);
}

// The best blocks with this prefetch, also from those that were the best with another one.
Planner::Blocks Planner::blocks_at(const schedule::Policy& spec, schedule::BlockUnit unit,
                                   Effort effort, const Blocks* known) {
  Search search = search_of(spec, unit);
  if (known != nullptr) improves(search, known->ends);
  if (effort == Effort::Look || is_small(search)) {
    improves(search, search.borders);
    try_optima(search);
  }
  if (effort == Effort::Climb && !is_small(search)) climb(search);
  if (effort == Effort::Climb) take_smallest_blocks(search);
  return {.ends = std::move(search.ends),
          .gathers = *spec.decisions.gathers,
          .step_ns = search.step_ns};
}

// A look at further and further ahead, as long as that pays; then a climb with the best of them, and with each direction by
// some blocks more or less. Directions of which somebody said how far stay as they are.
Planner::Blocks Planner::seek_blocks(schedule::Policy spec, schedule::BlockUnit unit,
                                     std::optional<Blocks> known) {
  schedule::Gathers& gathers = *spec.decisions.gathers;
  const schedule::Gathers asked = gathers;
  const bool seeks_forward = asked.forward == schedule::kSearchedPrefetch;
  const bool seeks_backward = asked.backward == schedule::kSearchedPrefetch;
  std::optional<Blocks>& best = known;
  const auto improves_at = [&](std::int32_t forward, std::int32_t backward, Effort effort) {
    gathers.forward = seeks_forward ? forward : asked.forward;
    gathers.backward = seeks_backward ? backward : asked.backward;
    Blocks found = blocks_at(spec, unit, effort, best ? &*best : nullptr);
    constexpr double kPays = 1 - 1e-4;
    const bool is_better =
        !best || static_cast<double>(found.step_ns) < kPays * static_cast<double>(best->step_ns);
    if (is_better) best = std::move(found);
    return is_better;
  };
  int in_vain = 0;
  for (const std::int32_t ahead : {1, 2, 3, 5, 8, 12, 20, 32}) {
    in_vain = improves_at(ahead, ahead, Effort::Look) ? 0 : in_vain + 1;
    if ((!seeks_forward && !seeks_backward) || in_vain == 3) break;
  }
  improves_at(best->gathers.forward, best->gathers.backward, Effort::Climb);
  const auto improves_by = [&](std::int32_t forward, std::int32_t backward) {
    if ((forward != 0 && !seeks_forward) || (backward != 0 && !seeks_backward)) return false;
    forward += best->gathers.forward;
    backward += best->gathers.backward;
    return forward >= 0 && backward >= 0 && improves_at(forward, backward, Effort::Climb);
  };
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    if (!improves_by(0, 1) && !improves_by(1, 0) && !improves_by(0, 3) && !improves_by(-1, 0) &&
        !improves_by(0, -1)) {
      break;
    }
  }
  return *std::move(best);
}

// Blocks of whole layers, and how far ahead they are gathered where nobody said so; of whole modules where that is faster by
// more than a little. Where nobody gave a limit, no more is gathered at a time than with a block for each layer, one ahead.
schedule::PolicyResult Planner::search_blocks(schedule::Policy spec) {
  const bool is_limited = spec.decisions.gathers->limit != schedule::GatherLimit{};
  if (!is_limited) {
    spec.decisions.gathers->limit.bytes = decide(unsearched(spec)).most_gathered;
  }
  const bool seeks = spec.decisions.gathers->forward == schedule::kSearchedPrefetch ||
                     spec.decisions.gathers->backward == schedule::kSearchedPrefetch;
  Blocks best = seek_blocks(spec, schedule::BlockUnit::Layer, std::nullopt);
  constexpr double kFinerPays = 0.998;
  Blocks finer = seek_blocks(spec, schedule::BlockUnit::Module, best);
  const bool pays =
      static_cast<double>(finer.step_ns) < kFinerPays * static_cast<double>(best.step_ns);
  if (pays) best = std::move(finer);
  spec.decisions.gathers = best.gathers;
  schedule::PolicyResult found = schedule::try_partition(program_, best.ends, spec);
  if (!is_limited) found.schedule.gather_limit = {};
  if (seeks) {
    found.report.push_back("prefetch searched: " + std::to_string(best.gathers.forward) +
                           " ahead in forward, " + std::to_string(best.gathers.backward) +
                           " in backward");
  }
  return found;
}

// Of the optimizer ops that read an owed gradient; none where some gradient has no such reader, as it
// may be the last to arrive.
Duration Planner::shortest_reader(Rank rank) const {
  schedule::IdTable<TensorId, Duration> of_tensor{Duration::max()};
  for (const schedule::Op& op : program_.ops) {
    if (op.phase != schedule::Phase::Optimizer) continue;
    const Duration time = costs_.op(op, rank);
    for (const TensorId id : op.reads) of_tensor[id] = std::min(of_tensor[id], time);
  }
  Duration shortest = Duration::max();
  for (const schedule::OwedGradient& gradient : owed_) {
    shortest = std::min(shortest, of_tensor.at(gradient.tensor));
    if (of_tensor.at(gradient.tensor) == Duration::max()) return Duration{};
  }
  return shortest;
}

// What is left from some gradient on travels behind it, in a bucket of each kind at least.
Duration Planner::one_of_each_kind(const PartitionProblem& problem, const LinearPiece& line) const {
  std::set<schedule::BucketKey> kinds;
  Bytes bytes;
  Duration latest{};
  for (std::size_t i = owed_.size(); i-- > 0;) {
    bytes += problem.size[i];
    kinds.insert(schedule::key_of(program_, owed_[i]));
    const double ns = static_cast<double>(kinds.size()) * line.base_ns +
                      static_cast<double>(bytes.count()) * line.ns_per_byte;
    latest = std::max(latest, problem.ready[i] + Duration(static_cast<std::int64_t>(ns)));
  }
  return latest;
}

Bound Planner::lower_bound(const Candidate& found) {
  StepBound bound;
  if (!found.sharded() && is_relaxed(found.schedule)) {
    if (!relaxed_) relaxed_ = relaxed_bound();
    bound = {.step = *relaxed_, .kind = "whole gradients on one stream"};
    if (kinds_.size() == 1) bound.kind = "whole gradients in consecutive buckets on one stream";
  }
  if (kinds_.size() == 1 || program_.stages > 1) {
    Evaluator* evaluator = evaluator_of(found.schedule, Wanted::Now);
    const auto choices =
        evaluator == nullptr ? std::nullopt : evaluator->model.choices_of(found.schedule);
    if (choices) {
      auto closer = bound_of(*evaluator, {*choices, Duration(found.summary.step_ns)},
                             Bounding::Sought, bound.step);
      if (closer && closer->step > bound.step) bound = *std::move(closer);
    }
  }
  if (bound.kind.empty()) return {};
  Bound checked = checked_bound(bound.step, found);
  checked.schedules = std::move(bound.kind);
  return checked;
}

// That of its kind again, unless a lower step may give a higher one.
std::optional<StepBound> Planner::bound_of(Evaluator& evaluator, const Placed& found,
                                           Bounding bounding, Duration other) {
  const std::optional<BoundKind> kind = evaluator.model.bound_kind(found.choices, found.step);
  if (!kind) return std::nullopt;
  auto known = std::ranges::find(evaluator.bounds, *kind, &Evaluator::Known::kind);
  if (known == evaluator.bounds.end()) {
    constexpr std::size_t kMostKinds = 32;  // of FSDP each memory is one
    if (evaluator.bounds.size() >= kMostKinds) evaluator.bounds.erase(evaluator.bounds.begin());
    evaluator.bounds.push_back({*kind, evaluator.model.lower_bound(*kind, found.step)});
    known = std::prev(evaluator.bounds.end());
  }
  const auto take = [&](Duration step) {
    StepBound next = evaluator.model.lower_bound(*kind, step);
    next.known = std::min(next.known, known->bound.known);
    const bool is_higher = next.step > known->bound.step;
    known->bound.known = next.known;
    if (is_higher) known->bound = std::move(next);
  };
  constexpr double kClose = 1.003;  // times the bound: hardly more can be found
  const bool may_rise = known->bound.is_spent &&
                        to_us(found.step) > kClose * to_us(std::max(other, known->bound.step));
  if (may_rise && found.step < known->bound.known) take(found.step);
  if (may_rise && bounding == Bounding::Sought && !known->is_sought) {
    known->is_sought = true;
    take(Duration::max());
  }
  // Those that are launched when ready are some of those that are launched at any time.
  BoundKind any = *kind;
  any.is_when_ready = false;
  const auto wider = std::ranges::find(evaluator.bounds, any, &Evaluator::Known::kind);
  if (wider != evaluator.bounds.end() && wider->bound.step > known->bound.step) {
    known->bound.step = wider->bound.step;
  }
  return known->bound;
}

Duration Planner::relaxed_bound() const {
  std::vector<std::vector<LinearPiece>> curves = {
      pieces_of(all_reduce_, models::TimeKind::Smaller, Duration{})};
  if (kinds_.size() > 1) {
    const std::vector<LinearPiece> lines = lines_below(curves.front(), total_);
    curves.clear();
    for (const LinearPiece& line : lines) curves.push_back({line});
  }
  Duration bound{};
  if (costs_.host.kind == models::HostModel::Kind::Async) {
    bound = costs_.host.collective;  // of one bucket at least
    for (const schedule::Op& op : program_.ops) {
      if (!std::holds_alternative<schedule::CollectiveWork>(op.work)) bound += costs_.issue(op);
    }
  }
  for (std::size_t rank = 0; rank < op_end_.size(); ++rank) {
    const auto problem = relaxed_problem(static_cast<std::int32_t>(rank), owed_);
    const Duration tail = shortest_reader(Rank{static_cast<std::int32_t>(rank)});
    bound = std::max(bound, op_end_[rank].back());
    for (const std::vector<LinearPiece>& pieces : curves) {
      // A simulated collective is rounded to whole ns; with the optimum's own rounding that is one ns for each
      // bucket at most. The optimum is counted in ticks.
      const Duration rounding = Duration(std::ssize(owed_)) + rounding_of(problem, pieces);
      Duration finish = exact_partition(problem, pieces).finish;
      if (kinds_.size() > 1) finish = std::max(finish, one_of_each_kind(problem, pieces.front()));
      bound = std::max(bound, finish + tail - rounding);
    }
  }
  return bound;
}

}  // namespace dovetail::search
