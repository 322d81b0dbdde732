// A policy in the words of the framework that does the same: each policy says it itself
// (policies/definition.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policies/policies.h"

namespace dovetail::exports {

using schedule::in_words;

}  // namespace dovetail::exports
