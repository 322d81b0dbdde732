// Times transfers by size from queues of equal ones: the first one in the queue gives the time
// alone, all of them together the time in a row. Each rank's own durations are used, so no two
// clocks are compared.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/device/transfers.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

using schedule::Collective;

// Of each step of a queue of equal transfers: how long the first one took, and how long all of them
// took.
struct QueueTimes {
  std::vector<std::int64_t> first_ns, all_ns;
};

// What one rank saw of one step.
struct QueueSeen {
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_end = 0;
  std::int64_t end = 0;
};

// This rank's commands that carry transfers of the kind out.
std::set<CommandId> carriers(const Lab& lab, const schedule::ScheduledProgram& plan,
                             Collective kind) {
  std::set<CommandId> ids;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    if (!command.transfer) continue;
    if (plan.transfers.at(static_cast<std::size_t>(command.transfer->value)).kind == kind) {
      ids.insert(command.id);
    }
  }
  return ids;
}

std::vector<QueueSeen> see_queue(const std::vector<exec::Timing>& timings,
                                 const std::set<CommandId>& commands, std::int32_t count) {
  std::vector<QueueSeen> steps(static_cast<std::size_t>(count));
  for (const exec::Timing& timing : timings) {
    // Not the time that issuing took on the compute stream, which some backends report too.
    if (!commands.contains(timing.command) || timing.stream == schedule::kComputeStream) continue;
    QueueSeen& seen = steps.at(static_cast<std::size_t>(timing.step));
    if (timing.start_ns < seen.start) {
      seen.start = timing.start_ns;
      seen.first_end = timing.end_ns;
    }
    seen.end = std::max(seen.end, timing.end_ns);
  }
  return steps;
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
  return instances;
}

// A transfer lasts as long as on its last arrival, which waits for nobody: the shortest of its ranks'
// own durations. So no rank's clock is held against another's. Groups that meet side by side are
// taken together.
QueueTimes queue_times(const Lab& lab, const schedule::ScheduledProgram& plan,
                       const std::vector<exec::Timing>& timings, Collective kind) {
  std::vector<std::int64_t> mine;
  const std::set<CommandId> commands = carriers(lab, plan, kind);
  for (const QueueSeen& seen : see_queue(timings, commands, lab.options.steps)) {
    const bool is_idle = commands.empty();  // the rank that a world of pairs leaves over
    if (!is_idle && seen.start > seen.end) {
      throw DeviceError("the backend gave no timing of a collective");
    }
    mine.insert(mine.end(), {seen.first_end - seen.start, seen.end - seen.start});
  }
  const std::vector<std::vector<std::int64_t>> all = share(lab.exchange, mine);
  QueueTimes times;
  for (const std::vector<std::size_t>& instance : instances_of(plan, all.size())) {
    for (std::size_t i = 0; i < mine.size() && !instance.empty(); i += 2) {
      std::int64_t first = std::numeric_limits<std::int64_t>::max();
      std::int64_t whole = first;
      for (const std::size_t rank : instance) {
        first = std::min(first, all.at(rank).at(i));
        whole = std::min(whole, all.at(rank).at(i + 1));
      }
      times.first_ns.push_back(first);
      times.all_ns.push_back(whole);
    }
  }
  return times;
}

CollectiveTimes times_of(Bytes bytes, const QueueTimes& queue) {
  return {.bytes = bytes,
          .isolated = spread_of(queue.first_ns),
          .back_to_back = spread_of(queue.all_ns).median / kQueue};
}

CollectiveTimes measure_all_reduce(const Lab& lab, const TransferProbe& probe) {
  const schedule::ScheduledProgram plan = transfer_plan(probe);
  return times_of(probe.bytes,
                  queue_times(lab, plan, timings_of(lab, plan), Collective::AllReduce));
}

// Whether the time is over by rank 0's clock, which decides for all; a table needs two points.
bool is_over(const Lab& lab, std::int64_t end_ns, std::size_t points) {
  const bool late = lab.options.now() > end_ns && points >= 2;
  return rank_0_says(lab.exchange, late ? 1 : 0) != 0;
}

// What one kind of probe measures of one group, size by size.
class Further {
 public:
  Further(const Lab& lab, const WantedSeries& wanted, Duration budget)
      : lab_(lab), wanted_(wanted), budget_(budget) {}

  std::vector<SeriesTimes> measure() {
    const std::int64_t end = lab_.options.now() + budget_.count();
    const Bytes largest = std::min(lab_.options.further_largest, lab_.options.largest);
    for (const Bytes bytes : sizes_in_order(lab_.options.smallest, largest, 4)) {
      TransferProbe probe = probe_of(lab_, bytes, kQueue);
      probe.group = wanted_.group;
      measure(probe);
      if (is_over(lab_, end, series_.front().times.size())) break;
    }
    for (SeriesTimes& one : series_) std::ranges::sort(one.times, {}, &CollectiveTimes::bytes);
    return std::move(series_);
  }

