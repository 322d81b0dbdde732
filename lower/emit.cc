// The emit pass: cursors over the sorted plans of the earlier passes, one walk over the ops.
//
// SPDX-License-Identifier: Apache-2.0
#include "lower/emit.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "lower/layout.h"
#include "lower/survey.h"

namespace dovetail::schedule::internal {
namespace {

// Something that stands at a place of the op list: a position in one of RoleDraft's lists.
struct At {
  std::size_t place = 0;
  std::size_t what = 0;
};

// A list of them in the order of their places, and how far it has been emitted.
class Agenda {
 public:
  void add(std::size_t place, std::size_t what) { items_.push_back({place, what}); }
  void sort() { std::ranges::stable_sort(items_, {}, &At::place); }
  // Calls `act` on everything up to and including this place.
  template <class Act>
  void up_to(std::size_t place, Act act) {
    while (next_ < items_.size() && items_[next_].place <= place) act(items_[next_++].what);
  }

 private:
  std::vector<At> items_;
  std::size_t next_ = 0;
};

class Emitter {
 public:
  Emitter(Draft& draft, const RoleDraft& role)
      : draft_(draft),
        program_(draft.program()),
        role_(role),
        done_(role.transfers.size()),
        message_done_(role.messages.size()),
        gather_done_(role.gathers.size()),
        last_done_(draft.out.streams.size()) {
    for (const Message& message : role.messages) leaves_compute_.insert(message.op);
  }

  RankProgram run() {
    const auto ranks = static_cast<std::int32_t>(program_.world_size / program_.stages);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      out_.ranks.push_back(Rank{role_.role * ranks + rank});
    }
    fill_agendas();
    out_.commands.reserve(program_.ops.size() + packs_.size() + 7 * role_.transfers.size() +
                          6 * role_.gathers.size() + 5 * role_.messages.size());
    begin();
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (role_of(program_, program_.ops[i]) != role_.role) continue;
      if (i > 0) emit_launches(i - 1);  // those after an op of another role
      emit_waits(i);
      emit_op(i);
      emit_packs(i);
      releases_.up_to(i, [&](std::size_t gather) { emit_release(gather); });
      emit_launches(i);
    }
    emit_launches(kEnd);
    emit_waits(kEnd);
    return std::move(out_);
  }

 private:
  void fill_agendas() {
    for (std::size_t i = 0; i < role_.transfers.size(); ++i) {
      const Transfer& transfer = role_.transfers[i];
      launches_.add(transfer.launch_after, i);
      if (draft_.buckets[transfer.bucket].continued) continue;
      if (transfer.wait_at_launch) {
        waits_at_launch_.add(*transfer.wait_at_launch, i);
      } else {
        waits_.add(transfer.wait_before, i);
      }
    }
    for (std::size_t i = 0; i < role_.messages.size(); ++i) {
      message_waits_.add(role_.messages[i].wait_before, i);
    }
    for (std::size_t i = 0; i < role_.gathers.size(); ++i) {
      if (role_.gathers[i].launch_after != kEnd) gathers_.add(role_.gathers[i].launch_after, i);
      gather_waits_.add(role_.gathers[i].wait_before, i);
      if (role_.gathers[i].release_after != kEnd) releases_.add(role_.gathers[i].release_after, i);
    }
    for (Agenda* agenda : {&launches_, &waits_at_launch_, &waits_, &message_waits_, &gathers_,
                           &gather_waits_, &releases_}) {
      agenda->sort();
    }
    collect_packs();
  }

  // Parameters of the last step are gathered first; a message of this step may arrive once the last
  // one is over.
  void begin() {
    for (std::size_t i = 0; i < role_.gathers.size(); ++i) {
      if (role_.gathers[i].launch_after == kEnd) emit_gather(i);
    }
    std::vector<StreamId> arriving;
    for (const Message& message : role_.messages) {
      const bool known = std::ranges::find(arriving, message.stream) != arriving.end();
      if (message.receives && !known) arriving.push_back(message.stream);
    }
    if (arriving.empty()) return;
    const EventId free = new_event();
    add(kComputeStream, RecordEvent{free});
    for (const StreamId stream : arriving) add(stream, WaitEvent{free});
  }

  EventId new_event() { return EventId{draft_.next_event++}; }

  void add(StreamId stream, Action action) {
    out_.commands.push_back({CommandId{draft_.next_command++}, stream, std::move(action)});
  }

  // The compute stream waits, unless it has waited for this event before.
  void wait_on_compute(EventId event) {
    const auto index = static_cast<std::size_t>(event.value);
    if (index >= waited_.size()) waited_.resize(index + 1, 0);
    if (waited_[index] != 0) return;
    waited_[index] = 1;
    add(kComputeStream, WaitEvent{event});
  }

