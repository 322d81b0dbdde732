// One mutation each: what a bug in a policy, a pass or a hand-written plan would do.
//
// A mutation is taken only where it must do harm, judged here by plain reading of the command list,
// not by verify.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tests/support/random_language.h"

namespace dovetail::testing {
namespace {

using schedule::Accumulate;
using schedule::Action;
using schedule::BucketLayout;
using schedule::BucketMember;
using schedule::BucketMode;
using schedule::Collective;
using schedule::Command;
using schedule::Communicate;
using schedule::Copy;
using schedule::CopyDirection;
using schedule::element_size;
using schedule::kComputeStream;
using schedule::Op;
using schedule::Part;
using schedule::ProblemKind;
using schedule::RankProgram;
using schedule::RecordEvent;
using schedule::ReduceOp;
using schedule::RunOp;
using schedule::Scale;
using schedule::ScheduledProgram;
using schedule::TensorKind;
using schedule::WaitEvent;

class Mutator {
 public:
  Mutator(Random& random, const ScheduledProgram& legal) : random_(random), plan_(legal) {
    number_commands();
  }

  std::optional<Mutation> apply(std::size_t kind) {
    using Way = std::optional<Mutation> (Mutator::*)();
    static constexpr Way kWays[] = {&Mutator::remove_wait_before_reader,
                                    &Mutator::remove_wait_of_stream,
                                    &Mutator::launch_early,
                                    &Mutator::reduce_twice,
                                    &Mutator::never_reduce,
                                    &Mutator::disagree_on_order,
                                    &Mutator::disagree_on_kind,
                                    &Mutator::change_operation,
                                    &Mutator::change_factor,
                                    &Mutator::remove_scale,
                                    &Mutator::overlap_members,
                                    &Mutator::leave_the_buffer,
                                    &Mutator::double_a_gradient,
                                    &Mutator::wait_for_the_future,
                                    &Mutator::run_an_op_twice,
                                    &Mutator::forget_an_op,
                                    &Mutator::forget_to_accumulate,
                                    &Mutator::forget_the_gather,
                                    &Mutator::forget_to_unpack,
                                    &Mutator::wait_in_a_circle};
    static_assert(std::size(kWays) == kKinds);
    return (this->*kWays[kind % kKinds])();
  }

  static constexpr std::size_t kKinds = 20;

 private:
  using Predicate = std::function<bool(std::size_t)>;

  [[nodiscard]] std::vector<Command>& commands() { return plan_.roles.front().commands; }

  template <class T>
  [[nodiscard]] const T* as(std::size_t index) {
    return std::get_if<T>(&commands()[index].action);
  }
  [[nodiscard]] bool on_compute(std::size_t index) {
    return commands()[index].stream == kComputeStream;
  }

  // A random command for which the predicate holds.
  std::optional<std::size_t> pick(const Predicate& holds) {
    std::vector<std::size_t> fitting;
    for (std::size_t i = 0; i < commands().size(); ++i) {
      if (holds(i)) fitting.push_back(i);
    }
    if (fitting.empty()) return std::nullopt;
    const auto last = static_cast<std::int64_t>(fitting.size()) - 1;
    return fitting[static_cast<std::size_t>(random_.between(0, last))];
  }

  const Communicate* collective_at(std::size_t i) { return bucket_collective(commands()[i]); }

  void erase(std::size_t index) {
    commands().erase(commands().begin() + static_cast<std::ptrdiff_t>(index));
  }
  void insert(std::size_t index, StreamId stream, Action action) {
    commands().insert(commands().begin() + static_cast<std::ptrdiff_t>(index),
                      {CommandId{next_command_++}, stream, std::move(action)});
  }
  Mutation mutation(std::string name, std::vector<ProblemKind> reasons) {
    return {std::move(name), std::move(reasons), std::move(plan_)};
  }

  void number_commands() {
    for (const RankProgram& role : plan_.roles) {
      for (const Command& command : role.commands) {
        next_command_ = std::max(next_command_, command.id.value + 1);
        if (const auto* record = std::get_if<RecordEvent>(&command.action)) {
          next_event_ = std::max(next_event_, record->event.value + 1);
        }
      }
    }
  }

