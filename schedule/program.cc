// Sizes and work of ops and tensors, look-ups by id, and the gradients that are owed in the order in which they are
// ready.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

template <class T, class IdType>
const T& find_by_id(const std::vector<T>& items, IdType id, const char* what) {
  // Loaders number their items from 0, so the id is nearly always the position.
  const auto guess = static_cast<std::size_t>(id.value);
  if (guess < items.size() && items[guess].id == id) return items[guess];
  const auto found = std::ranges::find(items, id, &T::id);
  DOVETAIL_CHECK(found != items.end()) << "no " << what << " with id " << id;
  return *found;
}

// Calls `visitor` with each kernel of work that computes, or with other work.
void each_kernel(const Work& work, const auto& visitor) {
  if (const auto* several = std::get_if<KernelsWork>(&work)) {
    for (const Kernel& kernel : several->kernels) std::visit(visitor, kernel);
  } else {
    std::visit(visitor, work);
  }
}

}  // namespace

Bytes element_size(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return Bytes(4);
    case DType::F16:
    case DType::BF16:
      return Bytes(2);
    case DType::F64:
      return Bytes(8);
  }
  DOVETAIL_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return {};
}

Bytes traffic(const GemmWork& gemm, DType dtype) {
  if (gemm.convolution) return element_size(dtype) * gemm.convolution->moved;
  const std::int64_t operands = gemm.count * (gemm.m * gemm.k + gemm.k * gemm.n);
  const Bytes result = element_size(dtype) * (gemm.count * gemm.m * gemm.n);
  switch (gemm.operands) {
    case Operands::Own:
    case Operands::Tf32:
      return element_size(dtype) * operands + result;
    case Operands::Fp8:
      return Bytes(operands) + result;
    case Operands::Fp4:
      return Bytes((operands + 1) / 2) + result;
  }
  DOVETAIL_CHECK(false) << "operands " << static_cast<int>(gemm.operands);
  return {};
}

std::span<const Rank> ProcessGroup::instance_of(Rank rank) const {
  const auto found = std::ranges::find(ranks, rank);
  if (found == ranks.end()) return {};
  const auto index = static_cast<std::size_t>(found - ranks.begin());
  const auto length = static_cast<std::size_t>(size());
  return std::span(ranks).subspan(index / length * length, length);
}

std::int64_t Tensor::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

Bytes Tensor::bytes() const { return element_size(dtype) * numel(); }

bool is_timed(const Work& work) {
  const auto* timed = std::get_if<TimedWork>(&work);
  return timed != nullptr &&
         std::ranges::any_of(timed->by_rank, [](Duration time) { return time > Duration{}; });
}

Bytes adding(const GemmWork& gemm, DType dtype) {
  if (gemm.adds == 0) return Bytes(0);
  const std::int64_t more = 2 * gemm.adds - element_size(dtype).count();
  return Bytes(gemm.count * gemm.m * gemm.n * std::max<std::int64_t>(0, more));
}

bool adds_to_sum(const Op& writer, const Tensor& gradient) {
  if (gradient.shape.size() < 2) return false;  // of a norm: no product's
  return std::ranges::any_of(kernels_of(writer.work), [](const Kernel& kernel) {
    const auto* gemm = std::get_if<GemmWork>(&kernel);
    return gemm != nullptr && gemm->adds > 0;
  });
}

std::vector<Kernel> kernels_of(const Work& work) {
  return std::visit(Visitor{[](const GemmWork& gemm) { return std::vector<Kernel>{gemm}; },
                            [](const MemoryWork& memory) { return std::vector<Kernel>{memory}; },
                            [](const TimedWork&) { return std::vector<Kernel>{}; },
                            [](const CollectiveWork&) { return std::vector<Kernel>{}; },
                            [](const KernelsWork& several) { return several.kernels.copy(); }},
                    work);
}

std::int64_t launches(const Work& work) {
  std::int64_t count = 0;
  each_kernel(work, Visitor{[&](const GemmWork& gemm) {
                              count += (gemm.separate ? gemm.count : 1) * (1 + gemm.casts);
                            },
                            [&](const auto&) { ++count; }});
  return count;
}

std::int32_t role_of_stage(StageMap map, std::int32_t stages, std::int32_t stage) {
  const std::int32_t along = stage % stages;
  const bool is_back = map == StageMap::V && stage / stages % 2 == 1;
  return is_back ? stages - 1 - along : along;
}

Flop Op::flop() const {
  Flop total(0);
  const Visitor add{[&](const GemmWork& gemm) {
                      total +=
                          Flop(2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                               static_cast<double>(gemm.k) * static_cast<double>(gemm.count));
                    },
                    [&](const MemoryWork& memory) { total += memory.flop; }, [](const auto&) {}};
  each_kernel(work, add);
  return total;
}

Bytes Op::bytes() const {
  if (const auto* message = std::get_if<CollectiveWork>(&work)) return message->bytes;
  Bytes total(0);
  const Visitor add{[&](const GemmWork& gemm) { total += traffic(gemm, dtype); },
                    [&](const MemoryWork& memory) { total += memory.bytes; }, [](const auto&) {}};
  each_kernel(work, add);
  return total;
}

bool is_repeated(const Op& op) {
  const auto* message = std::get_if<CollectiveWork>(&op.work);
  const bool sums_ties = message != nullptr && message->purpose == Purpose::TiedWeights;
  return op.phase != Phase::Optimizer && !sums_ties;
}

const Tensor& Program::tensor(TensorId id) const { return find_by_id(tensors, id, "tensor"); }
const Op& Program::op(OpId id) const { return find_by_id(ops, id, "op"); }
const ProcessGroup& Program::group(GroupId id) const {
  return find_by_id(groups, id, "process group");
}

std::vector<OwedGradient> owed_gradients(const Program& program) {
  constexpr std::size_t kNone = SIZE_MAX;
  IdTable<TensorId, std::size_t> last_writer(kNone);
  last_writer.reserve(program.tensors.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].phase == Phase::Optimizer) continue;
    for (const TensorId id : program.ops[i].writes) last_writer[id] = i;
  }
  std::vector<OwedGradient> owed;
  owed.reserve(program.reductions.size());
  for (const Reduction& reduction : program.reductions) {
    const Tensor& tensor = program.tensor(reduction.gradient);
    const std::size_t writer = last_writer.at(reduction.gradient);
    DOVETAIL_CHECK(writer != kNone) << tensor.name << " is never written";
    owed.push_back({.tensor = tensor.id,
                    .group = reduction.group,
                    .op = reduction.op,
                    .dtype = tensor.dtype,
                    .bytes = tensor.bytes(),
                    .numel = tensor.numel(),
                    .producer = program.ops[writer].id,
                    .producer_index = writer});
  }
  std::ranges::stable_sort(owed, {}, &OwedGradient::producer_index);
  return owed;
}

}  // namespace dovetail::schedule
