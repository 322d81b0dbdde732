// Which figures decide what is found: the thresholds stand in find() and nowhere else.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/diagnosis.h"

#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace dovetail::diagnose {
namespace {

RankDiagnosis diagnose_rank(const JobTrace& job, std::size_t number,
                            std::optional<Duration> unprofiled_step) {
  const RankTrace& rank = job.ranks[number];
  RankDiagnosis result;
  result.rank = rank.rank;
  result.file = rank.trace.file;
  result.replay = replay_rank(rank);
  result.recorded = recorded_steps(rank.line);
  result.causes =
      causes_of(rank, result.replay.recorded, result.replay.timeline, result.replay.buckets);
  result.contention = contention_of(rank);
  result.forecast = forecast_rank(job, number, result.replay, result.causes, unprofiled_step);
  result.host = host_time(rank);
  result.sharding = imports::sharding_of(rank.trace, rank.line);
  result.recording =
      recording_cost(rank, result.host.step - result.host.part(HostPart::Waiting).time);
  return result;
}

// --- who was late ----------------------------------------------------------------------------------

std::string words_of(const TracedCollective& collective) {
  std::string text(to_string(collective.kind));
  if (collective.bytes) text += " of " + dovetail::to_string(*collective.bytes);
  return text;
}

std::vector<LateRank> late_ranks(const JobTrace& job) {
  std::map<std::size_t, LateRank> by_rank;
  std::map<std::size_t, Duration> most_waiting;
  std::map<std::pair<std::size_t, std::string>, Duration> reasons;
  for (const MatchedCollective& matched : job.matched) {
    if (job.ranks[matched.ranks[0]].is_message(matched.by_rank[0])) continue;
    LateRank& late = by_rank[matched.late_rank];
    Duration& most = most_waiting[matched.late_rank];
    if (matched.waiting >= most) {
      most = matched.waiting;
      late.mostly_in =
          words_of(job.ranks[matched.late_rank]
                       .line.collectives[static_cast<std::size_t>(matched.of(matched.late_rank))]);
    }
    late.rank = job.ranks[matched.late_rank].rank;
    late.caused += matched.waiting;
    ++late.collectives;
    if (!matched.late_with.empty())
      reasons[{matched.late_rank, matched.late_with}] += matched.waiting;
  }
  std::vector<LateRank> late;
  for (auto& [number, entry] : by_rank) {
    Duration most{};
    for (const auto& [key, time] : reasons) {
      if (key.first != number || time <= most) continue;
      most = time;
      entry.mostly_with = key.second;
    }
    late.push_back(std::move(entry));
  }
  std::ranges::sort(late, std::ranges::greater{}, &LateRank::caused);
  return late;
}

// --- what is found -----------------------------------------------------------------------------------

// Medians over the steps of a rank, means over ranks.
struct Totals {
  Duration step{}, exposed{}, waits_for_host{}, no_network{}, wait_at_update{}, prefetch{};
  ByCause by{};
  Gain recording{};
  double error = 0;  // the largest of the ranks
};

// Parts of `by` in the proportions of all steps together, so that they add up to the median.
ByCause shares_of(const std::vector<StepCauses>& steps, Duration exposed) {
  ByCause by{};
  Duration all{};
  for (const StepCauses& step : steps) {
    all += step.exposed;
    for (std::size_t c = 0; c < kCauses; ++c) by[c] += step.by[c];
  }
  if (all <= Duration{}) return by;
  const double share = static_cast<double>(exposed.count()) / static_cast<double>(all.count());
  for (Duration& cause : by) cause = from_ns(static_cast<double>(cause.count()) * share);
  return by;
}

Totals totals_of(const Diagnosis& diagnosis) {
  Totals totals;
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    totals.error = std::max(totals.error, std::abs(rank.replay.error.step));
    totals.step += usual_step(rank.recorded);
    std::vector<Duration> exposed;
    std::vector<Duration> waits;
    for (const StepCauses& step : rank.causes) {
      exposed.push_back(step.exposed);
      waits.push_back(step.gpu_waits_for_host);
    }
    const Duration usual = median_or(std::move(exposed), Duration{});
    totals.exposed += usual;
    totals.waits_for_host += median_or(std::move(waits), Duration{});
    const ByCause by = shares_of(rank.causes, usual);
    for (std::size_t c = 0; c < kCauses; ++c) totals.by[c] += by[c];
    for (const WhatIf& what_if : rank.forecast.what_ifs) {
      if (what_if.change == Change::NoNetwork) totals.no_network += what_if.gain.middle;
      if (what_if.change == Change::WaitAtUpdate) totals.wait_at_update += what_if.gain.middle;
      if (what_if.change == Change::Prefetch) totals.prefetch += what_if.gain.middle;
      if (what_if.change == Change::NoRecording) {
        totals.recording.middle += what_if.gain.middle;
        totals.recording.low += what_if.gain.low;
        totals.recording.high += what_if.gain.high;
      }
    }
  }
  const auto count = std::max<std::int64_t>(1, std::ssize(diagnosis.ranks));
  for (Duration* value : {&totals.step, &totals.exposed, &totals.waits_for_host, &totals.no_network,
                          &totals.wait_at_update, &totals.prefetch, &totals.recording.middle,
                          &totals.recording.low, &totals.recording.high}) {
    *value /= count;
  }
  for (Duration& value : totals.by) value /= count;
  return totals;
}

