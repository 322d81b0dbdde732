// What runs between the plans of a run, so that its predictions use the costs of the same minutes.
//
//   ops          each plan's step without communication; once for all plans that compute the same. Right
//                after the steps of each of them, so that what makes a core slow for a part of a second meets
//                both alike, and as often: there are many of these times in a round
//   collectives  a few sizes of each kind that the plans use, one after the other, alone on the network, at
//                the end of a round
//   copies       gradients packed into buckets and unpacked, as the plans do it, of a size that they use
//
// All of them are plans of their own, run in turn with the others. A table of the cluster file keeps its
// shape and goes through the times of the sizes that ran (CollectiveTable::remeasured); copies are multiplied
// by what they took against it. What no undisturbed time was met of in a round is taken from the round before.
//
// A size is one that a plan has, or the largest power-of-two part of it that is predicted to take at most
// 40 ms: three of a kind, twice in a step, make a round of several seconds longer by half a second. Only
// collectives over all ranks are measured again.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/noise/transfer_times.h"
#include "exec/exchange.h"
#include "exec/run.h"
#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"

namespace dovetail::testbed {

// A step without communication, for the plans that compute the same.
struct OpProbes {
  schedule::ScheduledProgram program;
  std::vector<std::size_t> plans;  // by number, rising
};

struct InterleavedProbes {
  std::vector<OpProbes> ops;
  std::vector<schedule::ScheduledProgram> collectives;  // all-reduces; reduce-scatters, all-gathers
  std::optional<schedule::ScheduledProgram> copies;     // absent: no plan copies
  // All of them, in this order.
  [[nodiscard]] std::vector<const schedule::ScheduledProgram*> programs() const;
};

// `costs`: of the plans, for what is predicted to take too long.
InterleavedProbes interleaved_probes(std::span<const schedule::ScheduledProgram* const> plans,
                                     const models::Costs& costs);

// A round: `plans` lanes of plans, `others` that run once too, then those of between.programs().
std::vector<exec::Turn> turns_of(const InterleavedProbes& between, std::size_t plans,
                                 std::size_t others, const exec::RunOptions& options);

// A size that ran in a round, and the median of its undisturbed times.
struct Remeasured {
  models::CollectiveKey key;
  Bytes bytes;
  Duration time{};
  friend bool operator==(const Remeasured&, const Remeasured&) = default;
};
struct RemeasuredCosts {
  std::vector<Remeasured> collectives;  // by key and size, rising
  std::optional<Duration> copy{};       // of one gradient; absent: not known
  Bytes copied;                         // its size
  friend bool operator==(const RemeasuredCosts&, const RemeasuredCosts&) = default;
};

// Adds what one round tells of these programs; the same on every rank.
void add_collectives(const exec::Exchange& exchange, const schedule::ScheduledProgram& collectives,
                     const Watched& mine, RemeasuredCosts& costs);
void add_copies(const exec::Exchange& exchange, const schedule::ScheduledProgram& copies,
                const Watched& mine, RemeasuredCosts& costs);

// What `later` does not know is taken from `earlier`.
RemeasuredCosts completed(RemeasuredCosts later, const RemeasuredCosts& earlier);

// What was measured again, over all rounds, as shares of what `costs` says.
struct MeasuredAgain {
  std::string what;  // "all-reduce", "copy"
  Bytes bytes;
  double least = 1;
  double most = 1;
};
std::vector<MeasuredAgain> measured_again(const models::Costs& costs,
                                          std::span<const RemeasuredCosts> rounds);

// `costs` as they were in that round.
models::Costs with(models::Costs costs, const RemeasuredCosts& round);

}  // namespace dovetail::testbed
