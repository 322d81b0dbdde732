// Strict reading of JSON: every mistake names the file, the place as a JSON pointer, and what was
// expected.
//
//   JsonFile file("step.json");    // missing, truncated, a key twice, NaN: InputError
//   JsonObject root = file.root();
//   std::string name = root.string("name");
//   for (JsonValue item : root.array("gradients")) ...
//   root.done();                   // any key that nobody asked for is an error
//
// Messages read  `step.json: /gradients/3/numel: expected an integer >= 1, found -5`  and
// `step.json: /clustr: unknown key; did you mean "cluster"?`. A number with a fraction is no
// integer; a bool is no number. Every getter with a `_or` takes a default for an absent key; a null
// is not absent. Readers hold references into the file: they must not outlive the JsonFile.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail {

class JsonObject;
class JsonArray;

// How numbers are written. Loose: also in quotes, "61.5", and whole ones as 61.0, in files of programs that print them by hand.
enum class JsonNumbers { Strict, Loose };

// One value and the place where it stands.
class JsonValue {
 public:
  JsonValue(const nlohmann::json* value, std::string file, std::string path,
            JsonNumbers numbers = JsonNumbers::Strict)
      : value_(value), file_(std::move(file)), path_(std::move(path)), numbers_(numbers) {}

  [[nodiscard]] std::string string() const;
  [[nodiscard]] bool boolean() const;
  // Finite, within [low, high].
  [[nodiscard]] double number(double low = -std::numeric_limits<double>::max(),
                              double high = std::numeric_limits<double>::max()) const;
  [[nodiscard]] std::int64_t integer(
      std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  // One of the words; returns its index. The message lists them all.
  [[nodiscard]] std::size_t word(std::span<const std::string_view> words) const;
  // The enumerator whose word stands here, of all or of these.
  template <Worded Enum>
  [[nodiscard]] Enum one_of(std::span<const Enum> values = kAllOf<Enum>) const {
    std::vector<std::string_view> words;
    for (const Enum value : values) words.push_back(to_string(value));
    return values[word(words)];
  }
  [[nodiscard]] JsonObject object() const;
  [[nodiscard]] JsonArray array() const;
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is_number() const;
  [[nodiscard]] bool is_null() const;

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Throws InputError "FILE: PATH: MESSAGE".
  [[noreturn]] void fail(const std::string& message) const;

 private:
  friend class JsonObject;
  friend class JsonArray;
  [[noreturn]] void expected(const std::string& what) const;

  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
  JsonNumbers numbers_;
};

class JsonArray {
 public:
  explicit JsonArray(JsonValue value) : value_(std::move(value)) {}
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] JsonValue operator[](std::size_t index) const;
  [[nodiscard]] const JsonValue& value() const { return value_; }

  struct Iterator {
    const JsonArray* array;
    std::size_t index;
    JsonValue operator*() const { return (*array)[index]; }
    Iterator& operator++() {
      ++index;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index != other.index; }
  };
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, size()}; }

 private:
  JsonValue value_;
};

class JsonObject {
 public:
  explicit JsonObject(JsonValue value) : value_(std::move(value)) {}

  // The value at a key; nothing: it is absent. The key is as known as it was.
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
  // Makes these keys known. REQUIRES: the list lives for as long as the object is used.
  void know(std::span<const std::string_view> keys) { listed_ = keys; }
  // Throws: this key must be present.
  [[noreturn]] void missing(std::string_view key) const;
  // Whether the key is present; asking makes it a known one.
  [[nodiscard]] bool has(std::string_view key) const;
  // The value at a key that must be present.
  [[nodiscard]] JsonValue at(std::string_view key);
  [[nodiscard]] std::vector<std::string> keys() const;

  [[nodiscard]] std::string string(std::string_view key) { return at(key).string(); }
  [[nodiscard]] double number(std::string_view key,
                              double low = -std::numeric_limits<double>::max(),
                              double high = std::numeric_limits<double>::max()) {
    return at(key).number(low, high);
  }
  [[nodiscard]] std::int64_t integer(std::string_view key,
                                     std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    return at(key).integer(low, high);
  }
  [[nodiscard]] std::size_t word(std::string_view key, std::span<const std::string_view> words) {
    return at(key).word(words);
  }
  template <Worded Enum>
  [[nodiscard]] Enum one_of(std::string_view key, std::span<const Enum> values = kAllOf<Enum>) {
    return at(key).one_of(values);
  }
  [[nodiscard]] JsonObject object(std::string_view key) { return at(key).object(); }
  [[nodiscard]] JsonArray array(std::string_view key) { return at(key).array(); }

  [[nodiscard]] std::string string_or(std::string_view key, std::string fallback) {
    return has(key) ? string(key) : std::move(fallback);
  }
  [[nodiscard]] double number_or(std::string_view key, double fallback,
                                 double low = -std::numeric_limits<double>::max(),
                                 double high = std::numeric_limits<double>::max()) {
    return has(key) ? number(key, low, high) : fallback;
  }
  [[nodiscard]] std::int64_t integer_or(
      std::string_view key, std::int64_t fallback,
      std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    return has(key) ? integer(key, low, high) : fallback;
  }

  // Checks "schema": it must be exactly `expected`. "tool", who wrote the document, is then known too.
  void schema(std::string_view expected);
  // Marks a key as known without reading it: for free-text notes such as "comment".
  void ignore(std::string_view key) { known_.insert(std::string(key)); }
  // Throws on the first key that nobody asked for, with the nearest known name.
  void done() const;

  [[nodiscard]] const JsonValue& value() const { return value_; }

 private:
  [[nodiscard]] bool knows(std::string_view key) const;

  JsonValue value_;
  mutable std::set<std::string, std::less<>> known_;  // grows as keys are asked for
  std::span<const std::string_view> listed_;          // known beside these
};

// Whether /* */ and // may stand in a text.
enum class JsonComments { Refused, Passed };
// Throws InputError with line and column where the text is not JSON, and where a key stands twice in an object.
std::unique_ptr<nlohmann::json> parse_json(const std::string& name, std::string_view text,
                                           JsonComments comments = JsonComments::Refused);

// A parsed document that owns its values.
class JsonFile {
 public:
  // Reads and parses a file. Throws InputError with line and column where the text is not JSON.
  explicit JsonFile(const std::string& path);
  // Parses text; `name` stands for the file in messages.
  JsonFile(const std::string& name, std::string_view text,
           JsonNumbers numbers = JsonNumbers::Strict);
  JsonFile(JsonFile&&) noexcept;
  JsonFile& operator=(JsonFile&&) noexcept;
  ~JsonFile();

  [[nodiscard]] JsonObject root() const;
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<nlohmann::json> value_;
  JsonNumbers numbers_ = JsonNumbers::Strict;
};

// What is meant: the candidate that the word is another name of ("framework" where "for" stands), else the nearest in
// edit distance, or "" when none is within half of the word's length.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace dovetail
