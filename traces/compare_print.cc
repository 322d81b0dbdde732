// Prints a Comparison as aligned text, and writes it as JSON: the table of activities, then
// collectives one by one, the ops that differ most, and what has no counterpart.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "traces/compare.h"
#include "traces/compare_text.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kShownOps = 5;
constexpr std::size_t kShownUnmatched = 10;

// The unit of the longer step for both sides, so that a reader can add the lines up.
Milliseconds unit_of(const Comparison& comparison) {
  const Pair step = comparison.step_time();
  return milliseconds_of(std::max(step.predicted, step.measured));
}

// A line of a table of pairs.
struct PairRow {
  std::string name;
  Pair pair;
};

Table pair_table(const std::vector<PairRow>& rows, Milliseconds ms) {
  return table_of<PairRow>(
      {{{"", ""}, &PairRow::name},
       {{"", "predicted ms"},
        [ms](const PairRow& row) { return time_cell(row.pair.predicted, ms); }},
       {{"", "measured ms"}, [ms](const PairRow& row) { return time_cell(row.pair.measured, ms); }},
       {{"", "difference ms"},
        [ms](const PairRow& row) { return time_cell(row.pair.difference(), ms); }},
       {{"", "error"}, [](const PairRow& row) { return percent(row.pair.error()); }}},
      rows);
}

// The four columns of a pair in documents, below `name`; people read those that have a title.
struct PairTitles {
  std::optional<std::string> predicted = std::nullopt;
  std::optional<std::string> measured = std::nullopt;
  std::optional<std::string> difference = std::nullopt;
};
template <class Row, class PairOf>
void add_pair(std::vector<Field<Row>>& fields, const std::string& name, Milliseconds ms,
              const PairTitles& titles, PairOf pair_of) {
  const auto of = [&](auto figure) {
    return [=](const Row& row) {
      const std::optional<Pair> pair = std::invoke(pair_of, row);
      return pair ? Cell(figure(*pair)) : Cell();
    };
  };
  fields.push_back({{name + ".predicted_us", titles.predicted},
                    of([ms](const Pair& pair) { return time_cell(pair.predicted, ms); })});
  fields.push_back({{name + ".measured_us", titles.measured},
                    of([ms](const Pair& pair) { return time_cell(pair.measured, ms); })});
  fields.push_back({{name + ".difference_us", titles.difference},
                    of([ms](const Pair& pair) { return time_cell(pair.difference(), ms); })});
  fields.push_back({{name + ".error_percent"}, of([](const Pair& pair) {
                      const std::optional<double> error = pair.error();
                      return error ? Cell(*error * 100) : Cell();
                    })});
}

// Start and end tell a late launch from a slow link: a late bucket starts late and moves as fast as
// predicted.
Table bucket_table(const Comparison& comparison) {
  using Row = BucketComparison;
  const Milliseconds ms = unit_of(comparison);
  std::vector<Field<Row>> fields = {
      {{"command"}, [](const Row& row) { return row.command.value; }},
      {{"bucket"}, [](const Row& row) { return row.bucket ? Cell(row.bucket->value) : Cell(); }},
      {{"name", "collective"}, &Row::name},
      {{"size_bytes", "size"}, &Row::bytes}};
  add_pair(fields, "start", ms, {"start P", "start M", {}}, &Row::start);
  add_pair(fields, "end", ms, {"end P", "end M", "end D"}, &Row::end);
  add_pair(fields, "transfer", ms, {"transfer P", "transfer M", {}}, &Row::transfer);
  add_pair(fields, "exposed", ms, {"exposed P", "exposed M", {}}, &Row::exposed);
  return table_of(fields, comparison.buckets);
}

Table op_table(const Comparison& comparison) {
  using Row = OpComparison;
  std::vector<Field<Row>> fields = {
      {{"command"}, [](const Row& row) { return row.command.value; }},
      {{"name", "op"}, &Row::name},
      {{"activity", "activity", Unit::Own, {}, 0, Align::Left}, &Row::activity}};
  add_pair(fields, "time", unit_of(comparison), {"predicted ms", "measured ms", "difference ms"},
           &Row::time);
  return table_of(fields, comparison.ops);
}

// Activities that neither side has are left out; they add 0 to the sum.
void print_attribution(std::ostream& out, const Comparison& comparison) {
  out << "\nwhere the difference comes from: the compute stream, whose lines sum to the step\n";
  std::vector<PairRow> rows;
  for (const Activity activity : kAllOf<Activity>) {
    const Pair pair = comparison.activity(activity);
    if (pair == Pair{}) continue;
    rows.push_back({std::string(to_string(activity)), pair});
  }
  rows.push_back({"step time", comparison.step_time()});
  print_whole(out, pair_table(rows, unit_of(comparison)), kIndent);
}

// Not part of the sum above: communication runs beside the compute stream, and only its exposed
// part can cost time.
void print_communication(std::ostream& out, const Comparison& comparison) {
  out << "\ncommunication (exposed: no compute runs)\n";
  std::vector<PairRow> rows = {{"communication", comparison.communication()},
                               {"exposed communication", comparison.exposed()}};
  if (const auto transfer = comparison.transfer()) rows.push_back({"transfer", *transfer});
  if (const auto exposed = comparison.exposed_transfer())
    rows.push_back({"exposed transfer", *exposed});
  Table table = pair_table(rows, unit_of(comparison));
  table.rows.push_back({{"overlap ratio", percent(comparison.predicted.report.overlap_ratio()),
                         percent(comparison.measured.report.overlap_ratio()), "", ""},
                        Tone::Plain});
  print_whole(out, table, kIndent);
}

