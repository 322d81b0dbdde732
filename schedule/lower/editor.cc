// Collecting edits as nodes and insertions, and the one ordered commit.
//
// Every op, old or inserted, is a node; every insertion hangs on one side of its anchor's node. The
// new list is the walk of that forest: what was inserted before a node, the node's own op unless it
// was removed, what was inserted after it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/editor.h"

#include "base/error.h"
#include "base/interruption.h"
#include "schedule/lower/rewrite/repeated.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::schedule {
namespace {

constexpr std::int32_t kAtEnd = std::numeric_limits<std::int32_t>::max();  // where append() inserts
constexpr std::size_t kNothing = SIZE_MAX;

template <class IdType>
[[noreturn]] void refuse(const std::string& what, IdType id, const std::string& why) {
  throw InputError("edit: " + what + " " + std::to_string(id.value) + " " + why);
}

template <class IdType>
void check_range(const std::string& what, IdType id) {
  if (id.value < 0 || id.value > kLargestId) refuse(what, id, "is not a possible id");
}

}  // namespace

ProgramEditor::ProgramEditor(Program program)
    : program_(std::move(program)),
      next_op_(first_unused(program_.ops)),
      next_tensor_(first_unused(program_.tensors)),
      next_group_(first_unused(program_.groups)) {
  nodes_.reserve(static_cast<std::size_t>(next_op_));
  tensors_.reserve(static_cast<std::size_t>(next_tensor_));
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    nodes_[program_.ops[i].id] = static_cast<Node>(i);
  }
  for (const Tensor& tensor : program_.tensors) tensors_[tensor.id] = 1;
  for (const ProcessGroup& group : program_.groups) groups_[group.id] = 1;
}

void ProgramEditor::add_tensor(Tensor tensor) {
  check_range("tensor", tensor.id);
  if (knows(tensor.id)) refuse("tensor", tensor.id, "exists already");
  tensors_[tensor.id] = 1;
  next_tensor_ = std::max(next_tensor_, tensor.id.value + 1);
  new_tensors_.push_back(std::move(tensor));
}

void ProgramEditor::add_group(ProcessGroup group) {
  check_range("process group", group.id);
  if (groups_.at(group.id)) refuse("process group", group.id, "exists already");
  groups_[group.id] = 1;
  next_group_ = std::max(next_group_, group.id.value + 1);
  new_groups_.push_back(std::move(group));
}

ProgramEditor::Node ProgramEditor::node_of(OpId id) const {
  const Node node = nodes_.at(id);
  if (node == kNoNode) refuse("op", id, "does not exist");
  return node;
}

void ProgramEditor::insert_before(OpId anchor, std::vector<Op> ops) {
  insert(node_of(anchor), Side::Before, ops);
}

void ProgramEditor::insert_after(OpId anchor, std::vector<Op> ops) {
  insert(node_of(anchor), Side::After, ops);
}

void ProgramEditor::insert_one_before(OpId anchor, Op op) {
  insert(node_of(anchor), Side::Before, std::span(&op, 1));
}

void ProgramEditor::insert_one_after(OpId anchor, Op op) {
  insert(node_of(anchor), Side::After, std::span(&op, 1));
}

void ProgramEditor::append(std::vector<Op> ops) { insert(kAtEnd, Side::Before, ops); }

void ProgramEditor::insert(Node anchor, Side side, std::span<Op> ops) {
  if (ops.empty()) return;
  throw_if_interrupted();
  std::set<OpId> batch;
  for (const Op& op : ops) {
    check_range("op", op.id);
    const bool is_double = ops.size() > 1 && !batch.insert(op.id).second;
    if (nodes_.at(op.id) != kNoNode || is_double) refuse("op", op.id, "exists already");
  }
  const auto first = static_cast<Node>(program_.ops.size() + inserted_.size());
  insertions_.push_back(
      {.anchor = anchor, .side = side, .first = first, .count = static_cast<Node>(ops.size())});
  Node node = first;
  for (Op& op : ops) {
    nodes_[op.id] = node++;
    next_op_ = std::max(next_op_, op.id.value + 1);
    inserted_.push_back(std::move(op));
  }
}

