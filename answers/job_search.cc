// Sketches all jobs of a grid, simulates the few that may win, and says what is proven of the rest.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "answers/job_change.h"
#include "answers/job_sketch.h"
#include "base/attempt.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/interruption.h"
#include "base/parallel.h"
#include "frameworks/jobs/job_export.h"
#include "models/networks/memory.h"
#include "models/networks/text.h"

namespace dovetail::predict {
namespace {

using jobs::GridPoint;
using jobs::GridWay;
using jobs::Job;
using schedule::Fits;

// Whose job it most likely becomes, where nobody is named.
Job as_likely_run(Job job) {
  if (job.as == jobs::RunBy::Any) {
    job.as = job.zero == jobs::Zero::Parameters ? jobs::RunBy::Fsdp : jobs::RunBy::Megatron;
  }
  return job;
}

// What sketches are off by is much alike among jobs that share and wait in the same ways.
using Kin = std::array<std::int64_t, 7>;

// What of a job is neither how its states are sharded nor which of its collectives overlap.
struct WorkShape {
  // tp, pp, whether parameters are divided, order, vp, layers, recompute, recompute_layers: the products and their order.
  std::array<std::int64_t, 8> work = {};
  // cp, dp, dp_shard, ep, etp, micro, async_tp: who shares a batch.
  std::array<std::int64_t, 7> shared = {};
  friend bool operator==(const WorkShape&, const WorkShape&) = default;
};

// They differ in one thing, if at all.
bool is_next_to(const WorkShape& a, const WorkShape& b) {
  int different = 0;
  for (std::size_t i = 0; i < a.work.size(); ++i) different += a.work[i] == b.work[i] ? 0 : 1;
  for (std::size_t i = 0; i < a.shared.size(); ++i) different += a.shared[i] == b.shared[i] ? 0 : 1;
  return different < 2;
}

// A job of the grid that fits, or may.
struct Candidate {
  std::int32_t point = 0;
  GridWay way = {};
  Duration least{}, about{};
  Bytes peak = {};
  Fits fits = Fits::Yes;
  bool was_tried = false;
};

// One job to simulate.
struct Trial {
  Job said;
  std::string change;
  int changes = 0;
  std::optional<Kin> kin = std::nullopt;          // of a candidate
  std::optional<WorkShape> shape = std::nullopt;  // of a candidate
  Duration about{};                               // what its sketch says
  std::string target = {};
  std::optional<JobPrediction> found = std::nullopt;
  std::string refused = {};
};

// What of a job frameworks' files can or cannot say; numbers as far as they are one or more.
std::array<std::int64_t, 13> shape_of(const Job& job) {
  const jobs::Layout& l = job.layout;
  const auto several = [](std::int64_t degree) { return degree > 1 ? 1 : 0; };
  return {static_cast<std::int64_t>(l.order),
          l.layers.empty() ? 0 : 1,
          several(l.vp) + 2 * several(l.pp) + 4 * several(l.tp) + 8 * several(l.cp),
          several(l.dp) + 2 * several(l.dp_shard),
          several(l.ep) + 2 * several(l.etp) + (l.etp == l.tp ? 4 : 0),
          static_cast<std::int64_t>(job.recompute),
          job.recompute_layers > 0 ? 1 : 0,
          static_cast<std::int64_t>(job.zero),
          job.reshard ? 1 : 0,
          several(job.prefetch),
          job.overlap_gradients ? 1 : 0,
          job.overlap_parameters ? 1 : 0,
          job.async_tp ? 1 : 0};
}

class GridSearch {
 public:
  GridSearch(const jobs::JobGrid& grid, const models::Cluster& cluster, const JobWatch& watch,
             Play how)
      : grid_(grid), cluster_(cluster), watch_(watch), how_(how), sketcher_(grid.job(), cluster) {
    if (cluster.compute) capacity_ = cluster.compute->capacity;
  }

