// Throws what a failed DOVETAIL_CHECK collected. Where an exception is under way already, a second one cannot be thrown: it
// prints and aborts.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace dovetail::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ':' << line << ": check failed: " << condition;
}

CheckFailure::~CheckFailure() noexcept(false) {
  if (std::uncaught_exceptions() > 0) {
    std::fprintf(stderr, "dovetail: %s\n", message_.str().c_str());
    std::abort();
  }
  throw CheckError(message_.str());
}

}  // namespace dovetail::internal
