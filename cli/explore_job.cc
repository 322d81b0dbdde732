// Predicts the variants of a job and prints them as a table or as JSON, best first.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore_job.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/job_search.h"
#include "answers/prediction.h"
#include "base/attempt.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/json.h"
#include "cli/answer.h"
#include "cli/export_job.h"
#include "cli/job_flag.h"
#include "cli/outputs.h"
#include "cli/page.h"
#include "cli/plan_page.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/stage_table.h"
#include "cli/step_words.h"
#include "cli/text.h"
#include "models/networks/adapters.h"
#include "models/networks/decisions.h"
#include "models/networks/job_grid.h"
#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::cli {
namespace {

using jobs::Job;
using nlohmann::ordered_json;
using predict::Decided;
using predict::For;
using predict::JobPrediction;
using predict::JobRow;
using predict::kAsAsked;

constexpr std::int64_t kUnknownNode = 8;  // ranks of a node where the cluster does not say

struct JobTable {
  std::string text;     // the job as it was typed
  std::string machine;  // and the machine
  models::Cluster cluster;
  predict::JobSearch found = {};
  std::vector<std::string> notes = {};

  [[nodiscard]] const std::vector<JobRow>& rows() const { return found.rows; }
  [[nodiscard]] std::optional<std::size_t> best() const { return found.best; }
};

jobs::JobGrid wanted(const Job& job, const models::Cluster& cluster) {
  const std::int64_t world = cluster.what_if.world.value_or(cluster.ranks);
  if (job.layout != jobs::Layout{} || world == 1) return jobs::JobGrid::beside(job);
  if (job.batch.global == job.batch.micro) {
    throw InputError(
        "explore: a job without a layout needs gbs=, the samples of a step, of more than one "
        "micro-batch (mbs=" +
        std::to_string(job.batch.micro) + ")");
  }
  const std::int64_t node = cluster.topology ? cluster.topology->node_ranks() : kUnknownNode;
  return jobs::JobGrid::over(job, world, std::min(node, kUnknownNode));
}

// Ctrl-C ends it with the rows that are there.
predict::JobSearch watched_search(const jobs::JobGrid& grid, const models::Cluster& cluster,
                                  const ExploreOptions& options) {
  const AsksBeforeEnding keep_what_is_found(Asks::Anywhere);
  std::optional<Progress> progress;
  predict::JobPhase of = predict::JobPhase::Simulate;
  const auto begins = [&](predict::JobPhase phase, std::size_t items) {
    of = phase;
    progress.emplace("explore", phase == predict::JobPhase::Sketch ? "layout" : "job to simulate",
                     static_cast<std::int64_t>(items), options.yes);
  };
  const auto goes_on = [&](predict::JobPhase phase, const std::string& item) {
    if (!progress) return true;
    progress->begin(item);
    return phase == of ? progress->done() : !progress->is_interrupted();
  };
  return predict::search_jobs(grid, cluster, {.begins = begins, .goes_on = goes_on},
                              options.whole ? predict::Play::Whole : predict::Play::Repeats);
}

JobTable tabulate(const ExploreOptions& options) {
  const models::WhatIf& what_if = options.inputs.what_if;
  const Job asked = job_of(options.job);
  const Job job = asked.layout == jobs::Layout{} ? asked : predict::on_world(asked, what_if);
  JobTable table{
      .text = options.job,
      .machine = options.clusters.front(),
      .cluster = predict::load_cluster(options.clusters.front(), options.inputs.data_dir, what_if)};
  table.notes = jobs::notes_on(job);
  table.found = watched_search(wanted(job, table.cluster), table.cluster, options);
  if (table.found.interrupted)
    table.notes.emplace_back("interrupted: the rows are those that were tried until then");
  if (table.rows().empty()) {
    if (table.found.interrupted) throw Interrupted();
    const std::vector<std::string>& why = table.found.left_out;
    throw InputError("explore: no layout of " + options.job +
                     " can be priced: " + (why.empty() ? "none divides its ranks" : why.front()));
  }
  const JobPrediction& first = table.rows().front().found;
  const auto asked_row = std::ranges::find(table.rows(), kAsAsked, &JobRow::change);
  if (asked_row != table.rows().end() && !asked_row->found.host_bound.empty())
    table.notes.insert(table.notes.begin(), "as asked " + to_string(asked_row->found.host_bound));
  if (!what_if.nothing()) {
    const bool is_priced = asked_row != table.rows().end();
    table.notes.insert(
        table.notes.begin(),
        is_priced ? predict::what_if_note(
                        what_if, asked,
                        predict::load_cluster(options.clusters.front(), options.inputs.data_dir),
                        asked_row->found.step)
                  : "what if: " + to_string(what_if));
  }
  if (first.idle > 0) table.notes.push_back(predict::idle_note(first.job, first.idle));
  for (std::string& note : models::assumptions(table.cluster, jobs::program_of(first.job))) {
    table.notes.push_back(std::move(note));
  }
  return table;
}

const JobRow* asked_of(const JobTable& table) {
  const auto asked = std::ranges::find(table.rows(), kAsAsked, &JobRow::change);
  return asked == table.rows().end() ? nullptr : &*asked;
}

// "870 to 1240" ms.
std::string range_text(const JobPrediction& found) {
  const std::optional<predict::StepRange> range = found.range();
  if (!range) return "-";
  return fixed(to_us(range->p5) / 1e3, 0) + " to " + fixed(to_us(range->p95) / 1e3, 0);
}

// "8.1 % less than as asked (17.3 % less to 2.1 % more)": how much longer the one's step is than the other's; without the interval
// where none is known.
std::string gain_text(const JobPrediction& found, const JobPrediction& than,
                      const std::string& in_words = "") {
  if (found.error == nullptr) return change_text(found.step, than.step) + in_words;
  const predict::Difference more = predict::difference(*found.error, found.step, than.step);
  const auto percent = [](double value) {
    return fixed(std::abs(value), 1) + (value < 0 ? " % less" : " % more");
  };
  const std::string middle = percent(more.middle) + in_words;
  // Over several nodes public ratios of two layouts were too far off to say more than that they were.
  constexpr double kFarApart = 1.5;
  if (found.error->apart > kFarApart)
    return middle + " (public ratios of two layouts there: off by up to x" +
           fixed(found.error->apart, 1) + ")";
  return middle + " (" + percent(more.low) + " to " + percent(more.high) + ")";
}

// Kinds of communication that any row shows.
std::vector<For> kinds_shown(const JobTable& table) {
  std::vector<predict::StageParts> shown;
  for (const JobRow& row : table.rows()) shown.push_back(row.found.busiest());
  return kinds_of(shown);
}

void print_stages_of(std::ostream& out, const JobTable& table, const JobRow& row) {
  StageColumn memory{.name = "memory GiB", .cells = {}};
  for (const jobs::StageMemory& stage : row.found.memory) {
    memory.cells.push_back(gib_text(stage.total()));
  }
  print_text(out, "stages of " + row.change + ":");
  print_stages(out, row.found.stages, kinds_shown(table), {memory});
}

// What each decision gave, where there were several.
void print_path(std::ostream& out, const std::vector<Decided>& path) {
  if (path.size() < 3) return;
  const auto gain_of = [&path](const Decided& decided) -> Cell {
    if (&decided == &path.front()) return "";
    const Decided& before = *(&decided - 1);
    return 100 * (to_us(decided.step) / to_us(before.step) - 1);
  };
  print_table(out,
              table_of<Decided>({{{"change", "what each decision gave"}, &Decided::change},
                                 {{"step_us", "step ms", Unit::Milliseconds, {1}}, &Decided::step},
                                 {{"", "", Unit::Percent, {1, Sign::Always}}, gain_of}},
                                path));
}

// The row as --job says it: in one line, or as what was typed with the change behind it; nothing where neither reads
// back as that job.
std::optional<std::string> said(const JobTable& table, const JobRow& row) {
  const std::string change = row.change == kAsAsked ? "" : row.change;
  const bool has_colon = table.text.find(':') != std::string::npos;
  const std::string changed = change.empty() ? "" : (has_colon ? "," : ":") + change;
  for (const auto& way : {std::pair(jobs::to_string(row.found.job), &row.found.job),
                          std::pair(table.text + changed, &row.said)}) {
    // None of a model that has no name here, or with an option twice.
    std::optional<Job> again = attempt([&] { return job_of(way.first); }).value;
    if (!again) continue;
    again->notes = way.second->notes;
    again->assumed = way.second->assumed;
    if (*again == *way.second) return way.first;
  }
  return std::nullopt;
}

// " --what-if link=0.5x"; "" for nothing.
std::string what_if_flag(const JobTable& table) {
  const models::WhatIf& what_if = table.cluster.what_if;
  return what_if.nothing() ? "" : " --what-if " + to_string(what_if);
}

// The command that plans the row and the one that writes it for its framework; else what to change.
std::vector<std::string> ways_to(const JobTable& table, const JobRow& row) {
  const std::optional<std::string> text = said(table, row);
  if (!text) {
    return {row.change == kAsAsked ? "the job as it is" : row.change + " in " + table.text};
  }
  std::vector<std::string> ways = {"dovetail plan --job \"" + *text + "\" --cluster " +
                                   table.machine + what_if_flag(table) + " -o plan.json"};
  const std::string command = export_job_command(row.found.job, *text, table.machine);
  if (!command.empty()) ways.push_back(command);
  return ways;
}

// "75.5 (61.9 to 95.1)" GiB.
std::string memory_text(const JobPrediction& found) {
  const schedule::Room room = found.room();
  return gib_text(found.peak()) + " (" + gib_text(room.low) + " to " + gib_text(room.high) + ")";
}

std::string verdict_on(const JobTable& table, std::size_t at) {
  const JobRow& row = table.rows()[at];
  const schedule::Fits fits = row.found.fits();
  if (fits == schedule::Fits::No) return "does not fit";
  std::string text = table.best() == at ? "best" : row.alike ? "alike" : "";
  const auto add = [&](const char* more) {
    text += (text.empty() ? "" : ", ") + std::string(more);
  };
  if (row.target.empty()) add("nobody says it");
  if (fits == schedule::Fits::May) add("may fit");
  return text;
}

// The rows to print: all, or the fastest that fit, a few that would be faster than the best, the best and the job as
// asked.
std::vector<std::size_t> job_rows_shown(const JobTable& table, bool all) {
  constexpr std::size_t kFitting = 8;
  constexpr std::size_t kTooLarge = 3;
  std::vector<std::size_t> shown;
  std::size_t fitting = 0;
  std::size_t too_large = 0;
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const JobRow& row = table.rows()[i];
    const bool has_room = row.found.fits() == schedule::Fits::Yes;
    const bool is_early = has_room ? fitting++ < kFitting
                                   : (fitting == 0 || !table.best()) && too_large++ < kTooLarge;
    if (all || is_early || table.best() == i || row.change == kAsAsked) shown.push_back(i);
  }
  return shown;
}

