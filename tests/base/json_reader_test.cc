// The strict JSON reader: each mistake gives one message with file, place and what was expected.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.h"

#include "base/error.h"
#include "base/file.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace dovetail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The message of the InputError that `read` throws on this text as file "f.json".
std::string message(std::string_view text, const std::function<void(JsonObject&)>& read) {
  try {
    const JsonFile file("f.json", text);
    JsonObject root = file.root();
    read(root);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string parse_message(std::string_view text) {
  return message(text, [](JsonObject&) {});
}

std::string integer_message(std::string_view text) {
  return message(text, [](JsonObject& root) { static_cast<void>(root.integer("n")); });
}

std::string count_message(std::string_view text) {
  return message(text, [](JsonObject& root) { static_cast<void>(root.integer("n", 1)); });
}

std::string number_message(std::string_view text) {
  return message(text, [](JsonObject& root) { static_cast<void>(root.number("n", 0, 1.5)); });
}

TEST(JsonReaderTest, ReadsEveryKindOfValue) {
  const JsonFile file("f.json",
                      R"({"s": "text", "b": true, "x": 2.5, "whole": 3, "n": -4,
                          "list": [1, 2, 3], "inner": {"word": "red"}})");
  JsonObject root = file.root();
  EXPECT_EQ(root.string("s"), "text");
  EXPECT_TRUE(root.at("b").boolean());
  EXPECT_EQ(root.number("x"), 2.5);
  EXPECT_EQ(root.number("whole"), 3);
  EXPECT_EQ(root.integer("n"), -4);
  std::vector<std::int64_t> list;
  for (const JsonValue& item : root.array("list")) list.push_back(item.integer());
  EXPECT_THAT(list, ElementsAre(1, 2, 3));
  constexpr std::array<std::string_view, 2> kWords = {"blue", "red"};
  JsonObject inner = root.object("inner");
  EXPECT_EQ(inner.word("word", kWords), 1U);
  inner.done();
  root.done();
  EXPECT_TRUE(root.at("inner").is_object());
  EXPECT_TRUE(root.at("s").is_string());
  EXPECT_FALSE(root.at("x").is_string());
}

TEST(JsonReaderTest, AbsentKeysTakeTheirDefaultButNullIsNotAbsent) {
  const JsonFile file("f.json", R"({"given": 7, "empty": null})");
  JsonObject root = file.root();
  EXPECT_EQ(root.integer_or("given", 1), 7);
  EXPECT_EQ(root.integer_or("absent", 1), 1);
  EXPECT_EQ(root.number_or("absent", 0.5), 0.5);
  EXPECT_EQ(root.string_or("absent", "none"), "none");
  EXPECT_EQ(message(R"({"empty": null})",
                    [](JsonObject& object) { static_cast<void>(object.integer_or("empty", 1)); }),
            "f.json: /empty: expected an integer, found null");
}

TEST(JsonReaderTest, AWrongTypeNamesPlaceExpectationAndFinding) {
  const auto string = [](JsonObject& root) { static_cast<void>(root.string("v")); };
  const auto boolean = [](JsonObject& root) { static_cast<void>(root.at("v").boolean()); };
  const auto object = [](JsonObject& root) { static_cast<void>(root.object("v")); };
  const auto array = [](JsonObject& root) { static_cast<void>(root.array("v")); };
  EXPECT_EQ(message(R"({"v": 3})", string), "f.json: /v: expected a string, found 3");
  EXPECT_EQ(message(R"({"v": {}})", string), "f.json: /v: expected a string, found an object");
  EXPECT_EQ(message(R"({"v": 1})", boolean), "f.json: /v: expected true or false, found 1");
  EXPECT_EQ(message(R"({"v": [1]})", object), "f.json: /v: expected an object, found an array");
  EXPECT_EQ(message(R"({"v": "x"})", array), "f.json: /v: expected an array, found \"x\"");
  EXPECT_EQ(parse_message("[1]"), "f.json: /: expected an object, found an array");
}

TEST(JsonReaderTest, AnIntegerHasNoFractionAndIsNoBool) {
  EXPECT_EQ(integer_message(R"({"n": 3.9})"), "f.json: /n: expected an integer, found 3.9");
  EXPECT_EQ(integer_message(R"({"n": 3.0})"), "f.json: /n: expected an integer, found 3.0");
  EXPECT_EQ(integer_message(R"({"n": 1e3})"), "f.json: /n: expected an integer, found 1000.0");
  EXPECT_EQ(integer_message(R"({"n": true})"), "f.json: /n: expected an integer, found true");
  EXPECT_EQ(integer_message(R"({"n": "3"})"), "f.json: /n: expected an integer, found \"3\"");
}

TEST(JsonReaderTest, AnIntegerLiesInItsRange) {
  EXPECT_EQ(count_message(R"({"n": -1})"), "f.json: /n: expected an integer >= 1, found -1");
  EXPECT_EQ(count_message(R"({"n": 1})"), "accepted");
  EXPECT_EQ(
      message(R"({"n": 9})", [](JsonObject& root) { static_cast<void>(root.integer("n", 0, 8)); }),
      "f.json: /n: expected an integer from 0 to 8, found 9");
  EXPECT_EQ(
      message(R"({"n": 9})",
              [](JsonObject& root) {
                static_cast<void>(root.integer("n", std::numeric_limits<std::int64_t>::min(), 8));
              }),
      "f.json: /n: expected an integer <= 8, found 9");
}

TEST(JsonReaderTest, AnIntegerBeyond64BitsIsRefusedNotWrapped) {
  EXPECT_EQ(integer_message(R"({"n": 9223372036854775807})"), "accepted");
  EXPECT_EQ(integer_message(R"({"n": -9223372036854775808})"), "accepted");
  // 2^63 would wrap to -2^63; 2^64 does not even fit the parser's unsigned type.
  EXPECT_EQ(integer_message(R"({"n": 9223372036854775808})"),
            "f.json: /n: expected an integer, found 9223372036854775808");
  EXPECT_THAT(integer_message(R"({"n": 18446744073709551616})"),
              StartsWith("f.json: /n: expected an integer, found 1.8"));
}

TEST(JsonReaderTest, ANumberIsFiniteInRangeAndNoBool) {
  EXPECT_EQ(number_message(R"({"n": 1.5})"), "accepted");
  EXPECT_EQ(number_message(R"({"n": 1.6})"),
            "f.json: /n: expected a number from 0 to 1.5, found 1.6");
  EXPECT_EQ(number_message(R"({"n": false})"),
            "f.json: /n: expected a number from 0 to 1.5, found false");
  EXPECT_THAT(parse_message(R"({"n": 1e400})"), StartsWith("f.json: not valid JSON: "));
}

TEST(JsonReaderTest, LooseNumbersMayStandInQuotesAndWholeOnesHavePoints) {
  const JsonFile file("f.json",
                      R"({"n": [" 61 ", "61.0", 61.0, 61, "x", "1e999", 61.5, "\"61\""]})",
                      JsonNumbers::Loose);
  const JsonArray list = file.root().array("n");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(list[i].integer(0, 61), 61) << i;
    EXPECT_EQ(list[i].number(), 61) << i;
  }
  const auto message = [&](std::size_t i) {
    return testing::error_of([&] { static_cast<void>(list[i].integer(0, 60)); });
  };
  EXPECT_EQ(message(0), "f.json: /n/0: expected an integer from 0 to 60, found \" 61 \"");
  EXPECT_EQ(message(4), "f.json: /n/4: expected an integer from 0 to 60, found \"x\"");
  EXPECT_THAT(message(5), StartsWith("f.json: /n/5: expected an integer"));
  EXPECT_EQ(message(6), "f.json: /n/6: expected an integer from 0 to 60, found 61.5");
  EXPECT_THAT(message(7), StartsWith("f.json: /n/7: expected an integer"));
  EXPECT_THAT(list[0].string(), " 61 ");  // a string all the same
}

