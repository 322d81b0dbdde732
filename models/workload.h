// A workload: what --workload names, as a Program, with its own Costs where it carries them.
//
//   resnet50                        a model of the zoo (zoo.h), options after a colon:
//   resnet50:batch=32,dtype=bf16    batch, sequence, dtype (f32 f16 bf16), world
//   mlp-1000mbit                    a shipped measured profile (models/workloads)
//   path/to/step.json               a program file (dovetail.program/1) or a profile (profile.h)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/costs.h"
#include "schedule/program.h"

namespace dovetail::models {

struct Workload {
  schedule::Program program;
  std::optional<Costs> own_costs;  // of the machine that a measured profile was taken on
  std::vector<std::string> notes;  // what a reader of a prediction should know, one line each
  std::string not_valid = {};      // why a capture should not be trusted; "" if it can be
};

// `world` is the world size for zoo models (their option world= wins); files carry their own, and
// another one is refused. `data_dir` holds workloads/. Throws InputError.
Workload load_workload(const std::string& name, std::optional<std::int64_t> world,
                       const std::string& data_dir);

// Zoo models and shipped profiles.
std::vector<std::string> workload_names(const std::string& data_dir);

}  // namespace dovetail::models
