// The steps of one rank, one after another.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/reshard/execute.h"

#include "base/error.h"
#include "schedule/reshard/blocks.h"
#include "schedule/visit.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

namespace dovetail::exec::reshard {
namespace {

using schedule::Collective;
using schedule::DType;
using schedule::reshard::Begin;
using schedule::reshard::Box;
using schedule::reshard::Collect;
using schedule::reshard::CopyPart;
using schedule::reshard::Finish;
using schedule::reshard::RankPlan;
using schedule::reshard::ReceivePart;
using schedule::reshard::ReshardPlan;
using schedule::reshard::SendPart;
using schedule::reshard::Shape;
using schedule::reshard::Step;

struct LocalTensor {
  Shape shape{0};
  std::vector<float> data;
};

std::size_t size_of(const Box& box) {
  return static_cast<std::size_t>(schedule::reshard::elements(box));
}

std::size_t size_of(const std::vector<Box>& boxes) {
  std::size_t size = 0;
  for (const Box& box : boxes) size += size_of(box);
  return size;
}

// One list after another.
std::vector<float> packed(const LocalTensor& tensor, const std::vector<Box>& boxes) {
  std::vector<float> list(size_of(boxes));
  std::span<float> rest = list;
  for (const Box& box : boxes) {
    schedule::reshard::pack<float>(tensor.data, tensor.shape, box, rest.first(size_of(box)));
    rest = rest.subspan(size_of(box));
  }
  return list;
}

void unpack(std::span<const float> list, const std::vector<Box>& boxes, LocalTensor& tensor) {
  for (const Box& box : boxes) {
    schedule::reshard::unpack<float>(list.first(size_of(box)), tensor.shape, box, tensor.data);
    list = list.subspan(size_of(box));
  }
}

// The pairs of ranks between which messages travel, the lower first.
std::set<std::pair<Rank, Rank>> talking_pairs(const ReshardPlan& plan) {
  std::set<std::pair<Rank, Rank>> pairs;
  for (const RankPlan& rank : plan.ranks) {
    for (const Step& step : rank.steps) {
      if (const SendPart* send = std::get_if<SendPart>(&step)) {
        pairs.emplace(std::min(rank.rank, send->to), std::max(rank.rank, send->to));
      }
    }
  }
  return pairs;
}

class Walk {
 public:
  Walk(const Wires& wires, LocalTensor before) : wires_(wires), current_(std::move(before)) {}

  void take(const Step& step) {
    ++number_;
    schedule::visit(
        step,
        [&](const Begin& begin) {
          const auto size = static_cast<std::size_t>(schedule::reshard::elements(begin.shape));
          next_ = {.shape = begin.shape, .data = std::vector<float>(size)};
        },
        [&](const CopyPart& copy) { unpack(packed(current_, {copy.from}), {copy.to}, next_); },
        [&](const SendPart& send) {
          wires_.to_peer(send.to).send(packed(current_, {send.part}), label("send"));
        },
        [&](const ReceivePart& receive) {
          std::vector<float> list(size_of(receive.part));
          wires_.to_peer(receive.from).receive(list, label("receive"));
          unpack(list, {receive.part}, next_);
        },
        [&](const Collect& collect) { run(collect); },
        [&](const Finish&) { current_ = std::exchange(next_, LocalTensor{}); });
  }

  std::vector<float> result() && { return std::move(current_.data); }

 private:
  void run(const Collect& step) {
    cpu::Transport& transport = wires_.of_group(step.group);
    const std::string what = label(std::string(schedule::to_string(step.kind)));
    std::vector<float> outgoing = packed(current_, step.outgoing);
    std::vector<float> incoming(size_of(step.incoming));
    switch (step.kind) {
      case Collective::AllReduce:
        incoming = std::move(outgoing);
        transport.all_reduce(incoming, step.op, what);
        break;
      case Collective::ReduceScatter:
        transport.reduce_scatter(outgoing, incoming, step.op, what);
        break;
      case Collective::AllGather:
        transport.all_gather(outgoing, incoming, what);
        break;
      case Collective::AllToAll:
        transport.all_to_all(outgoing, incoming, what);
        break;
      case Collective::Broadcast:
      case Collective::SendRecv:
        DOVETAIL_CHECK(false) << what << " is no step of a plan";
    }
    unpack(incoming, step.incoming, next_);
  }

  [[nodiscard]] std::string label(const std::string& what) const {
    return what + " of step " + std::to_string(number_ - 1);
  }

  const Wires& wires_;
  LocalTensor current_;
  LocalTensor next_;
  std::size_t number_ = 0;
};

}  // namespace

Wires::Wires(launch::Session& session, const ReshardPlan& plan, const cpu::RingOptions& options)
    : rank_(session.rank()) {
  if (!plan.ranks.empty() && plan.ranks.back().rank.value >= session.size()) {
    throw InputError("reshard: the plan needs rank " +
                     std::to_string(plan.ranks.back().rank.value) + ", the job has " +
                     std::to_string(session.size()) + " ranks");
  }
  const std::array<Rank, 1> alone{rank_};
  for (const schedule::ProcessGroup& group : plan.groups) {
    const std::span<const Rank> instance = group.instance_of(rank_);
    std::unique_ptr<cpu::Transport> transport = cpu::open_ring(
        session, instance.empty() ? std::span<const Rank>(alone) : instance, options);
    if (!instance.empty()) groups_[group.id] = std::move(transport);
  }
  for (const auto& [low, high] : talking_pairs(plan)) {
    const std::array<Rank, 2> both{low, high};
    const bool is_mine = low == rank_ || high == rank_;
    std::unique_ptr<cpu::Transport> transport =
        cpu::open_ring(session, is_mine ? std::span<const Rank>(both) : alone, options);
    if (is_mine) peers_[low == rank_ ? high : low] = std::move(transport);
  }
}

cpu::Transport& Wires::of_group(GroupId group) const {
  const auto found = groups_.find(group);
  DOVETAIL_CHECK(found != groups_.end()) << "group " << group;
  return *found->second;
}

cpu::Transport& Wires::to_peer(Rank peer) const {
  const auto found = peers_.find(peer);
  DOVETAIL_CHECK(found != peers_.end()) << "rank " << peer;
  return *found->second;
}

std::vector<float> execute(const ReshardPlan& plan, const Wires& wires,
                           std::span<const float> before) {
  if (plan.value.dtype != DType::F32) {
    throw InputError("reshard: only f32 can be executed, found " +
                     std::string(schedule::to_string(plan.value.dtype)));
  }
  const auto mine = std::ranges::find(plan.ranks, wires.rank(), &RankPlan::rank);
  if (mine == plan.ranks.end()) return {};
  const std::int64_t expected = mine->before ? schedule::reshard::elements(*mine->before) : 0;
  if (static_cast<std::int64_t>(before.size()) != expected) {
    throw InputError("reshard: rank " + std::to_string(wires.rank().value) + " gives " +
                     std::to_string(before.size()) + " elements, the plan says " +
                     std::to_string(expected));
  }
  Walk walk(wires, {.shape = mine->before.value_or(Shape{0}),
                    .data = std::vector<float>(before.begin(), before.end())});
  for (const Step& step : mine->steps) walk.take(step);
  std::vector<float> result = std::move(walk).result();
  if (!mine->after) result.clear();
  return result;
}

}  // namespace dovetail::exec::reshard
