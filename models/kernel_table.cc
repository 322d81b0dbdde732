// Finds measured kernels by exactly what they compute: name, element type and work are one key.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/kernel_table.h"

#include "base/error.h"

#include <string_view>
#include <utility>
#include <variant>

namespace dovetail::models {
namespace {

// "fc1.forward@2" -> "fc1.forward"; names that end otherwise stay.
std::string without_micro_step(std::string_view name) {
  const std::size_t at = name.rfind('@');
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  if (at == std::string_view::npos || at + 1 == name.size()) return std::string(name);
  for (const char letter : name.substr(at + 1)) {
    if (!is_digit(letter)) return std::string(name);
  }
  return std::string(name.substr(0, at));
}

}  // namespace

// Sizes stay far below 2^53, so doubles hold them exactly and compare as the integers they are.
std::array<double, 6> KernelTable::key(schedule::DType dtype, const schedule::GemmWork& work) {
  return {static_cast<double>(dtype),  0,
          static_cast<double>(work.m), static_cast<double>(work.n),
          static_cast<double>(work.k), static_cast<double>(work.count)};
}

std::array<double, 6> KernelTable::key(schedule::DType dtype, const schedule::MemoryWork& work) {
  return {static_cast<double>(dtype), 1, static_cast<double>(work.bytes.count()),
          work.flop.count(),          0, 0};
}

KernelTable::KernelTable(std::vector<MeasuredKernel> kernels, std::optional<UnitKernel> unit)
    : kernels_(std::move(kernels)), unit_(unit) {
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const MeasuredKernel& kernel = kernels_[i];
    const auto place =
        std::visit([&](const auto& work) { return key(kernel.dtype, work); }, kernel.work);
    const bool is_new = places_.emplace(Key{kernel.op, place}, i).second;
    DOVETAIL_CHECK(is_new) << "a kernel was measured twice";
  }
}

const MeasuredKernel* KernelTable::at(std::string name, const schedule::Op& op) const {
  std::array<double, 6> place{};
  if (const auto* gemm = std::get_if<schedule::GemmWork>(&op.work)) {
    place = key(op.dtype, *gemm);
  } else if (const auto* memory = std::get_if<schedule::MemoryWork>(&op.work)) {
    place = key(op.dtype, *memory);
  } else {
    return nullptr;
  }
  const auto entry = places_.find({std::move(name), place});
  return entry == places_.end() ? nullptr : &kernels_[entry->second];
}

const MeasuredKernel* KernelTable::find_named(const schedule::Op& op) const {
  return kernels_.empty() ? nullptr : at(without_micro_step(op.name), op);
}

const MeasuredKernel* KernelTable::find(const schedule::Op& op) const {
  if (const MeasuredKernel* kernel = find_named(op)) return kernel;
  return at(std::string(), op);
}

std::optional<Duration> KernelTable::repetitions(const schedule::Op& op) const {
  const auto* gemm = std::get_if<schedule::GemmWork>(&op.work);
  if (gemm == nullptr || !unit_ || op.dtype != unit_->dtype) return std::nullopt;
  schedule::GemmWork once = *gemm;
  once.count = unit_->gemm.count;
  if (once != unit_->gemm) return std::nullopt;
  const std::int64_t repetitions = gemm->count / unit_->gemm.count;
  return stretched(unit_->time, static_cast<double>(repetitions));
}

std::optional<Duration> KernelTable::time(const schedule::Op& op) const {
  if (const MeasuredKernel* kernel = find(op)) return kernel->time;
  return repetitions(op);
}

}  // namespace dovetail::models