// How far the best is above what is proven of all jobs of the grid, and what lies between it and what it computes, of its stage with
// the least bubble.
std::string rest_of_job(const JobTable& table, const JobPrediction& best) {
  const predict::StageParts& stage = best.busiest();
  const Duration slowed = std::max(Duration{}, stage.compute - best.bound);
  std::string text = at_most_text(best.step, table.found.least.value_or(best.bound)) +
                     " in any of " + counted(table.found.counts.all, "job") + "; it computes " +
                     to_string(best.bound) + ", " + to_string(stage.exposed_total()) +
                     " is exposed, ";
  if (100 * slowed >= best.step) {
    text += to_string(slowed) + " more computing " +
            (best.job.zero == jobs::Zero::Nothing ? "beside it, " : "beside it and for updates, ");
  }
  return text + to_string(stage.bubble) + (best.job.layout.pp > 1 ? " bubble" : " waiting");
}

std::string step_of_job(const JobPrediction& found) {
  return to_string(found.step) + " a step" + spread_text(found.range(), {}) + ", " +
         fixed(found.figures.tokens_per_s_per_gpu, 0) + " tokens/s/GPU";
}

std::string gain_of_job(const JobTable& table, const JobRow& best) {
  std::string text = step_of_job(best.found);
  const JobRow* const asked = asked_of(table);
  if (asked == nullptr || asked == &best) return text;
  text += " against " + to_string(asked->found.step) + " as asked";
  if (asked->found.fits() == schedule::Fits::No) return text + ", which does not fit";
  if (asked->target.empty()) text += ", which no framework's file here says";
  return text + ": " + gain_text(best.found, asked->found);
}

