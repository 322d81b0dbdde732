// A Program with stages becomes what each role runs.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "models/networks/zoo.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/lower/pipeline/async.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/lower/pipeline/transfers.h"
#include "schedule/lower/pipeline/unroll.h"
#include "tests/schedule/lower/pipeline_programs.h"

namespace dovetail::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Program split(Program program, const Schedule& schedule) {
  Rewrite outcome = split_pipeline(std::move(program), schedule);
  const auto* refusal = std::get_if<Refusal>(&outcome);
  EXPECT_EQ(refusal, nullptr) << (refusal ? refusal->reason : "");
  return refusal ? Program{} : std::get<Rewritten>(std::move(outcome)).program;
}

std::string refusal_of(Program program, const Schedule& schedule) {
  const Rewrite outcome = split_pipeline(std::move(program), schedule);
  const auto* refusal = std::get_if<Refusal>(&outcome);
  return refusal ? refusal->reason : "";
}

std::vector<std::string> ops_of_role(const Program& program, std::int32_t role) {
  std::vector<std::string> names;
  for (const Op& op : program.ops) {
    if (program.role_of(op) == role) names.push_back(op.name);
  }
  return names;
}

const Op& named(const Program& program, const std::string& name) {
  return *std::ranges::find(program.ops, name, &Op::name);
}

const CollectiveWork* message(const Op& op) {
  const auto* work = std::get_if<CollectiveWork>(&op.work);
  return work != nullptr && work->kind == Collective::SendRecv ? work : nullptr;
}

// Plays all roles: each runs its ops in order with memory of its own, messages pass between them
// first in, first out per pair of roles and direction, and a receive blocks. A value is a hash of
// the op that made it and of what that op read. What the optimizer reads in the end, per op; empty
// when the roles jam.
using Results = std::map<std::string, std::set<std::size_t>>;
class Player {
 public:
  explicit Player(const Program& program) : program_(program) {}

  Results run() {
    std::vector<std::vector<const Op*>> roles(static_cast<std::size_t>(program_.stages));
    for (const Op& op : program_.ops) {
      roles[static_cast<std::size_t>(program_.role_of(op))].push_back(&op);
    }
    std::vector<std::size_t> next(roles.size());
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < roles.size(); ++r) {
        while (next[r] < roles[r].size() && play(*roles[r][next[r]], static_cast<int>(r))) {
          ++next[r];
          moved = true;
        }
      }
    }
    for (std::size_t r = 0; r < roles.size(); ++r) {
      if (next[r] < roles[r].size()) return {};
    }
    return std::move(result_);
  }

 private:
  bool play(const Op& op, int role) {
    if (const CollectiveWork* work = message(op)) return pass(op, *work, role);
    std::string inputs;
    for (const TensorId id : op.reads) inputs += std::to_string(memory_[{role, id}]) + ",";
    const std::string base = op.name.substr(0, op.name.find('@'));
    if (op.phase == Phase::Optimizer) {
      for (const TensorId id : op.reads) result_[base].insert(memory_[{role, id}]);
    }
    const std::string made = base + "#" + std::to_string(op.micro_step) + "(" + inputs + ")";
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      memory_[{role, op.writes[i]}] = std::hash<std::string>{}(made + std::to_string(i));
    }
    return true;
  }

  bool pass(const Op& op, const CollectiveWork& work, int role) {
    const std::span<const Rank> pair =
        program_.group(work.group)
            .instance_of(
                Rank{static_cast<std::int32_t>(role * program_.world_size / program_.stages)});
    const std::int64_t ranks = program_.world_size / program_.stages;
    const auto role_at = [&](std::size_t i) { return static_cast<int>(pair[i].value / ranks); };
    const auto root = static_cast<std::size_t>(work.root);
    auto& channel = channels_[{role_at(root), role_at(1 - root)}];
    if (!op.reads.empty()) {
      channel.push_back(memory_[{role, op.reads.front()}]);
      return true;
    }
    if (channel.empty()) return false;
    memory_[{role, op.writes.front()}] = channel.front();
    channel.erase(channel.begin());
    return true;
  }

  const Program& program_;
  std::map<std::pair<int, TensorId>, std::size_t> memory_;
  std::map<std::pair<int, int>, std::vector<std::size_t>> channels_;
  Results result_;
};

