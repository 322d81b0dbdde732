// A policy in the words of the framework that does the same: what to type there.
//
//   torch-ddp:cap=8MiB,first=1MiB        PyTorch 1.x DDP: bucket_cap_mb=8
//   torch-ddp:cap=8MiB,first=8MiB        PyTorch DDP: bucket_cap_mb=8        (2.6 and later)
//   exact:mode=copy,wait=end-of-backward PyTorch DDP: bucket_cap_mb_list (export --to torch)
//   exact                                dovetail_torch.apply (own hooks)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedule/policies.h"

namespace dovetail::exports {

std::string in_words(const schedule::PolicySpec& spec);

}  // namespace dovetail::exports