// Where there is nothing to set: the fastest that was tried, if that is another row.
Answer answer_of_asked(const JobTable& table, const JobRow& asked) {
  Answer answer{
      .set = {}, .gives = step_of_job(asked.found), .left = rest_of_job(table, asked.found)};
  const JobRow& fastest = table.rows()[*table.found.fastest];
  if (&fastest == &asked) {
    answer.why_nothing = "the job as asked is the best that was tried";
    return answer;
  }
  answer.why_nothing = "too little to tell";
  answer.gives += " as asked; the fastest that was tried, " + fastest.change + ", " +
                  gain_text(fastest.found, asked.found);
  return answer;
}

// Where somebody runs what no framework's file says, and all that one says is slower.
Answer answer_of_own(const JobTable& table, const JobRow& asked, const JobRow& best) {
  return {.set = {},
          .why_nothing = "no framework's file says the job as asked, and what they say is slower",
          .gives = step_of_job(asked.found) + " as asked; of what a framework runs the best, " +
                   best.change + ", " + gain_text(best.found, asked.found),
          .left = rest_of_job(table, asked.found)};
}

// Where no framework's file says anything that fits: what somebody's own program runs.
Answer answer_of_unsaid(const JobTable& table, const JobRow& fastest) {
  const JobRow* const asked = asked_of(table);
  const bool is_run = asked != nullptr && asked->found.fits() != schedule::Fits::No;
  const JobRow& row = is_run ? *asked : fastest;
  Answer answer{
      .set = {},
      .why_nothing = "no framework's file that is written here says a variant that fits",
      .gives = step_of_job(row.found) +
               (is_run ? std::string(" as asked") : ", for a program of your own: " + row.change),
      .left = rest_of_job(table, row.found)};
  if (is_run && fastest.found.step < asked->found.step) {
    answer.gives += "; for a program of your own " + fastest.change + ", " +
                    gain_text(fastest.found, asked->found);
  }
  return answer;
}

