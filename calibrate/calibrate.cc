// Makes the measurements one after another, notes when each began, and puts their figures into a cluster.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"

#include "base/error.h"
#include "calibrate/contention.h"
#include "calibrate/host.h"
#include "calibrate/needs.h"
#include "calibrate/ops.h"
#include "calibrate/quality.h"
#include "calibrate/transfers.h"
#include "exec/machine.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

namespace dovetail::calibrate {
namespace {

void require_shapes(const schedule::Program& workload) {
  for (const schedule::Op& op : workload.ops) {
    if (!std::holds_alternative<schedule::TimedWork>(op.work)) continue;
    throw InputError(
        "op " + op.name + " of " + workload.name +
        " is known by its time only; a machine is calibrated with a workload that has shapes");
  }
}

// From the 10th to the 90th percentile, as a share of the median.
double spread_of_step(const Quantiles& step) {
  const auto middle = static_cast<double>(step.median.count());
  return middle == 0 ? 0 : static_cast<double>((step.p90 - step.p10).count()) / middle;
}

// The steps of a calibration as they begin, and what the machine does meanwhile.
class Log {
 public:
  explicit Log(const Lab& lab) : lab_(lab) {}

  void begin(std::string what) {
    const Options& options = lab_.options;
    if (options.progress && lab_.exchange.rank == Rank{0}) options.progress(what);
    began_.emplace_back(std::move(what), exec::now_ns());
  }

  // Once all is measured.
  [[nodiscard]] exec::Conditions conditions() const {
    if (lab_.options.backend == models::BackendKind::Cpu) {
      return conditions_of_job(lab_.exchange, before_.cpu, exec::read_cpu_times());
    }
    const Duration took(exec::now_ns() - began_.front().second);
    return exec::conditions_of_device_job(lab_.exchange, before_, took);
  }

  void note_disturbances(Calibration& result) const {
    if (lab_.load == nullptr) return;
    const std::int64_t end_ns = exec::now_ns();
    for (std::size_t i = 0; i < began_.size(); ++i) {
      const bool is_last = i + 1 == began_.size();
      DisturbedStep step = {.name = began_[i].first, .taken = 0};
      for (const traces::CoreRecord& of_rank :
           records(began_[i].second, is_last ? end_ns : began_[i + 1].second)) {
        step.taken = std::max(step.taken, traces::share_taken(of_rank));
      }
      result.steps.push_back(std::move(step));
    }
    result.disturbances = records(began_.front().second, end_ns);
  }

 private:
  [[nodiscard]] traces::Disturbances records(std::int64_t begin_ns, std::int64_t end_ns) const {
    return testbed::share_records(lab_.exchange, lab_.load->record(begin_ns, end_ns));
  }

  const Lab& lab_;
  exec::DeviceJobStart before_;
  std::vector<std::pair<std::string, std::int64_t>> began_;
};

// The line of each kind of pass, from those of the rewritten forms of the workload.
std::map<models::PassKind, models::PassModel> passes_of(const Lab& lab,
                                                        const models::Cluster& cluster, Log& log) {
  const models::KernelTable kernels(cluster.kernels, cluster.unit_kernel);
  std::vector<models::PassSample> samples;
  for (const schedule::ScheduledProgram& variant : lab.options.variants) {
    log.begin("ops of " + variant.policy);
    for (const models::PassSample& sample : measure_passes(lab, variant, kernels)) {
      samples.push_back(sample);
    }
  }
  return models::fit_passes(samples);
}

void measure_transfers(const Lab& lab, const schedule::Program& workload, Log& log,
                       models::Cluster& cluster) {
  const std::vector<std::int64_t> hosts = hosts_of(lab.exchange);
  log.begin("collectives by size");
  cluster.collectives.push_back(
      {.collective = schedule::Collective::AllReduce,
       .ranks = workload.world_size,
       .nodes = static_cast<std::int64_t>(std::set(hosts.begin(), hosts.end()).size()),
       .times = measure_collectives(lab)});
  if (!lab.options.measures_further || lab.exchange.world_size != workload.world_size) return;
  log.begin("smaller groups, halves of all-reduces, sends");
  for (models::CollectiveSeries& series : measure_further(lab, workload, hosts)) {
    cluster.collectives.push_back(std::move(series));
  }
}

}  // namespace

Calibration calibrate(const Lab& lab, const schedule::Program& workload) {
  require_shapes(workload);
  const schedule::Program program = as_one_stage(workload);
  Calibration result;
  models::Cluster& cluster = result.cluster;
  cluster.ranks = program.world_size;
  cluster.backend = lab.options.backend;
  cluster.unit_kernel = lab.unit_kernel;
  cluster.network_shield = lab.shield;
  Log log(lab);
  log.begin("ops of the step");
  const StepTimes step = measure_step(lab, program);
  cluster.skew = skew_of(step.kernels, step.slowest.median);
  const bool by_name = cluster.backend == models::BackendKind::Cpu;
  cluster.kernels = by_name ? step.kernels : by_work(step.kernels);
  cluster.passes = passes_of(lab, cluster, log);
  log.begin("copies");
  cluster.copy = measure_copies(lab);
  const models::PassModel scales = measure_scales(lab);
  if (scales != models::PassModel{}) cluster.passes[models::PassKind::Scale] = scales;
  log.begin("host and launches");
  cluster.host = measure_host(lab, program, step.kernels);
  measure_transfers(lab, program, log, cluster);
  log.begin("contention");
  const MeasuredContention beside = measure_contention(lab, program);
  cluster.contention = beside.contention;
  Evidence evidence = {.conditions = log.conditions(),
                       .contention_ops = beside.ops,
                       .contention_collectives = beside.collectives};
  log.note_disturbances(result);
  evidence.conditions.spread = spread_of_step(step.slowest);
  if (lab.options.transfer_cpu) {
    evidence.figures["comm_thread_cpu_share"] = beside.transfer_cpu_share;
  }
  for (const traces::CoreRecord& record : result.disturbances) {
    double& taken =
        evidence.conditions.core_taken.emplace(evidence.conditions.core_taken.value_or(0));
    taken = std::max(taken, traces::share_taken(record));
    double& work = evidence.figures["known_work_us"];
    work = std::max(work, to_us(record.quickest));
  }
  cluster.quality = quality_of(cluster, evidence);
  return result;
}

}  // namespace dovetail::calibrate
