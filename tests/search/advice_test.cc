// Following the advice of a sweep is never slower than leaving a framework as it is: over the zoo, machines and frameworks, and
// for a recorded step.
//
// The advice is taken from what is printed or exported, not from the row: sizes, caps and groups are read back out of the text,
// grouped again by a rule that is written out here, and launched, copied and waited for as the framework does.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json_reader.h"
#include "frameworks/framework.h"
#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "models/workloads/profile.h"
#include "recordings/diagnose/workload.h"
#include "tests/recordings/kineto/traces.h"
#include "tests/support/cases.h"

namespace dovetail::search {
namespace {

using frameworks::Framework;

// How a framework launches, copies and waits, as options of a policy that is given its buckets.
std::string manners(const std::string& id, bool is_view) {
  if (id == "deepspeed") return "exact:mode=copy,batch=1,wait=before-next-batch";
  if (id == "horovod") return "exact:mode=copy,wait=end-of-backward";
  if (id == "xla") return "exact";
  if (id == "megatron") return "exact:wait=end-of-backward";
  // DDP divides gradients that lie in buckets in a pass of its own.
  return is_view ? "exact:wait=end-of-backward,scale=before-collective"
                 : "exact:mode=copy,wait=end-of-backward";
}

// Every number behind a word of the text.
std::vector<double> numbers_after(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return {};
  std::vector<double> numbers;
  const std::string rest = text.substr(at + word.size(), text.find('\n', at) - at - word.size());
  static const std::regex kNumber("[0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?");
  for (std::sregex_iterator match(rest.begin(), rest.end(), kNumber), end; match != end; ++match) {
    numbers.push_back(std::strtod(match->str().c_str(), nullptr));
  }
  return numbers;
}

class Follower {
 public:
  Follower(Planner& planner, const Framework& framework)
      : planner_(planner),
        framework_(framework),
        owed_(schedule::owed_gradients(planner.program())),
        element_(static_cast<double>(schedule::element_size(owed_.front().dtype).count())) {}

  // The step of what a text says, or nothing where it says groups that are not consecutive here.
  std::optional<Duration> step_of(const std::string& text) {
    const std::string id(framework_.id);
    const bool is_view = text.find("gradient_as_bucket_view=True") != std::string::npos ||
                         text.find("GRADIENT_AS_BUCKET_VIEW = True") != std::string::npos;
    const auto ends = ends_of(text);
    if (!ends) return std::nullopt;
    schedule::Schedule schedule = schedule::partition(planner_.program(), *ends,
                                                      schedule::parse_policy(manners(id, is_view)));
    // Megatron's buckets follow the reverse of the definition, which need not be the order of readiness.
    if (id == "megatron") schedule = as_run(framework_, planner_.program(), schedule);
    return Duration(planner_.evaluate(schedule).step_ns);
  }

 private:
  std::optional<std::vector<std::size_t>> ends_of(const std::string& text) const {
    const std::string id(framework_.id);
    const double mib = 1 << 20;
    if (id.starts_with("torch")) {
      std::vector<double> caps = numbers_after(text, "BUCKET_CAP_MB_LIST = [");
      if (!caps.empty()) return reaching(caps, mib);
      caps = numbers_after(text, "bucket_cap_mb=");
      if (caps.empty()) return reaching({1, 25}, mib);
      return reaching(id == "torch1" ? std::vector<double>{1, caps[0]} : std::vector{caps[0]}, mib);
    }
    const auto ranks = static_cast<double>(planner_.program().group(owed_.front().group).size());
    const auto number = [&](const std::string& word, double usual) {
      const std::vector<double> found = numbers_after(text, word);
      return found.empty() ? usual : found[0];
    };
    if (id == "megatron" && text.find("PARAMETERS = [") == std::string::npos) {
      return reaching({number("--ddp-bucket-size ", std::max(40e6, 1e6 * ranks))}, element_);
    }
    if (id == "deepspeed") return below(number("\"reduce_bucket_size\": ", 5e8) * element_);
    if (id == "horovod" && text.find("GROUPS = [") == std::string::npos) {
      return below(number("HOROVOD_FUSION_THRESHOLD=", 128 * mib));
    }
    if (id == "xla" && text.find("COMBINER_KEY = {") == std::string::npos) {
      return below(number("combine_threshold_bytes=", 31457287));
    }
    return named(text);
  }

  // A bucket holds the gradient that fills it.
  std::vector<std::size_t> reaching(const std::vector<double>& limits, double unit) const {
    std::vector<std::size_t> ends;
    double open = 0;
    for (std::size_t i = 0; i < owed_.size(); ++i) {
      open += static_cast<double>(owed_[i].bytes.count());
      const double limit = std::floor(limits[std::min(ends.size(), limits.size() - 1)] * unit);
      if (open < limit && i + 1 < owed_.size()) continue;
      ends.push_back(i + 1);
      open = 0;
    }
    return ends;
  }

