// Deriving a profile from a replay without communication.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/workload.h"

#include "base/error.h"
#include "diagnose/causes.h"
#include "diagnose/replay.h"
#include "imports/kineto/ddp_buckets.h"
#include "imports/profile_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace dovetail::diagnose {
namespace {

Duration median(std::vector<Duration> values) {
  if (values.empty()) return {};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// One step without communication.
struct QuietStep {
  Duration forward{}, backward{}, optimizer{};
  std::vector<Duration> ready;  // by gradient, from the start of backward
};

class Extraction {
 public:
  explicit Extraction(const RankTrace& rank)
      : rank_(rank), model_(replay_model(rank.trace, rank.line)) {
    const ReplayError error = replay_error(model_, rank.line);
    if (!error.is_trustworthy()) {
      throw InputError(
          rank.trace.file +
          ": the replay of this trace misses its step times: no workload is made of it");
    }
    for (const TracedStep& step : rank.line.steps) {
      buckets_.push_back(imports::ddp_buckets(rank.trace, rank.line, step));
    }
    find_backward();
  }

  [[nodiscard]] const std::vector<TracedBuckets>& buckets() const { return buckets_; }

  // Of a recorded step in the mean: how long the GPU waits for the host, and the step.
  [[nodiscard]] std::pair<Duration, Duration> host_waits() const {
    const Replay replay = play(model_);
    Duration waits{};
    for (const StepCauses& step : causes_of(rank_, model_, replay, buckets_)) {
      waits += step.gpu_waits_for_host;
    }
    Duration all{};
    const std::vector<ReplayedStep> steps = recorded_steps(model_, rank_.line);
    for (const ReplayedStep& step : steps) all += step.step;
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(1, steps.size()));
    return {waits / count, all / count};
  }

  // Steps with as many gradients as most have: the first one may group them otherwise.
  std::vector<QuietStep> quiet_steps(std::size_t gradients) {
    ReplayModel quiet = model_;
    for (ReplayNode& node : quiet.nodes) {
      if (node.communicates) node.duration = {};
    }
    const Replay replay = play(quiet);
    const std::vector<ReplayedStep> steps = replayed_steps(quiet, replay);
    std::vector<QuietStep> result;
    Instant begin = quiet.host_start;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      if (count(s) == gradients) {
        if (auto step = quiet_step(quiet, replay, s, begin, steps[s].step)) {
          result.push_back(std::move(*step));
        }
      }
      begin += steps[s].step;
    }
    return result;
  }

  [[nodiscard]] std::size_t count(std::size_t step) const {
    std::size_t sum = 0;
    for (const TracedBucket& bucket : buckets_[step].buckets) sum += bucket.gradients.size();
    return sum;
  }

 private:
  // Work launched by autograd.
  void find_backward() {
    in_backward_.assign(rank_.line.works.size(), 0);
    for (std::size_t i = 0; i < in_backward_.size(); ++i) {
      const GpuWork& work = rank_.line.works[i];
      if (work.launch == kNone || work.collective != kNone) continue;
      const HostCall& call = rank_.line.calls[static_cast<std::size_t>(work.launch)];
      const bool is = enclosing(rank_.trace, rank_.line,
                                rank_.line.parent[static_cast<std::size_t>(call.event)],
                                "autograd::engine::evaluate_function") != kNone;
      in_backward_[i] = is ? 1 : 0;
    }
  }

  std::optional<QuietStep> quiet_step(const ReplayModel& quiet, const Replay& replay, std::size_t s,
                                      Instant begin, Duration length) const {
    Instant first = Instant::max();
    Instant last;
    for (const std::int32_t number : rank_.line.steps[s].works) {
      if (in_backward_[static_cast<std::size_t>(number)] == 0) continue;
      const std::int32_t node = quiet.node_of_work[static_cast<std::size_t>(number)];
      if (node == kNone) continue;
      first = std::min(first, replay.start[static_cast<std::size_t>(node)]);
      last = std::max(last, replay.end[static_cast<std::size_t>(node)]);
    }
    if (first >= last) return std::nullopt;
    QuietStep step;
    step.forward = std::max(Duration{}, first - begin);
    step.backward = last - first;
    step.optimizer = std::max(Duration{}, begin + length - last);
    Duration before{};
    for (const TracedBucket& bucket : buckets_[s].buckets) {
      for (const TracedGradient& gradient : bucket.gradients) {
        before =
            std::clamp(ready_in(quiet, replay, bucket, gradient) - first, before, step.backward);
        step.ready.push_back(before);
      }
    }
    return step;
  }

