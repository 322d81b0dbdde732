// Closes buckets over gradients in the order in which they become ready, by a rule of size, and
// makes the Schedule of the groups. A backward op that reads a reduced gradient bounds its bucket.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/grouping.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

#include "schedule/policies/fragments.h"
#include "schedule/policies/fsdp.h"
#include "schedule/visit.h"

namespace dovetail::schedule {

BucketKey key_of(const Program& program, const OwedGradient& gradient) {
  return {gradient.group,     gradient.dtype,
          gradient.op,        program.ops[gradient.producer_index].stage,
          gradient.parameter, gradient.replicas};
}

std::vector<OwedGradient> travelling(std::vector<OwedGradient> owed, const Merge& merge) {
  if (merge.micro_steps > 1 && merge.sync != SyncPoint::EveryMicroStep) {
    for (OwedGradient& gradient : owed) {
      gradient.dtype = merge.dtype;
      gradient.bytes = element_size(gradient.dtype) * gradient.numel;
    }
  }
  return owed;
}

Groups group_by_limits(const Program& program, const std::vector<OwedGradient>& owed,
                       const BucketRule& rule) {
  struct Open {
    OpenBucket bucket;
    std::vector<OwedGradient> members = {};
  };
  std::map<BucketKey, Open> open;
  Groups result;
  const auto take = [&result](Open& from) {
    result.push_back({std::exchange(from.members, {}), "cap"});
  };
  const bool turned = rule.closes == Closes::FromLast;
  for (std::size_t i = 0; i < owed.size(); ++i) {
    const OwedGradient& gradient = owed[turned ? owed.size() - 1 - i : i];
    Open& own = open.try_emplace(key_of(program, gradient), Open{OpenBucket(rule)}).first->second;
    const GradientSize size{gradient.bytes, gradient.numel};
    if (own.bucket.closes_before(size)) take(own);
    own.members.push_back(gradient);
    if (own.bucket.closes_with(size)) take(own);
  }
  if (turned) {
    for (GradientGroup& group : result) std::ranges::reverse(group.members);
    for (auto& [key, own] : open) std::ranges::reverse(own.members);
  }
  // What is still open closes in the order in which its last gradient became ready; so does what a later
  // gradient has closed.
  const auto last = [](const GradientGroup& group) { return group.members.back().producer_index; };
  Groups rest;
  for (auto& [key, own] : open) {
    if (!own.members.empty()) rest.push_back({std::move(own.members), "end"});
  }
  std::ranges::stable_sort(rest, {}, last);
  for (GradientGroup& group : rest) result.push_back(std::move(group));
  if (rule.closes != Closes::OnReaching) std::ranges::stable_sort(result, {}, last);
  return result;
}

Groups group_by_cap(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap) {
  struct Open {
    std::vector<OwedGradient> members;
    Bytes bytes;
    std::size_t bound = BackwardReaders::kNone;  // the first reader of a member
  };
  const BackwardReaders readers(program, owed);
  std::map<BucketKey, Open> open;
  Groups groups;
  for (const OwedGradient& gradient : owed) {
    Open& bucket = open[key_of(program, gradient)];
    const bool read = gradient.producer_index >= bucket.bound;
    if (!bucket.members.empty() && (read || bucket.bytes + gradient.bytes > cap)) {
      groups.push_back({std::exchange(bucket, {}).members, read ? "reader" : "cap"});
    }
    bucket.members.push_back(gradient);
    bucket.bytes += gradient.bytes;
    bucket.bound = std::min(bucket.bound, readers.first(gradient.tensor));
  }
  for (auto& [key, bucket] : open) groups.push_back({std::move(bucket.members), "end"});
  // A bucket must not stand behind one that is ready later: it would be launched as late.
  std::ranges::stable_sort(
      groups, {}, [](const GradientGroup& group) { return group.members.back().producer_index; });
  return groups;
}

namespace {

constexpr Bytes kAlignment = Bytes(128);  // of fragments (A4)

// All gradients of one key.
void pack_key(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap,
              Groups& result) {
  const OwedGradient& front = owed.front();
  const std::int64_t ranks = program.group(front.group).size();
  const BucketShape shape = bucket_shape(cap, element_size(front.dtype), ranks);
  std::vector<std::int64_t> sizes;
  for (const OwedGradient& gradient : owed) sizes.push_back(gradient.numel);
  std::size_t open = 0;
  for (const Fragment& fragment : pack_fragments(sizes, shape)) {
    if (fragment.bucket == open) {
      if (open > 0) result.back().closed_by = "cap";
      result.push_back({.members = {},
                        .closed_by = "end",
                        .pad_to = kAlignment * ranks,
                        .align_to = kAlignment});
      ++open;
    }
    const OwedGradient& gradient = owed[fragment.tensor];
    const bool whole = fragment.count == gradient.numel;
    result.back().members.push_back(gradient);
    result.back().slices.push_back(whole ? Slice(gradient.tensor)
                                         : Slice(gradient.tensor, fragment.first, fragment.count));
  }
}

// What a gradient goes by where modules are told by names: the parameter that it updates, or itself.
class ParameterNames {
 public:
  explicit ParameterNames(const Program& program)
      : program_(program), parameter_(parameters_of(program)) {}
  [[nodiscard]] std::string_view of(const OwedGradient& gradient) const {
    const TensorId updated = parameter_.at(gradient.tensor);
    return program_.tensor(updated.value < 0 ? gradient.tensor : updated).name;
  }

