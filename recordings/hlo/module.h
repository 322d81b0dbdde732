// An HLO module as text: computations and their instructions, as XLA dumps them.
//
//   HloModule jit_step, is_scheduled=true, ..., num_partitions=2
//
//   ENTRY %main (p: f32[8,4]) -> f32[8,4] {
//     %p = f32[8,4]{1,0} parameter(0)
//     ROOT %r = f32[8,4]{1,0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
//   }
//
// Names come with or without %, operands with or without their shape; tables of file names and metadata are
// passed over. An OPCODE-start gives (operands, results, contexts), in versions before 0.12 of jaxlib an all-reduce-start its
// results alone. Source of the grammar: openxla/xla, hlo_instruction.cc's printer; dumps of jaxlib 0.10.2 and 0.12.0.1.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/text.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::imports {

// f32[16,256], or a tuple of shapes. Layouts are not kept.
struct HloShape {
  bool is_tuple = false;
  std::vector<HloShape> parts;     // of a tuple
  std::string_view type;           // of an array: f32, bf16, s32, pred, token, ...
  std::vector<std::int64_t> dims;  // of an array; empty: a scalar

  // Arrays in it, itself or those of its parts, in order.
  [[nodiscard]] std::vector<const HloShape*> leaves() const;
  [[nodiscard]] std::int64_t numel() const;  // of all its arrays
  [[nodiscard]] std::int64_t bytes() const;  // likewise; 0 of tokens
};

// How many bytes an element takes; absent: a type that is not known. 0: a token, no data.
std::optional<std::int64_t> hlo_element_bytes(std::string_view type);

struct HloInstruction {
  std::string_view name;
  HloShape shape;
  std::string_view opcode;                 // of the start of an asynchronous one: without -start
  std::vector<std::string_view> operands;  // names; of parameter(0): "0"
  std::vector<std::pair<std::string_view, std::string_view>> attributes;
  std::size_t line = 0;
  bool is_root = false;
  bool is_start = false;  // of its asynchronous form; its shape is that of the results

  [[nodiscard]] std::string_view attribute(std::string_view key) const;  // "": it has none
};

struct HloComputation {
  std::string_view name;
  std::vector<HloInstruction> instructions;
  std::map<std::string_view, std::size_t, std::less<>> index;  // of instructions, by name
  std::size_t root = 0;

  // Absent: no instruction of that name.
  [[nodiscard]] const HloInstruction* find(std::string_view instruction) const;
};

struct HloModule {
  std::string_view name;
  bool is_scheduled = false;
  std::int64_t replicas = 1, partitions = 1;
  std::map<std::string_view, HloComputation, std::less<>> computations;
  const HloComputation* entry = nullptr;

  HloModule() = default;
  HloModule(HloModule&&) = default;  // entry points into computations: nodes stay where they are
  HloModule& operator=(HloModule&&) = default;
  HloModule(const HloModule&) = delete;
  HloModule& operator=(const HloModule&) = delete;
  ~HloModule() = default;
};

// Throws InputError with file and line where the text is no such module. Views point into file.text, which must
// outlive the module.
HloModule read_hlo_module(const Source& file);

// The name behind the % and a shape that may stand before it: "f32[2]{0} %x" is "x".
std::string_view hlo_name(std::string_view word);

// The parts between commas that no bracket or quote encloses, trimmed; none of a blank text.
std::vector<std::string_view> hlo_parts(std::string_view text);

// The integers of "{1,0}" or "[2,4]", absent where something else stands there.
std::optional<std::vector<std::int64_t>> hlo_integers(std::string_view text);

}  // namespace dovetail::imports
