// Conversions in a Program: where they stand, when they are shared, what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/program.h"

#include "base/error.h"
#include "schedule/lower.h"
#include "schedule/policies.h"
#include "schedule/verify.h"
#include "tests/support/reshard_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace dovetail::schedule::reshard {
namespace {

using dovetail::testing::kBackward;
using dovetail::testing::kFirst;
using dovetail::testing::kGradient;
using dovetail::testing::kSecond;
using dovetail::testing::kUpdate;
using dovetail::testing::kWriter;
using dovetail::testing::kX;
using dovetail::testing::two_readers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Layout on(const Mesh& mesh, std::string_view text) { return parse_layout(text, mesh, 2); }

std::vector<std::string> op_names(const Program& program) {
  std::vector<std::string> names;
  for (const Op& op : program.ops) names.push_back(op.name);
  return names;
}

const Op& op_named(const Program& program, const std::string& name) {
  const auto found = std::ranges::find(program.ops, name, &Op::name);
  DOVETAIL_CHECK(found != program.ops.end()) << name;
  return *found;
}

std::string tensor_name(const Program& program, TensorId id) { return program.tensor(id).name; }

std::string error_of(const Program& program, const Requirements& requirements) {
  try {
    reshard_program(program, requirements);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// x lies as S(0) on one mesh of 4.
Requirements row_cut(const Mesh& mesh = make_mesh({4})) {
  Requirements requirements;
  requirements.tensors = {{.tensor = kX, .layout = on(mesh, "S(0)")}};
  return requirements;
}

void need(Requirements& requirements, OpId op, const Layout& layout, TensorId tensor = kX) {
  requirements.reads.push_back({.op = op, .tensor = tensor, .layout = layout});
}

// first and second read x cut by columns. S(0) -> S(1) packs, then an all-to-all.
TEST(ReshardProgramTest, R11RI5TwoReadersShareOneConversion) {
  const Mesh mesh = make_mesh({4});
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(mesh, "S(1)"));
  need(requirements, kSecond, on(mesh, "S(1)"));
  const Resharded result = reshard_program(two_readers(), requirements);
  EXPECT_THAT(op_names(result.program), ElementsAre("writer", "x.S(1).pack", "x.S(1).all-to-all",
                                                    "first", "second", "backward", "update"));
  EXPECT_EQ(tensor_name(result.program, result.program.op(kFirst).reads[0]), "x.S(1)");
  EXPECT_EQ(result.program.op(kSecond).reads, result.program.op(kFirst).reads);
  EXPECT_EQ(result.counts.made, 1);
  EXPECT_EQ(result.counts.reused, 1);
  EXPECT_EQ(result.report, "reshard: made 1, reused 1, inserted ops 2, meshes 1");
  EXPECT_THAT(problems(result.program), IsEmpty());
}

// 8x8 f32 on 4 ranks: each holds 2x8, 64 bytes, before and 8x2 after.
TEST(ReshardProgramTest, R2ConvertedProgramsHoldLocalShapesAndMessages) {
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(make_mesh({4}), "S(1)"));
  const Program program = reshard_program(two_readers(), requirements).program;
  EXPECT_EQ(program.tensor(kX).shape, (Shape{2, 8}));
  EXPECT_EQ(program.tensor(program.op(kFirst).reads[0]).shape, (Shape{8, 2}));
  const auto work = std::get<CollectiveWork>(op_named(program, "x.S(1).all-to-all").work);
  EXPECT_EQ(work.kind, Collective::AllToAll);
  EXPECT_EQ(work.purpose, Purpose::Reshard);
  EXPECT_EQ(work.bytes, Bytes(64));
  EXPECT_EQ(std::get<MemoryWork>(op_named(program, "x.S(1).pack").work).bytes, Bytes(128));
  EXPECT_EQ(program.group(work.group).ranks.size(), 4U);
}

// An op between the readers adds to x in place.
TEST(ReshardProgramTest, RI8RL3AnOverwrittenTensorIsConvertedAgain) {
  const Mesh mesh = make_mesh({4});
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(mesh, "R"));
  need(requirements, kSecond, on(mesh, "R"));
  Program program = two_readers();
  Op in_place = program.op(kWriter);
  in_place.id = OpId{50};
  in_place.name = "add";
  in_place.reads = {kX};
  program.ops.insert(program.ops.begin() + 2, in_place);
  const Resharded result = reshard_program(program, requirements);
  EXPECT_EQ(result.counts.made, 2);
  EXPECT_EQ(result.counts.reused, 0);
  EXPECT_THAT(op_names(result.program),
              ElementsAre("writer", "x.R.all-gather", "first", "add", "x.v2.R.all-gather", "second",
                          "backward", "update"));
  EXPECT_EQ(tensor_name(result.program, result.program.op(kSecond).reads[0]), "x.v2.R");
}

