// What an all-reduce takes whose size nobody measured, and how far off that may be.
//
//   const CollectiveEstimate estimate(recorded, ranks);      // rising sizes, one or more
//   estimate.at(mib(64))         {low, time, high}: of a measured size all three are what was measured
//   estimate.outside(gib(1))     estimates at sizes below, between and beyond the measured ones
//
// The model is T(S) = alpha + beta S, latency and bandwidth. Of two sizes and more it is their least-squares line
// (relative errors); of one size alpha is taken to be what 2 MiB take to move, the middle of the machines in models/clusters,
// and at most a millisecond. Estimates go through the nearest measured size.
//
// What holds in any case, and is all that one size says:
//   never faster than 1 TB/s of bus bandwidth (NVLink 5 has 0.9), nor than 5 us
//   a larger message takes no less than a smaller one, and no more per byte
// With more sizes the interval is narrower near them and widens with the distance: by the error of the line (3 % of each
// time, or what the line misses), and by a factor of 2^(w d) at d doublings from the nearest size, for protocols that
// change with size: w is 0.2 beyond the largest, 0.3 below the smallest, 0.1 between two. These shares come from the
// tables of eleven machines (models/clusters) up to 64 times away from one to four of their sizes: nine of ten measured
// times lie inside, of each machine at least half (the test says so).
//
// Leaves out: waiting for late ranks, which measured times may hold.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace dovetail::models {

// A time that was not measured. low <= time <= high.
struct EstimatedTime {
  Bytes bytes;
  Duration low{}, time{}, high{};
  friend bool operator==(const EstimatedTime&, const EstimatedTime&) = default;
};

class CollectiveEstimate {
 public:
  using Sized = std::pair<Bytes, Duration>;
  // REQUIRES: at least one, sizes >= 1 byte and strictly rising, times > 0; ranks >= 1.
  CollectiveEstimate(const std::vector<Sized>& measured, std::int64_t ranks);

  [[nodiscard]] EstimatedTime at(Bytes bytes) const;

  // Factors of four down to 4 KiB, of two between measured sizes that are further apart, and of two up to beyond `largest`:
  // at least two on that side, so that tables go on with this line.
  [[nodiscard]] std::vector<EstimatedTime> outside(Bytes largest) const;

 private:
  struct Point {
    double bytes = 0, ns = 0;
  };
  struct Range {
    double low = 0, time = 0, high = 0;
  };
  void fit();
  [[nodiscard]] double line(double bytes) const { return alpha_ + beta_ * bytes; }
  [[nodiscard]] Range above(double bytes) const;
  [[nodiscard]] Range below(double bytes) const;
  [[nodiscard]] Range between(const Point& left, const Point& right, double bytes) const;

  std::vector<Point> points_;
  double least_ns_per_byte_ = 0;  // at the bus bandwidth that no link exceeds
  double alpha_ = 0, beta_ = 0;   // ns, ns a byte
  double error_ = 0;              // of a measured time, as a share
  double alpha_error_ = 0, beta_error_ = 0;
};

}  // namespace dovetail::models
