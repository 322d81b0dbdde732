// Decides what each command that communicates sends and receives: which region of a bucket or
// tensor, of which element type, over which communicator.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/transfer.h"

#include "base/error.h"
#include "exec/values/op_message.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

using schedule::Collective;

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
  switch (transfer.kind) {
    case Collective::AllReduce:
      transfer.recv = at.target.value_or(at.scratch);
      transfer.send = at.source.value_or(transfer.recv);
      break;
    case Collective::ReduceScatter:
      transfer.send = at.source.value_or(at.scratch);
      transfer.recv = at.target.value_or(part_of(at.scratch, transfer.index, part));
      transfer.count = part;
      break;
    case Collective::AllGather:
      transfer.recv = at.target.value_or(at.scratch);
      transfer.send = at.source.value_or(part_of(transfer.recv, transfer.index, part));
      transfer.count = part;
      break;
    case Collective::AllToAll:
      transfer.send = at.source.value_or(part_of(at.scratch, 0, at.elements));
      transfer.recv = at.target.value_or(part_of(at.scratch, 1, at.elements));
      transfer.count = part;
      break;
    case Collective::Broadcast:
      transfer.recv = at.target.value_or(at.scratch);
      transfer.send =
          transfer.index == transfer.root ? at.source.value_or(transfer.recv) : transfer.recv;
      break;
    case Collective::SendRecv: {
      const bool sends = transfer.index == transfer.root;
      const std::optional<Region>& own = sends ? at.source : at.target;
      const std::optional<Region>& other = sends ? at.target : at.source;
      transfer.send = own ? *own : other.value_or(at.scratch);
      transfer.recv = transfer.send;
      break;
    }
  }
}

}  // namespace

std::int64_t Transfer::payload_bytes() const { return std::max(send.bytes(), recv.bytes()); }

Transfer transfer_of(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                     const schedule::RunCollective& action) {
  std::ostringstream label;
  label << schedule::to_string(action.kind) << " of bucket " << action.bucket;
  Transfer transfer = {.kind = action.kind, .op = action.reduce};
  transfer.label = label.str();
  take_place(plan.program, action.group, rank, transfer);
  const Region whole = layout.bucket(action.bucket);
  const Region shard = layout.shard(action.bucket);
  switch (action.kind) {
    case Collective::AllReduce:
      transfer.send = action.part == schedule::Part::Shard ? shard : whole;
      transfer.recv = transfer.send;
      transfer.count = transfer.send.count;
      return transfer;
    case Collective::ReduceScatter:
      transfer.send = whole;
      transfer.recv = shard;
      transfer.count = shard.count;
      return transfer;
    case Collective::AllGather:
      transfer.send = shard;
      transfer.recv = whole;
      transfer.count = shard.count;
      return transfer;
    case Collective::AllToAll:
    case Collective::Broadcast:
    case Collective::SendRecv:
      break;
  }
  throw InputError(transfer.label + ": a bucket is only reduced, scattered or gathered");
}

Transfer transfer_of(const schedule::ScheduledProgram& plan, const Layout& layout, Rank rank,
                     const schedule::Op& op, Peers peers) {
  const auto& work = std::get<schedule::CollectiveWork>(op.work);
  const values::OpMessage message = values::message_of(plan.program, op);
  Transfer transfer = {.kind = work.kind, .op = work.op};
  transfer.label = std::string(schedule::to_string(work.kind)) + " of op " + op.name;
  transfer.root = work.root;
  take_place(plan.program, work.group, rank, transfer);
  if (work.kind == Collective::SendRecv && transfer.ranks != 2 && peers == Peers::Real) {
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

}  // namespace dovetail::exec::cuda
