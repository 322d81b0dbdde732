// What sharded updates add to a placement: one update for each bucket, where the last update of its gradients stood,
// and the gathers of its parameters. As schedule/lower/rewrite/shard.cc and schedule/lower/gather.cc do it.
//
// A gradient that is cut lies in several buckets, and the update of each of them reads it: whoever waits for a part
// waits before the first of these updates.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "schedule/lower/rewrite/shard.h"
#include "schedule/lower/rewrite/shard_work.h"
#include "schedule/policies/fsdp.h"
#include "search/step_data.h"
#include "search/step_writer.h"

namespace dovetail::search {

using schedule::GatherFor;

std::int64_t StepData::held(const BucketChoice& choice, std::int32_t gradient) const {
  const std::int64_t element = kind(choice).element;
  const std::int64_t skipped = gradient == choice.begin ? choice.skip * element : 0;
  if (gradient + 1 == choice.end && choice.take > 0) return choice.take * element;
  return bytes[static_cast<std::size_t>(gradient)] - skipped;
}

std::int64_t StepData::held(const BucketChoice& choice, std::int32_t begin,
                            std::int32_t end) const {
  if (choice.begin + 1 == choice.end) return held(choice, choice.begin);
  const std::int64_t element = kind(choice).element;
  const auto last = static_cast<std::size_t>(end) - 1;
  std::int64_t sum = bytes_sum[last + 1] - bytes_sum[static_cast<std::size_t>(begin)];
  if (begin == choice.begin) sum -= choice.skip * element;
  if (end == choice.end && choice.take > 0) sum += choice.take * element - bytes[last];
  return sum;
}

std::int64_t StepData::extent(const BucketChoice& choice) const {
  const auto last = static_cast<std::size_t>(choice.end) - 1;
  const auto second = static_cast<std::size_t>(choice.begin) + 1;
  const std::int64_t end = held(choice, choice.end - 1);
  if (second > last) return end;
  return kind(choice).spaced(held(choice, choice.begin)) + spaced_sum[last] - spaced_sum[second] +
         end;
}

Bytes StepData::size(const BucketChoice& choice) const {
  const GradientKind& kind = this->kind(choice);
  const std::int64_t parts = shards(kind);
  const std::int64_t unit = kind.is_frozen ? 1 : bucket.pad_to.count();
  const std::int64_t pad = parts == 1 ? unit : std::lcm(unit, parts * kind.element);
  return Bytes((extent(choice) + pad - 1) / pad * pad);
}

sim::TransferCost StepData::travel(const BucketChoice& choice) const {
  if (relaxed) {
    const bool is_last =
        choice.end == count() || kind(choice.end).role != kind(choice.end - 1).role;
    const double ns = relaxed->ns_per_byte * static_cast<double>(payload(choice)) +
                      (is_last ? relaxed->base_ns : 0);
    const Duration time(static_cast<std::int64_t>(ns));
    return {.time = {.isolated = time, .back_to_back = time}};
  }
  return sim::transfer_cost(
      costs,
      sim::Message{.kind = reduces_by(bucket), .bytes = size(choice), .max_ctas = bucket.max_ctas},
      kind(choice).group);
}

sim::TransferCost StepData::replicate(const BucketChoice& choice) const {
  const GradientKind& kind = this->kind(choice);
  return sim::transfer_cost(costs,
                            sim::Message{.kind = schedule::Collective::AllReduce,
                                         .bytes = Bytes(size(choice).count() / shards(kind)),
                                         .max_ctas = bucket.max_ctas},
                            *kind.replicas);
}

sim::TransferCost StepData::gather(const BucketChoice& choice) const {
  return sim::transfer_cost(costs,
                            sim::Message{.kind = schedule::Collective::AllGather,
                                         .bytes = kind(choice).parameters(size(choice).count()),
                                         .max_ctas = bucket.max_ctas},
                            kind(choice).group);
}

schedule::Op StepData::update_of(const BucketChoice& choice) const {
  const GradientKind& kind = this->kind(choice);
  const std::int64_t ranks = kind.group.size();
  std::map<std::int32_t, std::int64_t> parts;  // elements in the bucket, by update
  for (std::int32_t i = choice.begin; i < choice.end; ++i) {
    parts[sharding->update_of[static_cast<std::size_t>(i)]] += held(choice, i) / kind.element;
  }
  schedule::WorkSum sum;
  std::int64_t elements = 0;
  for (const auto& [index, part] : parts) {
    const CutUpdate& update = sharding->updates[static_cast<std::size_t>(index)];
    static_cast<void>(sum.add(update.op.work, {.part = part, .whole = update.elements * ranks}));
    elements += part;
  }
  schedule::Op op = sharding->updates[static_cast<std::size_t>(parts.rbegin()->first)].op;
  op.name.clear();
  op.work = sum.total();
  const std::int64_t both = kind.element + kind.parameter;
  op.effect = schedule::ShardUpdate{
      .gradients = {}, .parameters = {}, .traffic = Bytes(both * ((elements + ranks - 1) / ranks))};
  return op;
}

Uses uses_of(const GatheringStep& step, const BucketChoice& choice, GatherFor readers) {
  Uses uses;
  for (auto g = static_cast<std::size_t>(choice.begin); g < static_cast<std::size_t>(choice.end);
       ++g) {
    if (readers != GatherFor::Backward) uses.join(step.forward[g]);
    if (readers != GatherFor::Forward) uses.join(step.backward[g]);
  }
  return uses;
}

std::vector<GatherStop> gathers_of(const StepData& data, std::span<const BucketChoice> choices) {
  std::vector<GatherStop> stops;
  for (std::size_t b = 0; b < choices.size(); ++b) {
    const GatherChoice& gather = choices[b].gather;
    const auto add = [&](GatherFor readers) {
      const Uses uses = uses_of(data.sharding->steps.back(), choices[b], readers);
      stops.push_back({b, readers, uses.first});
    };
    if (gather.forward) add(gather.keeps ? GatherFor::ForwardAndBackward : GatherFor::Forward);
    if (gather.backward) add(GatherFor::Backward);
  }
  // Role by role.
  std::ranges::stable_sort(stops, {}, [&](const GatherStop& stop) {
    return std::pair(data.kind(choices[stop.bucket]).role, stop.first_use);
  });
  return stops;
}

bool StepModel::place_gathers(Choices& choices, const schedule::Gathers& gathers,
                              std::int32_t stream) const {
  const StepData& data = *data_;
  const GatheringStep& step = data.sharding->steps.back();
  for (std::size_t k = 0; k < data.frame.frozen.size(); ++k) choices.push_back(data.frozen(k));
  for (BucketChoice& choice : choices) choice.gather = {.stream = stream};
  for (std::int32_t role = 0; role < std::ssize(data.roles); ++role) {
    // Positions are counted among the role's ops of forward and backward.
    std::vector<std::int32_t> ops;
    for (const std::int32_t op : step.ops) {
      const StepOp& known = data.ops[static_cast<std::size_t>(op)];
      if (known.role == role && !known.is_send) ops.push_back(op);
    }
    const auto readers = [&](const Uses& uses) {
      if (uses.first == kBehindAllOps) return schedule::BlockReaders{};
      const auto at = [&](std::int32_t op) {
        return static_cast<std::size_t>(std::ranges::lower_bound(ops, op) - ops.begin());
      };
      return schedule::BlockReaders{at(uses.first), at(uses.last)};
    };
    std::vector<schedule::BlockUse> blocks;
    std::vector<BucketChoice*> of;  // the blocks
    for (BucketChoice& choice : choices) {
      if (data.kind(choice).role != role) continue;
      blocks.push_back({.bytes = data.kind(choice).parameters(data.size(choice).count()),
                        .unit = blocks.size(),
                        .forward = readers(uses_of(step, choice, GatherFor::Forward)),
                        .backward = readers(uses_of(step, choice, GatherFor::Backward))});
      of.push_back(&choice);
    }
    const schedule::BlockStays placed =
        schedule::stays_of(blocks, gathers,
                           data.roles.size() == 1 ? schedule::MicroBatches::InTurn
                                                  : schedule::MicroBatches::Interleaved);
    if (placed.failed) return false;
    for (const schedule::BlockStay& stay : placed.all) {
      GatherChoice& choice = of[stay.block]->gather;
      const std::int32_t place = stay.launch == 0 ? 0 : ops[stay.launch - 1] + 1;
      (stay.readers == GatherFor::Backward ? choice.backward : choice.forward) = place;
      choice.keeps = choice.keeps || stay.readers == GatherFor::ForwardAndBackward;
    }
  }
  return true;
}

void StepWriter::place_updates(std::span<const BucketChoice> choices) {
  const Sharding& sharding = *data_.sharding;
  last_update_.assign(choices.size(), 0);
  update_order_.clear();
  for (std::size_t b = 0; b < choices.size(); ++b) {
    if (data_.is_frozen(choices[b])) continue;
    const auto* const of = sharding.update_of.data();
    last_update_[b] = *std::max_element(of + choices[b].begin, of + choices[b].end);
    update_order_.push_back(b);
  }
  std::ranges::stable_sort(update_order_, {}, [this](std::size_t b) { return last_update_[b]; });

  auto next = static_cast<std::size_t>(sharding.updates.front().before_op);
  for (Role& role : roles_) role.ops.resize(role.unmoved);
  ops_.resize(next);
  work_.resize(next * lanes_per_role());
  moved_.clear();
  update_at_.assign(choices.size(), 0);
  const auto add = [this](const StepOp& op, auto work) {
    roles_[static_cast<std::size_t>(op.role)].ops.push_back(ops_.size());
    ops_.push_back(op);
    work_.insert(work_.end(), work, work + static_cast<std::ptrdiff_t>(lanes_per_role()));
  };
  const auto take_until = [&](std::size_t end) {
    for (; next < end; ++next) {
      moved_.push_back(ops_.size());
      add(data_.ops[next],
          data_.work.begin() + static_cast<std::ptrdiff_t>(next * lanes_per_role()));
    }
  };
  for (const std::size_t b : update_order_) {
    const CutUpdate& last = sharding.updates[static_cast<std::size_t>(last_update_[b])];
    take_until(static_cast<std::size_t>(last.before_op));
    update_at_[b] = static_cast<std::int32_t>(ops_.size());
    const Price& cost = price(b);
    add(cost.update, cost.update_work.begin());
  }
  take_until(data_.ops.size());

  cuts_.clear();
  for (const std::size_t b : update_order_) {
    for (const std::int32_t end : {choices[b].begin, choices[b].end - 1}) {
      const bool cut = data_.held(choices[b], end) < data_.bytes[static_cast<std::size_t>(end)];
      if (cut) cuts_.push_back({end, update_at_[b]});
    }
  }
  std::ranges::sort(cuts_);
}

void StepWriter::price_update(std::size_t bucket, Price& price) const {
  const BucketChoice& choice = choices_[bucket];
  schedule::Op op = data_.update_of(choice);
  if (data_.names_updates)
    op.name = schedule::shard_update_name(BucketId{static_cast<std::int32_t>(bucket)});
  const std::int32_t role = data_.kind(choice).role;
  const sim::LaneRange lanes = lanes_.roles()[static_cast<std::size_t>(role)];
  for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
    const Rank rank = lanes_.ranks()[static_cast<std::size_t>(lane)];
    const std::int64_t ns = data_.costs.op(op, rank).count();
    price.update_work.push_back(step::Work::fixed(ns + data_.launch_gap()));
  }
  price.update = {.issue = data_.inline_host() ? 0 : data_.costs.issue(op).count(),
                  .role = role,
                  .kernel = models::kernel_class(op)};
}

