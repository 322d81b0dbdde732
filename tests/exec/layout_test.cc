// Where tensors lie in the memory of a rank, and what its collectives send from where to where.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/device/layout.h"

#include "base/error.h"
#include "exec/compute_only.h"
#include "exec/cuda/stand_in.h"
#include "exec/device/message.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "tests/exec/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace dovetail::exec {
namespace {

using schedule::Collective;
using schedule::DType;
using schedule::ScheduledProgram;
using testing::kAGrad;
using testing::kANumel;
using testing::kBGrad;
using testing::kBNumel;
using testing::kCGrad;
using testing::kCNumel;

// Bucket 0: c and b, bucket 1: a; both scattered over two ranks.
ScheduledProgram scattered(std::int64_t ranks = 2) {
  const schedule::Program program = testing::three_layers(ranks);
  schedule::Schedule schedule = testing::two_buckets_of(program);
  for (schedule::Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
  return testing::plan_of(program, schedule);
}

ScheduledProgram reduced(schedule::BucketMode mode, DType dtype = DType::F32) {
  schedule::Program program = testing::three_layers(2);
  for (schedule::Tensor& tensor : program.tensors) tensor.dtype = dtype;
  schedule::Schedule schedule = testing::two_buckets_of(program);
  for (schedule::Bucket& bucket : schedule.buckets) bucket.mode = mode;
  return testing::plan_of(program, schedule);
}

TEST(LayoutTest, ViewMembersAreWindowsOfTheirBucket) {
  const Layout layout(reduced(schedule::BucketMode::View), Rank{0}, Scope::Communicated);
  const Region bucket = layout.bucket(BucketId{0});
  // c lies first, b behind it: 41 x 4 = 164 bytes further on.
  EXPECT_EQ(layout.tensor(kCGrad), (Region{bucket.offset, kCNumel, Element::F32}));
  EXPECT_EQ(layout.tensor(kBGrad), (Region{bucket.offset + 164, kBNumel, Element::F32}));
}

TEST(LayoutTest, CopiedMembersHaveMemoryOfTheirOwn) {
  const Layout layout(reduced(schedule::BucketMode::Copy), Rank{0}, Scope::Communicated);
  const Region bucket = layout.bucket(BucketId{0});
  for (const TensorId id : {kCGrad, kBGrad}) {
    const Region own = layout.tensor(id);
    EXPECT_TRUE(own.offset + own.bytes() <= bucket.offset ||
                own.offset >= bucket.offset + bucket.bytes());
  }
  EXPECT_EQ(layout.members(BucketId{0}).at(1).region.offset, bucket.offset + 164);
}

TEST(LayoutTest, HalfPrecisionHalvesEveryOffset) {
  const Layout layout(reduced(schedule::BucketMode::View, DType::BF16), Rank{0},
                      Scope::Communicated);
  const Region bucket = layout.bucket(BucketId{0});
  EXPECT_EQ(layout.tensor(kBGrad), (Region{bucket.offset + 82, kBNumel, Element::BF16}));
}

TEST(LayoutTest, BlocksStartAtMultiplesOf256Bytes) {
  const Layout layout(reduced(schedule::BucketMode::Copy), Rank{0}, Scope::All);
  for (const BucketId id : layout.bucket_ids()) EXPECT_EQ(layout.bucket(id).offset % 256, 0);
  for (const TensorId id : {kAGrad, kBGrad, kCGrad}) EXPECT_EQ(layout.tensor(id).offset % 256, 0);
  EXPECT_EQ(layout.bytes() % 256, 0);
}

TEST(LayoutTest, ScopeAllGivesParametersMemoryToo) {
  const ScheduledProgram plan = reduced(schedule::BucketMode::View);
  EXPECT_FALSE(Layout(plan, Rank{0}, Scope::Communicated).has(testing::kA));
  EXPECT_TRUE(Layout(plan, Rank{0}, Scope::All).has(testing::kA));
}

// c and b are 41 and 333 elements; of their 374 rank 1 has 187 .. 373, all of them b's.
TEST(LayoutTest, ShardMembersAreWhatOfEachMemberLiesInTheShard) {
  const Layout layout(scattered(), Rank{1}, Scope::Communicated);
  const Region bucket = layout.bucket(BucketId{0});
  EXPECT_EQ(layout.shards(BucketId{0}), 2);
  EXPECT_EQ(layout.shard_index(BucketId{0}), 1);
  const Region shard = {bucket.offset + 187 * 4, 187, Element::F32};
  EXPECT_EQ(layout.shard(BucketId{0}), shard);
  const std::vector<MemberRegion> members = layout.shard_members(BucketId{0});
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].tensor, kCGrad);
  EXPECT_EQ(members[0].region.count, 0);
  EXPECT_EQ(members[1], (MemberRegion{kBGrad, 187 - kCNumel, shard}));
}

