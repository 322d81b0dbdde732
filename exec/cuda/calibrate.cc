// Executing the probes and reading their timings.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calibrate.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/cuda/calibrate_probes.h"
#include "exec/cuda/host_timer.h"
#include "exec/run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

using calibrate::CollectiveTimes;
using calibrate::CopyTime;
using calibrate::OpTime;
using calibrate::Spread;
using calibrate::spread_of;

constexpr std::int32_t kWarmup = 2;
constexpr std::int64_t kQueue = 8;
constexpr double kQueueOverCompute = 1.3;  // the queue should outlast the slowed-down computing
constexpr std::int64_t kFewestCollectives = 4;
constexpr std::int64_t kMostCollectives = 256;

// What all measurements share.
struct Lab {
  const Exchange& exchange;
  const MakeBackend& make_backend;
  const CalibrateOptions& options;
  std::int64_t ranks = 1;  // of the plans
};

std::vector<Timing> timings_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  const std::unique_ptr<Backend> backend = lab.make_backend(plan);
  return run(plan, lab.exchange.rank, *backend, {.warmup = kWarmup, .steps = lab.options.steps})
      .timings;
}

std::vector<std::int64_t> pooled(const Lab& lab, const std::vector<std::int64_t>& mine) {
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& of_rank : share(lab.exchange, mine)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

// This rank's commands of one kind.
template <class Action>
std::set<CommandId> commands_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  std::set<CommandId> ids;
  for (const schedule::Command& command : role_of(plan, lab.exchange.rank).commands) {
    if (std::holds_alternative<Action>(command.action)) ids.insert(command.id);
  }
  return ids;
}

// 0 where there is no sample.
Duration median_of(const Lab& lab, const std::vector<std::int64_t>& mine) {
  std::vector<std::int64_t> all = pooled(lab, mine);
  return all.empty() ? Duration{} : spread_of(std::move(all)).median;
}

void require_shapes(const schedule::Program& workload) {
  for (const schedule::Op& op : workload.ops) {
    if (!std::holds_alternative<schedule::TimedWork>(op.work)) continue;
    throw InputError(
        "op " + op.name + " of " + workload.name +
        " is known by its time only; a GPU is calibrated with a workload that has shapes");
  }
}

// ---- ops

// Runs the plan and leaves the calls' times in `timer`; returns the timings.
std::vector<Timing> run_timed(const Lab& lab, const schedule::ScheduledProgram& plan,
                              HostTimer& timer, std::int32_t steps) {
  run(plan, lab.exchange.rank, timer, {.warmup = kWarmup, .steps = 1});
  timer.clear();
  return run(plan, lab.exchange.rank, timer, {.warmup = 0, .steps = steps}).timings;
}

// The median of each call of a step over the steps, and the mean of those; over the ranks too.
Duration mean_of_calls(const Lab& lab, const std::vector<std::int64_t>& samples_ns,
                       std::size_t calls) {
  if (calls == 0) return {};
  std::int64_t sum = 0;
  for (std::size_t call = 0; call < calls; ++call) {
    std::vector<std::int64_t> of_call;
    for (std::size_t i = call; i < samples_ns.size(); i += calls) of_call.push_back(samples_ns[i]);
    if (!of_call.empty()) sum += spread_of(std::move(of_call)).median.count();
  }
  return median_of(lab, {sum / static_cast<std::int64_t>(calls)});
}

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
      const auto* action = std::get_if<schedule::RunOp>(&command.action);
      if (action != nullptr) ops[command.id] = action->op;
    }
  }
  return ops;
}

// And what issuing one of them costs the host, on average over the ops: one may be several launches.
struct OpTimes {
  std::vector<OpTime> times;
  Duration issue{};
};
OpTimes measure_ops(const Lab& lab, const schedule::Program& workload) {
  const schedule::ScheduledProgram plan = ops_plan(lab, workload);
  const std::map<CommandId, OpId> ops = ops_by_command(plan);
  const std::unique_ptr<Backend> backend = lab.make_backend(plan);
  HostTimer timer(*backend);
  std::map<OpId, std::vector<std::int64_t>> samples;
  for (const Timing& timing : run_timed(lab, plan, timer, lab.options.steps)) {
    samples[ops.at(timing.command)].push_back(timing.end_ns - timing.start_ns);
  }
  OpTimes result;
  result.issue = mean_of_calls(lab, timer.run_op_ns, ops.size());
  std::vector<OpTime>& times = result.times;
  for (const schedule::RankProgram& role : plan.roles) {
    for (const schedule::Command& command : role.commands) {
      const OpId op = ops.at(command.id);
      std::vector<std::int64_t> all = pooled(lab, samples[op]);
      if (all.empty())
        throw DeviceError("the backend gave no timing of op " + plan.program.op(op).name);
      times.push_back({.op = op, .time = spread_of(std::move(all)), .by_rank = {}});
    }
  }
  return result;
}

