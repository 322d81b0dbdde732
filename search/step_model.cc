// Candidates to Schedules and back.
//
// A Schedule is a candidate of the model if it says nothing that the frame does not say, but where its buckets
// end, are launched, travel and are waited for. Launches in batches become launches behind the op that completes
// the batch, which is where they are placed.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "search/step_data.h"
#include "search/step_writer.h"

namespace dovetail::search {

using schedule::Bucket;
using schedule::Schedule;

StepWorkspace::StepWorkspace(std::shared_ptr<const StepData> data)
    : data_(std::move(data)), writer_(std::make_unique<StepWriter>(*data_)) {}
StepWorkspace::StepWorkspace(StepWorkspace&&) noexcept = default;
StepWorkspace& StepWorkspace::operator=(StepWorkspace&&) noexcept = default;
StepWorkspace::~StepWorkspace() = default;

StepWorkspace StepModel::workspace() const { return StepWorkspace(data_); }

const StepModel::Counts& StepModel::counts(const StepWorkspace& workspace) {
  return workspace.writer_->counts();
}

Duration StepModel::evaluate(std::span<const BucketChoice> choices,
                             StepWorkspace& workspace) const {
  return workspace.writer_->steady_step(choices);
}

sim::StepSummary StepModel::summary(std::span<const BucketChoice> choices,
                                    StepWorkspace& workspace) const {
  return workspace.writer_->steady_summary(choices);
}

std::int32_t StepModel::gradients() const { return data_->count(); }
std::int32_t StepModel::ready(std::int32_t gradient) const {
  return data_->reducing.back().ready[static_cast<std::size_t>(gradient)];
}
std::int32_t StepModel::backward_end() const { return data_->reducing.back().backward_end; }
Bytes StepModel::bytes(std::int32_t gradient) const {
  return Bytes(data_->bytes[static_cast<std::size_t>(gradient)]);
}
bool StepModel::delays() const { return data_->reducing.size() == 1; }

Schedule StepModel::schedule_of(std::span<const BucketChoice> choices) const {
  Schedule schedule = data_->frame;
  for (const BucketChoice& choice : choices) {
    Bucket bucket = data_->bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    for (std::int32_t i = choice.begin; i < choice.end; ++i) {
      bucket.gradients.emplace_back(data_->gradients[static_cast<std::size_t>(i)]);
    }
    bucket.group = data_->group.id;
    bucket.mode = choice.mode;
    bucket.stream = schedule::CommStream{choice.stream};
    bucket.wait = choice.wait;
    bucket.scope = choice.scope;
    bucket.closed_by = {};
    if (choice.launch <= ready(choice.end - 1)) {
      bucket.launch = schedule::LaunchWhenReady{};
    } else if (choice.launch == backward_end()) {
      bucket.launch = schedule::LaunchAfterBackward{};
    } else {
      bucket.launch = schedule::LaunchAfterOp{data_->ids[static_cast<std::size_t>(choice.launch)]};
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
  const std::int32_t backward_end = data.reducing.back().backward_end;
  if (std::holds_alternative<schedule::LaunchAfterBackward>(point)) return backward_end;
  const auto* after = std::get_if<schedule::LaunchAfterOp>(&point);
  if (after == nullptr) return kWhenReady;
  if (data.reducing.size() > 1) return std::nullopt;
  const auto found = std::ranges::find(data.ids, after->op);
  const auto at = static_cast<std::int32_t>(found - data.ids.begin());
  if (found == data.ids.end() || at > backward_end) return std::nullopt;
  return at;
}

}  // namespace

std::optional<Choices> StepModel::choices_of(const Schedule& schedule) const {
  const StepData& data = *data_;
  Choices choices;
  std::map<std::int32_t, std::int32_t> batches;  // when the last bucket of each is ready
  std::int32_t covered = 0;
  std::vector<char> held(data.gradients.size(), 0);
  for (const Bucket& bucket : schedule.buckets) {
    BucketChoice choice{.mode = bucket.mode, .wait = bucket.wait, .scope = bucket.scope};
    const auto* comm = std::get_if<schedule::CommStream>(&bucket.stream);
    const bool in_batch = std::holds_alternative<schedule::LaunchInBatch>(bucket.launch);
    const std::optional<std::int32_t> launch = launch_of(data, bucket.launch);
    if (!same_frame(data, schedule, bucket) || comm == nullptr || !launch || comm->index < 0 ||
        comm->index >= kMostStreams || (in_batch && !delays()) ||
        bucket.wait == schedule::WaitPoint::BeforeNextBatch || !take_range(data, bucket, choice)) {
      return std::nullopt;
    }
    choice.stream = comm->index;
    choice.launch = *launch;
    if (const auto* batch = std::get_if<schedule::LaunchInBatch>(&bucket.launch)) {
      std::int32_t& ready = batches.try_emplace(batch->batch, 0).first->second;
      ready = std::max(ready, this->ready(choice.end - 1));
    }
    for (std::int32_t i = choice.begin; i < choice.end; ++i) {
      if (std::exchange(held[static_cast<std::size_t>(i)], 1) != 0) return std::nullopt;
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

}  // namespace dovetail::search
