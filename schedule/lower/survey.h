// What one role runs, and when it touches the tensors that travel.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Finds where ops stand; anew after the list of ops has changed. REQUIRES: the Program is rewritten, micro-steps are in range.
void index_ops(Draft& draft);

// REQUIRES: Draft::debt is filled.
RoleDraft survey(const Draft& draft, std::int32_t role);

// The last op before the optimizer that writes the tensor: of this micro-step if its gradients are
// reduced in every one, else of the step. REQUIRES: there is one.
std::size_t ready_after(const Draft& draft, const RoleDraft& role, TensorId tensor,
                        std::int32_t micro_step);

// Where the op stands, or its repetition in an earlier micro-step: ids name ops of the last one. REQUIRES: index_ops. Throws
// InputError "<name>: launch after unknown op 7".
std::size_t position_of(const Draft& draft, const RoleDraft& role, const std::string& name, OpId id,
                        std::int32_t micro_step);

}  // namespace dovetail::schedule::internal
