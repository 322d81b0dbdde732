// Predicts the jobs of a round side by side, and makes those of the next from the rows.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_search.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "base/parallel.h"
#include "models/networks/memory.h"

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

class JobClimb {
 public:
  JobClimb(const models::Cluster& cluster, const JobWatch& watch)
      : cluster_(cluster), watch_(watch) {}

  JobSearch run(std::vector<jobs::Variant> given) {
    std::vector<Trial> trials;
    for (jobs::Variant& variant : given) trials.push_back({std::move(variant), {}, {}});
    predict_all(std::move(trials));
    for (int round = 0; round < kRounds && !found_.interrupted; ++round) {
      const std::optional<Duration> before = fastest_that_fits();
      std::vector<Trial> next = next_trials();
      if (next.empty()) break;
      predict_all(std::move(next));
      if (before && *fastest_that_fits() == *before) break;
    }
    std::ranges::stable_sort(found_.rows, {}, step_of);
    choose();
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
    std::optional<JobPrediction> found = std::nullopt;
    std::string refused = {};
  };

  // Of those that are as good the one with the fewest decisions.
  void choose() {
    constexpr double kAsGood = 1.001;
    const std::optional<Duration> fastest = fastest_that_fits();
    for (std::size_t i = 0; i < found_.rows.size(); ++i) {
      const JobRow& row = found_.rows[i];
      if (!fits(row) || to_us(row.found.step) > kAsGood * to_us(*fastest)) continue;
      if (!found_.best || row.path.size() < found_.rows[*found_.best].path.size()) found_.best = i;
    }
  }

  static Duration step_of(const JobRow& row) { return row.found.step; }
  static bool fits(const JobRow& row) { return row.found.fits(); }

  [[nodiscard]] std::optional<Duration> fastest_that_fits() const {
    std::optional<Duration> fastest;
    for (const JobRow& row : found_.rows) {
      if (fits(row) && (!fastest || row.found.step < *fastest)) fastest = row.found.step;
    }
    return fastest;
  }

  // Single changes of the best row and of a few that would be better if they fitted; where none fits, of the smallest. All
  // that would be better recompute as few layers as they must.
  std::vector<Trial> next_trials() {
    std::ranges::stable_sort(found_.rows, {}, step_of);
    const auto best = std::ranges::find_if(found_.rows, fits);
    std::vector<const JobRow*> larger;
    for (auto row = found_.rows.begin(); row != best; ++row) larger.push_back(&*row);
    std::ranges::stable_sort(larger, {}, [](const JobRow* row) { return row->found.peak(); });
    std::vector<Trial> next;
    const auto add = [&](const JobRow& row, jobs::Variant variant) {
      if (is_new(variant.job, next)) next.push_back({std::move(variant), row.change, row.path});
    };
    const auto change = [&](const JobRow& row) {
      for (jobs::Variant& variant : jobs::variants(row.found.job)) add(row, std::move(variant));
    };
    if (best != found_.rows.end()) {
      change(*best);
      recompute_less(*best, add);
    }
    for (std::size_t i = 0; i < std::min(kTooLarge, larger.size()); ++i) change(*larger[i]);
    for (const JobRow* row : larger) recompute_less(*row, add);
    return next;
  }

  // As few layers as fit.
  template <class Add>
  static void recompute_less(const JobRow& row, const Add& add) {
    if (fits(row) && row.found.job.recompute != jobs::Recompute::Full) return;
    const auto change =
        jobs::fewest_recomputed(row.found.job, row.found.capacity.value_or(Bytes()));
    auto job = change ? jobs::with_options(row.found.job, *change) : std::nullopt;
    if (job) add(row, {*change, *std::move(job)});
  }

  [[nodiscard]] bool is_new(const jobs::Job& job, const std::vector<Trial>& trials) const {
    const auto is_it = [&](const auto& one) { return one == job; };
    return std::ranges::none_of(
               found_.rows, is_it,
               [](const JobRow& row) -> const jobs::Job& { return row.found.job; }) &&
           std::ranges::none_of(trials, is_it, [](const Trial& trial) -> const jobs::Job& {
             return trial.variant.job;
           });
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
        trial.found = predict_job(trial.variant.job, cluster_);
      } catch (const InputError& error) {
        if (trial.variant.change == kAsAsked) throw;
        trial.refused = error.what();
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
        found_.rows.push_back(
            {joined(trial.from, change), *std::move(trial.found), std::move(trial.path)});
      } else if (is_first && !trial.refused.empty()) {
        found_.left_out.push_back(change + ": " + trial.refused);
      }
    }
  }

  const models::Cluster& cluster_;
  const JobWatch& watch_;
  JobSearch found_;
};

}  // namespace

JobSearch search_jobs(std::vector<jobs::Variant> given, const models::Cluster& cluster,
                      const JobWatch& watch) {
  return JobClimb(cluster, watch).run(std::move(given));
}

}  // namespace dovetail::predict
