// Binds the flags of `show` and of the other commands that only look.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/show_flags.h"

#include "cli/common_flags.h"
#include "cli/environment.h"

namespace dovetail::cli {
namespace {

void bind_show(CLI::App& app, ShowOptions& options, Action& action) {
  CLI::App& command =
      *app.add_subcommand("show", "print a machine, a model, a policy, a file, or lists of them");
  options.data_dir = data_dir();
  command
      .add_option(
          "what", options.what,
          "workloads, clusters, policies, schemas, the name of one of these, a file that dovetail "
          "reads, or program, schedule or commands of a plan or workload")
      ->required();
  command.add_option("--plan", options.plan, "plan file, for program, schedule and commands");
  command.add_option("--workload", options.workload, "instead of a plan");
  command.add_option("--policy", options.policy, "with --workload (default torch-ddp)");
  command.add_option("--world", options.world, "ranks of a zoo model")
      ->check(whole_number(1, kLargestNumber));
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail show clusters\n"
      "  dovetail show a100x8\n"
      "  dovetail show resnet50:batch=256,dtype=bf16\n"
      "  dovetail show torch-ddp\n"
      "  dovetail show plan.json\n"
      "  dovetail show commands --plan plan.json\n"
      "  dovetail show dovetail.plan/1 --json");
  bind_action(command, options, action, show);
}

void bind_reshard(CLI::App& app, ReshardOptions& options, Action& action) {
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
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail reshard --shape 8x8 --mesh 4 --from \"S(0)\" --to \"S(1)\"\n"
      "  dovetail reshard --shape 1024x1024 --mesh 2x2 --from \"S(0),R\" --to \"R,S(1)\" --steps");
  bind_action(command, options, action, reshard);
}

void bind_validate(CLI::App& app, ValidateOptions& options, Action& action) {
  CLI::App& command =
      *app.add_subcommand("validate", "predictions beside what others measured and published");
  options.folder = data_dir() + "/../answers/validation/data";
  command
      .add_option(
          "against", options.against,
          "public: the tables that come with dovetail; gpu: whole steps measured on one GPU; "
          "collectives: logs of nccl-tests; job: the log of your own run")
      ->required();
  command.add_option(
      "logs", options.collectives.files,
      "of collectives: logs over several numbers of ranks, on several nodes; of job: a "
      "log of Megatron-LM with its arguments, or a job as --job of plan takes it");
  command.add_option("--cluster", options.cluster,
                     "of job: the machine that it ran on, a shipped name or a file");
  command.add_option(
      "--log", options.log,
      "of job: what its run printed (Megatron-LM or torchtitan), where the job is not a log");
  command
      .add_option("--fit-ranks", options.collectives.fit_ranks,
                  "of collectives: tables over at most so many ranks tell the others (default 64)")
      ->check(whole_number(2, kLargestNumber));
  command
      .add_option("--node-ranks", options.collectives.node_ranks,
                  "of collectives: ranks on each node (default: as the logs say)")
      ->check(whole_number(1, kLargestNumber));
  command.add_option(
      "--gpu", options.gpu,
      "of gpu and job: another book (dovetail.gpu/1) than that of the GPU that was measured");
  command.add_option("--without", options.without,
                     "of gpu: steps as if nobody had measured this kind of kernel (softmax, "
                     "updated, host, ...), or each in turn");
  command.add_option("--tables", options.folder,
                     "folder of the tables (default: those that come with dovetail)");
  options.data_dir = data_dir();
  command.add_flag("--with-steps", options.steps,
                   "also price the steps of their jobs, on clusters from peak rates: minutes");
  command.add_option("--rows", options.rows,
                     "with --with-steps: CSV to write, a line for each step");
  bind_notes(command, options.detail);
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail validate public\n"
      "  dovetail validate public --with-steps --rows steps.csv\n"
      "  dovetail validate public --json\n"
      "  dovetail validate gpu\n"
      "  dovetail validate job train.log --cluster h100x64\n"
      "  dovetail validate job train.toml:world=8 --log out.log --cluster h100x8\n"
      "  dovetail validate collectives all_reduce_*.log --fit-ranks 64");
  bind_action(command, options, action, validate);
}

}  // namespace

void bind_show_commands(CLI::App& app, LookOptions& options, Action& action) {
  bind_show(app, options.show, action);
  bind_reshard(app, options.reshard, action);
  bind_validate(app, options.validate, action);
}

}  // namespace dovetail::cli