  // No bucket of two gradients or more is larger than this.
  std::vector<std::size_t> below(double most) const {
    std::vector<std::size_t> ends;
    double open = 0;
    for (std::size_t i = 0; i < owed_.size(); ++i) {
      const auto size = static_cast<double>(owed_[i].bytes.count());
      if (i > 0 && open + size > most) {
        ends.push_back(i);
        open = 0;
      }
      open += size;
    }
    ends.push_back(owed_.size());
    return ends;
  }

  // The bucket of each parameter as Horovod's groups, XLA's keys or Megatron's layout name it.
  std::optional<std::vector<std::size_t>> named(const std::string& text) const {
    std::map<std::string, std::string> bucket_of;
    static const std::regex kKey("\"([^\"]+)\": \"(b[0-9]+)\"");
    static const std::regex kPlace("\\(\"([^\"]+)\", [0-9]+, [0-9]+, ([0-9]+)\\)");
    for (const std::regex& form : {kKey, kPlace}) {
      for (std::sregex_iterator match(text.begin(), text.end(), form), end; match != end; ++match) {
        bucket_of[(*match)[1]] = (*match)[2];
      }
    }
    if (const std::size_t at = text.find("GROUPS = ["); at != std::string::npos) {
      static const std::regex kName("\"([^\"]+)\"");
      std::istringstream lines(text.substr(at, text.find("\n]", at) - at));
      std::string line;
      for (int group = 0; std::getline(lines, line); ++group) {
        for (std::sregex_iterator match(line.begin(), line.end(), kName), end; match != end;
             ++match) {
          bucket_of[(*match)[1]] = std::to_string(group);
        }
      }
    }
    std::vector<std::size_t> ends;
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < owed_.size(); ++i) {
      std::string name = planner_.program().tensor(owed_[i].tensor).name;
      name.resize(name.size() - std::string(".grad").size());
      const std::string& bucket = bucket_of.at(name);
      if (seen.empty() || seen.back() != bucket) {
        if (std::ranges::find(seen, bucket) != seen.end()) return std::nullopt;
        seen.push_back(bucket);
        if (i > 0) ends.push_back(i);
      }
    }
    ends.push_back(owed_.size());
    return ends;
  }

