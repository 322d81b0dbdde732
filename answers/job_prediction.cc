// Prices a job's step: makes its Program, lowers it by the job's decisions, plays it until it repeats, and sums up its
// parts. A step of many micro-batches follows from one of fewer.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_prediction.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/prediction.h"
#include "base/attempt.h"
#include "base/decimal.h"
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
  return cluster.compute->peak(job.precision.product(), job.precision.products);
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
  // The order of a V goes on by one micro-batch of each of its chunks.
  const bool goes_by_one = job.layout.vp == 1 || job.layout.order == schedule::PipelineKind::Zbv;
  const std::int64_t round = goes_by_one ? 1 : stages;
  const std::int64_t few = 2 * stages;
  const std::int64_t count = job.micro_batches();
  const bool is_fewer = few < count && (count - few) % round == 0;
  return {.few = is_fewer ? few : count, .round = round};
}

// The job's step as it is played, with all that is asked of it. Its Program and what it costs are the same for any batch. Nobody reads
// the names of what is played, hundreds of thousands of ops and tensors with many micro-batches, so they have none.
class StepPlayer {
 public:
  StepPlayer(const jobs::Job& job, const models::Cluster& cluster, const OwnTravel& own, Play how)
      : job_(job),
        cluster_(cluster),
        own_(own),
        how_(how),
        program_(jobs::program_of(job)),
        costs_(models::costs_for(cluster, program_)),
        nameless_(program_) {
    for (schedule::Op& op : nameless_.ops) op.name.clear();
    for (schedule::Tensor& tensor : nameless_.tensors) tensor.name.clear();
  }

  // Once a pipeline is full, each further round of micro-batches adds the same to a step and to each part of it (sim/rounds.h). So
  // the step follows from one of fewer in which two rounds are equal; where none is found, all of it is played.
  Step run() {
    const std::int64_t count = job_.micro_batches();
    const std::int64_t round = fewer_micro_batches(job_).round;
    for (const std::int64_t some : tries()) {
      play(some);
      auto step = continued(round);
      if (!step && is_drifting_) {
        play(some + round);
        step = continued(round);
      }
      if (step) return *std::move(step);
    }
    play(count);
    Step step = played();
    step.bound = Duration(longest(compute()));
    step.host_bound = host_bound_phases(lowered_.program, costs_);
    return step;
  }

 private:
  // From so many layers times micro-batches on rounds need only be close.
  static constexpr std::int64_t kLong = 1'024;
  // As a part of the whole step: what its end may be off by then.
  static constexpr std::int64_t kClose = 2'000;
  // Layers times micro-batches behind which only all of them are played.
  static constexpr std::int64_t kMostTried = 10'000;

  [[nodiscard]] bool is_long() const { return job_.micro_batches() * job_.model.layers >= kLong; }

  // How many micro-batches are played before all of them are: as many as fill the pipeline and show two rounds behind that. Where backward is
  // in two, stages drift for longer.
  [[nodiscard]] std::vector<std::int64_t> tries() const {
    const auto fewer = fewer_micro_batches(job_);
    const std::int64_t few = fewer.few, round = fewer.round;
    const std::int64_t count = job_.micro_batches();
    const std::int64_t stages = job_.layout.pp;
    std::vector<std::int64_t> all;
    if (how_ == Play::Whole || few == count) return all;
    const auto first = [&] {
      if (stages == 1) return few + 2 * round;
      if (round > 1) return 4 * stages;
      return splits_backward(job_.layout.order) ? few + 4 : few + stages / 4;
    };
    // What drifts still drifts for long.
    for (std::int64_t some = first(); (all.empty() ? 6 * some <= 5 * count : 2 * some <= count);
         some *= 2) {
      all.push_back(some + (count - some) % round);
      if (some * job_.model.layers > kMostTried) break;
    }
    return all;
  }

  void play(std::int64_t micro_batches) {
    before_ = {micro_batches_, Duration(steady_.summary.step_ns)};
    micro_batches_ = micro_batches;
    parts_.reset();  // what was played before is not kept beside this
    compiled_ = {};
    workspace_ = {};
    lowered_ = {};
    const jobs::Job job = with_micro_batches(job_, micro_batches);
    lowered_ = schedule::lower(nameless_, schedule_of(job, own_, program_)).program;
    let_go();
    // What is sharded is gathered from one step to the next: two of them are hardly ever alike from the start.
    const std::int32_t steps = job_.zero == jobs::Zero::Nothing ? 2 : 3;
    steady_ = sim::find_steady_state(lowered_, costs_, compiled_, workspace_, steps);
    parts_.emplace(lowered_, compiled_, workspace_.timeline);
  }

