// The emit pass: one walk over the ops, and beside it one agenda of what is done for all that travels, in the order of
// the ops around which it stands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/emit.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "schedule/lower/layout.h"
#include "schedule/lower/survey.h"

namespace dovetail::schedule::internal {
namespace {

// A moment of the walk: around which of the role's ops, and where there. One position behind the last op stands for the
// end of the step.
enum class Around { Ahead, Wait, Op, Pack, Release, Behind };
struct Moment {
  std::size_t op = 0;
  Around around = Around::Ahead;
  friend auto operator<=>(const Moment&, const Moment&) = default;
};

enum class Act { Wait, Pack, Release, Launch };

struct Item {
  Moment when = {};
  Travel::Kind kind = Travel::Kind::Bucket;
  std::size_t place =
      0;  // as its pass gave it: a moment may stand for several, after ops of other roles
  std::size_t order =
      0;  // in RoleDraft::travels: its own, or that of the launch in front of which it waits
  Act act = Act::Launch;
  std::size_t travel = 0;
  TensorId tensor = {};  // what is packed
};

class Emitter {
 public:
  Emitter(Draft& draft, const RoleDraft& role)
      : draft_(draft),
        program_(draft.program()),
        role_(role),
        end_(program_.ops.size()),
        own_(draft.ops_of(role.role)),
        done_(role.travels.size()),
        last_done_(draft.out.streams.size()) {}

  RankProgram run() {
    const auto ranks = static_cast<std::int32_t>(program_.world_size / program_.stages);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      out_.ranks.push_back(Rank{role_.role * ranks + rank});
    }
    for (const Travel& travel : role_.travels) {
      if (travel.kind == Travel::Kind::Message) leaves_compute_.insert(travel.what);
    }
    fill_agenda();
    out_.commands.reserve(own_.size() + 3 * agenda_.size());
    begin();
    for (const std::size_t i : own_) {
      act_until({i, Around::Wait});
      if (!leaves_compute_.contains(i)) add(kComputeStream, action_of(program_.ops[i]));
      act_until({i, Around::Behind});
    }
    act_until({end_, Around::Behind});
    return std::move(out_);
  }

 private:
  // Where the walk comes to this position: at the role's next op, or at the end of the step.
  [[nodiscard]] std::size_t met_at(std::size_t position) const {
    const auto next = std::ranges::lower_bound(own_, position);
    return next == own_.end() ? end_ : *next;
  }

  // Parameters of the last step are gathered before the first op, by begin().
  [[nodiscard]] Moment launch_of(const Travel& travel) const {
    if (!travel.launch_after) return {travel.what, Around::Op};
    const std::size_t at = *travel.launch_after;
    if (met_at(at) == at) return {at, Around::Behind};
    return {met_at(at), Around::Ahead};
  }

  void fill_agenda() {
    for (std::size_t i = 0; i < role_.travels.size(); ++i) {
      const Travel& travel = role_.travels[i];
      Item item{.kind = travel.kind, .order = i, .travel = i};
      if (!is_first(travel)) {
        item.when = launch_of(travel);
        item.place = travel.launch_after.value_or(travel.what);
        agenda_.push_back(item);
      }
      if (travel.kind != Travel::Kind::Bucket) {
        add_wait(item);
      } else {
        if (!draft_.buckets[travel.what].continued) add_wait(item);
        add_packs(item);
      }
      if (travel.release_after == kEnd) continue;
      item.when = {met_at(travel.release_after), Around::Release};
      item.place = travel.release_after;
      item.act = Act::Release;
      agenda_.push_back(item);
    }
    std::ranges::stable_sort(agenda_, {}, [](const Item& item) {
      return std::tuple(item.when, item.kind, item.place, item.order, item.act);
    });
  }

