// The vendors' peak rates of GPUs, and the patterns that find a GPU by the name that its driver
// gives it.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/gpus.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace dovetail::imports {
namespace {

// What must stand in the driver's name, in small letters; all of it.
struct Pattern {
  std::array<std::string_view, 2> words;
  Gpu gpu;
};

constexpr std::string_view kNoTf32 = "there is no TF32";
constexpr std::string_view kMatrixF32 = "f32 is the FP32 matrix rate";

// In whole MiB.
constexpr Bytes hundredths_of_gib(std::int64_t n) { return mib((n * 1024 + 50) / 100); }

constexpr Gpu kA100Sxm40 = {"a100-sxm-40", 19.5, 156, 312, 1555, hundredths_of_gib(3950)};
constexpr Gpu kA100Sxm80 = {"a100-sxm-80", 19.5, 156, 312, 2039, hundredths_of_gib(7915)};
constexpr Gpu kA100Pcie40 = {"a100-pcie-40", 19.5, 156, 312, 1555, hundredths_of_gib(3950)};
constexpr Gpu kA100Pcie80 = {"a100-pcie-80", 19.5, 156, 312, 1935, hundredths_of_gib(7915)};
constexpr Gpu kV100 = {"v100", 15.7, 0, 125, 900, {}, false, kNoTf32};
constexpr Gpu kH100Sxm = {"h100-sxm", 67, 495, 989, 3350, hundredths_of_gib(7911)};
constexpr Gpu kH100Pcie = {"h100-pcie", 51, 378, 756, 2000, hundredths_of_gib(7911)};
constexpr Gpu kGh200 = {"gh200", 67, 495, 989, 4000, hundredths_of_gib(9450)};
constexpr Gpu kH200 = {"h200", 67, 495, 989, 4800, hundredths_of_gib(13980)};
constexpr Gpu kB200 = {"b200", 75, 1125, 2250, 8000, hundredths_of_gib(17835)};
constexpr Gpu kGb200 = {"gb200", 80, 1250, 2500, 8000, hundredths_of_gib(18431)};
constexpr Gpu kL40s = {"l40s", 91.6, 183, 362, 864, hundredths_of_gib(4439)};
constexpr Gpu kH20 = {"h20", 44, 74, 148, 4000, hundredths_of_gib(9500)};
constexpr Gpu kMi250x = {"mi250x", 47.9,    0,    191.5,
                         1638,     gib(64), true, kMatrixF32};  // one of its two dies
constexpr Gpu kMi300x = {"mi300x", 163.4, 0, 1307, 5300, gib(192), true, kMatrixF32};

// The first match decides: "gh200" before "h200", "h200" before "h20".
constexpr std::array kPatterns = {
    Pattern{{"a100", "sxm4-40"}, kA100Sxm40},
    Pattern{{"a100", "sxm4-80"}, kA100Sxm80},
    Pattern{{"a100", "pcie-40"}, kA100Pcie40},
    Pattern{{"a100", "80gb pcie"}, kA100Pcie80},
    Pattern{{"a100", "pcie-80"}, kA100Pcie80},
    Pattern{{"a800", "sxm4-80"}, kA100Sxm80},
    Pattern{{"v100", ""}, kV100},
    Pattern{{"gh200", ""}, kGh200},
    Pattern{{"gb200", ""}, kGb200},
    Pattern{{"b200", ""}, kB200},
    Pattern{{"h200", ""}, kH200},
    Pattern{{"h20", ""}, kH20},
    Pattern{{"h100", "pcie"}, kH100Pcie},
    Pattern{{"h100", ""}, kH100Sxm},
    Pattern{{"h800", "pcie"}, kH100Pcie},
    Pattern{{"h800", ""}, kH100Sxm},
    Pattern{{"l40s", ""}, kL40s},
    Pattern{{"mi250x", ""}, kMi250x},
    Pattern{{"mi300x", ""}, kMi300x},
};

}  // namespace

std::optional<Gpu> find_gpu(std::string_view device) {
  std::string small(device);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Pattern& pattern : kPatterns) {
    const bool all = std::ranges::all_of(pattern.words, [&](std::string_view word) {
      return small.find(word) != std::string::npos;
    });
    if (all) return pattern.gpu;
  }
  return std::nullopt;
}

std::optional<Gpu> gpu_named(std::string_view name) {
  for (const Pattern& pattern : kPatterns) {
    if (pattern.gpu.name == name) return pattern.gpu;
  }
  return std::nullopt;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const Pattern& pattern : kPatterns) names.emplace_back(pattern.gpu.name);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

models::NcclGpu nccl_gpu(std::string_view device) {
  const std::optional<Gpu> gpu = find_gpu(device);
  const std::string_view name = gpu ? gpu->name : "";
  if (name.starts_with("v100")) return models::NcclGpu::Volta;
  if (name.starts_with("a100") || name == "l40s") return models::NcclGpu::Ampere;
  if (name == "b200" || name == "gb200") return models::NcclGpu::Blackwell;
  return models::NcclGpu::Hopper;
}

models::Roofline roofline_of(const Gpu& gpu) {
  using schedule::DType;
  models::Roofline roofline;
  roofline.gemm_peak[DType::F32] = FlopPerSecond(gpu.f32_tflop_s * 1e12);
  if (gpu.tf32_tflop_s > 0)
    roofline.narrow_peak[schedule::Operands::Tf32] = FlopPerSecond(gpu.tf32_tflop_s * 1e12);
  roofline.gemm_peak[DType::F16] = FlopPerSecond(gpu.half_tflop_s * 1e12);
  if (gpu.has_bf16) roofline.gemm_peak[DType::BF16] = FlopPerSecond(gpu.half_tflop_s * 1e12);
  roofline.efficiency = 0.5;
  const std::string_view device = gpu.name.substr(0, gpu.name.find("-sxm"));
  models::take_tables(roofline, device);
  roofline.memory = BytesPerSecond(gpu.memory_gb_s * 1e9);
  if (gpu.memory > Bytes{}) roofline.capacity = gpu.memory;
  return roofline;
}

}  // namespace dovetail::imports
