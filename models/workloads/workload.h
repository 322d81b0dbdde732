// A workload: what --workload names, as a Program, with its own Costs where it carries them.
//
//   resnet50                        a model of the zoo (zoo.h), options after a colon:
//   resnet50:batch=32,dtype=bf16    batch, sequence, dtype (f32 f16 bf16), autocast (bf16 f16), optimizer (sgd adam), world
//   mlp-1000mbit                    a shipped measured profile (models/workloads)
//   path/to/step.json               a program file (dovetail.program/1) or a profile (profile.h)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/costs/costs.h"
#include "models/workloads/profile.h"
#include "schedule/data_parallel.h"
#include "schedule/program.h"

namespace dovetail::models {

struct Workload {
  schedule::Program program;
  std::optional<Costs> own_costs;  // of the machine that a measured profile was taken on
  std::vector<std::string> notes;  // what a reader of a prediction should know, one line each
  std::vector<std::string> own_notes = {};    // the same of own_costs
  std::optional<CostBounds> own_bounds = {};  // of own_costs, of a recorded step
  std::optional<RecordedStep> recorded =
      {};                      // its gradients are the program's reductions, in their order
  std::string not_valid = {};  // why a capture should not be trusted; "" if it can be
};

// `world` is the world size for zoo models (their option world= wins) and for files of one rank; other files
// carry their own, and another one is refused. `data_dir` holds workloads/. Throws InputError.
Workload load_workload(const std::string& name, std::optional<std::int64_t> world,
                       const std::string& data_dir);

// The same step on other ranks, with a note where it was measured. Its own costs go unless they are of these
// ranks. `name`: for messages. Throws InputError for a step that cannot be laid out.
void lay_out(Workload& workload, const std::string& name, const schedule::DataParallel& degrees);

// Zoo models and shipped profiles.
std::vector<std::string> workload_names(const std::string& data_dir);

}  // namespace dovetail::models
