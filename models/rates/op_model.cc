// Prices an op by rules, tried from the most certain one (a time of its own) to the least certain
// one (peak rates of the device), and says which class of kernel it is.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/op_model.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

namespace dovetail::models {
namespace {

constexpr double kReachableMemory = 0.8;  // share of the nominal rate that streaming kernels reach

bool is_half(schedule::DType dtype) {
  return dtype == schedule::DType::BF16 || dtype == schedule::DType::F16;
}

}  // namespace

KernelClass kernel_class(const schedule::Op& op) {
  if (std::holds_alternative<schedule::GemmWork>(op.work)) return KernelClass::Gemm;
  if (std::holds_alternative<schedule::MemoryWork>(op.work)) return KernelClass::Memory;
  if (const auto* several = std::get_if<schedule::KernelsWork>(&op.work)) {
    const bool has_product =
        std::ranges::any_of(several->kernels, [](const schedule::Kernel& kernel) {
          return std::holds_alternative<schedule::GemmWork>(kernel);
        });
    return has_product ? KernelClass::Gemm : KernelClass::Memory;
  }
  return KernelClass::Other;
}

void take_tables(Roofline& roofline, std::string_view device) {
  roofline.products = gemm_tables(device);
  roofline.attention = attention_table(device);
  roofline.passes = roofline.products.empty() ? nullptr : memory_rates(device);
  roofline.others = product_rates(device);
  roofline.convolutions = roofline.products.empty() ? nullptr : convolution_rates(device);
}

Duration CopyModel::time(Bytes bytes) const {
  return fixed + from_us(ns_per_byte * static_cast<double>(bytes.count()) / 1e3);
}

double seconds_to_move(const Roofline& roofline, Bytes bytes) {
  return static_cast<double>(bytes.count()) / (kReachableMemory * roofline.memory.count());
}

Duration Roofline::moving_time(const schedule::Op& op) const {
  const auto* work = std::get_if<schedule::MemoryWork>(&op.work);
  const std::optional<MemoryRate> rate = passes != nullptr && work != nullptr
                                             ? passes->rate(work->access, op.dtype, work->columns)
                                             : std::nullopt;
  if (!rate) return from_us(seconds_to_move(*this, op.bytes()) * 1e6);
  const double bytes = static_cast<double>(op.bytes().count());
  return rate->fixed + from_us(1e6 * bytes / (rate->share * memory.count()));
}

const PassModel* OpModel::pass(const schedule::Op& op) const {
  const std::optional<PassKind> kind = pass_of(op);
  if (!kind) return nullptr;
  const auto found = passes.find(*kind);
  return found == passes.end() ? nullptr : &found->second;
}

bool OpModel::uses_roofline(const schedule::Op& op) const {
  return !std::holds_alternative<schedule::TimedWork>(op.work) &&
         !std::holds_alternative<schedule::CollectiveWork>(op.work) &&
         !kernels.time(op).has_value() &&
         (pass(op) == nullptr || std::holds_alternative<schedule::GemmWork>(op.work));
}

bool Roofline::has_measured(const schedule::Op& op) const {
  const std::vector<schedule::Kernel> kernels = schedule::kernels_of(op.work);
  return std::ranges::any_of(kernels, [&](const schedule::Kernel& kernel) {
    const auto* gemm = std::get_if<schedule::GemmWork>(&kernel);
    return gemm != nullptr && (table(op.dtype, gemm->operands) != nullptr ||
                               measured_convolution(op, *gemm).has_value());
  });
}

const GemmTable* Roofline::table(schedule::DType dtype, schedule::Operands operands) const {
  const auto found = is_half(dtype) ? products.find(operands) : products.end();
  return found == products.end() ? nullptr : found->second;
}

std::optional<FlopPerSecond> Roofline::peak(schedule::DType dtype,
                                            schedule::Operands operands) const {
  const auto in = [](const auto& rates, auto type) {
    const auto found = rates.find(type);
    return found == rates.end() ? std::nullopt : std::optional(found->second);
  };
  if (operands == schedule::Operands::Own) return in(gemm_peak, dtype);
  const std::optional<FlopPerSecond> narrow = in(narrow_peak, operands);
  return narrow || operands != schedule::Operands::Tf32 ? narrow : in(gemm_peak, dtype);
}

std::optional<Duration> Roofline::measured_convolution(const schedule::Op& op,
                                                       const schedule::GemmWork& gemm) const {
  using schedule::Operands;
  const bool is_tf32 = op.dtype == schedule::DType::F32 && gemm.operands == Operands::Tf32;
  const bool is_own = is_half(op.dtype) && gemm.operands == Operands::Own;
  if (convolutions == nullptr || !gemm.convolution || !(is_own || is_tf32)) return std::nullopt;
  const auto rate =
      convolutions->rate(*gemm.convolution, is_own ? ProductType::Half : ProductType::Tf32);
  const std::optional<FlopPerSecond> most = peak(op.dtype, gemm.operands);
  if (!rate || !most) return std::nullopt;
  schedule::Op one = op;
  one.work = gemm;
  const double moving =
      static_cast<double>(one.bytes().count()) / (rate->memory_share * memory.count());
  const double computing = one.flop().count() / (rate->flop_share * most->count());
  constexpr double kPower = 4;
  const double seconds =
      std::pow(std::pow(moving, kPower) + std::pow(computing, kPower), 1 / kPower);
  return from_us(1e6 * seconds * products_stretch);
}

std::optional<Duration> Roofline::measured_product(const schedule::Op& op,
                                                   const schedule::GemmWork& gemm) const {
  using schedule::Operands;
  if (const std::optional<Duration> known = measured_convolution(op, gemm)) return known;
  schedule::GemmWork kernel = gemm;
  double times = products_stretch;
  if (gemm.separate) times *= static_cast<double>(std::exchange(kernel.count, 1));
  const bool is_own = gemm.operands == Operands::Own;
  std::optional<Duration> time;
  const GemmTable* const grid = table(op.dtype, gemm.operands);
  if (grid != nullptr) {
    time = stretched(grid->time(kernel), times * (is_own ? table_factor : 1.0));
    if (gemm.count > 1 && is_own)
      time = std::max(*time, from_us(seconds_to_move(*this, op.bytes()) * 1e6));
  }
  if (others == nullptr) return time;
  const bool is_f32 = op.dtype == schedule::DType::F32;
  if (!is_half(op.dtype) && !is_f32) return time;
  if (!is_own && gemm.operands != Operands::Tf32) return time;
  const ProductType type = !is_f32  ? ProductType::Half
                           : is_own ? ProductType::F32
                                    : ProductType::Tf32;
  const std::optional<FlopPerSecond> rate = others->rate(kernel, type);
  if (!rate) return time;
  schedule::Op one = op;
  one.work = kernel;
  const Duration slow = stretched(from_us(1e6 * one.flop().count() / rate->count()), times);
  return time ? std::max(*time, slow) : slow;
}

Duration OpModel::roofline_time(const schedule::Op& op) const {
  const auto* gemm = std::get_if<schedule::GemmWork>(&op.work);
  const auto operands = gemm == nullptr ? schedule::Operands::Own : gemm->operands;
  Duration adding{};
  if (gemm != nullptr) {
    if (gemm->adds > 0)
      adding = from_us(1e6 * seconds_to_move(*compute, schedule::adding(*gemm, op.dtype)));
    const std::optional<Duration> known = compute->measured_product(op, *gemm);
    if (known) return *known + adding + compute->kernel_overhead;
  }
  const std::optional<FlopPerSecond> peak = compute->peak(op.dtype, operands);
  if (gemm != nullptr && !peak) {
    std::string known;
    const auto add = [&known](auto type) {
      known += (known.empty() ? "" : ", ") + std::string(to_string(type));
    };
    for (const auto& [dtype, rate] : compute->gemm_peak) add(dtype);
    for (const auto& [narrow, rate] : compute->narrow_peak) add(narrow);
    const std::string type(operands == schedule::Operands::Own ? to_string(op.dtype)
                                                               : to_string(operands));
    throw InputError("cluster " + machine + ": op " + op.name + " is a GEMM of " + type +
                     ", but compute.gemm.flop_per_s has only " +
                     (known.empty() ? "nothing" : known));
  }
  const double computing = peak ? op.flop().count() / (compute->efficiency * peak->count()) : 0;
  const auto* memory = std::get_if<schedule::MemoryWork>(&op.work);
  if (memory != nullptr && memory->attention && compute->attention != nullptr &&
      is_half(op.dtype)) {
    return std::max(compute->moving_time(op),
                    stretched(compute->attention->time(*memory->attention, memory->flop),
                              compute->products_stretch)) +
           compute->kernel_overhead;
  }
  return std::max(compute->moving_time(op), from_us(computing * 1e6)) + adding +
         compute->kernel_overhead;
}

// By kernels and passes.
std::optional<OpModel::Measured> OpModel::measured(const schedule::Op& op) const {
  const auto of_kernel = [](const MeasuredKernel& kernel, Duration beside) {
    return Measured{kernel.time + beside, spread_of(kernel.time, kernel.p10, kernel.p90)};
  };
  if (const MeasuredKernel* named = kernels.find_named(op)) return of_kernel(*named, Duration{});
  const PassModel* line = pass(op);
  const Duration passing = line == nullptr ? Duration{} : line->time(traffic_of(op));
  const bool is_pass_alone = !std::holds_alternative<schedule::GemmWork>(op.work);
  if (line != nullptr && is_pass_alone) return Measured{passing, {}};
  if (const MeasuredKernel* kernel = kernels.find(op)) return of_kernel(*kernel, passing);
  if (const std::optional<Duration> time = kernels.repetitions(op)) {
    return Measured{*time + passing, {}};
  }
  return std::nullopt;
}

OpCost OpModel::price(const schedule::Op& op) const {
  OpCost cost = by_rules(op);
  cost.host = op.issue;
  const Duration longest = std::ranges::max(cost.by_class);
  if (longest <= kLongestTime) return cost;
  throw InputError("cluster " + machine + ": op " + op.name + " would take " +
                   dovetail::to_string(longest) + "; expected at most " +
                   dovetail::to_string(kLongestTime) + " (eleven days)");
}

// Not checked yet.
OpCost OpModel::by_rules(const schedule::Op& op) const {
  OpCost cost{.by_class = {Duration{}}, .kernel = kernel_class(op)};
  if (std::holds_alternative<schedule::CollectiveWork>(op.work)) return cost;
  if (const auto* timed = std::get_if<schedule::TimedWork>(&op.work)) {
    if (timed->by_rank.empty()) throw InputError("op " + op.name + ": timed work without a time");
    cost.by_class = timed->by_rank;
    for (Duration& time : cost.by_class) time = stretched(time, timed_stretch);
    return cost;
  }
  if (const auto* several = std::get_if<schedule::KernelsWork>(&op.work);
      several != nullptr && kernels.find(op) == nullptr) {
    schedule::Op one;
    one.id = op.id;
    one.name = op.name;
    one.phase = op.phase;
    one.dtype = op.dtype;
    for (const schedule::Kernel& kernel : several->kernels) {
      std::visit([&one](const auto& work) { one.work = work; }, kernel);
      cost.by_class.front() += by_rules(one).by_class.front();
    }
    return cost;
  }
  if (const std::optional<Measured> known = measured(op)) {
    cost.by_class = {stretched(known->time, 1 + skew)};
    cost.spread = known->spread;
    return cost;
  }
  const auto* memory = std::get_if<schedule::MemoryWork>(&op.work);
  if (compute) {
    cost.by_class = {roofline_time(op)};
  } else if (copy && memory != nullptr) {
    // A copy of one byte moves two: it is read and written.
    const double ns = copy->ns_per_byte * static_cast<double>(memory->bytes.count()) / 2;
    cost.by_class = {copy->fixed + from_us(ns / 1e3)};
  } else {
    throw InputError("cluster " + machine + ": no duration for op " + op.name +
                     ": no measured kernel matches it and the cluster has no compute section; "
                     "dovetail import nccl-tests adds one: --gpu NAME, or --over CLUSTER");
  }
  return cost;
}

}  // namespace dovetail::models
