// `dovetail calibrate` on processors: runs the calibration, turns its figures into a cluster file,
// and prints what was measured and what made it doubtful.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate.h"

#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/needs.h"
#include "calibrate/processors.h"
#include "cli/document.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "exec/machine.h"
#include "models/cluster.h"

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

void print_summary(std::ostream& out, const models::Cluster& cluster, const Calibration& measured,
                   const std::string& path) {
  out << path << ": " << counted(cluster.ranks, "rank") << ", "
      << counted(cluster.kernels.size(), "kernel") << ", " << cluster.notes.at("backend")
      << ", link: " << cluster.notes.at("link") << '\n';
  const auto& points =
      std::get<std::vector<models::CollectivePoint>>(cluster.collectives.front().times);
  TextTable table({"all-reduce", "alone us", "p10", "p90", "in a queue us"});
  for (const models::CollectivePoint& point : points) {
    table.add({to_string(point.bytes), fixed(to_us(point.isolated), 1),
               fixed(to_us(point.p10.value_or(point.isolated)), 1),
               fixed(to_us(point.p90.value_or(point.isolated)), 1),
               fixed(to_us(point.back_to_back.value_or(point.isolated)), 1)});
  }
  table.print(out);
  out << "contention: compute x" << fixed(cluster.contention.compute_slowdown, 3)
      << " beside a collective, collective x" << fixed(cluster.contention.collective_slowdown, 3)
      << " beside compute, " << fixed(to_us(cluster.contention.collective_cpu), 1)
      << " us of processor time per collective\n"
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

}  // namespace

void calibrate(const CalibrateOptions& options, std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  if (!replaces_report(product) && product.output.empty()) {
    throw InputError("calibrate: name the file to write with -o, or --json for standard output");
  }
  require_distinct({document_file(product)}, {workload_file(options.workload, options.data_dir)});
  calibrate::require_policies(options.policies);
  const Duration budget = time_of_flag("--budget", options.budget);
  const std::optional<BytesPerSecond> rate = pace_of(options.job);
  const bool progress = shows_progress();
  std::mutex report;
  run_job(options.job, [&](exec::launch::Session& session, exec::cpu::TransportKind transport) {
    if (session.rank() == Rank{0}) require_writable({document_file(product)});
    calibrate::Rig rig(exec::cpu::exchange_of(session),
                       exec::cpu::ports_of(session, transport, rate));
    calibrate::ProcessorOptions what{
        .facts = {.name = options.name,
                  .workload = options.workload,
                  .backend = "cpu/" + std::string(to_string(transport)),
                  .policies = options.policies},
        .data_dir = options.data_dir,
        .op_steps = options.op_steps,
        .budget = budget};
    if (progress) {
      what.progress = [begin = std::chrono::steady_clock::now()](std::string_view text) {
        const Duration past(std::chrono::steady_clock::now() - begin);
        std::fprintf(stderr, "calibrate: %s so far: %.*s\n", about(past).c_str(),
                     static_cast<int>(text.size()), text.data());
      };
    }
    auto [cluster, measured] = calibrate::measure_processors(rig, what);
    if (session.rank() != Rank{0}) return;
    const std::lock_guard lock(report);
    cluster.origin = "dovetail " DOVETAIL_VERSION " calibrate on " + exec::this_machine().text();
    cluster.date = date_of_today();
    cluster.notes["link"] = link_of(session, options.job);
    if (const std::string objection = link_objection(session, options.job); !objection.empty()) {
      calibrate::object(cluster, objection);
    }
    put_document(
        product, [&made = cluster] { return models::cluster_to_json(made); }, out);
    if (!replaces_report(product)) print_summary(out, cluster, measured, options.output);
  });
}

}  // namespace dovetail::cli
