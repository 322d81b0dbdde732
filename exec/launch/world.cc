// Reads each launcher's variables in turn; the first one found decides.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/world.h"

#include "base/error.h"
#include "base/random.h"

#include <array>
#include <charconv>
#include <cstdlib>

namespace dovetail::exec::launch {
namespace {

// The variables of one launcher. `hosts` says over how many hosts the job is spread.
struct Dialect {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* hosts;
  std::array<const char*, 2> job;
};

// torchrun comes first: under `srun torchrun` both sets exist, and only torchrun's counts
// processes. The job's variables must be equal on all hosts.
constexpr std::array<Dialect, 4> kDialects{{
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "GROUP_WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_MCA_orte_num_nodes",
     {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"}},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "", {"PMI_JOBID", ""}},
    {"srun",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
}};

std::optional<std::int32_t> integer(const Environment& environment, const char* name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  std::int32_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < 0) {
    throw InputError(std::string(name) + "=" + *text + ": expected an integer >= 0");
  }
  return value;
}

std::uint16_t parse_port(std::string_view text, std::string_view whole) {
  std::uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || stop != text.data() + text.size() || port == 0 ||
      port > 65536 - kStorePorts) {
    throw InputError(std::string(whole) + ": expected HOST:PORT with a port from 1 to " +
                     std::to_string(65536 - kStorePorts));
  }
  return port;
}

// Ports of the range that no system hands out by itself (Linux's ephemeral range begins at 32768).
std::uint16_t derived_port(std::string_view job) {
  constexpr std::uint64_t kFirst = 20000, kCount = 12000;
  std::uint64_t hash = 0;
  for (const char letter : job) hash = splitmix64(hash ^ static_cast<unsigned char>(letter));
  return static_cast<std::uint16_t>(kFirst + hash % kCount);
}

const Dialect* find_dialect(std::string_view launcher) {
  for (const Dialect& dialect : kDialects) {
    if (launcher == dialect.launcher) return &dialect;
  }
  return nullptr;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

World world_from(const Environment& environment) {
  for (const Dialect& dialect : kDialects) {
    const std::optional<std::int32_t> rank = integer(environment, dialect.rank);
    const std::optional<std::int32_t> size = integer(environment, dialect.size);
    if (!rank || !size) continue;
    if (*rank >= *size) {
      throw InputError(std::string(dialect.rank) + "=" + std::to_string(*rank) +
                       ": expected less than " + dialect.size + "=" + std::to_string(*size));
    }
    World world{.rank = Rank{*rank},
                .size = *size,
                .local_rank = integer(environment, dialect.local_rank).value_or(*rank),
                .launcher = dialect.launcher,
                .job = dialect.launcher};
    for (const char* name : dialect.job) world.job += ":" + environment(name).value_or("");
    return world;
  }
  return {};
}

StoreAddress store_address(const World& world, const Environment& environment,
                           std::string_view option) {
  if (!option.empty()) return parse_store_address(option);
  if (const auto text = environment("DOVETAIL_STORE")) return parse_store_address(*text);
  const auto host = environment("MASTER_ADDR");
  const auto port = environment("MASTER_PORT");
  if (host && port) {
    return {.host = *host, .port = parse_port(*port, "MASTER_PORT=" + *port)};
  }
  const Dialect* dialect = find_dialect(world.launcher);
  const std::int32_t hosts =
      dialect == nullptr ? 1 : integer(environment, dialect->hosts).value_or(1);
  if (hosts > 1) {
    throw InputError("this job spans " + std::to_string(hosts) +
                     " hosts: set DOVETAIL_STORE=HOST:PORT to the host of rank 0 and a free port");
  }
  return {.host = "127.0.0.1", .port = derived_port(world.job)};
}

StoreAddress parse_store_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    throw InputError(std::string(text) + ": expected HOST:PORT");
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {.host = std::string(host), .port = parse_port(text.substr(colon + 1), text)};
}

}  // namespace dovetail::exec::launch
