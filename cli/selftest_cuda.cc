// Opening the module, asking it, and starting ranks that share a GPU.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest_cuda.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "cli/job.h"
#include "exec/cpu/job.h"
#include "exec/cuda/loader.h"

namespace dovetail::cli {
namespace {

using exec::selftest::Outcome;
using exec::selftest::Row;
using exec::selftest::row_of;
using exec::selftest::Verdict;

constexpr std::array<const char*, 4> kDeviceChecks = {"devices", "links", "timing",
                                                      "NCCL collectives"};

// The module, or why there is none.
struct Loaded {
  const exec::cuda::Module* module = nullptr;
  std::string objection;
  bool built = false;
};

Loaded try_load(const SelftestOptions& options) {
  const exec::cuda::ModulePlace place = exec::cuda::module_place(options.cuda_module);
  Loaded loaded{.module = nullptr, .objection = {}, .built = place.built};
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
Outcome module_outcome(const Loaded& loaded) {
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

}  // namespace

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
  const Loaded loaded = try_load(options);
  if (loaded.module == nullptr) return all_skipped(loaded.objection);
  const exec::cuda::Facts facts = loaded.module->facts();
  try {
    exec::cuda::require_device(facts);
  } catch (const DeviceError& error) {
    return all_skipped(error.what());
  }
  return all_skipped("this module brings no device checks");
}

int cuda_selftest_as_rank(const SelftestOptions&, std::ostream&) {
  throw DeviceError("this module brings no device checks");
}

}  // namespace dovetail::cli
