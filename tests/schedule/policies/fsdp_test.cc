// ZeRO-3: blocks of parameters that are gathered before each use and freed behind it.
//
// The Program of most tests has three layers of 8, 16 and 24 parameters on four ranks. Blocks are
// numbered as their gradients are ready: block 0 is l2, block 2 is l0; buckets 3, 4, 5 hold the
// parameters of l2, l1, l0.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/fsdp.h"
#include "base/error.h"
#include "base/random.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "tests/schedule/lower/lower_words.h"
#include "tests/schedule/verify/verify_programs.h"
#include "tests/support/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

Program three() { return training({8, 16, 24}, 4); }
// Its second layer is frozen: block 0 is l2, block 1 is l0, and block 2 is l1, which has no bucket.
Program three_with_a_frozen_one() {
  const Program program = three();
  return dovetail::testing::frozen(program, tensor_named(program, "l1"));
}

Schedule fsdp(const std::string& options = "", const Program& program = three()) {
  return make_schedule(program, parse_policy("fsdp" + (options.empty() ? "" : ":" + options)));
}

ScheduledProgram lowered(const std::string& options = "") {
  const Program program = three();
  const Schedule schedule = fsdp(options, program);
  ScheduledProgram plan = lower(program, schedule).program;
  EXPECT_THAT(reasons(program, plan, schedule.merge), IsEmpty()) << options;
  return plan;
}

std::string refusal(const std::string& options, const Program& program = three()) {
  return apply_policy(program, parse_policy("fsdp:" + options)).failure.value_or("");
}

// "l0 F@0": for whom, and behind how many ops it is launched.
std::vector<std::string> gathers(const std::string& options) {
  const Program program = three();
  const Schedule schedule = fsdp(options, program);
  std::vector<std::string> lines;
  for (const ParameterGather& gather : schedule.gathers) {
    const auto* after = std::get_if<LaunchAfterOp>(&gather.launch);
    const char* const whom[] = {" F@", " B@", " FB@"};
    lines.push_back("l" + std::to_string(2 - gather.bucket.value) +
                    whom[static_cast<int>(gather.readers)] +
                    std::to_string(after == nullptr ? 0 : after->op.value + 1));
  }
  return lines;
}

bool gathers_parameters(const Command& command) {
  const auto* run = bucket_collective(command);
  return run != nullptr && run->kind == Collective::AllGather;
}

std::size_t nth_gather(const ScheduledProgram& plan, int nth) {
  return find_command(plan, gathers_parameters, nth);
}

TEST(FsdpTest, CtasAreThoseOfGathersAndReductions) {
  const Schedule schedule = fsdp("ctas=4");
  for (const auto& bucket : schedule.buckets) EXPECT_EQ(bucket.max_ctas, 4);
  for (const auto& gather : schedule.gathers) EXPECT_EQ(gather.max_ctas, 4);
  EXPECT_EQ(schedule.policy, "fsdp:blocks=layer,forward=1,backward=1,ctas=4");
}

TEST(FsdpTest, EveryBlockIsGatheredBeforeForwardAndAgainBeforeBackward) {
  // Ops: l0, l1, l2 forward, the loss, l2, l1, l0 backward. l2 ends forward and begins backward, so it
  // stays. l2 is gathered when l1's forward begins, l1 again when l2's backward begins.
  EXPECT_EQ(
      words(lowered()),
      "0:record0 1:wait0 1:all-gather5 1:record1 0:record2 1:wait2 1:all-gather4 1:record3 "
      "0:wait1 0:l0.forward 0:release5 0:record4 1:wait4 1:all-gather3 1:record5 "
      "0:wait3 0:l1.forward 0:release4 0:wait5 0:l2.forward 0:loss.fill "
      "0:record6 1:wait6 1:all-gather4 1:record7 0:l2.backward 0:release3 "
      "0:record8 1:wait8 1:reduce-scatter0 1:record9 0:record10 1:wait10 1:all-gather5 1:record11 "
      "0:wait7 0:l1.backward 0:release4 0:record12 1:wait12 1:reduce-scatter1 1:record13 "
      "0:wait11 0:l0.backward 0:release5 0:record14 1:wait14 1:reduce-scatter2 1:record15 "
      "0:wait9 0:bucket0.update 0:wait13 0:bucket1.update 0:wait15 0:bucket2.update ");
}

