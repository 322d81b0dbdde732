// What `dovetail run` found, as rank 0 knows it, and how it says so.
//
// The first line says what may be believed of what follows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/table.h"
#include "calibrate/noise/confidence.h"
#include "calibrate/noise/interleaved_calibration.h"
#include "exec/machine.h"
#include "exec/measure.h"
#include "schedule/plan_json.h"
#include "schedule/scheduled_program.h"
#include "sim/disturbed.h"
#include "traces/disturbances.h"
#include "traces/exposed.h"
#include "traces/metrics.h"

namespace dovetail::cli {

// A plan, ready to be executed.
struct Loaded {
  std::string path;
  schedule::Plan plan;
  schedule::ScheduledProgram program;
  std::optional<schedule::ScheduledProgram> alone = std::nullopt;  // without communication
};

// What was found of one plan.
struct PlanFound {
  traces::Spread spread;
  testbed::Known known;
  std::optional<std::int64_t> disturbed;     // steps that met preemptions; nothing on GPUs
  std::optional<sim::Figures> figures;       // predicted from costs measured between rounds
  std::optional<traces::Spread> two_events;  // if asked for
  std::optional<traces::Exposed> exposed;    // if asked for
  bool elsewhere = false;                    // it was made for another machine
};

// What rank 0 has to tell.
struct Result {
  std::vector<PlanFound> plans;  // in the order in which they were given
  exec::Measured measured;
  exec::Conditions conditions;
  exec::Verdict verdict;
  std::string link_objection;
  std::vector<std::string> device_objections;  // of a GPU: why its times are not what they seem
  std::string device;                          // "NVIDIA H200, sm 90, 132 SMs"; empty on processors
  std::string stand_in;                        // what collectives were replaced by; empty: nothing
  std::vector<testbed::MeasuredAgain> again;   // what else was measured between rounds, beside ops
  traces::Disturbances disturbances;           // of each rank's core; none on GPUs
  double reference_load_share = 0;  // processor time of the reference load itself, of one core
  Duration took{};
  std::string confidence;  // how far the figures may be trusted
};

// A row for each plan.
Table run_table(const Result& result, const std::vector<Loaded>& loaded);
void print_report(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded);
std::string to_json(const Result& result, const std::vector<Loaded>& loaded);

}  // namespace dovetail::cli
