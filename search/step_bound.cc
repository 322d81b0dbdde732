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
// of what the reductions wait for: both bounds add up, and the compute counts once. Gathers behind updates begin behind backward.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "search/clock_bound.h"
#include "search/step_data.h"
#include "search/step_model.h"
#include "sim/rates.h"

namespace dovetail::search {
namespace {

using schedule::BucketMode;
using schedule::WaitPoint;

// Of a step: what a host needs to be ahead after a few steps, and for good.
constexpr double kAhead = 0.97;

double ns(Duration duration) { return static_cast<double>(duration.count()); }

// Buckets in gradient order, whole gradients, on one stream.
bool is_in_line(std::span<const BucketChoice> choices) {
  std::int32_t next = 0;
  for (const BucketChoice& choice : choices) {
    if (choice.begin != next || choice.stream != choices.front().stream || choice.skip > 0 ||
        choice.take > 0) {
      return false;
    }
    next = choice.end;
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
    std::vector<ClockProblem> problems = {reductions(lane)};
    if (data_.sharding) problems.push_back(gathers(problems.front(), lane));
    return problems;
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
    return lanes() == 1 && !data_.sharding && !data_.inline_host() && !kind_.is_inline &&
           !data_.scales_before && !data_.scales_after && data_.own.empty() &&
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

  [[nodiscard]] ClockProblem reductions(std::size_t lane) const {
    ClockProblem problem;
    const ReducingStep& step = data_.reducing.back();
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
    const std::vector<double> behind = data_.sharding ? updates(lane) : std::vector<double>();
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
        problem.travels.push_back(travel(contention(lane), cost));
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
        problem.travels.push_back(
            travel(contention(lane), data_.gather({.begin = count - end, .end = count - begin})));
      }
    }
    return problem;
  }

  // The update of these gradients in one op.
  [[nodiscard]] double update(std::int32_t begin, std::int32_t end, std::size_t lane) const {
    const schedule::Op op = data_.update_of({.begin = begin, .end = end});
    return ns(data_.costs.op(op, Rank{static_cast<std::int32_t>(lane)}));
  }
  // Of all from each gradient on: in one op, or each alone, where that is measured to be less.
  [[nodiscard]] std::vector<double> updates(std::size_t lane) const {
    const std::int32_t count = data_.count();
    std::vector<double> least;
    double apart = 0;
    for (std::int32_t g = count; g-- > 0;) {
      apart += update(g, g + 1, lane);
      const double rounding = count;  // of each part
      least.push_back(std::max(0.0, std::min(apart, update(g, count, lane)) - rounding) +
                      static_cast<double>(data_.launch_gap()));
    }
    std::ranges::reverse(least);
    return least;
  }

  // One over so many bytes, no longer than several over parts of them.
  [[nodiscard]] double pass(std::int64_t bytes) const {
    const Duration rounding{data_.count()};  // of each part
    const Duration fixed = data_.inline_host() ? data_.costs.host.copy : Duration{};
    return std::max(0.0, ns(data_.costs.copy(Bytes(bytes)) - rounding + fixed)) +
           static_cast<double>(data_.launch_gap());
  }

  [[nodiscard]] static ClockProblem::Travel travel(models::Contention contention,
                                                   const sim::TransferCost& cost) {
    ClockProblem::Travel travel{.isolated = ns(cost.time.isolated),
                                .queued = ns(cost.time.back_to_back)};
    if (contention.none()) return travel;
    // What the processor is taken for depends on how long it lasts; its rate is rounded with it.
    const double rounding =
        contention.collective_cpu > Duration{} ? 1.0 / static_cast<double>(sim::kFullRate) : 0;
    contention.collective_cpu = {};
    sim::Taken taken;
    taken.add(contention, {.gpu = cost.gpu});
    for (const models::KernelClass kernel :
         {models::KernelClass::Gemm, models::KernelClass::Memory, models::KernelClass::Other}) {
      const auto rate = static_cast<double>(sim::whole_rate(taken.left(kernel)));
      travel.left[static_cast<std::size_t>(kernel)] =
          std::min(1.0, rate / static_cast<double>(sim::kFullRate) + rounding);
    }
    return travel;
  }

  const StepData& data_;
  BoundKind kind_;
};

}  // namespace

std::optional<BoundKind> StepModel::bound_kind(std::span<const BucketChoice> choices,
                                               Duration step) const {
  const StepData& data = *data_;
  constexpr std::size_t kMostGradients = 1500;  // the bound grows with their square
  if (data.roles.size() > 1 || data.reducing.size() > 1 || data.gathers_each_use() ||
      data.gradients.size() > kMostGradients || !is_in_line(choices)) {
    return std::nullopt;
  }
  const auto all = [&](const auto& is_so) { return std::ranges::all_of(choices, is_so); };
  BoundKind kind{.is_inline = choices.front().stream == kInline};
  kind.waits_at_end = !data.sharding && all([](const BucketChoice& choice) {
    return choice.wait == WaitPoint::EndOfBackward;
  });
  kind.is_copied = kind.waits_at_end &&
                   all([](const BucketChoice& choice) { return choice.mode == BucketMode::Copy; });
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
  const StepProblem step(data, kind);
  const auto schedules = [](const std::string& which) {
    return "whole gradients in consecutive buckets" + which + " on one stream";
  };
  std::string which;
  if (kind.waits_at_end) which = ", waited for at the end of backward,";
  if (kind.is_copied) which = ", copied and waited for at the end of backward,";
  if (data.sharding) {
    which = std::string(", reduce-scattered, and gathered ") +
            (is_next_forward(data) ? "in the next forward," : "behind their updates,");
  }
  StepBound bound{.kind = schedules(which), .known = known};
  const auto take = [&](std::span<const ClockProblem> problems, Starts starts) {
    constexpr double kRounding = 1;  // the step is an average, rounded to the nearest nanosecond
    double ahead = 0;                // what gathers add that are over before the first reduction
    if (is_next_forward(data)) {
      const ClockBound gathers =
          clock_bound(problems.subspan(1), {.starts = starts, .known = ns(known)});
      ahead = std::max(0.0, gathers.step - StepProblem::compute(problems.front()));
      problems = problems.first(1);
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
  bound.held_back = bound.step;
  const bool is_free = first.front().traffic <= 1.0 / 2;
  if (kind.is_when_ready && is_free && take(first, Starts::WhenReady)) {
    const bool are_all_ahead = step.host_step(data.gradients.size()) < kAhead * ns(bound.step);
    bound.kind =
        schedules(", launched when ready" +
                  std::string(kind.waits_at_end ? " and waited for at the end of backward" : "") +
                  (are_all_ahead ? "," : " by hosts that keep ahead,"));
  }
  return bound;
}

}  // namespace dovetail::search
