// Predicts the jobs of a round side by side, and makes those of the next from the rows.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_search.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/parallel.h"
#include "frameworks/jobs/job_export.h"
#include "models/networks/memory.h"
#include "models/networks/text.h"

namespace dovetail::predict {
namespace {

// "tp=8,zero=1" and "zero=3" are "tp=8,zero=3".
std::string joined(const std::string& changes, const std::string& more) {
  if (changes.empty() || changes == kAsAsked) return more;
  const auto each = [](const std::string& text, const auto& use) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) use(part);
  };
  std::set<std::string> keys;
  each(more, [&](const std::string& part) { keys.insert(part.substr(0, part.find('='))); });
  std::string all;
  each(changes, [&](const std::string& part) {
    if (!keys.contains(part.substr(0, part.find('=')))) all += part + ",";
  });
  return all + more;
}

// Work alone: jobs that differ in words only are one row.
jobs::Job work_of(jobs::Job job) {
  job = jobs::in_effect(std::move(job));
  // What a fused kernel does by itself.
  if (job.flash && job.recompute == jobs::Recompute::Selective)
    job.recompute = jobs::Recompute::None;
  job.notes.clear();
  return job;
}

// What the framework makes of the job, in the words of a change: "schedule=interleaved".
std::string changes_there(const jobs::Job& job, const jobs::Job& as_run) {
  std::string text;
  for (const jobs::Difference& one : jobs::differences(jobs::in_effect(job), as_run)) {
    if (one.key == "as" || one.here.empty() || one.there.empty()) continue;
    text += (text.empty() ? "" : ",") + one.key + "=" + one.there;
  }
  return text;
}

class JobClimb {
 public:
  JobClimb(const models::Cluster& cluster, const JobWatch& watch)
      : cluster_(cluster), watch_(watch) {}

  JobSearch run(std::vector<jobs::Variant> given) {
    std::vector<Trial> trials;
    for (jobs::Variant& variant : given) trials.push_back({std::move(variant), {}, {}});
    predict_all(std::move(trials));
    for (int round = 0; round < kRounds && !found_.interrupted; ++round) {
      const std::optional<Duration> before = fastest_candidate();
      std::vector<Trial> next = next_trials();
      if (next.empty()) break;
      predict_all(std::move(next));
      if (before && fastest_candidate() == before) break;
    }
    std::ranges::stable_sort(found_.rows, {}, step_of);
    choose();
    if (found_.best) verify_job(found_.rows[*found_.best].found.job);
    if (!found_.best) {
      std::ranges::stable_sort(found_.rows, {}, [](const JobRow& row) { return row.found.peak(); });
    }
    return std::move(found_);
  }

 private:
  static constexpr int kRounds = 6;
  static constexpr std::size_t kTooLarge = 2;  // so many that do not fit are changed, the smallest

  // A job that may become a row: a change of a row, or given.
  struct Trial {
    jobs::Variant variant;
    std::string from;  // the row's change
    std::vector<Decided> path;
    std::string target = {};
    std::optional<JobPrediction> found = std::nullopt;
    std::string refused = {};
  };

  // Of those that are as good the one with the fewest decisions, then with the least memory.
  void choose() {
    constexpr double kNoise = 0.02;  // of two steps: docs/machines.md
    const bool is_sure =
        std::ranges::any_of(found_.rows, [&](const JobRow& row) { return is_candidate(row); });
    const auto counts = [&](const JobRow& row) {
      return is_sure ? is_candidate(row) : is_told(row) && row.found.fits() == schedule::Fits::May;
    };
    std::vector<std::size_t> close;  // the fastest, and those that cannot be told from it
    for (std::size_t i = 0; i < found_.rows.size(); ++i) {
      if (!counts(found_.rows[i])) continue;
      if (!found_.fastest) found_.fastest = i;
      if (is_close(found_.rows[i], found_.rows[*found_.fastest])) close.push_back(i);
    }
    if (!found_.fastest) return;
    keep_what_is_told_from_asked(close);
    const auto keep_as_fast = [&] {
      const double most = (1 + kNoise) * to_us(step_of(found_.rows[close.front()]));
      std::erase_if(close, [&](std::size_t i) { return to_us(step_of(found_.rows[i])) > most; });
    };
    // Where nobody asked for a layout nobody has to change one.
    const bool is_asked =
        std::ranges::find(found_.rows, kAsAsked, &JobRow::change) != found_.rows.end();
    if (!is_asked) keep_as_fast();
    const auto changes = [&](std::size_t i) { return found_.rows[i].path.size(); };
    const std::size_t fewest = changes(*std::ranges::min_element(close, {}, changes));
    std::erase_if(close, [&](std::size_t i) { return changes(i) > fewest; });
    keep_as_fast();
    found_.best = *std::ranges::min_element(
        close, {}, [&](std::size_t i) { return found_.rows[i].found.peak(); });
    for (JobRow& row : found_.rows) {
      row.alike = &row != &found_.rows[*found_.best] && row.found.fits() != schedule::Fits::No &&
                  models::is_uncalibrated(cluster_) && is_close(row, found_.rows[*found_.best]);
    }
  }

