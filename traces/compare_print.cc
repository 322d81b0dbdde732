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
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

constexpr std::size_t kShownOps = 5;
constexpr std::size_t kShownUnmatched = 10;

// The unit of the longer step for both sides, so that a reader can add the lines up.
Milliseconds unit_of(const Comparison& comparison) {
  const Pair step = comparison.step_time();
  return milliseconds_of(std::max(step.predicted, step.measured));
}

// Rows of pairs.
class Table {
 public:
  explicit Table(Milliseconds ms) : ms_(ms) {}

  void add(std::vector<std::string> row) { rows_.add(std::move(row)); }
  void add(std::string name, const Pair& pair) {
    add({std::move(name), ms_(pair.predicted), ms_(pair.measured), ms_(pair.difference()),
         percent(pair.error())});
  }
  void print(std::ostream& out) const { rows_.print(out); }

 private:
  Milliseconds ms_;
  AlignedRows rows_;
};

std::vector<std::string> pair_header(std::string first) {
  return {std::move(first), "predicted ms", "measured ms", "difference ms", "error"};
}

// Activities that neither side has are left out; they add 0 to the sum.
void print_attribution(std::ostream& out, const Comparison& comparison) {
  out << "\nwhere the difference comes from: the compute stream, whose lines sum to the step\n";
  Table table(unit_of(comparison));
  table.add(pair_header(""));
  for (const Activity activity : kAllOf<Activity>) {
    const Pair pair = comparison.activity(activity);
    if (pair == Pair{}) continue;
    table.add(std::string(to_string(activity)), pair);
  }
  table.add("step time", comparison.step_time());
  table.print(out);
}

// Not part of the sum above: communication runs beside the compute stream, and only its exposed
// part can cost time.
void print_communication(std::ostream& out, const Comparison& comparison) {
  out << "\ncommunication (exposed: no compute runs)\n";
  Table table(unit_of(comparison));
  table.add(pair_header(""));
  table.add("communication", comparison.communication());
  table.add("exposed communication", comparison.exposed());
  if (const auto transfer = comparison.transfer()) table.add("transfer", *transfer);
  if (const auto exposed = comparison.exposed_transfer()) table.add("exposed transfer", *exposed);
  const auto predicted = comparison.predicted.report.overlap_ratio();
  const auto measured = comparison.measured.report.overlap_ratio();
  table.add({"overlap ratio", percent(predicted), percent(measured)});
  table.print(out);
}

// One line per collective. Start and end tell a late launch from a slow link: a late bucket starts
// late and moves as fast as predicted.
void print_buckets(std::ostream& out, const Comparison& comparison) {
  if (comparison.buckets.empty()) return;
  out << "\nbuckets (ms since the step began; P predicted, M measured, D difference)\n";
  const Milliseconds ms = unit_of(comparison);
  Table table(ms);
  table.add({"collective", "size", "start P", "start M", "end P", "end M", "end D", "transfer P",
             "transfer M", "exposed P", "exposed M"});
  for (const BucketComparison& bucket : comparison.buckets) {
    const auto& transfer = bucket.transfer;
    table.add({bucket.name, to_string(bucket.bytes), ms(bucket.start.predicted),
               ms(bucket.start.measured), ms(bucket.end.predicted), ms(bucket.end.measured),
               ms(bucket.end.difference()), transfer ? ms(transfer->predicted) : "-",
               transfer ? ms(transfer->measured) : "-", ms(bucket.exposed.predicted),
               ms(bucket.exposed.measured)});
  }
  table.print(out);
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
  Table table(unit_of(comparison));
  table.add(pair_header(""));
  for (const OpComparison& op : ops) table.add(op.name, op.time);
  table.print(out);
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

ordered_json json_of(const BucketComparison& bucket) {
  return {{"command", bucket.command.value},
          {"bucket", bucket.bucket ? ordered_json(bucket.bucket->value) : ordered_json(nullptr)},
          {"name", bucket.name},
          {"size_bytes", bucket.bytes.count()},
          {"start", json_of(bucket.start)},
          {"end", json_of(bucket.end)},
          {"transfer", json_of(bucket.transfer)},
          {"exposed", json_of(bucket.exposed)}};
}

ordered_json json_of(const OpComparison& op) {
  return {{"command", op.command.value},
          {"name", op.name},
          {"activity", to_string(op.activity)},
          {"time", json_of(op.time)}};
}

ordered_json json_of(const Unmatched& item) {
  return {{"command", item.command.value},
          {"rank", item.rank.value},
          {"name", item.name},
          {"problem", reason_of(item.what)}};
}

template <class Items>
ordered_json json_array(const Items& items) {
  ordered_json array = ordered_json::array();
  for (const auto& item : items) array.push_back(json_of(item));
  return array;
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

std::string to_json(const Comparison& comparison) {
  ordered_json attribution = ordered_json::object();
  for (const Activity activity : kAllOf<Activity>) {
    attribution[std::string(to_string(activity))] = json_of(comparison.activity(activity));
  }
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
                             {"buckets", json_array(comparison.buckets)},
                             {"ops", json_array(comparison.ops)},
                             {"unmatched", json_array(comparison.unmatched)}};
  // Names come from files; a byte that is no UTF-8 must not end the report.
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dovetail::traces
