// Random placements of a Program's gradients for tests and benchmarks of search/step_model.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "search/step_model.h"

namespace dovetail::testing {

// Consecutive buckets of this mode and wait, launched when ready, on one stream.
inline search::Choices choices_with_ends(const std::vector<std::size_t>& ends,
                                         schedule::BucketMode mode, schedule::WaitPoint wait) {
  search::Choices choices;
  std::int32_t begin = 0;
  for (const std::size_t end : ends) {
    choices.push_back(
        {.begin = begin, .end = static_cast<std::int32_t>(end), .mode = mode, .wait = wait});
    begin = static_cast<std::int32_t>(end);
  }
  return choices;
}

// Buckets of `mean` gradients on average; each decision drawn for all buckets alike or for each of them:
// mode, wait, scope, stream, launch delay, order.
inline search::Choices random_choices(Random& random, const search::StepModel& model,
                                      std::int64_t mean) {
  using schedule::BucketMode;
  using schedule::WaitPoint;
  using schedule::WaitScope;
  std::vector<std::size_t> ends;
  for (std::int32_t i = 1; i < model.gradients(); ++i) {
    if (random.between(1, mean) == 1 || model.kind(i) != model.kind(i - 1))
      ends.push_back(static_cast<std::size_t>(i));
  }
  ends.push_back(static_cast<std::size_t>(model.gradients()));
  const auto copies = [&] { return random.between(0, 1) == 0; };
  search::Choices choices =
      choices_with_ends(ends, copies() ? BucketMode::Copy : BucketMode::View,
                        copies() ? WaitPoint::EndOfBackward : WaitPoint::FirstUse);
  const bool mixes_modes = random.between(0, 5) == 0;
  const bool mixes_waits = random.between(0, 2) == 0;
  const bool mixes_scopes = random.between(0, 3) == 0;
  const bool mixes_inline = random.between(0, 7) == 0;
  const bool delays = model.delays() && random.between(0, 1) == 0;
  const std::int64_t streams = random.between(0, 4) == 0 ? 3 : 1;
  for (search::BucketChoice& choice : choices) {
    if (mixes_modes) choice.mode = copies() ? BucketMode::Copy : BucketMode::View;
    if (mixes_waits) {
      choice.wait = copies()   ? WaitPoint::EndOfBackward
                    : copies() ? WaitPoint::BeforeNextBatch
                    : copies() ? WaitPoint::AtLaunch
                               : WaitPoint::FirstUse;
    }
    if (mixes_scopes) choice.scope = copies() ? WaitScope::WholeStream : WaitScope::Event;
    choice.stream = static_cast<std::int32_t>(random.between(0, streams - 1));
    if (mixes_inline && copies()) choice.stream = search::kInline;
    if (delays && random.between(0, 2) == 0) {
      const std::int32_t ready = model.ready(choice.end - 1);
      const std::int64_t latest = std::min<std::int64_t>(model.backward_end(), ready + 40);
      choice.launch = static_cast<std::int32_t>(random.between(ready, latest));
    }
  }
  if (random.between(0, 3) == 0) {
    for (std::size_t b = 1; b < choices.size(); ++b) {
      if (random.between(0, 5) == 0) std::swap(choices[b - 1], choices[b]);
    }
  }
  return choices;
}

}  // namespace dovetail::testing