  static Instant ready_in(const ReplayModel& quiet, const Replay& replay,
                          const TracedBucket& bucket, const TracedGradient& gradient) {
    if (gradient.work == kNone) return Instant();
    const std::int32_t node = quiet.node_of_work[static_cast<std::size_t>(gradient.work)];
    if (node == kNone) return Instant();
    return bucket.copied ? replay.start[static_cast<std::size_t>(node)]
                         : replay.end[static_cast<std::size_t>(node)];
  }

  const RankTrace& rank_;
  ReplayModel model_;
  std::vector<TracedBuckets> buckets_;
  std::vector<char> in_backward_;
};

// The number of gradients that most steps have.
std::size_t usual_count(const Extraction& extraction, std::size_t steps) {
  std::map<std::size_t, std::size_t> votes;
  for (std::size_t s = 0; s < steps; ++s) ++votes[extraction.count(s)];
  std::size_t best = 0;
  for (const auto& [count, number] : votes) {
    if (count > 0 && (best == 0 || number >= votes[best])) best = count;
  }
  return best;
}

// Time of copying into and out of buckets, per byte.
double copy_ns_per_byte(const RankTrace& rank, const std::vector<TracedBuckets>& buckets) {
  Duration time{};
  Bytes bytes;
  for (const TracedBuckets& step : buckets) {
    for (const TracedBucket& bucket : step.buckets) {
      if (!bucket.copied) continue;
      bytes += bucket.bytes;
      for (const TracedGradient& gradient : bucket.gradients) {
        if (gradient.work == kNone) continue;
        const GpuWork& work = rank.line.works[static_cast<std::size_t>(gradient.work)];
        time += work.end - work.start;
      }
    }
  }
  if (bytes.count() == 0) return 0;
  return static_cast<double>(time.count()) / static_cast<double>(bytes.count());
}

std::vector<models::ProfiledGradient> gradients_of(const TracedBuckets& buckets,
                                                   const std::vector<QuietStep>& steps) {
  std::vector<models::ProfiledGradient> gradients;
  Duration before{};
  for (std::size_t b = 0; b < buckets.buckets.size(); ++b) {
    const TracedBucket& bucket = buckets.buckets[b];
    const std::int64_t size = bucket.element_size.count();
    for (std::size_t g = 0; g < bucket.gradients.size(); ++g) {
      std::vector<Duration> ready;
      for (const QuietStep& step : steps) ready.push_back(step.ready[gradients.size()]);
      before = std::max(before, median(std::move(ready)));
      gradients.push_back({.name = "bucket" + std::to_string(b) + ".gradient" + std::to_string(g),
                           .numel = std::max<std::int64_t>(1, bucket.gradients[g].elements),
                           .dtype = size == 2   ? schedule::DType::BF16
                                    : size == 8 ? schedule::DType::F64
                                                : schedule::DType::F32,
                           .ready = {before}});
    }
  }
  return gradients;
}

// Where the GPU stands still for a tenth of the step and more.
void add_host_note(TracedWorkload& workload, const Extraction& extraction) {
  const auto [waits, step] = extraction.host_waits();
  if (waits * 10 < step) return;
  const auto ms = [](Duration time) {
    const std::int64_t tenths = std::llround(to_us(time) / 100);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
  };
  workload.notes.push_back(
      "the GPU waits " + ms(waits) + " of " + ms(step) +
      " a step for the host, and here that time counts as compute: what makes compute shorter "
      "(sharded updates, another GPU) gains less than predicted");
}

