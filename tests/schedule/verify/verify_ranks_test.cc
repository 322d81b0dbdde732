// Roles that run together: collectives, sends and receives meet, or the mismatch is named.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/verify/verify_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// Two roles of one rank each with the same commands: per-tensor buckets on one stream.
ScheduledProgram two_ranks() {
  const Program program = training({4, 6});
  ScheduledProgram plan = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  plan.roles[0].ranks = {Rank{0}};
  plan.roles.push_back(plan.roles[0]);
  plan.roles[1].ranks = {Rank{1}};
  EXPECT_THAT(reasons(plan), IsEmpty());
  return plan;
}

TEST(VerifyRanksTest, PI9RanksThatLaunchInAnotherOrderMeetTheWrongBucket) {
  // Rank 1 launches both buckets behind l0.backward, l0's first: 24 bytes meet 16.
  ScheduledProgram broken = two_ranks();
  const Program& program = broken.program;
  Schedule schedule = buckets_of(program, {{"l0"}, {"l1"}});
  std::swap(schedule.buckets[0].id, schedule.buckets[1].id);
  broken.roles[1].commands = lower(program, schedule).program.roles[0].commands;
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("rank mismatch: role 0, stream comm0: bucket 0: all-reduce "
                                    ".c[0-9]+.: role 1 meets it over dp with bucket 1: all-reduce "
                                    ".c[0-9]+.")));
}

// Both buckets have 16 bytes, so nothing hangs, but l1's gradient would be added to l0's. Buckets of
// other ids with the same members do meet.
TEST(VerifyRanksTest, PI9BucketsOfOneSizeDoNotMeetWhereTheirMembersDiffer) {
  const Program program = training({4, 4});
  const auto plan_with_ids = [&](const std::vector<std::vector<std::string>>& order,
                                 std::int32_t first) {
    Schedule schedule = buckets_of(program, order);
    for (Bucket& bucket : schedule.buckets) {
      bucket.mode = BucketMode::Copy;
      bucket.launch = LaunchAfterBackward{};
      bucket.id.value += first;
    }
    return lower(program, schedule).program;
  };
  ScheduledProgram plan = plan_with_ids({{"l1"}, {"l0"}}, 0);
  plan.roles[0].ranks = {Rank{0}};
  const auto add_role = [&](const ScheduledProgram& other) {
    ScheduledProgram both = plan;
    both.buckets.insert(both.buckets.end(), other.buckets.begin(), other.buckets.end());
    both.roles.push_back(other.roles[0]);
    both.roles[1].ranks = {Rank{1}};
    return both;
  };
  EXPECT_THAT(reasons(add_role(plan_with_ids({{"l0"}, {"l1"}}, 2))),
              Contains(MatchesRegex("rank mismatch: role 0, stream comm0: bucket 0: all-reduce "
                                    ".c[0-9]+.: role 1 meets it over dp with bucket 2: .*")));
  EXPECT_THAT(reasons(add_role(plan_with_ids({{"l1"}, {"l0"}}, 2))), IsEmpty());
}

// A hang in the source system: a bucket touched on one rank and not on another.
TEST(VerifyRanksTest, AL5ABucketThatOneRankNeverLaunchesIsAMismatch) {
  const Program program = training({4, 6});
  ScheduledProgram broken = two_ranks();
  erase(broken, find<Communicate>(broken, 1, 1), 1);
  const auto lines = reasons(broken);
  EXPECT_THAT(lines, Contains(HasSubstr("not reduced: gradient l0.grad is never reduced")));
  // The same where the values would be right: an extra collective of rank 0 over a bucket of its
  // own, which no rank 1 answers.
  ScheduledProgram extra = two_ranks();
  extra.buckets.push_back({.bucket = BucketId{7}, .payload = {}, .size = Bytes(8), .members = {}});
  Command more = commands_of(extra)[find<Communicate>(extra)];
  more.id = CommandId{1000};
  std::get<Communicate>(more.action).bucket = BucketId{7};
  commands_of(extra).push_back(more);
  EXPECT_THAT(reasons(extra),
              ElementsAre("rank mismatch: role 0, stream comm0: bucket 7: all-reduce (c1000): role "
                          "1 never reaches a matching collective over dp"));
}

