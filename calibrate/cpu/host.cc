// Measures what it costs the compute thread to launch a collective, to wait for one that is done,
// and to be woken up, with a real communication thread on the other side that has gone to sleep in
// between, as it does in a step.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/host.h"

#include "exec/clock.h"

#include <algorithm>
#include <thread>

namespace dovetail::calibrate {
namespace {

constexpr int kRepetitions = 200;
constexpr Duration kPause = std::chrono::microseconds(200);
constexpr std::size_t kReady = 0;
constexpr std::size_t kDone = 1;
constexpr CommandId kRecord{2};

Duration median_over_ranks(Rig& rig, const std::vector<std::int64_t>& mine) {
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), mine)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all.empty() ? Duration{} : spread_of(std::move(all)).median;
}

}  // namespace

HostTimes measure_host(Rig& rig) {
  const exec::cpu::CollectiveCall call = {.kind = schedule::Collective::AllReduce,
                                          .op = schedule::ReduceOp::Sum,
                                          .data = rig.buffer(Bytes(4)),
                                          .shard = {},
                                          .label = "calibration"};
  std::vector<std::int64_t> launch;
  std::vector<std::int64_t> wait_done;
  std::vector<std::int64_t> wake_up;
  rig.exchange().barrier();
  for (int i = 0; i < kRepetitions; ++i) {
    // As in a real step, the communication thread must have gone to sleep: waking it is the cost.
    std::this_thread::sleep_for(kPause);
    const std::int64_t start = exec::now_ns();
    rig.events().record(kReady);
    rig.comm().enqueue({.command = CommandId{0}, .call = exec::cpu::WaitCall{kReady}});
    rig.comm().enqueue({.command = CommandId{1}, .call = call});
    rig.comm().enqueue({.command = kRecord, .call = exec::cpu::RecordCall{kDone}});
    const std::int64_t launched = exec::now_ns();
    const bool stood = rig.events().wait(kDone);
    const std::int64_t woken = exec::now_ns();
    rig.events().wait(kDone);
    const std::int64_t waited = exec::now_ns();

    launch.push_back(launched - start);
    wait_done.push_back(waited - woken);
    const std::vector<exec::Timing> timings = rig.comm().drain();
    rig.events().throw_failure();
    rig.events().begin_step();
    const auto record =
        std::find_if(timings.begin(), timings.end(),
                     [](const exec::Timing& timing) { return timing.command == kRecord; });
    if (stood && record != timings.end()) wake_up.push_back(woken - record->start_ns);
  }
  return {.launch = median_over_ranks(rig, launch),
          .wait_done = median_over_ranks(rig, wait_done),
          .wake_up = median_over_ranks(rig, wake_up)};
}

}  // namespace dovetail::calibrate
