// What a StepModel knows, as problems of the clock's bound (clock_bound.h): one for each rank that differs; the slowest
// counts.
//
// It serves whole gradients that travel once a step, in consecutive buckets on one stream. Whatever else a placement does
// makes no step shorter, so Starts::Any covers all of it: launches that are held back, scales, waits at the end of backward,
// copies. Where every bucket is all-reduced and waited for at the end of backward, all that is behind backward follows it. Where
// they are copied besides, as by PyTorch's DDP, what an op completes is packed behind it, in one pass at best, and behind a
// bucket's arrival all that follows it is unpacked, in one pass at best. Starts::WhenReady is for launches when ready without
// copies and scales, on ranks that are alike, whose hosts run ahead.
//
// Sharded updates are two problems, reductions and gathers. What follows a reduction is the update of all that travels
// no earlier, in one op at best. Gathers in the next forward begin with the step, last bucket first or in whatever order
// they are needed: once all that holds gradients from g on has arrived, what reads the last parameter of these must
// still follow, whatever their order was. By as much as compute stands still for them, the clock is ahead of it ever after, and
// of what the reductions wait for: both bounds add up, and the compute counts once. Gathers behind updates begin behind backward
// and behind all reductions: each bucket's gather adds to what forward, backward and the reductions take.
//
// With micro-steps the ops of all of them are compute. Where each reduces, every one is a problem of its own, behind the one
// before. Parameters that are gathered before each use have a bound by sums (gather_bound.h).
//
// A pipeline is played (relaxed_step), with hosts that are free, transfers that take nothing from compute, and gradients that
// travel one by one at a rate at which no bucket is faster, each as soon as it is ready; the last of each stage with the
// start-up of a line a + b x under the times of all buckets. Take any buckets, and instead of each its gradients one by one:
// they begin no later, and end a ns earlier at least. Nothing then starts later, so no placement is faster. The best line counts.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/interruption.h"
#include "search/clock_bound.h"
#include "search/gather_bound.h"
#include "search/step_data.h"
#include "search/step_model.h"
#include "search/step_writer.h"

namespace dovetail::search {
namespace {

using schedule::BucketMode;
using schedule::WaitPoint;

// Of a step: what a host needs to be ahead after a few steps, and for good.
constexpr double kAhead = 0.97;

double ns(Duration duration) { return static_cast<double>(duration.count()); }

// Buckets of each role, whose gradients are of one kind, in gradient order, whole gradients, on one stream.
bool is_in_line(const StepData& data, std::span<const BucketChoice> choices) {
  if (data.kinds.size() != data.roles.size()) return false;
  std::vector<std::int32_t> next(data.kinds.size(), -1);
  for (const BucketChoice& choice : choices) {
    const std::int32_t kind = data.kind_of[static_cast<std::size_t>(choice.begin)];
    std::int32_t& begin = next[static_cast<std::size_t>(kind)];
    if (begin < 0) {
      begin =
          static_cast<std::int32_t>(std::ranges::find(data.kind_of, kind) - data.kind_of.begin());
    }
    if (choice.begin != begin || choice.stream != choices.front().stream || choice.skip > 0 ||
        choice.take > 0) {
      return false;
    }
    begin = choice.end;
  }
  return true;
}

bool is_next_forward(const StepData& data) {
  return data.sharding && data.frame.parameters == schedule::ParameterSync::NextForward;
}

class StepProblem {
 public:
  StepProblem(const StepData& data, const BoundKind& kind) : data_(data), kind_(kind) {}

  [[nodiscard]] std::size_t lanes() const { return data_.work.size() / data_.ops.size(); }

  // What one rank is bound by; the reductions first.
  [[nodiscard]] std::vector<ClockProblem> of_lane(std::size_t lane) const {
    std::vector<ClockProblem> problems;
    for (const ReducingStep& step : data_.reducing) problems.push_back(reductions(step, lane));
    if (data_.sharding) problems.push_back(gathers(problems.front(), lane));
    return problems;
  }