TEST(JsonReaderTest, NaNAndInfinityAreNotJson) {
  for (const std::string_view text :
       {R"({"n": NaN})", R"({"n": Infinity})", R"({"n": -Infinity})", R"({"n": nan})"}) {
    EXPECT_THAT(parse_message(text),
                StartsWith("f.json: not valid JSON: parse error at line 1, column "))
        << text;
  }
}

TEST(JsonReaderTest, WhatIsNoTextIsNamed) {
  EXPECT_EQ(parse_message("\x1f\x8b\x08"),
            "f.json: not valid JSON: it is packed by gzip: unpack it, gunzip -k FILE");
  EXPECT_EQ(parse_message(std::string_view("\x7f"
                                           "ELF\0",
                                           5)),
            "f.json: not valid JSON: it is a binary file");
}

TEST(JsonReaderTest, AnUnknownKeyIsAnErrorWithTheNearestName) {
  const auto read = [](JsonObject& root) {
    static_cast<void>(root.integer("cluster"));
    root.ignore("workload");
    root.ignore("comment");
    root.done();
  };
  EXPECT_EQ(message(R"({"cluster": 1, "comment": [1, {"free": "text"}]})", read), "accepted");
  EXPECT_EQ(message(R"({"cluster": 1, "worklaod": "x"})", read),
            "f.json: /worklaod: unknown key; did you mean \"workload\"?");
  EXPECT_EQ(message(R"({"cluster": 1, "zzz": 1})", read),
            "f.json: /zzz: unknown key; known keys: cluster, comment, workload");
}

