// Costs as a file, schema "dovetail.costs/1": what a prediction was made of, to be read, compared with
// that of another machine, edited, and used in place of a cluster.
//
//   {"schema": "dovetail.costs/1", "kind": "costs", "machine": "a100x8", "distinct_ranks": 1,
//    "ops": [{"id": 0, "name": "fc1.forward", "gemm": {"m": 64, "n": 256, "k": 784},
//             "us": [12.5], "p10": 0.98, "p90": 1.04, "kernel": "gemm"}, ...],
//    "rules": {"compute": ..., "kernels": ..., "copy": ..., "passes": ..., "skew": 0},
//    "links": ["link"],
//    "collectives": [{"collective": "all-reduce", "ranks": 8,
//                     "loads": [{"link": 0, "share": 1}],
//                     "knots": [{"bytes": 32768, "isolated_ns": 43830, "back_to_back_ns": 43830,
//                                "isolated_slope": 0.01, "back_to_back_slope": 0.01}, ...]}],
//    "copies": {"ns_per_byte": 0.001, "fixed_us": 0}, "host": ..., "contention": [...]}
//
// "rules" price ops that lowering adds, and are written as in a cluster file. p10 and p90 are shares of
// the median. Slopes are in ns per byte from a knot to the next one; that of the last knot goes on.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json_reader.h"
#include "models/costs/costs.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace dovetail::models {

inline constexpr std::string_view kCostsSchema = "dovetail.costs/1";

// costs_from_json gives the same value back. Times are written in us with all their digits.
std::string costs_to_json(const Costs& costs);
// Throws InputError.
Costs costs_from_json(JsonObject root);
Costs parse_costs(const std::string& file_name, std::string_view text);
// The JSON Schema of such a file.
nlohmann::ordered_json costs_schema();

}  // namespace dovetail::models
