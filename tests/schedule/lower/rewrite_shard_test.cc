// Sharded updates: what replaces the updates of reduce-scattered buckets, and what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/shard.h"

#include "schedule/id_table.h"
#include "schedule/lower/rewrite/merge.h"
#include "schedule/lower/rewrite/shard_work.h"
#include "tests/schedule/lower/rewrite_programs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dovetail::schedule::rewrite_test {
namespace {

constexpr TensorId kNorm{10};
constexpr OpId kNormOp{7};

Sharded sharded(Program program, const Schedule& schedule) {
  return applied<Sharded>(shard_updates(std::move(program), schedule));
}

// A bucket for each gradient: bucket 0 b.grad, bucket 1 a.grad.
Schedule two_buckets() {
  Schedule schedule;
  for (const TensorId gradient : {kBGrad, kAGrad}) {
    schedule.buckets.push_back({.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())},
                                .gradients = {Slice(gradient)},
                                .group = kDp,
                                .collective = Collective::ReduceScatter});
  }
  return schedule;
}

// norm := sum of squares of both gradients; the updates read it.
Program with_norm() {
  Program program = two_layers();
  program.tensors.push_back(tensor_of(kNorm, "norm", TensorKind::Activation, 1));
  ProgramEditor editor(std::move(program));
  editor.insert_before(kBUpdate, {op_of(kNormOp, "norm", Phase::Optimizer, {kBGrad, kAGrad},
                                        {kNorm}, GlobalNorm{})});
  Program result = std::move(editor).commit();
  for (Op& op : result.ops) {
    if (std::holds_alternative<Update>(op.effect)) op.reads.push_back(kNorm);
  }
  return result;
}

Op& op_in(Program& program, OpId id) { return *std::ranges::find(program.ops, id, &Op::id); }

TEST(ShardTest, WithoutReduceScatterNothingChanges) {
  const Sharded result = sharded(two_layers(), one_bucket());
  EXPECT_EQ(result.program, two_layers());
  EXPECT_EQ(result.report, "");
  EXPECT_TRUE(result.buckets.empty());
}

TEST(ShardTest, A24OneUpdatePerBucketReplacesItsUpdates) {
  const Sharded result = sharded(two_layers(), one_bucket(Collective::ReduceScatter));
  EXPECT_EQ(names(result.program),
            "a.forward b.forward loss.fill b.backward a.backward bucket3.update");
  const Op& update = op_called(result.program, "bucket3.update");
  EXPECT_EQ(update.reads, (std::vector{kBGrad, kB, kBState, kAGrad, kA, kAState}));
  EXPECT_EQ(update.writes, (std::vector{kB, kBState, kA, kAState}));
  EXPECT_EQ(update.phase, Phase::Optimizer);
  // The Schedule's largest bucket is 3, so the parameters get 4; momentum's factor stays.
  // Ten elements over four ranks: three each, 12 B of gradients and as much of parameters.
  EXPECT_EQ(std::get<ShardUpdate>(update.effect),
            (ShardUpdate{BucketId{3}, BucketId{4}, Bytes(24), Rational(1)}));
  EXPECT_EQ(result.buckets,
            (std::vector{ShardedBucket{BucketId{3}, BucketId{4}, {Slice(kB), Slice(kA)}}}));
  EXPECT_EQ(result.report, "2 updates became one per bucket, 1 bucket");
}

TEST(ShardTest, ARankDoesItsShareOfTheWork) {
  // Two updates of 160 B and 40 FLOP, four ranks: 80 B and 20 FLOP.
  const Sharded result = sharded(two_layers(), one_bucket(Collective::ReduceScatter));
  const Op& update = op_called(result.program, "bucket3.update");
  EXPECT_EQ(update.bytes(), Bytes(80));
  EXPECT_EQ(update.flop(), Flop(20));
}

