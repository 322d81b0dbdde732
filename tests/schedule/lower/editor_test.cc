// The batch editor: what edits mean alone and together, when it refuses, how much work a commit is.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/editor.h"

#include "base/error.h"
#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

constexpr TensorId kX{0};
constexpr TensorId kY{1};
constexpr TensorId kZ{2};

Op op_of(OpId id, const std::string& name, std::vector<TensorId> reads = {kX}) {
  return {.id = id,
          .name = name,
          .work = MemoryWork{.bytes = Bytes(8), .flop = Flop(0)},
          .reads = std::move(reads),
          .writes = {kY}};
}

Tensor tensor_of(TensorId id, const std::string& name) {
  return {.id = id, .name = name, .kind = TensorKind::Parameter, .shape = {}};
}

// Ops 0..n-1, named by their numbers; each reads x and writes y.
Program numbered(std::int32_t ops) {
  Program program;
  program.name = "numbered";
  program.groups.push_back({GroupId{0}, "dp", {Rank{0}}});
  program.tensors = {tensor_of(kX, "x"), tensor_of(kY, "y"), tensor_of(kZ, "z")};
  for (std::int32_t i = 0; i < ops; ++i) {
    program.ops.push_back(op_of(OpId{i}, std::to_string(i)));
  }
  return program;
}

std::string order(const Program& program) {
  std::string names;
  for (const Op& op : program.ops) names += (names.empty() ? "" : " ") + op.name;
  return names;
}

class EditorTest : public ::testing::Test {
 protected:
  // A fresh op of this name, ready to insert.
  std::vector<Op> fresh(const std::string& name) {
    last_ = editor_.new_op_id();
    return {op_of(last_, name)};
  }
  Program commit() { return std::move(editor_).commit(counts_); }

  ProgramEditor editor_{numbered(3)};
  OpId last_;
  EditCounts counts_;
};

TEST_F(EditorTest, InsertsBeforeAndAfterAndAtTheEnd) {
  editor_.append(fresh("end"));
  editor_.insert_after(OpId{2}, fresh("c"));
  editor_.insert_after(OpId{0}, fresh("b"));
  editor_.insert_before(OpId{0}, fresh("a"));
  EXPECT_EQ(order(commit()), "a 0 b 1 2 c end");
  EXPECT_EQ(counts_.inserted, 4);
}

TEST_F(EditorTest, R19InsertionsAtOnePlaceStandInIssueOrder) {
  editor_.insert_before(OpId{1}, fresh("a"));
  editor_.insert_after(OpId{1}, fresh("p"));
  editor_.insert_before(OpId{1}, fresh("b"));
  editor_.insert_after(OpId{1}, fresh("q"));
  EXPECT_EQ(order(commit()), "0 a b 1 p q 2");
}

TEST_F(EditorTest, InsertsAroundAnOpOfTheSameBatch) {
  editor_.insert_after(OpId{0}, fresh("m"));
  const OpId middle = last_;
  editor_.insert_after(OpId{0}, fresh("n"));
  editor_.insert_before(middle, fresh("l"));
  editor_.insert_after(middle, fresh("m2"));
  // l and m2 belong to m, so n still follows all of them.
  EXPECT_EQ(order(commit()), "0 l m m2 n 1 2");
}

TEST_F(EditorTest, R19AnInsertionTakesThePlaceOfItsRemovedAnchor) {
  editor_.insert_before(OpId{1}, fresh("a"));
  editor_.remove(OpId{1});
  editor_.insert_after(OpId{1}, fresh("b"));
  EXPECT_EQ(order(commit()), "0 a b 2");
  EXPECT_EQ(counts_.removed, 1);
}

TEST_F(EditorTest, AnOpOfTheBatchCanBeRemovedAgain) {
  editor_.insert_before(OpId{1}, fresh("a"));
  editor_.remove(last_);
  EXPECT_EQ(std::move(editor_).commit(), numbered(3));
}

TEST_F(EditorTest, ReplacesAnOpInItsPlace) {
  editor_.replace(op_of(OpId{1}, "one", {kZ}));
  const Program program = commit();
  EXPECT_EQ(order(program), "0 one 2");
  EXPECT_EQ(program.ops[1].reads, std::vector{kZ});
  EXPECT_EQ(counts_.replaced, 1);
}