  JobSearch run() {
    try {
      if (grid_.has_layout()) simulate_as_asked();
      if (!found_.interrupted) look_at_points();
      if (!found_.interrupted) sketch_and_simulate();
      if (!found_.interrupted) simulate_fewest_changes();
      if (!found_.interrupted) simulate_what_fits();
      if (!found_.interrupted) simulate_gathers();
      if (!found_.interrupted && !fastest_row()) simulate_the_smallest();
    } catch (const Interrupted&) {
      found_.interrupted = true;
    }
    std::ranges::stable_sort(found_.rows, {}, step_of);
    choose();
    count();
    if (!found_.best) {
      std::ranges::stable_sort(found_.rows, {}, [](const JobRow& row) { return row.found.peak(); });
    } else if (!found_.interrupted) {
      try {
        verify_job(found_.rows[*found_.best].found.job);
        find_path();
      } catch (const Interrupted&) {
        found_.interrupted = true;
        found_.path.clear();
      }
    }
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kLeastTried = 5, kMostTried = 24, kMostNear = 6, kMostAlike = 6;
  static constexpr std::size_t kTriedAnyway = 2;  // whatever effort it is
  static constexpr std::int64_t kMostEffort = 40'000, kMostToShow = 10'000;  // effort_of
  static constexpr double kMargin = 0.02;  // of corrected sketches
  static constexpr double kApart = 0.05;   // of what nearby kinds are off by
  static constexpr std::size_t kTriedPerChange = 2;
  static constexpr int kMostChanges = 8;

  // Points of the grid, each with what any of its ways takes at least, the least first; those without room are left out.
  struct Point {
    std::int32_t index = 0;
    Duration least{};
    Duration from{};  // what takes less was sketched before
  };

  void look_at_points() {
    const std::vector<GridPoint>& points = grid_.points();
    begin(JobPhase::Sketch, points.size());
    std::vector<std::optional<Point>> looked(points.size());
    std::mutex telling;
    parallel_for(points.size(), [&](std::size_t i) {
      throw_if_interrupted();
      const std::optional<Job> job = grid_.job_at(points[i]);
      if (!job) return;
      const auto ways = static_cast<std::int64_t>(grid_.ways(*job).size());
      Job smallest = as_likely_run(*job);
      const auto least = attempt([&] { return sketcher_.least_of_any_order(smallest); });
      smallest.recompute = jobs::Recompute::Full;
      const Bytes peak = peak_of(smallest);
      const std::scoped_lock lock(telling);
      if (!watch_.goes_on(JobPhase::Sketch, "memory")) found_.interrupted = true;
      found_.counts.all += ways;
      if (!least) {
        leave_out(least.error, ways);
      } else if (fits(peak) == Fits::No) {
        found_.counts.without_room += ways;
        note_smallest(peak, {.point = static_cast<std::int32_t>(i),
                             .way = {.recompute = jobs::Recompute::Full}});
      } else {
        looked[i] = Point{.index = static_cast<std::int32_t>(i), .least = *least.value};
      }
    });
    for (const std::optional<Point>& point : looked) {
      if (point) points_.push_back(*point);
    }
    std::ranges::stable_sort(points_, {}, &Point::least);
  }

  // What may be faster than the fastest that is known is sketched, and the fastest of that simulated; where it turns out slower than it was
  // taken to be, what that had left aside is sketched, too.
  void sketch_and_simulate() {
    while (!found_.interrupted) {
      sketch_points();
      if (!found_.interrupted) simulate_the_fastest();
      const std::optional<Duration> fastest = fastest_step();
      if (fastest ? *fastest <= limit_ : limit_ == Duration::max()) break;
      sketches_all_ =
          !fastest;  // what was sketched as fastest is no candidate: it did not fit after all
    }
  }

  // Points whose ways may take less than the fastest that was simulated; before one was, than what is sketched as fastest.
  void sketch_points() {
    constexpr std::size_t kFirst = 32;
    begin(JobPhase::Sketch, points_.size() - sketched_ + aside_.size());
    limit_ = best_known();
    sketch(std::exchange(aside_, {}));
    std::size_t chunk = kFirst;
    while (sketched_ < points_.size() && points_[sketched_].least < limit_ && !found_.interrupted) {
      const auto begin = points_.begin() + static_cast<std::ptrdiff_t>(sketched_);
      const std::size_t count = std::min(points_.size() - sketched_, chunk);
      sketched_ += count;
      sketch(std::vector<Point>(begin, begin + static_cast<std::ptrdiff_t>(count)));
      chunk *= 2;
      limit_ = std::min(limit_, best_known());
    }
  }

  // The fastest step that was simulated, or where there is none a little more than the fastest that is sketched, of jobs that fit.
  [[nodiscard]] Duration best_known() {
    if (const std::optional<Duration> fastest = fastest_step()) return *fastest;
    if (sketches_all_) return Duration::max();
    std::optional<Duration> about;
    for (const Candidate& candidate : candidates_) {
      const bool counts =
          has_room(candidate.fits, candidate.peak) && (!about || candidate.about < *about);
      if (counts && is_told(candidate)) about = candidate.about;
    }
    return about ? *about + *about / 50 : Duration::max();
  }

  void sketch(const std::vector<Point>& points) {
    std::mutex collecting;
    parallel_for(points.size(), [&](std::size_t i) {
      throw_if_interrupted();
      std::optional<Duration> aside;
      std::vector<Candidate> candidates = candidates_at(points[i], aside);
      const std::scoped_lock lock(collecting);
      std::ranges::move(candidates, std::back_inserter(candidates_));
      if (aside)
        aside_.push_back(
            {.index = points[i].index, .least = *aside, .from = std::max(points[i].from, limit_)});
      if (!watch_.goes_on(JobPhase::Sketch, "sketches")) found_.interrupted = true;
    });
    std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
      return std::tuple(a.about, a.point, a.way.changes) <
             std::tuple(b.about, b.point, b.way.changes);
    });
    if (!is_any_told_) ask_whether_any_is_told();
  }

