// Lays out the buckets, tensors and scratch memory of a rank, block after block, as offsets into
// one allocation: no device is touched, so it is tested anywhere.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/device/layout.h"

#include "base/error.h"
#include "exec/rank_work.h"
#include "exec/values/op_message.h"
#include "schedule/gradient.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::exec {
namespace {

std::string bucket_name(BucketId id) {
  std::ostringstream name;
  name << "bucket " << id;
  return name.str();
}

std::int64_t elements(Bytes bytes, Element element, const std::string& what) {
  if (bytes.count() >= 0 && bytes.count() % size_of(element) == 0) {
    return bytes.count() / size_of(element);
  }
  std::ostringstream message;
  message << what << ": " << bytes.count() << " bytes are no whole number of "
          << schedule::to_string(dtype_of(element)) << " elements";
  throw InputError(message.str());
}

}  // namespace

Element element_of(schedule::DType dtype) {
  switch (dtype) {
    case schedule::DType::F32:
      return Element::F32;
    case schedule::DType::F16:
      return Element::F16;
    case schedule::DType::BF16:
      return Element::BF16;
    case schedule::DType::F64:
      return Element::F64;
  }
  return Element::F32;
}

schedule::DType dtype_of(Element element) {
  switch (element) {
    case Element::F32:
      return schedule::DType::F32;
    case Element::F16:
      return schedule::DType::F16;
    case Element::BF16:
      return schedule::DType::BF16;
    case Element::F64:
      return schedule::DType::F64;
  }
  return schedule::DType::F32;
}

// Buckets first: a tensor that is a window of one gets no memory of its own.
Layout::Layout(const schedule::ScheduledProgram& plan, Rank rank, Scope scope) {
  place_buckets(plan, rank);
  place_tensors(plan, rank, scope);
}

void Layout::place_buckets(const schedule::ScheduledProgram& plan, Rank rank) {
  const std::set<BucketId> used = work_of(plan, rank).buckets;
  for (const schedule::BucketLayout& layout : plan.buckets) {
    if (used.count(layout.bucket) == 0) continue;
    place_bucket(layout, plan.program);
    buckets_.at(layout.bucket).cut = cut_of(plan.program, layout, rank);
  }
}

void Layout::place_bucket(const schedule::BucketLayout& layout, const schedule::Program& program) {
  const std::string name = bucket_name(layout.bucket);
  const Element element = element_of(layout.dtype);
  Place place;
  place.buffer = take(elements(layout.size, element, name), element);
  place.is_released = layout.residence == schedule::Residence::Shard;
  place.is_copied = layout.mode == schedule::BucketMode::Copy;
  for (const schedule::BucketMember& member : layout.members) {
    const schedule::Tensor& tensor = program.tensor(member.tensor);
    if (tensor.dtype != layout.dtype) {
      throw InputError(name + " holds " + std::string(schedule::to_string(layout.dtype)) +
                       ", but " + tensor.name + " is " +
                       std::string(schedule::to_string(tensor.dtype)));
    }
    const std::int64_t begin = elements(member.offset, element, tensor.name);
    const Region window = {.offset = place.buffer.offset + begin * size_of(element),
                           .count = member.elements(tensor),
                           .element = element};
    if (begin + window.count > place.buffer.count) {
      throw InputError(name + ": " + tensor.name + " lies beyond the end of the bucket");
    }
    if (member.first + window.count > tensor.numel()) {
      throw InputError(name + ": " + tensor.name + " has no elements so far");
    }
    place.members.push_back({.tensor = tensor.id, .first = member.first, .region = window});
    if (layout.mode != schedule::BucketMode::View) continue;
    if (window.count != tensor.numel()) {
      throw InputError(name + ": a part of " + tensor.name + " cannot be written in place");
    }
    windows_[tensor.id] = window;
  }
  buckets_[layout.bucket] = std::move(place);
}

// Gradients always; other tensors where ops really compute with them, or where they travel.
void Layout::place_tensors(const schedule::ScheduledProgram& plan, Rank rank, Scope scope) {
  const schedule::Program& program = plan.program;
  const auto want = [&](TensorId id) {
    const schedule::Tensor& tensor = program.tensor(id);
    if (schedule::is_gradient(tensor.kind) || scope == Scope::All) place_tensor(tensor);
  };
  for (const schedule::Op* op : work_of(plan, rank).ops) {
    for (const TensorId id : op->reads) want(id);
    for (const TensorId id : op->writes) want(id);
    if (std::holds_alternative<schedule::CollectiveWork>(op->work)) {
      const values::OpMessage message = values::message_of(program, *op);
      if (message.source) place_tensor(program.tensor(*message.source));
      if (message.target) place_tensor(program.tensor(*message.target));
      if (message.scratch > 0) {
        scratch_[op->id] = take(static_cast<std::int64_t>(message.scratch), Element::F32);
      }
    }
    if (std::holds_alternative<schedule::GlobalNorm>(op->effect) && !op->writes.empty()) {
      place_tensor(program.tensor(op->writes[0]));
    }
  }
  for (const auto& [id, place] : buckets_) {
    for (const MemberRegion& member : place.members) place_tensor(program.tensor(member.tensor));
  }
}

