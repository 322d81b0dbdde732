// The full walk of a candidate: every op of every step, with rates, until steps repeat.
//
// The compute stream is walked in issue order. While one of its nodes is in flight, what happens on the
// communication streams before its end (a collective ends, the next one begins) is handled in order of
// time, and both sides change their rates as the simulator does (sim/contended.cc). A host that runs
// ahead holds back what it has not issued yet.
//
// Steps are played until one repeats the one before it: every command begins and ends exactly one shift
// later, and the host needs no more than the shift to issue it. From then on all are equal
// (sim/steady.h). Not found within sim::kMostSteps: nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "search/step_data.h"
#include "sim/simulate.h"
#include "sim/steady.h"

namespace dovetail::search {

// What one step did.
struct PlayedStep {
  struct Node {  // of the compute stream
    std::int64_t start = 0;
    std::int64_t end = 0;
    std::int64_t issued = 0;
    bool counts = true;  // is shown as compute
  };
  struct Transfer {  // of one bucket
    std::int64_t start = 0;
    std::int64_t end = 0;
    std::int64_t issued = 0;
    std::int64_t done = 0;  // with the scale behind it
    std::int64_t scale_issued = 0;
  };
  std::vector<Node> nodes;
  std::vector<Transfer> transfers;  // by bucket
  std::int64_t end = 0;
};

struct FullMemory {
  PlayedStep step, before;
  std::vector<std::int32_t> owner;   // [gradient]: its bucket
  std::vector<std::int32_t> launch;  // [bucket]: the op behind which it is issued
  struct Wait {
    std::int32_t place = 0;
    std::int32_t bucket = 0;
  };
  std::vector<Wait> waits;     // in order of place, then launch
  std::vector<char> waited;    // [bucket]: for its event
  std::vector<char> finished;  // [bucket]: in this step
  sim::LinkShares shares{0};
  std::vector<std::int32_t> next;  // [bucket]: the one behind it on its stream, or -1
};

// REQUIRES: as StepModel::evaluate.
std::optional<sim::StepSummary> full_walk(const StepData& data,
                                          std::span<const BucketChoice> choices, PriceMemo& prices,
                                          FullMemory& memory);

}  // namespace dovetail::search
