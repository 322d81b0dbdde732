// `dovetail run`: lowers and verifies the plans, starts the ranks, executes all plans in turns,
// and reports on rank 0.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "calibrate/noise/confidence.h"
#include "calibrate/noise/reference_load.h"
#include "calibrate/noise/step_figures.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/result_pages.h"
#include "cli/run_lanes.h"
#include "cli/run_machine.h"
#include "cli/run_report.h"
#include "cli/run_watch.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "exec/clock.h"
#include "exec/compute_only.h"
#include "exec/cpu/memory.h"
#include "exec/cuda/stand_in.h"
#include "exec/device/layout.h"
#include "exec/legal.h"
#include "exec/machine.h"
#include "exec/measure.h"
#include "schedule/lower/lower.h"
#include "schedule/plan_json.h"
#include "traces/metrics.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

std::vector<NamedFile> named(const std::string& flag, const std::vector<std::string>& paths) {
  std::vector<NamedFile> files;
  for (const std::string& path : paths) files.push_back({flag, path});
  return files;
}

std::vector<NamedFile> outputs_of(const RunCommandOptions& options) {
  std::vector<NamedFile> outputs = named("--trace", options.traces);
  outputs.push_back(document_file(options.document));
  outputs.push_back(page_output(options.page));
  return outputs;
}

std::vector<Loaded> load_plans(const RunCommandOptions& options) {
  std::vector<std::string> plans = options.plans_by_flag;
  plans.insert(plans.end(), options.plans.begin(), options.plans.end());
  if (plans.empty()) throw InputError("run: PLAN is missing: name one or several plan files");
  if (options.traces.size() > plans.size()) throw InputError("run: more --trace than plans");
  require_distinct(outputs_of(options), named("--plan", plans));
  std::vector<Loaded> loaded;
  for (const std::string& path : plans) {
    Loaded one{path, schedule::read_plan(path), {}};
    one.program = schedule::lower(one.plan.program, one.plan.schedule).program;
    exec::require_legal(one.plan, one.program, path);
    loaded.push_back(std::move(one));
  }
  return loaded;
}

// The plan without communication. Ops that communicate (of pipelines, of tensor parallelism) cannot be
// taken out: others need what they bring.
schedule::ScheduledProgram alone(const Loaded& plan) {
  for (const schedule::Op& op : plan.program.program.ops) {
    if (!std::holds_alternative<schedule::CollectiveWork>(op.work)) continue;
    throw InputError("run: --exposed: " + plan.path + ": op " + op.name +
                     " communicates, and other ops need its data");
  }
  return exec::without_communication(plan.program);
}

// What the ranks of this machine hold of the plan at least: tensors and buckets that travel, as the cpu backend lays them out.
Bytes held_by_ranks(const Loaded& plan, const JobOptions& job) {
  const std::int64_t ranks = job.ranks ? plan.program.program.world_size : 1;
  Bytes held;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const exec::Layout layout(plan.program, Rank{static_cast<std::int32_t>(rank)},
                              exec::Scope::Communicated);
    held += Bytes(layout.bytes());
  }
  return held;
}

// The most of any of them. Throws InputError where a plan needs more memory than this machine has left; the kernel would end
// the ranks.
Bytes held_at_least(const std::vector<Loaded>& loaded, const JobOptions& job) {
  const Bytes free(static_cast<std::int64_t>(exec::cpu::memory_available()));
  Bytes most;
  for (const Loaded& one : loaded) {
    const Bytes held = held_by_ranks(one, job);
    most = std::max(most, held);
    if (held <= free) continue;
    throw InputError(one.path + ": its ranks here hold at least " + to_string(held) +
                     " of gradients and buckets, this machine has " + to_string(free) +
                     " of memory left: run a smaller model, or spread the ranks over machines");
  }
  return most;
}

// Where a rank runs.
struct RankSeat {
  exec::launch::Session& session;
  exec::cpu::TransportKind transport;
  std::optional<BytesPerSecond> rate;  // of --rate
};

std::string backend_name(exec::cpu::TransportKind transport) {
  return "cpu/" + std::string(to_string(transport));
}

// What a reader of this run's figures must know first.
void describe_device(const CudaJob& cuda, std::int32_t device, Result& result) {
  result.device = notes_of(cuda, device).at("device");
  result.device_objections = objections_to(cuda, device);
  if (cuda.options.stand_in == exec::cuda::StandIn::SendToSelf) result.stand_in = "send-to-self";
}