  // `what` on this stream, behind all that the compute stream holds so far. Gives the event that
  // says it is done; nothing for the compute stream itself.
  template <class What>
  std::optional<EventId> issue(StreamId stream, What what) {
    if (stream == kComputeStream) {
      what();
      return std::nullopt;
    }
    const EventId ready = new_event();
    const EventId done = new_event();
    add(kComputeStream, RecordEvent{ready});
    add(stream, WaitEvent{ready});
    what();
    add(stream, RecordEvent{done});
    last_done_[static_cast<std::size_t>(stream.value)] = done;
    return done;
  }

  void emit_op(std::size_t i) {
    if (!leaves_compute_.contains(i)) {
      add(kComputeStream, RunOp{program_.ops[i].id});
      return;
    }
    if (next_message_ == role_.messages.size()) return;
    const Message& message = role_.messages[next_message_];
    if (message.op == i && !message.launch_after) emit_message();
  }

  // The next one.
  void emit_message() {
    const Message& message = role_.messages[next_message_];
    const RunOp run{program_.ops[message.op].id, message.max_ctas};
    if (!message.after_compute) {
      const EventId done = new_event();
      add(message.stream, run);
      add(message.stream, RecordEvent{done});
      message_done_[next_message_] = done;
      last_done_[static_cast<std::size_t>(message.stream.value)] = done;
    } else {
      message_done_[next_message_] = issue(message.stream, [&] { add(message.stream, run); });
    }
    ++next_message_;
  }

  // The packs of all copy-mode gradients, by producer, then bucket.
  void collect_packs() {
    for (std::size_t i = 0; i < role_.transfers.size(); ++i) {
      const Transfer& transfer = role_.transfers[i];
      const Bucket& bucket = draft_.schedule.buckets[transfer.bucket];
      if (bucket.mode != BucketMode::Copy || draft_.buckets[transfer.bucket].after) continue;
      for (const Slice& slice : bucket.gradients) {
        const TensorId tensor = draft_.travels.at(slice.tensor);
        packs_.push_back({ready_after(draft_, role_, tensor, transfer.micro_step), i, tensor});
      }
    }
    std::ranges::stable_sort(
        packs_, {}, [](const Pack& pack) { return std::pair(pack.producer, pack.transfer); });
  }

  // Those of one producer; called with rising op positions.
  void emit_packs(std::size_t i) {
    while (next_pack_ < packs_.size() && packs_[next_pack_].producer == i) {
      const std::size_t transfer = packs_[next_pack_].transfer;
      const Bucket& bucket = draft_.schedule.buckets[role_.transfers[transfer].bucket];
      Copy copy{bucket.id, CopyDirection::Pack, {}};
      while (next_pack_ < packs_.size() && packs_[next_pack_].producer == i &&
             packs_[next_pack_].transfer == transfer) {
        copy.gradients.push_back(packs_[next_pack_++].tensor);
      }
      add(kComputeStream, std::move(copy));
    }
  }

  void emit_launches(std::size_t place) {
    launches_.up_to(place, [&](std::size_t i) {
      waits_at_launch_.up_to(i, [&](std::size_t waited) { emit_wait(waited); });
      emit_launch(i);
    });
    gathers_.up_to(place, [&](std::size_t i) { emit_gather(i); });
    while (next_message_ < role_.messages.size()) {
      const std::optional<std::size_t> after = role_.messages[next_message_].launch_after;
      if (!after || *after > place) break;
      emit_message();
    }
  }

  void emit_launch(std::size_t i) {
    const Bucket& bucket = draft_.schedule.buckets[role_.transfers[i].bucket];
    const BucketPlan& plan = draft_.buckets[role_.transfers[i].bucket];
    if (plan.before) add(kComputeStream, Scale{plan.buffer, *plan.before});
    done_[i] = issue(plan.stream, [&] {
      if (plan.after && draft_.buckets[*plan.after].stream != plan.stream) {
        // Of this micro-step: the bucket that it continues stands before it in the list.
        std::size_t before = i;
        while (role_.transfers[before].bucket != *plan.after) --before;
        if (done_[before]) add(plan.stream, WaitEvent{*done_[before]});
      }
      emit_collectives(bucket, plan);
    });
  }

  void emit_collectives(const Bucket& bucket, const BucketPlan& plan) {
    add(plan.stream, RunCollective{plan.buffer, bucket.collective, plan.reduce, bucket.group,
                                   Part::Whole, bucket.max_ctas});
    const bool scatter = bucket.collective == Collective::ReduceScatter;
    const Part part = scatter ? Part::Shard : Part::Whole;
    if (bucket.replicas) {
      add(plan.stream, RunCollective{plan.buffer, Collective::AllReduce, plan.reduce_replicas,
                                     *bucket.replicas, part, bucket.max_ctas});
    }
    if (plan.afterwards) add(plan.stream, Scale{plan.buffer, *plan.afterwards, part});
  }

