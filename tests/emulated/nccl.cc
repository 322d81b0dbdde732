// The emulated NCCL: communicators, groups and calls.
//
// Source of rules: NCCL 2.28 user guide ("Guide") and the source of NCCL v2.28.9-1 ("init.cc", ...).
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/nccl_comm.h"

#include "tests/emulated/control.h"
#include "tests/emulated/runtime.h"

#include <signal.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace dovetail::emulated {

thread_local std::string t_nccl_words;

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  t_nccl_words = why;
  return result;
}

std::atomic<int>& used() {
  static std::atomic<int> count{0};
  return count;
}
int communicators_in_use() { return used(); }

void nap() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

// init.cc ncclCommEnsureReady: a non-blocking communicator must not be used before its last call is
// over. Then faults of this call.
ncclResult_t begin_call(ncclComm_t comm, const char* function) {
  if (comm == nullptr)
    return refuse(ncclInvalidArgument, std::string(function) + ": no communicator");
  if (comm->link.is_aborted) return refuse(ncclInvalidUsage, "the communicator was aborted");
  if (comm->pending > 0) {
    return refuse(ncclInvalidArgument,
                  "Attempt to use communicator before the previous operation returned ncclSuccess");
  }
  return ncclSuccess;
}

ncclResult_t suffer(ncclComm_t comm, std::optional<FaultKind> fault) {
  if (!fault) return ncclSuccess;
  switch (*fault) {
    case FaultKind::Hang:
      comm->hangs = true;
      return ncclSuccess;
    case FaultKind::HangInCall:
    case FaultKind::HangInRegister:
      strike();
      while (!comm->link.is_aborted) nap();
      return refuse(ncclInternalError, "aborted");
    case FaultKind::Error:
      comm->async = ncclRemoteError;
      comm->hangs = true;  // what was lost never arrives
      return ncclSuccess;
    case FaultKind::Kill:
      raise(SIGKILL);
      return ncclSuccess;
    case FaultKind::DeviceError:
      comm->breaks = true;
      return ncclSuccess;
  }
  return ncclSuccess;
}

// The work of a group on one communicator and stream.
cudaError_t enqueue_on(ncclComm_t comm, cudaStream_t stream, Work work) {
  const auto inner = work.begin;
  const bool hangs = std::exchange(comm->hangs, false);
  const bool breaks = std::exchange(comm->breaks, false);
  if (!comm->is_used.exchange(true)) ++used();
  work.begin = [comm, inner, hangs, breaks]() -> Run {
    ++comm->under_way;
    return [comm, hangs, breaks, run = inner()] {
      if (breaks) break_device(comm->device);
      if (hangs) strike();
      const bool waits = hangs || breaks ? !comm->link.is_aborted : run() == Progress::Waiting;
      if (waits) return Progress::Waiting;
      --comm->under_way;
      return Progress::Done;
    };
  };
  work.serial = comm->serial;
  work.retain = [comm]() -> std::shared_ptr<void> {
    ++comm->graphs;
    return {comm, [](ncclComm_t held) { --held->graphs; }};
  };
  return enqueue(stream, std::move(work));
}

}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;
using emulated::begin_call;
using emulated::refuse;

namespace {

// Which GPU of which host: NCCL compares host hashes, of the host's name and boot, or of NCCL_HOSTID
// instead (utils.cc getHostHash), and bus ids.
std::uint64_t gpu_of(std::int32_t device) {
  char name[256] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  const char* given = std::getenv("NCCL_HOSTID");
  const std::string host = given == nullptr ? name : given;
  return std::hash<std::string>{}(host + "/" + std::to_string(device)) | 1;
}

// init.cc initTransportsRank: "Duplicate GPU detected".
ncclResult_t meet(ncclComm_t comm) {
  emulated::Segment& segment = *comm->link.segment;
  while (segment.joined.load() < comm->link.ranks) {
    if (comm->link.is_aborted) return refuse(ncclInternalError, "aborted");
    emulated::nap();
  }
  if (comm->link.rank == 0) emulated::remove_segment(comm->name);
  for (std::size_t one = 0; one < comm->link.ranks; ++one) {
    for (std::size_t other = 0; other < one; ++other) {
      if (segment.gpus[one] != segment.gpus[other]) continue;
      return refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(other) +
                                          " and rank " + std::to_string(one));
    }
  }
  return ncclSuccess;
}

// argcheck in init.cc parseCommConfig.
ncclResult_t check_config(const ncclConfig_t* config) {
  if (config == nullptr || config->magic != 0xcafebeef) {
    return refuse(ncclInvalidArgument, "ncclConfig_t argument not initialized");
  }
  const bool has_min = config->minCTAs != NCCL_CONFIG_UNDEF_INT;
  const bool has_max = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if ((has_min && config->minCTAs <= 0) || (has_max && config->maxCTAs <= 0) ||
      (has_min && has_max && config->minCTAs > config->maxCTAs)) {
    return refuse(ncclInvalidArgument, "Invalid config min/max channels attribute value");
  }
  return ncclSuccess;
}

// Communicators stay to the end of the process: a kernel in flight may refer to one that is gone.
ncclComm_t new_communicator() {
  static auto* const all = new std::vector<std::unique_ptr<ncclComm>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return all->emplace_back(std::make_unique<ncclComm>()).get();
}