// As a calibration runs it to time the sharded updates, which would otherwise be those of all shards.
TEST(LayoutTest, ShardsStayShardsWhereTheirCollectivesAreLeftOut) {
  const schedule::Program program = testing::three_layers(2);
  for (const char* policy : {"sharded:cap=1KiB", "fsdp:prefetch=1"}) {
    SCOPED_TRACE(policy);
    const ScheduledProgram plan = exec::without_communication(
        testing::plan_of(program, make_schedule(program, schedule::parse_policy(policy))));
    const Layout layout(plan, Rank{1}, Scope::Communicated);
    ASSERT_FALSE(layout.bucket_ids().empty());
    for (const BucketId id : layout.bucket_ids()) EXPECT_EQ(layout.shards(id), 2);
  }
}

std::int64_t elements_of(const std::vector<Region>& regions) {
  std::int64_t sum = 0;
  for (const Region& region : regions) sum += region.count;
  return sum;
}

TEST(LayoutTest, AReleaseFreesAllButTheShardAndTheMembersOwnMemory) {
  const schedule::Program program = testing::three_layers(2);
  for (const bool is_copied : {false, true}) {
    const char* policy = is_copied ? "fsdp:prefetch=1,mode=copy" : "fsdp:prefetch=1";
    SCOPED_TRACE(policy);
    const ScheduledProgram plan =
        testing::plan_of(program, make_schedule(program, schedule::parse_policy(policy)));
    const Layout layout(plan, Rank{1}, Scope::Communicated);
    std::int64_t freed = 0;
    for (const schedule::BucketLayout& bucket : plan.buckets) {
      const std::vector<Region> regions = layout.released(bucket.bucket);
      const bool is_whole = bucket.residence == schedule::Residence::Whole;
      EXPECT_EQ(regions.empty(), is_whole);
      const Region shard = layout.shard(bucket.bucket);
      std::int64_t kept = 0;
      for (const MemberRegion& member : layout.shard_members(bucket.bucket)) {
        kept += member.region.count;
      }
      for (const Region& region : regions) {
        EXPECT_TRUE(region.offset + region.bytes() <= shard.offset ||
                    region.offset >= shard.offset + shard.bytes());
      }
      if (regions.empty()) continue;
      const std::int64_t members = bucket.payload.count() / 4;
      EXPECT_EQ(elements_of(regions), members - kept + (is_copied ? members : 0));
      freed += elements_of(regions);
    }
    EXPECT_GT(freed, 0);
  }
}

TEST(LayoutTest, PaddingIsWhatNoMemberCovers) {
  ScheduledProgram plan = reduced(schedule::BucketMode::View);
  // c and b: 374 elements, 1496 bytes; the bucket is stretched to 2048, so 552 bytes are padding.
  for (schedule::BucketLayout& layout : plan.buckets) {
    if (layout.bucket == BucketId{0}) layout.size = Bytes(2048);
  }
  const Layout layout(plan, Rank{0}, Scope::Communicated);
  ASSERT_EQ(layout.padding().size(), 1U);
  EXPECT_EQ(layout.padding()[0],
            (Region{layout.bucket(BucketId{0}).offset + 1496, 138, Element::F32}));
}

TEST(LayoutTest, RefusesABucketOfAnotherElementType) {
  ScheduledProgram plan = reduced(schedule::BucketMode::Copy);
  plan.buckets[0].dtype = DType::BF16;
  EXPECT_THROW(Layout(plan, Rank{0}, Scope::Communicated), InputError);
}

TEST(MessageTest, BucketsTravelInPlace) {
  const ScheduledProgram plan = scattered();
  const Layout layout(plan, Rank{1}, Scope::Communicated);
  const schedule::Communicate scatter = {
      .bucket = BucketId{0}, .kind = Collective::ReduceScatter, .group = testing::kAll};
  // 374 elements over two ranks: rank 1 receives elements 187 .. 373 of the buffer where they are.
  const Message message = message_of(plan, layout, Rank{1}, scatter, Peers::Real);
  const std::int64_t start = layout.bucket(BucketId{0}).offset;
  EXPECT_EQ(message.count, 187);
  EXPECT_EQ(message.send.offset, start);
  EXPECT_EQ(message.recv, (Region{start + 187 * 4, 187, Element::F32}));
  EXPECT_EQ(message.index, 1);
  EXPECT_EQ(message.payload_bytes(), 374 * 4);
  EXPECT_EQ(message.label, "reduce-scatter of bucket 0");
}