// Compute waits for the reduction of l2 (9) behind l1's backward, for that of l1 (13) behind l0's, each before the next.
TEST(FsdpTest, OneReductionIsUnderWayWhereComputeWaitsBeforeTheNext) {
  EXPECT_THAT(
      words(lowered("batch=1,wait=before-next-batch")),
      HasSubstr("1:reduce-scatter0 1:record9 0:record10 1:wait10 1:all-gather5 1:record11 "
                "0:wait7 0:l1.backward 0:release4 0:wait9 0:record12 1:wait12 1:reduce-scatter1 "
                "1:record13 0:wait11 0:l0.backward 0:release5 0:wait13 0:record14"));
}

TEST(FsdpTest, ThePrefetchDepthIsCountedInUsesOfBlocks) {
  EXPECT_THAT(gathers("prefetch=0"),
              ElementsAre("l0 F@0", "l1 F@1", "l2 FB@2", "l1 B@5", "l0 B@6"));
  EXPECT_THAT(gathers("prefetch=1"),
              ElementsAre("l0 F@0", "l1 F@0", "l2 FB@1", "l1 B@4", "l0 B@5"));
  EXPECT_THAT(gathers("forward=2,backward=0"),
              ElementsAre("l0 F@0", "l1 F@0", "l2 FB@0", "l1 B@5", "l0 B@6"));
  // Three uses before l1's backward l1's forward begins: it is released before it is gathered again.
  EXPECT_THAT(gathers("forward=0,backward=3"),
              ElementsAre("l0 F@0", "l1 F@1", "l2 FB@2", "l1 B@2", "l0 B@2"));
  EXPECT_THAT(gathers("prefetch=9"),
              ElementsAre("l0 F@0", "l1 F@0", "l2 FB@0", "l1 B@2", "l0 B@2"));
}

TEST(FsdpTest, WithoutReshardingEveryBlockStaysUntilItsBackward) {
  EXPECT_THAT(gathers("reshard=no"), ElementsAre("l0 FB@0", "l1 FB@0", "l2 FB@1"));
  lowered("reshard=no");
}

// Of l1 behind the copies of l0, not beside them; of the first, which nothing is in front of, at once.
TEST(FsdpTest, AHostThatWaitsAsksForTheNextBehindTheCopiesOfTheOneBefore) {
  const std::string streams = words(lowered("mode=copy"));
  const std::string host = words(lowered("mode=copy,host_waits=yes"));
  const auto before_l0 = [](const std::string& all) {
    return all.substr(0, all.find("0:l0.forward"));
  };
  EXPECT_THAT(before_l0(streams), ContainsRegex("all-gather4.*0:wait1 0:unpack"));
  EXPECT_THAT(before_l0(host), ContainsRegex("0:wait1 0:unpack.*all-gather4"));
  const Schedule schedule = fsdp("host_waits=yes");
  const Program program = three();
  const auto& second = std::get<LaunchBeforeOp>(schedule.gathers[1].launch);
  EXPECT_EQ(program.op(second.op).name, "l0.forward");
  EXPECT_EQ(prefetch_of(program, schedule).forward, 1);
  EXPECT_EQ(prefetch_of(program, schedule).backward, 1);
  EXPECT_EQ(schedule.policy, "fsdp:blocks=layer,forward=1,backward=1,host_waits=yes");
  // Nothing is asked for ahead: each gather stands in front of its own reader.
  EXPECT_EQ(words(lowered("prefetch=0,host_waits=yes")), words(lowered("prefetch=0")));
}

TEST(FsdpTest, OnlyGathersAreLaunchedInFrontOfAnOp) {
  const Program program = three();
  Schedule schedule = fsdp();
  schedule.buckets[0].launch = LaunchBeforeOp{program.ops.back().id};
  EXPECT_THAT([&] { lower(program, schedule); },
              ThrowsMessage<InputError>(
                  HasSubstr("bucket 0: gradients cannot be reduced in front of an op")));
}