// Three elements of each rank: 12 B of f32 gradients are read and 6 B of bf16 parameters written.
TEST(ShardTest, GradientsMayBeWiderThanTheirParameters) {
  Program program = two_layers();
  for (Tensor& tensor : program.tensors) {
    if (tensor.kind == TensorKind::Parameter) tensor.dtype = DType::BF16;
  }
  const Sharded result = sharded(program, one_bucket(Collective::ReduceScatter));
  const Op& update = op_called(result.program, "bucket3.update");
  EXPECT_EQ(std::get<ShardUpdate>(update.effect).traffic, Bytes(18));
}

TEST(ShardTest, MeasuredUpdatesShrinkRankByRank) {
  using std::chrono::microseconds;
  Program program = two_layers();
  op_in(program, kBUpdate).work = TimedWork{{microseconds(40)}};
  op_in(program, kAUpdate).work =
      TimedWork{{microseconds(4), microseconds(8), microseconds(12), microseconds(16)}};
  const Sharded result = sharded(program, one_bucket(Collective::ReduceScatter));
  // A quarter: 10 + 1, 10 + 2, 10 + 3, 10 + 4.
  EXPECT_EQ(
      op_called(result.program, "bucket3.update").work,
      Work(TimedWork{{microseconds(11), microseconds(12), microseconds(13), microseconds(14)}}));
}

TEST(ShardTest, EachBucketHasItsOwnUpdateWhereItsLastOneStood) {
  const Sharded result = sharded(two_layers(), two_buckets());
  EXPECT_EQ(names(result.program),
            "a.forward b.forward loss.fill b.backward a.backward bucket0.update bucket1.update");
  EXPECT_EQ(result.buckets[0].parameters, BucketId{2});
  EXPECT_EQ(result.buckets[1].parameters, BucketId{3});
}

TEST(ShardTest, A4AParameterMaySpanBuckets) {
  // a (8 elements) lies 0..5 in bucket 0 behind b, 5..8 in bucket 1.
  Schedule schedule = two_buckets();
  schedule.buckets[0].gradients.emplace_back(kAGrad, 0, 5);
  schedule.buckets[1].gradients = {Slice(kAGrad, 5, 3)};
  const Sharded result = sharded(two_layers(), schedule);
  EXPECT_EQ(result.buckets[0].members, (std::vector{Slice(kB), Slice(kA, 0, 5)}));
  EXPECT_EQ(result.buckets[1].members, (std::vector{Slice(kA, 5, 3)}));
  // b's 160 B and 5/8 of a's, a quarter of that: (160 + 100) / 4; the rest of a: 60 / 4.
  EXPECT_EQ(op_called(result.program, "bucket0.update").bytes(), Bytes(65));
  EXPECT_EQ(op_called(result.program, "bucket1.update").bytes(), Bytes(15));
}

TEST(ShardTest, AFusedUpdateIsCutPerBucket) {
  // One op updates both parameters: its i-th gradient belongs to its i-th parameter.
  Program program = two_layers();
  program.ops.pop_back();
  op_in(program, kBUpdate).reads = {kBGrad, kAGrad, kB, kA};
  op_in(program, kBUpdate).writes = {kB, kA};
  const Sharded result = sharded(program, two_buckets());
  EXPECT_EQ(op_called(result.program, "bucket0.update").reads, (std::vector{kBGrad, kB}));
  EXPECT_EQ(op_called(result.program, "bucket1.update").reads, (std::vector{kAGrad, kA}));
  // 160 B over 12 elements and 4 ranks: 4 of them and 8 of them, rounded.
  EXPECT_EQ(op_called(result.program, "bucket0.update").bytes(), Bytes(13));
  EXPECT_EQ(op_called(result.program, "bucket1.update").bytes(), Bytes(27));
}

