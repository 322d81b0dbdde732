// Prints the three lines of an answer, and words their figures.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/count.h"
#include "base/decimal.h"
#include "base/json.h"

namespace dovetail::cli {
namespace {

std::string between(Duration low, Duration high) {
  return " (" + to_string(low) + " to " + to_string(high) + ")";
}

std::string nothing_text(const Answer& answer) {
  return answer.nothing + ": " + answer.why_nothing;
}

}  // namespace

void print_assumed(std::ostream& out, const std::vector<jobs::Assumed>& assumed,
                   const Detail& detail) {
  constexpr std::size_t kIndent = 11, kShown = 4;
  const std::size_t all = assumed.size();
  const std::size_t shown = detail.notes || all <= kShown + 1 ? all : kShown;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string label = i == 0 ? "assumed: " : "         ";
    print_text(out, label + to_string(assumed[i]), kIndent, Tone::Warning);
  }
  if (shown < all) out << "         " << counted(all - shown, "more key") << ": --notes\n";
}

void print_answer(std::ostream& out, const Answer& answer, const Detail& detail) {
  constexpr std::size_t kIndent = 7;
  print_assumed(out, answer.assumed, detail);
  const char* label = "set:   ";
  for (const std::string& line : answer.set) {
    print_line(out, label + line, answer.tone);
    label = "       ";
  }
  if (answer.set.empty()) {
    print_text(out, label + nothing_text(answer), kIndent, answer.tone);
  }
  print_text(out, "gives: " + answer.gives, kIndent);
  print_text(out, "left:  " + answer.left, kIndent);
}

std::vector<std::string> notes_beside(const Answer& answer, std::vector<std::string> notes) {
  for (const jobs::Assumed& one : answer.assumed) std::erase(notes, to_string(one));
  return notes;
}

report::Answer answer_on_page(const Answer& answer) {
  return {.set = answer.set,
          .nothing = nothing_text(answer),
          .gives = answer.gives,
          .left = answer.left};
}

nlohmann::ordered_json answer_json(const Answer& answer) {
  nlohmann::ordered_json why = nullptr;
  if (answer.set.empty()) {
    why = answer.why_nothing;
  }
  return {{"set", answer.set}, {"why_nothing", std::move(why)}, {"left", answer.left}};
}

nlohmann::ordered_json assumed_json(const std::vector<jobs::Assumed>& assumed) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const jobs::Assumed& one : assumed) {
    list.push_back({{"option", one.option}, {"value", one.value}, {"counted", one.counted}});
  }
  return list;
}

std::string spread_text(const std::optional<predict::StepRange>& range,
                        const std::optional<sim::StepInterval>& interval) {
  if (range) return between(range->p5, range->p95);
  if (interval) return between(interval->p10, interval->p90);
  return "";
}

std::string change_text(Duration step, Duration than) {
  const double percent = 100 * (to_us(step) / to_us(than) - 1);
  constexpr double kPrinted = 0.05;
  if (std::abs(percent) < kPrinted) return "the same";
  return fixed(std::abs(percent), 1) + (percent < 0 ? " % less" : " % more");
}

std::string at_most_text(Duration step, Duration bound) {
  const double percent = std::max(0.0, 100 * (1 - to_us(bound) / to_us(step)));
  return "at most " + fixed(percent, percent < 1 ? 2 : 1) + " %";
}

}  // namespace dovetail::cli
