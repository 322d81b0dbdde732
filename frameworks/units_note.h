// Sizes that were typed in decimal units where frameworks count in binary ones: bucket_cap_mb=25 of PyTorch is 25 MiB.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dovetail::frameworks {

// One note for the first such size of a text ("torch-ddp:cap=25MB"); none where there is no such size. Sizes that give a
// rate ("10GB/s") are left alone.
std::vector<std::string> notes_on_units(std::string_view typed);

}  // namespace dovetail::frameworks