std::int32_t warmup_of(const RunCommandOptions& options, const std::optional<CudaJob>& cuda) {
  const bool captures = cuda && cuda->options.issue == exec::cuda::Issue::Graph;
  return captures ? std::max(options.warmup, exec::cuda::kGraphWarmup) : options.warmup;
}

// All that one rank's part needs.
struct Work {
  const RunCommandOptions& options;
  const std::vector<Loaded>& loaded;
  const testbed::InterleavedProbes& probes;  // nothing, or
  const std::optional<RunMachine>& machine;  // with --calibrate-between
  const std::optional<CudaJob>& cuda;
};

void predict_figures(const Work& work, std::span<const testbed::RoundCosts> rounds,
                     Result& result) {
  std::vector<testbed::RemeasuredCosts> again;
  for (const testbed::RoundCosts& round : rounds) again.push_back(round.costs);
  result.again = testbed::measured_again(work.machine->costs.front(), again);
  for (PlanFound& plan : result.plans) plan.figures.emplace();
  for (std::size_t i = 0; i < work.probes.ops.size(); ++i) {
    for (const std::size_t plan : work.probes.ops[i].plans) {
      result.plans[plan].figures =
          testbed::predict_over_rounds(work.loaded[plan].program, work.machine->costs[plan], rounds,
                                       plan, i, work.machine->shield);
    }
  }
}

// What the reference load says about the run, and what follows from it for the predictions.
void note_disturbances(const Work& work, const exec::Exchange& exchange,
                       std::span<const exec::Turn> turns,
                       const testbed::ReferenceLoad& reference_load, Result& result) {
  const std::int64_t begin_ns = result.measured.rounds.front().begin_ns;
  const traces::CoreRecord whole =
      reference_load.record(begin_ns, result.measured.rounds.back().end_ns);
  result.disturbances = testbed::share_records(exchange, whole);
  for (std::size_t i = 0; i < work.loaded.size(); ++i) {
    const std::vector<bool> disturbed =
        testbed::disturbed_steps(exchange, result.measured.own[i].timings, whole, begin_ns);
    result.plans[i].disturbed = std::count(disturbed.begin(), disturbed.end(), true);
  }
  result.reference_load_share =
      static_cast<double>(reference_load.cost().count()) / static_cast<double>(result.took.count());
  if (!work.machine) return;
  const testbed::Ran ran{.probes = work.probes,
                         .turns = turns,
                         .measured = result.measured,
                         .plans = work.loaded.size(),
                         .shield = work.machine->shield};
  const std::vector<testbed::RoundCosts> rounds =
      testbed::costs_of_rounds(exchange, ran, reference_load);
  if (exchange.rank == Rank{0}) predict_figures(work, rounds, result);
}

// Rounds until both figures of all plans are known, or the time is over. A round that would not end in
// time is not begun.
exec::GoOn go_on_for(const Work& work, bool tells) {
  if (work.options.time.empty()) return {};
  const Duration time = time_of_flag("--time", work.options.time);
  const std::size_t plans = work.loaded.size();
  const std::int64_t begin_ns = exec::now_ns();
  return [=, rounds = std::int64_t{0}](const std::vector<std::vector<Duration>>& steps) mutable {
    ++rounds;
    std::vector<testbed::Known> known;
    for (std::size_t i = 0; i < plans; ++i) known.push_back(testbed::known_to(steps[i]));
    const testbed::Known worst = testbed::worst_of(known);
    const Duration past(exec::now_ns() - begin_ns);
    if (tells) {
      std::fprintf(stderr,
                   "run: round %lld, %.0f s: quiet steps known to %.1f %%, typical to %.1f %%\n",
                   static_cast<long long>(rounds), static_cast<double>(past.count()) / 1e9,
                   100 * worst.quiet, 100 * worst.typical);
    }
    return !worst.is_enough() && past + past / rounds <= time;
  };
}

exec::RunOptions run_options_of(const Work& work, const RunLanes& lanes) {
  const RunCommandOptions& options = work.options;
  exec::RunOptions run = {
      .warmup = warmup_of(options, work.cuda), .steps = options.steps, .rounds = options.rounds};
  if (!work.machine) return run;
  const auto others = std::ranges::count_if(lanes, [](const RunLane& lane) {
    return lane.role == LaneRole::Alone || lane.role == LaneRole::TwoEvents;
  });
  run.turns =
      testbed::turns_of(work.probes, work.loaded.size(), static_cast<std::size_t>(others), run);
  return run;
}

