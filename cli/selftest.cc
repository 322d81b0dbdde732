// `dovetail selftest`: runs the checks that this build and machine allow, one row each, and prints
// them with their verdict.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/job.h"
#include "cli/outputs.h"
#include "cli/selftest_cuda.h"
#include "cli/selftest_job.h"
#include "cli/tool_facts.h"
#include "exec/cpu/gloo.h"
#include "exec/cpu/job.h"
#include "exec/launch/world.h"
#include "exec/machine.h"
#include "exec/selftest/cpu.h"

namespace dovetail::cli {
namespace {

using exec::selftest::Row;
using exec::selftest::row_of;
using exec::selftest::Verdict;
using nlohmann::ordered_json;

constexpr const char* kSchema = "dovetail.selftest/1";

std::vector<Row> build_rows(const SelftestOptions& options) {
  std::vector<Row> rows;
  rows.push_back(
      row_of({"build", "dovetail"}, [] { return exec::selftest::pass("version " + tool_text()); }));
  rows.push_back(row_of({"build", "Gloo"}, [] {
    return exec::cpu::has_gloo() ? exec::selftest::pass("built in")
                                 : exec::selftest::skipped("this build has no Gloo");
  }));
  append(rows, cuda_build_rows(options));
  return rows;
}

std::vector<Row> machine_rows() {
  std::vector<Row> rows;
  rows.push_back(row_of({"machine", "processor"},
                        [] { return exec::selftest::pass(exec::this_machine().text()); }));
  rows.push_back(row_of({"machine", "real-time priority"}, [] {
    const std::string warning = exec::cpu::realtime_warning();
    return warning.empty() ? exec::selftest::pass("allowed") : exec::selftest::skipped(warning);
  }));
  rows.push_back(row_of({"machine", "shaped link"}, [] {
    std::error_code none;
    if (std::filesystem::exists("/run/netns/dovetail0", none)) {
      return exec::selftest::pass("namespaces dovetail0, dovetail1");
    }
    return exec::selftest::skipped(
        "not up; scripts/campaigns/testbed.sh up makes one, run --rate does without");
  }));
  return rows;
}

std::vector<Row> cpu_rows(const SelftestOptions& options) {
  std::vector<Row> rows = exec::selftest::timing_rows();
  append(rows, exec::selftest::transport_rows(exec::cpu::TransportKind::Ring));
  append(rows, exec::selftest::transport_rows(exec::cpu::TransportKind::Gloo));
  append(rows, rows_of_processes({"cpu", "2 ranks as processes"},
                                 {.command = {"/proc/self/exe", "selftest", "--as-rank", "cpu"},
                                  .ranks = 2,
                                  .deadline = options.deadline}));
  append(rows, exec::selftest::cpu_law_rows());
  return rows;
}

// One rank of the check on processes.
int cpu_selftest_as_rank(std::ostream& out) {
  bool failed = false;
  run_job({}, [&](exec::launch::Session& session, exec::cpu::TransportKind) {
    const Row row = exec::selftest::transport_row_of_job(session);
    failed = row.verdict == Verdict::Fail;
    if (session.rank() == Rank{0}) out << rows_to_json({row}) << std::flush;
  });
  return failed ? 3 : 0;
}

Verdict verdict_from(const std::string& word) {
  if (const auto verdict = word_to<Verdict>(word)) return *verdict;
  throw InputError("self-test rows: unknown verdict \"" + word + "\"");
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

std::string how_they_ended(const exec::launch::ProcessesResult& ended) {
  std::string words = ended.in_time ? "exit codes" : "killed at the deadline; exit codes";
  for (const int code : ended.exit_codes) words += " " + std::to_string(code);
  const std::string last = last_line(ended.errors);
  return last.empty() ? words : words + "; " + last;
}

}  // namespace

Table selftest_table(const std::vector<Row>& rows) {
  return table_of<Row>({{{"part", "part"}, &Row::part},
                        {{"name", "check", Unit::Own, {}, 0, Align::Left}, &Row::name},
                        {{"verdict", "verdict", Unit::Own, {}, 0, Align::Left}, &Row::verdict},
                        {{"detail", "what was seen", Unit::Own, {}, 0, Align::Left}, &Row::detail}},
                       rows);
}

void put_rows(const DocumentOptions& options, const std::vector<Row>& rows, std::ostream& out) {
  put_document(
      options,
      {.json = [&] { return rows_to_json(rows); }, .table = [&] { return selftest_table(rows); }},
      out);
  if (replaces_report(options)) return;
  print_whole(out, selftest_table(rows));
  const exec::selftest::Counts counts = exec::selftest::count(rows);
  out << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped
      << " skipped";
  if (counts.known > 0)
    out << ", " << counted(std::int64_t{counts.known}, "known fault") << " of libraries";
  out << '\n';
}

std::string rows_to_json(const std::vector<Row>& rows) {
  const exec::selftest::Counts counts = exec::selftest::count(rows);
  const ordered_json report = {{"schema", kSchema},
                               {"kind", "selftest"},
                               {"machine", exec::this_machine().text()},
                               {"passed", counts.passed},
                               {"failed", counts.failed},
                               {"skipped", counts.skipped},
                               {"known", counts.known},
                               {"rows", rows_json(selftest_table(rows))}};
  // Device and library names are not ours: what is no UTF-8 is replaced, never an exception.
  return report.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::vector<Row> rows_from_json(std::string_view text) {
  // Libraries print to standard output too (NCCL's own lines): begin at the first brace.
  const std::size_t begin = text.find('{');
  if (begin == std::string_view::npos) throw InputError("self-test rows: rank 0 printed none");
  try {
    const auto report = ordered_json::parse(text.substr(begin));
    std::vector<Row> rows;
    for (const auto& row : report.at("rows")) {
      rows.push_back({.part = row.at("part").get<std::string>(),
                      .name = row.at("name").get<std::string>(),
                      .verdict = verdict_from(row.at("verdict").get<std::string>()),
                      .detail = row.at("detail").get<std::string>()});
    }
    return rows;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(std::string("self-test rows: ") + error.what());
  }
}

std::vector<Row> rows_of_processes(const exec::selftest::Title& title,
                                   const exec::launch::ProcessesOptions& options) {
  std::vector<Row> rows;
  const Row whole = row_of(title, [&]() -> exec::selftest::Outcome {
    const exec::launch::ProcessesResult ended = exec::launch::run_local_processes(options);
    if (!ended.in_time) return exec::selftest::fail(how_they_ended(ended));
    if (!ended.succeeded() && ended.output.find('{') == std::string::npos) {
      return exec::selftest::fail(how_they_ended(ended));
    }
    rows = rows_from_json(ended.output);
    const bool told =
        std::ranges::any_of(rows, [](const Row& row) { return row.verdict == Verdict::Fail; });
    if (!ended.succeeded() && !told) return exec::selftest::fail(how_they_ended(ended));
    return exec::selftest::pass("");
  });
  if (rows.empty() || whole.verdict == Verdict::Fail) rows.push_back(whole);
  return rows;
}

int selftest(const SelftestOptions& options, std::ostream& out) {
  if (options.as_rank == "cpu") return cpu_selftest_as_rank(out);
  if (options.as_rank.starts_with("nccl")) return cuda_selftest_as_rank(options, out);
  const bool cpu = options.backend == "cpu" || options.backend == "all";
  const bool cuda = options.backend == "cuda" || options.backend == "all";
  if (!options.as_rank.empty() || (!cpu && !cuda)) {
    throw InputError("selftest --backend: expected cpu, cuda or all, found \"" +
                     (options.as_rank.empty() ? options.backend : options.as_rank) + "\"");
  }
  require_outputs({document_file(options.document)}, {});
  if (options.backend == "cuda" && is_under_launcher()) return cuda_selftest_of_job(options, out);
  std::vector<Row> rows = build_rows(options);
  append(rows, machine_rows());
  if (cpu) append(rows, cpu_rows(options));
  if (cuda) append(rows, cuda_rows(options));
  put_rows(options.document, rows, out);
  return exec::selftest::count(rows).failed > 0 ? 3 : 0;
}

}  // namespace dovetail::cli
