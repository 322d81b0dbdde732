// Makes a queue of collectives that suits the workload's own speed, runs both together and apart, and compares.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/contention.h"

#include "base/error.h"
#include "calibrate/lone_starts.h"
#include "calibrate/noise/op_times.h"
#include "calibrate/transfers.h"
#include "calibrate/undisturbed.h"
#include "exec/compute_only.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

constexpr double kQueueOverCompute = 1.6;  // the queue must outlast the computing, slowed down too
constexpr std::int64_t kShortestQueue = 4;
constexpr std::size_t kFewestCalm = 8;  // collectives that met no preemption
constexpr std::size_t kCalmShare = 4;   // of ops a fourth must have met none
constexpr double kFewestSteps = 3;
constexpr double kMostSteps = 500;
// Steps alone, each time: a second of them, within these bounds.
constexpr double kAloneNs = 1e9;
constexpr double kFewestAlone = 4;
constexpr double kMostAlone = 10;
constexpr Bytes kTinyMessage = kib(4);

// Commands of this rank in a contention_plan that run ops of the workload which compute.
std::map<CommandId, OpId> computing(const Lab& lab, const schedule::ScheduledProgram& plan,
                                    const schedule::Program& workload) {
  std::set<OpId> own;
  for (const schedule::Op& op : workload.ops) {
    if (op.phase != schedule::Phase::Optimizer) own.insert(op.id);
  }
  std::map<CommandId, OpId> ops;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    const auto* run = std::get_if<schedule::RunOp>(&command.action);
    if (run != nullptr && own.contains(run->op)) ops[command.id] = run->op;
  }
  return ops;
}

// Steps of forward and backward with nothing beside them.
class Alone {
 public:
  Alone(const Lab& lab, const schedule::Program& workload) : lab_(lab) {
    const TransferProbe probe = {.ranks = lab.ranks, .bytes = kTinyMessage, .count = 1};
    plan_ = exec::only_computing(contention_plan(workload, probe));
    ops_ = computing(lab, plan_, workload);
    if (ops_.empty()) {
      throw InputError("contention is measured on forward and backward ops; " + workload.name +
                       " has none");
    }
  }
  void run(std::int32_t steps) {
    const std::int64_t begin_ns = exec::now_ns();
    // Gradients that nobody reduced are no reason to stop.
    std::vector<exec::Timing> timings = Bench(lab_, plan_).run(lab_.options.warmup, steps).timings;
    for (const exec::Timing& timing :
         testbed::without_preemptions(std::move(timings), record_since(lab_, begin_ns), begin_ns)) {
      const auto op = ops_.find(timing.command);
      if (op != ops_.end()) samples_[op->second].push_back(timing.end_ns - timing.start_ns);
    }
  }
  [[nodiscard]] std::map<OpId, double> medians() const {
    std::map<OpId, double> medians;
    for (const auto& [op, samples] : samples_) {
      medians[op] = static_cast<double>(quantiles_of(samples).median.count());
    }
    return medians;
  }
  // On the slowest rank.
  [[nodiscard]] double step_ns() const {
    double sum = 0;
    for (const auto& [op, ns] : medians()) sum += ns;
    return std::max(1.0, largest(lab_, sum));
  }

 private:
  const Lab& lab_;
  schedule::ScheduledProgram plan_;
  std::map<CommandId, OpId> ops_;
  std::map<OpId, std::vector<std::int64_t>> samples_;
};

// A queue that lasts as long as the computing. From shared samples, so that it is the same on every rank.
struct Queue {
  Bytes bytes;      // of each
  Duration lone{};  // of one, in a queue
  std::int64_t count = 0;
};
std::int64_t longest_queue(const Lab& lab, Bytes bytes) {
  return std::max(kShortestQueue, std::min(lab.options.longest_queue,
                                           lab.options.contention_memory.count() / bytes.count()));
}
// Of so large messages, or of smaller ones of which several fit beside the computing.
Queue queue_for(const Lab& lab, Bytes bytes, double compute_ns) {
  constexpr double kFewestBeside = 8;
  constexpr Bytes kSmallest = kib(64);
  Queue queue = {.bytes = bytes, .lone = back_to_back(lab, bytes)};
  const double most = compute_ns / kFewestBeside;
  const auto lone_ns = [&] { return std::max(1.0, static_cast<double>(queue.lone.count())); };
  if (lone_ns() > most && bytes > kSmallest) {
    const double wanted = static_cast<double>(bytes.count()) * most / lone_ns();
    while (queue.bytes > kSmallest && static_cast<double>(queue.bytes.count()) > wanted) {
      queue.bytes = Bytes(queue.bytes.count() / 2);
    }
    queue.lone = back_to_back(lab, queue.bytes);
  }
  queue.count = static_cast<std::int64_t>(std::clamp(
      std::round(kQueueOverCompute * compute_ns / lone_ns()), static_cast<double>(kShortestQueue),
      static_cast<double>(longest_queue(lab, queue.bytes))));
  return queue;
}

