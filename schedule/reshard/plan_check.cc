// Checks that the steps of all ranks of a reshard fit together (every message has a sender and a
// receiver of the same size, every group meets in the same collective), and prints a plan as text.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/plan.h"
#include "schedule/visit.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

std::int64_t all_elements(const std::vector<Box>& boxes) {
  std::int64_t sum = 0;
  for (const Box& box : boxes) sum += reshard::elements(box);
  return sum;
}

std::string name_of(Rank rank) { return "rank " + std::to_string(rank.value); }

// What a rank's group must have in common: kind, operation and the message's whole size.
std::string signature(const Collect& step, std::int64_t ranks) {
  const bool gathers = step.kind == Collective::AllGather;
  const std::int64_t size =
      gathers ? all_elements(step.outgoing) * ranks : all_elements(step.outgoing);
  return std::string(schedule::to_string(step.kind)) + " (" +
         std::string(schedule::to_string(step.op)) + ") of " + std::to_string(size) + " elements";
}

class Matcher {
 public:
  explicit Matcher(const ReshardPlan& plan) : plan_(plan) {}

  std::vector<std::string> match() {
    for (const RankPlan& rank : plan_.ranks) {
      for (const Step& step : rank.steps) {
        visit(
            step, [](const Begin&) {}, [](const CopyPart&) {}, [](const Finish&) {},
            [&](const SendPart& send) {
              sent_[{rank.rank, send.to}].push_back(reshard::elements(send.part));
            },
            [&](const ReceivePart& receive) {
              received_[{receive.from, rank.rank}].push_back(reshard::elements(receive.part));
            },
            [&](const Collect& collect) { add(rank.rank, collect); });
      }
    }
    match_messages();
    match_collectives();
    return std::move(problems_);
  }

 private:
  using Pair = std::pair<Rank, Rank>;

  void add(Rank rank, const Collect& step) {
    const auto group = std::ranges::find(plan_.groups, step.group, &ProcessGroup::id);
    const auto instance =
        group == plan_.groups.end() ? std::span<const Rank>{} : group->instance_of(rank);
    if (instance.empty()) {
      problems_.push_back(name_of(rank) + " runs a collective of group " +
                          std::to_string(step.group.value) + ", which it is not in");
      return;
    }
    const auto ranks = static_cast<std::int64_t>(instance.size());
    collected_[{step.group, instance.front()}][rank].push_back(signature(step, ranks));
    sizes_[{step.group, instance.front()}] = instance.size();
  }

  void match_messages() {
    std::map<Pair, std::vector<std::int64_t>> all = sent_;
    for (const auto& [pair, sizes] : received_) all[pair];
    for (const auto& [pair, sizes] : all) {
      if (sent_[pair] == received_[pair]) continue;
      problems_.push_back(name_of(pair.first) + " sends " + list(sent_[pair]) + " to " +
                          name_of(pair.second) + ", which receives " + list(received_[pair]));
    }
  }

  void match_collectives() {
    for (const auto& [instance, by_rank] : collected_) {
      if (by_rank.size() != sizes_[instance]) {
        problems_.push_back("only " + std::to_string(by_rank.size()) + " of " +
                            std::to_string(sizes_[instance]) + " ranks of group " +
                            std::to_string(instance.first.value) + " run its collectives");
      }
      const auto& [first, expected] = *by_rank.begin();
      for (const auto& [rank, calls] : by_rank) {
        if (calls == expected) continue;
        problems_.push_back(name_of(first) + " and " + name_of(rank) +
                            " disagree on the collectives of group " +
                            std::to_string(instance.first.value));
      }
    }
  }

  static std::string list(const std::vector<std::int64_t>& sizes) {
    if (sizes.empty()) return "nothing";
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : "+") + std::to_string(size);
    return text + " elements";
  }

  const ReshardPlan& plan_;
  std::vector<std::string> problems_;
  std::map<Pair, std::vector<std::int64_t>> sent_;
  std::map<Pair, std::vector<std::int64_t>> received_;
  std::map<std::pair<GroupId, Rank>, std::map<Rank, std::vector<std::string>>> collected_;
  std::map<std::pair<GroupId, Rank>, std::size_t> sizes_;
};

std::string step_text(const std::vector<Box>& boxes) {
  std::string text;
  for (const Box& box : boxes) text += " " + to_string(box);
  return text;
}

std::string step_text(const Shape& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
  return text.empty() ? "scalar" : text;
}

void describe_step(std::ostream& out, const ReshardPlan& plan, const Step& step) {
  visit(
      step, [&](const Begin& begin) { out << "begin " << step_text(begin.shape); },
      [&](const CopyPart& copy) {
        out << "copy " << to_string(copy.from) << " to " << to_string(copy.to);
      },
      [&](const SendPart& send) {
        out << "send " << to_string(send.part) << " to rank " << send.to;
      },
      [&](const ReceivePart& receive) {
        out << "receive " << to_string(receive.part) << " from rank " << receive.from;
      },
      [&](const Collect& collect) {
        const auto group = std::ranges::find(plan.groups, collect.group, &ProcessGroup::id);
        out << schedule::to_string(collect.kind) << " over "
            << (group == plan.groups.end() ? "?" : group->name) << "  out"
            << step_text(collect.outgoing) << "  in" << step_text(collect.incoming);
      },
      [&](const Finish&) { out << "finish"; });
}

}  // namespace

std::vector<std::string> mismatches(const ReshardPlan& plan) { return Matcher(plan).match(); }

std::string describe(const ReshardPlan& plan) {
  std::ostringstream out;
  for (const RankPlan& rank : plan.ranks) {
    for (std::size_t i = 0; i < rank.steps.size(); ++i) {
      out << (i == 0 ? "rank " + std::to_string(rank.rank.value) : "") << '\t';
      describe_step(out, plan, rank.steps[i]);
      out << '\n';
    }
  }
  return out.str();
}

}  // namespace dovetail::schedule::reshard
