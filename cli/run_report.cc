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

void print_exposed(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  out << "exposed communication, measured, by three definitions (traces/exposed.h)\n";
  TextTable table({"plan", "step ms", "without ms", "stalls ms", "difference ms", "uncovered ms"});
  for (std::size_t i = 0; i < result.exposed.size(); ++i) {
    const traces::Exposed& exposed = result.exposed[i];
    table.add({loaded[i].plan.schedule.policy, fixed(ms_of(result.spreads[i].median), 2),
               fixed(ms_of(exposed.alone), 2), fixed(ms_of(exposed.stalls), 2),
               fixed(ms_of(exposed.difference), 2), fixed(ms_of(exposed.uncovered), 2)});
  }
  table.print(out);
}

void print_two_events(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  out << "the same steps timed by two events each; all other figures: by two events per command\n";
  TextTable table({"plan", "step ms", "two events ms", "events cost"});
  for (std::size_t i = 0; i < result.two_events.size(); ++i) {
    const Duration timed = result.spreads[i].median;
    const Duration plain = result.two_events[i].median;
    const double share =
        static_cast<double>(timed.count()) / static_cast<double>(plain.count()) - 1;
    table.add({loaded[i].plan.schedule.policy, fixed(ms_of(timed), 2), fixed(ms_of(plain), 2),
               fixed(100 * share, 1) + " %"});
  }
  table.print(out);
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
    for (std::size_t i = 0; i < result.disturbed.size(); ++i) {
      disturbed += result.disturbed[i];
      steps += result.measured.traces[i].steps;
    }
    out << disturbed << " of " << steps << " steps met absences of more than "
        << fixed(100 * testbed::kDisturbed, 0) << " % of them\n";
    out << "the yardstick itself used " << fixed(100 * result.reference_load_share, 2)
        << " % of a core\n";
  }
}

double share_of(Duration predicted, Duration measured) {
  return static_cast<double>(predicted.count()) / static_cast<double>(measured.count()) - 1;
}

std::string percent_of(double share) { return fixed(100 * share, 1, "+") + " %"; }

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

// Predicted from the plan's own cluster file.
void print_plain(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  TextTable table({"plan", "buckets", "predicted ms", "measured ms", "p10", "p90", "error"});
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const traces::Spread& spread = result.spreads[i];
    const auto& predicted = loaded[i].plan.summary.predicted;
    const bool elsewhere = i < result.elsewhere.size() && result.elsewhere[i];
    table.add(
        {loaded[i].plan.schedule.policy, std::to_string(loaded[i].plan.schedule.buckets.size()),
         predicted ? fixed(ms_of(predicted->step), 2) : "-", fixed(ms_of(spread.median), 2),
         fixed(ms_of(spread.p10), 2), fixed(ms_of(spread.p90), 2),
         predicted && !elsewhere ? percent_of(share_of(predicted->step, spread.median)) : "-"});
  }
  table.print(out);
}

// Predicted from costs measured between the rounds: both figures.
void print_run_figures(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  TextTable table({"plan", "buckets", "quiet ms", "measured", "error", "typical ms", "measured",
                   "error", "p90 ms", "measured"});
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const traces::Spread& spread = result.spreads[i];
    const sim::Figures& figures = result.figures[i];
    table.add({loaded[i].plan.schedule.policy,
               std::to_string(loaded[i].plan.schedule.buckets.size()),
               fixed(ms_of(figures.quiet), 2), fixed(ms_of(spread.quick), 2),
               percent_of(share_of(figures.quiet, spread.quick)), fixed(ms_of(figures.typical), 2),
               fixed(ms_of(spread.median), 2), percent_of(share_of(figures.typical, spread.median)),
               fixed(ms_of(figures.late), 2), fixed(ms_of(spread.p90), 2)});
  }
  table.print(out);
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
  if (result.figures.empty()) {
    print_plain(out, result, loaded);
  } else {
    print_run_figures(out, result, loaded);
  }
  print_notes(out, other_links(result, loaded));
  if (!result.two_events.empty()) print_two_events(out, result, loaded);
  if (!result.exposed.empty()) print_exposed(out, result, loaded);
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

std::string to_json(const Result& result, const std::vector<Loaded>& loaded) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const traces::Spread& spread = result.spreads[i];
    const auto& predicted = loaded[i].plan.summary.predicted;
    rows.push_back(
        {{"plan", loaded[i].path},
         {"policy", loaded[i].plan.schedule.policy},
         {"buckets", loaded[i].plan.schedule.buckets.size()},
         {"predicted_step_us", predicted ? ordered_json(to_us(predicted->step)) : nullptr},
         {"measured_step_us", to_us(spread.median)},
         {"quiet_us", to_us(spread.quick)},
         {"p10_us", to_us(spread.p10)},
         {"p90_us", to_us(spread.p90)},
         {"min_us", to_us(spread.min)},
         {"steps", result.measured.traces[i].steps},
         {"checked_elements", result.measured.checks[i].checked},
         {"wrong_elements", result.measured.checks[i].wrong}});
    if (!result.figures.empty()) {
      const sim::Figures& figures = result.figures[i];
      rows.back()["planned_step_us"] = rows.back()["predicted_step_us"];
      rows.back()["predicted_step_us"] = to_us(figures.typical);
      rows.back()["predicted_quiet_us"] = to_us(figures.quiet);
      rows.back()["predicted_p10_us"] = to_us(figures.early);
      rows.back()["predicted_p90_us"] = to_us(figures.late);
    }
    if (!result.disturbed.empty()) rows.back()["disturbed_steps"] = result.disturbed[i];
    rows.back()["quiet_known_to"] = result.known[i].quiet;
    rows.back()["typical_known_to"] = result.known[i].typical;
    if (!result.two_events.empty()) {
      rows.back()["step_with_two_events_us"] = to_us(result.two_events[i].median);
    }
    if (result.exposed.empty()) continue;
    const traces::Exposed& exposed = result.exposed[i];
    rows.back()["step_without_communication_us"] = to_us(exposed.alone);
    rows.back()["exposed_us"] = {{"stalls", to_us(exposed.stalls)},
                                 {"difference", to_us(exposed.difference)},
                                 {"uncovered", to_us(exposed.uncovered)}};
  }
  const traces::Provenance& provenance = result.measured.traces.front().provenance;
  const ordered_json report = {{"schema", "dovetail.run/1"},
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
                               {"costs", result.figures.empty() ? "of the plans" : "of each round"},
                               {"rounds", result.measured.rounds.size()},
                               {"took_s", to_us(result.took) / 1e6},
                               {"measured_again", again_json(result)},
                               {"yardstick", cores_json(result)},
                               {"yardstick_cpu_share", result.reference_load_share},
                               {"rows", rows}};
  return report.dump(1) + "\n";
}

}  // namespace dovetail::cli
