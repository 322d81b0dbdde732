// Reading a plan, simulating what a framework makes of it, and writing the framework's file.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/export.h"

#include <filesystem>
#include <utility>

#include "answers/plan_machine.h"
#include "answers/prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/document.h"
#include "cli/export_job.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "schedule/plan_json.h"

namespace dovetail::cli {

frameworks::Machine simulated_machine(const schedule::Plan& plan, const models::Costs& costs) {
  frameworks::Machine machine;
  machine.name = costs.machine;
  machine.step = [&plan, &costs](const schedule::Schedule& schedule) {
    const schedule::ScheduledProgram program =
        predict::lower_and_verify(plan.program, schedule, "export: the plan cannot be run there");
    return Duration(predict::steady_state(program, costs).summary.step_ns);
  };
  machine.collective = [&costs](schedule::Collective kind, const schedule::ProcessGroup& group,
                                Bytes bytes) {
    return group.size() == 1 ? Duration{} : costs.collective(kind, group, bytes).isolated;
  };
  return machine;
}

std::string with_file(std::string words, const std::string& path) {
  const std::filesystem::path file(path);
  const std::string name = file.extension() == ".py" ? file.stem().string() : path;
  for (std::size_t at = words.find("FILE"); at != std::string::npos; at = words.find("FILE", at)) {
    // NCCL_TUNER_CONFIG_FILE is no place to fill in.
    const bool is_place = at == 0 || words[at - 1] != '_';
    if (is_place) words.replace(at, 4, name);
    at += is_place ? name.size() : 4;
  }
  return words;
}

std::string to_json(const ExportAnswer& answer, const ExportCommandOptions& options) {
  using GivenUp = ExportAnswer::GivenUp;
  const auto or_null = [](const std::optional<Duration>& time) {
    return time ? nlohmann::ordered_json(to_us(*time)) : nullptr;
  };
  const Table rows = table_of<GivenUp>(
      {{{"what"}, &GivenUp::what},
       {{"more_us"}, &GivenUp::more},
       {{"more_percent"},
        [&](const GivenUp& row) {
          return row.more ? Cell(100 * to_us(*row.more) / to_us(*answer.asked)) : Cell();
        }}},
      answer.given_up);
  const bool has_file = !options.output.empty() && options.output != "-";
  const nlohmann::ordered_json document = {
      {"schema", "dovetail.export/1"},
      {"kind", "export"},
      {"origin", "simulated"},
      {"to", options.target},
      {"framework", std::string(answer.framework)},
      {"writes", std::string(answer.writes)},
      {"file", has_file ? nlohmann::ordered_json(options.output) : nullptr},
      {"text", answer.text},
      {"use", answer.use},
      {"asked_step_us", or_null(answer.asked)},
      {"as_run_step_us", or_null(answer.as_run)},
      {"rows", rows_json(rows)},
      {"notes", answer.notes}};
  return with_tool(document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                   "\n");
}

namespace {

std::string_view what_is_written(const frameworks::Export& result,
                                 const frameworks::Framework& framework) {
  return result.writes.empty() ? framework.writes : result.writes;
}

ExportAnswer answer_of(const frameworks::Export& result, const frameworks::Framework& framework,
                       const std::string& path) {
  ExportAnswer answer{.framework = framework.title,
                      .writes = what_is_written(result, framework),
                      .text = result.text,
                      .use = with_file(result.paste, path),
                      .asked = result.planned,
                      .as_run = result.as_run,
                      .given_up = {},
                      .notes = result.notes};
  for (const frameworks::Loss& loss : result.losses)
    answer.given_up.push_back({loss.what, loss.more});
  return answer;
}

void report(const frameworks::Export& result, const frameworks::Framework& framework,
            const std::string& path, std::ostream& out) {
  out << path << ": " << what_is_written(result, framework) << ", for " << framework.title << '\n'
      << "predicted (simulated) " << fixed(to_us(result.as_run) / 1e3, 3)
      << " ms a step as it is run there, " << fixed(to_us(result.planned) / 1e3, 3)
      << " ms as planned\n";
  for (const frameworks::Loss& loss : result.losses) {
    out << "  given up: " << loss.what << ": " << frameworks::loss_percent(result, loss.more)
        << '\n';
  }
  print_notes(out, result.notes);
  out << "use: " << with_file(result.paste, path) << '\n';
}

}  // namespace

void export_plan(const ExportCommandOptions& options, std::ostream& out) {
  if (options.plan.empty() == options.job.empty()) {
    throw InputError("export: give a plan file or --job");
  }
  if (!options.job.empty()) return export_job(options, out);
  const frameworks::Framework& framework =
      frameworks::parse_framework("--to", options.target, frameworks::has_writer);
  require_outputs({{"-o", options.output == "-" ? "" : options.output}},
                  {{"the plan", options.plan}});
  schedule::Plan plan = schedule::read_plan(options.plan);
  const predict::Machine own = predict::machine_of(
      {.command = "export", .cluster = options.cluster, .data_dir = options.data_dir}, plan);
  const frameworks::Machine machine = simulated_machine(plan, own.costs);
  frameworks::Export result = frameworks::export_plan(
      framework, plan, machine, {.version = DOVETAIL_VERSION, .plan = options.plan});
  const bool has_file = !options.output.empty() && options.output != "-";
  if (has_file) write_file(options.output, result.text);
  if (options.json) {
    ExportAnswer answer = answer_of(result, framework, has_file ? options.output : "FILE");
    for (std::string& note : predict::notes_on(own, plan.program, plan.summary, plan.schedule))
      answer.notes.push_back(std::move(note));
    out << to_json(answer, options);
    return;
  }
  if (!has_file) {
    out << result.text;
    return;
  }
  report(result, framework, options.output, out);
  print_notes(out, predict::notes_on(own, plan.program, plan.summary, plan.schedule));
}

}  // namespace dovetail::cli
