// Measured matrix products of a GPU, and what lies between them.
//
//   const GemmTable* table = gemm_table("h100");     // models/rates/gemm/h100.csv; null: no such table
//   table->time({.m = 8192, .n = 4096, .k = 4096})   // of bf16 or f16
//   gemm_table("h100", Operands::Fp8)                // h100-fp8.csv
//
// The table is a grid of m, n and k. What is interpolated, linearly in their logarithms, is the logarithm of measured / bare:
//
//   bare = shortest + max(2 m n k / best flop rate, 2 (m k + k n + m n) / best byte rate)
//
// with the shortest time and the best rates of the table itself, so that nothing but measured times is used. A place of the grid without a
// time takes it from its neighbours along the three axes, weighted by 1 / distance^2. Beyond the grid the quotient is
// that of its edge. `count` products in one kernel take as long as one with m x count rows; an OpModel gives them no less than all their
// matrices take to move, which is what decides where each has few rows (256 experts of 7,168 x 2,048 with 128 rows each: 8.4 ms on
// H100, where 9.8 were measured for the three products of TensorRT-LLM's kernel, in the same source). Separate kernels take `count` times
// as long as one.
//
// Error on a tenth of the rows, left out of the table (tests/models/gemm_table_test.cc): of bf16 2.5 to 4 % in the median, 11 to
// 16 % at the 95th percentile (L40S 18); the largest where the library changes its kernel between two neighbours. Of fp8 and fp4 1.5 to
// 2.5 and 6 to 11 %.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "schedule/program.h"

namespace dovetail::models {

struct MeasuredGemm {
  std::array<double, 3> extents{};  // m, n, k
  double us = 0;
};

// Rows of "m,n,k,us" behind a line of names. Throws InputError with file and line.
std::vector<MeasuredGemm> read_gemms(const std::string& file, std::string_view text);

class GemmTable {
 public:
  GemmTable() = default;
  // REQUIRES: at least one row; extents and times above 0; no place twice.
  GemmTable(std::string device, const std::vector<MeasuredGemm>& rows);

  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] Duration time(const schedule::GemmWork& gemm) const;

 private:
  using Place = std::array<std::size_t, 3>;
  [[nodiscard]] std::size_t index(const Place& place) const;
  [[nodiscard]] double bare_us(const std::array<double, 3>& extents) const;
  void fill_holes();
  [[nodiscard]] double from_neighbours(const std::vector<double>& known, const Place& place) const;

  std::string device_;
  std::array<std::vector<double>, 3> axes_;  // logarithms, rising
  std::vector<double> quotients_;            // logarithms of measured / bare; NaN: not measured
  double shortest_us_ = 0, us_per_flop_ = 0, us_per_byte_ = 0;
};

// The shipped table of a GPU for products of these operands; null where there is none. Lives as long as the program.
const GemmTable* gemm_table(std::string_view device,
                            schedule::Operands operands = schedule::Operands::Own);
using GemmTables = std::map<schedule::Operands, const GemmTable*>;
// All of a GPU; empty where there are none.
GemmTables gemm_tables(std::string_view device);
// Those with a table of bf16.
std::vector<std::string> gemm_devices();

}  // namespace dovetail::models
