// Times queues of equal transfers, size by size, and passes over buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/transfers.h"

#include "base/error.h"
#include "calibrate/undisturbed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

using schedule::Collective;

constexpr std::int64_t kLongestQueue = 8;
constexpr std::int32_t kFewestRepetitions = 3;

// This rank's commands that carry transfers of the kind out.
std::set<CommandId> carriers(const Lab& lab, const schedule::ScheduledProgram& plan,
                             Collective kind) {
  std::set<CommandId> ids;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    if (command.transfer && plan.transfer(command).kind == kind) ids.insert(command.id);
  }
  return ids;
}

// The ranks of each instance of the plan's probe group that exist: with a stand-in only this one does.
std::vector<std::vector<std::size_t>> instances_of(const schedule::ScheduledProgram& plan,
                                                   std::size_t existing) {
  const schedule::ProcessGroup& group = plan.program.groups.back();
  std::vector<std::vector<std::size_t>> instances;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    if (i % static_cast<std::size_t>(group.size()) == 0) instances.emplace_back();
    const auto rank = static_cast<std::size_t>(group.ranks[i].value);
    if (rank < existing) instances.back().push_back(rank);
  }
  std::erase_if(instances, [](const auto& instance) { return instance.empty(); });
  return instances;
}

// Of each step of a queue the start of its first call and the ends of all, one behind the other; as many on every
// rank that takes part.
std::vector<std::int64_t> queues_of(const std::vector<exec::Timing>& timings,
                                    const std::set<CommandId>& commands) {
  std::map<std::int32_t, std::vector<exec::Timing>> steps;
  for (const exec::Timing& timing : timings) {
    // Not the time that issuing took on the compute stream, which some backends report too.
    if (!commands.contains(timing.command) || timing.stream == schedule::kComputeStream) continue;
    steps[timing.step].push_back(timing);
  }
  std::vector<std::int64_t> readings;
  for (auto& [step, queue] : steps) {
    if (queue.size() != commands.size()) {
      throw DeviceError("the backend gave no timing of a collective");
    }
    std::ranges::sort(queue, {}, &exec::Timing::start_ns);
    readings.push_back(queue.front().start_ns);
    for (const exec::Timing& call : queue) readings.push_back(call.end_ns);
  }
  return readings;
}

// Whether readings of different ranks may be compared to the last nanosecond: the host's own clock, on one host.
bool share_a_clock(const Lab& lab) {
  const std::vector<std::int64_t> hosts = hosts_of(lab.exchange);
  return lab.options.backend == models::BackendKind::Cpu &&
         std::ranges::all_of(hosts, [&](std::int64_t host) { return host == hosts.front(); });
}

Repetition repetition_of(std::span<const std::vector<std::int64_t>* const> ranks, std::size_t first,
                         std::size_t calls, bool one_clock) {
  Repetition repetition;
  for (const std::vector<std::int64_t>* of_rank : ranks) {
    repetition.arrived_ns = std::max(repetition.arrived_ns, of_rank->at(first));
  }
  for (std::size_t call = 1; call <= calls; ++call) {
    std::int64_t done = one_clock ? std::numeric_limits<std::int64_t>::min()
                                  : std::numeric_limits<std::int64_t>::max();
    for (const std::vector<std::int64_t>* of_rank : ranks) {
      const std::int64_t end = of_rank->at(first + call);
      done = one_clock ? std::max(done, end)
                       : std::min(done, end - of_rank->at(first) + repetition.arrived_ns);
    }
    repetition.done_ns.push_back(done);
  }
  return repetition;
}

// What a queue of transfers of one kind took. Groups that meet side by side are taken together.
models::CollectivePoint point_of(const Lab& lab, const schedule::ScheduledProgram& plan,
                                 const std::vector<exec::Timing>& timings,
                                 const Preemptions& preemptions, Collective kind) {
  const std::set<CommandId> commands = carriers(lab, plan, kind);
  const auto all = share(lab.exchange, queues_of(timings, commands));
  const auto calls = static_cast<std::size_t>(
      rank_0_says(lab.exchange, static_cast<std::int64_t>(commands.size())));
  const bool one_clock = share_a_clock(lab);
  std::vector<Sample> alone;
  std::vector<Sample> queued;
  for (const std::vector<std::size_t>& instance : instances_of(plan, all.size())) {
    std::vector<const std::vector<std::int64_t>*> ranks;
    for (const std::size_t rank : instance) ranks.push_back(&all.at(rank));
    for (std::size_t i = 0; i + calls < ranks.front()->size(); i += calls + 1) {
      Repetition repetition = repetition_of(ranks, i, calls, one_clock);
      queued.push_back(sample_of(repetition, preemptions));
      repetition.done_ns.resize(1);
      alone.push_back(sample_of(repetition, preemptions));
    }
  }
  const Quantiles isolated = quantiles_of(undisturbed(alone));
  return {
      .bytes = plan.transfers.front().bytes,
      .isolated = isolated.median,
      .back_to_back = quantiles_of(undisturbed(queued)).median / static_cast<std::int64_t>(calls),
      .p10 = isolated.p10,
      .p90 = isolated.p90};
}

