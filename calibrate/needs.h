// What a calibration has to measure so that plans of given policies can be predicted: collectives
// by kind and group, and kinds of passes over memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/rates/passes.h"
#include "schedule/program.h"
#include "schedule/scheduled_program.h"

namespace dovetail::calibrate {

// What plans hold that the step without communication does not.
struct CalibrationNeeds {
  std::set<models::PassKind> passes;
  bool further_collectives = false;  // other than all-reduces of all ranks
};

// `policies`: as `plan --policy` takes them. Throws InputError where one cannot be read, or cannot be
// applied to this Program. REQUIRES: problems(program) is empty.
CalibrationNeeds needs_of(const schedule::Program& program, std::span<const std::string> policies);

// Every rank runs the ops of all stages, so that all of them are measured on all ranks.
schedule::Program as_one_stage(schedule::Program program);

// Plans that hold the passes which lowering adds: sums over two micro-steps, and sharded updates of
// small and large buckets. None where the workload does not allow them.
std::vector<schedule::ScheduledProgram> pass_variants(const schedule::Program& program);

// Throws InputError where one cannot be read.
void require_policies(std::span<const std::string> policies);

// "exact; per-tensor", for a cluster file's notes.
std::string in_one_line(std::span<const std::string> policies);

// What to measure beside the step without communication.
struct Wanted {
  std::vector<schedule::ScheduledProgram> variants;  // plans that hold the passes
  bool further_collectives = true;
};
// For plans of these policies, or of all where none is named.
Wanted wanted_for(const schedule::Program& program, std::span<const std::string> policies);

}  // namespace dovetail::calibrate
