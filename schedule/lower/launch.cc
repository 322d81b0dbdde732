// Decides after which op each collective is issued: when its last gradient is ready, later where
// the Schedule says so, and never before the bucket that is listed before it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/launch.h"

#include <algorithm>
#include <map>

#include "base/count.h"
#include "schedule/lower/pipeline/async.h"
#include "schedule/lower/survey.h"
#include "schedule/visit.h"

namespace dovetail::schedule::internal {
namespace {

class Launches {
 public:
  Launches(const Draft& draft, RoleDraft& role)
      : draft_(draft),
        program_(draft.program()),
        role_(role),
        every_(program_.micro_steps > 1 && draft.schedule.merge.sync == SyncPoint::EveryMicroStep) {
  }

  void run() {
    for (std::size_t i = 0; i < draft_.buckets.size(); ++i) {
      if (draft_.buckets[i].role == role_.role) mine_.push_back(i);
    }
    const std::int32_t last = program_.micro_steps - 1;
    role_.travels.reserve(mine_.size() *
                          static_cast<std::size_t>(every_ ? program_.micro_steps : 1));
    for (std::int32_t step = every_ ? 0 : last; step <= last; ++step) launch_in(step);
  }

 private:
  void launch_in(std::int32_t step) {
    ready_.clear();
    std::map<std::int32_t, std::size_t> batches;  // when the last bucket of each is ready
    for (const std::size_t i : mine_) {
      const Bucket& bucket = draft_.schedule.buckets[i];
      ready_.push_back(ready(bucket, step));
      if (const auto* in_batch = std::get_if<LaunchInBatch>(&bucket.launch)) {
        std::size_t& all = batches[in_batch->batch];
        all = std::max(all, ready_.back());
      }
    }
    const std::size_t backward_end = role_.backward_end[static_cast<std::size_t>(step)];
    std::size_t previous = 0;
    for (std::size_t k = 0; k < mine_.size(); ++k) {
      const Bucket& bucket = draft_.schedule.buckets[mine_[k]];
      const std::size_t asked = visit(
          bucket.launch, [&](const LaunchWhenReady&) { return ready_[k]; },
          [&](const LaunchAfterOp& after) {
            const std::size_t there =
                position_of(draft_, role_, draft_.name(bucket), after.op, step);
            return every_ ? std::min(there, backward_end) : there;
          },
          [&](const LaunchBeforeOp&) -> std::size_t {
            throw InputError(draft_.name(bucket) +
                             ": gradients cannot be reduced in front of an op");
          },
          [&](const LaunchAfterBackward&) { return backward_end; },
          [&](const LaunchInBatch& in_batch) { return batches.at(in_batch.batch); });
      previous = std::max({ready_[k], asked, allowed(bucket, step), previous});
      role_.travels.push_back({.kind = Travel::Kind::Bucket,
                               .what = mine_[k],
                               .stream = draft_.buckets[mine_[k]].stream,
                               .scope = bucket.scope,
                               .max_ctas = bucket.max_ctas,
                               .micro_step = step,
                               .launch_after = previous});
    }
  }

  [[nodiscard]] std::size_t ready(const Bucket& bucket, std::int32_t step) const {
    std::size_t latest = 0;
    for (const Slice& slice : bucket.gradients) {
      latest = std::max(latest, ready_after(draft_, role_, draft_.travels.at(slice.tensor), step));
    }
    return latest;
  }

  // No earlier than this, whatever the bucket asks for.
  [[nodiscard]] std::size_t allowed(const Bucket& bucket, std::int32_t step) {
    if (program_.micro_steps > 1 && draft_.schedule.merge.sync == SyncPoint::AfterLastMicroStep) {
      return role_.backward_end[static_cast<std::size_t>(step)];
    }
    if (program_.stages == 1) return 0;
    std::size_t earliest = 0;
    std::int32_t known = -1;
    for (const Slice& slice : bucket.gradients) {
      const std::size_t writer = ready_after(draft_, role_, draft_.travels.at(slice.tensor), step);
      const std::int32_t stage = program_.ops[writer].stage;
      if (stage == known) continue;
      known = stage;
      earliest = std::max(earliest, allowed_on(stage, bucket));
    }
    return earliest;
  }

  // Asked once per stage: the answer is found by looking at all ops.
  [[nodiscard]] std::size_t allowed_on(std::int32_t stage, const Bucket& bucket) {
    const auto [at, fresh] = allowed_on_.try_emplace(stage, 0);
    if (!fresh) return at->second;
    if (const auto op =
            earliest_launch(program_, draft_.shape, draft_.schedule.pipeline.alignment, stage)) {
      at->second = position_of(draft_, role_, draft_.name(bucket), *op, program_.micro_steps - 1);
    }
    return at->second;
  }

  const Draft& draft_;
  const Program& program_;
  RoleDraft& role_;
  const bool every_;                                // every micro-step reduces, and then adds up
  std::vector<std::size_t> mine_;                   // the role's buckets
  std::vector<std::size_t> ready_;                  // parallel to mine_
  std::map<std::int32_t, std::size_t> allowed_on_;  // by virtual stage
};

}  // namespace

void place_launches(const Draft& draft, RoleDraft& role) { Launches(draft, role).run(); }

std::string launch_report(const std::vector<RoleDraft>& roles) {
  std::size_t overlapped = 0;
  std::size_t all = 0;
  for (const RoleDraft& role : roles) {
    for (const Travel& travel : role.travels) {
      if (travel.kind != Travel::Kind::Bucket) continue;
      ++all;
      const std::size_t end = role.backward_end[static_cast<std::size_t>(travel.micro_step)];
      if (*travel.launch_after < end) ++overlapped;
    }
  }
  return std::to_string(overlapped) + " of " + counted(all, "collective") + " before backward ends";
}

}  // namespace dovetail::schedule::internal