// The same on one role: no messages, micro-batches one after another.
Results results_without_pipeline(Program program, std::int32_t micro_steps) {
  for (Op& op : program.ops) op.stage = 0;
  program.stages = 1;
  program.stage_map = StageMap::Loop;
  program = split(std::move(program), pipeline_schedule(PipelineKind::Sequential, micro_steps));
  return Player(program).run();
}

TEST(PipelineUnrollTest, AS2EachRoleRunsItsOrderWithSendsAndReceives) {
  // P = 2, m = 2, 1F1B: role 0 F F B B, role 1 F B F B. a0 goes up right behind F0, d0 comes down
  // right behind B1; receives stand before the reader.
  const Program program =
      split(LayerChain(2, 2).take(), pipeline_schedule(PipelineKind::OneFOneB, 2));
  EXPECT_THAT(problems(program), IsEmpty());
  EXPECT_THAT(ops_of_role(program, 0),
              ElementsAre("F0@0", "a0@0.send.0-1", "F0", "a0.send.0-1", "d0@0.recv.1-0", "B0@0",
                          "g0.accumulate@0", "d0.recv.1-0", "B0", "g0.accumulate@1", "U0"));
  EXPECT_THAT(ops_of_role(program, 1),
              ElementsAre("a0@0.recv.0-1", "F1@0", "B1@0", "d0@0.send.1-0", "g1.accumulate@0",
                          "a0.recv.0-1", "F1", "B1", "d0.send.1-0", "g1.accumulate@1", "U1"));
}

TEST(PipelineUnrollTest, TheLastMicroBatchKeepsItsIds) {
  const Program before = LayerChain(2, 2).take();
  const Program after = split(before, pipeline_schedule(PipelineKind::OneFOneB, 4));
  EXPECT_EQ(after.micro_steps, 4);
  for (const Op& op : before.ops) {
    const Op& kept = after.op(op.id);
    EXPECT_EQ(kept.name, op.name);
    EXPECT_EQ(kept.stage, op.stage);
    EXPECT_EQ(kept.micro_step, op.phase == Phase::Optimizer ? 0 : 3);
  }
  EXPECT_EQ(after.op(before.ops.front().id).writes, before.ops.front().writes);
  EXPECT_NE(named(after, "F0@0").writes, before.ops.front().writes);
}

TEST(PipelineUnrollTest, ReportSaysWhatWasDone) {
  // a0 up and d0 down, 1 KiB each, four times.
  const Rewrite outcome =
      split_pipeline(LayerChain(2, 2).take(), pipeline_schedule(PipelineKind::OneFOneB, 4));
  const std::string& report = std::get<Rewritten>(outcome).report;
  EXPECT_THAT(report, HasSubstr("2 stages, 4 micro-batches"));
  EXPECT_THAT(report, HasSubstr("; merge: 2 gradients summed over 4 micro-steps"));
  EXPECT_THAT(report, HasSubstr("8 sends, 8 KiB"));
}

TEST(PipelineUnrollTest, SendsNameTheSenderInTheirPair) {
  // World 4: role 0 has ranks 0 1, role 1 has ranks 2 3; pairs {0, 2} and {1, 3}.
  const Program program =
      split(LayerChain(2, 2).take(), pipeline_schedule(PipelineKind::OneFOneB, 1));
  const CollectiveWork* up = message(named(program, "a0.send.0-1"));
  const CollectiveWork* down = message(named(program, "d0.recv.1-0"));
  ASSERT_TRUE(up != nullptr && down != nullptr);
  EXPECT_EQ(up->purpose, Purpose::Pipeline);
  EXPECT_EQ(up->bytes, Bytes(1024));
  EXPECT_EQ(up->root, 0);
  EXPECT_EQ(down->root, 1);
  const ProcessGroup& pairs = program.group(up->group);
  EXPECT_EQ(pairs.name, "pp0-1");
  EXPECT_EQ(down->group, up->group);
  EXPECT_EQ(pairs.instance_size, 2);
  EXPECT_THAT(pairs.ranks, ElementsAre(Rank{0}, Rank{2}, Rank{1}, Rank{3}));
  EXPECT_EQ(program.op(program.ops.front().id).phase, Phase::Forward);
}

