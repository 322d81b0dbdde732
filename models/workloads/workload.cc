// Finds out what the name of a workload means (a model of the zoo, a shipped profile, or a file
// with a program, a profile or a plan) and loads it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/workloads/workload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>
#include <variant>

#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "models/networks/text.h"
#include "models/networks/zoo.h"
#include "schedule/program_json.h"

namespace dovetail::models {
namespace {

constexpr std::int64_t kDefaultWorld = 8;

bool is_path(std::string_view name) {
  return name.ends_with(".json") || name.find('/') != std::string_view::npos;
}

[[noreturn]] void fail(const std::string& workload, const std::string& message) {
  throw InputError("workload \"" + workload + "\": " + message);
}

std::int64_t count_option(const std::string& workload, const std::string& key,
                          std::string_view value) {
  std::int64_t count = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (status != std::errc() || end != value.data() + value.size() || count < 1 ||
      count > (1 << 20)) {
    fail(workload, "option " + key + ": expected a whole number from 1 to 1048576, found \"" +
                       std::string(value) + "\"");
  }
  return count;
}

schedule::DType dtype_option(const std::string& workload, std::string_view value) {
  constexpr std::array kTypes = {schedule::DType::F32, schedule::DType::F16, schedule::DType::BF16};
  for (const schedule::DType dtype : kTypes) {
    if (value == to_string(dtype)) return dtype;
  }
  fail(workload, "option dtype: expected f32, f16 or bf16, found \"" + std::string(value) + "\"");
}

template <class Enum>
Enum word_option(const std::string& workload, const std::string& key, std::string_view value) {
  if (const std::optional<Enum> found = word_to<Enum>(value)) return *found;
  fail(workload, "option " + key + ": expected " + word_list<Enum>() + ", found \"" +
                     std::string(value) + "\"");
}

Workload load_zoo(const std::string& workload, std::optional<std::int64_t> world) {
  const std::size_t colon = workload.find(':');
  ZooOptions options;
  options.world_size = world.value_or(kDefaultWorld);
  std::string_view rest = colon == std::string::npos ? std::string_view{}
                                                     : std::string_view(workload).substr(colon + 1);
  if (colon != std::string::npos && rest.empty()) fail(workload, "expected options after ':'");
  std::set<std::string> seen;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view option = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = option.find('=');
    const std::string key(option.substr(0, equals));
    if (equals == std::string_view::npos) {
      fail(workload, "expected key=value, found \"" + key + "\"");
    }
    if (!seen.insert(key).second) fail(workload, "option \"" + key + "\" stands twice");
    const std::string_view value = option.substr(equals + 1);
    if (key == "batch") {
      options.batch = count_option(workload, key, value);
    } else if (key == "sequence") {
      options.sequence = count_option(workload, key, value);
    } else if (key == "world") {
      options.world_size = count_option(workload, key, value);
    } else if (key == "dtype") {
      options.dtype = dtype_option(workload, value);
    } else if (key == "autocast") {
      options.autocast = word_option<jobs::Autocast>(workload, key, value);
    } else if (key == "optimizer") {
      options.optimizer = word_option<jobs::Optimizer>(workload, key, value);
    } else {
      fail(workload, "unknown option \"" + key +
                         "\"; known: batch, sequence, dtype, autocast, optimizer, world");
    }
  }
  const std::string model = workload.substr(0, colon);
  Workload result{.program = zoo_program(model, options), .own_costs = {}, .notes = {}};
  if (const std::optional<jobs::Job> job = zoo_job(model, options)) {
    result.notes.push_back("computes what this job does: " + jobs::to_string(*job));
  }
  return result;
}

std::string percent(double share) {
  const auto tenths = std::lround(share * 1000);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

Workload load_profile(const JsonFile& file) {
  const Profile profile = read_profile(file);
  Workload result{.program = profile_program(profile), .own_costs = {}, .notes = {}};
  const std::vector<std::string> problems = schedule::problems(result.program);
  if (!problems.empty()) throw InputError(file.name() + ": " + problems.front());
  result.recorded = profile.recorded;
  if (has_own_costs(profile)) {
    result.own_costs = profile_costs(profile, result.program);
    if (profile.recorded) result.own_bounds = profile_bounds(profile, result.program);
  }
  for (const std::string& reason : profile.why_not_valid) {
    result.not_valid += (result.not_valid.empty() ? "" : "; ") + reason;
  }
  if (!result.not_valid.empty()) {
    result.notes.push_back("the capture is not valid: " + result.not_valid);
  }
  result.notes.insert(result.notes.end(), profile.notes.begin(), profile.notes.end());
  if (const double skew = skew_share(profile); skew > 0) {
    result.own_notes.push_back("compute is stretched by " + percent(skew) +
                               ": a step waits for the slowest of " +
                               std::to_string(profile.world_size) + " ranks");
  }
  return result;
}

Workload load_file(const std::string& path) {
  const JsonFile file(path);
  JsonObject root = file.root();
  const std::string schema = root.has("schema") ? root.string("schema") : "";
  if (schema == schedule::kProgramSchema) {
    return {.program = schedule::program_from_json(file.root()), .own_costs = {}, .notes = {}};
  }
  return load_profile(file);
}

}  // namespace

Workload load_workload(const std::string& name, std::optional<std::int64_t> world,
                       const std::string& data_dir) {
  if (name.empty()) fail(name, "expected a name or a file");
  const std::string shipped = data_dir + "/workloads/" + name + ".json";
  const bool in_shipped = !is_path(name) && std::filesystem::exists(shipped);
  if (!is_path(name) && !in_shipped) {
    const std::string model = name.substr(0, name.find(':'));
    const std::vector<std::string> known = workload_names(data_dir);
    if (std::ranges::find(known, model) == known.end()) {
      const std::string near = nearest_word(model, known);
      std::string list;
      for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
      fail(name, (near.empty() ? "unknown;" : "unknown; did you mean \"" + near + "\"?") +
                     " known: " + list + "; one of your own is a file (docs/workloads.md)");
    }
    return load_zoo(name, world);
  }
  Workload result = load_file(in_shipped ? shipped : name);
  if (!world || *world == result.program.world_size) return result;
  if (result.program.world_size > 1) {
    const std::string asked = std::to_string(*world);
    fail(name, "was made for " + std::to_string(result.program.world_size) + " ranks, not " +
                   asked + "; --layout dp=" + asked + " asks for it on as many");
  }
  lay_out(result, name, {.dp = *world});
  return result;
}

void lay_out(Workload& workload, const std::string& name, const schedule::DataParallel& degrees) {
  const std::int64_t before = workload.program.world_size;
  const bool is_hybrid = degrees.dp > 1 && degrees.dp_shard > 1;
  if (degrees.world() == before && !is_hybrid) return;
  if (const std::string why = schedule::layout_refusal(workload.program); !why.empty()) {
    fail(name, "cannot be laid out as " + to_string(degrees) + ": " + why);
  }
  const bool is_measured = std::ranges::any_of(workload.program.ops, [](const schedule::Op& op) {
    return std::holds_alternative<schedule::TimedWork>(op.work);
  });
  if (is_measured) {
    const std::string there =
        workload.own_costs ? " on the machine of " + workload.own_costs->machine : "";
    workload.notes.push_back("laid out as " + to_string(degrees) + ", measured over " +
                             counted(before, "rank") + there +
                             ": each rank computes as measured, collectives are the cluster's");
  }
  workload.program = schedule::lay_out(std::move(workload.program), degrees);
  workload.own_costs.reset();
  workload.own_bounds.reset();
  workload.own_notes.clear();
}

std::vector<std::string> workload_names(const std::string& data_dir) {
  std::vector<std::string> names = zoo_names();
  std::vector<std::string> shipped;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir + "/workloads", ignored)) {
    if (entry.path().extension() == ".json") shipped.push_back(entry.path().stem().string());
  }
  std::ranges::sort(shipped);
  names.insert(names.end(), shipped.begin(), shipped.end());
  return names;
}

}  // namespace dovetail::models
