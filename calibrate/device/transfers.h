// How long what travels takes by its size, alone and in a queue: the all-reduce over all ranks, and what
// else plans of these ranks may ask for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/device/lab.h"
#include "calibrate/device/probes.h"

#include <cstdint>
#include <vector>

namespace dovetail::calibrate {

inline constexpr std::int64_t kQueue = 8;  // transfers of one measurement

// All-reduces of all ranks, by size, until the budget ends; at least two sizes.
std::vector<CollectiveTimes> measure_collectives(const Lab& lab);

// Of the all-reduce, in a queue.
Duration back_to_back(const Lab& lab, Bytes bytes);
TransferProbe probe_of(const Lab& lab, Bytes bytes, std::int64_t count);

// The series of `wanted_series`, each with its part of the further budget. `hosts`: of every rank.
std::vector<SeriesTimes> measure_further(const Lab& lab, const schedule::Program& workload,
                                         const std::vector<std::int64_t>& hosts);

CopyTime measure_copies(const Lab& lab);
// Multiplying a bucket in place; by its bytes.
CopyTime measure_scales(const Lab& lab);

}  // namespace dovetail::calibrate
