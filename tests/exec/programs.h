// A training step that uses the whole language, and ranks that execute plans of it over the ring.
//
// Three layers a, b, c; the gradients become ready as c, b, a:
//   a.forward  b.forward  c.forward  loss.fill  c.backward  b.backward  a.backward
//   [norm]  c.update  b.update  a.update          updates are elementwise, rescale 1
// Sizes are chosen so that no border of a bucket or shard falls on that of a gradient.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"
#include "exec/cpu/transport.h"
#include "exec/run.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace dovetail::exec::testing {

inline constexpr TensorId kA{0}, kB{1}, kC{2}, kAGrad{3}, kBGrad{4}, kCGrad{5};
inline constexpr TensorId kAOut{6}, kBOut{7}, kLossGrad{8}, kCIn{9}, kBIn{10}, kNorm{11};
inline constexpr std::int64_t kANumel = 700, kBNumel = 333, kCNumel = 41;
inline constexpr GroupId kAll{0}, kPairs{1}, kAcross{2};

enum class Clip { None, GlobalNorm };  // then a norm of all gradients precedes the updates

// `ranks` ranks; every gradient owes an average over all of them.
schedule::Program three_layers(std::int64_t ranks, Clip clip = Clip::None);
// Four ranks: averages over the pairs {0, 1} and {2, 3} ("pairs"), and, where asked for, over
// {0, 2} and {1, 3} as well ("across").
enum class Owes { Pairs, PairsAndAcross };
schedule::Program three_layers_in_pairs(Owes owes);

// Buckets of these gradients over the program's first debt, on comm0, copy mode.
schedule::Schedule buckets_of(const schedule::Program& program,
                              const std::vector<std::vector<schedule::Slice>>& buckets);
// Bucket 0: c and b; bucket 1: a.
schedule::Schedule two_buckets_of(const schedule::Program& program);

// The three layers of so many ranks with these two buckets, lowered.
schedule::ScheduledProgram in_two_buckets(std::int64_t ranks);

// lower, for tests.
schedule::ScheduledProgram plan_of(const schedule::Program& program,
                                   const schedule::Schedule& schedule);

// Every rank runs the plan over our ring, as a thread; the summed check. `wrap`: what its transports become.
using Wrap = std::function<std::unique_ptr<cpu::Transport>(std::unique_ptr<cpu::Transport>)>;
CheckResult run_over_ring(const schedule::ScheduledProgram& plan,
                          const RunOptions& options = {.warmup = 1, .steps = 3},
                          const Wrap& wrap = {});

// The plan without the commands that satisfy the predicate. REQUIRES: there is one.
schedule::ScheduledProgram without(schedule::ScheduledProgram plan,
                                   const std::function<bool(const schedule::Command&)>& predicate);
// The same without all runs of an op.
schedule::ScheduledProgram without_op(const schedule::ScheduledProgram& plan,
                                      std::string_view name);
// Without all-gather number `n`.
schedule::ScheduledProgram without_gather(const schedule::ScheduledProgram& plan, int n);
// The Release that follows the op's run, in front of it. REQUIRES: there is one on each role.
schedule::ScheduledProgram released_before(schedule::ScheduledProgram plan, std::string_view op);

}  // namespace dovetail::exec::testing