TEST(ReshardProgramTest, RI7NothingIsInsertedWhereTheLayoutFits) {
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(make_mesh({4}), "S(0)"));
  const Resharded result = reshard_program(two_readers(), requirements);
  EXPECT_EQ(result.program.ops, two_readers().ops);
  EXPECT_EQ(result.counts.ops, 0);
}

// The first reader has the sum completed; the second takes its rows from it for nothing.
TEST(ReshardProgramTest, R11ConversionsStartFromTheCheapestFormThatExists) {
  const Mesh mesh = make_mesh({4});
  Requirements requirements;
  requirements.tensors = {{.tensor = kX, .layout = on(mesh, "P(sum)")}};
  need(requirements, kFirst, on(mesh, "R"));
  need(requirements, kSecond, on(mesh, "S(0)"));
  const Program program = reshard_program(two_readers(), requirements).program;
  EXPECT_THAT(op_names(program), ElementsAre("writer", "x.R.all-reduce", "first", "x.S(0).slice",
                                             "second", "backward", "update"));
  EXPECT_EQ(tensor_name(program, op_named(program, "x.S(0).slice").reads[0]), "x.R");
}

TEST(ReshardProgramTest, R4NormsAndListedOpsTakeTensorsAsTheyLie) {
  const Mesh mesh = make_mesh({4});
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(mesh, "R"));
  need(requirements, kSecond, on(mesh, "R"));
  requirements.as_it_lies = {kFirst};
  Program program = two_readers();
  std::ranges::find(program.ops, kSecond, &Op::id)->effect = GlobalNorm{};
  const Resharded result = reshard_program(program, requirements);
  EXPECT_EQ(result.counts.made, 0);
  EXPECT_EQ(result.program.op(kFirst).reads, program.op(kFirst).reads);
}

Requirements gradient_needed_whole() {
  const Mesh mesh = make_mesh({4});
  Requirements requirements;
  requirements.tensors = {{.tensor = kGradient, .layout = on(mesh, "S(0)")}};
  requirements.reads = {{.op = kUpdate, .tensor = kGradient, .layout = on(mesh, "R")}};
  return requirements;
}

TEST(ReshardProgramTest, R12GradientsForTheOptimizerAreConvertedInBackward) {
  Program program = two_readers();
  program.reductions.clear();
  const Program result = reshard_program(program, gradient_needed_whole()).program;
  EXPECT_THAT(op_names(result),
              ElementsAre("writer", "first", "second", "backward", "g.R.all-gather", "update"));
  EXPECT_EQ(op_named(result, "g.R.all-gather").phase, Phase::Backward);
}

// Converted in backward, the update would read what no collective has reduced.
TEST(ReshardProgramTest, R12GradientsThatOweAReductionAreConvertedAfterIt) {
  const Program result = reshard_program(two_readers(), gradient_needed_whole()).program;
  EXPECT_EQ(op_named(result, "g.R.all-gather").phase, Phase::Optimizer);
  EXPECT_THAT(problems(result), IsEmpty());
}

TEST(ReshardProgramTest, R12OtherConversionsHaveTheRoleOfTheirReader) {
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(make_mesh({4}), "R"));
  const Program result = reshard_program(two_readers(), requirements).program;
  EXPECT_EQ(op_named(result, "x.R.all-gather").phase, Phase::Forward);
}

// writer and first on ranks 0, 1; second and what follows on ranks 2, 3, where it needs x cut.
struct TwoMeshes {
  Mesh low = make_mesh({2});
  Mesh high = make_mesh({2}, Rank{2});
  Requirements requirements = [this] {
    Requirements all;
    const auto lies = [&](std::int32_t id, const Mesh& mesh) {
      all.tensors.push_back({.tensor = TensorId{id}, .layout = on(mesh, "R")});
    };
    lies(kX.value, low);
    for (const std::int32_t id : {2, 3, 4, 5}) lies(id, id == 2 ? low : high);
    need(all, kSecond, on(high, "S(0)"));
    need(all, kBackward, on(high, "R"), TensorId{2});
    return all;
  }();
};