  // Of a point those ways that were not sketched before and take less than the limit; `aside`: the least of those beyond it.
  std::vector<Candidate> candidates_at(const Point& point, std::optional<Duration>& aside) {
    const Job job = *grid_.job_at(grid_.points()[static_cast<std::size_t>(point.index)]);
    std::vector<Candidate> kept;
    std::int64_t without_room = 0;
    bool is_kept_whole = false;  // what computes nothing again fits for certain
    bool is_looked_at = false;
    std::string refused;
    std::optional<GridWay> plain;  // of the ways that differ in recomputation alone
    for (const GridWay& way : grid_.ways(job)) {
      Candidate one{.point = point.index, .way = way};
      const Job run = as_likely_run(grid_.with(job, way));
      if (!plain || !differs_in_recomputation_alone(*plain, way)) {
        plain = way;
        plain->recompute = jobs::Recompute::None;
        plain->recompute_layers = 0;
        const Job least_of = as_likely_run(grid_.with(job, *plain));
        const auto least = attempt([&] { return sketcher_.least(least_of); });
        refused = least.error;
        is_looked_at = least && *least.value >= point.from && *least.value < limit_;
        is_kept_whole = is_looked_at && fits(peak_of(least_of)) == Fits::Yes;
        if (least && *least.value >= std::max(point.from, limit_))
          aside = std::min(aside.value_or(Duration::max()), *least.value);
      }
      if (!refused.empty() && point.from == Duration{}) {
        const std::scoped_lock lock(noting_);
        leave_out(refused, 1);
      }
      if (!is_looked_at) continue;
      one.peak = peak_of(run);
      one.fits = fits(one.peak);
      if (one.fits == Fits::No) {
        ++without_room;
        const std::scoped_lock lock(noting_);
        note_smallest(one.peak, one);
        continue;
      }
      add_sketch(one, run, kept);
      const bool is_full = way.recompute == jobs::Recompute::Full && way.recompute_layers == 0;
      if (is_full && !is_kept_whole) add_fewest_recomputed(one, run, kept);
    }
    const std::scoped_lock lock(noting_);
    found_.counts.without_room += without_room;
    return kept;
  }

  static bool differs_in_recomputation_alone(const GridWay& a, const GridWay& b) {
    return a.order == b.order && a.vp == b.vp && a.layers == b.layers && a.async_tp == b.async_tp;
  }

  void add_sketch(Candidate& one, const Job& run, std::vector<Candidate>& kept) {
    const auto sketch = attempt([&] { return sketcher_.sketch(run); });
    if (!sketch) {
      const std::scoped_lock lock(noting_);
      leave_out(sketch.error, 1);
      return;
    }
    one.least = sketch.value->least;
    one.about = sketch.value->about;
    kept.push_back(one);
  }

  // As few layers as fit.
  void add_fewest_recomputed(Candidate one, Job run, std::vector<Candidate>& kept) {
    if (!capacity_) return;
    const std::int64_t chunks = run.layout.pp * run.layout.vp;
    const std::int64_t most = (run.model.layers + chunks - 1) / chunks;
    const auto is_enough = [&](std::int64_t layers) {
      run.recompute_layers = layers;
      return peak_of(run) <= surely_fits(*capacity_);
    };
    if (most < 2 || !is_enough(most - 1)) return;
    std::int64_t enough = most - 1;
    for (std::int64_t low = 0; enough - low > 1;) {
      const std::int64_t middle = (low + enough) / 2;
      (is_enough(middle) ? enough : low) = middle;
    }
    run.recompute_layers = enough;
    one.way.recompute_layers = static_cast<std::int16_t>(enough);
    one.peak = peak_of(run);
    one.fits = fits(one.peak);
    {
      const std::scoped_lock lock(noting_);
      ++found_.counts.all;
    }
    add_sketch(one, run, kept);
  }

  [[nodiscard]] Kin kin_of(const Candidate& candidate) const {
    const GridPoint& point = grid_.points()[static_cast<std::size_t>(candidate.point)];
    const bool is_part = candidate.way.recompute_layers > 0;
    return {point.zero == jobs::Zero::Parameters ? 1 : 0,
            point.pp > 1 ? 1 : 0,
            candidate.way.async_tp ? 1 : 0,
            point.ep > 1 ? 1 : 0,
            2 * static_cast<std::int64_t>(candidate.way.recompute) + (is_part ? 1 : 0),
            point.overlap_gradients ? 1 : 0,
            point.micro};
  }

