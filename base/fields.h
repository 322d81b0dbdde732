// The fields of a struct, written once: what reads it from JSON, writes it, and says in a JSON
// Schema what a file may hold, asks this table.
//
//   constexpr auto kLink = fields<NodeLinks>(
//       optional("link", &NodeLinks::link, as_text(), "its name"),
//       required("bytes_per_s", &NodeLinks::rate, as_number(1, 1e21), "of each rank"),
//       optional("all_reduce_bytes_per_s", &NodeLinks::all_reduce_rate, as_number(1, 1e21)),
//       required("hop_us", &NodeLinks::hop, as_us(0, 1e12), "from rank to rank"),
//       check([](JsonObject& object, const NodeLinks& links, auto&) {
//         if (...) object.value().fail("...");
//       }));
//
//   read_as<NodeLinks>(as_object(kLink), json)  strictly (json_reader.h), checks in order
//   as_json(as_object(kLink), links)            keys in the order of the table
//   schema_of<NodeLinks>(as_object(kLink), ...) draft 2020-12
//
// A key of `required` must be there. One of `optional` may be absent, and is written where it
// differs from what a default NodeLinks has; a std::optional is absent where it is empty. One of
// `defaulted` may be absent, and is always written. What is absent stays as it was before the value
// was read. A key that stands twice in a table does not compile.
//
// A member is a pointer to it, or a function that gives a reference to it. A value is one of those
// below, or any type with their three functions (read, write, schema): what is irregular stands
// beside its table. A part of a table, likewise, has read, write and schema, and names the keys
// that it always knows.
//
// Reading and writing carry a context, whatever a file's own values and checks want to know: names,
// the Program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/units.h"
#include "base/words.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail {

using nlohmann::ordered_json;
using JsonMembers = ordered_json::object_t;

struct NoContext {};
inline constexpr std::identity kSelf{};  // the member that is the value itself

// A number that JSON can hold; a check otherwise.
inline double finite(double value) {
  DOVETAIL_CHECK(std::isfinite(value)) << value;
  return value;
}

// ------------------------------------------------------------------------------------ values

// Of whole numbers, counts with a unit, and ids.
struct IntegerValue {
  std::int64_t low, high;

  template <class T>
  void read(const JsonValue& value, T& into, auto& /*context*/) const {
    const std::int64_t number = value.integer(low, high);
    if constexpr (std::is_integral_v<T>) {
      into = static_cast<T>(number);
    } else if constexpr (requires { into.count(); }) {
      into = T(number);
    } else {
      into = T{static_cast<std::int32_t>(number)};
    }
  }
  template <class T>
  ordered_json write(const T& value, const auto& /*context*/) const {
    if constexpr (std::is_integral_v<T>) {
      return value;
    } else if constexpr (requires { value.count(); }) {
      return value.count();
    } else {
      return value.value;
    }
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ordered_json says = {{"type", "integer"}};
    if (low != std::numeric_limits<std::int64_t>::min()) says["minimum"] = low;
    if (high != std::numeric_limits<std::int64_t>::max()) says["maximum"] = high;
    return says;
  }
};
constexpr IntegerValue as_integer(std::int64_t low,
                                  std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
  return {low, high};
}

// Of doubles and quantities of them.
struct NumberValue {
  double low, high;

  template <class T>
  void read(const JsonValue& value, T& into, auto& /*context*/) const {
    into = T(value.number(low, high));
  }
  template <class T>
  ordered_json write(const T& value, const auto& /*context*/) const {
    if constexpr (std::is_same_v<T, double>) {
      return finite(value);
    } else {
      return finite(value.count());
    }
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ordered_json says = {{"type", "number"}};
    if (low != -std::numeric_limits<double>::max()) says["minimum"] = low;
    if (high != std::numeric_limits<double>::max()) says["maximum"] = high;
    return says;
  }
};
constexpr NumberValue as_number(double low = -std::numeric_limits<double>::max(),
                                double high = std::numeric_limits<double>::max()) {
  return {low, high};
}

// A Duration, with decimals down to the nanosecond.
struct MicrosecondsValue {
  double low, high;

