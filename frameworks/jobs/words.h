// Options that say one field of a job, in both directions: a reader takes them, a writer says them.
//
//   inline constexpr Degree kTensor{"parallelism.tensor_parallel_degree", &jobs::Layout::tp};
//   inline constexpr Choice<jobs::ContextExchange, 2> kRotate{
//       "parallelism.context_parallel_rotate_method",
//       {{{"allgather", jobs::ContextExchange::AllGather}, {"alltoall", jobs::ContextExchange::Ring}}}};
//
//   l.*kTensor.field = options.degree(kTensor.name, 1);      kRotate.read(options, otherwise)
//   say(kTensor.name, l.*kTensor.field);                     say(kRotate.name, kRotate.word(job.exchange))
//
// What else a framework's reader and writer share, names of options above all, stands in its own header (titan_words.h,
// megatron_words.h, deepspeed_words.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "frameworks/jobs/options.h"
#include "models/networks/job.h"

namespace dovetail::frameworks {

// A whole number that is a degree of the layout.
struct Degree {
  std::string_view name;
  std::int64_t jobs::Layout::*field;
};

// One of some words. Of two words for one value the first is said.
template <class T, std::size_t kWords>
struct Choice {
  std::string_view name;
  std::array<std::pair<std::string_view, T>, kWords> words;

  [[nodiscard]] T read(Options& options, T otherwise) const {
    return options.word<T>(name, otherwise, {words.begin(), words.end()});
  }
  [[nodiscard]] bool has(T value) const { return find(value) != words.end(); }
  // REQUIRES: has(value).
  [[nodiscard]] std::string_view word(T value) const { return find(value)->first; }

 private:
  [[nodiscard]] auto find(T value) const {
    return std::ranges::find(words, value, &std::pair<std::string_view, T>::second);
  }
};

}  // namespace dovetail::frameworks
