// Binds the flags of the commands that run on this machine: run, calibrate, selftest.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/machine_flags.h"

#include "cli/common_flags.h"
#include "cli/cuda_job.h"
#include "cli/environment.h"

namespace dovetail::cli {
namespace {

constexpr const char* kCudaGroup = "GPUs (--backend cuda)";

void bind_job(CLI::App& command, JobOptions& job) {
  command.add_option("--ranks", job.ranks, "start so many local ranks (default: the launcher's)")
      ->check(whole_number(1, 64));
  command.add_option(
      "--netns", job.network_namespace,
      "prefix of the ranks' network namespaces (scripts/campaigns/testbed.sh makes dovetailN)");
  command.add_option("--collectives", job.collectives, "ring (default) or gloo");
  command.add_option("--rate", job.rate,
                     "the ring paces itself, e.g. 1gbit: a link that needs no root");
  command.add_option("--store", job.store, "where rank 0 listens");
}

void bind_backend(CLI::App& command, BackendChoice& choice) {
  choice.cuda_module = cuda_module();
  command.add_option("--backend", choice.backend, "cpu (default) or cuda");
  command.add_option("--device", choice.device,
                     "number of the GPU, or auto (default): by the rank's number on its host");
  command.add_option("--stand-in", choice.stand_in,
                     "one rank alone: send-to-self replaces collectives");
  command.add_option("--f32-math", choice.f32_math, "full (default) or tf32");
  command.add_option("--issue", choice.issue,
                     "eager (default), or graph, which warms up twice at least");
  command.add_option("--buffers", choice.buffers,
                     "plain (default), or nccl: memory that NCCL may use in place (NVLS)");
  command
      .add_option("--cluster-size", choice.cluster_size,
                  "NCCL's thread blocks per cluster (default: NCCL decides)")
      ->check(whole_number(1, 8));
  command.add_option("--deadline", choice.deadline,
                     "of any wait for the GPU or another rank (default 60s)");
  command.add_flag_callback(
      "--graph", [&choice] { choice.issue = "graph"; }, "the same as --issue graph");
}

void bind_run(CLI::App& app, RunCommandOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("run", "execute plans for real and check every value");
  command.add_option("plans", options.plans, "plan files; several run interleaved");
  command.add_option("--plan", options.plans_by_flag, "the same")->allow_extra_args(false);
  command.add_option("--trace", options.traces, "measured trace to write, one per plan")
      ->allow_extra_args(false);
  command.add_option("--scales", options.backend.scales,
                     "kernel (default), or collective: folded where no value changes");
  command.add_option("--trace-detail", options.backend.trace_detail,
                     "commands (default), or full: also every kernel (CUPTI)");
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
  command.add_flag("--yes", options.yes, "also where it takes hours");
  command.add_option("--cluster", options.cluster,
                     "the calibrated file that the plans were made for");
  options.data_dir = data_dir();
  command.add_flag(
      "--two-events", options.two_events,
      "on GPUs: also time each plan by two events per step instead of two per command");
  command.add_flag("--exposed", options.exposed,
                   "also run each plan without communication; exposed time by three definitions");
  bind_page(command, options.page);
  bind_document(command, options.document);
  command.footer(
      "Examples:\n"
      "  dovetail run plan.json --ranks 2 --rate 1gbit\n"
      "  dovetail run plan.json ddp.json --ranks 2 --time 60s --trace plan.trace --trace "
      "ddp.trace\n"
      "  mpirun -np 8 dovetail run plan.json --backend cuda --graph");
  bind_action(command, options, action, cli::run);
}

void run_calibrate(const CalibrateBinding& options, std::ostream& out) {
  if (options.cuda.backend.backend == "cpu") {
    static_cast<void>(open_cuda(options.cuda.backend));  // refuses options of the other backend
    refuse_cuda_only(options.cuda);
    return calibrate(options.cpu, out);
  }
  CalibrateCudaOptions cuda = options.cuda;
  static_cast<CalibrateOptions&>(cuda) = options.cpu;
  calibrate_cuda(cuda, out);
}

void bind_calibrate(CLI::App& app, CalibrateBinding& options, Action& action) {
  CLI::App& command = *app.add_subcommand("calibrate", "measure this machine into a cluster file");
  options.cpu.data_dir = data_dir();
  command.add_option("--workload", options.cpu.workload, "whose ops to measure");
  command.add_option("--job", options.cpu.training_job,
                     "or those of this job: MODEL:KEY=VALUE,... as plan --job takes it");
  bind_product(command, {options.cpu.output, options.cpu.json, "cluster file", ""});
  command.add_option("--name", options.cpu.name, "of the cluster (default here)");
  bind_job(command, options.cpu.job);
  command.add_option("--op-steps", options.cpu.op_steps, "steps to measure ops over (default 10)")
      ->check(whole_number(1, 1000));
  command.add_option("--budget", options.cpu.budget, "time for collectives by size (default 15s)");
  command
      .add_option("--policy", options.cpu.policies,
                  "measure what plans of this policy need, and no more")
      ->allow_extra_args(false);
  bind_backend(command, options.cuda.backend);
  command.add_option("--max-ctas", options.cuda.max_ctas, "thread blocks per collective")
      ->check(whole_number(1, 64));
  command.add_option("--world", options.cuda.world, "ranks that the stand-in plays (default 2)")
      ->check(whole_number(2, 4096))
      ->group(kCudaGroup);
  command.footer(
      "Examples:\n"
      "  dovetail calibrate --workload mlp-1000mbit --ranks 2 --rate 1gbit -o here.json\n"
      "  dovetail calibrate --job config.json:tp=2,pp=2,dp=2,dtype=f32 --ranks 8 -o here.json\n"
      "  mpirun -np 8 dovetail calibrate --backend cuda --workload resnet50 -o here.json\n"
      "  dovetail explore --workload resnet50 --cluster here.json");
  bind_action(command, options, action, run_calibrate);
}

void bind_selftest(CLI::App& app, SelftestOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand("selftest", "what this build and this machine can do");
  command.add_option("--backend", options.backend, "cpu, cuda or all (default)");
  bind_document(command, options.document);
  command.add_option("--as-rank", options.as_rank)
      ->group("");  // hidden: started by the tool itself
  command.add_option("--largest", options.largest, "of the all-reduces (default 256MiB)");
  options.cuda_module = cuda_module();
  options.data_dir = data_dir();
  command.footer(
      "Examples:\n"
      "  dovetail selftest\n"
      "  dovetail selftest --backend cuda --json");
  bind_action(command, options, action, cli::selftest);
}

}  // namespace

void bind_machine_commands(CLI::App& app, MachineOptions& options, Action& action) {
  bind_run(app, options.run, action);
  bind_calibrate(app, options.calibrate, action);
  bind_selftest(app, options.selftest, action);
}

}  // namespace dovetail::cli
