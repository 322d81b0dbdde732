// One value per framework: its presets, the buckets of its settings, its words; and the table of docs/settings.md.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/framework.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "frameworks/settings.h"
#include "tests/support/programs.h"

namespace dovetail::frameworks {
namespace {

using dovetail::testing::us;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FrameworkTest, EachHasANameOfItsOwnAndPresetsThatAreRead) {
  std::set<std::string_view> known;
  std::set<std::string_view> stand_ins;
  for (const Framework& framework : all()) {
    EXPECT_TRUE(known.insert(framework.id).second) << framework.id;
    for (const schedule::Preset& preset : framework.presets) {
      EXPECT_TRUE(stand_ins.insert(preset.name).second) << preset.name;
      EXPECT_EQ(parse_policy(preset.name), schedule::parse_policy(preset.stands_for));
    }
  }
  EXPECT_EQ(parse_policy("paddle-pass"), schedule::parse_policy("source-first-fit"));
  EXPECT_EQ(schedule::placement(parse_policy("apex-sharded:p=3")).batch, 3);
  EXPECT_THROW(parse_policy("xlaa"), InputError);
}

TEST(FrameworkTest, AWordThatIsNoneIsRefusedWithTheNearest) {
  try {
    parse_framework("--to", "torhc", has_writer);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--to \"torhc\": did you mean torch?"));
  }
  EXPECT_THROW(parse_framework("--to", "torch1", has_writer), InputError);  // nothing is written
  EXPECT_EQ(parse_framework("--framework", "torch1", has_rows).name, "PyTorch 1.x DDP");
}

// What a framework does by itself, and with each policy that its rows stand for, it has words for; and what it
// does by a setting can be pasted.
TEST(FrameworkTest, EachHasWordsForItsOwnRows) {
  for (const std::string& id : ids(has_rows)) {
    const Framework& own = framework(id);
    std::vector<std::string> rows(own.usual.begin(), own.usual.end());
    rows.insert(rows.end(), own.more.begin(), own.more.end());
    rows.insert(rows.end(), own.swept.begin(), own.swept.end());
    if (own.policy != nullptr) {
      for (const std::optional<std::int64_t> size :
           {std::optional<std::int64_t>{}, std::optional<std::int64_t>{4 << 20}}) {
        std::vector<Bytes> limits;
        for (const std::int64_t limit : own.size->limits(size, 8)) {
          limits.emplace_back(own.size->unit == schedule::CountedIn::Elements ? 4 * limit : limit);
        }
        rows.push_back(own.policy(limits));
      }
    }
    for (const std::string& row : rows) {
      const auto said = own.says(schedule::parse_policy(row), {.ranks = 8});
      ASSERT_TRUE(said.has_value()) << id << ": " << row;
      EXPECT_EQ(said->paste.empty(), said->by != ToldBy::Setting) << id << ": " << row;
    }
  }
}

TEST(FrameworkTest, APolicyIsSaidAsItsFrameworkHasIt) {
  const auto words = [](const char* policy) { return in_words(parse_policy(policy)); };
  EXPECT_EQ(words("torch-ddp"), "PyTorch DDP's default");
  EXPECT_EQ(words("torch-ddp:cap=8MiB,first=1MiB"), "PyTorch 1.x DDP: bucket_cap_mb=8");
  EXPECT_EQ(words("torch-ddp:cap=512KiB,torch=2.14"), "PyTorch DDP: bucket_cap_mb=0.5");
  // DDP takes int(cap * 2^20) bytes: 9.53674e-07 would be none.
  EXPECT_EQ(words("torch-ddp:cap=1B,first=1B"), "PyTorch DDP: bucket_cap_mb=9.5367432e-07");
  EXPECT_EQ(words("exact"), "dovetail_torch.apply (own hooks)");
  EXPECT_THAT(words("exact:mode=copy,wait=end-of-backward"), HasSubstr("bucket_cap_mb_list"));
  EXPECT_EQ(words("naive"), "Paddle without its pass");
  EXPECT_EQ(words("no-overlap"), "dovetail_torch.apply (own hooks)");
  EXPECT_EQ(words("apex-sharded"), "Apex DistributedFusedAdam");
  EXPECT_THAT(words("deepspeed"), HasSubstr("DeepSpeed ZeRO-1 and 2"));
  EXPECT_THAT(words("megatron"), HasSubstr("Megatron --overlap-param-gather"));
  EXPECT_EQ(words("horovod"), "Horovod's default");
  EXPECT_EQ(words("xla"), "JAX / XLA's default");
  EXPECT_EQ(words("threshold:cap=8MiB,closes=from-last"),
            "JAX / XLA: --xla_gpu_all_reduce_combine_threshold_bytes=8388615");  // and the loss
  // FSDP1 has flat buffers, FSDP2 copies.
  EXPECT_EQ(words("zero3"), "PyTorch FSDP1, DeepSpeed ZeRO-3");
  EXPECT_EQ(words("fsdp2"), "PyTorch FSDP2 (export --to fsdp)");
}

