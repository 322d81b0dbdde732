// The seam between the tool, which links no CUDA, and the CUDA module, which is loaded on demand.
//
// The module is a shared library with one C function, dovetail_cuda_module(), that returns a table
// of functions. Tool and module come from one build, so C++ types may cross; the version in the
// table guards against a module of another build. Everything in the module that a missing driver or
// device can break happens inside these functions, never when the library is loaded.
//
// loader.h finds and opens it. Inside: backend.h (streams, events, buffers, kernels, NCCL).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/backend.h"
#include "exec/exchange.h"
#include "exec/training/data.h"
#include "schedule/scheduled_program.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dovetail::exec::cuda {

// Raised with every change of this header.
inline constexpr std::uint32_t kModuleVersion = 8;

// One GPU as the driver describes it.
struct DeviceFacts {
  std::int32_t index = 0;
  std::string name;                   // "NVIDIA H200"
  std::string pci;                    // bus id
  std::int32_t major = 0, minor = 0;  // compute capability
  std::int32_t multiprocessors = 0;
  Bytes memory;
  bool is_shareable = true;  // by several processes (compute mode)
};

// What was built, and what is found here. Never throws.
struct Facts {
  std::string toolkit;        // CUDA version of the build, "13.0"
  std::string architectures;  // "80 90 100"
  std::string nccl_built;     // "2.28.9"
  std::string nccl;           // of the library loaded
  std::string driver;         // highest CUDA version the driver supports; empty without a driver
  std::vector<DeviceFacts> devices;
  std::string objection;  // why no GPU can be used; empty when at least one can
};

// Of one GPU at one moment, as its management library (NVML) tells.
struct DeviceState {
  std::int32_t sm_mhz = 0;
  std::int32_t memory_mhz = 0;
  double power_watt = 0;
};

// How the steps of a plan are issued. Graph: captured once, then replayed.
enum class Issue { Eager, Graph };
// Steps of a graph that are no measurements: an eager one, then that which is captured and launched for the first time.
inline constexpr std::int32_t kGraphWarmup = 2;

// What stands in for collectives where only one rank exists. None: real collectives. SendToSelf:
// the payload travels through NCCL's own send and receive kernels to the same rank, with the plan's
// number of thread blocks; results are not reduced, so nothing is checked. The plan must be of one
// rank then (stand_in.h cuts one down).
enum class StandIn { None, SendToSelf };

// How products of f32 matrices are computed: in f32, or rounded to TF32 for the tensor cores.
enum class F32Math { Full, TF32 };

// What ops compute. KnownValues: work of their size and shape, and values that prove the schedule.
// TrainingJob: the job of exec/training for real; then the plan must be one of its programs.
enum class Content { KnownValues, TrainingJob };

// Who carries out a Scale. Kernels: a pass over the bucket, as the plan says and the simulator
// predicts. Collectives: the collective beside it, where no value changes (fold_scale.h); it has no
// time of its own then.
enum class Scales { Kernels, Collectives };

// What is told about a step. Commands: one Timing each. Full: also the kernels and copies of the
// device (Backend::device_work), at some cost per call; not of graphs, whose kernels belong to one
// launch.
enum class TraceDetail { Commands, Full };

// How the memory of gradients and buckets is allocated. Plain: cudaMalloc, as most trainers do, so NCCL
// copies through buffers of its own within a node. Registered: ncclMemAlloc, which NCCL can use in place
// (NVLS, IPC); for ranks that share a node.
enum class Buffers { Plain, Registered };

// Which events of CUDA a step has. PerCommand: two around each, so that every command has a Timing.
// TwoPerStep: one before its first command and one behind its last, as a trainer would time it; the step's
// first op then stands for the whole step in finish(), and a hang is named as the step's.
enum class StepEvents { PerCommand, TwoPerStep };

class KeptCommunicators;  // of the module (kept_communicators.h)

struct BackendOptions {
  std::int32_t device = 0;
  Exchange exchange;  // to hand out NCCL ids and to meet
  Issue issue = Issue::Eager;
  StandIn stand_in = StandIn::None;
  F32Math f32_math = F32Math::Full;
  Content content = Content::KnownValues;
  Scales scales = Scales::Kernels;
  TraceDetail trace_detail = TraceDetail::Commands;
  StepEvents events = StepEvents::PerCommand;
  std::int32_t cluster_size = 0;  // of NCCL's thread blocks; 0: NCCL decides
  Buffers buffers = Buffers::Plain;
  // Where communicators come from and go back to; empty: made and destroyed with each backend.
  std::shared_ptr<KeptCommunicators> kept{};
  training::Hyperparameters hyperparameters = {};      // of a training job
  Duration deadline = std::chrono::seconds(60);        // of any wait for the device or a peer
  Duration grace = std::chrono::seconds(3);            // for a call to return once it is aborted
  std::function<std::int64_t()> deadline_clock{};      // ns; empty: the machine's clock
  std::function<void(const std::string&)> on_failure;  // tells the other ranks; may be empty
  std::function<std::string()> peer_failure;           // "" while the job is well; may be empty
};

struct Tools;  // tools.h

struct Module {
  std::uint32_t version = kModuleVersion;
  Facts (*facts)() = nullptr;
  // Throws InputError for what the backend cannot execute, DeviceError for what the machine
  // refuses. REQUIRES: plan passed verify and outlives the backend; one thread uses the backend.
  std::unique_ptr<Backend> (*make_backend)(const schedule::ScheduledProgram& plan,
                                           const BackendOptions& options) = nullptr;
  // Empty: to hand to backends that follow one another, on every rank alike. Its last owner waits for the
  // communicators' end up to the deadline of the options.
  std::shared_ptr<KeptCommunicators> (*keep_communicators)(const BackendOptions& options) = nullptr;
  // What a report must say about how a backend measured: the overhead of an empty pair of events,
  // which was subtracted, the error of the clock map, how steps were issued. REQUIRES: the backend
  // was made by this module.
  std::map<std::string, std::string> (*notes)(const Backend& backend) = nullptr;
  // Empty unless the backend runs a training job. REQUIRES: as notes; no step is under way.
  training::Trained (*trained)(const Backend& backend) = nullptr;
  // Clocks and power at this moment. Never throws: what cannot be read stays 0.
  DeviceState (*state)(std::int32_t device) = nullptr;
  // What the self-test asks beyond the backend.
  const Tools* tools = nullptr;
};

}  // namespace dovetail::exec::cuda

// The only symbol of the module that the loader looks up.
extern "C" const dovetail::exec::cuda::Module* dovetail_cuda_module();
