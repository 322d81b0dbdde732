// Executing plans on all ranks and reporting on rank 0.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/exposed.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "exec/calibrate/compute.h"
#include "exec/cuda/stand_in.h"
#include "exec/legal.h"
#include "exec/machine.h"
#include "exec/measure.h"
#include "schedule/lower.h"
#include "schedule/plan_json.h"
#include "traces/metrics.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

// A plan, ready to be executed.
struct Loaded {
  std::string path;
  schedule::Plan plan;
  schedule::ScheduledProgram program;
  std::optional<schedule::ScheduledProgram> alone = std::nullopt;  // without communication
};

// What rank 0 has to tell.
struct Result {
  exec::Measured measured;
  exec::Conditions conditions;
  exec::Verdict verdict;
  std::string link_objection;
  std::vector<traces::Spread> spreads;
  std::vector<Exposed> exposed;  // one per plan, if asked for
};

std::vector<NamedFile> named(const std::string& flag, const std::vector<std::string>& paths) {
  std::vector<NamedFile> files;
  for (const std::string& path : paths) files.push_back({flag, path});
  return files;
}

std::vector<Loaded> load_plans(const RunCommandOptions& options) {
  if (options.plans.empty()) throw InputError("run: name a plan with --plan");
  if (options.traces.size() > options.plans.size()) {
    throw InputError("run: more --trace than --plan");
  }
  require_distinct(named("--trace", options.traces), named("--plan", options.plans));
  std::vector<Loaded> loaded;
  for (const std::string& path : options.plans) {
    Loaded one{path, schedule::read_plan(path), {}};
    one.program = schedule::lower(one.plan.program, one.plan.schedule).program;
    exec::require_legal(one.program, path);
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
  return exec::calibrate::without_communication(plan.program);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
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

using Backends = std::vector<std::unique_ptr<exec::Backend>>;

using Programs = std::vector<const schedule::ScheduledProgram*>;

// The plans, then, where they are wanted, their steps without communication.
Programs programs_of(const std::vector<Loaded>& loaded) {
  Programs programs;
  for (const Loaded& one : loaded) programs.push_back(&one.program);
  for (const Loaded& one : loaded) {
    if (one.alone) programs.push_back(&*one.alone);
  }
  return programs;
}

// One backend per program on processors.
Backends cpu_backends(const Programs& programs, const exec::cpu::Ports& ports) {
  Backends backends;
  for (const schedule::ScheduledProgram* program : programs) {
    backends.push_back(std::make_unique<exec::cpu::CpuBackend>(*program, ports));
  }
  return backends;
}

// The same on this rank's GPU.
Backends cuda_backends(const Programs& programs, const CudaJob& cuda,
                       const exec::cuda::BackendOptions& options) {
  Backends backends;
  for (const schedule::ScheduledProgram* program : programs) {
    backends.push_back(cuda.module->make_backend(*program, options));
  }
  return backends;
}

// Takes the steps without communication out of what was measured and compares the plans with them.
void split_off_alone(std::size_t plans, Result& result) {
  std::vector<traces::Trace>& all = result.measured.traces;
  for (std::size_t i = plans; i < all.size(); ++i) {
    result.exposed.push_back(exposed_of(all[i - plans], all[i]));
  }
  if (all.size() > plans) all.resize(plans);
  result.measured.checks.resize(plans);  // what was not reduced is not what the check expects
}

// What only the backends know once they have run, into the traces of rank 0.
void note_cuda(const CudaJob& cuda, const Backends& backends, std::int32_t device, Result& result) {
  for (std::size_t i = 0; i < result.measured.traces.size(); ++i) {
    auto& notes = result.measured.traces[i].provenance.notes;
    notes.merge(notes_of(cuda, device));
    notes.merge(cuda.module->notes(*backends[i]));
  }
}

// With a graph the first step runs eagerly and the second is captured: neither is timed.
std::int32_t warmup_of(const RunCommandOptions& options, const std::optional<CudaJob>& cuda) {
  const bool captures = cuda && cuda->options.issue == exec::cuda::Issue::Graph;
  return captures ? std::max(options.warmup, 2) : options.warmup;
}

// One rank's part. Every rank returns the same checks; only rank 0's result has traces.
Result run_rank(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                const std::optional<CudaJob>& cuda, const RankSeat& seat) {
  exec::launch::Session& session = seat.session;
  for (const Loaded& one : loaded) {
    if (one.program.program.world_size == session.size()) continue;
    throw InputError(one.path + ": made for " + counted(one.program.program.world_size, "rank") +
                     ", started with " + std::to_string(session.size()));
  }
  const exec::Exchange exchange = exec::cpu::exchange_of(session);
  exec::cuda::BackendOptions on_gpu;
  if (cuda) on_gpu = options_for(*cuda, session);
  const Programs programs = programs_of(loaded);
  const Backends backends =
      cuda ? cuda_backends(programs, *cuda, on_gpu)
           : cpu_backends(programs, exec::cpu::ports_of(session, seat.transport, seat.rate));
  std::vector<exec::Lane> lanes;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    lanes.push_back({programs[i], backends[i].get()});
  }
  traces::Provenance provenance{.origin = traces::Origin::Measured,
                                .machine = exec::this_machine().text(),
                                .policy = {},
                                .workload = {},
                                .backend = cuda ? "cuda" : backend_name(seat.transport),
                                .notes = {}};
  provenance.notes["date"] = today();
  provenance.notes["version"] = DOVETAIL_VERSION;
  provenance.notes["link"] = cuda ? "NCCL" : link_of(session, options.job);
  const exec::CpuTimes before = exec::read_cpu_times();
  Result result;
  result.measured = exec::measure(
      exchange, lanes,
      {.warmup = warmup_of(options, cuda), .steps = options.steps, .rounds = options.rounds},
      provenance);
  result.conditions = exec::conditions_of_job(exchange, before, exec::read_cpu_times());
  if (cuda) {
    note_cuda(*cuda, backends, on_gpu.device, result);
  } else {
    result.link_objection = link_objection(session, options.job);
  }
  split_off_alone(loaded.size(), result);
  return result;
}

// Spread, validity, and notes in the traces.
void judge(Result& result) {
  double widest = 0;
  for (const traces::Trace& trace : result.measured.traces) {
    const std::vector<Duration> times = traces::step_times(trace);
    const traces::Spread spread = traces::spread(times);
    result.spreads.push_back(spread);
    widest = std::max(widest, static_cast<double>((spread.p90 - spread.p10).count()) /
                                  static_cast<double>(spread.median.count()));
  }
  result.conditions.spread = widest;
  result.verdict = exec::judge(result.conditions);
  if (!result.link_objection.empty()) {
    result.verdict.valid = false;
    result.verdict.reasons.push_back(result.link_objection);
  }
  for (traces::Trace& trace : result.measured.traces) {
    trace.provenance.notes["valid"] = result.verdict.valid ? "yes" : "no";
    for (const std::string& reason : result.verdict.reasons) {
      std::string& note = trace.provenance.notes["not valid because"];
      note += (note.empty() ? "" : "; ") + reason;
    }
  }
}

double ms(Duration time) { return to_us(time) / 1e3; }

// Plans that were predicted for another link than this run's, so that their errors are no one's.
std::vector<std::string> other_links(const Result& result, const std::vector<Loaded>& loaded) {
  const std::string& here = result.measured.traces.front().provenance.notes.at("link");
  std::vector<std::string> notes;
  for (const Loaded& one : loaded) {
    const std::string& link = one.plan.summary.link;
    if (link.empty() || link == here) continue;
    notes.push_back(one.path + " was planned for another link: " + link);
  }
  return notes;
}

void print_exposed(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  out << "exposed communication, measured, by three definitions (cli/exposed.h)\n";
  TextTable table({"plan", "step ms", "without ms", "stalls ms", "difference ms", "uncovered ms"});
  for (std::size_t i = 0; i < result.exposed.size(); ++i) {
    const Exposed& exposed = result.exposed[i];
    table.add({loaded[i].plan.schedule.policy, fixed(ms(result.spreads[i].median), 2),
               fixed(ms(exposed.alone), 2), fixed(ms(exposed.stalls), 2),
               fixed(ms(exposed.difference), 2), fixed(ms(exposed.uncovered), 2)});
  }
  table.print(out);
}

void print_report(std::ostream& out, const Result& result, const std::vector<Loaded>& loaded) {
  const traces::Provenance& provenance = result.measured.traces.front().provenance;
  out << "dovetail " << DOVETAIL_VERSION << "; measured: " << provenance.backend << ", "
      << counted(result.measured.traces.front().world_size, "rank")
      << ", link: " << provenance.notes.at("link") << "; " << provenance.machine << '\n';
  TextTable table({"plan", "buckets", "predicted ms", "measured ms", "p10", "p90", "error"});
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const traces::Spread& spread = result.spreads[i];
    const auto& predicted = loaded[i].plan.summary.predicted;
    const double measured = ms(spread.median);
    table.add({loaded[i].plan.schedule.policy,
               std::to_string(loaded[i].plan.schedule.buckets.size()),
               predicted ? fixed(ms(predicted->step), 2) : "-", fixed(measured, 2),
               fixed(ms(spread.p10), 2), fixed(ms(spread.p90), 2),
               predicted ? fixed((ms(predicted->step) / measured - 1) * 100, 1, "+") + " %" : "-"});
  }
  table.print(out);
  print_notes(out, other_links(result, loaded));
  if (!result.exposed.empty()) print_exposed(out, result, loaded);
  exec::CheckResult sum;
  for (const exec::CheckResult& check : result.measured.checks) exec::add(check, sum);
  out << "checked " << sum.checked << " gradient elements, " << sum.wrong << " wrong"
      << (sum.wrong > 0 ? ": " + sum.first_wrong : "") << '\n';
  out << (result.verdict.valid ? "measurement valid" : "measurement NOT valid");
  for (const std::string& reason : result.verdict.reasons) out << "; " << reason;
  out << '\n';
}

