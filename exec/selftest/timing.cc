// Checks whether this machine's clock and speed are such that a measurement can mean anything.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/clock.h"
#include "exec/cpu/kernels.h"
#include "exec/selftest/cpu.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <span>
#include <sstream>

namespace dovetail::exec::selftest {
namespace {

// No core does more: two fused multiply-adds of 16 floats per cycle, at 6 GHz.
constexpr double kMostGflops = 64 * 6.0;
constexpr std::int64_t kCoarsestClockNs = 10'000;

Outcome clock_outcome() {
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = now_ns();
  for (int i = 0; i < 10'000; ++i) {
    const std::int64_t now = now_ns();
    if (now < last) return fail("it went backwards");
    if (now > last) smallest = std::min(smallest, now - last);
    last = now;
  }
  const std::string words = "smallest step " + std::to_string(smallest) + " ns";
  return smallest <= kCoarsestClockNs ? pass(words) : fail(words + ", too coarse");
}

Outcome speed_outcome() {
  schedule::GemmWork chain = cpu::kUnitGemm;
  chain.count = 20;
  schedule::Op op;
  op.name = "self-test";
  op.work = chain;
  cpu::Workspace workspace;
  const schedule::Op* const one = &op;
  cpu::reserve(std::span(&one, 1), workspace);
  cpu::run_gemm(chain, workspace);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < 5; ++i) {
    const std::int64_t start = now_ns();
    cpu::run_gemm(chain, workspace);
    best = std::min(best, now_ns() - start);
  }
  const double gflops = op.flop().count() / static_cast<double>(std::max<std::int64_t>(best, 1));
  std::ostringstream words;
  words << std::fixed << std::setprecision(1) << gflops << " GFLOP/s in f32 on one core";
  if (gflops <= 0 || gflops > kMostGflops) return fail(words.str() + ", which no core reaches");
  return pass(words.str());
}

}  // namespace

std::vector<Row> timing_rows() {
  return {row_of({"cpu", "clock"}, clock_outcome),
          row_of({"cpu", "matrix product"}, speed_outcome)};
}

}  // namespace dovetail::exec::selftest
