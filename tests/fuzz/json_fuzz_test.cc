// The readers of Programs and Plans under mutation: they succeed or throw InputError, never else.
//
// Each mutation starts from a good file and changes it 1 to 4 times: bytes and chunks in one half
// of the cases, which mostly ends in the parser; digits, tokens and values in the other half, which
// reaches the checks behind it. What a reader accepts must survive writing and reading again. The
// seed of a failure is printed.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "schedule/program_json.h"
#include "tests/support/cases.h"
#include "tests/support/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace dovetail {
namespace {

constexpr std::uint64_t kMutations = testing::cases(4000);

std::string sample(const std::string& name) {
  return read_file(std::string(DOVETAIL_SOURCE_DIR) + "/tests/golden/schedule/" + name);
}

std::size_t place(Random& random, std::size_t size) {
  return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(size) - 1));
}

constexpr std::array<std::string_view, 18> kTokens = {"null",
                                                      "true",
                                                      "-1",
                                                      "0",
                                                      "3.9",
                                                      "1e308",
                                                      "9223372036854775807",
                                                      "18446744073709551615",
                                                      "2147483648",
                                                      "\"\"",
                                                      "\"fc1\"",
                                                      "[]",
                                                      "{}",
                                                      "[[]]",
                                                      "{\"a\": 1}",
                                                      "\"\\u0000\"",
                                                      "NaN",
                                                      "\"comm99999999999\""};

// One scalar of the text, from a random place on: a run of characters between delimiters.
struct Scalar {
  std::size_t begin = 0;
  std::size_t size = 0;
};
Scalar scalar(const std::string& text, Random& random) {
  constexpr std::string_view kDelimiters = " \n,:[]{}";
  const std::size_t begin = text.find_first_not_of(kDelimiters, place(random, text.size()));
  if (begin == std::string::npos) return {};
  return {begin, std::min(text.find_first_of(kDelimiters, begin), text.size()) - begin};
}

// Mistakes that leave the text JSON, mostly: another digit, a token or another scalar in place of
// one.
void mutate_value(std::string& text, Random& random) {
  const Scalar target = scalar(text, random);
  const Scalar source = scalar(text, random);
  const std::size_t digit = text.find_first_of("0123456789", place(random, text.size()));
  switch (random.between(0, 2)) {
    case 0:
      if (digit != std::string::npos) text[digit] = static_cast<char>('0' + random.between(0, 9));
      break;
    case 1:
      text.replace(target.begin, target.size, text.substr(source.begin, source.size));
      break;
    default:
      text.replace(target.begin, target.size, kTokens[place(random, kTokens.size())]);
  }
}

// Mistakes of files: a flipped byte, a cut, a chunk repeated, lost or written over another one.
void mutate_bytes(std::string& text, Random& random) {
  const std::size_t at = place(random, text.size());
  const std::size_t size = 1 + place(random, std::min<std::size_t>(text.size() - at, 64));
  switch (random.between(0, 4)) {
    case 0:
      text[at] = static_cast<char>(random.between(0, 255));
      break;
    case 1:
      text.resize(at);
      break;
    case 2:
      text.insert(at, text.substr(at, size));
      break;
    case 3:
      text.erase(at, size);
      break;
    default:
      text.replace(place(random, text.size()), size, text.substr(at, size));
  }
}

std::string mutate(std::string text, std::uint64_t seed) {
  Random random(seed);
  const bool keep_json = random.between(0, 1) == 0;
  const auto times = random.between(1, 4);
  for (std::int64_t i = 0; i < times && !text.empty(); ++i) {
    keep_json ? mutate_value(text, random) : mutate_bytes(text, random);
  }
  return text;
}

// Reads every mutation of a text. Any other exception fails the test, a crash fails the process.
template <class Parse, class Write>
void fuzz(const std::string& text, Parse parse, Write write) {
  std::uint64_t accepted = 0;
  std::uint64_t refused_as_json = 0;
  for (std::uint64_t seed = 0; seed < kMutations; ++seed) {
    const std::string mutated = mutate(text, seed);
    try {
      const auto value = parse("fuzz.json", mutated);
      ++accepted;
      EXPECT_EQ(parse("again.json", write(value)), value) << "seed " << seed;
    } catch (const InputError& error) {
      const std::string_view message = error.what();
      EXPECT_TRUE(message.starts_with("fuzz.json: ")) << message << ", seed " << seed;
      if (message.starts_with("fuzz.json: not valid JSON")) ++refused_as_json;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what();
    }
  }
  // The mutations reach all three ends: the parser, the checks behind it, and success.
  EXPECT_GT(accepted, kMutations / 50);
  EXPECT_GT(refused_as_json, kMutations / 5);
  EXPECT_GT(kMutations - accepted - refused_as_json, kMutations / 10);
}

TEST(JsonFuzzTest, AMutatedProgramIsReadOrRefused) {
  fuzz(sample("tiny.program.json"), schedule::parse_program, schedule::program_to_json);
}

TEST(JsonFuzzTest, AMutatedPlanIsReadOrRefused) {
  fuzz(sample("pair.plan.json"), schedule::parse_plan, schedule::plan_to_json);
}

// A plan of three layers and two ranks per stage, with the decisions of the policy.
std::string plan_text(const std::string& policy) {
  using testing::us;
  const testing::Layer layer{us(10), us(20), kib(4), us(1)};
  const schedule::Policy spec = schedule::parse_policy(policy);
  schedule::Program program = testing::chain({layer, layer, layer}, 2);
  if (spec.decisions.stages) {
    auto assigned = schedule::assign_stages(program, schedule::split_of(spec));
    program = std::get<schedule::Rewritten>(std::move(assigned)).program;
  }
  schedule::Plan plan{.program = std::move(program), .schedule = {}, .summary = {}};
  plan.schedule = schedule::make_schedule(plan.program, spec);
  return schedule::plan_to_json(plan);
}

TEST(JsonFuzzTest, AMutatedPlanOfShardedGradientsIsReadOrRefused) {
  fuzz(plan_text("sharded:cap=6KiB,p=2,k=2,gather=next-forward,scale=optimizer"),
       schedule::parse_plan, schedule::plan_to_json);
}

TEST(JsonFuzzTest, AMutatedPlanOfMergedGradientsIsReadOrRefused) {
  fuzz(plan_text("gradient-merge:k=2,sync=every,sums=f64,scale=after-collective"),
       schedule::parse_plan, schedule::plan_to_json);
}

TEST(JsonFuzzTest, AMutatedPlanOfAPipelineIsReadOrRefused) {
  fuzz(plan_text("pipeline:kind=1f1b,stages=2,k=4"), schedule::parse_plan, schedule::plan_to_json);
}

TEST(JsonFuzzTest, EveryPrefixOfAPlanIsRefused) {
  const std::string text = sample("pair.plan.json");
  // The last character is the newline after the closing brace.
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_THROW(static_cast<void>(schedule::parse_plan("cut.json", text.substr(0, size))),
                 InputError)
        << "first " << size << " bytes";
  }
}

}  // namespace
}  // namespace dovetail
