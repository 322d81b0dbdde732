// How long an op takes on a machine, by rules: what a cluster file or a profile knows about kernels,
// passes over memory and peak rates.
//
//   const OpModel model = op_model(cluster, program.world_size);
//   model.price(op).by_class     // one entry: the same on all ranks
//
// The first rule that knows a time gives it: the op itself (timed work), the measured kernel with its
// name and work, the line of its kind of pass (passes.h; added to the kernel of a sharded update that
// repeats a product), a measured kernel with its work, the unit kernel, the roofline, the copy model.
//
// Kernels and passes are medians over steps and ranks; a synchronous step takes longer than its
// medians add up to, because in each step some op is late on some rank and the others wait. So they
// are stretched by the skew that the calibration saw in steps without communication. Leaves out that
// ranks which wait for each other more than once per step wait more.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "models/rates/attention_table.h"
#include "models/rates/convolution_rates.h"
#include "models/rates/gemm_table.h"
#include "models/rates/kernel_table.h"
#include "models/rates/memory_rates.h"
#include "models/rates/passes.h"
#include "models/rates/product_rates.h"
#include "models/rates/spread.h"
#include "schedule/program.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::models {

using dovetail::to_string;

// Kernels of one class suffer alike from a collective beside them. Other: timed work, of which only
// the duration is known.
enum class KernelClass { Gemm, Memory, Other };
constexpr auto words_of(KernelClass) { return words("gemm", "memory", "other"); }
KernelClass kernel_class(const schedule::Op& op);

// Duration of an op nobody measured, from two peaks:
//   max(flop / (efficiency * gemm_peak), bytes / (0.8 * memory)) + kernel_overhead
// `bytes` is the least traffic, every operand once. 0.8: a copy reaches 75..85 % of a memory's
// nominal rate. Good to 14..50 % per kernel; leaves out shapes, waves and caches. Products of bf16 and f16 take their time
// from measured ones where there is a table for their operands (gemm_table.h), fused attention its own (attention_table.h), work whose
// Access is known the share that such kernels reach (memory_rates.h).
struct Roofline {
  std::map<schedule::DType, FlopPerSecond> gemm_peak;
  std::map<schedule::Operands, FlopPerSecond> narrow_peak = {};
  double efficiency = 1;  // in (0, 1]
  BytesPerSecond memory;
  Duration kernel_overhead{};                    // default 0
  std::optional<Bytes> capacity = std::nullopt;  // of the device's memory; absent: unknown
  GemmTables products = {};
  std::shared_ptr<const AttentionTable> attention = nullptr;  // of bf16 and f16; null: not measured
  std::shared_ptr<const MemoryRates> passes = nullptr;        // null: 0.8 for all of them
  std::shared_ptr<const ProductRates> others =
      nullptr;  // products that no grid holds; null: not measured
  std::shared_ptr<const ConvolutionRates> convolutions = nullptr;  // null: as products
  double table_factor = 1;      // of the times of `products`: of other machines' tables
  double products_stretch = 1;  // of the times of both

  // Whether the table has a product of the op.
  [[nodiscard]] bool has_measured(const schedule::Op& op) const;
  // Measured products of such an op; null where there are none.
  [[nodiscard]] const GemmTable* table(schedule::DType dtype, schedule::Operands operands) const;
  // Of an op with this element type and these operands; absent: the machine has no such units. Without a rate of tf32
  // that of f32 is taken.
  [[nodiscard]] std::optional<FlopPerSecond> peak(schedule::DType dtype,
                                                  schedule::Operands operands) const;
  // Of a product by itself; absent: by the peak.
  [[nodiscard]] std::optional<Duration> measured_product(const schedule::Op& op,
                                                         const schedule::GemmWork& gemm) const;
  // Of a convolution by itself; absent: as the product that it implies.
  [[nodiscard]] std::optional<Duration> measured_convolution(const schedule::Op& op,
                                                             const schedule::GemmWork& gemm) const;
  // How long its bytes take, computing left out.
  [[nodiscard]] Duration moving_time(const schedule::Op& op) const;
  friend bool operator==(const Roofline&, const Roofline&) = default;
};

// The tables of this GPU; without any the peaks stand alone.
void take_tables(Roofline& roofline, std::string_view device);

// One direction of a pack or unpack: fixed + ns_per_byte * bytes.
struct CopyModel {
  Duration fixed{};  // default 0
  double ns_per_byte = 0;

  [[nodiscard]] Duration time(Bytes bytes) const;
  friend bool operator==(const CopyModel&, const CopyModel&) = default;
};

// What one op costs.
struct OpCost {
  std::vector<Duration> by_class;     // per rank class (costs.h); one entry: the same on all ranks
  Spread spread = {};                 // of each entry over steps, as far as it was measured
  std::optional<Duration> host = {};  // to issue it; absent: HostModel::run_op for each kernel
  KernelClass kernel = KernelClass::Other;
  friend bool operator==(const OpCost&, const OpCost&) = default;
};

struct OpModel {
  std::string machine;  // for messages
  std::optional<Roofline> compute = {};
  KernelTable kernels = {};            // wins over `compute`
  std::optional<CopyModel> copy = {};  // of memory work that nothing else knows
  std::map<PassKind, PassModel> passes = {};
  double skew = 0;           // kernels and passes take 1 + skew their time
  double timed_stretch = 1;  // so does timed work, where the machine is the one it was measured on

  // Throws InputError when the op has no duration on this machine, or one of more than kLongestTime. An op that communicates takes no
  // time here: Costs::collective has it.
  [[nodiscard]] OpCost price(const schedule::Op& op) const;
  // Whether the op's time comes from the machine's peak rates or its table of products, not from a calibration.
  [[nodiscard]] bool uses_roofline(const schedule::Op& op) const;
  friend bool operator==(const OpModel&, const OpModel&) = default;

 private:
  struct Measured {
    Duration time{};
    Spread spread;
  };
  [[nodiscard]] OpCost by_rules(const schedule::Op& op) const;
  [[nodiscard]] std::optional<Measured> measured(const schedule::Op& op) const;
  [[nodiscard]] const PassModel* pass(const schedule::Op& op) const;
  [[nodiscard]] Duration roofline_time(const schedule::Op& op) const;
};

// Bytes that stream through memory, at the share of its nominal rate that they reach.
double seconds_to_move(const Roofline& roofline, Bytes bytes);

}  // namespace dovetail::models