 private:
  const Program& program_;
  IdTable<TensorId, TensorId> parameter_;
};

void sort_by_last(Groups& groups) {
  std::ranges::stable_sort(
      groups, {}, [](const GradientGroup& group) { return group.members.back().producer_index; });
}

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char letter) {
    return std::isdigit(static_cast<unsigned char>(letter)) != 0;
  });
}

}  // namespace

std::string_view layer_of(std::string_view parameter) {
  std::size_t begin = 0;
  while (begin < parameter.size()) {
    const std::size_t end = std::min(parameter.find('.', begin), parameter.size());
    if (is_number(parameter.substr(begin, end - begin))) return parameter.substr(0, end);
    begin = end + 1;
  }
  return parameter.substr(0, parameter.rfind('.'));
}

Groups group_equal_sizes(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap) {
  constexpr std::int64_t kMostBuckets = 65'536;  // a plan of them takes seconds and a gigabyte
  Bytes all;
  for (const OwedGradient& gradient : owed) all += gradient.bytes;
  if (all.count() / cap.count() > kMostBuckets) {
    throw InputError("buckets of " + to_string(cap) + " would be " +
                     std::to_string(all.count() / cap.count()) + " of " + to_string(all) +
                     "; expected at most " + std::to_string(kMostBuckets));
  }
  std::map<BucketKey, std::vector<OwedGradient>> by_key;
  IdTable<TensorId, std::size_t> position(0);
  for (std::size_t i = 0; i < owed.size(); ++i) {
    position[owed[i].tensor] = i;
    by_key[key_of(program, owed[i])].push_back(owed[i]);
  }
  Groups result;
  for (const auto& entry : by_key) pack_key(program, entry.second, cap, result);
  std::ranges::stable_sort(result, {}, [&](const GradientGroup& group) {
    return position.at(group.members.back().tensor);
  });
  return result;
}

Groups group_by_modules(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap) {
  const ParameterNames names(program);
  const auto module = [&](const OwedGradient& gradient) {
    const std::string_view name = names.of(gradient);
    return name.substr(0, name.rfind('.'));
  };
  std::map<BucketKey, std::vector<OwedGradient>> by_key;  // from the first of forward on
  for (auto gradient = owed.rbegin(); gradient != owed.rend(); ++gradient) {
    by_key[key_of(program, *gradient)].push_back(*gradient);
  }
  Groups result;
  for (const auto& entry : by_key) {
    Bytes held;
    for (auto begin = entry.second.begin(); begin != entry.second.end();) {
      const auto end = std::find_if(begin, entry.second.end(), [&](const OwedGradient& gradient) {
        return module(gradient) != module(*begin);
      });
      Bytes bytes;
      for (auto gradient = begin; gradient != end; ++gradient) bytes += gradient->bytes;
      if (begin == entry.second.begin() || held + bytes >= cap) {
        if (held > Bytes(0)) result.back().closed_by = "cap";
        result.push_back({{}, "end"});
        held = Bytes(0);
      }
      held += bytes;
      GradientGroup& group = result.back();
      group.members.insert(group.members.end(), begin, end);
      begin = end;
    }
  }
  for (GradientGroup& group : result) std::ranges::reverse(group.members);
  sort_by_last(result);
  return result;
}