TEST(FsdpTest, AGatherWaitsUntilTheLimitHolds) {
  // 32, 64 and 96 bytes. l2 beside l1 is 160 bytes.
  EXPECT_THAT(gathers("prefetch=2,memory=160B"),
              ElementsAre("l0 F@0", "l1 F@0", "l2 FB@1", "l1 B@2", "l0 B@5"));
  EXPECT_THAT(gathers("prefetch=2,memory=96B"),
              ElementsAre("l0 F@0", "l1 F@0", "l2 FB@2", "l1 B@5", "l0 B@5"));
  EXPECT_THAT(gathers("prefetch=2,limit=1"),
              ElementsAre("l0 F@0", "l1 F@1", "l2 FB@2", "l1 B@5", "l0 B@6"));
  EXPECT_EQ(refusal("memory=95B"),
            "when op l2.forward runs, 1 block of 96 B must be gathered, above the limit of "
            "memory=95 B");
  EXPECT_EQ(refusal("reshard=no,limit=2"),
            "when op l2.forward runs, 3 blocks of 192 B must be gathered, above the limit of "
            "limit=2");
}

TEST(FsdpTest, BlocksAreLayersOrReachASize) {
  const auto sizes = [](const std::string& options) {
    std::vector<std::size_t> counts;
    for (const Bucket& bucket : fsdp(options).buckets) counts.push_back(bucket.gradients.size());
    return counts;
  };
  EXPECT_THAT(sizes(""), ElementsAre(1, 1, 1));
  EXPECT_THAT(sizes("cap=97B"), ElementsAre(2, 1));
  // Names with a number belong together up to it, others by their module.
  Program program = training({8, 8, 8, 8}, 4);
  const char* const names[] = {"h.0.attn.w", "h.0.mlp.w", "h.1.mlp.w", "head.w"};
  for (std::size_t i = 0; i < 4; ++i) {
    program.tensors[static_cast<std::size_t>(tensor_named(program, "l" + std::to_string(i)).value)]
        .name = names[i];
  }
  std::vector<std::size_t> counts;
  for (const Bucket& bucket : fsdp("", program).buckets) counts.push_back(bucket.gradients.size());
  EXPECT_THAT(counts, ElementsAre(1, 1, 2));
}

TEST(FsdpTest, EveryOptionIsLegalInBothModesWithMicroStepsAndClipping) {
  for (const std::string mode : {"view", "copy"}) {
    for (const std::string options :
         {"prefetch=0", "prefetch=1", "prefetch=3", "reshard=no", "streams=2", "limit=1",
          "host_waits=yes", "host_waits=yes,prefetch=3", "host_waits=yes,reshard=no", "memory=160B",
          "cap=97B", "k=2,prefetch=2", "k=2,host_waits=yes", "k=3,sync=after,limit=2",
          "scale=optimizer", "scale=loss-gradient", "scale=before-collective",
          "wait=end-of-backward", "batch=1,wait=before-next-batch"}) {
      SCOPED_TRACE(options + " " + mode);
      lowered(options + ",mode=" + mode);
    }
  }
}

TEST(FsdpTest, APlanFileKeepsTheGathersAndTheirLimit) {
  const Program program = three();
  Plan plan;
  plan.program = program;
  plan.schedule = fsdp("limit=2,streams=2", program);
  const Plan read = parse_plan("plan.json", plan_to_json(plan));
  EXPECT_EQ(read.schedule, plan.schedule);
  EXPECT_EQ(read.schedule.gather_limit.buckets, 2);
  EXPECT_EQ(read.schedule.gathers.size(), 5U);
}

TEST(FsdpTest, WhatCannotBeShardedOrIsNeverReadIsRefused) {
  Program program = three();
  op_named(program, "l1.update").effect = Opaque{};
  EXPECT_THAT(refusal("prefetch=1", program), HasSubstr("l1.update is not elementwise"));
  program = three();
  for (const char* op : {"l1.forward", "l1.backward"}) {
    std::erase(op_named(program, op).reads, tensor_named(program, "l1"));
  }
  EXPECT_EQ(refusal("prefetch=1", program),
            "no op of forward or backward is known to read parameter l1, so when it is needed is "
            "not known");
  EXPECT_THROW(parse_policy("fsdp:cap=1MiB,blocks=layer"), InputError);
  EXPECT_THROW(parse_policy("fsdp:prefetch=1,forward=2"), InputError);
}

