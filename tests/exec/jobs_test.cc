// Jobs on real ranks: tensor, context, expert and pipeline parallelism with gradients summed, every value that travels
// compared with what it must be; and a wrong element is found in every kind of message.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/job.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "exec/cpu/transport.h"
#include "exec/legal.h"
#include "exec/values/dataflow.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "tests/exec/programs.h"

namespace dovetail::exec::testing {
namespace {

using schedule::CollectiveWork;
using schedule::Command;
using schedule::ScheduledProgram;

// "tiny_llama:tp=2": the model of tests/models/networks/data of that name, every type f32.
ScheduledProgram plan_of_job(const std::string& text) {
  const std::size_t colon = text.find(':');
  const jobs::Job job =
      jobs::parse_job(DOVETAIL_SOURCE_DIR "/tests/models/networks/data/" + text.substr(0, colon) +
                      "/config.json" + text.substr(colon) + ",dtype=f32");
  schedule::Plan source;
  source.program = jobs::program_of(job);
  source.schedule = schedule::make_schedule(source.program, jobs::policy_of(job));
  ScheduledProgram plan = schedule::lower(source.program, source.schedule).program;
  require_legal(source, plan, text);
  return plan;
}

constexpr RunOptions kTwoSteps = {.warmup = 0, .steps = 2};

// What a message is for and how it travels.
using Kind = std::pair<schedule::Purpose, schedule::Collective>;

const CollectiveWork* message_run_by(const ScheduledProgram& plan, const Command& command) {
  const std::optional<OpId> op = schedule::op_run_by(command);
  return op ? std::get_if<CollectiveWork>(&plan.program.op(*op).work) : nullptr;
}

std::set<Kind> kinds_in(const ScheduledProgram& plan) {
  std::set<Kind> kinds;
  for (const schedule::RankProgram& role : plan.roles) {
    for (const Command& command : role.commands) {
      const CollectiveWork* work = message_run_by(plan, command);
      if (work != nullptr) kinds.emplace(work->purpose, work->kind);
    }
  }
  return kinds;
}

// Of the messages whose values some reader on some rank is held to, at once or behind further messages.
std::set<Kind> checked_kinds(const ScheduledProgram& plan) {
  std::set<Kind> kinds;
  for (std::int32_t rank = 0; rank < plan.program.world_size; ++rank) {
    std::set<TensorId> seen;
    for (const auto& look : values::expectations(plan, Rank{rank}).observations) {
      seen.insert(look.tensor);
    }
    for (auto op = plan.program.ops.rbegin(); op != plan.program.ops.rend(); ++op) {
      const auto* work = std::get_if<CollectiveWork>(&op->work);
      if (work == nullptr || op->writes.empty() || !seen.contains(op->writes.front())) continue;
      kinds.emplace(work->purpose, work->kind);
      seen.insert(op->reads.begin(), op->reads.end());
    }
  }
  return kinds;
}

// Messages of these labels arrive with a first element that is off by a thousand.
class Damaging final : public cpu::Transport {
 public:
  Damaging(std::unique_ptr<cpu::Transport> inner, const std::set<std::string>& labels)
      : inner_(std::move(inner)), labels_(labels) {}

  void all_reduce(std::span<float> data, schedule::ReduceOp op, std::string_view label) override {
    inner_->all_reduce(data, op, label);
    damage(data, label);
  }
  void reduce_scatter(std::span<float> data, std::span<float> shard, schedule::ReduceOp op,
                      std::string_view label) override {
    inner_->reduce_scatter(data, shard, op, label);
    damage(shard, label);
  }
  void all_gather(std::span<const std::byte> shard, std::span<std::byte> data,
                  std::string_view label) override {
    inner_->all_gather(shard, data, label);
    damage_bytes(data, label);
  }
  void all_to_all(std::span<const float> data, std::span<float> received,
                  std::string_view label) override {
    inner_->all_to_all(data, received, label);
    damage(received, label);
  }
  void broadcast(std::span<float> data, std::size_t root, std::string_view label) override {
    inner_->broadcast(data, root, label);
    damage(data, label);
  }
  void send(std::span<const float> data, std::string_view label) override {
    inner_->send(data, label);
  }
  void receive(std::span<float> data, std::string_view label) override {
    inner_->receive(data, label);
    damage(data, label);
  }

