// How large the message of an op is that communicates, and whether its tensors have that size.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/values/op_message.h"

#include <variant>
#include <vector>

namespace dovetail::exec::values {
namespace {

using schedule::Collective;

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
  const bool is_cut = work.kind == Collective::ReduceScatter ||
                      work.kind == Collective::AllGather || work.kind == Collective::AllToAll;
  OpMessage message;
  message.elements = static_cast<std::size_t>((work.bytes.count() + 3) / 4);
  if (is_cut) message.elements = (message.elements + ranks - 1) / ranks * ranks;
  const std::size_t part = message.elements / ranks;
  const bool gathers = work.kind == Collective::AllGather;
  const bool scatters = work.kind == Collective::ReduceScatter;
  message.source = fitting(program, op.reads, gathers ? part : message.elements);
  message.target = fitting(program, op.writes, scatters ? part : message.elements);
  switch (work.kind) {
    case Collective::AllReduce:
    case Collective::AllGather:
    case Collective::Broadcast:
      message.scratch = message.target ? 0 : message.elements;
      break;
    case Collective::ReduceScatter:  // sums partially in place
      message.scratch = message.elements;
      break;
    case Collective::AllToAll:
      message.scratch = 2 * message.elements;
      break;
    case Collective::SendRecv:
      message.scratch = message.source || message.target ? 0 : message.elements;
      break;
  }
  return message;
}

}  // namespace dovetail::exec::values
