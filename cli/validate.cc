// `dovetail validate`: scores of every public table, as a table and as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <algorithm>
#include <cctype>
#include <iomanip>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/validation/intervals.h"
#include "answers/validation/schedules.h"
#include "answers/validation/yardstick.h"
#include "base/decimal.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "models/networks/text.h"
#include "search/planner.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using yardsticks::MemoryScore;
using yardsticks::Yardstick;

struct Judged {
  const Yardstick& yardstick;
  MemoryScore memory;
  std::vector<std::optional<Duration>> priced = {};  // of each row
  std::optional<yardsticks::TimeScore> steps = std::nullopt;
  std::vector<yardsticks::Ordering> ordering = {};
  std::vector<yardsticks::Scaling> scaling = {};
};

// The family of clusters that a device belongs to: "H100-96GB" to "h100". "" for none.
std::string family_of(std::string device) {
  std::ranges::transform(device, device.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  for (const char* const family : {"gb300", "gb200", "b300", "b200", "h200", "h100", "a100"}) {
    if (device.find(family) != std::string::npos) return family;
  }
  return "";
}

// A row's step on the cluster of its device; nothing where that is unknown, or the row is no job.
std::optional<Duration> step_of(const yardsticks::Row& row, const std::string& data_dir) {
  const std::string family = family_of(row.device);
  if (!row.job || (family.empty() && row.machine.empty())) return std::nullopt;
  try {
    const std::string shipped = family + "x" + std::to_string(row.job->layout.world());
    models::Cluster cluster =
        predict::load_cluster(row.machine.empty() ? shipped : row.machine, data_dir);
    if (cluster.compute) cluster.compute->products_stretch = row.products_stretch;
    return predict::predict_job(*row.job, cluster,
                                {.policy = row.policy, .synchronous = row.synchronous})
        .step;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// What the first row takes more is added to all others.
void take_from_the_first(Judged& judged) {
  if (judged.yardstick.first_gives.empty() || judged.priced.empty() || !judged.priced.front())
    return;
  const Duration more = *judged.yardstick.rows.front().step - *judged.priced.front();
  for (std::optional<Duration>& priced : judged.priced) {
    if (priced) *priced += more;
  }
  judged.priced.front().reset();
}

// The steps of all rows that have one, on all processors.
yardsticks::Intervals price_steps(const ValidateOptions& options, std::vector<Judged>& all) {
  struct Asked {
    Judged* judged;
    std::size_t row;
  };
  std::vector<Asked> asked;
  for (Judged& judged : all) {
    const auto& rows = judged.yardstick.rows;
    judged.priced.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].step && rows[i].job && rows[i].can_start) asked.push_back({&judged, i});
    }
  }
  Progress progress("validate", "row", static_cast<std::int64_t>(asked.size()), true);
  std::mutex showing;
  parallel_for(asked.size(), [&](std::size_t i) {
    const auto& [judged, row] = asked[i];
    judged->priced[row] = step_of(judged->yardstick.rows[row], options.data_dir);
    const std::scoped_lock lock(showing);
    progress.begin(judged->yardstick.name);
    static_cast<void>(progress.done());
  });
  std::vector<yardsticks::StepOf> steps;
  for (Judged& judged : all) {
    take_from_the_first(judged);
    const yardsticks::Row* const first = judged.yardstick.rows.data();
    const auto priced = [&](const yardsticks::Row& row) {
      return judged.priced[static_cast<std::size_t>(&row - first)];
    };
    for (yardsticks::StepOf& step : steps_of(judged.yardstick, priced)) {
      steps.push_back(std::move(step));
    }
    judged.steps = score_time(judged.yardstick, priced);
    judged.scaling = score_scaling(judged.yardstick, priced);
    judged.ordering = score_ordering(judged.yardstick, priced);
  }
  return score_intervals(steps);
}

// A line for each row with a step.
std::string rows_text(const std::vector<Judged>& all) {
  std::string text = "row,group,job,measured_us,predicted_us,error_percent\n";
  for (const Judged& judged : all) {
    for (std::size_t i = 0; i < judged.priced.size(); ++i) {
      const std::optional<Duration>& priced = judged.priced[i];
      const yardsticks::Row& row = judged.yardstick.rows[i];
      if (!priced) continue;
      text += row.name + "," + row.group + ",\"" + jobs::to_string(*row.job) + "\"," +
              fixed(to_us(*row.step), 1) + "," + fixed(to_us(*priced), 1) + "," +
              fixed((to_us(*priced) / to_us(*row.step) - 1) * 100, 2) + "\n";
    }
  }
  return text;
}

