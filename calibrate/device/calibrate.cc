// Executes the plans of a calibration on a backend and turns their timings into figures: times of
// ops, costs of the host, and mutual slowdown. It knows backends, not CUDA.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/device/calibrate.h"

#include "base/error.h"
#include "calibrate/cpu/compute.h"
#include "calibrate/device/host_timer.h"
#include "calibrate/device/lab.h"
#include "calibrate/device/probes.h"
#include "calibrate/device/transfers.h"
#include "exec/clock.h"
#include "exec/compute_only.h"
#include "exec/run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

constexpr double kQueueOverProducts = 1.3;  // the queue should outlast the slowed-down computing
constexpr std::int64_t kShortestQueue = 4;
constexpr std::int64_t kLongestQueue = 256;

void require_shapes(const schedule::Program& workload) {
  for (const schedule::Op& op : workload.ops) {
    if (!std::holds_alternative<schedule::TimedWork>(op.work)) continue;
    throw InputError(
        "op " + op.name + " of " + workload.name +
        " is known by its time only; a GPU is calibrated with a workload that has shapes");
  }
}

// ---- ops

schedule::ScheduledProgram ops_plan(const Lab& lab, const schedule::Program& workload) {
  schedule::ScheduledProgram plan = chain_plan(lab.ranks, 0, Bytes(0));
  plan.program = workload;
  for (const schedule::Op& op : workload.ops) {
    if (std::holds_alternative<schedule::CollectiveWork>(op.work)) continue;
    add_run(plan.roles.front(), op.id);
  }
  return plan;
}

std::map<CommandId, OpId> ops_by_command(const schedule::ScheduledProgram& plan) {
  std::map<CommandId, OpId> ops;
  for (const schedule::RankProgram& role : plan.roles) {
    for (const schedule::Command& command : role.commands) {
      if (const std::optional<OpId> op = schedule::op_run_by(command)) ops[command.id] = *op;
    }
  }
  return ops;
}

// The pooled time of every op that the plan runs, in the order in which it does.
std::vector<OpTime> op_times_of(const Lab& lab, const schedule::ScheduledProgram& plan,
                                const std::vector<exec::Timing>& timings) {
  const std::map<CommandId, OpId> ops = ops_by_command(plan);
  std::map<OpId, std::vector<std::int64_t>> samples;
  for (const exec::Timing& timing : timings) {
    const auto op = ops.find(timing.command);
    if (op != ops.end()) samples[op->second].push_back(timing.end_ns - timing.start_ns);
  }
  std::vector<OpTime> times;
  for (const schedule::Command& command : plan.roles.front().commands) {
    const OpId op = ops.at(command.id);
    std::vector<std::int64_t> all = pooled(lab, samples[op]);
    if (all.empty())
      throw DeviceError("the backend gave no timing of op " + plan.program.op(op).name);
    times.push_back({.op = op, .time = spread_of(std::move(all)), .by_rank = {}});
  }
  return times;
}

// How much longer the ops of a step take on the rank that is slowest in it than their medians add up to.
double skew_of(const Lab& lab, const std::vector<exec::Timing>& timings,
               const std::vector<OpTime>& times) {
  std::vector<std::int64_t> mine(static_cast<std::size_t>(lab.options.steps), 0);
  for (const exec::Timing& timing : timings) {
    mine.at(static_cast<std::size_t>(timing.step)) += timing.end_ns - timing.start_ns;
  }
  std::vector<std::int64_t> slowest = mine;
  for (const std::vector<std::int64_t>& of_rank : share(lab.exchange, mine)) {
    for (std::size_t i = 0; i < slowest.size(); ++i)
      slowest[i] = std::max(slowest[i], of_rank.at(i));
  }
  return ComputeTimes{.ops = times, .slowest = spread_of(std::move(slowest))}.skew();
}