  // Of every shape the one that is sketched as fastest; then shapes near the fastest, and all of the fastest shape.
  void simulate_the_fastest() {
    begin(JobPhase::Simulate, kMostTried);
    const auto is_new = [&](const WorkShape& shape, const std::vector<Trial>& next) {
      return std::ranges::find(row_shapes_, shape) == row_shapes_.end() &&
             std::ranges::find(next, shape, &Trial::shape) == next.end();
    };
    simulate_by_sketch(kMostTried, is_new);
    const auto fastest_shape = [&] {
      const std::optional<std::size_t> fastest = fastest_row();
      return fastest ? row_shapes_[*fastest] : std::nullopt;
    };
    if (const std::optional<WorkShape> best = fastest_shape()) {
      simulate_by_sketch(tried_ + kMostNear, [&](const WorkShape& shape, const auto& next) {
        return shape.work == best->work && is_new(shape, next);
      });
    }
    if (const std::optional<WorkShape> best = fastest_shape()) {
      simulate_by_sketch(tried_ + kMostAlike,
                         [&](const WorkShape& shape, const auto&) { return shape == *best; });
    }
  }

  [[nodiscard]] WorkShape work_shape_of(const Candidate& candidate) const {
    const GridPoint& point = grid_.points()[static_cast<std::size_t>(candidate.point)];
    const GridWay& way = candidate.way;
    return {.work = {point.tp, point.pp, point.zero == jobs::Zero::Parameters ? 1 : 0,
                     static_cast<std::int64_t>(way.order), way.vp,
                     static_cast<std::int64_t>(way.layers),
                     static_cast<std::int64_t>(way.recompute), way.recompute_layers},
            .shared = {point.cp, point.dp, point.dp_shard, point.ep, point.etp, point.micro,
                       way.async_tp ? 1 : 0}};
  }

  // In the order of their sketches, corrected by how far off those of their kin were that were simulated.
  template <typename Counts>
  void simulate_by_sketch(std::size_t most, const Counts& counts) {
    const std::size_t at_once = 2;
    while (tried_ < most && !found_.interrupted) {
      rank();
      const std::optional<Duration> fastest = fastest_step();
      std::vector<Trial> next;
      for (Candidate* candidate : ranked_) {
        if (next.size() == at_once) break;
        const bool may_win =
            !fastest ||
            (candidate->least < *fastest &&
             (tried_ < kLeastTried || (1 - kMargin) * corrected(*candidate) < as_us(*fastest)));
        if (candidate->was_tried || !may_win || !counts(work_shape_of(*candidate), next)) continue;
        const std::int64_t effort = effort_of(*candidate);
        if (tried_ + next.size() >= kTriedAnyway && effort_ + effort > kMostEffort) continue;
        const bool has_place = has_room(candidate->fits, candidate->peak);
        const bool is_sayable = is_told(*candidate);
        if (!is_sayable && effort > kMostToShow) continue;
        // Of what nobody can be told, and of what may not fit, the first is shown.
        if (!is_sayable && std::exchange(is_untold_shown_, true)) continue;
        if (is_sayable && !has_place && has_any_room_ && std::exchange(is_tight_shown_, true))
          continue;
        effort_ += effort;
        next.push_back(trial_of(*candidate));
      }
      if (next.empty()) return;
      simulate(std::move(next));
    }
  }

  // Layers times micro-batches that a simulation of it plays, about: rounds repeat, but for those of orders that divide backward.
  [[nodiscard]] std::int64_t effort_of(const Candidate& candidate) const {
    const GridPoint& point = grid_.points()[static_cast<std::size_t>(candidate.point)];
    const std::int64_t all =
        grid_.job().batch.global / (std::int64_t{point.micro} * point.dp * point.dp_shard);
    return effort_of(all, point.pp, candidate.way.order);
  }
  [[nodiscard]] std::int64_t effort_of(std::int64_t micro_batches, std::int64_t stages,
                                       schedule::PipelineKind order) const {
    return grid_.job().model.layers *
           (schedule::splits_backward(order) ? micro_batches : std::min(micro_batches, 4 * stages));
  }

  // Of candidates with few changes some that may not be told apart from the fastest.
  void simulate_fewest_changes() {
    if (!grid_.has_layout()) return;
    for (int changes = 1; changes < kMostChanges && !found_.interrupted; ++changes) {
      const std::optional<std::size_t> fastest = fastest_row();
      if (!fastest) return;
      const JobRow& row = found_.rows[*fastest];
      if (std::ranges::any_of(found_.rows, [&](const JobRow& one) {
            return one.changes < changes && is_candidate(one) && is_close(one, row);
          }))
        return;
      rank();
      std::vector<Trial> next;
      std::size_t seen = 0;
      for (Candidate* candidate : ranked_) {
        if (changes_of(*candidate) != changes || seen == kTriedPerChange) continue;
        if (!has_room(candidate->fits, candidate->peak) || !is_told(*candidate)) continue;
        if (corrected(*candidate) * (1 - apart(row)) > as_us(row.found.step)) break;
        const bool is_too_much = effort_ + effort_of(*candidate) > kMostEffort;
        if (!candidate->was_tried && is_too_much) continue;
        ++seen;
        if (candidate->was_tried) continue;
        effort_ += effort_of(*candidate);
        next.push_back(trial_of(*candidate));
      }
      if (!next.empty()) simulate(std::move(next));
    }
  }

