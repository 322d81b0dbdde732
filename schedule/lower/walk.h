// The order of all that one role issues: one walk over its ops, and beside it one agenda of what is done for all that
// travels.
//
// The ops in program order, and around each:
//   waits (each with the unpack of its bucket), the op, packs of what it produced, releases of what it
//   was the last to read, launches
// A launch is a scale, record and wait, the collective (a second one for the replicas), a scale, a record. What has no
// later reader is waited for at the end of the step.
//
// The walk says what comes next; a Writer makes of it commands (emit.cc) or nodes of a graph (search/step_writer.h). `i` is one of
// the role's travels:
//   run(begin, end)        the role's ops of these places among them, but those that are messages; how far it got
//   arrive(streams)        these may receive once what came before the step is over
//   open(i), close(i)      around the collectives of one that leaves the compute stream
//   communicate(i, part)   part Shard: of the replicas
//   scale(i, before)       before or behind them
//   follow(i, other)       its stream waits for another travel
//   is_there(i), wait(i)   the compute stream waits for one; where it is not there yet, the walk stops
//   pack(pack), unpack(i), release(i)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/scheduled_program.h"
#include "schedule/timetable.h"

namespace dovetail::schedule {

class Agenda {
 public:
  // A moment of the walk: around which of the role's ops, and where there. One op behind the last stands for the end of
  // the step.
  enum class Around : std::uint8_t { Ahead, Wait, Waited, Op, Pack, Release, Behind };
  enum class Act : std::uint8_t { Wait, Pack, Release, Launch };
  struct Item {
    std::uint64_t when = 0;   // the op's place among the role's, then around
    std::uint64_t order = 0;  // of one moment
    std::uint32_t index = 0;  // of the travel; of a pack, of that
    Act act = Act::Launch;

    [[nodiscard]] std::size_t op() const { return static_cast<std::size_t>(when >> 3U); }
    [[nodiscard]] Around around() const { return static_cast<Around>(when & 7U); }
  };

  // Forgets what it was filled with.
  void fill(const RoleTimetable& role);
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }

 private:
  static bool is_earlier(const Item& a, const Item& b);
  void sort();
  void add_launch(std::size_t i);
  void add_wait(std::size_t i);
  void add(std::size_t when, Travel::Kind kind, std::size_t place, std::size_t order, Act act,
           std::size_t index);
  [[nodiscard]] std::size_t met_at(std::size_t position) const;
  [[nodiscard]] std::size_t launch_of(const Travel& travel) const;

  RoleTimetable role_;
  std::vector<Item> items_, merged_;
  std::vector<std::size_t> begins_;   // of items in order
  std::vector<std::size_t> last_on_;  // of each stream: its last message
};

// One step of one role.
class RoleWalk {
 public:
  // What stands before the first op.
  template <class Writer>
  void begin(const RoleTimetable& role, Writer& writer) {
    role_ = role;
    next_op_ = next_item_ = 0;
    waited_.assign(role.travels.size(), 0);
    last_on_.clear();
    arriving_.clear();
    for (std::size_t i = 0; i < role.travels.size(); ++i) {
      const Travel& travel = role.travels[i];
      // Parameters of the last step are gathered first; a message of this step may arrive once the last one is over.
      if (is_first(travel)) launch(i, writer);
      if (travel.receives && std::ranges::count(arriving_, travel.stream) == 0)
        arriving_.push_back(travel.stream);
    }
    if (!arriving_.empty()) writer.arrive(std::span<const StreamId>(arriving_));
  }

  // As far as it gets; whether that is the end.
  template <class Writer>
  bool go_on(const Agenda& agenda, Writer& writer) {
    for (; next_item_ < agenda.items().size(); ++next_item_) {
      const Agenda::Item& item = agenda.items()[next_item_];
      const std::size_t end = item.op() + (item.around() > Agenda::Around::Op ? 1 : 0);
      if (!run_until(end, writer)) return false;
      switch (item.act) {
        case Agenda::Act::Wait:
          if (!wait(item.index, writer)) return false;
          break;
        case Agenda::Act::Pack:
          writer.pack(role_.packs[item.index]);
          break;
        case Agenda::Act::Release:
          writer.release(item.index);
          break;
        case Agenda::Act::Launch:
          launch(item.index, writer);
          break;
      }
    }
    return run_until(role_.ops.size(), writer);
  }

  // How far it is.
  [[nodiscard]] std::size_t done() const { return next_op_ + next_item_; }
  static bool is_first(const Travel& travel) {
    return travel.kind == Travel::Kind::Gather && !travel.launch_after && !travel.behind_waits;
  }

 private:
  template <class Writer>
  bool run_until(std::size_t end, Writer& writer) {
    if (next_op_ < end) next_op_ = writer.run(next_op_, end);
    return next_op_ >= end;
  }

  template <class Writer>
  void launch(std::size_t i, Writer& writer) {
    const Travel& travel = role_.travels[i];
    const bool is_bucket = travel.kind == Travel::Kind::Bucket;
    if (is_bucket && role_.buckets[travel.what].scales_before) writer.scale(i, true);
    if (travel.stream == kComputeStream) return communicate(i, writer);
    writer.open(i);
    communicate(i, writer);
    writer.close(i);
    const auto stream = static_cast<std::size_t>(travel.stream.value);
    if (stream >= last_on_.size()) last_on_.resize(stream + 1);
    last_on_[stream] = i;
  }

  template <class Writer>
  void communicate(std::size_t i, Writer& writer) {
    const Travel& travel = role_.travels[i];
    if (travel.kind != Travel::Kind::Bucket) return writer.communicate(i, Part::Whole);
    const BucketSteps& steps = role_.buckets[travel.what];
    if (steps.after) {
      // Of this micro-step: the bucket that it continues stands before it in the list.
      std::size_t before = i;
      while (role_.travels[before].what != *steps.after) --before;
      const StreamId stream = role_.travels[before].stream;
      if (stream != travel.stream && stream != kComputeStream) writer.follow(i, before);
    }
    writer.communicate(i, Part::Whole);
    if (steps.has_replicas) writer.communicate(i, Part::Shard);
    if (steps.scales_after) writer.scale(i, false);
  }

  // The compute stream waits, unless it has waited for this before; then it moves what has come to where it is used.
  template <class Writer>
  bool wait(std::size_t i, Writer& writer) {
    const Travel& travel = role_.travels[i];
    if (travel.stream != kComputeStream) {
      const bool whole = travel.scope == WaitScope::WholeStream;
      const std::size_t awaited =
          whole ? last_on_[static_cast<std::size_t>(travel.stream.value)] : i;
      if (waited_[awaited] == 0) {
        if (!writer.is_there(awaited)) return false;
        waited_[awaited] = 1;
        writer.wait(awaited);
      }
    }
    if (travel.kind == Travel::Kind::Gather ||
        (travel.kind == Travel::Kind::Bucket && role_.buckets[travel.what].unpacks)) {
      writer.unpack(i);
    }
    return true;
  }

  RoleTimetable role_;
  std::size_t next_op_ = 0, next_item_ = 0;
  std::vector<char> waited_;          // for each travel
  std::vector<std::size_t> last_on_;  // of each stream: its last travel so far
  std::vector<StreamId> arriving_;
};

}  // namespace dovetail::schedule