Answer answer_of_none(const JobTable& table) {
  const JobRow* fastest = nullptr;
  for (const JobRow& row : table.rows()) {
    const bool has_room = row.found.fits() != schedule::Fits::No;
    if (has_room && (fastest == nullptr || row.found.step < fastest->found.step)) fastest = &row;
  }
  if (fastest != nullptr) return answer_of_unsaid(table, *fastest);
  const JobRow& first = table.rows().front();
  const bool is_asked = asked_of(table) != nullptr;
  return {
      .set = {},
      .why_nothing = "no variant fits into memory",
      .gives = "the smallest takes " + memory_text(first.found) + " of " +
               gib_text(*first.found.capacity) + " GiB a GPU: " + first.change,
      .left = first.found.job.layout.world() > 1 && is_asked
                  ? "more GPUs, or another layout: without tp=, pp=, dp= and so on all are tried"
                  : "more GPUs",
      .tone = Tone::Warning};
}

Answer answer_of_job(const JobTable& table) {
  if (!table.best()) return answer_of_none(table);
  const JobRow& best = table.rows()[*table.best()];
  if (best.change == kAsAsked) return answer_of_asked(table, best);
  const JobRow* const asked = asked_of(table);
  const bool is_own =
      asked != nullptr && asked->target.empty() && asked->found.fits() != schedule::Fits::No;
  if (is_own && asked->found.step <= best.found.step) return answer_of_own(table, *asked, best);
  Answer answer{.set = {best.change},
                .gives = gain_of_job(table, best),
                .left = rest_of_job(table, best.found)};
  const std::vector<std::string> ways = ways_to(table, best);
  if (ways.size() > 1) answer.set.push_back(ways.back());
  return answer;
}

