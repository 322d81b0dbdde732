// Prices a job's step: makes its Program, lowers it by the job's decisions, plays it until it repeats, and sums up its
// parts. A step of many micro-batches follows from three of fewer.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_prediction.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/prediction.h"
#include "base/error.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "sim/command_graph.h"
#include "sim/simulate.h"
#include "sim/steady.h"

namespace dovetail::predict {

const StageParts& JobPrediction::busiest() const {
  return *std::ranges::min_element(stages, {}, &StageParts::bubble);
}

std::optional<StepRange> JobPrediction::range() const {
  if (error == nullptr) return std::nullopt;
  return widened(step_range(*error, step), step, host_bound);
}

Bytes JobPrediction::peak() const { return memory[jobs::fullest(memory)].total(); }

std::optional<FlopPerSecond> peak_rate(const jobs::Job& job, const models::Cluster& cluster) {
  if (!cluster.compute) return std::nullopt;
  const bool is_tf32 = job.precision.products == schedule::Operands::Tf32;
  return cluster.compute->peak(job.precision.product(),
                               is_tf32 ? schedule::Operands::Tf32 : schedule::Operands::Own);
}

namespace {

schedule::Policy policy_of(const jobs::Job& job, const OwnTravel& own) {
  return own.policy.empty() ? jobs::policy_of(job) : jobs::policy_of(job, own.policy);
}

struct Step {
  Duration time{};
  Duration bound{};
  std::vector<StageParts> stages = {};
  const PublicError* error = nullptr;
  std::vector<HostPhase> host_bound = {};
};

Step played(const jobs::Job& job, const models::Cluster& cluster, const OwnTravel& own) {
  const auto [lowered, costs] = lower_job(job, cluster, own);
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  const sim::SteadyState steady = sim::find_steady_state(lowered, costs, compiled, workspace);
  return {
      .time = Duration(steady.summary.step_ns),
      .bound = sim::longest_compute(lowered, compiled, job.zero == jobs::Zero::Nothing),
      .stages = step_parts(lowered, sim::trace_of(lowered, costs, compiled, workspace.timeline)),
      .error = public_error(cluster, lowered.program),
      .host_bound = host_bound_phases(lowered.program, costs)};
}

// Durations that a step is made of, in one list.
std::vector<Duration*> parts_of(Step& step) {
  std::vector<Duration*> parts = {&step.time, &step.bound};
  for (StageParts& stage : step.stages) {
    parts.push_back(&stage.compute);
    for (Duration& exposed : stage.exposed) parts.push_back(&exposed);
    parts.push_back(&stage.bubble);
  }
  return parts;
}

jobs::Job with_micro_batches(jobs::Job job, std::int64_t count) {
  job.batch.global = job.batch.global / job.micro_batches() * count;
  return job;
}

// So many fill its pipeline, and so many come with each further round; all of them where that is hardly fewer.
struct Filled {
  std::int64_t few, round;
};
Filled fewer_micro_batches(const jobs::Job& job) {
  const std::int64_t stages = job.layout.pp;
  const std::int64_t round = job.layout.vp > 1 ? stages : 1;
  const std::int64_t few = 2 * stages;
  const std::int64_t count = job.micro_batches();
  const bool is_fewer = 3 * (few + round) < count && (count - few) % round == 0;
  return {.few = is_fewer ? few : count, .round = round};
}

// Once a pipeline is full, each further micro-batch (with chunks: each round of one a stage) adds the same to a step
// and to each part of it. Three steps of few micro-batches show whether that holds, and then the step of any number
// follows; nothing where it does not hold, or where those three have no fewer micro-batches to play. Where links are shared
// between nodes it holds but for a thousandth of a round; that is enough where all of them would take many seconds to play.
std::optional<Step> continued(const jobs::Job& job, const models::Cluster& cluster,
                              const OwnTravel& own) {
  constexpr Duration kRounding{4};  // of rates (sim/steady.h)
  constexpr std::int64_t kMostLayers =
      10'000;  // of all micro-batches, to play in a second or a few
  const auto [few, round] = fewer_micro_batches(job);
  const std::int64_t count = job.micro_batches();
  if (few == count) return std::nullopt;
  std::array<Step, 3> steps;
  for (std::int64_t i = 0; i < 3; ++i) {
    steps[static_cast<std::size_t>(i)] =
        played(with_micro_batches(job, few + i * round), cluster, own);
  }
  const std::int64_t rounds = (count - few) / round - 2;  // beyond the third
  const std::vector<Duration*> first = parts_of(steps[0]);
  const std::vector<Duration*> second = parts_of(steps[1]);
  const std::vector<Duration*> third = parts_of(steps[2]);
  const bool is_long = count * job.model.layers > kMostLayers;
  const Duration round_time = *third.front() - *second.front();
  sim::check_run(static_cast<double>(third.front()->count()) +
                 static_cast<double>(round_time.count()) * static_cast<double>(rounds));
  for (std::size_t i = 0; i < third.size(); ++i) {
    const Duration more = *third[i] - *second[i];
    const Duration before = *second[i] - *first[i];
    const Duration allowed =
        is_long ? std::max(kRounding, round_time / (i == 0 ? 1000 : 50)) : kRounding;
    if (std::max(more - before, before - more) > allowed) return std::nullopt;
    *third[i] += more * rounds;
  }
  return steps[2];
}

schedule::Schedule schedule_of(const jobs::Job& job, const OwnTravel& own,
                               const schedule::Program& program) {
  schedule::Schedule schedule = schedule::make_schedule(program, policy_of(job, own));
  if (own.synchronous) {
    for (schedule::Bucket& bucket : schedule.buckets) bucket.stream = schedule::InlineStream{};
  }
  return schedule;
}

}  // namespace

void verify_job(const jobs::Job& job) {
  const schedule::Program program =
      jobs::program_of(with_micro_batches(job, fewer_micro_batches(job).few));
  lower_and_verify(program, schedule_of(job, {}, program), jobs::to_string(job));
}

LoweredJob lower_job(const jobs::Job& job, const models::Cluster& cluster, const OwnTravel& own) {
  require_room(job, cluster);
  schedule::Program program = jobs::program_of(job);
  models::Costs costs = models::costs_for(cluster, program);
  const schedule::Schedule schedule = schedule_of(job, own, program);
  return {.program = schedule::lower(std::move(program), schedule).program,
          .costs = std::move(costs)};
}

JobPrediction predict_job(const jobs::Job& job, const models::Cluster& cluster,
                          const OwnTravel& own) {
  JobPrediction found{.job = job};
  std::optional<Step> step = continued(job, cluster, own);
  if (!step) step = played(job, cluster, own);
  found.step = step->time;
  found.bound = step->bound;
  found.error = step->error;
  found.host_bound = std::move(step->host_bound);
  found.stages = std::move(step->stages);
  found.figures = jobs::figures_of(job, found.step, peak_rate(job, cluster));
  found.memory = jobs::memory_of(job);
  if (cluster.compute) found.capacity = cluster.compute->capacity;
  found.idle = idle_ranks(job, cluster);
  return found;
}

}  // namespace dovetail::predict
