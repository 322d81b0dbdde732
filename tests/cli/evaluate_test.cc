// What `dovetail evaluate` answers to a line: figures of a policy and of groups, and a sentence for each mistake.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"
#include "answers/weigher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "schedule/plan_json.h"
#include "tests/cli/tool.h"
#include "tests/support/cases.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::string kData = std::string(DOVETAIL_SOURCE_DIR) + "/models";
constexpr const char* kSite = R"("workload": "mlp", "cluster": "a100x8")";

ordered_json answer_to(Evaluator& evaluator, const std::string& more) {
  return ordered_json::parse(evaluator.answer(std::string("{") + kSite + more + "}"));
}

std::string error_of(const std::string& line) {
  Evaluator evaluator(kData);
  const ordered_json answer = ordered_json::parse(evaluator.answer(line));
  return answer.value("error", "no error");
}

TEST(EvaluateTest, GroupsOfAPolicyCostWhatThePolicyCosts) {
  Evaluator evaluator(kData);
  const std::string text =
      answer_to(evaluator, R"(, "policy": "torch-ddp:cap=4MiB", "want": "plan")").at("plan");
  const schedule::Plan plan = schedule::parse_plan("plan", text);
  ordered_json groups = ordered_json::array();
  for (const schedule::Bucket& bucket : plan.schedule.buckets) {
    ordered_json names = ordered_json::array();
    for (const schedule::Slice& slice : bucket.gradients)
      names.push_back(plan.program.tensor(slice.tensor).name);
    groups.push_back(std::move(names));
  }
  const ordered_json grouped = answer_to(
      evaluator,
      R"(, "policy": "per-tensor:mode=copy,wait=end-of-backward", "groups": )" + groups.dump());
  const ordered_json policy = answer_to(evaluator, R"(, "policy": "torch-ddp:cap=4MiB")");
  EXPECT_EQ(grouped.at("step_us"), policy.at("step_us"));
  EXPECT_EQ(grouped.at("lower_bound_us"), policy.at("lower_bound_us"));
  EXPECT_LE(policy.at("lower_bound_us").get<double>(), policy.at("step_us").get<double>());
}

// The same buckets named one by one, also where updates are sharded, parameters gathered before each use, or a model cut.
TEST(EvaluateTest, GroupsOfEveryKindCostWhatThePolicyCosts) {
  Evaluator evaluator(kData);
  for (const std::string policy :
       {"fsdp:cap=8MiB,prefetch=2", "dear:cap=8MiB", "sharded+threshold:cap=8MiB",
        "pipeline:stages=2,k=4", "gradient-merge:k=2+fsdp:cap=8MiB"}) {
    const std::string asked = R"(, "policy": ")" + policy + "\"";
    const schedule::Plan plan = schedule::parse_plan(
        "plan", answer_to(evaluator, asked + R"(, "want": "plan")").at("plan").get<std::string>());
    ordered_json groups = ordered_json::array();
    for (const schedule::Bucket& bucket : plan.schedule.buckets) {
      groups.push_back(ordered_json::array());
      for (const schedule::Slice& slice : bucket.gradients)
        groups.back().push_back(plan.program.tensor(slice.tensor).name);
    }
    const ordered_json own = answer_to(evaluator, asked + R"(, "groups": )" + groups.dump());
    const ordered_json same = answer_to(evaluator, asked);
    EXPECT_EQ(own.value("step_us", 0.0), same.at("step_us")) << policy << own;
    EXPECT_EQ(own.at("lower_bound_us"), same.at("lower_bound_us")) << policy;
    std::ranges::reverse(groups);
    const ordered_json turned =
        answer_to(evaluator, asked + R"(, "want": "plan", "groups": )" + groups.dump());
    EXPECT_TRUE(turned.contains("plan")) << policy << turned;  // verified
  }
}

TEST(EvaluateTest, GroupsCostTheSameHoweverTheyAreWritten) {
  Evaluator evaluator(kData);
  ordered_json names = ordered_json::array();
  const ordered_json asked = answer_to(evaluator, R"(, "want": "gradients")");
  for (const ordered_json& one : asked.at("gradients")) names.push_back(one.at("name"));
  const std::string plain = names.dump();
  std::string escaped = plain;
  escaped.replace(escaped.find("fc"), 1, "\\u0066");
  const ordered_json cost = answer_to(evaluator, ", \"groups\": [" + plain + "]");
  EXPECT_EQ(cost.at("buckets"), 1);
  EXPECT_EQ(answer_to(evaluator, ",\"groups\" : [ " + names.dump(1) + " ]"), cost);
  EXPECT_EQ(answer_to(evaluator, ", \"groups\": [" + escaped + "]"), cost);
}

