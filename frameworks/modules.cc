// Groups parameters by the module that owns them, from their dotted names.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/modules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "frameworks/python_text.h"
#include "schedule/policies/grouping.h"

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

std::vector<ModuleGroup> with_frozen_modules(const schedule::Program& program,
                                             const schedule::Schedule& schedule,
                                             std::vector<ModuleGroup> groups) {
  if (schedule.frozen.empty()) return groups;
  std::map<std::string, std::size_t> first_use;  // of a module
  std::map<TensorId, std::string> module;
  for (const schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind == schedule::TensorKind::Parameter) module[tensor.id] = module_of(tensor.name);
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    for (const TensorId id : program.ops[i].reads) {
      if (const auto of = module.find(id); of != module.end()) first_use.try_emplace(of->second, i);
    }
  }
  const auto layer = [](const std::string& name) {
    return std::string(schedule::layer_of(name + ".weight"));
  };
  std::map<std::string, std::size_t> of_layer;
  std::set<std::string> listed;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : groups[g].modules) {
      listed.insert(name);
      of_layer.try_emplace(layer(name), g);
    }
  }
  for (const schedule::FrozenBlock& block : schedule.frozen) {
    const auto [at, fresh] =
        of_layer.try_emplace(layer(module.at(block.parameters.front())), groups.size());
    if (fresh) groups.emplace_back();
    for (const TensorId id : block.parameters) {
      if (listed.insert(module.at(id)).second) groups[at->second].modules.push_back(module.at(id));
    }
  }
  std::erase_if(groups, [](const ModuleGroup& group) { return group.modules.empty(); });
  const auto begins = [&](const ModuleGroup& group) {
    std::size_t first = SIZE_MAX;
    for (const std::string& name : group.modules) first = std::min(first, first_use[name]);
    return first;
  };
  std::ranges::stable_sort(groups, std::ranges::greater(), begins);
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