// And what issuing one of them costs the host, on average over the ops: one may be several launches.
struct OpTimes {
  std::vector<OpTime> times;
  double skew = 0;
  Duration issue{};
};
OpTimes measure_ops(const Lab& lab, const schedule::Program& workload) {
  const schedule::ScheduledProgram plan = ops_plan(lab, workload);
  const std::unique_ptr<exec::Backend> backend = lab.make_backend(plan);
  HostTimer timer(*backend, lab.options.now);
  const std::vector<exec::Timing> timings = run_timed(lab, plan, timer, lab.options.steps);
  OpTimes result;
  result.times = op_times_of(lab, plan, timings);
  result.skew = skew_of(lab, timings, result.times);
  result.issue = mean_of_calls(lab, timer.run_op_ns, result.times.size());
  return result;
}

std::vector<std::vector<OpTime>> measure_variants(const Lab& lab) {
  std::vector<std::vector<OpTime>> all;
  for (const schedule::ScheduledProgram& variant : lab.options.variants) {
    const schedule::ScheduledProgram plan = exec::without_communication(variant);
    const std::unique_ptr<exec::Backend> backend = lab.make_backend(plan);
    const exec::RankResult result = run(plan, lab.exchange.rank, *backend,
                                        {.warmup = kWarmup, .steps = lab.options.variant_steps});
    all.push_back(op_times_of(lab, plan, result.timings));
  }
  return all;
}

// Equal numbers for ranks that share a host, on every rank.
std::vector<std::int64_t> hosts_of(const exec::Exchange& exchange) {
  const auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(exchange.clock_id));
  std::vector<std::int64_t> hosts;
  for (const auto& of_rank : share(exchange, std::array{mine})) hosts.push_back(of_rank.front());
  return hosts;
}

// ---- host

Duration launch_gap(const Lab& lab) {
  constexpr std::int64_t kOps = 24;
  constexpr Bytes kLong = mib(256);  // long enough for the host to run ahead
  const schedule::ScheduledProgram plan = chain_plan(lab.ranks, kOps, kLong);
  std::vector<exec::Timing> timings = timings_of(lab, plan);
  std::vector<std::int64_t> gaps;
  for (std::size_t i = 1; i < timings.size(); ++i) {
    if (timings[i].step != timings[i - 1].step) continue;
    gaps.push_back(std::max<std::int64_t>(0, timings[i].start_ns - timings[i - 1].end_ns));
  }
  return median_of(lab, gaps);
}

// The device is idle when a step begins: its first op shows the way from call to start.
Duration measure_latency(const Lab& lab) {
  constexpr std::int64_t kOps = 200;
  constexpr Bytes kShort = kib(4);
  std::vector<std::int64_t> in_a_row;
  for (const exec::Timing& timing : timings_of(lab, chain_plan(lab.ranks, kOps, kShort))) {
    in_a_row.push_back(timing.end_ns - timing.start_ns);
  }
  const Duration alone = median_of(lab, in_a_row);
  const schedule::ScheduledProgram plan = chain_plan(lab.ranks, 1, kShort);
  const std::unique_ptr<exec::Backend> backend = lab.make_backend(plan);
  HostTimer timer(*backend, lab.options.now);
  std::vector<std::int64_t> latencies;
  for (std::int32_t i = 0; i < lab.options.steps; ++i) {
    const std::vector<exec::Timing> timings = run_timed(lab, plan, timer, 1);
    if (timings.empty()) throw DeviceError("the backend gave no timing of an op");
    const std::int64_t issued = timer.issued_ns.at(timings.front().command);
    latencies.push_back(latency_of(timings.front(), issued, alone).count());
  }
  return median_of(lab, latencies);
}

HostCosts measure_host(const Lab& lab, Duration run_op) {
  HostCosts host;
  host.launch_gap = launch_gap(lab);
  if (lab.options.issue == exec::cuda::Issue::Graph) return host;
  host.run_op = run_op;
  host.launch_latency = measure_latency(lab);
  {
    TransferProbe probe = probe_of(lab, mib(1), kQueue);
    probe.mode = schedule::BucketMode::Copy;
    const schedule::ScheduledProgram plan = transfer_plan(probe);
    const std::unique_ptr<exec::Backend> backend = lab.make_backend(plan);
    HostTimer timer(*backend, lab.options.now);
    run_timed(lab, plan, timer, lab.options.steps);
    host.collective = median_of(lab, timer.collective_ns);
    host.event = median_of(lab, timer.event_ns);
    host.copy = median_of(lab, timer.copy_ns);
  }
  return host;
}