  // Where parameters are gathered behind updates: reductions alone, in forward and backward, with the gather of each bucket
  // behind all. REQUIRES: one micro-step is reduced.
  [[nodiscard]] ClockProblem gathered_behind(std::size_t lane) const {
    ClockProblem problem = reductions(data_.reducing.back(), lane);
    const auto ops = static_cast<std::size_t>(data_.sharding->updates.front().before_op);
    problem.compute.clear();
    for (std::size_t op = 0; op < ops; ++op)
      problem.compute.push_back({time_of(op, lane), data_.ops[op].kernel});
    for (ClockProblem::Gradient& gradient : problem.gradients) gradient.tail = 0;
    for (std::int32_t end = 1; end <= data_.count(); ++end) {
      for (std::int32_t begin = 0; begin < end; ++begin) {
        const models::CollectiveTime gather = data_.gather({.begin = begin, .end = end}).time;
        const auto at = pair_index(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
        problem.travels[at].behind =
            std::max(0.0, ns(std::min(gather.isolated, gather.back_to_back)) - 1);
      }
    }
    return problem;
  }

  [[nodiscard]] static double compute(const ClockProblem& problem) {
    double all = 0;
    for (const ClockProblem::Op& op : problem.compute) all += op.time;
    return all;
  }

  // Whether nothing but waits for buckets holds up compute, if its host is ahead and nothing is copied; nor a stream but the
  // transfers on it.
  [[nodiscard]] bool is_exact() const {
    const models::Contention contention = data_.costs.contention(Rank{0});
    return lanes() == 1 && !data_.sharding && data_.reducing.size() == 1 && !data_.inline_host() &&
           !kind_.is_inline && !data_.kinds.front().scales_before &&
           !data_.kinds.front().scales_after && data_.own.empty() &&
           std::ranges::all_of(kAllOf<models::KernelClass>,
                               [&](models::KernelClass kernel) {
                                 return contention.collective_slowdown_beside(kernel) <= 1;
                               }) &&
           contention.start_delay <= Duration{} && contention.collective_cpu <= Duration{};
  }

  // How long the host is busy with a step of so many buckets.
  [[nodiscard]] double host_step(std::size_t buckets) const {
    const models::HostModel& host = data_.costs.host;
    double sum = 0;
    for (const StepOp& op : data_.ops) sum += static_cast<double>(op.issue);
    return sum + static_cast<double>(buckets) * (ns(host.collective) + 4 * ns(host.event));
  }

 private:
  [[nodiscard]] models::Contention contention(std::size_t lane) const {
    return data_.costs.contention(Rank{static_cast<std::int32_t>(lane)});
  }
  [[nodiscard]] double time_of(std::size_t op, std::size_t lane) const {
    return data_.ops[op].own ? 0 : static_cast<double>(data_.work[op * lanes() + lane].ns());
  }

  [[nodiscard]] ClockProblem reductions(const ReducingStep& step, std::size_t lane) const {
    ClockProblem problem;
    const std::int32_t after_backward = step.after_backward.front();
    std::vector<double> begins;  // of each op, and of what is behind all
    double now = 0;
    const auto add = [&](double time, models::KernelClass kernel) {
      problem.compute.push_back({time, kernel});
      now += time;
    };
    std::size_t packed = 0;  // gradients
    for (std::size_t op = 0; op < data_.ops.size(); ++op) {
      begins.push_back(now);
      if (data_.ops[op].own) continue;
      add(time_of(op, lane), data_.ops[op].kernel);
      std::int64_t bytes = 0;
      for (; packed < data_.gradients.size() && step.ready[packed] == static_cast<std::int32_t>(op);
           ++packed) {
        bytes += data_.bytes[packed];
      }
      if (kind_.is_copied && bytes > 0) add(pass(bytes), models::KernelClass::Memory);
    }
    begins.push_back(now);
    const auto begin_of = [&](std::int32_t op) {
      return begins[std::min(data_.ops.size(), static_cast<std::size_t>(op))];
    };
    problem.waits_from = begin_of(after_backward);
    const std::vector<double> behind =
        data_.sharding ? least_updates(data_, lane) : std::vector<double>();
    // The wake-up behind its wait.
    const double wake_up = data_.inline_host() && !kind_.is_inline ? ns(data_.costs.host.event) : 0;
    for (std::size_t g = 0; g < data_.gradients.size(); ++g) {
      const std::int32_t last = std::max(step.ready[g], step.earliest_launch[g]);
      const double use = begin_of(kind_.waits_at_end ? after_backward : step.first_use[g]);
      const double unpack = kind_.is_copied ? pass(data_.bytes_sum.back() - data_.bytes_sum[g]) : 0;
      double tail = now - use + unpack;
      if (data_.sharding) {
        const std::vector<CutUpdate>& cut = data_.sharding->updates;
        const bool before_all = step.first_use[g] < cut.front().before_op;
        tail =
            before_all ? tail + behind.front() : now - begin_of(cut.back().before_op) + behind[g];
      }
      problem.waits_from = std::min(problem.waits_from, use);
      problem.gradients.push_back({.ready = begin_of(last + 1), .tail = tail + wake_up});
    }
    if (kind_.is_copied) add(pass(data_.bytes_sum.back()), models::KernelClass::Memory);
    if (data_.sharding) {
      const BucketChoice all{.begin = 0, .end = data_.count()};
      add(behind.front(), models::kernel_class(data_.update_of(all)));
    }
    problem.processor = ns(contention(lane).collective_cpu);
    const bool hands_over = data_.inline_host() && !kind_.is_inline && !data_.sharding;
    if (hands_over) problem.enqueue = ns(data_.costs.host.collective);
    for (std::int32_t end = 1; end <= data_.count(); ++end) {
      for (std::int32_t begin = 0; begin < end; ++begin) {
        const sim::TransferCost cost = data_.travel({.begin = begin, .end = end});
        problem.travels.push_back(travel_beside(contention(lane), cost));
        problem.traffic = std::max(problem.traffic, cost.gpu.memory);
      }
    }
    return problem;
  }

  // Of the parameters, from those of the last gradient on.
  [[nodiscard]] ClockProblem gathers(const ClockProblem& reductions, std::size_t lane) const {
    ClockProblem problem;
    problem.compute = reductions.compute;
    problem.processor = reductions.processor;
    const double all = compute(problem);
    std::vector<double> begins = {0};  // of ops
    for (std::size_t op = 0; op < data_.ops.size(); ++op)
      begins.push_back(begins.back() + time_of(op, lane));
    const double behind_backward =
        begins[static_cast<std::size_t>(data_.sharding->updates.front().before_op)];
    double needed = 0;  // the last of the first readers
    for (std::size_t g = data_.gradients.size(); g-- > 0;) {
      const std::int32_t reader = data_.sharding->first_reader[g];
      needed = std::max(needed,
                        reader == kBehindAllOps ? all : begins[static_cast<std::size_t>(reader)]);
      problem.gradients.push_back(is_next_forward(data_)
                                      ? ClockProblem::Gradient{.tail = all - needed}
                                      : ClockProblem::Gradient{.ready = behind_backward});
    }
    const std::int32_t count = data_.count();
    for (std::int32_t end = 1; end <= count; ++end) {
      for (std::int32_t begin = 0; begin < end; ++begin) {
        problem.travels.push_back(travel_beside(
            contention(lane), data_.gather({.begin = count - end, .end = count - begin})));
      }
    }
    return problem;
  }

  // One over so many bytes, no longer than several over parts of them.
  [[nodiscard]] double pass(std::int64_t bytes) const {
    const Duration rounding{data_.count()};  // of each part
    const Duration fixed = data_.inline_host() ? data_.costs.host.copy : Duration{};
    return std::max(0.0, ns(data_.costs.copy(Bytes(bytes)) - rounding + fixed)) +
           static_cast<double>(data_.launch_gap());
  }

  const StepData& data_;
  BoundKind kind_;
};

// No placement of a pipeline is faster than this, for one line under the times of all buckets.
Duration relaxed_step(const StepData& data, const models::LinearPiece& line, bool waits_at_end) {
  StepData free = data;
  free.relaxed = line;
  free.costs.host = {.kind = models::HostModel::Kind::Async,
                     .launch_gap = Duration(data.launch_gap())};
  free.costs.contention_by_class.clear();
  free.costs.links.clear();
  for (GradientKind& kind : free.kinds) kind.scales_before = kind.scales_after = false;
  for (StepOp& op : free.ops) op.issue = 0;
  for (OwnCollective& own : free.own) {
    models::CollectiveTime& time = own.cost.time;
    time.isolated = time.back_to_back = std::min(time.isolated, time.back_to_back);
    own.cost.latency = {};
    own.cost.loads = {};
    own.cost.gpu = {};
  }
  Choices choices;
  for (std::int32_t g = 0; g < data.count(); ++g) {
    choices.push_back({.begin = g, .end = g + 1});
    if (waits_at_end) choices.back().wait = WaitPoint::EndOfBackward;
  }
  return StepWriter(free).steady_step(choices);
}

// Over few of the lines, from the flattest to the steepest.
Duration relaxed_bound(const StepData& data, const TravelLines& reductions, bool waits_at_end) {
  constexpr std::size_t kMostLines = 6;
  const std::span<const models::LinearPiece> lines = reductions.lines();
  const std::size_t apart = (lines.size() + kMostLines - 1) / kMostLines;
  Duration best{};
  for (std::size_t i = 0; i < lines.size(); i += apart) {
    throw_if_interrupted();
    best = std::max(best, relaxed_step(data, lines[i], waits_at_end));
  }
  return best - Duration(1);
}

// Transfers alone, one behind another in the best buckets, each when its gradients are ready where nothing holds up compute,
// and what must follow the last of them. The problems' transfers follow each other.
double transfers_alone(std::span<const ClockProblem> problems) {
  constexpr double kRounding = 1;  // of each transfer
  double from = 0;
  double step = 0;
  for (const ClockProblem& problem : problems) {
    const std::size_t count = problem.gradients.size();
    std::vector<double> ends(count + 1, std::numeric_limits<double>::max());
    ends[0] = from;
    for (std::size_t end = 1; end <= count; ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        const ClockProblem::Travel& travel = problem.travels[pair_index(begin, end)];
        const double time = std::max(0.0, std::min(travel.isolated, travel.queued) - kRounding);
        const double starts = std::max(ends[begin], problem.gradients[end - 1].ready);
        ends[end] = std::min(ends[end], starts + time);
      }
    }
    from = ends.back();
    step = std::max(step, from + problem.gradients.back().tail);
  }
  return step;
}

std::string kind_text(const StepData& data, const BoundKind& kind) {
  std::string text = "whole gradients in consecutive buckets";
  if (kind.waits_at_end) text += ", waited for at the end of backward,";
  if (kind.is_copied && kind.waits_at_end) {
    text = "whole gradients in consecutive buckets, copied and waited for at the end of backward,";
  }
  if (data.gathers_each_use()) {
    text += ", with at most " + to_string(data.kinds.front().parameters(kind.most_gathered)) +
            " of parameters gathered at a time";
    text += kind.reshards ? "," : " and kept for backward,";
    return text + (kind.shares_stream ? " on one stream" : " on one stream beside the gathers'");
  }
  if (data.sharding) {
    text += std::string(", reduce-scattered, and gathered ") +
            (is_next_forward(data) ? "in the next forward," : "behind their updates,");
  }
  return text + " on one stream";
}

}  // namespace

std::optional<BoundKind> StepModel::bound_kind(std::span<const BucketChoice> choices,
                                               Duration step) const {
  const StepData& data = *data_;
  constexpr std::size_t kMostGradients = 1500;  // the bound grows with their square
  if (data.gradients.size() > kMostGradients || !is_in_line(data, choices)) return std::nullopt;
  if (data.sharding && (data.roles.size() > 1 || data.kinds.front().replicas || data.names_updates))
    return std::nullopt;
  if (std::ranges::any_of(data.reducing, std::logical_not(), &ReducingStep::is_rising))
    return std::nullopt;
  const auto all = [&](const auto& is_so) { return std::ranges::all_of(choices, is_so); };
  const auto is_copied = [](const BucketChoice& choice) { return choice.mode == BucketMode::Copy; };
  BoundKind kind{.is_inline = choices.front().stream == kInline};
  if (data.gathers_each_use()) {
    if (kind.is_inline) return std::nullopt;
    kind.is_copied = all(is_copied);
    kind.most_gathered = search::most_gathered(data, choices);
    kind.reshards =
        choices.size() == 1;  // a block that is all begins backward and stays whatever was decided
    for (const BucketChoice& choice : choices) {
      kind.reshards = kind.reshards || choice.gather.backward;
      kind.shares_stream = kind.shares_stream && choice.gather.stream == choice.stream;
      if (choice.gather.stream != choices.front().gather.stream) return std::nullopt;
    }
    return kind;
  }
  kind.waits_at_end = !data.sharding && all([](const BucketChoice& choice) {
    return choice.wait == WaitPoint::EndOfBackward;
  });
  if (data.roles.size() > 1) return kind;
  kind.is_copied = kind.waits_at_end && all(is_copied);
  const StepProblem problem(data, kind);
  kind.is_when_ready =
      problem.is_exact() && problem.host_step(choices.size()) < kAhead * ns(step) &&
      all([this](const BucketChoice& choice) {
        return choice.mode == BucketMode::View && choice.launch <= ready(choice.end - 1);
      });
  return kind;
}

StepBound StepModel::lower_bound(const BoundKind& kind, Duration known) const {
  const StepData& data = *data_;
  StepBound bound{.kind = kind_text(data, kind), .known = known};
  if (data.gathers_each_use() || data.roles.size() > 1) {
    std::call_once(knots_->made, [&] {
      knots_->reductions = reduction_knots(data);
      if (data.sharding) knots_->gathers = gather_knots(data);
    });
    const double all = static_cast<double>(data.bytes_sum.back());
    bound.step = data.sharding
                     ? gather_bound(data, *knots_, kind)
                     : relaxed_bound(data, TravelLines(knots_->reductions, all), kind.waits_at_end);
    bound.step = bound.held_back = std::min(bound.step, known);
    return bound;
  }
  const StepProblem step(data, kind);
  const auto take = [&](std::span<const ClockProblem> problems, Starts starts) {
    constexpr double kRounding = 1;  // the step is an average, rounded to the nearest nanosecond
    double ahead = 0;                // what gathers add that are over before the first reduction
    if (is_next_forward(data) && problems.size() > data.reducing.size()) {
      const ClockBound gathers =
          clock_bound(problems.last(1), {.starts = starts, .known = ns(known)});
      ahead = std::max(0.0, gathers.step - StepProblem::compute(problems.front()));
      problems = problems.first(problems.size() - 1);
    }
    ClockBound found = clock_bound(problems, {.starts = starts, .known = ns(known) - ahead});
    bound.is_spent = bound.is_spent || found.is_spent;
    const auto least =
        Duration(static_cast<std::int64_t>(std::max(0.0, found.step + ahead - kRounding)));
    if (least <= bound.step) return false;
    bound.step = least;
    bound.ends = std::move(found.ends);
    return true;
  };
  const std::vector<ClockProblem> first = step.of_lane(0);
  take(first, Starts::Any);
  for (std::size_t lane = 1; lane < step.lanes(); ++lane) take(step.of_lane(lane), Starts::Any);
  if (data.sharding && !is_next_forward(data) && data.reducing.size() == 1) {
    for (std::size_t lane = 0; lane < step.lanes(); ++lane) {
      const ClockProblem problem = step.gathered_behind(lane);
      take(std::span(&problem, 1), Starts::Any);
    }
  }
  // The gathers of the next forward begin with the step, before all reductions.
  const auto take_alone = [&](std::vector<ClockProblem> problems) {
    if (is_next_forward(data))
      std::rotate(problems.begin(), std::prev(problems.end()), problems.end());
    const double alone = transfers_alone(problems);
    bound.step = std::max(bound.step, std::min(known, Duration(static_cast<std::int64_t>(alone))));
  };
  take_alone(first);
  for (std::size_t lane = 1; lane < step.lanes(); ++lane) take_alone(step.of_lane(lane));
  bound.held_back = bound.step;
  const bool is_free = first.front().traffic <= 1.0 / 2;
  if (kind.is_when_ready && is_free && take(first, Starts::WhenReady)) {
    const bool are_all_ahead = step.host_step(data.gradients.size()) < kAhead * ns(bound.step);
    const std::string one_stream = " on one stream";
    std::string text = "whole gradients in consecutive buckets, launched when ready";
    if (kind.waits_at_end) text += " and waited for at the end of backward";
    bound.kind = text + (are_all_ahead ? "," : " by hosts that keep ahead,") + one_stream;
  }
  return bound;
}

}  // namespace dovetail::search
