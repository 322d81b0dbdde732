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

#include "base/interruption.h"
#include "search/gather_bound.h"
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

StepModel::StepModel(std::shared_ptr<const StepData> data)
    : data_(std::move(data)), knots_(std::make_shared<BoundKnots>()) {}

StepWorkspace StepModel::workspace() const { return StepWorkspace(data_); }

const StepModel::Counts& StepModel::counts(const StepWorkspace& workspace) {
  return workspace.writer_->counts();
}

Duration StepModel::evaluate(std::span<const BucketChoice> choices,
                             StepWorkspace& workspace) const {
  throw_if_interrupted();
  return workspace.writer_->steady_step(choices);
}

sim::StepSummary StepModel::summary(std::span<const BucketChoice> choices,
                                    StepWorkspace& workspace) const {
  return workspace.writer_->steady_summary(choices);
}

std::int32_t StepModel::gradients() const { return data_->count(); }
std::int32_t StepModel::kind(std::int32_t gradient) const {
  return data_->kind_of[static_cast<std::size_t>(gradient)];
}
std::int32_t StepModel::ready(std::int32_t gradient) const {
  return data_->reducing.back().ready[static_cast<std::size_t>(gradient)];
}
std::int32_t StepModel::backward_end() const { return data_->reducing.back().backward_end.front(); }
Bytes StepModel::bytes(std::int32_t gradient) const {
  return Bytes(data_->bytes[static_cast<std::size_t>(gradient)]);
}
bool StepModel::delays() const { return data_->reducing.size() == 1 && data_->roles.size() == 1; }

Schedule StepModel::schedule_of(std::span<const BucketChoice> choices) const {
  Schedule schedule = data_->frame;
  for (const BucketChoice& choice : choices) {
    if (data_->is_frozen(choice)) continue;
    Bucket bucket = data_->bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    for (std::int32_t i = choice.begin; i < choice.end; ++i) {
      schedule::Slice& slice =
          bucket.gradients.emplace_back(data_->gradients[static_cast<std::size_t>(i)]);
      const std::int64_t held = data_->held(choice, i);
      if (held == data_->bytes[static_cast<std::size_t>(i)]) continue;
      slice.first = i == choice.begin ? choice.skip : 0;
      slice.count = held / data_->kind(choice).element;
    }
    const GradientKind& kind = data_->kind(choice);
    bucket.group = kind.group.id;
    if (kind.replicas) bucket.replicas = kind.replicas->id;
    bucket.mode = choice.mode;
    bucket.stream = schedule::InlineStream{};
    if (choice.stream != kInline) bucket.stream = schedule::CommStream{choice.stream};
    bucket.wait = choice.wait;
    bucket.scope = choice.scope;
    bucket.closed_by = {};
    if (choice.batch) {
      bucket.launch = schedule::LaunchInBatch{*choice.batch};
    } else if (choice.launch == data_->backward_end_for(choice)) {
      bucket.launch = schedule::LaunchAfterBackward{};
    } else if (choice.launch <= ready(choice.end - 1)) {
      bucket.launch = schedule::LaunchWhenReady{};
    } else {
      bucket.launch = schedule::LaunchAfterOp{data_->ids[static_cast<std::size_t>(choice.launch)]};
    }
    schedule.buckets.push_back(std::move(bucket));
  }
  const auto buckets = static_cast<std::int32_t>(schedule.buckets.size());
  for (std::size_t k = 0; k < schedule.frozen.size(); ++k) {
    schedule.frozen[k].id = BucketId{buckets + static_cast<std::int32_t>(k)};
  }
  if (!data_->gathers_each_use()) return schedule;
  for (const GatherStop& stop : gathers_of(*data_, choices)) {
    const GatherChoice& choice = choices[stop.bucket].gather;
    schedule::ParameterGather gather;
    gather.stream = schedule::CommStream{choice.stream};
    gather.bucket =
        BucketId{static_cast<std::int32_t>(stop.bucket)};  // choices end with the blocks
    gather.readers = stop.readers;
    const bool backward = stop.readers == schedule::GatherFor::Backward;
    const std::int32_t place = *(backward ? choice.backward : choice.forward);
    if (place > 0) {
      gather.launch = schedule::LaunchAfterOp{data_->ids[static_cast<std::size_t>(place) - 1]};
    }
    schedule.gathers.push_back(gather);
  }
  return schedule;
}

