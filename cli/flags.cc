// Parses flag values that carry a unit; an error begins with the flag's name.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include "base/attempt.h"
#include "base/error.h"

namespace dovetail::cli {
namespace {

template <class Parse>
auto parsed(const std::string& flag, const Parse& parse) {
  const auto made = attempt(parse);
  if (!made) throw InputError(flag + ": " + made.error);
  return *made.value;
}

}  // namespace

Duration time_of_flag(const std::string& flag, const std::string& text) {
  return parsed(flag, [&] { return parse_duration(text); });
}

Bytes size_of_flag(const std::string& flag, const std::string& text) {
  return parsed(flag, [&] {
    const Bytes size = parse_bytes(text);
    if (size < Bytes(1)) throw InputError("expected a size of at least 1B, found \"" + text + "\"");
    return size;
  });
}

BytesPerSecond rate_of_flag(const std::string& flag, const std::string& text) {
  const auto bytes = attempt(
      [&] { return parse_bytes(text.ends_with("/s") ? text.substr(0, text.size() - 2) : text); });
  if (!bytes) {
    throw InputError(flag + ": expected a rate with its unit, e.g. 10GB/s, found \"" + text + "\"");
  }
  if (*bytes.value <= Bytes(0))
    throw InputError(flag + " " + text + ": expected more than nothing");
  return BytesPerSecond(static_cast<double>(bytes.value->count()));
}

BytesPerSecond link_rate_of_flag(const std::string& flag, const std::string& text) {
  return parsed(flag, [&] {
    const BytesPerSecond rate = parse_bit_rate(text);
    if (rate < parse_bit_rate("1mbit")) {
      throw InputError("expected at least 1mbit, found \"" + text + "\"");
    }
    return rate;
  });
}

}  // namespace dovetail::cli
