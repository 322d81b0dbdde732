// The frameworks that there are: one function for each file, in the order in which they are listed. A new one is a
// line here and one in list.cc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "frameworks/framework.h"

namespace dovetail::frameworks {

std::vector<Framework> torch_ddp();  // by version, the newest first
std::vector<Framework> megatron();
std::vector<Framework> deepspeed();
std::vector<Framework> horovod();
std::vector<Framework> xla();
std::vector<Framework> fsdp();  // FSDP1, then FSDP2
std::vector<Framework> inductor();
std::vector<Framework> nccl_tuner();
std::vector<Framework> paddle();
std::vector<Framework> apex();

// Whether the policy only says which gradients share a bucket, so that who can be given buckets one by one can run it
// once launches and waits are theirs.
bool groups_freely(const schedule::Policy& policy);
// The limits at which its buckets close, where it decides no stages and no shards; else null.
const schedule::ByLimits* limits_of(const schedule::Policy& policy);
// Whether it shards updates, and nothing beyond them: neither gathers before each use nor stages.
bool shards_updates(const schedule::Policy& policy);

}  // namespace dovetail::frameworks
