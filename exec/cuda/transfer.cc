// Decides what each command that communicates sends and receives: which region of a bucket or
// tensor, of which element type, over which communicator.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/transfer.h"

#include "base/error.h"
#include "exec/values/op_message.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

// The rank's place in its instance of the group.
void take_place(const schedule::Program& program, GroupId group, Rank rank, Transfer& transfer) {
  const std::span<const Rank> instance = program.group(group).instance_of(rank);
  const auto found = std::find(instance.begin(), instance.end(), rank);
  if (found == instance.end()) {
    std::ostringstream message;
    message << transfer.label << ": rank " << rank << " is not in group "
            << program.group(group).name;
    throw InputError(message.str());
  }
  transfer.ranks = static_cast<std::int32_t>(instance.size());
  transfer.index = static_cast<std::int32_t>(found - instance.begin());
}

// Part `index` of `count` elements each.
Region part_of(const Region& whole, std::int64_t index, std::int64_t count) {
  Region part = whole;
  part.offset += index * count * size_of(whole.element);
  part.count = count;
  return part;
}

// What an op's message has: its tensors, or scratch.
struct Places {
  Region scratch;
  std::optional<Region> source;
  std::optional<Region> target;
  std::int64_t elements = 0;
};

void place(const Places& at, Transfer& transfer) {
  const std::int64_t part = at.elements / transfer.ranks;
  transfer.count = at.elements;
  const schedule::CollectiveTraits& traits = schedule::traits_of(transfer.kind);
  if (traits.is_cut()) transfer.count = part;
  const bool sends = !traits.rooted() || transfer.index == transfer.root;
  if (traits.pair) {
    const std::optional<Region>& own = sends ? at.source : at.target;
    const std::optional<Region>& other = sends ? at.target : at.source;
    transfer.send = own ? *own : other.value_or(at.scratch);
    transfer.recv = transfer.send;
  } else if (!traits.in_place) {
    transfer.send = at.source.value_or(part_of(at.scratch, 0, at.elements));
    transfer.recv = at.target.value_or(part_of(at.scratch, 1, at.elements));
  } else if (traits.holds == schedule::Extent::Part) {
    transfer.send = at.source.value_or(at.scratch);
    transfer.recv = at.target.value_or(part_of(at.scratch, transfer.index, part));
  } else {
    transfer.recv = at.target.value_or(at.scratch);
    const Region in_place = traits.sends == schedule::Extent::Part
                                ? part_of(transfer.recv, transfer.index, part)
                                : transfer.recv;
    transfer.send = sends ? at.source.value_or(in_place) : in_place;
  }
}

Transfer of_bucket(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                   const schedule::Communicate& action) {
  std::ostringstream label;
  label << schedule::to_string(action.kind) << " of bucket " << *action.bucket;
  Transfer transfer = {.kind = action.kind, .op = action.reduce};
  transfer.label = label.str();
  take_place(plan.program, action.group, rank, transfer);
  const Region whole = layout.bucket(*action.bucket);
  const Region shard = layout.shard(*action.bucket);
  const schedule::CollectiveTraits& traits = schedule::traits_of(action.kind);
  if (!traits.reduces() && !traits.is_half()) {
    throw InputError(transfer.label + ": a bucket is only reduced, scattered or gathered");
  }
  const bool is_part = !traits.is_half() && action.part == schedule::Part::Shard;
  transfer.send = is_part || traits.sends == schedule::Extent::Part ? shard : whole;
  transfer.recv = is_part || traits.holds == schedule::Extent::Part ? shard : whole;
  transfer.count = std::min(transfer.send.count, transfer.recv.count);
  return transfer;
}

Transfer of_op(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
               const schedule::Op& op, Peers peers) {
  const auto& work = std::get<schedule::CollectiveWork>(op.work);
  const values::OpMessage message = values::message_of(plan.program, op);
  Transfer transfer = {.kind = work.kind, .op = work.op};
  transfer.label = std::string(schedule::to_string(work.kind)) + " of op " + op.name;
  transfer.root = work.root;
  take_place(plan.program, work.group, rank, transfer);
  if (schedule::traits_of(work.kind).pair && transfer.ranks != 2 && peers == Peers::Real) {
    throw InputError(op.name + ": a send-recv needs a group of two ranks");
  }
  Places at;
  at.scratch = layout.scratch(op.id);
  if (message.source) at.source = layout.tensor(*message.source);
  if (message.target) at.target = layout.tensor(*message.target);
  at.elements = static_cast<std::int64_t>(message.elements);
  place(at, transfer);
  return transfer;
}

}  // namespace

std::int64_t Transfer::payload_bytes() const { return std::max(send.bytes(), recv.bytes()); }

Transfer transfer_of(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                     const schedule::Communicate& action, Peers peers) {
  if (action.op) return of_op(plan, layout, rank, plan.program.op(*action.op), peers);
  return of_bucket(plan, layout, rank, action);
}

}  // namespace dovetail::exec::cuda
