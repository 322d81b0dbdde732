// Programs as JSON files, both ways.
//
//   {
//    "schema": "dovetail.program/1", "kind": "program", "name": "mlp", "world_size": 2,
//    "groups": [{"id": 0, "name": "dp", "ranks": [0, 1]}],
//    "tensors": [{"id": 0, "name": "fc1.weight", "kind": "parameter", "dtype": "f32",
//                 "shape": [256, 784]}, ...],
//    "ops": [{"id": 0, "name": "fc1.forward", "phase": "forward", "dtype": "f32",
//             "work": {"kind": "gemm", "m": 64, "n": 256, "k": 784, "count": 1},
//             "reads": ["fc1.weight"], "writes": ["fc1.out"]}, ...],
//    "reductions": [{"gradient": "fc1.weight.grad", "group": "dp", "op": "average"}]
//   }
//
// Other work: {"kind": "memory", "traffic_bytes": 4816896, "work_flop": 401408} and
// {"kind": "timed", "by_rank_us": [12.5, 13]}. Groups and tensors are referred to by name, so names
// and ids are unique. Everything is read strictly (base/json_reader.h), and a Program that has
// problems() is an InputError: what the readers return is sound. Sizes are limited so that no sum
// over a Program overflows: 16 TiB per tensor or op, 11 days per time, 2^20 ranks, and fractions of
// numbers up to 2^20.
//
// Files hold Programs as they were before lower rewrote them: there is no word for a ShardUpdate.
// Invariant: parse_program(name, program_to_json(program)) == program for every other sound Program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json_reader.h"
#include "schedule/program.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace dovetail::schedule {

inline constexpr std::string_view kProgramSchema = "dovetail.program/1";

// Throws InputError: the file, the JSON pointer, and what was expected.
Program read_program(const std::string& path);
// The same for text; `name` stands for the file in messages.
Program parse_program(const std::string& name, std::string_view text);
// A Program that is part of a larger file, e.g. of a plan.
Program program_from_json(const JsonObject& object);

// The text of a file: keys in a fixed order, one space of indent, a newline at the end.
// REQUIRES: problems(program) is empty, and no op is a ShardUpdate.
std::string program_to_json(const Program& program);
// The same as a value, for larger files.
nlohmann::ordered_json program_to_value(const Program& program);
nlohmann::ordered_json program_schema();  // the JSON Schema of such a file

}  // namespace dovetail::schedule