// All that a row says: the columns of the table, and the keys of the document. Of columns that have no room MFU and tokens/s
// are the last to go.
std::vector<Field<JobRow>> fields_of(const JobTable& table) {
  const auto of_stage = [](auto time) {
    return [time](const JobRow& row) -> Cell { return time(row.found.busiest()); };
  };
  const auto of_range = [](Duration predict::StepRange::*quantile) {
    return [quantile](const JobRow& row) -> Cell {
      const std::optional<predict::StepRange> range = row.found.range();
      return range ? Cell((*range).*quantile) : Cell();
    };
  };
  std::vector<Field<JobRow>> fields = {
      {{"change", "job"}, &JobRow::change},
      {{"job"}, [](const JobRow& row) { return jobs::to_string(row.found.job); }},
      {{"policy"}, [](const JobRow& row) { return jobs::policy_text(row.found.job); }},
      {{"step_us", "step ms", Unit::Milliseconds, {1}},
       [](const JobRow& row) { return row.found.step; }},
      {{"lower_bound_us"}, [](const JobRow& row) { return row.found.bound; }},
      {{"", "p5 to p95", Unit::Own, {}, 2},
       [](const JobRow& row) { return range_text(row.found); }},
      {{"public_interval.p5_us"}, of_range(&predict::StepRange::p5)},
      {{"public_interval.p50_us"}, of_range(&predict::StepRange::p50)},
      {{"public_interval.p95_us"}, of_range(&predict::StepRange::p95)},
      {{"tokens_per_s_per_gpu", "tokens/s/GPU"},
       [](const JobRow& row) { return row.found.figures.tokens_per_s_per_gpu; }},
      {{"model_flop_per_s_per_gpu"},
       [](const JobRow& row) { return row.found.figures.model_flop_per_s_per_gpu; }},
      {{"mfu", "MFU", Unit::Share, {1}}, [](const JobRow& row) { return row.found.figures.mfu; }}};
  const std::vector<For> kinds = kinds_shown(table);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const int spare = 3 + static_cast<int>(kinds.size() - i);
    fields.push_back(
        {{"", "exposed " + std::string(to_string(kinds[i])), Unit::Milliseconds, {1}, spare},
         of_stage([kind = kinds[i]](const auto& stage) { return stage.exposed_of(kind); })});
  }
  const int last = 4 + static_cast<int>(kinds.size());
  fields.insert(
      fields.end(),
      {{{"", "bubble", Unit::Milliseconds, {1}, last},
        of_stage([](const auto& stage) { return stage.bubble; })},
       {{"peak_bytes", "peak GiB", Unit::Gib, {1}},
        [](const JobRow& row) { return row.found.peak(); }},
       {{"peak_interval.low_bytes"}, [](const JobRow& row) { return row.found.room().low; }},
       {{"peak_interval.high_bytes"}, [](const JobRow& row) { return row.found.room().high; }},
       {{"fits"},
        [](const JobRow& row) {
          return !row.found.capacity || row.found.peak() <= *row.found.capacity;
        }},
       {{"room"}, [](const JobRow& row) { return row.found.room().fits(); }},
       {{"said_by", "as", Unit::Own, {}, 1},
        [](const JobRow& row) { return row.target.empty() ? Cell() : Cell(row.target); }},
       {{"", ""},
        [&table](const JobRow& row) {
          return verdict_on(table, static_cast<std::size_t>(&row - table.rows().data()));
        }},
       {{"alike"}, [](const JobRow& row) { return bool{row.alike}; }}});
  return fields;
}

