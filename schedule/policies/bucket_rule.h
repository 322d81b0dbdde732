// When a bucket is full: the rule of a framework as a value.
//
//   BucketRule{.limits = {1 << 20, 25 << 20}}                      PyTorch DDP: closes on reaching a limit,
//                                                                  of the first bucket 1 MiB, then 25 MiB
//   BucketRule{Closes::BeforeExceeding, CountedIn::Elements, {n}}  DeepSpeed: closes before the gradient that
//                                                                  would bring it above n elements
//
//   BucketRule{Closes::FromLast, ..., {bytes}}                     XLA: the same, filled from the gradient that is ready last,
//                                                                  which is the first of the step's results
//
// Gradients are looked at in the order in which they are ready, by FromLast in the opposite one. A gradient is never
// cut: one above the limit overshoots it (OnReaching) or travels alone (the others).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "base/words.h"

namespace dovetail::schedule {

using dovetail::to_string;

enum class Closes : std::uint8_t { OnReaching, BeforeExceeding, FromLast };
constexpr auto words_of(Closes) { return words("on-reaching", "before-exceeding", "from-last"); }
enum class CountedIn : std::uint8_t { Bytes, Elements };

struct BucketRule {
  Closes closes = Closes::OnReaching;
  CountedIn unit = CountedIn::Bytes;
  std::vector<std::int64_t> limits;  // of the first bucket, the second, ...; the last one repeats
};

struct GradientSize {
  Bytes bytes;
  std::int64_t elements = 0;
};

// What one kind of gradients (process group, dtype, ...) has gathered. REQUIRES: the rule has a limit and
// outlives this.
class OpenBucket {
 public:
  explicit OpenBucket(const BucketRule& rule) : rule_(&rule) {}

  // Whether what is open has to go before this gradient is added; then it counts as closed.
  bool closes_before(const GradientSize& next);
  // Whether the bucket is full with it; then it counts as closed.
  bool closes_with(const GradientSize& added);

 private:
  [[nodiscard]] std::int64_t size(const GradientSize& gradient) const;
  void close();

  const BucketRule* rule_;
  std::int64_t held_ = 0;
  std::size_t limit_ = 0;
};

// The buckets of gradients of one kind: exclusive ends, the last one is the number of gradients.
std::vector<std::size_t> bucket_ends(std::span<const GradientSize> gradients,
                                     const BucketRule& rule);

}  // namespace dovetail::schedule
