// Builds the knots of a collective's cost curve from measured points, reads times between them,
// and computes the curve's non-decreasing lower hull. All arithmetic is in doubles of nanoseconds
// and rounds once, at the end, so that a time does not depend on how it was asked for.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/collective_table.h"

#include "base/error.h"
#include "base/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace dovetail::models {
namespace {

// A point in the units that all arithmetic here is done in.
struct Sample {
  double bytes;
  double isolated_ns;
  double back_to_back_ns;
  Spread spread = {};
};

Spread between(const Spread& left, const Spread& right, double share) {
  return {.p10 = left.p10 + share * (right.p10 - left.p10),
          .p90 = left.p90 + share * (right.p90 - left.p90)};
}

double ns(Duration duration) { return static_cast<double>(duration.count()); }

constexpr auto kLongestNs = static_cast<double>(kLongestTime.count());

// To the nearest nanosecond, and not above kLongestNs, which a steep table reaches far beyond its points.
// REQUIRES: not negative; a cast rounds down then, and is far cheaper than a call of llround.
Duration rounded(double nanoseconds) {
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): exact for what is not negative
  return Duration(static_cast<std::int64_t>(std::min(nanoseconds, kLongestNs) + 0.5));
}

// By how much a time in a queue changed.
struct Difference {
  double bytes = 0;
  double ns = 0;
  double factor = 1;
};

// REQUIRES: differences is not empty, sizes strictly rising.
double difference_at(std::span<const Difference> differences, double bytes,
                     double back_to_back_ns) {
  const auto above = std::ranges::lower_bound(differences, bytes, {}, &Difference::bytes);
  if (above == differences.begin()) return differences.front().ns;
  if (above == differences.end()) return back_to_back_ns * (differences.back().factor - 1);
  const Difference& below = *std::prev(above);
  const double share = (bytes - below.bytes) / (above->bytes - below.bytes);
  return below.ns + share * (above->ns - below.ns);
}

std::vector<Sample> checked_samples(std::span<const CollectivePoint> points) {
  DOVETAIL_CHECK(points.size() >= 2) << "a table needs two points, found " << points.size();
  std::vector<Sample> samples;
  for (const CollectivePoint& point : points) {
    const Duration queued = point.back_to_back.value_or(point.isolated);
    DOVETAIL_CHECK(point.bytes >= Bytes(1)) << point.bytes;
    DOVETAIL_CHECK(point.isolated > Duration{}) << "no time at " << point.bytes;
    DOVETAIL_CHECK(queued > Duration{}) << "no time back to back at " << point.bytes;
    const auto bytes = static_cast<double>(point.bytes.count());
    DOVETAIL_CHECK(samples.empty() || samples.back().bytes < bytes) << "unsorted: " << point.bytes;
    samples.push_back(
        {bytes, ns(point.isolated), ns(queued), spread_of(point.isolated, point.p10, point.p90)});
  }
  return samples;
}

double linear_between(const Sample& left, const Sample& right, double bytes) {
  const double share = (bytes - left.bytes) / (right.bytes - left.bytes);
  return left.isolated_ns + share * (right.isolated_ns - left.isolated_ns);
}

TableAccuracy leave_one_out(const std::vector<Sample>& samples) {
  const auto inner_points = [&](double low, double high) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 1; i + 1 < samples.size(); ++i) {
      if (samples[i].bytes >= low && samples[i].bytes <= high) chosen.push_back(i);
    }
    return chosen;
  };
  std::vector<std::size_t> left_out = inner_points(0x1p20, 0x1p29);
  if (left_out.size() < 3) left_out = inner_points(0, samples.back().bytes);
  if (left_out.empty()) return {};
  std::vector<double> errors;
  for (const std::size_t i : left_out) {
    const double found = linear_between(samples[i - 1], samples[i + 1], samples[i].bytes);
    errors.push_back(std::abs(found / samples[i].isolated_ns - 1));
  }
  return {.median = median(errors), .worst = std::ranges::max(errors), .points = errors.size()};
}

