// Multiplying the factors of each gradient's reductions, and finding the gradients that have none.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/factors.h"
#include "schedule/gradient.h"

#include <algorithm>
#include <variant>

namespace dovetail::schedule {
namespace {

// Tensors whose every write before the optimizer adds up gradients with a debt.
IdTable<TensorId, char> sums_of_owed(const Program& program, const OwedFactors& owed) {
  IdTable<TensorId, char> sums;
  IdTable<TensorId, char> others;
  for (const Op& op : program.ops) {
    if (op.phase == Phase::Optimizer) continue;
    const bool adds = std::holds_alternative<Accumulate>(op.effect);
    for (const TensorId written : op.writes) {
      const bool all_owed = std::ranges::all_of(
          op.reads, [&](TensorId read) { return read == written || owed.at(read).owed; });
      (adds && all_owed ? sums : others)[written] = 1;
    }
  }
  for (const Tensor& tensor : program.tensors) {
    if (others.at(tensor.id)) sums[tensor.id] = 0;
  }
  return sums;
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
  const IdTable<TensorId, char> sums = sums_of_owed(program, owed);
  std::vector<TensorId> loose;
  for (const Tensor& tensor : program.tensors) {
    const TensorId from = origin(tensor);
    if (!is_gradient(tensor.kind) || !read.at(tensor.id) || owed.at(from).owed || sums.at(from))
      continue;
    loose.push_back(tensor.id);
  }
  return loose;
}

}  // namespace dovetail::schedule