  // Among what is waited for at one place, buckets keep their launch order.
  void add_wait(Item item) {
    const Travel& travel = role_.travels[item.travel];
    item.act = Act::Wait;
    if (travel.wait_at_launch) {
      const Travel& next = role_.travels[*travel.wait_at_launch];
      item.when = launch_of(next);
      item.place = *next.launch_after;
      item.order = *travel.wait_at_launch;
    } else {
      item.when = {met_at(travel.wait_before), Around::Wait};
      item.place = travel.wait_before;
    }
    agenda_.push_back(item);
  }

  // Of a bucket in copy mode: each gradient behind its producer.
  void add_packs(Item item) {
    const Travel& travel = role_.travels[item.travel];
    const Bucket& bucket = draft_.schedule.buckets[travel.what];
    if (bucket.mode != BucketMode::Copy || draft_.buckets[travel.what].after) return;
    item.act = Act::Pack;
    for (const Slice& slice : bucket.gradients) {
      item.tensor = draft_.travels.at(slice.tensor);
      item.place = ready_after(draft_, role_, item.tensor, travel.micro_step);
      item.when = {item.place, Around::Pack};
      agenda_.push_back(item);
    }
  }

  static bool is_first(const Travel& travel) {
    return travel.kind == Travel::Kind::Gather && !travel.launch_after;
  }

  // Parameters of the last step are gathered first; a message of this step may arrive once the last
  // one is over.
  void begin() {
    std::vector<StreamId> arriving;
    for (std::size_t i = 0; i < role_.travels.size(); ++i) {
      const Travel& travel = role_.travels[i];
      if (is_first(travel)) emit_launch(i);
      const bool known = std::ranges::find(arriving, travel.stream) != arriving.end();
      if (travel.receives && !known) arriving.push_back(travel.stream);
    }
    if (arriving.empty()) return;
    const EventId free = new_event();
    add(kComputeStream, RecordEvent{free});
    for (const StreamId stream : arriving) add(stream, WaitEvent{free});
  }