schedule::ScheduledProgram plan_of(Collective kind, const TransferProbe& probe) {
  if (kind == Collective::AllReduce) return transfer_plan(probe);
  return kind == Collective::ReduceScatter ? halves_plan(probe) : messages_plan(kind, probe);
}

// A reduce-scatter's plan has its all-gathers too.
std::vector<Collective> kinds_in(Collective kind) {
  if (kind == Collective::ReduceScatter) return {kind, Collective::AllGather};
  return {kind};
}

// Of the kinds that the plan carries.
std::vector<models::CollectivePoint> measure_plan(const Lab& lab,
                                                  const schedule::ScheduledProgram& plan,
                                                  const std::vector<Collective>& kinds,
                                                  std::int32_t steps) {
  lab.exchange.barrier();
  const std::int64_t begin_ns = exec::now_ns();
  const std::vector<exec::Timing> timings = timings_of(lab, plan, steps);
  const Preemptions preemptions = preemptions_since(lab, begin_ns);
  std::vector<models::CollectivePoint> points;
  for (const Collective kind : kinds) {
    points.push_back(point_of(lab, plan, timings, preemptions, kind));
  }
  return points;
}

// One that rests before it is alone only if nothing is enqueued behind it meanwhile, on the same core, and if nothing
// before it has used up the link's credit.
models::CollectivePoint measure_rested(const Lab& lab, Collective kind, TransferProbe probe,
                                       std::int32_t steps) {
  const auto measure = [&](std::int32_t times) {
    const bool gathers = kind == Collective::AllGather;
    const auto plan = gathers ? messages_plan(kind, probe) : plan_of(kind, probe);
    return measure_plan(lab, plan, {kind}, times).front();
  };
  const models::CollectivePoint queued = measure(kFewestRepetitions);
  probe.count = 1;
  models::CollectivePoint point = measure(steps);
  point.back_to_back = queued.back_to_back;
  return point;
}

// One per kind.
std::vector<models::CollectivePoint> measure_size(const Lab& lab, Collective kind,
                                                  const TransferProbe& probe, std::int32_t steps) {
  if (lab.options.pause == Duration{}) {
    return measure_plan(lab, plan_of(kind, probe), kinds_in(kind), steps);
  }
  std::vector<models::CollectivePoint> points;
  for (const Collective one : kinds_in(kind)) {
    points.push_back(measure_rested(lab, one, probe, steps));
  }
  return points;
}

struct Sizes {
  Bytes smallest, largest;
  std::int64_t growth = 2;
  Duration budget{};
};

// How often the next size is measured, on every rank; 0: not at all.
std::int32_t steps_for(const Lab& lab, const Sizes& sizes, Duration left, Duration one_step) {
  const double octaves = std::log(static_cast<double>(sizes.largest.count()) /
                                  static_cast<double>(sizes.smallest.count())) /
                         std::log(static_cast<double>(sizes.growth));
  const Duration share_of_size = sizes.budget / (1 + static_cast<std::int64_t>(octaves));
  const std::int64_t one = std::max<std::int64_t>(1, one_step.count());
  const std::int64_t most = std::max(kFewestRepetitions, lab.options.transfer_steps);
  const std::int64_t wanted =
      std::clamp<std::int64_t>(share_of_size.count() / one, kFewestRepetitions, most);
  const std::int64_t needed = (kFewestRepetitions + lab.options.warmup) * one;
  return static_cast<std::int32_t>(rank_0_says(lab.exchange, needed <= left.count() ? wanted : 0));
}

