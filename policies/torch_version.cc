// Reads a version of PyTorch, and tells what DistributedDataParallel of that version does with its
// first bucket.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/torch_version.h"

#include <charconv>

namespace dovetail::schedule {

TorchVersion torch_version(std::string_view text) {
  int major = 0;
  int minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, wrong] = std::from_chars(text.data(), end, major);
  bool is_version = wrong == std::errc() && dot != end && *dot == '.';
  if (is_version) {
    const auto [rest, bad] = std::from_chars(dot + 1, end, minor);
    is_version = bad == std::errc() && (rest == end || *rest == '.');
  }
  if (!is_version || major < 1) {
    return {.problem = "expected a version of PyTorch such as 1.13 or 2.14, found \"" +
                       std::string(text) + "\""};
  }
  if (major == 2 && minor < 6) {
    return {.problem = "known are 1.x and from 2.6 on: what 2.0 to 2.5 do was not read"};
  }
  return {.first_follows_cap = major >= 2};
}

}  // namespace dovetail::schedule
