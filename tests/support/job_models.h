// Models for tests of jobs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace dovetail::testing {

// Of Llama 3 8B's width, with 4 of its 32 layers: plays in an eighth of the time.
inline const std::string kShortLlama =
    DOVETAIL_SOURCE_DIR "/tests/models/networks/data/short_llama/config.json";

}  // namespace dovetail::testing
