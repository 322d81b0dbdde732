// Lays out the buckets and tensors of a rank in one block of memory: a member of a bucket in view
// mode is a window of it, all else has memory of its own. Every block starts on a cache line.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/tensor_memory.h"

#include "base/error.h"
#include "exec/rank_work.h"
#include "exec/values/op_message.h"
#include "schedule/gradient.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::exec::cpu {
namespace {

constexpr std::size_t kPageFloats = 1024;
constexpr std::int64_t kFloatBytes = 4;

std::size_t floats(Bytes bytes, const std::string& what) {
  if (bytes.count() < 0 || bytes.count() % kFloatBytes != 0) {
    std::ostringstream message;
    message << what << ": " << bytes.count() << " bytes are no whole number of f32 elements";
    throw InputError(message.str());
  }
  return static_cast<std::size_t>(bytes.count() / kFloatBytes);
}

std::string bucket_label(BucketId id) {
  std::ostringstream name;
  name << "bucket " << id;
  return name.str();
}

}  // namespace

TensorMemory::TensorMemory(const schedule::ScheduledProgram& plan, const Options& options)
    : workspace_(options.scope == TensorScope::All ? std::make_shared<Workspace>()
                                                   : options.workspace) {
  place_buckets(plan, options.rank);
  place_tensors(plan, options);
  workspace_->tensors.reserve(used_);
}

void TensorMemory::place_buckets(const schedule::ScheduledProgram& plan, Rank rank) {
  const std::set<BucketId> used = work_of(plan, rank).buckets;
  for (const schedule::BucketLayout& layout : plan.buckets) {
    if (used.count(layout.bucket) == 0) continue;
    place_bucket(layout, plan.program);
    buckets_.at(layout.bucket).cut = cut_of(plan.program, layout, rank);
  }
}

void TensorMemory::place_bucket(const schedule::BucketLayout& layout,
                                const schedule::Program& program) {
  const std::string name = bucket_label(layout.bucket);
  BucketPlace place;
  place.buffer = take(floats(layout.size, name));
  place.is_released = layout.residence == schedule::Residence::Shard;
  place.is_copied = layout.mode == schedule::BucketMode::Copy;
  for (const schedule::BucketMember& member : layout.members) {
    const schedule::Tensor& tensor = program.tensor(member.tensor);
    if (tensor.dtype != schedule::DType::F32) {
      throw InputError("the cpu backend executes f32 gradients; " + tensor.name + " is " +
                       std::string(schedule::to_string(tensor.dtype)));
    }
    const auto first = static_cast<std::size_t>(member.first);
    const Range window = {.offset = place.buffer.offset + floats(member.offset, tensor.name),
                          .count = static_cast<std::size_t>(member.elements(tensor))};
    if (window.offset + window.count > place.buffer.offset + place.buffer.count) {
      throw InputError(name + ": " + tensor.name + " lies beyond the end of the bucket");
    }
    if (first + window.count > static_cast<std::size_t>(tensor.numel())) {
      throw InputError(name + ": " + tensor.name + " has no elements so far");
    }
    place.members.push_back({.tensor = tensor.id, .first = first, .window = window});
    if (layout.mode != schedule::BucketMode::View) continue;
    if (window.count != static_cast<std::size_t>(tensor.numel())) {
      throw InputError(name + ": a part of " + tensor.name + " cannot be written in place");
    }
    windows_[tensor.id] = window;
  }
  // What no member covers is padding. It travels too, so it must not grow from step to step (clear_padding).
  std::vector<Range> windows;
  for (const Member& member : place.members) windows.push_back(member.window);
  std::sort(windows.begin(), windows.end(), [](Range a, Range b) { return a.offset < b.offset; });
  std::size_t end = place.buffer.offset;
  for (const Range window : windows) {
    if (window.offset > end) place.padding.push_back({end, window.offset - end});
    end = std::max(end, window.offset + window.count);
  }
  const std::size_t buffer_end = place.buffer.offset + place.buffer.count;
  if (buffer_end > end) place.padding.push_back({end, buffer_end - end});
  buckets_[layout.bucket] = std::move(place);
}

void TensorMemory::place_tensors(const schedule::ScheduledProgram& plan, const Options& options) {
  const schedule::Program& program = plan.program;
  const auto want = [&](TensorId id) {
    const schedule::Tensor& tensor = program.tensor(id);
    if (schedule::is_gradient(tensor.kind) || options.scope == TensorScope::All)
      place_tensor(tensor);
  };
  for (const schedule::Op* op : work_of(plan, options.rank).ops) {
    for (const TensorId id : op->reads) want(id);
    for (const TensorId id : op->writes) want(id);
    if (std::holds_alternative<schedule::CollectiveWork>(op->work)) {
      const values::OpMessage message = values::message_of(program, *op);
      if (message.source) place_tensor(program.tensor(*message.source));
      if (message.target) place_tensor(program.tensor(*message.target));
      if (message.scratch > 0) scratch_[op->id] = take(message.scratch);
    }
    if (std::holds_alternative<schedule::GlobalNorm>(op->effect) && !op->writes.empty()) {
      place_tensor(program.tensor(op->writes[0]));
    }
  }
  for (const auto& [id, place] : buckets_) {
    for (const Member& member : place.members) place_tensor(program.tensor(member.tensor));
  }
}