TEST(VerifyRanksTest, PI9AnotherReduceOpIsAMismatch) {
  ScheduledProgram broken = two_ranks();
  broken.buckets.push_back({.bucket = BucketId{7}, .payload = {}, .size = Bytes(8), .members = {}});
  for (std::size_t role = 0; role < 2; ++role) {
    commands_of(broken, role)
        .push_back({CommandId{1000}, StreamId{1},
                    Communicate{.bucket = BucketId{7},
                                .kind = Collective::AllReduce,
                                .reduce = role == 0 ? ReduceOp::Sum : ReduceOp::Average,
                                .group = kDp}});
  }
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("role 1 meets it over dp with bucket 7")));
}

TEST(VerifyRanksTest, ARankOutsideTheGroupIsABadReference) {
  ScheduledProgram broken = two_ranks();
  broken.program.groups[0].ranks = {Rank{0}};
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("communicates over dp, to which rank 1 does not "
                                                  "belong")));
}

TEST(VerifyRanksTest, ARankWithTwoRolesIsABadReference) {
  ScheduledProgram broken = two_ranks();
  broken.roles[1].ranks = {Rank{0}};
  EXPECT_THAT(reasons(broken), Contains("bad reference: rank 0 plays two roles"));
}

TEST(VerifyRanksTest, R13GroupsOfOneFamilyDoNotWaitForEachOther) {
  // Ranks 0 and 1 are one instance, ranks 2 and 3 the other; each is a role, with its own order.
  const Program program = [] {
    Program four = training({4, 6}, 4);
    four.groups[0].instance_size = 2;
    return four;
  }();
  ScheduledProgram plan = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  plan.roles[0].ranks = {Rank{0}, Rank{1}};
  Schedule other = buckets_of(program, {{"l0"}, {"l1"}});
  std::swap(other.buckets[0].id, other.buckets[1].id);
  plan.roles.push_back(lower(program, other).program.roles[0]);
  plan.roles[1].ranks = {Rank{2}, Rank{3}};
  EXPECT_THAT(reasons(plan), IsEmpty());
}

// Two stages of one rank. Stage 0 computes l0, stage 1 l1 and the loss; what crosses is sent.
//
//   role 0  compute  l0.forward                               wait e1  l0.backward  l0.update
//           p2p 0-1  wait e0  out.send
//           p2p 1-0                                grad.recv  record e1
//   role 1  p2p 0-1  out.recv  record e2
//           compute  wait e2  fill  l1.backward  record e3  l1.update
//           p2p 1-0  wait e3  grad.send
struct Pipe {
  ScheduledProgram plan;
  StreamId forward{1}, backward{2};
};

class PipeBuilder {
 public:
  // `answers`: stage 1 sends a gradient back, without which stage 0 makes its own of nothing.
  explicit PipeBuilder(bool answers = true) : build_(2), answers_(answers) {
    build_.program.stages = 2;
    build_.program.groups[0].ranks = {Rank{0}, Rank{1}};
    build_.program.groups[0].instance_size = 1;
    build_.program.groups.push_back({GroupId{1}, "pp0-1", {Rank{0}, Rank{1}}, 2});
    weight0_ = build_.tensor("l0", TensorKind::Parameter, 4);
    weight1_ = build_.tensor("l1", TensorKind::Parameter, 4);
    grad0_ = build_.tensor("l0.grad", TensorKind::Gradient, 4);
    grad1_ = build_.tensor("l1.grad", TensorKind::Gradient, 4);
    out_ = build_.tensor("out", TensorKind::Activation, 2);
    out_grad_ = build_.tensor("out.grad", TensorKind::Activation, 2);
    loss_ = build_.tensor("loss.grad", TensorKind::Activation, 1);
  }

