// The emit pass: the walk (walk.h) written as commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/emit.h"

#include <optional>
#include <unordered_set>
#include <utility>

#include "schedule/lower/survey.h"
#include "schedule/lower/walk.h"

namespace dovetail::schedule::internal {
namespace {

class CommandWriter {
 public:
  CommandWriter(Draft& draft, const RoleDraft& role)
      : draft_(draft), program_(draft.program()), role_(role), done_(role.travels.size()) {}

  RankProgram write() {
    const auto ranks = static_cast<std::int32_t>(program_.world_size / program_.stages);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      out_.ranks.push_back(Rank{role_.role * ranks + rank});
    }
    std::vector<BucketSteps> steps;
    for (std::size_t i = 0; i < draft_.buckets.size(); ++i) steps.push_back(steps_of(i));
    std::vector<Pack> packs;
    for (std::size_t i = 0; i < role_.travels.size(); ++i) {
      const Travel& travel = role_.travels[i];
      if (travel.kind == Travel::Kind::Message) leaves_compute_.insert(travel.what);
      if (travel.kind == Travel::Kind::Bucket) add_packs(i, packs);
    }
    const RoleTimetable timetable{.ops = draft_.ops_of(role_.role),
                                  .travels = role_.travels,
                                  .packs = packs,
                                  .buckets = steps};
    Agenda agenda;
    agenda.fill(timetable);
    out_.commands.reserve(timetable.ops.size() + 3 * agenda.items().size());
    RoleWalk walk;
    walk.begin(timetable, *this);
    static_cast<void>(walk.go_on(agenda, *this));
    return std::move(out_);
  }

  // As walk.h asks.
  std::size_t run(std::size_t begin, std::size_t end) {
    for (; begin < end; ++begin) {
      const std::size_t op = draft_.ops_of(role_.role)[begin];
      if (!leaves_compute_.contains(op)) add(kComputeStream, action_of(program_.ops[op]));
    }
    return end;
  }

  void arrive(std::span<const StreamId> streams) {
    const EventId free = new_event();
    add(kComputeStream, RecordEvent{free});
    for (const StreamId stream : streams) add(stream, WaitEvent{free});
  }

  // On its stream, behind all that the compute stream holds so far, unless it need not wait for that.
  void open(std::size_t i) {
    const Travel& travel = role_.travels[i];
    const std::optional<EventId> ready =
        travel.after_compute ? std::optional(new_event()) : std::nullopt;
    done_[i] = new_event();
    if (!ready) return;
    add(kComputeStream, RecordEvent{*ready});
    add(travel.stream, WaitEvent{*ready});
  }
  void close(std::size_t i) { add(role_.travels[i].stream, RecordEvent{done_[i]}); }

  void communicate(std::size_t i, Part part) {
    const Travel& travel = role_.travels[i];
    switch (travel.kind) {
      case Travel::Kind::Bucket:
        return add(travel.stream, part == Part::Whole ? reduction(travel) : of_replicas(travel));
      case Travel::Kind::Gather:
        return add(travel.stream,
                   Communicate{buffer_of(travel), Collective::AllGather, ReduceOp::Sum,
                               draft_.gathers[travel.what].group, Part::Whole, travel.max_ctas});
      case Travel::Kind::Message:
        return add(travel.stream, action_of(program_.ops[travel.what], travel.max_ctas));
    }
  }

  void scale(std::size_t i, bool before) {
    const Travel& travel = role_.travels[i];
    const BucketPlan& plan = draft_.buckets[travel.what];
    if (before) return add(kComputeStream, Scale{plan.buffer, *plan.before});
    add(travel.stream, Scale{plan.buffer, *plan.afterwards, part_left(travel)});
  }

  void follow(std::size_t i, std::size_t other) {
    add(role_.travels[i].stream, WaitEvent{done_[other]});
  }
  static bool is_there(std::size_t /*i*/) { return true; }
  void wait(std::size_t i) { add(kComputeStream, WaitEvent{done_[i]}); }

  // The gradients of one producer in one bucket share a command.
  void pack(const Pack& pack) {
    const Travel& travel = role_.travels[pack.travel];
    const TensorId tensor =
        draft_.travels.at(draft_.schedule.buckets[travel.what].gradients[pack.gradient].tensor);
    const BucketId bucket = buffer_of(travel);
    auto* before = std::get_if<Copy>(&out_.commands.back().action);
    if (before != nullptr && before->bucket == bucket && before->direction == CopyDirection::Pack) {
      before->gradients.push_back(tensor);
    } else {
      add(kComputeStream, Copy{bucket, CopyDirection::Pack, {tensor}});
    }
  }