TEST(JsonReaderTest, AMissingKeyIsNamedWithItsLikelyMisspelling) {
  const auto read = [](JsonObject& root) { static_cast<void>(root.string("cluster")); };
  EXPECT_EQ(message("{}", read), "f.json: /: missing key \"cluster\"");
  EXPECT_EQ(message(R"({"clustr": "x"})", read),
            "f.json: /: missing key \"cluster\"; is \"clustr\" a misspelling of it?");
}

TEST(JsonReaderTest, ADuplicateKeyIsAnErrorAtAnyDepth) {
  EXPECT_EQ(parse_message(R"({"a": 1, "a": 2})"), "f.json: key \"a\" stands twice in one object");
  EXPECT_EQ(parse_message(R"({"a": [{"b": 1, "c": {}, "b": 2}]})"),
            "f.json: key \"b\" stands twice in one object");
  EXPECT_EQ(parse_message(R"({"a": {"a": 1}, "b": {"a": 1}})"), "accepted");
}

TEST(JsonReaderTest, TruncatedTextNamesLineAndColumn) {
  EXPECT_THAT(parse_message("{\n \"a\": 1,\n \"b\""),
              StartsWith("f.json: not valid JSON: parse error at line 3, column 5:"));
  EXPECT_THAT(parse_message(""), StartsWith("f.json: not valid JSON: parse error at line 1"));
  EXPECT_THAT(parse_message("{} x"), StartsWith("f.json: not valid JSON: parse error at line 1"));
}

TEST(JsonReaderTest, AWordIsOneOfAList) {
  constexpr std::array<std::string_view, 2> kWords = {"view", "copy"};
  const auto read = [&](JsonObject& root) { static_cast<void>(root.word("mode", kWords)); };
  EXPECT_EQ(message(R"({"mode": "copy"})", read), "accepted");
  EXPECT_EQ(message(R"({"mode": "Copy"})", read),
            "f.json: /mode: expected one of \"view\", \"copy\", found \"Copy\"");
  EXPECT_EQ(message(R"({"mode": 0})", read),
            "f.json: /mode: expected one of \"view\", \"copy\", found 0");
}

TEST(JsonReaderTest, TheSchemaMustBeExactlyTheExpectedOne) {
  const auto read = [](JsonObject& root) { root.schema("dovetail.plan/1"); };
  EXPECT_EQ(message(R"({"schema": "dovetail.plan/1"})", read), "accepted");
  EXPECT_EQ(message(R"({"schema": "dovetail.plan/2"})", read),
            "f.json: /schema: expected \"dovetail.plan/1\", found \"dovetail.plan/2\"");
  EXPECT_EQ(message("{}", read), "f.json: /: missing key \"schema\"");
}