  // Where all that was simulated may not fit, of what does for certain the fastest by their sketches.
  void simulate_what_fits() {
    constexpr std::size_t kShown = 2;
    if (std::ranges::any_of(found_.rows, [&](const JobRow& row) {
          return row.found.fits() == Fits::Yes && is_told(row);
        }))
      return;
    rank();
    std::vector<Trial> next;
    for (Candidate* candidate : ranked_) {
      if (next.size() == kShown) break;
      if (!candidate->was_tried && candidate->fits == Fits::Yes && is_told(*candidate))
        next.push_back(trial_of(*candidate));
    }
    simulate(std::move(next));
  }

  // How parameters are gathered, about which a sketch says little: all ways of the fastest.
  void simulate_gathers() {
    const std::optional<std::size_t> fastest = fastest_row();
    if (!fastest || found_.rows[*fastest].said.zero != jobs::Zero::Parameters) return;
    const Job& best = found_.rows[*fastest].said;
    const jobs::Layout& l = best.layout;
    if (effort_of(best.micro_batches(), l.pp, l.order) > kMostToShow) return;
    const int changes = found_.rows[*fastest].changes;
    std::vector<Trial> next;
    for (const bool reshard : {true, false}) {
      for (std::int64_t prefetch = 1; prefetch <= 3; ++prefetch) {
        Job job = best;
        job.reshard = reshard;
        job.prefetch = prefetch;
        if (job == best || fits(peak_of(as_likely_run(job))) == Fits::No) continue;
        const bool is_plain = reshard == grid_.job().reshard && prefetch == grid_.job().prefetch;
        next.push_back({.said = job,
                        .change = change_between(grid_.job(), job),
                        .changes = std::max(0, changes + (is_plain ? -1 : 0))});
      }
    }
    const std::size_t before = found_.rows.size();
    simulate(std::move(next));
    found_.counts.all += std::ssize(found_.rows) - static_cast<std::ptrdiff_t>(before);
  }

  // The job as asked, and where no framework can be told it what the nearest makes of it.
  void simulate_as_asked() {
    const Job& asked = grid_.job();
    simulate({{.said = asked, .change = std::string(kAsAsked)}});
    if (found_.rows.empty() || !found_.rows.front().target.empty()) return;
    for (const frameworks::JobTarget& target : frameworks::job_targets_of(asked)) {
      if (asked.as != jobs::RunBy::Any && target.as_run.as != asked.as) continue;
      const std::string changes = change_between(jobs::in_effect(asked), target.as_run);
      auto job = changes.empty() ? std::nullopt : jobs::with_options(asked, changes);
      if (job) {
        ++found_.counts.all;
        simulate({{.said = *std::move(job), .change = changes, .changes = 1}});
      }
      return;
    }
  }

  // Where nothing fits.
  void simulate_the_smallest() {
    if (!smallest_) return;
    simulate({trial_of(smallest_->second)});
  }

  // Also counts it as tried.
  Trial trial_of(Candidate& candidate) {
    candidate.was_tried = true;
    Trial trial{.said = job_of(candidate),
                .change = {},
                .changes = changes_of(candidate),
                .kin = kin_of(candidate),
                .shape = work_shape_of(candidate),
                .about = candidate.about};
    trial.change = change_between(grid_.job(), trial.said);
    if (trial.change.empty()) trial.change = std::string(kAsAsked);
    return trial;
  }

  [[nodiscard]] Job job_of(const Candidate& candidate) const {
    return grid_.with(*grid_.job_at(grid_.points()[static_cast<std::size_t>(candidate.point)]),
                      candidate.way);
  }
  [[nodiscard]] int changes_of(const Candidate& candidate) const {
    return grid_.points()[static_cast<std::size_t>(candidate.point)].changes +
           candidate.way.changes;
  }

