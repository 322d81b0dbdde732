// Sums, zeros and norms of gradients in device memory, as the effects of ops declare them.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/ops/effects.h"

#include "base/error.h"
#include "schedule/gradient.h"

namespace dovetail::exec {

Effects::Effects(const schedule::Program& program, DeviceMemory& memory)
    : program_(program),
      memory_(memory),
      squares_(memory.device().allocate(Bytes((kSquareBlocks + 1) * 8), "sums of squares")) {
  const Layout& layout = memory.layout();
  for (const BucketId bucket : layout.bucket_ids()) {
    for (const MemberRegion& member : layout.shard_members(bucket)) {
      in_buckets_[member.tensor].push_back(member);
      if (layout.shards(bucket) > 1) cut_.insert(member.tensor);
    }
  }
}

std::int64_t Effects::shard_bytes(TensorId tensor) const {
  std::int64_t bytes = 0;
  for (const MemberRegion& member : in_buckets_.at(tensor)) bytes += member.region.bytes();
  return bytes;
}

void Effects::zero_fill(const schedule::Op& op, DeviceStream stream) const {
  for (const TensorId id : op.writes) {
    if (memory_.layout().has(id)) memory_.device().zero(memory_.tensor(id), stream);
  }
}

void Effects::accumulate(const schedule::Op& op, const schedule::Accumulate& sum,
                         DeviceStream stream) const {
  const TensorId target = op.writes.at(0);
  if (!memory_.layout().has(target)) return;
  if (sum.shard) return accumulate_shards(op, sum, stream);
  const Array out = memory_.tensor(target);
  for (const TensorId id : op.reads) {
    if (id == target || !memory_.layout().has(id)) continue;
    const Array summand = memory_.tensor(id);
    DOVETAIL_CHECK(summand.count == out.count) << op.name;
    memory_.device().accumulate(summand, out, sum.factor.value(),
                                sum.overwrite ? Onto::Nothing : Onto::Old, stream);
  }
}

// What the rank's parts of buckets hold of both: the i-th ranges belong together.
void Effects::accumulate_shards(const schedule::Op& op, const schedule::Accumulate& sum,
                                DeviceStream stream) const {
  const std::vector<MemberRegion>& out = in_buckets_.at(op.writes.at(0));
  for (const TensorId id : op.reads) {
    if (id == op.writes.at(0)) continue;
    const std::vector<MemberRegion>& summands = in_buckets_.at(id);
    DOVETAIL_CHECK(summands.size() == out.size()) << op.name;
    for (std::size_t i = 0; i < out.size(); ++i) {
      DOVETAIL_CHECK(summands[i].region.count == out[i].region.count) << op.name;
      if (out[i].region.count == 0) continue;
      memory_.device().accumulate(memory_.at(summands[i].region), memory_.at(out[i].region),
                                  sum.factor.value(), sum.overwrite ? Onto::Nothing : Onto::Old,
                                  stream);
    }
  }
}

// What this rank holds of a gradient: all, or its parts of the buckets that hold slices of it. A
// stand-in has no shards.
std::vector<Region> Effects::parts_of(TensorId tensor, const schedule::GlobalNorm& norm) const {
  std::vector<Region> parts;
  if (norm.shard && cut_.contains(tensor)) {
    for (const MemberRegion& member : in_buckets_.at(tensor)) parts.push_back(member.region);
  }
  if (parts.empty()) parts.push_back(memory_.layout().tensor(tensor));
  return parts;
}

void Effects::global_norm(const schedule::Op& op, const schedule::GlobalNorm& norm,
                          DeviceStream stream) const {
  if (op.writes.empty() || !memory_.layout().has(op.writes[0])) return;
  std::vector<Region> parts;
  for (const TensorId id : op.reads) {
    if (!memory_.layout().has(id) || !schedule::is_gradient(program_.tensor(id).kind)) continue;
    for (const Region& part : parts_of(id, norm)) parts.push_back(part);
  }
  memory_.device().store_number(sum_of_squares(parts, norm.rescale.value(), stream),
                                memory_.tensor(op.writes[0]), stream);
}

const double* Effects::sum_of_squares(const std::vector<Region>& parts, double factor,
                                      DeviceStream stream) const {
  auto* partial = squares_.as<double>();
  const SquareSum sum = {.partial = partial, .total = partial + kSquareBlocks};
  memory_.device().zero({.data = sum.total, .count = 1, .element = Element::F64}, stream);
  for (const Region& part : parts) {
    memory_.device().add_squares(memory_.at(part), factor, sum, stream);
  }
  return sum.total;
}

}  // namespace dovetail::exec
