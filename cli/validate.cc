// `dovetail validate`: scores of every public table, as a table and as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
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
#include "base/attempt.h"
#include "base/decimal.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/table.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "cli/validate_gpu.h"
#include "cli/validate_job.h"
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
  std::vector<std::optional<yardsticks::PricedStep>> priced = {};  // of each row
  std::optional<yardsticks::TimeScore> steps = std::nullopt;
  std::vector<yardsticks::Ordering> ordering = {};
  std::vector<yardsticks::Scaling> scaling = {};
};

// The family of clusters that a device belongs to: "H100-96GB" to "h100". "" for none.
std::string family_of(std::string device) {
  std::ranges::transform(device, device.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  if (device.find("500w") != std::string::npos) return "h100_96gb_500w";
  if (device.find("h200, nodes of 4") != std::string::npos) return "h200_nodes_of_4";
  if (device.find("h100, efa") != std::string::npos) return "h100_efa";
  for (const char* const family : {"gb300", "gb200", "b300", "b200", "h200", "h100", "a100"}) {
    if (device.find(family) != std::string::npos) return family;
  }
  return "";
}

// A row's step on the cluster of its device; nothing where that is unknown, or the row is no job.
std::optional<yardsticks::PricedStep> step_of(const yardsticks::Row& row,
                                              const std::string& data_dir) {
  const std::string family = family_of(row.device);
  if (!row.job || (family.empty() && row.machine.empty())) return std::nullopt;
  const auto step = attempt([&] {
    const std::string shipped = family + "x" + std::to_string(row.job->layout.world());
    models::Cluster cluster =
        predict::load_cluster(row.machine.empty() ? shipped : row.machine, data_dir);
    if (cluster.compute) cluster.compute->products_stretch *= row.products_stretch;
    cluster.host.run_op = stretched(cluster.host.run_op, row.host_stretch);
    cluster.host.collective = stretched(cluster.host.collective, row.host_stretch);
    const predict::JobPrediction found = predict::predict_job(
        *row.job, cluster, {.policy = row.policy, .synchronous = row.synchronous});
    return yardsticks::PricedStep{.step = found.step, .host_bound = !found.host_bound.empty()};
  });
  return step.value;
}

// What the first row takes more is added to all others.
void take_from_the_first(Judged& judged) {
  if (judged.yardstick.first_gives.empty() || judged.priced.empty() || !judged.priced.front())
    return;
  const Duration more = *judged.yardstick.rows.front().step - judged.priced.front()->step;
  for (std::optional<yardsticks::PricedStep>& priced : judged.priced) {
    if (priced) priced->step += more;
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
    progress.begin(judged->yardstick.name + ": " +
                   jobs::to_string(*judged->yardstick.rows[row].job));
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

struct PricedRow {
  const yardsticks::Row* row = nullptr;
  Duration predicted{};
  bool host_bound = false;
};

// A line for each row with a step, as CSV.
std::string rows_text(const std::vector<Judged>& all) {
  std::vector<PricedRow> rows;
  for (const Judged& judged : all) {
    for (std::size_t i = 0; i < judged.priced.size(); ++i) {
      if (judged.priced[i])
        rows.push_back({.row = &judged.yardstick.rows[i],
                        .predicted = judged.priced[i]->step,
                        .host_bound = judged.priced[i]->host_bound});
    }
  }
  const std::vector<Field<PricedRow>> fields = {
      {{"row"}, [](const PricedRow& one) { return one.row->name; }},
      {{"group"}, [](const PricedRow& one) { return one.row->group; }},
      {{"job"}, [](const PricedRow& one) { return jobs::to_string(*one.row->job); }},
      {{"measured_us"}, [](const PricedRow& one) { return *one.row->step; }},
      {{"predicted_us"}, &PricedRow::predicted},
      {{"step_kind"},
       [](const PricedRow& one) {
         return to_string(jobs::step_kind(*one.row->job, one.row->node_gpus));
       }},
      {{"host_bound"}, &PricedRow::host_bound},
      {{"error_percent"}, [](const PricedRow& one) {
         return (to_us(one.predicted) / to_us(*one.row->step) - 1) * 100;
       }}};
  return csv_of(table_of(fields, rows));
}

std::int64_t jobs_of(const Yardstick& yardstick) {
  return std::ranges::count_if(yardstick.rows, [](const auto& row) { return row.job.has_value(); });
}

// How many of them, as people read it a share.
Cell share_of(std::int64_t some, std::int64_t all) {
  const Cell count(some);
  if (all == 0) return count.shown_as("-");
  return count.shown_as(fixed(100 * static_cast<double>(some) / static_cast<double>(all), 0) +
                        " %");
}

// Nothing where there are no rows that it could be said of.
Cell of_rows(std::int64_t rows, double value) { return rows > 0 ? Cell(value) : Cell(); }
// A count says 0 there in documents.
Cell count_of_rows(std::int64_t rows, std::int64_t count) {
  return rows > 0 ? Cell(count) : Cell(count).shown_as("-");
}

// What is predicted of memory.
std::vector<Field<Judged>> memory_fields() {
  const auto of = [](auto value) {
    return [value](const Judged& one) { return std::invoke(value, one.memory); };
  };
  using Score = MemoryScore;
  return {
      {{"yardstick", "memory"}, [](const Judged& one) { return one.yardstick.name; }},
      {{"rows", "rows"}, [](const Judged& one) { return one.yardstick.rows.size(); }},
      {{"jobs", "jobs", Unit::Own, {}, 2},
       [](const Judged& one) { return jobs_of(one.yardstick); }},
      {{"judged"}, of(&Score::judged)},
      {{"fit_right_percent", "fits or not", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.judged, score.right_percent()); })},
      {{"ran_but_refused", "ran, refused"},
       of([](const Score& score) { return count_of_rows(score.judged, score.ran_but_refused); })},
      {{"failed_but_allowed", "failed, allowed"}, of([](const Score& score) {
         return count_of_rows(score.judged, score.failed_but_allowed);
       })},
      {{"peaks", "peaks", Unit::Own, {}, 1},
       of([](const Score& score) { return count_of_rows(score.peak.rows, score.peak.rows); })},
      {{"peak_median_percent", "median", Unit::Percent, {1, Sign::Always}},
       of([](const Score& score) { return of_rows(score.peak.rows, score.peak.median); })},
      {{"peak_median_absolute_percent", "|median|", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.peak.rows, score.peak.median_absolute); })},
      {{"peak_p90_absolute_percent", "p90", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.peak.rows, score.peak.p90_absolute); })},
  };
}

