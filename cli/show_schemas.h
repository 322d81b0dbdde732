// The formats of files that dovetail reads: `dovetail show dovetail.plan/1` prints the fields of a
// plan file, one a line, and with --json the JSON Schema. Both are made of the tables that read and
// write the files (base/fields.h).
//
//   policy: text: that made it, with its options
//   predicted: object, optional
//   predicted.step_us: number from 0.0 to 1e+12: steady step time, microseconds
//   buckets: list of object: in launch order
//   buckets[].id: integer from 0 to 16777215
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace dovetail::cli {

// Values of the key "schema": "dovetail.cluster/1", ...
std::vector<std::string> schema_names();
// REQUIRES: one of them.
nlohmann::ordered_json schema_named(const std::string& name);

void print_schema(const nlohmann::ordered_json& schema, std::ostream& out);

}  // namespace dovetail::cli
