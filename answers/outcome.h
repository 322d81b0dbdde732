// A question and its outcome: what can be asked of a step of distributed training, and what is predicted of it. `evaluate` (and
// through it Python, C++ and agents) and `plan` ask Questions; rows of `explore` and `predict` are made beside them still.
//
//   Weigher weigher(data_dir);      // weigher.h: from one to the other
//   Outcome ddp = weigher.weigh({.workload = "gpt2", .cluster = "h100x64", .policy = "torch-ddp"});
//   ddp.step                        // 50.9 ms: predicted, of one training step in steady state
//   ddp.exposed.total               // so long of it communication runs and nothing computes
//   ddp.bound->time, ddp.gap()      // no schedule of its kind (whole gradients in consecutive buckets, ...: search::Bound) is faster;
//                                   // how far the step is above that, in per cent
//   ddp.memory.fits()               // yes, no or may: whether a device has room for what a rank holds
//   ddp.told.paste()                // the line that makes the framework do this
//
// The subject is what trains: a workload (what one rank computes: a model of the zoo, a file, a recorded profile) or a job (a model
// with its layout over ranks, batch and precision). It runs on a machine, shipped, calibrated or the one it was recorded on, with
// what-ifs. What is decided is how gradients and parameters travel: a policy, or buckets named one by one. The target is the
// framework that shall run it: where it makes something else of the decisions, the Outcome is of what it makes of them.
//
// All times are simulated; `range` says where measured steps lay around such predictions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answers/host_phases.h"
#include "answers/step_parts.h"
#include "answers/step_range.h"
#include "base/units.h"
#include "frameworks/framework.h"
#include "models/costs/what_if.h"
#include "models/networks/figures.h"
#include "schedule/data_parallel.h"
#include "schedule/holding.h"
#include "schedule/policies/named_groups.h"
#include "schedule/schedule.h"
#include "search/planner.h"

namespace dovetail::answers {

struct Question {
  std::string workload = {};  // as --workload takes it,
  std::string job = {};       // or a job, as --job takes it, which says its ranks and layout itself
  std::string cluster = {};   // the machine; empty: the one that the workload was recorded on
  // Ranks of a workload that does not say how many, or how they divide it.
  std::optional<std::int64_t> world = std::nullopt;
  std::optional<schedule::DataParallel> layout = std::nullopt;
  models::WhatIf what_if = {};
  bool force = false;  // take a recording that says of itself that it is not valid
  bool whole = false;  // of a job as it is: play all of its micro-batches (job_prediction.h)
  // As --policy takes it; empty: what a job decides by itself; of a workload the best that is known, and where its layout
  // divides parameters what FSDP does.
  std::string policy = {};
  std::string plan = {};  // the Schedule of this plan file in place of a policy
  // Names of the gradients of each bucket, in launch order, placed as the policy has it (empty: per-tensor).
  std::optional<schedule::NamedGroups> groups = std::nullopt;
  const frameworks::Framework* target = &frameworks::framework("torch");

  // Throws InputError "WHERE: name a workload or a job" unless it names one subject and what that needs.
  void require_subject(const std::string& where) const;
  // Whether it names how gradients travel: a policy, a plan, buckets. Of a workload always; a job decides by itself otherwise.
  [[nodiscard]] bool names_schedule() const {
    return job.empty() || groups || !policy.empty() || !plan.empty();
  }
};

// Communication that no computation hides.
struct Exposed {
  Duration total{};
  // What it is for; absent where only the sum is known.
  std::optional<std::array<Duration, kWordCount<predict::For>>> by_purpose = std::nullopt;
};

// How the target is told.
struct Told {
  // Absent: it has no words for this, and somebody's own hooks run it.
  std::optional<frameworks::Said> said = std::nullopt;
  bool is_changed = false;  // it makes something else of what was decided: the Outcome is of that
  std::string words = {};   // the framework and setting that the decisions stand for
  // The line to paste; absent where a file tells it, or nobody needs to be told.
  [[nodiscard]] std::optional<std::string> paste() const {
    const bool is_line = said && said->by == frameworks::ToldBy::Setting;
    return is_line ? std::optional(said->paste) : std::nullopt;
  }
};

// Of a job, the figures in which it is judged.
struct JobFigures {
  std::string job = {};         // all of it in one line
  jobs::Figures figures = {};   // tokens and FLOP a second and GPU, and MFU
  std::int64_t idle_ranks = 0;  // of the machine, which the job leaves unused
  // Of the stage that has the least: what a pipeline waits. Absent where a policy was asked about.
  std::optional<Duration> bubble = std::nullopt;
};

struct Outcome {
  std::string policy = {};  // as --policy takes it; "" for buckets that somebody named
  Duration step{};          // of one update of the parameters, in steady state
  // Of a recorded step: what the buckets that it was recorded with take here; absent: nothing was recorded.
  std::optional<Duration> now = std::nullopt;
  std::int32_t micro_steps = 1;  // forward and backward passes before an update
  std::optional<std::size_t> buckets = std::nullopt;  // absent of a job that is answered as it is
  std::optional<predict::StepRange> range = std::nullopt;  // absent: not known of such steps
  std::vector<predict::HostPhase> host_bound =
      {};  // phases in which the host takes most of the time
  Exposed exposed = {};
  // Absent where only the stages' parts are known (long pipelines).
  std::optional<Duration> communication = std::nullopt;  // any collective in flight
  Duration compute{};  // any op runs; of a job on its busiest stage
  // Of a rank of the fullest stage: what it holds, between what bounds that may lie (public peaks did), and what its device has.
  schedule::Room memory = {};
  // Of the kind that Bound names: of a job that decides by itself what its busiest stage computes. Absent: none holds for it.
  std::optional<search::Bound> bound = std::nullopt;
  std::optional<JobFigures> job = std::nullopt;  // absent: a workload
  Told told = {};
  schedule::Schedule schedule = {};  // empty of a job that was not asked about a policy

  // By how much the step is above its bound, in per cent.
  [[nodiscard]] std::optional<double> gap() const;
  // How much shorter the step could become at most: down to the bound; without one by all that is exposed.
  [[nodiscard]] Duration left() const;
};

}  // namespace dovetail::answers
