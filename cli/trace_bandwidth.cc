// Lays the measured series (recordings/diagnose/measured_series.h) beside shipped ones (calibrate/logs/verdict.h).
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_bandwidth.h"

#include <algorithm>
#include <span>
#include <variant>

#include "calibrate/logs/verdict.h"
#include "recordings/diagnose/measured_series.h"

namespace dovetail::cli {

std::vector<BusRow> bus_rows(const imports::JobTrace& job, const std::string& data_dir) {
  const auto& devices = job.ranks.front().trace.devices;
  const std::string gpu = devices.empty() ? "" : devices.begin()->second.name;
  std::vector<BusRow> rows;
  for (const diagnose::MeasuredSeries& series : diagnose::measured_series(job)) {
    const auto like = series.is_comparable
                          ? imports::shipped_like(gpu, series.table, data_dir + "/clusters")
                          : std::nullopt;
    const auto sizes = imports::verdicts(series.table, like ? &*like : nullptr);
    const auto& points = std::get<std::vector<models::CollectivePoint>>(series.table.times);
    for (std::size_t i = points.size(); i-- > 0;) {
      rows.push_back({.collective = std::string(to_string(series.table.collective)),
                      .bytes = points[i].bytes,
                      .ranks = series.table.ranks,
                      .own = points[i].isolated,
                      .gb_s = sizes[i].bus_gb_s,
                      .other = sizes[i].other_gb_s,
                      .machine = like ? like->name : ""});
    }
  }
  return rows;
}

std::string slow_bus_sentence(const imports::JobTrace& job, const std::vector<BusRow>& rows) {
  const auto slow = std::ranges::find_if(rows, [](const BusRow& row) {
    return row.other && row.bytes >= mib(1) && row.gb_s * 2 < *row.other;
  });
  if (slow == rows.end()) return "";
  std::string text = slow->collective + " of " + to_string(slow->bytes) + " moves " +
                     fixed(slow->gb_s, 1) + " GB/s over " + std::to_string(slow->ranks) +
                     " ranks, where " + slow->machine + " has " + fixed(*slow->other, 0) +
                     " (bus bandwidth): ";
  text += job.ranks.size() == 1 ? "one rank's trace, so waiting may be in it; " : "";
  return text +
         "see what NCCL runs on (NCCL_DEBUG=INFO: NET/Socket, SHM, or no P2P), dovetail import "
         "nccl-log";
}

namespace {

// In MiB with three places where a row beside it has another size that prints alike: "28.059 MiB".
std::string size_text(const std::vector<BusRow>& rows, const BusRow& row) {
  const bool is_alone = std::ranges::none_of(rows, [&row](const BusRow& other) {
    return other.bytes != row.bytes && to_string(other.bytes) == to_string(row.bytes);
  });
  if (is_alone) return to_string(row.bytes);
  return fixed(static_cast<double>(row.bytes.count()) / static_cast<double>(mib(1).count()), 3) +
         " MiB";
}

}  // namespace

void print_bus(std::ostream& out, const std::vector<BusRow>& rows, const Detail& detail) {
  if (rows.empty()) return;
  constexpr std::size_t kShown = 8;
  const std::size_t shown = detail.all ? rows.size() : std::min(rows.size(), kShown);
  out << '\n';
  print_text(out, "collectives by themselves (measured; bus bandwidth as nccl-tests has it)" +
                      (shown < rows.size() ? ", " + std::to_string(shown) + " of " +
                                                 std::to_string(rows.size()) + "; --all"
                                           : ""));
  print_table(out, table_of<BusRow>(
                       {{{"", "collective"}, &BusRow::collective},
                        {{"", "size"}, [&rows](const BusRow& row) { return size_text(rows, row); }},
                        {{"", "ranks"}, &BusRow::ranks},
                        {{"", "ms", Unit::Milliseconds, {3}}, &BusRow::own},
                        {{"", "GB/s"}, [](const BusRow& row) { return fixed(row.gb_s, 1); }},
                        {{"", "shipped machine", Unit::Own, {}, 0, Align::Left},
                         [](const BusRow& row) {
                           return row.other ? row.machine + " " + fixed(*row.other, 1)
                                            : std::string("-");
                         }}},
                       std::span(rows).first(shown)));
}

}  // namespace dovetail::cli
