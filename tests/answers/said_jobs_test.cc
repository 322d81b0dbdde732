// A job says the same in every form: the line that is printed of it and the file that a framework starts from it take the same step
// and the same memory, or what the export says is given up is the whole difference.
//
// DOVETAIL_DRAWN=1 draws many more.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "frameworks/jobs/job_export.h"
#include "frameworks/jobs/job_source.h"
#include "models/networks/text.h"
#include "tests/support/cases.h"
#include "tests/support/drawn_jobs.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

using jobs::Job;

const std::map<std::string, std::string> kEnds = {
    {"torchtitan", ".toml"}, {"megatron", ".sh"}, {"deepspeed", ".json"}};

class SaidJobsTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  SaidJobsTest() { std::filesystem::create_directories(folder_); }
  ~SaidJobsTest() override { std::filesystem::remove_all(folder_); }

  // What is written, as --job reads it.
  [[nodiscard]] Job read_back(const std::string& target,
                              const frameworks::JobExport& result) const {
    const std::string path = (folder_ / ("job" + kEnds.at(target))).string();
    write_file(path, result.text);
    return frameworks::load_job(path + (result.behind.empty() ? "" : ":" + result.behind));
  }

  // Nothing where it cannot be priced: fp4 on an H100.
  [[nodiscard]] std::optional<JobPrediction> priced(const Job& job) const {
    try {
      return predict_job(job, cluster_);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  void expect_same(const Job& job, const JobPrediction& there) const {
    const std::optional<JobPrediction> here = priced(job);
    ASSERT_TRUE(here) << jobs::to_string(job);
    EXPECT_TRUE(here->memory == there.memory) << describe(here->room().held) << "\n"
                                              << describe(there.room().held);
    EXPECT_EQ(here->step, there.step) << jobs::to_string(there.job);
  }

 private:
  models::Cluster cluster_ = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("dovetail_said_jobs." + std::to_string(::getpid()) + "." + std::to_string(GetParam()));
};

// Of up to eight ranks, and few micro-batches.
std::vector<testing::Drawn> few_ranks() {
  std::vector<testing::Drawn> keys;
  for (testing::Drawn one : testing::kAnyKey) {
    if (one.key == "gbs") one.values = {"8", "16"};
    keys.push_back(std::move(one));
  }
  return keys;
}

// What most jobs say, of which frameworks can be told more.
std::vector<testing::Drawn> usual_keys() {
  std::vector<testing::Drawn> keys;
  for (const testing::Drawn& one : few_ranks()) {
    for (const char* const key : {"dp", "dp_shard", "tp", "pp", "vp", "mbs", "gbs", "zero",
                                  "recompute", "recompute_layers", "reshard"}) {
      if (one.key == key) keys.push_back(one);
    }
  }
  return keys;
}

// What the framework runs where nothing was asked for is its own: who runs it, and buckets, of which a job of divided
// parameters has none elsewhere.
Job run_there(Job job, const Job& as_run) {
  job = jobs::in_effect(std::move(job));
  job.as = as_run.as;
  if (!job.bucket_bytes) job.bucket_bytes = as_run.bucket_bytes;
  return job;
}

// 200 draws in parts, lest one takes long; the parameter is the seed.
constexpr std::uint64_t kFirst = 11, kParts = testing::kHasSanitizer ? 4 : 20;
INSTANTIATE_TEST_SUITE_P(Parts, SaidJobsTest,
                         ::testing::Range<std::uint64_t>(kFirst, kFirst + kParts));

TEST_P(SaidJobsTest, TheLineTheFileAndWhatIsGivenUpTakeTheSameStepAndMemory) {
  const std::size_t enough = testing::is_long_run() ? 50 : 10;
  Random random(GetParam());
  std::map<std::string, std::size_t> done, whole;
  std::size_t drawn = 0;
  const std::vector<testing::Drawn> any = few_ranks();
  const std::vector<testing::Drawn> usual = usual_keys();
  while (drawn < enough) {
    const std::optional<Job> job = testing::drawn_job(random, {testing::kShortLlama, "qwen3_0.6b"},
                                                      drawn % 2 == 0 ? any : usual);
    if (!job || job->layout.world() > 8) continue;
    ++drawn;
    for (const auto& [target, end] : kEnds) {
      SCOPED_TRACE(target + " " + jobs::to_string(*job));
      frameworks::JobExport result{.as_run = *job};
      try {
        result = frameworks::export_job(target, *job, {});
      } catch (const InputError&) {  // not by this one
        continue;
      }
      const Job there = read_back(target, result);
      const std::optional<JobPrediction> found = priced(there);
      if (!found) continue;
      // The file's line is the same job in other words.
      const std::string line = jobs::to_string(there);
      if (!line.starts_with("qwen3")) {
        Job said{.model = there.model};
        said.batch.sequence = there.model.sequence;
        jobs::set_options(said, line.substr(line.find(':') + 1), "line");
        jobs::complete(said, "line");
        expect_same(said, *found);
      } else {
        expect_same(jobs::parse_job(line), *found);
      }
      // And the job without what is said to be given up is that of the file.
      const Job& last = result.losses.empty() ? *job : result.losses.back().after;
      expect_same(run_there(last, there), *found);
      ++done[target];
      whole[target] += result.losses.empty() ? 1 : 0;
    }
  }
  std::size_t compared = 0;
  for (const auto& [target, end] : kEnds) {
    compared += done[target];
    RecordProperty(target, static_cast<int>(done[target]));
    std::printf("%s: %zu of %zu drawn jobs, %zu of them whole\n", target.c_str(), done[target],
                drawn, whole[target]);
  }
  EXPECT_GT(compared, enough / 2);
}

}  // namespace
}  // namespace dovetail::predict
