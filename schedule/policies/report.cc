// Counts what became of the gradients of a Schedule, for the lines that plan and show print.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/report.h"

#include "base/count.h"
#include "schedule/id_table.h"
#include "schedule/policies/fsdp.h"
#include "schedule/sharding.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace dovetail::schedule {

namespace {

// Whether buckets hold sums of micro-steps in place of gradients.
bool holds_sums(const Schedule& schedule) {
  return schedule.merge.micro_steps > 1 && schedule.merge.sync != SyncPoint::EveryMicroStep;
}

// Rounds up to whole units.
Bytes rounded_up(Bytes size, Bytes unit) {
  return Bytes((size.count() + unit.count() - 1) / unit.count() * unit.count());
}

// What its collective moves, before padding.
Bytes moved(const Program& program, const Schedule& schedule, const Bucket& bucket) {
  if (!holds_sums(schedule)) return payload(program, bucket);
  Bytes sum;
  for (const Slice& slice : bucket.gradients) {
    sum += element_size(schedule.merge.dtype) * slice.elements(program.tensor(slice.tensor));
  }
  return sum;
}

// Padding between and after its gradients.
Bytes padding_of(const Program& program, const Schedule& schedule, const Bucket& bucket) {
  Bytes end;
  for (const Slice& slice : bucket.gradients) {
    const Tensor& tensor = program.tensor(slice.tensor);
    const DType dtype = holds_sums(schedule) ? schedule.merge.dtype : tensor.dtype;
    end = rounded_up(end, bucket.align_to) + element_size(dtype) * slice.elements(tensor);
  }
  return rounded_up(end, bucket.pad_to) - moved(program, schedule, bucket);
}

// The buckets with a buffer of their own. Where an earlier bucket has the same members over another group,
// they stay in its buffer for the second reduction.
std::vector<const Bucket*> with_buffers(const Schedule& schedule) {
  std::multimap<std::pair<TensorId, std::int64_t>, const Bucket*> earlier;  // by the first member
  std::vector<const Bucket*> own;
  for (const Bucket& bucket : schedule.buckets) {
    const Slice& first = bucket.gradients.front();
    const std::pair key(first.tensor, first.first);
    const auto [begin, end] = earlier.equal_range(key);
    const bool continues = std::any_of(begin, end, [&](const auto& entry) {
      return entry.second->group != bucket.group && entry.second->gradients == bucket.gradients;
    });
    earlier.emplace(key, &bucket);
    if (!continues) own.push_back(&bucket);
  }
  return own;
}

// The parameters of what the bucket holds.
Bytes gathered(const Program& program, const IdTable<TensorId, TensorId>& parameters,
               const Bucket& bucket) {
  Bytes sum;
  for (const Slice& slice : bucket.gradients) {
    const TensorId parameter = parameters.at(slice.tensor);
    if (parameter.value < 0) continue;
    sum += element_size(program.tensor(parameter).dtype) *
           slice.elements(program.tensor(slice.tensor));
  }
  return sum;
}

// Of micro-steps; a rank sums its shards where each micro-step scatters its gradients.
Bytes sums_of(const Program& program, const Schedule& schedule,
              const std::set<TensorId>& gradients) {
  std::map<TensorId, std::int64_t> ranks;
  if (!holds_sums(schedule)) {
    for (const Bucket& bucket : schedule.buckets) {
      if (!is_sharded(bucket)) continue;
      for (const Slice& slice : bucket.gradients) {
        ranks[slice.tensor] = program.group(bucket.group).size();
      }
    }
  }
  Bytes sums;
  for (const TensorId id : gradients) {
    const auto cut = ranks.find(id);
    const std::int64_t parts = cut == ranks.end() ? 1 : cut->second;
    sums += element_size(schedule.merge.dtype) * ((program.tensor(id).numel() + parts - 1) / parts);
  }
  return sums;
}

// PL24. The parameters of a sharded bucket lie as its gradients do: in a copy, or as views of the bucket. Where they
// are gathered before each use they have no memory besides, and copies of gradients live one bucket at a time.
std::string memory_line(const Program& program, const Schedule& schedule,
                        const std::vector<const Bucket*>& buffers,
                        const std::set<TensorId>& gradients) {
  const IdTable<TensorId, TensorId> parameters = parameters_of(program);
  Bytes copies;
  Bytes sums;
  for (const Bucket* bucket : buffers) {
    if (bucket->mode != BucketMode::Copy) continue;
    const Bytes copy = moved(program, schedule, *bucket);
    if (schedule.parameters == ParameterSync::EachUse) {
      copies = std::max(copies, copy);
      continue;
    }
    copies += copy;
    if (is_sharded(*bucket)) copies += gathered(program, parameters, *bucket);
  }
  if (schedule.merge.micro_steps > 1) sums = sums_of(program, schedule, gradients);
  return "memory beyond gradients and padding: copies " + dovetail::to_string(copies) + ", sums " +
         dovetail::to_string(sums);
}

}  // namespace

std::vector<std::string> bucket_report(const Program& program, const Schedule& schedule) {
  if (schedule.buckets.empty()) return {"no buckets"};
  std::set<TensorId> gradients;
  std::map<std::string, std::size_t> closed;
  Bytes bytes;
  Bytes padding;
  std::size_t single = 0;
  for (const Bucket& bucket : schedule.buckets) {
    for (const Slice& slice : bucket.gradients) gradients.insert(slice.tensor);
    bytes += moved(program, schedule, bucket);
    if (bucket.gradients.size() == 1) ++single;
    if (!bucket.closed_by.empty()) ++closed[bucket.closed_by];
  }
  const std::vector<const Bucket*> buffers = with_buffers(schedule);
  for (const Bucket* bucket : buffers) padding += padding_of(program, schedule, *bucket);
  std::vector<std::string> lines;
  lines.push_back(std::to_string(gradients.size()) + " " +
                  std::string(to_string(schedule.buckets.front().collective)) + "s fused into " +
                  std::to_string(schedule.buckets.size()) + ": " + dovetail::to_string(bytes) +
                  ", padding " + dovetail::to_string(padding) + ", " +
                  counted(single, "single gradient") + " apart");
  lines.push_back(memory_line(program, schedule, buffers, gradients));
  if (closed.empty()) return lines;
  std::string reasons;
  for (const auto& entry : closed) {
    reasons += (reasons.empty() ? "" : ", ") + entry.first + " " + std::to_string(entry.second);
  }
  lines.push_back("buckets closed by " + reasons);
  return lines;
}

}  // namespace dovetail::schedule