void ProgramEditor::remove(OpId op) {
  check_known(op);
  if (!removed_.insert(op).second) refuse("op", op, "was removed already");
}

void ProgramEditor::replace(Op op) {
  check_known(op.id);
  if (removed_.contains(op.id)) refuse("op", op.id, "was removed, it cannot be replaced");
  const auto [place, is_new] = replaced_.try_emplace(op.id);
  if (!is_new) refuse("op", op.id, "was replaced already");
  place->second = std::move(op);
}

void ProgramEditor::rename_use(OpId op, TensorId before, TensorId after) {
  check_known(op);
  const auto known = renames_.find({op, before});
  if (known != renames_.end() && known->second != after) {
    refuse("op", op, "gets two new names for its use of tensor " + std::to_string(before.value));
  }
  const auto all = everywhere_.find(before);
  if (all != everywhere_.end() && all->second != after) {
    refuse("op", op,
           "has its use of tensor " + std::to_string(before.value) +
               " renamed together with all others already");
  }
  renames_.insert_or_assign({op, before}, after);
}

void ProgramEditor::replace_all_uses(TensorId before, TensorId after) {
  if (!knows(before)) refuse("tensor", before, "does not exist");
  const auto known = everywhere_.find(before);
  if (known != everywhere_.end() && known->second != after) {
    refuse("tensor", before, "has all its uses renamed already");
  }
  for (const auto& rename : renames_) {
    if (rename.first.second == before && rename.second != after) {
      refuse("tensor", before,
             "has a use renamed already in op " + std::to_string(rename.first.first.value));
    }
  }
  everywhere_.insert_or_assign(before, after);
}

Op& ProgramEditor::stored(Node node) {
  const auto position = static_cast<std::size_t>(node);
  const std::size_t old = program_.ops.size();
  return position < old ? program_.ops[position] : inserted_[position - old];
}

// The op as the commit will write it, but for renames.
const Op& ProgramEditor::edited(OpId id) const {
  const auto replacement = replaced_.find(id);
  if (replacement != replaced_.end()) return replacement->second;
  const auto position = static_cast<std::size_t>(nodes_.at(id));
  const std::size_t old = program_.ops.size();
  return position < old ? program_.ops[position] : inserted_[position - old];
}

void ProgramEditor::check_names(const Op& op) const {
  for (const auto* list : {&op.reads, &op.writes}) {
    for (const TensorId id : *list) {
      if (!knows(id)) refuse("op", op.id, "names the unknown tensor " + std::to_string(id.value));
    }
  }
  const auto* message = std::get_if<CollectiveWork>(&op.work);
  if (message != nullptr && !groups_.at(message->group)) {
    refuse("op", op.id, "names the unknown process group " + std::to_string(message->group.value));
  }
}

void ProgramEditor::check_commit() const {
  for (const Op& op : inserted_) {
    if (!removed_.contains(op.id)) check_names(edited(op.id));
  }
  for (const auto& replacement : replaced_) check_names(replacement.second);
  check_renames();
}

void ProgramEditor::check_renames() const {
  for (const auto& [before, after] : everywhere_) {
    if (!knows(after)) refuse("tensor", after, "does not exist");
  }
  for (const auto& [use, after] : renames_) {
    const auto [op, before] = use;
    if (!knows(after)) refuse("tensor", after, "does not exist");
    if (removed_.contains(op)) refuse("op", op, "was removed, its uses cannot be renamed");
    if (std::ranges::count(edited(op).reads, before) == 0) {
      refuse("op", op, "does not read tensor " + std::to_string(before.value));
    }
  }
}

void ProgramEditor::rename(Op& op, const IdTable<TensorId, TensorId>& everywhere,
                           EditCounts& counts) const {
  const bool old = static_cast<std::size_t>(nodes_.at(op.id)) < program_.ops.size();
  const bool from_before = old && !replaced_.contains(op.id);
  for (TensorId& read : op.reads) {
    const auto one = renames_.find({op.id, read});
    TensorId after = one == renames_.end() ? read : one->second;
    if (one == renames_.end() && from_before && everywhere.at(read).value >= 0) {
      after = everywhere.at(read);
    }
    counts.renamed += after == read ? 0 : 1;
    read = after;
  }
}

