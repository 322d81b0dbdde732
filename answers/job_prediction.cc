// Prices a job's step: makes its Program, lowers it by the job's decisions, plays it until it repeats, and sums up its
// parts. A step of many micro-batches follows from one of fewer.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_prediction.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/prediction.h"
#include "base/attempt.h"
#include "base/error.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "sim/command_graph.h"
#include "sim/rounds.h"
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

schedule::Schedule schedule_of(const jobs::Job& job, const OwnTravel& own,
                               const schedule::Program& program) {
  schedule::Schedule schedule = schedule::make_schedule(program, policy_of(job, own));
  if (own.synchronous) {
    for (schedule::Bucket& bucket : schedule.buckets) bucket.stream = schedule::InlineStream{};
  }
  return schedule;
}

struct Step {
  Duration time{};
  Duration bound{};
  std::vector<StageParts> stages = {};
  const PublicError* error = nullptr;
  std::vector<HostPhase> host_bound = {};
};

jobs::Job with_micro_batches(jobs::Job job, std::int64_t count) {
  job.batch.global = job.batch.global / job.micro_batches() * count;
  return job;
}

// So many micro-batches fill its pipeline, and so many come with each further round; all of them where that is no fewer.
struct Filled {
  std::int64_t few, round;
};
Filled fewer_micro_batches(const jobs::Job& job) {
  const std::int64_t stages = job.layout.pp;
  const std::int64_t round = job.layout.vp > 1 ? stages : 1;
  const std::int64_t few = 2 * stages;
  const std::int64_t count = job.micro_batches();
  const bool is_fewer = few < count && (count - few) % round == 0;
  return {.few = is_fewer ? few : count, .round = round};
}

// The job's step as it is played, with all that is asked of it. Its Program and what it costs are the same for any batch. Nobody reads
// the names of what is played, hundreds of thousands of ops and tensors with many micro-batches, so they have none.
class StepPlayer {
 public:
  StepPlayer(const jobs::Job& job, const models::Cluster& cluster, const OwnTravel& own)
      : job_(job),
        cluster_(cluster),
        own_(own),
        program_(jobs::program_of(job)),
        costs_(models::costs_for(cluster, program_)),
        nameless_(program_) {
    for (schedule::Op& op : nameless_.ops) op.name.clear();
    for (schedule::Tensor& tensor : nameless_.tensors) tensor.name.clear();
  }

  // Once a pipeline is full, each further round of micro-batches adds the same to a step and to each part of it (sim/rounds.h). So
  // the step follows from one of fewer in which two rounds are equal; where none is found, all of it is played.
  Step run() {
    const auto [few, round] = fewer_micro_batches(job_);
    const std::int64_t count = job_.micro_batches();
    const std::int64_t first = first_try(few, round);
    for (std::int64_t some = first; 4 * some <= 3 * count; some *= 2) {
      play(some);
      const bool is_enough = some * job_.model.layers > kMostLayers;
      if (auto step = continued(round, some > first || is_enough)) return *std::move(step);
      if (is_enough) break;
    }
    play(count);
    Step step = played();
    step.bound = Duration(longest(compute()));
    step.host_bound = host_bound_phases(lowered_.program, costs_);
    return step;
  }

 private:
  // Of all micro-batches: more take seconds, and the thousandth of a round is enough.
  static constexpr std::int64_t kMostLayers = 10'000;

  // Behind a few rounds transfers that share links have settled. Where backward is in two, stages drift for longer.
  [[nodiscard]] std::int64_t first_try(std::int64_t few, std::int64_t round) const {
    if (few == job_.micro_batches()) return few;
    if (job_.layout.pp == 1) return few + 2 * round;
    return splits_backward(job_.layout.order) ? 4 * few : few + 4 * round;
  }

  void play(std::int64_t micro_batches) {
    micro_batches_ = micro_batches;
    const jobs::Job job = with_micro_batches(job_, micro_batches);
    lowered_ = schedule::lower(nameless_, schedule_of(job, own_, program_)).program;
    steady_ = sim::find_steady_state(lowered_, costs_, compiled_, workspace_);
    parts_.emplace(lowered_, compiled_, workspace_.timeline);
  }

  [[nodiscard]] std::vector<std::int64_t> compute() const {
    return sim::compute_of_lanes(lowered_, compiled_, job_.zero == jobs::Zero::Nothing);
  }
  static std::int64_t longest(const std::vector<std::int64_t>& lanes) {
    return lanes.empty() ? 0 : *std::ranges::max_element(lanes);
  }

