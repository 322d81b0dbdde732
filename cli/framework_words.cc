// The flat range first, since it says how much the choice matters at all; then what to paste, or that keeping what she
// has is as good; then what the framework cannot do and what the replay does not hold.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/framework_words.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "cli/text.h"

namespace dovetail::cli {
namespace {

using diagnose::BucketAdvice;
using diagnose::BucketSetting;

std::string ms(Duration time) { return fixed(to_us(time) / 1e3, 3) + " ms"; }

// Sizes that follow each other stand as their ends.
std::string flat_range(const BucketAdvice& advice) {
  std::string text;
  const auto& alike = advice.alike;
  for (std::size_t i = 0; i < alike.size(); ++i) {
    const BucketSetting& first = advice.settings[alike[i]];
    std::size_t last = i;
    while (first.size && last + 1 < alike.size() && alike[last + 1] == alike[last] + 1 &&
           advice.settings[alike[last + 1]].size &&
           advice.settings[alike[last + 1]].in_flight == first.in_flight) {
      ++last;
    }
    text += (text.empty() ? "" : "; ") + short_setting(first);
    if (last > i) text += " to " + short_setting(advice.settings[alike[last]]);
    i = last;
  }
  return "flat range (within " + ms(advice.tell) + " of the best, which cannot be told): " + text;
}

// Where nothing is to be gained: what needs no setting, if that is in the flat range.
const BucketSetting& simplest(const BucketAdvice& advice) {
  for (const std::size_t i : advice.alike) {
    if (advice.settings[i].is_default) return advice.settings[i];
  }
  return advice.settings[advice.best];
}

void add_torch_notes(const BucketSetting& setting, std::vector<std::string>& lines) {
  if (setting.size) {
    lines.emplace_back(
        "(torch 1.13 closes the first bucket at 1 MiB whatever the cap; from 2.x on only "
        "where no cap is given)");
  }
  if (setting.is_list) lines.emplace_back("(bucket_cap_mb_list: torch 2.13 or later)");
}

void add_paste(const BucketAdvice& advice, std::vector<std::string>& lines) {
  const BucketSetting& best = advice.settings[advice.best];
  if (best.gain.middle > advice.tell) {
    const bool is_certain = best.gain.low > Duration{};
    if (!is_certain) {
      lines.emplace_back("no bucket size is better for certain: every interval holds 0");
    }
    lines.push_back((is_certain ? "paste: " : "likeliest: ") + best.line);
    if (advice.framework->id == "torch") add_torch_notes(best, lines);
    return;
  }
  if (advice.framework->id == "torch") {
    lines.push_back("keep what you have" +
                    (advice.recorded.empty() ? std::string() : " (" + advice.recorded + ")") +
                    ": no bucket size is better by more than can be told");
    return;
  }
  lines.push_back("no setting of " + std::string(advice.framework->name) +
                  " is better than the recorded buckets by more than can be told");
  lines.push_back("paste: " + simplest(advice).line);
}

}  // namespace

std::vector<std::string> advice_lines(const BucketAdvice& advice) {
  std::vector<std::string> lines = {flat_range(advice)};
  add_paste(advice, lines);
  for (const diagnose::GivenUp& given : advice.given_up) {
    lines.push_back("given up: " + given.what + ": " + ms(given.less) + " a step");
  }
  for (const std::string_view missing : advice.framework->not_replayed) {
    lines.push_back("not replayed: " + std::string(missing));
  }
  return lines;
}

}  // namespace dovetail::cli