  Pipe build() {
    using enum Phase;
    add_op("l0.forward", Forward, 0, {weight0_}, {out_});
    add_message("out.send", Forward, 0, {out_}, {}, 0);
    add_message("out.recv", Forward, 1, {}, {out_}, 0);
    add_op("fill", Backward, 1, {}, {loss_}, FillLossGradient{});
    add_op("l1.backward", Backward, 1, {weight1_, out_, loss_}, {grad1_, out_grad_});
    if (answers_) {
      add_message("grad.send", Backward, 1, {out_grad_}, {}, 1);
      add_message("grad.recv", Backward, 0, {}, {out_grad_}, 1);
      add_op("l0.backward", Backward, 0, {weight0_, out_grad_}, {grad0_});
    } else {
      add_op("l0.backward", Backward, 0, {weight0_}, {grad0_});
    }
    add_op("l1.update", Optimizer, 1, {grad1_, weight1_}, {weight1_}, Update{});
    add_op("l0.update", Optimizer, 0, {grad0_, weight0_}, {weight0_}, Update{});
    pipe_.plan.program = build_.program;
    pipe_.plan.streams = {
        {kComputeStream, "compute"}, {pipe_.forward, "p2p 0-1"}, {pipe_.backward, "p2p 1-0"}};
    pipe_.plan.roles = {{{Rank{0}}, {}}, {{Rank{1}}, {}}};
    enqueue_stage0();
    enqueue_stage1();
    return pipe_;
  }

 private:
  void add_op(const std::string& name, Phase phase, std::int32_t stage, std::vector<TensorId> reads,
              std::vector<TensorId> writes, Effect effect = Opaque{}) {
    build_.op(name, phase, std::move(reads), std::move(writes), effect);
    build_.program.ops.back().stage = stage;
  }

  void add_message(const std::string& name, Phase phase, std::int32_t stage,
                   std::vector<TensorId> reads, std::vector<TensorId> writes, std::int32_t root) {
    add_op(name, phase, stage, std::move(reads), std::move(writes));
    build_.program.ops.back().work = CollectiveWork{.kind = Collective::SendRecv,
                                                    .group = GroupId{1},
                                                    .bytes = Bytes(8),
                                                    .op = ReduceOp::Sum,
                                                    .purpose = Purpose::Pipeline,
                                                    .root = root};
  }

  void run(const std::string& op, StreamId stream = kComputeStream) {
    add(stream, action_of(op_named(build_.program, op)));
  }
  void add(StreamId stream, Action action) {
    pipe_.plan.roles[role_].commands.push_back(
        {CommandId{next_command_++}, stream, std::move(action)});
  }

  void enqueue_stage0() {
    role_ = 0;
    run("l0.forward");
    add(kComputeStream, RecordEvent{EventId{0}});
    add(pipe_.forward, WaitEvent{EventId{0}});
    run("out.send", pipe_.forward);
    if (answers_) {
      run("grad.recv", pipe_.backward);
      add(pipe_.backward, RecordEvent{EventId{1}});
      add(kComputeStream, WaitEvent{EventId{1}});
    }
    run("l0.backward");
    run("l0.update");
  }

  void enqueue_stage1() {
    role_ = 1;
    run("out.recv", pipe_.forward);
    add(pipe_.forward, RecordEvent{EventId{2}});
    add(kComputeStream, WaitEvent{EventId{2}});
    run("fill");
    run("l1.backward");
    if (answers_) {
      add(kComputeStream, RecordEvent{EventId{3}});
      add(pipe_.backward, WaitEvent{EventId{3}});
      run("grad.send", pipe_.backward);
    }
    run("l1.update");
  }

  TrainingBuilder build_;
  bool answers_;
  Pipe pipe_;
  std::size_t role_ = 0;
  std::int32_t next_command_ = 0;
  TensorId weight0_, weight1_, grad0_, grad1_, out_, out_grad_, loss_;
};

Pipe pipe() {
  Pipe result = PipeBuilder().build();
  EXPECT_THAT(reasons(result.plan), IsEmpty());
  return result;
}