namespace {

// The gradients of a bucket as a range in ready order; nothing where they are none. `taken`: elements of each gradient
// that the buckets before hold.
bool take_range(const StepData& data, const Bucket& bucket, std::vector<std::int64_t>& taken,
                BucketChoice& choice) {
  if (bucket.gradients.empty()) return false;
  choice.begin = data.position.at(bucket.gradients.front().tensor);
  if (choice.begin < 0) return false;
  choice.end = choice.begin;
  for (const schedule::Slice& slice : bucket.gradients) {
    if (data.position.at(slice.tensor) != choice.end) return false;
    const auto g = static_cast<std::size_t>(choice.end++);
    if (data.kind_of[g] != data.kind_of[static_cast<std::size_t>(choice.begin)]) return false;
    const std::int64_t all = data.bytes[g] / data.kind(choice).element;
    const std::int64_t count = slice.count > 0 ? slice.count : all - slice.first;
    const bool is_last = &slice == &bucket.gradients.back();
    if (slice.first != taken[g] || count < 1 || slice.first + count > all) return false;
    taken[g] += count;
    if (&slice == &bucket.gradients.front())
      choice.skip = slice.first;
    else if (slice.first > 0)
      return false;
    if (taken[g] < all && !is_last) return false;
    if (taken[g] < all) choice.take = count;
    const bool is_cut = count < all;
    if (is_cut && (bucket.mode == schedule::BucketMode::View || data.gathers_each_use()))
      return false;
  }
  return true;
}

bool same_frame(const StepData& data, const Schedule& schedule, const Bucket& bucket) {
  const Bucket& frame = data.bucket;
  return schedule.collectives == data.frame.collectives &&
         schedule.pipeline == data.frame.pipeline && schedule.scale == data.frame.scale &&
         schedule.merge == data.frame.merge && schedule.parameters == data.frame.parameters &&
         bucket.collective == frame.collective && bucket.sums_whole == frame.sums_whole &&
         bucket.pad_to == frame.pad_to && bucket.align_to == frame.align_to &&
         bucket.max_ctas == frame.max_ctas;
}

bool same_groups(const GradientKind& kind, const Bucket& bucket) {
  const bool replicated = bucket.replicas.has_value() == kind.replicas.has_value() &&
                          (!bucket.replicas || *bucket.replicas == kind.replicas->id);
  return bucket.group == kind.group.id && replicated;
}

// Of launch points that are not batches; nothing for an op behind backward, or an unknown one.
std::optional<std::int32_t> launch_of(const StepData& data, const BucketChoice& choice,
                                      const schedule::LaunchPoint& point) {
  const std::int32_t backward_end = data.backward_end_for(choice);
  if (std::holds_alternative<schedule::LaunchAfterBackward>(point)) return backward_end;
  const auto* after = std::get_if<schedule::LaunchAfterOp>(&point);
  if (after == nullptr) return kWhenReady;
  const auto found = std::ranges::find(data.ids, after->op);
  const auto at = static_cast<std::int32_t>(found - data.ids.begin());
  if (found == data.ids.end() || at > backward_end) return std::nullopt;
  return at;
}

// The place where parameters are gathered; nothing for what is none in the last micro-step.
std::optional<std::int32_t> place_of(const StepData& data, const schedule::LaunchPoint& point) {
  if (std::holds_alternative<schedule::LaunchWhenReady>(point)) return 0;
  const auto* after = std::get_if<schedule::LaunchAfterOp>(&point);
  const auto found = after == nullptr ? data.ids.end() : std::ranges::find(data.ids, after->op);
  const auto at = static_cast<std::int32_t>(found - data.ids.begin());
  const std::vector<std::int32_t>& ops = data.sharding->steps.back().ops;
  if (found == data.ids.end() || !std::ranges::binary_search(ops, at)) return std::nullopt;
  return at + 1;
}

// False for gathers, or frozen blocks, that are none of the model's.
bool take_gathers(const StepData& data, const Schedule& schedule, Choices& choices) {
  std::vector<BucketId> ids;  // of the choices
  for (const Bucket& bucket : schedule.buckets) ids.push_back(bucket.id);
  const bool same_blocks = std::ranges::equal(
      schedule.frozen, data.frame.frozen,
      [](const schedule::FrozenBlock& a, const schedule::FrozenBlock& b) {
        return a.parameters == b.parameters && a.group == b.group && a.mode == b.mode;
      });
  if (!same_blocks) return false;
  for (const schedule::FrozenBlock& block : schedule.frozen) {
    choices.push_back(data.frozen(choices.size() - schedule.buckets.size()));
    ids.push_back(block.id);
  }
  if (!data.gathers_each_use()) return schedule.gathers.empty();
  for (const schedule::ParameterGather& gather : schedule.gathers) {
    const auto bucket = std::ranges::find(ids, gather.bucket);
    const auto* stream = std::get_if<schedule::CommStream>(&gather.stream);
    const std::optional<std::int32_t> place = place_of(data, gather.launch);
    if (bucket == ids.end() || stream == nullptr || stream->index < 0 ||
        stream->index >= kMostStreams || !place) {
      return false;
    }
    GatherChoice& choice = choices[static_cast<std::size_t>(bucket - ids.begin())].gather;
    const bool backward = gather.readers == schedule::GatherFor::Backward;
    const bool first = !choice.forward && !choice.backward;
    if (!first && choice.stream != stream->index) return false;
    (backward ? choice.backward : choice.forward) = place;
    choice.keeps = choice.keeps || gather.readers == schedule::GatherFor::ForwardAndBackward;
    choice.stream = stream->index;
  }
  const std::vector<GatherStop> stops = gathers_of(data, choices);
  return std::ranges::equal(stops, schedule.gathers,
                            [&](const GatherStop& stop, const schedule::ParameterGather& gather) {
                              return stop.first_use != kBehindAllOps &&
                                     stop.readers == gather.readers &&
                                     ids[stop.bucket] == gather.bucket;
                            });
}

}  // namespace

