// Finds each Scale that stands right before or behind the collective of its bucket, on a stream on
// which nothing comes between, so that the collective can apply the factor in its own pass.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/fold_scale.h"

#include "exec/run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

using schedule::Collective;
using schedule::Command;
using schedule::Communicate;
using schedule::Part;
using schedule::RankProgram;
using schedule::Scale;

// The smallest normal number of f16 is 2^-14, its largest power of two 2^15.
constexpr std::int64_t kLargest = std::int64_t{1} << 14;

bool is_small_power_of_two(std::int64_t value) {
  return value > 0 && value <= kLargest && (value & (value - 1)) == 0;
}
bool is_exact(Rational factor) {
  return is_small_power_of_two(factor.numerator()) && is_small_power_of_two(factor.denominator());
}

bool orders_only(const Command& command) {
  return std::holds_alternative<schedule::RecordEvent>(command.action) ||
         std::holds_alternative<schedule::WaitEvent>(command.action);
}

class Folding {
 public:
  Folding(const schedule::ScheduledProgram& plan, Rank rank)
      : plan_(plan), rank_(rank), role_(role_of(plan, rank)) {}

  std::vector<Fold> all() const {
    std::vector<Fold> folds;
    for (std::size_t i = 0; i < role_.commands.size(); ++i) {
      const auto* scale = std::get_if<Scale>(&role_.commands[i].action);
      if (scale == nullptr || !is_exact(scale->factor)) continue;
      std::optional<Fold> fold = average(i, *scale);
      if (!fold) fold = pre_multiply(i, *scale);
      if (fold && !is_taken(folds, fold->collective)) folds.push_back(*fold);
    }
    return folds;
  }

 private:
  static bool is_taken(const std::vector<Fold>& folds, CommandId collective) {
    return std::any_of(folds.begin(), folds.end(),
                       [&](const Fold& fold) { return fold.collective == collective; });
  }

  // The collective that sums a bucket, if all its ranks see the same commands as we do.
  [[nodiscard]] const Communicate* sum_at(std::size_t i, BucketId bucket) const {
    const auto* run = std::get_if<Communicate>(&role_.commands[i].action);
    if (run == nullptr || run->bucket != bucket || run->reduce != schedule::ReduceOp::Sum) {
      return nullptr;
    }
    const std::span<const Rank> ranks = plan_.program.group(run->group).instance_of(rank_);
    const bool is_ours = std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
      return std::find(role_.ranks.begin(), role_.ranks.end(), rank) != role_.ranks.end();
    });
    return is_ours && !ranks.empty() ? run : nullptr;
  }

  // The collective is the command right before the scale, on its stream.
  [[nodiscard]] std::optional<Fold> average(std::size_t at, const Scale& scale) const {
    if (at == 0) return std::nullopt;
    const Command& before = role_.commands[at - 1];
    const Communicate* run = sum_at(at - 1, scale.bucket);
    if (run == nullptr || before.stream != role_.commands[at].stream) return std::nullopt;
    const bool scatters = run->kind == Collective::ReduceScatter;
    if (run->kind != Collective::AllReduce && !scatters) return std::nullopt;
    const Part result = scatters ? Part::Shard : run->part;
    const auto ranks =
        static_cast<std::int64_t>(plan_.program.group(run->group).instance_of(rank_).size());
    if (result != scale.part || scale.factor != Rational(1, ranks)) return std::nullopt;
    return Fold{.kind = FoldKind::Average,
                .scale = role_.commands[at].id,
                .collective = before.id,
                .factor = scale.factor};
  }

  // The all-reduce is the next command that does anything. A reduce-scatter would leave the rest of
  // the bucket as it was, without the factor.
  [[nodiscard]] std::optional<Fold> pre_multiply(std::size_t at, const Scale& scale) const {
    std::size_t next = at + 1;
    while (next < role_.commands.size() && orders_only(role_.commands[next])) ++next;
    if (next == role_.commands.size()) return std::nullopt;
    const Communicate* run = sum_at(next, scale.bucket);
    if (run == nullptr || run->kind != Collective::AllReduce) return std::nullopt;
    if (run->part != scale.part || scale.part != Part::Whole) return std::nullopt;
    return Fold{.kind = FoldKind::PreMultiply,
                .scale = role_.commands[at].id,
                .collective = role_.commands[next].id,
                .factor = scale.factor};
  }

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  const RankProgram& role_;
};

}  // namespace

std::vector<Fold> folds_of(const schedule::ScheduledProgram& plan, Rank rank) {
  return Folding(plan, rank).all();
}

}  // namespace dovetail::exec::cuda
