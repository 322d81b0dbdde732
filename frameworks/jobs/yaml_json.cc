// Makes a JSON value of the events of yaml-cpp's parser.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/yaml.h"

#ifdef DOVETAIL_YAML
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#endif

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/jobs/keys.h"

namespace dovetail::frameworks {

#ifdef DOVETAIL_YAML
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 1 << 20, kMostValues = 200'000, kMostLevels = 64;
constexpr std::string_view kTags = "tag:yaml.org,2002:";

bool all_of(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

bool takes_sign(std::string_view& text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  return is_negative;
}

// The resolvers of PyYAML (resolver.py), in the order in which they count. Numbers of base 60 ("1:30") are text here.
std::optional<json> whole_of_yaml(std::string_view text) {
  const bool is_negative = takes_sign(text);
  std::string digits(text);
  std::erase(digits, '_');
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0b")) {
    base = digits[1] == 'x' ? 16 : 2;
    digits.erase(0, 2);
  } else if (digits.size() > 1 && digits[0] == '0') {
    base = 8;
  }
  std::int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number, base);
  const bool is_digit = !digits.empty() && digits[0] != '-' && text[0] != '_';
  if (!is_digit || at != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) return json(std::string(text));
  if (error != std::errc()) return std::nullopt;
  return json(is_negative ? -number : number);
}

std::optional<json> float_of_yaml(std::string_view text) {
  const bool is_negative = takes_sign(text);
  const double sign = is_negative ? -1 : 1;
  if (text == ".inf" || text == ".Inf" || text == ".INF")
    return json(sign * std::numeric_limits<double>::infinity());
  const std::size_t exponent = std::min(text.find_first_of("eE"), text.size());
  const std::string_view front = text.substr(0, exponent);
  const std::size_t point = front.find('.');
  if (point == std::string_view::npos || front.size() < 2 || front[0] == '_') return std::nullopt;
  if (!all_of(front.substr(0, point), "0123456789_")) return std::nullopt;
  if (!all_of(front.substr(point + 1), "0123456789_")) return std::nullopt;
  if (exponent < text.size()) {
    const std::string_view power = text.substr(exponent + 1);
    const bool is_signed = power.starts_with('-') || power.starts_with('+');
    if (!is_signed || power.size() < 2 || !all_of(power.substr(1), "0123456789"))
      return std::nullopt;
  }
  std::string digits(text);
  std::erase(digits, '_');
  double number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return json(sign * number);
}