std::set<CommandId> carriers_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  std::set<CommandId> carriers;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    if (schedule::bucket_collective(command) != nullptr) carriers.insert(command.id);
  }
  return carriers;
}

// From the start of either in a step of both: until the last op's end / until the queue's, on the rank where that is
// most.
double ops_over_queue(const Lab& lab, const schedule::Program& workload, const Queue& queue) {
  const schedule::ScheduledProgram plan =
      contention_plan(workload, probe_of(lab, queue.bytes, queue.count));
  const std::map<CommandId, OpId> ops = computing(lab, plan, workload);
  const std::set<CommandId> carriers = carriers_of(lab, plan);
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t ops_end = std::numeric_limits<std::int64_t>::min();
  std::int64_t queue_end = std::numeric_limits<std::int64_t>::min();
  for (const exec::Timing& timing : Bench(lab, plan).run(lab.options.warmup, 1).timings) {
    const bool is_op = ops.contains(timing.command);
    const bool is_queued =
        timing.stream != schedule::kComputeStream && carriers.contains(timing.command);
    if (!is_op && !is_queued) continue;
    begin = std::min(begin, timing.start_ns);
    std::int64_t& end = is_op ? ops_end : queue_end;
    end = std::max(end, timing.end_ns);
  }
  constexpr double kMillion = 1e6;
  const auto share = static_cast<double>(ops_end - begin) /
                     static_cast<double>(std::max<std::int64_t>(1, queue_end - begin));
  return largest(lab, share * kMillion) / kMillion;
}

// What was sized by the sum of the ops alone may end before they do: beside it they take longer, and as a graph their
// step has nodes between them that an eager one has not. Not on processors, where a step is long, and enough of it ran
// side by side in every calibration.
Queue outlasting(const Lab& lab, const schedule::Program& workload, Queue queue) {
  constexpr int kTries = 3;
  constexpr double kReserve = 1.2;
  if (lab.options.backend == models::BackendKind::Cpu) return queue;
  for (int i = 0; i < kTries && queue.count < longest_queue(lab, queue.bytes); ++i) {
    const double needed = ops_over_queue(lab, workload, queue);
    if (needed <= 1) break;
    const auto wanted =
        static_cast<std::int64_t>(std::ceil(kReserve * needed * static_cast<double>(queue.count)));
    queue.count = std::min(wanted, longest_queue(lab, queue.bytes));
  }
  return queue;
}

std::vector<exec::Timing> calm_ones(const std::vector<exec::Timing>& timings,
                                    const Preemptions& met) {
  std::vector<exec::Timing> calm;
  for (const exec::Timing& timing : timings) {
    if (within(met.restless, met.begin_ns, timing.start_ns, timing.end_ns) == Duration{}) {
      calm.push_back(timing);
    }
  }
  return calm;
}

// Collectives without the time in which a preemption of any rank stopped them. Without a known shield they
// stay as they are.
std::vector<exec::Timing> without_silences(std::vector<exec::Timing> queue,
                                           const Preemptions& met) {
  for (const traces::CoreRecord& silent : met.silences) {
    for (exec::Timing& timing : queue) {
      timing.end_ns -= within(silent, met.begin_ns, timing.start_ns, timing.end_ns).count();
    }
  }
  return queue;
}

// What ran beside the queue, as it would on a machine that is all there: what met no preemption of any rank, nor what
// was caught up after it. Where too little is left, all of it, without what preemptions took.
struct Timings {
  std::vector<exec::Timing> ops, collectives;
};
Timings without_disturbances(const Timings& all, const Preemptions& met,
                             const traces::CoreRecord& record, std::int64_t begin_ns) {
  Timings calm = {.ops = calm_ones(all.ops, met), .collectives = calm_ones(all.collectives, met)};
  const bool is_enough =
      calm.ops.size() >= all.ops.size() / kCalmShare &&
      (calm.collectives.size() >= kFewestCalm || calm.collectives.size() == all.collectives.size());
  if (is_enough) return calm;
  return {.ops = testbed::without_preemptions(all.ops, record, begin_ns),
          .collectives = without_silences(all.collectives, met)};
}

// Its own queues only: steps stand apart.
double busy_ns(const std::vector<exec::Timing>& collectives) {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> steps;
  for (const exec::Timing& timing : collectives) {
    const auto [step, is_new] = steps.try_emplace(timing.step, timing.start_ns, timing.end_ns);
    step->second.first = std::min(step->second.first, timing.start_ns);
    step->second.second = std::max(step->second.second, timing.end_ns);
  }
  double busy = 0;
  for (const auto& [step, ends] : steps) busy += static_cast<double>(ends.second - ends.first);
  return busy;
}