  void act_until(Moment moment) {
    for (; next_ < agenda_.size() && agenda_[next_].when <= moment; ++next_) {
      const Item& item = agenda_[next_];
      switch (item.act) {
        case Act::Wait:
          emit_wait(item.travel);
          break;
        case Act::Pack:
          emit_pack(item);
          break;
        case Act::Release:
          add(kComputeStream, Release{buffer_of(role_.travels[item.travel])});
          break;
        case Act::Launch:
          emit_launch(item.travel);
          break;
      }
    }
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

  // The gradients of one producer in one bucket share a command.
  void emit_pack(const Item& item) {
    const BucketId bucket = buffer_of(role_.travels[item.travel]);
    auto* before = std::get_if<Copy>(&out_.commands.back().action);
    if (before != nullptr && before->bucket == bucket && before->direction == CopyDirection::Pack) {
      before->gradients.push_back(item.tensor);
    } else {
      add(kComputeStream, Copy{bucket, CopyDirection::Pack, {item.tensor}});
    }
  }

  // On its stream, behind all that the compute stream holds so far, unless it need not wait for that.
  void emit_launch(std::size_t i) {
    const Travel& travel = role_.travels[i];
    if (travel.kind == Travel::Kind::Bucket) {
      const BucketPlan& plan = draft_.buckets[travel.what];
      if (plan.before) add(kComputeStream, Scale{plan.buffer, *plan.before});
    }
    if (travel.stream == kComputeStream) return emit_collectives(i);
    const std::optional<EventId> ready =
        travel.after_compute ? std::optional(new_event()) : std::nullopt;
    const EventId done = new_event();
    if (ready) {
      add(kComputeStream, RecordEvent{*ready});
      add(travel.stream, WaitEvent{*ready});
    }
    emit_collectives(i);
    add(travel.stream, RecordEvent{done});
    done_[i] = last_done_[static_cast<std::size_t>(travel.stream.value)] = done;
  }

  void emit_collectives(std::size_t i) {
    const Travel& travel = role_.travels[i];
    switch (travel.kind) {
      case Travel::Kind::Bucket:
        return emit_bucket(i);
      case Travel::Kind::Gather:
        return add(travel.stream,
                   Communicate{buffer_of(travel), Collective::AllGather, ReduceOp::Sum,
                               draft_.gathers[travel.what].group, Part::Whole, travel.max_ctas});
      case Travel::Kind::Message:
        return add(travel.stream, action_of(program_.ops[travel.what], travel.max_ctas));
    }
  }

  void emit_bucket(std::size_t i) {
    const Travel& travel = role_.travels[i];
    const Bucket& bucket = draft_.schedule.buckets[travel.what];
    const BucketPlan& plan = draft_.buckets[travel.what];
    if (plan.after && draft_.buckets[*plan.after].stream != plan.stream) {
      // Of this micro-step: the bucket that it continues stands before it in the list.
      std::size_t before = i;
      while (role_.travels[before].what != *plan.after) --before;
      if (done_[before]) add(plan.stream, WaitEvent{*done_[before]});
    }
    add(plan.stream, Communicate{plan.buffer, bucket.collective, plan.reduce, bucket.group,
                                 Part::Whole, travel.max_ctas});
    const bool scatter = bucket.collective == Collective::ReduceScatter;
    const Part part = scatter ? Part::Shard : Part::Whole;
    if (bucket.replicas) {
      add(plan.stream, Communicate{plan.buffer, Collective::AllReduce, plan.reduce_replicas,
                                   *bucket.replicas, part, travel.max_ctas});
    }
    if (plan.afterwards) add(plan.stream, Scale{plan.buffer, *plan.afterwards, part});
  }

  // The compute stream waits, unless it has waited for this event before; then it moves what has come to where it is
  // used. At the end of the step the last message of each stream stands for those before it.
  void emit_wait(std::size_t i) {
    const Travel& travel = role_.travels[i];
    const bool is_message = travel.kind == Travel::Kind::Message;
    if (is_message && travel.wait_before == kEnd && is_followed(i)) return;
    if (done_[i]) {
      const bool whole = travel.scope == WaitScope::WholeStream;
      const auto stream = static_cast<std::size_t>(travel.stream.value);
      const EventId event = whole ? *last_done_[stream] : *done_[i];
      if (waited_.insert(event.value).second) add(kComputeStream, WaitEvent{event});
    }
    if (is_message || !is_unpacked(travel)) return;
    Copy unpack{buffer_of(travel), CopyDirection::Unpack, {}};
    for (const BucketMember& member : draft_.out.bucket(unpack.bucket).members) {
      unpack.gradients.push_back(member.tensor);
    }
    add(kComputeStream, std::move(unpack));
  }

  [[nodiscard]] bool is_followed(std::size_t message) const {
    const StreamId stream = role_.travels[message].stream;
    return std::any_of(role_.travels.begin() + static_cast<std::ptrdiff_t>(message) + 1,
                       role_.travels.end(),
                       [&](const Travel& later) { return later.stream == stream; });
  }

  [[nodiscard]] bool is_unpacked(const Travel& travel) const {
    if (travel.kind == Travel::Kind::Gather) {
      return draft_.out.bucket(buffer_of(travel)).mode == BucketMode::Copy;
    }
    const Bucket& bucket = draft_.schedule.buckets[travel.what];
    return bucket.mode == BucketMode::Copy && bucket.collective == Collective::AllReduce;
  }

  Draft& draft_;
  const Program& program_;
  const RoleDraft& role_;
  const std::size_t end_;                // position behind the last op
  const std::vector<std::size_t>& own_;  // positions of the role's ops
  RankProgram out_;
  std::unordered_set<std::size_t> leaves_compute_;  // positions of the messages' ops
  std::vector<Item> agenda_;
  std::size_t next_ = 0;                           // of agenda_
  std::vector<std::optional<EventId>> done_;       // of each travel
  std::vector<std::optional<EventId>> last_done_;  // of each stream
  std::unordered_set<std::int32_t> waited_;        // events
};

}  // namespace

RankProgram emit(Draft& draft, const RoleDraft& role) { return Emitter(draft, role).run(); }

}  // namespace dovetail::schedule::internal
