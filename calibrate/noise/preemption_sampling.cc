// Draws the random moments at which the reference load looks whether its core is there, and
// estimates from what it found which stretches of time other programs took, and how much went
// unseen.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/preemption_sampling.h"

#include "calibrate/noise/preemption_lengths.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace dovetail::testbed {
namespace {

constexpr double kMemoryNs = 1e9;
constexpr double kOften = 0.04;  // taken lately: cells are short from there on
constexpr double kMostUnnoticed = 0.25;

// So long a wait is more than our own threads make.
bool may_be_others(const Tick& tick, std::int64_t waited_ns) {
  return static_cast<double>(waited_ns) >
         kOwnWaits * static_cast<double>(tick.cell_ns + tick.passed_ns);
}

// How quick known work was (the 10th percentile), and how much longer it took in the mean.
void note_work(std::vector<std::int64_t> works, traces::CoreRecord& record) {
  if (works.size() < 10) return;
  std::sort(works.begin(), works.end());
  record.quickest = Duration(works[works.size() / 10]);
  const auto quickest = static_cast<double>(record.quickest.count());
  // What was interrupted is late, not slow: it is left out beyond three times the quickest.
  double sum = 0;
  std::size_t count = 0;
  for (const std::int64_t work : works) {
    if (static_cast<double>(work) > 3 * quickest) break;
    sum += static_cast<double>(work);
    ++count;
  }
  record.slowdown = std::max(0.0, sum / static_cast<double>(count) / quickest - 1);
}

// A wake-up within the time that is asked about.
struct WakeUp {
  const Tick* tick = nullptr;
  std::int64_t free_ns = 0;  // when the core was last seen there; or further back than we look
  std::int64_t due_ns = 0;   // both cut to the time asked about
  std::int64_t woke_ns = 0;
  // In the run queue, of the rank's thread: in preemptions that no moment met, and in the one that this met.
  std::int64_t waited_ns = 0;
  std::int64_t stood_ns = 0;

  [[nodiscard]] bool late() const { return is_late(*tick); }
  // The wait in the run queue tells how long the preemption was.
  [[nodiscard]] bool explained() const { return late() && stood_ns >= woke_ns - due_ns; }
  // Another program had the core, or several, without delaying the reference load.
  [[nodiscard]] bool others() const { return !late() && may_be_others(*tick, waited_ns); }
  [[nodiscard]] Met met() const {
    return {.left_ns = woke_ns - due_ns, .gap_ns = due_ns - free_ns};
  }
};

// The system counts a wait when it is over. The reference load wakes up before the rank's thread goes on, so the
// wait of a preemption that a moment met is in what the next moment is told, unless the thread was let go first.
void share_out_waits(std::span<WakeUp> wake_ups) {
  for (std::size_t i = 0; i < wake_ups.size(); ++i) {
    WakeUp& met = wake_ups[i];
    if (!met.late()) continue;
    if (i + 1 < wake_ups.size()) {
      met.stood_ns = std::min(wake_ups[i + 1].waited_ns, met.woke_ns - met.free_ns);
      wake_ups[i + 1].waited_ns -= met.stood_ns;
    }
    if (!met.explained()) met.stood_ns = std::exchange(met.waited_ns, 0);
  }
}

std::vector<WakeUp> wake_ups_within(std::span<const Tick> ticks, std::int64_t begin_ns,
                                    std::int64_t end_ns) {
  std::vector<WakeUp> wake_ups;
  std::int64_t free_ns = begin_ns;
  for (const Tick& tick : ticks) {
    if (tick.woke_ns <= begin_ns) continue;
    if (tick.due_ns >= end_ns) break;
    const std::int64_t woke_ns = std::min(tick.woke_ns, end_ns);
    wake_ups.push_back({.tick = &tick,
                        .free_ns = free_ns,
                        .due_ns = std::clamp(tick.due_ns, free_ns, woke_ns),
                        .woke_ns = woke_ns,
                        .waited_ns = tick.waited_ns});
    free_ns = std::max(free_ns, woke_ns);
  }
  share_out_waits(wake_ups);
  return wake_ups;
}

PreemptionLengths lengths_of(std::span<const WakeUp> wake_ups) {
  std::vector<Met> met;
  std::vector<std::int64_t> gaps;
  for (const WakeUp& wake_up : wake_ups) {
    if (wake_up.explained()) continue;
    gaps.push_back(wake_up.due_ns - wake_up.free_ns);
    if (wake_up.late()) met.push_back(wake_up.met());
  }
  return {met, std::move(gaps), kOnTime};
}

std::int64_t start_of(const WakeUp& wake_up, const PreemptionLengths& lengths) {
  std::int64_t start_ns = wake_up.woke_ns;
  if (wake_up.explained()) {
    start_ns = wake_up.woke_ns - wake_up.stood_ns;
  } else if (wake_up.others()) {
    start_ns = wake_up.woke_ns - wake_up.waited_ns;
  } else if (wake_up.late()) {
    start_ns = wake_up.due_ns - lengths.lasted(wake_up.met()).count();
  }
  return std::max(start_ns, wake_up.free_ns);
}

// The share of time whose moments found the core away, if most of what they found is short: else what was
// found is nearly all there was, and known better. Waits in the run queue that explain nearly all of them
// leave nothing out.
double unseen_share(std::span<const WakeUp> wake_ups, const traces::CoreRecord& record) {
  double away_ns = 0;
  double all_ns = 0;
  double late_ns = 0;
  std::size_t late = 0;
  std::size_t explained = 0;
  for (const WakeUp& wake_up : wake_ups) {
    const auto stands_ns = static_cast<double>(wake_up.tick->cell_ns + wake_up.tick->passed_ns);
    all_ns += stands_ns;
    if (!wake_up.late()) continue;
    away_ns += stands_ns;
    late_ns += static_cast<double>(wake_up.tick->woke_ns - wake_up.tick->due_ns - kOnTime.count());
    ++late;
    explained += wake_up.explained() ? 1 : 0;
  }
  if (late == 0 || 10 * explained > 9 * late) return 0;
  const double cell_ns = all_ns / static_cast<double>(wake_ups.size());
  if (static_cast<double>(traces::typical_burst(record).count()) >= 2 * cell_ns) return 0;
  // Of a preemption of length L the last kOnTime are not noticed, and what is late is so by half of the rest
  // on average.
  const double rest = 2 * late_ns / static_cast<double>(late);
  const double unnoticed =
      rest <= 0 ? 0 : std::min(kMostUnnoticed, static_cast<double>(kOnTime.count()) / rest);
  return std::max(0.0, away_ns / all_ns * (1 + unnoticed) - traces::share_taken(record));
}

}  // namespace

