// What a StepModel knows, as flat arrays: the rewritten Program's ops, its gradients, the machine.
//
// Times are in ns, work of the compute stream includes the launch gap. Positions are those of ops in the
// rewritten Program (with micro-steps: unrolled).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "models/costs.h"
#include "schedule/id_table.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "search/issued_runs.h"
#include "search/step_model.h"
#include "sim/rates.h"

namespace dovetail::search {

using sim::kFractionBits;
using sim::kFullRate;
inline constexpr std::int64_t kLargestWork = (std::int64_t{1} << (62 - kFractionBits)) - 1;
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int32_t kBehindAllOps = std::numeric_limits<std::int32_t>::max();

// Whether a walk keeps the way there, so that changes of the candidate can start within it.
enum class Keep { No, Yes };

// How long `left` lasts at a rate, rounded up.
inline std::int64_t lasts(std::int64_t left, std::int64_t rate) {
  if (rate == kFullRate) return (left + kFullRate - 1) >> kFractionBits;
  return (left + rate - 1) / rate;
}

// How fast an op of each class goes.
struct Rate {
  std::int64_t rate = kFullRate;
  double inverse = 1.0 / static_cast<double>(kFullRate);

  constexpr Rate() = default;
  explicit constexpr Rate(std::int64_t of) : rate(of), inverse(1.0 / static_cast<double>(of)) {}

  // How long `left`, in 2^-20 ns, lasts, rounded up to ns. The estimate is at most an eighth off, so
  // counting up from it finds the exact one. REQUIRES: rate >= 2^14 (sim::Taken::left).
  [[nodiscard]] std::int64_t lasts(std::int64_t left) const {
    auto found = static_cast<std::int64_t>(static_cast<double>(left) * inverse);
    while (found * rate < left) ++found;
    return found;
  }
};

// The compute stream of a whole step with no waits on it: its ops, in copy mode each with one pack of
// all that it produces.
struct NodeTable {
  bool known = false;  // the machine has a time for it
  std::vector<std::int64_t> work;
  std::vector<std::int64_t> rate;  // beside a transfer
  std::vector<std::int64_t> full;  // [j]: nodes 0 .. j-1 with no transfer in flight; one more entry
  std::vector<std::int64_t> beside;  // ... each beside a transfer from begin to end
  std::vector<std::int32_t> of_op;   // [i]: node of op i; one more entry
};

// What a bucket costs, whatever its place.
struct BucketPrice {
  std::int32_t begin = -1;
  std::int32_t end = -1;
  std::int64_t isolated = 0;
  std::int64_t back_to_back = 0;
  std::int64_t scale = 0;   // of its Scale command, if there is one
  std::int64_t unpack = 0;  // both include the launch gap

  // As CollectiveNode::duration.
  [[nodiscard]] std::int64_t duration(std::int64_t gap) const {
    if (isolated < back_to_back) return std::max(isolated, back_to_back - gap);
    return std::min(isolated, back_to_back + gap);
  }
};

struct StepData {
  models::Costs costs;
  schedule::Schedule frame;  // without buckets
  schedule::Bucket bucket;   // the frame's first, without gradients
  schedule::ProcessGroup group;

  // The host. Inline: it issues in its own time, and commands start when the stream gets there.
  bool inline_host = true;
  std::int64_t collective = 0, event = 0, copy = 0;  // to issue
  std::int64_t latency = 0;                          // issue to start, less the gap
  std::int64_t gap = 0;
  std::int64_t enqueue = 0;  // of an inline host, on the compute stream
  std::int64_t wake_up = 0;

  // What is in flight together (sim/rates.h). `beside`: compute beside one transfer, by class of kernel,
  // where transfers take no processor time.
  models::Contention contention;
  std::array<Rate, 3> beside{};
  std::int64_t slowed = kFullRate;   // a transfer that is alone on its links, beside compute
  std::int64_t wire_latency = 0;     // of the all-reduce, as far as links are shared
  std::vector<sim::Demand> demands;  // of one transfer; none: streams share no link
  std::size_t resources = 0;

  bool scales_before = false;  // a Scale command on the compute stream, or behind the collective
  bool scales_after = false;

  std::vector<std::int64_t> work;  // of ops
  std::vector<models::KernelClass> kernel;
  std::vector<std::int64_t> issue;  // host time
  std::int64_t issue_sum = 0;
  std::vector<OpId> ids;
  std::int32_t backward_end = 0;
  std::int32_t after_backward = 0;  // the op behind it, or kBehindAllOps
  std::int32_t earliest_launch = 0;
  NodeTable view, packed;
  IssuedRuns full_runs, beside_runs;  // as in `view`, where the host issues

  // Gradients, in ready order.
  std::vector<TensorId> tensors;    // of the Program that the user gave
  std::vector<std::int32_t> ready;  // never falls
  std::vector<std::int32_t> first_use;
  bool uses_rise = true;                 // first_use never falls
  std::vector<std::int64_t> bytes;       // as they travel
  std::vector<std::int64_t> bytes_sum;   // [i]: of 0 .. i-1
  std::vector<std::int64_t> spaced_sum;  // the same with each rounded up to the alignment
  std::vector<std::int32_t> producers;   // [i]: different ones among gradients 0 .. i-1
  schedule::IdTable<TensorId, std::int32_t> position{-1};

  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(ready.size()); }
  [[nodiscard]] std::int32_t ops() const { return static_cast<std::int32_t>(work.size()); }
  [[nodiscard]] std::int32_t use_of(std::int32_t begin, std::int32_t end) const {
    if (uses_rise) return first_use[begin];
    return *std::min_element(first_use.begin() + begin, first_use.begin() + end);
  }
  // After which op the bucket is issued, given the one before it in the list.
  [[nodiscard]] std::int32_t launch_of(const BucketChoice& choice, std::int32_t previous) const {
    return std::max({ready[choice.end - 1], choice.launch, earliest_launch, previous});
  }
  // Before which op the compute stream waits for it.
  [[nodiscard]] std::int32_t wait_of(const BucketChoice& choice) const {
    const std::int32_t use = use_of(choice.begin, choice.end);
    return choice.wait == schedule::WaitPoint::FirstUse ? use : std::min(use, after_backward);
  }
  [[nodiscard]] std::int64_t beside_of(models::KernelClass of) const {
    return beside[static_cast<std::size_t>(of)].rate;
  }
  // With the launch gap. REQUIRES: the machine can copy.
  [[nodiscard]] std::int64_t copy_work(std::int64_t moved) const {
    const std::int64_t fixed = inline_host ? copy : 0;
    return costs.copy(Bytes(moved)).count() + fixed + gap;
  }
  // Asks Costs.
  [[nodiscard]] BucketPrice price(std::int32_t begin, std::int32_t end) const;
};

// Prices of buckets, kept in a table with one entry per hash: the second asking is a comparison.
class PriceMemo {
 public:
  explicit PriceMemo(const StepData& data) : data_(data), entries_(kEntries) {}
  const BucketPrice& of(std::int32_t begin, std::int32_t end) {
    const std::uint64_t key =
        static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint32_t>(end);
    BucketPrice& entry = entries_[key * 0x9E3779B97F4A7C15ULL >> (64 - kBits)];
    if (entry.begin != begin || entry.end != end) [[unlikely]]
      entry = data_.price(begin, end);
    return entry;
  }

 private:
  static constexpr int kBits = 14;
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;
  const StepData& data_;
  std::vector<BucketPrice> entries_;
};

}  // namespace dovetail::search