  // Where the job as asked is none of these, what is set in its place has to be told apart from it as well.
  void keep_what_is_told_from_asked(std::vector<std::size_t>& close) const {
    const auto asked = std::ranges::find(found_.rows, kAsAsked, &JobRow::change);
    if (asked == found_.rows.end() || asked->found.fits() == schedule::Fits::No) return;
    const auto at = static_cast<std::size_t>(asked - found_.rows.begin());
    if (std::ranges::find(close, at) != close.end()) return;
    std::erase_if(close, [&](std::size_t i) {
      return i != *found_.fastest && is_close(found_.rows[i], *asked);
    });
  }

  // Whether their steps cannot be told apart.
  [[nodiscard]] bool is_close(const JobRow& one, const JobRow& other) const {
    constexpr double kAsGood = 0.001;
    const double apart = models::is_uncalibrated(cluster_) ? told_apart(one.said) : kAsGood;
    const auto [least, most] = std::minmax({to_us(step_of(one)), to_us(step_of(other))});
    return least >= (1 - apart) * most;
  }

  static Duration step_of(const JobRow& row) { return row.found.step; }

  // For certain, or as well as the job as asked.
  [[nodiscard]] bool has_room(const JobRow& row) const {
    const schedule::Fits fits = row.found.fits();
    if (fits != schedule::Fits::May) return fits == schedule::Fits::Yes;
    return asked_peak_ && row.found.peak() <= *asked_peak_;
  }
  // Somebody can be told it; or nobody any row, as of jobs that frameworks' files do not know.
  [[nodiscard]] bool is_told(const JobRow& row) const {
    return !row.target.empty() ||
           std::ranges::all_of(found_.rows, [](const JobRow& one) { return one.target.empty(); });
  }
  [[nodiscard]] bool is_candidate(const JobRow& row) const { return has_room(row) && is_told(row); }

  [[nodiscard]] std::optional<Duration> fastest_candidate() const {
    std::optional<Duration> fastest;
    for (const JobRow& row : found_.rows) {
      if (is_candidate(row) && (!fastest || row.found.step < *fastest)) fastest = row.found.step;
    }
    return fastest;
  }

  // Single changes of the best row and of a few that would be better if they fitted; where none fits, of the smallest. All
  // that would be better recompute as few layers as they must, and what nobody can be told as it is becomes what they make of it.
  std::vector<Trial> next_trials() {
    std::ranges::stable_sort(found_.rows, {}, step_of);
    const auto best =
        std::ranges::find_if(found_.rows, [&](const JobRow& row) { return is_candidate(row); });
    std::vector<const JobRow*> larger;
    std::vector<Trial> next;
    const auto add = [&](const JobRow& row, jobs::Variant variant) {
      if (is_new(variant.job, next)) next.push_back({std::move(variant), row.change, row.path});
    };
    for (auto row = found_.rows.begin(); row != best; ++row) {
      if (!has_room(*row)) larger.push_back(&*row);
      if (row->target.empty()) become_sayable(*row, add);
    }
    std::ranges::stable_sort(larger, {}, [](const JobRow* row) { return row->found.peak(); });
    const auto change = [&](const JobRow& row) {
      for (jobs::Variant& variant : jobs::variants(row.said)) add(row, std::move(variant));
    };
    if (best != found_.rows.end()) {
      if (best->target.empty()) become_sayable(*best, add);
      change(*best);
      recompute_less(*best, add);
    }
    for (std::size_t i = 0; i < std::min(kTooLarge, larger.size()); ++i) change(*larger[i]);
    for (const JobRow* row : larger) recompute_less(*row, add);
    return next;
  }