std::int64_t jobs_of(const Yardstick& yardstick) {
  return std::ranges::count_if(yardstick.rows, [](const auto& row) { return row.job.has_value(); });
}

ordered_json scaling_json(const Judged& judged) {
  ordered_json all = ordered_json::array();
  for (const yardsticks::Scaling& scaling : judged.scaling) {
    all.push_back({{"rows", scaling.rows},
                   {"sizes", scaling.sizes},
                   {"fewest_gpus", scaling.fewest_gpus},
                   {"most_gpus", scaling.most_gpus},
                   {"worst_percent", scaling.worst_percent},
                   {"worst_from_gpus", scaling.worst_from},
                   {"worst_to_gpus", scaling.worst_to}});
  }
  return all;
}

ordered_json ordering_json(const Judged& judged) {
  ordered_json all = ordered_json::array();
  for (const yardsticks::Ordering& ordering : judged.ordering) {
    all.push_back({{"one_node", ordering.one_node},
                   {"from_percent", ordering.from_percent},
                   {"to_percent", ordering.to_percent},
                   {"pairs", ordering.pairs},
                   {"right", ordering.right}});
  }
  return all;
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
  ordered_json steps = nullptr;
  if (judged.steps) {
    const yardsticks::TimeScore& time = *judged.steps;
    steps = {{"priced", time.priced},
             {"median_percent", known(time.priced, time.step.median)},
             {"median_absolute_percent", known(time.priced, time.step.median_absolute)},
             {"p90_absolute_percent", known(time.priced, time.step.p90_absolute)},
             {"groups", time.groups},
             {"kendall_tau", known(time.groups, time.kendall_tau)},
             {"regret_percent", known(time.groups, time.regret_percent)},
             {"worst_regret_percent", known(time.groups, time.worst_regret_percent)},
             {"ordering", ordering_json(judged)},
             {"scaling", scaling_json(judged)}};
  }
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
          {"steps", std::move(steps)},
          {"without_job", std::move(without)}};
}

// On the machine that the profile was taken on.
Duration step_of(const yardsticks::ScheduleRow& row, const std::string& data_dir) {
  predict::Inputs inputs = predict::load_inputs(
      {.workload = row.workload, .cluster = {}, .data_dir = data_dir, .world = {}});
  search::Planner planner(std::move(inputs.program), inputs.machine.costs);
  return Duration(planner.evaluate(schedule::parse_policy(row.policy)).summary.step_ns);
}

ordered_json schedules_json(const yardsticks::ScheduleScore& score) {
  ordered_json rows = ordered_json::array();
  for (const yardsticks::ScheduleError& one : score.rows) {
    rows.push_back({{"workload", one.row.group},
                    {"policy", one.row.policy},
                    {"measured_us", to_us(one.row.measured)},
                    {"predicted_us", to_us(one.predicted)},
                    {"error_percent", one.error_percent}});
  }
  return {{"rows", std::move(rows)},
          {"mean_percent", score.mean_percent},
          {"worst_percent", score.worst_percent},
          {"pairs", score.pairs},
          {"in_order", score.in_order}};
}

void print_schedules(std::ostream& out, const yardsticks::ScheduleScore& score) {
  TextTable table({"schedules", "policy", "measured ms", "predicted ms", "error"});
  for (const yardsticks::ScheduleError& one : score.rows) {
    table.add({one.row.group, one.row.policy, fixed(to_us(one.row.measured) / 1e3, 1),
               fixed(to_us(one.predicted) / 1e3, 1), fixed(one.error_percent, 1, "+") + " %"});
  }
  table.print(out);
  out << "schedules: mean " << fixed(score.mean_percent, 1) << " %, worst "
      << fixed(score.worst_percent, 1) << " %; " << score.in_order << " of " << score.pairs
      << " pairs in order\n";
}

ordered_json range_json(const yardsticks::Range& range) {
  return {{"p5", range.p5}, {"p50", range.p50}, {"p95", range.p95}};
}

