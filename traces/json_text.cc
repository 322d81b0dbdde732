// Appends numbers and escaped strings to a growing JSON text. Times are written exactly, digit by
// digit from integers; what is no valid UTF-8 in a name is replaced, so that any trace gives a
// file that parsers accept.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/json_text.h"

#include <array>
#include <charconv>

namespace dovetail::traces {
namespace {

unsigned byte_at(std::string_view text, std::size_t index) {
  return static_cast<unsigned char>(text[index]);
}

// Length of the valid UTF-8 sequence at the front of the text, 0 if there is none. Overlong forms,
// surrogates and code points above U+10FFFF are not valid (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF5   ? 0
                             : lead >= 0xF0 ? 4
                             : lead >= 0xE0 ? 3
                             : lead >= 0xC2 ? 2
                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = byte_at(text, 1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool too_large = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
  return overlong || too_large ? 0 : length;
}

void append_control(std::string& text, unsigned code) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text += "\\u00";
  text += kHex[code >> 4U];
  text += kHex[code & 15U];
}

}  // namespace

void append_integer(std::string& text, std::int64_t value) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text.append(digits.data(), end);
}

void append_us(std::string& text, Duration duration) {
  const std::int64_t ns = duration.count();
  if (ns < 0) text += '-';
  // The remainder of the smallest integer is negative too, so no magnitude overflows.
  const std::int64_t whole = ns / 1000;
  const std::int64_t rest = ns % 1000 < 0 ? -(ns % 1000) : ns % 1000;
  append_integer(text, whole < 0 ? -whole : whole);
  text += '.';
  text += static_cast<char>('0' + rest / 100);
  text += static_cast<char>('0' + rest / 10 % 10);
  text += static_cast<char>('0' + rest % 10);
}

void append_decimal(std::string& text, double value) {
  std::array<char, 330> digits{};  // the largest double has 309 before the point
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::fixed, 3)
                       .ptr;
  text.append(digits.data(), end);
}

void append_json_string(std::string& text, std::string_view value) {
  text += '"';
  while (!value.empty()) {
    const std::size_t length = utf8_length(value);
    const char c = value.front();
    if (length == 0) {
      text += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      append_control(text, static_cast<unsigned char>(c));
    } else {
      text += value.substr(0, length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
  }
  text += '"';
}

}  // namespace dovetail::traces
