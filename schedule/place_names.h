// What a gradient is called whose parameter nobody named: profilers record sizes and order of gradients, no names.
//
//   place_name(0, 3)                        "bucket0.gradient3": by its place in the recorded buckets
//   is_place_name("bucket0.gradient3.grad") true
//
// Files of frameworks that go by names of parameters cannot be written of such a plan; `import kineto --parameters` names them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "schedule/program.h"

namespace dovetail::schedule {

std::string place_name(std::size_t bucket, std::size_t gradient);

// With or without ".grad"; "all-reduce 3", which an import of nsys writes, too.
bool is_place_name(std::string_view gradient);

// Whether no reduced gradient has a name.
bool has_places_only(const Program& program);

}  // namespace dovetail::schedule
