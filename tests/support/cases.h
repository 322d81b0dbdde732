// Which cases a test takes where a sanitizer makes each take many times as long.
//
// What a sanitizer can find in such a test it finds in the code that a case runs, and a thousand cases run
// the same code as two thousand. Builds without a sanitizer take all of them: for the property tests of
// exec/ and schedule/ that is a step of the checks (scripts/test.sh), for others the presets dev and release.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>

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

// Whether somebody waits for more than a change needs (scripts/test.sh --all; DOVETAIL_DRAWN is how many cases are drawn then).
inline bool is_long_run() { return std::getenv("DOVETAIL_DRAWN") != nullptr; }

// Of so many random cases: half.
template <typename Number>
constexpr Number cases(Number all) {
  return kHasSanitizer ? all / 2 : all;
}

// Of so many random cases of a property test: a quarter.
template <typename Number>
constexpr Number few_cases(Number all) {
  return kHasSanitizer ? all / 4 : all;
}

// Whether a property test takes the case of this number, of all that it enumerates: about a sixth, without
// a rhythm that could fall in with that of the cases (multiples of the golden ratio, of which the fraction counts).
constexpr bool takes(std::uint64_t number) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  return !kHasSanitizer || number * kGolden < std::numeric_limits<std::uint64_t>::max() / 6;
}

}  // namespace dovetail::testing