// What stage 0 sent is received before the answer is, so the next step may write it again; and stage 1 gets
// the next activations after it has answered. Where it does not answer, neither is so.
TEST(VerifyRanksTest, TheNextStepIsOrderedByWhatOtherRolesSendBack) {
  EXPECT_THAT(reasons(PipeBuilder(true).build().plan), IsEmpty());
  EXPECT_THAT(
      reasons(PipeBuilder(false).build().plan),
      ElementsAre("race: in the next step, op l0.forward (c0) is not ordered after the read of "
                  "out by op out.send (c3)",
                  "race: in the next step, op out.recv (c6) is not ordered after the read of out "
                  "by op l1.backward (c10)"));
}

// A round trip orders ranks only where it comes back to the same one: here the answer goes to the other
// rank of the stage.
TEST(VerifyRanksTest, AnAnswerToAnotherRankOrdersNothing) {
  Pipe pipe = PipeBuilder().build();
  const auto widen = [&](bool crossed) {
    ScheduledProgram wide = pipe.plan;
    Program& program = wide.program;
    program.world_size = 4;
    program.groups[0].ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{3}};
    program.groups[1].ranks = {Rank{0}, Rank{2}, Rank{1}, Rank{3}};
    program.groups.push_back({GroupId{2}, "back", {Rank{2}, Rank{0}, Rank{3}, Rank{1}}, 2});
    if (crossed) program.groups[2].ranks = {Rank{2}, Rank{1}, Rank{3}, Rank{0}};
    for (Op& op : program.ops) {
      if (op.name != "grad.send" && op.name != "grad.recv") continue;
      auto& work = std::get<CollectiveWork>(op.work);
      work.group = GroupId{2};
      work.root = 0;
      const std::size_t role = op.name == "grad.recv" ? 0 : 1;
      wide.roles[role].commands[run_of(wide, op.name, role)].action = action_of(op);
    }
    wide.roles[0].ranks = {Rank{0}, Rank{1}};
    wide.roles[1].ranks = {Rank{2}, Rank{3}};
    return reasons(wide);
  };
  EXPECT_THAT(widen(false), IsEmpty());
  EXPECT_THAT(widen(true), Contains(HasSubstr("race: in the next step, op l0.forward")));
}

TEST(VerifyRanksTest, RI6ASendWithoutAReceiveIsAMismatch) {
  Pipe broken = pipe();
  // Stage 1 sends the gradient a second time; stage 0 receives once.
  auto& program = broken.plan.program;
  Op again = op_named(program, "grad.send");
  again.id = OpId{100};
  again.name = "grad.send.again";
  program.ops.insert(std::ranges::find(program.ops, "l1.update", &Op::name), again);
  commands_of(broken.plan, 1).push_back({CommandId{1000}, broken.backward, action_of(again)});
  EXPECT_THAT(reasons(broken.plan),
              ElementsAre("rank mismatch: role 1, stream p2p 1-0: op grad.send.again (c1000): role "
                          "0 never reaches a matching collective over pp0-1"));
}

TEST(VerifyRanksTest, RI6ASendOfOtherBytesIsAMismatch) {
  Pipe broken = pipe();
  std::get<CollectiveWork>(op_named(broken.plan.program, "out.recv").work).bytes = Bytes(16);
  EXPECT_THAT(reasons(broken.plan),
              Contains(MatchesRegex("rank mismatch: role 0, stream p2p 0-1: op out.send .c3.: role "
                                    "1 meets it over pp0-1 with op out.recv .c9.")));
}

TEST(VerifyRanksTest, RI6TwoSendsDoNotMeet) {
  Pipe broken = pipe();
  // Stage 0 sends its old value where it should receive stage 1's.
  Op& receive = op_named(broken.plan.program, "grad.recv");
  receive.reads = receive.writes;
  receive.writes.clear();
  EXPECT_THAT(reasons(broken.plan),
              Contains(MatchesRegex("rank mismatch: role 0, stream p2p 1-0: op grad.recv .c4.: "
                                    "role 1 meets it over pp0-1 with op grad.send .c[0-9]+.")));
}

