// Public measurements: what their rows mean as jobs, how predictions are judged, and how far the memory of
// jobs is from them today.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/yardstick.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "answers/validation/table.h"
#include "base/error.h"
#include "base/file.h"
#include "models/networks/model.h"
#include "models/networks/text.h"

namespace dovetail::yardsticks {
namespace {

using testing::HasSubstr;

const std::string kFolder = std::string(DOVETAIL_SOURCE_DIR) + "/answers/validation/data";

const Yardstick& nanotron_rows() {
  static const Yardstick kRows = nanotron(kFolder);
  return kRows;
}

std::int64_t jobs_of(const Yardstick& yardstick) {
  return std::ranges::count_if(yardstick.rows, [](const Row& row) { return row.job.has_value(); });
}

// As measured, but for the row of that name, which has no price.
std::optional<PricedStep> but_of(const Row& row, const std::string& name) {
  return row.name == name ? std::nullopt : std::optional(PricedStep{*row.step});
}

TEST(YardstickTest, NanotronsModelsHaveTheParametersThatItsRowsName) {
  std::map<std::string, std::int64_t> billions;
  for (const Row& row : nanotron_rows().rows) {
    if (row.job) billions[row.job->model.name] = parameters(row.job->model);
  }
  EXPECT_EQ(billions["nanotron_1.34b"] / 10'000'000, 134);
  EXPECT_EQ(billions["nanotron_3.57b"] / 10'000'000, 357);
  EXPECT_EQ(billions["nanotron_8.86b"] / 10'000'000, 885);   // 8.858 B
  EXPECT_EQ(billions["nanotron_80.0b"] / 100'000'000, 799);  // 79.995 B
}

// Its first row: 1.34 B on 8 GPUs, micro-batches of one, 32 of them, no ZeRO, 36.67 GiB, 3337.42 ms.
TEST(YardstickTest, ARowOfNanotronIsAJobWithItsMeasurements) {
  const Row& row = nanotron_rows().rows.front();
  EXPECT_EQ(row.name, "nanotron_h100.csv:2");
  ASSERT_TRUE(row.job.has_value());
  EXPECT_EQ(row.job->layout.world(), 8);
  EXPECT_EQ(row.job->micro_batches(), 32);
  EXPECT_EQ(row.job->zero, jobs::Zero::Nothing);
  EXPECT_TRUE(row.rules.bucket_copies);
  EXPECT_EQ(row.group, "1.34 B on 8");
  EXPECT_EQ(row.memory, Bytes(39'374'112'686));
  EXPECT_EQ(row.step, from_us(3'337'420));
}

// 16 layers and a head that costs as much as four, over 16 stages: 1.25 layers each, so that three stages hold
// two layers, and the last one nothing.
TEST(YardstickTest, AStageWithoutABlockCannotStart) {
  const auto& rows = nanotron_rows().rows;
  const auto empty = std::ranges::find_if(rows, [](const Row& row) {
    return row.job && row.job->model.layers == 16 && row.job->layout.pp == 16;
  });
  ASSERT_NE(empty, rows.end());
  EXPECT_FALSE(empty->can_start);
  EXPECT_FALSE(predicted_to_run(*empty));
  const auto full = std::ranges::find_if(rows, [](const Row& row) {
    return row.job && row.job->model.layers == 16 && row.job->layout.pp == 2;
  });
  ASSERT_NE(full, rows.end());
  // Twenty layers' worth: the first stage passes ten with its eleventh.
  EXPECT_EQ(full->job->layout.layers, (std::vector<std::int64_t>{11, 5}));
}

TEST(YardstickTest, OtherSourcesAreJobsOrSayWhyNot) {
  EXPECT_EQ(jobs_of(torchtitan(kFolder)), 8);
  const Yardstick simulated = simumax(kFolder);
  EXPECT_EQ(jobs_of(simulated), 21);
  EXPECT_EQ(simulated.rows[0].job->model.layers, 12);
  EXPECT_EQ(simulated.rows[0].job->layout.dp, 4);
  EXPECT_EQ(simulated.rows[0].job->micro_batches(), 4);
  const Yardstick student = duoan(kFolder);
  EXPECT_EQ(jobs_of(student), 5);
  EXPECT_EQ(student.rows[0].policy, "per-tensor:wait=end-of-backward,scale=after-collective");
  EXPECT_FALSE(student.rows[0].synchronous);
  EXPECT_EQ(student.rows[3].policy, "fsdp:cap=1B,mode=copy,prefetch=0");
  EXPECT_TRUE(student.rows[3].synchronous);
  const Yardstick pcie = damek(kFolder);
  EXPECT_EQ(jobs_of(pcie), 28);
  EXPECT_EQ(pcie.first_gives, "its optimizer's time");
  // 48 x (4 x 1600^2 + 3 x 1600 x 6400 + 2 x 1600) + 2 x 10,000 x 1600 + 1600.
  EXPECT_EQ(parameters(pcie.rows[0].job->model), 1'998'235'200);
  EXPECT_EQ(pcie.rows.back().policy,
            "threshold:cap=1000MiB,closes=before-exceeding,mode=copy,wait=end-of-backward,"
            "scale=after-collective");
  const Yardstick bridge = megatron_bridge(kFolder);
  EXPECT_GT(jobs_of(bridge), 70);
  const auto is_lora = [](const Row& row) { return row.job && row.job->lora == 16; };
  EXPECT_EQ(std::ranges::count_if(bridge.rows, is_lora), 3);
  for (const Row& row : bridge.rows)
    EXPECT_NE(row.job.has_value(), !row.no_job.empty()) << row.name;
}

// What waited for checks between ranks has no step; of the others one gives the host of the rest.
TEST(YardstickTest, NanotronsOwnHostIsFromARowThatIsNotJudged) {
  const Yardstick nanotron = nanotron_rows();
  for (const Row& row : nanotron.rows) {
    if (!row.job || row.job->layout.world() <= kNodeGpus) continue;
    const bool is_checked = row.job->layout.pp > 1 || row.job->layout.world() >= 64 * kNodeGpus;
    EXPECT_FALSE(is_checked && row.step) << row.name;
  }
  const Yardstick own = nanotron_own(kFolder);
  EXPECT_EQ(own.rows.size() + 1, nanotron.rows.size());
  for (const Row& row : own.rows) {
    EXPECT_EQ(row.own_cause, "by its own host");
    EXPECT_GT(row.host_stretch, 1);
  }
}

// 133 products of its GPU take 1.25 to 1.43 times as long as the shipped ones, 1.32 in the median.
TEST(YardstickTest, ItsOwnProductsStretchAMachinesSteps) {
  const Yardstick own = simumax_own(kFolder);
  ASSERT_EQ(own.rows.size(), 21U);
  for (const Row& row : own.rows) {
    EXPECT_NEAR(row.products_stretch, 1.32, 0.01);
    EXPECT_FALSE(row.own_cause.empty());
    EXPECT_FALSE(row.memory.has_value());
  }
  EXPECT_EQ(simumax(kFolder).rows[0].products_stretch, 1);
  EXPECT_THAT(simumax_own(testing::TempDir()).rows, testing::IsEmpty());
}

// Today's figures, with room for a formula that changes a little; `dovetail validate public` prints them.
TEST(YardstickTest, TheMemoryOfJobsIsNearWhatOthersMeasured) {
  const MemoryScore grid = score_memory(nanotron_rows());
  EXPECT_EQ(grid.judged, 1545);
  EXPECT_GT(grid.right_percent(), 94);
  EXPECT_LT(grid.ran_but_refused, 15);
  EXPECT_LT(grid.peak.median_absolute, 10);
  EXPECT_LT(score_memory(simumax(kFolder)).peak.p90_absolute, 4);
  EXPECT_LT(score_memory(torchtitan(kFolder)).peak.median_absolute, 10);
  EXPECT_LT(score_memory(duoan(kFolder)).peak.p90_absolute, 10);
}

Yardstick five_steps() {
  Yardstick yardstick{.name = "made up"};
  for (int i = 1; i <= 5; ++i) {
    Row row{.name = std::to_string(i), .step = from_us(100.0 * i), .group = "one"};
    set_job(row, jobs::parse_job("llama3_8b:dp=8"));
    yardstick.rows.push_back(row);
  }
  return yardstick;
}

TEST(YardstickTest, AnOrderIsJudgedByTauAndByWhatTheChosenRowCosts) {
  // 10 % too slow everywhere: the order is right.
  const auto slow = [](const Row& row) {
    return std::optional(PricedStep{stretched(*row.step, 1.1)});
  };
  const TimeScore right = score_time(five_steps(), slow);
  EXPECT_EQ(right.priced, 5);
  EXPECT_NEAR(right.step.median, 10, 1e-6);
  EXPECT_DOUBLE_EQ(right.kendall_tau, 1);
  EXPECT_DOUBLE_EQ(right.regret_percent, 0);
  // The second is taken for the fastest: one of ten pairs is wrong, (9 - 1) / 10; it costs 200 for 100.
  const TimeScore swapped = score_time(five_steps(), [](const Row& row) {
    return std::optional(PricedStep{row.name == "2" ? from_us(50) : *row.step});
  });
  EXPECT_DOUBLE_EQ(swapped.kendall_tau, 0.8);
  EXPECT_DOUBLE_EQ(swapped.regret_percent, 100);
  // What cannot be priced is counted.
  const TimeScore some = score_time(five_steps(), [](const Row& row) { return but_of(row, "1"); });
  EXPECT_EQ(some.rows, 5);
  EXPECT_EQ(some.priced, 4);
  EXPECT_EQ(some.groups, 0);
}

const Row& row_of_gpus(const Yardstick& yardstick, const std::string& scaling, std::int64_t gpus) {
  const auto found = std::ranges::find_if(yardstick.rows, [&](const Row& row) {
    return row.scaling == scaling && row.job && row.job->layout.world() == gpus;
  });
  if (found == yardstick.rows.end()) throw InputError("no row of " + scaling);
  return *found;
}

// Of 38 runs 22 tuned a whole model, with a config that is known.
TEST(YardstickTest, MlperfsRunsAreJobsOrSayWhyNot) {
  const Yardstick yardstick = mlperf(kFolder);
  EXPECT_EQ(yardstick.rows.size(), 38U);
  EXPECT_EQ(jobs_of(yardstick), 22);
  EXPECT_THAT(
      without_job(yardstick),
      testing::ElementsAre(testing::Pair("its submission does not say with which config it ran", 1),
                           testing::Pair("its submission's config is not in the table", 15)));
}

// config_DGXH100_64x8x288xtp8pp8cp2.sh: 512 / (8 x 8 x 2) = 4 replicas, 288 samples each; 126 layers, embedding and
// loss over 8 x 8 virtual stages are two each. OVERLAP_PARAM_GATHER_WITH_OPTIM_STEP: no bucket ends within a chunk.
// config_GB200_128x4x1xtp2pp1cp4_8b.sh: 512 / (2 x 4) = 64 replicas, one sample each.
TEST(YardstickTest, ARunOfMlperfIsTheJobOfItsConfig) {
  const Yardstick yardstick = mlperf(kFolder);
  const Row& large = row_of_gpus(yardstick, "llama31_405b fp8 on H100", 512);
  std::vector<std::int64_t> layers(64, 2);
  layers.front() = layers.back() = 1;
  EXPECT_EQ(large.job->layout.layers, layers);
  EXPECT_EQ(large.job->layout.dp, 4);
  EXPECT_EQ(large.job->layout.vp, 8);
  EXPECT_EQ(large.job->layout.cp, 2);
  EXPECT_EQ(large.job->micro_batches(), 288);
  EXPECT_EQ(large.job->batch.sequence, 8192);
  EXPECT_EQ(large.job->bucket_bytes, 2 * 405'853'388'800);
  EXPECT_EQ(large.job->precision.reduce, schedule::DType::BF16);
  EXPECT_EQ(large.job->precision.products, schedule::Operands::Fp8);
  EXPECT_TRUE(large.job->async_tp);
  EXPECT_EQ(large.step, from_us(55'133'583));
  EXPECT_EQ(large.device, "H100");
  EXPECT_EQ(large.group, "");
  const Row& small = row_of_gpus(yardstick, "llama31_8b fp8 on GB200", 512);
  EXPECT_EQ(small.job->layout.dp, 64);
  EXPECT_EQ(small.job->layout.tp, 2);
  EXPECT_EQ(small.job->micro_batches(), 1);
  EXPECT_EQ(small.job->zero, jobs::Zero::Optimizer);
  EXPECT_EQ(small.job->bucket_bytes, 1'536'000'000);
}

// Steps of 800, 420 and 230 us on 8, 16 and 32 GPUs.
Yardstick three_sizes() {
  Yardstick yardstick{.name = "made up"};
  const auto add = [&](const std::string& layout, double us, const std::string& scaling) {
    Row row{.name = layout, .step = from_us(us), .scaling = scaling};
    set_job(row, jobs::parse_job("llama3_8b:" + layout));
    yardstick.rows.push_back(row);
  };
  add("dp=8", 800, "one");
  add("dp=16", 420, "one");
  add("dp=32", 230, "one");
  add("dp=8", 800, "two sizes");
  add("dp=16", 420, "two sizes");
  add("dp=64", 120, "");
  return yardstick;
}

TEST(YardstickTest, ScalingIsJudgedByTheRatioOfStepsBetweenSizes) {
  // 30 % too slow everywhere: the ratios are right.
  const auto slow = [](const Row& row) {
    return std::optional(PricedStep{stretched(*row.step, 1.3)});
  };
  const std::vector<Scaling> right = score_scaling(three_sizes(), slow);
  ASSERT_EQ(right.size(), 1U);
  EXPECT_EQ(right[0].rows, "one");
  EXPECT_EQ(right[0].sizes, 3);
  EXPECT_EQ(right[0].fewest_gpus, 8);
  EXPECT_EQ(right[0].most_gpus, 32);
  EXPECT_NEAR(right[0].worst_percent, 0, 1e-6);
  // 400, 210 and 100 are predicted: 210 / 400 is right, 100 / 210 and 100 / 400 are those of 230 / 420 and 230 / 800
  // less 13.04 %; of 8 and 16 GPUs the error is 0.
  const auto fast = [](const Row& row) {
    const std::int64_t gpus = row.job->layout.world();
    return std::optional(PricedStep{from_us(gpus == 8 ? 400 : gpus == 16 ? 210 : 100)});
  };
  const std::vector<Scaling> wrong = score_scaling(three_sizes(), fast);
  ASSERT_EQ(wrong.size(), 1U);
  EXPECT_NEAR(wrong[0].worst_percent, -13.043, 1e-3);
  EXPECT_EQ(wrong[0].worst_to, 32);
  // Three sizes of which one is not priced are two.
  EXPECT_TRUE(
      score_scaling(three_sizes(), [](const Row& row) { return but_of(row, "dp=32"); }).empty());
}

// Steps of 800, 420 and 230 us in one group, of which 420 is predicted as 790: 230 is predicted shorter than it by 71 % and
// than 800 by 71 %, and is; 420 shorter than 800 by 1 %, and is. With 820 that pair is predicted wrong.
TEST(YardstickTest, OrderIsJudgedByHowMuchTwoRowsArePredictedToDiffer) {
  Yardstick yardstick = three_sizes();
  yardstick.rows.resize(3);
  for (Row& row : yardstick.rows) row.group = "one";
  yardstick.rows[0].job->layout.dp = 16;  // all on several nodes
  const auto with = [&](double second) {
    return score_ordering(yardstick, [=](const Row& row) {
      return std::optional(PricedStep{row.name == "dp=16" ? from_us(second) : *row.step});
    });
  };
  const std::vector<Ordering> right = with(790);
  ASSERT_EQ(right.size(), 2U);
  EXPECT_FALSE(right[0].one_node);
  EXPECT_EQ(right[0].from_percent, 0);
  EXPECT_EQ(right[0].to_percent, 2);
  EXPECT_EQ(right[0].pairs, 1);
  EXPECT_EQ(right[0].right, 1);
  EXPECT_EQ(right[1].from_percent, 50);
  EXPECT_EQ(right[1].pairs, 2);
  EXPECT_EQ(right[1].right, 2);
  const std::vector<Ordering> wrong = with(820);
  EXPECT_EQ(wrong[0].to_percent, 5);
  EXPECT_EQ(wrong[0].right, 0);
  yardstick.rows[0].job->layout.dp = 8;  // another place: no pair with the others
  EXPECT_EQ(with(790).size(), 1U);
}

std::string refusal_of(const std::string& text) {
  const std::string path = testing::TempDir() + "/yardstick_table.csv";
  write_file(path, text);
  try {
    static_cast<void>(read_table(path).front().count("a"));
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST(YardstickTest, ATableThatIsWrongIsRefusedWithItsLine) {
  EXPECT_EQ(refusal_of("a,b\n1\n"), "yardstick_table.csv:2: expected 2 fields, found 1");
  EXPECT_EQ(refusal_of("a,b\nx,1\n"), "yardstick_table.csv:2: a: expected a number, found \"x\"");
  EXPECT_EQ(refusal_of("a,b\n,1\n"), "yardstick_table.csv:2: a: expected a number, found nothing");
  EXPECT_EQ(refusal_of("a,b\n1.5,1\n"),
            "yardstick_table.csv:2: a: expected a whole number, found \"1.5\"");
  EXPECT_EQ(refusal_of("c,b\n1,1\n"), "yardstick_table.csv:2: expected a column a");
  EXPECT_EQ(refusal_of("a,b\r\n7,1\r\n"), "");
}

}  // namespace
}  // namespace dovetail::yardsticks
