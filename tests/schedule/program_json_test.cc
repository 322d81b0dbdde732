// Programs as JSON: what is written is read back equal, and each mistake is named.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program_json.h"

#include "base/error.h"
#include "base/file.h"
#include "tests/support/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace dovetail::schedule {
namespace {

// One op of each phase and of each kind of work.
Program tiny() {
  return {
      .name = "tiny",
      .world_size = 2,
      .tensors = {{TensorId{0}, "w", TensorKind::Parameter, DType::BF16, {256, 784}},
                  {TensorId{1}, "out", TensorKind::Activation, DType::F16, {64, 256}},
                  {TensorId{5}, "w.grad", TensorKind::Gradient, DType::F32, {256, 784}},
                  {TensorId{3}, "w.momentum", TensorKind::OptimizerState, DType::F64, {}}},
      .ops = {{OpId{0},
               "w.forward",
               Phase::Forward,
               DType::F16,
               GemmWork{64, 256, 784, 3},
               {TensorId{0}},
               {TensorId{1}}},
              {OpId{1},
               "w.backward",
               Phase::Backward,
               DType::F32,
               TimedWork{{Duration(1'234'567), Duration(1)}},
               {TensorId{1}},
               {TensorId{5}}},
              {OpId{2},
               "w.update",
               Phase::Optimizer,
               DType::F32,
               MemoryWork{Bytes(2'408'448), Flop(0.1)},
               {TensorId{5}, TensorId{3}},
               {TensorId{0}, TensorId{3}}}},
      .groups = {{GroupId{4}, "dp", {Rank{0}, Rank{1}}}},
      .reductions = {{TensorId{5}, GroupId{4}, ReduceOp::Sum}},
  };
}

// Four ranks, two stages, two micro-steps: every effect of files, every optional field.
Program rich() {
  const auto op = [](std::int32_t id, const char* name, Phase phase, std::vector<TensorId> reads,
                     std::vector<TensorId> writes, Effect effect) {
    Op result;
    result.id = OpId{id};
    result.name = name;
    result.phase = phase;
    result.work = MemoryWork{Bytes(16), Flop(0)};
    result.reads = std::move(reads);
    result.writes = std::move(writes);
    result.effect = effect;
    return result;
  };
  const TensorId w{0}, loss{1}, grad{2}, sum{3}, norm{4};
  Program program;
  program.name = "rich";
  program.world_size = 4;
  program.stages = 2;
  program.micro_steps = 2;
  program.tensors = {{w, "w", TensorKind::Parameter, DType::F32, {4}},
                     {loss, "loss.grad", TensorKind::Activation, DType::F32, {}},
                     {grad, "w.grad", TensorKind::Gradient, DType::F32, {4}},
                     {sum, "w.grad.merged", TensorKind::MergedGradient, DType::F32, {4}, grad},
                     {norm, "norm", TensorKind::Activation, DType::F32, {}}};
  program.groups = {{GroupId{0}, "dp", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}, 2},
                    {GroupId{1}, "pairs", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2}};
  program.ops = {
      op(0, "fill", Phase::Backward, {}, {loss}, FillLossGradient{Rational(1, 8)}),
      op(1, "backward", Phase::Backward, {loss, w}, {grad}, Opaque{}),
      op(2, "sum@0", Phase::Backward, {grad}, {sum}, Accumulate{true, Rational(1)}),
      op(8, "backward@1", Phase::Backward, {loss, w}, {grad}, Opaque{}),
      op(3, "sum@1", Phase::Backward, {sum, grad}, {sum}, Accumulate{false, Rational(1, 2)}),
      op(4, "send", Phase::Backward, {grad}, {}, Opaque{}),
      op(5, "norm", Phase::Optimizer, {sum}, {norm}, GlobalNorm{true, Rational(1, 4)}),
      op(6, "norm.sum", Phase::Optimizer, {norm}, {norm}, Opaque{}),
      op(7, "update", Phase::Optimizer, {sum, norm, w}, {w}, Update{false, Rational(1, 3)}),
      op(9, "adam", Phase::Optimizer, {sum, w}, {w}, Update{}),
      op(10, "zero", Phase::Optimizer, {}, {sum}, ZeroFill{})};
  program.ops[1].issue = std::chrono::microseconds(3);
  program.bucket_call = std::chrono::microseconds(7);
  program.ops[3].micro_step = program.ops[4].micro_step = 1;
  program.ops[5].stage = 1;
  program.ops[5].work = CollectiveWork{.kind = Collective::SendRecv,
                                       .group = GroupId{1},
                                       .bytes = Bytes(16),
                                       .purpose = Purpose::Pipeline,
                                       .root = 1};
  program.ops[7].work = CollectiveWork{
      .group = GroupId{0}, .bytes = Bytes(4), .op = ReduceOp::Sum, .purpose = Purpose::GlobalNorm};
  program.reductions = {{grad, GroupId{0}, ReduceOp::Average, Rational(1, 2)}};
  return program;
}

