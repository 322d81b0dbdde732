// Finds which shard of a bucket a rank owns: its position in its own instance of the process
// group.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/shard_cut.h"

#include <algorithm>
#include <span>
#include <sstream>

#include "base/error.h"

namespace dovetail::exec {

ShardCut cut_of(const schedule::Program& program, const schedule::BucketLayout& layout, Rank rank) {
  if (!layout.cut_over) return {};
  const schedule::ProcessGroup& group = program.group(*layout.cut_over);
  const std::span<const Rank> instance = group.instance_of(rank);
  const auto found = std::find(instance.begin(), instance.end(), rank);
  std::ostringstream message;
  message << "bucket " << layout.bucket << ": ";
  if (found == instance.end()) {
    message << "rank " << rank << " is not in group " << group.name;
    throw InputError(message.str());
  }
  const auto shards = static_cast<std::int64_t>(instance.size());
  const std::int64_t unit = shards * schedule::element_size(layout.dtype).count();
  if (layout.size.count() % unit != 0) {
    message << layout.size << " cannot be scattered to " << shards
            << " ranks; pad it to a multiple of " << unit << " bytes";
    throw InputError(message.str());
  }
  return {.shards = shards, .index = found - instance.begin()};
}

}  // namespace dovetail::exec
