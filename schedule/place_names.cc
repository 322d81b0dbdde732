// Writes and recognises the names of gradients that are known by their place in a recorded bucket only, both by one pattern.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/place_names.h"

#include <algorithm>

namespace dovetail::schedule {
namespace {

constexpr std::string_view kBucket = "bucket";
constexpr std::string_view kGradient = ".gradient";
constexpr std::string_view kAllReduce = "all-reduce ";

// Takes the word off the front, where it stands there.
bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}
bool take_number(std::string_view& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(digits);
  return digits > 0;
}

}  // namespace

std::string place_name(std::size_t bucket, std::size_t gradient) {
  return std::string(kBucket) + std::to_string(bucket) + std::string(kGradient) +
         std::to_string(gradient);
}

bool is_place_name(std::string_view gradient) {
  if (gradient.ends_with(".grad")) gradient.remove_suffix(5);
  if (take(gradient, kAllReduce)) return take_number(gradient) && gradient.empty();
  return take(gradient, kBucket) && take_number(gradient) && take(gradient, kGradient) &&
         take_number(gradient) && gradient.empty();
}

bool has_places_only(const Program& program) {
  return !program.reductions.empty() &&
         std::ranges::all_of(program.reductions, [&](const Reduction& reduction) {
           return is_place_name(program.tensor(reduction.gradient).name);
         });
}

}  // namespace dovetail::schedule
