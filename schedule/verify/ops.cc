// What an op does to the symbolic memory: the part of the interpreter that checks what an op reads
// and sets what its results hold. Gradients in the making, sums, sharded updates and everything
// else are written by rules of their own.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/gradient.h"
#include "schedule/verify/interpreter.h"

#include <algorithm>
#include <set>

namespace dovetail::schedule::verification {

void Interpreter::walk_op(const Op& op) {
  read_all(op);
  write_all(op);
}

void Interpreter::read_all(const Op& op) {
  const auto* update = std::get_if<ShardUpdate>(&op.effect);
  const auto* norm = std::get_if<GlobalNorm>(&op.effect);
  std::set<TensorId> packed;  // those read as they lie in buckets
  if (update != nullptr) {
    for (const Place& place : memory_.places(update->gradients)) packed.insert(place.tensor);
    read_packed(op, memory_.places(update->gradients));
  }
  const auto* sum = std::get_if<Accumulate>(&op.effect);
  for (const TensorId id : op.reads) {
    if (packed.contains(id)) continue;
    if (sum != nullptr && sum->shard) {
      read_packed(op, memory_.places_of(id));
      continue;
    }
    const bool gradient =
        is_followed(id) || holds_gradient(id) || index_.tensor(id)->kind == TensorKind::Gradient;
    if (norm != nullptr && norm->shard && gradient) {
      read_shards(op, id);
      continue;
    }
    const Cells own = memory_.own(id);
    touch(own, Access::Read);
    // Of a parameter, a sharded update needs only the shard that the last one wrote.
    const bool parameter = index_.tensor(id)->kind == TensorKind::Parameter;
    check_read(op, own, own, parameter && update != nullptr ? Extent::Shard : Extent::Whole);
  }
}

// Those of the places whose tensors the op reads.
void Interpreter::read_packed(const Op& op, const std::vector<Place>& places) {
  const std::set<TensorId> reads(op.reads.begin(), op.reads.end());
  for (const Place& place : places) {
    if (!reads.contains(place.tensor)) continue;
    touch(place.packed, Access::Read);
    check_read(op, place.own, place.packed, Extent::Shard);
  }
}

// The shards of a gradient, which must make up all of it over the ranks.
void Interpreter::read_shards(const Op& op, TensorId gradient) {
  const std::vector<Place> places = memory_.sharded_places(gradient);
  read_packed(op, places);
  const Cells own = memory_.own(gradient);
  std::set<std::int32_t> found;
  for (const Place& place : places) {
    for (std::int32_t i = 0; i < place.own.count; ++i) found.insert(place.own.first + i);
  }
  if (static_cast<std::int32_t>(found.size()) == own.count) return;
  add(ProblemKind::WrongReduction, label() + " reads this rank's shards of " +
                                       index_.name(gradient) + ", which is not cut into shards");
}

void Interpreter::write_all(const Op& op) {
  if (const auto* sum = std::get_if<Accumulate>(&op.effect)) return accumulate(op, *sum);
  if (const auto* update = std::get_if<ShardUpdate>(&op.effect)) {
    check_shards(*update, op);
    return write_shards(*update, op);
  }
  const auto* message = std::get_if<CollectiveWork>(&op.work);
  if (message != nullptr && message->purpose == Purpose::TiedWeights)
    return add_tied(*message, op.writes.front());
  for (const TensorId id : op.writes) {
    touch(memory_.own(id), Access::Write);
    if (std::holds_alternative<ZeroFill>(op.effect)) {
      const Cells own = memory_.own(id);
      for (std::int32_t i = 0; i < own.count; ++i) {
        value(own.first + i) = {};
        value(own.first + i).state = Value::State::Zero;
      }
    } else if (index_.debt_of(id) >= 0 && op.phase != Phase::Optimizer) {
      write_gradient(op, id, Rational());
    } else {
      write_other(op, id);
    }
  }
}

// A shard of the parameters is made of the same shard of the gradients, element by element.
void Interpreter::check_shards(const ShardUpdate& update, const Op& op) {
  const BucketLayout& from = *index_.bucket(update.gradients);
  const BucketLayout& to = *index_.bucket(update.parameters);
  // In elements, since both may be of different types.
  const auto at = [](Bytes bytes, const BucketLayout& bucket) {
    return bytes.count() / element_size(bucket.dtype).count();
  };
  const auto lie_alike = [&](const BucketMember& a, const BucketMember& b) {
    return at(a.offset, from) == at(b.offset, to) && a.first == b.first &&
           a.elements(*index_.tensor(a.tensor)) == b.elements(*index_.tensor(b.tensor));
  };
  if (from.shards != to.shards || at(from.size, from) != at(to.size, to) ||
      !std::ranges::equal(from.members, to.members, lie_alike)) {
    add(ProblemKind::BadLayout, label() + " updates " + bucket_name(to.bucket) + " with " +
                                    bucket_name(from.bucket) + ", which is not cut alike");
  }
  const auto outside = [&](const char* does, TensorId id, BucketId bucket) {
    add(ProblemKind::BadReference,
        label() + does + index_.name(id) + ", which does not lie in " + bucket_name(bucket));
  };
  std::set<TensorId> members;
  for (const BucketMember& member : from.members) members.insert(member.tensor);
  for (const BucketMember& member : to.members) members.insert(member.tensor);
  for (const TensorId id : op.reads) {
    if (is_followed(id) && !members.contains(id)) outside(" reads ", id, from.bucket);
  }
  for (const TensorId id : op.writes) {
    const bool parameter = index_.tensor(id)->kind == TensorKind::Parameter;
    if (parameter && !members.contains(id)) outside(" writes ", id, to.bucket);
  }
}

// The parameters' shards lie in their bucket; what their own memory holds is now old.
void Interpreter::write_shards(const ShardUpdate& update, const Op& op) {
  const std::set<TensorId> writes(op.writes.begin(), op.writes.end());
  std::set<TensorId> packed;
  for (const Place& place : memory_.places(update.parameters)) {
    if (!writes.contains(place.tensor)) continue;
    packed.insert(place.tensor);
    touch(place.packed, Access::Write);
    for (std::int32_t i = 0; i < place.packed.count; ++i) {
      value(place.own.first + i) = {};
      Value& shard = value(place.packed.first + i);
      shard = {};
      shard.state = Value::State::Written;
      shard.shard = true;
    }
  }
  for (const TensorId id : op.writes) {
    if (packed.contains(id)) continue;
    touch(memory_.own(id), Access::Write);
    write_other(op, id);
  }
}

bool Interpreter::is_partial(const Op& op, TensorId gradient) const {
  const std::int32_t debt = index_.debt_of(gradient);
  if (debt < 0) return false;
  const Debt& owed = index_.debts()[debt];
  return owed.producers[static_cast<std::size_t>(op.micro_step)] != op.id;
}

// A producer that reads the gradient which it writes adds to it (shared weights).
void Interpreter::write_gradient(const Op& op, TensorId gradient, Rational factor) {
  const SetId mine = contributions_.single(index_.debt_of(gradient), op.micro_step);
  const bool reads_it = std::ranges::count(op.reads, gradient) > 0;
  const std::optional<Rational> loss = losses_.of(op.id);
  const Cells own = memory_.own(gradient);
  for (std::int32_t i = 0; i < own.count; ++i) {
    Value& held = value(own.first + i);
    const bool written = held.state == Value::State::Written && held.contributions != 0;
    if (written && held.groups != 0 && (reads_it || held.contributions == mine)) {
      add(ProblemKind::ReducedTooEarly,
          label() + " writes " + index_.name(gradient) + " after its reduction");
    }
    if (!written || !reads_it) {
      held = {};
      held.contributions = mine;
      held.factor = loss.value_or(Rational());
    } else {
      held.contributions =
          contributions_.join(held.contributions, mine).value_or(held.contributions);
      if (loss && *loss != held.factor) {
        add(ProblemKind::WrongScale, label() + " adds gradients of the loss times " +
                                         to_string(*loss) + " to " + index_.name(gradient) +
                                         ", which is scaled by " + to_string(held.factor));
      }
    }
    held.state = Value::State::Written;
    held.factor = held.factor * factor;
    held.partial = is_partial(op, gradient);
  }
}

// Everything that is not a gradient in the making. What the optimizer makes of a gradient in place
// (clipping) counts as before; a sum over the shards of a norm completes it.
void Interpreter::write_other(const Op& op, TensorId tensor) {
  const bool reads_it = std::ranges::count(op.reads, tensor) > 0;
  const auto* message = std::get_if<CollectiveWork>(&op.work);
  const auto* norm = std::get_if<GlobalNorm>(&op.effect);
  const Cells own = memory_.own(tensor);
  for (std::int32_t i = 0; i < own.count; ++i) {
    Value& held = value(own.first + i);
    if (!reads_it || held.contributions == 0) held = {};
    held.state = Value::State::Written;
    if (norm != nullptr && norm->shard) held.shard = true;
  }
  if (message == nullptr || reads_it || message->kind == Collective::AllReduce) return;
  // Communication that only moves a value hands on what is incomplete about it.
  for (const TensorId from : op.reads) {
    if (value(memory_.own(from).first).shard) value(own.first).shard = true;
  }
}

// All micro-steps of the gradient are there, and then those of the ones that it is tied to.
void Interpreter::add_tied(const CollectiveWork& message, TensorId tensor) {
  const Cells own = memory_.own(tensor);
  touch(own, Access::Write);
  for (std::int32_t i = 0; i < own.count; ++i) {
    Value& held = value(own.first + i);
    const std::vector<Contribution> mine = contributions_.members(held.contributions);
    const bool is_complete = std::ranges::all_of(mine, [&](const Contribution& from) {
      return contributions_.micro_steps(from) == index_.program.micro_steps;
    });
    if (held.state != Value::State::Written || held.partial || mine.empty() || !is_complete) {
      add(ProblemKind::ReducedTooEarly,
          label() + " runs before the last write of " + index_.name(tensor));
    }
    ties_[message.group] = {.factor = held.factor, .groups = groups_.members(held.groups)};
    for (const Contribution& from : mine) {
      for (const std::int32_t other : index_.debts()[from.debt].tied) {
        for (std::int32_t step = 0; step < index_.program.micro_steps; ++step) {
          const auto both =
              contributions_.join(held.contributions, contributions_.single(other, step));
          if (!both) {
            add(ProblemKind::ReducedTwice, label() + " adds tied gradients a second time");
            return;
          }
          held.contributions = *both;
        }
      }
    }
  }
}

bool Interpreter::holds_gradient(TensorId tensor) const {
  const Cells own = memory_.own(tensor);
  const auto first = values_.begin() + own.first;
  return std::any_of(first, first + own.count,
                     [](const Value& held) { return held.contributions != 0; });
}

// A parameter or state that gradients are added to is used up by them: it reads them as an update.
bool Interpreter::sums_gradients(const Op& op) const {
  if (!std::holds_alternative<Accumulate>(op.effect)) return false;
  const TensorKind target = index_.tensor(op.writes.front())->kind;
  return is_gradient(target) || target == TensorKind::Activation;
}

void Interpreter::accumulate(const Op& op, const Accumulate& sum_of) {
  const TensorId target = op.writes.front();
  const auto other = std::ranges::find_if(op.reads, [&](TensorId id) { return id != target; });
  if (sum_of.shard) {
    return accumulate_shards(op, sum_of,
                             other == op.reads.end() ? std::nullopt : std::optional(*other));
  }
  const Cells own = memory_.own(target);
  touch(own, Access::Write);
  // Also a sum of owed gradients, which owes nothing itself (a weight that two layers share).
  const bool from_other =
      other != op.reads.end() && (is_followed(*other) || holds_gradient(*other));
  if (is_followed(target) && !from_other && index_.debt_of(target) >= 0) {
    return write_gradient(op, target, sum_of.factor);
  }
  if (!from_other || !sums_gradients(op)) return write_other(op, target);
  add_pieces(op, sum_of, {*other, memory_.own(*other)}, {target, own});
}

// What a rank's parts of buckets hold of both; they must lie alike.
void Interpreter::accumulate_shards(const Op& op, const Accumulate& sum_of,
                                    std::optional<TensorId> other) {
  const TensorId target = op.writes.front();
  const std::vector<Place>& to = memory_.places_of(target);
  const std::vector<Place> nowhere;
  const std::vector<Place>& from = other ? memory_.places_of(*other) : nowhere;
  const auto lie_alike = [&](const Place& a, const Place& b) {
    return a.cut == b.cut && a.own.count == b.own.count &&
           a.own.first - memory_.own(a.tensor).first == b.own.first - memory_.own(b.tensor).first;
  };
  if (from.empty() || !std::ranges::equal(from, to, lie_alike)) {
    return add(ProblemKind::BadLayout,
               label() + " adds shards to " + index_.name(target) + ", which is not cut alike");
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    touch(to[i].packed, Access::Write);
    add_pieces(op, sum_of, {*other, from[i].packed}, {target, to[i].packed});
  }
}

// Adds the cells of one tensor to as many of another.
void Interpreter::add_pieces(const Op& op, const Accumulate& sum_of, const Pieces& from,
                             const Pieces& to) {
  for (std::int32_t i = 0; i < to.cells.count; ++i) {
    Value& held = value(to.cells.first + i);
    const Value& added = value(from.cells.first + i);
    const std::string adds = label() + " adds " + index_.name(from.tensor);
    if (added.state == Value::State::Unwritten) {
      add(ProblemKind::MissingMicroStep, adds + " before it is written");
    } else if (added.partial) {
      add(ProblemKind::ReducedTooEarly, adds + " before its last write");
    }
    held = sum_of.overwrite ? added : sum(held, added, to.tensor, from.tensor);
    held.factor = held.factor * sum_of.factor;
    held.partial = index_.debt_of(to.tensor) >= 0 && is_partial(op, to.tensor);
  }
}

Value Interpreter::sum(const Value& target, const Value& other, TensorId target_id,
                       TensorId other_id) {
  const std::string adds =
      label() + " adds " + index_.name(other_id) + " to " + index_.name(target_id);
  if (target.state == Value::State::Zero) {
    sums_onto_zero_ = true;
    return other;
  }
  if (other.state == Value::State::Zero) return target;
  if (target.state == Value::State::Unwritten) {
    add(ProblemKind::MissingMicroStep, adds + ", which is neither zero nor written");
    return other;
  }
  Value result = target;
  if (const auto both = contributions_.join(target.contributions, other.contributions)) {
    result.contributions = *both;
  } else {
    add(ProblemKind::ReducedTwice, adds + ", which has that micro-step already");
  }
  if (target.groups != other.groups) {
    const bool late = groups_.unite(target.groups, other.groups) == target.groups;
    add(late ? ProblemKind::ReducedTooEarly : ProblemKind::WrongReduction,
        adds + (late ? " after its reduction" : ", of which only one is reduced"));
  } else if (target.shard != other.shard) {
    add(ProblemKind::WrongReduction, adds + ", of which only one is scattered");
  }
  if (target.factor != other.factor) {
    add(ProblemKind::WrongScale, adds + ", which is scaled by " + to_string(target.factor) +
                                     ", not by " + to_string(other.factor));
  }
  return result;
}

}  // namespace dovetail::schedule::verification
