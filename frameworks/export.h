// A plan in the words of the framework that shall run it, and what is lost on the way.
//
//   Export result = export_plan(*find("torch"), plan, machine, options);
//   result.text      the file to load or to paste: Python, JSON or CSV
//   result.losses    "waits at the end of backward: +1.4 %", in the order in which they are given up
//
// No framework can do all that a Schedule can say. Each writer therefore first turns the plan into the
// Schedule that its framework really runs: step by step, one thing given up at a time. Every step is
// simulated on the plan's machine, so each loss is a difference of two predicted step times, and the
// last one is what the framework is predicted to take. A step can also be faster than the one before
// (all-reduce instead of reduce-scatter and gather, say): then its loss is negative, and said as such.
//
// What each framework writes, and where its rules were read, stands in its own file (torch_ddp.cc, ...).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/units.h"
#include "schedule/plan_json.h"
#include "schedule/schedule.h"

namespace dovetail::frameworks {

struct Framework;

// What predicts: steps of Schedules of the plan's Program, and single collectives on an idle link.
struct Machine {
  std::string name;
  std::function<Duration(const schedule::Schedule&)> step;
  std::function<Duration(schedule::Collective, const schedule::ProcessGroup&, Bytes)> collective;
};

// Something of the plan that the target cannot express.
struct Loss {
  std::string what;
  Duration more{};  // of predicted step time, against the Schedule before it was given up
};

struct Export {
  std::string text;
  schedule::Schedule schedule;  // as the framework runs it
  Duration planned{};           // predicted step of the plan
  Duration as_run{};            // predicted step of `schedule`: planned + all losses
  std::vector<Loss> losses;
  std::vector<std::string> notes;  // what no simulation shows, and how to use the file
  std::string_view writes = {};    // what is in the text; empty: what the framework's file says
  std::string paste;               // the lines that use the file; "FILE" stands for its name
};

struct ExportOptions {
  std::string version;  // of dovetail, for the first lines of the text
  std::string plan;     // the plan's file, likewise
};

// Throws InputError where the framework cannot run the plan at all, with the reason. REQUIRES: it has a
// writer.
Export export_plan(const Framework& framework, const schedule::Plan& plan, const Machine& machine,
                   const ExportOptions& options);

// Throws InputError where the framework's file names parameters and the Program, made of a trace, has places only.
void require_names(const Framework& framework, const schedule::Program& program);

// What the framework makes of the Schedule, nothing simulated. Throws InputError as export_plan does.
// A framework without a writer runs only what it has words for, as it is.
schedule::Schedule as_run(const Framework& framework, const schedule::Program& program,
                          schedule::Schedule schedule);

// "+1.4 %" of the planned step; "+0.0 %" below half a thousandth.
std::string loss_percent(const Export& result, Duration more);

// "dovetail export PLAN --to torch (or megatron, ...)": what to do next with a plan.
std::string export_command(const std::string& plan);
// Of the plan in this file: only those that can run it; "" where there are none.
std::string export_command(const std::string& file, const schedule::Plan& plan);

}  // namespace dovetail::frameworks
