// `dovetail plan`: makes one plan by a policy, predicts its step, and writes the plan file, its
// trace and its report.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/prediction.h"
#include "answers/room.h"
#include "answers/weigher.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/answer.h"
#include "cli/document.h"
#include "cli/export_job.h"
#include "cli/outputs.h"
#include "cli/plan_page.h"
#include "cli/step_words.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "frameworks/units_note.h"
#include "models/networks/memory.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/plan_json.h"
#include "search/planner.h"
#include "search/recorded.h"
#include "search/sweep.h"
#include "sim/interval.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

// What a person has now in place of a plan, and its step.
struct Now {
  std::string words;
  Duration step{};
};

// What a person reads about a plan.
struct Written {
  const PlanOptions& options;
  const search::Candidate& candidate;
  const schedule::Prediction& predicted;
  const std::optional<sim::StepInterval>& figures;
  const std::optional<predict::StepRange>& range;
  const std::optional<predict::HostBound>& host_bound;
  const std::vector<std::string>& notes;
  std::vector<std::string> next;  // commands
  const std::optional<Now>& now;
  const std::optional<predict::Shortage>& shortage;

  // Whether no rank has room for what it holds at all.
  [[nodiscard]] bool has_no_room() const {
    return shortage && shortage->of != predict::Shortage::Of::PlanWithAdam &&
           shortage->room.fits() == schedule::Fits::No;
  }
};

Answer answer_of_plan(const Written& plan) {
  const Duration step = plan.predicted.step;
  Answer answer{.set = {},
                .gives = to_string(step) + " a step" + spread_text(plan.range, plan.figures),
                .left = ""};
  if (plan.now) {
    answer.gives += " against " + to_string(plan.now->step) + " now (" + plan.now->words +
                    "): " + change_text(step, plan.now->step);
  }
  if (plan.has_no_room()) {
    answer.why_nothing = verdict_of(*plan.shortage);
    answer.tone = Tone::Warning;
  } else if (!plan.next.empty()) {
    answer.set = plan.next;
  } else if (plan.options.output.empty()) {
    answer.nothing = "nothing yet";
    answer.why_nothing = "-o plan.json writes the plan";
  } else {
    answer.why_nothing = "no framework is told this plan by a file; dovetail run " +
                         plan.options.output + " executes it";
  }
  answer.left = plan.predicted.lower_bound
                    ? at_most_text(step, *plan.predicted.lower_bound) +
                          ": no schedule of this kind is faster than " +
                          to_string(*plan.predicted.lower_bound)
                    : at_most_text(step, step - plan.predicted.exposed) +
                          " by hiding more: " + to_string(plan.predicted.exposed) +
                          " of communication is exposed";
  return answer;
}

void print_plan(std::ostream& out, const Written& plan, const Answer& answer) {
  print_answer(out, answer, plan.options.detail);
  out << '\n';
  std::string line = plan.options.output.empty() ? "" : plan.options.output + ": ";
  line += plan.candidate.name() + ", " + counted(plan.candidate.buckets(), "bucket") +
          "; predicted step " + milliseconds(plan.predicted.step) + ", exposed " +
          milliseconds(plan.predicted.exposed);
  if (plan.predicted.lower_bound)
    line += ", lower bound " + milliseconds(*plan.predicted.lower_bound);
  print_text(out, line);
  print_host_bound(out, plan.host_bound);
  print_figures(out, plan.figures);
  print_range(out, plan.range);
  std::vector<std::string> notes = frameworks::notes_on_units(plan.options.policy);
  notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  if (plan.shortage) {
    const std::string text = to_string(*plan.shortage);
    print_text(out, text, 2, Tone::Warning);
    std::erase(notes, text);
  }
  print_notes(out, notes_beside(answer, std::move(notes)), plan.options.detail);
  for (const std::string& said : plan.candidate.report) print_text(out, "  " + said, 4);
  for (const std::string& left : plan.candidate.left_out) print_text(out, "  left out: " + left, 4);
  if (!plan.options.trace.empty()) out << plan.options.trace << ": predicted trace\n";
}

// What the plan's framework does by itself, where that is another schedule of the same step. A job says by itself what
// its layout is, and that is no matter of a framework's default.
std::optional<schedule::Policy> usual_policy(const answers::Question& asked,
                                             const search::Candidate& candidate,
                                             const search::Planner& planner) {
  if (!asked.job.empty() || candidate.plan) return std::nullopt;
  std::optional<schedule::Policy> policy = search::policy_of_now(candidate.spec, planner.program());
  if (policy && planner.refusal_of(*policy)) return std::nullopt;
  return policy;
}

// Of a recorded step what was recorded, unless the plan has other micro-steps than it.
std::optional<Now> now_of(const std::optional<schedule::Policy>& policy,
                          const std::optional<models::RecordedStep>& recorded,
                          std::int32_t micro_steps, search::Planner& planner) {
  if (recorded && micro_steps == 1) {
    if (const auto run = search::recorded_run(planner.program(), *recorded)) {
      return Now{.words = "as recorded", .step = Duration(planner.evaluate(run->schedule).step_ns)};
    }
  }
  if (!policy) return std::nullopt;
  const search::Candidate now = planner.evaluate(search::Start(*policy));
  return Now{.words = frameworks::in_words(*policy), .step = Duration(now.summary.step_ns)};
}

