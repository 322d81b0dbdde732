// Maps the device's clock to the host's from pairs of readings: of several pairs the one whose
// host readings lie closest together counts.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/clock_map.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace dovetail::exec::cuda {
namespace {

std::int64_t to_ns(float milliseconds) {
  return std::llround(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace

Anchor best_anchor(std::span<const AnchorSample> samples) {
  DOVETAIL_CHECK(!samples.empty()) << "an anchor needs a sample";
  Anchor best;
  std::int64_t narrowest = -1;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t width = samples[i].after_ns - samples[i].before_ns;
    if (narrowest >= 0 && width >= narrowest) continue;
    narrowest = width;
    best = {.sample = i, .at_ns = samples[i].before_ns + width / 2, .error_ns = (width + 1) / 2};
  }
  return best;
}

HostSpan to_host(const DeviceSpan& span, const Anchor& anchor, std::int64_t empty_pair_ns) {
  const std::int64_t start = anchor.at_ns + to_ns(span.start_ms);
  const std::int64_t end = anchor.at_ns + to_ns(span.end_ms) - empty_pair_ns;
  return {.start_ns = start, .end_ns = std::max(start, end)};
}

std::int64_t median_ns(std::vector<float> milliseconds) {
  DOVETAIL_CHECK(!milliseconds.empty()) << "a median needs a value";
  const auto middle = milliseconds.begin() + static_cast<std::ptrdiff_t>(milliseconds.size() / 2);
  std::nth_element(milliseconds.begin(), middle, milliseconds.end());
  return to_ns(*middle);
}

}  // namespace dovetail::exec::cuda
