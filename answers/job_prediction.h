// What a job's step takes on a cluster: its Program, lowered by its own decisions, played until it repeats, and
// the figures that it gives.
//
//   JobPrediction found = predict_job(parse_job("llama3_8b:dp_shard=8"), cluster);
//   found.step; found.figures.mfu; found.stages[0].exposed_of(For::DataParallel); found.fits()
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answers/host_phases.h"
#include "answers/room.h"
#include "answers/step_parts.h"
#include "answers/step_range.h"
#include "base/units.h"
#include "models/clusters/cluster.h"
#include "models/costs/costs.h"
#include "models/networks/figures.h"
#include "models/networks/job.h"
#include "models/networks/memory.h"
#include "schedule/scheduled_program.h"

namespace dovetail::predict {

struct JobPrediction {
  jobs::Job job;
  Duration step{};
  // What its busiest stage computes, but for updates that are divided over ranks: no schedule of this layout, batch, sharding and
  // recomputation is faster, whatever is sent when.
  Duration bound{};
  jobs::Figures figures = {};
  std::vector<StageParts> stages = {};
  std::vector<jobs::StageMemory> memory = {};    // of each stage
  std::optional<Bytes> capacity = std::nullopt;  // of a device; absent: unknown
  const PublicError* error = nullptr;            // of such steps; null: unknown
  std::vector<HostPhase> host_bound = {};        // phases in which the host takes most of the time
  std::int64_t idle = 0;                         // ranks of the cluster that the job leaves

  // The stage that communicates and computes longest, so has the least bubble.
  [[nodiscard]] const StageParts& busiest() const;
  [[nodiscard]] Bytes peak() const;  // of the fullest stage
  // That beside the device's memory, with where it may lie.
  [[nodiscard]] schedule::Room room() const { return room_of(memory, capacity); }
  [[nodiscard]] schedule::Fits fits() const { return room().fits(); }
  // Where the step may lie; nothing where nothing is known.
  [[nodiscard]] std::optional<StepRange> range() const;
};

// How gradients travel where somebody wrote that himself, in place of what the job decides.
struct OwnTravel {
  std::string policy = {};   // as jobs::policy_of takes it; empty: as the job decides
  bool synchronous = false;  // compute waits for each reduction where it is launched
  friend bool operator==(const OwnTravel&, const OwnTravel&) = default;
};

// Repeats: the step of many micro-batches follows from one of few in which two rounds are equal (sim/rounds.h), to the nanosecond; from
// 1,024 layers x micro-batches on from one in which they are close, to a thousandth. Whole: all of them are played.
enum class Play { Repeats, Whole };

// Throws InputError where the cluster has too few ranks, or no time for an op or a collective.
JobPrediction predict_job(const jobs::Job& job, const models::Cluster& cluster,
                          const OwnTravel& own = {}, Play how = Play::Repeats);

// Proves that the job's step is legal: each gradient reduced and scaled once, nothing read too early. Of many micro-batches as many
// as fill its pipeline, of each virtual stage's layers the first two, whatever their number is. Throws InputError "JOB: illegal schedule: ...".
void verify_job(const jobs::Job& job);

// "what if: network=2x: 817 ms a step, 820 ms without (0.4 % less)": beside `step`, what the job takes on the machine as it is, where that can be
// priced: `job` and `cluster` are without what was asked of them.
std::string what_if_note(const models::WhatIf& asked, const jobs::Job& job,
                         const models::Cluster& cluster, Duration step);

// Its commands by its own decisions, and what they cost. Throws as predict_job does.
struct LoweredJob {
  schedule::ScheduledProgram program;
  models::Costs costs;
};
LoweredJob lower_job(const jobs::Job& job, const models::Cluster& cluster,
                     const OwnTravel& own = {});

// The rate against which the job's products count; absent where the cluster does not say.
std::optional<FlopPerSecond> peak_rate(const jobs::Job& job, const models::Cluster& cluster);

}  // namespace dovetail::predict
