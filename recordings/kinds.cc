// A table of what stands where in a name. Sources: PyTorch's torch/csrc/autograd, torch/csrc/distributed/c10d, torch/optim/optimizer.py,
// torch/distributed/fsdp; the names of CUDA's and ROCm's runtime; libkineto.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/kinds.h"

#include <array>

namespace dovetail::imports {
namespace {

enum class Where : std::uint8_t { Anywhere, AtBegin, Whole };

struct Row {
  Is kind;
  Where where;
  std::string_view part;
};

constexpr std::array kRows = {
    Row{Is::ProfilerStep, Where::AtBegin, "ProfilerStep"},
    Row{Is::OptimizerStep, Where::AtBegin, "Optimizer.step"},
    Row{Is::ZeroGrad, Where::AtBegin, "Optimizer.zero_grad"},
    Row{Is::DataLoading, Where::AtBegin, "enumerate(DataLoader)"},
    Row{Is::EngineFunction, Where::Anywhere, "autograd::engine::evaluate_function"},
    Row{Is::Backward, Where::Anywhere, "autograd::engine::evaluate_function"},
    Row{Is::Backward, Where::AtBegin, "torch::autograd::"},
    Row{Is::AccumulateGrad, Where::Whole, "torch::autograd::AccumulateGrad"},
    Row{Is::CompiledBackward, Where::Whole, "CompiledFunctionBackward"},
    Row{Is::OfGradients, Where::Anywhere, "AccumulateGrad"},
    Row{Is::OfGradients, Where::Anywhere, "RegisterPostBackward"},
    Row{Is::OfGradients, Where::Anywhere, "FSDP"},
    Row{Is::Reducer, Where::Anywhere, "reducer"},
    Row{Is::CopyIntoBucket, Where::Anywhere, "reducer::mul_out"},
    Row{Is::CopyIntoBucket, Where::Whole, "torch::distributed::reducer::copy_"},
    Row{Is::CopyForHook, Where::Whole, "torch::distributed::reducer::copy_"},
    Row{Is::BatchedCopy, Where::Whole, "aten::_foreach_copy_"},
    Row{Is::Cast, Where::Whole, "aten::_to_copy"},
    Row{Is::CopyOutOfBucket, Where::Anywhere, "copy_bucket_to_grad"},
    Row{Is::Comms, Where::Whole, "record_param_comms"},
    Row{Is::C10d, Where::AtBegin, "c10d::"},
    Row{Is::C10dReduction, Where::AtBegin, "c10d::allreduce_"},
    Row{Is::C10dReduction, Where::AtBegin, "c10d::reduce_scatter"},
    Row{Is::C10dReduction, Where::AtBegin, "c10d::_reduce_scatter"},
    Row{Is::C10dSend, Where::Whole, "c10d::send"},
    Row{Is::FunctionalC10d, Where::AtBegin, "_c10d_functional"},
    Row{Is::FunctionalC10d, Where::AtBegin, "c10d_functional"},
    Row{Is::Waits, Where::Anywhere, "wait_tensor"},
    Row{Is::Receives, Where::Anywhere, "recv"},
    Row{Is::Scatters, Where::Anywhere, "reduce_scatter"},
    Row{Is::LibraryRange, Where::AtBegin, "nccl:"},
    Row{Is::LibraryRange, Where::AtBegin, "rccl:"},
    Row{Is::ThreadCollective, Where::AtBegin, "gloo:"},
    Row{Is::ThreadCollective, Where::AtBegin, "mpi:"},
    Row{Is::ThreadCollective, Where::AtBegin, "ucc:"},
    Row{Is::Barrier, Where::Anywhere, ":barrier"},
    Row{Is::OfLibrary, Where::Anywhere, "ccl"},
    Row{Is::Fsdp, Where::AtBegin, "FSDP::"},
    Row{Is::FsdpModule, Where::AtBegin, "FullyShardedDataParallel"},
    Row{Is::DdpForward, Where::Anywhere, "DistributedDataParallel.forward"},
    Row{Is::Compiled, Where::Anywhere, "CompiledFxGraph"},
    Row{Is::Compiled, Where::Anywhere, "Torch-Compiled Region"},
    Row{Is::WholeGraph, Where::Whole, "CUDA graph"},
    Row{Is::Rocm, Where::Anywhere, "hipLaunchKernel"},
    Row{Is::Rocm, Where::Anywhere, "hipModuleLaunchKernel"},
    Row{Is::Rocm, Where::Anywhere, "hipExtModuleLaunchKernel"},
    Row{Is::FsdpGather, Where::AtBegin, "FSDP::all_gather"},
    Row{Is::FsdpReduce, Where::AtBegin, "FSDP::post_backward_reduce"},
    Row{Is::FsdpBeforeForward, Where::AtBegin, "FSDP::pre_forward"},
    Row{Is::FsdpBeforeBackward, Where::AtBegin, "FSDP::pre_backward"},
    Row{Is::BlockingCall, Where::Anywhere, "Synchronize"},
    Row{Is::BlockingCall, Where::Anywhere, "QueueFinish"},
    Row{Is::BlockingCall, Where::Anywhere, "EventWait"},
    Row{Is::DeviceWait, Where::Anywhere, "DeviceSynchronize"},
    Row{Is::DeviceWait, Where::Anywhere, "CtxSynchronize"},
    Row{Is::WaitEventCall, Where::Anywhere, "StreamWaitEvent"},
    Row{Is::LaunchCall, Where::Anywhere, "Launch"},
    Row{Is::LaunchCall, Where::Anywhere, "Memcpy"},
    Row{Is::LaunchCall, Where::Anywhere, "Memset"},
    Row{Is::KernelLaunch, Where::Anywhere, "LaunchKernel"},
    Row{Is::Copy, Where::Anywhere, "Memcpy"},
    Row{Is::Async, Where::Anywhere, "Async"},
    Row{Is::Pageable, Where::Anywhere, "Pageable"},
    Row{Is::PeerCopy, Where::Anywhere, "Memcpy PtoP"},
    Row{Is::StreamWait, Where::Anywhere, "Stream Sync"},
};

bool stands(std::string_view name, const Row& row) {
  switch (row.where) {
    case Where::Anywhere:
      return name.find(row.part) != std::string_view::npos;
    case Where::AtBegin:
      return name.starts_with(row.part);
    case Where::Whole:
      break;
  }
  return name == row.part;
}

// "AddmmBackward0": a node of autograd's graph, numbered by version.
bool is_node(std::string_view name) {
  while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  return name.ends_with("Backward");
}

}  // namespace

std::uint64_t kinds_of(std::string_view name) {
  std::uint64_t kinds = is_node(name) ? bit(Is::Backward) : 0;
  for (const Row& row : kRows) {
    if (stands(name, row)) kinds |= bit(row.kind);
  }
  return kinds;
}

}  // namespace dovetail::imports