// The commands that go on from the file of the plan, or from the job that it was made of.
std::vector<std::string> commands_after(const PlanOptions& options,
                                        const std::optional<jobs::Job>& job,
                                        const schedule::Plan& plan) {
  std::vector<std::string> commands;
  const auto add = [&commands](std::string command) {
    if (!command.empty()) commands.push_back(std::move(command));
  };
  if (!options.output.empty()) add(frameworks::export_command(options.output, plan));
  if (job) add(export_job_command(*job, options.job, options.inputs.cluster));
  return commands;
}

// Throws InputError on flags that do not go together.
answers::Question asked_of(const PlanOptions& options, const std::string& file) {
  require_outputs({{"-o", file}, {"--trace", options.trace}, page_output(options.page)},
                  {workload_file(options.inputs.workload, options.inputs.data_dir),
                   cluster_file(options.inputs.cluster, options.inputs.data_dir),
                   {"--plan", options.start}});
  const predict::InputOptions& inputs = options.inputs;
  if (!options.job.empty() && !inputs.workload.empty())
    throw InputError("--workload and --job: give one of them");
  if (options.job.empty() && inputs.workload.empty())
    throw InputError("plan: name a --workload or a --job");
  return {.workload = inputs.workload,
          .job = options.job,
          .cluster = inputs.cluster,
          .world = inputs.world,
          .layout = inputs.layout,
          .what_if = inputs.what_if,
          .force = inputs.force,
          .policy = options.policy,
          .plan = options.start};
}

// All that the prediction rests on, one line each.
std::vector<std::string> notes_on(const predict::Machine& machine, const answers::MadePlan& made) {
  std::vector<std::string> notes =
      predict::notes_on(machine, made.plan.program, made.plan.summary, made.plan.schedule);
  for (std::string& note : predict::notes_on(made.planned.steady)) notes.push_back(std::move(note));
  if (made.bound && !made.bound->problem.empty()) notes.push_back(made.bound->problem);
  return notes;
}

}  // namespace

void plan(const PlanOptions& options, std::ostream& out) {
  const bool to_out = options.json || options.output == "-";
  const std::string file = options.output == "-" ? "" : options.output;
  const answers::Question asked = asked_of(options, file);
  answers::Site site(asked, options.inputs.data_dir);
  const answers::MadePlan made = site.plan(asked);
  const search::Candidate& candidate = made.planned.candidate;
  const schedule::ScheduledProgram& program = made.planned.program;
  const predict::Machine& machine = site.inputs().machine;
  search::Planner& planner = site.planner();
  const std::vector<std::string> notes = notes_on(machine, made);
  const std::optional<predict::HostBound> bound =
      predict::host_bound(program, planner.costs(), made.planned.steady);
  const std::vector<std::string> all_notes = with_host_bound(bound, notes);
  const std::string text = with_tool(schedule::plan_to_json(made.plan));
  std::vector<NewFile> files;
  if (!file.empty()) files.push_back({file, text});
  if (!options.trace.empty()) {
    const predict::Traced traced = predict::trace_of({.program = program,
                                                      .costs = planner.costs(),
                                                      .steady = made.planned.steady,
                                                      .workload = made.plan.summary.workload,
                                                      .notes = all_notes},
                                                     predict::kTraceSteps);
    files.push_back({options.trace, with_tool(traces::to_json(traced.trace))});
  }
  const std::optional<schedule::Policy> usual = usual_policy(asked, candidate, planner);
  if (to_out && !options.page.wanted()) {
    write_files(files);
    out << text;
    return;
  }
  const schedule::Prediction& predicted = *made.plan.summary.predicted;
  const std::optional<sim::StepInterval> figures = sim::step_interval(program, planner.costs());
  const std::optional<predict::StepRange> range =
      predict::step_range(machine.cluster, made.plan.program, predicted.step);
  const std::optional<Now> now =
      now_of(usual, site.inputs().recorded, made.plan.schedule.merge.micro_steps, planner);
  const std::optional<predict::Shortage> shortage = predict::shortage_of(
      machine.capacity(), made.plan.program, made.plan.summary, made.plan.schedule);
  const Written written{.options = options,
                        .candidate = candidate,
                        .predicted = predicted,
                        .figures = figures,
                        .range = range,
                        .host_bound = bound,
                        .notes = notes,
                        .next = commands_after(options, site.job(), made.plan),
                        .now = now,
                        .shortage = shortage};
  Answer answer = answer_of_plan(written);
  if (site.job()) answer.assumed = site.job()->assumed;
  if (options.page.wanted()) {
    MemoryOnPage memory{.stages = {}, .capacity = machine.capacity()};
    if (site.job()) memory.stages = jobs::memory_of(*site.job());
    files.push_back(page_file(options.page, report_of_plan(options.page, all_notes,
                                                           {.plan = made.plan,
                                                            .lowered = program,
                                                            .costs = planner.costs(),
                                                            .steady = made.planned.steady,
                                                            .file = options.output,
                                                            .lower_bound = predicted.lower_bound,
                                                            .usual = usual,
                                                            .memory = std::move(memory),
                                                            .answer = answer})));
  }
  write_files(files);
  if (to_out) {
    out << text;
  } else {
    print_plan(out, written, answer);
  }
}

}  // namespace dovetail::cli
