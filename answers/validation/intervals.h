// How far a step or a peak of memory may lie from its prediction, by what others measured elsewhere: a row is judged by the other yardsticks' rows.
//
//   Intervals found = score_intervals(steps);      // steps_of each yardstick
//   found.all.at(StepKind::OneNode)                // measured / predicted: 5th, 50th, 95th percentile
//   found.coverage                                 // of each yardstick: how many of its rows lie in what the others say
//   score_peaks(yardsticks).all[0]                 // the same of peaks of memory
//
// Every yardstick weighs the same, however many rows it has; those with fewer than five rows of a kind say nothing. Rows whose error
// has a cause of their own (Row::own_cause) say nothing either, and are judged apart.
// Two steps of one group share most of their error, so what their ratio may be off by is told by pairs of rows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "answers/validation/yardstick.h"
#include "models/networks/step_kind.h"

namespace dovetail::yardsticks {

struct StepOf {
  std::string yardstick;
  std::string own_cause = {};  // Row::own_cause
  std::string group = {};      // Row::group; "": ranked against no other
  jobs::StepKind kind = jobs::StepKind::OneNode;
  double predicted = 0, measured = 0;  // above 0, in one unit
};

// Rows that are jobs which can run, have a step and are priced. Steps that their host bounds have that as their own cause.
std::vector<StepOf> steps_of(const Yardstick& yardstick, const StepPredictor& predict);

// Quantiles of measured / predicted.
struct Range {
  double p5 = 1, p50 = 1, p95 = 1;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Coverage {
  std::string yardstick;
  std::string own_cause = {};  // of rows that are judged apart
  jobs::StepKind kind = jobs::StepKind::OneNode;
  std::int64_t rows = 0, inside = 0;
  std::optional<Range> own = {};  // absent: too few rows
  Range others = {};
  // Of pairs of one group: nine of ten ratios of two steps are predicted to within a factor of `apart`.
  std::int64_t pairs = 0, pairs_inside = 0;
  std::optional<double> apart = {};  // absent: too few rows
  double others_apart = 1;
};

struct Intervals {
  std::map<jobs::StepKind, Range> all = {};     // of kinds that a yardstick speaks of
  std::map<jobs::StepKind, double> apart = {};  // likewise
  std::vector<Coverage> coverage = {};          // where other yardsticks say something
};
Intervals score_intervals(const std::vector<StepOf>& steps);

// Measured / predicted of the peaks of memory of rows that ran (score_memory), wherever they did.
struct PeakIntervals {
  Range all = {};
  std::vector<Coverage> coverage = {};  // without pairs
};
PeakIntervals score_peaks(const std::vector<Yardstick>& yardsticks);

}  // namespace dovetail::yardsticks