TEST(EvaluateTest, AMistakeBesideGroupsIsToldOfTheWholeLine) {
  const std::string groups = R"({"groups": [["fc1.weight.grad"], ["fc2.weight.grad"]], )";
  EXPECT_THAT(error_of(groups + "x"), HasSubstr("column " + std::to_string(groups.size() + 1)));
  EXPECT_THAT(error_of(groups + R"("groups": []})"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of(groups + R"("workload": "mlp", "clustr": "a100x8"})"), HasSubstr("clustr"));
  EXPECT_THAT(error_of(R"({"id": "groups", "want": ["groups"]})"), HasSubstr("/want"));
}

TEST(EvaluateTest, GradientsComeInTheOrderInWhichTheyAreReady) {
  Evaluator evaluator(kData);
  const ordered_json gradients = answer_to(evaluator, R"(, "want": "gradients")").at("gradients");
  ASSERT_GT(gradients.size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(
      gradients, {}, [](const ordered_json& one) { return one.at("ready_us").get<double>(); }));
}

TEST(EvaluateTest, AnsweredAgainIsTheSameAndCarriesItsOwnId) {
  Evaluator evaluator(kData);
  ordered_json first = answer_to(evaluator, R"(, "policy": "ddp", "id": 1)");
  ordered_json second = answer_to(evaluator, R"(, "policy": "ddp", "id": "two")");
  EXPECT_EQ(first.at("id"), 1);
  EXPECT_EQ(second.at("id"), "two");
  first.erase("id");
  second.erase("id");
  EXPECT_EQ(first, second);
}

TEST(EvaluateTest, MoreSitesThanAreKeptAreAnsweredAllTheSame) {
  Evaluator evaluator(kData);
  const ordered_json first = answer_to(evaluator, R"(, "policy": "ddp")");
  for (std::size_t i = 0; i < answers::Weigher::kKept; ++i) {
    const std::string scaled =
        R"(, "policy": "ddp", "what_if": "link=0.)" + std::to_string(11 + i) + "x\"";
    EXPECT_GT(answer_to(evaluator, scaled).at("step_us").get<double>(),
              first.at("step_us").get<double>());
  }
  EXPECT_EQ(answer_to(evaluator, R"(, "policy": "ddp")"), first);
}

// What it decides besides (micro-steps, tensor-parallel collectives) stays.
TEST(EvaluateTest, GradientsOfAJobAreGroupedAsSomebodyNamesThem) {
  Evaluator evaluator(kData);
  const std::string site = R"({"job": "qwen3_0.6b:tp=2,dp=4,gbs=8,seq=512", "cluster": "h100x8")";
  const auto ask = [&](const std::string& more) {
    return ordered_json::parse(evaluator.answer(site + more + "}"));
  };
  const ordered_json gradients = ask(R"(, "want": "gradients")").at("gradients");
  ASSERT_GT(gradients.size(), 100U);
  ordered_json each = ordered_json::array();
  for (const ordered_json& one : gradients) each.push_back(ordered_json::array({one.at("name")}));
  const ordered_json own = ask(R"(, "policy": "per-tensor", "groups": )" + each.dump());
  const ordered_json same = ask(R"(, "policy": "per-tensor")");
  EXPECT_EQ(own.at("step_us"), same.at("step_us")) << own;
  EXPECT_EQ(own.at("buckets"), same.at("buckets"));
  EXPECT_EQ(own.at("micro_steps"), 2);
  const ordered_json by_itself = ask("");
  EXPECT_EQ(own.at("memory"), by_itself.at("memory"));
  EXPECT_EQ(ask(R"(, "notes": true)").at("step_us"), by_itself.at("step_us"));
  EXPECT_THAT(ask(R"(, "want": "plan")").at("plan").get<std::string>(),
              HasSubstr("dovetail.plan/"));
}

// All micro-batches of a long job take what is said of them to a thousandth; both answers are kept apart.
TEST(EvaluateTest, AJobIsPlayedWholeWhereSomebodyAsks) {
  Evaluator evaluator(kData);
  const std::string line =
      R"({"cluster": "h100x64", "job": "mixtral_8x7b:tp=2,pp=8,dp=4,schedule=zbv,vp=2,mbs=2,gbs=512,seq=1024,recompute=selective,reshard=no")";
  const auto step = [&](const std::string& more) {
    return ordered_json::parse(evaluator.answer(line + more + "}")).at("step_us").get<double>();
  };
  const double some = step("");
  const double all = step(R"(, "whole": true)");
  EXPECT_NE(some, all);
  EXPECT_NEAR(some, all, all / 1000);
  EXPECT_EQ(step(R"(, "whole": false)"), some);
}

