// Reads JSON strictly. nlohmann/json parses the text; what is here keeps the path to every value,
// so that an error can name it, and remembers which keys were asked for, so that done() can refuse
// all others and suggest the nearest known word.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace dovetail {
namespace {

using nlohmann::json;

// A value as it appears in "found ...": short, one line.
std::string found(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::null:
      return "null";
    default: {
      std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
      return text.size() <= 60 ? text : text.substr(0, 57) + "...";
    }
  }
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return json(value).dump();
}

template <class T>
std::string range_text(const char* kind, T low, T high, T lowest, T highest) {
  std::string text = kind;
  const auto show = [](T bound) { return number_text(static_cast<double>(bound)); };
  if (low != lowest && high != highest) return text + " from " + show(low) + " to " + show(high);
  if (low != lowest) return text + " >= " + show(low);
  if (high != highest) return text + " <= " + show(high);
  return text;
}

std::string escape_pointer(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

// The library's message without its prefix "[json.exception.parse_error.101] ".
std::string library_message(const std::string& what) {
  const auto end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

// Builds the tree of one file, and refuses a key that stands twice in one object: the library would keep
// the last one silently. The library's own builder with a callback looks at all values of a list again
// whenever one of them is complete.
class TreeBuilder : public nlohmann::json_sax<json> {
 public:
  explicit TreeBuilder(std::string file) : file_(std::move(file)) {}

  [[nodiscard]] std::unique_ptr<json> take() { return std::move(root_); }

  bool null() override { return add(json()); }
  bool boolean(bool value) override { return add(json(value)); }
  bool number_integer(number_integer_t value) override { return add(json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(json(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(json(value));
  }
  bool string(string_t& value) override { return add(json(std::move(value))); }
  bool binary(binary_t& value) override { return add(json::binary(std::move(value))); }

  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (open_.back()->contains(key)) {
      throw InputError(file_ + ": key \"" + key + "\" stands twice in one object");
    }
    key_ = std::move(key);
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    throw InputError(file_ + ": not valid JSON: " + library_message(error.what()));
  }

 private:
  json& place(json value) {
    if (root_ == nullptr) {
      root_ = std::make_unique<json>(std::move(value));
      return *root_;
    }
    json& into = *open_.back();
    if (into.is_array()) {
      into.push_back(std::move(value));
      return into.back();
    }
    return into[key_] = std::move(value);
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string file_;
  std::unique_ptr<json> root_;
  std::vector<json*> open_;  // from the root down; only the last one grows, so none of them moves
  std::string key_;
};

// The number that a value of a loose file stands for where it is written as something else; nothing: it is meant as it is.
std::optional<json> loosened(const json& value, JsonNumbers numbers) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (numbers == JsonNumbers::Strict) return std::nullopt;
  if (value.is_string()) {
    const json inside = json::parse(value.get_ref<const std::string&>(), nullptr, false);
    if (!inside.is_number()) return std::nullopt;
    return loosened(inside, numbers).value_or(inside);
  }
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  const bool is_whole = std::abs(number) < kExact && std::trunc(number) == number;
  if (!is_whole) return std::nullopt;
  return json(static_cast<std::int64_t>(number));
}

// What a file that holds no text is, by its first bytes; "" for text.
std::string what_else(std::string_view text) {
  constexpr std::size_t kLookedAt = 64;
  if (text.starts_with("\x1f\x8b")) return "it is packed by gzip: unpack it, gunzip -k FILE";
  const auto is_control = [](char c) {
    return c >= 0 && c < ' ' && c != '\n' && c != '\r' && c != '\t';
  };
  return std::ranges::any_of(text.substr(0, kLookedAt), is_control) ? "it is a binary file" : "";
}

// What other programs, and people, call a thing that has one name here.
constexpr std::array<std::array<std::string_view, 2>, 2> kOtherNames{
    {{"for", "framework"}, {"machine", "cluster"}}};

// "--framework" for "--for"; "" where the word names nothing else.
std::string own_name_of(std::string_view word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const auto* const found =
      std::ranges::find(kOtherNames, word.substr(dashes), [](const auto& pair) { return pair[0]; });
  if (found == kOtherNames.end()) return {};
  return std::string(word.substr(0, dashes)) += (*found)[1];
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  std::string best = own_name_of(word);
  if (std::ranges::find(candidates, best) != candidates.end()) return best;
  best.clear();
  std::size_t best_distance = word.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

void JsonValue::fail(const std::string& message) const {
  throw InputError(file_ + ": " + (path_.empty() ? "/" : path_) + ": " + message);
}

void JsonValue::expected(const std::string& what) const {
  fail("expected " + what + ", found " + found(*value_));
}

std::string JsonValue::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

double JsonValue::number(double low, double high) const {
  const auto limits = std::numeric_limits<double>::max();
  const auto what = [&] { return range_text("a number", low, high, -limits, limits); };
  const std::optional<json> loose = loosened(*value_, numbers_);
  const json& written = loose ? *loose : *value_;
  if (!written.is_number()) expected(what());
  const auto value = written.get<double>();
  if (!std::isfinite(value) || value < low || value > high) expected(what());
  return value;
}

std::int64_t JsonValue::integer(std::int64_t low, std::int64_t high) const {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto what = [&] {
    return range_text("an integer", low, high, Limits::min(), Limits::max());
  };
  const std::optional<json> loose = loosened(*value_, numbers_);
  const json& written = loose ? *loose : *value_;
  if (!written.is_number_integer()) expected(what());
  if (written.is_number_unsigned() &&
      written.get<std::uint64_t>() > static_cast<std::uint64_t>(Limits::max())) {
    expected(what());
  }
  const auto value = written.get<std::int64_t>();
  if (value < low || value > high) expected(what());
  return value;
}

std::size_t JsonValue::word(std::span<const std::string_view> words) const {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (value_->is_string() && value_->get_ref<const std::string&>() == words[i]) return i;
    list += (i == 0 ? "\"" : ", \"") + std::string(words[i]) + "\"";
  }
  expected("one of " + list);
}

JsonObject JsonValue::object() const {
  if (!value_->is_object()) expected("an object");
  return JsonObject(*this);
}

JsonArray JsonValue::array() const {
  if (!value_->is_array()) expected("an array");
  return JsonArray(*this);
}

bool JsonValue::is_object() const { return value_->is_object(); }
bool JsonValue::is_string() const { return value_->is_string(); }
bool JsonValue::is_number() const { return value_->is_number(); }
bool JsonValue::is_null() const { return value_->is_null(); }

std::size_t JsonArray::size() const { return value_.value_->size(); }

JsonValue JsonArray::operator[](std::size_t index) const {
  return JsonValue(&(*value_.value_)[index], value_.file_,
                   value_.path_ + "/" + std::to_string(index), value_.numbers_);
}

bool JsonObject::has(std::string_view key) const {
  known_.emplace(key);
  return value_.value_->contains(key);
}

std::optional<JsonValue> JsonObject::find(std::string_view key) const {
  const auto entry = value_.value_->find(key);
  if (entry == value_.value_->end()) return std::nullopt;
  return JsonValue(&*entry, value_.file_, value_.path_ + "/" + escape_pointer(key),
                   value_.numbers_);
}

JsonValue JsonObject::at(std::string_view key) {
  known_.insert(std::string(key));
  std::optional<JsonValue> found = find(key);
  if (!found) missing(key);
  return *std::move(found);
}

// The likely cause of a missing key is a misspelt one: name it.
void JsonObject::missing(std::string_view key) const {
  std::vector<std::string> unknown;
  for (const std::string& candidate : keys()) {
    if (!knows(candidate)) unknown.push_back(candidate);
  }
  const std::string near = nearest_word(key, unknown);
  value_.fail("missing key \"" + std::string(key) + "\"" +
              (near.empty() ? "" : "; is \"" + near + "\" a misspelling of it?"));
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> result;
  for (const auto& [key, unused] : value_.value_->items()) result.push_back(key);
  return result;
}

void JsonObject::schema(std::string_view expected) {
  const JsonValue value = at("schema");
  if (value.string() != expected) value.expected("\"" + std::string(expected) + "\"");
  ignore("tool");
}

bool JsonObject::knows(std::string_view key) const {
  return std::ranges::find(listed_, key) != listed_.end() || known_.contains(key);
}

void JsonObject::done() const {
  for (auto entry = value_.value_->begin(); entry != value_.value_->end(); ++entry) {
    const std::string& key = entry.key();
    if (knows(key)) continue;
    std::set<std::string> all(known_.begin(), known_.end());
    all.insert(listed_.begin(), listed_.end());
    const std::vector<std::string> known(all.begin(), all.end());
    const std::string near = nearest_word(key, known);
    const JsonValue place(nullptr, value_.file_, value_.path_ + "/" + escape_pointer(key));
    std::string list;
    for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
    place.fail("unknown key" +
               (near.empty() ? "; known keys: " + list : "; did you mean \"" + near + "\"?"));
  }
}

std::unique_ptr<json> parse_json(const std::string& name, std::string_view text,
                                 JsonComments comments) {
  const std::string other = what_else(text);
  if (!other.empty()) throw InputError(name + ": not valid JSON: " + other);
  TreeBuilder builder(name);
  json::sax_parse(text, &builder, json::input_format_t::json, true,
                  comments == JsonComments::Passed);
  return builder.take();
}

JsonFile::JsonFile(const std::string& path)
    : name_(path), value_(parse_json(path, read_file(path))) {}
JsonFile::JsonFile(const std::string& name, std::string_view text, JsonNumbers numbers)
    : name_(name), value_(parse_json(name, text)), numbers_(numbers) {}
JsonFile::JsonFile(JsonFile&&) noexcept = default;
JsonFile& JsonFile::operator=(JsonFile&&) noexcept = default;
JsonFile::~JsonFile() = default;

JsonObject JsonFile::root() const { return JsonValue(value_.get(), name_, "", numbers_).object(); }

}  // namespace dovetail
