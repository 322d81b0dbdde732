// dovetail reshard: the cheapest way from one layout of a tensor to another, and what it costs.
//
//   dovetail reshard --shape 8x8 --mesh 4 --from "S(0)" --to "S(1)"
//     tensor       8x8 f32, 256 bytes
//     from         S(0) on 4 on ranks 0..3
//     to           S(1) on 4 on ranks 0..3
//     path         S(0) -> S(1) by all-to-all along axis 0 (15 us)
//     cost         15 us
//     wire         192 bytes
//     fixed order  S(0) -> R by all-gather along axis 0 (15.1 us) -> S(1) by slice ...: 768 bytes
//
// Layouts have one word per mesh axis: R, S(dimension), P(sum), P(average) (schedule/reshard/
// layout.h). Costs come from the alpha-beta model of schedule/reshard/transitions.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "cli/document.h"

namespace dovetail::cli {

struct ReshardOptions {
  std::string shape;
  std::string dtype = "f32";
  std::string mesh;
  std::string from;
  std::string to;
  std::string to_mesh;             // empty: the same mesh
  std::int32_t to_first_rank = 0;  // of the other mesh
  std::string latency = "5us";
  std::string wire = "10GB";   // per second
  std::string copy = "500GB";  // per second
  bool steps = false;          // also what each rank does
  DocumentOptions document;
};

void reshard(const ReshardOptions& options, std::ostream& out);

}  // namespace dovetail::cli