void TensorMemory::place_tensor(const schedule::Tensor& tensor) {
  if (has(tensor.id)) return;
  if (tensor.dtype != schedule::DType::F32) {
    if (!schedule::is_gradient(tensor.kind)) return;
    throw InputError("the cpu backend executes f32 gradients; " + tensor.name + " is " +
                     std::string(schedule::to_string(tensor.dtype)));
  }
  const auto window = windows_.find(tensor.id);
  tensors_[tensor.id] =
      window != windows_.end() ? window->second : take(static_cast<std::size_t>(tensor.numel()));
}

TensorMemory::Range TensorMemory::take(std::size_t count) {
  const Range range = {.offset = used_, .count = count};
  used_ += (count + kLineFloats - 1) / kLineFloats * kLineFloats;
  return range;
}

std::span<float> TensorMemory::at(Range range) const {
  return {workspace_->tensors.data() + range.offset, range.count};
}

const TensorMemory::BucketPlace& TensorMemory::place_of(BucketId id) const {
  const auto found = buckets_.find(id);
  DOVETAIL_CHECK(found != buckets_.end()) << "bucket " << id << " is not of this rank";
  return found->second;
}

std::span<float> TensorMemory::tensor(TensorId id) const {
  const auto found = tensors_.find(id);
  DOVETAIL_CHECK(found != tensors_.end()) << "tensor " << id << " has no memory";
  return at(found->second);
}

std::span<float> TensorMemory::bucket(BucketId id) const { return at(place_of(id).buffer); }

TensorRange TensorMemory::packed(BucketId id, TensorId tensor) const {
  for (const Member& member : place_of(id).members) {
    if (member.tensor != tensor) continue;
    return {.tensor = tensor, .first = member.first, .data = at(member.window)};
  }
  DOVETAIL_CHECK(false) << "tensor " << tensor << " is not in bucket " << id;
  return {};
}

std::vector<TensorRange> TensorMemory::members(BucketId id) const {
  std::vector<TensorRange> ranges;
  for (const Member& member : place_of(id).members) {
    ranges.push_back({.tensor = member.tensor, .first = member.first, .data = at(member.window)});
  }
  return ranges;
}

std::size_t TensorMemory::shards(BucketId id) const {
  return static_cast<std::size_t>(place_of(id).cut.shards);
}

std::size_t TensorMemory::shard_index(BucketId id) const {
  return static_cast<std::size_t>(place_of(id).cut.index);
}

TensorMemory::Range TensorMemory::shard_range(const BucketPlace& place) {
  const std::size_t count = place.buffer.count / static_cast<std::size_t>(place.cut.shards);
  return {.offset = place.buffer.offset + static_cast<std::size_t>(place.cut.index) * count,
          .count = count};
}

std::span<float> TensorMemory::shard(BucketId id) const { return at(shard_range(place_of(id))); }

std::vector<TensorRange> TensorMemory::shard_members(BucketId id) const {
  const BucketPlace& place = place_of(id);
  const auto [begin, count] = shard_range(place);
  const std::size_t end = begin + count;
  std::vector<TensorRange> ranges;
  for (const Member& member : place.members) {
    const Range& window = member.window;
    const std::size_t first = std::clamp(begin, window.offset, window.offset + window.count);
    const std::size_t last = std::clamp(end, window.offset, window.offset + window.count);
    ranges.push_back({.tensor = member.tensor,
                      .first = member.first + (first - window.offset),
                      .data = at({.offset = first, .count = last - first})});
  }
  return ranges;
}

void TensorMemory::release(BucketId id) const {
  const BucketPlace& place = place_of(id);
  if (!place.is_released) return;
  const auto spoil = [](std::span<float> data) {
    for (std::size_t i = 0; i < data.size(); i += kPageFloats) data[i] = std::nanf("");
  };
  const std::span<float> all = at(place.buffer);
  const Range own = shard_range(place);
  const std::size_t begin = own.offset - place.buffer.offset;
  for (const Member& member : place.members) {
    // What of the member lies before and behind this rank's shard.
    const std::size_t first = member.window.offset - place.buffer.offset;
    const std::size_t last = first + member.window.count;
    const std::size_t before = std::clamp(begin, first, last);
    const std::size_t behind = std::clamp(begin + own.count, first, last);
    spoil(all.subspan(first, before - first));
    spoil(all.subspan(behind, last - behind));
    if (place.is_copied) spoil(tensor(member.tensor).subspan(member.first, member.window.count));
  }
}

std::span<float> TensorMemory::scratch(OpId id) const {
  const auto found = scratch_.find(id);
  return found == scratch_.end() ? std::span<float>() : at(found->second);
}

void TensorMemory::clear_padding() const {
  for (const auto& [id, place] : buckets_) {
    for (const Range range : place.padding) {
      const std::span<float> padding = at(range);
      std::fill(padding.begin(), padding.end(), 0.0F);
    }
  }
}

}  // namespace dovetail::exec::cpu