void Layout::place_tensor(const schedule::Tensor& tensor) {
  if (has(tensor.id)) return;
  const auto window = windows_.find(tensor.id);
  tensors_[tensor.id] =
      window != windows_.end() ? window->second : take(tensor.numel(), element_of(tensor.dtype));
}

Region Layout::take(std::int64_t count, Element element) {
  const Region region = {.offset = used_, .count = count, .element = element};
  used_ += (region.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  return region;
}

const Layout::Place& Layout::place_of(BucketId id) const {
  const auto found = buckets_.find(id);
  DOVETAIL_CHECK(found != buckets_.end()) << "bucket " << id << " is not of this rank";
  return found->second;
}

Region Layout::tensor(TensorId id) const {
  const auto found = tensors_.find(id);
  DOVETAIL_CHECK(found != tensors_.end()) << "tensor " << id << " has no memory";
  return found->second;
}

Region Layout::bucket(BucketId id) const { return place_of(id).buffer; }

std::vector<MemberRegion> Layout::members(BucketId id) const { return place_of(id).members; }

std::int64_t Layout::shards(BucketId id) const { return place_of(id).cut.shards; }

std::int64_t Layout::shard_index(BucketId id) const { return place_of(id).cut.index; }

Region Layout::shard(BucketId id) const {
  const Place& place = place_of(id);
  Region shard = place.buffer;
  shard.count = place.buffer.count / place.cut.shards;
  shard.offset += place.cut.index * shard.bytes();
  return shard;
}

Region Layout::part_of(const MemberRegion& member) const {
  Region own = tensor(member.tensor);
  own.offset += member.first * size_of(own.element);
  own.count = member.region.count;
  return own;
}

// What of each member lies in this rank's shard; empty for members beside it, so that the order stays that of members().
std::vector<MemberRegion> Layout::shard_members(BucketId id) const {
  const Region shard_region = shard(id);
  const std::int64_t size = size_of(shard_region.element);
  std::vector<MemberRegion> regions;
  for (const MemberRegion& member : place_of(id).members) {
    const std::int64_t begin = member.region.offset;
    const std::int64_t end = begin + member.region.bytes();
    const std::int64_t first = std::clamp(shard_region.offset, begin, end);
    const std::int64_t last = std::clamp(shard_region.offset + shard_region.bytes(), begin, end);
    regions.push_back(
        {.tensor = member.tensor,
         .first = member.first + (first - begin) / size,
         .region = {
             .offset = first, .count = (last - first) / size, .element = shard_region.element}});
  }
  return regions;
}

std::vector<Region> Layout::released(BucketId id) const {
  const Place& place = place_of(id);
  std::vector<Region> freed;
  if (!place.is_released) return freed;
  const auto add = [&](const Region& of, std::int64_t first, std::int64_t last) {
    if (first >= last) return;
    const std::int64_t size = size_of(of.element);
    freed.push_back({.offset = first, .count = (last - first) / size, .element = of.element});
  };
  const Region own = shard(id);
  for (const MemberRegion& member : place.members) {
    const std::int64_t begin = member.region.offset;
    const std::int64_t end = begin + member.region.bytes();
    add(member.region, begin, std::clamp(own.offset, begin, end));
    add(member.region, std::clamp(own.offset + own.bytes(), begin, end), end);
    if (!place.is_copied) continue;
    Region copy = tensor(member.tensor);
    copy.offset += member.first * size_of(copy.element);
    copy.count = member.region.count;
    freed.push_back(copy);
  }
  return freed;
}

Region Layout::scratch(OpId id) const {
  const auto found = scratch_.find(id);
  return found == scratch_.end() ? Region() : found->second;
}

std::vector<Region> Layout::padding() const {
  std::vector<Region> gaps;
  for (const auto& [id, place] : buckets_) {
    std::vector<Region> windows;
    for (const MemberRegion& member : place.members) windows.push_back(member.region);
    std::sort(windows.begin(), windows.end(),
              [](const Region& a, const Region& b) { return a.offset < b.offset; });
    std::int64_t end = place.buffer.offset;
    const Element element = place.buffer.element;
    const auto gap = [&](std::int64_t until) {
      if (until <= end) return;
      gaps.push_back(
          {.offset = end, .count = (until - end) / size_of(element), .element = element});
    };
    for (const Region& window : windows) {
      gap(window.offset);
      end = std::max(end, window.offset + window.bytes());
    }
    gap(place.buffer.offset + place.buffer.bytes());
  }
  return gaps;
}

std::vector<BucketId> Layout::bucket_ids() const {
  std::vector<BucketId> ids;
  for (const auto& entry : buckets_) ids.push_back(entry.first);
  return ids;
}

}  // namespace dovetail::exec
