// What a call that must fail throws.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"

namespace dovetail::testing {

// The message of the Error that `action` throws; "" when it throws none.
template <class Error = InputError, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace dovetail::testing
