// Measures steps without communication, op by op; chains of the unit kernel; and copies and
// scalings over more memory than the caches hold, with a line through a small and a large block.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/compute.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/compute_only.h"
#include "exec/cpu/kernels.h"
#include "exec/run.h"
#include "testbed/op_times.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

// Samples of all ranks, pooled.
std::vector<std::int64_t> pooled(const std::vector<std::vector<std::int64_t>>& by_rank) {
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& samples : by_rank) {
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

Duration median(std::vector<std::int64_t> samples) { return spread_of(std::move(samples)).median; }

// [rank][step] to the largest of each step.
std::vector<std::int64_t> largest_by_step(const std::vector<std::vector<std::int64_t>>& by_rank) {
  std::vector<std::int64_t> largest = by_rank.at(0);
  for (const std::vector<std::int64_t>& of_rank : by_rank) {
    for (std::size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], of_rank[i]);
  }
  return largest;
}

// A pass over one block of the arena; `to` lies half an arena further.
using Pass = void (*)(std::span<const float> from, std::span<float> to);

void copy_block(std::span<const float> from, std::span<float> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

// As the backend scales a bucket: in place.
void scale_block(std::span<const float>, std::span<float> to) {
  for (float& value : to) value *= 0.5F;
}

// The median time of one pass over a block, going through memory so that no block is met twice soon.
Duration time_of(Rig& rig, std::span<float> arena, std::size_t block, Pass pass) {
  constexpr std::size_t kSamples = 64;
  const std::size_t half = arena.size() / 2;
  const std::size_t stride = half / kSamples;
  DOVETAIL_CHECK(block <= stride) << block;
  rig.exchange().barrier();
  std::vector<std::int64_t> samples;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::int64_t start = exec::now_ns();
    pass(arena.subspan(i * stride, block), arena.subspan(half + i * stride, block));
    samples.push_back(exec::now_ns() - start);
  }
  return median(pooled(share(rig.exchange(), samples)));
}

// The line through a small and a large block.
CopyTime line_of(Rig& rig, Bytes size, Pass pass) {
  DOVETAIL_CHECK(size >= mib(1)) << size;
  std::vector<float> arena(static_cast<std::size_t>(size.count()) / sizeof(float), 0.0F);
  constexpr std::size_t kSmall = 1 << 10;              // floats: 4 KiB
  const std::size_t large_block = arena.size() / 128;  // 64 of them each way
  const auto small = static_cast<double>(time_of(rig, arena, kSmall, pass).count());
  const auto large = static_cast<double>(time_of(rig, arena, large_block, pass).count());
  CopyTime time;
  time.ns_per_byte =
      std::max(0.0, (large - small) / (4.0 * static_cast<double>(large_block - kSmall)));
  const double fixed = small - time.ns_per_byte * 4.0 * kSmall;
  time.fixed = Duration(static_cast<std::int64_t>(std::max(0.0, fixed)));
  return time;
}

}  // namespace

double ComputeTimes::skew() const {
  Duration medians{};
  for (const OpTime& op : ops) medians += op.time.median;
  if (medians <= Duration{}) return 0;
  return std::max(
      0.0, static_cast<double>(slowest.median.count()) / static_cast<double>(medians.count()) - 1);
}

ComputeTimes measure_ops(Rig& rig, const schedule::ScheduledProgram& plan, std::int32_t steps) {
  const schedule::ScheduledProgram ops = exec::without_communication(plan);
  exec::cpu::Ports ports = rig.compute_ports();
  ports.barrier = rig.exchange().barrier;
  exec::cpu::CpuBackend backend(ops, ports);
  const std::int64_t begin_ns = exec::now_ns();
  const exec::RankResult result = run(ops, ports.rank, backend, {.warmup = 2, .steps = steps});
  const traces::CoreRecord record = rig.reference_load().record(begin_ns, exec::now_ns());

  std::map<OpId, std::vector<std::int64_t>> samples;
  std::vector<std::int64_t> whole;  // by step: all ops
  for (const testbed::StepOps& step :
       testbed::op_times(ops, ports.rank, result.timings, record, begin_ns)) {
    whole.push_back(0);
    for (const auto& [op, time] : step) {
      samples[op].push_back(time.count());
      whole.back() += time.count();
    }
  }
  ComputeTimes times;
  for (const schedule::Op& op : ops.program.ops) {
    const std::vector<std::vector<std::int64_t>> by_rank = share(rig.exchange(), samples[op.id]);
    OpTime time = {.op = op.id, .time = spread_of(pooled(by_rank)), .by_rank = {}};
    for (const std::vector<std::int64_t>& of_rank : by_rank)
      time.by_rank.push_back(median(of_rank));
    times.ops.push_back(std::move(time));
  }
  times.slowest = spread_of(largest_by_step(share(rig.exchange(), whole)));
  return times;
}

std::vector<WorkTime> by_work(const schedule::Program& program, const std::vector<OpTime>& ops) {
  struct Group {
    WorkTime result;
    std::vector<std::int64_t> p10, median, p90;
  };
  std::vector<Group> groups;
  for (const OpTime& time : ops) {
    const schedule::Op& op = program.op(time.op);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
      return other.result.dtype == op.dtype && other.result.work == op.work;
    });
    if (group == groups.end()) {
      Group fresh;
      fresh.result.dtype = op.dtype;
      fresh.result.work = op.work;
      group = groups.insert(groups.end(), std::move(fresh));
    }
    group->p10.push_back(time.time.p10.count());
    group->median.push_back(time.time.median.count());
    group->p90.push_back(time.time.p90.count());
  }
  std::vector<WorkTime> times;
  for (Group& group : groups) {
    group.result.time = {
        .p10 = median(group.p10), .median = median(group.median), .p90 = median(group.p90)};
    times.push_back(std::move(group.result));
  }
  return times;
}

Spread measure_unit_kernel(Rig& rig, const UnitKernelOptions& options) {
  schedule::GemmWork chain = exec::cpu::kUnitGemm;
  chain.count = options.units;
  schedule::Op op;
  op.name = "unit kernel";
  op.work = chain;
  exec::cpu::reserve(std::span(&op, 1), rig.workspace());
  exec::cpu::run_gemm(chain, rig.workspace());
  rig.exchange().barrier();
  std::vector<std::int64_t> samples;
  for (std::int32_t i = 0; i < options.chains; ++i) {
    const std::int64_t start = exec::now_ns();
    exec::cpu::run_gemm(chain, rig.workspace());
    samples.push_back((exec::now_ns() - start) / options.units);
  }
  return spread_of(pooled(share(rig.exchange(), samples)));
}

CopyTime measure_copies(Rig& rig, Bytes arena) { return line_of(rig, arena, copy_block); }

CopyTime measure_scales(Rig& rig, Bytes arena) { return line_of(rig, arena, scale_block); }

}  // namespace dovetail::calibrate