  [[nodiscard]] bool holds_gradients(BucketId id) const {
    const TensorId first = plan_.bucket(id).members.front().tensor;
    return plan_.program.tensor(first).kind != TensorKind::Parameter;
  }

  // The collective that stands before the record of this event on its stream, and its position.
  std::optional<std::size_t> collective_of(EventId event) {
    std::map<StreamId, std::size_t> last;
    for (std::size_t i = 0; i < commands().size(); ++i) {
      if (collective_at(i) != nullptr) last[commands()[i].stream] = i;
      const auto* record = as<RecordEvent>(i);
      if (record == nullptr || record->event != event) continue;
      const auto found = last.find(commands()[i].stream);
      if (found != last.end()) return found->second;
    }
    return std::nullopt;
  }

  // Whether a compute command before `limit`, from `from` on, waits for something recorded on the
  // stream after command `collective`.
  bool waited_elsewhere(std::size_t collective, std::size_t from, std::size_t limit) {
    const StreamId stream = commands()[collective].stream;
    std::set<EventId> later;
    for (std::size_t i = collective + 1; i < commands().size(); ++i) {
      const auto* record = as<RecordEvent>(i);
      if (record != nullptr && commands()[i].stream == stream) later.insert(record->event);
    }
    for (std::size_t i = 0; i < limit; ++i) {
      const auto* wait = as<WaitEvent>(i);
      if (wait != nullptr && i != from && later.contains(wait->event)) return true;
    }
    return false;
  }

  // The first compute command after `from` that touches a member of the bucket.
  std::optional<std::size_t> first_toucher(BucketId id, std::size_t from) {
    std::set<TensorId> members;
    for (const BucketMember& member : plan_.bucket(id).members) members.insert(member.tensor);
    for (std::size_t i = from; i < commands().size(); ++i) {
      if (const auto* copy = as<Copy>(i); copy != nullptr && copy->bucket == id) return i;
      const auto run = op_run_by(commands()[i]);
      if (!run) continue;
      for (const TensorId tensor : plan_.program.op(*run).reads) {
        if (members.contains(tensor)) return i;
      }
    }
    return std::nullopt;
  }

  std::optional<Mutation> remove_wait_before_reader() {
    const auto at = pick([&](std::size_t i) {
      const auto* wait = as<WaitEvent>(i);
      if (wait == nullptr || !on_compute(i)) return false;
      const auto collective = collective_of(wait->event);
      if (!collective || *collective > i) return false;
      const BucketId bucket = *collective_at(*collective)->bucket;
      const auto toucher = first_toucher(bucket, i);
      return toucher && !waited_elsewhere(*collective, i, *toucher);
    });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation(
        "a wait of the compute stream removed",
        {ProblemKind::Race, ProblemKind::ReadBeforeReduced, ProblemKind::ReadBeforeGathered});
  }

  // The wait of a communication stream right before a collective of gradients whose stream has no
  // other wait after the last producer.
  std::optional<Mutation> remove_wait_of_stream() {
    const auto at = pick([&](std::size_t i) {
      if (as<WaitEvent>(i) == nullptr || on_compute(i) || i + 1 >= commands().size()) return false;
      const auto* collective = collective_at(i + 1);
      return collective != nullptr && holds_gradients(*collective->bucket) &&
             commands()[i + 1].stream == commands()[i].stream && producer_is_new(i);
    });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation("a wait of a communication stream removed", {ProblemKind::Race});
  }

  // Whether an op or copy on the compute stream wrote a member of the bucket that is launched after
  // command i since the last wait of this stream.
  bool producer_is_new(std::size_t i) {
    const BucketLayout& bucket = plan_.bucket(*collective_at(i + 1)->bucket);
    for (std::size_t back = i; back-- > 0;) {
      if (commands()[back].stream == commands()[i].stream && as<WaitEvent>(back) != nullptr) {
        return false;
      }
      if (const auto* copy = as<Copy>(back)) {
        if (copy->bucket == bucket.bucket) return true;
      }
      const auto run = op_run_by(commands()[back]);
      if (!run || bucket.mode == BucketMode::Copy) continue;
      for (const BucketMember& member : bucket.members) {
        const auto& writes = plan_.program.op(*run).writes;
        if (std::ranges::find(writes, member.tensor) != writes.end()) return true;
      }
    }
    return false;
  }