bool any_rank(const JobTrace& job, bool (*holds)(const RankTrace&)) {
  return std::ranges::any_of(job.ranks, holds);
}

std::vector<Finding> find(const JobTrace& job, const Diagnosis& diagnosis) {
  const Totals totals = totals_of(diagnosis);
  std::vector<Finding> findings;
  const auto add = [&](FindingKind kind, Duration amount) -> Finding& {
    findings.push_back(
        {.kind = kind, .amount = amount, .whole = totals.step, .error = totals.error});
    return findings.back();
  };
  if (!any_rank(job, [](const RankTrace& rank) { return !rank.line.works.empty(); })) {
    add(FindingKind::NoGpuWork, {});
    return findings;
  }
  if (!std::ranges::all_of(diagnosis.ranks, [](const RankDiagnosis& rank) {
        return rank.replay.error.is_trustworthy();
      })) {
    add(FindingKind::NotReplayed, {});
    return findings;
  }
  const bool communicates =
      any_rank(job, [](const RankTrace& rank) { return !rank.line.collectives.empty(); });
  const bool network_matters = totals.no_network * 50 > totals.step;
  const bool host_bound = totals.waits_for_host * 4 >= totals.step && !network_matters;
  const bool stragglers = job.ranks.size() > 1 && !diagnosis.late.empty() &&
                          job.waiting_time * 2 >= job.collective_time &&
                          totals.by[static_cast<std::size_t>(Cause::Straggler)] * 20 >= totals.step;
  if (diagnosis.stages && diagnosis.stages->bubble * 50 >= totals.step) {
    add(FindingKind::Pipeline, diagnosis.stages->bubble);
  }
  // Waiting that is hidden behind compute lengthens no step.
  const bool is_uneven =
      diagnosis.uneven &&
      totals.by[static_cast<std::size_t>(Cause::Straggler)] * 2 >= diagnosis.uneven->gain;
  if (is_uneven) add(FindingKind::Uneven, diagnosis.uneven->gain);
  if (stragglers) add(FindingKind::Stragglers, job.waiting_time).whole = job.collective_time;
  if (host_bound && communicates) {
    Finding& found = add(FindingKind::HostBound, totals.waits_for_host);
    found.without_network = totals.step - totals.no_network;
    found.of_recording = totals.recording;
  }
  if (!communicates) {
    add(FindingKind::NoCollective, {});
  } else {
    // What is exposed to the network, though the step ends without waiting for it, is not hidden.
    const Duration to_network = totals.exposed - totals.by[static_cast<std::size_t>(Cause::Host)];
    const bool is_hidden = to_network * 20 <= totals.step;
    if (!stragglers && !is_uneven && !host_bound && !network_matters && is_hidden) {
      add(FindingKind::Hidden, totals.no_network).without_network = totals.step - totals.no_network;
    }
    add(FindingKind::Exposed, totals.exposed).by = totals.by;
    const auto add_waits = [&](FindingKind kind, Cause cause, Duration gain) {
      const Duration lost = totals.by[static_cast<std::size_t>(cause)];
      if (lost * 100 >= totals.step) add(kind, lost).gain = gain;
    };
    add_waits(FindingKind::Serialised, Cause::Serialised, totals.wait_at_update);
    add_waits(FindingKind::NoPrefetch, Cause::NoPrefetch, totals.prefetch);
  }
  // HostBound says so already, where there is communication to be bound by.
  if ((!host_bound || !communicates) && totals.waits_for_host * 20 >= totals.step) {
    add(FindingKind::WaitsForHost, totals.waits_for_host).of_recording = totals.recording;
  }
  const imports::Accumulation& accumulation = job.ranks.front().line.accumulation;
  if (communicates && accumulation.reducing > 1) {
    // A step is one of the passes that reduce.
    const Duration saved = std::max(Duration{}, totals.no_network) * (accumulation.reducing - 1);
    Finding& found = add(FindingKind::Accumulation, saved);
    Duration all{};
    for (const TimedStep& step : diagnosis.ranks.front().recorded) all += step.step;
    found.whole = all * accumulation.reducing / std::ssize(diagnosis.ranks.front().recorded);
    found.accumulation = accumulation;
    if (saved * 20 >= found.whole)
      std::rotate(findings.begin(), findings.end() - 1, findings.end());
  }
  return findings;
}

