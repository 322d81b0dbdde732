// Grouping by modules.
//
// SPDX-License-Identifier: Apache-2.0
#include "exports/modules.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "exports/restriction.h"

namespace dovetail::exports {
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

std::vector<std::vector<TensorId>> gradients_of(const std::vector<ModuleGroup>& groups) {
  std::vector<std::vector<TensorId>> result;
  for (const ModuleGroup& group : groups) result.push_back(group.gradients);
  return result;
}

}  // namespace dovetail::exports
