// Runs steps without communication and tells the times of their ops.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ops.h"

#include "base/error.h"
#include "calibrate/noise/op_times.h"
#include "calibrate/probes.h"
#include "exec/clock.h"
#include "exec/compute_only.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

// What was measured is what it moves and computes, attention or not.
schedule::MemoryWork plain(const schedule::MemoryWork& work) {
  return {.bytes = work.bytes, .flop = work.flop};
}

models::KernelWork kernel_work(const schedule::Work& work) {
  if (const auto* memory = std::get_if<schedule::MemoryWork>(&work)) return plain(*memory);
  if (const auto* several = std::get_if<schedule::KernelsWork>(&work)) {
    schedule::KernelsWork kernels = *several;
    for (schedule::Kernel& kernel : kernels.kernels.edit()) {
      if (auto* memory = std::get_if<schedule::MemoryWork>(&kernel)) *memory = plain(*memory);
    }
    return kernels;
  }
  const auto* gemm = std::get_if<schedule::GemmWork>(&work);
  DOVETAIL_CHECK(gemm != nullptr) << "work without a shape was measured";
  return *gemm;
}

// The workload's ops that compute, with its gradients where a real step has them.
schedule::ScheduledProgram ops_plan(const schedule::Program& workload) {
  const schedule::Schedule schedule =
      schedule::make_schedule(workload, schedule::parse_policy("no-overlap"));
  return exec::only_computing(schedule::lower(workload, schedule).program);
}

// Of a plan of ops only.
struct OpTimes {
  std::map<OpId, Quantiles> ops;
  Quantiles slowest;
};

// [rank][step] to the largest of each step.
std::vector<std::int64_t> largest_by_step(const std::vector<std::vector<std::int64_t>>& by_rank) {
  std::vector<std::int64_t> most = by_rank.at(0);
  for (const std::vector<std::int64_t>& of_rank : by_rank) {
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], of_rank.at(i));
  }
  return most;
}

OpTimes measure_ops(const Lab& lab, const schedule::ScheduledProgram& plan, Bench& bench,
                    std::int32_t steps) {
  bench.run(lab.options.warmup, 1);
  const std::int64_t begin_ns = exec::now_ns();
  const exec::RankResult result = bench.run(0, steps);
  const traces::CoreRecord record = record_since(lab, begin_ns);
  std::map<OpId, std::vector<std::int64_t>> samples;
  std::vector<std::int64_t> whole;  // by step: all ops
  for (const testbed::StepOps& step :
       testbed::op_times(plan, lab.exchange.rank, result.timings, record, begin_ns)) {
    whole.push_back(0);
    for (const auto& [op, time] : step) {
      samples[op].push_back(time.count());
      whole.back() += time.count();
    }
  }
  OpTimes times;
  for (const schedule::Command& command : plan.roles.front().commands) {
    const OpId op = *schedule::op_run_by(command);
    std::vector<std::int64_t> all = pooled(lab, samples[op]);
    if (all.empty()) {
      throw DeviceError("the backend gave no timing of op " + plan.program.op(op).name);
    }
    times.ops[op] = quantiles_of(std::move(all));
  }
  times.slowest = quantiles_of(largest_by_step(share(lab.exchange, whole)));
  return times;
}

// The median of each call of a step over the steps, added up; over the ranks too.
Duration sum_of_calls(const Lab& lab, const std::vector<std::int64_t>& samples_ns,
                      std::size_t calls) {
  std::int64_t sum = 0;
  for (std::size_t call = 0; call < calls; ++call) {
    std::vector<std::int64_t> of_call;
    for (std::size_t i = call; i < samples_ns.size(); i += calls) of_call.push_back(samples_ns[i]);
    if (!of_call.empty()) sum += quantiles_of(std::move(of_call)).median.count();
  }
  return median_of(lab, {sum});
}

std::size_t kernels_in(const models::KernelWork& work) {
  const auto* several = std::get_if<schedule::KernelsWork>(&work);
  return several == nullptr ? 1 : std::max<std::size_t>(1, several->kernels.size());
}

}  // namespace

StepTimes measure_step(const Lab& lab, const schedule::Program& workload) {
  const schedule::ScheduledProgram plan = ops_plan(workload);
  Bench bench(lab, plan);
  const OpTimes times = measure_ops(lab, plan, bench, lab.options.steps);
  StepTimes step;
  step.slowest = times.slowest;
  for (const schedule::Op& op : workload.ops) {
    const auto time = times.ops.find(op.id);
    if (time == times.ops.end()) continue;
    step.kernels.push_back({.dtype = op.dtype,
                            .work = kernel_work(op.work),
                            .time = time->second.median,
                            .p10 = time->second.p10,
                            .p90 = time->second.p90,
                            .op = op.name});
  }
  return step;
}