// The Program as text with one place changed, and the message of the reader.
std::string program_message_with(std::string_view place, std::string_view changed,
                                 const Program& program = tiny()) {
  std::string text = program_to_json(program);
  const std::size_t at = text.find(place);
  if (at == std::string::npos) return "no such place: " + std::string(place);
  text.replace(at, place.size(), changed);
  try {
    static_cast<void>(parse_program("p.json", text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ProgramJsonTest, WhatIsWrittenIsReadBackEqual) {
  const Program program = tiny();
  ASSERT_THAT(problems(program), ::testing::IsEmpty());
  EXPECT_EQ(parse_program("p.json", program_to_json(program)), program);
}

TEST(ProgramJsonTest, EffectsStagesMicroStepsTheHostAndMessagesRoundTrip) {
  const Program program = rich();
  ASSERT_THAT(problems(program), ::testing::IsEmpty());
  EXPECT_EQ(parse_program("p.json", program_to_json(program)), program);
}

TEST(ProgramJsonTest, TheTextIsStable) {
  EXPECT_TRUE(matches_golden("schedule/tiny.program.json", program_to_json(tiny())));
}

TEST(ProgramJsonTest, ReadsTheFileThatItsCommentsDescribe) {
  const Program program =
      read_program(std::string(DOVETAIL_SOURCE_DIR) + "/tests/golden/schedule/tiny.program.json");
  EXPECT_EQ(program, tiny());
  // The measured times come back to the nanosecond: 1234.567 us.
  EXPECT_EQ(std::get<TimedWork>(program.op(OpId{1}).work).by_rank.front(), Duration(1'234'567));
}

TEST(ProgramJsonTest, SeparateKernelsOfAGemmAreReadBack) {
  Program program = tiny();
  program.ops[0].work = GemmWork{.m = 64, .n = 256, .k = 784, .count = 3, .separate = true};
  const std::string text = program_to_json(program);
  EXPECT_THAT(text, ::testing::HasSubstr("\"separate\": true"));
  EXPECT_EQ(parse_program("p.json", text), program);
}

TEST(ProgramJsonTest, TheCountOfAGemmMayBeLeftOut) {
  EXPECT_EQ(program_message_with("\"k\": 784,\n    \"count\": 3", "\"k\": 784"), "accepted");
  EXPECT_EQ(program_message_with("\"count\": 3", "\"cuont\": 3"),
            "p.json: /ops/0/work/cuont: unknown key; did you mean \"count\"?");
}

// An op of a product and a pass: "kernels" in place of the numbers of one.
Program of_several_kernels() {
  Program program = tiny();
  program.ops[0].work =
      KernelsWork{{GemmWork{64, 256, 784, 3}, MemoryWork{Bytes(4096), Flop(0.5)}}};
  return program;
}

TEST(ProgramJsonTest, SeveralKernelsOfOneOpRoundTrip) {
  const Program program = of_several_kernels();
  ASSERT_THAT(problems(program), ::testing::IsEmpty());
  EXPECT_EQ(parse_program("p.json", program_to_json(program)), program);
}

TEST(ProgramJsonTest, AKernelOfAnOpIsAProductOrAPass) {
  EXPECT_THAT(
      program_message_with(R"("kind": "memory")", R"("kind": "timed")", of_several_kernels()),
      ::testing::HasSubstr("/work/kernels/1/kind: expected one of \"gemm\", \"memory\""));
  EXPECT_THAT(program_message_with(R"("m": 64)", R"("m": 0)", of_several_kernels()),
              ::testing::HasSubstr("/work/kernels/0/m: expected an integer from 1"));
}

TEST(ProgramJsonTest, AnUnknownTensorIsNamedWithTheNearestOne) {
  EXPECT_EQ(program_message_with("\"reads\": [\n    \"w\"", "\"reads\": [\n    \"w.grda\""),
            "p.json: /ops/0/reads/0: no tensor is called \"w.grda\"; did you mean \"w.grad\"?");
  EXPECT_EQ(program_message_with("\"group\": \"dp\"", "\"group\": \"pp\""),
            "p.json: /reductions/0/group: no process group is called \"pp\"; did you mean \"dp\"?");
  EXPECT_EQ(program_message_with("\"group\": \"dp\"", "\"group\": 4"),
            "p.json: /reductions/0/group: expected a string, found 4");
}

TEST(ProgramJsonTest, NamesAndIdsAreUnique) {
  EXPECT_EQ(program_message_with("\"name\": \"out\"", "\"name\": \"w\""),
            "p.json: /tensors/1/name: another tensor is called \"w\"");
  EXPECT_EQ(program_message_with("\"id\": 5", "\"id\": 0"),
            "p.json: /tensors/2/id: another tensor has the id 0");
  EXPECT_EQ(program_message_with("\"name\": \"w.update\"", "\"name\": \"w.forward\""),
            "p.json: /ops/2/name: another op is called \"w.forward\"");
  EXPECT_EQ(program_message_with("\"name\": \"out\"", "\"name\": \"\""),
            "p.json: /tensors/1/name: expected a name, found \"\"");
}

TEST(ProgramJsonTest, WordsMustBeKnownOnes) {
  EXPECT_EQ(program_message_with("\"dtype\": \"bf16\"", "\"dtype\": \"bfloat16\""),
            "p.json: /tensors/0/dtype: expected one of \"f32\", \"f16\", \"bf16\", \"f64\", "
            "found \"bfloat16\"");
  EXPECT_EQ(program_message_with("\"kind\": \"timed\"", "\"kind\": \"measured\""),
            "p.json: /ops/1/work/kind: expected one of \"gemm\", \"memory\", \"timed\", "
            "\"collective\", \"kernels\", found \"measured\"");
  EXPECT_EQ(program_message_with("dovetail.program/1", "dovetail.program/2"),
            "p.json: /schema: expected \"dovetail.program/1\", found \"dovetail.program/2\"");
  EXPECT_EQ(program_message_with("\"kind\": \"program\"", "\"kind\": \"plan\""),
            "p.json: /kind: expected one of \"program\", found \"plan\"");
}

TEST(ProgramJsonTest, SizesThatWouldOverflowAreRefused) {
  // 256 * 2^40 * 2 bytes = 2^49, the limit is 2^44.
  EXPECT_EQ(program_message_with("256,\n    784", "256,\n    1099511627776"),
            "p.json: /tensors/0/shape: larger than 16 TiB");
  EXPECT_EQ(program_message_with("\"m\": 64", "\"m\": 1099511627776"),
            "p.json: /ops/0/work: larger than 16 TiB");
  EXPECT_EQ(program_message_with("1234.567", "1e13"),
            "p.json: /ops/1/work/by_rank_us/0: expected a number from 0 to 1000000000000, "
            "found 10000000000000.0");
  EXPECT_EQ(program_message_with("\"work_flop\": 0.1", "\"work_flop\": 1e300"),
            "p.json: /ops/2/work/work_flop: expected a number from 0 to 1e+18, found 1e+300");
  EXPECT_EQ(program_message_with("256,\n    784", "256,\n    0"),
            "p.json: /tensors/0/shape/1: expected an integer from 1 to 1099511627776, found 0");
}

TEST(ProgramJsonTest, FactorsAreFractionsOfNumbersUpTo2To20) {
  EXPECT_EQ(program_message_with("\"1/8\"", "\"1048576/1048575\"", rich()), "accepted");
  EXPECT_EQ(program_message_with("\"1/8\"", "\"1/9223372036854775807\"", rich()),
            "p.json: /ops/0/effect/value: expected a fraction of numbers up to 1048576, found "
            "\"1/9223372036854775807\"");
  EXPECT_EQ(program_message_with("\"scale\": \"1/2\"", "\"scale\": \"-1048577\"", rich()),
            "p.json: /reductions/0/scale: expected a fraction of numbers up to 1048576, found "
            "\"-1048577\"");
}

TEST(ProgramJsonTest, RanksAndMicroStepsAreLimited) {
  EXPECT_EQ(program_message_with("\"world_size\": 4", "\"world_size\": 1048576", rich()),
            "accepted");
  EXPECT_EQ(program_message_with("\"world_size\": 4", "\"world_size\": 2147483647", rich()),
            "p.json: /world_size: expected an integer from 1 to 1048576, found 2147483647");
  EXPECT_EQ(program_message_with("\"micro_steps\": 2", "\"micro_steps\": 65537", rich()),
            "p.json: /micro_steps: expected an integer from 1 to 65536, found 65537");
}

// It speaks of buckets, which a Program does not have before lower rewrites it.
TEST(ProgramJsonTest, AShardUpdateLiesInNoFile) {
  EXPECT_EQ(program_message_with("\"zero-fill\"", "\"shard-update\"", rich()),
            "p.json: /ops/10/effect/kind: expected one of \"fill-loss-gradient\", "
            "\"accumulate\", \"zero-fill\", \"update\", \"global-norm\", found "
            "\"shard-update\"");
}

TEST(ProgramJsonTest, AProgramWithProblemsIsRefusedWithTheFirstOne) {
  EXPECT_EQ(program_message_with("\"world_size\": 2", "\"world_size\": 1"),
            "p.json: /: process group dp names rank 1 in a world of 1");
  EXPECT_EQ(program_message_with("\"phase\": \"forward\"", "\"phase\": \"backward\""), "accepted");
  EXPECT_EQ(program_message_with("\"phase\": \"forward\"", "\"phase\": \"optimizer\""),
            "p.json: /: op w.backward (backward) stands after a optimizer op");
  EXPECT_EQ(program_message_with("1234.567,\n     0.001", "0.001, 1, 2"),
            "p.json: /: op w.backward has times for 3 ranks in a world of 2");
}

TEST(ProgramJsonTest, AMissingOrUnknownKeyIsAnErrorAtEveryLevel) {
  EXPECT_EQ(program_message_with("\"world_size\"", "\"worldsize\""),
            "p.json: /: missing key \"world_size\"; is \"worldsize\" a misspelling of it?");
  EXPECT_EQ(program_message_with("\"world_size\": 2", "\"world_size\": 2, \"world_sise\": 3"),
            "p.json: /world_sise: unknown key; did you mean \"world_size\"?");
  EXPECT_EQ(program_message_with("\"op\": \"sum\"", "\"op\": \"sum\", \"opp\": 1"),
            "p.json: /reductions/0/opp: unknown key; did you mean \"op\"?");
}

}  // namespace
}  // namespace dovetail::schedule
