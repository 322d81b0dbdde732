// The readers of Programs and Plans under mutation: they succeed or throw InputError, never else.
//
// Each mutation starts from a good file and flips bytes, cuts, repeats or swaps chunks, or puts one
// JSON token in the place of another, 1 to 4 times. Blind byte flips mostly end in the parser; the
// token swaps reach the checks behind it. What a reader accepts must survive writing and reading
// again. The seed of a failure is printed.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "schedule/plan_json.h"
#include "schedule/program_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace dovetail {
namespace {

constexpr std::uint64_t kMutations = 4000;

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

// Replaces one scalar (a run of characters between delimiters) by a token.
void swap_token(std::string& text, Random& random) {
  constexpr std::string_view kDelimiters = " \n,:[]{}";
  std::size_t begin = place(random, text.size());
  begin = text.find_first_not_of(kDelimiters, begin);
  if (begin == std::string::npos) return;
  const std::size_t end = std::min(text.find_first_of(kDelimiters, begin), text.size());
  text.replace(begin, end - begin, kTokens[place(random, kTokens.size())]);
}

void mutate_once(std::string& text, Random& random) {
  if (text.empty()) return;
  const std::size_t at = place(random, text.size());
  const std::size_t size = 1 + place(random, std::min<std::size_t>(text.size() - at, 64));
  switch (random.between(0, 5)) {
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
    case 4:
      text.replace(place(random, text.size()), size, text.substr(at, size));
      break;
    default:
      swap_token(text, random);
  }
}

std::string mutate(std::string text, std::uint64_t seed) {
  Random random(seed);
  const auto times = random.between(1, 4);
  for (std::int64_t i = 0; i < times; ++i) mutate_once(text, random);
  return text;
}

// Reads every mutation of a text. Any other exception fails the test, a crash fails the process.
template <class Parse, class Write>
void fuzz(const std::string& text, Parse parse, Write write) {
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = 0; seed < kMutations; ++seed) {
    const std::string mutated = mutate(text, seed);
    try {
      const auto value = parse("fuzz.json", mutated);
      ++accepted;
      EXPECT_EQ(parse("again.json", write(value)), value) << "seed " << seed;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("fuzz.json: ")) << "seed " << seed;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what();
    }
  }
  // Neither all accepted nor all refused: the mutations reach both sides of the checks.
  EXPECT_GT(accepted, kMutations / 200);
  EXPECT_LT(accepted, kMutations / 2);
}

TEST(JsonFuzzTest, AMutatedProgramIsReadOrRefused) {
  fuzz(sample("tiny.program.json"), schedule::parse_program, schedule::program_to_json);
}

TEST(JsonFuzzTest, AMutatedPlanIsReadOrRefused) {
  fuzz(sample("pair.plan.json"), schedule::parse_plan, schedule::plan_to_json);
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