// The slope beyond the last point. Where the curve ends flat or falling, noise or a protocol switch
// stands at its end; time per byte of the last point is then the safer guess, and never too small.
double tail_slope(double bytes, double before, double last_bytes, double last) {
  const double slope = (last - before) / (last_bytes - bytes);
  return slope > 0 ? slope : last / last_bytes;
}

// A curve of one kind of time: straight lines between vertices, then `tail` for ever.
struct Vertex {
  double bytes;
  double ns;
};
struct Curve {
  std::vector<Vertex> vertices;
  double tail = 0;
};

// Pieces in rising order. A piece that holds no whole byte is dropped; neighbours on one line are
// merged.
class PieceList {
 public:
  void add(double from, double value, double slope) {
    const Bytes start(static_cast<std::int64_t>(std::ceil(from)));
    const LinearPiece piece{start, value - slope * from, slope};
    if (!pieces_.empty() && pieces_.back().from == start) pieces_.pop_back();
    const bool same_line = !pieces_.empty() && pieces_.back().ns_per_byte == slope &&
                           pieces_.back().base_ns == piece.base_ns;
    if (same_line) return;
    pieces_.push_back(piece);
  }
  std::vector<LinearPiece> take() { return std::move(pieces_); }

 private:
  std::vector<LinearPiece> pieces_;
};

// Running minimum from the right. On each segment the hull follows the curve while that rises below
// the smallest value further right, then stays flat at that value.
std::vector<LinearPiece> monotone_hull(const Curve& curve) {
  const std::vector<Vertex>& at = curve.vertices;
  std::vector<double> least(at.size());  // least[i]: the hull at vertex i
  double smallest = at.back().ns;
  for (std::size_t i = at.size(); i-- > 0;) least[i] = smallest = std::min(smallest, at[i].ns);

  PieceList pieces;
  pieces.add(0, least.front(), 0);
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const double ceiling = least[i + 1];
    if (at[i].ns >= ceiling) {
      pieces.add(at[i].bytes, ceiling, 0);
      continue;
    }
    const double slope = (at[i + 1].ns - at[i].ns) / (at[i + 1].bytes - at[i].bytes);
    pieces.add(at[i].bytes, at[i].ns, slope);
    if (at[i + 1].ns > ceiling) {
      pieces.add(at[i].bytes + (ceiling - at[i].ns) / slope, ceiling, 0);
    }
  }
  pieces.add(at.back().bytes, at.back().ns, curve.tail);
  return pieces.take();
}

}  // namespace

Duration evaluate(std::span<const LinearPiece> pieces, Bytes bytes) {
  const auto after = std::ranges::upper_bound(pieces, bytes, {}, &LinearPiece::from);
  DOVETAIL_CHECK(after != pieces.begin()) << "no piece at " << bytes;
  const LinearPiece& piece = *std::prev(after);
  return rounded(piece.base_ns + piece.ns_per_byte * static_cast<double>(bytes.count()));
}

CollectiveTable::CollectiveTable(std::span<const CollectivePoint> points) {
  const std::vector<Sample> samples = checked_samples(points);
  accuracy_ = leave_one_out(samples);
  for (const Sample& sample : samples) {
    knots_.push_back({.bytes = sample.bytes,
                      .isolated_ns = sample.isolated_ns,
                      .back_to_back_ns = sample.back_to_back_ns,
                      .spread = sample.spread});
  }
  const Sample& before = samples[samples.size() - 2];
  const Sample& last = samples.back();
  knots_.back().isolated_slope =
      tail_slope(before.bytes, before.isolated_ns, last.bytes, last.isolated_ns);
  knots_.back().back_to_back_slope =
      tail_slope(before.bytes, before.back_to_back_ns, last.bytes, last.back_to_back_ns);
  join_knots();
}

CollectiveTable::CollectiveTable(const AlphaBeta& isolated, const AlphaBeta& back_to_back) {
  for (const AlphaBeta* line : {&isolated, &back_to_back}) {
    DOVETAIL_CHECK(line->alpha >= Duration{} && line->ns_per_byte >= 0) << line->ns_per_byte;
  }
  knots_.push_back({.bytes = 0,
                    .isolated_ns = ns(isolated.alpha),
                    .back_to_back_ns = ns(back_to_back.alpha),
                    .isolated_slope = isolated.ns_per_byte,
                    .back_to_back_slope = back_to_back.ns_per_byte});
  join_knots();
}