Groups group_by_layer(const Program& program, const std::vector<OwedGradient>& owed) {
  const ParameterNames names(program);
  std::map<std::pair<BucketKey, std::string_view>, std::size_t> known;
  Groups result;
  for (const OwedGradient& gradient : owed) {
    const std::string_view layer = layer_of(names.of(gradient));
    const auto [at, fresh] = known.try_emplace({key_of(program, gradient), layer}, result.size());
    if (fresh) result.push_back({{}, "layer"});
    result[at->second].members.push_back(gradient);
  }
  sort_by_last(result);
  return result;
}

void append_buckets(Schedule& schedule, const Groups& groups, const BucketPlacement& placement) {
  schedule.buckets.reserve(schedule.buckets.size() + groups.size());
  for (const GradientGroup& group : groups) {
    Bucket bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    bucket.gradients = group.slices;
    if (group.slices.empty()) {
      bucket.gradients.reserve(group.members.size());
      for (const OwedGradient& gradient : group.members) {
        bucket.gradients.emplace_back(gradient.tensor);
      }
    }
    bucket.group = group.members.front().group;
    bucket.mode = placement.mode;
    bucket.wait = placement.wait;
    bucket.scope = placement.scope;
    bucket.max_ctas = placement.max_ctas;
    bucket.pad_to = group.pad_to;
    bucket.align_to = group.align_to;
    bucket.closed_by = group.closed_by;
    schedule.buckets.push_back(std::move(bucket));
  }
}

BackwardReaders::BackwardReaders(const Program& program, const std::vector<OwedGradient>& owed) {
  IdTable<TensorId, std::size_t> producer(kNone);
  producer.reserve(program.tensors.size());
  for (const OwedGradient& gradient : owed) producer[gradient.tensor] = gradient.producer_index;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].phase == Phase::Optimizer) continue;
    for (const TensorId id : program.ops[i].reads) {
      // kNone, the largest position, stands for tensors that are no owed gradients.
      if (producer.at(id) >= i || first_.at(id) != kNone) continue;
      first_[id] = i;
      if (!any_) any_ = id;
    }
  }
}

std::optional<std::string> late_for_a_reader(const Program& program,
                                             const std::vector<OwedGradient>& owed,
                                             const BackwardReaders& readers,
                                             const Schedule& schedule) {
  if (!readers.any()) return std::nullopt;
  IdTable<TensorId, std::size_t> producer(0);
  for (const OwedGradient& gradient : owed) producer[gradient.tensor] = gradient.producer_index;
  std::map<std::int32_t, std::size_t> batch_ready;
  const auto ready = [&](const Bucket& bucket) {
    std::size_t last = 0;
    for (const Slice& slice : bucket.gradients) last = std::max(last, producer.at(slice.tensor));
    return last;
  };
  for (const Bucket& bucket : schedule.buckets) {
    if (const auto* in = std::get_if<LaunchInBatch>(&bucket.launch)) {
      batch_ready[in->batch] = std::max(batch_ready[in->batch], ready(bucket));
    }
  }
  std::size_t previous = 0;
  for (const Bucket& bucket : schedule.buckets) {
    const std::size_t launch = visit(
        bucket.launch, [&](const LaunchWhenReady&) { return ready(bucket); },
        [&](const LaunchAfterOp&) { return ready(bucket); },
        [&](const LaunchBeforeOp&) { return ready(bucket); },
        [&](const LaunchAfterBackward&) { return program.ops.size(); },
        [&](const LaunchInBatch& in) { return batch_ready[in.batch]; });
    previous = std::max(previous, launch);
    for (const Slice& slice : bucket.gradients) {
      const std::size_t reader = readers.first(slice.tensor);
      if (reader == BackwardReaders::kNone || reader > previous) continue;
      return "backward op " + program.ops[reader].name + " reads the reduced " +
             program.tensor(slice.tensor).name + ", but bucket " + std::to_string(bucket.id.value) +
             " is launched only later";
    }
  }
  return std::nullopt;
}

}  // namespace dovetail::schedule