TEST(PipelineUnrollTest, OneMicroBatchNeedsNoSums) {
  const Program program =
      split(LayerChain(3, 3).take(), pipeline_schedule(PipelineKind::OneFOneB, 1));
  EXPECT_EQ(program.micro_steps, 1);
  EXPECT_EQ(std::ranges::count(program.tensors, TensorKind::MergedGradient, &Tensor::kind), 0);
}

TEST(PipelineUnrollTest, AValueGoesOncePerRoleThatReadsIt) {
  // F1 and B1 of stage 1 both read a0: one message.
  const Program program =
      split(LayerChain(2, 2).take(), pipeline_schedule(PipelineKind::OneFOneB, 3));
  std::map<std::string, int> messages;
  for (const Op& op : program.ops) {
    if (message(op) != nullptr) ++messages[op.name];
  }
  EXPECT_THAT(messages, SizeIs(2 * 2 * 3));  // a0 and d0, two sides, three micro-batches
  for (const auto& [name, count] : messages) EXPECT_EQ(count, 1) << name;
}

TEST(PipelineUnrollTest, EveryRoleRunsExactlyItsGeneratorsOrder) {
  for (const auto& [kind, stages, chunks, m] :
       {std::tuple(PipelineKind::Sequential, 3, 1, 3), std::tuple(PipelineKind::OneFOneB, 4, 1, 8),
        std::tuple(PipelineKind::OneFOneB, 4, 1, 2), std::tuple(PipelineKind::Interleaved, 2, 2, 4),
        std::tuple(PipelineKind::Interleaved, 4, 2, 8),
        std::tuple(PipelineKind::Interleaved, 3, 3, 3),
        std::tuple(PipelineKind::ZeroBubble, 4, 1, 6),
        std::tuple(PipelineKind::ZeroBubble, 2, 3, 4), std::tuple(PipelineKind::Zbv, 3, 2, 7)}) {
    const Program program = split(chain_for(kind, stages, chunks), pipeline_schedule(kind, m));
    EXPECT_THAT(problems(program), IsEmpty());
    const PipelineShape shape{kind, stages, chunks, m};
    for (std::int32_t role = 0; role < stages; ++role) {
      std::vector<PipelineStep> steps;
      for (const Op& op : program.ops) {
        const std::size_t pass = std::string("FBW").find(op.name.front());
        if (pass == std::string::npos || program.role_of(op) != role) continue;
        steps.push_back({static_cast<Pass>(pass), op.micro_step, op.stage / stages});
      }
      EXPECT_EQ(steps, stage_order(shape, role));
    }
  }
}

TEST(PipelineUnrollTest, TheOptimizerReadsWhatItWouldReadWithoutAPipeline) {
  // Values tell what made them; messages are first in, first out per direction and receives block,
  // so a wrong order of receives would deliver a wrong value or jam.
  for (const auto& [kind, stages, chunks, m] :
       {std::tuple(PipelineKind::Sequential, 3, 1, 3), std::tuple(PipelineKind::OneFOneB, 4, 1, 8),
        std::tuple(PipelineKind::Interleaved, 2, 2, 4),
        std::tuple(PipelineKind::Interleaved, 2, 3, 2),
        std::tuple(PipelineKind::Interleaved, 4, 2, 8),
        std::tuple(PipelineKind::ZeroBubble, 2, 1, 1),
        std::tuple(PipelineKind::ZeroBubble, 4, 1, 6),
        std::tuple(PipelineKind::ZeroBubble, 3, 2, 6), std::tuple(PipelineKind::Zbv, 2, 2, 1),
        std::tuple(PipelineKind::Zbv, 2, 2, 5), std::tuple(PipelineKind::Zbv, 4, 2, 9)}) {
    const Program chain = chain_for(kind, stages, chunks);
    const auto expected = results_without_pipeline(chain, m);
    const Program program = split(chain, pipeline_schedule(kind, m));
    ASSERT_THAT(expected, SizeIs(static_cast<std::size_t>(stages * chunks)));
    EXPECT_EQ(Player(program).run(), expected);
  }
}

