// How many random cases a test takes: half of them where a sanitizer makes each take three times as long.
//
// What a sanitizer can find in such a test it finds in the code that a case runs, and a thousand cases run
// the same code as two thousand. Builds without a sanitizer take all of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dovetail::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = false;
#endif
#else
inline constexpr bool kHasSanitizer = false;
#endif

template <typename Number>
constexpr Number cases(Number all) {
  return kHasSanitizer ? all / 2 : all;
}

}  // namespace dovetail::testing
