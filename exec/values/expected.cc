// Builds the tables of values that memory must hold after a step, for the comparing kernel, with
// the rounding that is allowed where a sum is not exact in its element type.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/values/expected.h"

#include "exec/values/known_values.h"
#include "exec/values/pattern.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace dovetail::exec::values {
namespace {

// Integers up to 2^digits are exact.
int digits_of(Element element) {
  switch (element) {
    case Element::F32:
      return 24;
    case Element::F16:
      return 11;
    case Element::BF16:
      return 8;
    case Element::F64:
      return 53;
  }
  return 24;
}

// How far a correct result may lie from the exact sum: every addition and every product with a
// factor rounds once. A gradient of a narrower type than the sum that it is merged or cast into was
// rounded in its own type before: when it was written, summed over ranks, and scaled.
double tolerance_of(const std::vector<Term>& terms, Element stored,
                    const ExpectedTables::ElementOf& element_of) {
  constexpr double kProducts = 8;
  constexpr double kNarrowProducts = 4;
  double largest = 0;   // of the sum
  double integers = 0;  // the same without factors
  double writes = 0;
  double narrow = 0;  // by rounding in the gradients' own types
  bool is_exact = true;
  for (const Term& term : terms) {
    const Element own = element_of(term.tensor);
    const auto ranks = static_cast<double>(term.ranks.size());
    const double most = std::ldexp(1.0, pattern_bits(own));
    const double part = std::abs(term.factor) * ranks * most;
    largest += part;
    integers += ranks * most;
    writes += ranks;
    is_exact =
        is_exact && is_power_of_two(term.factor) && ranks * most <= std::ldexp(1.0, digits_of(own));
    if (digits_of(own) < digits_of(stored)) {
      narrow += (ranks + kNarrowProducts) * part * std::ldexp(1.0, -digits_of(own));
    }
  }
  if (is_exact && integers <= std::ldexp(1.0, digits_of(stored))) return 0;
  return narrow + (writes + kProducts) * largest * std::ldexp(1.0, -digits_of(stored));
}

// What the last rounding adds.
double last_rounding(const std::vector<Term>& terms, Element summed_in, Element stored,
                     const ExpectedTables::ElementOf& element_of) {
  if (digits_of(stored) >= digits_of(summed_in)) return 0;
  double largest = 0;
  for (const Term& term : terms) {
    largest += std::abs(term.factor) * static_cast<double>(term.ranks.size()) *
               std::ldexp(1.0, pattern_bits(element_of(term.tensor)));
  }
  return largest * std::ldexp(1.0, -digits_of(stored));
}

}  // namespace

std::size_t ExpectedTables::compare(const Array& data, std::int64_t first, const Content& expected,
                                    std::int32_t step, std::optional<Element> summed_in) {
  const Content seen =
      part_of(expected, static_cast<std::size_t>(first), static_cast<std::size_t>(data.count));
  for (const Piece& piece : seen) {
    const auto begin = static_cast<std::int64_t>(piece.begin);
    Comparison what;
    what.data = static_cast<const char*>(data.data) + begin * size_of(data.element);
    what.count = static_cast<std::int64_t>(piece.count);
    what.element = data.element;
    what.first = static_cast<std::int64_t>(piece.source);
    const Element computed = summed_in.value_or(data.element);
    what.tolerance = tolerance_of(piece.terms, computed, element_of_) +
                     last_rounding(piece.terms, computed, data.element, element_of_);
    add(what, piece.terms, step);
  }
  return seen.size();
}

std::size_t ExpectedTables::add_squares(const Content& expected, std::int32_t step) {
  for (const Piece& piece : expected) {
    Comparison what;
    what.count = static_cast<std::int64_t>(piece.count);
    what.first = static_cast<std::int64_t>(piece.source);
    add(what, piece.terms, step);
  }
  return expected.size();
}

void ExpectedTables::add(const Comparison& what, const std::vector<Term>& terms,
                         std::int32_t step) {
  comparisons_.push_back(what);
  comparisons_.back().sum = static_cast<std::int32_t>(sums_.size());
  comparisons_.back().salts = static_cast<std::int32_t>(salts_.size());
  comparisons_.back().salt_count = static_cast<std::int32_t>(terms.size());
  const std::size_t begin = sums_.size();
  sums_.resize(begin + kPatternPeriod, 0.0);
  for (const Term& term : terms) {
    const std::int32_t bits = pattern_bits(element_of_(term.tensor));
    for (const Rank rank : term.ranks) {
      const std::uint64_t key = pattern_key({.tensor = term.tensor.value,
                                             .rank = rank.value,
                                             .writes_left = term.writes_left,
                                             .micro_step = term.micro_step},
                                            step);
      for (std::int64_t i = 0; i < kPatternPeriod; ++i) {
        sums_[begin + static_cast<std::size_t>(i)] += pattern_value(key, i, bits) * term.factor;
      }
    }
    salts_.push_back({.tensor = term.tensor.value,
                      .bits = bits,
                      .factor = term.factor * static_cast<double>(term.ranks.size())});
  }
}

double ExpectedTables::at(std::size_t number, std::int64_t i) const {
  const Comparison& what = comparisons_.at(number);
  const std::int64_t index = what.first + i;
  double value = sums_[static_cast<std::size_t>(what.sum + index % kPatternPeriod)];
  for (std::int32_t k = 0; k < what.salt_count; ++k) {
    const Salted& salted = salts_[static_cast<std::size_t>(what.salts + k)];
    value += salt_value(salted.tensor, index / kPatternPeriod, salted.bits) * salted.factor;
  }
  return value;
}

}  // namespace dovetail::exec::values