ordered_json intervals_json(const yardsticks::Intervals& intervals) {
  ordered_json rows = ordered_json::array();
  for (const yardsticks::Coverage& one : intervals.coverage) {
    rows.push_back({{"yardstick", one.yardstick},
                    {"own_cause", one.own_cause},
                    {"one_node", one.one_node},
                    {"rows", one.rows},
                    {"inside", one.inside},
                    {"own", one.own ? range_json(*one.own) : nullptr},
                    {"others", range_json(one.others)},
                    {"pairs", one.pairs},
                    {"pairs_inside", one.pairs_inside},
                    {"apart", one.apart ? ordered_json(*one.apart) : nullptr},
                    {"others_apart", one.others_apart}});
  }
  return {{"one_node", range_json(intervals.all[0])},
          {"several_nodes", range_json(intervals.all[1])},
          {"one_node_apart", intervals.apart[0]},
          {"several_nodes_apart", intervals.apart[1]},
          {"rows", std::move(rows)}};
}

std::string to_json(const std::vector<Judged>& all, const yardsticks::ScheduleScore& schedules,
                    const std::optional<yardsticks::Intervals>& intervals) {
  ordered_json rows = ordered_json::array();
  for (const Judged& judged : all) rows.push_back(row_json(judged));
  const ordered_json document = {{"schema", "dovetail.validate/1"},
                                 {"kind", "validate"},
                                 {"against", "public"},
                                 {"rows", std::move(rows)},
                                 {"schedules", schedules_json(schedules)},
                                 {"intervals", intervals ? intervals_json(*intervals) : nullptr}};
  return document.dump(1) + "\n";
}

void print_row(std::ostream& out, const std::vector<std::string>& fields) {
  const std::vector<int> widths = {6, 6, 13, 14, 17, 7, 9, 11, 9};
  out << std::left << std::setw(16) << fields.front() << std::right;
  for (std::size_t i = 1; i < fields.size(); ++i) out << std::setw(widths[i - 1]) << fields[i];
  out << '\n';
}

void print_steps(std::ostream& out, const std::vector<Judged>& all) {
  TextTable table(
      {"steps", "rows", "priced", "median", "|median|", "p90", "groups", "tau", "regret", "worst"});
  for (const Judged& judged : all) {
    if (!judged.steps) continue;
    const yardsticks::TimeScore& time = *judged.steps;
    const auto of = [](std::int64_t rows, const std::string& text) {
      return rows > 0 ? text : "-";
    };
    const auto percent = [](double value, const char* plus = "") {
      return fixed(value, 1, plus) + " %";
    };
    table.add({judged.yardstick.name, std::to_string(time.rows), std::to_string(time.priced),
               of(time.priced, percent(time.step.median, "+")),
               of(time.priced, percent(time.step.median_absolute)),
               of(time.priced, percent(time.step.p90_absolute)), std::to_string(time.groups),
               of(time.groups, fixed(time.kendall_tau, 2)),
               of(time.groups, percent(time.regret_percent)),
               of(time.groups, percent(time.worst_regret_percent))});
  }
  table.print(out);
}

void print_ordering(std::ostream& out, const std::vector<Judged>& all) {
  TextTable table({"order of two rows", "where", "predicted shorter by", "pairs", "right"});
  for (const Judged& judged : all) {
    for (const yardsticks::Ordering& ordering : judged.ordering) {
      const double right =
          static_cast<double>(ordering.right) / static_cast<double>(ordering.pairs);
      table.add({judged.yardstick.name, ordering.one_node ? "one node" : "several nodes",
                 fixed(ordering.from_percent, 0) + " to " + fixed(ordering.to_percent, 0) + " %",
                 std::to_string(ordering.pairs), fixed(100 * right, 0) + " %"});
    }
  }
  table.print(out);
}

std::string range_text(const yardsticks::Range& range) {
  return fixed(range.p5, 2) + " " + fixed(range.p50, 2) + " " + fixed(range.p95, 2);
}

