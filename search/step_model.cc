// Candidates to Schedules and back, and which walk answers.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedule/visit.h"
#include "search/full_walk.h"
#include "search/quick_walk.h"
#include "search/step_data.h"

namespace dovetail::search {

using schedule::Bucket;
using schedule::Schedule;

struct StepMemory {
  explicit StepMemory(std::shared_ptr<const StepData> of) : data(std::move(of)), prices(*data) {
    full.shares = sim::LinkShares(data->resources);
  }
  std::shared_ptr<const StepData> data;
  PriceMemo prices;
  QuickMemory quick;
  FullMemory full;
  enum class Settled { No, Quickly, Fully };
  Settled settled = Settled::No;  // by which walk the last settled candidate was
  StepModel::Counts counts;
};

StepWorkspace::StepWorkspace() = default;
StepWorkspace::StepWorkspace(StepWorkspace&&) noexcept = default;
StepWorkspace& StepWorkspace::operator=(StepWorkspace&&) noexcept = default;
StepWorkspace::~StepWorkspace() = default;

StepWorkspace StepModel::workspace() const {
  StepWorkspace workspace;
  workspace.memory_ = std::make_unique<StepMemory>(data_);
  return workspace;
}

const StepModel::Counts& StepModel::counts(const StepWorkspace& workspace) {
  return workspace.memory_->counts;
}

std::int32_t StepModel::gradients() const { return data_->count(); }
std::int32_t StepModel::ready(std::int32_t gradient) const { return data_->ready[gradient]; }
std::int32_t StepModel::backward_end() const { return data_->backward_end; }
Bytes StepModel::bytes(std::int32_t gradient) const { return Bytes(data_->bytes[gradient]); }

Schedule StepModel::schedule_of(std::span<const BucketChoice> choices) const {
  Schedule schedule = data_->frame;
  for (const BucketChoice& choice : choices) {
    Bucket bucket = data_->bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    for (std::int32_t i = choice.begin; i < choice.end; ++i) {
      bucket.gradients.emplace_back(data_->tensors[i]);
    }
    bucket.group = data_->group.id;
    bucket.mode = choice.mode;
    bucket.stream = schedule::CommStream{choice.stream};
    bucket.wait = choice.wait;
    bucket.scope = choice.scope;
    bucket.closed_by = {};
    if (choice.launch <= data_->ready[choice.end - 1]) {
      bucket.launch = schedule::LaunchWhenReady{};
    } else if (choice.launch == data_->backward_end) {
      bucket.launch = schedule::LaunchAfterBackward{};
    } else {
      bucket.launch = schedule::LaunchAfterOp{data_->ids[choice.launch]};
    }
    schedule.buckets.push_back(std::move(bucket));
  }
  return schedule;
}

namespace {

// The gradients of a bucket as a range in ready order; nothing where they are none.
bool take_range(const StepData& data, const Bucket& bucket, BucketChoice& choice) {
  if (bucket.gradients.empty()) return false;
  choice.begin = data.position.at(bucket.gradients.front().tensor);
  if (choice.begin < 0) return false;
  choice.end = choice.begin;
  for (const schedule::Slice& slice : bucket.gradients) {
    if (slice.first != 0 || slice.count != 0 || data.position.at(slice.tensor) != choice.end) {
      return false;
    }
    ++choice.end;
  }
  return true;
}

bool same_frame(const StepData& data, const Schedule& schedule, const Bucket& bucket) {
  const Bucket& frame = data.bucket;
  return schedule.gathers.empty() && schedule.collectives.empty() &&
         schedule.scale == data.frame.scale && schedule.merge == data.frame.merge &&
         bucket.collective == schedule::Collective::AllReduce && !bucket.replicas &&
         bucket.group == data.group.id && bucket.pad_to == frame.pad_to &&
         bucket.align_to == frame.align_to && bucket.max_ctas == frame.max_ctas;
}

// Of launch points that are not batches; nothing for an op behind backward, or an unknown one.
std::optional<std::int32_t> launch_of(const StepData& data, const schedule::LaunchPoint& point) {
  if (std::holds_alternative<schedule::LaunchAfterBackward>(point)) return data.backward_end;
  const auto* after = std::get_if<schedule::LaunchAfterOp>(&point);
  if (after == nullptr) return kWhenReady;
  const auto found = std::ranges::find(data.ids, after->op);
  const auto at = static_cast<std::int32_t>(found - data.ids.begin());
  if (found == data.ids.end() || at > data.backward_end) return std::nullopt;
  return at;
}

}  // namespace

std::optional<Choices> StepModel::choices_of(const Schedule& schedule) const {
  const StepData& data = *data_;
  Choices choices;
  std::map<std::int32_t, std::int32_t> batches;  // when the last bucket of each is ready
  std::int32_t covered = 0;
  std::vector<char> held(data.ready.size(), 0);
  for (const Bucket& bucket : schedule.buckets) {
    BucketChoice choice{.mode = bucket.mode, .wait = bucket.wait, .scope = bucket.scope};
    const auto* comm = std::get_if<schedule::CommStream>(&bucket.stream);
    const std::optional<std::int32_t> launch = launch_of(data, bucket.launch);
    if (!same_frame(data, schedule, bucket) || comm == nullptr || !launch || comm->index < 0 ||
        comm->index >= kMostStreams || bucket.wait == schedule::WaitPoint::BeforeNextBatch ||
        !take_range(data, bucket, choice)) {
      return std::nullopt;
    }
    choice.stream = comm->index;
    choice.launch = *launch;
    if (const auto* batch = std::get_if<schedule::LaunchInBatch>(&bucket.launch)) {
      std::int32_t& ready = batches.try_emplace(batch->batch, 0).first->second;
      ready = std::max(ready, data.ready[choice.end - 1]);
    }
    for (std::int32_t i = choice.begin; i < choice.end; ++i) {
      if (std::exchange(held[i], 1) != 0) return std::nullopt;
    }
    covered += choice.end - choice.begin;
    choices.push_back(choice);
  }
  if (covered != data.count()) return std::nullopt;
  for (std::size_t b = 0; b < choices.size(); ++b) {
    const auto* batch = std::get_if<schedule::LaunchInBatch>(&schedule.buckets[b].launch);
    if (batch != nullptr) choices[b].launch = batches.at(batch->batch);
  }
  return choices;
}

namespace {

// From nothing. Where both can answer, the quick walk fails for what would fail one full step too.
std::optional<sim::StepSummary> walk(const StepData& data, std::span<const BucketChoice> choices,
                                     Keep keep, StepMemory& memory) {
  using Settled = StepMemory::Settled;
  if (keep == Keep::Yes) memory.settled = Settled::No;
  const bool quick = is_quick(data, choices, 0);
  auto found = quick ? quick_walk(data, choices, 0, keep, memory.prices, memory.quick)
                     : walk_one_step(data, choices, 0, keep, memory.prices, memory.full);
  if (found && keep == Keep::Yes) memory.settled = quick ? Settled::Quickly : Settled::Fully;
  if (found) {
    ++(quick ? memory.counts.quick : memory.counts.full);
    return found;
  }
  found = walk_steps(data, choices, memory.prices, memory.full);
  ++(found ? memory.counts.steps : memory.counts.none);
  return found;
}

}  // namespace

std::optional<sim::StepSummary> StepModel::evaluate(std::span<const BucketChoice> choices,
                                                    StepWorkspace& workspace) const {
  return walk(*data_, choices, Keep::No, *workspace.memory_);
}

std::optional<sim::StepSummary> StepModel::settle(std::span<const BucketChoice> choices,
                                                  StepWorkspace& workspace) const {
  return walk(*data_, choices, Keep::Yes, *workspace.memory_);
}

std::optional<sim::StepSummary> StepModel::evaluate_change(std::span<const BucketChoice> choices,
                                                           std::size_t first,
                                                           StepWorkspace& workspace) const {
  using Settled = StepMemory::Settled;
  StepMemory& memory = *workspace.memory_;
  std::optional<sim::StepSummary> found;
  if (memory.settled == Settled::Quickly && is_quick(*data_, choices, first)) {
    found = quick_walk(*data_, choices, first, Keep::No, memory.prices, memory.quick);
    if (found) ++memory.counts.quick;
  } else if (memory.settled == Settled::Fully) {
    found = walk_one_step(*data_, choices, first, Keep::No, memory.prices, memory.full);
    if (found) ++memory.counts.full;
    if (found && memory.full.rejoined) ++memory.counts.rejoined;
  }
  return found ? found : evaluate(choices, workspace);
}

}  // namespace dovetail::search
