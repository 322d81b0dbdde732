// Writes the StepGraph of a placement, as lowering and compiling it would, and finds its steady step.
//
// Lowering writes, for every op, what the compute stream waits for before it, the op, the packs of the gradients
// that it completes, and the launches behind it. Here the ops are known beforehand, and a placement only says
// where its waits, packs and launches stand; so one pass over these stops writes the whole graph:
//
//   ops 0 .. 7   launch behind op 4   |   ops 8 .. 9   wait before op 10   |   op 10
//
// Sharded updates (step_shards.cc) are ops that the placement adds, one per bucket; a gather of parameters is launched
// and waited for as a bucket is, and so is a message: a collective of the Program's own, or one end of a pipeline's
// send. The roles of a pipeline are written one after another, each until it waits for a message that another has not
// sent; a message travels once all its sides are issued.
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

  // One collective of one bucket, once per step or once per micro-step, or one side of a message.
  struct Transfer {
    enum class What : std::uint8_t { Reduce, Gather, Message } what = What::Reduce;
    const BucketChoice* choice = nullptr;
    const StepMessage* message = nullptr;
    std::size_t sent = 0;  // of a message: index into sent_
    std::int32_t role = 0;
    StreamId stream;
    LaunchPlace launch = 0;
    std::int32_t wait_before = kBehindAllOps;
    std::optional<std::size_t> wait_at = {};  // instead: before this transfer is launched
    // Of the step that is written.
    bool is_done = false;   // it has travelled
    std::int32_t done = 0;  // the entry that ends it
    bool waited = false;    // the compute stream has waited for that
    [[nodiscard]] schedule::WaitScope scope() const {
      if (what == What::Message) return message->scope;
      return what == What::Reduce ? choice->scope : schedule::WaitScope::Event;
    }
  };
  // What a bucket of these gradients costs.
  struct Price {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int64_t skip = 0;
    std::int64_t take = 0;
    sim::TransferCost travel = {};
    sim::TransferCost gather = {};
    [[nodiscard]] const sim::TransferCost& of(Transfer::What what) const {
      return what == Transfer::What::Reduce ? travel : gather;
    }
    Duration scale{};  // of the whole bucket before, of a shard of it behind its reduce-scatter
    StepOp update = {};
    std::vector<step::Work> update_work = {};  // on each lane
  };
  struct Pack {
    std::int32_t producer = 0;
    std::size_t transfer = 0;
    std::int64_t bytes = 0;
  };

  // A side of a message that is issued and waits for the others.
  struct Sent {
    std::vector<std::int32_t> behind;  // entries that it waits for
    std::optional<std::int32_t> enqueue;
    sim::Place place;
    std::int64_t issued = 0;
  };
  // What the ranks of one stage do, and how far it is written.
  struct Role {
    std::vector<std::int32_t> ops;
    // Of ops that no placement moves: sums over those before each, and the next one that communicates.
    std::vector<std::int64_t> work_sum, issue_sum, gap_sum;
    std::vector<std::int64_t>
        late_sum;  // of what each is issued later, against what it waits for, than the one before
    std::vector<std::size_t> next_own;
    std::vector<std::size_t> launches, waits;  // of transfers_, in order
    std::vector<std::size_t> batch_waits;      // ... that are waited for before another launch
    std::vector<Pack> packs;
    std::int32_t last_launch = 0;  // of its buckets so far
    std::size_t next_op = 0, next_launch = 0, next_wait = 0, next_pack = 0;
    std::size_t next_batch_wait = 0;
    bool ended = false;
    bool is_recorded = false;          // the last that its compute stream was given is a record
    bool as_one = false;               // ops between two stops are one node
    std::vector<std::size_t> last_on;  // of each stream: its last transfer so far
    std::int64_t clock = 0;            // of the host, from the start of the step
    std::int64_t host_step = 0;        // of the host, for a whole step
    std::int64_t end = 0;              // of its compute stream, in a step that was played
  };
  Role& at() { return roles_[static_cast<std::size_t>(role_)]; }
  [[nodiscard]] std::size_t lanes_per_role() const {
    return static_cast<std::size_t>(lanes_.count()) / roles_.size();
  }

  void add_up(Role& role) const;
  void plan(std::span<const BucketChoice> choices);
  void plan_bucket(const ReducingStep& step, const BucketChoice& choice,
                   std::span<const BucketChoice> choices);
  void plan_packs(const ReducingStep& step, const BucketChoice& choice,
                  std::vector<Pack>& packs) const;
  void plan_batches(const ReducingStep& step, std::size_t first);
  [[nodiscard]] bool is_same_batch(const BucketChoice& a, const BucketChoice& b) const;
  void plan_messages();
  const Price& price(const BucketChoice& choice);

  // Of sharded updates. An update of one bucket, which its cut gradients share with others.
  void place_updates(std::span<const BucketChoice> choices);
  void price_update(const BucketChoice& choice, Price& price) const;
  // Where an op of the data stands among the updates.
  [[nodiscard]] std::int32_t place_of(std::int32_t op) const;
  // The first update of any part of the bucket's gradients behind an op.
  [[nodiscard]] std::int32_t update_behind(std::int32_t op, const BucketChoice& choice,
                                           std::size_t bucket) const;
  void plan_gathers(std::span<const BucketChoice> choices);
  void plan_gathers_each_use(std::span<const BucketChoice> choices);

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
  void begin_role();
  bool write_role();
  [[nodiscard]] std::int32_t last_of_run(std::int32_t op) const;
  std::int32_t write_run(std::int32_t last);
  void write_own(std::int32_t index);
  bool write_waits(std::int32_t op);
  void write_packs(std::int32_t op);
  void write_launches(std::int32_t op) { write_launches_up_to(behind(op)); }
  void write_launches_up_to(LaunchPlace place);
  void write_launch(std::size_t index);
  void write_inline(Transfer& transfer, const Price& cost);
  void write_message(std::size_t index);
  std::optional<std::int32_t> write_enqueue(sim::NodeKind kind);
  void note_done(std::size_t index);
  void write_wait(std::size_t index);
  // A pass over a buffer: a copy or a scale.
  void write_pass(StreamId stream, Duration time);
  std::int32_t write_node(StreamId stream, sim::NodeKind kind, Duration time,
                          models::KernelClass kernel);
  // What the compute stream does next is kept until something else is to be written: then it becomes one node, or
  // one chain of nodes.
  void keep(std::span<const step::Work> work, models::KernelClass kernel);
  void keep_run(std::size_t end);
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
  std::vector<Transfer> transfers_;
  std::vector<Role> roles_;
  std::vector<Sent> sent_;
  std::vector<std::vector<std::size_t>> meetings_;  // of each: the sides that are issued

  // Of sharded updates.
  struct Cut {
    std::int32_t gradient = 0;
    std::int32_t at = 0;  // an update of a part of it
    friend auto operator<=>(const Cut&, const Cut&) = default;
  };
  std::vector<std::int32_t> last_update_;  // of each bucket: in Sharding::updates
  std::vector<std::size_t> update_order_;  // of the buckets
  std::vector<std::int32_t> update_at_;    // of each bucket: position in ops_
  std::vector<std::int32_t> moved_;        // of the ops behind the first update
  std::vector<Cut> cuts_;                  // of gradients that several buckets hold
  std::vector<std::int32_t> free_;         // of each bucket: from where its parameters are released

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
