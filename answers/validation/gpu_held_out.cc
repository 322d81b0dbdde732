// Makes the tables anew without a tenth of what they were measured on, and prices that tenth.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/gpu_held_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "answers/validation/table.h"
#include "base/error.h"
#include "base/statistics.h"

namespace dovetail::yardsticks {
namespace {

using schedule::Access;
using schedule::DType;

constexpr std::size_t kFolds = 10;

struct SingleKernel {
  Access access = Access::Any;
  std::optional<DType> dtype = std::nullopt;
  std::int64_t columns = 0;
  schedule::Attention attention = {};
  double amount = 0;  // bytes of a pass, FLOP of attention
  Duration time{};
};
using Kernels = std::vector<const SingleKernel*>;

double positive(const TableRow& row, const std::string& column) {
  const double value = row.number(column);
  if (value > 0) return value;
  throw InputError(row.where() + ": " + column + ": expected a number above 0, found " +
                   row.text(column));
}

SingleKernel pass_of_row(const TableRow& row) {
  const auto access = word_to<Access>(row.text("access"));
  if (!access) throw InputError(row.where() + ": unknown access " + row.text("access"));
  const auto dtype = word_to<DType>(row.text("dtype"));
  if (!dtype && !row.text("dtype").empty())
    throw InputError(row.where() + ": unknown dtype " + row.text("dtype"));
  return {.access = *access,
          .dtype = dtype,
          .columns = row.count_or("columns", 0),
          .amount = positive(row, "bytes"),
          .time = from_us(positive(row, "us"))};
}

// FLOP as gpu_kernels.py counts them: 2 S^2 d a head forward where it is causal, 2.5 times that backward.
SingleKernel attention_of_row(const TableRow& row) {
  const bool is_causal = row.count("causal") != 0;
  const bool is_backward = row.text("name") == "backward";
  const double tokens = positive(row, "tokens");
  const double flop = (is_causal ? 2 : 4) * tokens * tokens * positive(row, "head_dim") *
                      positive(row, "heads") * (is_backward ? 2.5 : 1);
  return {.attention = {.tokens = row.count("tokens") / (is_causal ? 2 : 1),
                        .head_dim = row.count("head_dim"),
                        .backward = is_backward,
                        .causal = is_causal},
          .amount = flop,
          .time = from_us(positive(row, "us"))};
}

// Per second beside the fixed part, the median of all. REQUIRES: there is a kernel.
double rate_of(const Kernels& kernels, Duration fixed) {
  std::vector<double> rates;
  for (const SingleKernel* one : kernels)
    rates.push_back(1e6 * one->amount / std::max(0.1, to_us(one->time - fixed)));
  return median(rates);
}

std::shared_ptr<const models::MemoryRates> rates_of(const Kernels& kernels,
                                                    const models::Roofline& gpu) {
  std::map<std::tuple<Access, std::optional<DType>, std::int64_t>, Kernels> groups;
  for (const SingleKernel* one : kernels)
    groups[{one->access, one->dtype, one->columns}].push_back(one);
  auto rates = std::make_shared<models::MemoryRates>();
  for (const auto& [key, group] : groups) {
    const auto& [access, dtype, columns] = key;
    const auto shipped = gpu.passes->rate(access, dtype.value_or(DType::BF16), columns);
    const Duration fixed = shipped ? shipped->fixed : Duration{};
    rates->add(access, dtype, columns,
               {.fixed = fixed, .share = rate_of(group, fixed) / gpu.memory.count()});
  }
  return rates;
}

// Null: none of them is causal, forward and backward.
std::shared_ptr<const models::AttentionTable> attention_of(const Kernels& kernels,
                                                           const models::Roofline& gpu) {
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, std::array<Kernels, 2>>
      groups;  // by head size, tokens that are seen, and whether before or all
  for (const SingleKernel* one : kernels) {
    const schedule::Attention& size = one->attention;
    groups[{size.head_dim, size.tokens, size.causal}][size.backward].push_back(one);
  }
  auto table = std::make_shared<models::AttentionTable>();
  bool has_causal = false;
  for (const auto& [size, passes] : groups) {
    if (passes[0].empty() || passes[1].empty()) continue;
    const auto line = [&](const Kernels& pass) {
      const Duration fixed = gpu.attention->time(pass.front()->attention, Flop(0));
      return models::AttentionTable::Line{.rate = FlopPerSecond(rate_of(pass, fixed)),
                                          .fixed = fixed};
    };
    const auto& [head_dim, seen, causal] = size;
    has_causal = has_causal || causal;
    table->add(static_cast<double>(head_dim), static_cast<double>(causal ? 2 * seen : seen),
               line(passes[0]), line(passes[1]), causal);
  }
  return has_causal ? table : nullptr;
}

HeldOut score_folds(std::string kind, const std::vector<SingleKernel>& all, const auto& priced_by) {
  std::vector<double> errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    Kernels rest, left;
    for (std::size_t i = 0; i < all.size(); ++i)
      (i % kFolds == fold ? left : rest).push_back(&all[i]);
    const auto price = priced_by(rest);
    for (const SingleKernel* one : left) {
      const std::optional<Duration> found = price(*one);
      if (found) errors.push_back(std::abs(to_us(*found) / to_us(one->time) - 1));
    }
  }
  if (errors.empty()) throw InputError("gpu_single_kernels_h100.csv: nothing tells its " + kind);
  std::ranges::sort(errors);
  return {.kind = std::move(kind),
          .kernels = errors.size(),
          .median = median(errors),
          .p95 = errors[(errors.size() * 95 + 99) / 100 - 1]};
}

}  // namespace

std::vector<HeldOut> held_out(const std::string& folder, const models::Roofline& gpu) {
  std::vector<SingleKernel> passes, attentions;
  for (const TableRow& row : read_table(folder + "/gpu_single_kernels_h100.csv")) {
    if (row.text("kind") == "pass")
      passes.push_back(pass_of_row(row));
    else
      attentions.push_back(attention_of_row(row));
  }
  constexpr std::size_t kFewest = 2 * kFolds;  // so that each fold leaves some to make tables of
  if (passes.size() < kFewest || attentions.size() < kFewest)
    throw InputError(folder + "/gpu_single_kernels_h100.csv: expected at least " +
                     std::to_string(kFewest) + " kernels of each kind");
  const auto by_rates = [&](const Kernels& rest) {
    return [rates = rates_of(rest, gpu), &gpu](const SingleKernel& one) -> std::optional<Duration> {
      const auto rate = rates->rate(one.access, one.dtype.value_or(DType::BF16), one.columns);
      if (!rate) return std::nullopt;
      return rate->fixed + from_us(1e6 * one.amount / (rate->share * gpu.memory.count()));
    };
  };
  const auto by_table = [&](const Kernels& rest) {
    return [table = attention_of(rest, gpu)](const SingleKernel& one) -> std::optional<Duration> {
      if (table == nullptr) return std::nullopt;
      return table->time(one.attention, Flop(one.amount));
    };
  };
  return {score_folds("passes over memory", passes, by_rates),
          score_folds("attention", attentions, by_table)};
}

}  // namespace dovetail::yardsticks
