// ProgramEditor: the only way to edit the op list of a Program, many edits in one go (rule R19).
//
// Edits are collected, then committed together. commit() sorts the insertions stably by (position
// of the anchor, before or after it, issue order) and writes one new op list, so e edits of n ops
// cost O(n + e log e), where inserting them one at a time costs O(n e). Ops are named by id
// throughout.
//
//   ProgramEditor editor(std::move(program));
//   const TensorId half = editor.new_tensor_id();
//   editor.add_tensor({half, "x.half", ...});
//   editor.insert_before(reader, {cast_op});
//   editor.rename_use(reader, x, half);
//   program = std::move(editor).commit();
//
// What several edits mean together:
// - Insertions at one place stand in the order in which they were issued. An op inserted earlier in
//   the batch may be an anchor; what was inserted around it stays beside it.
// - A removed op may be an anchor, before or after its removal: the insertion takes its place.
// - Renames change reads, and mean the Program as it was before the batch: renaming a to b and b to
//   c does not turn a into c. replace_all_uses leaves ops alone that the batch inserted or replaced
//   (they say what they read: the conversion from `before` to `after` is one of them).
// - Two renames of one use to different tensors are an error, and so is a rename in a removed op.
//
// Every check throws InputError and leaves the editor as it was: a call that throws collected
// nothing, a commit that throws changed nothing. Checks are local to what was edited; problems() of
// program.h judges the whole.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/id_table.h"
#include "schedule/program.h"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace dovetail::schedule {

// What a commit did. `work` counts the ops written to the new list and the comparisons of the sort;
// a commit of nothing does no work.
struct EditCounts {
  std::int64_t inserted = 0;
  std::int64_t removed = 0;
  std::int64_t replaced = 0;
  std::int64_t renamed = 0;  // uses
  std::int64_t work = 0;
  friend bool operator==(const EditCounts&, const EditCounts&) = default;
};

class ProgramEditor {
 public:
  explicit ProgramEditor(Program program);

  // The Program before the edits.
  [[nodiscard]] const Program& program() const { return program_; }

  // Ids that nothing in the Program has and that were not given out before.
  OpId new_op_id() { return OpId{next_op_++}; }
  TensorId new_tensor_id() { return TensorId{next_tensor_++}; }
  GroupId new_group_id() { return GroupId{next_group_++}; }

  void add_tensor(Tensor tensor);
  void add_group(ProcessGroup group);

  void insert_before(OpId anchor, std::vector<Op> ops);
  void insert_after(OpId anchor, std::vector<Op> ops);
  void insert_one_before(OpId anchor, Op op);
  void insert_one_after(OpId anchor, Op op);
  void append(std::vector<Op> ops);
  void remove(OpId op);
  // The op with the same id becomes this one.
  void replace(Op op);
  // The op reads `after` wherever it read `before`.
  void rename_use(OpId op, TensorId before, TensorId after);
  void replace_all_uses(TensorId before, TensorId after);

  Program commit() &&;
  Program commit(EditCounts& counts) &&;

 private:
  enum class Side : std::uint8_t { Before, After };
  // An op of the Program (its position) or, from program_.ops.size() on, one of inserted_.
  using Node = std::int32_t;
  static constexpr Node kNoNode = -1;
  struct Insertion {
    Node anchor = kNoNode;
    Side side = Side::Before;
    Node first = kNoNode;  // its ops are consecutive nodes
    Node count = 0;
  };
  struct Pending {  // something that the commit has still to write
    enum class What : std::uint8_t { AllAround, OnlyTheOp };
    Node node = kNoNode;
    What what = What::AllAround;
  };

  [[nodiscard]] Node node_of(OpId id) const;  // throws where there is no such op
  void check_known(OpId id) const { static_cast<void>(node_of(id)); }
  [[nodiscard]] bool knows(TensorId id) const { return tensors_.at(id); }
  void insert(Node anchor, Side side, std::span<Op> ops);
  void check_names(const Op& op) const;
  void check_commit() const;
  void check_renames() const;
  [[nodiscard]] const Op& edited(OpId id) const;
  [[nodiscard]] Op& stored(Node node);
  void rename(Op& op, const IdTable<TensorId, TensorId>& everywhere, EditCounts& counts) const;
  void rename_everything(EditCounts& counts);
  void write_ops(EditCounts& counts);
  void unfold(Node node, std::size_t around, std::vector<Pending>& pending) const;
  static void push_ops(const Insertion& insertion, std::vector<Pending>& pending);

  Program program_;
  std::vector<Tensor> new_tensors_;
  std::vector<ProcessGroup> new_groups_;
  std::vector<Op> inserted_;
  std::vector<Insertion> insertions_;
  IdTable<OpId, Node> nodes_{kNoNode};
  IdTable<TensorId, char> tensors_{0};
  IdTable<GroupId, char> groups_{0};
  std::map<OpId, Op> replaced_;
  std::set<OpId> removed_;
  std::map<std::pair<OpId, TensorId>, TensorId> renames_;
  std::map<TensorId, TensorId> everywhere_;
  std::int32_t next_op_ = 0;
  std::int32_t next_tensor_ = 0;
  std::int32_t next_group_ = 0;
};

}  // namespace dovetail::schedule
