// Finds the values that cross roles, orders them per channel, inserts the pairs in one batch.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/transfers.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/interruption.h"
#include "schedule/id_table.h"
#include "schedule/lower/editor.h"

namespace dovetail::schedule {
namespace {

using Role = std::int32_t;
constexpr Role kNobody = -1;

struct Transfer {
  Role from = 0;
  Role to = 0;
  TensorId tensor;
  TensorId sent;           // as it is called on the sender
  TensorId received;       // ... and on the receiver
  std::size_t writer = 0;  // positions of ops
  std::size_t reader = 0;
};

// Who holds the newest value of a tensor: few roles beside the one that wrote it.
struct Value {
  std::size_t writer = 0;
  Role home = kNobody;
  std::vector<Role> receivers = {};

  [[nodiscard]] bool is_on(Role role) const {
    return role == home || std::ranges::count(receivers, role) > 0;
  }
};

class TransferPass {
 public:
  explicit TransferPass(Program program)
      : editor_(std::move(program)),
        touched_(roles()),
        names_(roles(), IdTable<TensorId, TensorId>(TensorId{-1})) {}

  Rewrite run() && {
    for (std::size_t i = 0; i < program().ops.size(); ++i) {
      throw_if_interrupted();
      if (auto refusal = visit_op(i)) return *std::move(refusal);
    }
    if (transfers_.empty()) {
      return Rewritten{.program = std::move(editor_).commit(), .report = {}};
    }
    Bytes moved;
    for (const Transfer& at : transfers_) moved += program().tensor(at.tensor).bytes();
    for (auto& [channel, order] : channels()) insert_channel(channel, order);
    Program result = std::move(editor_).commit();
    return Rewritten{.program = std::move(result),
                     .report = std::to_string(transfers_.size()) + " sends, " + to_string(moved)};
  }

 private:
  using Channel = std::pair<Role, Role>;  // from, to

  [[nodiscard]] const Program& program() const { return editor_.program(); }
  [[nodiscard]] std::size_t roles() const { return static_cast<std::size_t>(program().stages); }

  // Notes what the op needs from other roles, then what it writes; renames its operands where its
  // role knows them under another name.
  std::optional<Refusal> visit_op(std::size_t position) {
    const Op& op = program().ops[position];
    const Role role = program().role_of(op);
    for (const TensorId id : op.reads) {
      const Value& value = values_.at(id);
      if (value.home == kNobody || value.is_on(role)) continue;
      if (op.phase == Phase::Optimizer) {
        const Op& writer = program().ops[value.writer];
        return Refusal{"optimizer op " + op.name + " of pipeline stage " +
                       std::to_string(op.stage) + " reads " + program().tensor(id).name +
                       ", which stage " + std::to_string(writer.stage) +
                       " computes: optimizer ops over several stages are not supported"};
      }
      transfer(id, values_[id], role, position);
    }
    for (const TensorId id : op.writes) {
      values_[id] = {position, role};
      static_cast<void>(touch(role, id));
    }
    rename_operands(op, role);
    return std::nullopt;
  }

  void transfer(TensorId id, Value& value, Role to, std::size_t reader) {
    const TensorId sent = name_on(value.home, id);
    if (!touch(to, id)) {
      names_[static_cast<std::size_t>(to)][id] = fresh_copy(id);
      some_name_ = true;
    }
    value.receivers.push_back(to);
    transfers_.push_back({value.home, to, id, sent, name_on(to, id), value.writer, reader});
  }

  TensorId fresh_copy(TensorId id) {
    Tensor copy = program().tensor(id);
    copy.name += ".received@" + std::to_string(transfers_.size());
    copy.id = editor_.new_tensor_id();
    editor_.add_tensor(copy);
    return copy.id;
  }

  // Whether this is the first value of the tensor on the role.
  bool touch(Role role, TensorId id) {
    return std::exchange(touched_[static_cast<std::size_t>(role)][id], 1) == 0;
  }

  [[nodiscard]] TensorId name_on(Role role, TensorId id) const {
    const TensorId name = names_[static_cast<std::size_t>(role)].at(id);
    return name.value < 0 ? id : name;
  }

  void rename_operands(const Op& op, Role role) {
    if (!some_name_) return;
    Op renamed = op;
    for (auto* list : {&renamed.reads, &renamed.writes}) {
      for (TensorId& id : *list) id = name_on(role, id);
    }
    if (renamed != op) editor_.replace(std::move(renamed));
  }

