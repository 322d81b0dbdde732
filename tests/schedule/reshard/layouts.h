// A layout of a tensor with two dimensions over a mesh, from its words.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "schedule/reshard/layout.h"

namespace dovetail::schedule::reshard {

inline Layout on(const Mesh& mesh, std::string_view text) { return parse_layout(text, mesh, 2); }

}  // namespace dovetail::schedule::reshard
