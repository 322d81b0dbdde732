// Joined policies: each pair makes a legal schedule, or is refused by a sentence that somebody wrote down.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/combinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/policies.h"
#include "tests/schedule/policies/applied.h"
#include "tests/schedule/verify/verify_programs.h"

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four layers of 8, 24, 40 and 16 parameters on two ranks, per stage.
Program four_layers() { return training({8, 24, 40, 16}, 2); }

Program program_for(const Policy& policy, Program program = four_layers()) {
  if (!policy.decisions.stages) return program;
  Rewrite outcome = assign_stages(std::move(program), split_of(policy));
  return std::get<Rewritten>(std::move(outcome)).program;
}

std::string why_not(const std::string& text) {
  try {
    parse_policy(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool stands_in_the_table(const std::string& message) {
  return std::ranges::any_of(refused_combinations(), [&](const Combination& row) {
    return message.find(std::string(to_string(row.one)) + " with " +
                        std::string(to_string(row.other)) + ": " + std::string(row.reason)) !=
           std::string::npos;
  });
}

void expect_legal(const std::string& text, const Program& of = four_layers()) {
  SCOPED_TRACE(text);
  const Policy policy = parse_policy(text);
  EXPECT_EQ(parse_policy(to_string(policy)), policy) << to_string(policy);
  const Program program = program_for(policy, of);
  Schedule schedule;
  if (needs_costs(policy)) {
    schedule = partition(program, std::vector<std::size_t>{1, 3, 4}, policy);
  } else {
    const PolicyResult result = apply_policy(program, policy);
    ASSERT_EQ(result.failure, std::nullopt);
    schedule = result.schedule;
  }
  ASSERT_FALSE(schedule.buckets.empty());
  EXPECT_THAT(complaints(program, schedule), IsEmpty());
}

// What is tried beside each policy: another policy, or an option that stands for itself.
std::vector<std::string> partners() {
  std::vector<std::string> all = policy_names();
  for (const char* option :
       {"streams=2", "streams=3", "k=2", "k=2,sync=every", "k=2,sync=after", "collectives=async",
        "scope=whole-stream", "wait=end-of-backward", "mode=copy", "scale=optimizer"}) {
    all.emplace_back(option);
  }
  return all;
}

TEST(CombinationsTest, EveryPairIsLegalOrRefusedByASentenceOfTheTable) {
  std::size_t legal = 0;
  std::size_t refused = 0;
  for (const std::string& one : policy_names()) {
    for (const std::string& other : partners()) {
      const std::string text = one + "+" + other;
      const std::string reason = why_not(text);
      if (reason.empty()) {
        ++legal;
        expect_legal(text);
        continue;
      }
      ++refused;
      const bool twice = reason.find(" both decide ") != std::string::npos ||
                         reason.find(" stands twice") != std::string::npos;
      EXPECT_TRUE(twice || stands_in_the_table(reason)) << text << ": " << reason;
    }
  }
  EXPECT_GT(legal, 150U);
  EXPECT_GT(refused, 100U);
}

// Each backward op of a layer as two: the gradient that it hands on, then the one that it owes.
Program in_two(Program program) {
  std::vector<Op> ops;
  for (Op& op : program.ops) {
    ops.push_back(op);
    if (op.phase != Phase::Backward || op.writes.size() != 2) continue;
    ops.back().writes = {op.writes[1]};
    op.name += ".weight";
    op.writes.pop_back();
    op.reads.erase(op.reads.begin());  // the weight itself
    op.id = OpId{op.id.value + 300};
    ops.push_back(std::move(op));
  }
  program.ops = std::move(ops);
  return program;
}

TEST(CombinationsTest, APipelineOfShardsIsLegalInEveryOrder) {
  for (const char* stages :
       {"pipeline:stages=2,k=3", "pipeline:stages=4,k=4", "pipeline:kind=sequential,stages=2,k=2",
        "pipeline:kind=interleaved,stages=2,chunks=2,k=4", "pipeline:kind=zero-bubble,stages=2,k=3",
        "pipeline:kind=zbv,stages=2,chunks=2,k=3",
        "pipeline:kind=interleaved,stages=2,chunks=2,k=4,align=across-stages"}) {
    for (const char* shards :
         {"fsdp:forward=2,backward=2", "fsdp:forward=0,backward=0", "fsdp:reshard=no",
          "fsdp:cap=256B,streams=2", "fsdp+threshold:cap=128B", "sharded:cap=256B",
          "sharded:cap=256B,p=1,gather=next-forward", "sharded+threshold:cap=128B"}) {
      expect_legal(std::string(stages) + "+" + shards, in_two(four_layers()));
      expect_legal(std::string(stages) + "+" + shards, in_two(with_experts({8, 24, 40, 16})));
    }
  }
}

// Stage 0 has l0 and l1, stage 1 l2 and l3: of either one is an expert. Each stage takes the norm of its own
// shards over both groups before the stages add up.
TEST(CombinationsTest, ANormOfAPipelineIsThatOfAllStages) {
  const Policy policy = parse_policy("pipeline:stages=2,k=2+sharded");
  const Program program = program_for(policy, with_experts({8, 24, 40, 16}));
  const ScheduledProgram plan = lower(program, make_schedule(program, policy)).program;
  const auto norms = [&](std::size_t role) {
    std::string names;
    for (const Command& command : plan.roles[role].commands) {
      const auto op = op_run_by(command);
      if (!op || !plan.program.op(*op).name.starts_with("norm")) continue;
      names += plan.program.op(*op).name + " ";
    }
    return names;
  };
  EXPECT_EQ(norms(0),
            "norm norm.all-reduce norm.dp norm.dp.all-reduce norm.dp.add norm.across-stages ");
  EXPECT_EQ(norms(1),
            "norm.stage1 norm.stage1.all-reduce norm.stage1.dp norm.stage1.dp.all-reduce "
            "norm.stage1.dp.add norm.stage1.across-stages ");
}

// Two stages of two layers, two micro-batches in the order F0 F1 B0 B1 on stage 0: each block is gathered for
// each of the four, what is not given up between forward and backward only once.
TEST(CombinationsTest, ABlockIsGatheredForEachMicroBatchUnlessItStays) {
  const auto gathers = [](const std::string& text) {
    const Policy policy = parse_policy(text);
    const Program program = program_for(policy);
    const ScheduledProgram plan = lower(program, make_schedule(program, policy)).program;
    return std::ranges::count_if(plan.roles.front().commands, [](const Command& command) {
      const auto* run = bucket_collective(command);
      return run != nullptr && run->kind == Collective::AllGather;
    });
  };
  EXPECT_EQ(gathers("pipeline:stages=2,k=2+fsdp"), 2 * 2 * 2);  // blocks, directions, micro-batches
  EXPECT_EQ(gathers("pipeline:stages=2,k=2+fsdp:reshard=no"), 2);
}

TEST(CombinationsTest, EveryRowOfTheTableRefusesSomething) {
  std::set<std::string> met;
  for (const char* text :
       {"pipeline:sync=every", "threshold:batch=2,k=2,sync=after,wait=before-next-batch",
        "source-first-fit+fsdp", "source-first-fit+streams=2", "naive+streams=2", "naive+fsdp",
        "fsdp+streams=3", "pipeline+fsdp:limit=2", "pipeline+exact"}) {
    const std::string reason = why_not(text);
    EXPECT_TRUE(stands_in_the_table(reason)) << text << ": " << reason;
    met.insert(reason.substr(reason.find("\": ") + 3));
  }
  EXPECT_EQ(met.size(), refused_combinations().size());
}

TEST(CombinationsTest, TheDocumentationHoldsTheTable) {
  const std::string page = read_file(DOVETAIL_SOURCE_DIR "/docs/schedules.md");
  for (const Combination& row : refused_combinations()) {
    EXPECT_THAT(page, HasSubstr("| " + std::string(to_string(row.one)) + " | " +
                                std::string(to_string(row.other)) + " | " +
                                std::string(row.reason) + " |"));
  }
}

TEST(CombinationsTest, TheOrderOfTermsDoesNotMatter) {
  for (const auto& [one, other] :
       {std::pair("pipeline:stages=2", "torch-ddp:cap=64B"),
        std::pair("gradient-merge:k=2", "threshold"),
        std::pair("fsdp:forward=2", "threshold:cap=64B"),
        std::pair("pipeline:stages=2", "sharded:cap=256B"), std::pair("pipeline", "fsdp")}) {
    const std::string first = one;
    const std::string second = other;
    EXPECT_EQ(parse_policy(first + "+" + second).decisions,
              parse_policy(second + "+" + first).decisions)
        << first << " " << second;
  }
}

TEST(CombinationsTest, AJoinedPolicyIsPrintedTermByTerm) {
  for (const auto& [typed, printed] :
       {std::pair("pipeline:stages=4+fsdp:forward=2",
                  "pipeline:kind=1f1b,stages=4+fsdp:blocks=layer,forward=2,backward=1"),
        std::pair("pipeline:stages=4+torch-ddp:cap=25MiB",
                  "pipeline:kind=1f1b,stages=4+torch-ddp:cap=25MiB,first=1MiB"),
        std::pair("sharded+streams=2", "sharded:cap=100MiB,p=2,streams=2"),
        std::pair("gradient-merge:k=8+threshold:closes=before-exceeding",
                  "gradient-merge:k=8+threshold:cap=25MiB,closes=before-exceeding"),
        std::pair("threshold+k=2,scale=optimizer", "threshold:cap=25MiB,k=2,scale=optimizer")}) {
    EXPECT_EQ(to_string(parse_policy(typed)), printed);
  }
}

TEST(CombinationsTest, WhatTwoTermsDecideBothIsRefusedByName) {
  EXPECT_THAT(why_not("torch-ddp+threshold"),
              HasSubstr("torch-ddp and threshold both decide grouping"));
  EXPECT_THAT(why_not("pipeline:k=8+gradient-merge:cap=1MiB"), HasSubstr("both decide"));
  EXPECT_THAT(why_not("pipeline+torch-ddp:k=8"),
              HasSubstr("pipeline and torch-ddp both decide accumulation"));
  EXPECT_THAT(why_not("pipeline:cap=1MiB+threshold"),
              HasSubstr("pipeline and threshold both decide grouping"));
  EXPECT_THAT(why_not("torch-ddp:mode=view+mode=copy"), HasSubstr("\"mode\" stands twice"));
  EXPECT_THAT(why_not("torch-ddp+stages=2"), HasSubstr("it is an option of pipeline"));
}

TEST(CombinationsTest, AListOfPoliciesIsCutBetweenThem) {
  EXPECT_EQ(
      split_policies("torch-ddp:cap=8MiB,sharded+streams=2,mode=view,pipeline:stages=2+fsdp,exact"),
      (std::vector<std::string>{"torch-ddp:cap=8MiB", "sharded+streams=2,mode=view",
                                "pipeline:stages=2+fsdp", "exact"}));
}

// Buckets are dealt over two communicators in turn; on each stage of a pipeline from the first on.
TEST(CombinationsTest, StreamsDealBucketsInTurn) {
  const auto streams = [](const std::string& text) {
    const Policy policy = parse_policy(text);
    std::vector<std::int32_t> indices;
    for (const Bucket& bucket : make_schedule(program_for(policy), policy).buckets) {
      indices.push_back(std::get<CommStream>(bucket.stream).index);
    }
    return indices;
  };
  EXPECT_EQ(streams("per-tensor+streams=2"), (std::vector<std::int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(streams("pipeline:stages=2+per-tensor+streams=2"),
            (std::vector<std::int32_t>{0, 1, 0, 1}));
}

}  // namespace
}  // namespace dovetail::schedule::verify_test