// Sliced before it is sent: 4x8 f32, 128 bytes per pair.
TEST(ReshardProgramTest, R6RI6AnotherMeshIsAnotherStageReachedBySendAndReceive) {
  const TwoMeshes meshes;
  const Program program = reshard_program(two_readers(), meshes.requirements).program;
  EXPECT_THAT(op_names(program),
              ElementsAre("writer", "first", "x.S(0)@0.slice", "x.S(0)@1.send", "x.S(0)@1.receive",
                          "second", "y.R@1.send", "y.R@1.receive", "backward", "update"));
  EXPECT_EQ(program.stages, 2);
  EXPECT_EQ(op_named(program, "first").stage, 0);
  EXPECT_EQ(op_named(program, "x.S(0)@1.send").stage, 0);
  EXPECT_EQ(op_named(program, "x.S(0)@1.receive").stage, 1);
  EXPECT_EQ(op_named(program, "second").stage, 1);
  const Op& send = op_named(program, "x.S(0)@1.send");
  const auto message = std::get<CollectiveWork>(send.work);
  EXPECT_EQ(message.kind, Collective::SendRecv);
  EXPECT_EQ(message.bytes, Bytes(128));
  EXPECT_EQ(message.root, 0);
  EXPECT_THAT(program.group(message.group).ranks, ElementsAre(Rank{0}, Rank{2}, Rank{1}, Rank{3}));
  EXPECT_EQ(program.group(message.group).size(), 2);
  EXPECT_EQ(std::get<CollectiveWork>(op_named(program, "x.S(0)@1.receive").work), message);
  EXPECT_THAT(problems(program), IsEmpty());
}

TEST(ReshardProgramTest, R15R13EveryRankKeepsItsOpsAndAllGroups) {
  const TwoMeshes meshes;
  const Program program = reshard_program(two_readers(), meshes.requirements).program;
  const Program low = project(program, Rank{1});
  const Program high = project(program, Rank{2});
  EXPECT_THAT(op_names(low),
              ElementsAre("writer", "first", "x.S(0)@0.slice", "x.S(0)@1.send", "y.R@1.send"));
  EXPECT_THAT(op_names(high),
              ElementsAre("x.S(0)@1.receive", "second", "y.R@1.receive", "backward", "update"));
  EXPECT_EQ(low.groups, program.groups);
  EXPECT_EQ(high.groups, program.groups);
  const auto has_x = [](const Program& p) {
    return std::ranges::count(p.tensors, kX, &Tensor::id);
  };
  EXPECT_EQ(has_x(low), 1);
  EXPECT_EQ(has_x(high), 0);
  EXPECT_EQ(low.reductions.size(), 0U);
  EXPECT_EQ(high.reductions.size(), 1U);
}

// second runs on the high mesh; its result z belongs on the low one.
TEST(ReshardProgramTest, R3ResultsForAnotherMeshAreSentThere) {
  const TwoMeshes meshes;
  Requirements requirements = meshes.requirements;
  requirements.tensors[2].layout = on(meshes.low, "R");
  requirements.writes = {{.op = kSecond, .tensor = TensorId{3}, .layout = on(meshes.high, "R")}};
  need(requirements, kBackward, on(meshes.high, "R"), TensorId{3});
  const Program program = reshard_program(two_readers(), requirements).program;
  const Op& second = program.op(kSecond);
  EXPECT_EQ(second.stage, 1);
  EXPECT_EQ(tensor_name(program, second.writes[0]), "z.sent");
  const Op& receive = op_named(program, "z.receive");
  EXPECT_EQ(receive.writes, (std::vector<TensorId>{TensorId{3}}));
  EXPECT_EQ(receive.stage, 0);
  EXPECT_EQ(std::get<CollectiveWork>(receive.work).root, 1);
  EXPECT_THAT(problems(program), IsEmpty());
}

TEST(ReshardProgramTest, R3ResultsThatAreCutDifferentlyAreRefused) {
  Requirements requirements = row_cut();
  requirements.writes = {{.op = kWriter, .tensor = kX, .layout = on(make_mesh({4}), "S(1)")}};
  EXPECT_EQ(error_of(two_readers(), requirements),
            "op writer leaves x as S(1), but it lies as S(0)");
}

TEST(ReshardProgramTest, R5MeshesThatAreNoStagesAreRefused) {
  Requirements requirements = row_cut(make_mesh({2}));
  need(requirements, kFirst, on(make_mesh({2}, Rank{1}), "R"));
  EXPECT_EQ(error_of(two_readers(), requirements),
            "mesh 2 on ranks 1,2 is no stage: expected the ranks 2..3 in order");
  Requirements shapes = row_cut(make_mesh({2}));
  need(shapes, kFirst, on(make_mesh({2, 1}, Rank{2}), "R,R"));
  EXPECT_THAT(error_of(two_readers(), shapes), HasSubstr("differ in shape"));
  EXPECT_EQ(error_of(two_readers(), row_cut(make_mesh({2}))),
            "reshard: the meshes hold 2 ranks of a world of 4");
}