TEST(JsonReaderTest, PlacesAreJsonPointersWithEscapes) {
  const auto read = [](JsonObject& root) {
    JsonObject inner = root.array("ops")[1].object();
    static_cast<void>(inner.string("a/b~c"));
  };
  // RFC 6901: ~ is written ~0, / is written ~1.
  EXPECT_EQ(message(R"({"ops": [0, {"a/b~c": 5}]})", read),
            "f.json: /ops/1/a~1b~0c: expected a string, found 5");
}

TEST(JsonReaderTest, FailAddsFileAndPlaceToAnyMessage) {
  EXPECT_EQ(message(R"({"a": [7]})", [](JsonObject& root) { root.array("a")[0].fail("too odd"); }),
            "f.json: /a/0: too odd");
}

TEST(JsonReaderTest, WhatWasFoundIsCutToOneShortLine) {
  const std::string text = R"({"n": ")" + std::string(500, 'x') + R"("})";
  EXPECT_EQ(integer_message(text),
            "f.json: /n: expected an integer, found \"" + std::string(56, 'x') + "...");
  EXPECT_EQ(integer_message(R"({"n": "a\nb"})"),
            "f.json: /n: expected an integer, found \"a\\nb\"");
}

TEST(JsonReaderTest, DeepNestingDoesNotExhaustTheStack) {
  const std::string deep(200'000, '[');
  EXPECT_THAT(parse_message(R"({"a": )" + deep), StartsWith("f.json: not valid JSON: "));
  EXPECT_EQ(parse_message(R"({"a": )" + deep + std::string(200'000, ']') + "}"), "accepted");
}

TEST(JsonReaderTest, ReadsFilesAndNamesThemByTheirPath) {
  const std::string path =
      ::testing::TempDir() + "/dovetail_json_reader." + std::to_string(::getpid()) + ".json";
  write_file(path, R"({"n": 4})");
  const JsonFile file(path);
  EXPECT_EQ(file.root().integer("n"), 4);
  EXPECT_EQ(file.name(), path);
  EXPECT_EQ(std::remove(path.c_str()), 0);
  EXPECT_THROW(static_cast<void>(JsonFile(path)), InputError);
}

TEST(JsonReaderTest, ValuesSurviveMovingTheirFile) {
  JsonFile first("f.json", R"({"n": 4})");
  JsonObject root = first.root();
  const JsonFile second(std::move(first));
  EXPECT_EQ(root.integer("n"), 4);
  EXPECT_THAT(second.root().keys(), ElementsAre("n"));
}

TEST(NearestWordTest, FindsATypoAndNothingFarAway) {
  const std::vector<std::string> words = {"latency_us", "bandwidth", "ranks"};
  EXPECT_EQ(nearest_word("latency", words), "latency_us");  // three letters missing
  EXPECT_EQ(nearest_word("bandwith", words), "bandwidth");
  EXPECT_EQ(nearest_word("ranks", words), "ranks");
  // Distance 4 from "ranks" is more than half of four letters.
  EXPECT_EQ(nearest_word("zzzz", words), "");
  EXPECT_EQ(nearest_word("x", {}), "");
}

// In edit distance "--for" is nearer to "--force" than to "--framework".
TEST(NearestWordTest, KnowsWhatAThingIsCalledElsewhere) {
  const std::vector<std::string> flags = {"--force", "--framework", "--cluster"};
  EXPECT_EQ(nearest_word("--for", flags), "--framework");
  EXPECT_EQ(nearest_word("--machine", flags), "--cluster");
  EXPECT_EQ(nearest_word("machine", std::vector<std::string>{"cluster", "latency_us"}), "cluster");
  EXPECT_EQ(nearest_word("for", std::vector<std::string>{"fork"}), "fork");  // no other is there
}

}  // namespace
}  // namespace dovetail
