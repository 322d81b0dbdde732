// Tensors and ops of a Program by name, which must be there.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace dovetail::schedule {

inline TensorId tensor_named(const Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.tensors, name, &Tensor::name);
  EXPECT_NE(found, program.tensors.end()) << name;
  return found->id;
}

inline Op& op_named(Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.ops, name, &Op::name);
  EXPECT_NE(found, program.ops.end()) << name;
  return *found;
}

}  // namespace dovetail::schedule
