// Logs as nccl-tests prints them, made of times: the printf formats of its src/util.cu (2.19.6).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace dovetail::imports {

// getFloatStr of src/util.cu: as many digits after the point as fit, at most two.
inline std::string float_text(double value, int width) {
  std::array<char, 64> text{};
  for (const int digits : {2, 1, 0}) {
    if (std::snprintf(text.data(), text.size(), "%*.*f", width, digits, value) <= width) break;
  }
  return text.data();
}

struct LogRow {
  std::int64_t bytes = 0;
  double out_us = 0, in_us = 0;
  std::string wrong = "0";
};

struct LogForm {
  int ranks = 8;
  int per_node = 8;
  double factor = 1.75;  // busbw / algbw
  std::string program = "all_reduce_perf";
  bool names_program = true;
  std::string redop = "sum";
  int root = -1;
  std::string prefix{};  // of every line
  std::string inside{};  // what a launcher or other threads write between the pieces of a row
  std::string gpu = "NVIDIA H100 80GB HBM3";
};

inline std::string body_text(std::int64_t bytes, double us, const LogForm& form,
                             const std::string& wrong) {
  const double algbw = static_cast<double>(bytes) / us / 1e3;
  std::string text = "  " + float_text(us, 7) + "  " + float_text(algbw, 6) + "  " +
                     float_text(algbw * form.factor, 6) + "  ";
  return text + std::string(wrong.size() < 6 ? 6 - wrong.size() : 0, ' ') + wrong;
}

inline std::string row_text(const LogRow& row, const LogForm& form) {
  std::array<char, 128> lead{};
  std::snprintf(lead.data(), lead.size(), "%12lld  %12lld  %8s  %6s  %6d",
                static_cast<long long>(row.bytes), static_cast<long long>(row.bytes / 4), "float",
                form.redop.c_str(), form.root);
  return lead.data() + form.inside + body_text(row.bytes, row.out_us, form, row.wrong) +
         form.inside + body_text(row.bytes, row.in_us, form, row.wrong);
}

inline std::string log_text(const std::vector<LogRow>& rows, const LogForm& form) {
  std::string text;
  const auto line = [&](const std::string& content) { text += form.prefix + content + "\n"; };
  if (form.names_program) {
    line("# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=22803");
    line("# Collective test starting: " + form.program);
  }
  line(
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: "
      "20 "
      "agg iters: 1 validation: 1 graph: 0 unalign: 0");
  line("#");
  line("# Using devices");
  for (int rank = 0; rank < form.ranks; ++rank) {
    std::array<char, 256> device{};
    std::snprintf(device.data(), device.size(),
                  "#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:%02x:00] %s", rank, 0,
                  37300 + rank, ("node" + std::to_string(rank / form.per_node)).c_str(),
                  rank % form.per_node, rank % form.per_node + 16, form.gpu.c_str());
    line(device.data());
  }
  line("#");
  line(
      "#                                                              out-of-place                 "
      "   "
      "   in-place          ");
  line(
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
      "time "
      "  algbw   busbw #wrong ");
  line(
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            "
      "(us) "
      " (GB/s)  (GB/s)       ");
  for (const LogRow& row : rows) line(row_text(row, form));
  line("# Out of bounds values : 0 OK");
  line("# Avg bus bandwidth    : 100.0 ");
  return text;
}

// Times that the formats above print exactly, from 8 KiB to 1 GiB.
inline std::vector<LogRow> some_rows() {
  std::vector<LogRow> rows;
  for (std::int64_t bytes = 8192; bytes <= (std::int64_t{1} << 30); bytes *= 2) {
    const double in_us = 20.25 + static_cast<double>(bytes >> 13) / 16;
    rows.push_back({bytes, in_us + 1, in_us < 1000 ? in_us : static_cast<double>(int(in_us))});
  }
  return rows;
}

}  // namespace dovetail::imports
