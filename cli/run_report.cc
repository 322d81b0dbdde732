// Prints the result of a run as tables, and writes it as JSON: steps measured and predicted,
// disturbances, wrong values.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_report.h"

#include "base/count.h"
#include "base/json.h"
#include "calibrate/noise/reference_load.h"
#include "cli/text.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

double ms_of(Duration time) { return to_us(time) / 1e3; }

// A plan and what was found of it.
struct RunRow {
  const Loaded* given = nullptr;
  const PlanFound* found = nullptr;
  std::int64_t steps = 0;
  const exec::CheckResult* check = nullptr;

  [[nodiscard]] std::optional<Duration> planned() const {
    const auto& predicted = given->plan.summary.predicted;
    return predicted ? std::optional(predicted->step) : std::nullopt;
  }
  [[nodiscard]] const schedule::Schedule& schedule() const { return given->plan.schedule; }
  [[nodiscard]] const traces::Spread& spread() const { return found->spread; }
};
using RunFields = std::vector<Field<RunRow>>;

std::vector<RunRow> run_rows(const Result& result, const std::vector<Loaded>& loaded) {
  std::vector<RunRow> rows;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    rows.push_back({&loaded[i], &result.plans[i], result.measured.traces[i].steps,
                    &result.measured.checks[i]});
  }
  return rows;
}

double share_of(Duration some, Duration all) {
  return static_cast<double>(some.count()) / static_cast<double>(all.count()) - 1;
}

Cell policy_of(const RunRow& row) { return row.schedule().policy; }
Cell buckets_of(const RunRow& row) { return row.schedule().buckets.size(); }
Cell median_of(const RunRow& row) { return row.spread().median; }

// Of any run. What people read as predicted is the plan's own figure, from its cluster file.
RunFields plain_fields() {
  constexpr Unit kMs = Unit::Milliseconds;
  return {
      {{"plan"}, [](const RunRow& row) { return row.given->path; }},
      {{"policy", "plan"}, policy_of},
      {{"buckets", "buckets"}, buckets_of},
      {{"predicted_step_us", "predicted ms", kMs, {2}},
       [](const RunRow& row) {
         return row.found->figures ? row.found->figures->typical : row.planned();
       }},
      {{"measured_step_us", "measured ms", kMs, {2}}, median_of},
      {{"quiet_us"}, [](const RunRow& row) { return row.spread().quick; }},
      {{"p10_us", "p10", kMs, {2}}, [](const RunRow& row) { return row.spread().p10; }},
      {{"p90_us", "p90", kMs, {2}}, [](const RunRow& row) { return row.spread().p90; }},
      {{"min_us"}, [](const RunRow& row) { return row.spread().min; }},
      {{"", "error", Unit::Share, {1, Sign::Always}},
       [](const RunRow& row) {
         const std::optional<Duration> planned = row.planned();
         if (!planned || row.found->elsewhere) return Cell();
         return Cell(share_of(*planned, row.spread().median));
       }},
      {{"steps"}, &RunRow::steps},
      {{"checked_elements"}, [](const RunRow& row) { return row.check->checked; }},
      {{"wrong_elements"}, [](const RunRow& row) { return row.check->wrong; }},
  };
}

// Predicted from costs measured between the rounds: both figures.
RunFields figure_fields() {
  constexpr Unit kMs = Unit::Milliseconds;
  const auto figure = [](Duration sim::Figures::*which) {
    return [which](const RunRow& row) { return (*row.found->figures).*which; };
  };
  const auto measured = [](Duration traces::Spread::*which) {
    return [which](const RunRow& row) { return row.spread().*which; };
  };
  const auto error = [](Duration sim::Figures::*some, Duration traces::Spread::*all) {
    return
        [=](const RunRow& row) { return share_of((*row.found->figures).*some, row.spread().*all); };
  };
  using sim::Figures;
  using traces::Spread;
  return {
      {{"", "plan"}, policy_of},
      {{"", "buckets"}, buckets_of},
      {{"planned_step_us"}, &RunRow::planned},
      {{"predicted_quiet_us", "quiet ms", kMs, {2}}, figure(&Figures::quiet)},
      {{"", "measured", kMs, {2}}, measured(&Spread::quick)},
      {{"", "error", Unit::Share, {1, Sign::Always}}, error(&Figures::quiet, &Spread::quick)},
      {{"", "typical ms", kMs, {2}}, figure(&Figures::typical)},
      {{"", "measured", kMs, {2}}, measured(&Spread::median)},
      {{"", "error", Unit::Share, {1, Sign::Always}}, error(&Figures::typical, &Spread::median)},
      {{"predicted_p10_us"}, figure(&Figures::early)},
      {{"predicted_p90_us", "p90 ms", kMs, {2}}, figure(&Figures::late)},
      {{"", "measured", kMs, {2}}, measured(&Spread::p90)},
  };
}