  void read(const JsonValue& value, Duration& into, auto& /*context*/) const {
    into = from_us(value.number(low, high));
  }
  ordered_json write(Duration value, const auto& /*context*/) const { return to_us(value); }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ordered_json says = NumberValue{low, high}.schema<double>();
    says["description"] = "microseconds";
    return says;
  }
};
constexpr MicrosecondsValue as_us(double low, double high) { return {low, high}; }

// What JSON has as it is: numbers, texts, truth; and enumerators by their words.
struct PlainValue {
  template <class T>
  ordered_json write(const T& value, const auto& /*context*/) const {
    if constexpr (Worded<T>) {
      return to_string(value);
    } else {
      return value;
    }
  }
};

struct TextValue : PlainValue {
  void read(const JsonValue& value, std::string& into, auto& /*context*/) const {
    into = value.string();
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"type", "string"}};
  }
};
constexpr TextValue as_text() { return {}; }

// A text that is not empty.
struct NameValue : PlainValue {
  void read(const JsonValue& value, std::string& into, auto& /*context*/) const {
    into = value.string();
    if (into.empty()) value.fail("expected a name, found \"\"");
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"type", "string"}, {"minLength", 1}};
  }
};
constexpr NameValue as_name() { return {}; }

struct TruthValue : PlainValue {
  void read(const JsonValue& value, bool& into, auto& /*context*/) const { into = value.boolean(); }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"type", "boolean"}};
  }
};
constexpr TruthValue as_bool() { return {}; }

// An enumerator by its word (base/words.h).
struct WordValue : PlainValue {
  template <Worded Enum>
  void read(const JsonValue& value, Enum& into, auto& /*context*/) const {
    into = value.one_of<Enum>();
  }
  template <Worded Enum>
  [[nodiscard]] ordered_json schema() const {
    return {{"enum", words_of(Enum{})}};
  }
};
constexpr WordValue as_word() { return {}; }

// One of some of them only.
template <Worded Enum>
struct WordAmong : PlainValue {
  std::span<const Enum> values;

  void read(const JsonValue& value, Enum& into, auto& /*context*/) const {
    into = value.one_of<Enum>(values);
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ordered_json list = ordered_json::array();
    for (const Enum value : values) list.push_back(to_string(value));
    return {{"enum", std::move(list)}};
  }
};
template <Worded Enum, std::size_t kSize>
constexpr WordAmong<Enum> as_word_among(const std::array<Enum, kSize>& values) {
  return {{}, values};
}

// A std::vector, or a list like one. `each` is called with the JSON of an element, those before it, itself and the
// context.
template <class Element, class Each>
struct ListValue {
  Element element;
  std::size_t at_least;
  std::string_view what;  // of which there must be so many: "point"
  Each each;

  template <class List>
  void read(const JsonValue& value, List& into, auto& context) const {
    const JsonArray array = value.array();
    const std::size_t size = array.size();
    if (size < at_least) {
      const std::string wanted = at_least == 1 ? "one " : std::to_string(at_least) + " ";
      value.fail("expected at least " + wanted + std::string(what) + (at_least == 1 ? "" : "s") +
                 ", found " + (at_least == 1 ? "none" : std::to_string(size)));
    }
    into.clear();
    into.reserve(size);
    for (const JsonValue item : array) {
      typename List::value_type one{};
      element.read(item, one, context);
      each(item, std::as_const(into), one, context);
      into.push_back(std::move(one));
    }
  }
  // Appending to a list of JSON one by one costs the square of its length: every push_back tells
  // all elements anew where they lie.
  template <class List>
  ordered_json write(const List& values, const auto& context) const {
    ordered_json::array_t list;
    list.reserve(values.size());
    for (const auto& value : values) list.push_back(element.write(value, context));
    return ordered_json(std::move(list));
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ordered_json says = {{"type", "array"},
                         {"items", element.template schema<typename T::value_type>()}};
    if (at_least > 0) says["minItems"] = at_least;
    return says;
  }
};
struct AnyElement {
  constexpr void operator()(const auto&...) const {}
};
template <class Element, class Each = AnyElement>
constexpr ListValue<Element, Each> as_list(Element element, std::size_t at_least = 0,
                                           std::string_view what = "", Each each = {}) {
  return {element, at_least, what, each};
}
// A list whose elements depend on those before them.
template <class Element, class Each>
constexpr ListValue<Element, Each> as_list(Element element, Each each) {
  return {element, 0, "", each};
}