  // Moves a collective of gradients to the very start of its stream's commands, without its wait.
  std::optional<Mutation> launch_early() {
    const auto at = pick([&](std::size_t i) {
      const auto* collective = collective_at(i);
      return collective != nullptr && holds_gradients(*collective->bucket);
    });
    if (!at) return std::nullopt;
    const Command moved = commands()[*at];
    erase(*at);
    commands().insert(commands().begin(), moved);
    return mutation("a bucket launched before its gradients exist",
                    {ProblemKind::ReducedTooEarly, ProblemKind::Race, ProblemKind::NotReduced,
                     ProblemKind::ReadBeforeReduced});
  }

  std::optional<Mutation> reduce_twice() {
    const auto at = pick([&](std::size_t i) {
      const auto* collective = collective_at(i);
      return collective != nullptr && collective->kind == Collective::AllReduce &&
             collective->part == Part::Whole && holds_gradients(*collective->bucket);
    });
    if (!at) return std::nullopt;
    insert(*at + 1, commands()[*at].stream, *collective_at(*at));
    return mutation("a collective doubled", {ProblemKind::ReducedTwice});
  }

  std::optional<Mutation> never_reduce() {
    const auto at = pick([&](std::size_t i) {
      const auto* collective = collective_at(i);
      return collective != nullptr && holds_gradients(*collective->bucket);
    });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation("a collective removed",
                    {ProblemKind::NotReduced, ProblemKind::ReadBeforeReduced,
                     ProblemKind::ReducedTooEarly, ProblemKind::WrongReduction});
  }

  // Splits the ranks into two roles of their own.
  bool split_roles() {
    if (plan_.roles.size() != 1 || plan_.roles.front().ranks.size() < 2) return false;
    RankProgram second = plan_.roles.front();
    plan_.roles.front().ranks.resize(1);
    second.ranks.erase(second.ranks.begin());
    for (Command& command : second.commands) command.id = CommandId{next_command_++};
    plan_.roles.push_back(std::move(second));
    return true;
  }

  std::optional<Mutation> disagree_on_order() {
    // Two neighbouring collectives of one stream whose data is there before either is issued.
    std::optional<std::size_t> first;
    std::optional<std::size_t> second;
    for (std::size_t i = 0; i < commands().size() && !second; ++i) {
      const auto* collective = collective_at(i);
      if (collective == nullptr || on_compute(i)) continue;
      if (first && commands()[*first].stream == commands()[i].stream &&
          collective_at(*first)->bucket != collective->bucket) {
        second = i;
      } else {
        first = i;
      }
    }
    if (!second || !split_roles()) return std::nullopt;
    std::vector<Command>& other = plan_.roles.back().commands;
    std::swap(other[*first].action, other[*second].action);
    return mutation(
        "ranks disagree on the order of two collectives",
        {ProblemKind::RankMismatch, ProblemKind::Deadlock, ProblemKind::Race,
         ProblemKind::ReducedTooEarly, ProblemKind::ReadBeforeReduced, ProblemKind::WrongReduction,
         ProblemKind::ReducedTwice, ProblemKind::ReadBeforeGathered, ProblemKind::WrongScale});
  }

  std::optional<Mutation> disagree_on_kind() {
    const auto at = pick([&](std::size_t i) { return collective_at(i) != nullptr; });
    if (!at || !split_roles()) return std::nullopt;
    auto& other = std::get<Communicate>(plan_.roles.back().commands[*at].action);
    other.kind =
        other.kind == Collective::AllReduce ? Collective::AllGather : Collective::AllReduce;
    return mutation(
        "ranks disagree on the kind of a collective",
        {ProblemKind::RankMismatch, ProblemKind::WrongReduction, ProblemKind::ReadBeforeReduced,
         ProblemKind::ReducedTwice, ProblemKind::ReadBeforeGathered, ProblemKind::NotReduced,
         ProblemKind::WrongScale});  // of a part that was to be scattered
  }