// Over all ranks; of kernels of one kind all together.
imports::Unrecognised unrecognised_of(const JobTrace& job) {
  imports::Unrecognised all;
  for (const RankTrace& rank : job.ranks) {
    const imports::Unrecognised& one = rank.line.unrecognised;
    all.recorder = one.recorder;
    all.launches += one.launches;
    all.unread.flows += one.unread.flows;
    for (const auto& [library, calls] : one.device_libraries) {
      all.device_libraries[library] += calls;
    }
    all.cpu_collectives += one.cpu_collectives;
    all.unread.without_time += one.unread.without_time;
    for (const auto& [what, events] : one.unread.foreign) all.unread.foreign[what] += events;
    for (const imports::LikelyCollectives& likely : one.likely) {
      const auto known =
          std::ranges::find(all.likely, likely.pattern, &imports::LikelyCollectives::pattern);
      if (known == all.likely.end()) {
        all.likely.push_back(likely);
      } else {
        known->kernels += likely.kernels;
      }
    }
  }
  return all;
}

void add_new(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  for (const std::string& line : more) {
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
}

// Once where every rank says the same, else with the rank's number.
void add_of_rank(std::vector<std::string>& lines, const JobTrace& job, std::size_t number,
                 std::vector<std::string> RankTimeline::*said) {
  const RankTrace& rank = job.ranks[number];
  for (const std::string& line : rank.line.*said) {
    const bool is_of_all = std::ranges::all_of(job.ranks, [&](const RankTrace& other) {
      return std::ranges::count(other.line.*said, line) > 0;
    });
    add_new(lines, {is_of_all ? line : "rank " + std::to_string(rank.rank) + ": " + line});
  }
}

// Of the step in the middle, by the time that copies take.
std::optional<DdpCopies> copies_of(const RankDiagnosis& rank) {
  std::vector<const TracedBuckets*> steps;
  for (const TracedBuckets& step : rank.replay.buckets) {
    if (!step.buckets.empty()) steps.push_back(&step);
  }
  if (steps.empty()) return std::nullopt;
  std::ranges::sort(steps, {}, [](const auto* step) { return step->into.time + step->out.time; });
  const TracedBuckets& middle = *steps[(steps.size() - 1) / 2];
  DdpCopies copies{.buckets = middle.buckets.size(),
                   .into = middle.into,
                   .out = middle.out,
                   .is_batched = middle.is_batched,
                   .is_compiled_whole = middle.is_compiled_whole,
                   .element_size = middle.buckets.front().element_size,
                   .sent_element = middle.buckets.front().sent_element};
  for (const TracedBucket& bucket : middle.buckets) copies.gradients += bucket.gradients.size();
  return copies;
}

// Where the imported workload is not the recorded step.
std::string missed(const RankDiagnosis& rank) {
  const WorkloadCheck& check = *rank.forecast.check;
  return "what other buckets would give to less than " +
         dovetail::to_string(std::chrono::abs(check.predicted - check.recorded)) +
         " a step: the workload made of rank " + std::to_string(rank.rank) + " takes " +
         dovetail::to_string(check.predicted) + " with the recorded ones, the trace " +
         dovetail::to_string(check.recorded);
}

}  // namespace

double Finding::share() const {
  return whole <= Duration{}
             ? 0
             : static_cast<double>(amount.count()) / static_cast<double>(whole.count());
}

const WhatIf* RankDiagnosis::what_if(Change change) const {
  const auto found = std::ranges::find(forecast.what_ifs, change, &WhatIf::change);
  return found == forecast.what_ifs.end() ? nullptr : &*found;
}

