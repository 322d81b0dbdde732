// Filling and reading the tables.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/communication.h"

#include "schedule/moved_bytes.h"

namespace dovetail::sim {

using schedule::BucketLayout;

Communications::Communications(const schedule::ScheduledProgram& program) : program_(program) {
  for (const schedule::Op& op : program.program.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work != nullptr) works_[op.id] = work;
  }
  for (const BucketLayout& layout : program.buckets) {
    layouts_[layout.bucket] = &layout;
    if (layout.mode == schedule::BucketMode::View) continue;
    for (const schedule::BucketMember& member : layout.members) {
      const schedule::Tensor& tensor = program.program.tensor(member.tensor);
      const bool whole = member.elements(tensor) == tensor.numel();
      whole_[member.tensor] = whole ? tensor.bytes() : Bytes(0);
    }
  }
}

std::optional<Communication> Communications::of(const schedule::Command& command) const {
  if (const auto* run = std::get_if<schedule::RunCollective>(&command.action)) {
    return Communication{run->kind, &program_.program.group(run->group),
                         schedule::moved_bytes(*layouts_.at(run->bucket), *run)};
  }
  if (const auto* run = std::get_if<schedule::RunOp>(&command.action)) {
    const schedule::CollectiveWork* work = works_.at(run->op);
    if (work == nullptr) return std::nullopt;
    return Communication{work->kind, &program_.program.group(work->group), work->bytes, work->root};
  }
  return std::nullopt;
}

Bytes Communications::bytes(const schedule::Copy& copy) const {
  Bytes bytes;
  for (const TensorId id : copy.gradients) {
    const Bytes whole = whole_.at(id);
    // Split over buckets, or of no bytes: what lies in this one has to be looked up.
    if (whole == Bytes(0)) {
      return schedule::moved_bytes(program_.program, *layouts_.at(copy.bucket), copy);
    }
    bytes += whole;
  }
  return bytes;
}

Bytes Communications::bytes(const schedule::Scale& scale) const {
  return schedule::moved_bytes(*layouts_.at(scale.bucket), scale);
}

}  // namespace dovetail::sim
