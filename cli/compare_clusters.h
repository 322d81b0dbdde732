// dovetail compare of two machines, shipped ones or files: the bus bandwidth of each collective, world and size, and its ratio.
//
//   all-reduce over 8 ranks
//     size   before.json GB/s  today.json GB/s  ratio
//     1 MiB             52.43            51.90   0.99
//     8 MiB            104.86            79.00   0.75
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>

#include "cli/compare.h"

namespace dovetail::cli {

// Whether both are names or files of clusters. Throws InputError where one of them is, and the other no cluster.
bool are_clusters(const CompareOptions& options);

// Throws InputError for options that are about traces, and where no table is in both.
void compare_clusters(const CompareOptions& options, std::ostream& out);

}  // namespace dovetail::cli
