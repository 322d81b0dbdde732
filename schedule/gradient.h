// Which tensors hold gradients: those of a micro-step, and their sums over micro-steps. Layout,
// lowering and the verifier ask the same question, so it is answered once.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

namespace dovetail::schedule {

inline bool is_gradient(TensorKind kind) {
  return kind == TensorKind::Gradient || kind == TensorKind::MergedGradient;
}

}  // namespace dovetail::schedule