TEST(FsdpTest, AGatherThatCannotBeIsRefusedByLowering) {
  const Program program = three();
  const auto message = [&](const Schedule& schedule) -> std::string {
    try {
      lower(program, schedule);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  Schedule schedule = fsdp();
  schedule.gathers[0].bucket = BucketId{7};
  EXPECT_THAT(message(schedule), HasSubstr("gather of bucket 7 for forward: no bucket of this id"));
  schedule = fsdp();
  schedule.gathers[0].launch = LaunchInBatch{0};
  EXPECT_THAT(message(schedule), HasSubstr("cannot be gathered in a batch"));
  schedule = fsdp();
  schedule.parameters = ParameterSync::NextForward;
  EXPECT_THAT(message(schedule), HasSubstr("placed one by one only where parameters are gathered"));
}

// Frozen layers ---------------------------------------------------------------------------------------

TEST(FsdpTest, FrozenLayersAreGatheredForEachUseAndNeverReduced) {
  // As with three trained layers, but that l1 has no bucket: its block 2 is gathered when l0's forward
  // begins, and again when l2's backward does, since the gradient of l0's output goes through it.
  const Program program = three_with_a_frozen_one();
  const Schedule schedule = fsdp("", program);
  EXPECT_EQ(
      words(lower(program, schedule).program),
      "0:record0 1:wait0 1:all-gather4 1:record1 0:record2 1:wait2 1:all-gather2 1:record3 "
      "0:wait1 0:l0.forward 0:release4 0:record4 1:wait4 1:all-gather3 1:record5 "
      "0:wait3 0:l1.forward 0:release2 0:wait5 0:l2.forward 0:loss.fill "
      "0:record6 1:wait6 1:all-gather2 1:record7 0:l2.backward 0:release3 "
      "0:record8 1:wait8 1:reduce-scatter0 1:record9 0:record10 1:wait10 1:all-gather4 1:record11 "
      "0:wait7 0:l1.backward 0:release2 0:wait11 0:l0.backward 0:release4 "
      "0:record12 1:wait12 1:reduce-scatter1 1:record13 "
      "0:wait9 0:bucket0.update 0:wait13 0:bucket1.update ");
  EXPECT_THAT(
      apply_policy(program, parse_policy("fsdp")).report,
      AllOf(Contains(HasSubstr("3 blocks (1 frozen) by layer, the largest 96 B; 5 gathers")),
            Contains(HasSubstr("at most 160 B of 192 B of parameters"))));
}

TEST(FsdpTest, WhatNoGradientPassesIsGatheredForForwardOnly) {
  // Nothing in front of l0 is trained, so backward ends with l1.
  Program program = three();
  program = dovetail::testing::frozen(program, tensor_named(program, "l0"));
  std::erase_if(program.ops, [](const Op& op) { return op.name == "l0.backward"; });
  const Schedule schedule = fsdp("", program);
  ASSERT_EQ(schedule.frozen.size(), 1U);
  const auto of_frozen = [&](const ParameterGather& gather) {
    return gather.bucket == schedule.frozen.front().id;
  };
  EXPECT_EQ(std::ranges::count_if(schedule.gathers, of_frozen), 1);
  EXPECT_EQ(std::ranges::find_if(schedule.gathers, of_frozen)->readers, GatherFor::Forward);
  EXPECT_THAT(reasons(program, lower(program, schedule).program), IsEmpty());
}

TEST(FsdpTest, FrozenAndTrainedParametersOfALayerAreWantedTogether) {
  // One layer ahead means both of the next layer.
  const Program program =
      dovetail::testing::with_adapters(3, Bytes(256), Bytes(16), dovetail::testing::us(1));
  const Schedule schedule = fsdp("prefetch=1", program);
  std::vector<std::string> lines;
  for (const ParameterGather& gather : schedule.gathers) {
    const auto* after = std::get_if<LaunchAfterOp>(&gather.launch);
    lines.push_back(std::to_string(gather.bucket.value) + " " +
                    std::string(to_string(gather.readers)) + " @" +
                    std::to_string(after == nullptr ? 0 : after->op.value + 1));
  }
  // Buckets 0 to 2 are the adapters of layers 2 to 0, blocks 3 to 5 their matrices. Ops 1 to 6 are forward, and layer
  // 2, which ends it, stays; layer 1 is gathered again when layer 2's backward begins, layer 0 when layer 1's does.
  EXPECT_THAT(lines,
              ElementsAre("5 forward @0", "2 forward @0", "4 forward @1", "1 forward @1",
                          "3 forward-and-backward @3", "0 forward-and-backward @3", "1 backward @7",
                          "4 backward @7", "2 backward @9", "5 backward @9"));
  EXPECT_EQ(prefetch_of(program, schedule).forward, 1);
  EXPECT_EQ(prefetch_of(program, schedule).backward, 1);
  EXPECT_THAT(reasons(program, lower(program, schedule).program), IsEmpty());
}

TEST(FsdpTest, EveryOptionIsLegalBesideFrozenLayers) {
  for (const std::string mode : {"view", "copy"}) {
    for (const std::string options :
         {"prefetch=0", "prefetch=3", "reshard=no", "streams=2", "limit=1", "memory=160B",
          "cap=97B", "k=2,prefetch=2", "k=3,sync=after,limit=2"}) {
      SCOPED_TRACE(options + " " + mode);
      const Program program = three_with_a_frozen_one();
      const Schedule schedule = fsdp(options + ",mode=" + mode, program);
      EXPECT_EQ(schedule.frozen.size(), 1U);
      EXPECT_THAT(reasons(program, lower(program, schedule).program, schedule.merge), IsEmpty());
    }
  }
}

TEST(FsdpTest, FrozenParametersBesideGradientsOfSeveralGroupsAreRefused) {
  Program program = three_with_a_frozen_one();
  program.groups.push_back({GroupId{1}, "experts", program.groups.front().ranks, 2});
  program.reductions.back().group = GroupId{1};
  EXPECT_EQ(refusal("prefetch=1", program),
            "l1 is frozen, and gradients are reduced over dp and experts: over which of them it is "
            "sharded is not known");
}

TEST(FsdpTest, LayersThatAreFrozenAtRandomAreLegalAndGatheredWholly) {
  const std::vector<std::string> options = {"prefetch=0",           "prefetch=2",
                                            "reshard=no,mode=copy", "cap=100B,streams=2",
                                            "limit=2,mode=copy",    "k=2"};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::int64_t> elements;
    const std::int64_t layers = random.between(2, 8);
    for (std::int64_t i = 0; i < layers; ++i) elements.push_back(random.between(1, 40));
    Program program = training(elements, static_cast<std::int32_t>(random.between(2, 4)));
    const std::int64_t trained = random.between(0, layers - 1);
    std::size_t frozen = 0;
    for (std::int64_t i = 0; i < layers; ++i) {
      if (i == trained || random.between(0, 2) == 0) continue;
      const TensorId layer = tensor_named(program, "l" + std::to_string(i));
      program = dovetail::testing::frozen(std::move(program), layer);
      ++frozen;
    }
    const Schedule schedule =
        fsdp(options[static_cast<std::size_t>(random.between(0, 5))], program);
    std::size_t held = 0;
    for (const FrozenBlock& block : schedule.frozen) held += block.parameters.size();
    EXPECT_EQ(held, frozen);
    EXPECT_THAT(reasons(program, lower(program, schedule).program, schedule.merge), IsEmpty());
  }
}

TEST(FsdpTest, APlanFileKeepsFrozenBlocks) {
  Plan plan;
  plan.program = three_with_a_frozen_one();
  plan.schedule = fsdp("", plan.program);
  const std::string text = plan_to_json(plan);
  EXPECT_EQ(parse_plan("plan.json", text).schedule, plan.schedule);
  const auto with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    const std::size_t block = changed.find("\"frozen\"");
    changed.replace(changed.find(from, block), from.size(), to);
    try {
      parse_plan("plan.json", changed);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(with("\"id\": 2", "\"id\": 1"),
              HasSubstr("/frozen/0/id: a bucket or block has this id"));
  EXPECT_THAT(with("\"bytes\": 64", "\"bytes\": 60"),
              HasSubstr("/frozen/0/bytes: the parameters of this block have 64, found 60"));
  EXPECT_THAT(with("\"l1\"", "\"l3\""), HasSubstr("the program has no tensor \"l3\""));
}

TEST(FsdpTest, AFrozenBlockThatCannotBeIsRefusedByLowering) {
  const auto message = [](const Program& program, const Schedule& schedule) -> std::string {
    try {
      lower(program, schedule);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const Program program = three_with_a_frozen_one();
  const Schedule legal = fsdp("", program);
  ASSERT_EQ(message(program, legal), "");
  Schedule schedule = legal;
  schedule.frozen[0].parameters.push_back(tensor_named(program, "l0"));
  EXPECT_THAT(message(program, schedule), HasSubstr("frozen block 2: op bucket1.update writes l0"));
  schedule = legal;
  schedule.frozen[0].parameters.push_back(tensor_named(program, "l1"));
  EXPECT_THAT(message(program, schedule), HasSubstr("frozen block 2: l1 lies in two places"));
  schedule = legal;
  schedule.frozen[0].parameters = {tensor_named(program, "l1.out")};
  EXPECT_THAT(message(program, schedule), HasSubstr("frozen block 2: op l1.forward writes l1.out"));
  schedule = legal;
  schedule.frozen[0].id = BucketId{1};
  EXPECT_THAT(message(program, schedule), HasSubstr("frozen block 1: its id is used twice"));
  schedule = legal;
  schedule.gathers.clear();
  schedule.parameters = ParameterSync::NextForward;
  EXPECT_THAT(message(program, schedule), HasSubstr("only where they are gathered each-use"));
  Program other = program;
  other.tensors.push_back({.id = TensorId{static_cast<std::int32_t>(other.tensors.size())},
                           .name = "half",
                           .kind = TensorKind::Parameter,
                           .dtype = DType::F16,
                           .shape = {4}});
  schedule = legal;
  schedule.frozen[0].parameters.push_back(other.tensors.back().id);
  EXPECT_THAT(message(other, schedule), HasSubstr("frozen block 2: mixes dtypes: half"));
}

TEST(FsdpTest, NoGatherOrReleaseOfAFrozenBlockIsLeftOutUnnoticed) {
  const Program program = three_with_a_frozen_one();
  for (const std::string options : {"", "mode=copy,streams=2", "k=2,prefetch=2,limit=3"}) {
    const Schedule schedule = fsdp(options, program);
    const ScheduledProgram legal = lower(program, schedule).program;
    for (std::size_t i = 0; i < legal.roles[0].commands.size(); ++i) {
      const Command& command = legal.roles[0].commands[i];
      const bool counts =
          gathers_parameters(command) || std::holds_alternative<Release>(command.action);
      if (!counts) continue;
      ScheduledProgram broken = legal;
      erase(broken, i);
      EXPECT_THAT(reasons(program, broken, schedule.merge), ::testing::Not(IsEmpty()))
          << options << " c" << command.id;
    }
  }
}

// Mutants: each does what a bug in a policy, a pass or a plan by hand would do ------------------------

TEST(FsdpTest, AReaderThatDoesNotWaitForTheGatherIsFound) {
  ScheduledProgram broken = lowered();
  const std::size_t reader = run_of(broken, "l1.forward");
  ASSERT_TRUE(std::holds_alternative<WaitEvent>(commands_of(broken)[reader - 1].action));
  erase(broken, reader - 1);
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("read before gathered: op l1.forward (c")));
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("uses l1 without waiting for bucket 4: "
                                                  "all-gather (c")));
}

