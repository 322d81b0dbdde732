// A diagnosis as one Perfetto file: the last step of each rank as recorded, its replay, and, on the first
// rank, the replay with the best buckets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "imports/kineto/diagnosis.h"
#include "imports/kineto/rank_set.h"

namespace dovetail::cli {

std::string perfetto_of(const imports::JobTrace& job, const imports::Diagnosis& diagnosis);

}  // namespace dovetail::cli
