// Executes a reshard on plain arrays: each rank is a cursor into its list of steps, and all of
// them move on until nobody can.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reshard_memory.h"

#include "schedule/reshard/blocks.h"
#include "schedule/visit.h"

#include <algorithm>
#include <deque>
#include <set>
#include <span>
#include <utility>

namespace dovetail::testing {
namespace {

using schedule::Collective;
using schedule::ProcessGroup;
using schedule::ReduceOp;
using schedule::visit;
using schedule::reshard::Begin;
using schedule::reshard::Box;
using schedule::reshard::Collect;
using schedule::reshard::CopyPart;
using schedule::reshard::Finish;
using schedule::reshard::Layout;
using schedule::reshard::Partial;
using schedule::reshard::RankPlan;
using schedule::reshard::ReceivePart;
using schedule::reshard::ReshardPlan;
using schedule::reshard::SendPart;
using schedule::reshard::Shape;

struct LocalTensor {
  Shape shape;
  Elements data;

  [[nodiscard]] Elements packed(const Box& box) const {
    Elements list(static_cast<std::size_t>(schedule::reshard::elements(box)));
    schedule::reshard::pack<double>(data, shape, box, list);
    return list;
  }
  void put(const Box& box, const Elements& list) {
    schedule::reshard::unpack<double>(list, shape, box, data);
  }
};

// The factor of x that a rank contributes; see scatter.
double share_of(const Layout& layout, std::size_t index) {
  double factor = 1;
  const Shape place = layout.mesh.coordinate(index);
  for (const Partial& partial : layout.partial) {
    const auto axis = static_cast<std::size_t>(partial.axis);
    const auto n = static_cast<double>(layout.mesh.shape[axis]);
    const auto i = static_cast<double>(place[axis]);
    const double total = partial.op == ReduceOp::Sum ? 1 : n;
    factor *= i > 0 ? i : total - n * (n - 1) / 2;
  }
  return factor;
}

// By how much a sum over all ranks of the partial axes exceeds the tensor.
double divisor_of(const Layout& layout) {
  double divisor = 1;
  for (const Partial& partial : layout.partial) {
    const auto n = layout.mesh.shape[static_cast<std::size_t>(partial.axis)];
    if (partial.op == ReduceOp::Average) divisor *= static_cast<double>(n);
  }
  return divisor;
}

class Execution {
 public:
  Execution(const ReshardPlan& plan, const Parts& before) : plan_(plan) {
    for (const RankPlan& rank : plan.ranks) {
      Place& place = places_[rank.rank];
      place.plan = &rank;
      if (rank.before) place.current = {*rank.before, before.at(rank.rank)};
    }
  }

  ReshardResult run() {
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (auto& [rank, place] : places_) {
        while (place.step < place.plan->steps.size() && take(rank, place)) {
          ++place.step;
          has_moved = true;
        }
      }
    }
    return result();
  }

 private:
  struct Place {
    const RankPlan* plan = nullptr;
    std::size_t step = 0;
    LocalTensor current;
    LocalTensor next;
    bool is_waiting = false;  // has handed in its part of a collective
  };
  struct Meeting {
    std::map<Rank, std::vector<Elements>> outgoing;
    std::map<Rank, std::vector<Elements>> incoming;
  };

  ReshardResult result() {
    ReshardResult result;
    for (auto& [rank, place] : places_) {
      if (place.step < place.plan->steps.size()) {
        result.problem += "rank " + std::to_string(rank.value) + " waits for ever at step " +
                          std::to_string(place.step) + "; ";
      }
      if (place.plan->after) result.parts[rank] = std::move(place.current.data);
    }
    for (const auto& [pair, lists] : mail_) {
      if (!lists.empty()) result.problem += "a message was not received; ";
    }
    return result;
  }

  // False: not yet.
  bool take(Rank rank, Place& place) {
    return visit(
        place.plan->steps[place.step],
        [&](const Begin& begin) {
          const auto size = static_cast<std::size_t>(schedule::reshard::elements(begin.shape));
          place.next = {begin.shape, Elements(size)};
          return true;
        },
        [&](const CopyPart& copy) {
          place.next.put(copy.to, place.current.packed(copy.from));
          return true;
        },
        [&](const SendPart& send) {
          mail_[{rank, send.to}].push_back(place.current.packed(send.part));
          return true;
        },
        [&](const ReceivePart& receive) {
          std::deque<Elements>& box = mail_[{receive.from, rank}];
          if (box.empty()) return false;
          place.next.put(receive.part, box.front());
          box.pop_front();
          return true;
        },
        [&](const Collect& collect) { return meet(rank, place, collect); },
        [&](const Finish&) {
          place.current = std::move(place.next);
          return true;
        });
  }