TEST_F(EditorTest, RenamesOneUse) {
  editor_.rename_use(OpId{1}, kX, kZ);
  const Program program = commit();
  EXPECT_EQ(program.ops[0].reads, std::vector{kX});
  EXPECT_EQ(program.ops[1].reads, std::vector{kZ});
  EXPECT_EQ(counts_.renamed, 1);
}

TEST_F(EditorTest, RenamesAllUsesButThoseThatTheBatchWrote) {
  // A conversion of x to z reads x itself.
  editor_.insert_before(OpId{0}, fresh("convert"));
  editor_.replace(op_of(OpId{2}, "two"));
  editor_.replace_all_uses(kX, kZ);
  const Program program = commit();
  EXPECT_EQ(program.ops[0].reads, std::vector{kX});
  EXPECT_EQ(program.ops[1].reads, std::vector{kZ});
  EXPECT_EQ(program.ops[2].reads, std::vector{kZ});
  EXPECT_EQ(program.ops[3].reads, std::vector{kX});
}

TEST_F(EditorTest, RenamesMeanTheProgramBeforeTheBatch) {
  editor_.replace_all_uses(kX, kY);
  editor_.replace_all_uses(kY, kZ);
  EXPECT_EQ(commit().ops[0].reads, std::vector{kY});
}

TEST_F(EditorTest, R19ConflictingRenamesOfOneUseAreRefused) {
  editor_.rename_use(OpId{1}, kX, kZ);
  editor_.rename_use(OpId{1}, kX, kZ);  // the same again is no conflict
  EXPECT_THROW(editor_.rename_use(OpId{1}, kX, kY), InputError);
  EXPECT_THROW(editor_.replace_all_uses(kX, kY), InputError);
  EXPECT_EQ(commit().ops[1].reads, std::vector{kZ});
}

TEST_F(EditorTest, R19ACommitOfNothingIsTheSameProgram) {
  EXPECT_EQ(commit(), numbered(3));
  EXPECT_EQ(counts_, EditCounts{});
}

TEST_F(EditorTest, R19ARefusedEditLeavesTheProgramAsItWas) {
  EXPECT_THROW(editor_.insert_before(OpId{9}, fresh("a")), InputError);
  EXPECT_THROW(editor_.insert_after(OpId{0}, {op_of(OpId{1}, "again")}), InputError);
  EXPECT_THROW(editor_.insert_after(OpId{0}, {op_of(OpId{-1}, "negative")}), InputError);
  EXPECT_THROW(editor_.append({op_of(OpId{8}, "a"), op_of(OpId{8}, "b")}), InputError);
  EXPECT_THROW(editor_.remove(OpId{9}), InputError);
  EXPECT_THROW(editor_.replace(op_of(OpId{9}, "nine")), InputError);
  EXPECT_THROW(editor_.add_tensor(tensor_of(kX, "x2")), InputError);
  EXPECT_THROW(editor_.add_group({GroupId{0}, "tp", {Rank{0}}}), InputError);
  EXPECT_EQ(editor_.program(), numbered(3));
  EXPECT_EQ(commit(), numbered(3));
}

TEST_F(EditorTest, R19ARefusedCommitLeavesTheProgramAsItWas) {
  editor_.insert_before(OpId{1}, {op_of(editor_.new_op_id(), "a", {TensorId{7}})});
  EXPECT_THROW(std::move(editor_).commit(), InputError);
  EXPECT_EQ(editor_.program(), numbered(3));  // NOLINT(bugprone-use-after-move): nothing moved
  // Once the tensor is there the same batch goes through.
  editor_.add_tensor(tensor_of(TensorId{7}, "seven"));
  EXPECT_EQ(order(std::move(editor_).commit()), "0 a 1 2");
}

TEST_F(EditorTest, RefusesToCommitARenameThatMeansNothing) {
  editor_.rename_use(OpId{1}, kZ, kX);  // op 1 does not read z
  EXPECT_THROW(std::move(editor_).commit(), InputError);
  ProgramEditor other(numbered(3));
  other.rename_use(OpId{1}, kX, kZ);
  other.remove(OpId{1});
  EXPECT_THROW(std::move(other).commit(), InputError);
}

TEST_F(EditorTest, RefusesAMessageOverAnUnknownGroup) {
  Op message = op_of(editor_.new_op_id(), "all-gather");
  message.work =
      CollectiveWork{.kind = Collective::AllGather, .group = GroupId{5}, .bytes = Bytes(4)};
  editor_.append({message});
  EXPECT_THROW(std::move(editor_).commit(), InputError);
}