  Planner& planner_;
  const Framework& framework_;
  std::vector<schedule::OwedGradient> owed_;
  double element_;
};

// What explore tells: nothing, a line, or the file of export.
std::string advice_of(Planner& planner, const Framework& framework, const SweepRow& best) {
  if (best.said->by == frameworks::ToldBy::Default) return "";
  if (best.said->by == frameworks::ToldBy::Setting) return best.said->paste;
  const schedule::Plan plan{.program = planner.program(),
                            .schedule = planner.evaluate(best.candidate.spec).schedule,
                            .summary = {}};
  const frameworks::Machine machine{
      .name = "machine",
      .step =
          [&](const schedule::Schedule& schedule) {
            return Duration(planner.evaluate(schedule).step_ns);
          },
      .collective = [](schedule::Collective, const schedule::ProcessGroup&,
                       Bytes) { return Duration{}; }};
  const frameworks::Export made = frameworks::export_plan(framework, plan, machine, {});
  EXPECT_EQ(made.as_run, Duration(best.candidate.summary.step_ns));
  return made.text;
}

// One sweep, its advice followed, and the framework left alone.
void expect_no_loss(Planner& planner, const Framework& framework, const std::string& where) {
  SCOPED_TRACE(where + " for " + std::string(framework.id));
  const SweepOptions options{.framework = &framework,
                             .policies = comparable_policies(framework, planner.program()),
                             .thresholds = log_range(Bytes(1 << 20), Bytes(64 << 20), 4)};
  const Sweep sweep = run_sweep(planner, options);
  const SweepRow& best = sweep.rows[sweep.best];
  ASSERT_TRUE(best.said.has_value());
  const Duration row(best.candidate.summary.step_ns);
  const std::string advice = advice_of(planner, framework, best);
  if (framework.policy == nullptr) {  // fsdp: what it does by itself is a row of its own
    const auto usual = schedule::parse_policy(framework.usual.front());
    EXPECT_LE(
        row,
        Duration(
            planner.evaluate(as_run(framework, planner.program(), planner.evaluate(usual).schedule))
                .step_ns));
    return;
  }
  Follower follower(planner, framework);
  const std::optional<Duration> followed = follower.step_of(advice);
  const std::optional<Duration> left_alone = follower.step_of("");
  ASSERT_TRUE(left_alone.has_value());
  if (!followed) return;  // Megatron's reversed definition is not the order of readiness here
  EXPECT_LE(*followed, *left_alone) << advice.substr(0, 400);
  EXPECT_EQ(*followed, row) << advice.substr(0, 400);
}

class AdviceTest : public ::testing::TestWithParam<const char*> {};

constexpr std::array kFrameworks{"torch",     "torch2.6", "torch1", "megatron",
                                 "deepspeed", "horovod",  "xla",    "fsdp"};
INSTANTIATE_TEST_SUITE_P(Frameworks, AdviceTest, ::testing::ValuesIn(kFrameworks));

// A machine for each model, in turn: every fourth of them, other ones for each framework; all of them in the long run. Under a
// sanitizer for one small model.
TEST_P(AdviceTest, IsNeverSlowerThanWhatAFrameworkDoesByItself) {
  constexpr bool kAll = !dovetail::testing::kHasSanitizer;
  const std::vector<std::string> models =
      kAll ? models::zoo_names() : std::vector<std::string>{"resnet18"};
  const std::string data = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  const std::vector<std::string> clusters = models::cluster_names(data);
  const std::size_t stride = dovetail::testing::is_long_run() || !kAll ? 1 : 4;
  const auto place = std::ranges::find(kFrameworks, std::string_view(GetParam()));
  const auto first = static_cast<std::size_t>(place - kFrameworks.begin()) % stride;
  for (std::size_t m = first; m < models.size(); m += stride) {
    const models::Cluster machine = models::load_cluster(clusters[m % clusters.size()], data);
    const schedule::Program program = models::zoo_program(models[m], {.world_size = machine.ranks});
    // The largest take long and say nothing else.
    if (program.ops.size() > 3000) continue;
    Planner planner(program, models::costs_for(machine, program));
    expect_no_loss(planner, frameworks::framework(GetParam()), models[m] + " on " + machine.name);
  }
}

// ResNet-50 as it was recorded: the 64 MiB that the sweep once advised took 223.8 ms in DDP, which takes 223.4 by itself.
TEST(RecordedAdviceTest, IsNeverSlower) {
  const imports::JobTrace job = dovetail::testing::resnet50();
  const diagnose::Extracted extracted =
      diagnose::workload_of(job, 0, diagnose::replay_rank(job.ranks.front()), {.name = "traced"});
  ASSERT_TRUE(std::holds_alternative<diagnose::TracedWorkload>(extracted));
  const JsonFile file("traced.json",
                      diagnose::workload_json(std::get<diagnose::TracedWorkload>(extracted)));
  const models::Profile profile = models::read_profile(file);
  const schedule::Program program = models::profile_program(profile);
  for (const std::string id : {"torch", "torch2.6", "torch1", "horovod", "xla", "deepspeed"}) {
    Planner planner(program, models::profile_costs(profile, program));
    expect_no_loss(planner, frameworks::framework(id), "traced resnet50");
  }
}

// What she has now is a row, whatever was named.
TEST(UsualRowsTest, WhatDdpDoesByItselfIsAlwaysARow) {
  const std::string data = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  const models::Cluster machine = models::load_cluster("a100x8", data);
  const schedule::Program program = models::zoo_program("resnet18", {.world_size = machine.ranks});
  const Framework& torch = frameworks::framework("torch");
  std::vector<std::string> texts;
  for (const SweptPolicy& policy : comparable_policies(torch, program)) {
    if (policy.sizes == SweptPolicy::Sizes::Own) texts.push_back(to_string(policy.spec));
  }
  EXPECT_THAT(texts, ::testing::IsSupersetOf({"torch-ddp:cap=25MiB,first=1MiB",
                                              "torch-ddp:cap=25MiB,first=1MiB,mode=view"}));
  // A named policy that DDP cannot run is shown, and what DDP makes of it is best or not, but it is not.
  Planner planner(program, models::costs_for(machine, program));
  const SweepOptions options{
      .framework = &torch,
      .policies = {{.spec = schedule::parse_policy("threshold:cap=8MiB"), .is_named = true},
                   {.spec = schedule::parse_policy("torch-ddp:cap=25MiB,first=1MiB")}},
      .thresholds = {Bytes(8 << 20)},
      .chosen = SweepOptions::Chosen::Named};
  const Sweep sweep = run_sweep(planner, options);
  ASSERT_EQ(sweep.rows.size(), 3U);
  EXPECT_FALSE(sweep.rows[0].said.has_value());
  EXPECT_EQ(sweep.rows[1].said->by, frameworks::ToldBy::Default);
  EXPECT_TRUE(sweep.rows[2].is_changed);
  EXPECT_NE(sweep.best, 0U);
}

}  // namespace
}  // namespace dovetail::search
