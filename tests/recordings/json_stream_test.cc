// What JsonStream makes of a text in memory: its objects one at a time, and strict JSON of loose one.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/json_stream.h"

#include "base/json_reader.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace dovetail::imports {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Items {
  std::vector<std::pair<std::size_t, std::string>> items;  // line, text
  JsonItemsEnd end;
};

Items items_of(std::string_view text) {
  JsonStream json("f", text);
  Items found;
  while (const auto item = json.next_item()) found.items.emplace_back(item->line, item->text);
  found.end = json.items_end();
  return found;
}

std::string document_of(std::string_view text) {
  JsonStream json("f", text);
  return std::string(json.document());
}

TEST(JsonStreamTest, FindsTheObjectsOfAListAndOfLines) {
  for (const std::string& text :
       {std::string("[{\"a\": [{}]},\n\n {\"b\":\n \"}\\\"{\"},]\n"),
        std::string("\xef\xbb\xbf{\"a\": [{}]}\n\n{\"b\":\n \"}\\\"{\"}")}) {
    const Items found = items_of(text);
    EXPECT_THAT(found.items,
                ElementsAre(Pair(1U, "{\"a\": [{}]}"), Pair(3U, "{\"b\":\n \"}\\\"{\"}")));
    EXPECT_EQ(found.end.cut_line, 0U);
    EXPECT_EQ(found.end.other_lines, 0U);
  }
  EXPECT_THAT(items_of("").items, ElementsAre());
}

TEST(JsonStreamTest, TellsWhereTheLastObjectIsCutOffAndOfOtherLines) {
  const Items found = items_of("started\n{\"a\": 1}\nrank 3: started again\n{\"b\":\n {\"c\": \"d");
  EXPECT_THAT(found.items, ElementsAre(Pair(2U, "{\"a\": 1}")));
  EXPECT_EQ(found.end.cut_line, 4U);
  EXPECT_EQ(found.end.other_lines, 2U);
}

TEST(JsonStreamTest, AnObjectEndsWithItsBracesWhateverIsInIt) {
  const Items found = items_of("{\"a\": None ]\n{a \"}\": ?}}\n{\"cut\": \\x");
  EXPECT_THAT(found.items, ElementsAre(Pair(1U, "{\"a\": None ]"), Pair(2U, "{a \"}\": ?}")));
  EXPECT_EQ(found.end.cut_line, 3U);
  EXPECT_EQ(found.end.other_lines, 1U);
  std::string deep;
  for (int level = 0; level < 600; ++level) deep += "{\"a\":";
  EXPECT_THAT(error_of([&] { items_of(deep); }), HasSubstr("nested deeper than 512 levels"));
}

TEST(JsonStreamTest, MakesStrictJsonOfLooseOne) {
  EXPECT_EQ(document_of("\xef\xbb\xbf{\"a\": [nan, -inf,\n 1e3,], \"b\": NaN , } "),
            "{\"a\": [null, null,\n 1e3], \"b\": null  } ");
  EXPECT_EQ(document_of("[-nan(ind), 1.#INF, Infinity, null, \"nan,]\", [,]]"),
            "[null, null, null, null, \"nan,]\", []]");
  EXPECT_EQ(document_of("nan"), "null");
  const std::string strict = "{\"a\": [1, {}], \"\\\"\": \"\\u00e4\"}";
  JsonStream json("f", strict);
  EXPECT_EQ(json.document().data(), strict.data());  // nothing is copied
}

TEST(JsonStreamTest, LeavesWhatElseIsWrongForTheParser) {
  for (const std::string text : {"", "{} {}", "[1 2", "[\"cut", "]]", "{\"a\": None}", "[\"\\"}) {
    EXPECT_EQ(document_of(text), text);
  }
}

TEST(JsonStreamTest, AWordThatIsCutOffIsACut) {
  for (const std::string_view text : {"[1, n", "[1, Na", "[1, nul", "[1, -", "[1, tr"}) {
    ByteSource source = ByteSource::memory("f", text, {});
    JsonStream json(source);
    EXPECT_THROW(json.skip(), JsonCut) << text;
  }
}

TEST(JsonStreamTest, ACommaAtTheEndIsAnErrorWhereCommasStandBetween) {
  for (const std::string_view text : {"[1,]", "{\"a\": 1,}"}) {
    const auto read = [&](JsonCommas commas) {
      JsonStream json("f", text, commas);
      if (json.kind() == JsonKind::Array) {
        for (json.enter_array(); json.next_element();) json.skip();
      } else {
        for (json.enter_object(); json.next_key();) json.skip();
      }
    };
    read(JsonCommas::AlsoLast);
    EXPECT_THAT(error_of([&] { read(JsonCommas::Between); }),
                HasSubstr("expected what follows a comma"));
  }
}

}  // namespace
}  // namespace dovetail::imports
