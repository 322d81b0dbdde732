// Prepares the workload for this machine, and calibrates with it.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/processors.h"

#include <pthread.h>

#include <utility>

#include "calibrate/needs.h"
#include "calibrate/network_shield.h"
#include "calibrate/ops.h"
#include "models/clusters/stand_in.h"

namespace dovetail::calibrate {
namespace {

// The workload as this machine can execute it: timed work replaced by repetitions of the unit kernel.
schedule::Program executable(const Processors& what, const models::UnitKernel& unit) {
  models::Cluster cluster;
  cluster.name = "this machine";
  cluster.unit_kernel = unit;
  return models::stand_in(what.program, cluster).program;
}

}  // namespace

Calibration measure_processors(const Processors& what) {
  Options options = what.options;
  const testbed::ReferenceLoad load(static_cast<std::uint64_t>(what.exchange.rank.value));
  Lab lab = {.exchange = what.exchange,
             .make_backend = what.make_backend,
             .options = options,
             .ranks = what.exchange.world_size,
             .load = &load};
  lab.unit_kernel = measure_unit_kernel(lab, what.unit_kernel);
  const schedule::Program program = executable(what, *lab.unit_kernel);
  Wanted wanted = wanted_for(program, what.policies);
  options.variants = std::move(wanted.variants);
  options.measures_further = wanted.further_collectives;
  lab.shield = measure_shield(lab);
  return calibrate(lab, program);
}

void ThreadClock::watch_this_thread() {
  clockid_t mine = CLOCK_THREAD_CPUTIME_ID;
  if (pthread_getcpuclockid(pthread_self(), &mine) == 0) clock_ = mine;
}

Duration ThreadClock::spent() const {
  timespec time{};
  if (clock_gettime(clock_, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace dovetail::calibrate