// ---- transfers

// Of each step of a queue of equal collectives: how long the first one took, which had nothing
// before it, and how long all of them took.
struct QueueTimes {
  std::vector<std::int64_t> first_ns, all_ns;
};

// What one rank saw of one step.
struct QueueSeen {
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_end = 0;
  std::int64_t end = 0;
};

std::vector<QueueSeen> see_queue(const Lab& lab, const schedule::ScheduledProgram& plan) {
  const std::set<CommandId> collectives = commands_of<schedule::RunCollective>(lab, plan);
  std::vector<QueueSeen> steps(static_cast<std::size_t>(lab.options.steps));
  for (const Timing& timing : timings_of(lab, plan)) {
    // Not the time that issuing took on the compute stream, which some backends report too.
    if (!collectives.contains(timing.command) || timing.stream == schedule::kComputeStream) {
      continue;
    }
    QueueSeen& seen = steps.at(static_cast<std::size_t>(timing.step));
    if (timing.start_ns < seen.start) {
      seen.start = timing.start_ns;
      seen.first_end = timing.end_ns;
    }
    seen.end = std::max(seen.end, timing.end_ns);
  }
  return steps;
}

// A collective lasts as long as on its last arrival, which waits for nobody: the shortest of the
// ranks' own durations. So no rank's clock is held against another's.
QueueTimes queue_times(const Lab& lab, const TransferProbe& probe) {
  const schedule::ScheduledProgram plan = transfer_plan(probe);
  std::vector<std::int64_t> mine;
  for (const QueueSeen& seen : see_queue(lab, plan)) {
    if (seen.start > seen.end) throw DeviceError("the backend gave no timing of a collective");
    mine.insert(mine.end(), {seen.first_end - seen.start, seen.end - seen.start});
  }
  const std::vector<std::vector<std::int64_t>> all = share(lab.exchange, mine);
  QueueTimes times;
  for (std::size_t i = 0; i < mine.size(); i += 2) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::int64_t whole = first;
    for (const std::vector<std::int64_t>& of_rank : all) {
      first = std::min(first, of_rank.at(i));
      whole = std::min(whole, of_rank.at(i + 1));
    }
    times.first_ns.push_back(first);
    times.all_ns.push_back(whole);
  }
  return times;
}

TransferProbe probe_of(const Lab& lab, Bytes bytes, std::int64_t count) {
  return {.ranks = lab.ranks, .bytes = bytes, .count = count, .max_ctas = lab.options.max_ctas};
}

Duration back_to_back(const Lab& lab, Bytes bytes) {
  return spread_of(queue_times(lab, probe_of(lab, bytes, kQueue)).all_ns).median / kQueue;
}

std::vector<CollectiveTimes> measure_collectives(const Lab& lab) {
  const std::int64_t end = now_ns() + lab.options.budget.count();
  std::vector<CollectiveTimes> times;
  for (const Bytes bytes : sizes_in_order(lab.options.smallest, lab.options.largest)) {
    const QueueTimes queue = queue_times(lab, probe_of(lab, bytes, kQueue));
    times.push_back({.bytes = bytes,
                     .isolated = spread_of(queue.first_ns),
                     .back_to_back = spread_of(queue.all_ns).median / kQueue});
    // Rank 0's clock decides for all; a table needs two points.
    const bool late = now_ns() > end && times.size() >= 2;
    if (rank_0_says(lab.exchange, late ? 1 : 0) != 0) break;
  }
  std::ranges::sort(times, {}, &CollectiveTimes::bytes);
  return times;
}

// ---- copies

Duration copy_time(const Lab& lab, Bytes bytes) {
  TransferProbe probe = probe_of(lab, bytes, 1);
  probe.mode = schedule::BucketMode::Copy;
  const schedule::ScheduledProgram plan = transfer_plan(probe);
  const std::set<CommandId> copies = commands_of<schedule::Copy>(lab, plan);
  std::vector<std::int64_t> samples;
  for (const Timing& timing : timings_of(lab, plan)) {
    if (copies.contains(timing.command)) samples.push_back(timing.end_ns - timing.start_ns);
  }
  return median_of(lab, samples);
}

CopyTime measure_copies(const Lab& lab) {
  constexpr Bytes kSmall = kib(64);
  constexpr Bytes kLarge = mib(64);
  const auto small = static_cast<double>(copy_time(lab, kSmall).count());
  const auto large = static_cast<double>(copy_time(lab, kLarge).count());
  CopyTime time;
  time.ns_per_byte =
      std::max(0.0, (large - small) / static_cast<double>(kLarge.count() - kSmall.count()));
  const double fixed = small - time.ns_per_byte * static_cast<double>(kSmall.count());
  time.fixed = Duration(std::llround(std::max(0.0, fixed)));
  return time;
}