  static double as_us(Duration time) { return to_us(time); }
  [[nodiscard]] double corrected(const Candidate& candidate) const {
    const WorkShape shape = work_shape_of(candidate);
    std::optional<double> least;
    for (const auto& [other, off] : off_shapes_) {
      if (shape.work == other.work || is_next_to(shape, other))
        least = std::min(least.value_or(off), off);
    }
    if (least) return as_us(candidate.about) * *least;
    const Kin kin = kin_of(candidate);
    const auto own = off_.find(kin);
    if (own != off_.end()) return as_us(candidate.about) * own->second;
    const auto near = off_nearby_.find(nearby(kin));
    return as_us(candidate.about) *
           (near != off_nearby_.end() ? near->second - kApart : usual_off_);
  }
  // What tells kinds apart most: sharding, pipeline, async_tp.
  static std::array<std::int64_t, 3> nearby(const Kin& kin) { return {kin[0], kin[1], kin[2]}; }
  void rank() {
    ranked_.clear();
    has_any_room_ = false;
    for (Candidate& candidate : candidates_) {
      has_any_room_ |= has_room(candidate.fits, candidate.peak);
      ranked_.push_back(&candidate);
    }
    std::ranges::stable_sort(ranked_, {}, [&](const Candidate* one) { return corrected(*one); });
  }

  // More than any machine has where it cannot be counted.
  [[nodiscard]] Bytes peak_of(const Job& job) {
    constexpr Bytes kUncounted(std::int64_t{1} << 58);
    const auto stages = attempt([&] { return sketcher_.memory_of(job); });
    return stages ? (*stages.value)[jobs::fullest(*stages.value)].total() : kUncounted;
  }
  [[nodiscard]] Fits fits(Bytes peak) const {
    schedule::Holding held;
    held.activations = peak;
    return room_of(held, capacity_).fits();
  }
  void note_smallest(Bytes peak, const Candidate& candidate) {
    if (!smallest_ || peak < smallest_->first) smallest_ = {peak, candidate};
  }
  void leave_out(const std::string& why, std::int64_t jobs) {
    constexpr std::size_t kMostReasons = 5;
    found_.counts.all -= jobs;
    std::vector<std::string>& lines = found_.left_out;
    if (lines.size() < kMostReasons && std::ranges::find(lines, why) == lines.end())
      lines.push_back(why);
  }

  // Whether any framework can be told any of them; so many kinds are asked for, first those with the orders that most know.
  void ask_whether_any_is_told() {
    constexpr std::size_t kKindsAsked = 200;
    is_any_told_ |=
        std::ranges::any_of(found_.rows, [](const JobRow& row) { return !row.target.empty(); });
    for (const bool splits : {false, true}) {
      for (const Candidate& candidate : candidates_) {
        if (is_any_told_ || told_.size() >= kKindsAsked) return;
        if (schedule::splits_backward(candidate.way.order) == splits)
          is_any_told_ = is_told_itself(candidate);
      }
    }
  }
  [[nodiscard]] bool is_told(const Candidate& candidate) {
    return !is_any_told_ || is_told_itself(candidate);
  }
  [[nodiscard]] bool is_told_itself(const Candidate& candidate) {
    const Job job = job_of(candidate);
    const auto [at, is_new] = told_.try_emplace(shape_of(job), false);
    if (is_new) {
      Trial trial{.said = job, .change = {}};
      static_cast<void>(run_of(trial));
      at->second = !trial.target.empty();
    }
    return at->second;
  }