Program ProgramEditor::commit() && {
  EditCounts counts;
  return std::move(*this).commit(counts);
}

Program ProgramEditor::commit(EditCounts& counts) && {
  check_commit();
  counts = EditCounts{.inserted = static_cast<std::int64_t>(inserted_.size()),
                      .removed = static_cast<std::int64_t>(removed_.size()),
                      .replaced = static_cast<std::int64_t>(replaced_.size())};
  for (auto& [id, op] : replaced_) stored(nodes_.at(id)) = std::move(op);
  if (!renames_.empty() || !everywhere_.empty()) rename_everything(counts);
  if (!insertions_.empty() || !removed_.empty()) write_ops(counts);
  program_.tensors.reserve(program_.tensors.size() + new_tensors_.size());
  for (Tensor& tensor : new_tensors_) program_.tensors.push_back(std::move(tensor));
  for (ProcessGroup& group : new_groups_) program_.groups.push_back(std::move(group));
  return std::move(program_);
}

void ProgramEditor::rename_everything(EditCounts& counts) {
  IdTable<TensorId, TensorId> everywhere(TensorId{-1});
  for (const auto& [before, after] : everywhere_) everywhere[before] = after;
  for (Op& op : program_.ops) rename(op, everywhere, counts);
  for (Op& op : inserted_) rename(op, everywhere, counts);
}

void ProgramEditor::write_ops(EditCounts& counts) {
  std::ranges::stable_sort(insertions_, [&](const Insertion& a, const Insertion& b) {
    ++counts.work;
    return std::pair(a.anchor, a.side) < std::pair(b.anchor, b.side);
  });
  const std::size_t old = program_.ops.size();
  const std::size_t nodes = old + inserted_.size();
  std::vector<std::size_t> first_around(nodes, kNothing);
  std::size_t appended = insertions_.size();  // the first insertion at the end
  for (std::size_t i = insertions_.size(); i-- > 0;) {
    const Node anchor = insertions_[i].anchor;
    (anchor == kAtEnd ? appended : first_around[static_cast<std::size_t>(anchor)]) = i;
  }
  std::vector<Op> ops;
  ops.reserve(nodes - removed_.size());
  std::vector<Pending> pending;  // the next one last
  const auto write_pending = [&] {
    while (!pending.empty()) {
      const Pending next = pending.back();
      pending.pop_back();
      const std::size_t around = first_around[static_cast<std::size_t>(next.node)];
      if (next.what == Pending::What::AllAround && around != kNothing) {
        unfold(next.node, around, pending);
        continue;
      }
      Op& op = stored(next.node);
      ++counts.work;
      if (removed_.empty() || !removed_.contains(op.id)) ops.push_back(std::move(op));
    }
  };
  for (std::size_t i = 0; i < old; ++i) {
    pending.push_back({static_cast<Node>(i)});
    write_pending();
  }
  for (std::size_t i = insertions_.size(); i-- > appended;) push_ops(insertions_[i], pending);
  write_pending();
  program_.ops = std::move(ops);
}

// Puts the insertions around a node, and between them its own op, where they are written next.
void ProgramEditor::unfold(Node node, std::size_t around, std::vector<Pending>& pending) const {
  std::size_t i = around;
  while (i < insertions_.size() && insertions_[i].anchor == node) ++i;
  for (; i > around && insertions_[i - 1].side == Side::After; --i) {
    push_ops(insertions_[i - 1], pending);
  }
  pending.push_back({node, Pending::What::OnlyTheOp});
  for (; i > around; --i) push_ops(insertions_[i - 1], pending);
}

void ProgramEditor::push_ops(const Insertion& insertion, std::vector<Pending>& pending) {
  for (Node i = insertion.count; i-- > 0;) pending.push_back({insertion.first + i});
}

}  // namespace dovetail::schedule