// ---- contention

// One step's timings, sorted into ops of the workload and collectives.
struct Overlap {
  std::vector<exec::Timing> ops;
  std::vector<exec::Timing> collectives;
};

// Sums over all steps of what ran beside the other kind.
struct Sums {
  double op_ns = 0, op_alone_ns = 0, collective_ns = 0;
  std::int64_t ops = 0, collectives = 0;
};

void add_overlap(const Overlap& step, const std::map<CommandId, double>& alone_ns, Sums& sums) {
  if (step.ops.empty() || step.collectives.empty()) return;
  std::int64_t queue_start = std::numeric_limits<std::int64_t>::max();
  std::int64_t queue_end = 0;
  for (const exec::Timing& collective : step.collectives) {
    queue_start = std::min(queue_start, collective.start_ns);
    queue_end = std::max(queue_end, collective.end_ns);
  }
  std::int64_t first = queue_end;
  std::int64_t last = queue_start;
  for (const exec::Timing& op : step.ops) {
    if (op.start_ns < queue_start || op.end_ns > queue_end) continue;
    sums.op_ns += static_cast<double>(op.end_ns - op.start_ns);
    sums.op_alone_ns += alone_ns.at(op.command);
    ++sums.ops;
    first = std::min(first, op.start_ns);
    last = std::max(last, op.end_ns);
  }
  for (const exec::Timing& collective : step.collectives) {
    if (collective.start_ns < first || collective.end_ns > last) continue;
    sums.collective_ns += static_cast<double>(collective.end_ns - collective.start_ns);
    ++sums.collectives;
  }
}

Sums over_ranks(const Lab& lab, const Sums& mine) {
  const std::array<std::int64_t, 5> numbers = {
      std::llround(mine.op_ns), std::llround(mine.op_alone_ns), std::llround(mine.collective_ns),
      mine.ops, mine.collectives};
  Sums sums;
  for (const std::vector<std::int64_t>& of_rank : share(lab.exchange, numbers)) {
    sums.op_ns += static_cast<double>(of_rank.at(0));
    sums.op_alone_ns += static_cast<double>(of_rank.at(1));
    sums.collective_ns += static_cast<double>(of_rank.at(2));
    sums.ops += of_rank.at(3);
    sums.collectives += of_rank.at(4);
  }
  return sums;
}

// A size of which several fit beside the computing, and its time in a queue. From shared samples,
// so that it is the same on every rank.
struct Message {
  Bytes bytes;
  double lone_ns = 0;
};
Message message_for(const Lab& lab, double compute_ns) {
  constexpr double kFewestBeside = 8;
  constexpr Bytes kSmallest = kib(64);
  const auto time_of = [&](Bytes bytes) {
    return static_cast<double>(back_to_back(lab, bytes).count());
  };
  Message message = {.bytes = lab.options.contention_bytes, .lone_ns = 0};
  message.lone_ns = time_of(message.bytes);
  const double most = compute_ns / kFewestBeside;
  if (message.lone_ns <= most) return message;
  const double wanted = static_cast<double>(message.bytes.count()) * most / message.lone_ns;
  while (message.bytes > kSmallest && static_cast<double>(message.bytes.count()) > wanted) {
    message.bytes = Bytes(message.bytes.count() / 2);
  }
  message.lone_ns = time_of(message.bytes);
  return message;
}