void print_job_rows(std::ostream& out, const JobTable& table, const Detail& detail) {
  const std::vector<std::size_t> shown = job_rows_shown(table, detail.all);
  std::vector<std::reference_wrapper<const JobRow>> rows;
  for (const std::size_t i : shown) rows.emplace_back(table.rows()[i]);
  const JobRow* const best = table.best() ? &table.rows()[*table.best()] : nullptr;
  print_table(out, table_of(fields_of(table), rows, [best](const JobRow& row) {
                if (row.found.fits() == schedule::Fits::No) return Tone::Warning;
                return &row == best ? Tone::Good : Tone::Plain;
              }));
  print_more_rows(out, table.rows().size() - shown.size());
}

// What the rows do not say by themselves.
// Rows before the best, which are faster, and why they are not it.
void print_faster(std::ostream& out, const JobTable& table) {
  if (!table.best()) return;
  const JobPrediction& best = table.rows()[*table.best()].found;
  const auto print = [&](const char* why, const auto& is_so) {
    const auto row = std::ranges::find_if(
        table.rows(), [&](const JobRow& one) { return one.found.step < best.step && is_so(one); });
    if (row == table.rows().end()) return;
    print_text(out,
               std::string("faster, but ") + why + ": " + row->change + ", " +
                   gain_text(row->found, best) + ", " + memory_text(row->found) + " GiB",
               2);
  };
  print("no framework says it", [](const JobRow& row) {
    return row.target.empty() && row.found.fits() != schedule::Fits::No;
  });
  print("it may not fit", [&](const JobRow& row) {
    return !row.target.empty() && row.found.fits() == schedule::Fits::May &&
           row.found.peak() > best.peak();
  });
}

void print_below_rows(std::ostream& out, const JobTable& table) {
  const Job& job = table.rows().front().found.job;
  const double apart = 100 * predict::told_apart(job);
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    if (!table.rows()[i].alike) continue;
    print_text(out, "alike: predicted within " + fixed(apart, 0) +
                        " % of the best; of layouts so close, public measurements have the "
                        "predicted order too rarely to tell (docs/machines.md)");
    break;
  }
  const predict::JobCounts& counts = table.found.counts;
  print_text(out, counted(counts.all, "job") + ": " + std::to_string(counts.without_room) +
                      " have no room, " + std::to_string(counts.slower) +
                      " are slower whatever overlaps, " + std::to_string(counts.simulated) +
                      " were simulated" +
                      (counts.left > 0 ? ", " + std::to_string(counts.left) +
                                             (table.found.interrupted
                                                  ? " more were not tried"
                                                  : " more are slower by estimate, not by proof")
                                       : ""));
  const jobs::Precision& precision = table.found.rows.front().found.job.precision;
  const std::string type =
      std::string(precision.products == schedule::Operands::Own ? to_string(precision.product())
                                                                : to_string(precision.products));
  print_text(out, "ms of the stage with the least bubble; MFU of the peak of " + type + ", by " +
                      std::string(job.lora > 0 ? "what is computed (of a frozen weight 4 FLOP a "
                                                 "token), attention whole"
                                               : "3 x forward, attention whole (PaLM)"));
  print_faster(out, table);
  const JobRow* const asked = asked_of(table);
  if (asked == nullptr || asked->found.fits() == schedule::Fits::Yes) return;
  const Bytes capacity = *asked->found.capacity;
  const auto change = jobs::smallest_change(asked->found.job, predict::surely_fits(capacity));
  print_text(out,
             "as asked it takes " + memory_text(asked->found) + " of " + gib_text(capacity) +
                 " GiB" +
                 (change ? "; smallest change that fits for certain: " + *change
                         : "; no single change makes it fit for certain"),
             2, Tone::Warning);
}