  bool meet(Rank rank, Place& place, const Collect& step) {
    const auto group = std::ranges::find(plan_.groups, step.group, &ProcessGroup::id);
    const std::span<const Rank> instance = group->instance_of(rank);
    Meeting& meeting = meetings_[{step.group, instance.front()}];
    if (!place.is_waiting) {
      if (!meeting.incoming.empty()) return false;  // others still leave the last one
      for (const Box& box : step.outgoing) {
        meeting.outgoing[rank].push_back(place.current.packed(box));
      }
      place.is_waiting = true;
      if (meeting.outgoing.size() == instance.size()) exchange(meeting, instance, step);
    }
    const auto mine = meeting.incoming.find(rank);
    if (mine == meeting.incoming.end()) return false;
    for (std::size_t i = 0; i < step.incoming.size(); ++i) {
      place.next.put(step.incoming[i], mine->second[i]);
    }
    meeting.incoming.erase(mine);
    place.is_waiting = false;
    return true;
  }

  static Elements sum(const Meeting& meeting, std::size_t piece, const Collect& step) {
    Elements total(meeting.outgoing.begin()->second[piece].size());
    for (const auto& [rank, lists] : meeting.outgoing) {
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += lists[piece][i];
    }
    if (step.op == ReduceOp::Average) {
      for (double& value : total) value /= static_cast<double>(meeting.outgoing.size());
    }
    return total;
  }

  static void exchange(Meeting& meeting, std::span<const Rank> instance, const Collect& step) {
    for (std::size_t i = 0; i < instance.size(); ++i) {
      std::vector<Elements>& into = meeting.incoming[instance[i]];
      if (step.kind == Collective::AllReduce) {
        into.push_back(sum(meeting, 0, step));
      } else if (step.kind == Collective::ReduceScatter) {
        into.push_back(sum(meeting, i, step));
      } else {
        const std::size_t piece = step.kind == Collective::AllGather ? 0 : i;
        for (const Rank peer : instance) into.push_back(meeting.outgoing.at(peer)[piece]);
      }
    }
    meeting.outgoing.clear();
  }

  const ReshardPlan& plan_;
  std::map<Rank, Place> places_;
  std::map<std::pair<Rank, Rank>, std::deque<Elements>> mail_;
  std::map<std::pair<GroupId, Rank>, Meeting> meetings_;
};

}  // namespace

Elements counted(const Shape& shape) {
  Elements whole(static_cast<std::size_t>(schedule::reshard::elements(shape)));
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<double>(i + 1);
  return whole;
}

Parts scatter(const Elements& whole, const Shape& shape, const Layout& layout) {
  const LocalTensor all{shape, whole};
  Parts parts;
  for (std::size_t i = 0; i < layout.mesh.size(); ++i) {
    Elements part = all.packed(schedule::reshard::part_of(shape, layout, i));
    for (double& value : part) value *= share_of(layout, i);
    parts[layout.mesh.ranks[i]] = std::move(part);
  }
  return parts;
}

std::optional<Elements> gather(const Parts& parts, const Shape& shape, const Layout& layout) {
  // Summands lie apart in their partial coordinates; repetitions of one summand must be equal.
  std::map<std::pair<Box, std::vector<std::int64_t>>, Elements> summands;
  for (std::size_t i = 0; i < layout.mesh.size(); ++i) {
    const Box box = schedule::reshard::part_of(shape, layout, i);
    const auto found = parts.find(layout.mesh.ranks[i]);
    if (found == parts.end()) return std::nullopt;
    if (found->second.size() != static_cast<std::size_t>(schedule::reshard::elements(box))) {
      return std::nullopt;
    }
    std::vector<std::int64_t> place;
    for (const Partial& partial : layout.partial) {
      place.push_back(layout.mesh.coordinate(i)[static_cast<std::size_t>(partial.axis)]);
    }
    const auto [known, is_new] = summands.try_emplace({box, place}, found->second);
    if (!is_new && known->second != found->second) return std::nullopt;
  }
  LocalTensor all{shape, Elements(static_cast<std::size_t>(schedule::reshard::elements(shape)))};
  for (const auto& [key, list] : summands) {
    Elements total = all.packed(key.first);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += list[i];
    all.put(key.first, total);
  }
  for (double& value : all.data) value /= divisor_of(layout);
  return all.data;
}

ReshardResult execute(const ReshardPlan& plan, const Parts& before) {
  return Execution(plan, before).run();
}

}  // namespace dovetail::testing
