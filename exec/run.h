// The run loop: one rank walks its commands and calls its backend, step after step.
//
//   run(plan, rank, backend, {.warmup = 2, .steps = 10})      one plan
//   run_interleaved({{&a, &backend_a}, {&b, &backend_b}}, ...)   several, in turn: round by round,
//                                                             so that slow drift of the machine
//                                                             meets all of them alike
//
// Per step: barrier, begin_step, every command in host issue order, finish, check. The check is
// outside the timed region; it covers warm-up steps too, though their timings are dropped. Measured
// steps count from 0 over all rounds. The step number that a backend sees rises over all plans, so
// no two executions hold equal values, and one plan's data can never pass for another's.
//
// Every rank must run the same plans with the same options: ranks compare plan_hash.h's sums before the first step.
// From timings to a Trace: measured_trace.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec {

// A part of a round: so many steps of one plan, one after the other.
struct Turn {
  std::size_t lane = 0;
  std::int32_t warmup = 0;  // executed and checked but not timed
  std::int32_t steps = 1;   // timed
};

struct RunOptions {
  std::int32_t warmup = 2;  // of each plan's turn; where `turns` is empty
  std::int32_t steps = 10;
  std::int32_t rounds = 1;
  std::int32_t executed =
      0;  // steps that these ranks executed before, so that no values come again
  std::vector<Turn> turns{};  // of every round; empty: each plan once
};

struct RankResult {
  std::vector<Timing> timings;          // of the measured steps
  std::vector<DeviceWork> device_work;  // of the measured steps
  CheckResult check;                    // of all steps
};

// One plan and the backend that was made for it. Both must outlive the run.
struct Lane {
  const schedule::ScheduledProgram* plan = nullptr;
  Backend* backend = nullptr;
};

// One result per lane. Throws InputError when a plan has no commands for this rank or an option is
// out of range, DeviceError when the machine fails.
std::vector<RankResult> run_interleaved(std::span<const Lane> lanes, Rank rank,
                                        const RunOptions& options = {});
RankResult run(const schedule::ScheduledProgram& plan, Rank rank, Backend& backend,
               const RunOptions& options = {});

// All steps that run_interleaved executes with `lanes` plans.
std::int32_t executed_by(std::size_t lanes, const RunOptions& options);

// The steps of one plan that are timed in a round of these turns.
std::int32_t steps_of(std::span<const Turn> turns, std::size_t lane);

// The role that this rank plays. Throws InputError when there is none.
const schedule::RankProgram& role_of(const schedule::ScheduledProgram& plan, Rank rank);

// Adds counts; the first wrong element of `sum` stays if there is one.
void add(const CheckResult& result, CheckResult& sum);

}  // namespace dovetail::exec
