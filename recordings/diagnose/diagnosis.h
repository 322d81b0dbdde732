// What a traced job loses, to what, and what each change would give. Values only: words.h makes the sentences.
//
//   Diagnosis diagnosis = diagnose(job);
//   diagnosis.findings.front().kind      FindingKind::HostBound
//   diagnosis.findings.front().share()   0.76: the GPU waits for the host that part of the step
//   diagnosis.ranks[0].causes[1].by[...]
//
// Nothing is answered by a replay that does not give the recorded step first (replay.h): then the what-ifs and `buckets`
// are empty and the first finding says so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/bucket_advice.h"
#include "recordings/diagnose/causes.h"
#include "recordings/diagnose/host_time.h"
#include "recordings/diagnose/recording_cost.h"
#include "recordings/diagnose/replay.h"
#include "recordings/diagnose/stages.h"
#include "recordings/diagnose/traced.h"
#include "recordings/diagnose/uneven.h"
#include "recordings/diagnose/what_if.h"
#include "recordings/diagnose/workload.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::diagnose {

struct RankDiagnosis {
  std::int64_t rank = 0;
  std::string file;
  RankReplay replay;
  std::vector<TimedStep> recorded;  // by step
  std::vector<StepCauses> causes;   // by step
  Contention contention;
  RankForecast forecast;
  HostTime host;
  RecordingCost recording;  // of the host's time
  std::optional<Sharding> sharding;

  [[nodiscard]] const WhatIf* what_if(Change change) const;  // null: it would end nothing
};

// Who was late, over all collectives.
struct LateRank {
  std::int64_t rank = 0;
  Duration caused{};        // waiting of the other ranks, summed
  std::string mostly_with;  // operator or annotation; empty: nothing stands out
  std::string mostly_in;    // the collective that waited most, "all-to-all of 24 KiB"
  std::size_t collectives = 0;
};

// What matters about a job, each with a figure.
//   NoGpuWork      none that can be read: there is nothing to diagnose
//   NotReplayed    the replay is not the recorded step: no change can be judged
//   Pipeline       amount: of the step, what its bubble is (stages.h)
//   Uneven         amount: of the step, what it would be less were the work between collectives spread evenly (uneven.h)
//   Stragglers     amount: of all collective time of all ranks (whole), what is waiting for a late rank
//   HostBound      amount: of the step, what the GPU waits for the host, and the network is no reason
//   NoCollective   none is recognised
//   Hidden         amount: of the step, what a network that takes no time would give: next to nothing
//   Exposed        amount: of the step, what is exposed communication
//   Serialised     amount: of the step, what is exposed because backward waits for a bucket's reduction
//   NoPrefetch     amount: of the step, what is exposed because gathers start when compute needs them
//   WaitsForHost   amount: of the step, what the GPU waits for the host
//   Accumulation   every micro-step, or several of them, reduce all gradients. amount: of a step of the optimizer
//                  (whole), what leaving out all but the last reduction gives
enum class FindingKind : std::uint8_t {
  NoGpuWork,
  NotReplayed,
  Pipeline,
  Uneven,
  Stragglers,
  HostBound,
  NoCollective,
  Hidden,
  Exposed,
  Serialised,
  NoPrefetch,
  WaitsForHost,
  Accumulation
};

// Times are medians over steps and means over ranks, those of Stragglers sums.
struct Finding {
  FindingKind kind = FindingKind::NoGpuWork;
  Duration amount{}, whole{};
  Duration without_network{};  // HostBound, Hidden: the step with a network that took no time
  ByCause by{};                // Exposed: what it is exposed for
  Gain of_recording{};  // HostBound, WaitsForHost: what the profiler itself makes the GPU wait
  Duration gain{};      // Serialised, NoPrefetch: of the step without those waits
  imports::Accumulation accumulation{};  // Accumulation: how many
  double error = 0;  // of the replay, as a share of the step: the figures hold as well
  [[nodiscard]] double share() const;
};

// What DistributedDataParallel copies, a step of the first rank.
struct DdpCopies {
  std::size_t gradients = 0, buckets = 0;
  imports::GradientCopies into, out;
  bool is_batched = false;
  bool is_compiled_whole = false;    // all gradients come at once, behind a compiled backward
  Bytes element_size, sent_element;  // a hook may send others
};

struct Diagnosis {
  std::vector<Finding> findings;  // by weight; never empty
  std::vector<RankDiagnosis> ranks;
  std::vector<LateRank> late;  // worst first; of several ranks
  std::optional<BucketAdvice> buckets;
  bool is_of_fsdp = false;  // then there are no `buckets`: FSDP communicates by groups of modules
  const Framework* framework = nullptr;    // whose settings were asked for
  std::optional<std::int64_t> world_size;  // nobody may say it
  bool has_ddp = false;                    // a module is wrapped in DistributedDataParallel
  std::optional<DdpCopies> copies;         // where it has buckets
  bool is_compiled = false;                // the step, or a part of it, by torch.compile
  bool has_whole_graphs = false;  // CUDA graphs without their kernels: what these send is not known
  bool is_of_rocm = false;        // an AMD GPU
  std::optional<Stages> stages;   // of a pipeline
  std::optional<Uneven> uneven;
  imports::Unrecognised unrecognised;  // over all ranks: what an absence must not be taken for
  std::vector<std::string> notes;      // how the traces were read, and what was left out
  std::vector<std::string> unknowns;
  // A step without the profiler, as somebody measured it.
  std::optional<Duration> unprofiled_step;
};

// Settings of buckets are those of `framework`.
Diagnosis diagnose(const JobTrace& job, const Framework& framework = frameworks::framework("torch"),
                   std::optional<Duration> unprofiled_step = std::nullopt);

}  // namespace dovetail::diagnose