 private:
  void damage(std::span<float> data, std::string_view label) const {
    damage_bytes(std::as_writable_bytes(data), label);
  }
  void damage_bytes(std::span<std::byte> data, std::string_view label) const {
    if (!labels_.contains(std::string(label))) return;
    float first = 0;
    std::memcpy(&first, data.data(), sizeof first);
    first += 1000;
    std::memcpy(data.data(), &first, sizeof first);
  }

  std::unique_ptr<cpu::Transport> inner_;
  const std::set<std::string>& labels_;
};

std::int64_t wrong_when_damaged(const ScheduledProgram& plan, const std::set<std::string>& labels) {
  return run_over_ring(plan, kTwoSteps,
                       [&labels](std::unique_ptr<cpu::Transport> inner) {
                         return std::make_unique<Damaging>(std::move(inner), labels);
                       })
      .wrong;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

class JobsOnRanksTest : public ::testing::TestWithParam<std::string> {};

TEST_P(JobsOnRanksTest, FindEveryValueThatTravels) {
  const ScheduledProgram plan = plan_of_job(GetParam());
  EXPECT_EQ(checked_kinds(plan), kinds_in(plan));
  const CheckResult check = run_over_ring(plan, kTwoSteps);
  EXPECT_EQ(check.wrong, 0) << check.first_wrong;
  EXPECT_GT(check.checked, 0);
  RecordProperty("checked", std::to_string(check.checked));
}

class TiedJobsTest : public ::testing::TestWithParam<std::string> {};

// What the update of a weight must find on a rank.
std::vector<values::Term> updated_with(const ScheduledProgram& plan, Rank rank,
                                       const std::string& weight) {
  for (const auto& look : values::expectations(plan, rank).observations) {
    const schedule::Op& op = plan.program.op(look.op);
    if (op.phase != schedule::Phase::Optimizer) continue;
    if (plan.program.tensor(look.tensor).name.starts_with(weight + ".grad"))
      return look.expected.front().terms;
  }
  return {};
}

TEST_P(TiedJobsTest, BothStagesUpdateTheirCopyWithTheSameSum) {
  const ScheduledProgram plan = plan_of_job(GetParam());
  const auto stage = static_cast<std::int32_t>(plan.program.world_size / plan.program.stages);
  for (std::int32_t rank = 0; rank < stage; ++rank) {
    const auto first = updated_with(plan, Rank{rank}, "model.embed_tokens.weight");
    ASSERT_FALSE(first.empty());
    // Of two gradients, each of every micro-batch.
    std::set<TensorId> summed;
    for (const values::Term& term : first) summed.insert(term.tensor);
    EXPECT_EQ(summed.size(), 2U);
    const Rank last{static_cast<std::int32_t>(plan.program.world_size) - stage + rank};
    EXPECT_EQ(first, updated_with(plan, last, "lm_head.tied.weight"));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TiedJobsTest,
                         ::testing::Values("tiny_tied:pp=4,gbs=8",
                                           "tiny_tied:pp=4,schedule=zero-bubble,gbs=8",
                                           "tiny_tied:tp=2,pp=2,dp=2,gbs=8",
                                           "tiny_tied:pp=2,dp=2,zero=1,gbs=8",
                                           "tiny_tied:pp=2,dp_shard=2,gbs=8"),
                         name_of);

// One message of each kind, the last of the step, and then the sums of gradients.
class DamagedJobsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DamagedJobsTest, AWrongElementIsFoundInEveryKindOfMessage) {
  const ScheduledProgram plan = plan_of_job(GetParam());
  std::map<Kind, std::string> last;
  for (const schedule::Op& op : plan.program.ops) {
    const auto* work = std::get_if<CollectiveWork>(&op.work);
    if (work == nullptr || op.writes.empty()) continue;
    last[{work->purpose, work->kind}] = std::string(to_string(work->kind)) + " of op " + op.name;
  }
  for (const auto& [kind, label] : last) {
    EXPECT_GT(wrong_when_damaged(plan, {label}), 0) << to_string(kind.first) << ": " << label;
  }
  std::set<std::string> buckets;
  for (const schedule::BucketLayout& bucket : plan.buckets) {
    for (const char* word : {"all-reduce", "reduce-scatter"}) {
      buckets.insert(word + (" of bucket " + std::to_string(bucket.bucket.value)));
    }
  }
  EXPECT_GT(wrong_when_damaged(plan, buckets), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, JobsOnRanksTest,
    ::testing::Values("tiny_llama:tp=2,pp=2,dp=2,gbs=8", "tiny_llama:tp=2,sp=no,pp=2,dp=2,gbs=4",
                      "tiny_llama:tp=2,pp=2,vp=2,dp=2,gbs=4", "tiny_llama:tp=4,dp=2,gbs=4",
                      "tiny_llama:pp=4,schedule=zero-bubble,gbs=6",
                      "tiny_llama:tp=2,pp=2,schedule=zero-bubble,dp=2,zero=1,gbs=8",
                      "tiny_llama:pp=2,vp=2,schedule=zero-bubble,dp_shard=2,gbs=8",
                      "tiny_llama:pp=2,vp=2,schedule=zbv,dp=2,gbs=6",
                      "tiny_llama:tp=2,pp=2,vp=2,schedule=zbv,dp=2,zero=1,gbs=8",
                      "tiny_llama:pp=2,vp=2,schedule=zbv,dp_shard=2,gbs=8",
                      "tiny_mixtral:ep=2,pp=2,schedule=zero-bubble,dp=2,gbs=4",
                      "tiny_llama:tp=2,dp=2,async_tp=yes", "tiny_llama:tp=2,dp=2,recompute=full",
                      "tiny_llama:cp=2", "tiny_llama:cp=2,tp=2,dp=2",
                      "tiny_llama:tp=2,dp=2,zero=1,gbs=4", "tiny_llama:pp=2,dp=2,zero=1,gbs=8",
                      "tiny_llama:tp=2,pp=2,dp=2,zero=1,gbs=8", "tiny_llama:tp=2,dp_shard=2,gbs=4",
                      "tiny_llama:cp=2,dp_shard=2", "tiny_llama:dp=2,dp_shard=2",
                      "tiny_mixtral:ep=4,dp=4,gbs=8", "tiny_mixtral:ep=2,tp=2,dp=2",
                      "tiny_mixtral:ep=2,pp=2,dp=2,gbs=4", "tiny_mixtral:ep=2,etp=2,tp=2,dp=2",
                      "tiny_mixtral:ep=2,dp=4,zero=1", "tiny_tied:pp=2,gbs=1",
                      "tiny_tied:pp=2,schedule=zero-bubble,dp=2,gbs=8", "tiny_tied:pp=4,gbs=8",
                      "tiny_tied:tp=2,pp=2,dp=2,gbs=8", "tiny_tied:pp=2,vp=2,dp=2,zero=1,gbs=4",
                      "tiny_tied:pp=2,dp=2,zero=2,gbs=8", "tiny_tied:pp=2,dp_shard=2,gbs=8",
                      "tiny_tied:pp=2,dp=2,dp_shard=2,gbs=8", "tiny_llama:tp=2,dp=2,lora=4,gbs=4",
                      "tiny_llama:dp_shard=2,lora=4,gbs=4",
                      "tiny_llama:cp=2,dp=2,zero=1,lora=4,lora_on=attention",
                      "tiny_tied:pp=2,dp_shard=2,lora=2,gbs=4",
                      "tiny_mixtral:ep=2,dp=2,lora=2,lora_on=attention"),
    name_of);

// Between them every purpose with every collective that it has.
INSTANTIATE_TEST_SUITE_P(Layouts, DamagedJobsTest,
                         ::testing::Values("tiny_llama:tp=2,pp=2,dp=2,gbs=4",
                                           "tiny_llama:tp=2,sp=no,dp=2", "tiny_llama:cp=2,dp=2",
                                           "tiny_mixtral:ep=2,dp=2,zero=1",
                                           "tiny_tied:pp=2,dp=2,gbs=4"),
                         name_of);

}  // namespace
}  // namespace dovetail::exec::testing
