// Scales the work of an op down to a part of its elements.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/shard_work.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

std::int64_t part_of(std::int64_t value, Share share) {
  return std::llround(static_cast<double>(value) * static_cast<double>(share.part) /
                      static_cast<double>(share.whole));
}

bool add_times(TimedWork& total, const TimedWork& work, Share share) {
  // One entry stands for all ranks.
  const std::size_t ranks = std::max(total.by_rank.size(), work.by_rank.size());
  if (total.by_rank.size() == 1) total.by_rank.resize(ranks, total.by_rank.front());
  if (work.by_rank.size() != 1 && work.by_rank.size() != ranks) return false;
  for (std::size_t i = 0; i < ranks; ++i) {
    const Duration time = work.by_rank[work.by_rank.size() == 1 ? 0 : i];
    total.by_rank[i] += Duration(part_of(time.count(), share));
  }
  return true;
}

}  // namespace

// Repetitions are summed in fractions and rounded as a whole.
bool WorkSum::add_product(const GemmWork& work, Share share) {
  GemmWork once = work;
  once.count = 1;
  if (empty_) total_ = once;
  auto* total = std::get_if<GemmWork>(&total_);
  if (total == nullptr) return false;
  once.count = total->count;
  if (*total != once) return false;
  empty_ = false;
  repetitions_ += static_cast<double>(work.count) * static_cast<double>(share.part) /
                  static_cast<double>(share.whole);
  total->count = std::max<std::int64_t>(1, std::llround(repetitions_));
  return true;
}

// Each tensor's kernels run over its part of it.
bool WorkSum::add_kernels(const KernelsWork& work, Share share) {
  if (!empty_ && !std::holds_alternative<KernelsWork>(total_)) return false;
  std::vector<Kernel> all;
  if (!empty_) {
    const SharedList<Kernel>& before = std::get<KernelsWork>(total_).kernels;
    all.assign(before.begin(), before.end());
  }
  for (const Kernel& kernel : work.kernels) {
    const auto* memory = std::get_if<MemoryWork>(&kernel);
    if (memory == nullptr) return false;
    MemoryWork part = *memory;
    part.bytes = Bytes(part_of(memory->bytes.count(), share));
    part.flop = Flop(memory->flop.count() * static_cast<double>(share.part) /
                     static_cast<double>(share.whole));
    all.emplace_back(part);
  }
  total_ = KernelsWork{std::move(all)};
  empty_ = false;
  return true;
}

bool WorkSum::add(const Work& work, Share share) {
  if (const auto* product = std::get_if<GemmWork>(&work)) return add_product(*product, share);
  if (const auto* kernels = std::get_if<KernelsWork>(&work)) return add_kernels(*kernels, share);
  const auto* memory = std::get_if<MemoryWork>(&work);
  const auto* timed = std::get_if<TimedWork>(&work);
  if (memory == nullptr && timed == nullptr) return false;
  if (empty_ && timed != nullptr) total_ = TimedWork{.by_rank = {Duration{}}};
  if (empty_ && memory != nullptr)
    total_ =
        MemoryWork{.bytes = {}, .flop = {}, .access = memory->access, .columns = memory->columns};
  empty_ = false;
  if (timed != nullptr) {
    auto* total = std::get_if<TimedWork>(&total_);
    return total != nullptr && add_times(*total, *timed, share);
  }
  auto* total = std::get_if<MemoryWork>(&total_);
  if (total == nullptr) return false;
  if (total->access != memory->access) total->access = Access::Any;
  const double fraction = static_cast<double>(share.part) / static_cast<double>(share.whole);
  total->bytes += Bytes(part_of(memory->bytes.count(), share));
  total->flop += Flop(memory->flop.count() * fraction);
  return true;
}

}  // namespace dovetail::schedule
