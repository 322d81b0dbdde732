// `dovetail validate`: scores of every public table, as a table and as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <algorithm>
#include <iomanip>
#include <utility>
#include <vector>

#include "base/decimal.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/outputs.h"
#include "yardsticks/yardstick.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using yardsticks::MemoryScore;
using yardsticks::Yardstick;

struct Judged {
  const Yardstick& yardstick;
  MemoryScore memory;
};

std::int64_t jobs_of(const Yardstick& yardstick) {
  return std::ranges::count_if(yardstick.rows, [](const auto& row) { return row.job.has_value(); });
}

ordered_json row_json(const Judged& judged) {
  const MemoryScore& score = judged.memory;
  ordered_json without = ordered_json::array();
  for (const auto& [reason, count] : without_job(judged.yardstick)) {
    without.push_back({{"reason", reason}, {"rows", count}});
  }
  const auto known = [](std::int64_t rows, double value) {
    return rows > 0 ? ordered_json(value) : ordered_json(nullptr);
  };
  return {{"yardstick", judged.yardstick.name},
          {"rows", judged.yardstick.rows.size()},
          {"jobs", jobs_of(judged.yardstick)},
          {"judged", score.judged},
          {"fit_right_percent", known(score.judged, score.right_percent())},
          {"ran_but_refused", score.ran_but_refused},
          {"failed_but_allowed", score.failed_but_allowed},
          {"peaks", score.peak.rows},
          {"peak_median_percent", known(score.peak.rows, score.peak.median)},
          {"peak_median_absolute_percent", known(score.peak.rows, score.peak.median_absolute)},
          {"peak_p90_absolute_percent", known(score.peak.rows, score.peak.p90_absolute)},
          {"without_job", std::move(without)}};
}

std::string to_json(const std::vector<Judged>& all) {
  ordered_json rows = ordered_json::array();
  for (const Judged& judged : all) rows.push_back(row_json(judged));
  const ordered_json document = {{"schema", "dovetail.validate/1"},
                                 {"kind", "validate"},
                                 {"against", "public"},
                                 {"rows", std::move(rows)}};
  return document.dump(1) + "\n";
}

void print_row(std::ostream& out, const std::vector<std::string>& fields) {
  const std::vector<int> widths = {6, 6, 13, 14, 17, 7, 9, 11, 9};
  out << std::left << std::setw(16) << fields.front() << std::right;
  for (std::size_t i = 1; i < fields.size(); ++i) out << std::setw(widths[i - 1]) << fields[i];
  out << '\n';
}

void print(std::ostream& out, const std::vector<Judged>& all) {
  print_row(out, {"memory", "rows", "jobs", "fits or not", "ran, refused", "failed, allowed",
                  "peaks", "median", "|median|", "p90"});
  for (const auto& [yardstick, score] : all) {
    const auto percent = [](std::int64_t rows, double value, const char* plus = "") {
      return rows > 0 ? fixed(value, 1, plus) + " %" : "-";
    };
    const auto count = [](std::int64_t rows, std::int64_t value) {
      return rows > 0 ? std::to_string(value) : "-";
    };
    print_row(
        out,
        {yardstick.name, std::to_string(yardstick.rows.size()), std::to_string(jobs_of(yardstick)),
         percent(score.judged, score.right_percent()), count(score.judged, score.ran_but_refused),
         count(score.judged, score.failed_but_allowed), count(score.peak.rows, score.peak.rows),
         percent(score.peak.rows, score.peak.median, "+"),
         percent(score.peak.rows, score.peak.median_absolute),
         percent(score.peak.rows, score.peak.p90_absolute)});
  }
  for (const Judged& judged : all) {
    for (const auto& [reason, count] : without_job(judged.yardstick)) {
      out << judged.yardstick.name << ": " << count << (count == 1 ? " row" : " rows")
          << " without a job: " << reason << '\n';
    }
  }
}

}  // namespace

void validate(const ValidateOptions& options, std::ostream& out) {
  if (options.against != "public") {
    throw InputError("validate: expected public, found \"" + options.against + "\"");
  }
  require_outputs({document_file(options.document)}, {});
  const std::vector<Yardstick> all = yardsticks::load_yardsticks(options.folder);
  std::vector<Judged> judged;
  for (const Yardstick& yardstick : all) {
    judged.push_back({.yardstick = yardstick, .memory = score_memory(yardstick)});
  }
  put_document(
      options.document, [&] { return to_json(judged); }, out);
  if (!replaces_report(options.document)) print(out, judged);
}

}  // namespace dovetail::cli
