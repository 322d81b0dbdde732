// What DistributedDataParallel does with its first bucket, by the version of PyTorch.
//
// 1.x closes it at 1 MiB always; 2.6 and later only where no bucket_cap_mb is given, and at bucket_cap_mb
// where one is. Sources: torch 1.13 nn/parallel/distributed.py:723, 2.6 :1171-1215, 2.14 :100-106.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace dovetail::schedule {

struct TorchVersion {
  bool first_follows_cap = false;
  std::string problem = {};  // why the text is no version that is known; "" if it is one
};

// "1.13", "2.14.1", "2.9.0.dev20250610", "2.7.0rc1".
TorchVersion torch_version(std::string_view text);

}  // namespace dovetail::schedule