TEST(FsdpTest, AGatherThatIsLeftOutIsFound) {
  for (int nth = 0; nth < 5; ++nth) {
    ScheduledProgram broken = lowered();
    erase(broken, nth_gather(broken, nth));
    EXPECT_THAT(reasons(broken), Contains(StartsWith("read before gathered: op l"))) << nth;
  }
}

TEST(FsdpTest, AGatherOfWhatIsThereIsFound) {
  ScheduledProgram broken = lowered();
  const std::size_t first = nth_gather(broken, 0);
  Command again = commands_of(broken)[first];
  again.id = CommandId{1000};
  commands_of(broken).insert(commands_of(broken).begin() + static_cast<std::ptrdiff_t>(first) + 1,
                             again);
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("gathered twice: bucket 5: all-gather (c1000) "
                                                  "gathers what bucket 5: all-gather (c")));
}

TEST(FsdpTest, ParametersThatAreFreedBeforeTheirReaderAreFound) {
  ScheduledProgram broken = lowered();
  const std::size_t release = find<Release>(broken, 1);
  move(broken, release, run_of(broken, "l1.forward"));
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("read before gathered: op l1.forward (c")));
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("reads l1 after bucket 4: release (c")));
}

TEST(FsdpTest, ParametersThatAreFreedBesideTheirReaderAreFound) {
  ScheduledProgram broken = lowered();
  commands_of(broken)[find<Release>(broken, 1)].stream = StreamId{1};
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("released in use: bucket 4: release (c")));
}

