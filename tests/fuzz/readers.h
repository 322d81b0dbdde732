// Every reader of the project as a function of a text: it succeeds or throws InputError, never else.
//
// For libFuzzer (fuzz_readers.cc) and for the kept corpus (corpus_test.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace dovetail {

struct FuzzedReader {
  std::string_view name;  // also of its folder in tests/fuzz/corpus
  // Reads; what was accepted is used as the tool would, and written and read again where it can be.
  void (*read)(std::string_view text);
};

std::span<const FuzzedReader> fuzzed_readers();

}  // namespace dovetail
