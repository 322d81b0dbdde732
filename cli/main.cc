// The front door: binds flags to each subcommand's options, calls it, and turns errors into exit
// codes.
//
//   0  done      2  the input is wrong      3  the machine failed, or values were wrong
//
// The only place that catches exceptions and reads environment variables of the tool itself:
//   DOVETAIL_DATA  directory with workloads/ and clusters/ (default: models/ of the source tree)
//   DOVETAIL_CUDA_MODULE  the CUDA module (default: beside the executable)
//
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_reader.h"
#include "cli/calibrate.h"
#include "cli/calibrate_cuda.h"
#include "cli/compare.h"
#include "cli/cuda_job.h"
#include "cli/explore.h"
#include "cli/export_flags.h"
#include "cli/import_flags.h"
#include "cli/page.h"
#include "cli/plan.h"
#include "cli/report_flags.h"
#include "cli/reshard.h"
#include "cli/run.h"
#include "cli/selftest.h"
#include "cli/show.h"
#include "cli/trace_flags.h"
#include "schedule/policies.h"

namespace dovetail::cli {
namespace {

std::string data_dir() {
  const char* const given = std::getenv("DOVETAIL_DATA");
  return given != nullptr && *given != '\0' ? given : DOVETAIL_DATA_DIR;
}

constexpr std::array<std::string_view, 8> kCommonOptions = {"mode", "wait", "scope",   "scale",
                                                            "k",    "sync", "average", "sums"};

// Either backend's calibration; what both need is bound once.
struct CalibrateBinding {
  CalibrateOptions cpu;
  CalibrateCudaOptions cuda;
};

// All options of all subcommands, alive while the parser writes to them.
struct AllOptions {
  ExploreOptions explore;
  PlanOptions plan;
  PredictOptions predict;
  ExportCommandOptions export_plan;
  ShowOptions show;
  RunCommandOptions run;
  CalibrateBinding calibrate;
  CompareOptions compare;
  ImportOptions imports;
  ReshardOptions reshard;
  SelftestOptions selftest;
  TraceCommandOptions traces;
  ReportOptions report;
};

constexpr std::int64_t kLargestNumber = std::numeric_limits<std::int32_t>::max();

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto wrong = [low, high](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, value);
    if (status == std::errc() && rest == end && value >= low && value <= high) return {};
    return "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
           ", found \"" + text + "\"";
  };
  const bool is_bounded = high < kLargestNumber;
  return CLI::Validator(wrong,
                        is_bounded ? std::to_string(low) + " to " + std::to_string(high) : "");
}

void bind_inputs(CLI::App& command, InputOptions& inputs) {
  inputs.data_dir = data_dir();
  command.add_option("--workload", inputs.workload, "model of the zoo, shipped profile, or file")
      ->required();
  command.add_option(
      "--cluster", inputs.cluster,
      "machine: shipped name or file; may be left out for profiles that bring theirs");
  command
      .add_option("--world", inputs.world,
                  "ranks of a zoo model (default: the cluster's, per stage of a pipeline)")
      ->check(whole_number(1, kLargestNumber));
  command.add_flag("--force", inputs.force, "take a captured profile that is not valid");
}

// Names with commas, in lines of a help text.
std::string policy_list() {
  std::string text = "Policies:";
  std::size_t line = 0;
  for (const schedule::PolicyHelp& policy : schedule::policy_help()) {
    if (text.size() - line + policy.name.size() > 96) {
      text += '\n';
      line = text.size();
    }
    text += (text.size() == line ? "  " : " ") + policy.name + ",";
  }
  text.back() = '.';
  return text;
}