// A std::map from any key to a value.
template <class Element>
struct KeyedValue {
  Element element;

  template <class T>
  void read(const JsonValue& value, std::map<std::string, T>& into, auto& context) const {
    JsonObject object = value.object();
    for (const std::string& key : object.keys()) element.read(object.at(key), into[key], context);
  }
  template <class T>
  ordered_json write(const std::map<std::string, T>& values, const auto& context) const {
    JsonMembers members;
    members.reserve(values.size());
    for (const auto& [key, value] : values) {
      members.emplace_back(key, element.write(value, context));
    }
    return ordered_json(std::move(members));
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"type", "object"},
            {"additionalProperties", element.template schema<typename T::mapped_type>()}};
  }
};
template <class Element>
constexpr KeyedValue<Element> as_keyed(Element element) {
  return {element};
}

// ------------------------------------------------------------------------------------- parts

// What the schema of an object grows from, part by part.
struct ObjectSchema {
  ordered_json properties = ordered_json::object();
  std::vector<std::string> required;
  std::vector<ordered_json> one_of;  // sets of keys, one of which is there

  void add(std::string_view key, ordered_json says, std::string_view words) {
    if (!words.empty()) says["description"] = words;
    properties[std::string(key)] = std::move(says);
  }
  [[nodiscard]] ordered_json whole() const {
    ordered_json says = {{"type", "object"},
                         {"properties", properties},
                         {"required", required},
                         {"additionalProperties", false}};
    if (required.empty()) says.erase("required");
    if (!one_of.empty()) says["oneOf"] = one_of;
    return says;
  }
};

enum class Presence { Required, Optional, Defaulted };

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Value = T;
};

template <class Access, class Owner>
using MemberOf = std::remove_cvref_t<std::invoke_result_t<Access, Owner&>>;

// One key and the member that it stands for.
template <Presence kPresence, class Access, class Value>
struct FieldPart {
  std::string_view key;
  Access access;
  Value value;
  std::string_view words;  // what it means, for the schema

  constexpr void keys(const auto& visitor) const { visitor(key); }
  template <class Owner>
  void read(JsonObject& object, Owner& owner, auto& context) const {
    const std::optional<JsonValue> found = object.find(key);
    if (!found) {
      if (kPresence == Presence::Required) object.missing(key);
      return;
    }
    auto& member = std::invoke(access, owner);
    if constexpr (IsOptional<MemberOf<Access, Owner>>::value) {
      value.read(*found, member.emplace(), context);
    } else {
      value.read(*found, member, context);
    }
  }
  template <class Owner>
  void write(JsonMembers& members, const Owner& owner, const auto& context) const {
    const auto& member = std::invoke(access, owner);
    if constexpr (IsOptional<MemberOf<Access, Owner>>::value) {
      if (member) members.emplace_back(key, value.write(*member, context));
    } else {
      if constexpr (kPresence == Presence::Optional) {
        if (member == std::invoke(access, initial<Owner>())) return;
      }
      members.emplace_back(key, value.write(member, context));
    }
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    using Member = MemberOf<Access, Owner>;
    if constexpr (IsOptional<Member>::value) {
      whole.add(key, value.template schema<typename IsOptional<Member>::Value>(), words);
    } else {
      whole.add(key, value.template schema<Member>(), words);
    }
    if (kPresence == Presence::Required) whole.required.emplace_back(key);
  }

 private:
  template <class Owner>
  static const Owner& initial() {
    static const Owner kInitial{};
    return kInitial;
  }
};

