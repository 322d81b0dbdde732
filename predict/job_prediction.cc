// Prices a job's step: makes its Program, lowers it by the job's decisions, plays it until it repeats, and sums up its parts.
//
// SPDX-License-Identifier: Apache-2.0
#include "predict/job_prediction.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "jobs/decisions.h"
#include "jobs/program.h"
#include "lower/lower.h"
#include "policies/policies.h"
#include "predict/inputs.h"
#include "predict/prediction.h"
#include "sim/simulate.h"

namespace dovetail::predict {

const StageParts& JobPrediction::busiest() const {
  return *std::ranges::min_element(stages, {}, &StageParts::bubble);
}

Bytes JobPrediction::peak() const { return memory[jobs::fullest(memory)].total(); }

std::optional<FlopPerSecond> peak_rate(const jobs::Job& job, const models::Cluster& cluster) {
  if (!cluster.compute) return std::nullopt;
  const auto rate = cluster.compute->gemm_peak.find(job.precision.compute);
  if (rate == cluster.compute->gemm_peak.end()) return std::nullopt;
  return rate->second;
}

JobPrediction predict_job(const jobs::Job& job, const models::Cluster& cluster,
                          const std::string& policy) {
  require_room(job, cluster);
  schedule::Program program = jobs::program_of(job);
  const models::Costs costs = models::costs_for(cluster, program);
  JobPrediction found{.job = job, .policy = policy.empty() ? jobs::policy_text(job) : policy};
  const schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy(found.policy));
  const schedule::ScheduledProgram lowered = schedule::lower(std::move(program), schedule).program;
  const sim::SteadyState steady = steady_state(lowered, costs);
  found.step = Duration(steady.summary.step_ns);
  found.figures = jobs::figures_of(job, found.step, peak_rate(job, cluster));
  found.stages =
      step_parts(lowered, sim::simulate(lowered, costs, {.steps = sim::steps_to_show(steady, 2)}));
  found.memory = jobs::memory_of(job);
  if (cluster.compute) found.capacity = cluster.compute->capacity;
  return found;
}

}  // namespace dovetail::predict
