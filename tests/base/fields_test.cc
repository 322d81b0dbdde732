// Tables of fields: what they read, write and say in a schema, and the message of each mistake.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/fields.h"

#include "base/error.h"
#include "base/json_reader.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail {
namespace {

enum class Colour { Red, Green };
constexpr auto words_of(Colour) { return words("red", "green"); }

struct Round {
  double radius = 0;
  friend bool operator==(const Round&, const Round&) = default;
};
struct Square {
  std::int64_t side = 0;
  friend bool operator==(const Square&, const Square&) = default;
};
using Shape = std::variant<Round, Square>;

struct Thing {
  std::string name;
  Bytes size = Bytes(8);
  Duration time{};
  std::optional<double> rate;
  Colour colour = Colour::Red;
  std::vector<Bytes> rising;
  std::map<std::string, std::string> notes;
  std::map<Colour, std::int64_t> counts;
  Shape shape;
  Shape other;
  friend bool operator==(const Thing&, const Thing&) = default;
};

constexpr auto kRound = fields<Round>(required("radius", &Round::radius, as_number(0, 10)));
constexpr auto kSquare = fields<Square>(required("side", &Square::side, as_integer(1)));

constexpr auto kThing = as_object(fields<Thing>(
    document("dovetail.thing/1", "thing"), required("name", &Thing::name, as_name(), "of it"),
    defaulted("size_bytes", &Thing::size, as_integer(1, 64)),
    optional("time_us", &Thing::time, as_us(0, 100)), optional("rate", &Thing::rate, as_number(0)),
    optional("colour", &Thing::colour, as_word()),
    optional(
        "rising", &Thing::rising,
        as_list(as_integer(0),
                [](const JsonValue& item, const std::vector<Bytes>& before, Bytes bytes, auto&) {
                  if (!before.empty() && bytes <= before.back()) item.fail("sizes rise");
                })),
    optional("notes", &Thing::notes, as_keyed(as_text())),
    optional(
        "counts", &Thing::counts,
        as_object(fields<std::map<Colour, std::int64_t>>(by_word<Colour>(kSelf, as_integer(0))))),
    required(
        "shape", &Thing::shape,
        tagged("kind", when<Round>("round", kRound, "a circle"), when<Square>("square", kSquare))),
    alternatives(&Thing::other, "expected \"radius\" or \"side\", found neither",
                 with<Round>(required("radius", &Round::radius, as_number(0, 10))),
                 with<Square>(required("side", &Square::side, as_integer(1)))),
    check([](const JsonObject& object, const Thing& thing, auto&) {
      if (thing.name == "nobody") object.value().fail("nobody is no name");
    })));

constexpr std::string_view kShortest =
    R"({"schema": "dovetail.thing/1", "kind": "thing", "name": "a",
        "shape": {"kind": "square", "side": 2}, "radius": 1})";

Thing read(std::string_view text) {
  const JsonFile file("f.json", text);
  return read_as<Thing>(kThing, file.root());
}

