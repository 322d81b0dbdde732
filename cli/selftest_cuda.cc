// Opening the module, asking it, and starting ranks that share a GPU.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest_cuda.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "cli/job.h"
#include "cli/selftest_job.h"
#include "cli/selftest_law_cuda.h"
#include "exec/cpu/job.h"
#include "exec/cuda/loader.h"
#include "exec/cuda/tools.h"

namespace dovetail::cli {
namespace {

using exec::selftest::Outcome;
using exec::selftest::Row;
using exec::selftest::row_of;
using exec::selftest::Verdict;

constexpr std::array<const char*, 4> kDeviceChecks = {"devices", "links", "timing",
                                                      "NCCL collectives"};

constexpr std::int32_t kMostNcclRanks = 7;  // known values stay exact (exec/selftest/known.h)
constexpr const char* kOwnGpu = "nccl";
constexpr const char* kSharedGpu = "nccl-one-gpu";

// The module, or why there is none.
struct LoadedModule {
  const exec::cuda::Module* module = nullptr;
  std::string objection;
  bool built = false;
};

LoadedModule try_load(const SelftestOptions& options) {
  const exec::cuda::ModulePlace place = exec::cuda::module_place(options.cuda_module);
  LoadedModule loaded{.module = nullptr, .objection = {}, .built = place.built};
  try {
    loaded.module = &exec::cuda::load_module(place);
  } catch (const DeviceError& error) {
    loaded.objection = error.what();
  }
  return loaded;
}

bool driver_is_loaded() {
  std::error_code none;
  return std::filesystem::exists("/proc/driver/nvidia/version", none) ||
         std::filesystem::exists("/dev/nvidiactl", none);
}

// A module that was built and cannot be opened is broken on a machine with a driver; elsewhere the
// machine lacks what it needs.
Outcome module_outcome(const LoadedModule& loaded) {
  if (loaded.module == nullptr) {
    return loaded.built && driver_is_loaded() ? exec::selftest::fail(loaded.objection)
                                              : exec::selftest::skipped(loaded.objection);
  }
  const exec::cuda::Facts facts = loaded.module->facts();
  return exec::selftest::pass("CUDA " + facts.toolkit + ", sm " + facts.architectures + ", NCCL " +
                              facts.nccl_built + " (loaded: " + facts.nccl + "), driver " +
                              (facts.driver.empty() ? "none" : "for CUDA " + facts.driver));
}

// A path where no module can be must end in the loader's own sentence.
Outcome loader_outcome() {
  constexpr std::string_view kBegins = "the cuda module cannot be loaded: ";
  try {
    exec::cuda::load_module(exec::cuda::module_place("/nowhere/libdovetail_cuda.so"));
  } catch (const DeviceError& error) {
    const std::string words = error.what();
    return words.starts_with(kBegins) ? exec::selftest::pass("\"" + words + "\"")
                                      : exec::selftest::fail(words);
  }
  return exec::selftest::fail("a module that does not exist was opened");
}

std::vector<Row> all_skipped(const std::string& why) {
  std::vector<Row> rows;
  for (const char* check : kDeviceChecks) {
    rows.push_back(row_of({"cuda", check}, [&] { return exec::selftest::skipped(why); }));
  }
  return rows;
}

// NCCL among processes: one GPU each, or all of them on the first one. The latter shows that sums
// are right; its times would be those of the GPU's time slices.
enum class Placement { OneGpuEach, OneGpuForAll };
std::vector<Row> nccl_rows_of_processes(const SelftestOptions& options, std::int32_t ranks,
                                        Placement placement) {
  const bool shared = placement == Placement::OneGpuForAll;
  const std::string where = shared ? " on one GPU" : " on a GPU each";
  exec::launch::ProcessesOptions processes{
      .command = {"/proc/self/exe", "selftest", "--as-rank", shared ? kSharedGpu : kOwnGpu},
      .ranks = ranks,
      .deadline = options.deadline};
  if (!options.cuda_module.empty()) {
    processes.environment["DOVETAIL_CUDA_MODULE"] = options.cuda_module;
  }
  if (shared) processes.of_rank = one_gpu_variables;
  std::vector<Row> rows =
      rows_of_processes({"cuda", "NCCL, " + std::to_string(ranks) + " processes"}, processes);
  for (Row& row : rows) row.name += where;
  return rows;
}

}  // namespace

std::string why_not_shared(const exec::cuda::Facts& facts) {
  if (facts.devices.empty() || facts.devices.front().is_shareable) return "";
  return "the GPU is in exclusive mode: one process at a time (nvidia-smi -c DEFAULT allows more)";
}

exec::launch::Variables one_gpu_variables(std::int32_t rank) {
  return {{"NCCL_HOSTID", "dovetail-rank-" + std::to_string(rank)},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_NET", "Socket"},
          {"NCCL_NET_PLUGIN", "none"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_MNNVL_ENABLE", "0"},
          {"NCCL_RAS_ENABLE", "0"},
          {"NCCL_PROTO", "Simple"}};
}

std::vector<Row> cuda_build_rows(const SelftestOptions& options) {
  return {row_of({"build", "CUDA module"}, [&] { return module_outcome(try_load(options)); }),
          row_of({"build", "CUDA loader"}, loader_outcome)};
}

std::vector<Row> cuda_rows(const SelftestOptions& options) {
  const LoadedModule loaded = try_load(options);
  if (loaded.module == nullptr) return all_skipped(loaded.objection);
  const exec::cuda::Facts facts = loaded.module->facts();
  try {
    exec::cuda::require_device(facts);
  } catch (const DeviceError& error) {
    return all_skipped(error.what());
  }
  std::vector<Row> rows = loaded.module->tools->device_rows();
  append(rows, loaded.module->tools->nccl_rows(exec::alone(), {.device = facts.devices[0].index}));
  exec::cuda::BackendOptions first;
  first.device = facts.devices[0].index;
  first.exchange = exec::alone();
  append(rows, cuda_law_rows(*loaded.module, first));
  const auto devices = static_cast<std::int32_t>(facts.devices.size());
  if (devices > 1)
    append(rows, nccl_rows_of_processes(options, std::min(devices, kMostNcclRanks),
                                        Placement::OneGpuEach));
  const std::string alone = why_not_shared(facts);
  if (!alone.empty()) {
    rows.push_back(
        row_of({"cuda", "NCCL on one GPU"}, [&] { return exec::selftest::skipped(alone); }));
    return rows;
  }
  for (const std::int32_t ranks : {2, 4}) {
    append(rows, nccl_rows_of_processes(options, ranks, Placement::OneGpuForAll));
  }
  return rows;
}

int cuda_selftest_as_rank(const SelftestOptions& options, std::ostream& out) {
  const exec::cuda::Module& module_of_rank =
      exec::cuda::load_module(exec::cuda::module_place(options.cuda_module));
  const exec::cuda::Facts facts = module_of_rank.facts();
  exec::cuda::require_device(facts);
  std::vector<Row> rows;
  JobOptions job;
  job.cores = exec::launch::Cores::Any;
  run_job(job, [&](exec::launch::Session& session, exec::cpu::TransportKind) {
    const auto local = static_cast<std::size_t>(session.world().local_rank);
    const bool shared = options.as_rank == kSharedGpu;
    const std::int32_t device = facts.devices[shared ? 0 : local % facts.devices.size()].index;
    rows = module_of_rank.tools->nccl_rows(exec::cpu::exchange_of(session), {.device = device});
    if (!shared) append(rows, job_rows(options, session, module_of_rank, device));
    if (session.rank() == Rank{0}) out << rows_to_json(rows) << std::flush;
  });
  return exec::selftest::count(rows).failed > 0 ? 3 : 0;
}

}  // namespace dovetail::cli