TEST(PipelineUnrollTest, AModelOfTheZooGivesTheSameResultsInEveryPipeline) {
  // Residual branches: gradients of activations are added up across ops and stages.
  const Program model = models::zoo_program("resnet18", {.batch = 2, .world_size = 2});
  for (const auto& [kind, stages, chunks] :
       {std::tuple(PipelineKind::OneFOneB, 2, 1), std::tuple(PipelineKind::OneFOneB, 5, 1),
        std::tuple(PipelineKind::Interleaved, 2, 2), std::tuple(PipelineKind::Interleaved, 2, 5),
        std::tuple(PipelineKind::ZeroBubble, 3, 1), std::tuple(PipelineKind::ZeroBubble, 2, 2),
        std::tuple(PipelineKind::Zbv, 3, 2)}) {
    Rewrite assigned =
        assign_stages(model, {.stages = stages, .chunks = chunks, .map = stage_map_of(kind)});
    ASSERT_TRUE(std::holds_alternative<Rewritten>(assigned));
    const Program staged = std::get<Rewritten>(std::move(assigned)).program;
    const auto expected = results_without_pipeline(staged, 2 * stages);
    const Program program = split(staged, pipeline_schedule(kind, 2 * stages));
    EXPECT_THAT(problems(program), IsEmpty());
    EXPECT_EQ(Player(program).run(), expected) << stages << " stages, " << chunks << " chunks";
  }
}

// Forward ops on two roles over the activations x (tensor 0) and y (tensor 1).
class TwoRoles {
 public:
  TwoRoles() {
    program_.name = "two roles";
    program_.world_size = 2;
    program_.stages = 2;
    program_.tensors = {{TensorId{0}, "x", TensorKind::Activation, DType::F32, {1}},
                        {TensorId{1}, "y", TensorKind::Activation, DType::F32, {1}}};
  }

  void op(const std::string& name, std::int32_t stage, std::vector<TensorId> reads,
          std::vector<TensorId> writes) {
    program_.ops.push_back({.id = OpId{static_cast<std::int32_t>(program_.ops.size())},
                            .name = name,
                            .work = MemoryWork{},
                            .reads = std::move(reads),
                            .writes = std::move(writes),
                            .stage = stage});
  }

  [[nodiscard]] Program with_transfers() const {
    return std::get<Rewritten>(add_transfers(program_)).program;
  }

 private:
  Program program_;
};

TEST(PipelineTransfersTest, ReceivesStandInTheOrderOfTheirSends) {
  // Stage 0 makes x, then y; stage 1 reads y first. The channel is first in, first out, so x is
  // received before y, ahead of its own reader.
  TwoRoles roles;
  roles.op("make_x", 0, {}, {TensorId{0}});
  roles.op("make_y", 0, {}, {TensorId{1}});
  roles.op("use_y", 1, {TensorId{1}}, {});
  roles.op("use_x", 1, {TensorId{0}}, {});
  EXPECT_THAT(ops_of_role(roles.with_transfers(), 1),
              ElementsAre("x.recv.0-1", "y.recv.0-1", "use_y", "use_x"));
}

TEST(PipelineTransfersTest, ANewValueOfATensorThatTheRoleHoldsArrivesUnderAFreshName) {
  // Role 0 writes x, role 1 adds to it, role 0 reads the sum: the receive must not overwrite the x
  // that role 0 may still be sending.
  TwoRoles roles;
  roles.op("make", 0, {}, {TensorId{0}});
  roles.op("add", 1, {TensorId{0}}, {TensorId{0}});
  roles.op("use", 0, {TensorId{0}}, {});
  const Program after = roles.with_transfers();
  EXPECT_THAT(ops_of_role(after, 0), ElementsAre("make", "x.send.0-1", "x.recv.1-0", "use"));
  const TensorId copy = named(after, "x.recv.1-0").writes.front();
  EXPECT_NE(copy, TensorId{0});
  EXPECT_THAT(named(after, "use").reads, ElementsAre(copy));
  EXPECT_EQ(after.tensor(copy).shape, after.tensor(TensorId{0}).shape);
}

