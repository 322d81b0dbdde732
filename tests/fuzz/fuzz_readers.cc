// libFuzzer over one reader, which the environment's DOVETAIL_READER names (tests/fuzz/readers.h).
//
//   cmake -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DDOVETAIL_FUZZ=ON \
//         -DDOVETAIL_SANITIZE=address,undefined,fuzzer-no-link
//   cmake --build build-fuzz --target fuzz_readers
//   DOVETAIL_READER=nccl-tests build-fuzz/fuzz_readers -max_total_time=1800 found tests/fuzz/corpus/nccl-tests
//
// scripts/checks/fuzz.sh does that for every reader in turn. Every second change is of tokens (token_mutator.h).
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/token_mutator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

namespace {

// The reader that is named; ends the program where there is none of that name.
const dovetail::FuzzedReader& reader() {
  const char* const given = std::getenv("DOVETAIL_READER");
  const std::string_view name = given == nullptr ? "" : given;
  for (const dovetail::FuzzedReader& one : dovetail::fuzzed_readers()) {
    if (one.name == name) return one;
  }
  std::cerr << "DOVETAIL_READER: expected one of";
  for (const dovetail::FuzzedReader& one : dovetail::fuzzed_readers()) std::cerr << ' ' << one.name;
  std::cerr << '\n';
  std::exit(2);
}

}  // namespace

// libFuzzer's own changes: bytes.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text =
      dovetail::mutate_tokens({reinterpret_cast<const char*>(data), size}, seed);
  const std::size_t kept = std::min(text.size(), max_size);
  std::copy_n(text.begin(), kept, data);
  return kept;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const dovetail::FuzzedReader& chosen = reader();
  try {
    chosen.read({reinterpret_cast<const char*>(data), size});
  } catch (const dovetail::InputError&) {
    // the one way to refuse an input
  }
  return 0;
}