void print_job_table(std::ostream& out, const JobTable& table, const Detail& detail) {
  const Job& job = table.rows().front().found.job;
  Answer answer = answer_of_job(table);
  answer.assumed = job.assumed;
  print_answer(out, answer, detail);
  out << '\n';
  print_text(out, table.text + " on " + table.cluster.name + ": " +
                      counted(job.layout.world(), "GPU") + ", " + std::to_string(job.tokens()) +
                      " tokens a step; predicted (simulated), dovetail " + DOVETAIL_VERSION);
  if (job.lora > 0) {
    print_text(out, "  LoRA: " + std::to_string(jobs::trained_parameters(job)) +
                        " trained parameters beside " +
                        std::to_string(jobs::parameters(job.model)) + " frozen ones");
  }
  print_notes(out, notes_beside(answer, table.notes), detail);
  for (const std::string& line : table.found.left_out) print_text(out, "  left out: " + line, 4);
  print_job_rows(out, table, detail);
  print_below_rows(out, table);
  if (!table.best()) {
    out << "best: none: " << answer_of_none(table).why_nothing << '\n';
    return;
  }
  const JobRow& best = table.rows()[*table.best()];
  print_stages_of(out, table, best);
  print_path(out, table.found.path);
  const JobRow* const asked = asked_of(table);
  std::string text = "best: " + best.change;
  if (asked != nullptr && asked != &best && best.found.error != nullptr) {
    text += ", " + gain_text(best.found, asked->found, " than as asked");
  }
  print_text(out, text, 2, Tone::Good);
  const char* label = "to use it: ";
  for (const std::string& way : ways_to(table, best)) {
    print_line(out, label + way);
    label = "next: ";
  }
}

// What a row of the document has besides: its stages.
void add_lists(const JobRow& row, ordered_json& object) {
  ordered_json stages = ordered_json::array();
  for (std::size_t i = 0; i < row.found.stages.size(); ++i) {
    stages.push_back(stage_json(row.found.stages[i]));
    stages.back()["memory_bytes"] = row.found.memory[i].total().count();
  }
  object["stages"] = std::move(stages);
}

std::string job_table_json(const JobTable& table) {
  ordered_json rows = rows_json(table_of(fields_of(table), table.rows()));
  for (std::size_t i = 0; i < table.rows().size(); ++i) add_lists(table.rows()[i], rows[i]);
  ordered_json path = ordered_json::array();
  for (const Decided& decided : table.found.path) {
    path.push_back({{"change", decided.change}, {"step_us", to_us(decided.step)}});
  }
  const predict::JobCounts& counts = table.found.counts;
  const ordered_json document = {
      {"schema", "dovetail.jobs/1"},
      {"kind", "jobs"},
      {"origin", "simulated"},
      {"job", table.text},
      {"cluster", table.cluster.name},
      {"world_size", table.rows().front().found.job.layout.world()},
      {"idle_ranks", table.rows().front().found.idle},
      {"tokens", table.rows().front().found.job.tokens()},
      {"parameters", jobs::parameters(table.rows().front().found.job.model)},
      {"trained_parameters", jobs::trained_parameters(table.rows().front().found.job)},
      {"assumed", assumed_json(table.rows().front().found.job.assumed)},
      {"notes", table.notes},
      {"rows", std::move(rows)},
      {"best", table.best() ? ordered_json(*table.best()) : ordered_json(nullptr)},
      {"path", std::move(path)},
      {"lower_bound_us",
       table.found.least ? ordered_json(to_us(*table.found.least)) : ordered_json(nullptr)},
      {"jobs",
       {{"all", counts.all},
        {"simulated", counts.simulated},
        {"without_room", counts.without_room},
        {"slower", counts.slower},
        {"left", counts.left}}},
      {"left_out", table.found.left_out}};
  return document.dump(1) + "\n";
}

