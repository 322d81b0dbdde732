// find_weight_work: which backward ops nobody waits for but the update.
//
// A pipeline's stage owes the stage before it the gradient of its input, and the sooner the better; gradients of
// weights can wait (arXiv 2401.10241). An op of backward is weight work where what it writes ends in gradients of weights and
// neither the backward of an earlier stage reads it nor an op of its own stage that is no weight work:
//
//   loss.backward          writes loss.grad        for what follows
//   fc2.backward.input     writes fc2.grad         for stage 0
//   fc2.backward.weight    writes fc2.weight.grad  weight work
//
// So on the first stage, which owes nothing to anybody, all of backward is, as torch.distributed.pipelining has it. An
// op that makes both kinds of gradient stays whole, with the input's. Ops that write one gradient of a parameter, or read
// it, stay together: between the two passes other micro-batches write to it. So do readers of one parameter, which may be
// gathered for them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/id_table.h"
#include "schedule/program.h"

namespace dovetail::schedule {

// One flag per op. `shared`: tensors that all micro-batches have in common.
// REQUIRES: ops stand in the order of one micro-batch, backward from the last stage to the first.
std::vector<char> find_weight_work(const Program& program, const IdTable<TensorId, char>& shared);

}  // namespace dovetail::schedule