Duration spent(const Lab& lab) {
  return lab.options.transfer_cpu ? lab.options.transfer_cpu() : Duration{};
}

// One rank's sums, and its thread's share.
struct Seen {
  Beside beside;
  double cpu_share = 0;
};

Seen run_beside(const Lab& lab, const schedule::Program& workload, const Queue& queue,
                Alone& alone) {
  const double step_ns = alone.step_ns();
  // A short step may stand beside a queue that is much longer.
  const double queue_ns = static_cast<double>(queue.lone.count() * queue.count) / kQueueOverCompute;
  const auto wanted_ns = static_cast<double>(lab.options.contention_time.count());
  const auto steps = static_cast<std::int32_t>(
      std::clamp(std::ceil(wanted_ns / std::max(step_ns, queue_ns)), kFewestSteps, kMostSteps));
  const auto alone_steps = static_cast<std::int32_t>(
      std::clamp(std::ceil(kAloneNs / step_ns), kFewestAlone, kMostAlone));
  const schedule::ScheduledProgram plan =
      contention_plan(workload, probe_of(lab, queue.bytes, queue.count));
  const std::map<CommandId, OpId> ops = computing(lab, plan, workload);
  const std::set<CommandId> carriers = carriers_of(lab, plan);
  lab.exchange.barrier();
  const std::int64_t begin_ns = exec::now_ns();
  Timings all;
  Seen seen;
  {
    Bench bench(lab, plan);
    bench.run(lab.options.warmup, 1);
    const Duration cpu_before = spent(lab);
    for (const exec::Timing& timing : bench.run(0, steps).timings) {
      if (ops.contains(timing.command)) all.ops.push_back(timing);
      const bool is_queued = timing.stream != schedule::kComputeStream;
      if (is_queued && carriers.contains(timing.command)) all.collectives.push_back(timing);
    }
    const double busy = busy_ns(all.collectives);
    if (busy > 0) {
      seen.cpu_share = static_cast<double>((spent(lab) - cpu_before).count()) / busy;
    }
  }
  const traces::CoreRecord record = record_since(lab, begin_ns);
  const Preemptions met = preemptions_since(lab, begin_ns);
  alone.run(alone_steps);
  const std::map<OpId, double> alone_ns = alone.medians();
  std::map<CommandId, double> by_command;
  std::map<CommandId, models::KernelClass> kernels;
  for (const auto& [command, op] : ops) {
    by_command[command] = alone_ns.at(op);
    kernels[command] = models::kernel_class(plan.program.op(op));
  }
  const Timings kept = without_disturbances(all, met, record, begin_ns);
  std::map<std::int32_t, Overlap> overlaps;
  for (const exec::Timing& timing : kept.ops) overlaps[timing.step].ops.push_back(timing);
  for (const exec::Timing& timing : kept.collectives) {
    overlaps[timing.step].collectives.push_back(timing);
  }
  for (const auto& [step, overlap] : overlaps) seen.beside.add(overlap, by_command, kernels);
  return seen;
}

MeasuredContention over_ranks(const Lab& lab, const Seen& mine, Duration lone) {
  constexpr double kMillion = 1e6;
  const models::Contention found = mine.beside.contention(lone);
  const auto whole = [](double ns) { return static_cast<std::int64_t>(std::llround(ns)); };
  const Beside::OfClass& gemm = mine.beside.gemm;
  const Beside::OfClass& memory = mine.beside.memory;
  const std::array<std::int64_t, 12> numbers = {std::llround(found.compute_slowdown * kMillion),
                                                std::llround(found.collective_slowdown * kMillion),
                                                found.collective_cpu.count(),
                                                mine.beside.ops,
                                                mine.beside.collectives,
                                                std::llround(mine.cpu_share * kMillion),
                                                whole(gemm.op_ns),
                                                whole(gemm.alone_ns),
                                                gemm.ops,
                                                whole(memory.op_ns),
                                                whole(memory.alone_ns),
                                                memory.ops};
  MeasuredContention all = {.contention = {.compute_slowdown = 0, .collective_slowdown = 0}};
  const std::vector<std::vector<std::int64_t>> ranks = share(lab.exchange, numbers);
  const auto count = static_cast<std::int64_t>(ranks.size());
  Beside by_class;
  const auto join = [](Beside::OfClass& sum, std::span<const std::int64_t> more) {
    sum.op_ns += static_cast<double>(more[0]);
    sum.alone_ns += static_cast<double>(more[1]);
    sum.ops += more[2];
  };
  for (const std::vector<std::int64_t>& of_rank : ranks) {
    const double part = kMillion * static_cast<double>(count);
    all.contention.compute_slowdown += static_cast<double>(of_rank.at(0)) / part;
    all.contention.collective_slowdown += static_cast<double>(of_rank.at(1)) / part;
    all.contention.collective_cpu += Duration(of_rank.at(2) / count);
    all.ops += of_rank.at(3);
    all.collectives += of_rank.at(4);
    all.transfer_cpu_share =
        std::max(all.transfer_cpu_share, static_cast<double>(of_rank.at(5)) / kMillion);
    join(by_class.gemm, std::span(of_rank).subspan(6, 3));
    join(by_class.memory, std::span(of_rank).subspan(9, 3));
  }
  all.contention.gemm_slowdown = by_class.gemm.slowdown();
  all.contention.memory_slowdown = by_class.memory.slowdown();
  return all;
}

}  // namespace

