// In files tensors, process groups and ops are referred to by name: the table of the names, and the
// value of a field that is one (base/fields.h).
//
// What reads has ProgramNames as its context, or a struct made from it; what writes has the
// Program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fields.h"
#include "schedule/id_table.h"
#include "schedule/program.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::schedule {

// The names of one kind of thing, each with the id that it stands for.
template <class IdType>
class NameTable {
 public:
  // `what` it is; `unknown` begins the message about a name that nothing has.
  NameTable(std::string what, std::string unknown)
      : what_(std::move(what)), unknown_(std::move(unknown)) {}

  template <class Items>
  void add_all(const Items& items) {
    for (const auto& item : items) by_name_[item.name] = item.id;
  }
  // Throws InputError: both must be new.
  void add(JsonObject& object, IdType id, const std::string& name) {
    if (!ids_.insert(id).second) {
      object.at("id").fail("another " + what_ + " has the id " + std::to_string(id.value));
    }
    if (!by_name_.emplace(name, id).second) {
      object.at("name").fail("another " + what_ + " is called \"" + name + "\"");
    }
  }
  [[nodiscard]] IdType find(const JsonValue& value) const {
    const std::string name = value.string();
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
    std::vector<std::string> known;
    known.reserve(by_name_.size());
    for (const auto& entry : by_name_) known.push_back(entry.first);
    const std::string near = nearest_word(name, known);
    value.fail(unknown_ + "\"" + name + "\"" +
               (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }

 private:
  std::string what_, unknown_;
  std::set<IdType> ids_;
  std::map<std::string, IdType> by_name_;
};

struct ProgramNames {
  NameTable<GroupId> groups;
  NameTable<TensorId> tensors;
  NameTable<OpId> ops;

  [[nodiscard]] auto& of(GroupId /*id*/) { return groups; }
  [[nodiscard]] auto& of(TensorId /*id*/) { return tensors; }
  [[nodiscard]] auto& of(OpId /*id*/) { return ops; }
};

struct NameOf {
  template <class IdType>
  void read(const JsonValue& value, IdType& id, ProgramNames& names) const {
    id = names.of(id).find(value);
  }
  ordered_json write(GroupId id, const Program& program) const { return program.group(id).name; }
  ordered_json write(TensorId id, const Program& program) const { return program.tensor(id).name; }
  ordered_json write(OpId id, const Program& program) const { return program.op(id).name; }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"type", "string"}};
  }
};

inline constexpr auto kId = as_integer(0, kLargestId);

}  // namespace dovetail::schedule