TEST(FsdpTest, AGatherIntoMemoryThatIsStillReadIsFound) {
  // The second gather of l1 without its wait for the compute stream, on a stream of its own.
  ScheduledProgram broken = lowered("streams=2");
  const std::size_t gather = nth_gather(broken, 3);
  ASSERT_TRUE(std::holds_alternative<WaitEvent>(commands_of(broken)[gather - 1].action));
  erase(broken, gather - 1);
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("released in use: bucket 4: all-gather (c")));
}

TEST(FsdpTest, EveryReleaseIsOwed) {
  for (int nth = 0; nth < 5; ++nth) {
    ScheduledProgram broken = lowered();
    erase(broken, find<Release>(broken, nth));
    const std::vector<std::string> found = reasons(broken);
    EXPECT_THAT(found, Contains(::testing::AnyOf(StartsWith("not released: "),
                                                 StartsWith("gathered twice: "))))
        << nth;
  }
}

TEST(FsdpTest, ReleasingWhatIsNotGatheredIsFound) {
  ScheduledProgram broken = lowered();
  Command again = commands_of(broken)[find<Release>(broken, 0)];
  again.id = CommandId{1000};
  commands_of(broken).push_back(again);
  EXPECT_THAT(reasons(broken),
              Contains(StartsWith("not released: bucket 5: release (c1000) frees what is not")));
}

