// Words of enums: both directions, lists for messages, JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/words.h"

#include "base/error.h"
#include "base/json_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace dovetail::testing {

enum class Colour { Red, Green, Blue };
constexpr auto words_of(Colour) { return words("red", "green", "blue"); }
using dovetail::to_string;

namespace {

TEST(WordsTest, EachEnumeratorHasItsWordInBothDirections) {
  std::vector<std::string_view> printed;
  for (const Colour colour : kAllOf<Colour>) {
    printed.push_back(to_string(colour));
    EXPECT_EQ(word_to<Colour>(to_string(colour)), colour);
  }
  EXPECT_EQ(printed, (std::vector<std::string_view>{"red", "green", "blue"}));
}

TEST(WordsTest, AWordThatNoEnumeratorHasIsNothing) {
  EXPECT_EQ(word_to<Colour>("Red"), std::nullopt);
  EXPECT_EQ(word_to<Colour>(""), std::nullopt);
}

TEST(WordsTest, ListsThemForAMessage) {
  EXPECT_EQ(word_list<Colour>(), "red, green or blue");
  EXPECT_EQ(word_list<Colour>(std::array{Colour::Green}), "green");
}

TEST(WordsTest, JsonTakesAllWordsOrSomeOfThem) {
  const JsonFile file("paint.json", R"({"of_all": "blue", "of_two": "blue"})");
  JsonObject root = file.root();
  EXPECT_EQ(root.one_of<Colour>("of_all"), Colour::Blue);
  constexpr std::array kTwo = {Colour::Red, Colour::Green};
  try {
    static_cast<void>(root.one_of<Colour>("of_two", kTwo));
    FAIL() << "blue was taken";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()),
              "paint.json: /of_two: expected one of \"red\", \"green\", found \"blue\"");
  }
}

}  // namespace
}  // namespace dovetail::testing
