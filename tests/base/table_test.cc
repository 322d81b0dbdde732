// Tables: one list of fields, and what people, JSON, CSV and Markdown get of it.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/table.h"

#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace dovetail::testing {
namespace {

struct Plan {
  std::string name;
  Duration step{};
  std::optional<double> gain;
  Bytes kept;
  std::int64_t ranks = 0;
};

std::vector<Field<Plan>> plan_fields() {
  return {{{"plan", "plan"}, &Plan::name},
          {{"step_us", "step ms", Unit::Milliseconds, {2}}, &Plan::step},
          {{"gain_percent", "gain", Unit::Percent, {1, Sign::Always}}, &Plan::gain},
          {{"kept_bytes", "keeps GiB", Unit::Gib, {1}}, &Plan::kept},
          {{"ranks"}, &Plan::ranks},
          {{"", "", Unit::Own, {}, 0, Align::Left},
           [](const Plan& plan) { return plan.ranks > 4 ? "large" : ""; }}};
}

const std::vector<Plan> kPlans = {
    {"ddp", Duration(12'345'678), 3.25, mib(1536), 8},
    {"one, \"whole\"", Duration(9'000'000), std::nullopt, gib(10), 2}};

std::string text(const Table& table, std::size_t room) {
  std::string all;
  for (const TextLine& line : text_of(table, room).lines) all += line.text + "\n";
  return all;
}

TEST(TableTest, PeopleReadFiguresInTheUnitAndTheDigitsOfTheirColumn) {
  EXPECT_EQ(text(table_of(plan_fields(), kPlans), 80),
            "plan          step ms    gain  keeps GiB\n"
            "ddp             12.35  +3.2 %        1.5  large\n"
            "one, \"whole\"     9.00       -       10.0\n");
}

TEST(TableTest, DocumentsHoldTheValueItselfAndNullForNothing) {
  EXPECT_EQ(
      rows_json(table_of(plan_fields(), kPlans)).dump(),
      R"([{"plan":"ddp","step_us":12345.678,"gain_percent":3.25,"kept_bytes":1610612736,"ranks":8},)"
      R"({"plan":"one, \"whole\"","step_us":9000.0,"gain_percent":null,"kept_bytes":10737418240,"ranks":2}])");
}

TEST(TableTest, CsvIsQuotedAndHasNothingForNothing) {
  EXPECT_EQ(csv_of(table_of(plan_fields(), kPlans)),
            "plan,step_us,gain_percent,kept_bytes,ranks\n"
            "ddp,12345.678,3.25,1610612736,8\n"
            "\"one, \"\"whole\"\"\",9000.0,,10737418240,2\n");
}

TEST(TableTest, MarkdownAlignsNumbersToTheRightAndKeepsBarsInCells) {
  const std::vector<Field<Plan>> fields = {{{"plan", "plan | policy"}, &Plan::name},
                                           {{"ranks", "ranks"}, &Plan::ranks}};
  EXPECT_EQ(markdown_of(table_of(fields, std::vector<Plan>{{.name = "a|b", .ranks = 4}})),
            "| plan \\| policy | ranks |\n| --- | ---: |\n| a\\|b | 4 |\n");
}

TEST(TableTest, ADotInAKeyMakesAnObjectThatIsNullWhereNothingInItIsKnown) {
  const std::vector<Field<Plan>> fields = {
      {{"plan"}, &Plan::name},
      {{"steps.gain_percent"}, &Plan::gain},
      {{"steps.worst.gain_percent"}, &Plan::gain},
  };
  const Table table = table_of(fields, kPlans);
  EXPECT_EQ(rows_json(table)[0].dump(),
            R"({"plan":"ddp","steps":{"gain_percent":3.25,"worst":{"gain_percent":3.25}}})");
  EXPECT_EQ(row_json(table, 1).dump(), R"({"plan":"one, \"whole\"","steps":null})");
  EXPECT_EQ(csv_of(table),
            "plan,steps.gain_percent,steps.worst.gain_percent\nddp,3.25,3.25\n"
            "\"one, \"\"whole\"\"\",,\n");
}

TEST(TableTest, ACellIsShownInTheWordsOfItsColumn) {
  const auto shown = [](const Cell& cell, Unit unit, Digits digits = {}) {
    return cell.text({.key = "", .title = "", .unit = unit, .digits = digits});
  };
  EXPECT_EQ(shown(Duration(1'500), Unit::Own), "1.5 us");
  EXPECT_EQ(shown(Duration(1'500), Unit::Microseconds, {1}), "1.5");
  EXPECT_EQ(shown(mib(25), Unit::Own), "25 MiB");
  EXPECT_EQ(shown(0.125, Unit::Share, {1}), "12.5 %");
  EXPECT_EQ(shown(1.25, Unit::Times, {2}), "x1.25");
  EXPECT_EQ(shown(7, Unit::Percent, {0}), "7 %");
  EXPECT_EQ(shown(7, Unit::Own, {2}), "7");
  EXPECT_EQ(shown(true, Unit::Own), "yes");
  EXPECT_EQ(shown(std::vector<std::string>{"a", "b"}, Unit::Own), "a, b");
  EXPECT_EQ(shown(Cell(1.5).shown_as("about one"), Unit::Own), "about one");
}

TEST(TableTest, WhatIsNoFiniteNumberIsNothing) {
  EXPECT_TRUE(Cell(std::nan("")).is_nothing());
  EXPECT_TRUE(Cell(std::numeric_limits<double>::infinity()).is_nothing());
  EXPECT_FALSE(Cell(0.0).is_nothing());
}

TEST(TableTest, WhereItIsTooWideTitlesAreBrokenThenColumnsSparedThenTextsCut) {
  struct Row {};
  const std::vector<Field<Row>> fields = {
      {{"", "name of it"}, [](const Row&) { return "one"; }},
      {{"", "a"}, [](const Row&) { return 1; }},
      {{"", "number", Unit::Own, {}, 1}, [](const Row&) { return 12345678; }},
      {{"", "words", Unit::Own, {}, 0, Align::Left},
       [](const Row&) { return "some words that go on for a while until they are cut"; }}};
  const Table table = table_of(fields, std::vector<Row>(1));
  EXPECT_EQ(text(table, 40),
            "name\nof\nit    a  words\n"
            "one   1  some words that go on for a w..\n");
  EXPECT_EQ(text_of(table, 40).missing, std::vector<std::string>{"number"});
  EXPECT_TRUE(text_of(table, 200).missing.empty());
}

TEST(TableTest, WithoutTitlesThereIsNoLineOfThemAndNoEmptyColumn) {
  const std::vector<Field<Plan>> fields = {
      {{"", ""}, &Plan::name},
      {{"", ""}, [](const Plan&) { return ""; }},
      {{"", "", Unit::Own, {}, 0, Align::Left}, [](const Plan& plan) { return plan.kept; }}};
  std::ostringstream out;
  print_whole(out, table_of(fields, kPlans), 2);
  EXPECT_EQ(out.str(), "  ddp           1.5 GiB\n  one, \"whole\"  10 GiB\n");
}

TEST(TableTest, ARowHasItsTone) {
  const Table table = table_of(plan_fields(), kPlans, [](const Plan& plan) {
    return plan.ranks > 4 ? Tone::Warning : Tone::Good;
  });
  const std::vector<TextLine> lines = text_of(table, 80).lines;
  EXPECT_EQ(lines[0].tone, Tone::Plain);
  EXPECT_EQ(lines[1].tone, Tone::Warning);
  EXPECT_EQ(lines[2].tone, Tone::Good);
}

}  // namespace
}  // namespace dovetail::testing