// By kind as in kinds_in; sizes of each rise.
std::vector<std::vector<models::CollectivePoint>> measure_sizes(const Lab& lab, Collective kind,
                                                                const ProbeGroup& group,
                                                                const Sizes& sizes) {
  std::vector<std::vector<models::CollectivePoint>> series(kinds_in(kind).size());
  const std::int64_t end = lab.options.now() + sizes.budget.count();
  Duration guess = std::chrono::milliseconds(1);  // of a step
  for (Bytes bytes = sizes.smallest; bytes <= sizes.largest; bytes = bytes * sizes.growth) {
    const std::int64_t begin = lab.options.now();
    std::int32_t steps = steps_for(lab, sizes, Duration(end - begin), guess);
    if (steps == 0 && series.front().size() >= 2) break;
    steps = std::max(steps, kFewestRepetitions);
    TransferProbe probe = probe_of(lab, bytes, queue_of(lab, bytes));
    probe.group = group;
    const std::vector<models::CollectivePoint> points = measure_size(lab, kind, probe, steps);
    const bool is_new = series.front().empty() || series.front().back().bytes < points[0].bytes;
    for (std::size_t i = 0; i < points.size() && is_new; ++i) series[i].push_back(points[i]);
    // The next size takes at most about as many times as long, in a queue that may be shorter.
    const std::int64_t calls = 1 + queue_of(lab, bytes);
    const std::int64_t next_calls = 1 + queue_of(lab, bytes * sizes.growth);
    guess = Duration(lab.options.now() - begin) / (steps + lab.options.warmup) * sizes.growth *
            next_calls / calls;
  }
  return series;
}

// Hosts that the first instance of the group touches.
std::int64_t nodes_of(const schedule::ProcessGroup& group, const std::vector<std::int64_t>& hosts) {
  std::set<std::int64_t> met;
  for (std::int64_t i = 0; i < group.size(); ++i) {
    const auto rank = static_cast<std::size_t>(group.ranks.at(static_cast<std::size_t>(i)).value);
    if (rank < hosts.size()) met.insert(hosts[rank]);
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(met.size()));
}

// Most ranks that share a host.
std::int64_t ranks_per_host(const std::vector<std::int64_t>& hosts) {
  std::ptrdiff_t most = 1;
  for (const std::int64_t host : hosts) most = std::max(most, std::ranges::count(hosts, host));
  return most;
}

template <class Action>
Duration pass_time(const Lab& lab, const TransferProbe& probe) {
  const schedule::ScheduledProgram plan = transfer_plan(probe);
  const std::map<CommandId, StreamId> passes = commands_of<Action>(lab, plan);
  std::vector<std::int64_t> samples;
  for (const exec::Timing& timing : timings_of(lab, plan, lab.options.steps)) {
    const auto pass = passes.find(timing.command);
    if (pass == passes.end() || pass->second != timing.stream) continue;
    samples.push_back(timing.end_ns - timing.start_ns);
  }
  return median_of(lab, samples);
}

// The line through a small and a large pass.
template <class Line, class Action>
Line measure_line(const Lab& lab, TransferProbe probe) {
  constexpr Bytes kSmall = kib(64);
  const Bytes large_bytes = lab.options.copies_largest;
  probe.bytes = kSmall;
  const auto small = static_cast<double>(pass_time<Action>(lab, probe).count());
  probe.bytes = large_bytes;
  const auto large = static_cast<double>(pass_time<Action>(lab, probe).count());
  Line line;
  line.ns_per_byte =
      std::max(0.0, (large - small) / static_cast<double>((large_bytes - kSmall).count()));
  const double fixed = small - line.ns_per_byte * static_cast<double>(kSmall.count());
  line.fixed = Duration(std::llround(std::max(0.0, fixed)));
  return line;
}

}  // namespace

TransferProbe probe_of(const Lab& lab, Bytes bytes, std::int64_t count) {
  TransferProbe probe = {.ranks = lab.ranks, .bytes = bytes, .count = count};
  probe.max_ctas = lab.options.max_ctas;
  probe.head_start = lab.options.head_start;
  return probe;
}

std::int64_t queue_of(const Lab& lab, Bytes bytes) {
  const std::int64_t fit = lab.options.queue.count() / std::max<std::int64_t>(1, bytes.count());
  return std::clamp<std::int64_t>(fit, 2, kLongestQueue);
}

