// Modules and their own parameters: what FSDP2 and Inductor's manual plans group by.
//
// The module of "layers.3.attn.q_proj.weight" is "layers.3.attn.q_proj"; the root module is "". A
// module's own parameters cannot be told apart: where a plan has them in several buckets, the module
// goes to the bucket that is reduced last, since it is only ready then.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "frameworks/restriction.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::frameworks {

struct ModuleGroup {
  std::vector<std::string> modules;  // in the order in which they are ready first
  std::vector<TensorId> gradients;
};

// One group per bucket, in launch order, without empty ones. REQUIRES: gradients are whole.
std::vector<ModuleGroup> module_groups(const schedule::Program& program,
                                       const schedule::Schedule& schedule);

// The same with the modules of frozen blocks: in the group that has parameters of the same layer, or in one of their
// own, at its place in the order of backward.
std::vector<ModuleGroup> with_frozen_modules(const schedule::Program& program,
                                             const schedule::Schedule& schedule,
                                             std::vector<ModuleGroup> groups);

// Gives up buckets of anything but these groups, and gradients that are views of buckets.
void give_up_parts_of_modules(Restriction& left, const std::vector<ModuleGroup>& groups,
                              const std::string& framework);

// "NAME = [  # in the order of backward", a line for each group, "]".
std::string groups_text(const std::string& name, const std::vector<ModuleGroup>& groups);

}  // namespace dovetail::frameworks
