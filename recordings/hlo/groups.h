// Which devices a collective of HLO joins: the forms in which XLA prints replica_groups.
//
//   {{0,1},{2,3}}                          listed
//   {}                                     all devices
//   [2,2]<=[4]   [2,2]<=[2,2]T(1,0)        0, 1, 2, ... laid out, transposed, cut into rows
//   mesh['x'=2,'y'=2] {'x'}                the devices that differ in these axes only; with
//     device_ids=([2,2]T(1,0)) {'x'}       behind it, of a mesh whose devices are laid out like that
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/hlo/module.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::imports {

using HloGroups = std::vector<std::vector<std::int64_t>>;

// Each group sorted, groups of one device left out. Throws InputError where the form is another one, a device is named
// twice or is not below `world`, or the groups are of unequal size.
HloGroups hlo_groups(const Source& file, const HloInstruction& collective, std::int64_t world);

// Pairs of source_target_pairs={{0,1},{1,0}}, checked likewise.
std::vector<std::pair<std::int64_t, std::int64_t>> hlo_pairs(const Source& file,
                                                             const HloInstruction& permute,
                                                             std::int64_t world);

}  // namespace dovetail::imports
