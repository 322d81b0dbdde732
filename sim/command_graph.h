// Builds the graph of a CompiledProgram command by command: what each waits for follows from the order of its stream.
//
// Called by compile.cc, which knows what the commands mean. A frontier is what the next command of
// one role on one stream waits for: normally the command before it, after a WaitEvent also what the event stands
// for. Every add waits for the frontier and then stands there alone.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/compile.h"
#include "sim/lanes.h"

namespace dovetail::sim {

// Which command of which role an entry stands for.
struct Place {
  std::int32_t role = 0;
  std::int32_t command = 0;
  std::int32_t step = 0;
  StreamId stream;
  std::int64_t issued = 0;  // earliest start
};

// How long a collective takes and what it loads.
struct TransferCost {
  models::CollectiveTime time;
  Duration latency{};
  std::span<const models::LinkLoad> loads = {};
  step::GpuShare gpu = {};                 // that it takes from what computes beside it
  std::optional<std::int32_t> curve = {};  // index into Costs::collectives
  // Of a send: the sender's index in its instance of the group. Absent: all send and receive.
  std::optional<std::int32_t> sender = {};
};

// A collective that is no send.
struct Message {
  schedule::Collective kind = schedule::Collective::AllReduce;
  Bytes bytes = Bytes(0);
  std::int32_t max_ctas = 0;
};
// Throws InputError where the machine has no curve for it.
TransferCost transfer_cost(const models::Costs& costs, const Message& message,
                           const schedule::ProcessGroup& group);
TransferCost transfer_cost(const models::Costs& costs, const schedule::Transfer& transfer,
                           const schedule::ProcessGroup& group);

// Throws InputError where so many nanoseconds cannot be simulated: more than 2^60, 36 years.
void check_run(double ns);

class CommandGraph {
 public:
  // Keeps a reference to the lanes. `memory` is an old one whose memory is used again.
  CommandGraph(const Lanes& lanes, std::size_t streams, std::size_t links, CompiledProgram memory);

  [[nodiscard]] CompiledProgram& made() { return made_; }
  [[nodiscard]] const CompiledProgram& made() const { return made_; }
  // The entries of a frontier, and the first of them.
  [[nodiscard]] std::vector<std::int32_t> waited_for(std::int32_t role, StreamId stream);
  // The same, put into made().wait_entries.
  EntryRange note_waited_for(std::int32_t role, StreamId stream);
  [[nodiscard]] std::int32_t first_waited_for(std::int32_t role, StreamId stream) {
    return frontier(role, stream).front().entry;
  }
  // Makes the next command on this stream wait for all that the next one on `of` waits for.
  void follow(std::int32_t role, StreamId stream, StreamId of);
  // Makes the next command on this stream wait for an entry, once.
  void wait_for(std::int32_t role, StreamId stream, std::int32_t entry, step::EdgeKind kind);

  // Both return the entry's index. One node per lane of the role, with the work of each.
  std::int32_t add(const Place& place, NodeKind kind, std::span<const std::int64_t> work,
                   models::KernelClass kernel = models::KernelClass::Other);
  // Several ops on the compute stream, one after another; the entry stands for the last. work: [op][lane], all of it;
  // issued: of each op its earliest start, or none. REQUIRES: at least one.
  std::int32_t add_chain(Place place, std::span<const step::Work> work,
                         std::span<const models::KernelClass> kernels,
                         std::span<const std::int64_t> issued = {});
  // One collective in which all these places meet over the group; its entries stand in their order.
  std::int32_t add_collective(std::span<const Place> places, const schedule::ProcessGroup& group,
                              const TransferCost& cost);

  // Whether streams stand at the end of the last step as they did at the end of the one before, so that a step of the same commands
  // adds the same again. To be asked at the end of each step.
  bool ends_alike();
  // Makes room for so many steps. REQUIRES: as below.
  void reserve_steps(std::int32_t steps);
  // Appends the last step once more; `issued` says when the host lets an entry start. REQUIRES: the last step ended alike.
  void repeat_step(const std::function<std::int64_t(const CommandNode&)>& issued);

  // Forgets all commands, so that others can be added; keeps slots, meetings and memory.
  void restart();
  // What was added, linked.
  const CompiledProgram& linked();
  // What was added, linked where the player needs that. Throws InputError where everything in a row would take longer
  // than can be simulated.
  const CompiledProgram& complete();
  // The same, given away. Nothing may be added after it.
  CompiledProgram take();

 private:
  struct Waited {
    std::int32_t entry = 0;
    step::EdgeKind kind = step::EdgeKind::Order;
    friend bool operator==(const Waited&, const Waited&) = default;
  };
  // How the streams stand at the end of a step, counted from there.
  struct StepEnd {
    struct Counts {
      std::size_t nodes = 0, entries = 0, waits = 0;
      friend bool operator==(const Counts&, const Counts&) = default;
    };
    Counts all = {}, step = {};  // of all steps, of the last one
    double work_ns = 0;
    std::vector<std::vector<Waited>> frontier = {};
    std::vector<std::optional<NodeId>> last_transfer = {};
  };
  // How the lanes of a role meet over a group.
  struct Meet {
    std::optional<std::int32_t> instances;           // index into made_.instances
    std::vector<std::int32_t> lane_sets;             // of each node
    std::vector<std::optional<std::int32_t>> seats;  // of each lane: its index in its instance
  };
  const Meet& meeting(const schedule::ProcessGroup& group, std::int32_t role);
  std::vector<Waited>& frontier(std::int32_t role, StreamId stream) {
    return frontier_[static_cast<std::size_t>(role) * streams_ +
                     static_cast<std::size_t>(stream.value)];
  }
  [[nodiscard]] std::size_t channel(std::int32_t lane, StreamId stream) const {
    return static_cast<std::size_t>(lane) * streams_ + static_cast<std::size_t>(stream.value);
  }
  [[nodiscard]] step::SlotId slot(step::SlotKind kind, std::int32_t lane, StreamId stream) const;
  void add_slots();
  // Puts the entry behind the frontier of its stream. REQUIRES: its nodes are in the graph.
  void open_entry(const Place& place, NodeId first, std::int32_t count,
                  std::optional<std::int32_t> instances);
  void add_transfer(std::span<const Place> places, const Meet& meet, const TransferCost& cost,
                    std::int32_t lane_set, std::int32_t owner);
  // What a transfer wants of the links of its lanes, into demands_.
  void find_demands(std::span<const Place> places, const Meet& meet, const TransferCost& cost,
                    std::span<const std::int32_t> lanes);
  void count_traffic(StreamId stream, double memory);
  // What a node waits for, by node and without repetition, into edges_.
  void edges_on(const Place& place, std::int32_t lane);
  void sort_edges();

  const Lanes& lanes_;
  const std::size_t streams_;
  const std::size_t links_;
  CompiledProgram made_;
  double work_ns_ = 0;                                // of all nodes together
  std::int64_t released_ = 0;                         // the latest release
  std::vector<std::vector<Waited>> frontier_;         // [role][stream]
  std::vector<std::optional<NodeId>> last_transfer_;  // [lane][stream]
  std::vector<std::optional<StreamId>>
      loaded_by_;                // of each resource: the last stream that loads it
  std::vector<double> traffic_;  // of each stream: the most that a transfer on it wants of memory
  std::map<std::pair<std::int32_t, GroupId>, Meet> meetings_;  // of each role and group
  StepEnd before_, end_;                                       // of the last two steps
  std::vector<step::Edge> edges_;                              // of the node at hand
  std::vector<step::Demand> demands_;                          // of the transfer at hand
};

}  // namespace dovetail::sim
