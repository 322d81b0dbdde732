// The self-test of a whole job of GPUs, as one rank of it sees it: its own device, links of its
// host, and collectives of all ranks, whose rows rank 0 gathers.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest_job.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "calibrate/bandwidth.h"
#include "calibrate/transfers.h"
#include "cli/flags.h"
#include "cli/job.h"
#include "cli/selftest_law_cuda.h"
#include "exec/cpu/job.h"
#include "exec/cuda/loader.h"
#include "exec/cuda/tools.h"
#include "exec/launch/world.h"
#include "exec/machine.h"

namespace dovetail::cli {
namespace {

using exec::selftest::Outcome;
using exec::selftest::Row;
using exec::selftest::row_of;

// What a rank found, and the module where it has a GPU.
struct RankFound {
  std::vector<Row> rows;
  const exec::cuda::Module* module = nullptr;
  std::int32_t device = 0;
};

Outcome find_device(const SelftestOptions& options, std::int32_t local_rank, RankFound& found) {
  const exec::cuda::Module& module =
      exec::cuda::load_module(exec::cuda::module_place(options.cuda_module));
  const exec::cuda::Facts facts = module.facts();
  exec::cuda::require_device(facts);
  const auto devices = static_cast<std::int32_t>(facts.devices.size());
  // Where the launcher gives each rank a GPU of its own, that is the only one it sees.
  found.device = devices == 1 ? 0 : local_rank;
  if (found.device >= devices) {
    return exec::selftest::fail("needs GPU " + std::to_string(found.device) + ", but sees " +
                                std::to_string(devices));
  }
  found.module = &module;
  const exec::cuda::DeviceFacts& mine = facts.devices[static_cast<std::size_t>(found.device)];
  return exec::selftest::pass("GPU " + std::to_string(found.device) + " of " +
                              std::to_string(devices) + ", " + mine.name + " at " + mine.pci +
                              ", NCCL " + facts.nccl);
}

RankFound look(const SelftestOptions& options, const exec::launch::Session& session) {
  RankFound found;
  std::ostringstream rank;
  rank << "rank " << session.rank();
  const std::string prefix = rank.str() + ", ";
  const std::string host = exec::this_machine().host;
  const std::int32_t local = session.world().local_rank;
  const Row device = row_of({"cuda", rank.str() + " on " + host},
                            [&] { return find_device(options, local, found); });
  found.rows.push_back(device);
  if (found.module == nullptr) return found;
  append(found.rows, found.module->tools->brief_rows(found.device));
  for (std::size_t i = 1; i < found.rows.size(); ++i) found.rows[i].name.insert(0, prefix);
  if (local != 0) return found;
  for (Row& row : found.module->tools->link_rows()) {
    row.name.insert(0, host + ", ");
    found.rows.push_back(std::move(row));
  }
  return found;
}

std::int64_t hosts_of(const exec::Exchange& exchange) {
  const auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(exchange.clock_id));
  std::set<std::int64_t> hosts;
  for (const auto& of_rank : share(exchange, std::array{mine})) hosts.insert(of_rank.front());
  return static_cast<std::int64_t>(hosts.size());
}

// On every rank: the first one that has no GPU; the world's size where all have one.
std::int64_t first_without(const exec::Exchange& exchange, bool has_gpu) {
  const std::int64_t mine = has_gpu ? exchange.world_size : exchange.rank.value;
  std::int64_t first = exchange.world_size;
  for (const auto& of_rank : share(exchange, std::array{mine})) {
    first = std::min(first, of_rank.front());
  }
  return first;
}

}  // namespace

bool is_under_launcher() {
  return exec::launch::world_from(exec::launch::process_environment()).size > 1;
}

std::vector<Row> job_rows(const SelftestOptions& options, exec::launch::Session& session,
                          const exec::cuda::Module& module, std::int32_t device) {
  exec::cuda::BackendOptions on_gpu;
  on_gpu.device = device;
  on_gpu.exchange = exec::cpu::exchange_of(session);
  on_gpu.deadline = options.deadline;
  on_gpu.peer_failure = [&session] { return session.failure().message(); };
  on_gpu.on_failure = [&session](const std::string& message) { session.abort(message); };
  on_gpu.kept = module.keep_communicators(on_gpu);
  std::vector<Row> rows = cuda_law_rows(module, on_gpu);
  std::deque<schedule::ScheduledProgram> plans;  // each must outlive its backend
  const calibrate::MakeBackend make = [&](const schedule::ScheduledProgram& plan) {
    plans.push_back(plan);
    return module.make_backend(plans.back(), on_gpu);
  };
  const Bytes largest = size_of_flag("--largest", options.largest);
  const calibrate::Options what = {.steps = 5,
                                   .smallest = std::min(mib(1), largest),
                                   .largest = largest,
                                   .growth = 4,
                                   .transfer_steps = 5};
  const auto times = calibrate::measure_collectives({.exchange = on_gpu.exchange,
                                                     .make_backend = make,
                                                     .options = what,
                                                     .ranks = session.size()});
  const calibrate::GpuSystem system = {
      .gpu = module.facts().devices.at(static_cast<std::size_t>(device)).name,
      .ranks = session.size(),
      .hosts = hosts_of(on_gpu.exchange)};
  append(rows, calibrate::bandwidth_rows(
                   times, system, calibrate::shipped_like(system, options.data_dir + "/clusters")));
  return rows;
}

int cuda_selftest_of_job(const SelftestOptions& options, std::ostream& out) {
  bool failed = false;
  JobOptions job;
  job.cores = exec::launch::Cores::Any;
  run_job(job, [&](exec::launch::Session& session, exec::cpu::TransportKind) {
    const exec::Exchange exchange = exec::cpu::exchange_of(session);
    const RankFound found = look(options, session);
    std::vector<Row> rows;
    for (const std::string& of_rank : exchange.gather(rows_to_json(found.rows))) {
      append(rows, rows_from_json(of_rank));
    }
    const std::int64_t without = first_without(exchange, found.module != nullptr);
    if (without == exchange.world_size) {
      append(rows, job_rows(options, session, *found.module, found.device));
    } else {
      rows.push_back(row_of({"cuda", "all-reduce"}, [&] {
        return exec::selftest::skipped("rank " + std::to_string(without) + " has no GPU");
      }));
    }
    const bool mine = session.rank() == Rank{0} && exec::selftest::count(rows).failed > 0;
    failed = rank_0_says(exchange, mine ? 1 : 0) != 0;
    if (session.rank() != Rank{0}) return;
    put_rows(options.document, rows, out);
  });
  return failed ? 3 : 0;
}

}  // namespace dovetail::cli