  void unpack(std::size_t i) {
    const BucketLayout& layout = draft_.out.bucket(buffer_of(role_.travels[i]));
    if (layout.mode != BucketMode::Copy) return;
    Copy unpack{layout.bucket, CopyDirection::Unpack, {}};
    for (const BucketMember& member : layout.members) unpack.gradients.push_back(member.tensor);
    add(kComputeStream, std::move(unpack));
  }

  void release(std::size_t i) { add(kComputeStream, Release{buffer_of(role_.travels[i])}); }

 private:
  [[nodiscard]] BucketSteps steps_of(std::size_t index) const {
    const BucketPlan& plan = draft_.buckets[index];
    const Bucket& bucket = draft_.schedule.buckets[index];
    return {
        .scales_before = plan.before.has_value(),
        .scales_after = plan.afterwards.has_value(),
        .has_replicas = bucket.replicas.has_value(),
        .unpacks = bucket.mode == BucketMode::Copy && bucket.collective == Collective::AllReduce,
        .continued = plan.continued,
        .after = plan.after};
  }

  // Of a bucket in copy mode: each gradient behind its producer; where parameters are gathered for each use all of them at
  // once behind the last one (FSDP2's foreach_reduce).
  void add_packs(std::size_t i, std::vector<Pack>& packs) const {
    const Travel& travel = role_.travels[i];
    const Bucket& bucket = draft_.schedule.buckets[travel.what];
    if (bucket.mode != BucketMode::Copy || draft_.buckets[travel.what].after) return;
    const std::size_t first = packs.size();
    std::size_t last = 0;
    for (std::size_t k = 0; k < bucket.gradients.size(); ++k) {
      const TensorId tensor = draft_.travels.at(bucket.gradients[k].tensor);
      const std::size_t ready = ready_after(draft_, role_, tensor, travel.micro_step);
      packs.push_back({.behind = ready, .travel = i, .gradient = k});
      last = std::max(last, ready);
    }
    if (draft_.schedule.parameters != ParameterSync::EachUse) return;
    for (std::size_t k = first; k < packs.size(); ++k) packs[k].behind = last;
  }

  EventId new_event() { return EventId{draft_.next_event++}; }

  void add(StreamId stream, Action action) {
    out_.commands.push_back({CommandId{draft_.next_command++}, stream, std::move(action)});
  }

  // REQUIRES: the travel is no message.
  [[nodiscard]] BucketId buffer_of(const Travel& travel) const {
    return travel.kind == Travel::Kind::Gather ? draft_.gathers[travel.what].parameters
                                               : draft_.buckets[travel.what].buffer;
  }

  // What the rank holds of the bucket once it has been reduced.
  [[nodiscard]] Part part_left(const Travel& travel) const {
    const bool scatter =
        draft_.schedule.buckets[travel.what].collective == Collective::ReduceScatter;
    return scatter ? Part::Shard : Part::Whole;
  }

  [[nodiscard]] Communicate reduction(const Travel& travel) const {
    const Bucket& bucket = draft_.schedule.buckets[travel.what];
    const BucketPlan& plan = draft_.buckets[travel.what];
    return {plan.buffer,  reduces_by(bucket), plan.reduce,
            bucket.group, Part::Whole,        travel.max_ctas};
  }

  [[nodiscard]] Communicate of_replicas(const Travel& travel) const {
    const Bucket& bucket = draft_.schedule.buckets[travel.what];
    const BucketPlan& plan = draft_.buckets[travel.what];
    return {plan.buffer,      Collective::AllReduce, plan.reduce_replicas,
            *bucket.replicas, part_left(travel),     travel.max_ctas};
  }

  Draft& draft_;
  const Program& program_;
  const RoleDraft& role_;
  RankProgram out_;
  std::unordered_set<std::size_t> leaves_compute_;  // positions of the messages' ops
  std::vector<EventId> done_;                       // of each travel
};

}  // namespace

RankProgram emit(Draft& draft, const RoleDraft& role) { return CommandWriter(draft, role).write(); }

}  // namespace dovetail::schedule::internal
