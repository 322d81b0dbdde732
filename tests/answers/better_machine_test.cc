// A better machine makes no plan slower: of shipped machines, models of the zoo and jobs, with policies of all kinds.
//
// The same commands are played at the costs of a machine and of a better one. On shipped machines a collective alone takes as
// long as one in a queue, so that no table forces anything (models/costs/costs.h).
//
// What remains is an anomaly of schedules: where a transfer ends earlier the next one may begin beside ops that stream through
// memory, which both want, and not beside products. Of 80,000 questions of other seeds (1,000 to 20,999) 88 were slower by more than
// 0.01 %, the worst by 0.33 %. bert_base on h200x8 with torch-ddp is slower by up to 0.35 % between 2.5 and 5.6 times its link, and
// never where its collectives have no traffic in memory.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "base/random.h"
#include "models/costs/scaled_costs.h"
#include "models/networks/text.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "sim/steady.h"
#include "tests/support/cases.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

const std::string kShipped = DOVETAIL_SOURCE_DIR "/models";

constexpr std::array kShippedMachines = {"a100x8",       "h100x8",     "h200x8",       "b200x8",
                                         "l40sx8",       "mi300x8",    "h100x16_tcpx", "a100x16_ib",
                                         "b200x16_roce", "a100x4_pcie"};
// With times for groups of any size.
constexpr std::array kFamilies = {"a100x16", "h100x8",  "h100x16", "h200x16",
                                  "b200x16", "gb200x8", "l40sx16"};
constexpr std::array kZooModels = {"mlp", "resnet50", "gpt2", "bert_base", "vgg16"};
constexpr std::array kSomePolicies = {"torch-ddp",
                                      "torch-ddp:cap=4MiB",
                                      "threshold:cap=16MiB",
                                      "threshold:cap=8MiB,streams=2",
                                      "one-bucket",
                                      "fsdp",
                                      "fsdp:cap=20MiB,prefetch=3",
                                      "sharded:p=2",
                                      "sharded:p=1,gather=next-forward",
                                      "gradient-merge:k=2"};
constexpr std::array kLayouts = {
    "dp=",      "dp_shard=",      "dp_shard=@,gbs=32,mbs=2",    "tp=2,dp=",
    "pp=2,dp=", "dp=2,dp_shard=", "tp=2,async_tp=yes,dp_shard="};

struct Played {
  schedule::ScheduledProgram program;
  models::Costs costs;
};

template <class List>
std::string drawn(Random& random, const List& list) {
  return list[static_cast<std::size_t>(random.between(0, std::ssize(list) - 1))];
}

Played zoo_case(Random& random) {
  const std::string machine = drawn(random, kShippedMachines);
  const std::string model = drawn(random, kZooModels);
  const std::string policy = drawn(random, kSomePolicies);
  Inputs inputs = load_inputs({.workload = model, .cluster = machine, .data_dir = kShipped});
  const schedule::Schedule schedule =
      schedule::make_schedule(inputs.program, schedule::parse_policy(policy));
  return {schedule::lower(inputs.program, schedule).program, std::move(inputs.machine.costs)};
}

Played job_case(Random& random) {
  const std::string machine = drawn(random, kFamilies);
  const models::Cluster cluster = load_cluster(machine, kShipped);
  std::string layout = drawn(random, kLayouts);
  std::int64_t rest = cluster.ranks;
  for (const char* degree : {"tp=2", "pp=2", "dp=2"}) {
    if (layout.find(degree) != std::string::npos) rest /= 2;
  }
  const std::size_t at = layout.find('@');
  if (at == std::string::npos) {
    layout += std::to_string(rest) + ",gbs=" + std::to_string(cluster.ranks * 2);
  } else {
    layout.replace(at, 1, std::to_string(rest));
  }
  const std::string job = ":" + layout + ",seq=2048";
  LoweredJob lowered = lower_job(jobs::parse_job(testing::kShortLlama + job), cluster);
  return {std::move(lowered.program), std::move(lowered.costs)};
}

std::int64_t step_of(const Played& of, const models::Costs& costs) {
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  return sim::find_steady_state(of.program, costs, compiled, workspace).summary.step_ns;
}

// How much slower, as a part of the step.
double most_lost(int from, int to) {
  double most = 0;
  for (int seed = from; seed < to; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    Played played = random.between(0, 1) == 0 ? zoo_case(random) : job_case(random);
    // Better machines of what is better already: memory is scarce beside fast links.
    played.costs =
        models::scaled(played.costs, models::CostPart::Link, 1 / (1 + 3 * random.uniform()));
    const std::int64_t before = step_of(played, played.costs);
    for (const models::CostPart part : {models::CostPart::Link, models::CostPart::Latency,
                                        models::CostPart::Compute, models::CostPart::Host}) {
      const double factor = 0.3 + 0.69 * random.uniform();
      const std::int64_t after = step_of(played, models::scaled(played.costs, part, factor));
      const double lost = static_cast<double>(after - before) / static_cast<double>(before);
      most = std::max(most, lost);
    }
  }
  return most;
}

// Two transfers in flight wanted all of the memory from 1.56 times the link on, and copies stood still beside them: at twice the link
// the step took 1.3 % longer than at once.
TEST(BetterMachineTest, ShardedLlamaIsNoSlowerOnAFasterLink) {
  LoweredJob lowered = lower_job(jobs::parse_job("llama3_8b:dp_shard=8,gbs=64,seq=4096"),
                                 load_cluster("h100x8", kShipped));
  const Played played{std::move(lowered.program), std::move(lowered.costs)};
  std::int64_t least = step_of(played, played.costs);
  for (const double link : {1.2, 1.5, 1.7, 2.0, 3.0, 4.0, 8.0}) {
    const std::int64_t step =
        step_of(played, models::scaled(played.costs, models::CostPart::Link, 1 / link));
    EXPECT_LT(step, least) << link;
    least = step;
  }
}

TEST(BetterMachineTest, NoPlanIsSlower) { EXPECT_LE(most_lost(0, testing::few_cases(400)), 0.005); }
TEST(BetterMachineTest, NorAreFourHundredOthers) {
  EXPECT_LE(most_lost(400, 400 + testing::few_cases(400)), 0.005);
}

}  // namespace
}  // namespace dovetail::predict