TEST(ReshardProgramTest, RefusesOpsOnTwoMeshesAndImpossibleLayouts) {
  Requirements two = TwoMeshes().requirements;
  two.reads.pop_back();  // backward now reads y where it lies, and z on the other mesh
  EXPECT_THAT(error_of(two_readers(), two), HasSubstr("op backward would run on two meshes"));
  Requirements uneven = row_cut(make_mesh({4}));
  Program program = two_readers();
  program.tensors[0].shape = {6, 8};
  EXPECT_THAT(error_of(program, uneven), HasSubstr("tensor x: dimension 0 of tensor 6x8"));
  Requirements unknown = row_cut();
  need(unknown, OpId{99}, on(make_mesh({4}), "R"));
  EXPECT_EQ(error_of(two_readers(), unknown), "reshard: unknown op 99");
}

// n tensors, each written as S(0) and read whole.
Resharded chain_of(std::int32_t n) {
  Program program;
  program.name = "pairs";
  program.world_size = 2;
  Requirements requirements;
  const Mesh mesh = make_mesh({2});
  for (std::int32_t i = 0; i < n; ++i) {
    const std::string name = "t" + std::to_string(i);
    program.tensors.push_back({.id = TensorId{i}, .name = name, .shape = {8, 8}});
    Op writer;
    writer.id = OpId{2 * i};
    writer.name = name + ".writer";
    writer.work = MemoryWork{.bytes = Bytes(256), .flop = Flop(0)};
    writer.writes = {TensorId{i}};
    Op reader = writer;
    reader.id = OpId{2 * i + 1};
    reader.name = name + ".reader";
    reader.writes = {};
    reader.reads = {TensorId{i}};
    program.ops.push_back(writer);
    program.ops.push_back(reader);
    requirements.tensors.push_back({.tensor = TensorId{i}, .layout = on(mesh, "S(0)")});
    need(requirements, reader.id, on(mesh, "R"), TensorId{i});
  }
  return reshard_program(program, requirements);
}

// One commit for all of them: four times the ops, four times the work (and a little for sorting).
TEST(ReshardProgramTest, R17R18RL7RL8RI3ConversionsShareOneCommitOfLinearWork) {
  const Resharded small = chain_of(500);
  const Resharded large = chain_of(2000);
  EXPECT_EQ(small.counts.made, 500);
  EXPECT_EQ(large.counts.made, 2000);
  EXPECT_EQ(large.program.ops.size(), 6000U);
  EXPECT_LE(large.counts.work, 6 * small.counts.work);
}

// On the compute stream unless a pass of lower moves them.
TEST(ReshardProgramTest, R14ConversionsRunInOrderOnTheComputeStream) {
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(make_mesh({4}), "R"));
  const Program program = reshard_program(two_readers(), requirements).program;
  const Schedule schedule = make_schedule(program, parse_policy("torch-ddp"));
  const ScheduledProgram lowered = lower(program, schedule).program;
  const OpId gathered = op_named(program, "x.R.all-gather").id;
  const auto runs_it = [&](const Command& command) {
    return command.action == Action(RunOp{gathered});
  };
  const std::vector<Command>& commands = lowered.roles.front().commands;
  const auto found = std::ranges::find_if(commands, runs_it);
  ASSERT_NE(found, commands.end());
  EXPECT_EQ(found->stream, kComputeStream);
}

// Each stage is a role of two ranks; sends and receives pair up.
TEST(ReshardProgramTest, RI6ProgramsOfTwoMeshesLowerToTwoRolesThatMatch) {
  const TwoMeshes meshes;
  Program program = two_readers();
  program.groups = {{.id = GroupId{0}, .name = "dp", .ranks = {Rank{2}, Rank{3}}}};
  program = reshard_program(program, meshes.requirements).program;
  const ScheduledProgram lowered =
      lower(program, make_schedule(program, parse_policy("naive"))).program;
  EXPECT_EQ(lowered.roles.size(), 2U);
  EXPECT_THAT(verify(program, lowered), IsEmpty());
}

TEST(ReshardProgramTest, ConvertedProgramsLowerToLegalSchedules) {
  const Mesh mesh = make_mesh({4});
  Requirements requirements = row_cut();
  need(requirements, kFirst, on(mesh, "S(1)"));
  need(requirements, kSecond, on(mesh, "R"));
  const Program program = reshard_program(two_readers(), requirements).program;
  for (const std::string policy : {"naive", "per-tensor", "torch-ddp"}) {
    const Schedule schedule = make_schedule(program, parse_policy(policy));
    EXPECT_THAT(verify(program, lower(program, schedule).program), IsEmpty()) << policy;
  }
}

}  // namespace
}  // namespace dovetail::schedule::reshard