// The rows that differ from this one in how parameters are gathered only; nothing where there are no two.
std::optional<report::Prefetch> prefetch_of(const JobTable& table, const JobRow& shown) {
  const auto with_gathers_of = [](Job job, const Job& other) {
    job.prefetch = other.prefetch;
    job.reshard = other.reshard;
    return job;
  };
  report::Prefetch found{.axis = "layers ahead (prefetch)",
                         .bytes_are = "peak of a GPU",
                         .usual = {},
                         .usual_words = "without a setting",
                         .curves = {{"reshard=yes", {}}, {"reshard=no", {}}}};
  std::size_t points = 0;
  const Job& of = shown.found.job;
  if (of.zero != jobs::Zero::Parameters) return std::nullopt;
  for (const JobRow& row : table.rows()) {
    const Job& job = row.found.job;
    if (with_gathers_of(job, of) != of) continue;
    found.curves[job.reshard ? 0 : 1].points.push_back({.ahead = job.prefetch,
                                                        .step = row.found.step,
                                                        .bytes = row.found.peak(),
                                                        .setting = row.change});
    if (with_gathers_of(job, Job{}) == job) found.usual = row.change;
    ++points;
  }
  if (points < 2) return std::nullopt;
  std::erase_if(found.curves,
                [](const report::PrefetchCurve& curve) { return curve.points.empty(); });
  for (report::PrefetchCurve& curve : found.curves) {
    std::ranges::sort(curve.points, {}, &report::PrefetchPoint::ahead);
  }
  return found;
}

report::Report report_of(const PageOptions& page, const JobTable& table) {
  report::Report report = start_page(page, table.text + " on " + table.cluster.name);
  const Job& first = table.rows().front().found.job;
  report.answer = answer_on_page(answer_of_job(table));
  report.facts = {{"job", table.text},
                  {"machine", table.cluster.name},
                  {"GPUs", std::to_string(first.layout.world())},
                  {"tokens a step", std::to_string(first.tokens())}};
  if (first.lora > 0) {
    report.facts.push_back({"trained parameters", std::to_string(jobs::trained_parameters(first))});
  }
  add_notes(report, table.notes);
  report.results.push_back(job_table_json(table));
  const JobRow& shown = table.rows()[table.best().value_or(0)];
  report.prefetch = prefetch_of(table, shown);
  if (table.found.interrupted) return report;  // a timeline takes as long as a job
  const auto [program, costs] = predict::lower_job(shown.found.job, table.cluster);
  add_timeline(report, shown.change,
               {.program = program,
                .costs = costs,
                .steady = predict::steady_state(program, costs),
                .workload = jobs::to_string(shown.found.job)},
               {.stages = shown.found.memory, .capacity = shown.found.capacity});
  if (table.best()) std::ranges::move(ways_to(table, shown), std::back_inserter(report.next));
  return report;
}

}  // namespace

int explore_job(const ExploreOptions& options, std::ostream& out) {
  if (options.clusters.size() != 1)
    throw InputError("explore --job: name one machine with --cluster");
  if (!options.workloads.empty()) throw InputError("--workload and --job: give one of them");
  const auto refuse = [](bool given, const char* flag) {
    if (given) throw InputError(std::string("explore --job: ") + flag + " has no effect on a job");
  };
  refuse(!options.policies.empty(), "--policies");
  refuse(!options.thresholds.empty(), "--thresholds");
  refuse(options.points.has_value(), "--points");
  refuse(!options.first_bucket.empty(), "--first-bucket");
  refuse(!options.plans.empty(), "--plan");
  refuse(!options.framework.empty(), "--framework");
  refuse(!options.mode.empty(), "--mode");
  refuse(!options.wait.empty(), "--wait");
  refuse(options.inputs.world.has_value(), "--world");
  refuse(options.inputs.layout.has_value(), "--layout");
  refuse(options.plot, "--plot");
  require_outputs({document_file(options.document), page_output(options.page)},
                  {cluster_file(options.clusters.front(), options.inputs.data_dir)});
  const JobTable table = tabulate(options);
  if (options.page.wanted()) {
    const NewFile page = page_file(options.page, report_of(options.page, table));
    write_files({&page, 1});
  }
  put_document(options.document,
               {.json = [&] { return job_table_json(table); },
                .table = [&] { return table_of(fields_of(table), table.rows()); }},
               out);
  if (!replaces_report(options.document)) print_job_table(out, table, options.detail);
  return table.found.interrupted ? AsksBeforeEnding::exit_code() : 0;
}

}  // namespace dovetail::cli
