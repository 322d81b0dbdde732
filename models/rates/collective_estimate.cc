// A line through measured sizes, and the interval around it (the model and its limits: collective_estimate.h). Times are
// doubles of nanoseconds here and round once.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/collective_estimate.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace dovetail::models {
namespace {

constexpr double kFastestBytesPerNs = 1000;  // bus bandwidth, 1 TB/s
constexpr double kShortestNs = 5e3;
constexpr double kHalfSpeedBytes = 0x1p21;  // that take as long to move as the latency
constexpr double kLongestLatencyNs = 1e6;
constexpr double kError = 0.03;  // of a measured time, at least
// What times stray by for each doubling of the distance to a measured size, as a power of two.
constexpr double kBeyond = 0.2;
constexpr double kBelow = 0.3;
constexpr double kBetween = 0.1;

}  // namespace

CollectiveEstimate::CollectiveEstimate(const std::vector<Sized>& measured, std::int64_t ranks) {
  DOVETAIL_CHECK(!measured.empty() && ranks >= 1) << measured.size() << " sizes";
  for (const auto& [bytes, time] : measured) {
    DOVETAIL_CHECK(bytes >= Bytes(1) && time > Duration{}) << bytes;
    points_.push_back({static_cast<double>(bytes.count()), static_cast<double>(time.count())});
  }
  const auto n = static_cast<double>(ranks);
  least_ns_per_byte_ = 2 * (n - 1) / n / kFastestBytesPerNs;
  fit();
}

// Least squares of (alpha + beta S - T) / T; neither part of the line is less than what any machine needs.
void CollectiveEstimate::fit() {
  error_ = kError;
  if (points_.size() == 1) {
    const Point& only = points_.front();
    alpha_ =
        std::min(only.ns * kHalfSpeedBytes / (kHalfSpeedBytes + only.bytes), kLongestLatencyNs);
    beta_ = (only.ns - alpha_) / only.bytes;
    return;
  }
  double w = 0;
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  for (const Point& point : points_) {
    const double weight = 1 / (point.ns * point.ns);
    w += weight;
    x += weight * point.bytes;
    y += weight * point.ns;
    xx += weight * point.bytes * point.bytes;
    xy += weight * point.bytes * point.ns;
  }
  const double spread = w * xx - x * x;
  beta_ = spread > 0 ? (w * xy - x * y) / spread : 0;
  alpha_ = (y - beta_ * x) / w;
  if (beta_ < least_ns_per_byte_) {
    beta_ = least_ns_per_byte_;
    alpha_ = std::max(kShortestNs, (y - beta_ * x) / w);
  } else if (alpha_ < kShortestNs) {
    alpha_ = kShortestNs;
    beta_ = std::max(least_ns_per_byte_, (xy - alpha_ * x) / xx);
  }
  double squares = 0;
  for (const Point& point : points_) squares += std::pow(line(point.bytes) / point.ns - 1, 2);
  if (points_.size() > 2) {
    error_ = std::max(error_, std::sqrt(squares / static_cast<double>(points_.size() - 2)));
  }
  alpha_error_ = spread > 0 ? error_ * std::sqrt(xx / spread) : alpha_;
  beta_error_ = spread > 0 ? error_ * std::sqrt(w / spread) : beta_;
}

CollectiveEstimate::Range CollectiveEstimate::above(double bytes) const {
  const Point& last = points_.back();
  const double time = last.ns * line(bytes) / line(last.bytes);
  const double doublings = std::log2(bytes / last.bytes);
  const double near = error_ * std::min(1.0, doublings);
  double low = last.ns + least_ns_per_byte_ * (bytes - last.bytes);
  double high = last.ns * bytes / last.bytes * (1 + near);
  if (points_.size() > 1) {
    const double off = (bytes - last.bytes) * beta_error_ + near * time;
    const double factor = std::exp2(kBeyond * doublings);
    low = std::max(low, (time - off) / factor);
    high = std::min(high, (time + off) * factor);
  }
  return {low, time, high};
}

CollectiveEstimate::Range CollectiveEstimate::below(double bytes) const {
  const Point& first = points_.front();
  const double time = first.ns * line(bytes) / line(first.bytes);
  const double doublings = std::log2(first.bytes / bytes);
  const double near = error_ * std::min(1.0, doublings);
  double low =
      std::max(std::min(kShortestNs, first.ns), first.ns * bytes / first.bytes * (1 - near));
  double high = first.ns * (1 + near);
  if (points_.size() > 1) {
    const double off = std::min(1.0, alpha_error_ * (1 - bytes / first.bytes) / time + near);
    const double factor = std::exp2(kBelow * doublings);
    low = std::max(low, time * (1 - off) / factor);
    high = std::min(high, time * (1 + off) * factor);
  }
  return {low, time, high};
}

// The line through both, as tables have it, and their power law: measured curves bend between them.
CollectiveEstimate::Range CollectiveEstimate::between(const Point& left, const Point& right,
                                                      double bytes) const {
  const double share = (bytes - left.bytes) / (right.bytes - left.bytes);
  const double time = left.ns + share * (right.ns - left.ns);
  const double power =
      left.ns * std::pow(right.ns / left.ns,
                         std::log(bytes / left.bytes) / std::log(right.bytes / left.bytes));
  const double doublings = std::min(std::log2(bytes / left.bytes), std::log2(right.bytes / bytes));
  const double off = std::exp2(kBetween * doublings) * (1 + error_ * std::min(1.0, doublings));
  return {std::min(time, power) / off, time, std::max(time, power) * off};
}

EstimatedTime CollectiveEstimate::at(Bytes bytes) const {
  DOVETAIL_CHECK(bytes >= Bytes(1)) << bytes;
  const auto size = static_cast<double>(bytes.count());
  const auto next = std::ranges::lower_bound(points_, size, {}, &Point::bytes);
  Range range;
  if (next == points_.end()) {
    range = above(size);
  } else if (next->bytes == size) {
    range = {next->ns, next->ns, next->ns};
  } else if (next == points_.begin()) {
    range = below(size);
  } else {
    range = between(*std::prev(next), *next, size);
  }
  const Duration time = std::clamp(from_ns(range.time), Duration(1), kLongestTime);
  return {.bytes = bytes,
          .low = std::clamp(from_ns(range.low), Duration(1), time),
          .time = time,
          .high = std::clamp(from_ns(range.high), time, kLongestTime)};
}

std::vector<EstimatedTime> CollectiveEstimate::outside(Bytes largest) const {
  constexpr std::int64_t kSmallest = 4096;
  constexpr std::int64_t kLargest = std::int64_t{1} << 50;  // as profiles have it
  std::vector<EstimatedTime> estimates;
  const auto first = static_cast<std::int64_t>(points_.front().bytes);
  const auto last = static_cast<std::int64_t>(points_.back().bytes);
  for (std::int64_t size = first / 4; size >= kSmallest; size /= 4) {
    estimates.push_back(at(Bytes(size)));
  }
  std::ranges::reverse(estimates);
  for (std::size_t i = 0; i + 1 < points_.size(); ++i) {
    const auto right = static_cast<std::int64_t>(points_[i + 1].bytes);
    for (auto size = static_cast<std::int64_t>(points_[i].bytes) * 2; size < right; size *= 2) {
      estimates.push_back(at(Bytes(size)));
    }
  }
  const std::int64_t until = std::max(largest.count(), last * 2 + 1);
  for (std::int64_t size = last; size < until && size <= kLargest / 2;) {
    size *= 2;
    estimates.push_back(at(Bytes(size)));
  }
  return estimates;
}

}  // namespace dovetail::models
