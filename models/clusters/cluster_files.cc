// Finds cluster files by name: one machine a file, or a family of machines of one kind of node.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/clusters/cluster.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

// "h100" of "h100x8": letters, then digits, then an x.
std::string gpu_of(std::string_view name) {
  const std::size_t digits = name.find_first_of("0123456789");
  if (digits == std::string_view::npos) return {};
  const std::size_t end = name.find_first_not_of("0123456789", digits);
  const bool is_counted = end != std::string_view::npos && name[end] == 'x';
  return is_counted ? std::string(name.substr(0, end + 1)) : std::string();
}

// "h100" and 64 of "h100x64".
struct FamilyMember {
  std::string family;
  std::int64_t ranks = 0;
};

std::optional<FamilyMember> member_named(std::string_view name) {
  const std::size_t x = name.rfind('x');
  if (x == std::string_view::npos || x == 0) return std::nullopt;
  const std::string_view digits = name.substr(x + 1);
  FamilyMember member{.family = std::string(name.substr(0, x))};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), member.ranks);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number && member.ranks > 0 ? std::optional(member) : std::nullopt;
}

std::string path_of(const std::string& name, const std::string& data_dir) {
  return (std::filesystem::path(data_dir) / (name + ".json")).string();
}

// Tables of one node over more ranks than it has now.
void drop_wider_than_a_node(nlohmann::json& cluster) {
  const auto pointer = nlohmann::json::json_pointer("/topology/levels");
  if (!cluster.contains(pointer) || !cluster[pointer].is_object()) return;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& level : cluster[pointer]) {
    const auto ranks = level.is_object() ? level.find("ranks") : level.end();
    if (ranks != level.end() && ranks->is_number_integer())
      most = std::min(most, ranks->get<std::int64_t>());
  }
  std::erase_if(cluster["collectives"].get_ref<nlohmann::json::array_t&>(), [&](const auto& one) {
    return one.value("nodes", 1) == 1 && one.value("ranks", 1) > most;
  });
}