  std::optional<Mutation> change_operation() {
    const auto at = pick([&](std::size_t i) {
      const auto* collective = collective_at(i);
      return collective != nullptr && collective->kind != Collective::AllGather &&
             holds_gradients(*collective->bucket);
    });
    if (!at) return std::nullopt;
    auto& collective = std::get<Communicate>(commands()[*at].action);
    collective.reduce = collective.reduce == ReduceOp::Sum ? ReduceOp::Average : ReduceOp::Sum;
    return mutation("sum and average exchanged",
                    {ProblemKind::WrongScale, ProblemKind::WrongReduction});
  }

  std::optional<Mutation> change_factor() {
    const auto at = pick([&](std::size_t i) { return as<Scale>(i) != nullptr; });
    if (!at) return std::nullopt;
    auto& scale = std::get<Scale>(commands()[*at].action);
    scale.factor = scale.factor * Rational(1, 2);
    return mutation("a factor halved", {ProblemKind::WrongScale});
  }

  std::optional<Mutation> remove_scale() {
    const auto at = pick([&](std::size_t i) {
      const auto* scale = as<Scale>(i);
      return scale != nullptr && scale->factor != Rational();
    });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation("a scale removed", {ProblemKind::WrongScale});
  }

  std::optional<Mutation> overlap_members() {
    for (BucketLayout& bucket : plan_.buckets) {
      if (bucket.members.size() < 2) continue;
      bucket.members[1].offset = bucket.members[0].offset;
      return mutation("two members of a bucket overlap", {ProblemKind::BadLayout});
    }
    return std::nullopt;
  }

  std::optional<Mutation> leave_the_buffer() {
    if (plan_.buckets.empty()) return std::nullopt;
    BucketLayout& bucket = plan_.buckets.back();
    bucket.members.back().offset += bucket.size;
    return mutation("a member outside its buffer", {ProblemKind::BadLayout});
  }

  // The first gradient of one bucket lies in another one as well, where its producer writes it.
  std::optional<Mutation> double_a_gradient() {
    std::vector<std::size_t> holders;
    for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
      if (holds_gradients(plan_.buckets[i].bucket)) holders.push_back(i);
    }
    if (holders.size() < 2) return std::nullopt;
    if (plan_.buckets[holders.back()].mode != BucketMode::View) return std::nullopt;
    const BucketLayout& from = plan_.buckets[holders.front()];
    BucketLayout& to = plan_.buckets[holders.back()];
    BucketMember doubled = from.members.front();
    doubled.offset = to.size;
    const std::int64_t bytes =
        element_size(from.dtype).count() * doubled.elements(plan_.program.tensor(doubled.tensor));
    to.members.push_back(doubled);
    to.size += Bytes(bytes * std::max<std::int64_t>(1, to.shards));
    // A part of a gradient cannot be a window at all.
    return mutation("a gradient in two buckets",
                    {ProblemKind::ReducedTwice, ProblemKind::BadLayout});
  }

  std::optional<Mutation> wait_for_the_future() {
    const auto at = pick([&](std::size_t i) { return as<WaitEvent>(i) != nullptr; });
    if (!at) return std::nullopt;
    std::get<WaitEvent>(commands()[*at].action).event = EventId{next_event_};
    return mutation("a wait for an event that nobody records", {ProblemKind::UnrecordedEvent});
  }

  std::optional<Mutation> run_an_op_twice() {
    const auto at = pick([&](std::size_t i) { return op_run_by(commands()[i]).has_value(); });
    if (!at) return std::nullopt;
    insert(*at + 1, commands()[*at].stream, commands()[*at].action);
    return mutation("an op run twice", {ProblemKind::OpOrder});
  }

  std::optional<Mutation> forget_an_op() {
    const auto at = pick([&](std::size_t i) { return op_run_by(commands()[i]).has_value(); });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation("an op not run", {ProblemKind::OpOrder});
  }