// What is predicted of steps, where they were priced.
std::vector<Field<Judged>> step_fields() {
  const auto of = [](auto value) {
    return [value](const Judged& one) {
      return one.steps ? Cell(std::invoke(value, *one.steps)) : Cell();
    };
  };
  using Score = yardsticks::TimeScore;
  return {
      {{"", "steps"}, [](const Judged& one) { return one.yardstick.name; }},
      {{"", "rows"}, of(&Score::rows)},
      {{"steps.priced", "priced"}, of(&Score::priced)},
      {{"steps.median_percent", "median", Unit::Percent, {1, Sign::Always}},
       of([](const Score& score) { return of_rows(score.priced, score.step.median); })},
      {{"steps.median_absolute_percent", "|median|", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.priced, score.step.median_absolute); })},
      {{"steps.p90_absolute_percent", "p90", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.priced, score.step.p90_absolute); })},
      {{"steps.groups", "groups"}, of(&Score::groups)},
      {{"steps.kendall_tau", "tau", Unit::Own, {2}},
       of([](const Score& score) { return of_rows(score.groups, score.kendall_tau); })},
      {{"steps.regret_percent", "regret", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.groups, score.regret_percent); })},
      {{"steps.worst_regret_percent", "worst", Unit::Percent, {1}},
       of([](const Score& score) { return of_rows(score.groups, score.worst_regret_percent); })},
  };
}

