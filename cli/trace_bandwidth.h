// The bus bandwidth of a trace's collectives beside the shipped machine of its GPU:
//
//   collective       size  ranks  by itself   GB/s  h100x2
//   all-reduce   28.1 MiB      2   19.2 ms    1.5   301.2
//
// One line says where it is below half: the first thing to look at, before buckets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/text.h"
#include "recordings/timeline/rank_set.h"

namespace dovetail::cli {

struct BusRow {
  std::string collective;
  Bytes bytes;
  std::int64_t ranks = 0;
  Duration own{};
  double gb_s = 0;              // bus bandwidth as nccl-tests has it
  std::optional<double> other;  // of the machine
  std::string machine;          // "h100x2"; empty: none is to be laid beside
};

// Series with most time first, each by size. `data_dir` holds clusters/.
std::vector<BusRow> bus_rows(const imports::JobTrace& job, const std::string& data_dir);

// "" where no row of 1 MiB and more is below half of its machine's.
std::string slow_bus_sentence(const imports::JobTrace& job, const std::vector<BusRow>& rows);

// Nothing for no rows.
void print_bus(std::ostream& out, const std::vector<BusRow>& rows, const Detail& detail);

}  // namespace dovetail::cli
