// The values of an HLO module as they flow: what each instruction reads and writes once loops are rolled out, calls
// opened and tuples taken apart.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/hlo/hlo.h"
#include "recordings/hlo/module.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

inline constexpr std::size_t kNoValue = static_cast<std::size_t>(-1);  // a constant, a token

struct HloValue {
  const HloShape* shape = nullptr;
  std::string name;
  std::optional<std::size_t> parameter;  // of the entry computation
};

struct HloStep {
  const HloComputation* within = nullptr;
  const HloInstruction* instruction = nullptr;
  bool is_in_loop = false;
  std::string name;  // unique
  std::vector<std::size_t> reads =
      {};  // values; a collective's in the order of its operands, with kNoValue
  std::vector<std::size_t> writes = {};        // values; a collective's as its operands
  std::optional<std::size_t> collective = {};  // in HloFlow::collectives
  std::vector<std::size_t> awaits =
      {};  // values of started collectives that are waited for in front of it (-done)
};

struct HloFlow {
  std::vector<HloValue> values;
  std::vector<HloStep> steps;  // in the order of the module
  std::vector<HloCollective> collectives;
  std::vector<std::size_t> results;   // values of the entry computation's root
  std::vector<std::string> left_out;  // one line each
};

// Throws InputError as read_hlo.
HloFlow hlo_flow(const Source& file, const HloModule& module, std::int64_t world);

}  // namespace dovetail::imports
