// The work of a part of an op: bytes, operations and measured times shrink in proportion.
//
// Good for memory-bound work such as elementwise updates, and for repetitions of one product of
// matrices, with which a machine stands in for measured times: a part has fewer of them, one at
// least. It leaves out the fixed cost of a kernel, which the costs of a machine add to every op.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <cstdint>

namespace dovetail::schedule {

struct Share {  // part / whole of an op
  std::int64_t part = 1;
  std::int64_t whole = 1;
};

// Adds up parts of the work of several ops, all of one kind: memory-bound, in one kernel or one of several after another, timed, or
// repetitions of the same product.
class WorkSum {
 public:
  // False, and nothing is added, where the part of such work is not known (communication) or does not
  // fit to what was added before. REQUIRES: share.whole > 0.
  [[nodiscard]] bool add(const Work& work, Share share);
  [[nodiscard]] const Work& total() const { return total_; }

 private:
  bool add_product(const GemmWork& work, Share share);
  bool add_kernels(const KernelsWork& work, Share share);

  bool empty_ = true;
  Work total_ = MemoryWork{};
  double repetitions_ = 0;  // of a product
};

}  // namespace dovetail::schedule
