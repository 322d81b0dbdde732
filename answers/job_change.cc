// Words differences of jobs, whole or in parts that can be made one after the other.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_change.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "models/networks/text.h"

namespace dovetail::predict {

std::string change_between(const jobs::Job& from, const jobs::Job& to) {
  std::string text;
  for (const jobs::Difference& one : jobs::differences(from, to)) {
    if (one.key == "as" || one.there.empty()) continue;
    text += (text.empty() ? "" : ",") + one.key + "=" + one.there;
  }
  return text;
}

std::vector<std::string> changes_between(const jobs::Job& from, const jobs::Job& to) {
  static const std::vector<std::set<std::string>> kTogether = {
      {"schedule", "vp", "layers"},
      {"recompute", "recompute_layers", "recompute_modules"},
      {"ep", "etp"},
      {"zero", "reshard", "prefetch", "overlap_grads", "overlap_params", "sync_each"}};
  std::map<std::size_t, std::string> parts;
  std::size_t alone = kTogether.size();
  for (const jobs::Difference& one : jobs::differences(from, to)) {
    if (one.there.empty()) continue;
    const auto kin = std::ranges::find_if(
        kTogether, [&](const std::set<std::string>& keys) { return keys.contains(one.key); });
    const std::size_t at =
        kin == kTogether.end() ? alone++ : static_cast<std::size_t>(kin - kTogether.begin());
    parts[at] += (parts[at].empty() ? "" : ",") + one.key + "=" + one.there;
  }
  std::vector<std::string> texts;
  for (auto& [at, text] : parts) texts.push_back(std::move(text));
  return texts;
}

}  // namespace dovetail::predict
