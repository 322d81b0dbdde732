// The commands of one role, in host issue order.Their order is that of walk.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Takes command and event ids from the Draft.
RankProgram emit(Draft& draft, const RoleDraft& role);

}  // namespace dovetail::schedule::internal