TEST(ShardTest, A22ANormOfShardsIsCompletedByAnAllReduce) {
  const Sharded result = sharded(with_norm(), one_bucket(Collective::ReduceScatter));
  EXPECT_EQ(names(result.program),
            "a.forward b.forward loss.fill b.backward a.backward norm norm.all-reduce "
            "bucket3.update");
  const Op& norm = op_called(result.program, "norm");
  EXPECT_TRUE(std::get<GlobalNorm>(norm.effect).shard);
  EXPECT_EQ(norm.bytes(), Bytes(40));  // a quarter of 160
  const Op& sum = op_called(result.program, "norm.all-reduce");
  EXPECT_EQ(sum.work, Work(CollectiveWork{Collective::AllReduce, kDp, Bytes(4), ReduceOp::Sum,
                                          Purpose::GlobalNorm}));
  EXPECT_EQ(sum.writes, std::vector{kNorm});
  // The updates still read the norm.
  EXPECT_EQ(std::ranges::count(op_called(result.program, "bucket3.update").reads, kNorm), 1);
}

// b.grad is whole: its squares are added once those of a.grad's shards are summed up.
TEST(ShardTest, A22ANormOfShardsAndWholesHasAPartForEach) {
  Schedule schedule = two_buckets();
  schedule.buckets[0].collective = Collective::AllReduce;
  const Sharded result = sharded(with_norm(), schedule);
  EXPECT_EQ(names(result.program),
            "a.forward b.forward loss.fill b.backward a.backward norm norm.dp norm.dp.all-reduce "
            "norm.dp.add b.update bucket1.update");
  const Op& whole = op_called(result.program, "norm");
  EXPECT_EQ(whole.reads, std::vector{kBGrad});
  EXPECT_FALSE(std::get<GlobalNorm>(whole.effect).shard);
  EXPECT_EQ(whole.bytes(), Bytes(53));  // a third of 160
  const Op& shards = op_called(result.program, "norm.dp");
  EXPECT_EQ(shards.reads, std::vector{kAGrad});
  EXPECT_TRUE(std::get<GlobalNorm>(shards.effect).shard);
  EXPECT_EQ(shards.bytes(), Bytes(27));  // a quarter of two thirds
  const Op& add = op_called(result.program, "norm.dp.add");
  EXPECT_EQ(add.effect, Effect(Accumulate{}));
  EXPECT_EQ(add.reads, (std::vector{kNorm, shards.writes.front()}));
  EXPECT_EQ(add.writes, std::vector{kNorm});
}