// The message where the first text stands in the shortest file in place of the second one.
std::string refused(std::string_view text, std::string_view replaced) {
  std::string changed(kShortest);
  changed.replace(changed.find(replaced), replaced.size(), text);
  try {
    read(changed);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(FieldsTest, KeepsTheDefaultsOfWhatIsAbsentAndWritesNoneOfThem) {
  const Thing thing = read(kShortest);
  EXPECT_EQ(thing, (Thing{.name = "a",
                          .size = Bytes(8),
                          .time = {},
                          .rate = {},
                          .colour = Colour::Red,
                          .rising = {},
                          .notes = {},
                          .counts = {},
                          .shape = Square{2},
                          .other = Round{1}}));
  EXPECT_EQ(as_json(kThing, thing).dump(),
            R"({"schema":"dovetail.thing/1","kind":"thing","name":"a","size_bytes":8,)"
            R"("shape":{"kind":"square","side":2},"radius":1.0})");
}

TEST(FieldsTest, WritesWhatItReadsInTheOrderOfTheTable) {
  const std::string text =
      R"({"schema":"dovetail.thing/1","kind":"thing","name":"b","size_bytes":3,"time_us":1.5,)"
      R"("rate":0.25,"colour":"green","rising":[1,2],"notes":{"why":"so"},"counts":{"green":4},)"
      R"("shape":{"kind":"round","radius":2.5},"side":7})";
  EXPECT_EQ(as_json(kThing, read(text)).dump(), text);
}

TEST(FieldsTest, SaysWhereAValueIsOutOfItsRange) {
  EXPECT_EQ(refused(R"("size_bytes": 65, "radius")", R"("radius")"),
            "f.json: /size_bytes: expected an integer from 1 to 64, found 65");
  EXPECT_EQ(refused(R"("side": 0)", R"("side": 2)"),
            "f.json: /shape/side: expected an integer >= 1, found 0");
  EXPECT_EQ(refused(R"("counts": {"red": -1}, "radius")", R"("radius")"),
            "f.json: /counts/red: expected an integer >= 0, found -1");
  EXPECT_EQ(refused(R"("name": "")", R"("name": "a")"),
            "f.json: /name: expected a name, found \"\"");
}

TEST(FieldsTest, RefusesAnUnknownKeyWithTheNearestOfTheTable) {
  EXPECT_EQ(refused(R"("sise_bytes": 4, "radius")", R"("radius")"),
            "f.json: /sise_bytes: unknown key; did you mean \"size_bytes\"?");
  EXPECT_EQ(refused(R"("counts": {"grean": 1}, "radius")", R"("radius")"),
            "f.json: /counts/grean: unknown key; did you mean \"green\"?");
}

TEST(FieldsTest, TakesNoOtherKnownKeyForAMisspellingOfAMissingOne) {
  EXPECT_EQ(refused(R"("nama": "a")", R"("name": "a")"),
            "f.json: /: missing key \"name\"; is \"nama\" a misspelling of it?");
  EXPECT_EQ(refused(R"("notes": {})", R"("name": "a")"), "f.json: /: missing key \"name\"");
}

TEST(FieldsTest, TakesOneAlternativeOnly) {
  EXPECT_EQ(refused(R"("radius": 1, "side": 1})", R"("radius": 1})").substr(0, 26),
            "f.json: /side: unknown key");
  EXPECT_EQ(refused(R"(2}})", R"(2}, "radius": 1})"),
            "f.json: /: expected \"radius\" or \"side\", found neither");
}

TEST(FieldsTest, ReadsATaggedAlternativeWithItsOwnKeysOnly) {
  EXPECT_EQ(refused(R"("kind": "oval")", R"("kind": "square")"),
            "f.json: /shape/kind: expected one of \"round\", \"square\", found \"oval\"");
  EXPECT_EQ(refused(R"("kind": "round")", R"("kind": "square")"),
            "f.json: /shape: missing key \"radius\"");
}

TEST(FieldsTest, ChecksStandWhereTheTableHasThem) {
  EXPECT_EQ(refused(R"("rising": [1, 1], "radius")", R"("radius")"),
            "f.json: /rising/1: sizes rise");
  EXPECT_EQ(refused(R"("name": "nobody")", R"("name": "a")"), "f.json: /: nobody is no name");
}

TEST(FieldsTest, TheSchemaHasRangesWordsAndWhatIsRequired) {
  const ordered_json schema = schema_of<Thing>(kThing, "dovetail.thing/1: a thing", "An example.");
  EXPECT_EQ(schema["title"], "dovetail.thing/1: a thing");
  EXPECT_EQ(schema["required"].dump(), R"(["schema","kind","name","shape"])");
  EXPECT_EQ(schema["additionalProperties"], false);
  const ordered_json& keys = schema["properties"];
  EXPECT_EQ(keys["schema"].dump(), R"({"const":"dovetail.thing/1"})");
  EXPECT_EQ(keys["name"].dump(), R"({"type":"string","minLength":1,"description":"of it"})");
  EXPECT_EQ(keys["size_bytes"].dump(), R"({"type":"integer","minimum":1,"maximum":64})");
  EXPECT_EQ(keys["colour"].dump(), R"({"enum":["red","green"]})");
  EXPECT_EQ(keys["notes"].dump(), R"({"type":"object","additionalProperties":{"type":"string"}})");
  EXPECT_EQ(keys["shape"]["oneOf"][0].dump(),
            R"({"type":"object","properties":{"kind":{"const":"round"},"radius":{"type":"number",)"
            R"("minimum":0.0,"maximum":10.0}},"required":["kind","radius"],)"
            R"("additionalProperties":false,"description":"a circle"})");
  EXPECT_EQ(schema["oneOf"].dump(), R"([{"required":["radius"]},{"required":["side"]}])");
}

}  // namespace
}  // namespace dovetail
