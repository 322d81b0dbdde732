// Paddle: its data-parallel pass, with the number of elements for a hidden size of 2048, and the program that it
// begins with. Its rules are a policy of their own (schedule/policies/source_first_fit.h); nothing is written for it.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/list.h"

namespace dovetail::frameworks {
namespace {

std::optional<Said> say_paddle(const schedule::Policy& policy, const Gradients& /*gradients*/) {
  const schedule::Decisions& decided = policy.decisions;
  if (!decided.grouping || decided.stages) return std::nullopt;
  if (schedule::placement(policy).launch == schedule::LaunchRule::Inline) {
    return Said{"Paddle without its pass", "", ToldBy::Default};
  }
  if (!std::holds_alternative<schedule::FirstFit>(*decided.grouping)) return std::nullopt;
  return Said{"Paddle's data-parallel pass", "", ToldBy::Default};
}

}  // namespace

std::vector<Framework> paddle() {
  constexpr std::string_view kPass = "source-first-fit:elements=50331648";
  return {{.id = "paddle",
           .name = "Paddle",
           .presets = {{"paddle", kPass}, {"paddle-pass", kPass}},
           .usual = {kPass},
           .says = say_paddle,
           .curve = "source-improved",
           .axis = "Paddle pass without its limits: cap"}};
}

}  // namespace dovetail::frameworks