TEST(FsdpTest, ALimitThatSomeExecutionExceedsIsFound) {
  ScheduledProgram broken = lowered();
  broken.gather_limit.bytes = Bytes(160);
  EXPECT_THAT(reasons(broken), IsEmpty());
  broken.gather_limit.bytes = Bytes(159);
  EXPECT_THAT(reasons(broken),
              Contains(HasSubstr("makes 2 gathered buckets, 160 B, at a time, above the limit of "
                                 "159 B")));
  broken.gather_limit = {.bytes = Bytes(0), .buckets = 1};
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("makes 2 gathered buckets, 96 B, at a time, "
                                                  "above the limit of 1")));
}

TEST(FsdpTest, AGatherThatDoesNotWaitForTheReleaseBeforeItMayExceedTheLimit) {
  // With limit=1 each gather follows the release of the one before, by the event it waits for.
  ScheduledProgram broken = lowered("limit=1,streams=2");
  const std::size_t gather = nth_gather(broken, 1);
  erase(broken, gather - 1);
  EXPECT_THAT(reasons(broken), Contains(StartsWith("gather limit exceeded: bucket 4: ")));
}

TEST(FsdpTest, NoGatherCopyOrReleaseIsLeftOutUnnoticed) {
  for (const std::string options : {"", "mode=copy,streams=2", "k=2,prefetch=2,limit=3"}) {
    const ScheduledProgram legal = lowered(options);
    const Merge merge = fsdp(options).merge;
    for (std::size_t i = 0; i < legal.roles[0].commands.size(); ++i) {
      const Command& command = legal.roles[0].commands[i];
      const bool counts = gathers_parameters(command) ||
                          std::holds_alternative<Release>(command.action) ||
                          std::holds_alternative<Copy>(command.action);
      if (!counts) continue;
      ScheduledProgram broken = legal;
      erase(broken, i);
      EXPECT_THAT(reasons(three(), broken, merge), ::testing::Not(IsEmpty()))
          << options << " c" << command.id;
    }
  }
}

}  // namespace
}  // namespace dovetail::schedule::verify_test