Table ordering_table(const Judged& judged) {
  using yardsticks::Ordering;
  const auto name = [&judged](const Ordering&) { return judged.yardstick.name; };
  return table_of<Ordering>(
      {{{"", "order of two rows"}, name},
       {{"one_node", "where"},
        [](const Ordering& one) {
          return Cell(one.one_node).shown_as(one.one_node ? "one node" : "several nodes");
        }},
       {{"", "predicted shorter by"},
        [](const Ordering& one) {
          return fixed(one.from_percent, 0) + " to " + fixed(one.to_percent, 0) + " %";
        }},
       {{"from_percent"}, &Ordering::from_percent},
       {{"to_percent"}, &Ordering::to_percent},
       {{"pairs", "pairs"}, &Ordering::pairs},
       {{"right", "right"}, [](const Ordering& one) { return share_of(one.right, one.pairs); }}},
      judged.ordering);
}

Table scaling_table(const Judged& judged) {
  using yardsticks::Scaling;
  const auto name = [&judged](const Scaling& one) {
    return Cell(one.rows).shown_as(judged.yardstick.name + ": " + one.rows);
  };
  return table_of<Scaling>(
      {{{"rows", "scaling"}, name},
       {{"sizes", "sizes"}, &Scaling::sizes},
       {{"", "GPUs"},
        [](const Scaling& one) {
          return std::to_string(one.fewest_gpus) + " to " + std::to_string(one.most_gpus);
        }},
       {{"fewest_gpus"}, &Scaling::fewest_gpus},
       {{"most_gpus"}, &Scaling::most_gpus},
       {{"worst_percent", "worst", Unit::Percent, {1, Sign::Always}}, &Scaling::worst_percent},
       {{"worst_from_gpus", "from"}, &Scaling::worst_from},
       {{"worst_to_gpus", "to"}, &Scaling::worst_to}},
      judged.scaling);
}

// The tables of all yardsticks below each other.
Table below_each_other(const std::vector<Judged>& all, Table (*table_of_one)(const Judged&)) {
  Table table;
  for (const Judged& judged : all) {
    Table one = table_of_one(judged);
    table.columns = std::move(one.columns);
    std::ranges::move(one.rows, std::back_inserter(table.rows));
  }
  return table;
}

// What documents have of both; people read of steps where they were priced.
Table yardstick_table(const std::vector<Judged>& all) {
  std::vector<Field<Judged>> fields = memory_fields();
  std::vector<Field<Judged>> steps = step_fields();
  for (Field<Judged>& field : steps) {
    if (field.column.key.empty()) continue;
    if (!all.front().steps) field.column.title.reset();
    fields.push_back(std::move(field));
  }
  return table_of(fields, all);
}

