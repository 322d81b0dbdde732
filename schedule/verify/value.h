// What a cell holds, symbolically: whose contributions, combined over which groups, times what.
//
// A value is described exactly, not numerically (PI2): the set of (gradient, micro-step) pairs that
// were added up, the set of process groups over which it was reduced, and the product of all factors
// on its path as a fraction. Sets are numbered by a Sets pool, so that a value is a few words and
// two equal sets have one number.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/indexed.h"
#include "base/rational.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace dovetail::schedule::verification {

// Number of a set in a pool; 0 is the empty set.
using SetId = std::int32_t;

// Sets of small numbers. Each distinct set is stored once, and each union is computed once.
class Sets {
 public:
  Sets();

  SetId single(std::int64_t element);
  SetId unite(SetId a, SetId b);
  [[nodiscard]] const std::vector<std::int64_t>& members(SetId set) const { return sets_[set]; }
  [[nodiscard]] bool contains(SetId set, std::int64_t element) const;
  [[nodiscard]] bool disjoint(SetId a, SetId b) const;
  SetId intern(std::vector<std::int64_t> sorted);

 private:
  Indexed<SetId, std::vector<std::int64_t>> sets_;
  std::map<std::vector<std::int64_t>, SetId> numbers_;
  std::map<std::pair<SetId, SetId>, SetId> unions_;
};

// The micro-steps that one gradient contributed.
struct Contribution {
  std::int32_t debt = 0;  // position in Index::debts()
  SetId micro_steps = 0;
};

// Sets of (debt, micro-step) pairs, kept as one set of micro-steps per debt.
class Contributions {
 public:
  SetId single(std::int32_t debt, std::int32_t micro_step);
  // Nothing where both have a pair.
  std::optional<SetId> join(SetId a, SetId b);
  [[nodiscard]] std::vector<Contribution> members(SetId set) const;
  [[nodiscard]] bool has(SetId set, std::int32_t debt) const;
  [[nodiscard]] std::int32_t micro_steps(const Contribution& contribution) const;

 private:
  Sets steps_;  // of micro-steps
  Sets sets_;   // of debt and set of micro-steps, packed into one number
};

struct Value {
  // Unwritten: left over from before, nothing that this step may use. Zero: neutral in sums.
  enum class State { Unwritten, Zero, Written };
  State state = State::Unwritten;
  bool partial = false;     // a later op of the same micro-step adds to it
  bool shard = false;       // right only in this rank's shard of the bucket
  SetId contributions = 0;  // empty: no gradient that owes anything
  SetId groups = 0;         // reduced over these
  Rational factor;
};

}  // namespace dovetail::schedule::verification
