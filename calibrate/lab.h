// What all measurements share: the ranks, a way to execute plans, what is known of the ranks' cores meanwhile, and how
// samples of several ranks become one figure that is equal on all of them.
//
// All ranks make the same measurements in the same order. Whatever decides how often something is repeated is
// shared among them first (exec/exchange.h), so they always agree on the number of collectives.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/host_timer.h"
#include "calibrate/noise/reference_load.h"
#include "calibrate/options.h"
#include "exec/backend.h"
#include "exec/exchange.h"
#include "exec/run.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace dovetail::calibrate {

using MakeBackend =
    std::function<std::unique_ptr<exec::Backend>(const schedule::ScheduledProgram&)>;

struct Lab {
  const exec::Exchange& exchange;
  const MakeBackend& make_backend;  // REQUIRES: the plan outlives the backend
  const Options& options;
  std::int64_t ranks = 1;                        // of the plans
  const testbed::ReferenceLoad* load = nullptr;  // absent: nobody takes this rank's core away
  Duration shield = {};  // how long the network goes on without a rank (network_shield.h)
  // Of which the workload's ops consist, where they stand in for recorded times.
  std::optional<models::UnitKernel> unit_kernel = {};
};

// What this rank's core did from `begin_ns`, a reading of exec::now_ns, until now.
traces::CoreRecord record_since(const Lab& lab, std::int64_t begin_ns);

// The 10th, 50th and 90th percentile of some samples.
struct Quantiles {
  Duration p10{}, median{}, p90{};
  friend bool operator==(const Quantiles&, const Quantiles&) = default;
};
// Nearest rank. REQUIRES: there is a sample.
Quantiles quantiles_of(std::vector<std::int64_t> samples_ns);

// A plan with a backend of its own, which lives as long as this. REQUIRES: lab and plan outlive it.
class Bench {
 public:
  Bench(const Lab& lab, const schedule::ScheduledProgram& plan);
  exec::RankResult run(std::int32_t warmup, std::int32_t steps);
  // What the latest run's calls cost the host, warm-up included.
  [[nodiscard]] HostTimer& timer() { return timer_; }

 private:
  const Lab& lab_;
  const schedule::ScheduledProgram& plan_;
  std::unique_ptr<exec::Backend> backend_;
  HostTimer timer_;
};

// Of so many steps, after those that warm up. Throws DeviceError where a value came out wrong: the times of a library
// that does not do its work mean nothing.
std::vector<exec::Timing> timings_of(const Lab& lab, const schedule::ScheduledProgram& plan,
                                     std::int32_t steps);

// Samples of all ranks together.
std::vector<std::int64_t> pooled(const Lab& lab, const std::vector<std::int64_t>& mine);
// Of all ranks' samples; 0 where there is none.
Duration median_of(const Lab& lab, const std::vector<std::int64_t>& mine);
// One number from all ranks: the largest.
double largest(const Lab& lab, double mine);

// This rank's commands of one kind, each with its stream.
template <class Action>
std::map<CommandId, StreamId> commands_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  std::map<CommandId, StreamId> commands;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    if (std::holds_alternative<Action>(command.action)) commands[command.id] = command.stream;
  }
  return commands;
}

}  // namespace dovetail::calibrate