 private:
  void measure(const TransferProbe& probe) {
    if (wanted_.kind == Collective::AllReduce) {
      return add(wanted_.kind, measure_all_reduce(lab_, probe));
    }
    const bool is_half = wanted_.kind == Collective::ReduceScatter;
    const schedule::ScheduledProgram plan =
        is_half ? halves_plan(probe) : messages_plan(wanted_.kind, probe);
    const std::vector<exec::Timing> timings = timings_of(lab_, plan);
    const Bytes bytes = plan.transfers.front().bytes;
    add(wanted_.kind, times_of(bytes, queue_times(lab_, plan, timings, wanted_.kind)));
    if (!is_half) return;
    add(Collective::AllGather,
        times_of(bytes, queue_times(lab_, plan, timings, Collective::AllGather)));
  }
  void add(Collective kind, CollectiveTimes times) {
    auto of_kind = std::ranges::find(series_, kind, &SeriesTimes::kind);
    if (of_kind == series_.end()) {
      series_.push_back(
          {.kind = kind, .ranks = wanted_.ranks, .nodes = wanted_.nodes, .times = {}});
      of_kind = series_.end() - 1;
    }
    of_kind->times.push_back(times);
  }

  const Lab& lab_;
  const WantedSeries& wanted_;
  Duration budget_;
  std::vector<SeriesTimes> series_;
};

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
  const std::set<CommandId> passes = commands_of<Action>(lab, plan);
  std::vector<std::int64_t> samples;
  for (const exec::Timing& timing : timings_of(lab, plan)) {
    if (passes.contains(timing.command)) samples.push_back(timing.end_ns - timing.start_ns);
  }
  return median_of(lab, samples);
}

// The line through a small and a large pass.
template <class Action>
CopyTime measure_passes(const Lab& lab, TransferProbe probe) {
  constexpr Bytes kSmall = kib(64);
  constexpr Bytes kLarge = mib(64);
  probe.bytes = kSmall;
  const auto small = static_cast<double>(pass_time<Action>(lab, probe).count());
  probe.bytes = kLarge;
  const auto large = static_cast<double>(pass_time<Action>(lab, probe).count());
  CopyTime time;
  time.ns_per_byte =
      std::max(0.0, (large - small) / static_cast<double>(kLarge.count() - kSmall.count()));
  const double fixed = small - time.ns_per_byte * static_cast<double>(kSmall.count());
  time.fixed = Duration(std::llround(std::max(0.0, fixed)));
  return time;
}

}  // namespace

TransferProbe probe_of(const Lab& lab, Bytes bytes, std::int64_t count) {
  TransferProbe probe = {.ranks = lab.ranks, .bytes = bytes, .count = count};
  probe.max_ctas = lab.options.max_ctas;
  probe.head_start = lab.options.head_start;
  return probe;
}

Duration back_to_back(const Lab& lab, Bytes bytes) {
  return measure_all_reduce(lab, probe_of(lab, bytes, kQueue)).back_to_back;
}

std::vector<CollectiveTimes> measure_collectives(const Lab& lab) {
  const std::int64_t end = lab.options.now() + lab.options.budget.count();
  std::vector<CollectiveTimes> times;
  for (const Bytes bytes :
       sizes_in_order(lab.options.smallest, lab.options.largest, lab.options.growth)) {
    times.push_back(measure_all_reduce(lab, probe_of(lab, bytes, kQueue)));
    if (is_over(lab, end, times.size())) break;
  }
  std::ranges::sort(times, {}, &CollectiveTimes::bytes);
  return times;
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

std::vector<SeriesTimes> measure_further(const Lab& lab, const schedule::Program& workload,
                                         const std::vector<std::int64_t>& hosts) {
  std::vector<SeriesTimes> all;
  const std::vector<WantedSeries> wanted = wanted_series(workload, hosts);
  for (const WantedSeries& one : wanted) {
    const Duration budget = lab.options.further_budget / static_cast<std::int64_t>(wanted.size());
    for (SeriesTimes& series : Further(lab, one, budget).measure()) {
      all.push_back(std::move(series));
    }
  }
  return all;
}

CopyTime measure_copies(const Lab& lab) {
  TransferProbe probe = probe_of(lab, Bytes(0), 1);
  probe.mode = schedule::BucketMode::Copy;
  return measure_passes<schedule::Copy>(lab, probe);
}

CopyTime measure_scales(const Lab& lab) {
  TransferProbe probe = probe_of(lab, Bytes(0), 1);
  probe.scale = schedule::ScaleAt::AfterCollective;
  return measure_passes<schedule::Scale>(lab, probe);
}

}  // namespace dovetail::calibrate
