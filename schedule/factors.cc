// Multiplying the factors of each gradient's reductions, and finding the gradients that have none.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/factors.h"

#include <algorithm>
#include <variant>

namespace dovetail::schedule {
namespace {

// Whether every write of the tensor before the optimizer adds up gradients with a debt.
bool sums_owed(const Program& program, TensorId tensor, const OwedFactors& owed) {
  bool written = false;
  for (const Op& op : program.ops) {
    if (op.phase == Phase::Optimizer || std::ranges::count(op.writes, tensor) == 0) continue;
    written = true;
    if (!std::holds_alternative<Accumulate>(op.effect)) return false;
    for (const TensorId read : op.reads) {
      if (read != tensor && !owed.at(read).owed) return false;
    }
  }
  return written;
}

}  // namespace

OwedFactors owed_factors(const Program& program) {
  OwedFactors factors;
  factors.reserve(program.tensors.size());
  for (const Reduction& reduction : program.reductions) {
    OwedFactor& factor = factors[reduction.gradient];
    factor.owed = true;
    factor.scale = factor.scale * reduction.scale;
    if (reduction.op != ReduceOp::Average) continue;
    factor.degrees = factor.degrees / Rational(program.group(reduction.group).size());
  }
  return factors;
}

TensorId origin(const Tensor& tensor) { return tensor.merges.value_or(tensor.id); }

std::vector<TensorId> gradients_without_debt(const Program& program) {
  const OwedFactors owed = owed_factors(program);
  IdTable<TensorId, char> read;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    for (const TensorId id : op.reads) read[id] = 1;
  }
  std::vector<TensorId> loose;
  for (const Tensor& tensor : program.tensors) {
    const bool gradient =
        tensor.kind == TensorKind::Gradient || tensor.kind == TensorKind::MergedGradient;
    const TensorId from = origin(tensor);
    if (!gradient || !read.at(tensor.id) || owed.at(from).owed) continue;
    if (sums_owed(program, from, owed)) continue;
    loose.push_back(tensor.id);
  }
  return loose;
}

}  // namespace dovetail::schedule