ordered_json yardsticks_json(const std::vector<Judged>& all) {
  ordered_json rows = rows_json(yardstick_table(all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ordered_json without = ordered_json::array();
    for (const auto& [reason, count] : without_job(all[i].yardstick)) {
      without.push_back({{"reason", reason}, {"rows", count}});
    }
    if (all[i].steps) {
      rows[i]["steps"]["ordering"] = rows_json(ordering_table(all[i]));
      rows[i]["steps"]["scaling"] = rows_json(scaling_table(all[i]));
    }
    rows[i]["without_job"] = std::move(without);
  }
  return rows;
}

// On the machine that the profile was taken on.
Duration step_of(const yardsticks::ScheduleRow& row, const std::string& data_dir) {
  predict::Inputs inputs = predict::load_inputs(
      {.workload = row.workload, .cluster = {}, .data_dir = data_dir, .world = {}});
  search::Planner planner(std::move(inputs.program), inputs.machine.costs);
  return Duration(planner.evaluate(schedule::parse_policy(row.policy)).summary.step_ns);
}

Table schedule_table(const yardsticks::ScheduleScore& score) {
  using Error = yardsticks::ScheduleError;
  return table_of<Error>(
      {{{"workload", "schedules"}, [](const Error& one) { return one.row.group; }},
       {{"policy", "policy"}, [](const Error& one) { return one.row.policy; }},
       {{"measured_us", "measured ms", Unit::Milliseconds, {1}},
        [](const Error& one) { return one.row.measured; }},
       {{"predicted_us", "predicted ms", Unit::Milliseconds, {1}}, &Error::predicted},
       {{"error_percent", "error", Unit::Percent, {1, Sign::Always}}, &Error::error_percent}},
      score.rows);
}

ordered_json schedules_json(const yardsticks::ScheduleScore& score) {
  return {{"rows", rows_json(schedule_table(score))},
          {"mean_percent", score.mean_percent},
          {"worst_percent", score.worst_percent},
          {"pairs", score.pairs},
          {"in_order", score.in_order}};
}

void print_schedules(std::ostream& out, const yardsticks::ScheduleScore& score) {
  print_table(out, schedule_table(score));
  out << "schedules: mean " << fixed(score.mean_percent, 1) << " %, worst "
      << fixed(score.worst_percent, 1) << " %; " << score.in_order << " of " << score.pairs
      << " pairs in order\n";
}

std::string quantiles_text(const yardsticks::Range& range) {
  return fixed(range.p5, 2) + " " + fixed(range.p50, 2) + " " + fixed(range.p95, 2);
}

// How many rows of a yardstick lie in what the others say, and both quantiles.
std::vector<Field<yardsticks::Coverage>> coverage_fields() {
  using yardsticks::Coverage;
  using yardsticks::Range;
  const auto own = [](double Range::*quantile) {
    return
        [quantile](const Coverage& one) { return one.own ? Cell((*one.own).*quantile) : Cell(); };
  };
  const auto others = [](double Range::*quantile) {
    return [quantile](const Coverage& one) { return one.others.*quantile; };
  };
  return {
      {{"rows", "rows"}, &Coverage::rows},
      {{"", "p5 p50 p95"},
       [](const Coverage& one) { return one.own ? Cell(quantiles_text(*one.own)) : Cell(); }},
      {{"", "of the others"}, [](const Coverage& one) { return quantiles_text(one.others); }},
      {{"inside", "inside"}, [](const Coverage& one) { return share_of(one.inside, one.rows); }},
      {{"own.p5"}, own(&Range::p5)},
      {{"own.p50"}, own(&Range::p50)},
      {{"own.p95"}, own(&Range::p95)},
      {{"others.p5"}, others(&Range::p5)},
      {{"others.p50"}, others(&Range::p50)},
      {{"others.p95"}, others(&Range::p95)}};
}

Table interval_table(const yardsticks::Intervals& intervals) {
  using yardsticks::Coverage;
  std::vector<Field<Coverage>> fields = {
      {{"yardstick", "measured / predicted"},
       [](const Coverage& one) {
         return Cell(one.yardstick)
             .shown_as(one.yardstick + (one.own_cause.empty() ? "" : ", " + one.own_cause));
       }},
      {{"own_cause"}, &Coverage::own_cause},
      {{"step_kind", "where"}, [](const Coverage& one) { return to_string(one.kind); }}};
  std::ranges::move(coverage_fields(), std::back_inserter(fields));
  const std::vector<Field<Coverage>> of_pairs = {
      {{"pairs"}, &Coverage::pairs},
      {{"pairs_inside"}, &Coverage::pairs_inside},
      {{"apart", "pairs within", Unit::Times, {2}}, &Coverage::apart},
      {{"others_apart", "of the others", Unit::Times, {2}},
       [](const Coverage& one) {
         const Cell apart(one.others_apart);
         return one.pairs > 0 ? apart : apart.shown_as("-");
       }},
      {{"", "inside"}, [](const Coverage& one) { return share_of(one.pairs_inside, one.pairs); }}};
  fields.insert(fields.end(), of_pairs.begin(), of_pairs.end());
  return table_of(fields, intervals.coverage);
}

ordered_json range_json(const yardsticks::Range& range) {
  return {{"p5", range.p5}, {"p50", range.p50}, {"p95", range.p95}};
}

ordered_json intervals_json(const yardsticks::Intervals& intervals) {
  ordered_json kinds = ordered_json::object();
  for (const auto& [kind, range] : intervals.all) {
    ordered_json one = range_json(range);
    one["apart"] = intervals.apart.at(kind);
    kinds[std::string(to_string(kind))] = std::move(one);
  }
  return {{"kinds", std::move(kinds)}, {"rows", rows_json(interval_table(intervals))}};
}

Table peak_table(const yardsticks::PeakIntervals& peaks) {
  using yardsticks::Coverage;
  std::vector<Field<Coverage>> fields = {
      {{"yardstick", "measured / predicted memory"}, &Coverage::yardstick}};
  std::ranges::move(coverage_fields(), std::back_inserter(fields));
  return table_of(fields, peaks.coverage);
}

std::string to_json(const std::vector<Judged>& all, const yardsticks::PeakIntervals& peaks,
                    const yardsticks::ScheduleScore& schedules,
                    const std::optional<yardsticks::Intervals>& intervals) {
  const ordered_json document = {
      {"schema", "dovetail.validate/1"},
      {"kind", "validate"},
      {"against", "public"},
      {"rows", yardsticks_json(all)},
      {"peaks", {{"all", range_json(peaks.all)}, {"rows", rows_json(peak_table(peaks))}}},
      {"schedules", schedules_json(schedules)},
      {"intervals", intervals ? intervals_json(*intervals) : nullptr}};
  return document.dump(1) + "\n";
}

void print_intervals(std::ostream& out, const yardsticks::Intervals& intervals) {
  print_table(out, interval_table(intervals));
  for (const auto& [kind, range] : intervals.all) {
    out << "a step, " << to_string(kind) << ", by all of them: " << quantiles_text(range)
        << ", pairs within x" << fixed(intervals.apart.at(kind), 2) << '\n';
  }
}

void print(std::ostream& out, const std::vector<Judged>& all,
           const yardsticks::PeakIntervals& peaks, const yardsticks::ScheduleScore& schedules,
           const std::optional<yardsticks::Intervals>& intervals) {
  print_table(out, table_of(memory_fields(), all));
  print_table(out, peak_table(peaks));
  out << "a peak of memory, by all of them: " << quantiles_text(peaks.all) << '\n';
  print_schedules(out, schedules);
  if (all.front().steps) {
    print_table(out, table_of(step_fields(), all));
    print_table(out, below_each_other(all, ordering_table));
  }
  if (intervals) print_intervals(out, *intervals);
  if (std::ranges::any_of(all, [](const auto& judged) { return !judged.scaling.empty(); }))
    print_table(out, below_each_other(all, scaling_table));
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

void validate_a_job(const ValidateOptions& options, std::ostream& out) {
  const std::vector<std::string>& files = options.collectives.files;
  if (files.size() != 1)
    throw InputError("validate job: expected one log of Megatron-LM, or one job and --log");
  if (options.steps || !options.rows.empty() || !options.without.empty())
    throw InputError(
        "validate job: takes --cluster, --log and --gpu, no --with-steps, --rows or --without");
  validate_job({.job = files.front(),
                .log = options.log,
                .cluster = options.cluster,
                .gpu = options.gpu,
                .data_dir = options.data_dir,
                .detail = options.detail},
               options.document, out);
}

}  // namespace

void validate(const ValidateOptions& options, std::ostream& out) {
  if (options.against == "job") return validate_a_job(options, out);
  if (!options.log.empty() || !options.cluster.empty())
    throw InputError("validate " + options.against + ": --log and --cluster are of job");
  if (options.against == "collectives") {
    return validate_collectives(options.collectives, options.document, out);
  }
  if (options.against == "gpu") {
    if (!options.collectives.files.empty() || options.steps || !options.rows.empty()) {
      throw InputError("validate gpu: takes --gpu and --tables, no logs, --with-steps or --rows");
    }
    return validate_gpu({.folder = options.folder,
                         .data_dir = options.data_dir,
                         .gpu = options.gpu,
                         .without = options.without},
                        options.document, out);
  }
  if (!options.without.empty()) throw InputError("validate: --without is of gpu");
  if (options.against != "public") {
    throw InputError("validate: expected public, gpu, collectives or job, found \"" +
                     options.against + "\"");
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
  const yardsticks::PeakIntervals peaks = score_peaks(all);
  const yardsticks::ScheduleScore schedules =
      score_schedules(yardsticks::load_schedules(options.folder),
                      [&](const auto& row) { return step_of(row, options.data_dir); });
  std::optional<yardsticks::Intervals> intervals;
  if (options.steps) intervals = price_steps(options, judged);
  if (!options.rows.empty()) write_file(options.rows, rows_text(judged));
  put_document(options.document,
               {.json = [&] { return to_json(judged, peaks, schedules, intervals); },
                .table = [&] { return yardstick_table(judged); }},
               out);
  if (!replaces_report(options.document)) print(out, judged, peaks, schedules, intervals);
}

}  // namespace dovetail::cli