template <class Access, class Value>
constexpr FieldPart<Presence::Required, Access, Value> required(std::string_view key, Access access,
                                                                Value value,
                                                                std::string_view words = "") {
  return {key, access, value, words};
}
template <class Access, class Value>
constexpr FieldPart<Presence::Optional, Access, Value> optional(std::string_view key, Access access,
                                                                Value value,
                                                                std::string_view words = "") {
  return {key, access, value, words};
}
template <class Access, class Value>
constexpr FieldPart<Presence::Defaulted, Access, Value> defaulted(std::string_view key,
                                                                  Access access, Value value,
                                                                  std::string_view words = "") {
  return {key, access, value, words};
}

// Looks at what was read so far, and may change it.
template <class Look>
struct Check {
  Look look;

  constexpr void keys(const auto& /*visitor*/) const {}
  void read(JsonObject& object, auto& owner, auto& context) const { look(object, owner, context); }
  void write(JsonMembers& /*members*/, const auto& /*owner*/, const auto& /*context*/) const {}
  template <class Owner>
  void schema(ObjectSchema& /*whole*/) const {}
};
template <class Look>
constexpr Check<Look> check(Look look) {
  return {look};
}

// "schema" and "kind" of a file.
struct DocumentPart {
  std::string_view schema_word;  // "dovetail.plan/1"
  std::string_view kind;         // "plan"

  constexpr void keys(const auto& visitor) const {
    visitor("schema");
    visitor("tool");
    visitor("kind");
  }
  void read(JsonObject& object, auto& /*owner*/, auto& /*context*/) const {
    object.schema(schema_word);
    static_cast<void>(object.word("kind", std::array{kind}));
  }
  void write(JsonMembers& members, const auto& /*owner*/, const auto& /*context*/) const {
    members.emplace_back("schema", schema_word);
    members.emplace_back("kind", kind);
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    whole.add("schema", {{"const", schema_word}}, "");
    whole.add("tool", {{"type", "object"}},
              "which dovetail wrote this: name, version, commit, build, compiler");
    whole.add("kind", {{"const", kind}}, "");
    whole.required = {"schema", "kind"};
  }
};
constexpr DocumentPart document(std::string_view schema, std::string_view kind) {
  return {schema, kind};
}

// All of a struct: parts one after another.
template <class T, class... Parts>
struct Fields {
  std::tuple<Parts...> parts;

  // The known keys, one call each.
  constexpr void keys(const auto& visitor) const {
    std::apply([&](const auto&... part) { (part.keys(visitor), ...); }, parts);
  }
  void read(JsonObject& object, auto& owner, auto& context) const {
    std::apply([&](const auto&... part) { (part.read(object, owner, context), ...); }, parts);
  }
  void write(JsonMembers& members, const auto& owner, const auto& context) const {
    std::apply([&](const auto&... part) { (part.write(members, owner, context), ...); }, parts);
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    std::apply([&](const auto&... part) { (part.template schema<Owner>(whole), ...); }, parts);
  }
};
template <class T, class... Parts>
constexpr Fields<T, Parts...> fields(Parts... parts) {
  return {std::tuple<Parts...>(parts...)};
}

// The fields of a member, at the level of its owner.
template <class Access, class Table>
struct InlinePart {
  Access access;
  Table table;

  constexpr void keys(const auto& visitor) const { table.keys(visitor); }
  void read(JsonObject& object, auto& owner, auto& context) const {
    table.read(object, std::invoke(access, owner), context);
  }
  void write(JsonMembers& members, const auto& owner, const auto& context) const {
    table.write(members, std::invoke(access, owner), context);
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    table.template schema<MemberOf<Access, Owner>>(whole);
  }
};
template <class Access, class Table>
constexpr InlinePart<Access, Table> inlined(Access access, Table table) {
  return {access, table};
}

// These fields are written of some owners only.
template <class Condition, class Table>
struct WrittenWhere : Table {
  Condition condition;

  void write(JsonMembers& members, const auto& owner, const auto& context) const {
    if (std::invoke(condition, owner)) Table::write(members, owner, context);
  }
};
template <class Condition, class Table>
constexpr WrittenWhere<Condition, Table> written_where(Condition condition, Table table) {
  return {table, condition};
}

// A std::map from enumerators, each of which has its word as a key; these are of `all`.
template <class Access, class Enum, class Value>
struct ByWordPart {
  Access access;
  std::span<const Enum> all;
  Value value;