  // As the framework that gives up least runs it.
  template <class Add>
  static void become_sayable(const JobRow& row, const Add& add) {
    for (const frameworks::JobTarget& target : frameworks::job_targets_of(row.said)) {
      if (!is_asked_for(row.said, target)) continue;
      const std::string changes = changes_there(row.said, target.as_run);
      auto job = changes.empty() ? std::nullopt : jobs::with_options(row.said, changes);
      if (job) add(row, {changes, *std::move(job)});
      return;
    }
  }

  static bool is_asked_for(const jobs::Job& job, const frameworks::JobTarget& target) {
    return job.as == jobs::RunBy::Any || target.as_run.as == job.as;
  }

  // As few layers as fit.
  template <class Add>
  static void recompute_less(const JobRow& row, const Add& add) {
    const jobs::Job& said = row.said;
    if (row.found.fits() == schedule::Fits::Yes && said.recompute != jobs::Recompute::Full) return;
    jobs::Job there = said;
    there.as = row.found.job.as;
    const auto change =
        jobs::fewest_recomputed(there, surely_fits(row.found.capacity.value_or(Bytes())));
    auto job = change ? jobs::with_options(said, *change) : std::nullopt;
    if (job) add(row, {*change, *std::move(job)});
  }

  [[nodiscard]] bool is_new(const jobs::Job& job, const std::vector<Trial>& trials) const {
    const jobs::Job work = work_of(job);
    const auto is_it = [&](const jobs::Job& one) { return work_of(one) == work; };
    return std::ranges::none_of(found_.rows, is_it, &JobRow::said) &&
           std::ranges::none_of(trials, is_it, [](const Trial& trial) -> const jobs::Job& {
             return trial.variant.job;
           });
  }

  // The job that is run: that of the first framework that can be told all of it, where there is one.
  static jobs::Job run_of(Trial& trial) {
    const jobs::Job& job = trial.variant.job;
    for (const frameworks::JobTarget& target : frameworks::job_targets_of(job)) {
      if (!is_asked_for(job, target) || !target.given_up.empty()) continue;
      trial.target = target.id;
      return target.as_run;
    }
    return job;
  }

  void predict_all(std::vector<Trial> trials) {
    watch_.begins(trials.size());
    const bool is_first = found_.rows.empty();
    std::atomic<bool> goes_on = true;
    std::mutex watching;
    parallel_for(trials.size(), [&](std::size_t i) {
      if (!goes_on) return;
      Trial& trial = trials[i];
      try {
        auto found = attempt([&] { return predict_job(run_of(trial), cluster_); });
        if (!found && trial.variant.change == kAsAsked) throw InputError(found.error);
        trial.found = std::move(found.value);
        trial.refused = std::move(found.error);
      } catch (const Interrupted&) {
        goes_on = false;
        return;
      }
      const std::scoped_lock lock(watching);
      if (!watch_.goes_on(trial.variant.change)) goes_on = false;
    });
    found_.interrupted = !goes_on;
    for (Trial& trial : trials) {
      const std::string& change = trial.variant.change;
      if (trial.found) {
        trial.path.push_back({change, trial.found->step});
        found_.rows.push_back({.change = joined(trial.from, change),
                               .said = std::move(trial.variant.job),
                               .found = *std::move(trial.found),
                               .target = std::move(trial.target),
                               .path = std::move(trial.path)});
        const JobRow& row = found_.rows.back();
        if (change == kAsAsked && row.found.fits() != schedule::Fits::No)
          asked_peak_ = row.found.peak();
      } else if (is_first && !trial.refused.empty()) {
        found_.left_out.push_back(change + ": " + trial.refused);
      }
    }
  }

  const models::Cluster& cluster_;
  const JobWatch& watch_;
  JobSearch found_;
  std::optional<Bytes> asked_peak_ = std::nullopt;  // of the job as asked, where it fits or may
};

}  // namespace

double told_apart(const jobs::Job& job) {
  constexpr std::int64_t kNodeRanks = 8;
  constexpr double kOnANode = 0.10;
  constexpr double kOnSeveral = 0.20;
  return job.layout.world() <= kNodeRanks ? kOnANode : kOnSeveral;
}

JobSearch search_jobs(std::vector<jobs::Variant> given, const models::Cluster& cluster,
                      const JobWatch& watch) {
  return JobClimb(cluster, watch).run(std::move(given));
}

}  // namespace dovetail::predict
