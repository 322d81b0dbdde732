// How well tables of kernels tell kernels that they were not made of: data/gpu_single_kernels_h100.csv.
//
//   for (const HeldOut& one : held_out(folder, gpu)) one.kind, one.median, one.p95       // of |predicted / measured - 1|
//
// Kernels that were measured one by one, in ten folds: every tenth of a kind is left out in turn, tables are made of the others, and those
// left out are priced by them: a pass by the median rate of its access, type and columns, attention by that of its head size and tokens,
// or, where such are left out whole, by what lies between others. Fixed parts are the shipped ones. Passes over less than 20 MB are left out, and so are ops of several kernels and kernels of
// kinds that no op has.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/rates/op_model.h"

namespace dovetail::yardsticks {

struct HeldOut {
  std::string kind;  // "passes over memory"
  std::size_t kernels = 0;
  double median = 0, p95 = 0;
};

// Throws InputError with file and line. REQUIRES: the GPU has tables of passes and attention.
std::vector<HeldOut> held_out(const std::string& folder, const models::Roofline& gpu);

}  // namespace dovetail::yardsticks
