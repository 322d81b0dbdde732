// A plan file: a Schedule, the Program it belongs to, and what was predicted for it.
//
//   {
//    "schema": "dovetail.plan/1", "kind": "plan",
//    "policy": "torch-ddp:cap=25MiB,first=1MiB", "workload": "mlp", "cluster": "a100x8",
//    "link": "loopback" (optional: what the cluster's collectives were measured over),
//    "cluster_file": "here.json" (optional: where the cluster was read),
//    "what_if": "link=0.5x" (optional: how the machine differs from the cluster),
//    "measured_on": "2 ranks on ..." (optional: the machine that the durations of ops were measured on),
//    "notes": ["compute is stretched by 3.1 %: ..."] (optional: what a prediction of it rests on, on any
//              machine),
//    "memory": {"stage": 0, "parameters_bytes": 4096, ...} (optional: of a job's fullest rank, by kind),
//    "predicted": {"step_us": 812.5, "exposed_us": 40, "lower_bound_us": 800, "gap": 0.015625},
//    "buckets": [{"id": 0, "bytes": 8192, "elements": 2048, "gradients": ["fc2.weight.grad", ...],
//                 "group": "dp", "collective": "all-reduce", "mode": "view", "pad_to_bytes": 1,
//                 "align_to_bytes": 256 (optional),
//                 "stream": "comm0", "launch": "when-ready", "wait": "first-use",
//                 "scope": "event"}, ...],
//    "program": {...}                                   program_json.h
//   }
//
// Buckets stand in launch order. "stream" is "inline" or "comm" with a number; "launch" is
// "when-ready", "after-backward", {"after_op": NAME} or, of gathers, {"before_op": NAME}. "bytes" and "elements" (before padding) and
// "gap" are derived, for people who read the file: a reader refuses values that disagree with the
// rest. "predicted" may be absent, and in it "lower_bound_us" with "gap".
//
// A plan that reads well can still be illegal; verify.h judges that.
// Invariant: parse_plan(name, plan_to_json(plan)) == plan for every Plan with a sound Program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "schedule/holding.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::schedule {

inline constexpr std::string_view kPlanSchema = "dovetail.plan/1";

struct Prediction {
  Duration step{};
  Duration exposed{};                                  // communication that nothing hides
  std::optional<Duration> lower_bound = std::nullopt;  // no schedule is faster on this machine

  // (step - lower bound) / lower bound; nothing where the bound is unknown or 0.
  [[nodiscard]] std::optional<double> gap() const;
  friend bool operator==(const Prediction&, const Prediction&) = default;
};

// Where a plan comes from and what it promises.
struct PlanSummary {
  std::string workload;  // as typed, or the name in the workload file
  std::string cluster;
  std::optional<Prediction> predicted = std::nullopt;
  std::string link = {};  // what the cluster was calibrated over, in its words; "" if unknown
  std::string cluster_file = {};  // as typed, where the cluster is no shipped one
  std::string what_if = {};  // how the machine differs from the cluster (models/costs/what_if.h)
  std::string measured_on = {};  // the machine that the durations of its ops come from; "" if none
  std::vector<std::string> notes = {};  // what must be known of these durations, one line each
  // Of a job: what a rank of the fullest stage holds at its worst moment.
  std::optional<Holding> memory = std::nullopt;
  friend bool operator==(const PlanSummary&, const PlanSummary&) = default;
};

struct Plan {
  Program program;
  Schedule schedule;
  PlanSummary summary;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Throws InputError: the file, the JSON pointer, and what was expected.
Plan read_plan(const std::string& path);
// The schedule of the file on another Program, which has gradients of the same names and sizes: a later
// capture of the same model. The summary stays the file's. Throws InputError, also where a name is unknown.
Plan read_plan_onto(const std::string& path, Program program);
// read_plan for text; `name` stands for the file in messages.
Plan parse_plan(const std::string& name, std::string_view text);

// The text of a plan file. REQUIRES: problems(plan.program) is empty; the Schedule names only what
// the Program has.
std::string plan_to_json(const Plan& plan);
nlohmann::ordered_json plan_schema();  // the JSON Schema of such a file

}  // namespace dovetail::schedule