Diagnosis diagnose(const JobTrace& job, const Framework& framework,
                   std::optional<Duration> unprofiled_step) {
  Diagnosis diagnosis;
  diagnosis.unprofiled_step = unprofiled_step;
  diagnosis.framework = &framework;
  diagnosis.world_size = job.world_size();
  for (std::size_t number = 0; number < job.ranks.size(); ++number) {
    const RankTrace& rank = job.ranks[number];
    diagnosis.ranks.push_back(diagnose_rank(job, number, unprofiled_step));
    add_of_rank(diagnosis.unknowns, job, number, &RankTimeline::unknowns);
    add_of_rank(diagnosis.notes, job, number, &RankTimeline::notes);
    for (const std::string& problem : rank.trace.problems) {
      diagnosis.unknowns.push_back(rank.trace.file + ": " + problem);
    }
  }
  diagnosis.unknowns.insert(diagnosis.unknowns.end(), job.unknowns.begin(), job.unknowns.end());
  diagnosis.unrecognised = unrecognised_of(job);
  if (job.ranks.front().line.works.empty()) {  // then all ranks are without
    diagnosis.findings = find(job, diagnosis);
    return diagnosis;
  }
  if (job.ranks.front().line.steps.size() == 1) {
    diagnosis.unknowns.emplace_back("the spread over steps: one step in the trace");
  }
  const bool unsized =
      std::ranges::any_of(diagnosis.ranks.front().replay.buckets,
                          [](const TracedBuckets& step) { return !step.sizes_known; });
  const bool may_have_shapes = job.ranks.front().trace.recorder == imports::Recorder::Kineto &&
                               !job.ranks.front().trace.has_shapes;
  const std::string with_shapes = may_have_shapes ? " (record with record_shapes=True)" : "";
  if (unsized && !is_sharded(job.ranks.front().trace)) {
    diagnosis.unknowns.push_back("the size of each gradient" + with_shapes +
                                 ": buckets other than the recorded ones are judged as if the "
                                 "gradients of each recorded bucket were alike");
  }
  diagnosis.late = late_ranks(job);
  std::vector<std::vector<StepCauses>> causes;
  for (const RankDiagnosis& rank : diagnosis.ranks) causes.push_back(rank.causes);
  diagnosis.stages = stages_of(job, causes);
  diagnosis.uneven = uneven_work(job);
  // Its groups are of modules: no cap of DDP's applies.
  const Recording& first = job.ranks.front().trace;
  diagnosis.is_of_fsdp = is_sharded(first);
  diagnosis.has_ddp = first.has(Is::DdpForward);
  if (!diagnosis.is_of_fsdp) diagnosis.copies = copies_of(diagnosis.ranks.front());
  diagnosis.is_compiled = first.has(Is::Compiled);
  diagnosis.has_whole_graphs = first.has(Is::WholeGraph);
  diagnosis.is_of_rocm = first.has(Is::Rocm);
  if (!diagnosis.is_of_fsdp) {
    diagnosis.buckets = bucket_advice(job, diagnosis.ranks.front().forecast, framework);
  }
  const bool has_collectives = std::ranges::any_of(
      job.ranks, [](const RankTrace& rank) { return !rank.line.collectives.empty(); });
  const std::optional<WorkloadCheck>& check = diagnosis.ranks.front().forecast.check;
  if (check && !check->is_trustworthy()) {
    diagnosis.unknowns.push_back(missed(diagnosis.ranks.front()));
  } else if (!diagnosis.buckets && has_collectives && !diagnosis.is_of_fsdp) {
    const auto unsized_bucket = [](const TracedBuckets& step) {
      return std::ranges::any_of(step.buckets,
                                 [](const TracedBucket& bucket) { return bucket.elements == 0; });
    };
    diagnosis.unknowns.push_back(
        std::ranges::any_of(diagnosis.ranks.front().replay.buckets, unsized_bucket)
            ? "what other buckets would give: the sizes of the recorded ones are not in the trace" +
                  with_shapes
        : !first.has(Is::Backward)
            ? "what other buckets would give: no operator of backward is in the recording, so no "
              "gradient either (Nsight Systems has them under torch.autograd.profiler.emit_nvtx)"
            : "what other buckets would give: no all-reduce of this trace was issued from backward "
              "(by DistributedDataParallel), or the replay misses the step");
  }
  diagnosis.findings = find(job, diagnosis);
  const bool is_told = std::ranges::any_of(diagnosis.findings, [](const Finding& finding) {
    return finding.kind == FindingKind::Uneven;
  });
  if (!is_told) diagnosis.uneven.reset();
  return diagnosis;
}

}  // namespace dovetail::diagnose
