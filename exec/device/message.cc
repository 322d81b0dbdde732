// Decides what each command that communicates sends and receives: which region of a bucket or
// tensor, of which element type, over which communicator.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/device/message.h"

#include "base/error.h"
#include "exec/values/op_message.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <variant>

namespace dovetail::exec {
namespace {

// The rank's place in its instance of the group.
void take_place(const schedule::Program& program, GroupId group, Rank rank, Message& message) {
  const std::span<const Rank> instance = program.group(group).instance_of(rank);
  const auto found = std::find(instance.begin(), instance.end(), rank);
  if (found == instance.end()) {
    std::ostringstream words;
    words << message.label << ": rank " << rank << " is not in group " << program.group(group).name;
    throw InputError(words.str());
  }
  message.ranks = static_cast<std::int32_t>(instance.size());
  message.index = static_cast<std::int32_t>(found - instance.begin());
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

void place(const Places& at, Message& message) {
  const std::int64_t part = at.elements / message.ranks;
  message.count = at.elements;
  const schedule::CollectiveTraits& traits = schedule::traits_of(message.kind);
  if (traits.is_cut()) message.count = part;
  const bool sends = !traits.rooted() || message.index == message.root;
  if (traits.pair) {
    const std::optional<Region>& own = sends ? at.source : at.target;
    const std::optional<Region>& other = sends ? at.target : at.source;
    message.send = own ? *own : other.value_or(at.scratch);
    message.recv = message.send;
  } else if (!traits.in_place) {
    message.send = at.source.value_or(part_of(at.scratch, 0, at.elements));
    message.recv = at.target.value_or(part_of(at.scratch, 1, at.elements));
  } else if (traits.holds == schedule::Extent::Part) {
    message.send = at.source.value_or(at.scratch);
    message.recv = at.target.value_or(part_of(at.scratch, message.index, part));
  } else {
    message.recv = at.target.value_or(at.scratch);
    const Region in_place = traits.sends == schedule::Extent::Part
                                ? part_of(message.recv, message.index, part)
                                : message.recv;
    message.send = sends ? at.source.value_or(in_place) : in_place;
  }
}

Message of_bucket(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                  const schedule::Communicate& action) {
  std::ostringstream label;
  label << schedule::to_string(action.kind) << " of bucket " << *action.bucket;
  Message message = {.kind = action.kind, .op = action.reduce};
  message.label = label.str();
  take_place(plan.program, action.group, rank, message);
  const Region whole = layout.bucket(*action.bucket);
  const Region shard = layout.shard(*action.bucket);
  const schedule::CollectiveTraits& traits = schedule::traits_of(action.kind);
  if (!traits.reduces() && !traits.is_half()) {
    throw InputError(message.label + ": a bucket is only reduced, scattered or gathered");
  }
  const bool is_part = !traits.is_half() && action.part == schedule::Part::Shard;
  message.send = is_part || traits.sends == schedule::Extent::Part ? shard : whole;
  message.recv = is_part || traits.holds == schedule::Extent::Part ? shard : whole;
  message.count = std::min(message.send.count, message.recv.count);
  return message;
}

Message of_op(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
              const schedule::Op& op, Peers peers) {
  const auto& work = std::get<schedule::CollectiveWork>(op.work);
  const values::OpMessage op_message = values::message_of(plan.program, op);
  Message message = {.kind = work.kind, .op = work.op};
  message.label = std::string(schedule::to_string(work.kind)) + " of op " + op.name;
  message.root = work.root;
  take_place(plan.program, work.group, rank, message);
  if (schedule::traits_of(work.kind).pair && message.ranks != 2 && peers == Peers::Real) {
    throw InputError(op.name + ": a send-recv needs a group of two ranks");
  }
  Places at;
  at.scratch = layout.scratch(op.id);
  message.scratch = at.scratch;
  if (op_message.source) at.source = layout.tensor(*op_message.source);
  if (op_message.target) at.target = layout.tensor(*op_message.target);
  at.elements = static_cast<std::int64_t>(op_message.elements);
  place(at, message);
  return message;
}

}  // namespace

std::int64_t Message::payload_bytes() const { return std::max(send.bytes(), recv.bytes()); }

Message message_of(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                   const schedule::Communicate& action, Peers peers) {
  if (action.op) return of_op(plan, layout, rank, plan.program.op(*action.op), peers);
  return of_bucket(plan, layout, rank, action);
}

}  // namespace dovetail::exec
