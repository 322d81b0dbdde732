// Whether a role's commands name only what exists, and run its ops in an order that the Program
// allows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verify/index.h"
#include "schedule/verify/verify.h"

#include <vector>

namespace dovetail::schedule::verification {

// Appends BadReference problems; false when there is one: then nothing more can be said of the role.
bool check_references(const Index& index, const RankProgram& role, std::vector<Problem>& problems);

// Appends OpOrder problems: an op of the role's stage that does not run exactly once, one of another
// stage, and one that reads a tensor as another op wrote it than in program order. Ops whose
// tensors do not depend on each other may run in any order.
void check_op_order(const Index& index, const RankProgram& role, std::vector<Problem>& problems);

}  // namespace dovetail::schedule::verification
