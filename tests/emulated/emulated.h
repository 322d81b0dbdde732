// An emulated CUDA device with NCCL and cuBLAS, on threads of the host: the executor's own files of
// exec/cuda run on it unchanged. This header is what a test says to it, and what it says back.
//
// What it is for: streams, events, graphs, communicators and memory are used as the libraries allow.
//   order    every stream is a queue; what no wait orders runs in an order drawn from `seed`
//   races    each launch declares what it reads and writes; two accesses that no wait orders are
//            reported, whatever their values came to (races.h)
//   rules    what the libraries forbid is reported; each rule names its source where it is enforced
//   peers    collectives meet in shared memory, between threads and processes (nccl_link.h)
//   faults   a chosen call hangs, fails, or ends the process
// What it cannot tell: any time (a measurement on it is invalid by construction, its device is
// called EMULATED), lazy loading, whether kernels fit on a device together, buffer registration,
// what cuBLAS refuses, what only nvcc rejects. A function of the libraries that it lacks is a link
// error. Never installed. tests/emulated/conformance.cc runs on it and on real libraries: where
// they differ, this is wrong.
//
// A program that cannot call configure() sets DOVETAIL_EMULATED, e.g.
//   DOVETAIL_EMULATED=devices=8,seed=3,memory-mib=64,fault=2:5:hang
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::emulated {

inline constexpr const char* kDeviceName = "EMULATED";

enum class FaultKind {
  Hang,           // "hang": the kernel of this NCCL call never ends, until it is aborted
  HangInCall,     // "call-hang": the call itself does not return, until it is aborted
  Error,          // "error": NCCL reports an asynchronous error
  Kill,           // "kill": the process dies, as by kill -9
  DeviceError,    // "device-error": the device's context is broken from then on
  HangInRegister  // "register-hang": `call` counts ncclCommRegister instead
};
struct Fault {
  std::int32_t device = 0;
  std::int64_t call = 0;  // of this device's NCCL operations, from 0; a group counts once
  FaultKind kind = FaultKind::Hang;
};

struct Options {
  std::int32_t devices = 1;
  std::uint64_t seed = 0;
  std::size_t memory_bytes = std::size_t{2} << 30;  // of each device
  std::vector<Fault> faults{};
  bool is_exclusive = false;  // devices serve one process at a time
  // NCCL has 2.28.9's fault (nccl_calls.cc) and says that it is this version; 0: that of the headers, without it.
  std::int32_t faulty_nccl = 0;
  std::optional<std::int64_t> dropped_wait{};  // this cudaStreamWaitEvent of the process is ignored
};

// Takes effect for what is enqueued from then on; counters begin anew.
void configure(const Options& options);
Options options();
// Throws std::invalid_argument for words that are none.
Options parse_options(std::string_view words);

// Whether a fault that hangs has begun to: its call was made, or its kernel has reached the device. Since
// the last configure().
bool has_struck();

// Since the last configure().
struct Counts {
  std::int64_t communicators = 0;         // ranks that were given one
  std::int64_t registrations = 0;         // of buffers
  std::int64_t mapped_registrations = 0;  // of buffers that NCCL can use in place
  std::int64_t graph_launches = 0;
};
Counts counts();

// What broke a rule, in order of occurrence; also printed on stderr at once.
void complain(const std::string& what);
std::vector<std::string> take_complaints();

}  // namespace dovetail::emulated