  constexpr void keys(const auto& visitor) const {
    for (const Enum each : all) visitor(to_string(each));
  }
  void read(JsonObject& object, auto& owner, auto& context) const {
    for (const Enum each : all) {
      const std::optional<JsonValue> found = object.find(to_string(each));
      if (found) value.read(*found, std::invoke(access, owner)[each], context);
    }
  }
  void write(JsonMembers& members, const auto& owner, const auto& context) const {
    for (const auto& [each, mapped] : std::invoke(access, owner)) {
      members.emplace_back(to_string(each), value.write(mapped, context));
    }
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    using Mapped = typename MemberOf<Access, Owner>::mapped_type;
    for (const Enum each : all) whole.add(to_string(each), value.template schema<Mapped>(), "");
  }
};
template <class Enum, class Access, class Value>
constexpr ByWordPart<Access, Enum, Value> by_word(Access access, Value value,
                                                  std::span<const Enum> all = kAllOf<Enum>) {
  return {access, all, value};
}

// An alternative T of a variant.
template <class T, class Table>
struct Choice {
  std::string_view tag;
  Table table;
  std::string_view words;
};
// Of `tagged`: by the word that names it.
template <class T, class Table>
constexpr Choice<T, Table> when(std::string_view tag, Table table, std::string_view words = "") {
  return {tag, table, words};
}
// Of `alternatives`: by its first key.
template <class T, class... Parts>
constexpr Choice<T, Fields<T, Parts...>> with(Parts... parts) {
  return {"", fields<T>(parts...), ""};
}

// A variant whose alternatives have different keys: the first one whose first key is there.
// `otherwise` says what was expected.
template <class Access, class... Choices>
struct AlternativesPart {
  Access access;
  std::string_view otherwise;
  std::tuple<Choices...> choices;

  constexpr void keys(const auto& /*visitor*/) const {}
  void read(JsonObject& object, auto& owner, auto& context) const {
    auto& member = std::invoke(access, owner);
    const auto try_one = [&]<class T, class Table>(const Choice<T, Table>& choice) {
      std::string_view first;
      choice.table.keys([&](std::string_view key) {
        if (first.empty()) first = key;
      });
      if (!object.has(first)) return false;
      choice.table.keys([&](std::string_view key) { object.ignore(key); });
      T one{};
      choice.table.read(object, one, context);
      member = std::move(one);
      return true;
    };
    const bool found =
        std::apply([&](const auto&... choice) { return (try_one(choice) || ...); }, choices);
    if (!found) object.value().fail(std::string(otherwise));
  }
  void write(JsonMembers& members, const auto& owner, const auto& context) const {
    const auto try_one = [&]<class T, class Table>(const Choice<T, Table>& choice) {
      const T* one = std::get_if<T>(&std::invoke(access, owner));
      if (one != nullptr) choice.table.write(members, *one, context);
      return one != nullptr;
    };
    const bool written =
        std::apply([&](const auto&... choice) { return (try_one(choice) || ...); }, choices);
    DOVETAIL_CHECK(written) << "an alternative that has no JSON: " << otherwise;
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    const auto add = [&]<class T, class Table>(const Choice<T, Table>& choice) {
      ObjectSchema one;
      choice.table.template schema<T>(one);
      whole.properties.update(one.properties);
      ordered_json keys = ordered_json::object();
      keys["required"] = one.required;
      whole.one_of.push_back(std::move(keys));
    };
    std::apply([&](const auto&... choice) { (add(choice), ...); }, choices);
  }
};
template <class Access, class... Choices>
constexpr AlternativesPart<Access, Choices...> alternatives(Access access,
                                                            std::string_view otherwise,
                                                            Choices... choices) {
  return {access, otherwise, std::tuple<Choices...>(choices...)};
}

// ----------------------------------------------------------------------------------- objects