// ---- host

Duration launch_gap(const Lab& lab) {
  constexpr std::int64_t kOps = 24;
  constexpr Bytes kLong = mib(256);  // long enough for the host to run ahead
  const schedule::ScheduledProgram plan = chain_plan(lab.ranks, kOps, kLong);
  std::vector<Timing> timings = timings_of(lab, plan);
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
  for (const Timing& timing : timings_of(lab, chain_plan(lab.ranks, kOps, kShort))) {
    in_a_row.push_back(timing.end_ns - timing.start_ns);
  }
  const Duration alone = median_of(lab, in_a_row);
  const schedule::ScheduledProgram plan = chain_plan(lab.ranks, 1, kShort);
  const std::unique_ptr<Backend> backend = lab.make_backend(plan);
  HostTimer timer(*backend);
  std::vector<std::int64_t> latencies;
  for (std::int32_t i = 0; i < lab.options.steps; ++i) {
    const std::vector<Timing> timings = run_timed(lab, plan, timer, 1);
    if (timings.empty()) throw DeviceError("the backend gave no timing of an op");
    const std::int64_t issued = timer.issued_ns.at(timings.front().command);
    latencies.push_back(latency_of(timings.front(), issued, alone).count());
  }
  return median_of(lab, latencies);
}

HostCosts measure_host(const Lab& lab, Duration run_op) {
  HostCosts host;
  host.launch_gap = launch_gap(lab);
  if (lab.options.issue == Issue::Graph) return host;
  host.run_op = run_op;
  host.launch_latency = measure_latency(lab);
  {
    TransferProbe probe = probe_of(lab, mib(1), kQueue);
    probe.mode = schedule::BucketMode::Copy;
    const schedule::ScheduledProgram plan = transfer_plan(probe);
    const std::unique_ptr<Backend> backend = lab.make_backend(plan);
    HostTimer timer(*backend);
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
  std::vector<Timing> ops;
  std::vector<Timing> collectives;
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
  for (const Timing& collective : step.collectives) {
    queue_start = std::min(queue_start, collective.start_ns);
    queue_end = std::max(queue_end, collective.end_ns);
  }
  std::int64_t first = queue_end;
  std::int64_t last = queue_start;
  for (const Timing& op : step.ops) {
    if (op.start_ns < queue_start || op.end_ns > queue_end) continue;
    sums.op_ns += static_cast<double>(op.end_ns - op.start_ns);
    sums.op_alone_ns += alone_ns.at(op.command);
    ++sums.ops;
    first = std::min(first, op.start_ns);
    last = std::max(last, op.end_ns);
  }
  for (const Timing& collective : step.collectives) {
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
  const double needed = lone > 0 ? kQueueOverCompute * compute_ns / lone : kMostCollectives;
  const std::int64_t count =
      std::clamp(std::llround(std::min(needed, 1e6)), static_cast<long long>(kFewestCollectives),
                 static_cast<long long>(kMostCollectives));
  const schedule::ScheduledProgram plan =
      contention_plan(workload, probe_of(lab, message.bytes, count));
  const std::set<CommandId> collectives = commands_of<schedule::RunCollective>(lab, plan);
  std::map<CommandId, double> alone_ns;
  for (const auto& [command, op] : ops_by_command(plan)) {
    const auto time = op_ns.find(op);
    if (time != op_ns.end()) alone_ns[command] = time->second;
  }
  std::map<std::int32_t, Overlap> steps;
  for (const Timing& timing : timings_of(lab, plan)) {
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

Duration latency_of(const Timing& op, std::int64_t issued_ns, Duration in_a_row) {
  return std::max(Duration{}, Duration(op.end_ns - issued_ns) - in_a_row);
}

std::vector<Bytes> sizes_in_order(Bytes smallest, Bytes largest) {
  std::vector<Bytes> rising;
  for (Bytes bytes = smallest; bytes <= largest; bytes = Bytes(2 * bytes.count())) {
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

GpuCalibration calibrate_gpu(const Exchange& exchange, const MakeBackend& make_backend,
                             const schedule::Program& workload, const CalibrateOptions& options) {
  require_shapes(workload);
  const Lab lab{exchange, make_backend, options, workload.world_size};
  const auto tell = [&](std::string_view what) {
    if (options.progress && exchange.rank == Rank{0}) options.progress(what);
  };
  GpuCalibration result;
  tell("ops of the step");
  OpTimes ops = measure_ops(lab, workload);
  result.ops = std::move(ops.times);
  tell("host and launches");
  result.host = measure_host(lab, ops.issue);
  tell("copies");
  result.copies = measure_copies(lab);
  tell("collectives by size");
  result.collectives = measure_collectives(lab);
  tell("contention");
  result.contention = measure_contention(lab, workload, result.ops);
  return result;
}

}  // namespace dovetail::exec::cuda
