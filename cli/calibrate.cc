// `dovetail calibrate` on processors: runs the calibration, turns its figures into a cluster file,
// and prints what was measured and what made it doubtful.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/needs.h"
#include "calibrate/processors.h"
#include "calibrate/quality.h"
#include "cli/document.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/job_flag.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/show_facts.h"
#include "cli/text.h"
#include "exec/cpu/backend.h"
#include "exec/cpu/kernels.h"
#include "exec/machine.h"
#include "models/clusters/cluster.h"
#include "models/networks/program.h"
#include "models/workloads/workload.h"

namespace dovetail::cli {
namespace {

using calibrate::Calibration;

// Which steps of the calibration were disturbed, and by how much.
void print_disturbances(std::ostream& out, const Calibration& measured) {
  constexpr double kDisturbed = 0.01;
  for (std::size_t rank = 0; rank < measured.disturbances.size(); ++rank) {
    const traces::CoreRecord& record = measured.disturbances[rank];
    out << "yardstick, rank " << rank << ", core " << record.core << ": "
        << fixed(100 * traces::share_taken(record), 1) << " % of the core taken\n";
  }
  std::size_t disturbed = 0;
  std::string names;
  for (const auto& step : measured.steps) {
    if (step.taken < kDisturbed) continue;
    ++disturbed;
    names += (names.empty() ? ": " : ", ") + step.name + " " + fixed(100 * step.taken, 1) + " %";
  }
  out << disturbed << " of " << measured.steps.size() << " steps of the calibration disturbed"
      << names << '\n';
}

std::string rate_of(double ns_per_byte) {
  return ns_per_byte > 0 ? fixed(1 / ns_per_byte, 2) + " GB/s" : "free";
}

void print_summary(std::ostream& out, const Calibration& measured, const std::string& path) {
  const models::Cluster& cluster = measured.cluster;
  out << path << ": " << counted(cluster.ranks, "rank") << ", "
      << counted(cluster.kernels.size(), "kernel") << ", " << cluster.notes.at("backend")
      << ", link: " << cluster.notes.at("link") << '\n';
  const auto& points =
      std::get<std::vector<models::CollectivePoint>>(cluster.collectives.front().times);
  using models::CollectivePoint;
  const auto time = [](const char* title, std::optional<Duration> CollectivePoint::*known) {
    return Field<CollectivePoint>{
        {"", title, Unit::Microseconds, {1}},
        [known](const CollectivePoint& row) { return (row.*known).value_or(row.isolated); }};
  };
  print_table(out, table_of<CollectivePoint>(
                       {{{"", "all-reduce"}, &CollectivePoint::bytes},
                        {{"", "alone us", Unit::Microseconds, {1}}, &CollectivePoint::isolated},
                        time("p10", &CollectivePoint::p10),
                        time("p90", &CollectivePoint::p90),
                        time("in a queue us", &CollectivePoint::back_to_back)},
                       points));
  out << "contention: compute x" << fixed(cluster.contention.compute_slowdown, 3)
      << " beside a collective, collective x" << fixed(cluster.contention.collective_slowdown, 3)
      << " beside compute, " << fixed(to_us(cluster.contention.collective_cpu), 1)
      << " us of processor time per collective" << by_class(cluster.contention) << '\n'
      << "host: launch " << fixed(to_us(cluster.host.collective), 1) << " us, wake-up "
      << fixed(to_us(cluster.host.event), 1) << " us; copies " << rate_of(cluster.copy->ns_per_byte)
      << "; unit kernel " << fixed(to_us(cluster.unit_kernel->time), 2) << " us\n"
      << "slowest rank of a step: " << fixed(100 * cluster.skew, 1) << " % above the medians\n"
      << "passes, by their traffic:";
  for (const auto& [kind, pass] : cluster.passes) {
    out << ' ' << to_string(kind) << ' ' << rate_of(pass.ns_per_byte);
  }
  out << '\n';
  print_disturbances(out, measured);
  out << (cluster.quality->valid ? "calibration valid" : "calibration NOT valid");
  for (const std::string& reason : cluster.quality->why) out << "; " << reason;
  out << '\n';
}

// Threads that communicate say so to the clock.
exec::cpu::Ports watched(exec::cpu::Ports ports, calibrate::ThreadClock& clock) {
  ports.prepare_comm_thread = [&clock, prepare = std::move(ports.prepare_comm_thread)] {
    clock.watch_this_thread();
    if (prepare) prepare();
  };
  return ports;
}

}  // namespace

void describe(models::Cluster& cluster, const CalibrateOptions& options, std::string backend) {
  cluster.name = options.name;
  cluster.origin = "dovetail " DOVETAIL_VERSION " calibrate on " + exec::this_machine().text();
  cluster.date = date_of_today();
  cluster.notes["workload"] = options.workload.empty() ? options.training_job : options.workload;
  cluster.notes["backend"] = std::move(backend);
  if (!options.policies.empty()) {
    cluster.notes["measured for"] = calibrate::in_one_line(options.policies);
  }
}

void require_possible(const CalibrateOptions& options) {
  const DocumentOptions product = product_of(options.output, options.json);
  if (!replaces_report(product) && product.output.empty()) {
    throw InputError("calibrate: name the file to write with -o, or --json for standard output");
  }
  if (options.workload.empty() == options.training_job.empty()) {
    throw InputError("calibrate: --workload or --job: give one of them");
  }
  require_distinct({document_file(product)}, {workload_file(options.workload, options.data_dir)});
  calibrate::require_policies(options.policies);
}

schedule::Program program_to_measure(const CalibrateOptions& options, std::int64_t ranks) {
  if (options.training_job.empty()) {
    return models::load_workload(options.workload, ranks, options.data_dir).program;
  }
  const jobs::Job job = job_of(options.training_job);
  if (job.layout.world() != ranks) {
    throw InputError("calibrate: --job " + options.training_job + " has " +
                     counted(job.layout.world(), "rank") + ", but " + std::to_string(ranks) +
                     " measure; start as many with --ranks");
  }
  return jobs::program_of(job);
}

std::function<void(std::string_view)> progress_of_calibration() {
  if (!shows_progress()) return {};
  return [begin = std::chrono::steady_clock::now()](std::string_view text) {
    const Duration past(std::chrono::steady_clock::now() - begin);
    std::fprintf(stderr, "calibrate: %s so far: %.*s\n", about(past).c_str(),
                 static_cast<int>(text.size()), text.data());
  };
}

void calibrate(const CalibrateOptions& options, std::ostream& out) {
  require_possible(options);
  const DocumentOptions product = product_of(options.output, options.json);
  const Duration budget = time_of_flag("--budget", options.budget);
  const std::optional<BytesPerSecond> rate = pace_of(options.job);
  std::mutex report;
  run_job(options.job, [&](exec::launch::Session& session, exec::cpu::TransportKind transport) {
    if (session.rank() == Rank{0}) require_writable({document_file(product)});
    const exec::Exchange exchange = exec::cpu::exchange_of(session);
    calibrate::ThreadClock clock;
    const exec::cpu::Ports ports = watched(exec::cpu::ports_of(session, transport, rate), clock);
    const calibrate::MakeBackend make = [&ports](const schedule::ScheduledProgram& plan) {
      return std::make_unique<exec::cpu::CpuBackend>(plan, ports);
    };
    const schedule::Program program = program_to_measure(options, session.size());
    calibrate::Processors what{.exchange = exchange,
                               .make_backend = make,
                               .unit_kernel = exec::cpu::kUnitGemm,
                               .program = program,
                               .policies = options.policies};
    what.options.steps = options.op_steps;
    what.options.budget = budget;
    what.options.further_budget = budget;
    what.options.only_halves = transport == exec::cpu::TransportKind::Gloo;
    what.options.transfer_cpu = [&clock] { return clock.spent(); };
    what.options.progress = progress_of_calibration();
    auto measured = calibrate::measure_processors(what);
    if (session.rank() != Rank{0}) return;
    const std::lock_guard lock(report);
    models::Cluster& cluster = measured.cluster;
    describe(cluster, options, "cpu/" + std::string(to_string(transport)));
    cluster.notes["link"] = link_of(session, options.job);
    if (const std::string objection = link_objection(session, options.job); !objection.empty()) {
      calibrate::object(cluster, objection);
    }
    put_document(
        product, [&made = cluster] { return models::cluster_to_json(made); }, out);
    if (!replaces_report(product)) print_summary(out, measured, options.output);
  });
}

}  // namespace dovetail::cli
