// Layout of buckets and gradients in the workspace; every block starts on a cache line.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/memory.h"

#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

namespace dovetail::exec::cpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLineFloats = 16;  // 64 bytes
constexpr std::int64_t kFloatBytes = 4;

std::size_t floats(Bytes bytes, const std::string& what) {
  if (bytes.count() < 0 || bytes.count() % kFloatBytes != 0) {
    std::ostringstream message;
    message << what << ": " << bytes.count() << " bytes are no whole number of f32 elements";
    throw InputError(message.str());
  }
  return static_cast<std::size_t>(bytes.count() / kFloatBytes);
}

// The buckets that a reduce-scatter or all-gather of the plan touches, with their group's size.
std::map<BucketId, std::int64_t> sharded_buckets(const schedule::ScheduledProgram& plan) {
  std::map<BucketId, std::int64_t> sharded;
  for (const schedule::RankProgram& role : plan.roles) {
    for (const schedule::Command& command : role.commands) {
      const auto* collective = std::get_if<schedule::RunCollective>(&command.action);
      if (collective == nullptr || collective->kind == schedule::Collective::AllReduce) continue;
      sharded[collective->bucket] = plan.program.group(collective->group).size();
    }
  }
  return sharded;
}

}  // namespace

void Floats::reserve(std::size_t count) {
  if (count <= size_) return;
  const std::size_t bytes = (count * sizeof(float) + kPage - 1) / kPage * kPage;
  data_.reset();
  data_.reset(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
  if (data_ == nullptr) {
    std::ostringstream message;
    message << "out of memory: " << Bytes(static_cast<std::int64_t>(bytes))
            << " for the buffers of one rank";
    throw DeviceError(message.str());
  }
  std::memset(data_.get(), 0, bytes);
  size_ = bytes / sizeof(float);
}

GradientMemory::GradientMemory(const schedule::ScheduledProgram& plan,
                               std::shared_ptr<Workspace> workspace)
    : workspace_(std::move(workspace)) {
  std::size_t applied = 0;
  for (const schedule::Tensor& tensor : plan.program.tensors) {
    if (tensor.kind != schedule::TensorKind::Gradient) continue;
    if (tensor.dtype != schedule::DType::F32) {
      throw InputError("the cpu backend executes f32 gradients; " + tensor.name + " is " +
                       std::string(schedule::to_string(tensor.dtype)));
    }
    const auto count = static_cast<std::size_t>(tensor.numel());
    gradients_[tensor.id].own.count = count;
    gradients_[tensor.id].applied = {.offset = applied, .count = count};
    applied += (count + kLineFloats - 1) / kLineFloats * kLineFloats;
  }
  for (const schedule::BucketLayout& layout : plan.buckets) place_bucket(layout, plan.program);
  for (const auto& [id, ranks] : sharded_buckets(plan)) {
    BucketPlace& place = buckets_.at(id);
    const auto parts = static_cast<std::size_t>(ranks);
    if (place.buffer.count % parts != 0) {
      std::ostringstream message;
      message << "bucket " << id << ": " << place.buffer.count
              << " elements cannot be scattered to " << ranks << " ranks; pad it to a multiple of "
              << ranks * kFloatBytes << " bytes";
      throw InputError(message.str());
    }
    place.shard = take(place.buffer.count / parts);
  }
  // View-mode members got their place with their bucket; the others need memory of their own.
  std::map<TensorId, bool> in_view;
  for (const schedule::BucketLayout& layout : plan.buckets) {
    for (const schedule::Placement& member : layout.members) {
      in_view[member.tensor] = layout.mode == schedule::BucketMode::View;
    }
  }
  for (auto& [id, place] : gradients_) {
    const auto found = in_view.find(id);
    const bool view = found != in_view.end() && found->second;
    place.own = view ? *place.window : take(place.own.count);
  }
  workspace_->gradients.reserve(used_);
  workspace_->applied.reserve(applied);
}

void GradientMemory::place_bucket(const schedule::BucketLayout& layout,
                                  const schedule::Program& program) {
  std::ostringstream name;
  name << "bucket " << layout.bucket;
  BucketPlace place;
  place.buffer = take(floats(layout.size, name.str()));
  std::vector<Range> members;
  for (const schedule::Placement& member : layout.members) {
    const schedule::Tensor& tensor = program.tensor(member.tensor);
    if (gradients_.count(member.tensor) == 0) {
      throw InputError(name.str() + ": " + tensor.name + " is not a gradient");
    }
    const Range window = {.offset = place.buffer.offset + floats(member.offset, tensor.name),
                          .count = static_cast<std::size_t>(tensor.numel())};
    if (window.offset + window.count > place.buffer.offset + place.buffer.count) {
      throw InputError(name.str() + ": " + tensor.name + " lies beyond the end of the bucket");
    }
    gradients_[member.tensor].window = window;
    members.push_back(window);
  }
  std::sort(members.begin(), members.end(), [](Range a, Range b) { return a.offset < b.offset; });
  std::size_t end = place.buffer.offset;
  for (const Range member : members) {
    if (member.offset > end) place.padding.push_back({end, member.offset - end});
    end = std::max(end, member.offset + member.count);
  }
  const std::size_t buffer_end = place.buffer.offset + place.buffer.count;
  if (buffer_end > end) place.padding.push_back({end, buffer_end - end});
  buckets_[layout.bucket] = std::move(place);
}

GradientMemory::Range GradientMemory::take(std::size_t count) {
  const Range range = {.offset = used_, .count = count};
  used_ += (count + kLineFloats - 1) / kLineFloats * kLineFloats;
  return range;
}

std::span<float> GradientMemory::at(Range range) const {
  return {workspace_->gradients.data() + range.offset, range.count};
}

std::span<float> GradientMemory::bucket(BucketId id) const { return at(buckets_.at(id).buffer); }

std::span<float> GradientMemory::shard(BucketId id) const { return at(*buckets_.at(id).shard); }

std::span<float> GradientMemory::gradient(TensorId id) const { return at(gradients_.at(id).own); }

std::span<float> GradientMemory::window(TensorId id) const {
  const GradientPlace& place = gradients_.at(id);
  DOVETAIL_CHECK(place.window.has_value()) << "tensor " << id << " is in no bucket";
  return at(*place.window);
}

std::span<float> GradientMemory::applied(TensorId id) const {
  const Range range = gradients_.at(id).applied;
  return {workspace_->applied.data() + range.offset, range.count};
}

void GradientMemory::clear_padding() const {
  for (const auto& [id, place] : buckets_) {
    for (const Range range : place.padding) {
      const std::span<float> padding = at(range);
      std::fill(padding.begin(), padding.end(), 0.0F);
    }
  }
}

}  // namespace dovetail::exec::cpu
