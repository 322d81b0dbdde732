// From figures to sentences.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/kineto/diagnosis.h"

#include "imports/kineto/what_if.h"
#include "imports/kineto/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

namespace dovetail::imports {
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

// Differences per step, as one gain: their mean; the interval is the spread of their mean plus the error
// of the replay, both ways.
Gain gain_of(const std::vector<Duration>& before, const std::vector<Duration>& after,
             const ReplayError& error) {
  std::vector<double> steps;
  for (std::size_t i = 0; i < before.size(); ++i) {
    steps.push_back(static_cast<double>((before[i] - after[i]).count()));
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, steps.size()));
  const double middle = std::accumulate(steps.begin(), steps.end(), 0.0) / count;
  double squares = 0;
  for (const double step : steps) squares += (step - middle) * (step - middle);
  const double deviation = steps.size() < 2 ? 0 : std::sqrt(squares / (count - 1) / count);
  const double off =
      std::abs(error.step) * static_cast<double>(error.recorded_step.count()) / count;
  const auto rounded = [](double ns) { return Duration(std::llround(ns)); };
  return {rounded(middle), rounded(middle - 2 * deviation - off),
          rounded(middle + 2 * deviation + off)};
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
    result.buckets.push_back(ddp_buckets(rank.trace, rank.line, step));
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

// --- buckets -------------------------------------------------------------------------------------

struct Gradients {
  std::vector<Bytes> bytes;
  std::vector<std::size_t> ends;  // of the recorded buckets
  std::vector<Duration> ready;    // from the first one, as recorded
};

// Of the last step: the first one after a start may group gradients otherwise.
Gradients gradients_of(const RankDiagnosis& rank) {
  Gradients gradients;
  for (auto step = rank.buckets.rbegin(); step != rank.buckets.rend(); ++step) {
    if (step->buckets.empty()) continue;
    const Instant first = step->buckets.front().gradients.front().ready;
    for (const TracedBucket& bucket : step->buckets) {
      for (const TracedGradient& gradient : bucket.gradients) {
        gradients.bytes.push_back(bucket.element_size * gradient.elements);
        const Duration before = gradients.ready.empty() ? Duration{} : gradients.ready.back();
        gradients.ready.push_back(std::max(before, gradient.ready - first));
      }
      gradients.ends.push_back(gradients.bytes.size());
    }
    break;
  }
  return gradients;
}

std::string list_setting(const std::vector<Bytes>& bytes, const std::vector<std::size_t>& ends) {
  std::string text = "bucket_cap_mb_list=[";
  std::size_t from = 0;
  for (std::size_t e = 0; e < ends.size(); ++e) {
    Bytes sum;
    for (; from < ends[e]; ++from) sum += bytes[from];
    std::array<char, 40> number{};
    std::snprintf(number.data(), number.size(), "%.17g",
                  static_cast<double>(sum.count()) / 1048576);
    text += (e == 0 ? "" : ", ") + std::string(number.data());
  }
  return text + "]";
}

// What one more bucket costs the host: the median duration of the operator that launches one.
Duration host_call(const RankTrace& rank, const RankDiagnosis& own) {
  std::vector<Duration> calls;
  for (const TracedBuckets& step : own.buckets) {
    for (const TracedBucket& bucket : step.buckets) {
      if (bucket.call == kNone) continue;
      calls.emplace_back(rank.trace.events[static_cast<std::size_t>(bucket.call)].duration_ns);
    }
  }
  if (calls.empty()) return {};
  std::ranges::sort(calls);
  return calls[calls.size() / 2];
}

std::vector<BucketSetting> candidates(const Gradients& gradients, const AllReduceCost& cost,
                                      Duration per_bucket, bool sizes_known) {
  std::vector<BucketSetting> settings;
  const auto add = [&](std::string setting, std::optional<Bytes> cap,
                       std::vector<std::size_t> ends) {
    BucketSetting candidate;
    candidate.cap = cap;
    candidate.setting = std::move(setting);
    candidate.is_recorded = ends == gradients.ends;
    candidate.ends = std::move(ends);
    settings.push_back(std::move(candidate));
  };
  add("bucket_cap_mb=None", std::nullopt, ddp_bucket_ends(gradients.bytes, mib(1), mib(25)));
  for (const std::int64_t cap : {1, 2, 4, 8, 16, 25, 32, 50, 64, 100, 128, 200, 256, 512, 1024}) {
    std::vector<std::size_t> ends = ddp_bucket_ends(gradients.bytes, mib(cap), mib(cap));
    const bool last = ends.size() == 1;
    add("bucket_cap_mb=" + std::to_string(cap), mib(cap), std::move(ends));
    if (last) break;  // all in one bucket already
  }
  if (sizes_known && gradients.bytes.size() <= 4096) {
    std::vector<std::size_t> ends =
        best_bucket_ends(gradients.ready, gradients.bytes, cost, per_bucket);
    std::string text = list_setting(gradients.bytes, ends);
    add(std::move(text), std::nullopt, std::move(ends));
  }
  return settings;
}

// Gains of all settings, each with the cheaper and the dearer guess of sizes that were never seen.
void judge_settings(std::vector<BucketSetting>& settings, const RankTrace& rank,
                    const RankDiagnosis& own, const Gradients& gradients,
                    const std::vector<std::pair<Bytes, Duration>>& points) {
  const std::array costs = {AllReduceCost(points, AllReduceCost::Below::Pessimist),
                            AllReduceCost(points, AllReduceCost::Below::Optimist)};
  std::array<std::vector<Duration>, 2> recorded;
  for (std::size_t k = 0; k < 2; ++k) {
    recorded[k] = step_times(with_buckets(rank, own.model, own.buckets, gradients.ends, costs[k]));
  }
  for (BucketSetting& setting : settings) {
    std::array<Gain, 2> gains;
    for (std::size_t k = 0; k < 2; ++k) {
      gains[k] =
          gain_of(recorded[k],
                  step_times(with_buckets(rank, own.model, own.buckets, setting.ends, costs[k])),
                  own.error);
    }
    setting.gain.middle = (gains[0].middle + gains[1].middle) / 2;
    setting.gain.low = std::min(gains[0].low, gains[1].low);
    setting.gain.high = std::max(gains[0].high, gains[1].high);
  }
}

std::optional<BucketAdvice> advise(const JobTrace& job, const RankDiagnosis& own) {
  const RankTrace& rank = job.ranks.front();
  const Gradients gradients = gradients_of(own);
  const auto points = all_reduce_times(job);
  const bool on_gpu = std::ranges::any_of(own.buckets, [](const TracedBuckets& step) {
    return std::ranges::any_of(step.buckets,
                               [](const TracedBucket& b) { return b.collective != kNone; });
  });
  if (gradients.bytes.empty() || points.empty() || !on_gpu || own.what_ifs.empty())
    return std::nullopt;
  bool sizes_known = true;
  for (const TracedBuckets& step : own.buckets) sizes_known &= step.sizes_known;
  BucketAdvice advice;
  const AllReduceCost cost(points, AllReduceCost::Below::Optimist);
  advice.settings = candidates(gradients, cost, host_call(rank, own), sizes_known);
  judge_settings(advice.settings, rank, own, gradients, points);
  const auto by_gain = [](const BucketSetting& s) { return s.gain.middle; };
  const auto best = std::ranges::max_element(advice.settings, {}, by_gain);
  advice.best = static_cast<std::size_t>(best - advice.settings.begin());
  const Duration step = mean(own.error.recorded_step, own.recorded.size());
  advice.tell = std::max(step / 200, best->gain.middle - best->gain.low);
  for (std::size_t i = 0; i < advice.settings.size(); ++i) {
    const BucketSetting& setting = advice.settings[i];
    if (best->gain.middle - setting.gain.middle <= advice.tell) advice.alike.push_back(i);
    if (setting.is_recorded && advice.recorded.empty()) advice.recorded = setting.setting;
  }
  return advice;
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

Diagnosis diagnose(const JobTrace& job) {
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
  diagnosis.buckets = advise(job, diagnosis.ranks.front());
  write_sentences(job, diagnosis);
  return diagnosis;
}

}  // namespace dovetail::imports