RunFields two_event_fields() {
  constexpr Unit kMs = Unit::Milliseconds;
  return {{{"", "plan"}, policy_of},
          {{"", "step ms", kMs, {2}}, median_of},
          {{"step_with_two_events_us", "two events ms", kMs, {2}},
           [](const RunRow& row) { return row.found->two_events->median; }},
          {{"", "events cost", Unit::Share, {1}}, [](const RunRow& row) {
             return share_of(row.spread().median, row.found->two_events->median);
           }}};
}

RunFields exposed_fields() {
  constexpr Unit kMs = Unit::Milliseconds;
  const auto of = [](Duration traces::Exposed::*which) {
    return [which](const RunRow& row) { return (*row.found->exposed).*which; };
  };
  using traces::Exposed;
  return {{{"", "plan"}, policy_of},
          {{"", "step ms", kMs, {2}}, median_of},
          {{"step_without_communication_us", "without ms", kMs, {2}}, of(&Exposed::alone)},
          {{"exposed_us.stalls", "stalls ms", kMs, {2}}, of(&Exposed::stalls)},
          {{"exposed_us.difference", "difference ms", kMs, {2}}, of(&Exposed::difference)},
          {{"exposed_us.uncovered", "uncovered ms", kMs, {2}}, of(&Exposed::uncovered)}};
}

// Of the columns that documents have, to those that are there.
void add_documented(RunFields& fields, RunFields more) {
  for (Field<RunRow>& field : more) {
    if (!field.column.key.empty()) fields.push_back(std::move(field));
  }
}

void print_disturbances(std::ostream& out, const Result& result) {
  for (std::size_t rank = 0; rank < result.disturbances.size(); ++rank) {
    const traces::CoreRecord& record = result.disturbances[rank];
    out << "yardstick, rank " << rank << ", core " << record.core << ": "
        << fixed(100 * traces::share_taken(record), 1) << " % of the core taken";
    if (!record.taken.empty()) {
      out << ", in bursts of about " << fixed(ms_of(traces::typical_burst(record)), 1) << " ms";
    }
    out << "; known work " << fixed(100 * record.slowdown, 1) << " % above its quickest\n";
  }
  if (!result.disturbances.empty()) {
    std::int64_t disturbed = 0;
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < result.plans.size(); ++i) {
      disturbed += result.plans[i].disturbed.value_or(0);
      steps += result.measured.traces[i].steps;
    }
    out << disturbed << " of " << steps << " steps met absences of more than "
        << fixed(100 * testbed::kDisturbed, 0) << " % of them\n";
    out << "the yardstick itself used " << fixed(100 * result.reference_load_share, 2)
        << " % of a core\n";
  }
}

// Plans that were predicted for another link than this run's, so that their errors are no one's.
std::vector<std::string> other_links(const Result& result, const std::vector<Loaded>& loaded) {
  const std::string& here = result.measured.traces.front().provenance.notes.at("link");
  std::vector<std::string> notes;
  for (const Loaded& one : loaded) {
    const std::string& link = one.plan.summary.link;
    if (link.empty() || link == here) continue;
    notes.push_back(one.path + " was planned for another link: " + link);
  }
  return notes;
}

// What was measured between the rounds, too.
void print_again(std::ostream& out, const Result& result) {
  out << "quiet: mean of the quickest fifth of the steps, typical: median; predicted, then "
         "measured\n";
  for (const testbed::MeasuredAgain& one : result.again) {
    out << (&one == &result.again.front() ? "between the rounds, of what the cluster file says: "
                                          : ", ")
        << one.what << " of " << to_string(one.bytes) << ' ' << fixed(one.least, 2) << " to "
        << fixed(one.most, 2);
  }
  if (!result.again.empty()) out << '\n';
}

ordered_json or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json again_json(const Result& result) {
  ordered_json again = ordered_json::array();
  for (const testbed::MeasuredAgain& one : result.again) {
    again.push_back({{"what", one.what},
                     {"size_bytes", one.bytes.count()},
                     {"least_share", one.least},
                     {"most_share", one.most}});
  }
  return again;
}