std::optional<Choices> StepModel::choices_of(const Schedule& schedule) const {
  const StepData& data = *data_;
  Choices choices;
  // When the last bucket of each role's batch is ready.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> batches;
  std::vector<std::int64_t> taken(data.gradients.size(), 0);  // elements of each gradient
  for (const Bucket& bucket : schedule.buckets) {
    if (data.names_updates && !std::cmp_equal(bucket.id.value, choices.size())) return std::nullopt;
    BucketChoice choice{.mode = bucket.mode, .wait = bucket.wait, .scope = bucket.scope};
    const auto* comm = std::get_if<schedule::CommStream>(&bucket.stream);
    if (!same_frame(data, schedule, bucket) ||
        (comm != nullptr && (comm->index < 0 || comm->index >= kMostStreams)) ||
        !take_range(data, bucket, taken, choice) || !same_groups(data.kind(choice), bucket)) {
      return std::nullopt;
    }
    choice.stream = comm == nullptr ? kInline : comm->index;
    const std::optional<std::int32_t> launch = launch_of(data, choice, bucket.launch);
    if (!launch) return std::nullopt;
    choice.launch = *launch;
    if (const auto* batch = std::get_if<schedule::LaunchInBatch>(&bucket.launch)) {
      std::int32_t& ready = batches[{data.kind(choice).role, batch->batch}];
      ready = std::max(ready, data.reducing.back().ready_of(choice));
    }
    choices.push_back(choice);
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::int64_t element = data.kind(static_cast<std::int32_t>(i)).element;
    if (taken[i] * element != data.bytes[i]) return std::nullopt;
  }
  for (std::size_t b = 0; b < choices.size(); ++b) {
    const auto* batch = std::get_if<schedule::LaunchInBatch>(&schedule.buckets[b].launch);
    if (batch == nullptr) continue;
    choices[b].launch = batches.at({data.kind(choices[b]).role, batch->batch});
    if (choices[b].wait == schedule::WaitPoint::BeforeNextBatch) choices[b].batch = batch->batch;
  }
  if (!take_gathers(data, schedule, choices)) return std::nullopt;
  return choices;
}

}  // namespace dovetail::search
