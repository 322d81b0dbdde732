// The three kinds of error: the input is wrong, the machine failed, we are wrong.
//
//   throw InputError("gpt2.json: /ops/3/work: expected a number, found \"fast\"");   exit code 2
//   throw DeviceError("rank 1: connection closed during all-reduce of bucket 3");     exit code 3
//   DOVETAIL_CHECK(a <= b) << a << " > " << b;                                        throws CheckError: exit code 70
//
// Caught in cli/front_door.cc, which prints the message and ends with the exit code, and where a caller is served who asks again
// (evaluate, Python, C++): there a failed check is the error of that one question. A check stays on in release builds. One that
// fails within a destructor or on a thread without a catcher ends the process with its message.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace dovetail {

class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A check that failed: "schedule/lower/order.cc:164: check failed: a <= b 3 > 2".
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace internal {

// Collects the values of a failed check; its destructor throws them as a CheckError.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure() noexcept(false);

  template <class T>
  CheckFailure& operator<<(const T& value) {
    message_ << value;
    return *this;
  }

 private:
  std::ostringstream message_;
};

// Lower precedence than <<, so that the whole chain is one void expression.
struct Voidify {
  void operator&(const CheckFailure&) const {}
};

}  // namespace internal
}  // namespace dovetail

#define DOVETAIL_CHECK(condition)                 \
  (condition) ? static_cast<void>(0)              \
              : ::dovetail::internal::Voidify{} & \
                    ::dovetail::internal::CheckFailure(__FILE__, __LINE__, #condition) << ' '