// The keys that a table always knows.
class KeyList {
 public:
  // A key that stands twice, or more keys than there is room for, do not compile.
  template <class Table>
  constexpr explicit KeyList(const Table& table) {
    table.keys([this](std::string_view key) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (keys_.at(i) == key) throw std::logic_error("a key stands twice");
      }
      keys_.at(count_++) = key;
    });
  }
  [[nodiscard]] constexpr std::span<const std::string_view> all() const {
    return {keys_.data(), count_};
  }

 private:
  std::array<std::string_view, 32> keys_{};
  std::size_t count_ = 0;
};

// A struct as an object of its own.
template <class Table>
struct ObjectValue {
  Table table;
  KeyList keys;

  template <class T>
  void read(JsonObject object, T& into, auto& context) const {
    object.know(keys.all());
    table.read(object, into, context);
    object.done();
  }
  template <class T>
  void read(const JsonValue& value, T& into, auto& context) const {
    read(value.object(), into, context);
  }
  template <class T>
  ordered_json write(const T& value, const auto& context) const {
    JsonMembers members;
    members.reserve(keys.all().size() + 2);  // so that none has to move
    table.write(members, value, context);
    return ordered_json(std::move(members));
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ObjectSchema whole;
    table.template schema<T>(whole);
    return whole.whole();
  }
};
template <class Table>
constexpr ObjectValue<Table> as_object(Table table) {
  return {table, KeyList(table)};
}

// A variant whose key `tag`, the first one written, says which alternative the other keys are of.
template <class... Choices>
struct TaggedValue {
  std::string_view tag;
  std::tuple<Choices...> choices;

  void read(const JsonValue& value, auto& into, auto& context) const {
    JsonObject whole = value.object();
    const auto words =
        std::apply([](const auto&... choice) { return std::array{choice.tag...}; }, choices);
    const std::string_view found = words[whole.word(tag, words)];
    const auto try_one =
        [&]<class Alternative, class Table>(const Choice<Alternative, Table>& choice) {
          if (choice.tag != found) return;
          Alternative one{};
          as_object(choice.table).read(whole, one, context);
          into = std::move(one);
        };
    std::apply([&](const auto&... choice) { (try_one(choice), ...); }, choices);
  }
  ordered_json write(const auto& value, const auto& context) const {
    JsonMembers members;
    members.reserve(8);
    const auto try_one =
        [&]<class Alternative, class Table>(const Choice<Alternative, Table>& choice) {
          const auto* one = std::get_if<Alternative>(&value);
          if (one == nullptr) return;
          members.emplace_back(tag, choice.tag);
          choice.table.write(members, *one, context);
        };
    std::apply([&](const auto&... choice) { (try_one(choice), ...); }, choices);
    DOVETAIL_CHECK(!members.empty()) << "an alternative that has no word for \"" << tag << "\"";
    return ordered_json(std::move(members));
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    ordered_json all = ordered_json::array();
    const auto add = [&]<class Alternative, class Table>(const Choice<Alternative, Table>& choice) {
      ObjectSchema whole;
      whole.add(tag, {{"const", choice.tag}}, "");
      whole.required.emplace_back(tag);
      choice.table.template schema<Alternative>(whole);
      ordered_json says = whole.whole();
      if (!choice.words.empty()) says["description"] = choice.words;
      all.push_back(std::move(says));
    };
    std::apply([&](const auto&... choice) { (add(choice), ...); }, choices);
    return {{"oneOf", std::move(all)}};
  }
};
template <class... Choices>
constexpr TaggedValue<Choices...> tagged(std::string_view tag, Choices... choices) {
  return {tag, std::tuple<Choices...>(choices...)};
}

// ------------------------------------------------------------------------------------- files

template <class T, class Table, class Context = NoContext>
T read_as(const ObjectValue<Table>& value, const JsonObject& json, Context&& context = {}) {
  T into{};
  value.read(json, into, context);
  return into;
}

template <class Value, class T, class Context = NoContext>
ordered_json as_json(const Value& value, const T& from, const Context& context = {}) {
  return value.write(from, context);
}

// The schema of a file: `title` and `description` say what it is, and who writes and reads it.
template <class T, class Value>
ordered_json schema_of(const Value& value, std::string_view title, std::string_view description) {
  ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"title", title},
                         {"description", description}};
  schema.update(value.template schema<T>());
  return schema;
}

}  // namespace dovetail
