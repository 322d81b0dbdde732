// Writes Python literals, and the comment with which every written file begins.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/python_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace dovetail::frameworks {

std::string python_quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += "\\u00";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string quoted_list(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (const std::string& text : texts) {
    if (result.size() > 1) result += ", ";
    result += python_quoted(text);
  }
  return result + "]";
}

std::string number_list(const std::vector<std::int64_t>& numbers) {
  std::string result = "[";
  for (const std::int64_t number : numbers) {
    if (result.size() > 1) result += ", ";
    result += std::to_string(number);
  }
  return result + "]";
}

std::string shortest(double value) {
  std::array<char, 32> digits{};
  const auto [end, status] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  std::string text(digits.data(), end);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

std::string in_ms(Duration time) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.3f ms", to_us(time) / 1e3);
  return text.data();
}

std::string percent_of(Duration more, Duration whole) {
  const double share = whole > Duration{}
                           ? static_cast<double>(more.count()) / static_cast<double>(whole.count())
                           : 0;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%+.1f %%", 100 * share);
  return text.data();
}

std::string loss_percent(const Export& result, Duration more) {
  return percent_of(more, result.planned);
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

std::string head(const Writing& writing, const Export& result, std::string_view mark) {
  const auto& [framework, plan, machine, options] = writing;
  std::string text;
  const auto line = [&](const std::string& words) {
    text += std::string(mark) + (words.empty() ? "" : " ") + one_line(words) + "\n";
  };
  line("For " + std::string(framework.title) + ": " +
       std::string(result.writes.empty() ? framework.writes : result.writes) + ".");
  line("  written by  dovetail " + options.version + " from " + options.plan);
  line("  plan        " + plan.schedule.policy + " for " + plan.summary.workload + " on " +
       plan.summary.cluster + ", " + std::to_string(plan.schedule.buckets.size()) + " buckets");
  line("  predicted   " + in_ms(result.as_run) + " a step as it is run there, " +
       in_ms(result.planned) + " as planned (simulated, not measured)");
  for (const Loss& loss : result.losses) {
    line("  given up    " + loss.what + ": " + loss_percent(result, loss.more));
  }
  for (const std::string& note : result.notes) line("  note        " + note);
  return text;
}

}  // namespace dovetail::frameworks
