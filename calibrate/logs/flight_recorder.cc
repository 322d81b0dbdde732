// Reads dumps of PyTorch's flight recorder: each entry becomes a sample of its collective, and the
// sequence of entries that the end of a dump repeats gives the sizes of DDP's buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/flight_recorder.h"

#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "calibrate/logs/rank_views.h"
#include "calibrate/logs/sequence.h"
#include "recordings/json_stream.h"
#include "recordings/limits.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using schedule::Collective;

constexpr double kMostMs = 1e9;

// By what stands behind "nccl:"; calls on one tensor instead of a list are "_all_gather_base".
std::optional<Collective> kind_of(const std::string& name) {
  std::string_view what = std::string_view(name).substr(name.find(':') + 1);
  constexpr std::string_view kBase = "_base";
  if (what.ends_with(kBase)) {
    what.remove_suffix(kBase.size());
    if (what.starts_with('_')) what.remove_prefix(1);
  }
  return schedule::collective_named(&schedule::CollectiveTraits::torch, what);
}

// PyTorch's names of element types (c10::toString); 0: unknown.
std::int64_t bytes_of_type(const std::string& name) {
  struct Type {
    std::string_view name;
    std::int64_t bytes;
  };
  constexpr std::array<Type, 12> kElementTypes = {{{"Float", 4},
                                                   {"Half", 2},
                                                   {"BFloat16", 2},
                                                   {"Double", 8},
                                                   {"Long", 8},
                                                   {"Int", 4},
                                                   {"Short", 2},
                                                   {"Char", 1},
                                                   {"Byte", 1},
                                                   {"Bool", 1},
                                                   {"Float8_e4m3fn", 1},
                                                   {"Float8_e5m2", 1}}};
  for (const Type& type : kElementTypes) {
    if (type.name == name) return type.bytes;
  }
  return 0;
}

// Elements of one tensor times their size, at most kMostBytes.
std::int64_t bytes_of_tensor(const JsonArray& shape, std::int64_t element) {
  std::int64_t bytes = element;
  for (const JsonValue extent : shape) {
    const std::int64_t count = extent.integer(0, kMostBytes);
    if (count > 0 && bytes > kMostBytes / count) extent.fail("expected at most 2^50 bytes in all");
    bytes *= count;
  }
  return bytes;
}

// Absent where a type is none that is known.
std::optional<std::int64_t> bytes_of_side(JsonObject& entry, bool is_output) {
  const char* const types_key = is_output ? "output_dtypes" : "input_dtypes";
  const JsonArray shapes = entry.array(is_output ? "output_sizes" : "input_sizes");
  const JsonArray types = entry.array(types_key);
  if (shapes.size() != types.size()) {
    types.value().fail("expected as many types as sizes, " + std::to_string(shapes.size()) +
                       ", found " + std::to_string(types.size()));
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::int64_t element = bytes_of_type(types[i].string());
    if (element == 0) return std::nullopt;
    sum += bytes_of_tensor(shapes[i].array(), element);
    if (sum > kMostBytes) shapes.value().fail("expected at most 2^50 bytes in all");
  }
  return sum;
}

// "[0, 1]" or [0, 1] of pg_config: the members of a group, which make it what it is.
struct Members {
  std::string text;  // "0,1"
  std::int64_t ranks = 0;
};

Members members_of(const JsonValue& value) {
  Members members;
  const auto add = [&](std::string_view rank) {
    members.text += (members.ranks++ == 0 ? "" : ",") + std::string(rank);
  };
  if (value.is_string()) {
    const std::string text = value.string();
    std::size_t at = 0;
    while ((at = text.find_first_of("0123456789", at)) != std::string::npos) {
      const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
      add(std::string_view(text).substr(at, end - at));
      at = end;
    }
  } else {
    for (const JsonValue rank : value.array()) {
      add(std::to_string(rank.integer(0, kMostRanks)));
    }
  }
  return members;
}

class FlightReader {
 public:
  void file(const Source& source, std::int64_t number) {
    JsonStream json(source.name, source.text);
    const JsonFile file(source.name, json.document(), JsonNumbers::Loose);
    JsonObject root = file.root();
    if (version_.empty()) version_ = printable(root.string_or("version", ""));
    if (root.has("comm_lib_version") && root.at("comm_lib_version").is_string()) {
      library_ = printable(root.string("comm_lib_version"));
    }
    groups_.clear();
    if (root.has("pg_config")) read_groups(root.object("pg_config"));
    if (!root.has("entries")) {
      throw InputError(source.name +
                       ": no \"entries\": the recorder was off (set "
                       "TORCH_FR_BUFFER_SIZE=2000), or this is no flight recorder dump");
    }
    sequences_.clear();
    for (const JsonValue item : root.array("entries")) read_entry(item, number);
    if (number == 0) tell_sequences();
  }