std::size_t StepWriter::place_of(std::size_t op) const {
  const auto head = static_cast<std::size_t>(data_.sharding->updates.front().before_op);
  return op < head || op == schedule::kEnd ? op : moved_[op - head];
}

std::int32_t StepWriter::update_behind(std::int32_t op, const BucketChoice& choice,
                                       std::size_t bucket) const {
  std::int32_t first = update_at_[bucket] > op ? update_at_[bucket] : kBehindAllOps;
  for (const std::int32_t gradient : {choice.begin, choice.end - 1}) {
    const auto cut = std::ranges::upper_bound(cuts_, Cut{gradient, op});
    if (cut != cuts_.end() && cut->gradient == gradient) first = std::min(first, cut->at);
  }
  return first;
}

void StepWriter::plan_gathers(std::size_t index) {
  if (data_.gathers_each_use()) return plan_gathers_each_use(index);
  std::vector<schedule::Travel>& travels = roles_[index].travels;
  const std::size_t first = travels.size();
  const bool next_forward = data_.frame.parameters == schedule::ParameterSync::NextForward;
  for (std::size_t b = 0; b < choices_.size(); ++b) {
    const BucketChoice& choice = choices_[b];
    if (!std::cmp_equal(data_.kind(choice).role, index)) continue;
    const std::int32_t update = next_forward ? kBeforeAllOps : update_at_[b];
    std::int32_t use = update_behind(update, choice, b);
    for (std::int32_t i = choice.begin; next_forward && i < choice.end; ++i) {
      use = std::min(use, data_.sharding->first_reader[static_cast<std::size_t>(i)]);
    }
    schedule::Travel gather{.kind = schedule::Travel::Kind::Gather,
                            .what = b,
                            .stream = StreamId{choice.stream + 1},
                            .wait_before = static_cast<std::size_t>(use)};
    if (!next_forward) gather.launch_after = update;
    travels.push_back(gather);
  }
  // In order of need, or of the updates.
  std::stable_sort(travels.begin() + static_cast<std::ptrdiff_t>(first), travels.end(),
                   [](const schedule::Travel& a, const schedule::Travel& b) {
                     return a.launch_after.value_or(a.wait_before) <
                            b.launch_after.value_or(b.wait_before);
                   });
}

