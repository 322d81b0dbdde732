// Why a plan is what it is: what another border of each bucket would cost, which part of the costs the step hangs on,
// what was tried and lost by how much, and what is left.
//
//   Explanation found = explain(planner, plan);
//   found.buckets[2].joined        +0.012: the step with buckets 2 and 3 as one, as a share of the plan's step
//   found.levers[0]                links 20 % faster: the plan's step then
//
// Every figure but the bound is a simulated step, of another Schedule or of the same one with other costs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "schedule/policies/policies.h"
#include "schedule/schedule.h"
#include "search/planner.h"

namespace dovetail::search {

// One bucket, and by which share of a step the plan becomes longer (below 0: shorter) with another border at its end.
// Absent: there is no such border. Gathered before uses, borders are those of layers.
struct BucketBorders {
  BucketId bucket;
  std::size_t gradients = 0;
  Bytes bytes{};
  std::optional<double> earlier = std::nullopt;  // by one gradient or layer
  std::optional<double> later = std::nullopt;
  std::optional<double> joined = std::nullopt;  // with the next one
  std::optional<double> split = std::nullopt;   // in its middle
};

// The plan where something costs less.
struct Lever {
  std::string what;  // "link bandwidth 20 % higher"
  Duration step{};
};

struct Tried {
  schedule::Policy policy;
  Duration step{};
  std::size_t buckets = 0;
};

struct Explanation {
  Duration step{};                     // of the plan
  std::vector<BucketBorders> buckets;  // in launch order; empty, with a reason:
  std::string no_borders;
  std::vector<Lever> levers;  // that gain most first
  std::vector<Tried> tried;   // the fastest first
  // The same kind of plan, grouped by the search; nothing where the search does not know the kind.
  std::optional<Tried> searched = std::nullopt;
  std::optional<Duration> bound = std::nullopt;  // of all plans of this kind, where one is known
  std::string bounded_schedules;                 // of which: Bound::schedules
};

// REQUIRES: the Schedule is one of the planner's Program, and legal. Cost: four simulations a bucket, and a search or two.
Explanation explain(Planner& planner, const schedule::Schedule& plan);

}  // namespace dovetail::search