  // The transfers of each channel in the order in which they are sent.
  [[nodiscard]] std::map<Channel, std::vector<std::size_t>> channels() const {
    std::map<Channel, std::vector<std::size_t>> channels;
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      channels[{transfers_[i].from, transfers_[i].to}].push_back(i);
    }
    const auto writer = [this](std::size_t i) { return transfers_[i].writer; };
    for (auto& [channel, order] : channels) std::ranges::stable_sort(order, {}, writer);
    return channels;
  }

  void insert_channel(Channel channel, const std::vector<std::size_t>& order) {
    const GroupId group =
        pairs(std::min(channel.first, channel.second), std::max(channel.first, channel.second));
    // Behind the last reader nothing is left to receive for.
    std::vector<std::size_t> before(order.size());
    std::size_t earliest = program().ops.size();
    for (std::size_t i = order.size(); i-- > 0;) {
      earliest = std::min(earliest, transfers_[order[i]].reader);
      before[i] = earliest;
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Transfer& transfer = transfers_[order[i]];
      const Op& writer = program().ops[transfer.writer];
      const Op& reader = program().ops[before[i]];
      Op send = side(transfer, group, writer, "send");
      send.reads = {transfer.sent};
      Op receive = side(transfer, group, reader, "recv");
      receive.writes = {transfer.received};
      editor_.insert_one_after(writer.id, std::move(send));
      editor_.insert_one_before(reader.id, std::move(receive));
    }
  }

  // One side of a transfer, belonging to where `neighbour` belongs.
  Op side(const Transfer& transfer, GroupId group, const Op& neighbour, const std::string& word) {
    const Tensor& tensor = program().tensor(transfer.tensor);
    return {.id = editor_.new_op_id(),
            .name = name_of_side(tensor.name, transfer, word),
            .phase = neighbour.phase,
            .dtype = tensor.dtype,
            .work = CollectiveWork{.kind = Collective::SendRecv,
                                   .group = group,
                                   .bytes = tensor.bytes(),
                                   .purpose = Purpose::Pipeline,
                                   .root = transfer.from < transfer.to ? 0 : 1},
            .reads = {},
            .writes = {},
            .stage = neighbour.stage,
            .micro_step = neighbour.micro_step};
  }

  // What has no name, because nobody will read it, gets none.
  std::string name_of_side(const std::string& tensor, const Transfer& transfer,
                           const std::string& word) {
    if (tensor.empty()) return {};
    std::string name = tensor + "." + word + "." + std::to_string(transfer.from) + "-" +
                       std::to_string(transfer.to);
    const std::int32_t sent_before = names_given_[name]++;
    if (sent_before > 0) name += "#" + std::to_string(sent_before);
    return name;
  }

  // The pairs of ranks of two roles; made when first asked for.
  GroupId pairs(Role low, Role high) {
    const auto known = groups_.find({low, high});
    if (known != groups_.end()) return known->second;
    const std::int64_t ranks = program().world_size / program().stages;
    ProcessGroup group{.id = editor_.new_group_id(),
                       .name = "pp" + std::to_string(low) + "-" + std::to_string(high),
                       .ranks = {},
                       .instance_size = 2};
    for (std::int64_t i = 0; i < ranks; ++i) {
      group.ranks.push_back(Rank{static_cast<std::int32_t>(low * ranks + i)});
      group.ranks.push_back(Rank{static_cast<std::int32_t>(high * ranks + i)});
    }
    const GroupId id = group.id;
    editor_.add_group(std::move(group));
    groups_[{low, high}] = id;
    return id;
  }

  ProgramEditor editor_;
  IdTable<TensorId, Value> values_;
  std::vector<IdTable<TensorId, char>> touched_;    // by role: some value lies there
  std::vector<IdTable<TensorId, TensorId>> names_;  // by role, where it is not the tensor's own
  bool some_name_ = false;
  std::vector<Transfer> transfers_;  // in the order of their readers
  std::map<std::pair<Role, Role>, GroupId> groups_;
  std::map<std::string, std::int32_t> names_given_;
};

}  // namespace

Rewrite add_transfers(Program program) { return TransferPass(std::move(program)).run(); }

}  // namespace dovetail::schedule
