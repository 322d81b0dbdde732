// Counting buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/report.h"

#include <algorithm>
#include <map>
#include <set>

namespace dovetail::schedule {

std::vector<std::string> bucket_report(const Program& program, const Schedule& schedule) {
  if (schedule.buckets.empty()) return {"no buckets"};
  std::set<TensorId> gradients;
  std::map<std::string, std::size_t> closed;
  Bytes bytes;
  Bytes padding;
  std::size_t single = 0;
  for (const Bucket& bucket : schedule.buckets) {
    for (const Slice& slice : bucket.gradients) gradients.insert(slice.tensor);
    const Bytes size = payload(program, bucket);
    const std::int64_t unit = bucket.pad_to.count();
    bytes += size;
    padding += Bytes((size.count() + unit - 1) / unit * unit) - size;
    if (bucket.gradients.size() == 1) ++single;
    if (!bucket.closed_by.empty()) ++closed[bucket.closed_by];
  }
  std::vector<std::string> lines;
  lines.push_back(std::to_string(gradients.size()) + " " +
                  std::string(to_string(schedule.buckets.front().collective)) + "s fused into " +
                  std::to_string(schedule.buckets.size()) + ": " + dovetail::to_string(bytes) +
                  ", padding " + dovetail::to_string(padding) + ", " + std::to_string(single) +
                  (single == 1 ? " single gradient apart" : " single gradients apart"));
  if (closed.empty()) return lines;
  std::string reasons;
  for (const auto& entry : closed) {
    reasons += (reasons.empty() ? "" : ", ") + entry.first + " " + std::to_string(entry.second);
  }
  lines.push_back("buckets closed by " + reasons);
  return lines;
}

}  // namespace dovetail::schedule
