// Finds measured kernels by exactly what they compute: name, element type and work are one key. How f32 is multiplied is
// not part of it: a kernel was measured as the machine multiplied f32 on that day, in tensor cores or not.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/kernel_table.h"

#include "base/error.h"
#include "schedule/visit.h"

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

schedule::Operands measured_operands(schedule::Operands operands) {
  return operands == schedule::Operands::Tf32 ? schedule::Operands::Own : operands;
}

// Sizes stay far below 2^53, so doubles hold them exactly and compare as the integers they are. Empty: none.
std::vector<double> key_of(schedule::DType dtype, const schedule::Work& work) {
  const std::vector<schedule::Kernel> kernels = schedule::kernels_of(work);
  if (kernels.empty()) return {};
  std::vector<double> key = {static_cast<double>(dtype), static_cast<double>(work.index())};
  for (const schedule::Kernel& kernel : kernels) {
    key.push_back(static_cast<double>(kernel.index()));
    schedule::visit(
        kernel,
        [&key](const schedule::GemmWork& gemm) {
          for (const std::int64_t extent : {gemm.m, gemm.n, gemm.k, gemm.count}) {
            key.push_back(static_cast<double>(extent));
          }
          key.push_back(static_cast<double>(measured_operands(gemm.operands)));
        },
        [&key](const schedule::MemoryWork& memory) {
          key.push_back(static_cast<double>(memory.bytes.count()));
          key.push_back(memory.flop.count());
        });
  }
  return key;
}

}  // namespace

KernelTable::KernelTable(std::vector<MeasuredKernel> kernels, std::optional<UnitKernel> unit)
    : kernels_(std::move(kernels)), unit_(unit) {
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const MeasuredKernel& kernel = kernels_[i];
    auto place =
        std::visit([&](const auto& work) { return key_of(kernel.dtype, work); }, kernel.work);
    const bool is_new = places_.emplace(Key{kernel.op, std::move(place)}, i).second;
    DOVETAIL_CHECK(is_new) << "a kernel was measured twice";
  }
}

bool KernelTable::is_alike(const MeasuredKernel& one, const MeasuredKernel& other) {
  const auto key = [](const MeasuredKernel& kernel) {
    return std::visit([&](const auto& work) { return key_of(kernel.dtype, work); }, kernel.work);
  };
  return key(one) == key(other);
}

const MeasuredKernel* KernelTable::at(std::string name, const schedule::Op& op) const {
  if (kernels_.empty()) return nullptr;
  std::vector<double> place = key_of(op.dtype, op.work);
  if (place.empty()) return nullptr;
  const auto entry = places_.find({std::move(name), std::move(place)});
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
  once.operands = measured_operands(once.operands);
  once.separate = unit_->gemm.separate;
  once.convolution = std::nullopt;
  if (once != unit_->gemm) return std::nullopt;
  const std::int64_t repetitions = gemm->count / unit_->gemm.count;
  return stretched(unit_->time, static_cast<double>(repetitions));
}

std::optional<Duration> KernelTable::time(const schedule::Op& op) const {
  if (const MeasuredKernel* kernel = find(op)) return kernel->time;
  return repetitions(op);
}

}  // namespace dovetail::models