std::optional<double> Beside::OfClass::slowdown() const {
  constexpr std::int64_t kFewestOps = 10;
  if (ops < kFewestOps || alone_ns <= 0) return std::nullopt;
  return std::max(1.0, op_ns / alone_ns);
}

void Beside::add(const Overlap& step, const std::map<CommandId, double>& alone_ns,
                 const std::map<CommandId, models::KernelClass>& kernels) {
  if (step.ops.empty() || step.collectives.empty()) return;
  std::int64_t queue_start = std::numeric_limits<std::int64_t>::max();
  std::int64_t queue_end = std::numeric_limits<std::int64_t>::min();
  for (const exec::Timing& collective : step.collectives) {
    queue_start = std::min(queue_start, collective.start_ns);
    queue_end = std::max(queue_end, collective.end_ns);
  }
  std::int64_t first = queue_end;
  std::int64_t last = queue_start;
  for (const exec::Timing& op : step.ops) {
    if (op.start_ns < queue_start || op.end_ns > queue_end) continue;
    const auto time = static_cast<double>(op.end_ns - op.start_ns);
    op_ns += time;
    op_alone_ns += alone_ns.at(op.command);
    ++ops;
    const auto kernel = kernels.find(op.command);
    const bool is_known = kernel != kernels.end() && kernel->second != models::KernelClass::Other;
    if (is_known) {
      OfClass& same = kernel->second == models::KernelClass::Gemm ? gemm : memory;
      same.op_ns += time;
      same.alone_ns += alone_ns.at(op.command);
      ++same.ops;
    }
    first = std::min(first, op.start_ns);
    last = std::max(last, op.end_ns);
  }
  for (const exec::Timing& collective : step.collectives) {
    if (collective.start_ns < first || collective.end_ns > last) continue;
    collective_ns += static_cast<double>(collective.end_ns - collective.start_ns);
    ++collectives;
  }
}

models::Contention Beside::contention(Duration lone) const {
  models::Contention found;
  if (collectives == 0 || op_alone_ns <= 0) return found;
  const auto count = static_cast<double>(collectives);
  found.compute_slowdown = op_ns / op_alone_ns;
  found.collective_cpu = Duration(std::llround((op_ns - op_alone_ns) / count));
  const auto lone_ns = static_cast<double>(lone.count());
  if (lone_ns > 0) found.collective_slowdown = collective_ns / count / lone_ns;
  return found;
}

MeasuredContention measure_contention(const Lab& lab, const schedule::Program& workload) {
  Alone alone(lab, workload);
  alone.run(static_cast<std::int32_t>(kFewestAlone));
  const Queue large =
      outlasting(lab, workload, queue_for(lab, lab.options.contention_bytes, alone.step_ns()));
  MeasuredContention found = over_ranks(lab, run_beside(lab, workload, large, alone), large.lone);
  Duration cpu{};
  if (lab.options.backend == models::BackendKind::Cpu) {
    const Queue tiny = queue_for(lab, kTinyMessage, alone.step_ns());
    cpu = over_ranks(lab, run_beside(lab, workload, tiny, alone), tiny.lone)
              .contention.collective_cpu;
    // A short op beside a queue loses the processor for longer than it lasts: its class says nothing.
    found.contention.gemm_slowdown = found.contention.memory_slowdown = std::nullopt;
  }
  models::Contention& rates = found.contention;
  rates.compute_slowdown = std::max(1.0, rates.compute_slowdown);
  rates.collective_slowdown = std::max(1.0, rates.collective_slowdown);
  rates.collective_cpu = std::max(Duration{}, cpu);
  const LoneStarts lone = measure_lone_starts(lab, workload, alone.medians(), large.bytes);
  rates.start_delay = lone.start_delay;
  rates.collective_gemm_slowdown = lone.beside_gemm;
  rates.collective_memory_slowdown = lone.beside_memory;
  return found;
}

}  // namespace dovetail::calibrate
