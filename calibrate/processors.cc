// Prepares the workload for this machine, measures it, and makes a cluster file of the measurements.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/processors.h"

#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/cpu/network_shield.h"
#include "calibrate/needs.h"
#include "exec/cpu/kernels.h"
#include "lower/lower.h"
#include "models/stand_in.h"
#include "models/workload.h"
#include "policies/policies.h"

namespace dovetail::calibrate {
namespace {

// The workload as this machine can execute it: timed work replaced by repetitions of the unit kernel.
schedule::Program executable(const ProcessorOptions& options, const models::UnitKernel& unit,
                             std::int64_t ranks) {
  models::Workload workload =
      models::load_workload(options.facts.workload, ranks, options.data_dir);
  models::Cluster cluster;
  cluster.name = options.facts.name;
  cluster.unit_kernel = unit;
  return models::stand_in(workload.program, cluster).program;
}

}  // namespace

MeasuredProcessors measure_processors(Rig& rig, const ProcessorOptions& options) {
  const models::UnitKernel unit{.dtype = schedule::DType::F32,
                                .gemm = exec::cpu::kUnitGemm,
                                .time = measure_unit_kernel(rig).median};
  const schedule::Program program = executable(options, unit, rig.exchange().world_size);
  const schedule::ScheduledProgram plan =
      schedule::lower(program,
                      schedule::make_schedule(program, schedule::parse_policy("no-overlap")))
          .program;
  Wanted wanted = wanted_for(program, options.facts.policies);
  Options what;
  what.op_steps = options.op_steps;
  what.variants = std::move(wanted.variants);
  what.measures_halves = wanted.further_collectives;
  what.collectives.budget = options.budget;
  what.progress = options.progress;
  const Duration shield = measure_shield(rig);
  rig.know_shield(shield);
  Calibration measured = calibrate(rig, plan, what);
  if (measured.collectives.size() < 2) {
    throw InputError("calibrate: in --budget " + to_string(options.budget) + " only " +
                     counted(measured.collectives.size(), "size") +
                     " of all-reduce could be measured; two are needed");
  }
  models::Cluster cluster = cluster_of(
      options.facts,
      {.program = program, .unit = unit, .measured = measured, .network_shield = shield});
  return {.cluster = std::move(cluster), .measured = std::move(measured)};
}

}  // namespace dovetail::calibrate
