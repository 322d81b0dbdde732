// Questions that the tests of the zoo ask of a Program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/networks/zoo.h"
#include "schedule/program.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail::models {

inline schedule::Program program_of(std::string_view name) { return zoo_program(name, {}); }

inline const schedule::Op& op_named(const schedule::Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.ops, name, &schedule::Op::name);
  if (found == program.ops.end()) throw std::out_of_range("no op " + name);
  return *found;
}

inline std::vector<std::string> names_of(const schedule::Program& program,
                                         const std::vector<TensorId>& ids) {
  std::vector<std::string> names;
  for (const TensorId id : ids) names.push_back(program.tensor(id).name);
  return names;
}

// In order of definition.
inline std::vector<const schedule::Tensor*> parameters_of(const schedule::Program& program) {
  std::vector<const schedule::Tensor*> parameters;
  for (const schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind == schedule::TensorKind::Parameter) parameters.push_back(&tensor);
  }
  return parameters;
}

inline std::int64_t parameter_count(const schedule::Program& program) {
  std::int64_t count = 0;
  for (const schedule::Tensor* parameter : parameters_of(program)) count += parameter->numel();
  return count;
}

inline std::vector<std::string> ready_names(const schedule::Program& program) {
  std::vector<std::string> names;
  for (const schedule::OwedGradient& owed : schedule::owed_gradients(program)) {
    names.push_back(program.tensor(owed.tensor).name);
  }
  return names;
}

// Multiplications with additions, in units of 10^9, of the matrix products in one phase.
inline double giga_mac(const schedule::Program& program, schedule::Phase phase) {
  double mac = 0;
  for (const schedule::Op& op : program.ops) {
    if (op.phase != phase) continue;
    for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
      if (const auto* y = std::get_if<schedule::GemmWork>(&kernel)) {
        mac += static_cast<double>(y->m) * static_cast<double>(y->n) * static_cast<double>(y->k) *
               static_cast<double>(y->count);
      }
    }
  }
  return mac / 1e9;
}

}  // namespace dovetail::models