CollectiveTable::CollectiveTable(std::vector<Knot> knots) : knots_(std::move(knots)) {
  DOVETAIL_CHECK(!knots_.empty() && knots_.front().bytes >= 0) << knots_.size() << " knots";
  for (std::size_t i = 1; i < knots_.size(); ++i) {
    DOVETAIL_CHECK(knots_[i - 1].bytes < knots_[i].bytes) << "unsorted: " << knots_[i].bytes;
  }
  index_knots();
}

void CollectiveTable::join_knots() {
  for (std::size_t i = 0; i + 1 < knots_.size(); ++i) {
    Knot& knot = knots_[i];
    const Knot& next = knots_[i + 1];
    const double width = next.bytes - knot.bytes;
    knot.isolated_slope = (next.isolated_ns - knot.isolated_ns) / width;
    knot.back_to_back_slope = (next.back_to_back_ns - knot.back_to_back_ns) / width;
  }
  index_knots();
}

void CollectiveTable::index_knots() {
  std::uint32_t count = 1;
  for (std::size_t width = 0; width < octave_.size(); ++width) {
    const double start = width == 0 ? 0 : std::ldexp(1.0, static_cast<int>(width) - 1);
    while (count < knots_.size() && knots_[count].bytes <= start) ++count;
    octave_[width] = count;
  }
  find_rates();
}

void CollectiveTable::find_rates() {
  const Knot& first = knots_.front();
  const auto at_nothing = [&](double smallest, double slope) {
    return std::clamp(smallest - slope * first.bytes, 0.0, smallest);
  };
  constexpr double kLargestFirst = 0x1p20;  // most of what a larger message takes is its transfer
  latency_ns_ = first.bytes >= kLargestFirst
                    ? 0
                    : std::min(at_nothing(first.isolated_ns, first.isolated_slope),
                               at_nothing(first.back_to_back_ns, first.back_to_back_slope));
  const bool is_formula = first.bytes == 0;
  const Knot& last = knots_.back();
  isolated_byte_ns_ = is_formula ? last.isolated_slope : last.isolated_ns / last.bytes;
  back_to_back_byte_ns_ = is_formula ? last.back_to_back_slope : last.back_to_back_ns / last.bytes;
  for (const Knot& knot : knots_) {
    latency_ns_ = std::min({latency_ns_, knot.isolated_ns, knot.back_to_back_ns});
    if (knot.bytes == 0) continue;
    isolated_byte_ns_ = std::min(isolated_byte_ns_, knot.isolated_ns / knot.bytes);
    back_to_back_byte_ns_ = std::min(back_to_back_byte_ns_, knot.back_to_back_ns / knot.bytes);
  }
}

const CollectiveTable::Knot& CollectiveTable::knot_at(double bytes) const {
  const auto width = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes)));
  const Knot* first = knots_.data() + octave_.at(width);
  const Knot* last = knots_.data() + octave_.at(width + 1);
  const auto lies_above = [](double size, const Knot& knot) { return size < knot.bytes; };
  return *std::prev(std::upper_bound(first, last, bytes, lies_above));
}

CollectiveTime CollectiveTable::time(Bytes bytes) const {
  DOVETAIL_CHECK(bytes >= Bytes(0)) << bytes;
  const auto size = static_cast<double>(bytes.count());
  const Knot& knot = knot_at(size);
  const double beyond = std::max(0.0, size - knot.bytes);
  return {rounded(knot.isolated_ns + knot.isolated_slope * beyond),
          rounded(knot.back_to_back_ns + knot.back_to_back_slope * beyond)};
}

Duration CollectiveTable::latency() const { return rounded(latency_ns_); }