  // The op stays in the command list but adds nothing: its micro-step is lost.
  std::optional<Mutation> forget_to_accumulate() {
    std::vector<Op*> sums;
    for (Op& op : plan_.program.ops) {
      const auto* sum = std::get_if<Accumulate>(&op.effect);
      if (sum == nullptr || sum->overwrite) continue;
      if (plan_.program.tensor(op.writes.front()).merges) sums.push_back(&op);
    }
    if (sums.empty()) return std::nullopt;
    const auto last = static_cast<std::int64_t>(sums.size()) - 1;
    Op& op = *sums[static_cast<std::size_t>(random_.between(0, last))];
    std::get<Accumulate>(op.effect).overwrite = true;
    return mutation("a micro-step overwritten", {ProblemKind::MissingMicroStep});
  }

  std::optional<Mutation> forget_the_gather() {
    const auto at = pick([&](std::size_t i) {
      const auto* collective = collective_at(i);
      return collective != nullptr && collective->kind == Collective::AllGather;
    });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation("an all-gather removed", {ProblemKind::ReadBeforeGathered});
  }

  std::optional<Mutation> forget_to_unpack() {
    const auto at = pick([&](std::size_t i) {
      const auto* copy = as<Copy>(i);
      return copy != nullptr && copy->direction == CopyDirection::Unpack;
    });
    if (!at) return std::nullopt;
    erase(*at);
    return mutation("an unpack removed",
                    {ProblemKind::ReadBeforeReduced, ProblemKind::ReadBeforeGathered,
                     ProblemKind::NotReduced, ProblemKind::ReducedTooEarly});
  }

  // Two communication streams, on which two ranks wait in opposite order: on rank 0 the first
  // collective of one stream comes before that of the other, on the others behind it.
  std::optional<Mutation> wait_in_a_circle() {
    if (!split_roles()) return std::nullopt;
    std::vector<std::size_t> first;  // of each communication stream: its first collective
    for (std::size_t i = 0; i < commands().size(); ++i) {
      const bool known = std::ranges::any_of(
          first, [&](std::size_t j) { return commands()[j].stream == commands()[i].stream; });
      if (collective_at(i) != nullptr && !on_compute(i) && !known) first.push_back(i);
    }
    if (first.size() < 2 || !swap_streams(plan_.roles.back().commands, first[0], first[1])) {
      return std::nullopt;
    }
    const EventId event{next_event_++};
    const StreamId earlier = commands()[first[0]].stream;
    insert(first[1], commands()[first[1]].stream, WaitEvent{event});
    insert(first[0] + 1, earlier, RecordEvent{event});
    return mutation("streams of two ranks wait in a circle", {ProblemKind::Deadlock});
  }

  // Issues the collective at `a` and what follows it on its stream behind the one at `b`, for which
  // it waits. False where the compute stream waits for it in between.
  bool swap_streams(std::vector<Command>& list, std::size_t a, std::size_t b) {
    const StreamId moving = list[a].stream;
    const EventId event{next_event_++};
    std::set<EventId> later;  // recorded by what moves
    std::vector<Command> moved = {{CommandId{next_command_++}, list[b].stream, RecordEvent{event}},
                                  {CommandId{next_command_++}, moving, WaitEvent{event}}};
    std::vector<Command> stay;
    for (std::size_t i = a; i <= b; ++i) {
      const auto* record = std::get_if<RecordEvent>(&list[i].action);
      const auto* wait = std::get_if<WaitEvent>(&list[i].action);
      if (list[i].stream == moving) {
        if (record != nullptr) later.insert(record->event);
        moved.push_back(list[i]);
      } else if (wait != nullptr && later.contains(wait->event)) {
        return false;
      } else {
        stay.push_back(list[i]);
      }
    }
    stay.insert(stay.end(), moved.begin(), moved.end());
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(a),
               list.begin() + static_cast<std::ptrdiff_t>(b) + 1);
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(a), stay.begin(), stay.end());
    return true;
  }

  Random& random_;
  ScheduledProgram plan_;
  std::int32_t next_command_ = 0;
  std::int32_t next_event_ = 0;
};

}  // namespace

std::size_t mutation_kinds() { return Mutator::kKinds + program_mutation_kinds(); }

std::optional<Mutation> mutate(Random& random, const ScheduledProgram& legal, std::size_t index) {
  index %= mutation_kinds();
  if (index >= Mutator::kKinds) return mutate_program(random, legal, index - Mutator::kKinds);
  return Mutator(random, legal).apply(index);
}

}  // namespace dovetail::testing