void print_intervals(std::ostream& out, const yardsticks::Intervals& intervals) {
  TextTable table({"measured / predicted", "where", "rows", "p5 p50 p95", "of the others", "inside",
                   "pairs within", "of the others", "inside"});
  const auto share = [](std::int64_t inside, std::int64_t of) {
    return of == 0 ? "-"
                   : fixed(100 * static_cast<double>(inside) / static_cast<double>(of), 0) + " %";
  };
  for (const yardsticks::Coverage& one : intervals.coverage) {
    const bool has_pairs = one.pairs > 0;
    table.add({one.yardstick + (one.own_cause.empty() ? "" : ", " + one.own_cause),
               one.one_node ? "one node" : "several nodes", std::to_string(one.rows),
               one.own ? range_text(*one.own) : "-", range_text(one.others),
               share(one.inside, one.rows), one.apart ? "x" + fixed(*one.apart, 2) : "-",
               has_pairs ? "x" + fixed(one.others_apart, 2) : "-",
               share(one.pairs_inside, one.pairs)});
  }
  table.print(out);
  const auto all = [&](std::size_t place, const char* where) {
    out << where << ": " << range_text(intervals.all[place]) << ", pairs within x"
        << fixed(intervals.apart[place], 2) << '\n';
  };
  all(0, "a step on one node, by all of them");
  all(1, "a step on several nodes");
}

void print_scaling(std::ostream& out, const std::vector<Judged>& all) {
  TextTable table({"scaling", "sizes", "GPUs", "worst", "from", "to"});
  for (const Judged& judged : all) {
    for (const yardsticks::Scaling& scaling : judged.scaling) {
      table.add({judged.yardstick.name + ": " + scaling.rows, std::to_string(scaling.sizes),
                 std::to_string(scaling.fewest_gpus) + " to " + std::to_string(scaling.most_gpus),
                 fixed(scaling.worst_percent, 1, "+") + " %", std::to_string(scaling.worst_from),
                 std::to_string(scaling.worst_to)});
    }
  }
  table.print(out);
}

void print(std::ostream& out, const std::vector<Judged>& all,
           const yardsticks::ScheduleScore& schedules,
           const std::optional<yardsticks::Intervals>& intervals) {
  print_row(out, {"memory", "rows", "jobs", "fits or not", "ran, refused", "failed, allowed",
                  "peaks", "median", "|median|", "p90"});
  for (const Judged& judged : all) {
    const MemoryScore& score = judged.memory;
    const Yardstick& yardstick = judged.yardstick;
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
  print_schedules(out, schedules);
  if (all.front().steps) {
    print_steps(out, all);
    print_ordering(out, all);
  }
  if (intervals) print_intervals(out, *intervals);
  if (std::ranges::any_of(all, [](const auto& judged) { return !judged.scaling.empty(); }))
    print_scaling(out, all);
  for (const Judged& judged : all) {
    if (judged.steps && !judged.yardstick.first_gives.empty() && !judged.yardstick.rows.empty()) {
      out << judged.yardstick.name << ": the first row gives " << judged.yardstick.first_gives
          << " and is not judged\n";
    }
    for (const auto& [reason, count] : without_job(judged.yardstick)) {
      out << judged.yardstick.name << ": " << count << (count == 1 ? " row" : " rows")
          << " without a job: " << reason << '\n';
    }
  }
}

}  // namespace

void validate(const ValidateOptions& options, std::ostream& out) {
  if (options.against == "collectives") {
    return validate_collectives(options.collectives, options.document, out);
  }
  if (options.against != "public") {
    throw InputError("validate: expected public or collectives, found \"" + options.against + "\"");
  }
  if (!options.collectives.files.empty()) {
    throw InputError("validate public: its tables come with dovetail or by --tables, found " +
                     options.collectives.files.front());
  }
  if (!options.rows.empty() && !options.steps)
    throw InputError("validate: --rows lists the steps that --with-steps prices");
  require_outputs({document_file(options.document), {"--rows", options.rows}}, {});
  const std::vector<Yardstick> all = yardsticks::load_yardsticks(options.folder);
  std::vector<Judged> judged;
  for (const Yardstick& yardstick : all) {
    judged.push_back({.yardstick = yardstick, .memory = score_memory(yardstick)});
  }
  const yardsticks::ScheduleScore schedules =
      score_schedules(yardsticks::load_schedules(options.folder),
                      [&](const auto& row) { return step_of(row, options.data_dir); });
  std::optional<yardsticks::Intervals> intervals;
  if (options.steps) intervals = price_steps(options, judged);
  if (!options.rows.empty()) write_file(options.rows, rows_text(judged));
  put_document(
      options.document, [&] { return to_json(judged, schedules, intervals); }, out);
  if (!replaces_report(options.document)) print(out, judged, schedules, intervals);
}

}  // namespace dovetail::cli