MutualSlowdown measure_contention(const Lab& lab, const schedule::Program& workload,
                                  const std::vector<OpTime>& ops) {
  std::map<OpId, double> op_ns;
  double compute_ns = 0;
  for (const OpTime& op : ops) {
    op_ns[op.op] = static_cast<double>(op.time.median.count());
    if (workload.op(op.op).phase != schedule::Phase::Optimizer) compute_ns += op_ns[op.op];
  }
  const Message message = message_for(lab, compute_ns);
  const double lone = message.lone_ns;
  const double needed = lone > 0 ? kQueueOverProducts * compute_ns / lone : kLongestQueue;
  const std::int64_t count =
      std::clamp(std::llround(std::min(needed, 1e6)), static_cast<long long>(kShortestQueue),
                 static_cast<long long>(kLongestQueue));
  const schedule::ScheduledProgram plan =
      contention_plan(workload, probe_of(lab, message.bytes, count));
  std::set<CommandId> collectives = commands_of<schedule::Communicate>(lab, plan);
  std::map<CommandId, double> alone_ns;
  for (const auto& [command, op] : ops_by_command(plan)) {
    collectives.erase(command);
    const auto time = op_ns.find(op);
    if (time != op_ns.end()) alone_ns[command] = time->second;
  }
  std::map<std::int32_t, Overlap> steps;
  for (const exec::Timing& timing : timings_of(lab, plan)) {
    if (alone_ns.contains(timing.command)) {
      steps[timing.step].ops.push_back(timing);
    } else if (collectives.contains(timing.command) && timing.stream != schedule::kComputeStream) {
      steps[timing.step].collectives.push_back(timing);
    }
  }
  Sums mine;
  for (const auto& [step, overlap] : steps) add_overlap(overlap, alone_ns, mine);
  const Sums sums = over_ranks(lab, mine);
  MutualSlowdown result = {
      .compute = 1, .collective = 1, .ops = sums.ops, .collectives = sums.collectives};
  if (sums.op_alone_ns > 0) result.compute = sums.op_ns / sums.op_alone_ns;
  if (sums.collectives > 0 && lone > 0) {
    result.collective = sums.collective_ns / static_cast<double>(sums.collectives) / lone;
  }
  return result;
}

}  // namespace

Duration latency_of(const exec::Timing& op, std::int64_t issued_ns, Duration in_a_row) {
  return std::max(Duration{}, Duration(op.end_ns - issued_ns) - in_a_row);
}

std::vector<Bytes> sizes_in_order(Bytes smallest, Bytes largest, std::int64_t growth) {
  std::vector<Bytes> rising;
  for (Bytes bytes = smallest; bytes <= largest; bytes = Bytes(growth * bytes.count())) {
    rising.push_back(bytes);
  }
  std::vector<Bytes> order;
  if (rising.empty()) return order;
  std::vector<bool> taken(rising.size(), false);
  const auto take = [&](std::size_t index) {
    if (!taken[index]) order.push_back(rising[index]);
    taken[index] = true;
  };
  take(0);
  take(rising.size() - 1);
  // The middle of every stretch, then of its halves.
  for (std::size_t parts = 2; order.size() < rising.size(); parts *= 2) {
    for (std::size_t i = 1; i < parts; i += 2) take(i * (rising.size() - 1) / parts);
  }
  return order;
}

GpuCalibration calibrate_gpu(const exec::Exchange& exchange, const MakeBackend& make_backend,
                             const schedule::Program& workload, const CalibrateOptions& options) {
  require_shapes(workload);
  const Lab lab{exchange, make_backend, options, workload.world_size};
  const auto tell = [&](std::string_view what) {
    if (options.progress && exchange.rank == Rank{0}) options.progress(what);
  };
  const std::vector<std::int64_t> hosts = hosts_of(exchange);
  GpuCalibration result;
  result.nodes = static_cast<std::int64_t>(std::set(hosts.begin(), hosts.end()).size());
  tell("ops of the step");
  OpTimes ops = measure_ops(lab, workload);
  result.ops = std::move(ops.times);
  result.skew = ops.skew;
  tell("passes of rewritten forms of the step");
  result.variants = measure_variants(lab);
  tell("host and launches");
  result.host = measure_host(lab, ops.issue);
  tell("copies");
  result.copies = measure_copies(lab);
  result.scales = measure_scales(lab);
  tell("collectives by size");
  result.collectives = measure_collectives(lab);
  if (options.measures_further && exchange.world_size == workload.world_size) {
    tell("smaller groups, halves of all-reduces, sends");
    result.further = measure_further(lab, workload, hosts);
  }
  tell("contention");
  result.contention = measure_contention(lab, workload, result.ops);
  return result;
}

}  // namespace dovetail::calibrate
