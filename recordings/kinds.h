// What a name says that PyTorch, CUDA, NCCL or Gloo gave to an operator, a range, a call or a copy. A name may say several things. Other
// rooms ask this table; what names of collectives and their kernels say (kind, type, direction) is read in timeline/collectives.cc, messages.cc and
// likely_collectives.cc.
//
//   std::uint64_t said = kinds_of("FSDP::all_gather (layers.3)");     // Is::Fsdp | Is::FsdpGather
//
// Recording::is(event, Is::FsdpGather) asks it of an event; a reader of another recorder gives its events these names, or adds a row.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace dovetail::imports {

enum class Is : std::uint8_t {
  ProfilerStep,        // "ProfilerStep#4"
  OptimizerStep,       // "Optimizer.step#AdamW.step"
  ZeroGrad,            // "Optimizer.zero_grad#AdamW.zero_grad"
  DataLoading,         // "enumerate(DataLoader)#..."
  EngineFunction,      // what autograd's engine puts around a node
  Backward,            // "AddmmBackward0", "torch::autograd::...", and the engine's
  AccumulateGrad,      // "torch::autograd::AccumulateGrad"
  CompiledBackward,    // of a graph of torch.compile: "CompiledFunctionBackward"
  OfGradients,         // what only gradients have: AccumulateGrad, FSDP's functions
  Reducer,             // of DistributedDataParallel's reducer
  CopyIntoBucket,      // "reducer::mul_out"; for a hook, which divides itself, "reducer::copy_"
  CopyForHook,         // the latter alone
  BatchedCopy,         // "aten::_foreach_copy_"
  Cast,                // "aten::_to_copy"
  CopyOutOfBucket,     // "copy_bucket_to_grad"
  Comms,               // "record_param_comms"
  C10d,                // "c10d::allreduce_"
  C10dReduction,       // of gradients: c10d's all-reduce and reduce-scatter
  C10dSend,            // "c10d::send"
  FunctionalC10d,      // "_c10d_functional::all_reduce"
  Waits,               // "wait_tensor"
  Receives,            // "recv"
  Scatters,            // "reduce_scatter"
  LibraryRange,        // "nccl:all_reduce", which PyTorch puts around a call of NCCL or RCCL
  ThreadCollective,    // "gloo:all_reduce": a collective that threads run
  Barrier,             // "gloo:barrier"
  OfLibrary,           // "ccl" in it
  Fsdp,                // "FSDP::..."
  FsdpModule,          // "FullyShardedDataParallel..."
  DdpForward,          // "DistributedDataParallel.forward"
  Compiled,            // a graph of torch.compile
  WholeGraph,          // an execution of a CUDA graph, recorded without its kernels
  Rocm,                // a launch on an AMD GPU
  FsdpGather,          // "FSDP::all_gather (layers.3)"
  FsdpReduce,          // "FSDP::post_backward_reduce"
  FsdpBeforeForward,   // "FSDP::pre_forward"
  FsdpBeforeBackward,  // "FSDP::pre_backward"
  BlockingCall,        // the host waits: "cudaStreamSynchronize"
  DeviceWait,          // for all of the device: "cudaDeviceSynchronize"
  WaitEventCall,       // a stream waits: "cudaStreamWaitEvent"
  LaunchCall,          // "cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch"
  KernelLaunch,        // "LaunchKernel"
  Copy,                // "Memcpy", of a call or of GPU work
  Async,               // "Async"
  Pageable,            // a copy from or to memory that is not pinned
  PeerCopy,            // "Memcpy PtoP"
  StreamWait           // CUPTI's record of a wait for a stream: "Stream Synchronize"
};

// A bit for each.
constexpr std::uint64_t bit(Is kind) { return std::uint64_t{1} << static_cast<unsigned>(kind); }
std::uint64_t kinds_of(std::string_view name);

}  // namespace dovetail::imports
