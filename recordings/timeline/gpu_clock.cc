// Bounds first, then the estimate within them. Of many launches a few are wrong (ids that were used twice, times that were
// lost): a bound is one that nearly all keep.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/gpu_clock.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace dovetail::imports {
namespace {

constexpr Duration kQuickest = std::chrono::microseconds(1);  // launch onto an idle GPU
constexpr Duration kUsual = std::chrono::microseconds(6);
constexpr Duration kSlowest = std::chrono::microseconds(25);
constexpr Duration kFarthest = std::chrono::milliseconds(1);
constexpr Duration kAlike = std::chrono::microseconds(20);
constexpr double kFastest = 5e-4;                            // drift: no clock is worse
constexpr Duration kDrifts = std::chrono::microseconds(20);  // over the trace, at least

// The least value but for those that may be wrong: one of eight and more, two in a thousand.
std::optional<Duration> floor_of(std::vector<Duration> values) {
  if (values.empty()) return std::nullopt;
  const std::size_t few = values.size() < 8 ? 0 : 1;
  const auto wrong = static_cast<std::ptrdiff_t>(std::max(few, values.size() / 500));
  std::ranges::nth_element(values, values.begin() + wrong);
  return values[static_cast<std::size_t>(wrong)];
}

std::optional<Duration> floor_of(const std::vector<LaunchedWork>& launched, bool idle_only) {
  std::vector<Duration> values;
  for (const LaunchedWork& one : launched) {
    if (one.was_idle || !idle_only) values.push_back(one.work - one.call);
  }
  return floor_of(std::move(values));
}

// The rate at which the quickest launch grows, where it does so evenly: eight parts of the trace, each with its quickest.
double drift_of(const std::vector<LaunchedWork>& launched) {
  constexpr std::size_t kParts = 8;
  Instant first = launched.front().work;
  Instant last = first;
  for (const LaunchedWork& one : launched) {
    first = std::min(first, one.work);
    last = std::max(last, one.work);
  }
  if (last - first < std::chrono::milliseconds(1)) return 0;
  struct Point {
    double at, latency;
  };
  std::array<std::optional<Point>, kParts> quickest;
  for (const LaunchedWork& one : launched) {
    if (!one.was_idle) continue;
    const auto part =
        static_cast<std::size_t>((one.work - first).count() * 8 / ((last - first).count() + 1));
    const Point point{static_cast<double>((one.work - first).count()),
                      static_cast<double>((one.work - one.call).count())};
    if (!quickest[part] || point.latency < quickest[part]->latency) quickest[part] = point;
  }
  std::vector<Point> points;
  for (const auto& point : quickest) {
    if (point) points.push_back(*point);
  }
  if (points.size() < 3) return 0;
  // Through the first and the last; the others must lie on it.
  const double rate =
      (points.back().latency - points.front().latency) / (points.back().at - points.front().at);
  const double change = std::abs(points.back().latency - points.front().latency);
  if (change < static_cast<double>(kDrifts.count()) || std::abs(rate) > kFastest) return 0;
  for (const Point& point : points) {
    const double line = points.front().latency + rate * (point.at - points.front().at);
    if (std::abs(point.latency - line) * 4 > change) return 0;
  }
  return -rate;
}

}  // namespace

Duration GpuClock::at(Instant gpu_time) const {
  if (rate == 0) return offset;
  return offset + from_ns(rate * static_cast<double>((gpu_time - zero).count()));
}

GpuClock estimate_clock(const std::vector<LaunchedWork>& launched,
                        const std::vector<AwaitedWork>& awaited) {
  GpuClock clock;
  if (launched.empty()) return clock;
  clock.zero = launched.front().work;
  clock.rate = drift_of(launched);
  std::vector<LaunchedWork> even = launched;
  for (LaunchedWork& one : even) one.work += GpuClock(clock).at(one.work);
  const std::optional<Duration> quickest = floor_of(even, true);
  const Duration least = floor_of(even, false).value_or(Duration{});
  for (const LaunchedWork& one : launched) clock.idle_launches += one.was_idle ? 1 : 0;
  // Several launches must have taken as long, and not too long: a GPU may wait for what the trace does not hold.
  const bool is_slow = quickest && *quickest > kSlowest && *quickest <= 2 * kFarthest &&
                       std::ranges::count_if(even, [&](const LaunchedWork& one) {
                         return one.was_idle && one.work - one.call <= *quickest + kAlike;
                       }) > 1;
  if (is_slow || (quickest && *quickest < kQuickest)) clock.offset = kUsual - *quickest;
  clock.offset = std::max(clock.offset, -least);
  std::vector<Duration> returns;
  for (const AwaitedWork& one : awaited) {
    returns.push_back(one.returned - (one.end + GpuClock(clock).at(one.end)));
  }
  const std::optional<Duration> soonest = floor_of(std::move(returns));
  if (soonest && *soonest < Duration{}) {
    clock.offset = std::max(clock.offset + *soonest, -least);
  }
  // Within the bounds, the GPU may still be ahead by as much as a launch seems to take.
  const Duration ahead = quickest.value_or(least) + clock.offset;
  clock.error = std::clamp(ahead, kUsual, kFarthest);
  return clock;
}

}  // namespace dovetail::imports
