// std::visit with one lambda per kind; a missing kind does not compile.
//
//   visit(command.action, [&](const RunOp& run) {...}, [&](const WaitEvent& wait) {...}, ...);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <variant>

namespace dovetail::schedule {

template <class... Lambdas>
struct Visitor : Lambdas... {
  using Lambdas::operator()...;
};
template <class... Lambdas>
Visitor(Lambdas...) -> Visitor<Lambdas...>;

template <class Variant, class... Lambdas>
decltype(auto) visit(Variant&& variant, Lambdas&&... lambdas) {
  return std::visit(Visitor{std::forward<Lambdas>(lambdas)...}, std::forward<Variant>(variant));
}

}  // namespace dovetail::schedule
