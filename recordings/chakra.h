// Chakra execution traces (MLCommons): a graph of computation and communication of one rank.
//
// Three forms are read, told apart by their first bytes:
//   protobuf (.et)      length-delimited messages: one GlobalMetadata, then Nodes
//   JSON of the feeder  {"workload_graph": [{"Id": 216, "Name": "...", "NodeType": 4, "runtime": 318,
//                        "data_deps": [3], "is_cpu_op": false, "comm_type": 0, "comm_size": 1024}, ...]}
//   JSON of chakra_jsonizer   one object per Node, {"id": "216", "type": "COMP_NODE",
//                        "durationMicros": "318", "attr": [{"name": "is_cpu_op", "boolVal": true}], ...}
//
// Source of the format: github.com/mlcommons/chakra at 21585d8: schema/protobuf/et_def.proto,
// src/feeder/json_node.cpp, src/jsonizer/jsonizer.py. PyTorch's own execution trace ({"schema": ...,
// "nodes": [...]}) has no times; it is refused with the tools that join it with a profile.
//
// What becomes of it: the file is taken for one step. Each all-reduce is one gradient, since finer ones are
// not in the file, ready when the computation before it is done: by the recorded start times where the
// file has them, else by playing the data dependencies with one computation at a time (operators of the
// host take no time where the file has kernels). Computation before the
// first all-reduce stands in forward, what follows the last one's inputs in the optimizer. Times are
// whole microseconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/profile_file.h"
#include "recordings/text.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

struct ChakraNode {
  enum class Type { Other, Compute, Collective };
  std::uint64_t id = 0;
  std::string name;
  Type type = Type::Other;
  std::vector<std::uint64_t>
      needs;                  // data dependencies; control ones name the operator that encloses it
  std::int64_t start_us = 0;  // 0: not recorded
  std::int64_t duration_us = 0;
  bool is_cpu_op = false;
  bool is_all_reduce = false;
  std::int64_t comm_bytes = 0;  // 0: not recorded
};

// All nodes in the file's order. Throws InputError with the place where the file is not as above.
// chakra_nodes.cc.
std::vector<ChakraNode> read_chakra_nodes(const Source& file);

// The file does not hold the number of ranks. Throws InputError where there is no all-reduce with a size, or
// the dependencies go in circles.
ImportedStep read_chakra(const Source& file, std::int64_t ranks);

}  // namespace dovetail::imports
