// dovetail export: a plan in the words of the framework that shall run it (frameworks/export.h), with what
// that framework cannot do and what it costs.
//
//   $ dovetail export plan.json --to torch -o ddp.py
//   ddp.py: bucket_cap_mb_list, byte for byte, for PyTorch DistributedDataParallel (2.11 or later)
//   predicted (simulated) 502.200 ms a step as it is run there, 490.900 ms as planned
//     given up: waits at first use: DDP waits at the end of backward: +2.3 %
//   use: from ddp import wrap; model = wrap(model)
//
// Without -o the text goes to standard output, and nothing else: what is given up stands in its first
// lines.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/export.h"
#include "models/costs/costs.h"
#include "schedule/plan_json.h"

namespace dovetail::cli {

struct ExportCommandOptions {
  std::string plan = {};
  std::string job = {};  // in place of a plan (export_job.h)
  std::string target = {};
  std::string output = {};  // empty: standard output
  std::string cluster =
      {};  // empty: the plan's own, if it is shipped or its workload's; of a job: nothing is predicted
  std::string data_dir = {};
  bool json = false;  // the answer as a document, instead of the file's text or of the report
};

// What was written of a plan or a job, and what is given up by it.
struct ExportAnswer {
  struct GivenUp {
    std::string what;
    std::optional<Duration> more;  // of predicted step time; nothing: nothing is predicted
  };
  std::string_view framework = {}, writes = {};  // for people
  std::string text = {};                         // of the file
  std::string use = {};                          // the lines that use it
  std::optional<Duration> asked = {}, as_run = {};
  std::vector<GivenUp> given_up = {};
  std::vector<std::string> notes = {};
};
// As JSON (dovetail.export/1).
std::string to_json(const ExportAnswer& answer, const ExportCommandOptions& options);

// What predicts for exports: both outlive the result. Its step throws InputError for an illegal Schedule.
frameworks::Machine simulated_machine(const schedule::Plan& plan, const models::Costs& costs);
// "FILE" in the words of use: a module's name for Python, the path elsewhere.
std::string with_file(std::string words, const std::string& path);

void export_plan(const ExportCommandOptions& options, std::ostream& out);

}  // namespace dovetail::cli