TEST(MessageTest, AGatherSendsTheShardToTheWhole) {
  const ScheduledProgram plan = scattered();
  const Layout layout(plan, Rank{1}, Scope::Communicated);
  const schedule::Communicate gather = {
      .bucket = BucketId{0}, .kind = Collective::AllGather, .group = testing::kAll};
  const Message message = message_of(plan, layout, Rank{1}, gather, Peers::Real);
  EXPECT_EQ(message.send, layout.shard(BucketId{0}));
  EXPECT_EQ(message.recv, layout.bucket(BucketId{0}));
  EXPECT_EQ(message.count, 187);
}

TEST(MessageTest, RefusesABucketThatIsBroadcast) {
  const ScheduledProgram plan = scattered();
  const Layout layout(plan, Rank{0}, Scope::Communicated);
  EXPECT_THROW(static_cast<void>(message_of(
                   plan, layout, Rank{0},
                   {.bucket = BucketId{0}, .kind = Collective::Broadcast, .group = testing::kAll},
                   Peers::Real)),
               InputError);
}

// Programs with one op of each kind of collective, from a tensor of 8 to one of 8 or fewer.
Message op_message(Collective kind, Rank rank, Peers peers = Peers::Real) {
  ScheduledProgram plan;
  plan.program.world_size = 2;
  const std::int64_t in = kind == Collective::AllGather ? 4 : 8;
  const std::int64_t out = kind == Collective::ReduceScatter ? 4 : 8;
  plan.program.tensors = {{.id = TensorId{0}, .name = "in", .shape = {in}},
                          {.id = TensorId{1}, .name = "out", .shape = {out}}};
  plan.program.groups = {{GroupId{0}, "tp", {Rank{0}, Rank{1}}}};
  schedule::Op op;
  op.id = OpId{0};
  op.name = "talk";
  op.work =
      schedule::CollectiveWork{.kind = kind, .group = GroupId{0}, .bytes = Bytes(32), .root = 1};
  op.reads = {TensorId{0}};
  op.writes = {TensorId{1}};
  plan.program.ops = {op};
  plan.streams = {{StreamId{0}, "compute"}};
  plan.roles = {{{Rank{0}, Rank{1}}, {{CommandId{0}, StreamId{0}, schedule::action_of(op)}}}};
  return message_of(plan, Layout(plan, rank, Scope::Communicated), rank,
                    std::get<schedule::Communicate>(plan.roles[0].commands[0].action), peers);
}

TEST(MessageTest, OpsUseTheirTensors) {
  // in: 32 bytes at 0; out at 256.
  const Message all = op_message(Collective::AllReduce, Rank{0});
  EXPECT_EQ(all.send, (Region{0, 8, Element::F32}));
  EXPECT_EQ(all.recv, (Region{256, 8, Element::F32}));
  EXPECT_EQ(all.count, 8);
  const Message scatter = op_message(Collective::ReduceScatter, Rank{1});
  EXPECT_EQ(scatter.recv.count, 4);
  EXPECT_EQ(scatter.count, 4);
  const Message gather = op_message(Collective::AllGather, Rank{1});
  EXPECT_EQ(gather.send, (Region{0, 4, Element::F32}));
  EXPECT_EQ(gather.count, 4);
  const Message exchange = op_message(Collective::AllToAll, Rank{1});
  EXPECT_EQ(exchange.recv, (Region{256, 8, Element::F32}));
  EXPECT_EQ(exchange.count, 4);
}

TEST(MessageTest, OnlyTheRootSends) {
  // The root is the rank at index 1.
  EXPECT_EQ(op_message(Collective::Broadcast, Rank{1}).send.offset, 0);
  EXPECT_EQ(op_message(Collective::Broadcast, Rank{0}).send.offset, 256);
  EXPECT_EQ(op_message(Collective::SendRecv, Rank{1}).send.offset, 0);
  EXPECT_EQ(op_message(Collective::SendRecv, Rank{0}).recv.offset, 256);
}

TEST(CudaStandInTest, OneRankPlaysTheCommandsOfMany) {
  const ScheduledProgram plan = scattered(4);
  const ScheduledProgram alone = cuda::as_one_rank(plan);
  EXPECT_EQ(alone.program.world_size, 1);
  EXPECT_EQ(alone.roles.size(), 1U);
  EXPECT_EQ(alone.roles[0].commands, plan.roles[0].commands);
  const Layout layout(alone, Rank{0}, Scope::Communicated);
  for (const schedule::BucketLayout& bucket : alone.buckets) {
    EXPECT_EQ(layout.shards(bucket.bucket), 1);
    EXPECT_EQ(layout.bucket(bucket.bucket).bytes(), bucket.size.count());
  }
}

}  // namespace
}  // namespace dovetail::exec