// In every micro-step.
void StepWriter::plan_gathers_each_use(std::size_t index) {
  const auto role = static_cast<std::int32_t>(index);
  if (index == 0) stops_ = gathers_of(data_, choices_);
  wanted_.clear();
  for (std::size_t m = 0; m < data_.sharding->steps.size(); ++m) {
    const GatheringStep& step = data_.sharding->steps[m];
    for (std::size_t k = 0; k < stops_.size(); ++k) {
      const GatherStop& stop = stops_[k];
      const BucketChoice& choice = choices_[stop.bucket];
      if (data_.kind(choice).role != role) continue;
      const Uses uses = uses_of(step, choice, stop.readers);
      const std::int32_t place =
          *(stop.readers == GatherFor::Backward ? choice.gather.backward : choice.gather.forward);
      wanted_.push_back({.travel = {.kind = schedule::Travel::Kind::Gather,
                                    .what = stop.bucket,
                                    .stream = StreamId{choice.gather.stream + 1}},
                         .gather = k,
                         .stays = stop.readers == GatherFor::ForwardAndBackward,
                         .asked = static_cast<std::size_t>(
                             place == 0 ? step.begin[index] : data_.same_op(m, place - 1) + 1),
                         .first = static_cast<std::size_t>(uses.first),
                         .last = static_cast<std::size_t>(uses.last)});
    }
  }
  if (roles_.size() > 1) schedule::join_micro_batches(wanted_);
  free_.assign(choices_.size(), 0);
  schedule::place_in_turn(wanted_, free_, roles_[index].travels);
}

}  // namespace dovetail::search
