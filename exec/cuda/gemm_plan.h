// How the products of one GEMM op are cut into cuBLAS calls.
//
// `count` products of one shape run as strided batches with memory of their own, so that they do
// not find each other's operands in the cache; more than kBatchBytes of operands are not kept: then
// the batch repeats.
//
//   count 1                    1 call of 1
//   count 12, 40 MiB each      2 calls of 6, as 6 x 40 MiB fit into 256 MiB
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/array.h"
#include "schedule/program.h"

#include <algorithm>
#include <cstdint>

namespace dovetail::exec::cuda {

// What NVIDIA recommends for sm_90; smaller devices use less of it.
inline constexpr Bytes kGemmWorkspace = Bytes(std::int64_t{32} << 20);
inline constexpr std::int64_t kBatchBytes = std::int64_t{256} << 20;

struct GemmBatches {
  std::int64_t batch = 1;  // products per call
  std::int64_t calls = 1;  // of `batch` products
  std::int64_t rest = 0;   // products of one more call
};
GemmBatches batches_of(const schedule::GemmWork& work, Element element);

// Elements of each operand that the op's calls touch.
struct GemmRoom {
  std::int64_t a = 0, b = 0, c = 0;
};
GemmRoom room_of(const schedule::GemmWork& work, Element element);
// Room for either.
inline GemmRoom wider(const GemmRoom& one, const GemmRoom& other) {
  return {
      .a = std::max(one.a, other.a), .b = std::max(one.b, other.b), .c = std::max(one.c, other.c)};
}

}  // namespace dovetail::exec::cuda