  // Of what was lowered a play looks at no tensors of ops, a tenth of its memory, nor at room for more.
  void let_go() {
    for (schedule::Op& op : lowered_.program.ops) {
      std::vector<TensorId>().swap(op.reads);
      std::vector<TensorId>().swap(op.writes);
    }
    lowered_.program.tensors.shrink_to_fit();
    for (schedule::RankProgram& role : lowered_.roles) role.commands.shrink_to_fit();
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

  // Of all micro-batches, from those that were played.
  [[nodiscard]] std::optional<Step> continued(std::int64_t round) {
    is_drifting_ = false;
    if (steady_.cycle != 1) return std::nullopt;
    const auto rounds = sim::find_rounds(lowered_, compiled_, workspace_.timeline,
                                         static_cast<std::int32_t>(round));
    if (!rounds) return std::nullopt;
    const Duration second(rounds->second());
    const std::int64_t more = job_.micro_batches() - micro_batches_;
    const std::int64_t times = more / round;
    if (!rounds->are_equal && !(is_long() && are_close(*rounds, round, times))) return std::nullopt;
    Step step = played();
    sim::check_run(static_cast<double>(step.time.count()) +
                   static_cast<double>(rounds->second()) * static_cast<double>(times));
    step.time += second * times;
    std::vector<StageParts> added = parts_->parts(rounds->own);
    for (std::size_t i = 0; i < step.stages.size(); ++i) {
      StageParts& part = added[i];
      part.bubble +=
          second - Duration(rounds->own[i].length());  // what is quicker waits in the end
      part.compute += std::min(part.bubble, Duration{});
      part.bubble = std::max(part.bubble, Duration{});
      step.stages[i].add(part, times);
    }
    std::vector<std::int64_t> lanes = compute();
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] += rounds->compute[i] * times;
    step.bound = Duration(longest(lanes));
    step.host_bound = host_bound_phases(lowered_.program, costs_, more);
    return step;
  }

  // Whether the step's end is known to the part kClose. A step of more rounds grows by no less than it did by the last one, and by no more than
  // what any stage takes for a round: it is the end of the last of several chains, of which each grows by the same with every round.
  [[nodiscard]] bool are_close(const sim::Rounds& rounds, std::int64_t round, std::int64_t times) {
    if (!rounds.are_alike || !rounds.slowest) return false;
    const auto differ = [](std::int64_t a, std::int64_t b) { return a < b ? b - a : a - b; };
    const std::int64_t step = steady_.summary.step_ns;
    const std::int64_t most = (step + times * rounds.second()) / kClose;
    const auto is_near = [&](std::int64_t other) {
      return times * differ(rounds.second(), other) <= most;
    };
    if (!is_near(rounds.first()) || !is_near(*rounds.slowest)) return false;
    if (is_near(*rounds.quickest) && !rounds.host_gains) return true;
    if (before_.micro_batches + round == micro_batches_)
      return is_near(step - before_.time.count());
    is_drifting_ = splits_backward(job_.layout.order) || rounds.host_gains;
    return false;
  }

  struct Played {
    std::int64_t micro_batches = 0;
    Duration time{};
  };

  const jobs::Job& job_;
  const models::Cluster& cluster_;
  const OwnTravel& own_;
  const Play how_;
  const schedule::Program program_;
  const models::Costs costs_;
  schedule::Program nameless_;
  std::int64_t micro_batches_ = 0;  // that were played last
  Played before_;                   // the play before that
  bool is_drifting_ = false;  // the last one would do, were it known by how much its step has grown
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
                          const OwnTravel& own, Play how) {
  require_room(job, cluster);
  JobPrediction found{.job = job};
  auto played = attempt([&] { return StepPlayer(job, cluster, own, how).run(); });
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

std::string what_if_note(const models::WhatIf& asked, const jobs::Job& job,
                         const models::Cluster& cluster, Duration step) {
  std::string note = "what if: " + to_string(asked);
  const auto before = attempt([&] { return predict_job(job, cluster).step; });
  if (!before) return note;
  const double percent = 100 * (to_us(step) / to_us(*before.value) - 1);
  return note + ": " + dovetail::to_string(step) + " a step, " +
         dovetail::to_string(*before.value) + " without (" + fixed(std::abs(percent), 1) +
         (percent < 0 ? " % less)" : " % more)");
}

}  // namespace dovetail::predict
