// How large the message of an op is that communicates, and whether its tensors have that size.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/values/op_message.h"

#include "schedule/collective_traits.h"

#include <variant>
#include <vector>

namespace dovetail::exec::values {
namespace {

std::optional<TensorId> fitting(const schedule::Program& program,
                                const std::vector<TensorId>& tensors, std::size_t elements) {
  if (tensors.empty()) return std::nullopt;
  const schedule::Tensor& tensor = program.tensor(tensors[0]);
  const bool fits =
      tensor.dtype == schedule::DType::F32 && static_cast<std::size_t>(tensor.numel()) == elements;
  return fits ? std::optional(tensor.id) : std::nullopt;
}

}  // namespace

OpMessage message_of(const schedule::Program& program, const schedule::Op& op) {
  const auto& work = std::get<schedule::CollectiveWork>(op.work);
  const auto ranks = static_cast<std::size_t>(program.group(work.group).size());
  const schedule::CollectiveTraits& traits = schedule::traits_of(work.kind);
  OpMessage message;
  message.elements = static_cast<std::size_t>((work.bytes.count() + 3) / 4);
  if (traits.is_cut()) message.elements = (message.elements + ranks - 1) / ranks * ranks;
  const std::size_t part = message.elements / ranks;
  const auto elements_of = [&](schedule::Extent extent) {
    return extent == schedule::Extent::Part ? part : message.elements;
  };
  message.source = fitting(program, op.reads, elements_of(traits.sends));
  message.target = fitting(program, op.writes, elements_of(traits.holds));
  if (!traits.in_place) {
    message.scratch = 2 * message.elements;
  } else if (traits.holds == schedule::Extent::Part) {
    message.scratch = message.elements;  // parts of sums are added up in place
  } else {
    const bool has_own = message.target || (traits.pair && message.source);
    message.scratch = has_own ? 0 : message.elements;
  }
  return message;
}

}  // namespace dovetail::exec::values
