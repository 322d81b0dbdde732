// What memory must hold after a step, as tables that the comparing kernel reads (kernels.h).
//
// Sums over ranks of the 256 pattern entries are made here, once per step, so the kernel adds one
// table entry and the salts of its block per element.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/array.h"
#include "exec/values/comparison.h"
#include "exec/values/content.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace dovetail::exec::values {

class ExpectedTables {
 public:
  // The element type of a tensor decides which values its producer writes.
  using ElementOf = std::function<Element(TensorId)>;
  explicit ExpectedTables(ElementOf element_of) : element_of_(std::move(element_of)) {}

  // `data` holds elements first .. first + count - 1 of a tensor whose content must be `expected`
  // in this step. One comparison per piece; returns how many. `summed_in`: the type in which it was computed, if it
  // was rounded to that of `data` only then.
  std::size_t compare(const Array& data, std::int64_t first, const Content& expected,
                      std::int32_t step, std::optional<Element> summed_in = std::nullopt);
  // The sum of the squares of what is expected; one comparison per piece.
  std::size_t add_squares(const Content& expected, std::int32_t step);

  // What comparison `number` expects at index `i` of its data.
  [[nodiscard]] double at(std::size_t number, std::int64_t i) const;

  [[nodiscard]] const std::vector<Comparison>& comparisons() const { return comparisons_; }
  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }
  [[nodiscard]] const std::vector<Salted>& salts() const { return salts_; }

 private:
  void add(const Comparison& what, const std::vector<Term>& terms, std::int32_t step);

  ElementOf element_of_;
  std::vector<Comparison> comparisons_;
  std::vector<double> sums_;
  std::vector<Salted> salts_;
};

}  // namespace dovetail::exec::values
