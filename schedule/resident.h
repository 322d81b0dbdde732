// What a rank keeps of a plan's tensors all step long, activations aside: what must fit at the very least.
//
//   const Resident kept = resident(program, schedule);      // of the fullest pipeline stage
//   kept.parameters, .gradients, .sums, .copies, .state, .total()
//
// FSDP (ParameterSync::EachUse) divides parameters and gradients of reduce-scattered buckets, and frozen blocks, over their
// group; beside the shards the largest bucket or block is there whole, while it is in use, and so is its copy; those that
// are kept from forward to backward are there whole all together. Other reduce-scattered buckets divide optimizer state only. Sums of micro-steps
// and buckets in copy mode are a second copy of the gradients. State is counted where the Program has it: as
// tensors that its updates read; what Adam would keep stands apart.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

struct Resident {
  std::int32_t stage = 0;
  Bytes parameters, gradients, sums, copies, state;
  Bytes
      moments;  // what Adam would keep besides, two numbers of f32 for each gradient's element, divided as state is;
                // not in total()
  [[nodiscard]] Bytes total() const { return parameters + gradients + sums + copies + state; }
  friend bool operator==(const Resident&, const Resident&) = default;
};

// REQUIRES: the Schedule is one of the Program.
Resident resident(const Program& program, const Schedule& schedule);

// "parameters 2 GiB, gradients 2 GiB and their copies in buckets 2 GiB".
std::string describe(const Resident& kept);

}  // namespace dovetail::schedule
