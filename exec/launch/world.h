// Who this process is in its job, as the launcher's environment says it; and where rank 0 is found.
//
//   mpirun -np 2 dovetail run ...      OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK
//   mpiexec (MPICH, Intel MPI)         PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
//   srun, also with --mpi=pmi2, pmix   SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
//   flux run                           FLUX_TASK_RANK, FLUX_JOB_SIZE, FLUX_TASK_LOCAL_ID
//   torchrun, by hand                  RANK, WORLD_SIZE, LOCAL_RANK
// A launcher only starts the processes: ranks meet through rank 0 (store.h), without MPI.
//
// Rank 0 is found at, in this order: the option or DOVETAIL_STORE=HOST:PORT; MASTER_ADDR and
// MASTER_PORT; else, if the job has one host, at 127.0.0.1 and a port that all ranks derive from
// the job's id. A port may be taken by a stranger (torchrun's own store sits on MASTER_PORT), so
// each address stands for kStorePorts ports in a row; ranks know each other by the job's token.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dovetail::exec::launch {

// The value of a variable, if it is set. Tests pass a map, programs process_environment().
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct World {
  Rank rank;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;  // among the ranks of this host
  std::string launcher;         // "mpirun", "mpiexec", "srun", "flux", "torchrun"; "" without one
  std::string job;              // what tells this job from others; equal on all its ranks
  friend bool operator==(const World&, const World&) = default;
};

// A lone rank where no launcher is seen. Throws InputError on variables that contradict each other,
// and where a job spans several hosts and nothing says which of its host's ranks this one is.
World world_from(const Environment& environment);

inline constexpr std::int32_t kStorePorts = 8;
inline constexpr const char* kOwnHost = "127.0.0.1";  // where nothing else is said

struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;  // the first of kStorePorts candidates
  friend bool operator==(const StoreAddress&, const StoreAddress&) = default;
};

// `option` is HOST:PORT as typed, or empty. Throws InputError when the job has several hosts and
// nothing says where rank 0 is.
StoreAddress store_address(const World& world, const Environment& environment,
                           std::string_view option = "");

// How long a rank of a job of several processes may be silent before it counts as dead:
// DOVETAIL_HEARTBEAT_TIMEOUT ("30s"), else kHeartbeatTimeout. Throws InputError on less than a second.
inline constexpr Duration kHeartbeatTimeout = std::chrono::seconds(5);
Duration heartbeat_timeout(const Environment& environment);

// Reads HOST:PORT; throws InputError.
StoreAddress parse_store_address(std::string_view text);

}  // namespace dovetail::exec::launch
