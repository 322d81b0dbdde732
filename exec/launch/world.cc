// Finds out rank, world size and address from the variables that launchers set (torchrun, Open
// MPI, MPICH, Slurm and others), tried in turn; the first launcher found decides.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/world.h"

#include "base/attempt.h"
#include "base/error.h"
#include "base/random.h"

#include <sys/socket.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace dovetail::exec::launch {
namespace {

// The variables of one launcher; the first of a list that is set counts. Several hosts are seen by
// their number, or by fewer ranks on this host than in the job.
struct Dialect {
  const char* launcher;
  const char* rank;
  const char* size;
  std::array<const char*, 4> local_rank;
  std::array<const char*, 3> local_size;
  std::array<const char*, 2> hosts;
  std::array<const char*, 2> job;
};

// torchrun comes first: under `srun torchrun` both sets exist, and only torchrun's counts
// processes. srun --mpi=pmi2 sets PMI_RANK too (is_by_srun). The job's variables must be equal on all
// hosts. Sources: torch.distributed.run; Open MPI 4 (orte) and 5 (prrte), ompi_rte.c; MPICH's hydra
// and Intel MPI; HPE PALS; sbatch(1), srun(1); flux-environment(7).
constexpr std::array<Dialect, 5> kDialects{{
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     {"LOCAL_RANK"},
     {"LOCAL_WORLD_SIZE"},
     {"GROUP_WORLD_SIZE"},
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"OMPI_MCA_orte_num_nodes"},
     {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"}},
    {"flux",
     "FLUX_TASK_RANK",
     "FLUX_JOB_SIZE",
     {"FLUX_TASK_LOCAL_ID"},
     {},
     {"FLUX_JOB_NNODES"},
     {"FLUX_JOB_ID"}},
    {"mpiexec",
     "PMI_RANK",
     "PMI_SIZE",
     {"MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"},
     {"MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
     {},
     {"PMI_JOBID", "PMI_PORT"}},
    {"srun",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     {"SLURM_LOCALID"},
     {},
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
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

template <std::size_t kCount>
std::optional<std::int32_t> first_integer(const Environment& environment,
                                          const std::array<const char*, kCount>& names) {
  for (const char* name : names) {
    if (name == nullptr) continue;
    if (const auto value = integer(environment, name)) return value;
  }
  return std::nullopt;
}

// Slurm started this process itself: its rank and size are those of PMI. Under mpiexec within an
// allocation Slurm counts mpiexec's own helpers, one per host.
bool is_by_srun(const Environment& environment) {
  const auto rank = integer(environment, "SLURM_PROCID");
  const auto size = first_integer(environment, std::array{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  return rank && size && rank == integer(environment, "PMI_RANK") &&
         size == integer(environment, "PMI_SIZE");
}

// "16 hosts", "several hosts", or nothing for one.
std::string host_list(const Dialect& dialect, const Environment& environment, std::int32_t size) {
  const std::int32_t hosts = first_integer(environment, dialect.hosts).value_or(1);
  if (hosts > 1) return std::to_string(hosts) + " hosts";
  const std::int32_t local = first_integer(environment, dialect.local_size).value_or(size);
  return local < size ? "several hosts" : "";
}

std::int32_t local_rank_of(const Dialect& dialect, const Environment& environment, Rank rank,
                           std::int32_t size) {
  if (const auto local = first_integer(environment, dialect.local_rank)) return *local;
  if (host_list(dialect, environment, size).empty()) return rank.value;
  throw InputError(std::string("this job spans several hosts, and ") + dialect.local_rank.front() +
                   " does not say which of its host's ranks this is");
}

// MPICH gives its jobs no name, but its processes on one host hold sockets that one proxy made: that
// process tells two jobs apart. "" where there is no such socket.
std::string pmi_proxy(const Environment& environment) {
  const std::optional<std::int32_t> socket = integer(environment, "PMI_FD");
  ucred proxy{};
  socklen_t size = sizeof proxy;
  if (!socket || getsockopt(*socket, SOL_SOCKET, SO_PEERCRED, &proxy, &size) != 0) return "";
  return std::to_string(proxy.pid);
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
    if (std::string_view(dialect.launcher) == "mpiexec" && is_by_srun(environment)) continue;
    if (*rank >= *size) {
      throw InputError(std::string(dialect.rank) + "=" + std::to_string(*rank) +
                       ": expected less than " + dialect.size + "=" + std::to_string(*size));
    }
    World world{.rank = Rank{*rank},
                .size = *size,
                .local_rank = local_rank_of(dialect, environment, Rank{*rank}, *size),
                .launcher = dialect.launcher,
                .job = dialect.launcher};
    for (const char* name : dialect.job) {
      world.job += ":" + (name == nullptr ? "" : environment(name).value_or(""));
    }
    if (world.launcher == "mpiexec" && host_list(dialect, environment, *size).empty()) {
      world.job += ":" + pmi_proxy(environment);
    }
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
  const std::string hosts = dialect == nullptr ? "" : host_list(*dialect, environment, world.size);
  if (!hosts.empty()) {
    throw InputError("this job spans " + hosts +
                     ": set DOVETAIL_STORE=HOST:PORT to the host of rank 0 and a free port");
  }
  return {.host = kOwnHost, .port = derived_port(world.job)};
}

Duration heartbeat_timeout(const Environment& environment) {
  const auto text = environment("DOVETAIL_HEARTBEAT_TIMEOUT");
  if (!text) return kHeartbeatTimeout;
  const auto timeout = attempt([&] { return parse_duration(*text); });
  if (!timeout) throw InputError("DOVETAIL_HEARTBEAT_TIMEOUT: " + timeout.error);
  if (*timeout.value < std::chrono::seconds(1)) {
    throw InputError("DOVETAIL_HEARTBEAT_TIMEOUT: expected at least 1s, found \"" + *text + "\"");
  }
  return *timeout.value;
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
