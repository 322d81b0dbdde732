// Cuts a plan's gradients as Megatron does with one bucket size, and writes that size.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/megatron_buckets.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frameworks/python_text.h"
#include "schedule/sharding.h"

namespace dovetail::frameworks {
namespace {

using schedule::Bucket;
using schedule::Program;
using schedule::Schedule;

constexpr std::size_t kMostSizes = 6;  // that are simulated

// A buffer of Megatron's: what may share a bucket.
struct Buffer {
  std::int32_t stage = 0;
  GroupId group;
  schedule::DType dtype = schedule::DType::F32;
  auto operator<=>(const Buffer&) const = default;
};

class Buffers {
 public:
  explicit Buffers(const Program& program) : program_(program) {
    for (const schedule::OwedGradient& owed : schedule::owed_gradients(program)) {
      stages_[owed.tensor] = program.ops[owed.producer_index].stage;
    }
  }

  [[nodiscard]] std::int32_t stage(const Bucket& bucket) const {
    return stages_.at(bucket.gradients.front().tensor);
  }
  [[nodiscard]] Buffer of(const Bucket& bucket, TensorId gradient) const {
    return {stages_.at(gradient), bucket.group, program_.tensor(gradient).dtype};
  }

 private:
  const Program& program_;
  std::map<TensorId, std::int32_t> stages_;
};

std::int64_t elements_of(const Program& program, const Bucket& bucket) {
  std::int64_t elements = 0;
  for (const schedule::Slice& slice : bucket.gradients) {
    elements += slice.elements(program.tensor(slice.tensor));
  }
  return elements;
}

// The plan's gradients in its own order, in Megatron's buckets. REQUIRES: gradients are whole.
std::vector<Bucket> cut(const Program& program, const Schedule& schedule, std::int64_t size) {
  struct Open {
    Bucket bucket;
    std::size_t last = 0;  // the place of its last gradient
  };
  const Buffers buffers(program);
  std::map<Buffer, Open> open;
  std::vector<Open> closed;
  std::size_t place = 0;
  for (const Bucket& bucket : schedule.buckets) {
    for (const schedule::Slice& slice : bucket.gradients) {
      const Buffer buffer = buffers.of(bucket, slice.tensor);
      const auto [at, fresh] = open.try_emplace(buffer, Open{bucket});
      Bucket& filled = at->second.bucket;
      if (fresh) {
        filled.gradients.clear();
        filled.closed_by = "";
      }
      filled.gradients.push_back(slice);
      at->second.last = place++;
      if (buffer.stage > 0 || elements_of(program, filled) < size) continue;
      closed.push_back(std::move(at->second));
      open.erase(at);
    }
  }
  for (auto& [buffer, rest] : open) closed.push_back(std::move(rest));
  std::ranges::sort(closed, {}, &Open::last);
  std::vector<Bucket> buckets;
  for (Open& one : closed) {
    one.bucket.id = BucketId{static_cast<std::int32_t>(buckets.size())};
    buckets.push_back(std::move(one.bucket));
  }
  return buckets;
}

// Sizes of the first stage's buckets, without those that the end of backward closed, from the smallest.
std::vector<std::int64_t> sizes_of(const Program& program, const Schedule& schedule) {
  const Buffers buffers(program);
  std::map<Buffer, std::int64_t> last;
  std::set<std::int64_t> sizes;
  for (const Bucket& bucket : schedule.buckets) {
    const Buffer buffer = buffers.of(bucket, bucket.gradients.front().tensor);
    if (buffer.stage > 0) continue;
    const auto [at, fresh] = last.try_emplace(buffer, 0);
    if (!fresh) sizes.insert(at->second);
    at->second = elements_of(program, bucket);
  }
  if (sizes.empty()) {
    for (const auto& [buffer, size] : last) sizes.insert(size);
  }
  std::vector<std::int64_t> few(sizes.begin(), sizes.end());
  if (few.size() > kMostSizes) few.resize(kMostSizes);
  return few;
}

std::int64_t best_size(const Restriction& left) {
  const std::vector<std::int64_t> sizes = sizes_of(left.program(), left.schedule());
  std::int64_t best = sizes.front();
  std::optional<Duration> shortest;
  for (const std::int64_t size : sizes) {
    Schedule tried = left.schedule();
    tried.buckets = cut(left.program(), tried, size);
    const std::optional<Duration> step = left.step_of(tried);
    if (!step || (shortest && *step >= *shortest)) continue;
    shortest = step;
    best = size;
  }
  return best;
}

std::string stage_line(const Restriction& left, std::int32_t stage) {
  const Buffers buffers(left.program());
  std::int64_t count = 0;
  std::int64_t most = 0;
  for (const Bucket& bucket : left.schedule().buckets) {
    if (buffers.stage(bucket) != stage) continue;
    ++count;
    most = std::max(most, elements_of(left.program(), bucket));
  }
  return "#   stage " + std::to_string(stage) + ": " + std::to_string(count) +
         (count == 1 ? " bucket of " : " buckets of up to ") + std::to_string(most) + " elements\n";
}

}  // namespace

void restrict_to_megatron_buckets(Restriction& left) {
  keep_parameters_whole(left, "Megatron's distributed optimizer",
                        schedule::ParameterSync::NextForward);
  give_up_the_usual(left, "Megatron");
  left.give_up("copies into buckets: Megatron's gradients are views",
               [](Schedule& schedule) { use_mode(schedule, schedule::BucketMode::View); });
  left.give_up("waits at first use: Megatron waits at the end of backward",
               [](Schedule& schedule) { wait_at(schedule, schedule::WaitPoint::EndOfBackward); });
  const std::int64_t size = best_size(left);
  left.give_up(
      "the plan's buckets: Megatron has one size for the first stage and one bucket for "
      "each other",
      [&](Schedule& schedule) { schedule.buckets = cut(left.program(), schedule, size); });
}

Export write_megatron_buckets(const Restriction& left, const Writing& writing) {
  const Program& program = left.program();
  Export result = left.result();
  result.writes = "arguments: bucket size and overlap";
  result.notes = {"model, layout and batch are said by export --job"};
  const schedule::PipelineKind order = result.schedule.pipeline.kind;
  if (splits_backward(order)) {
    result.notes.push_back("given up: the order " + std::string(to_string(order)) +
                           ", its pipelines are 1F1B, with chunks interleaved");
  }
  std::int32_t last = 0;
  for (const schedule::Op& op : program.ops) last = std::max(last, op.stage);
  result.text = head(writing, result);
  for (std::int32_t stage = 0; stage <= last; ++stage) result.text += stage_line(left, stage);
  if (program.stages > 1) {
    result.text += "--pipeline-model-parallel-size " + std::to_string(program.stages) + "\n";
    const std::int32_t chunks = (last + 1) / program.stages;
    if (chunks > 1) {
      result.text += "--num-virtual-stages-per-pipeline-rank " + std::to_string(chunks) + "\n";
    }
  }
  if (is_sharded(result.schedule)) {
    result.text += "--use-distributed-optimizer\n";
    const std::optional<GroupId> replicas = result.schedule.buckets.front().replicas;
    if (replicas) {
      result.text += "--num-distributed-optimizer-instances " +
                     std::to_string(program.group(*replicas).size()) + "\n";
    }
  }
  result.text += "--overlap-grad-reduce\n";
  if (result.schedule.parameters == schedule::ParameterSync::NextForward) {
    result.text += "--overlap-param-gather\n";
  }
  const std::vector<std::int64_t> sizes = sizes_of(program, result.schedule);
  result.text += "--ddp-bucket-size " + std::to_string(sizes.front()) + "\n";
  result.paste = "pretrain_gpt.py ... $(grep -v '^#' FILE)";
  return result;
}

}  // namespace dovetail::frameworks
