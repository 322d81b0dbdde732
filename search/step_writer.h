// Writes the StepGraph of a placement, as lowering and compiling it would, and finds its steady step.
//
// The ops are known beforehand, and a placement only says where its buckets and gathers are launched and waited for: its
// timetable (schedule/timetable.h). The walk of lower over it says what comes next, and one pass writes the whole graph:
//
//   ops 0 .. 7   launch behind op 4   |   ops 8 .. 9   wait before op 10   |   op 10
//
// Sharded updates (step_shards.cc) are ops that the placement adds, one per bucket; a gather of parameters is launched
// and waited for as a bucket is, and so is a message: a collective of the Program's own, or one end of a pipeline's
// send. The roles of a pipeline are written one after another, each until it waits for what another has not sent; what several of
// them run together travels once it stands at the head of its stream in all of them, as sim/issue_order.h has it.
//
// Steady step. Of one lane per role mostly one step is enough: if everything that it began has ended when the compute
// streams have with which the next one begins, the hosts keep ahead, and the first transfer of each stream takes as long
// after the pause between two steps as after none, then the next step begins as this one did and is its copy. There the
// ops between two stops are one node, as long as nothing beside them can change their speed. Otherwise steps are
// written with all their ops until they repeat themselves (sim/steady.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "schedule/lower/gather.h"
#include "schedule/lower/walk.h"
#include "search/step_data.h"
#include "search/step_model.h"
#include "sim/command_graph.h"
#include "sim/lanes.h"
#include "sim/player.h"
#include "sim/simulate.h"

namespace dovetail::search {

class StepWriter {
 public:
  // Keeps a reference to the data.
  explicit StepWriter(const StepData& data);

  Duration steady_step(std::span<const BucketChoice> choices);
  // The same with all that is told of a step.
  sim::StepSummary steady_summary(std::span<const BucketChoice> choices);
  [[nodiscard]] const StepModel::Counts& counts() const { return counts_; }

 private:
  // Runs: hosts are far ahead, and ops between two stops are one node where that is exact. Ops: hosts are far ahead.
  // Hosts: nothing starts before its host has issued it.
  enum class Detail { Runs, Ops, Hosts };

  // What a bucket of these gradients costs.
  struct Price {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int64_t skip = 0;
    std::int64_t take = 0;
    std::size_t bucket = 0;  // where updates go by it
    sim::TransferCost travel = {};
    sim::TransferCost gather = {};
    sim::TransferCost replicate = {};
    Duration scale{};  // of the whole bucket before, of a shard of it behind its reduce-scatter
    StepOp update = {};
    std::vector<step::Work> update_work = {};  // on each lane
  };
  // A side of a message, which waits for the others.
  struct Sent {
    std::vector<std::int32_t> behind;  // entries that it waits for
    std::optional<std::int32_t> enqueue;
    sim::Place place;
    bool is_issued = false;    // by its host
    bool has_arrived = false;  // it stands at the head of its stream,
    bool has_left = false;     // and has travelled
    std::int64_t issued = 0;
  };
  // A stream of messages: which of the role's, and how many of them have travelled.
  struct Channel {
    StreamId stream;
    std::vector<std::size_t> messages;
    std::size_t head = 0;
  };
  struct Side {
    std::int32_t role = 0;
    Sent* sent = nullptr;
    Channel* channel = nullptr;  // null: it stands on the compute stream
    [[nodiscard]] StreamId stream() const {
      return channel == nullptr ? schedule::kComputeStream : channel->stream;
    }
  };
  static constexpr std::int32_t kNotYet = -1;
  // What the ranks of one stage do, and how far it is written.
  struct Role {
    std::vector<std::size_t> ops;
    // Of ops that no placement moves: sums over those before each, and the next one that communicates.
    std::vector<std::int64_t> work_sum, issue_sum, gap_sum;
    std::vector<std::int64_t>
        late_sum;  // of what each is issued later, against what it waits for, than the one before
    std::vector<std::size_t> next_own;
    std::vector<schedule::Travel> travels;
    std::vector<schedule::Pack> packs;
    schedule::Agenda agenda;
    std::size_t unmoved = 0;       // ops in front of the updates of shards
    std::size_t first = 0;         // of the travels of a micro-step
    std::int32_t last_launch = 0;  // of its buckets so far
    // Of the step that is written.
    schedule::RoleWalk walk;
    std::vector<std::int32_t> done;  // of each travel: the entry that ends it, or kNotYet
    std::size_t first_message = 0;   // of the travels
    std::vector<Sent> sent;          // of each message
    std::vector<Channel> channels;
    Sent standing;  // an op on the compute stream that several roles run together
    bool ended = false;
    bool is_recorded = false;    // the last that its compute stream was given is a record
    bool as_one = false;         // ops between two stops are one node
    std::int64_t clock = 0;      // of the host, from the start of the step
    std::int64_t host_step = 0;  // of the host, for a whole step
    std::int64_t end = 0;        // of its compute stream, in a step that was played
  };
  Role& at() { return roles_[static_cast<std::size_t>(role_)]; }
  [[nodiscard]] std::size_t lanes_per_role() const {
    return static_cast<std::size_t>(lanes_.count()) / roles_.size();
  }