  // Of those that are as good the one with the fewest changes, then with the least memory.
  void choose() {
    constexpr double kNoise = 0.02;  // of two steps: docs/machines.md
    const bool is_sure =
        std::ranges::any_of(found_.rows, [&](const JobRow& row) { return is_candidate(row); });
    const auto counts = [&](const JobRow& row) {
      return is_sure ? is_candidate(row) : is_told(row) && row.found.fits() == Fits::May;
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
    if (!grid_.has_layout()) keep_as_fast();
    const auto changes = [&](std::size_t i) { return found_.rows[i].changes; };
    const int fewest = changes(*std::ranges::min_element(close, {}, changes));
    std::erase_if(close, [&](std::size_t i) { return changes(i) > fewest; });
    keep_as_fast();
    found_.best = *std::ranges::min_element(
        close, {}, [&](std::size_t i) { return found_.rows[i].found.peak(); });
    for (JobRow& row : found_.rows) {
      row.alike = &row != &found_.rows[*found_.best] && row.found.fits() != Fits::No &&
                  models::is_uncalibrated(cluster_) && is_close(row, found_.rows[*found_.best]);
    }
  }

  // Where the job as asked is none of these, what is set in its place has to be told apart from it as well.
  void keep_what_is_told_from_asked(std::vector<std::size_t>& close) const {
    const auto asked = std::ranges::find(found_.rows, kAsAsked, &JobRow::change);
    if (asked == found_.rows.end() || asked->found.fits() == Fits::No) return;
    const auto at = static_cast<std::size_t>(asked - found_.rows.begin());
    if (std::ranges::find(close, at) != close.end()) return;
    std::erase_if(close, [&](std::size_t i) {
      return i != *found_.fastest && is_close(found_.rows[i], *asked);
    });
  }

  [[nodiscard]] double apart(const JobRow& row) const {
    constexpr double kAsGood = 0.001;
    return models::is_uncalibrated(cluster_) ? told_apart(row.said) : kAsGood;
  }
  // Whether their steps cannot be told apart.
  [[nodiscard]] bool is_close(const JobRow& one, const JobRow& other) const {
    const auto [least, most] = std::minmax({to_us(step_of(one)), to_us(step_of(other))});
    return least >= (1 - apart(one)) * most;
  }

  static Duration step_of(const JobRow& row) { return row.found.step; }

  // For certain, or as well as the job as asked.
  [[nodiscard]] bool has_room(Fits fits, Bytes peak) const {
    if (fits != Fits::May) return fits == Fits::Yes;
    return asked_peak_ && peak <= *asked_peak_;
  }
  // Somebody can be told it; or nobody any job, as of models that frameworks' files do not know.
  [[nodiscard]] bool is_told(const JobRow& row) const {
    return !row.target.empty() || !is_any_told_;
  }
  [[nodiscard]] bool is_candidate(const JobRow& row) const {
    return has_room(row.found.fits(), row.found.peak()) && is_told(row);
  }

  [[nodiscard]] std::optional<std::size_t> fastest_row() const {
    std::optional<std::size_t> fastest;
    for (std::size_t i = 0; i < found_.rows.size(); ++i) {
      const JobRow& row = found_.rows[i];
      if (is_candidate(row) && (!fastest || row.found.step < found_.rows[*fastest].found.step))
        fastest = i;
    }
    return fastest;
  }
  [[nodiscard]] std::optional<Duration> fastest_step() const {
    const std::optional<std::size_t> row = fastest_row();
    return row ? std::optional(found_.rows[*row].found.step) : std::nullopt;
  }

  // The job that is run: that of the first framework that can be told all of it, where there is one.
  static Job run_of(Trial& trial) {
    const Job& job = trial.said;
    for (const frameworks::JobTarget& target : frameworks::job_targets_of(job)) {
      const bool is_asked_for = job.as == jobs::RunBy::Any || target.as_run.as == job.as;
      if (!is_asked_for || !target.given_up.empty()) continue;
      trial.target = target.id;
      return target.as_run;
    }
    return job;
  }

  void begin(JobPhase phase, std::size_t items) { watch_.begins(phase, items); }

  // Whether two of its plays side by side want more memory than they are worth: some 60 KB for each layer and micro-batch.
  [[nodiscard]] bool is_large(const Job& job) const {
    constexpr std::int64_t kLarge = 2'000;
    const std::int64_t few = 2 * job.layout.pp * (job.layout.vp > 1 ? 2 : 1);
    const std::int64_t count = job.micro_batches();
    return job.model.layers * (how_ == Play::Whole ? count : std::min(count, few)) > kLarge;
  }

  // Side by side, but for large ones; rows of those that can be priced.
  void simulate(std::vector<Trial> trials) {
    std::atomic<bool> goes_on = true;
    std::mutex watching, playing;
    parallel_for(trials.size(), [&](std::size_t i) {
      if (!goes_on) return;
      Trial& trial = trials[i];
      std::unique_lock alone(playing, std::defer_lock);
      if (is_large(trial.said)) {
        alone.lock();
        give_memory_back();
      }
      try {
        auto found = attempt([&] { return predict_job(run_of(trial), cluster_, {}, how_); });
        if (!found && trial.change == kAsAsked) throw InputError(found.error);
        trial.found = std::move(found.value);
        trial.refused = std::move(found.error);
        if (alone) give_memory_back();
      } catch (const Interrupted&) {
        goes_on = false;
        return;
      }
      const std::scoped_lock lock(watching);
      if (!watch_.goes_on(JobPhase::Simulate, trial.change)) goes_on = false;
    });
    if (!goes_on) found_.interrupted = true;
    tried_ += trials.size();
    for (Trial& trial : trials) add_row(std::move(trial));
  }

  void add_row(Trial trial) {
    if (!trial.found) {
      if (!trial.refused.empty()) leave_out(trial.change + ": " + trial.refused, 0);
      return;
    }
    const Job work = jobs::in_effect(trial.said);
    if (std::ranges::any_of(found_.rows, [&](const JobRow& row) {
          return row.found.job == trial.found->job || jobs::in_effect(row.said) == work;
        }))
      return;
    found_.rows.push_back({.change = std::move(trial.change),
                           .said = std::move(trial.said),
                           .found = *std::move(trial.found),
                           .target = std::move(trial.target),
                           .changes = trial.changes});
    row_shapes_.push_back(trial.shape);
    JobRow& row = found_.rows.back();
    if (row.change == kAsAsked && row.found.fits() != Fits::No) asked_peak_ = row.found.peak();
    if (!trial.kin || trial.about == Duration{}) return;
    const double off = as_us(row.found.step) / as_us(trial.about);
    usual_off_ = std::min(usual_off_, off);
    off_[*trial.kin] = off;
    off_shapes_.emplace_back(*trial.shape, off);
    const auto [near, is_new] = off_nearby_.try_emplace(nearby(*trial.kin), off);
    near->second = std::min(near->second, off);
  }

  // What became of all of them, and what is proven: all that was left aside takes at least as long as the fastest.
  void count() {
    JobCounts& counts = found_.counts;
    counts.simulated = std::ssize(found_.rows);
    const std::optional<Duration> fastest =
        found_.fastest ? std::optional(found_.rows[*found_.fastest].found.step) : std::nullopt;
    if (!found_.interrupted) found_.least = fastest;
    for (const Candidate& candidate : candidates_) {
      if (candidate.was_tried || (fastest && candidate.least >= *fastest)) continue;
      ++counts.left;
      if (found_.least) found_.least = std::min(*found_.least, candidate.least);
    }
    for (const JobRow& row : found_.rows) {
      if (found_.least && row.found.fits() != Fits::No)
        found_.least = std::min(*found_.least, row.found.step);
    }
    // Of those without room some were simulated: as asked, the smallest.
    const std::int64_t rest = counts.all - counts.simulated - counts.left;
    counts.without_room = std::min(counts.without_room, rest);
    (found_.interrupted ? counts.left : counts.slower) += rest - counts.without_room;
  }

  // One part after the other, each time the one that its sketch says gives most; every step of the way is simulated.
  void find_path() {
    const JobRow& best = found_.rows[*found_.best];
    const auto asked = std::ranges::find(found_.rows, kAsAsked, &JobRow::change);
    if (asked == found_.rows.end() || &*asked == &best) return;
    std::vector<std::string> parts = changes_between(asked->said, best.said);
    found_.path.push_back({std::string(kAsAsked), asked->found.step});
    Job now = asked->said;
    while (parts.size() > 1) {
      std::optional<std::pair<Duration, std::size_t>> first;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto next = jobs::with_options(now, parts[i]);
        if (!next) continue;
        const auto sketch = attempt([&] { return sketcher_.sketch(as_likely_run(*next)); });
        if (sketch && (!first || sketch.value->about < first->first))
          first = {sketch.value->about, i};
      }
      if (!first) break;
      const std::string part = parts[first->second];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(first->second));
      Trial trial{.said = *jobs::with_options(now, part), .change = part};
      now = trial.said;
      const auto found = attempt([&] { return predict_job(run_of(trial), cluster_, {}, how_); });
      if (!found) break;
      found_.path.push_back({part, found.value->step});
    }
    std::string rest;
    for (const std::string& part : parts) rest += (rest.empty() ? "" : ",") + part;
    found_.path.push_back({rest, best.found.step});
  }