Duration CollectiveTable::latency(Bytes bytes) const {
  const CollectiveTime whole = time(bytes);
  const auto size = static_cast<double>(bytes.count());
  const double left = std::min(ns(whole.isolated) - isolated_byte_ns_ * size,
                               ns(whole.back_to_back) - back_to_back_byte_ns_ * size);
  return std::min(latency(), rounded(std::max(0.0, left)));
}

Spread CollectiveTable::spread(Bytes bytes) const {
  const auto size = static_cast<double>(bytes.count());
  const Knot& knot = knot_at(size);
  if (&knot == &knots_.back() || size <= knot.bytes) return knot.spread;
  const Knot& next = *std::next(&knot);
  return between(knot.spread, next.spread, (size - knot.bytes) / (next.bytes - knot.bytes));
}

CollectiveTable CollectiveTable::drawn(double quantile) const {
  CollectiveTable result = *this;
  bool known = false;
  for (Knot& knot : result.knots_) {
    const double factor = knot.spread.at(quantile);
    known = known || knot.spread.known();
    for (double* time : {&knot.isolated_ns, &knot.back_to_back_ns, &knot.isolated_slope,
                         &knot.back_to_back_slope}) {
      *time *= factor;
    }
    knot.spread = {};
  }
  if (!known) return *this;
  result.accuracy_.reset();
  result.join_knots();  // all slopes but the last one
  return result;
}

std::vector<LinearPiece> CollectiveTable::hull(TimeKind kind) const {
  Curve curve;
  // Smaller: where both lines of a segment cross, their minimum has a corner of its own.
  const auto add_crossing = [&](const Knot& knot, double width) {
    const double ahead = knot.isolated_ns - knot.back_to_back_ns;
    const double closing = knot.back_to_back_slope - knot.isolated_slope;
    if (ahead * closing <= 0 || ahead / closing >= width) return false;
    const double step = ahead / closing;
    curve.vertices.push_back({knot.bytes + step, knot.isolated_ns + knot.isolated_slope * step});
    return true;
  };
  for (std::size_t i = 0; i < knots_.size(); ++i) {
    const Knot& knot = knots_[i];
    const bool isolated = kind == TimeKind::Isolated ||
                          (kind == TimeKind::Smaller && knot.isolated_ns < knot.back_to_back_ns);
    curve.vertices.push_back({knot.bytes, isolated ? knot.isolated_ns : knot.back_to_back_ns});
    curve.tail = isolated ? knot.isolated_slope : knot.back_to_back_slope;
    if (kind != TimeKind::Smaller) continue;
    const bool last = i + 1 == knots_.size();
    const double width =
        last ? std::numeric_limits<double>::infinity() : knots_[i + 1].bytes - knot.bytes;
    if (add_crossing(knot, width) || knot.isolated_ns == knot.back_to_back_ns) {
      curve.tail = std::min(knot.isolated_slope, knot.back_to_back_slope);
    }
  }
  return monotone_hull(curve);
}

CollectiveTable operator+(const CollectiveTable& first, const CollectiveTable& second) {
  std::vector<double> sizes;
  for (const auto& knot : first.knots_) sizes.push_back(knot.bytes);
  for (const auto& knot : second.knots_) sizes.push_back(knot.bytes);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());

  CollectiveTable sum;
  for (const double size : sizes) {
    CollectiveTable::Knot knot{.bytes = size, .spread = {.p10 = 0, .p90 = 0}};
    for (const CollectiveTable* part : {&first, &second}) {
      const CollectiveTable::Knot& from = part->knot_at(size);
      const double beyond = std::max(0.0, size - from.bytes);  // flat below its first knot
      const double isolated = from.isolated_ns + from.isolated_slope * beyond;
      // Both at once are slow or quick: they were measured on the same day.
      const Spread spread = part->spread(Bytes(static_cast<std::int64_t>(size)));
      knot.spread.p10 += isolated * spread.p10;
      knot.spread.p90 += isolated * spread.p90;
      knot.isolated_ns += isolated;
      knot.back_to_back_ns += from.back_to_back_ns + from.back_to_back_slope * beyond;
      knot.isolated_slope += from.isolated_slope;  // kept for the last knot, beyond both tables
      knot.back_to_back_slope += from.back_to_back_slope;
    }
    if (knot.isolated_ns > 0) {
      knot.spread = {knot.spread.p10 / knot.isolated_ns, knot.spread.p90 / knot.isolated_ns};
    } else {
      knot.spread = {};
    }
    sum.knots_.push_back(knot);
  }
  sum.join_knots();
  return sum;
}