TEST(EvaluateTest, MistakesAreTheAnswerOfTheirLine) {
  const std::string site = std::string("{") + kSite;
  EXPECT_THAT(error_of("{"), HasSubstr("line: not valid JSON"));
  EXPECT_THAT(error_of(R"({"groups)"), HasSubstr("line: not valid JSON"));
  EXPECT_THAT(error_of(R"({"groups")"), HasSubstr("line: not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("name a workload or a job"));
  EXPECT_THAT(error_of(R"({"workload": "mlp", "clustr": "a100x8"})"),
              HasSubstr("did you mean \"cluster\"?"));
  EXPECT_THAT(error_of(site + R"(, "for": "torch"})"),
              HasSubstr("/for: unknown key; did you mean \"framework\"?"));
  EXPECT_THAT(error_of(R"({"workload": "mlp", "machine": "a100x8"})"),
              HasSubstr("/machine: unknown key; did you mean \"cluster\"?"));
  EXPECT_THAT(error_of(site + R"(, "want": "steps"})"), HasSubstr("step"));
  EXPECT_THAT(error_of(site + R"(, "policy": "dpp"})"), HasSubstr("dpp"));
  EXPECT_THAT(error_of(site + R"(, "framework": "trch"})"), HasSubstr("did you mean torch?"));
  EXPECT_THAT(error_of(site + R"(, "groups": [[]]})"),
              HasSubstr("/groups/0: expected at least one gradient"));
  EXPECT_THAT(error_of(site + R"(, "groups": [["x"]]})"), HasSubstr("no gradient \"x\""));
  EXPECT_THAT(error_of(site + R"(, "policy": "exact", "groups": [["x"]]})"),
              HasSubstr("searches nothing"));
  EXPECT_THAT(error_of(R"({"job": "llama3_8b:dp=8"})"), HasSubstr("a job needs a cluster"));
  EXPECT_THAT(error_of(R"({"job": "llama3_8b:dp=8", "cluster": "h100x8", "world": 8})"),
              HasSubstr("a job says its ranks"));
  EXPECT_THAT(
      error_of(R"({"job": "llama3_8b:dp_shard=8", "cluster": "h100x8", "groups": [["x"]]})"),
      HasSubstr("pp=1, zero=0"));
}

TEST(EvaluateTest, EveryLineHasOneAnswerInItsOrder) {
  std::istringstream in(std::string("{\"id\": 1, ") + kSite +
                        ", \"policy\": \"ddp\"}\n\nnonsense\n{\"id\": 3, " + kSite +
                        ", \"policy\": \"exact\"}");
  std::ostringstream out;
  evaluate({.data_dir = kData}, in, out);
  std::istringstream lines(out.str());
  std::vector<ordered_json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(ordered_json::parse(line));
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0].at("id"), 1);
  EXPECT_TRUE(answers[1].contains("error"));
  EXPECT_EQ(answers[2].at("id"), 3);
}

// The small model needs less than 60 MB, the large job over 170 (a sanitizer reserves terabytes, and so does an arena a thread).
TEST(EvaluateTest, ALineThatEndsInAFaultIsAnsweredAndSoIsTheNext) {
  if (testing::kHasSanitizer) GTEST_SKIP() << "a sanitizer's memory has no limit";
  const std::string large =
      R"({"id": 7, "job": "llama3_405b:tp=8,pp=16,dp=4,seq=8192,gbs=256", "cluster": "h100x512"})";
  const std::string small = std::string("{") + kSite + R"(, "policy": "ddp"})";
  const testing::Ended ended = testing::run_command(
      "printf '%s\\n%s\\n' '" + large + "' '" + small +
      "' | (ulimit -v 110000; MALLOC_ARENA_MAX=1 " + testing::tool() + " evaluate)");
  EXPECT_EQ(ended.code, 0) << ended.output;
  std::istringstream lines(ended.output);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const ordered_json fault = ordered_json::parse(line);
  EXPECT_EQ(fault.at("id"), 7);
  EXPECT_EQ(fault.at("internal"), true);
  EXPECT_EQ(fault.at("line"), large);
  EXPECT_THAT(fault.at("error").get<std::string>(), HasSubstr("bad_alloc; a fault of dovetail"));
  ASSERT_TRUE(std::getline(lines, line));
  Evaluator evaluator(kData);
  EXPECT_EQ(line, evaluator.answer(small));
}

TEST(EvaluateTest, TheCommandEndsWithSeventyWhereDovetailIsWrong) {
  if (testing::kHasSanitizer) GTEST_SKIP() << "a sanitizer's memory has no limit";
  const std::string words =
      "plan --job llama3_405b:tp=8,pp=16,dp=4,seq=8192,gbs=256 --cluster h100x512";
  const testing::Ended ended =
      testing::run_command("ulimit -v 300000; " + testing::tool() + " " + words);
  EXPECT_EQ(ended.code, 70);
  EXPECT_EQ(
      ended.output,
      "dovetail: std::bad_alloc\ndovetail: a fault of dovetail, not of what was asked; please "
      "report it with: dovetail " +
          words + "\n");
}

}  // namespace
}  // namespace dovetail::cli
