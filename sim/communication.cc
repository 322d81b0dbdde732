// Tables of what each command of a plan moves, over which group, filled once per compilation.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/communication.h"

#include "schedule/moved_bytes.h"

namespace dovetail::sim {

using schedule::BucketLayout;

MovedBytes::MovedBytes(const schedule::ScheduledProgram& program) : program_(program) {
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

Bytes MovedBytes::of(const schedule::Copy& copy) const {
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

Bytes MovedBytes::of(const schedule::Scale& scale) const {
  return schedule::moved_bytes(*layouts_.at(scale.bucket), scale);
}

}  // namespace dovetail::sim