json plain_of_yaml(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL")
    return nullptr;
  const bool is_cased = all_of(std::string_view(text).substr(1), "abcdefghijklmnopqrstuvwxyz") ||
                        all_of(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  if (is_cased && is_one_of(text, "yes|true|on")) return true;
  if (is_cased && is_one_of(text, "no|false|off")) return false;
  if (const auto number = whole_of_yaml(text)) return *number;
  if (const auto number = float_of_yaml(text)) return *number;
  return text;
}

// What is open, and what is known by an anchor.
class YamlEvents : public YAML::EventHandler {
 public:
  explicit YamlEvents(const std::string& file) : file_(file) {}

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, anchor, nullptr, true);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool is_plain = tag.empty() || tag == "?";
    if (is_plain) return add(mark, anchor, plain_of_yaml(text), true, text == "<<");
    add(mark, anchor, tagged(mark, tag, text), false);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) fail(mark, "an alias within what it names");
    values_ += known->second.values;
    if (values_ > kMostValues) fail_values(mark);
    put(mark, known->second.value, false);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, json::array());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, json::object());
  }
  void OnMapEnd() override {
    Open& map = open_.back();
    for (auto& [key, value] : map.merged.items()) {
      if (!map.value.contains(key)) map.value[key] = std::move(value);
    }
    close();
  }

  [[nodiscard]] json take() { return std::move(root_); }

  // In one line, whatever stands in the file.
  [[noreturn]] void fail(const YAML::Mark& mark, std::string message) const {
    for (char& c : message) {
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    }
    throw InputError(file_ + ":" + std::to_string(mark.line + 1) + ":" +
                     std::to_string(mark.column + 1) + ": " + message);
  }

 private:
  struct Open {
    YAML::Mark mark;
    YAML::anchor_t anchor;
    json value;
    std::size_t before;                             // values when it was opened
    std::optional<std::string> key = std::nullopt;  // of the value that comes next
    bool is_merge = false;                          // that key is <<
    json merged = json::object();
  };
  struct Anchored {
    json value;
    std::size_t values;
  };

  [[noreturn]] void fail_values(const YAML::Mark& mark) const {
    fail(mark, "more than " + std::to_string(kMostValues) + " values, with those of aliases");
  }

  json tagged(const YAML::Mark& mark, const std::string& tag, const std::string& text) const {
    if (tag == "!" || tag == std::string(kTags) + "str") return text;
    if (tag.starts_with(kTags)) {
      const std::string_view kind = std::string_view(tag).substr(kTags.size());
      json value = plain_of_yaml(text);
      if (kind == "float" && value.is_number()) return value.get<double>();
      if ((kind == "int" && value.is_number_integer()) || (kind == "bool" && value.is_boolean()) ||
          (kind == "null" && value.is_null())) {
        return value;
      }
    }
    fail(mark, "the tag " + tag + " of this value is not read");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, json value) {
    const bool is_plain = tag.empty() || tag == "?" || tag == "!" ||
                          tag == std::string(kTags) + (value.is_array() ? "seq" : "map");
    if (!is_plain) fail(mark, "the tag " + tag + " is not read");
    if (open_.size() == kMostLevels)
      fail(mark, "more than " + std::to_string(kMostLevels) + " levels");
    if (is_map() && !open_.back().key) fail(mark, "expected a word for a key");
    if (++values_ > kMostValues) fail_values(mark);
    open_.push_back({.mark = mark, .anchor = anchor, .value = std::move(value), .before = values_});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != 0)
      anchors_[done.anchor] = {.value = done.value, .values = values_ - done.before + 1};
    put(done.mark, std::move(done.value), false);
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, json value, bool is_plain,
           bool is_merge = false) {
    if (++values_ > kMostValues) fail_values(mark);
    if (anchor != 0) anchors_[anchor] = {.value = value, .values = 1};
    put(mark, std::move(value), is_plain && is_merge);
  }

  [[nodiscard]] bool is_map() const { return !open_.empty() && open_.back().value.is_object(); }

  void put(const YAML::Mark& mark, json value, bool is_merge) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (!is_map()) {
      open_.back().value.push_back(std::move(value));
    } else if (!open_.back().key) {
      put_key(mark, value, is_merge);
    } else {
      Open& map = open_.back();
      if (map.is_merge) {
        merge(mark, map, value);
      } else {
        map.value[*map.key] = std::move(value);
      }
      map.key = std::nullopt;
    }
  }

  void put_key(const YAML::Mark& mark, const json& value, bool is_merge) {
    Open& map = open_.back();
    if (value.is_structured()) fail(mark, "expected a word for a key");
    map.key = value.is_string() ? value.get<std::string>() : value.dump();
    map.is_merge = is_merge;
    if (map.value.contains(*map.key)) fail(mark, "the key " + *map.key + " is there twice");
  }

  // "<<: *base" or "<<: [*a, *b]": what the map does not say itself; of several the first counts.
  void merge(const YAML::Mark& mark, Open& map, const json& value) const {
    const json one = json::array({value});
    for (const json& base : value.is_array() ? value : one) {
      if (!base.is_object()) fail(mark, "expected a mapping, or a list of them, behind <<");
      for (const auto& [key, member] : base.items()) {
        if (!map.merged.contains(key)) map.merged[key] = member;
      }
    }
  }

  const std::string& file_;
  json root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t values_ = 0;
};

}  // namespace

nlohmann::json read_yaml(const std::string& file, const std::string& text) {
  if (text.size() > kMostBytes)
    throw InputError(file + ": longer than 1 MiB, which no configuration is");
  YamlEvents events(file);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(events)) return nullptr;
    YamlEvents more(file);
    if (parser.HandleNextDocument(more))
      throw InputError(file + ": expected one document, found another behind ---");
    return events.take();
  } catch (const YAML::Exception& error) {
    YAML::Mark mark = error.mark;
    if (mark.is_null()) mark = YAML::Mark();
    events.fail(mark, error.msg);
  }
}

#else  // a build without yaml-cpp

nlohmann::json read_yaml(const std::string& file, const std::string& /*text*/) {
  throw InputError(file + ": this build cannot read YAML; install libyaml-cpp-dev and build again");
}

#endif

}  // namespace dovetail::frameworks
