// Chooses behind which ops collectives are launched, runs them, and keeps those that one class of ops was beside.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/lone_starts.h"

#include "calibrate/probes.h"
#include "calibrate/transfers.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <variant>
#include <vector>

namespace dovetail::calibrate {
namespace {

using models::KernelClass;

constexpr Bytes kSmallest = kib(64);
constexpr double kPauses = 3;        // of a collective's own length, behind each
constexpr double kShareOfStep = 64;  // a large one takes at most this part of a step
constexpr std::size_t kFewestSamples = 8;
constexpr std::int64_t kMostStarts = 64;  // in a step
constexpr double kFewestLoneSteps = 3, kMostLoneSteps = 100;
constexpr std::int64_t kNoClass = -1;

struct Starts {
  std::vector<OpId> behind;
  double step_ns = 1;
};
// One behind an op whenever the last one is surely over.
Starts starts_of(const schedule::Program& workload, const std::map<OpId, double>& alone_ns,
                 double lone_ns) {
  Starts starts;
  double since = 0;
  for (const schedule::Op& op : workload.ops) {
    const auto known = alone_ns.find(op.id);
    if (known == alone_ns.end()) continue;
    since += known->second;
    starts.step_ns += known->second;
    if (since < (1 + kPauses) * lone_ns || std::ssize(starts.behind) == kMostStarts) continue;
    starts.behind.push_back(op.id);
    since = 0;
  }
  // Behind the last op nothing runs.
  if (starts.behind.size() > 1) starts.behind.pop_back();
  return starts;
}

// As rank 0 measured it, so that all ranks make the same plans.
std::map<OpId, double> as_on_rank_0(const Lab& lab, const std::map<OpId, double>& alone_ns) {
  std::vector<std::int64_t> mine;
  for (const auto& [op, ns] : alone_ns) {
    mine.push_back(op.value);
    mine.push_back(std::llround(ns));
  }
  const std::vector<std::int64_t> said = share(lab.exchange, mine).front();
  std::map<OpId, double> same;
  for (std::size_t i = 0; i + 1 < said.size(); i += 2) {
    same[OpId{static_cast<std::int32_t>(said[i])}] = static_cast<double>(said[i + 1]);
  }
  return same;
}

// Of each class that was beside collectives alone, these collectives' times.
using TimesBeside = std::map<KernelClass, std::vector<std::int64_t>>;

// Each on the rank that came last to it. `mine`: of each collective of this rank its time, and class_beside or none.
TimesBeside times_over_ranks(const Lab& lab, const std::vector<std::int64_t>& mine) {
  const std::vector<std::vector<std::int64_t>> ranks = share(lab.exchange, mine);
  TimesBeside times;
  for (std::size_t i = 0; i + 1 < ranks.front().size(); i += 2) {
    const auto& last = *std::ranges::min_element(
        ranks, {}, [i](const std::vector<std::int64_t>& rank) { return rank.at(i); });
    if (last[i + 1] != kNoClass) times[static_cast<KernelClass>(last[i + 1])].push_back(last[i]);
  }
  return times;
}

TimesBeside run_lone(const Lab& lab, const schedule::Program& workload, const Starts& starts,
                     Bytes bytes) {
  const schedule::ScheduledProgram plan =
      lone_plan(workload, probe_of(lab, bytes, std::ssize(starts.behind)), starts.behind);
  const auto wanted_ns = static_cast<double>(lab.options.contention_time.count());
  const auto steps = static_cast<std::int32_t>(
      std::clamp(std::ceil(wanted_ns / 2 / starts.step_ns), kFewestLoneSteps, kMostLoneSteps));
  std::map<CommandId, KernelClass> kernels;
  std::set<CommandId> travels;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    if (schedule::bucket_collective(command) != nullptr) travels.insert(command.id);
    const auto* run = std::get_if<schedule::RunOp>(&command.action);
    if (run != nullptr) kernels[command.id] = models::kernel_class(plan.program.op(run->op));
  }
  const std::vector<exec::Timing> timings = Bench(lab, plan).run(lab.options.warmup, steps).timings;
  std::vector<ClassedOp> ops;
  for (const exec::Timing& timing : timings) {
    const auto kernel = kernels.find(timing.command);
    if (kernel != kernels.end()) ops.push_back({timing.start_ns, timing.end_ns, kernel->second});
  }
  std::ranges::sort(ops, {}, &ClassedOp::start_ns);
  std::vector<std::int64_t> mine;
  for (const exec::Timing& timing : timings) {
    if (timing.stream == schedule::kComputeStream || !travels.contains(timing.command)) continue;
    const auto beside = class_beside(ops, timing);
    mine.push_back(timing.end_ns - timing.start_ns);
    mine.push_back(beside ? static_cast<std::int64_t>(*beside) : kNoClass);
  }
  return times_over_ranks(lab, mine);
}

}  // namespace

