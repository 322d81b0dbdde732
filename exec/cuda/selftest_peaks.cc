// The physical peak rates of known GPUs, against which the self-test holds its figures. It needs
// no CUDA, so that it is tested everywhere.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/selftest_peaks.h"

#include <array>

namespace dovetail::exec::cuda {
namespace {

struct ChipPeaks {
  std::string_view part_of_name;
  PhysicalPeaks peaks;
};

// The first entry whose word stands in the name; longer names before shorter ones.
constexpr std::array<ChipPeaks, 14> kChipPeaks = {{
    {"GB200", {2500, 1250, 80, 8000}},
    {"GH200", {989.5, 494.7, 66.9, 4900}},
    {"B200", {2250, 1125, 80, 8000}},
    {"H200", {989.5, 494.7, 66.9, 4800}},
    {"H100 PCIe", {756, 378, 51.2, 2040}},
    {"H100 NVL", {835, 417, 60, 3940}},
    {"H100", {989.5, 494.7, 66.9, 3360}},
    {"H800", {989.5, 494.7, 66.9, 3360}},
    {"A100", {312, 156, 19.5, 2040}},
    {"A800", {312, 156, 19.5, 2040}},
    {"A30", {165, 82, 10.3, 934}},
    {"L40S", {362, 183, 91.6, 864}},
    {"A10", {125, 62.5, 31.2, 600}},
    {"L4", {121, 60, 30.3, 300}},
}};

}  // namespace

std::optional<PhysicalPeaks> physical_peaks(std::string_view device_name) {
  for (const ChipPeaks& entry : kChipPeaks) {
    const std::size_t at = device_name.find(entry.part_of_name);
    if (at == std::string_view::npos) continue;
    // A whole word: "A10" is not in "A100", "L4" not in "L40".
    const std::size_t end = at + entry.part_of_name.size();
    const bool goes_on =
        end < device_name.size() && device_name[end] != ' ' && device_name[end] != '-';
    if (!goes_on) return entry.peaks;
  }
  return std::nullopt;
}

}  // namespace dovetail::exec::cuda