Duration measure_issue(const Lab& lab, const schedule::Program& workload,
                       std::span<const models::MeasuredKernel> kernels) {
  constexpr std::size_t kBurst = 256;  // a queue holds about 1,024
  constexpr std::int32_t kSteps = 5;
  if (kernels.empty()) return {};
  const schedule::ScheduledProgram plan = ops_plan(workload);
  const std::unique_ptr<exec::Backend> backend = lab.make_backend(plan);
  std::size_t issued = 0;
  std::size_t entries = 0;  // of the queue, since the device was idle
  Duration burst{};         // what they take
  const auto before_op = [&](OpId) {
    const std::size_t op = issued++ % kernels.size();
    const std::size_t more = kernels_in(kernels[op].work) + 2;  // events
    const bool is_full = entries + more > kBurst;
    // Behind the last op of a step the backend has waited already. A fourth more: gaps and events.
    if (op > 0 && is_full) lab.options.rest(burst * 5 / 4);
    if (op == 0 || is_full) {
      entries = 0;
      burst = {};
    }
    entries += more;
    burst += kernels[op].time;
  };
  HostTimer timer(*backend, {.now = lab.options.now, .before_op = before_op});
  exec::run(plan, lab.exchange.rank, timer, {.warmup = lab.options.warmup, .steps = 1});
  timer.clear();
  exec::run(plan, lab.exchange.rank, timer, {.warmup = 0, .steps = kSteps});
  std::size_t all = 0;
  for (const models::MeasuredKernel& kernel : kernels) all += kernels_in(kernel.work);
  return sum_of_calls(lab, timer.run_op_ns, kernels.size()) / static_cast<std::int64_t>(all);
}

double skew_of(std::span<const models::MeasuredKernel> kernels, Duration slowest) {
  Duration medians{};
  for (const models::MeasuredKernel& kernel : kernels) medians += kernel.time;
  if (medians <= Duration{}) return 0;
  return std::max(0.0,
                  static_cast<double>(slowest.count()) / static_cast<double>(medians.count()) - 1);
}

std::vector<models::MeasuredKernel> by_work(std::span<const models::MeasuredKernel> kernels) {
  std::vector<models::MeasuredKernel> works;
  for (const models::MeasuredKernel& first : kernels) {
    const auto is_alike = [&first](const models::MeasuredKernel& other) {
      return models::KernelTable::is_alike(first, other);
    };
    if (std::ranges::any_of(works, is_alike)) continue;
    std::vector<std::int64_t> p10;
    std::vector<std::int64_t> median;
    std::vector<std::int64_t> p90;
    for (const models::MeasuredKernel& kernel : kernels) {
      if (!is_alike(kernel)) continue;
      p10.push_back(kernel.p10.value_or(kernel.time).count());
      median.push_back(kernel.time.count());
      p90.push_back(kernel.p90.value_or(kernel.time).count());
    }
    works.push_back({.dtype = first.dtype,
                     .work = first.work,
                     .time = quantiles_of(std::move(median)).median,
                     .p10 = quantiles_of(std::move(p10)).median,
                     .p90 = quantiles_of(std::move(p90)).median});
  }
  return works;
}

std::vector<models::PassSample> measure_passes(const Lab& lab,
                                               const schedule::ScheduledProgram& variant,
                                               const models::KernelTable& kernels) {
  const schedule::ScheduledProgram plan = exec::only_computing(variant);
  Bench bench(lab, plan);
  std::vector<models::PassSample> samples;
  for (const auto& [id, time] : measure_ops(lab, plan, bench, lab.options.variant_steps).ops) {
    const schedule::Op& op = plan.program.op(id);
    const std::optional<models::PassKind> kind = models::pass_of(op);
    if (!kind) continue;
    const bool products = std::holds_alternative<schedule::GemmWork>(op.work);
    const Duration kernel = products ? kernels.time(op).value_or(Duration{}) : Duration{};
    samples.push_back(
        {.kind = *kind, .traffic = models::traffic_of(op), .time = time.median - kernel});
  }
  return samples;
}

models::UnitKernel measure_unit_kernel(const Lab& lab, const schedule::GemmWork& gemm) {
  constexpr std::int64_t kUnits = 50;  // of a chain
  constexpr std::int64_t kChains = 21;
  schedule::GemmWork chain = gemm;
  chain.count *= kUnits;
  std::vector<std::int64_t> samples;
  for (const exec::Timing& timing : timings_of(lab, chain_plan(lab.ranks, kChains, chain), 1)) {
    samples.push_back((timing.end_ns - timing.start_ns) / kUnits);
  }
  return {.dtype = schedule::DType::F32, .gemm = gemm, .time = median_of(lab, samples)};
}

}  // namespace dovetail::calibrate
