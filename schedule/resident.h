// What a rank keeps of a plan's tensors all step long, activations aside: what must fit at the very least.
//
//   const Resident kept = resident(program, schedule);      // of the fullest pipeline stage
//   kept.parameters, .gradients, .accumulated, .copies, .optimizer, .total()
//   ResidentTensors of_program(program);                    // of many Schedules: of_program.of(schedule)
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
#include <vector>

#include "base/units.h"
#include "schedule/holding.h"
#include "schedule/id_table.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

struct Resident : Holding {
  // What Adam would keep besides, two numbers of f32 for each gradient's element, divided as the optimizer's state is; not in
  // total().
  Bytes moments = {};
  friend bool operator==(const Resident&, const Resident&) = default;
};

// A Program's tensors, and where each of them is.
class ResidentTensors {
 public:
  static constexpr std::int32_t kNowhere = -1;  // stage of a tensor that no op touches
  // One that a rank may keep: a parameter, a gradient or optimizer state.
  struct Tensor {
    TensorId id;
    TensorId divided_as;  // the gradient whose update touches it; itself where there is none
    TensorKind kind = TensorKind::Parameter;
    std::int32_t stage = 0;
    std::int64_t numel = 0;
    Bytes bytes;
  };
  // Keeps a reference to the Program.
  explicit ResidentTensors(const Program& program);

  // REQUIRES: the Schedule is one of the Program.
  [[nodiscard]] Resident of(const Schedule& schedule) const;

 private:
  const Program& program_;
  IdTable<TensorId, std::int32_t> stage_{kNowhere};
  std::vector<Tensor> tensors_;
};

// REQUIRES: the Schedule is one of the Program.
Resident resident(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule
