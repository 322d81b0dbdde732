// From figures to sentences.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/diagnosis.h"

#include "diagnose/what_if.h"
#include "diagnose/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

namespace dovetail::diagnose {
namespace {

// 12.3 ms; three digits below 10 ms.
std::string ms(Duration time) {
  std::array<char, 32> text{};
  const double value = to_us(time) / 1e3;
  std::snprintf(text.data(), text.size(), std::abs(value) < 10 ? "%.2f ms" : "%.1f ms", value);
  return text.data();
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f %%", share * 100);
  return text.data();
}

double ratio(Duration part, Duration whole) {
  return whole <= Duration{}
             ? 0
             : static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

Duration mean(Duration sum, std::size_t count) {
  return count == 0 ? Duration{} : sum / static_cast<std::int64_t>(count);
}

RankDiagnosis diagnose_rank(const RankTrace& rank) {
  RankDiagnosis result;
  result.rank = rank.rank;
  result.file = rank.trace.file;
  result.model = replay_model(rank.trace, rank.line);
  result.error = replay_error(result.model, rank.line);
  const Replay replay = play(result.model);
  result.recorded = recorded_steps(result.model, rank.line);
  result.replayed = replayed_steps(result.model, replay);
  for (const TracedStep& step : rank.line.steps) {
    result.buckets.push_back(imports::ddp_buckets(rank.trace, rank.line, step));
  }
  result.causes = causes_of(rank, result.model, replay, result.buckets);
  result.contention = contention_of(rank);
  if (!result.error.is_trustworthy() || rank.line.works.empty()) return result;
  const std::vector<Duration> own = step_times(result.model);
  const auto add = [&](const char* change, const ReplayModel& model) {
    result.what_ifs.push_back({change, gain_of(own, step_times(model), result.error)});
  };
  if (!rank.line.collectives.empty()) {
    add("a network that takes no time", without_communication(result.model));
    add("no rank late (collectives take their own time only)", without_waiting(rank, result.model));
  }
  add("a host that takes no time (CUDA graphs, compiled steps)", without_host(result.model));
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
    LateRank& late = by_rank[matched.late_rank];
    Duration& most = most_waiting[matched.late_rank];
    if (matched.waiting >= most) {
      most = matched.waiting;
      late.mostly_in = words_of(
          job.ranks.front().line.collectives[static_cast<std::size_t>(matched.by_rank.front())]);
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

// --- the sentences -----------------------------------------------------------------------------------

// Means over ranks and steps.
struct Totals {
  Duration step{}, exposed{}, waits_for_host{}, no_network{}, communication{};
  ByCause by{};
  std::size_t steps = 0;
};

Totals totals_of(const Diagnosis& diagnosis) {
  Totals totals;
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (std::size_t s = 0; s < rank.recorded.size(); ++s) {
      ++totals.steps;
      totals.step += rank.recorded[s].step;
      totals.communication += rank.recorded[s].figures.comm;
      totals.exposed += rank.causes[s].exposed;
      totals.waits_for_host += rank.causes[s].gpu_waits_for_host;
      for (std::size_t c = 0; c < kCauses; ++c) totals.by[c] += rank.causes[s].by[c];
    }
    for (const WhatIf& what_if : rank.what_ifs) {
      if (what_if.change.find("network") == std::string::npos) continue;
      totals.no_network += what_if.gain.middle * static_cast<std::int64_t>(rank.recorded.size());
    }
  }
  for (Duration* value : {&totals.step, &totals.exposed, &totals.waits_for_host, &totals.no_network,
                          &totals.communication}) {
    *value = mean(*value, totals.steps);
  }
  for (Duration& value : totals.by) value = mean(value, totals.steps);
  return totals;
}

std::string host_sentence(const Totals& totals) {
  return "host-bound: no bucket size will help; the GPU waits " + ms(totals.waits_for_host) +
         " of " + ms(totals.step) +
         " for the host (Python), and with a network that took no time the step would be " +
         ms(totals.step - totals.no_network);
}

std::string late_sentence(const JobTrace& job, const Diagnosis& diagnosis) {
  const LateRank& worst = diagnosis.late.front();
  std::string text = "stragglers: " + percent(ratio(job.waiting_time, job.collective_time)) +
                     " of all collective time (" + ms(job.waiting_time) + " of " +
                     ms(job.collective_time) +
                     ", all ranks) is waiting for a late rank; most of it, " + ms(worst.caused) +
                     ", for rank " + std::to_string(worst.rank);
  text += " (longest in an " + worst.mostly_in + ")";
  if (!worst.mostly_with.empty()) text += ", late with " + worst.mostly_with;
  return text;
}

std::string exposed_sentence(const Totals& totals) {
  std::string text = ms(totals.exposed) + " of " + ms(totals.step) + " is exposed communication: ";
  std::vector<std::size_t> order(kCauses);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::ranges::greater{}, [&](std::size_t c) { return totals.by[c]; });
  const char* separator = "";
  for (const std::size_t c : order) {
    if (totals.by[c] <= Duration{}) break;
    text += separator + std::string(to_string(static_cast<Cause>(c))) + " " + ms(totals.by[c]);
    separator = ", ";
  }
  return text;
}

void write_sentences(const JobTrace& job, Diagnosis& diagnosis) {
  const Totals totals = totals_of(diagnosis);
  std::vector<std::string> sentences;
  const bool any_work =
      std::ranges::any_of(job.ranks, [](const RankTrace& r) { return !r.line.works.empty(); });
  const bool any_collective = std::ranges::any_of(
      job.ranks, [](const RankTrace& r) { return !r.line.collectives.empty(); });
  const bool trusted = std::ranges::all_of(
      diagnosis.ranks, [](const RankDiagnosis& r) { return r.error.is_trustworthy(); });
  if (!any_work) {
    sentences.emplace_back(
        "no GPU work in the trace: nothing to diagnose; record with CUDA activity");
  } else if (!trusted) {
    sentences.emplace_back(
        "the replay misses the recorded step: no change can be judged on this trace");
  } else {
    const bool host_bound =
        totals.waits_for_host * 4 >= totals.step && totals.no_network * 50 <= totals.step;
    const bool waits = job.ranks.size() > 1 && !diagnosis.late.empty() &&
                       job.waiting_time * 2 >= job.collective_time &&
                       totals.by[static_cast<std::size_t>(Cause::Straggler)] * 20 >= totals.step;
    if (waits) sentences.push_back(late_sentence(job, diagnosis));
    if (host_bound && any_collective) sentences.push_back(host_sentence(totals));
    if (!any_collective) {
      sentences.emplace_back("no collective found: this trace has no communication to hide");
    } else if (!waits && !host_bound && totals.no_network * 50 <= totals.step) {
      sentences.push_back(
          "communication is hidden: with a network that took no time the step would be " +
          ms(totals.step - totals.no_network) + " instead of " + ms(totals.step));
    }
    if (any_collective) sentences.push_back(exposed_sentence(totals));
    if (!host_bound && totals.waits_for_host * 20 >= totals.step) {
      sentences.push_back("the GPU waits " + ms(totals.waits_for_host) + " of " + ms(totals.step) +
                          " for the host to launch work");
    }
  }
  diagnosis.headline = sentences.front();
  diagnosis.sentences.assign(sentences.begin() + 1, sentences.end());
}

}  // namespace

Diagnosis diagnose(const JobTrace& job, const Framework& framework) {
  Diagnosis diagnosis;
  for (const RankTrace& rank : job.ranks) {
    diagnosis.ranks.push_back(diagnose_rank(rank));
    for (const std::string& unknown : rank.line.unknowns) {
      if (std::ranges::find(diagnosis.unknowns, unknown) == diagnosis.unknowns.end()) {
        diagnosis.unknowns.push_back(unknown);
      }
    }
    for (const std::string& problem : rank.trace.problems) {
      diagnosis.unknowns.push_back(rank.trace.file + ": " + problem);
    }
  }
  diagnosis.unknowns.insert(diagnosis.unknowns.end(), job.unknowns.begin(), job.unknowns.end());
  if (job.ranks.front().line.steps.size() == 1) {
    diagnosis.unknowns.emplace_back("the spread over steps: one step in the trace");
  }
  const bool unsized = std::ranges::any_of(
      diagnosis.ranks.front().buckets, [](const TracedBuckets& step) { return !step.sizes_known; });
  if (unsized) {
    diagnosis.unknowns.emplace_back(
        "the size of each gradient (record with record_shapes=True): buckets other than the "
        "recorded "
        "ones are judged as if the gradients of each recorded bucket were alike");
  }
  diagnosis.late = late_ranks(job);
  diagnosis.buckets = bucket_advice(job, diagnosis.ranks.front(), framework);
  const bool has_collectives = std::ranges::any_of(
      job.ranks, [](const RankTrace& rank) { return !rank.line.collectives.empty(); });
  if (!diagnosis.buckets && has_collectives) {
    diagnosis.unknowns.emplace_back(
        "what other buckets would give: no all-reduce of this trace was issued from backward on a "
        "GPU "
        "(by DistributedDataParallel), or the replay misses the step");
  }
  write_sentences(job, diagnosis);
  return diagnosis;
}

}  // namespace dovetail::diagnose
