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
// What is understood besides: any tag of a launcher before a line or inside a row (log_lines.h), noise between lines
// and in the middle of a row, several runs in one file, windows line ends, a run that was cut off. The collective is
// taken from the program's name where the log has it, else from the columns: a ratio busbw / algbw of 2 (n - 1) / n
// is an all-reduce, of (n - 1) / n with a reduction a reduce-scatter. The ranks are counted in the lines "Rank";
// where these are absent they follow from that ratio, and the nodes are unknown. As time is printed with more digits
// than algbw, size / time stands for it where the two agree: 15.29 and 29.63 GB/s are of 31 to 33 ranks, 1 GiB in
// 70207 us at 29.63 GB/s is of 32.
//
// Rows without the lines that begin a run (grep, a table put together by hand) may be of any number of runs: a
// run ends where the sizes begin anew or stand still, where another type or reduction begins, where the ratio
// changes, and where grep names another file. Runs of one collective over equally many ranks are repetitions if
// their times are within a factor of 1.5 of each other; else they are of different machines or settings, and all
// of them are left out by name: their mean is the time of neither.
//
// Times are per collective of a queue (nccl-tests launches many and divides); with blocking (-z) each
// ran alone. In place is taken, as gradients are reduced in place, out of place where that is all there is.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/logs/collective_log.h"
#include "calibrate/logs/repetitions.h"
#include "recordings/text.h"

#include <cstdint>
#include <optional>
#include <span>
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

// Text or JSON, by what is in it. Throws InputError where a file holds no usable row, where it is of a form that is
// known and not read, where a run's collective or ranks cannot be known, or where numbers contradict each other.
CollectiveLog read_nccl_tests(std::span<const Source> files, const NcclTestsOptions& options = {});

// One run of one test program, before it is judged: what both forms have in common.
struct NcclTestsRow {
  std::size_t line = 0;  // of a text
  std::string origin{};  // "a.log:", which grep put before the row; "": nothing
  std::int64_t bytes = 0;
  std::string dtype{}, redop{};
  std::int64_t root = -1;
  struct Times {
    double us = 0, algbw = 0, busbw = 0;
    double us_error = 5e-7, algbw_error = 5e-7, busbw_error = 5e-7;  // half of the last digit
    bool is_checked = true;
    bool is_wrong = false;  // values were checked, and some were not right
  };
  std::optional<Times> out_of_place{}, in_place{};
};
struct NcclTestsRun {
  std::string place{};
  std::string program{};                // "all_reduce_perf"; "": unknown
  std::optional<std::int64_t> ranks{};  // of one group
  std::int64_t groups = 1;              // that ran at the same time
  std::optional<std::int64_t> nodes{};
  std::string gpu{};
  bool has_head = false;  // lines before the rows say that they are of one run
  bool is_blocking = false;
  bool is_cpu_time = false;
  std::vector<NcclTestsRow> rows{};
  std::vector<std::string> remarks{};  // rows that have no usable number, one line each
  std::string verdict{};               // "Out of bounds values : 3 FAILED", where it ended so
};

// Rows of one run, judged: of one collective over one number of ranks.
struct NcclTestsPart {
  std::string file{}, place{};
  schedule::Collective collective = schedule::Collective::AllReduce;
  std::int64_t ranks = 1;
  std::string ranks_by{};  // how the ranks are known, if not by the run's own lines
  std::optional<std::int64_t> nodes{};
  std::string gpu{};
  bool is_blocking = false;
  std::int64_t groups = 1;
  bool is_bare = false;           // of rows without lines that say of which run they are
  std::size_t other_buffers = 0;  // rows that had no time of the wanted buffers
  std::vector<TimedSize> samples{};
};

// The JSON of -J: one run. Sets `log`'s versions. nccl_tests_json.cc.
NcclTestsRun read_nccl_tests_json(const std::string& name, std::string_view text,
                                  CollectiveLog& log);

// 2.21.5 from NCCL_VERSION_CODE 22105 (before 2.9: 2804 for 2.8.4); "" from 0 and less.
std::string nccl_version(std::int64_t code);

// The parts of one run; what cannot be used of it is told in `log`. nccl_tests_run.cc.
std::vector<NcclTestsPart> parts_of(const std::string& file, const NcclTestsRun& run,
                                    const NcclTestsOptions& options, CollectiveLog& log);

// The samples of all parts that do not contradict each other, and what was read or left out. nccl_tests_parts.cc.
void add_parts(std::vector<NcclTestsPart> parts, const NcclTestsOptions& options,
               CollectiveLog& log);

}  // namespace dovetail::imports