  void add_up(Role& role) const;
  void add_channels(Role& role, std::span<const schedule::Travel> messages) const;
  void plan(std::span<const BucketChoice> choices);
  void plan_bucket(const ReducingStep& step, std::size_t bucket);
  void plan_packs(const ReducingStep& step, const BucketChoice& choice, Role& role) const;
  void plan_waits(const ReducingStep& step, std::size_t role);
  void plan_messages();
  [[nodiscard]] schedule::RoleTimetable timetable(const Role& role) const {
    return {role.ops, role.travels, role.packs, steps_};
  }
  const Price& price(std::size_t bucket);

  // Of sharded updates. An update of one bucket, which its cut gradients share with others.
  void place_updates(std::span<const BucketChoice> choices);
  void price_update(std::size_t bucket, Price& price) const;
  // Where an op of the data stands among the updates.
  [[nodiscard]] std::size_t place_of(std::size_t op) const;
  // The first update of any part of the bucket's gradients behind an op.
  [[nodiscard]] std::int32_t update_behind(std::int32_t op, const BucketChoice& choice,
                                           std::size_t bucket) const;
  void plan_gathers(std::size_t role);
  void plan_gathers_each_use(std::size_t role);

  std::optional<Duration> from_one_step(Detail detail);
  // Whether ops that are one node are told of as well as one by one: nothing travels beside them, or there are no gaps
  // between them.
  [[nodiscard]] bool runs_tell_all() const;
  // Of an op or run: the launch gap at its begin, in which it does not compute.
  [[nodiscard]] std::int64_t gap_of(std::int64_t work) const {
    return std::min(data_.launch_gap(), work);
  }
  [[nodiscard]] bool next_begins_at(std::int64_t step);
  [[nodiscard]] bool hosts_keep_ahead(std::int64_t step) const;
  [[nodiscard]] bool pauses_change_nothing(std::int64_t step) const;
  sim::StepSummary from_many_steps();

  void write(std::int32_t steps, Detail detail);
  void write_step();
  bool take_turn();
  void begin_role();

  // What the walk asks for (schedule/lower/walk.h), of the role whose turn it is.
  friend schedule::RoleWalk;
  std::size_t run(std::size_t begin, std::size_t end);
  void arrive(std::span<const StreamId> streams);
  void open(std::size_t i);
  void close(std::size_t i);
  void communicate(std::size_t i, schedule::Part part);
  void scale(std::size_t i, bool before);
  void follow(std::size_t i, std::size_t other);
  [[nodiscard]] bool is_there(std::size_t i) { return at().done[i] != kNotYet; }
  void wait(std::size_t i);
  void pack(const schedule::Pack& pack);
  void unpack(std::size_t i);
  static void release(std::size_t /*i*/) {}