// One rank's part. Every rank returns the same checks; only rank 0's result has traces.
Result run_rank(const Work& work, const RankSeat& seat) {
  exec::launch::Session& session = seat.session;
  const RunCommandOptions& options = work.options;
  const std::optional<CudaJob>& cuda = work.cuda;
  for (const Loaded& one : work.loaded) {
    if (one.program.program.world_size == session.size()) continue;
    throw InputError(one.path + ": made for " + counted(one.program.program.world_size, "rank") +
                     ", started with " + std::to_string(session.size()));
  }
  const exec::Exchange exchange = exec::cpu::exchange_of(session);
  exec::cuda::BackendOptions on_gpu;
  if (cuda) on_gpu = options_for(*cuda, session);
  const RunLanes run_lanes = lanes_of(work.loaded, options.two_events, work.probes.programs());
  const Backends backends =
      cuda ? cuda_backends(run_lanes, *cuda, on_gpu)
           : cpu_backends(run_lanes, exec::cpu::ports_of(session, seat.transport, seat.rate));
  std::vector<exec::Lane> lanes;
  for (std::size_t i = 0; i < run_lanes.size(); ++i) {
    lanes.push_back({.plan = run_lanes[i].program, .backend = backends[i].get()});
  }
  traces::Provenance provenance{.origin = traces::Origin::Measured,
                                .machine = exec::this_machine().text(),
                                .policy = {},
                                .workload = {},
                                .backend = cuda ? "cuda" : backend_name(seat.transport),
                                .notes = {}};
  provenance.notes["date"] = time_of_now();
  provenance.notes["version"] = DOVETAIL_VERSION;
  provenance.notes["link"] = cuda ? link_of(*cuda) : link_of(session, options.job);
  const exec::DeviceJobStart before;
  std::optional<testbed::ReferenceLoad> reference_load;
  if (!cuda) reference_load.emplace(static_cast<std::uint64_t>(session.rank().value));
  const bool tells = session.rank() == Rank{0} && ::isatty(STDERR_FILENO) == 1;
  Result result;
  result.plans.resize(work.loaded.size());
  const exec::RunOptions steps = run_options_of(work, run_lanes);
  result.measured = exec::measure(exchange, lanes, steps, provenance,
                                  watched(go_on_for(work, tells), options, session.rank()));
  result.took =
      Duration(result.measured.rounds.back().end_ns - result.measured.rounds.front().begin_ns);
  result.conditions = cuda ? exec::conditions_of_device_job(exchange, before, result.took)
                           : exec::conditions_of_job(exchange, before.cpu, exec::read_cpu_times());
  if (reference_load) note_disturbances(work, exchange, steps.turns, *reference_load, result);
  if (cuda) {
    note_cuda(*cuda, backends, on_gpu.device, result);
    describe_device(*cuda, on_gpu.device, result);
  } else {
    result.link_objection = link_objection(session, options.job);
  }
  split_off_companions(run_lanes, result);
  return result;
}

// Spread, validity, and notes in the traces.
void find_validity(Result& result) {
  double widest = 0;
  for (const traces::CoreRecord& record : result.disturbances) {
    result.conditions.core_taken =
        std::max(result.conditions.core_taken.value_or(0), traces::share_taken(record));
  }
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    const std::vector<Duration> times = traces::step_times(result.measured.traces[i]);
    const traces::Spread spread = traces::spread(times);
    result.plans[i].spread = spread;
    result.plans[i].known = testbed::known_to(times);
    widest = std::max(widest, static_cast<double>((spread.p90 - spread.p10).count()) /
                                  static_cast<double>(spread.median.count()));
  }
  result.conditions.spread = widest;
  result.verdict = exec::validity_of(result.conditions);
  std::vector<std::string> objections = result.device_objections;
  if (!result.link_objection.empty()) objections.push_back(result.link_objection);
  for (const PlanFound& plan : result.plans) {
    if (100 * result.measured.clock_error <= plan.spread.median) continue;
    objections.push_back("the clocks of the hosts are only aligned to " +
                         dovetail::to_string(result.measured.clock_error));
    break;
  }
  for (std::string& objection : objections) {
    result.verdict.valid = false;
    result.verdict.reasons.push_back(std::move(objection));
  }
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    const std::optional<sim::Figures>& figures = result.plans[i].figures;
    if (!figures) continue;
    auto& notes = result.measured.traces[i].provenance.notes;
    notes[testbed::kPredictedQuiet] = fixed(to_us(figures->quiet), 3);
    notes[testbed::kPredictedTypical] = fixed(to_us(figures->typical), 3);
  }
  for (traces::Trace& trace : result.measured.traces) {
    trace.provenance.notes["valid"] = result.verdict.valid ? "yes" : "no";
    for (const std::string& reason : result.verdict.reasons) {
      std::string& note = trace.provenance.notes["not valid because"];
      note += (note.empty() ? "" : "; ") + reason;
    }
  }
}