TEST(VerifyRanksTest, StagesThatWaitForEachOtherAreADeadlock) {
  // Stage 0 waits for the gradient before it sends the output that the gradient needs.
  Pipe broken = pipe();
  const std::size_t wait = find<WaitEvent>(broken.plan, 1);
  const std::size_t receive = run_of(broken.plan, "grad.recv");
  auto& commands = commands_of(broken.plan);
  const std::vector<Command> late{commands[receive], commands[receive + 1], commands[wait]};
  commands.erase(commands.begin() + static_cast<std::ptrdiff_t>(receive),
                 commands.begin() + static_cast<std::ptrdiff_t>(wait) + 1);
  commands.insert(commands.begin(), late.begin(), late.end());
  const auto lines = reasons(broken.plan);
  EXPECT_THAT(lines, Contains(MatchesRegex("deadlock: role 0, stream p2p 1-0: op grad.recv .c4. "
                                           "waits for its peers for ever")));
  EXPECT_THAT(lines, Contains(HasSubstr("deadlock: role 1, stream p2p 0-1: op out.recv")));
}

TEST(VerifyRanksTest, AReceiveThatNobodyWaitsForIsARace) {
  Pipe broken = pipe();
  erase(broken.plan, find<WaitEvent>(broken.plan, 0, 1), 1);
  EXPECT_THAT(reasons(broken.plan),
              ElementsAre(MatchesRegex("race: op l1.backward .c[0-9]+. is not ordered after the "
                                       "write of out by op out.recv .c9.")));
}

TEST(VerifyRanksTest, AnOpOfAnotherStageIsOutOfOrder) {
  Pipe broken = pipe();
  op_named(broken.plan.program, "l1.update").stage = 0;
  const auto lines = reasons(broken.plan);
  EXPECT_THAT(lines, Contains("op order: op l1.update runs 0 times, not once"));
  EXPECT_THAT(lines,
              Contains("op order: op l1.update runs 1 times in a role of another pipeline stage"));
}

TEST(VerifyRanksTest, ARoleWithRanksOfTwoStagesIsABadReference) {
  Pipe broken = pipe();
  broken.plan.roles[0].ranks = {Rank{0}, Rank{1}};
  EXPECT_THAT(reasons(broken.plan),
              Contains("bad reference: rank 0 plays a role with ranks of other pipeline stages"));
}

TEST(VerifyRanksTest, PI2TheFactorOfTheLossCrossesStages) {
  // Each stage owes a sum over its own replicas (here one rank), factor 1.
  Pipe paid = pipe();
  for (std::int32_t stage = 0; stage < 2; ++stage) {
    const std::string layer = "l" + std::to_string(stage);
    const TensorId gradient = tensor_named(paid.plan.program, layer + ".grad");
    paid.plan.program.reductions.push_back({gradient, kDp, ReduceOp::Sum});
    paid.plan.buckets.push_back({.bucket = BucketId{stage},
                                 .payload = Bytes(16),
                                 .size = Bytes(16),
                                 .members = {{gradient, Bytes(0)}}});
    const auto role = static_cast<std::size_t>(stage);
    const std::size_t update = run_of(paid.plan, layer + ".update", role);
    auto& commands = commands_of(paid.plan, role);
    commands.insert(commands.begin() + static_cast<std::ptrdiff_t>(update),
                    Command{CommandId{1000}, kComputeStream,
                            Communicate{.bucket = BucketId{stage},
                                        .kind = Collective::AllReduce,
                                        .reduce = ReduceOp::Sum,
                                        .group = kDp}});
  }
  EXPECT_THAT(reasons(paid.plan), IsEmpty());
  // Stage 1 fills its loss with 1/2: what stage 0 receives is halved as well.
  op_named(paid.plan.program, "fill").effect = FillLossGradient{Rational(1, 2)};
  const auto lines = reasons(paid.plan);
  EXPECT_THAT(lines, Contains(HasSubstr("reads l0.grad scaled by 1/2, but 1 is needed")));
  EXPECT_THAT(lines, Contains(HasSubstr("reads l1.grad scaled by 1/2, but 1 is needed")));
}

}  // namespace
}  // namespace dovetail::schedule::verify_test