models::CollectivePoint all_reduce_of(const Lab& lab, Bytes bytes) {
  const TransferProbe probe = probe_of(lab, bytes, queue_of(lab, bytes));
  return measure_size(lab, Collective::AllReduce, probe, lab.options.steps).front();
}

Duration back_to_back(const Lab& lab, Bytes bytes) {
  return *all_reduce_of(lab, bytes).back_to_back;
}

std::vector<models::CollectivePoint> measure_collectives(const Lab& lab) {
  const Options& options = lab.options;
  return measure_sizes(lab, Collective::AllReduce, {},
                       {.smallest = options.smallest,
                        .largest = options.largest,
                        .growth = options.growth,
                        .budget = options.budget})
      .front();
}

std::vector<std::int64_t> hosts_of(const exec::Exchange& exchange) {
  const auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(exchange.clock_id));
  std::vector<std::int64_t> hosts;
  for (const auto& of_rank : share(exchange, std::array{mine})) hosts.push_back(of_rank.front());
  return hosts;
}

std::vector<WantedSeries> wanted_series(const schedule::Program& workload,
                                        const std::vector<std::int64_t>& hosts) {
  const std::int64_t world = workload.world_size;
  const std::int64_t per_host = ranks_per_host(hosts);
  std::vector<WantedSeries> wanted;
  const auto add = [&](Collective kind, std::int64_t ranks) {
    const ProbeGroup group = {.ranks = ranks,
                              .spacing = ranks <= per_host ? Spacing::InARow : Spacing::Apart};
    WantedSeries one = {.kind = kind, .group = group, .ranks = ranks};
    one.nodes = nodes_of(process_group(GroupId{0}, world, group), hosts);
    const auto same = [&](const WantedSeries& known) {
      return known.kind == kind && known.ranks == ranks;
    };
    if (std::ranges::none_of(wanted, same)) wanted.push_back(one);
  };
  for (std::int64_t ranks = world; ranks >= 2; --ranks) {
    if (world % ranks != 0) continue;
    if (ranks < world) add(Collective::AllReduce, ranks);
    add(Collective::ReduceScatter, ranks);
  }
  if (world >= 2) add(Collective::SendRecv, 2);
  for (const schedule::Op& op : workload.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work == nullptr) continue;
    const std::int64_t ranks = workload.group(work->group).size();
    const bool is_message =
        work->kind == Collective::AllToAll || work->kind == Collective::Broadcast;
    if (is_message && ranks >= 2 && world % ranks == 0) add(work->kind, ranks);
  }
  return wanted;
}

std::vector<models::CollectiveSeries> measure_further(const Lab& lab,
                                                      const schedule::Program& workload,
                                                      const std::vector<std::int64_t>& hosts) {
  std::vector<WantedSeries> wanted = wanted_series(workload, hosts);
  std::erase_if(wanted, [&](const WantedSeries& one) {
    return lab.options.only_halves &&
           (one.ranks < workload.world_size || one.kind != Collective::ReduceScatter);
  });
  std::vector<models::CollectiveSeries> all;
  for (const WantedSeries& one : wanted) {
    const Sizes sizes = {
        .smallest = lab.options.further_smallest,
        .largest = std::min(lab.options.further_largest, lab.options.largest),
        .growth = 4,
        .budget = lab.options.further_budget / static_cast<std::int64_t>(wanted.size())};
    const auto series = measure_sizes(lab, one.kind, one.group, sizes);
    for (std::size_t i = 0; i < series.size(); ++i) {
      all.push_back({.collective = kinds_in(one.kind)[i],
                     .ranks = one.ranks,
                     .nodes = one.nodes,
                     .times = series[i]});
    }
  }
  return all;
}

models::CopyModel measure_copies(const Lab& lab) {
  TransferProbe probe = probe_of(lab, Bytes(0), 1);
  probe.mode = schedule::BucketMode::Copy;
  return measure_line<models::CopyModel, schedule::Copy>(lab, probe);
}

models::PassModel measure_scales(const Lab& lab) {
  TransferProbe probe = probe_of(lab, Bytes(0), 1);
  probe.scale = schedule::ScaleAt::AfterCollective;
  models::PassModel of_buffer = measure_line<models::PassModel, schedule::Scale>(lab, probe);
  of_buffer.ns_per_byte /= 2;  // every byte of the buffer is read and written
  return of_buffer;
}

}  // namespace dovetail::calibrate
