// dovetail selftest: what this build is, what this machine has, and whether both work.
//
//   dovetail 0.1.0 selftest: build x86-64, g++ 12.2.0; HOST, AMD EPYC, 2 cores
//   part     check                             verdict  what was seen
//   build    CUDA module                       pass     CUDA 13.0, sm 80 90 100, NCCL 2.28.9
//   cpu      all-reduce, sum over ring         pass     1, 2, 3 and 4 ranks, f32, ... 0 wrong
//   cuda     devices                           skipped  the cuda backend finds no usable GPU: ...
//   41 passed, 0 failed, 9 skipped
//
// Missing hardware is a skipped row that says what is missing; a failed row makes the exit code 3.
//
// Some checks need ranks that are processes: the tool then starts itself, once per rank, with the
// hidden option --as-rank, under a deadline; rank 0 prints its rows as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "cli/document.h"
#include "exec/launch/local_processes.h"
#include "exec/selftest/row.h"

namespace dovetail::cli {

struct SelftestOptions {
  std::string backend = "all";  // cpu, cuda or all
  std::string cuda_module;      // path; empty: beside the executable
  std::string as_rank;          // cpu, nccl or nccl-one-gpu: one rank of a check
  DocumentOptions document;
  std::string data_dir;                          // of the shipped clusters
  std::string largest = "256MiB";                // of the all-reduces of GPUs
  Duration deadline = std::chrono::seconds(60);  // of each check that starts processes
};

// 0, or 3 when a row failed.
int selftest(const SelftestOptions& options, std::ostream& out);

// The rows to where the options say, else as text; and as JSON (dovetail.selftest/1).
void put_rows(const DocumentOptions& options, const std::vector<exec::selftest::Row>& rows,
              std::ostream& out);
std::string rows_to_json(const std::vector<exec::selftest::Row>& rows);
// What rank 0 printed. Throws InputError when it is something else.
std::vector<exec::selftest::Row> rows_from_json(std::string_view text);

// The rows of a check on processes; or one failed row that says how they ended.
std::vector<exec::selftest::Row> rows_of_processes(const exec::selftest::Title& title,
                                                   const exec::launch::ProcessesOptions& options);

}  // namespace dovetail::cli