// A file; one that is `of` a shipped machine is laid over it.
Cluster read_cluster(const std::string& path, const std::string& data_dir) {
  const JsonFile file(path);
  JsonObject root = file.root();
  if (!root.has("of")) return cluster_from_json(file.root());
  const std::string of = root.string("of");
  const std::vector<std::string> names = cluster_names(data_dir);
  if (std::ranges::find(names, of) == names.end()) {
    const std::string near = nearest_word(of, names);
    throw InputError(path + ": of: expected the name of a file in " + data_dir + ", found \"" + of +
                     "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  nlohmann::json all = nlohmann::json::parse(read_file(path_of(of, data_dir)));
  if (all.contains("of")) {
    throw InputError(path + ": of: expected a file that has no \"of\" itself, found \"" + of +
                     "\"");
  }
  const auto own = nlohmann::json::parse(read_file(path));
  all.merge_patch(own);
  all.erase("of");
  if (!own.contains("collectives")) drop_wider_than_a_node(all);
  const JsonFile merged(path, all.dump());
  return cluster_from_json(merged.root());
}

Cluster read_shipped(const std::string& name, const std::string& data_dir) {
  return read_cluster(path_of(name, data_dir), data_dir);
}

// "h100x8", of which "H100x8" and "8xH100" are other ways to say it.
std::string in_our_words(std::string_view name) {
  std::string word(name);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  if (digits == 0 || digits + 1 >= word.size() || word[digits] != 'x') return word;
  return word.substr(digits + 1) + "x" + word.substr(0, digits);
}

// GPUs that are sold and have no tables here, by their makers' data sheets.
struct Relative {
  std::string_view gpu, says;
};
constexpr std::array kRelatives = {
    Relative{"h800",
             "an H800 is an H100 with NVLink at 400 GB/s, not 900: h100xN is that but for its "
             "collectives in a node, which are too fast"},
    Relative{"a800",
             "an A800 is an A100 with NVLink at 400 GB/s, not 600: a100xN is that but for its "
             "collectives in a node, which are too fast"},
    Relative{"h20",
             "an H20 has 148 TFLOP/s of bf16 (an H100 989), 96 GB at 4 TB/s and NVLink at 900 "
             "GB/s: measure one (python -m dovetail.torch measure -o h20.json), then h100xN "
             "--what-if gpu=h20.json"},
    Relative{"gh200",
             "a GH200 is an H100 with 96 GB at 4 TB/s or 144 GB at 4.9 TB/s: h100xN is that but "
             "for its memory"},
};

// What could be meant by a name that no cluster has: one of the same GPU, else the nearest. A name without its number of
// ranks is a family.
std::string advice(const std::string& name, const std::vector<std::string>& names,
                   const std::string& data_dir) {
  if (names.empty()) return "; there are none in " + data_dir;
  const std::string word = in_our_words(name);
  for (const Relative& one : kRelatives) {
    const bool is_it =
        word == one.gpu ||
        (word.starts_with(one.gpu) && (word[one.gpu.size()] == 'x' || word[one.gpu.size()] == '_'));
    if (is_it) return ": " + std::string(one.says);
  }
  std::string list;
  std::string alike;
  std::vector<std::string> same;
  const std::string gpu = gpu_of(name);
  for (const std::string& known : names) {
    list +=
        (list.empty() ? "" : ", ") + known + (is_family(read_shipped(known, data_dir)) ? "xN" : "");
    if (gpu.empty() || !known.starts_with(gpu)) continue;
    same.push_back(known);
    alike += (alike.empty() ? "" : ", ") + known;
  }
  const std::string near = nearest_word(name, same.empty() ? names : same);
  std::string text;
  if (!near.empty()) {
    text = "; did you mean \"" + near + "\"?";
  } else if (!alike.empty()) {
    text = "; with this GPU there are " + alike;
  }
  return text + "; known: " + list +
         "; one of your own is a file: dovetail import nccl-tests LOG, or dovetail calibrate";
}

bool has_member(const Topology& topology, std::int64_t ranks) {
  return ranks <= topology.node_ranks() || ranks % topology.node_ranks() == 0;
}

Cluster member_of(Cluster family, const FamilyMember& member) {
  const std::string name = member.family + "x" + std::to_string(member.ranks);
  if (!family.topology) {
    throw InputError("cluster \"" + name + "\": " + member.family +
                     " has no topology, so it is a machine of " + std::to_string(family.ranks) +
                     " ranks only");
  }
  if (!has_member(*family.topology, member.ranks)) {
    const std::string node = std::to_string(family.topology->node_ranks());
    throw InputError("cluster \"" + name + "\": expected " + member.family + "x1 to " +
                     member.family + "x" + node + ", or whole nodes: a multiple of " + node +
                     " ranks");
  }
  family.name = name;
  family.ranks = member.ranks;
  return family;
}

bool is_listed(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

bool is_family(const Cluster& cluster) {
  return cluster.topology.has_value() && !member_named(cluster.name);
}

Cluster load_cluster(const std::string& name_or_path, const std::string& data_dir) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (is_path) return read_cluster(name_or_path, data_dir);
  const std::vector<std::string> names = cluster_names(data_dir);
  if (is_listed(names, name_or_path)) return read_shipped(name_or_path, data_dir);
  const std::optional<FamilyMember> member = member_named(name_or_path);
  if (member && is_listed(names, member->family) && !member_named(member->family)) {
    return member_of(read_shipped(member->family, data_dir), *member);
  }
  if (std::filesystem::is_regular_file(name_or_path)) {
    return read_cluster(name_or_path, data_dir);
  }
  const std::string word = in_our_words(name_or_path);
  if (word != name_or_path && is_shipped_cluster(word, data_dir))
    return load_cluster(word, data_dir);
  throw InputError("cluster \"" + name_or_path + "\": no such cluster" +
                   advice(name_or_path, names, data_dir));
}

std::vector<std::string> cluster_names(const std::string& data_dir) {
  std::vector<std::string> names;
  std::error_code unreadable;  // an absent directory holds no clusters
  for (const auto& entry : std::filesystem::directory_iterator(data_dir, unreadable)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

bool is_shipped_cluster(const std::string& name, const std::string& data_dir) {
  const std::vector<std::string> names = cluster_names(data_dir);
  const std::optional<FamilyMember> member = member_named(name);
  return is_listed(names, name) ||
         (member && !member_named(member->family) && is_listed(names, member->family));
}

std::vector<std::string> cluster_choices(const std::string& data_dir) {
  std::vector<std::string> choices = cluster_names(data_dir);
  for (const std::string& name : cluster_names(data_dir)) {
    const Cluster cluster = read_shipped(name, data_dir);
    if (!is_family(cluster)) continue;
    std::erase(choices, name);
    for (std::int64_t ranks = 8; ranks <= 512; ranks *= 2) {
      const std::string member = name + "x" + std::to_string(ranks);
      if (has_member(*cluster.topology, ranks) && !is_listed(choices, member))
        choices.push_back(member);
    }
  }
  std::ranges::sort(choices);
  return choices;
}

}  // namespace dovetail::models