// One entry per rank.
ordered_json cores_json(const Result& result) {
  ordered_json cores = ordered_json::array();
  for (std::size_t rank = 0; rank < result.disturbances.size(); ++rank) {
    const traces::CoreRecord& record = result.disturbances[rank];
    cores.push_back({{"rank", rank},
                     {"core", record.core},
                     {"taken_share", traces::share_taken(record)},
                     {"burst_us", to_us(traces::typical_burst(record))},
                     {"known_work_us", to_us(record.quickest)},
                     {"slowdown", record.slowdown}});
  }
  return cores;
}

}  // namespace

void print_report(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  const traces::Provenance& provenance = result.measured.traces.front().provenance;
  if (!result.confidence.empty()) out << result.confidence << '\n';
  out << "dovetail " << DOVETAIL_VERSION << "; measured: " << provenance.backend << ", "
      << counted(result.measured.traces.front().world_size, "rank")
      << ", link: " << provenance.notes.at("link") << "; "
      << (result.device.empty() ? "" : result.device + "; ") << provenance.machine << '\n';
  const std::vector<RunRow> rows = run_rows(result, loaded);
  const PlanFound& first = result.plans.front();
  print_table(out, table_of(first.figures ? figure_fields() : plain_fields(), rows));
  if (first.figures) print_again(out, result);
  print_notes(out, other_links(result, loaded));
  if (first.two_events) {
    out << "the same steps timed by two events each; all other figures: by two events per "
           "command\n";
    print_table(out, table_of(two_event_fields(), rows));
  }
  if (first.exposed) {
    out << "exposed communication, measured, by three definitions (traces/exposed.h)\n";
    print_table(out, table_of(exposed_fields(), rows));
  }
  exec::CheckResult sum;
  for (const exec::CheckResult& check : result.measured.checks) exec::add(check, sum);
  if (sum.checked == 0) {
    out << "nothing was checked: no value was reduced\n";
  } else {
    out << "checked " << sum.checked << " gradient elements, " << sum.wrong << " wrong"
        << (sum.wrong > 0 ? ": " + sum.first_wrong : "") << '\n';
  }
  print_disturbances(out, result);
  out << (result.verdict.valid ? "measurement valid" : "measurement NOT valid");
  for (const std::string& reason : result.verdict.reasons) out << "; " << reason;
  out << '\n';
}

Table run_table(const Result& result, const std::vector<Loaded>& loaded) {
  const PlanFound& first = result.plans.front();
  RunFields fields = plain_fields();
  if (first.figures) add_documented(fields, figure_fields());
  if (first.disturbed) {
    fields.push_back({{"disturbed_steps"}, [](const RunRow& row) { return row.found->disturbed; }});
  }
  add_documented(
      fields, {{{"quiet_known_to"}, [](const RunRow& row) { return row.found->known.quiet; }},
               {{"typical_known_to"}, [](const RunRow& row) { return row.found->known.typical; }}});
  if (first.two_events) add_documented(fields, two_event_fields());
  if (first.exposed) add_documented(fields, exposed_fields());
  return table_of(fields, run_rows(result, loaded));
}

std::string to_json(const Result& result, const std::vector<Loaded>& loaded) {
  const traces::Provenance& provenance = result.measured.traces.front().provenance;
  const ordered_json report = {
      {"schema", "dovetail.run/1"},
      {"kind", "run"},
      {"origin", "measured"},
      {"machine", provenance.machine},
      {"backend", provenance.backend},
      {"link", provenance.notes.at("link")},
      {"device", or_null(result.device)},
      {"stand_in", or_null(result.stand_in)},
      {"date", provenance.notes.at("date")},
      {"valid", result.verdict.valid},
      {"why_not_valid", result.verdict.reasons},
      {"notes", other_links(result, loaded)},
      {"outside_cpu", result.conditions.outside_cpu},
      {"steal", result.conditions.steal},
      {"belief", result.confidence},
      {"costs", result.plans.front().figures ? "of each round" : "of the plans"},
      {"rounds", result.measured.rounds.size()},
      {"took_s", to_us(result.took) / 1e6},
      {"measured_again", again_json(result)},
      {"yardstick", cores_json(result)},
      {"yardstick_cpu_share", result.reference_load_share},
      {"rows", rows_json(run_table(result, loaded))}};
  return report.dump(1) + "\n";
}

}  // namespace dovetail::cli
