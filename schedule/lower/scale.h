// Which Scale commands stand beside each bucket's collective (ScaleAt).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Fills the factors and the reduce ops of Draft::buckets. A bucket that another one continues takes
// the factors in front for both. Throws InputError where the members of a bucket owe different
// factors. Leaves a line in the report if there is any Scale.
void place_scales(Draft& draft);

}  // namespace dovetail::schedule::internal