  const jobs::JobGrid& grid_;
  const models::Cluster& cluster_;
  const JobWatch& watch_;
  const Play how_;
  JobSketcher sketcher_;
  std::optional<Bytes> capacity_ = std::nullopt;
  JobSearch found_;
  std::vector<Point> points_, aside_;  // aside: with ways beyond the limit, the least of those
  std::size_t sketched_ = 0;           // of points_
  Duration limit_{};                   // what takes at least as long was not sketched
  bool sketches_all_ = false;          // until something was simulated that fits
  std::vector<Candidate> candidates_;
  std::vector<Candidate*> ranked_;
  bool has_any_room_ = false;
  std::vector<std::optional<WorkShape>> row_shapes_;  // of found_.rows, as they were found
  std::size_t tried_ = 0;
  std::int64_t effort_ = 0;
  std::map<Kin, double> off_;
  std::vector<std::pair<WorkShape, double>> off_shapes_;
  std::map<std::array<std::int64_t, 3>, double> off_nearby_;  // the least of its kinds
  double usual_off_ = 1;  // of a kind of which none was simulated: as it is, or the least of others
  std::map<std::array<std::int64_t, 13>, bool> told_;
  bool is_any_told_ = false;
  bool is_untold_shown_ = false, is_tight_shown_ = false;
  std::mutex noting_;
  std::optional<std::pair<Bytes, Candidate>> smallest_ = std::nullopt;
  std::optional<Bytes> asked_peak_ = std::nullopt;  // of the job as asked, where it fits or may
};

}  // namespace

double told_apart(const Job& job) {
  constexpr std::int64_t kNodeRanks = 8;
  constexpr double kOnANode = 0.10;
  constexpr double kOnSeveral = 0.20;
  return job.layout.world() <= kNodeRanks ? kOnANode : kOnSeveral;
}

JobSearch search_jobs(const jobs::JobGrid& grid, const models::Cluster& cluster,
                      const JobWatch& watch, Play how) {
  return GridSearch(grid, cluster, watch, how).run();
}

}  // namespace dovetail::predict