// Waits for kernels and graphs. NCCL keeps a communicator while a graph refers to it (init.cc
// commReclaim, persistentRefs): destroying it before would wait for ever.
ncclResult_t leave(ncclComm_t comm, const char* function) {
  if (comm->graphs > 0 && !comm->link.is_aborted) {
    emulated::complain(std::string(function) + " waits for a graph that holds the communicator");
    return ncclSuccess;
  }
  while (comm->under_way > 0 || comm->graphs > 0) emulated::nap();
  if (comm->pending < ncclComm::kConnecting && comm->link.segment != nullptr) {
    munmap(std::exchange(comm->link.segment, nullptr), sizeof(emulated::Segment));
  }
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const std::int32_t wanted = dovetail::emulated::options().faulty_nccl;
  *version = wanted > 0 ? wanted : NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInvalidArgument:
      return "invalid argument";
    default:
      return "emulated NCCL error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return emulated::t_nccl_words.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::uint64_t> count{0};
  *id = {};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string name = "/dovetail-emulated-" + std::to_string(getpid()) + "-" +
                           std::to_string(now) + "-" + std::to_string(++count);
  std::memcpy(id->internal, name.c_str(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (const ncclResult_t refused = check_config(config)) return refused;
  if (rank < 0 || rank >= ranks || ranks > static_cast<int>(emulated::kMostRanks)) {
    return refuse(ncclInvalidArgument, "Invalid rank requested : " + std::to_string(rank));
  }
  const ncclComm_t comm = new_communicator();
  emulated::count_communicator();
  comm->name = id.internal;
  comm->device = emulated::current_device();
  comm->link.segment = emulated::open_segment(comm->name);
  comm->link.ranks = static_cast<std::size_t>(ranks);
  comm->link.rank = static_cast<std::size_t>(rank);
  comm->is_blocking = config->blocking != 0;
  if (comm->link.segment == nullptr) return refuse(ncclSystemError, "no shared memory");
  comm->link.segment->gpus[comm->link.rank] = gpu_of(comm->device);
  comm->link.segment->joined.fetch_add(1);
  *out = comm;
  if (comm->is_blocking) return meet(comm);
  comm->pending = ncclComm::kConnecting;
  std::thread([comm] {
    const ncclResult_t met = meet(comm);
    if (met != ncclSuccess) comm->async = met;
    comm->pending = 1;
  }).detach();
  return ncclInProgress;
}

// A non-blocking call is over after this has been asked once or twice.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm == nullptr) return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
  const int pending = comm->pending;
  *state = comm->async;
  if (*state != ncclSuccess || pending == 0) return ncclSuccess;
  if (pending != ncclComm::kConnecting) comm->pending = pending - 1;
  *state = comm->pending == 0 ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t refused = begin_call(comm, "ncclCommFinalize")) return refused;
  if (comm->is_blocking) return ncclSuccess;
  comm->pending = 2;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  // Guide, User Buffer Registration: deregister before the communicator goes.
  if (comm->registrations > 0) {
    emulated::complain("ncclCommDestroy of a communicator with registered buffers");
  }
  if (comm->is_used.exchange(false)) --emulated::used();
  const ncclResult_t left = leave(comm, "ncclCommDestroy");
  if (std::exchange(comm->is_gone, true)) emulated::complain("a communicator is destroyed twice");
  return left;
}

// init.cc ncclCommAbort: raises the flag that kernels look at, then waits for them and for graphs.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->link.is_aborted = true;
  if (comm->is_used.exchange(false)) --emulated::used();
  return leave(comm, "ncclCommAbort");
}

// Guide, Memory Allocator: memory that NCCL can use in place, given back by ncclMemFree only.
ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  if (cudaMalloc(data, bytes) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return refuse(ncclUnhandledCudaError, "ncclMemAlloc: out of memory");
  }
  emulated::set_mapped_by_nccl(*data, true);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  if (data == nullptr) return ncclSuccess;
  if (!emulated::is_mapped_by_nccl(data)) {
    emulated::complain("ncclMemFree of memory that is not of ncclMemAlloc");
    return refuse(ncclInvalidArgument, "ncclMemFree: not of ncclMemAlloc");
  }
  emulated::set_mapped_by_nccl(data, false);
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  if (const ncclResult_t refused = begin_call(comm, "ncclCommRegister")) return refused;
  const auto fault = emulated::next_call(comm->device, emulated::Counted::Registrations);
  if (const ncclResult_t failed = emulated::suffer(comm, fault)) return failed;
  if (!emulated::is_device_memory(data, bytes)) {
    return refuse(ncclInvalidArgument, "ncclCommRegister: not device memory");
  }
  ++comm->registrations;
  emulated::count_registration(emulated::is_mapped_by_nccl(data));
  *handle = comm;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (handle != comm || comm->registrations == 0) {
    return refuse(ncclInvalidUsage, "Deregister: Could not find handle");
  }
  --comm->registrations;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence != ncclScalarHostImmediate) {
    emulated::complain("only factors that the host holds are emulated");
  }
  comm->factors.push_back(emulated::number_from(static_cast<const char*>(scalar), type));
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->factors.size()) - 1);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t) {
  return op < ncclNumOps ? refuse(ncclInvalidArgument, "ncclRedOpDestroy of a built-in operation")
                         : ncclSuccess;
}

}  // extern "C"
