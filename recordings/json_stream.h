// A pull parser over JSON of any length, that of other programs: the caller asks for what it wants and skips the rest.
//
//   JsonStream json(source);
//   json.enter_object();
//   while (const auto key = json.next_key()) {
//     if (*key == "ts") event.start = json.number() ...
//     else json.skip();
//   }
//
// A text in memory is also cut into objects, for readers that want a tree of each:
//
//   JsonStream json(name, text);
//   while (const auto item = json.next_item()) {   // of a list, or of JSON lines
//     const JsonFile file(name + ": line " + std::to_string(item->line), item->text, JsonNumbers::Loose);
//
// Memory: one buffer, as long as the longest string that was asked for (at most 16 MiB; strings that
// are skipped may have any length). Cost: about 3 ns a byte of a profiler's trace, most of it in
// skipped text; no tree is built. Of a text in memory only what is not strict JSON is copied.
//
// What is wider than JSON, because profilers write it: a byte order mark; what printf makes of numbers
// that are none (nan, -nan, inf, 1.#INF, as well as Python's NaN and Infinity); a comma before a closing
// bracket; keys without their first quote; bytes that are not UTF-8. Beyond 512 levels of nesting the text is
// refused. Where the text ends early, JsonCut is thrown and what has been read stands; every other
// mistake is an InputError "FILE: byte N: expected ..., found ...".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "recordings/byte_source.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

// The text ended inside a value.
class JsonCut : public InputError {
 public:
  using InputError::InputError;
};

// What stands next.
enum class JsonKind { Object, Array, String, Number, True, False, Null };

// Whether a comma may stand before a closing bracket, too.
enum class JsonCommas { Between, AlsoLast };

struct JsonItem {
  std::string_view text;  // from brace to brace; valid until the next call
  std::size_t line = 1;   // where it begins
};

// What else than whole objects there was.
struct JsonItemsEnd {
  std::size_t cut_line = 0;     // where the last object begins, which has no end; 0: none
  std::size_t other_lines = 0;  // between objects, with anything but ',', '[', ']' and blanks
};

class JsonStream {
 public:
  static constexpr int kDeepest = 512;

  // `source` must outlive the stream.
  explicit JsonStream(ByteSource& source);
  // A text in memory, which must outlive the stream. A string without escapes, and a number, lies in the text.
  JsonStream(std::string name, std::string_view text, JsonCommas commas = JsonCommas::AlsoLast);

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

  // Texts for a parser (base/json_reader.h), which tells what is wrong in them. They are without the byte order mark and commas before
  // closing brackets, and with null for numbers that are none. Lines stay as they are. REQUIRES: a text in memory.
  //
  // The next object: of a list at the top, or one after the other, for files that are appended to while a job runs. Nothing
  // at the end, where items_end() says what else there was.
  std::optional<JsonItem> next_item();
  [[nodiscard]] const JsonItemsEnd& items_end() const { return items_end_; }
  // What is left of the text; valid until the next call.
  std::string_view document();

  // Bytes read so far.
  [[nodiscard]] std::int64_t position() const { return before_ + static_cast<std::int64_t>(at_); }

 private:
  bool is_null();     // the 'n' ahead begins "null"
  bool more();        // reads on; keeps what stands from `keep_` on
  char peek_token();  // the next byte that is no white space
  void expect(char wanted, const char* what);
  void literal(std::string_view word);
  std::string_view rest_of_string();  // behind its first quote
  bool pass_string();                 // likewise; whether a character was escaped
  void enter(char bracket, const char* what);
  void require_no_last_comma();  // of the bracket ahead
  [[noreturn]] void refuse_depth() const;
  enum class Reach { Object, All };
  // Of a text in memory; nothing: the object ahead has no end.
  std::optional<std::string_view> strict_text(Reach reach);
  void put_instead(std::size_t begin, std::size_t end, std::string_view strict);  // in strict_
  [[nodiscard]] std::string place() const;  // of the next byte, for messages
  std::size_t scan_number();
  std::string_view unescaped(std::string_view raw);
  [[noreturn]] void fail(const std::string& expected);
  [[noreturn]] void cut();

  std::string name_;
  ByteSource* source_ = nullptr;  // nothing: a text in memory
  JsonCommas commas_ = JsonCommas::AlsoLast;
  std::string buffer_;      // of the source
  std::string_view bytes_;  // what has been read of it and stands in the buffer; or the text
  std::size_t at_ = 0;      // next byte
  std::size_t keep_ = 0;    // first byte that must stay when more is read
  bool keeping_ = false;
  std::int64_t before_ = 0;   // bytes before the buffer
  bool just_opened_ = false;  // no value of the innermost bracket has been read
  std::vector<char> open_;    // brackets
  std::string unescaped_;
  std::string strict_;          // the value as strict JSON, up to
  std::size_t strict_to_ = 0;   // here
  std::size_t line_ = 1;        // of next_item
  std::size_t other_line_ = 0;  // the last one that was counted
  JsonItemsEnd items_end_;
};

// A number as a profiler writes a time in microseconds, in nanoseconds: exact where it has at most three
// decimals, which a double is not for times since 1970. Nothing: no finite number, or more than 130 years.
std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds);

// A whole number, e.g. an id, also as 12.0; other fractions and what is beyond 64 bits give nothing. Above 2^63 the bits are
// kept: ids are compared, never counted.
std::optional<std::int64_t> whole_number_of(std::string_view text);

}  // namespace dovetail::imports
