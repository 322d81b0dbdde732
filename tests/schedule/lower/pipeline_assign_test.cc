// Which stage runs which op of an ordinary Program.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/networks/zoo.h"
#include "schedule/lower/pipeline/assign.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::chain;
using dovetail::testing::Layer;
using dovetail::testing::us;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Program assigned(Program program, StageSplit split) {
  return std::get<Rewritten>(assign_stages(std::move(program), split)).program;
}

std::string refusal_of(Program program, StageSplit split) {
  const Rewrite outcome = assign_stages(std::move(program), split);
  const auto* refusal = std::get_if<Refusal>(&outcome);
  return refusal ? refusal->reason : "";
}

std::vector<std::int32_t> stages_of(const Program& program, Phase phase) {
  std::vector<std::int32_t> stages;
  for (const Op& op : program.ops) {
    if (op.phase == phase) stages.push_back(op.stage);
  }
  return stages;
}

Program layers(const std::vector<std::int64_t>& forward_us) {
  std::vector<Layer> list;
  for (const std::int64_t time : forward_us) list.push_back({us(time), us(time), Bytes(4), us(1)});
  return chain(list);
}

TEST(PipelineAssignTest, CutsForwardSoThatTheLargestPartIsSmallest) {
  // 4 1 1 | 3 3 -> 6, 6. Three parts: 4 1 1 | 3 | 3 would need 6, 4 1 | 1 3 | 3 needs 5.
  EXPECT_THAT(stages_of(assigned(layers({4, 1, 1, 3, 3}), {.stages = 2}), Phase::Forward),
              ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(stages_of(assigned(layers({4, 1, 1, 3, 3}), {.stages = 3}), Phase::Forward),
              ElementsAre(0, 0, 1, 1, 2));
}

TEST(PipelineAssignTest, NoPartIsEmpty) {
  EXPECT_THAT(stages_of(assigned(layers({1, 1, 1, 100}), {.stages = 4}), Phase::Forward),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(stages_of(assigned(layers({100, 1, 0, 0}), {.stages = 3}), Phase::Forward),
              ElementsAre(0, 1, 1, 2));
}

TEST(PipelineAssignTest, BackwardAndOptimizerFollowTheParameters) {
  const Program program = assigned(layers({1, 1, 1, 1}), {.stages = 2});
  EXPECT_THAT(stages_of(program, Phase::Forward), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(stages_of(program, Phase::Backward), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(stages_of(program, Phase::Optimizer), ElementsAre(1, 1, 0, 0));
}

TEST(PipelineAssignTest, ChunksGiveEachStageSeveralParts) {
  const Program program = assigned(layers({1, 1, 1, 1}), {.stages = 2, .chunks = 2});
  EXPECT_EQ(program.stages, 2);
  EXPECT_THAT(stages_of(program, Phase::Forward), ElementsAre(0, 1, 2, 3));
}

TEST(PipelineAssignTest, TheWorldIsStagesTimesDegree) {
  // chain() has 2 ranks: 2 stages make 4, role p has ranks 2 p and 2 p + 1, which reduce together.
  const Program program = assigned(layers({1, 1}), {.stages = 2});
  EXPECT_THAT(problems(program), IsEmpty());
  EXPECT_EQ(program.world_size, 4);
  EXPECT_EQ(program.groups[0].size(), 2);
  EXPECT_THAT(program.groups[0].instance_of(Rank{3}), ElementsAre(Rank{2}, Rank{3}));
  EXPECT_EQ(std::get<TimedWork>(program.ops[0].work).by_rank.size(), 4U);
}

TEST(PipelineAssignTest, EveryOpOfAZooModelStandsWhereItsParameterLives) {
  const Program program =
      assigned(models::zoo_program("bert_base", {.world_size = 2}), {.stages = 4});
  EXPECT_THAT(problems(program), IsEmpty());
  std::map<TensorId, std::int32_t> home;
  for (const Op& op : program.ops) {
    for (const TensorId id : op.reads) {
      if (program.tensor(id).kind != TensorKind::Parameter) continue;
      const auto [known, fresh] = home.emplace(id, op.stage);
      EXPECT_EQ(known->second, op.stage) << op.name;
    }
  }
  const std::vector<std::int32_t> forward = stages_of(program, Phase::Forward);
  EXPECT_TRUE(std::ranges::is_sorted(forward));
  EXPECT_EQ(forward.back(), 3);
}

// Of two layers of 16 and 32 bytes, one per stage, on two ranks each.
TEST(PipelineAssignTest, ANormIsTakenByEachStageAndAddedUpAcrossThem) {
  Program program = chain({{us(1), us(1), Bytes(16), us(1)}, {us(1), us(1), Bytes(32), us(1)}});
  const TensorId norm{100};
  program.tensors.push_back({.id = norm, .name = "norm", .shape = {1}});
  Op clip{.id = OpId{100},
          .name = "norm",
          .phase = Phase::Optimizer,
          .work = MemoryWork{.bytes = Bytes(48), .flop = Flop(0)},
          .reads = {},
          .writes = {norm},
          .effect = GlobalNorm{}};
  for (const Reduction& owed : program.reductions) clip.reads.push_back(owed.gradient);
  for (Op& op : program.ops) {
    if (op.phase == Phase::Optimizer) op.reads.push_back(norm);
  }
  program.ops.insert(std::ranges::find(program.ops, Phase::Optimizer, &Op::phase), clip);
  const Program split = assigned(program, {.stages = 2});
  EXPECT_THAT(problems(split), IsEmpty());
  const auto op = [&](const std::string& name) {
    return *std::ranges::find(split.ops, name, &Op::name);
  };
  EXPECT_EQ(op("norm").stage, 0);
  EXPECT_EQ(op("norm").bytes(), Bytes(16));  // l0's
  EXPECT_EQ(op("norm.stage1").stage, 1);
  EXPECT_EQ(op("norm.stage1").bytes(), Bytes(32));
  for (const std::string name : {"norm", "norm.stage1"}) {
    const Op sum = op(name + ".across-stages");
    EXPECT_EQ(sum.writes, op(name).writes);
    const ProcessGroup& pp = split.group(std::get<CollectiveWork>(sum.work).group);
    EXPECT_THAT(pp.ranks, ElementsAre(Rank{0}, Rank{2}, Rank{1}, Rank{3}));
    EXPECT_EQ(pp.size(), 2);
  }
  EXPECT_EQ(op("l0.update").reads.back(), norm);
  EXPECT_EQ(op("l1.update").reads.back(), op("norm.stage1").writes.front());
}

TEST(PipelineAssignTest, RefusesTiedWeights) {
  // The output layer of GPT-2 reads the embedding table again.
  EXPECT_EQ(
      refusal_of(models::zoo_program("gpt2", {.world_size = 2}), {.stages = 2}),
      "parameter transformer.wte.weight is used on pipeline stages 0 and 1: weights shared by "
      "stages are not supported");
}

TEST(PipelineAssignTest, RefusesMorePartsThanForwardOps) {
  EXPECT_EQ(refusal_of(layers({1, 1}), {.stages = 2, .chunks = 2}),
            "2 forward ops cannot be split into 4 parts");
}

}  // namespace
}  // namespace dovetail::schedule
