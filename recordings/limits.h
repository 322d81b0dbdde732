// The largest figures that readers of other people's files accept; a file with more is refused as broken.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace dovetail::imports {

inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of one collective

}  // namespace dovetail::imports