TEST(PipelineUnrollTest, RefusesWeightsSharedByStages) {
  Program program = LayerChain(2, 2).take();
  program.ops[1].reads.push_back(program.ops[0].reads.front());  // F1 reads w0, the tied embedding
  EXPECT_EQ(
      refusal_of(std::move(program), pipeline_schedule(PipelineKind::OneFOneB, 2)),
      "parameter w0 is used by F0 of pipeline stage 0 and by F1 of stage 1: weights shared by "
      "stages are not supported");
}

TEST(PipelineUnrollTest, RefusesAGlobalNormOverTheStages) {
  Program program = LayerChain(2, 2).take();
  const TensorId g0 = program.op(OpId{3}).writes.front();
  Op& update = program.ops[4];  // U1 also reads g0
  ASSERT_EQ(update.name, "U1");
  update.reads.push_back(g0);
  EXPECT_THAT(refusal_of(std::move(program), pipeline_schedule(PipelineKind::OneFOneB, 2)),
              HasSubstr("optimizer ops over several stages are not supported"));
}

TEST(PipelineUnrollTest, RefusesStagesThatNeedALaterOne) {
  Program program = LayerChain(3, 3).take();
  std::swap(program.ops[0].stage, program.ops[2].stage);  // F0 on stage 2, F2 on stage 0
  program.ops[0].reads.clear();                           // of no weights, which would be shared
  program.ops[2].reads = {program.ops[1].writes.front()};
  EXPECT_EQ(
      refusal_of(std::move(program), pipeline_schedule(PipelineKind::OneFOneB, 2)),
      "op F1 of pipeline stage 1 reads a0, which F0 of stage 2 writes after it in the order of "
      "a pipeline");
}

TEST(PipelineUnrollTest, ALateWeightsOpStandsBehindOtherMicroBatches) {
  // P = 2, m = 2, role 1: F0 B0 F1 B1 W0 W1. The gradient of its input leaves right behind B; the sum grows behind W.
  const Program program = split(chain_for(PipelineKind::ZeroBubble, 2, 1),
                                pipeline_schedule(PipelineKind::ZeroBubble, 2));
  EXPECT_THAT(
      ops_of_role(program, 1),
      ElementsAre("a0@0.recv.0-1", "F1@0", "B1@0", "d0@0.send.1-0", "a0.recv.0-1", "F1", "B1",
                  "d0.send.1-0", "W1@0", "g1.accumulate@0", "W1", "g1.accumulate@1", "U1"));
}

TEST(PipelineUnrollTest, NeighboursOnOneRoleSendNothing) {
  // P = 2 in a V: stages 1 and 2 are role 1. Messages 0-1 (a0, d2) and 1-0 (a2, d0), none of a1 and d1.
  const Program program =
      split(chain_for(PipelineKind::Zbv, 2, 2), pipeline_schedule(PipelineKind::Zbv, 1));
  std::set<std::string> sent;
  for (const Op& op : program.ops) {
    if (message(op) != nullptr && !op.reads.empty()) sent.insert(op.name);
  }
  EXPECT_THAT(sent, ElementsAre("a0.send.0-1", "a2.send.1-0", "d0.send.1-0", "d2.send.0-1"));
}

TEST(PipelineUnrollTest, GradientsThatTwoOpsWriteAreOnePass) {
  // An op of stage 1 that makes d0 also adds to g1, so W1, which adds to it, too, must not wait for other micro-batches.
  Program program = chain_for(PipelineKind::ZeroBubble, 2, 1);
  Op& input = *std::ranges::find(program.ops, "B1", &Op::name);
  Op& weights = *std::ranges::find(program.ops, "W1", &Op::name);
  input.writes.push_back(weights.writes.front());
  weights.reads.push_back(weights.writes.front());
  EXPECT_THAT(refusal_of(program, pipeline_schedule(PipelineKind::ZeroBubble, 2)),
              HasSubstr("backward cannot be split"));
}

