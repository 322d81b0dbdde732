// What a change would give a recorded step.
//
//   Forecast own(workload, workload.profile);                    // as explore has the imported workload
//   Duration now = own.step(workload.ends, InFlight::Any);       // the recorded buckets
//   now - own.step({161}, InFlight::Any)                         // gain of one bucket for all
//
// Changes are made to the imported workload (workload.h) and its steady step is found by search::Planner: what `import`
// and `explore` say of the same trace is the same number by construction. Its step with the recorded buckets and their
// recorded durations is held against the recorded one first (WorkloadCheck); by what it misses
// every gain of buckets may be off.
//
// Where a trace makes no workload (no DDP in it) or one that misses the step by more than 2 %, and
// for a host that waits for the GPU, changes are made to the recorded graph instead: calls and
// collectives of no length. Everything that is not changed stays as recorded, so these are answers
// for this job on this machine, near what was recorded.
//
// A collective is its own transfer and waiting for others: a free network takes the first from it, a job in which nobody is late the
// second. No change gives more than what the steps lost to that of which it is the end (causes.h), and none makes a step longer;
// one that would end nothing is not among the answers. Nobody knows how much another step would gain: an interval is half a percent of
// the step wide at least, less so with the number of steps, where the cause allows it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "frameworks/framework.h"
#include "recordings/diagnose/causes.h"
#include "recordings/diagnose/replay.h"
#include "recordings/diagnose/traced.h"
#include "recordings/diagnose/workload.h"
#include "schedule/schedule.h"
#include "search/planner.h"
#include "search/recorded.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::diagnose {

using frameworks::InFlight;

using search::Gain;

// WaitAtUpdate, Prefetch: without the waits of serial_waits.h; only where there are any. FusedOptimizer: calls of the optimizer's
// step take no time but for its first launch; only where it launches 20 times and more. KeepParameters: gathers for backward of FSDP2's
// groups, and what they copy, take no time. NoNetwork: collectives only wait for others. NobodyLate: their own time only; NoBubble: that of the messages of a pipeline. NoRecording: without what the profiler
// costs the host (recording_cost.h), of a GPU's rank. NoHost: calls and pauses of the host take no time, the profiler's among them; it
// still waits where it waited for the GPU.
enum class Change : std::uint8_t {
  NoNetwork,
  NobodyLate,
  NoBubble,
  WaitAtUpdate,
  Prefetch,
  KeepParameters,
  FusedOptimizer,
  NoRecording,
  NoHost
};

struct WhatIf {
  Change change = Change::NoNetwork;
  Gain gain;
};

enum class Network : std::uint8_t { AsMeasured, TakesNoTime };

// The steady step of an imported workload with any buckets. The simulations are those of explore.
class Forecast {
 public:
  // `profile` is that of the workload or a changed one. REQUIRES: profile.collectives.
  Forecast(const TracedWorkload& workload, const models::Profile& profile,
           Network network = Network::AsMeasured);

  // DDP's buckets with these exclusive ends: copied or views, as recorded, waited for at the end of backward. One in flight:
  // what runs after a bucket is full waits for the bucket before it. REQUIRES: one_kind().
  [[nodiscard]] schedule::Schedule buckets(std::span<const std::size_t> ends,
                                           InFlight in_flight) const;
  Duration step(std::span<const std::size_t> ends, InFlight in_flight);
  // Whether all gradients may lie in one bucket: they have one dtype.
  [[nodiscard]] bool one_kind() const;
  [[nodiscard]] search::Planner& planner() { return planner_; }

 private:
  bool copied_ = false;
  search::Planner planner_;
};

// The imported workload against the trace: with the recorded buckets, and with all-reduces that take as long as they did
// on this rank, waiting for late ranks included.
struct WorkloadCheck {
  Duration recorded{}, predicted{};  // one step: the median of the trace, and the workload's
  [[nodiscard]] double error() const;
  [[nodiscard]] bool is_trustworthy() const;  // within 2 %
};

// What `import kineto` writes of one rank: of the ways to take its host (HostTaken) the one whose step is closest to the
// recorded one. In one sentence why nothing can be made.
struct ImportedWorkload {
  TracedWorkload workload;
  HostTaken host = HostTaken::RunsAhead;
  std::optional<WorkloadCheck> check;  // absent: the trace has no all-reduce whose size is known
};
std::variant<ImportedWorkload, std::string> import_workload(const JobTrace& job, std::size_t rank,
                                                            const RankReplay& replay,
                                                            const std::string& name);

// One rank's workload, its check, and what the changes of network and host would give.
struct RankForecast {
  std::optional<TracedWorkload>
      workload;          // where one can be made and held against the recorded step:
  std::string why_none;  // else
  std::optional<WorkloadCheck> check;
  std::vector<WhatIf> what_ifs;  // none where the replay is not that of the trace
};
// `causes`: of the rank's steps. `unprofiled_step`: what a step takes without the profiler, where somebody measured it; then
// NoRecording is the difference, with no interval.
RankForecast forecast_rank(const JobTrace& job, std::size_t rank, const RankReplay& replay,
                           const std::vector<StepCauses>& causes,
                           std::optional<Duration> unprofiled_step = std::nullopt);

// The steps of the recorded graph with a change made to it. REQUIRES: not NoRecording.
// The last two changes of waits never make a step shorter than the collectives of one stream.
std::vector<Duration> replayed_with(const RankTrace& rank, const RankReplay& replay, Change change);

// What stood exposed in gathers for backward, and not for the host.
Duration lost_to_gathers_in_backward(const StepCauses& step, const Sharding& sharding);

// A profile whose host takes no time. REQUIRES: profile.host.
models::Profile without_host(models::Profile profile);

}  // namespace dovetail::diagnose
