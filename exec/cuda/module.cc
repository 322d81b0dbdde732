// The table of functions that the CUDA module exports under its one symbol.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/module.h"

#include "exec/cuda/backend.h"
#include "exec/cuda/clocks.h"
#include "exec/cuda/facts.h"
#include "exec/cuda/kept_communicators.h"
#include "exec/cuda/selftest.h"

namespace dovetail::exec::cuda {
namespace {

std::unique_ptr<Backend> make_backend(const schedule::ScheduledProgram& plan,
                                      const BackendOptions& options) {
  return std::make_unique<CudaBackend>(plan, options);
}

std::shared_ptr<KeptCommunicators> keep_communicators(const BackendOptions& options) {
  return std::make_shared<KeptCommunicators>(options.deadline);
}

training::Trained trained(const Backend& backend) {
  const auto* ours = dynamic_cast<const CudaBackend*>(&backend);
  return ours == nullptr ? training::Trained() : ours->trained();
}

std::map<std::string, std::string> notes(const Backend& backend) {
  const auto* ours = dynamic_cast<const CudaBackend*>(&backend);
  return ours == nullptr ? std::map<std::string, std::string>() : ours->notes();
}

}  // namespace
}  // namespace dovetail::exec::cuda

extern "C" __attribute__((visibility("default"))) const dovetail::exec::cuda::Module*
dovetail_cuda_module() {
  using dovetail::exec::cuda::Module;
  static const Module kModule = {.facts = &dovetail::exec::cuda::facts,
                                 .make_backend = &dovetail::exec::cuda::make_backend,
                                 .keep_communicators = &dovetail::exec::cuda::keep_communicators,
                                 .notes = &dovetail::exec::cuda::notes,
                                 .trained = &dovetail::exec::cuda::trained,
                                 .state = &dovetail::exec::cuda::device_state,
                                 .tools = &dovetail::exec::cuda::tools()};
  return &kModule;
}