TEST(FrameworkTest, TheFirstBucketFollowsTheVersionOfPyTorch) {
  const auto first = [](const std::string& options) {
    const schedule::Policy policy = schedule::parse_policy("torch-ddp:" + options);
    return std::get<schedule::ByLimits>(*policy.decisions.grouping).first;
  };
  EXPECT_EQ(first("torch=1.13,cap=8MiB"), mib(1));
  EXPECT_EQ(first("torch=2.6.0,cap=8MiB"), mib(8));
  EXPECT_EQ(first("cap=8MiB,torch=2.14"), mib(8));
  EXPECT_EQ(first("torch=2.14"), mib(1));  // no cap is given: the default
  EXPECT_EQ(first("torch=2.14,cap=8MiB,first=2MiB"), mib(2));
  for (const std::string version :
       {"2.14.1", "2.6.0a0", "2.8.0.dev20250610", "2.7.0rc1", "2.9.dev1"}) {
    EXPECT_EQ(first("torch=" + version + ",cap=8MiB"), mib(8)) << version;
  }
  for (const std::string bad :
       {"2", "2.", "2.x", "new", "2.3", "-1.2", "2.-6", "3.0", "1.14", "0.4", "2.14.x", "2.14 ",
        "2.14.cap=25MiB", "2.14.1.cap=25MiB", "2.14a=25MiB"}) {
    EXPECT_THROW(first("torch=" + bad), InputError) << bad;
  }
  const StepGradients gradients{.bytes = {mib(4), mib(4), mib(4)},
                                .ready = {us(0), us(100), us(200)}};
  const auto cap_8 = [&](const char* id) {
    return bucket_candidates(framework(id), gradients).at(4).ends;
  };
  EXPECT_THAT(cap_8("torch"), ElementsAre(2, 3));
  EXPECT_THAT(cap_8("torch1"), ElementsAre(1, 3));
}

