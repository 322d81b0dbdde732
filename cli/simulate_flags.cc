// Binds the flags of the commands that simulate: plan, predict, explore.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate_flags.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <string_view>

#include "base/attempt.h"
#include "cli/common_flags.h"
#include "cli/environment.h"
#include "frameworks/framework.h"
#include "schedule/policies/policies.h"

namespace dovetail::cli {
namespace {

constexpr std::array<std::string_view, 9> kCommonOptions = {
    "mode", "wait", "scope", "scale", "k", "sync", "average", "sums", "collectives"};

void bind_layout(CLI::App& command, std::optional<schedule::DataParallel>& layout) {
  command.add_option_function<std::string>(
      "--layout",
      [&layout](const std::string& text) {
        const auto parsed = attempt([&] { return predict::parse_layout(text); });
        if (!parsed) throw CLI::ValidationError("--layout", parsed.error);
        layout = parsed.value;
      },
      "a workload's step on other ranks: dp=16, or dp_shard=8,dp=2 in shards and replicas");
}

void bind_what_if(CLI::App& command, models::WhatIf& what_if) {
  command.add_option_function<std::string>(
      "--what-if",
      [&what_if](const std::string& text) {
        const auto parsed = attempt([&] { return models::parse_what_if(text); });
        if (!parsed) throw CLI::ValidationError(parsed.error);
        const std::string gpu = parsed.value->gpu.empty() ? what_if.gpu : parsed.value->gpu;
        what_if = *parsed.value;
        what_if.gpu = gpu;
      },
      "another machine: link=0.5x,latency=2x (longer),compute=1.3x,host=2x,gpu=h200,world=64");
  command.add_option("--gpu", what_if.gpu,
                     "your GPU's own book, as python -m dovetail.torch measure writes it; or "
                     "another machine's GPU by its name");
}

void bind_machine_inputs(CLI::App& command, predict::InputOptions& inputs) {
  inputs.data_dir = data_dir();
  command
      .add_option("--world", inputs.world,
                  "ranks of a zoo model or a file of one rank (default: the cluster's, per stage "
                  "of a pipeline)")
      ->check(whole_number(1, kLargestNumber));
  bind_layout(command, inputs.layout);
  bind_what_if(command, inputs.what_if);
  command.add_flag("--force", inputs.force, "take a captured profile that is not valid");
}

constexpr const char* kWorkload =
    "model of the zoo with options (resnet50:batch=256,dtype=bf16), shipped profile, or file";
constexpr const char* kJob =
    "instead of a workload: a model, its layout, batch and precision (llama3_8b:tp=2,dp_shard=4)";
constexpr const char* kCluster =
    "machine: shipped name or file; may be left out for profiles that bring theirs";

// Every policy with the options that only some of them take.
std::string policies_text() {
  std::string text = "Policies, as NAME or NAME:OPTION=VALUE,OPTION=VALUE,...\n";
  for (const schedule::PolicyHelp& policy : schedule::policy_help(frameworks::presets())) {
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

void bind_explore(CLI::App& app, ExploreOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("explore", "sweep fusion thresholds and policies");
  command.add_option("--workload", options.workloads, kWorkload)->allow_extra_args(false);
  command.add_option("--job", options.job, kJob);
  command.add_option("--cluster", options.clusters, kCluster)->allow_extra_args(false);
  bind_machine_inputs(command, options.inputs);
  command.add_option("--thresholds", options.thresholds,
                     "LOW:HIGH or a list, e.g. 1MiB,25MiB (default 0.5MiB:128MiB)");
  command.add_option("--points", options.points, "thresholds in a range (default 17)")
      ->check(whole_number(2, 100'000));
  command.add_option("--first-bucket", options.first_bucket,
                     "torch-ddp's first limit (default: as the version has it)");
  command.add_option(
      "--policies", options.policies,
      "only these, as plan --policy takes them, or all, each as it is by itself (default: what is "
      "worth comparing)");
  command
      .add_option("--plan", options.plans,
                  "a plan file of the same workload, as a row and a start for exact; repeatable")
      ->allow_extra_args(false);
  command.add_option("--framework", options.framework,
                     "whose settings are compared: " + frameworks::id_list(frameworks::has_rows) +
                         " (default: that of all --policies, else torch)");
  command.add_option("--mode", options.mode, "view or copy, for every policy");
  command.add_option("--wait", options.wait, "first-use or end-of-backward, for every policy");
  command.add_flag("--yes", options.yes, "also where it takes hours");
  command.add_flag("--whole", options.whole, "--job: play every micro-batch of each row");
  bind_detail(command, options.detail, "every row");
  options.terminal = ::isatty(STDOUT_FILENO) == 1;
  command.add_flag("--plot", options.plot, "text plot (default on a terminal)");
  bind_page(command, options.page);
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail explore --workload resnet50 --cluster a100x8\n"
      "  dovetail explore --workload step.json --policies ddp,exact --thresholds 1MiB:64MiB\n"
      "  dovetail explore --workload resnet50 --workload vgg16 --cluster a100x8 --cluster h200x8\n"
      "  dovetail explore --workload gpt2 --cluster a100x8 --csv > sweep.csv\n"
      "  dovetail explore --job llama3_70b:tp=8,pp=4,dp=2,gbs=64,seq=8192 --cluster h100x64\n"
      "  dovetail explore --job llama3_70b:gbs=64,seq=8192 --cluster h100x64");
  bind_action(command, options, action, cli::explore);
}

void bind_plan(CLI::App& app, PlanOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("plan", "write the schedule of one policy");
  command.add_option("--workload", options.inputs.workload, kWorkload);
  command.add_option("--job", options.job, kJob);
  command.add_option("--cluster", options.inputs.cluster, kCluster);
  bind_machine_inputs(command, options.inputs);
  CLI::Option* const policy = command.add_option("--policy", options.policy,
                                                 "e.g. exact (the default; fsdp with dp_shard), "
                                                 "torch-ddp:cap=25MiB, sharded:p=2,k=4; see below");
  command
      .add_option("--plan", options.start,
                  "no policy: the schedule of this plan file of the same workload")
      ->excludes(policy);
  command.footer(
      "Examples:\n"
      "  dovetail plan --workload resnet50 --cluster a100x8 -o plan.json\n"
      "  dovetail plan --workload resnet50 --cluster a100x8 --policy ddp:cap=25MiB -o ddp.json\n"
      "  dovetail plan --workload mlp-1000mbit -o - | jq .buckets\n\n" +
      policies_text());
  bind_product(command, {options.output, options.json, "plan file", "only print"});
  command.add_option("--trace", options.trace, "also write the predicted trace");
  bind_notes(command, options.detail);
  bind_page(command, options.page);
  bind_action(command, options, action, plan);
}

void bind_predict(CLI::App& app, PredictOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("predict", "simulate plans on machines");
  options.data_dir = data_dir();
  command.add_option("plans", options.plans, "plan files; several are laid side by side");
  command.add_option("--plan", options.plans_by_flag, "the same")->allow_extra_args(false);
  command
      .add_option("--cluster", options.clusters,
                  "shipped name or file (default: the plan's own, unless that is a file)")
      ->allow_extra_args(false);
  command.add_option("--workload", options.workload,
                     "the same model measured anew, whose durations are taken (default: the plan's "
                     "own); without PLAN a step that owes no reduction, as it stands");
  bind_layout(command, options.layout);
  bind_what_if(command, options.what_if);
  command.add_flag("--force", options.force, "take a captured profile that is not valid");
  command.add_option("--trace", options.trace, "predicted trace to write");
  command.add_option("--perfetto", options.perfetto,
                     "file for ui.perfetto.dev to write, with all plans; compressed as NAME.gz");
  command.add_option("--costs", options.costs,
                     "file to write with what everything costs; --cluster reads it again");
  command.add_flag("--timeline", options.timeline, "also print the steps as a text timeline");
  command.add_flag(
      "--critical-path", options.critical_path,
      "also print the chain of ops, transfers and waits that makes the step as long as it is");
  bind_notes(command, options.detail);
  bind_page(command, options.page);
  command
      .add_option("--steps", options.steps, "steps in a row (default 3; the median is reported)")
      ->check(whole_number(1, 10000));
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail predict plan.json\n"
      "  dovetail predict plan.json ddp.json --perfetto both.json.gz\n"
      "  dovetail predict plan.json --cluster a100x8 --cluster h200x8\n"
      "  dovetail predict plan.json --workload captured-today.json\n"
      "  dovetail predict plan.json --what-if link=0.5x,latency=2x\n"
      "  dovetail predict plan.json --timeline --trace predicted.json");
  bind_action(command, options, action, predict);
}

void bind_evaluate(CLI::App& app, EvaluateOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand(
      "evaluate", "answer JSON lines of standard input, one a line, for programs");
  options.data_dir = data_dir();
  command.footer(
      "Examples:\n"
      "  echo '{\"workload\": \"resnet50\", \"cluster\": \"a100x8\", \"policy\": \"ddp\"}' | "
      "dovetail "
      "evaluate\n"
      "docs/agents.md has the keys of a line and of an answer.");
  bind_action(command, options, action, [](const EvaluateOptions& given, std::ostream& out) {
    std::ios::sync_with_stdio(false);  // else each letter is read by a call
    evaluate(given, std::cin, out);
  });
}

void bind_explain(CLI::App& app, ExplainOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand(
      "explain", "why a plan takes as long as it does, what would help, what is left");
  options.data_dir = data_dir();
  command.add_option("plan", options.plan, "plan file")->required();
  command.add_option("--cluster", options.cluster,
                     "shipped name or file (default: the plan's own, unless that is a file)");
  bind_what_if(command, options.what_if);
  bind_detail(command, options.detail, "every bucket");
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail explain plan.json\n"
      "  dovetail explain plan.json --cluster h200x8 --what-if link=0.5x");
  bind_action(command, options, action, cli::explain);
}

void bind_compare(CLI::App& app, CompareOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand(
      "compare",
      "a predicted trace beside a measured one, what moved between any two, or two machines");
  options.data_dir = data_dir();
  command
      .add_option("first", options.first,
                  "trace of plan, predict or run, or of PyTorch's profiler; or a machine: shipped, "
                  "or a cluster file")
      ->required();
  command
      .add_option("second", options.second,
                  "to lay beside it: of run beside its prediction, any other trace, or another "
                  "machine")
      ->required();
  command.add_option("--perfetto", options.perfetto,
                     "write both as one Perfetto file; compressed as NAME.gz");
  command.add_flag("--timeline", options.timeline, "also print both as text");
  bind_page(command, options.page);
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail compare predicted.json measured.json\n"
      "  dovetail compare predicted.json measured.json --perfetto both.json.gz --csv\n"
      "  dovetail compare measured-before.json measured-after.json\n"
      "  dovetail compare before.pt.trace.json.gz after.pt.trace.json.gz\n"
      "  dovetail compare last-month.json today.json      # clusters of import nccl-tests\n"
      "  dovetail compare a100x8 today.json");
  bind_action(command, options, action, compare);
}

}  // namespace

void bind_simulate_commands(CLI::App& app, SimulateOptions& options, Action& action) {
  bind_explore(app, options.explore, action);
  bind_plan(app, options.plan, action);
  bind_predict(app, options.predict, action);
  bind_evaluate(app, options.evaluate, action);
  bind_explain(app, options.explain, action);
  bind_compare(app, options.compare, action);
}

}  // namespace dovetail::cli
