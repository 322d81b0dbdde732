// What collectives, copies and scaling do to the symbolic memory: the part of the interpreter that
// reduces, gathers, packs and unpacks buckets, and reports a gradient that is reduced twice, too
// early or too late.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/interpreter.h"

#include "schedule/collective_traits.h"

#include <algorithm>

namespace dovetail::schedule::verification {

void Interpreter::walk_collective(const Communicate& collective) {
  const BucketLayout& bucket = *index_.bucket(*collective.bucket);
  const bool shards = collective.kind != Collective::AllReduce;
  const std::int64_t degree = index_.group(collective.group)->size();
  if (shards && bucket.shards != degree) {
    add(ProblemKind::BadLayout, label() + " is over " + std::to_string(degree) +
                                    " ranks, but the buffer has " + std::to_string(bucket.shards) +
                                    " shards");
  } else if (shards && bucket.cut_over && !index_.meet_alike(collective.group, *bucket.cut_over)) {
    add(ProblemKind::BadLayout, label() + " is over " + index_.group(collective.group)->name +
                                    ", but the buffer is cut over other ranks");
  }
  if (collective.kind == Collective::AllGather && bucket.residence == Residence::Shard) {
    begin_gather(bucket);
  }
  for (const Place& place : memory_.places(*collective.bucket)) {
    touch(place.packed, Access::Write);
    if (collective.kind == Collective::AllGather) {
      gather(place);
    } else {
      reduce(collective, bucket, place);
    }
  }
}

void Interpreter::reduce(const Communicate& collective, const BucketLayout& bucket,
                         const Place& place) {
  const std::string of = index_.name(place.tensor);
  if (!traits_of(collective.kind).reduces()) {
    return add(ProblemKind::WrongReduction, label() + " does not reduce " + of);
  }
  if (!is_followed(place.tensor)) {
    return add(ProblemKind::WrongReduction,
               label() + " reduces " + of + ", which needs no reduction");
  }
  for (std::int32_t i = 0; i < place.packed.count; ++i) {
    Value& held = value(place.packed.first + i);
    const bool wants_shard = collective.part == Part::Shard;
    if (held.state == Value::State::Written && held.shard != wants_shard) {
      add(ProblemKind::WrongReduction,
          label() + (wants_shard ? " takes one of " + std::to_string(bucket.shards) +
                                       " shards, but " + of + " is not scattered"
                                 : " takes all of " + of + ", of which only a shard is right"));
    }
    reduce_cell(collective, place.own.first + i, held);
    // Of a whole sum in a bucket of shards each rank goes on with its own.
    if (collective.kind == Collective::ReduceScatter || bucket.shards > 1) held.shard = true;
  }
}

void Interpreter::reduce_cell(const Communicate& collective, std::int32_t own, Value& held) {
  const TensorId tensor = memory_.tensor_of(own);
  if (held.state != Value::State::Written || held.contributions == 0 || held.partial) {
    add(ProblemKind::ReducedTooEarly,
        label() + " runs before the last write of " + index_.name(tensor));
    // What it sends is old; what is in the bucket afterwards, too.
    if (held.contributions == 0) return;
  }
  const bool fresh = taken_.emplace(own, held.contributions, collective.group).second;
  if (!fresh || groups_.contains(held.groups, collective.group.value)) {
    add(ProblemKind::ReducedTwice,
        "gradient " + index_.name(tensor) + " is reduced a second time by " + label());
  }
  note_reduction(collective, held);
  held.groups = groups_.unite(held.groups, groups_.single(collective.group.value));
  if (collective.reduce == ReduceOp::Average) {
    held.factor = held.factor * index_.average_over(collective.group);
  }
}

// A sum where an average is owed is right only if 1 / degree is applied elsewhere: that is judged
// where the gradient is read.
void Interpreter::note_reduction(const Communicate& collective, const Value& held) {
  const SetId group = groups_.single(collective.group.value);
  for (const Contribution& from : contributions_.members(held.contributions)) {
    const std::int32_t at = from.debt;
    const Debt& debt = index_.debts()[at];
    reduced_over_[at] = groups_.unite(reduced_over_[at], group);
    const auto owed = std::ranges::find(debt.reductions, collective.group, &Reduction::group);
    const Reduction& instead = owed == debt.reductions.end() ? debt.reductions.front() : *owed;
    const ProcessGroup* over = index_.group(instead.group);
    const std::string text = label() + " does not reduce " + index_.name(debt.gradient) +
                             " as it needs: " + std::string(to_string(instead.op)) + " over " +
                             (over == nullptr ? "its group" : over->name);
    if (owed == debt.reductions.end()) {
      add(ProblemKind::WrongReduction, text);
    } else if (owed->op != collective.reduce) {
      const Rational average = index_.average_over(collective.group);
      other_op_[at] = {text, owed->op == ReduceOp::Average ? average : Rational() / average};
    }
  }
}

void Interpreter::gather(const Place& place) {
  for (std::int32_t i = 0; i < place.packed.count; ++i) {
    Value& held = value(place.packed.first + i);
    if (held.contributions != 0 && !held.shard) {
      add(ProblemKind::WrongReduction,
          label() + " gathers " + index_.name(place.tensor) + ", which is not scattered");
    }
    held.shard = false;
  }
}

void Interpreter::walk_copy(const Copy& copy) {
  const bool pack = copy.direction == CopyDirection::Pack;
  const std::vector<Place>& places = memory_.places(copy.bucket);
  for (const TensorId id : copy.gradients) {
    for (const Place& place : places) {
      if (place.tensor != id || place.packed.first == place.own.first) continue;
      const Cells from = pack ? place.own : place.packed;
      const Cells to = pack ? place.packed : place.own;
      touch(from, Access::Read);
      touch(to, Access::Write);
      for (std::int32_t i = 0; i < from.count; ++i) {
        const Value& moved = value(from.first + i);
        if (pack && is_followed(id) && (moved.state == Value::State::Unwritten || moved.partial)) {
          add(ProblemKind::ReducedTooEarly,
              label() + " moves " + index_.name(id) + " before its last write");
        }
        value(to.first + i) = moved;
      }
    }
  }
}

void Interpreter::walk_scale(const Scale& scale) {
  for (const Place& place : memory_.places(scale.bucket)) {
    touch(place.packed, Access::Write);
    if (!is_followed(place.tensor)) {
      add(ProblemKind::WrongScale,
          label() + " scales " + index_.name(place.tensor) + ", which needs no reduction");
      continue;
    }
    for (std::int32_t i = 0; i < place.packed.count; ++i) {
      Value& held = value(place.packed.first + i);
      if (held.state == Value::State::Unwritten || held.partial) {
        add(ProblemKind::ReducedTooEarly,
            label() + " runs before the last write of " + index_.name(place.tensor));
      } else if (scale.part == Part::Shard && !held.shard) {
        add(ProblemKind::WrongScale,
            label() + " takes one shard of " + index_.name(place.tensor) + ", which is whole");
      }
      held.factor = held.factor * scale.factor;
    }
  }
}

}  // namespace dovetail::schedule::verification