std::optional<KernelClass> class_beside(std::span<const ClassedOp> ops,
                                        const exec::Timing& collective) {
  constexpr std::int64_t kMostGaps = 10;  // a tenth may have nothing beside it
  std::map<KernelClass, std::int64_t> beside;
  auto op = std::ranges::partition_point(
      ops, [&](const ClassedOp& each) { return each.end_ns <= collective.start_ns; });
  for (; op != ops.end() && op->start_ns < collective.end_ns; ++op) {
    beside[op->kernel] +=
        std::min(op->end_ns, collective.end_ns) - std::max(op->start_ns, collective.start_ns);
  }
  const std::int64_t length = collective.end_ns - collective.start_ns;
  for (const auto& [kernel, together] : beside) {
    if (together >= length - length / kMostGaps) return kernel;
  }
  return std::nullopt;
}

LoneStarts measure_lone_starts(const Lab& lab, const schedule::Program& workload,
                               const std::map<OpId, double>& mine, Bytes large) {
  const std::map<OpId, double> alone_ns = as_on_rank_0(lab, mine);
  LoneStarts found;
  const auto ns = [](Duration time) { return static_cast<double>(time.count()); };
  // Of those beside one class.
  const auto typical = [](TimesBeside& beside, KernelClass kernel) -> std::optional<double> {
    if (beside[kernel].size() < kFewestSamples) return std::nullopt;
    return static_cast<double>(quantiles_of(beside[kernel]).median.count());
  };
  const models::CollectivePoint small = all_reduce_of(lab, kSmallest);
  const Starts often = starts_of(workload, alone_ns, ns(small.isolated));
  if (often.behind.empty()) return found;
  TimesBeside beside = run_lone(lab, workload, often, kSmallest);
  if (const auto time = typical(beside, KernelClass::Gemm)) {
    const double wait = *time - ns(small.isolated);
    const bool is_clear =
        wait > ns(small.p90.value_or(Duration{}) - small.p10.value_or(Duration{}));
    if (is_clear) found.start_delay = from_ns(std::max(0.0, wait));
  }
  // Where the host computes, what a collective costs it is its processor time, measured beside a queue.
  if (lab.options.backend == models::BackendKind::Cpu) return found;
  Bytes bytes = large;
  Duration lone = all_reduce_of(lab, bytes).isolated;
  while (bytes > kSmallest && kShareOfStep * ns(lone) > often.step_ns) {
    bytes = Bytes(bytes.count() / 2);
    lone = all_reduce_of(lab, bytes).isolated;
  }
  const Starts seldom = starts_of(workload, alone_ns, ns(lone + found.start_delay));
  if (seldom.behind.empty() || lone <= Duration{}) return found;
  beside = run_lone(lab, workload, seldom, bytes);
  const auto slowdown = [&](KernelClass kernel, Duration wait) -> std::optional<double> {
    const auto time = typical(beside, kernel);
    if (!time) return std::nullopt;
    return std::max(1.0, (*time - ns(wait)) / ns(lone));
  };
  found.beside_gemm = slowdown(KernelClass::Gemm, found.start_delay);
  found.beside_memory = slowdown(KernelClass::Memory, Duration{});
  return found;
}

}  // namespace dovetail::calibrate
