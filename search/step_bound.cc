// What a StepModel knows, as problems of the clock's bound (clock_bound.h): one for each rank that differs; the slowest
// counts.
//
// It serves whole gradients, all-reduced once in consecutive buckets on one stream. Whatever else a placement does makes
// no step shorter, so Starts::Any covers all of it: launches that are held back, scales, waits at the end of backward, copies.
// Where every bucket is copied and waited for at the end of backward, as PyTorch's DDP does, copies count: what an op
// completes is packed behind it, in one pass at best, and behind a bucket's arrival all that follows it is unpacked, in one
// pass at best. Starts::WhenReady is for launches when ready without any of these, on ranks that are alike, whose hosts run
// ahead.
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

class StepProblem {
 public:
  StepProblem(const StepData& data, std::span<const BucketChoice> choices)
      : data_(data),
        is_inline_(choices.front().stream == kInline),
        is_copied_(std::ranges::all_of(choices, [](const BucketChoice& choice) {
          return choice.mode == BucketMode::Copy && choice.wait == WaitPoint::EndOfBackward;
        })) {}

  [[nodiscard]] std::size_t lanes() const { return data_.work.size() / data_.ops.size(); }
  [[nodiscard]] bool is_copied() const { return is_copied_; }

  [[nodiscard]] ClockProblem of_lane(std::size_t lane) const {
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
      add(static_cast<double>(data_.work[op * lanes() + lane].ns()), data_.ops[op].kernel);
      std::int64_t bytes = 0;
      for (; packed < data_.gradients.size() && step.ready[packed] == static_cast<std::int32_t>(op);
           ++packed) {
        bytes += data_.bytes[packed];
      }
      if (is_copied_ && bytes > 0) add(pass(bytes), models::KernelClass::Memory);
    }
    begins.push_back(now);
    const auto begin_of = [&](std::int32_t op) {
      return begins[op == kBehindAllOps ? data_.ops.size() : static_cast<std::size_t>(op)];
    };
    problem.waits_from = begin_of(after_backward);
    // The wake-up behind its wait.
    const double wake_up = data_.inline_host() && !is_inline_ ? ns(data_.costs.host.event) : 0;
    for (std::size_t g = 0; g < data_.gradients.size(); ++g) {
      const std::int32_t last = std::max(step.ready[g], step.earliest_launch[g]);
      const double use = begin_of(is_copied_ ? after_backward : step.first_use[g]);
      const double unpack = is_copied_ ? pass(data_.bytes_sum.back() - data_.bytes_sum[g]) : 0;
      problem.waits_from = std::min(problem.waits_from, use);
      problem.gradients.push_back(
          {.ready = begin_of(last + 1), .tail = now - use + wake_up + unpack});
    }
    if (is_copied_) add(pass(data_.bytes_sum.back()), models::KernelClass::Memory);
    const models::Contention contention =
        data_.costs.contention(Rank{static_cast<std::int32_t>(lane)});
    problem.processor = ns(contention.collective_cpu);
    if (data_.inline_host() && !is_inline_) problem.enqueue = ns(data_.costs.host.collective);
    for (std::size_t end = 1; end <= data_.gradients.size(); ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        problem.travels.push_back(travel(contention, begin, end));
      }
    }
    return problem;
  }

  // Whether nothing but waits for buckets holds up compute, if its host is ahead; nor a stream but the transfers on it.
  [[nodiscard]] bool is_exact() const {
    const models::Contention contention = data_.costs.contention(Rank{0});
    return lanes() == 1 && !data_.inline_host() && !is_inline_ && !data_.scales_before &&
           !data_.scales_after && data_.own.empty() && contention.collective_slowdown <= 1 &&
           contention.collective_cpu <= Duration{};
  }

  // How long the host is busy with a step of so many buckets.
  [[nodiscard]] double host_step(std::size_t buckets) const {
    const models::HostModel& host = data_.costs.host;
    double sum = 0;
    for (const StepOp& op : data_.ops) sum += static_cast<double>(op.issue);
    return sum + static_cast<double>(buckets) * (ns(host.collective) + 4 * ns(host.event));
  }

 private:
  // One over so many bytes, no longer than several over parts of them.
  [[nodiscard]] double pass(std::int64_t bytes) const {
    const Duration rounding{data_.count()};  // of each part
    const Duration fixed = data_.inline_host() ? data_.costs.host.copy : Duration{};
    return std::max(0.0, ns(data_.costs.copy(Bytes(bytes)) - rounding + fixed)) +
           static_cast<double>(data_.launch_gap());
  }

  [[nodiscard]] ClockProblem::Travel travel(models::Contention contention, std::size_t begin,
                                            std::size_t end) const {
    const BucketChoice choice{.begin = static_cast<std::int32_t>(begin),
                              .end = static_cast<std::int32_t>(end)};
    const sim::TransferCost cost = data_.travel(choice);
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
  bool is_inline_;
  bool is_copied_;
};

}  // namespace

std::optional<StepBound> StepModel::lower_bound(std::span<const BucketChoice> choices,
                                                Duration known) const {
  const StepData& data = *data_;
  constexpr std::size_t kMostGradients = 1500;  // the bound grows with their square
  if (data.sharding || data.roles.size() > 1 || data.reducing.size() > 1 ||
      data.gradients.size() > kMostGradients || !is_in_line(choices)) {
    return std::nullopt;
  }
  const StepProblem step(data, choices);
  const auto kind = [](const std::string& which) {
    return "whole gradients in consecutive buckets" + which + " on one stream";
  };
  StepBound bound{
      .kind = kind(step.is_copied() ? ", copied and waited for at the end of backward," : "")};
  const auto take = [&](const ClockProblem& problem, Starts starts) {
    constexpr double kRounding = 1;  // the step is an average, rounded to the nearest nanosecond
    ClockBound found = clock_bound(problem, {.starts = starts, .known = ns(known)});
    const auto least = Duration(static_cast<std::int64_t>(std::max(0.0, found.step - kRounding)));
    if (least <= bound.step) return false;
    bound.step = least;
    bound.ends = std::move(found.ends);
    return true;
  };
  const ClockProblem first = step.of_lane(0);
  take(first, Starts::Any);
  for (std::size_t lane = 1; lane < step.lanes(); ++lane) take(step.of_lane(lane), Starts::Any);
  const bool when_ready = std::ranges::all_of(choices, [this](const BucketChoice& choice) {
    return choice.mode == BucketMode::View && choice.launch <= ready(choice.end - 1);
  });
  constexpr double kAhead = 0.97;  // of a step: then it is so for good after a few
  const double all_on_host = step.host_step(data.gradients.size());
  const bool are_all_ahead = all_on_host < kAhead * ns(bound.step);
  if (when_ready && step.is_exact() && step.host_step(choices.size()) < kAhead * ns(known) &&
      take(first, Starts::WhenReady)) {
    bound.kind = kind(are_all_ahead ? ", launched when ready,"
                                    : ", launched when ready by hosts that keep ahead,");
  }
  return bound;
}

}  // namespace dovetail::search