std::string to_json(const Result& result, const std::vector<Loaded>& loaded) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const traces::Spread& spread = result.spreads[i];
    const auto& predicted = loaded[i].plan.summary.predicted;
    rows.push_back(
        {{"plan", loaded[i].path},
         {"policy", loaded[i].plan.schedule.policy},
         {"buckets", loaded[i].plan.schedule.buckets.size()},
         {"predicted_step_us", predicted ? ordered_json(to_us(predicted->step)) : nullptr},
         {"measured_step_us", to_us(spread.median)},
         {"p10_us", to_us(spread.p10)},
         {"p90_us", to_us(spread.p90)},
         {"min_us", to_us(spread.min)},
         {"steps", result.measured.traces[i].steps},
         {"checked_elements", result.measured.checks[i].checked},
         {"wrong_elements", result.measured.checks[i].wrong}});
    if (result.exposed.empty()) continue;
    const Exposed& exposed = result.exposed[i];
    rows.back()["step_without_communication_us"] = to_us(exposed.alone);
    rows.back()["exposed_us"] = {{"stalls", to_us(exposed.stalls)},
                                 {"difference", to_us(exposed.difference)},
                                 {"uncovered", to_us(exposed.uncovered)}};
  }
  const traces::Provenance& provenance = result.measured.traces.front().provenance;
  const ordered_json report = {{"schema", "dovetail.run/1"},
                               {"kind", "run"},
                               {"origin", "measured"},
                               {"machine", provenance.machine},
                               {"backend", provenance.backend},
                               {"link", provenance.notes.at("link")},
                               {"date", provenance.notes.at("date")},
                               {"valid", result.verdict.valid},
                               {"why_not_valid", result.verdict.reasons},
                               {"notes", other_links(result, loaded)},
                               {"outside_cpu", result.conditions.outside_cpu},
                               {"steal", result.conditions.steal},
                               {"rows", rows}};
  return report.dump(1) + "\n";
}

}  // namespace