TEST_F(EditorTest, NewIdsAreFreeAndDifferent) {
  const OpId first = editor_.new_op_id();
  const OpId second = editor_.new_op_id();
  EXPECT_EQ(first, OpId{3});
  EXPECT_EQ(second, OpId{4});
  editor_.append({op_of(OpId{9}, "nine")});
  EXPECT_EQ(editor_.new_op_id(), OpId{10});
  EXPECT_EQ(editor_.new_tensor_id(), TensorId{3});
  EXPECT_EQ(editor_.new_group_id(), GroupId{1});
}

// The reference of RI2: each insertion at once, by hand, into the list.
struct OneAtATime {
  struct Entry {
    Op op;
    bool removed = false;
  };
  std::vector<Entry> list;
  std::vector<std::pair<OpId, OpId>> after;  // (anchor, inserted after it)

  std::size_t find(OpId id) {
    return static_cast<std::size_t>(
        std::ranges::find_if(list, [&](const Entry& entry) { return entry.op.id == id; }) -
        list.begin());
  }
  // The last op that hangs behind `id`.
  OpId last_behind(OpId id) {
    OpId last = id;
    for (const auto& [anchor, inserted] : after) {
      if (anchor == id) last = last_behind(inserted);
    }
    return last;
  }
  void insert(std::size_t at, const Op& op) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), Entry{op});
  }
};

TEST(EditorPropertyTest, RI2ABatchEqualsItsEditsOneAtATime) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    ProgramEditor editor(numbered(static_cast<std::int32_t>(random.between(1, 6))));
    OneAtATime reference;
    for (const Op& op : editor.program().ops) reference.list.push_back({op});
    for (std::int64_t edit = random.between(0, 12); edit > 0; --edit) {
      const auto at = static_cast<std::size_t>(
          random.between(0, static_cast<std::int64_t>(reference.list.size()) - 1));
      const OpId anchor = reference.list[at].op.id;
      const std::int64_t kind = random.between(0, 4);
      if (kind == 0) {
        if (reference.list[at].removed) continue;
        editor.remove(anchor);
        reference.list[at].removed = true;
        continue;
      }
      const OpId id = editor.new_op_id();
      const Op op = op_of(id, "n" + std::to_string(id.value));
      if (kind <= 2) {
        editor.insert_before(anchor, {op});
        reference.insert(at, op);
      } else {
        editor.insert_after(anchor, {op});
        reference.insert(reference.find(reference.last_behind(anchor)) + 1, op);
        reference.after.emplace_back(anchor, id);
      }
    }
    std::vector<Op> expected;
    for (const auto& entry : reference.list) {
      if (!entry.removed) expected.push_back(entry.op);
    }
    EXPECT_EQ(std::move(editor).commit().ops, expected) << "seed " << seed;
  }
}

TEST(EditorPropertyTest, R16RI3TheWorkOfACommitGrowsAsTheProgramDoes) {
  const auto work = [](std::int32_t ops) {
    ProgramEditor editor(numbered(ops));
    for (std::int32_t i = 0; i < ops; i += 10) {
      editor.insert_before(OpId{ops - 1 - i}, {op_of(editor.new_op_id(), "n")});
    }
    EditCounts counts;
    const Program program = std::move(editor).commit(counts);
    EXPECT_EQ(program.ops.size(), static_cast<std::size_t>(ops + ops / 10));
    // Each op is written once; sorting e insertions takes at most e log2 e comparisons and a few.
    EXPECT_GE(counts.work, ops + ops / 10);
    return static_cast<double>(counts.work);
  };
  // Four times the ops: 4 for the list, a little more for the sort; quadratic would be 16.
  EXPECT_LT(work(32'000) / work(8000), 6);
  EXPECT_LT(work(128'000) / work(32'000), 6);
}

TEST(EditorPropertyTest, AChainOfInsertionsNeedsNoRecursion) {
  // Each op is inserted after the one inserted before it: 200,000 levels.
  ProgramEditor editor(numbered(1));
  OpId anchor{0};
  for (int i = 0; i < 200'000; ++i) {
    const OpId next = editor.new_op_id();
    editor.insert_after(anchor, {op_of(next, "n")});
    anchor = next;
  }
  const Program program = std::move(editor).commit();
  ASSERT_EQ(program.ops.size(), 200'001U);
  EXPECT_EQ(program.ops.back().id, anchor);
}

}  // namespace
}  // namespace dovetail::schedule
