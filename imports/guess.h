// Which format of `dovetail import` a text looks like.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace dovetail::imports {

// "nccl-tests", "nccl-log", "kineto", ...; "" where it looks like none of them. Looks at the first 64 KiB.
std::string guess_format(std::string_view text);

}  // namespace dovetail::imports
