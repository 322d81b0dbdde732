// What a call gave, or the words of its InputError: for what may be left out, told in other words, or
// done in another way. Other errors pass through.
//
//   const auto job = attempt([&] { return parse_job(text); });
//   if (!job) throw InputError("--job: " + job.error);
//   return job.value->layout.world();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "base/error.h"

namespace dovetail {

template <class T>
struct Attempt {
  std::optional<T> value = std::nullopt;
  std::string error = {};  // why there is no value
  explicit operator bool() const { return value.has_value(); }
};

// A call without a result has the value std::monostate.
template <class Call>
auto attempt(const Call& call) {
  using Result = std::remove_cvref_t<std::invoke_result_t<const Call&>>;
  constexpr bool kIsVoid = std::is_void_v<Result>;
  Attempt<std::conditional_t<kIsVoid, std::monostate, Result>> made;
  try {
    if constexpr (kIsVoid) {
      call();
      made.value.emplace();
    } else {
      made.value.emplace(call());
    }
  } catch (const InputError& error) {
    made.error = error.what();
  }
  return made;
}

}  // namespace dovetail
