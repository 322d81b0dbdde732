// Names a stretch of host code around each command for NVIDIA's profilers; compiles to nothing
// where their header is missing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define DOVETAIL_HAVE_NVTX 1
#else
#define DOVETAIL_HAVE_NVTX 0
#endif

namespace dovetail::exec::cuda {

class NamedRange {
 public:
#if DOVETAIL_HAVE_NVTX
  explicit NamedRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ~NamedRange() { nvtxRangePop(); }
#else
  explicit NamedRange(const std::string&) {}
  ~NamedRange() = default;
#endif
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace dovetail::exec::cuda