void require_detail(const RunCommandOptions& options) {
  if (options.backend.trace_detail != "full") return;
  if (options.traces.empty()) {
    throw InputError("run: --trace-detail full needs --trace, the file to write it to");
  }
  // One process has one set of records, and equal commands of its ranks could not be told apart.
  if (options.job.ranks.value_or(1) > 1) {
    throw InputError(
        "run: --trace-detail full needs a process per rank: start them with mpirun, not --ranks");
  }
}

}  // namespace

int run(const RunCommandOptions& options, std::ostream& out) {
  std::vector<Loaded> loaded = load_plans(options);
  const std::optional<BytesPerSecond> rate = pace_of(options.job);
  if (options.backend.backend == "cuda") refuse_pace_with_cuda(options.job);
  const std::optional<CudaJob> cuda = open_cuda(options.backend);
  require_detail(options);
  if (options.two_events && !cuda) {
    throw InputError("run: --two-events: the cpu backend reads a clock and has no events");
  }
  JobOptions job = options.job;
  if (cuda) job.cores = exec::launch::Cores::Any;
  if (cuda && cuda->options.stand_in == exec::cuda::StandIn::SendToSelf) {
    for (Loaded& one : loaded) one.program = exec::cuda::as_one_rank(one.program);
    if (!job.ranks) job.ranks = 1;
  }
  for (Loaded& one : loaded) {
    if (options.exposed) one.alone = alone(one);
  }
  std::optional<RunMachine> machine;
  testbed::InterleavedProbes probes;
  if (options.calibrate_between) {
    if (cuda) throw InputError("run: --calibrate-between: not on GPUs yet");
    machine = machine_of(options, loaded);
    std::vector<const schedule::ScheduledProgram*> plans;
    for (const Loaded& one : loaded) plans.push_back(&one.program);
    probes = testbed::interleaved_probes(plans, machine->costs.front());
  }
  const Work work = {
      .options = options, .loaded = loaded, .probes = probes, .machine = machine, .cuda = cuda};
  const std::vector<NamedFile> outputs = outputs_of(options);
  if (!cuda) {
    const Bytes held = held_at_least(loaded, job);
    announce(options, expected_time(options, loaded, std::thread::hardware_concurrency()), held);
  }
  const AsksBeforeEnding keep_what_is_measured(Asks::BetweenItems);
  bool wrong = false;
  std::mutex report;  // ranks may be threads of this process
  run_job(job, [&](exec::launch::Session& session, exec::cpu::TransportKind transport) {
    if (session.rank() == Rank{0}) require_writable(outputs);
    Result result = run_rank(work, {session, transport, rate});
    const std::lock_guard lock(report);
    for (const exec::CheckResult& check : result.measured.checks) wrong = wrong || check.wrong > 0;
    if (session.rank() != Rank{0}) return;
    find_validity(result);
    if (!cuda) {
      result.confidence =
          machine ? confidence_in_figures(result) : confidence_in_plans(options, loaded, result);
      find_made_elsewhere(options, loaded, result);
    }
    std::vector<NewFile> files;
    for (std::size_t i = 0; i < options.traces.size(); ++i) {
      files.push_back({options.traces[i], with_tool(traces::to_json(result.measured.traces[i]))});
    }
    std::string json = to_json(result, loaded);
    if (options.page.wanted()) {
      files.push_back(page_file(options.page, report_of_run(options.page, result, loaded, json)));
    }
    write_files(files);
    put_document(options.document,
                 {.json = [&] { return json; }, .table = [&] { return run_table(result, loaded); }},
                 out);
    if (!replaces_report(options.document)) print_report(out, result, loaded);
  });
  if (wrong) return 3;
  return AsksBeforeEnding::exit_code();
}

}  // namespace dovetail::cli