int run(const RunCommandOptions& options, std::ostream& out) {
  std::vector<Loaded> loaded = load_plans(options);
  const std::optional<BytesPerSecond> rate = pace_of(options.job);
  if (options.backend.backend == "cuda") refuse_pace_with_cuda(options.job);
  const std::optional<CudaJob> cuda = open_cuda(options.backend);
  if (options.backend.trace_detail == "full" && options.traces.empty()) {
    throw InputError("run: --trace-detail full needs --trace, the file to write it to");
  }
  // One process has one set of records, and equal commands of its ranks could not be told apart.
  if (options.backend.trace_detail == "full" && options.job.ranks.value_or(1) > 1) {
    throw InputError(
        "run: --trace-detail full needs a process per rank: start them with mpirun, not --ranks");
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
  const std::vector<NamedFile> outputs = named("--trace", options.traces);
  bool wrong = false;
  std::mutex report;  // ranks may be threads of this process
  run_job(job, [&](exec::launch::Session& session, exec::cpu::TransportKind transport) {
    if (session.rank() == Rank{0}) require_writable(outputs);
    Result result = run_rank(options, loaded, cuda, {session, transport, rate});
    const std::lock_guard lock(report);
    for (const exec::CheckResult& check : result.measured.checks) wrong = wrong || check.wrong > 0;
    if (session.rank() != Rank{0}) return;
    judge(result);
    std::vector<NewFile> files;
    for (std::size_t i = 0; i < options.traces.size(); ++i) {
      files.push_back({options.traces[i], traces::to_json(result.measured.traces[i])});
    }
    write_files(files);
    if (options.json) {
      out << to_json(result, loaded);
    } else {
      print_report(out, result, loaded);
    }
  });
  return wrong ? 3 : 0;
}

}  // namespace dovetail::cli
