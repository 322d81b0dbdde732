// YAML as those read it whose files it is: PyYAML's safe_load, which is YAML 1.1.
//
//   training:                      {"training": {"lr": "1e-5", "fused": true, "modes": ["a", "b"]}}
//     lr: 1e-5                     text, as for PyYAML: a float has a point, and a sign in its exponent
//     fused: on                    yes, no, on, off, true, false are booleans
//     modes: [a, b]
//
// Done are anchors and aliases, merge keys (<<) and tags of the core (!!str, !!int, ...). Refused are a key that is there twice, more than
// one document, other tags, an alias within what it names, and more than a configuration has: 1 MiB, 200,000 values with those of
// aliases, 64 levels.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace dovetail::frameworks {

// Throws InputError "FILE:LINE:COLUMN: MESSAGE"; "FILE: ..." in a build without yaml-cpp.
nlohmann::json read_yaml(const std::string& file, const std::string& text);

}  // namespace dovetail::frameworks
