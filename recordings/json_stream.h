// A pull parser over JSON of any length: the caller asks for what it wants and skips the rest.
//
//   JsonStream json(source);
//   json.enter_object();
//   while (const auto key = json.next_key()) {
//     if (*key == "ts") event.start = json.number() ...
//     else json.skip();
//   }
//
// Memory: one buffer, as long as the longest string that was asked for (at most 16 MiB; strings that
// are skipped may have any length). Cost: about 3 ns a byte of a profiler's trace, most of it in
// skipped text; no tree is built.
//
// What is wider than JSON, because profilers write it: a byte order mark; what printf makes of numbers
// that are none (nan, -nan, inf, 1.#INF, as well as Python's NaN and Infinity); a comma before a closing
// bracket; keys without their first quote; bytes that are not UTF-8. Beyond 512 levels of nesting the text is
// refused. Where the text ends early, JsonCut is thrown and what has been read stands; every other
// mistake is an InputError "FILE: byte N: expected ..., found ...".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/byte_source.h"

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

// The text ended inside a value.
class JsonCut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What stands next.
enum class JsonKind { Object, Array, String, Number, True, False, Null };

class JsonStream {
 public:
  static constexpr int kDeepest = 512;

  // `source` must outlive the stream.
  explicit JsonStream(ByteSource& source);

  // Of the value ahead; nothing of it is read.
  JsonKind kind();

  void enter_object();
  // The next key of the object that was entered last; nothing at its end, which leaves it. The key
  // is valid until the next call.
  std::optional<std::string_view> next_key();

  void enter_array();
  // Whether the array that was entered last has one more value; its end leaves it.
  bool next_element();

  // With escapes resolved; valid until the next call.
  std::string_view string();
  // As written, e.g. "-1.5e3", "NaN" or "-inf"; valid until the next call.
  std::string_view number();
  // Any value, true false and null among them.
  void skip();
  // Nothing but white space is left. Throws InputError otherwise.
  void expect_end();

  // Bytes read so far.
  [[nodiscard]] std::int64_t position() const { return before_ + static_cast<std::int64_t>(at_); }

 private:
  bool is_null();     // the 'n' ahead begins "null"
  bool more();        // reads on; keeps what stands from `keep_` on
  char peek_token();  // the next byte that is no white space
  void expect(char wanted, const char* what);
  void literal(std::string_view word);
  std::string_view rest_of_string();  // behind its first quote
  void skip_string();
  void enter(char bracket, const char* what);
  std::size_t scan_number();
  std::string_view unescaped(std::string_view raw);
  [[noreturn]] void fail(const std::string& expected);
  [[noreturn]] void cut();

  ByteSource& source_;
  std::string buffer_;
  std::size_t at_ = 0;    // next byte
  std::size_t end_ = 0;   // of the bytes in the buffer
  std::size_t keep_ = 0;  // first byte that must stay when more is read
  bool keeping_ = false;
  std::int64_t before_ = 0;   // bytes before the buffer
  bool just_opened_ = false;  // no value of the innermost bracket has been read
  std::vector<char> open_;    // brackets
  std::string unescaped_;
};

// A number as a profiler writes a time in microseconds, in nanoseconds: exact where it has at most three
// decimals, which a double is not for times since 1970. Nothing: no finite number, or more than 130 years.
std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds);

// A whole number, e.g. an id, also as 12.0; other fractions and what is beyond 64 bits give nothing. Above 2^63 the bits are
// kept: ids are compared, never counted.
std::optional<std::int64_t> whole_number_of(std::string_view text);

}  // namespace dovetail::imports
