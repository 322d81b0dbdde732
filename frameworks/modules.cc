// Groups parameters by the module that owns them, from their dotted names.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/modules.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "frameworks/python_text.h"

namespace dovetail::frameworks {
namespace {

std::string module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

}  // namespace

std::vector<ModuleGroup> module_groups(const schedule::Program& program,
                                       const schedule::Schedule& schedule) {
  std::map<std::string, std::size_t> bucket_of;
  for (std::size_t b = 0; b < schedule.buckets.size(); ++b) {
    for (const std::string& name : parameter_names(program, schedule.buckets[b])) {
      bucket_of[module_of(name)] = b;  // the last one stays
    }
  }
  std::vector<ModuleGroup> groups(schedule.buckets.size());
  for (const TensorId gradient : ready_order(program)) {
    const std::string module = module_of(parameter_name(program, gradient));
    ModuleGroup& group = groups[bucket_of.at(module)];
    if (std::ranges::find(group.modules, module) == group.modules.end()) {
      group.modules.push_back(module);
    }
    group.gradients.push_back(gradient);
  }
  std::erase_if(groups, [](const ModuleGroup& group) { return group.modules.empty(); });
  return groups;
}

void give_up_parts_of_modules(Restriction& left, const std::vector<ModuleGroup>& groups,
                              const std::string& framework) {
  std::vector<std::vector<TensorId>> gradients;
  for (const ModuleGroup& group : groups) gradients.push_back(group.gradients);
  left.give_up("groups of single parameters: " + framework + " groups whole modules",
               [&](schedule::Schedule& schedule) { regroup(schedule, gradients); });
  left.give_up(
      "gradients as views of buckets: " + framework + " copies",
      [](schedule::Schedule& schedule) { use_mode(schedule, schedule::BucketMode::Copy); });
}

std::string groups_text(const std::string& name, const std::vector<ModuleGroup>& groups) {
  std::string text = name + " = [  # in the order of backward\n";
  for (const ModuleGroup& group : groups) text += "    " + quoted_list(group.modules) + ",\n";
  return text + "]\n";
}

}  // namespace dovetail::frameworks