void add_notes(TracedWorkload& workload, const JobTrace& job, const TracedBuckets& buckets,
               std::size_t sizes) {
  std::vector<std::string>& notes = workload.notes;
  if (!buckets.sizes_known) {
    notes.emplace_back(
        "the trace does not tell the size of each gradient (record with record_shapes=True): the "
        "elements of a bucket are shared out evenly over its gradients");
  }
  if (buckets.gradients_after_last > 0) {
    notes.push_back(std::to_string(buckets.gradients_after_last) +
                    " gradients belong to no bucket and are left out");
  }
  if (sizes < 2) {
    notes.emplace_back(
        "fewer than two sizes of all-reduce in the trace: no table; name a --cluster to plan");
  } else if (job.ranks.size() == 1) {
    notes.emplace_back(
        "all-reduce times are the shortest over the steps of one rank: upper bounds, they may "
        "contain "
        "waiting for other ranks");
  }
  std::size_t others = 0;
  for (const TracedCollective& c : job.ranks.front().line.collectives) {
    others += c.kind == CollectiveKind::AllReduce ? 0U : 1U;
  }
  if (others > 0) {
    notes.push_back(std::to_string(others) +
                    " collectives that are no all-reduce are not in the workload");
  }
}

}  // namespace

std::vector<std::pair<Bytes, Duration>> all_reduce_times(const JobTrace& job) {
  std::map<Bytes, Duration> shortest;
  const std::int64_t world = job.world_size();
  for (const RankTrace& rank : job.ranks) {
    for (std::size_t c = 0; c < rank.line.collectives.size(); ++c) {
      const TracedCollective& collective = rank.line.collectives[c];
      if (collective.kind != CollectiveKind::AllReduce || !collective.bytes) continue;
      if (collective.group_size.value_or(world) != world) continue;
      const Duration time = std::max(Duration(1), rank.transfer[c]);
      const auto [entry, added] = shortest.emplace(*collective.bytes, time);
      if (!added) entry->second = std::min(entry->second, time);
    }
  }
  return {shortest.begin(), shortest.end()};
}

TracedWorkload workload_of(const JobTrace& job, const WorkloadOptions& options) {
  const RankTrace& rank = job.ranks.front();
  Extraction extraction(rank);
  const std::size_t gradients = usual_count(extraction, rank.line.steps.size());
  if (gradients == 0) {
    throw InputError(rank.trace.file +
                     ": no bucket of DistributedDataParallel in it (an all-reduce that backward "
                     "launched): no workload can be made");
  }
  const std::vector<QuietStep> steps = extraction.quiet_steps(gradients);
  if (steps.empty()) {
    throw InputError(rank.trace.file + ": no backward on a GPU in it: no workload can be made");
  }
  std::size_t usual = 0;
  while (extraction.count(usual) != gradients) ++usual;
  const TracedBuckets& buckets = extraction.buckets()[usual];
  if (job.world_size() > (1 << 20)) {
    throw InputError(rank.trace.file + ": a job of more than 1048576 ranks");
  }
  TracedWorkload workload;
  workload.gradients = gradients;
  const auto middle = [&](Duration QuietStep::*part) {
    std::vector<Duration> values;
    for (const QuietStep& step : steps) values.push_back(step.*part);
    return median(std::move(values));
  };
  workload.forward = middle(&QuietStep::forward);
  workload.backward = middle(&QuietStep::backward);
  workload.optimizer = middle(&QuietStep::optimizer);
  models::Profile profile;
  profile.name = options.name;
  profile.world_size = std::max<std::int64_t>(2, job.world_size());
  profile.gradients = gradients_of(buckets, steps);
  workload.backward = std::max(workload.backward, profile.gradients.back().ready.front());
  profile.by_rank = {{workload.forward, workload.backward, workload.optimizer}};
  const auto times = all_reduce_times(job);
  if (times.size() >= 2) {
    profile.collectives.emplace();
    for (const auto& [bytes, time] : times) {
      profile.collectives->points.push_back({.bytes = bytes, .isolated = time});
    }
  }
  profile.copy_ns_per_byte = copy_ns_per_byte(rank, extraction.buckets());
  add_host_note(workload, extraction);
  add_notes(workload, job, buckets, times.size());
  profile.notes = workload.notes;
  workload.json = imports::profile_to_json(
      profile,
      "imported from a PyTorch profiler trace: the step without communication, median of " +
          std::to_string(steps.size()) + " steps");
  return workload;
}

}  // namespace dovetail::diagnose
