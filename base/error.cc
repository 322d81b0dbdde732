// Prints what a failed DOVETAIL_CHECK collected and aborts, so that a debugger or a core file
// shows where it happened.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace dovetail::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ':' << line << ": check failed: " << condition;
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "dovetail: %s\n", message_.str().c_str());
  std::abort();
}

}  // namespace dovetail::internal
