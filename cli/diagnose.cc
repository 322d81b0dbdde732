// `dovetail diagnose`: prints a diagnosis as tables and sentences. What it says was decided in
// recordings/diagnose/; here are only columns and words.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "base/attempt.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/statistics.h"
#include "cli/answer.h"
#include "cli/diagnose_json.h"
#include "cli/flags.h"
#include "cli/import.h"
#include "cli/outputs.h"
#include "cli/result_pages.h"
#include "cli/text.h"
#include "cli/trace_bandwidth.h"
#include "cli/trace_groups.h"
#include "frameworks/framework.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/step_traces.h"
#include "recordings/diagnose/words.h"
#include "recordings/load/load_job.h"
#include "recordings/timeline/rank_set.h"
#include "recordings/trace_folder.h"

namespace dovetail::cli {
namespace {

using diagnose::BucketAdvice;
using diagnose::BucketSetting;
using diagnose::Diagnosis;
using diagnose::RankDiagnosis;
using imports::JobTrace;

std::string plain_ms(Duration time) { return fixed(to_us(time) / 1e3, 3); }
std::string interval(const diagnose::Gain& gain) {
  return plain_ms(gain.low) + " .. " + plain_ms(gain.high);
}

// Without GPU work that can be read nothing was measured, and every figure would be zero.
bool has_work(const Diagnosis& diagnosis) {
  return diagnosis.findings.front().kind != diagnose::FindingKind::NoGpuWork;
}

// What was read, and by what it is judged.
std::string title_of(const JobTrace& job, const Diagnosis& diagnosis) {
  std::string title = diagnose::ranks_in_words(job);
  if (has_work(diagnosis)) {
    std::size_t steps = 0;
    for (const RankDiagnosis& rank : diagnosis.ranks) steps = std::max(steps, rank.recorded.size());
    title += ", " + counted(steps, "step");
  }
  const auto& devices = job.ranks.front().trace.devices;
  if (!devices.empty() && !devices.begin()->second.name.empty()) {
    title += ", " + devices.begin()->second.name;
  }
  if (!job.ranks.front().trace.nccl_version.empty()) {
    title += ", NCCL " + job.ranks.front().trace.nccl_version;
  }
  if (job.ranks.front().line.on_cpu) {
    title +=
        ", on CPU: compute is what the thread of the step does, collectives are those of others";
  }
  if (has_work(diagnosis)) title += "; measured by the profiler; gains are simulated";
  return title + ", dovetail " + DOVETAIL_VERSION;
}

void print_head(std::ostream& out, const JobTrace& job, const Diagnosis& diagnosis,
                const std::vector<BusRow>& bus) {
  if (const std::optional<Answer> answer = answer_of_diagnosis(diagnosis)) {
    print_answer(out, *answer);
    out << '\n';
  }
  print_text(out, title_of(job, diagnosis));
  out << '\n';
  print_text(out, headline(diagnosis), 2, Tone::Warning);
  if (const std::string slow = slow_bus_sentence(job, bus); !slow.empty()) {
    print_text(out, "  " + slow, 4);
  }
  for (const std::string& sentence : sentences(diagnosis)) print_text(out, "  " + sentence, 4);
}

// Of many ranks those with most exposed communication, by number of `diagnosis.ranks`, rising.
constexpr std::size_t kShownRanks = 8;
std::vector<std::size_t> shown_ranks(const Diagnosis& diagnosis, const Detail& detail) {
  std::vector<std::size_t> ranks(diagnosis.ranks.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  if (detail.all) return ranks;
  const auto exposed = [&](std::size_t r) {
    Duration sum{};
    for (const diagnose::StepCauses& step : diagnosis.ranks[r].causes) sum += step.exposed;
    return sum;
  };
  std::ranges::stable_sort(ranks, std::ranges::greater{}, exposed);
  ranks.resize(std::min(ranks.size(), kShownRanks));
  std::ranges::sort(ranks);
  return ranks;
}

// "" or what follows the title of a table by rank.
std::string of_all_ranks(const Diagnosis& diagnosis, const Detail& detail) {
  const std::size_t all = diagnosis.ranks.size();
  if (detail.all || all <= kShownRanks) return "";
  return ", " + std::to_string(kShownRanks) + " of " + std::to_string(all) +
         " ranks: most exposed communication; --all";
}

// All causes but waits that nothing demands, where no step has them.
std::vector<std::size_t> shown_causes(const Diagnosis& diagnosis) {
  std::vector<std::size_t> causes;
  for (std::size_t c = 0; c < diagnose::kCauses; ++c) {
    const auto cause = static_cast<diagnose::Cause>(c);
    bool shown = cause != diagnose::Cause::Serialised && cause != diagnose::Cause::NoPrefetch &&
                 cause != diagnose::Cause::Bubble;
    for (const RankDiagnosis& rank : diagnosis.ranks) {
      for (const diagnose::StepCauses& step : rank.causes) shown |= step.by[c] > Duration{};
    }
    if (shown) causes.push_back(c);
  }
  return causes;
}

// A recorded step of a rank, or what its steps are in the middle.
struct StepRow {
  std::string name;
  Duration step{}, compute{}, communication{}, exposed{}, waits_for_host{};
  diagnose::ByCause by{};
};

StepRow row_of(const RankDiagnosis& rank, const imports::RankTimeline& line, std::size_t number) {
  const diagnose::TimedStep& step = rank.recorded[number];
  return {.name = std::to_string(rank.rank) + " " + line.steps[number].name,
          .step = step.step,
          .compute = step.figures.comp,
          .communication = step.figures.comm,
          .exposed = step.figures.exposed,
          .waits_for_host = rank.causes[number].gpu_waits_for_host,
          .by = rank.causes[number].by};
}

StepRow middle_of(const std::vector<StepRow>& rows, std::int64_t rank) {
  const auto middle = [&rows](auto value) {
    std::vector<Duration> values;
    for (const StepRow& row : rows) values.push_back(value(row));
    return median(std::move(values));
  };
  StepRow result;
  result.name = std::to_string(rank) + " median of " + std::to_string(rows.size());
  result.step = middle([](const StepRow& row) { return row.step; });
  result.compute = middle([](const StepRow& row) { return row.compute; });
  result.communication = middle([](const StepRow& row) { return row.communication; });
  result.exposed = middle([](const StepRow& row) { return row.exposed; });
  result.waits_for_host = middle([](const StepRow& row) { return row.waits_for_host; });
  for (std::size_t c = 0; c < diagnose::kCauses; ++c) {
    result.by[c] = middle([c](const StepRow& row) { return row.by[c]; });
  }
  return result;
}

// Of many steps of a rank their middle, and those that stray furthest from it, by over a twentieth.
std::vector<StepRow> shown_steps(std::vector<StepRow> steps, std::int64_t rank,
                                 const Detail& detail) {
  constexpr std::size_t kAllSteps = 6;
  constexpr std::size_t kOddSteps = 3;
  if (detail.all || steps.size() <= kAllSteps) return steps;
  std::vector<StepRow> shown = {middle_of(steps, rank)};
  const Duration usual = shown.front().step;
  const auto strays = [usual](const StepRow& row) { return std::chrono::abs(row.step - usual); };
  std::erase_if(steps, [&](const StepRow& row) { return strays(row) * 20 <= usual; });
  std::ranges::stable_sort(steps, std::ranges::greater{}, strays);
  steps.resize(std::min(steps.size(), kOddSteps));
  shown.insert(shown.end(), steps.begin(), steps.end());
  return shown;
}

std::vector<Field<StepRow>> step_fields(const std::vector<std::size_t>& causes,
                                        const Diagnosis& diagnosis, bool has_gpu) {
  constexpr Unit kMs = Unit::Milliseconds;
  std::vector<Field<StepRow>> fields = {{{"", "rank step"}, &StepRow::name},
                                        {{"", "step", kMs, {3}}, &StepRow::step},
                                        {{"", "compute", kMs, {3}, 4}, &StepRow::compute}};
  const bool communicates =
      std::ranges::none_of(diagnosis.findings, [](const diagnose::Finding& finding) {
        return finding.kind == diagnose::FindingKind::NoCollective;
      });
  if (communicates) {
    fields.push_back({{"", "communication", kMs, {3}, 3}, &StepRow::communication});
    fields.push_back({{"", "exposed", kMs, {3}}, &StepRow::exposed});
  }
  for (const std::size_t c : causes) {
    if (!communicates) break;
    const auto cause = static_cast<diagnose::Cause>(c);
    const int spare = cause == diagnose::Cause::ClosedLate    ? 1
                      : cause == diagnose::Cause::LaunchOrder ? 2
                                                              : 0;
    fields.push_back({{"", in_words(cause, diagnosis), kMs, {3}, spare},
                      [c](const StepRow& row) { return row.by[c]; }});
  }
  if (has_gpu) {
    fields.push_back({{"", "GPU waits for host", kMs, {3}}, &StepRow::waits_for_host});
  }
  return fields;
}

void print_steps(std::ostream& out, const JobTrace& job, const Diagnosis& diagnosis,
                 const Detail& detail) {
  out << '\n';
  std::vector<StepRow> rows;
  std::size_t all = 0;
  for (const std::size_t r : shown_ranks(diagnosis, detail)) {
    std::vector<StepRow> steps;
    for (std::size_t i = 0; i < diagnosis.ranks[r].recorded.size(); ++i) {
      steps.push_back(row_of(diagnosis.ranks[r], job.ranks[r].line, i));
    }
    all += steps.size();
    for (StepRow& row : shown_steps(std::move(steps), diagnosis.ranks[r].rank, detail)) {
      rows.push_back(std::move(row));
    }
  }
  print_text(out, "where the time goes (measured, ms)" + of_all_ranks(diagnosis, detail) +
                      (rows.size() < all ? ", and steps that stray from the median; --all" : ""));
  print_table(
      out, table_of(step_fields(shown_causes(diagnosis), diagnosis, !job.ranks.front().line.on_cpu),
                    rows));
}

std::string what(const JobTrace& job, const Diagnosis& diagnosis, std::size_t r,
                 const diagnose::ExposedCollective& share) {
  const auto& collective =
      job.ranks[r].line.collectives[static_cast<std::size_t>(share.collective)];
  std::string text(to_string(collective.kind));
  if (collective.bytes) text += " of " + to_string(*collective.bytes);
  return text + of_which(diagnosis.ranks[r], share);
}

// The collectives that are exposed most, one line each.
void print_collectives(std::ostream& out, const JobTrace& job, const Diagnosis& diagnosis,
                       const Detail& detail) {
  struct Entry {
    std::size_t rank = 0, step = 0;
    const diagnose::ExposedCollective* share = nullptr;
  };
  std::vector<Entry> entries;
  for (std::size_t r = 0; r < diagnosis.ranks.size(); ++r) {
    for (std::size_t s = 0; s < diagnosis.ranks[r].causes.size(); ++s) {
      for (const auto& share : diagnosis.ranks[r].causes[s].collectives) {
        entries.push_back({r, s, &share});
      }
    }
  }
  if (entries.empty()) return;
  std::ranges::stable_sort(entries, std::ranges::greater{},
                           [](const Entry& entry) { return entry.share->exposed; });
  constexpr std::size_t kShown = 8;
  const std::size_t shown = detail.all ? entries.size() : std::min(kShown, entries.size());
  out << "\nmost exposed collectives (measured, ms), " << shown << " of " << entries.size() << '\n';
  entries.resize(shown);
  const auto name = [&](const Entry& entry) {
    return std::to_string(diagnosis.ranks[entry.rank].rank) + " " +
           job.ranks[entry.rank].line.steps[entry.step].name + " " +
           what(job, diagnosis, entry.rank, *entry.share);
  };
  const auto mostly = [&diagnosis](const Entry& entry) {
    const auto most = std::ranges::max_element(entry.share->by) - entry.share->by.begin();
    return in_words(static_cast<diagnose::Cause>(most), diagnosis);
  };
  print_table(out, table_of<Entry>({{{"", "rank step collective"}, name},
                                    {{"", "exposed", Unit::Milliseconds, {3}},
                                     [](const Entry& entry) { return entry.share->exposed; }},
                                    {{"", "mostly"}, mostly}},
                                   entries));
}

// Where the GPU waits for the host, would without its network, or is none: what the host does, of the first rank.
void print_host(std::ostream& out, const JobTrace& job, const Diagnosis& diagnosis) {
  const bool matters =
      job.ranks.front().line.on_cpu || host_would_bind(diagnosis) ||
      std::ranges::any_of(diagnosis.findings, [](const diagnose::Finding& finding) {
        return finding.kind == diagnose::FindingKind::HostBound ||
               finding.kind == diagnose::FindingKind::WaitsForHost;
      });
  if (!matters) return;
  const diagnose::HostTime& host = diagnosis.ranks.front().host;
  out << '\n';
  print_text(out, "where the host's time goes (measured, ms a step), rank " +
                      std::to_string(diagnosis.ranks.front().rank));
  using diagnose::HostPartTime;
  constexpr Unit kMs = Unit::Milliseconds;
  std::vector<HostPartTime> parts(host.parts.begin(), host.parts.end());
  const auto name = [&parts](const HostPartTime& part) {
    return static_cast<diagnose::HostPart>(&part - parts.data());
  };
  Table table = table_of<HostPartTime>(
      {{{"", "part of the step"}, name},
       {{"", "time", kMs, {3}}, &HostPartTime::time},
       {{"", "in launches and other calls", kMs, {3}}, &HostPartTime::in_calls},
       {{"", "in operators", kMs, {3}}, &HostPartTime::in_operators},
       {{"", "neither (Python)", kMs, {3}}, &HostPartTime::python},
       {{"", "launches", Unit::Own, {0}}, &HostPartTime::launches}},
      parts);
  std::erase_if(table.rows, [](const Table::Row& row) {
    return std::get<Duration>(row.cells[1].value()) <= Duration{};
  });
  print_table(out, table);
  for (const std::string& line : host_lines(diagnosis.ranks.front(), diagnosis.unprofiled_step)) {
    print_text(out, line);
  }
}

// The rank whose step the replay misses most.
std::size_t worst_replayed(const Diagnosis& diagnosis) {
  const auto worst = std::ranges::max_element(diagnosis.ranks, {}, [](const RankDiagnosis& rank) {
    return std::abs(rank.replay.error.step);
  });
  return static_cast<std::size_t>(worst - diagnosis.ranks.begin());
}

void print_replay(std::ostream& out, const Diagnosis& diagnosis, const Detail& detail) {
  const bool is_folded = !detail.all && diagnosis.ranks.size() > 1;
  const std::vector<std::size_t> shown =
      is_folded ? std::vector{worst_replayed(diagnosis)} : shown_ranks(diagnosis, detail);
  out << '\n';
  print_text(out,
             std::string("replay of the recorded schedule against the trace (every interval below "
                         "holds this error)") +
                 (is_folded ? ", the rank with the largest; --all" : ""));
  std::vector<RankDiagnosis> ranks;
  for (const std::size_t r : shown) ranks.push_back(diagnosis.ranks[r]);
  print_table(out, table_of<RankDiagnosis>(
                       {{{"", "rank"}, &RankDiagnosis::rank},
                        {{"", "step", Unit::Share, {2, Sign::Always}},
                         [](const RankDiagnosis& rank) { return rank.replay.error.step; }},
                        {{"", "exposed", Unit::Share, {2, Sign::Always}},
                         [](const RankDiagnosis& rank) { return rank.replay.error.exposed; }},
                        {{"", "delays kept as recorded, ms a step", Unit::Milliseconds, {3}},
                         [](const RankDiagnosis& rank) {
                           return rank.replay.recorded.unexplained /
                                  std::max<std::int64_t>(1, std::ssize(rank.recorded));
                         }},
                        {{"", "kernels beside collectives"},
                         [](const RankDiagnosis& rank) {
                           if (rank.contention.kernels == 0) return Cell();
                           return Cell(fixed(rank.contention.factor(), 2) + " x (" +
                                       std::to_string(rank.contention.kernels) + " compared)");
                         }}},
                       ranks));
}

void print_late(std::ostream& out, const Diagnosis& diagnosis, const Detail& detail) {
  if (diagnosis.late.empty()) return;
  out << "\nwho was late (waiting of the other ranks, ms)\n";
  const std::size_t shown =
      detail.all ? diagnosis.late.size() : std::min(diagnosis.late.size(), kShownRanks);
  using diagnose::LateRank;
  print_table(out, table_of<LateRank>(
                       {{{"", "rank"}, &LateRank::rank},
                        {{"", "collectives"}, &LateRank::collectives},
                        {{"", "waiting", Unit::Milliseconds, {3}}, &LateRank::caused},
                        {{"", "longest in", Unit::Own, {}, 0, Align::Left}, &LateRank::mostly_in},
                        {{"", "late with", Unit::Own, {}, 0, Align::Left},
                         [](const LateRank& late) {
                           return late.mostly_with.empty() ? "nothing stands out"
                                                           : late.mostly_with;
                         }}},
                       std::span(diagnosis.late).first(shown)));
}

// How much each rank computes between collectives, most first, where that is uneven.
void print_uneven(std::ostream& out, const Diagnosis& diagnosis, const Detail& detail) {
  if (!diagnosis.uneven) return;
  out << "\nwork between collectives (measured, ms a step)\n";
  using diagnose::UnevenRank;
  const std::vector<UnevenRank>& ranks = diagnosis.uneven->ranks;
  const std::size_t shown = detail.all ? ranks.size() : std::min(ranks.size(), kShownRanks);
  print_table(
      out, table_of<UnevenRank>({{{"", "rank"}, &UnevenRank::rank},
                                 {{"", "compute", Unit::Milliseconds, {3}}, &UnevenRank::compute},
                                 {{"", "times the mean"},
                                  [](const UnevenRank& rank) { return fixed(rank.times, 2); }}},
                                std::span(ranks).first(shown)));
}

// A change on the rank where it gives most, and that rank's number.
struct MostOf {
  diagnose::WhatIf what_if;
  std::int64_t rank = 0;
};

// Each change once, in the order of the ranks' lists.
std::vector<MostOf> most_of_each_change(const Diagnosis& diagnosis) {
  std::vector<MostOf> most;
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (const diagnose::WhatIf& what_if : rank.forecast.what_ifs) {
      const auto known = std::ranges::find(most, what_if.change,
                                           [](const MostOf& one) { return one.what_if.change; });
      if (known == most.end()) {
        most.push_back({what_if, rank.rank});
      } else if (what_if.gain.middle > known->what_if.gain.middle) {
        *known = {what_if, rank.rank};
      }
    }
  }
  return most;
}

void print_what_ifs(std::ostream& out, const Diagnosis& diagnosis, const Detail& detail) {
  const std::vector<MostOf> most = most_of_each_change(diagnosis);
  if (most.empty()) return;
  const bool is_folded = !detail.all && diagnosis.ranks.size() > 1;
  out << '\n';
  print_text(out, std::string("what a change would give, at most (simulated, ms a step)") +
                      (is_folded ? ", on the rank where it gives most; --all" : ""));
  std::vector<MostOf> rows = most;
  if (!is_folded) {
    rows.clear();
    for (const RankDiagnosis& rank : diagnosis.ranks) {
      for (const diagnose::WhatIf& what_if : rank.forecast.what_ifs)
        rows.push_back({what_if, rank.rank});
    }
  }
  print_table(
      out, table_of<MostOf>(
               {{{"", "rank change"},
                 [&diagnosis](const MostOf& row) {
                   return std::to_string(row.rank) + " " + in_words(row.what_if.change, diagnosis);
                 }},
                {{"", "gain", Unit::Milliseconds, {3}},
                 [](const MostOf& row) { return row.what_if.gain.middle; }},
                {{"", "interval"}, [](const MostOf& row) { return interval(row.what_if.gain); }}},
               rows));
}

void print_buckets(std::ostream& out, const BucketAdvice& advice) {
  out << '\n';
  print_text(out, "buckets (simulated, gain in ms a step against the recorded ones" +
                      (advice.recorded.empty() ? "" : ", those of " + advice.recorded) + ")");
  print_table(
      out,
      table_of<BucketSetting>(
          {{{"", "setting"},
            [](const BucketSetting& row) {
              return short_setting(row) + (row.is_default ? "  (default)" : "");
            }},
           {{"", "buckets"}, [](const BucketSetting& row) { return row.schedule.buckets.size(); }},
           {{"", "gain", Unit::Milliseconds, {3}},
            [](const BucketSetting& row) { return row.gain.middle; }},
           {{"", "interval"}, [](const BucketSetting& row) { return interval(row.gain); }}},
          advice.settings));
  for (const diagnose::AdviceLine& line : advice_lines(advice)) {
    if (line.is_pasted) {
      print_line(out, line.text);
    } else {
      print_text(out, line.text);
    }
  }
}

void print_measured(std::ostream& out, const JobTrace& job, const Diagnosis& diagnosis,
                    const std::vector<BusRow>& bus, const Detail& detail) {
  print_steps(out, job, diagnosis, detail);
  print_bus(out, bus, detail);
  if (const auto& sharding = diagnosis.ranks.front().sharding) {
    print_groups(out, diagnosis.ranks.front().rank, *sharding);
  }
  print_uneven(out, diagnosis, detail);
  print_late(out, diagnosis, detail);
  print_collectives(out, job, diagnosis, detail);
  print_host(out, job, diagnosis);
  print_replay(out, diagnosis, detail);
  print_what_ifs(out, diagnosis, detail);
  if (diagnosis.buckets) print_buckets(out, *diagnosis.buckets);
}

// Sentences below a title, some of them where there are many.
void print_list(std::ostream& out, const char* title, const std::vector<std::string>& lines,
                const Detail& detail) {
  if (lines.empty()) return;
  constexpr std::size_t kShown = 6;
  const std::size_t shown = detail.notes || lines.size() <= kShown + 1 ? lines.size() : kShown;
  out << '\n' << title << '\n';
  for (std::size_t i = 0; i < shown; ++i) print_text(out, "  " + lines[i], 4);
  if (shown < lines.size()) out << "  " << lines.size() - shown << " more: --notes\n";
}

}  // namespace

JobTrace load_traces(const std::vector<std::string>& files, const imports::JobOptions& wanted) {
  auto traces = attempt([&] { return imports::load_job(files, wanted); });
  if (!traces) refuse_as(traces.error, files, imports::Format::Kineto);
  return *std::move(traces.value);
}

namespace {

std::optional<Duration> measured_step(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const Duration step = time_of_flag("--unprofiled-step", text);
  if (step <= Duration{}) {
    throw InputError("--unprofiled-step: expected a time above 0, found \"" + text + "\"");
  }
  return step;
}

}  // namespace

void diagnose(const DiagnoseOptions& options, std::ostream& out) {
  const std::optional<Duration> unprofiled_step = measured_step(options.unprofiled_step);
  const frameworks::Framework& framework =
      frameworks::parse_framework("--framework", options.framework, frameworks::has_settings);
  const imports::TraceFiles found = imports::find_traces(options.files);
  const std::vector<std::string>& traces = found.files;
  std::vector<NamedFile> inputs;
  for (const std::string& file : traces) inputs.push_back({"input", file});
  require_outputs(
      {{"--trace", options.trace}, page_output(options.page), document_file(options.document)},
      inputs);
  imports::JobOptions wanted;
  wanted.join.collective_patterns = options.collective_patterns;
  wanted.join.step = options.step;
  const JobTrace job = load_traces(traces, wanted);
  Diagnosis diagnosis = diagnose::diagnose(job, framework, unprofiled_step);
  diagnosis.notes.insert(diagnosis.notes.begin(), found.notes.begin(), found.notes.end());
  const std::vector<BusRow> bus = bus_rows(job, options.data_dir);
  std::string json = diagnosis_json(job, diagnosis, bus);
  std::vector<NewFile> files;
  if (!options.trace.empty()) {
    files.push_back(
        {options.trace, as_named(options.trace, diagnose::perfetto_of(job, diagnosis))});
  }
  if (options.page.wanted()) {
    files.push_back(
        page_file(options.page, report_of_diagnosis(options.page, job, diagnosis, json)));
  }
  write_files(files);
  put_document(options.document,
               {.json = [&] { return json; }, .table = [&] { return finding_table(diagnosis); }},
               out);
  if (replaces_report(options.document)) return;
  print_head(out, job, diagnosis, bus);
  if (has_work(diagnosis)) print_measured(out, job, diagnosis, bus, options.detail);
  print_list(out, "how the trace was read", diagnosis.notes, options.detail);
  print_list(out, "not known", diagnosis.unknowns, options.detail);
}

}  // namespace dovetail::cli
