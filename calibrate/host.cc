// Runs small plans and looks at their calls, or at what the host itself was seen to do.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/host.h"

#include "base/error.h"
#include "calibrate/ops.h"
#include "calibrate/transfers.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <variant>
#include <vector>

namespace dovetail::calibrate {
namespace {

Duration launch_gap(const Lab& lab) {
  constexpr std::int64_t kOps = 24;
  constexpr Bytes kLong = mib(256);  // long enough for the host to run ahead
  const std::vector<exec::Timing> timings =
      timings_of(lab, chain_plan(lab.ranks, kOps, moving(kLong)), lab.options.steps);
  std::vector<std::int64_t> gaps;
  for (std::size_t i = 1; i < timings.size(); ++i) {
    if (timings[i].step != timings[i - 1].step) continue;
    gaps.push_back(std::max<std::int64_t>(0, timings[i].start_ns - timings[i - 1].end_ns));
  }
  return median_of(lab, gaps);
}

models::HostModel measure_calls(const Lab& lab, const schedule::Program& workload,
                                std::span<const models::MeasuredKernel> kernels) {
  models::HostModel host = {.kind = models::HostModel::Kind::Async};
  host.launch_gap = launch_gap(lab);
  if (lab.options.host == HostWork::Replayed) return host;
  host.run_op = measure_issue(lab, workload, kernels);
  TransferProbe probe = probe_of(lab, mib(1), queue_of(lab, mib(1)));
  probe.mode = schedule::BucketMode::Copy;
  const schedule::ScheduledProgram plan = transfer_plan(probe);
  Bench bench(lab, plan);
  bench.run(lab.options.warmup, 1);
  bench.run(0, lab.options.steps);
  host.collective = median_of(lab, bench.timer().collective_ns);
  host.event = median_of(lab, bench.timer().event_ns);
  host.copy = median_of(lab, bench.timer().copy_ns);
  return host;
}

// The commands of this rank that launch the only transfer of a plan, and those of its end.
struct Launch {
  std::set<CommandId> issued;  // on the compute stream, in a row
  CommandId record;            // on its own stream
  CommandId wait;              // on the compute stream
};

Launch launch_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  Launch launch;
  std::optional<EventId> awaited;
  const auto& commands = exec::role_of(plan, lab.exchange.rank).commands;
  for (const schedule::Command& command : commands) {
    const auto* wait = std::get_if<schedule::WaitEvent>(&command.action);
    if (wait == nullptr || command.stream != schedule::kComputeStream) continue;
    launch.wait = command.id;
    awaited = wait->event;
    break;
  }
  for (const schedule::Command& command : commands) {
    if (command.id == launch.wait) break;
    const bool is_op = std::holds_alternative<schedule::RunOp>(command.action);
    if (!is_op) launch.issued.insert(command.id);
    const auto* record = std::get_if<schedule::RecordEvent>(&command.action);
    if (record != nullptr && record->event == awaited) launch.record = command.id;
  }
  DOVETAIL_CHECK(awaited.has_value()) << "nobody waits for the transfer";
  return launch;
}

models::HostModel measure_launches(const Lab& quiet) {
  constexpr std::int32_t kRepetitions = 200;
  // Enough for the thread that communicates to fall asleep: waking it is the cost.
  constexpr Duration kPause = std::chrono::microseconds(200);
  Options options = quiet.options;
  options.pause = std::min(options.pause, kPause);
  const Lab lab = {.exchange = quiet.exchange,
                   .make_backend = quiet.make_backend,
                   .options = options,
                   .ranks = quiet.ranks};
  const schedule::ScheduledProgram plan = transfer_plan(probe_of(lab, Bytes(4), 1));
  const Launch launch = launch_of(lab, plan);
  struct LaunchSeen {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
    std::int64_t recorded = 0;
    std::int64_t woken = 0;  // 0: it did not wait
  };
  std::map<std::int32_t, LaunchSeen> steps;
  for (const exec::Timing& timing : timings_of(lab, plan, kRepetitions)) {
    LaunchSeen& seen = steps[timing.step];
    const bool is_on_host = timing.stream == schedule::kComputeStream;
    if (is_on_host && launch.issued.contains(timing.command)) {
      seen.begin = std::min(seen.begin, timing.start_ns);
      seen.end = std::max(seen.end, timing.end_ns);
    }
    if (!is_on_host && timing.command == launch.record) seen.recorded = timing.start_ns;
    const bool stood = timing.end_ns > timing.start_ns;
    if (is_on_host && timing.command == launch.wait && stood) seen.woken = timing.end_ns;
  }
  std::vector<std::int64_t> launches;
  std::vector<std::int64_t> wake_ups;
  for (const auto& [step, seen] : steps) {
    launches.push_back(seen.end - seen.begin);
    if (seen.woken > 0) wake_ups.push_back(seen.woken - seen.recorded);
  }
  return {.kind = models::HostModel::Kind::Inline,
          .collective = median_of(lab, launches),
          .event = median_of(lab, wake_ups)};
}

}  // namespace

models::HostModel measure_host(const Lab& lab, const schedule::Program& workload,
                               std::span<const models::MeasuredKernel> kernels) {
  const bool is_inline = lab.options.backend == models::BackendKind::Cpu;
  return is_inline ? measure_launches(lab) : measure_calls(lab, workload, kernels);
}

}  // namespace dovetail::calibrate