  void write_transfer(StreamId stream, sim::NodeKind enqueue, const schedule::ProcessGroup& group,
                      const sim::TransferCost& cost);
  [[nodiscard]] const OwnCollective& own_of(const schedule::Travel& message) const {
    return data_.own[static_cast<std::size_t>(*ops_[message.what].own)];
  }
  // Several roles run it together.
  [[nodiscard]] bool meets(const OwnCollective& own) const {
    return data_.meetings[static_cast<std::size_t>(own.meeting)] > 1;
  }
  [[nodiscard]] bool meets(const schedule::Travel& travel) const {
    return travel.kind == schedule::Travel::Kind::Message && meets(own_of(travel));
  }
  void send(std::size_t i, sim::NodeKind enqueue);
  Sent& sent(std::size_t i) { return at().sent[i - at().first_message]; }
  // The head of a channel that may arrive; issued, or else a receive whose host is not needed for that.
  bool arrive_next(bool issued);
  bool arrive(Channel& channel);
  bool join(const OwnCollective& own, Side side);
  // Whether it has run.
  bool stand(const OwnCollective& own);
  [[nodiscard]] const schedule::Travel& travel(std::size_t i) { return at().travels[i]; }
  [[nodiscard]] const BucketChoice& choice_of(const schedule::Travel& travel) const {
    return choices_[travel.what];
  }
  std::optional<std::int32_t> write_enqueue(sim::NodeKind kind);
  // A pass over a buffer: a copy or a scale.
  void write_pass(StreamId stream, Duration time);
  std::int32_t write_node(StreamId stream, sim::NodeKind kind, Duration time,
                          models::KernelClass kernel);
  // What the compute stream does next is kept until something else is to be written: then it becomes one node, or
  // one chain of nodes.
  void keep(std::span<const step::Work> work, models::KernelClass kernel);
  void keep_run(std::size_t begin, std::size_t end);
  void flush();
  // Where the next command on this stream stands, once the host has spent this long on it.
  sim::Place place(StreamId stream, Duration issue);
  // The host has issued what was written since by this time of its clock.
  void note_issue(std::int64_t clock) {
    issued_.resize(static_cast<std::size_t>(graph_.made().graph.size()),
                   clock + data_.launch_lead());
  }

  const StepData& data_;
  const sim::Lanes lanes_;
  sim::CommandGraph graph_;
  sim::Workspace workspace_;
  StepModel::Counts counts_;
  std::vector<Price> prices_;  // by hash

  // The ops with the updates of the placement, as StepData has them.
  std::vector<StepOp> ops_;
  std::vector<step::Work> work_;
  std::span<const BucketChoice> choices_;
  std::vector<schedule::BucketSteps> steps_;  // of each choice
  std::vector<Role> roles_;
  std::vector<std::vector<Side>> meetings_;  // of each: the sides that are issued

  // Of sharded updates.
  struct Cut {
    std::int32_t gradient = 0;
    std::int32_t at = 0;  // an update of a part of it
    friend auto operator<=>(const Cut&, const Cut&) = default;
  };
  std::vector<std::int32_t> last_update_;  // of each bucket: in Sharding::updates
  std::vector<std::size_t> update_order_;  // of the buckets
  std::vector<std::int32_t> update_at_;    // of each bucket: position in ops_
  std::vector<std::size_t> moved_;         // of the ops behind the first update
  std::vector<Cut> cuts_;                  // of gradients that several buckets hold
  std::vector<GatherStop> stops_;
  std::vector<schedule::WantedGather> wanted_;
  std::vector<std::size_t> free_;  // of each bucket: from where it is released

  Detail detail_ = Detail::Hosts;
  std::int32_t step_ = 0;
  std::int32_t role_ = 0;  // whose turn it is
  std::vector<std::int64_t>
      issued_;  // of each node: when its host lets it start, from the start of its step
  std::vector<std::int64_t> scratch_;
  std::vector<step::Work> pass_;
  std::vector<sim::Place> places_;

  // What was kept: its work, kernels and host times, or only their sum; and when that was issued, against where it would
  // start.
  std::int64_t kept_ns_ = 0;
  std::int64_t kept_gaps_ = 0;
  std::int64_t kept_issued_ = 0;
  std::vector<step::Work> kept_work_;
  std::vector<models::KernelClass> kept_kernels_;
  std::vector<std::int64_t> kept_clocks_;
  std::int64_t hidden_gaps_ = 0;  // within runs that are one node
};

}  // namespace dovetail::search