// Every policy with the options that only some of them take.
std::string policies_footer() {
  std::string text = "Policies, as NAME or NAME:OPTION=VALUE,OPTION=VALUE,...\n";
  for (const schedule::PolicyHelp& policy : schedule::policy_help()) {
    std::string line = "  " + policy.name + std::string(22 - policy.name.size(), ' ');
    if (policy.options.empty()) line += " = " + policy.defaults;
    for (const std::string& option : policy.options) {
      if (std::ranges::find(kCommonOptions, option) == kCommonOptions.end()) line += " " + option;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += "  all of them           ";
  for (const std::string_view option : kCommonOptions) text += " " + std::string(option);
  return text +
         "\ndovetail show policies says what each is for, docs/schedules.md what options do.";
}

// The command calls `run` and ends well.
template <class Options>
void act(CLI::App& command, const Options& options, void (*run)(const Options&, std::ostream&),
         std::function<int()>& action) {
  command.callback([&options, &action, run] {
    action = [&options, run] {
      run(options, std::cout);
      return 0;
    };
  });
}

void bind_explore(CLI::App& app, ExploreOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("explore", "sweep fusion thresholds and policies");
  bind_inputs(command, options.inputs);
  command.add_option("--thresholds", options.thresholds, "LOW:HIGH or a list, e.g. 1MiB,25MiB");
  command.add_option("--points", options.points, "thresholds in a range (default 17)")
      ->check(whole_number(2, 100'000));
  command.add_option("--first-bucket", options.first_bucket, "torch-ddp's first limit (1MiB)");
  command
      .add_option("--policies", options.policies,
                  "only these, as plan --policy takes them (default: all but fsdp and pipeline)")
      ->delimiter(',');
  command.add_option("--mode", options.mode, "view or copy, for every policy");
  command.add_option("--wait", options.wait, "first-use or end-of-backward, for every policy");
  command.add_flag("--json", options.json, "machine-readable output");
  options.terminal = ::isatty(STDOUT_FILENO) == 1;
  command.add_flag("--plot", options.terminal, "text plot (default on a terminal)");
  bind_page(command, options.page);
  act(command, options, explore, action);
}

void bind_plan(CLI::App& app, PlanOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("plan", "write the schedule of one policy");
  bind_inputs(command, options.inputs);
  command.add_option("--policy", options.policy,
                     "e.g. exact (the default), torch-ddp:cap=25MiB, sharded:p=2,k=4; see below");
  command.footer(policies_footer());
  command.add_option("-o,--output", options.output, "plan file to write")->required();
  command.add_option("--trace", options.trace, "also write the predicted trace");
  bind_page(command, options.page);
  act(command, options, plan, action);
}

void bind_predict(CLI::App& app, PredictOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("predict", "simulate a plan on a machine");
  options.data_dir = data_dir();
  command.add_option("--plan", options.plan, "plan file")->required();
  command.add_option("--cluster", options.cluster,
                     "shipped name or file (default: the plan's own, unless that is a file)");
  command.add_option("--trace", options.trace, "predicted trace to write");
  command.add_option("--perfetto", options.perfetto, "file for ui.perfetto.dev to write");
  command.add_option("--costs", options.costs,
                     "file to write with what everything costs; --cluster reads it again");
  command.add_flag("--timeline", options.timeline, "also print the steps as a text timeline");
  command
      .add_option("--steps", options.steps, "steps in a row (default 3; the median is reported)")
      ->check(whole_number(1, 10000));
  bind_page(command, options.page);
  act(command, options, predict, action);
}

void bind_show(CLI::App& app, ShowOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("show", "print things as text");
  options.data_dir = data_dir();
  command
      .add_option("what", options.what,
                  "program, schedule, commands, workloads, clusters, policies, or a plan file")
      ->required();
  command.add_option("--plan", options.plan, "plan file");
  command.add_option("--workload", options.workload, "instead of a plan");
  command.add_option("--policy", options.policy, "with --workload (default torch-ddp)");
  command.add_option("--world", options.world, "ranks of a zoo model")
      ->check(whole_number(1, kLargestNumber));
  act(command, options, show, action);
}

void bind_reshard(CLI::App& app, ReshardOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("reshard", "cheapest way between two tensor layouts");
  command.add_option("--shape", options.shape, "of the tensor, e.g. 8x8")->required();
  command.add_option("--dtype", options.dtype, "f32 (default), f16, bf16 or f64");
  command.add_option("--mesh", options.mesh, "of the ranks, e.g. 4 or 2x2")->required();
  command
      .add_option("--from", options.from,
                  "layout per mesh axis: R, S(dimension), P(sum) or P(average), e.g. \"S(0),R\"")
      ->required();
  command.add_option("--to", options.to, "layout that is needed, written alike")->required();
  command.add_option("--to-mesh", options.to_mesh, "other mesh (default: the same)");
  command.add_option("--to-first-rank", options.to_first_rank, "of the other mesh (default 0)")
      ->check(whole_number(0, kLargestNumber));
  command.add_option("--latency", options.latency, "of one message (default 5us)");
  command.add_option("--wire", options.wire, "rate of the network (default 10GB/s)");
  command.add_option("--copy", options.copy, "rate of local copies (default 500GB/s)");
  command.add_flag("--steps", options.steps, "also what each rank does");
  act(command, options, reshard, action);
}

void bind_job(CLI::App& command, JobOptions& job) {
  command.add_option("--ranks", job.ranks, "start so many local ranks (default: the launcher's)")
      ->check(whole_number(1, 64));
  command.add_option(
      "--netns", job.network_namespace,
      "prefix of the ranks' network namespaces (scripts/testbed.sh makes dovetailN)");
  command.add_option("--collectives", job.collectives, "ring (default) or gloo");
  command.add_option("--rate", job.rate,
                     "the ring paces itself, e.g. 1gbit: a link that needs no root");
  command.add_option("--store", job.store, "HOST:PORT where rank 0 listens");
}

// Path of the CUDA module that the environment names.
std::string cuda_module() {
  const char* const given = std::getenv("DOVETAIL_CUDA_MODULE");
  return given != nullptr ? given : "";
}

void bind_backend(CLI::App& command, BackendChoice& choice) {
  choice.cuda_module = cuda_module();
  command.add_option("--backend", choice.backend, "cpu (default) or cuda");
  command.add_option("--device", choice.device,
                     "cuda: GPU number, or auto (default): by the rank's number on its host");
  command.add_option("--stand-in", choice.stand_in,
                     "cuda, one rank: send-to-self replaces collectives");
  command.add_option("--f32-math", choice.f32_math, "cuda: full (default) or tf32");
  command.add_option("--issue", choice.issue, "cuda: eager (default), or graph (two warm-ups)");
  command.add_option("--buffers", choice.buffers,
                     "cuda: plain (default), or nccl: memory that NCCL may use in place (NVLS)");
  command
      .add_option("--cluster-size", choice.cluster_size, "cuda: NCCL's blocks per cluster, 1 to 8")
      ->check(whole_number(1, 8));
  command.add_option("--deadline", choice.deadline, "cuda: of any wait (default 60s)");
  command.add_flag_callback(
      "--graph", [&choice] { choice.issue = "graph"; }, "the same as --issue graph");
}

void bind_run(CLI::App& app, RunCommandOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("run", "execute plans for real and check every value");
  command.add_option("--plan", options.plans, "plan file; several run interleaved")->required();
  command.add_option("--trace", options.traces, "measured trace to write, one per plan");
  command.add_option("--scales", options.backend.scales,
                     "cuda: kernel (default), or collective: folded where no value changes");
  command.add_option("--trace-detail", options.backend.trace_detail,
                     "cuda: commands (default), or full: also every kernel (CUPTI)");
  bind_job(command, options.job);
  bind_backend(command, options.backend);
  command.add_option("--warmup", options.warmup, "steps not timed, per round (default 1)")
      ->check(whole_number(0, 1000));
  command.add_option("--steps", options.steps, "timed steps per round (default 5)")
      ->check(whole_number(1, 10000));
  command.add_option("--rounds", options.rounds, "rounds over all plans (default 3)")
      ->check(whole_number(1, 1000));
  command.add_option("--time", options.time,
                     "instead of rounds: until both figures are known to 1 %, at most this long");
  command.add_flag(
      "--calibrate-between", options.calibrate_between,
      "measure costs between rounds; predict the quiet and the typical step from them");
  command.add_option("--cluster", options.cluster,
                     "the calibrated file that the plans were made for");
  options.data_dir = data_dir();
  bind_page(command, options.page);
  command.add_flag("--exposed", options.exposed,
                   "also run each plan without communication; exposed time by three definitions");
  command.add_flag("--json", options.json, "machine-readable output");
  command.callback(
      [&options, &action] { action = [&options] { return cli::run(options, std::cout); }; });
}

void run_calibrate(const CalibrateBinding& options) {
  if (options.cuda.backend.backend == "cpu") {
    static_cast<void>(open_cuda(options.cuda.backend));  // refuses options of the other backend
    return calibrate(options.cpu, std::cout);
  }
  CalibrateCudaOptions cuda = options.cuda;
  cuda.workload = options.cpu.workload;
  cuda.output = options.cpu.output;
  cuda.name = options.cpu.name;
  cuda.data_dir = options.cpu.data_dir;
  cuda.job = options.cpu.job;
  cuda.op_steps = options.cpu.op_steps;
  cuda.budget = options.cpu.budget;
  calibrate_cuda(cuda, std::cout);
}

void bind_calibrate(CLI::App& app, CalibrateBinding& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("calibrate", "measure this machine into a cluster file");
  options.cpu.data_dir = data_dir();
  command.add_option("--workload", options.cpu.workload, "whose ops to measure")->required();
  command.add_option("-o,--output", options.cpu.output, "cluster file to write")->required();
  command.add_option("--name", options.cpu.name, "of the cluster (default here)");
  bind_job(command, options.cpu.job);
  command.add_option("--op-steps", options.cpu.op_steps, "steps to measure ops over (default 10)")
      ->check(whole_number(1, 1000));
  command.add_option("--budget", options.cpu.budget, "time for collectives by size (default 15s)");
  bind_backend(command, options.cuda.backend);
  command.add_option("--max-ctas", options.cuda.max_ctas, "cuda: thread blocks per collective")
      ->check(whole_number(1, 64));
  command.add_option("--world", options.cuda.world, "ranks that the stand-in plays (default 2)")
      ->check(whole_number(2, 4096));
  command.callback([&options, &action] {
    action = [&options] {
      run_calibrate(options);
      return 0;
    };
  });
}

void bind_compare(CLI::App& app, CompareOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("compare", "a predicted trace beside a measured one");
  command.add_option("predicted", options.predicted, "trace of plan or predict")->required();
  command.add_option("measured", options.measured, "trace of run")->required();
  command.add_option("--perfetto", options.perfetto, "write both as one Perfetto file");
  command.add_flag("--timeline", options.timeline, "also print both as text");
  command.add_flag("--json", options.json, "machine-readable output");
  bind_page(command, options.page);
  act(command, options, compare, action);
}

void bind_selftest(CLI::App& app, SelftestOptions& options, std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("selftest", "what this build and this machine can do");
  command.add_option("--backend", options.backend, "cpu, cuda or all (default)");
  command.add_flag("--json", options.json, "machine-readable output");
  command.add_option("--as-rank", options.as_rank)->group("");  // hidden: of the tool's own ranks
  command.add_option("--largest", options.largest, "cuda: of the all-reduces (default 256MiB)");
  options.cuda_module = cuda_module();
  options.data_dir = data_dir();
  command.callback(
      [&options, &action] { action = [&options] { return selftest(options, std::cout); }; });
}

// "; did you mean NEAR?", or ";" where nothing is near.
std::string suggestion(std::string_view word, std::span<const std::string> known) {
  const std::string near = word.size() > 2 ? nearest_word(word, known) : "";
  return near.empty() ? ";" : "; did you mean " + near + "?";
}

// Names every option, "--world" and "-o" alike.
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// What stands where a subcommand (of import: a format) belongs, if it is none and no option there.
std::string unknown_command(const CLI::App& app, std::span<const std::string> words) {
  const std::string of = app.get_parent() == nullptr ? "" : app.get_name() + ": ";
  const std::string noun = of.empty() ? "subcommand" : "format";
  std::vector<std::string> known;
  std::string list;
  for (const CLI::App* const command : app.get_subcommands({})) {
    known.push_back(command->get_name());
    list += (list.empty() ? "" : ", ") + known.back();
  }
  if (words.empty()) return of + "name a " + noun + ": " + list;
  const std::string& word = words.front();
  if (std::ranges::find(known, word) != known.end()) return {};
  if (!word.starts_with('-')) {
    return of + "unknown " + noun + " \"" + word + "\"" + suggestion(word, known) +
           " there are: " + list;
  }
  const std::vector<std::string> options = option_names(app);
  if (std::ranges::find(options, word) != options.end()) return {};
  return of + "unknown option " + word + suggestion(word, options) + " expected a " + noun + ": " +
         list;
}

// The first option that a subcommand does not know, in words; "" if there is none.
std::string unknown_option(const CLI::App& command, std::span<const std::string> words) {
  const std::vector<std::string> known = option_names(command);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].substr(0, words[i].find('='));
    const bool is_long = word.starts_with("--") && word.size() > 2;
    const bool is_short = !is_long && word.size() > 1 && word[0] == '-' &&
                          std::isalpha(static_cast<unsigned char>(word[1])) != 0;
    if (!is_long && !is_short) continue;
    const std::string name = is_long ? word : word.substr(0, 2);
    if (std::ranges::find(known, name) != known.end()) continue;
    return command.get_name() + ": unknown option " + word + suggestion(word, known) +
           " dovetail " + command.get_name() + " --help lists them";
  }
  return {};
}

// Why the command line cannot be parsed.
std::string refusal(const CLI::App& app, std::span<const std::string> words,
                    const CLI::ParseError& error) {
  if (std::string text = unknown_command(app, words); !text.empty()) return text;
  for (const CLI::App* const command : app.get_subcommands({})) {
    if (command->get_name() != words.front()) continue;
    if (!command->get_subcommands({}).empty()) return refusal(*command, words.subspan(1), error);
    if (std::string text = unknown_option(*command, words); !text.empty()) return text;
  }
  return words.front() + ": " + error.what();
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Predicts and measures how gradient communication hides behind backward.",
               "dovetail");
  app.set_version_flag("--version", "dovetail " DOVETAIL_VERSION);
  app.require_subcommand(1);
  app.footer(policy_list() + "\ndovetail plan --help lists their options.");
  AllOptions options;
  std::function<int()> action;
  bind_explore(app, options.explore, action);
  bind_plan(app, options.plan, action);
  bind_predict(app, options.predict, action);
  bind_run(app, options.run, action);
  bind_calibrate(app, options.calibrate, action);
  bind_compare(app, options.compare, action);
  bind_export(app, data_dir(), options.export_plan, action);
  bind_import(app, data_dir(), options.imports, action);
  bind_show(app, options.show, action);
  bind_reshard(app, options.reshard, action);
  bind_selftest(app, options.selftest, action);
  bind_trace_commands(app, options.traces, action);
  bind_report(app, data_dir(), options.report, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    std::fprintf(stderr, "dovetail: %s\n", refusal(app, words, error).c_str());
    return 2;
  }
  const std::string command = "dovetail " + typed({argv + std::min(argc, 1), argv + argc});
  for (PageOptions* const page :
       {&options.explore.page, &options.plan.page, &options.predict.page, &options.run.page,
        &options.compare.page, &options.traces.diagnose.page, &options.report.page}) {
    page->command = command;
  }
  try {
    const int code = action();
    std::cout.flush();
    if (!std::cout) throw InputError("standard output: cannot be written");
    return code;
  } catch (const InputError& error) {
    std::fprintf(stderr, "dovetail: %s\n", error.what());
    return 2;
  } catch (const DeviceError& error) {
    std::fprintf(stderr, "dovetail: %s\n", error.what());
    // A thread may be left behind in a library that hangs; destroying what it uses could crash.
    std::fflush(nullptr);
    std::_Exit(3);
  }
}

}  // namespace
}  // namespace dovetail::cli

int main(int argc, char** argv) { return dovetail::cli::parse_and_run(argc, argv); }