void print_buckets(std::ostream& out, const Comparison& comparison) {
  if (comparison.buckets.empty()) return;
  out << "\nbuckets (ms since the step began; P predicted, M measured, D difference)\n";
  print_whole(out, bucket_table(comparison), kIndent);
}

// The few ops that explain most of a difference in compute.
void print_ops(std::ostream& out, const Comparison& comparison) {
  std::vector<OpComparison> ops = comparison.ops;
  std::erase_if(ops, [](const OpComparison& op) { return op.time.difference() == Duration{}; });
  std::ranges::stable_sort(ops, std::greater{}, [](const OpComparison& op) {
    return std::chrono::abs(op.time.difference());
  });
  if (ops.size() > kShownOps) ops.erase(ops.begin() + kShownOps, ops.end());
  if (ops.empty()) return;
  out << "\nops and copies, largest differences of " << comparison.ops.size() << '\n';
  std::vector<PairRow> rows;
  for (const OpComparison& op : ops) rows.push_back({op.name, op.time});
  print_whole(out, pair_table(rows, unit_of(comparison)), kIndent);
}

std::string_view reason_of(Mismatch what) {
  switch (what) {
    case Mismatch::OnlyPredicted:
      return "only predicted";
    case Mismatch::OnlyMeasured:
      return "only measured";
    case Mismatch::DifferentCommand:
      break;
  }
  return "another command under this id was measured";
}

// A list that is long has one cause (two different plans), so its head is enough.
void print_unmatched(std::ostream& out, const Comparison& comparison) {
  if (comparison.unmatched.empty()) return;
  out << "\nwithout counterpart: " << comparison.unmatched.size() << '\n';
  const std::size_t shown = std::min(comparison.unmatched.size(), kShownUnmatched);
  for (std::size_t i = 0; i < shown; ++i) {
    const Unmatched& item = comparison.unmatched[i];
    out << "  command " << item.command << ", rank " << item.rank << ", \"" << item.name
        << "\": " << reason_of(item.what) << '\n';
  }
  if (shown < comparison.unmatched.size()) {
    out << "  and " << comparison.unmatched.size() - shown << " more\n";
  }
}

using nlohmann::ordered_json;

// Absent numbers are null: NaN is no JSON.
ordered_json json_of(const Pair& pair) {
  const auto error = pair.error();
  return {{"predicted_us", to_us(pair.predicted)},
          {"measured_us", to_us(pair.measured)},
          {"difference_us", to_us(pair.difference())},
          {"error_percent", error ? ordered_json(*error * 100) : ordered_json(nullptr)}};
}

ordered_json json_of(const std::optional<Pair>& pair) {
  return pair ? json_of(*pair) : ordered_json(nullptr);
}

ordered_json json_of(const Unmatched& item) {
  return {{"command", item.command.value},
          {"rank", item.rank.value},
          {"name", item.name},
          {"problem", reason_of(item.what)}};
}

}  // namespace

void print(std::ostream& out, const Comparison& comparison) {
  const Milliseconds ms = unit_of(comparison);
  print_side(out, "predicted", comparison.predicted, ms);
  print_side(out, "measured ", comparison.measured, ms);
  for (const std::string& note : comparison.notes) out << "NOTE       " << note << '\n';
  out << "difference = predicted - measured; error = difference / measured\n";
  print_attribution(out, comparison);
  print_communication(out, comparison);
  print_buckets(out, comparison);
  print_ops(out, comparison);
  print_unmatched(out, comparison);
}

Table rows_of(const Comparison& comparison) {
  return comparison.buckets.empty() ? op_table(comparison) : bucket_table(comparison);
}

std::string to_json(const Comparison& comparison) {
  ordered_json attribution = ordered_json::object();
  for (const Activity activity : kAllOf<Activity>) {
    attribution[std::string(to_string(activity))] = json_of(comparison.activity(activity));
  }
  ordered_json unmatched = ordered_json::array();
  for (const Unmatched& item : comparison.unmatched) unmatched.push_back(json_of(item));
  const ordered_json root = {{"schema", "dovetail.comparison/1"},
                             {"kind", "comparison"},
                             {"predicted", side_json(comparison.predicted)},
                             {"measured", side_json(comparison.measured)},
                             {"notes", comparison.notes},
                             {"step_time", json_of(comparison.step_time())},
                             {"attribution", std::move(attribution)},
                             {"communication", json_of(comparison.communication())},
                             {"exposed", json_of(comparison.exposed())},
                             {"transfer", json_of(comparison.transfer())},
                             {"exposed_transfer", json_of(comparison.exposed_transfer())},
                             {"buckets", rows_json(bucket_table(comparison))},
                             {"ops", rows_json(op_table(comparison))},
                             {"unmatched", std::move(unmatched)}};
  // Names come from files; a byte that is no UTF-8 must not end the report.
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dovetail::traces