TEST(ShardTest, A22ANormOverTwoGroupsIsSummedOverEachAndThenAdded) {
  Program program = with_norm();
  program.groups.push_back({GroupId{1}, "edp", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  program.reductions[1].group = GroupId{1};
  Schedule schedule = two_buckets();
  schedule.buckets[1].group = GroupId{1};
  const Sharded result = sharded(program, schedule);
  EXPECT_EQ(names(result.program),
            "a.forward b.forward loss.fill b.backward a.backward norm norm.all-reduce norm.edp "
            "norm.edp.all-reduce norm.edp.add bucket0.update bucket1.update");
  const auto group = [&](const char* op) {
    return std::get<CollectiveWork>(op_called(result.program, op).work).group;
  };
  EXPECT_EQ(group("norm.all-reduce"), kDp);
  EXPECT_EQ(group("norm.edp.all-reduce"), GroupId{1});
  // A rank updates a quarter of b and half of a.
  EXPECT_EQ(op_called(result.program, "bucket0.update").bytes(), Bytes(40));
  EXPECT_EQ(op_called(result.program, "bucket1.update").bytes(), Bytes(80));
}

TEST(ShardTest, A22ANormOfTheOnlyShardIsRefused) {
  Program alone = with_norm();
  alone.world_size = 1;
  alone.groups[0].ranks = {Rank{0}};
  EXPECT_EQ(reason_of(shard_updates(alone, one_bucket(Collective::ReduceScatter))),
            "norm norm reads gradients that are scattered to one rank");
}

TEST(ShardTest, TheBucketsOfParametersNeedIds) {
  Schedule schedule = two_buckets();
  schedule.buckets[1].id = BucketId{kLargestId - 2};
  EXPECT_EQ(sharded(two_layers(), schedule).buckets[1].parameters, BucketId{kLargestId});
  schedule.buckets[1].id = BucketId{kLargestId - 1};
  EXPECT_EQ(reason_of(shard_updates(two_layers(), schedule)),
            "no ids are left behind bucket 16777214 for the buckets of the sharded parameters");
}

TEST(ShardTest, OtherBucketsKeepTheirUpdates) {
  Schedule schedule = two_buckets();
  schedule.buckets[1].collective = Collective::AllReduce;
  const Sharded result = sharded(two_layers(), schedule);
  EXPECT_EQ(result.program.op(kAUpdate), two_layers().op(kAUpdate));
  EXPECT_EQ(result.buckets.size(), 1U);
}

TEST(ShardTest, A19MergedGradientsAreShardedOnce) {
  Program program = two_layers();
  Schedule schedule = one_bucket(Collective::ReduceScatter);
  schedule.merge = Merge{.micro_steps = 2};
  program = applied<Rewritten>(merge_micro_steps(std::move(program), schedule.merge)).program;
  const Sharded result = sharded(program, schedule);
  const TensorId sum = bucketed(result.program, kBGrad, SyncPoint::LastMicroStep);
  EXPECT_EQ(op_called(result.program, "bucket3.update").reads.front(), sum);
}

// Each micro-step scatters its gradients, and a rank adds up its shards where their bucket of sums lies.
TEST(ShardTest, A16A19ShardsOfEveryMicroStepAreAddedUp) {
  Schedule schedule = one_bucket(Collective::ReduceScatter);
  schedule.merge = Merge{.micro_steps = 2, .sync = SyncPoint::EveryMicroStep};
  const Program program =
      applied<Rewritten>(merge_micro_steps(two_layers(), schedule.merge)).program;
  const Sharded result = sharded(program, schedule);
  const ShardedBucket& bucket = result.buckets.front();
  ASSERT_TRUE(bucket.sums);
  EXPECT_NE(*bucket.sums, bucket.parameters);
  const Op& update = op_called(result.program, "bucket3.update");
  EXPECT_EQ(std::get<ShardUpdate>(update.effect).gradients, *bucket.sums);
  const std::int64_t ranks = program.group(schedule.buckets[0].group).size();
  int sums = 0;
  for (const Op& op : result.program.ops) {
    const auto* sum = std::get_if<Accumulate>(&op.effect);
    if (sum == nullptr) continue;
    ++sums;
    EXPECT_TRUE(sum->shard) << op.name;
    const Bytes whole = std::get<MemoryWork>(op_called(program, op.name).work).bytes;
    EXPECT_EQ(std::get<MemoryWork>(op.work).bytes.count() * ranks, whole.count()) << op.name;
    EXPECT_EQ(std::ranges::count(update.reads, op.writes.front()), 1) << op.name;
  }
  EXPECT_EQ(sums, 2 * 2);  // gradients x micro-steps
}

struct Refused {
  std::string reason;
  void (*change)(Program&, Schedule&);
};

TEST(ShardTest, RefusesWhatCannotBeCut) {
  const std::vector<Refused> cases = {
      {"optimizer op b.update is not known to be an update, so it needs whole gradients",
       [](Program& program, Schedule&) { op_in(program, kBUpdate).effect = Opaque{}; }},
      {"update b.update is not elementwise, so it needs whole gradients",
       [](Program& program, Schedule&) {
         op_in(program, kBUpdate).effect = Update{.elementwise = false};
       }},
      {"gradient a.grad lies only partly in reduce-scattered buckets (5 of 8 elements)",
       [](Program&, Schedule& schedule) {
         schedule.buckets[0].gradients[1] = Slice(kAGrad, 0, 5);
       }},
      {"update a.update reads b.grad, which is not reduce-scattered, beside gradients that are",
       [](Program& program, Schedule& schedule) {
         op_in(program, kAUpdate).reads = {kAGrad, kBGrad};
         op_in(program, kAUpdate).writes = {kA, kB};
         schedule.buckets[0].gradients = {Slice(kAGrad)};
       }},
      {"update b.update reads 2 gradients and writes 1 parameters",
       [](Program& program, Schedule&) { op_in(program, kBUpdate).reads.push_back(kAGrad); }},
      {"two updates read gradient b.grad",
       [](Program& program, Schedule&) {
         op_in(program, kAUpdate).reads = {kBGrad, kB};
         op_in(program, kAUpdate).writes = {kB};
       }},
      {"no update reads gradient a.grad",
       [](Program& program, Schedule&) { program.ops.pop_back(); }},
      {"gradient a.grad has 8 elements, its parameter a 7",
       [](Program& program, Schedule&) { program.tensors[0].shape = {7}; }},
      {"optimizer op average needs the whole of a, which is sharded",
       [](Program& program, Schedule&) {
         program.ops.push_back(op_of(OpId{9}, "average", Phase::Optimizer, {kA}, {}));
       }},
      {"backward op second.order needs the whole of a.grad, which is reduce-scattered",
       [](Program& program, Schedule&) {
         ProgramEditor editor(program);
         editor.insert_after(
             kABackward, {op_of(OpId{9}, "second.order", Phase::Backward, {kAGrad}, {kAOutGrad})});
         program = std::move(editor).commit();
       }},
      {"updates b.update and a.update of one bucket rescale differently",
       [](Program& program, Schedule&) {
         op_in(program, kBUpdate).effect = Update{.elementwise = true, .rescale = Rational(1, 2)};
       }},
      {"update b.update: the work of a shard of it is not known",
       [](Program& program, Schedule&) { op_in(program, kBUpdate).work = CollectiveWork{}; }}};
  for (const Refused& refused : cases) {
    Program program = two_layers();
    Schedule schedule = one_bucket(Collective::ReduceScatter);
    refused.change(program, schedule);
    EXPECT_EQ(reason_of(shard_updates(program, schedule)), refused.reason);
  }
}

TEST(ShardWorkTest, MemoryAndTimedWorkDoNotMix) {
  WorkSum sum;
  EXPECT_TRUE(sum.add(MemoryWork{Bytes(8), Flop(2)}, {.part = 1, .whole = 2}));
  EXPECT_FALSE(sum.add(TimedWork{{Duration(10)}}, {.part = 1, .whole = 2}));
  EXPECT_EQ(sum.total(), Work(MemoryWork{Bytes(4), Flop(1)}));
}

TEST(ShardWorkTest, RepetitionsOfOneProductAreSharedOutAndRoundedTogether) {
  // Half of 5 and half of 2 repetitions are 2.5 + 1: rounded once, 4.
  WorkSum sum;
  const GemmWork unit{.m = 96, .n = 96, .k = 96, .count = 5};
  EXPECT_TRUE(sum.add(unit, {.part = 1, .whole = 2}));
  GemmWork less = unit;
  less.count = 2;
  EXPECT_TRUE(sum.add(less, {.part = 1, .whole = 2}));
  GemmWork total = unit;
  total.count = 4;
  EXPECT_EQ(sum.total(), Work(total));
}

TEST(ShardWorkTest, DifferentProductsDoNotAddUp) {
  WorkSum sum;
  EXPECT_TRUE(sum.add(GemmWork{.m = 2, .n = 2, .k = 2, .count = 4}, {.part = 1, .whole = 4}));
  EXPECT_FALSE(sum.add(GemmWork{.m = 3, .n = 2, .k = 2, .count = 4}, {.part = 1, .whole = 4}));
  EXPECT_FALSE(sum.add(MemoryWork{Bytes(8), Flop(2)}, {.part = 1, .whole = 2}));
  EXPECT_EQ(sum.total(), Work(GemmWork{.m = 2, .n = 2, .k = 2, .count = 1}));
}

}  // namespace
}  // namespace dovetail::schedule::rewrite_test
