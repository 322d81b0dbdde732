// Logs of nccl-tests (and rccl-tests): what all_reduce_perf and its siblings print, or write with -J.
//
//   # nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007
//   # Collective test starting: all_reduce_perf
//   # nThread 1 nGpus 8 minBytes 8388608 maxBytes 1073741824 step: 2(factor) warmup iters: 1 ...
//   # Using devices
//   #  Rank  0 Group  0 Pid  37300 on     node0 device  0 [0000:05:00] NVIDIA H100 80GB HBM3
//   #                                                    out-of-place                in-place
//   #   size      count   type  redop   root     time   algbw   busbw #wrong     time   algbw ...
//       8388608  2097152  float   sum     -1    91.10   92.08  161.14      0    94.94   88.36 ...
//
// Source of the format: github.com/NVIDIA/nccl-tests at a0b82b2 (2.19.6): src/util.cu
// (writeDeviceReport, writeResultHeader, writeBenchmarkLineBody; JSON version 3), src/common.cu
// (reported size: the larger of what is sent and what is received). Older forms are read by their
// header line: without the column root, with "error" for "#wrong", with "cputime", with -I's four
// columns per iteration, with a time stamp at the end.
//
// What is understood besides: any prefix of a launcher before a line ("[1,0]<stdout>:", "0: ", a time
// stamp), noise between lines, several runs in one file (each "nThread" line begins one), windows line
// ends, a run that was cut off. The collective is taken from the program's name where the log has it, else
// from the columns: a ratio busbw / algbw of 2 (n - 1) / n is an all-reduce, of (n - 1) / n with a
// reduction a reduce-scatter. The ranks are counted in the lines "Rank"; where these are absent they
// follow from that ratio.
//
// Times are per collective of a queue (nccl-tests launches many and divides); with blocking (-z) each
// ran alone. In place is taken, as gradients are reduced in place, out of place where that is all there is.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "imports/collective_log.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

enum class Buffers { InPlace, OutOfPlace };

struct NcclTestsOptions {
  Buffers buffers = Buffers::InPlace;
  // Of logs that do not say it. Absent: it must follow from the log.
  std::optional<schedule::Collective> collective{};
  std::optional<std::int64_t> ranks{};
};

// Text or JSON, by its first character. Throws InputError where the file holds no usable row, where a
// run's collective or ranks cannot be known, or where its numbers contradict what it says of itself.
CollectiveLog read_nccl_tests(const std::string& name, std::string_view text,
                              const NcclTestsOptions& options = {});

// One run of one test program, before it is judged: what both forms have in common.
struct NcclTestsRow {
  std::string place{};  // "line 12" or a JSON path
  std::int64_t bytes = 0;
  std::string dtype{}, redop{};
  std::int64_t root = -1;
  struct Times {
    double us = 0, algbw = 0, busbw = 0;
    bool is_wrong = false;  // values were checked, and some were not right
  };
  std::optional<Times> out_of_place{}, in_place{};
};
struct NcclTestsRun {
  std::string place{};
  std::string program{};                // "all_reduce_perf"; "": unknown
  std::optional<std::int64_t> ranks{};  // of one group
  std::int64_t groups = 1;              // that ran at the same time
  std::int64_t nodes = 1;
  std::string gpu{};
  bool is_blocking = false;
  bool is_cpu_time = false;
  std::vector<NcclTestsRow> rows{};
  std::vector<std::string> remarks{};  // rows that have no usable number, one line each
};

// The JSON of -J: one run. Sets `log`'s versions. nccl_tests_json.cc.
NcclTestsRun read_nccl_tests_json(const std::string& name, std::string_view text,
                                  CollectiveLog& log);

// 2.21.5 from NCCL_VERSION_CODE 22105 (before 2.9: 2804 for 2.8.4); "" from 0 and less.
std::string nccl_version(std::int64_t code);

// The samples of one run, and what was read or left out. nccl_tests_run.cc.
void add_run(const std::string& name, const NcclTestsRun& run, const NcclTestsOptions& options,
             CollectiveLog& log);

}  // namespace dovetail::imports