TEST(PipelineUnrollTest, RefusesASplitOfWholeBackwards) {
  EXPECT_EQ(
      refusal_of(LayerChain(2, 2).take(), pipeline_schedule(PipelineKind::ZeroBubble, 2)),
      "no backward op behind the first stage makes gradients of weights alone, so backward cannot "
      "be split: use 1f1b or interleaved");
  Program there_and_back = LayerChain(4, 2).take();
  there_and_back.stage_map = StageMap::V;
  EXPECT_EQ(refusal_of(there_and_back, pipeline_schedule(PipelineKind::Interleaved, 2)),
            "stages lie on ranks in the map v, which the order interleaved does not run");
}

TEST(PipelineUnrollTest, RefusesAGradientThatTwoChunksOfAStageAddTo) {
  Program program = chain_for(PipelineKind::Zbv, 2, 2);
  Op& last = *std::ranges::find(program.ops, "W3", &Op::name);
  Op& first = *std::ranges::find(program.ops, "W0", &Op::name);
  first.reads.push_back(last.writes.front());
  EXPECT_THAT(refusal_of(program, pipeline_schedule(PipelineKind::Zbv, 2)),
              HasSubstr("gradient g3 is used by W3 of pipeline stage 3 and by W0 of stage 0"));
}

TEST(PipelineUnrollTest, RefusesAnOrderThatDoesNotExist) {
  EXPECT_EQ(refusal_of(LayerChain(4, 2).take(), pipeline_schedule(PipelineKind::Interleaved, 3)),
            "interleaved pipelines need a multiple of 2 micro-batches, not 3");
  EXPECT_EQ(refusal_of(LayerChain(4, 2).take(), pipeline_schedule(PipelineKind::OneFOneB, 4)),
            "the order 1F1B has one chunk per stage, not 2 (use interleaved)");
}

TEST(PipelineUnrollTest, AS3RefusesToReduceInEveryMicroBatchUnlessTheyRunOneAfterAnother) {
  Schedule schedule = pipeline_schedule(PipelineKind::OneFOneB, 2);
  schedule.merge.sync = SyncPoint::EveryMicroStep;
  EXPECT_THAT(refusal_of(LayerChain(2, 2).take(), schedule),
              HasSubstr("lets gradients travel in the last micro-batch only"));
  schedule.pipeline.kind = PipelineKind::Sequential;
  EXPECT_EQ(refusal_of(LayerChain(2, 2).take(), schedule), "");
}

TEST(PipelineUnrollTest, AS3OnlyStage0MayLaunchBeforeItsBackwardsHaveEnded) {
  const Schedule schedule = pipeline_schedule(PipelineKind::OneFOneB, 4);
  const Program program = split(LayerChain(4, 4).take(), schedule);
  EXPECT_EQ(earliest_launch(program, schedule, 0), std::nullopt);
  for (std::int32_t role = 1; role < 4; ++role) {
    const std::optional<OpId> floor = earliest_launch(program, schedule, role);
    ASSERT_TRUE(floor);
    // The last op before the optimizer: the sum of the role's gradient in the last micro-batch.
    EXPECT_EQ(program.op(*floor).name, "g" + std::to_string(role) + ".accumulate@3");
  }
}

TEST(PipelineUnrollTest, AS10AlignedChunksWaitForALaterBackward) {
  // P = 4, v = 2, m = 8, role 2: chunk 1 (stage 6) after its backward id 11 + 2 = 13, which is the
  // micro-batch 4 + 13 mod 4 = 5 of chunk 0 (stage 2); chunk 0 after all of them.
  Schedule schedule = pipeline_schedule(PipelineKind::Interleaved, 8);
  schedule.pipeline.alignment = LaunchAlignment::AcrossStages;
  const Program program = split(LayerChain(8, 4).take(), schedule);
  const std::optional<OpId> chunk1 = earliest_launch(program, schedule, 6);
  ASSERT_TRUE(chunk1);
  EXPECT_EQ(program.op(*chunk1).name, "g2.accumulate@5");
  const std::optional<OpId> chunk0 = earliest_launch(program, schedule, 2);
  ASSERT_TRUE(chunk0);
  EXPECT_EQ(program.op(*chunk0).name, "g2.accumulate@7");
}

}  // namespace
}  // namespace dovetail::schedule