  CollectiveLog finish(const std::string& name) {
    log_.tool = "flight recorder" + (version_.empty() ? "" : " " + version_);
    log_.nccl = library_;
    const auto leave_out = [&](std::size_t count, const std::string& what) {
      if (count == 0) return;
      log_.left_out.push_back(std::to_string(count) + (count == 1 ? " entry " : " entries ") +
                              what);
    };
    leave_out(other_kinds_, "of other kinds (sends, barriers, coalesced groups)");
    leave_out(unknown_types_, "with an element type that is not known");
    leave_out(lone_, "of groups with one rank");
    leave_out(no_time_, "without duration_ms (set TORCH_NCCL_ENABLE_TIMING=1; Gloo has none)");
    if (used_ == 0) throw InputError(name + ": no collective in it that plans use");
    if (!views_.empty()) views_.finish(log_);
    return std::move(log_);
  }

 private:
  void read_groups(JsonObject config) {
    for (const std::string& key : config.keys()) {
      JsonObject group = config.object(key);
      if (group.has("ranks")) groups_[key] = members_of(group.at("ranks"));
    }
  }

  void read_entry(const JsonValue& item, std::int64_t file) {
    JsonObject entry = item.object();
    const std::optional<Collective> kind = kind_of(entry.string("profiling_name"));
    if (!kind) {
      ++other_kinds_;
      return;
    }
    const std::optional<std::int64_t> bytes =
        bytes_of_side(entry, schedule::traits_of(*kind).sends == schedule::Extent::Part);
    if (!bytes) {
      ++unknown_types_;
      return;
    }
    ++used_;
    const JsonArray names = entry.array("process_group");
    const std::string name = names.size() > 0 ? names[0].string() : "";
    const Members members = groups_.contains(name) ? groups_[name] : Members{};
    // Groups of one name on different ranks may be different groups: a mesh names them alike.
    const std::string group =
        (members.ranks > 0 ? "ranks " + members.text + " (\"" : "(\"") + name + "\")";
    sequences_[group].push_back({std::string(to_string(*kind)), *bytes});
    const bool timed = entry.has("duration_ms") && !entry.at("duration_ms").is_null();
    const double ms = timed ? entry.number("duration_ms", 0, kMostMs) : 0;
    if (members.ranks == 1) {
      ++lone_;
    } else if (ms < 1e-6 || *bytes == 0) {
      ++no_time_;
    } else if (members.ranks == 0) {
      item.fail("its process group \"" + printable(name) + "\" has no ranks in /pg_config");
    } else {
      constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
      const std::int64_t serial = entry.integer("collective_seq_id", 0, kMost);
      views_.add({group, serial, *kind, *bytes}, file, members.ranks, std::nullopt,
                 from_us(ms * 1e3));
    }
  }

  // DDP's buckets, in their order, with or without times.
  void tell_sequences() {
    constexpr std::size_t kShown = 8;
    std::size_t told = 0;
    for (const auto& [group, sequence] : sequences_) {
      if (told++ == kShown) break;
      const bool is_only = sequences_.size() == 1;
      const std::string who = is_only ? "the job" : printable(group);
      log_.read.push_back(who + (period_of(sequence) > 0 ? " " : ": ") + in_words(sequence));
    }
  }

  CollectiveLog log_;
  RankViews views_;
  std::map<std::string, Members> groups_;  // by name, of the file that is read
  std::map<std::string, std::vector<SequenceEntry>>
      sequences_;  // by members and name, of the file that is read
  std::string version_, library_;
  std::size_t used_ = 0, other_kinds_ = 0, unknown_types_ = 0, lone_ = 0, no_time_ = 0;
};

void refuse_pickle(const Source& source) {
  if (source.text.empty() || source.text.front() != '\x80') return;
  throw InputError(
      source.name +
      ": a Python pickle; make JSON of it, if you trust its origin: python3 -c \"import "
      "json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)\" " +
      source.name + " > " + source.name + ".json");
}

}  // namespace

CollectiveLog read_flight_recorder(std::span<const Source> files) {
  FlightReader reader;
  std::int64_t number = 0;
  for (const Source& source : files) {
    refuse_pickle(source);
    reader.file(source, number++);
  }
  return reader.finish(files.empty() ? "no file" : files.front().name);
}

}  // namespace dovetail::imports