  void emit_gather(std::size_t i) {
    const GatherPlan& gather = draft_.gathers[role_.gathers[i].plan];
    const Bucket& bucket = draft_.schedule.buckets[gather.bucket];
    const Placement& placement = role_.gathers[i].placement;
    const StreamId stream = stream_of(placement.stream);
    gather_done_[i] = issue(stream, [&] {
      add(stream, RunCollective{gather.parameters, Collective::AllGather, ReduceOp::Sum,
                                bucket.group, Part::Whole, placement.max_ctas});
    });
  }

  void emit_release(std::size_t i) {
    add(kComputeStream, Release{draft_.gathers[role_.gathers[i].plan].parameters});
  }

  void emit_waits(std::size_t place) {
    // Equal places keep their order, so buckets are waited for in launch order.
    waits_.up_to(place, [&](std::size_t i) { emit_wait(i); });
    gather_waits_.up_to(place, [&](std::size_t i) { emit_gather_wait(i); });
    message_waits_.up_to(place, [&](std::size_t i) { emit_message_wait(i); });
  }

  void emit_wait(std::size_t i) {
    const Bucket& bucket = draft_.schedule.buckets[role_.transfers[i].bucket];
    const BucketPlan& plan = draft_.buckets[role_.transfers[i].bucket];
    if (plan.stream != kComputeStream) {
      const bool whole = bucket.scope == WaitScope::WholeStream;
      const auto stream = static_cast<std::size_t>(plan.stream.value);
      wait_on_compute(whole ? *last_done_[stream] : *done_[i]);
    }
    if (bucket.mode == BucketMode::Copy && bucket.collective == Collective::AllReduce) {
      Copy unpack{plan.buffer, CopyDirection::Unpack, {}};
      unpack.gradients.reserve(bucket.gradients.size());
      for (const Slice& slice : bucket.gradients) {
        unpack.gradients.push_back(draft_.travels.at(slice.tensor));
      }
      add(kComputeStream, std::move(unpack));
    }
  }

  void emit_gather_wait(std::size_t i) {
    if (gather_done_[i]) wait_on_compute(*gather_done_[i]);
    const BucketId parameters = draft_.gathers[role_.gathers[i].plan].parameters;
    const BucketLayout& layout = draft_.out.bucket(parameters);
    if (layout.mode == BucketMode::View) return;
    Copy unpack{parameters, CopyDirection::Unpack, {}};
    for (const BucketMember& member : layout.members) {
      unpack.gradients.push_back(member.tensor);
    }
    add(kComputeStream, std::move(unpack));
  }

  // At the end of the step the last message of each stream stands for those before it.
  void emit_message_wait(std::size_t i) {
    const Message& message = role_.messages[i];
    const bool superseded = message.wait_before == kEnd &&
                            std::any_of(role_.messages.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        role_.messages.end(), [&](const Message& later) {
                                          return later.stream == message.stream;
                                        });
    if (superseded) return;
    const bool whole = message.scope == WaitScope::WholeStream;
    const auto stream = static_cast<std::size_t>(message.stream.value);
    wait_on_compute(whole ? *last_done_[stream] : *message_done_[i]);
  }

  Draft& draft_;
  const Program& program_;
  const RoleDraft& role_;
  RankProgram out_;
  struct Pack {
    std::size_t producer = 0;  // position in program.ops
    std::size_t transfer = 0;
    TensorId tensor;
  };
  std::vector<Pack> packs_;
  std::size_t next_pack_ = 0;
  std::unordered_set<std::size_t> leaves_compute_;  // positions of the messages' ops
  std::size_t next_message_ = 0;                    // in the order in which they are issued
  Agenda launches_;
  Agenda waits_;
  Agenda waits_at_launch_;  // their places are positions in transfers
  Agenda message_waits_;
  Agenda gathers_;
  Agenda gather_waits_;
  Agenda releases_;                                   // of gathers
  std::vector<std::optional<EventId>> done_;          // of each transfer
  std::vector<std::optional<EventId>> message_done_;  // of each message
  std::vector<std::optional<EventId>> gather_done_;   // of each gather
  std::vector<std::optional<EventId>> last_done_;     // of each stream
  std::vector<char> waited_;                          // by event
};

}  // namespace

RankProgram emit(Draft& draft, const RoleDraft& role) { return Emitter(draft, role).run(); }

}  // namespace dovetail::schedule::internal