bool is_late(const Tick& tick) { return tick.woke_ns - tick.due_ns > kOnTime.count(); }

PreemptionSampler::PreemptionSampler(std::uint64_t seed, std::int64_t begin_ns)
    : random_(seed), begin_ns_(begin_ns) {
  draw();
}

void PreemptionSampler::draw() { due_ns_ = begin_ns_ + random_.between(0, cell_ns_ - 1); }

Tick PreemptionSampler::woke(std::int64_t woke_ns, std::int64_t waited_ns, std::int64_t work_ns) {
  Tick tick = {.due_ns = due_ns_,
               .woke_ns = woke_ns,
               .cell_ns = cell_ns_,
               .passed_ns = 0,
               .waited_ns = waited_ns,
               .work_ns = work_ns};
  const bool late = is_late(tick);
  const auto cell_ns = static_cast<double>(cell_ns_);
  const double waited = std::min(1.0, static_cast<double>(waited_ns) / cell_ns);
  remember(cell_ns, late ? 1 : may_be_others(tick, waited_ns) ? waited : 0);
  begin_ns_ += cell_ns_;
  // Chosen before the moments that it is for are drawn, and none of them is drawn twice.
  cell_ns_ = lately_ >= kOften ? short_cell_ns_ : kLongCell.count();
  for (draw(); due_ns_ <= woke_ns; draw()) {
    tick.passed_ns += cell_ns_;
    begin_ns_ += cell_ns_;
  }
  remember(static_cast<double>(tick.passed_ns), 1);
  return tick;
}

void PreemptionSampler::costs(double moment_ns) {
  short_cell_ns_ = std::clamp<std::int64_t>(std::llround(moment_ns / kMostCost), kShortCell.count(),
                                            kLongCell.count());
}

void PreemptionSampler::remember(double length_ns, double taken) {
  const double keep = std::exp(-length_ns / kMemoryNs);
  lately_ = keep * lately_ + (1 - keep) * taken;
}

traces::CoreRecord record_of(std::span<const Tick> ticks, std::int64_t begin_ns,
                             std::int64_t end_ns) {
  traces::CoreRecord record;
  record.watched = Duration(end_ns - begin_ns);
  const std::vector<WakeUp> wake_ups = wake_ups_within(ticks, begin_ns, end_ns);
  const PreemptionLengths lengths = lengths_of(wake_ups);
  std::vector<std::int64_t> works;
  for (const WakeUp& wake_up : wake_ups) {
    if (wake_up.tick->work_ns > 0) works.push_back(wake_up.tick->work_ns);
    const std::int64_t start_ns = start_of(wake_up, lengths);
    if (start_ns >= wake_up.woke_ns) continue;
    record.taken.push_back(
        {.start = Duration(start_ns - begin_ns), .length = Duration(wake_up.woke_ns - start_ns)});
  }
  record.unseen = unseen_share(wake_ups, record);
  note_work(std::move(works), record);
  return record;
}

}  // namespace dovetail::testbed