// Cycles end at 1, 2, 3 ms: {0, 0.3, 0.9} {1.0} {2.5}; with 10 bytes the first is cut behind 6 + 4.
TEST(SettingsTest, WhatIsReadyWithinACycleOfHorovodGoesAtOnce) {
  const StepGradients gradients{.bytes = {Bytes(6), Bytes(4), Bytes(5), Bytes(20), Bytes(1)},
                                .ready = {us(0), us(300), us(900), us(1000), us(2500)}};
  const auto ends = [&](std::int64_t most, Duration cycle) {
    return ends_of(gradients, {.closes = schedule::Closes::BeforeExceeding, .limits = {most}},
                   cycle);
  };
  EXPECT_THAT(ends(100, us(1000)), ElementsAre(3, 4, 5));
  EXPECT_THAT(ends(10, us(1000)), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(ends(100, us(5000)), ElementsAre(5));
}

// Three gradients of 1 Mi floats, 4 MiB each.
TEST(SettingsTest, SizesAreInTheUnitOfTheFramework) {
  const StepGradients gradients{.bytes = {mib(4), mib(4), mib(4)},
                                .ready = {us(0), us(100), us(200)}};
  const auto setting = [&](const char* id, std::size_t i) {
    return bucket_candidates(framework(id), gradients).at(i).setting;
  };
  // The third after the default is 4 MiB: 1048576 elements.
  EXPECT_EQ(setting("torch", 3), "bucket_cap_mb=4");
  EXPECT_EQ(setting("megatron", 3), "--ddp-bucket-size 1048576");
  EXPECT_EQ(setting("deepspeed", 3), "\"reduce_bucket_size\": 1048576");
  EXPECT_EQ(setting("horovod", 3), "HOROVOD_FUSION_THRESHOLD=4194304 HOROVOD_CYCLE_TIME=1");
  EXPECT_EQ(setting("xla", 3), "--xla_gpu_all_reduce_combine_threshold_bytes=4194311");
  EXPECT_EQ(setting("fsdp", 2), "fully_shard lists of 4 MiB");
  // Sizes end with the first that makes one bucket: 12 MiB are not in the list, 16 MiB are.
  EXPECT_THAT(bucket_candidates(framework("torch"), gradients).back().ends, ElementsAre(3));
  EXPECT_EQ(bucket_candidates(framework("torch"), gradients).back().setting, "bucket_cap_mb=16");
  // Megatron's default grows with the ranks beyond 40: 64,000,000 elements of 4 bytes.
  StepGradients many = gradients;
  many.bytes = {Bytes(100'000'000), Bytes(100'000'000), Bytes(56'000'000), mib(1)};
  many.ready.push_back(us(300));
  EXPECT_THAT(bucket_candidates(framework("megatron"), many).front().ends, ElementsAre(2, 4));
  many.ranks = 64;
  EXPECT_THAT(bucket_candidates(framework("megatron"), many).front().ends, ElementsAre(3, 4));
}

TEST(SettingsTest, AListIsInTheWordsOfWhoHasOne) {
  const StepGradients gradients{.bytes = {mib(4), mib(4), Bytes(3 << 19)},
                                .ready = {us(0), us(100), us(200)}};
  EXPECT_EQ(list_candidate(framework("torch"), gradients, {1, 3})->line,
            "DistributedDataParallel(model, bucket_cap_mb_list=[4, 5.5])");
  EXPECT_THAT(list_candidate(framework("horovod"), gradients, {1, 3})->line,
              HasSubstr("buckets of 1, 2 parameters"));
  EXPECT_FALSE(list_candidate(framework("deepspeed"), gradients, {1, 3}).has_value());
  EXPECT_FALSE(list_candidate(framework("fsdp"), gradients, {1, 3}).has_value());
}

// Every preset and every option that a row of the tables names is the framework's own: the documentation cannot
// fall behind the values.
TEST(SettingsTest, TheTablesOfTheDocumentationAreThoseOfTheValues) {
  const std::string docs = read_file(DOVETAIL_SOURCE_DIR "/docs/settings.md") +
                           read_file(DOVETAIL_SOURCE_DIR "/docs/frameworks.md");
  for (const Framework& framework : all()) {
    const std::string id(framework.id);
    for (const schedule::Preset& preset : framework.presets) {
      EXPECT_THAT(docs, HasSubstr("`" + std::string(preset.name) + "`")) << id;
    }
    if (has_settings(framework) || has_writer(framework) || has_rows(framework)) {
      EXPECT_THAT(docs, HasSubstr("`" + id + "`"));
    }
    if (framework.policy == nullptr) continue;
    // "| `xla` | `threshold:cap=31457287B,closes=before-exceeding` | ..."
    std::vector<Bytes> limits;
    for (const std::int64_t limit : framework.size->limits(std::nullopt, 1)) {
      limits.emplace_back(framework.size->unit == schedule::CountedIn::Elements ? 4 * limit
                                                                                : limit);
    }
    EXPECT_THAT(docs, HasSubstr("| `" + id + "` | `" + framework.policy(limits) + "` |"));
  }
}

}  // namespace
}  // namespace dovetail::frameworks