  [[nodiscard]] Step played() const {
    return {.time = Duration(steady_.summary.step_ns),
            .stages = parts_->parts(),
            .error = public_error(cluster_, lowered_.program)};
  }

  // Of all micro-batches, from those that were played. `roughly`: of a long step rounds may be close.
  [[nodiscard]] std::optional<Step> continued(std::int64_t round, bool roughly) const {
    if (steady_.cycle != 1) return std::nullopt;
    const auto rounds = sim::find_rounds(lowered_, compiled_, workspace_.timeline,
                                         static_cast<std::int32_t>(round));
    if (!rounds) return std::nullopt;
    const std::vector<StageParts> added = parts_->parts(rounds->between, rounds->end);
    const bool is_close = roughly && is_long() && are_close(*rounds, added);
    if (!rounds->are_equal && !is_close) return std::nullopt;
    const std::int64_t more = job_.micro_batches() - micro_batches_;
    const std::int64_t times = more / round;
    Step step = played();
    sim::check_run(static_cast<double>(step.time.count()) +
                   static_cast<double>(rounds->second()) * static_cast<double>(times));
    step.time += Duration(rounds->second()) * times;
    for (std::size_t i = 0; i < step.stages.size(); ++i) {
      step.stages[i].add(added[i], times);
    }
    std::vector<std::int64_t> lanes = compute();
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] += rounds->compute[i] * times;
    step.bound = Duration(longest(lanes));
    step.host_bound = host_bound_phases(lowered_.program, costs_, more);
    return step;
  }

  [[nodiscard]] bool is_long() const {
    return job_.micro_batches() * job_.model.layers > kMostLayers;
  }
  // To a thousandth of a round, and a fiftieth of it each part.
  [[nodiscard]] bool are_close(const sim::Rounds& rounds,
                               const std::vector<StageParts>& second) const {
    const std::vector<StageParts> first = parts_->parts(rounds.begin, rounds.between);
    const Duration most = Duration(rounds.second()) / 50;
    const auto is_near = [&](std::int64_t other) {
      return std::abs(rounds.second() - other) * 1000 <= rounds.second();
    };
    // A stage that is slower now is what all wait for in the end.
    if (!is_near(rounds.first()) || !is_near(rounds.slowest)) return false;
    return std::ranges::equal(first, second, [&](const StageParts& a, const StageParts& b) {
      return a.is_within(most, b);
    });
  }

  const jobs::Job& job_;
  const models::Cluster& cluster_;
  const OwnTravel& own_;
  const schedule::Program program_;
  const models::Costs costs_;
  schedule::Program nameless_;
  std::int64_t micro_batches_ = 0;  // that were played last
  schedule::ScheduledProgram lowered_;
  sim::CompiledProgram compiled_;
  sim::Workspace workspace_;
  sim::SteadyState steady_;
  std::optional<PlayedStep> parts_;
};

}  // namespace

void verify_job(const jobs::Job& job) {
  constexpr std::int64_t kLayers = 2;
  jobs::Job small = with_micro_batches(job, fewer_micro_batches(job).few);
  std::vector<std::int64_t> layers = jobs::layers_of_stages(job);
  for (std::int64_t& count : layers) count = std::min(count, kLayers);
  small.model.layers = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  if (job.layout.pp > 1) small.layout.layers = std::move(layers);
  const schedule::Program program = jobs::program_of(small);
  lower_and_verify(program, schedule_of(small, {}, program), jobs::to_string(job));
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
  require_room(job, cluster);
  JobPrediction found{.job = job};
  auto played = attempt([&] { return StepPlayer(job, cluster, own).run(); });
  if (!played) {
    // Says the same with the names of ops and tensors.
    const LoweredJob named =
        lower_job(with_micro_batches(job, fewer_micro_batches(job).few), cluster, own);
    static_cast<void>(sim::compile(named.program, named.costs, 1));
    throw InputError(played.error);
  }
  Step& step = *played.value;
  found.step = step.time;
  found.bound = step.bound;
  found.error = step.error;
  found.host_bound = std::move(step.host_bound);
  found.stages = std::move(step.stages);
  found.figures = jobs::figures_of(job, found.step, peak_rate(job, cluster));
  found.memory = jobs::memory_of(job);
  if (cluster.compute) found.capacity = cluster.compute->capacity;
  found.idle = idle_ranks(job, cluster);
  return found;
}

}  // namespace dovetail::predict