CollectiveTable CollectiveTable::scaled(double share) const {
  DOVETAIL_CHECK(share > 0) << share;
  CollectiveTable result = *this;
  result.accuracy_.reset();
  for (Knot& knot : result.knots_) {
    knot.isolated_ns *= share;
    knot.back_to_back_ns *= share;
    knot.isolated_slope *= share;
    knot.back_to_back_slope *= share;
  }
  result.find_rates();
  return result;
}

CollectiveTable CollectiveTable::remeasured(std::span<const SizeTime> times) const {
  if (times.empty()) return *this;
  CollectiveTable result = *this;
  result.accuracy_.reset();
  std::vector<Difference> differences;
  for (const SizeTime& at : times) {
    const auto bytes = static_cast<double>(at.bytes.count());
    const double known = ns(time(at.bytes).back_to_back);
    differences.push_back(
        {.bytes = bytes, .ns = ns(at.time) - known, .factor = ns(at.time) / std::max(1.0, known)});
    // The difference bends here, so the table needs a knot.
    const auto next = std::ranges::lower_bound(result.knots_, bytes, {}, &Knot::bytes);
    if (next != result.knots_.end() && next->bytes == bytes) continue;
    Knot knot = next == result.knots_.begin() ? *next : *std::prev(next);
    const double beyond = std::max(0.0, bytes - knot.bytes);
    knot.isolated_ns += knot.isolated_slope * beyond;
    knot.back_to_back_ns += knot.back_to_back_slope * beyond;
    knot.spread = spread(at.bytes);
    knot.bytes = bytes;
    result.knots_.insert(next, knot);
  }
  constexpr double kLeast = 0.2;
  for (Knot& knot : result.knots_) {
    const double more = difference_at(differences, knot.bytes, knot.back_to_back_ns);
    knot.isolated_ns = std::max(kLeast * knot.isolated_ns, knot.isolated_ns + more);
    knot.back_to_back_ns = std::max(kLeast * knot.back_to_back_ns, knot.back_to_back_ns + more);
  }
  result.knots_.back().isolated_slope *= differences.back().factor;
  result.knots_.back().back_to_back_slope *= differences.back().factor;
  result.join_knots();  // all other slopes
  return result;
}

CollectiveTable CollectiveTable::extended_below(const CollectiveTable& shape) const {
  const Knot& first = knots_.front();
  std::vector<double> sizes = {1};
  for (const Knot& knot : shape.knots_) {
    if (knot.bytes > sizes.back()) sizes.push_back(knot.bytes);
  }
  const auto isolated_at = [&shape](double bytes) {
    const Knot& knot = shape.knot_at(bytes);
    return knot.isolated_ns + knot.isolated_slope * std::max(0.0, bytes - knot.bytes);
  };
  std::vector<Knot> below;
  for (const double bytes : sizes) {
    if (bytes >= first.bytes) break;
    const double share = isolated_at(bytes) / isolated_at(first.bytes);
    below.push_back({.bytes = bytes,
                     .isolated_ns = share * first.isolated_ns,
                     .back_to_back_ns = share * first.back_to_back_ns,
                     .spread = first.spread});
  }
  CollectiveTable result = *this;
  result.knots_.insert(result.knots_.begin(), below.begin(), below.end());
  result.join_knots();
  return result;
}

CollectiveTable CollectiveTable::with_bytes_times(double factor) const {
  DOVETAIL_CHECK(factor > 0) << factor;
  CollectiveTable result = *this;
  result.accuracy_.reset();
  for (Knot& knot : result.knots_) {
    knot.bytes /= factor;
    knot.isolated_slope *= factor;  // that of the last knot is not found again by join_knots
    knot.back_to_back_slope *= factor;
  }
  result.join_knots();
  return result;
}

}  // namespace dovetail::models
