// Reading and writing of plan files.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/plan_json.h"

#include "base/error.h"
#include "base/json_reader.h"
#include "schedule/id_table.h"
#include "schedule/program_json.h"
#include "schedule/visit.h"

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kLargestPadding = std::int64_t{1} << 30;
constexpr std::int32_t kStreams = 64;
constexpr double kLargestUs = 1e12;

constexpr std::array kCollectives = {Collective::AllReduce, Collective::ReduceScatter,
                                     Collective::AllGather};
constexpr std::array kModes = {BucketMode::View, BucketMode::Copy};
constexpr std::array kWaits = {WaitPoint::EndOfBackward, WaitPoint::FirstUse};
constexpr std::array kScopes = {WaitScope::Event, WaitScope::WholeStream};
constexpr std::array<std::string_view, 2> kLaunchWords = {"when-ready", "after-backward"};

template <class Enum, std::size_t N>
Enum read_word(JsonObject& object, std::string_view key, const std::array<Enum, N>& values) {
  std::array<std::string_view, N> words;
  for (std::size_t i = 0; i < N; ++i) words[i] = to_string(values[i]);
  return values[object.word(key, words)];
}

// The ids of a Program's things by their names.
template <class IdType>
class Lookup {
 public:
  template <class Items>
  Lookup(const Items& items, std::string what) : what_(std::move(what)) {
    for (const auto& item : items) ids_[item.name] = item.id;
  }

  [[nodiscard]] IdType find(const JsonValue& value) const {
    const std::string name = value.string();
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& entry : ids_) known.push_back(entry.first);
    const std::string near = nearest_word(name, known);
    value.fail("the program has no " + what_ + " \"" + name + "\"" +
               (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }

 private:
  std::string what_;
  std::map<std::string, IdType> ids_;
};

class BucketReader {
 public:
  explicit BucketReader(const Program& program)
      : program_(program),
        tensors_(program.tensors, "tensor"),
        groups_(program.groups, "process group"),
        ops_(program.ops, "op") {}

  Bucket read(JsonObject object) {
    Bucket bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(object.integer("id", 0, kLargestId))};
    if (!ids_.insert(bucket.id).second) object.at("id").fail("another bucket has this id");
    for (const JsonValue& name : object.array("gradients")) {
      bucket.gradients.push_back(tensors_.find(name));
    }
    if (bucket.gradients.empty()) object.at("gradients").fail("expected at least one gradient");
    check_sizes(object, bucket);
    bucket.group = groups_.find(object.at("group"));
    bucket.collective = read_word(object, "collective", kCollectives);
    bucket.mode = read_word(object, "mode", kModes);
    bucket.pad_to = Bytes(object.integer("pad_to_bytes", 1, kLargestPadding));
    bucket.stream = read_stream(object.at("stream"));
    bucket.launch = read_launch(object.at("launch"));
    bucket.wait = read_word(object, "wait", kWaits);
    bucket.scope = read_word(object, "scope", kScopes);
    object.done();
    return bucket;
  }

 private:
  void check_sizes(JsonObject& object, const Bucket& bucket) const {
    std::int64_t elements = 0;
    for (const TensorId id : bucket.gradients) elements += program_.tensor(id).numel();
    const auto check = [&](std::string_view key, std::int64_t expected) {
      if (object.integer(key) == expected) return;
      object.at(key).fail("the gradients of this bucket have " + std::to_string(expected) +
                          ", found " + std::to_string(object.integer(key)));
    };
    check("bytes", payload(program_, bucket).count());
    check("elements", elements);
  }

  static StreamChoice read_stream(const JsonValue& value) {
    const std::string text = value.string();
    if (text == "inline") return InlineStream{};
    for (std::int32_t i = 0; i < kStreams; ++i) {
      if (text == "comm" + std::to_string(i)) return CommStream{i};
    }
    value.fail("expected \"inline\" or \"comm0\" to \"comm" + std::to_string(kStreams - 1) +
               "\", found \"" + text + "\"");
  }

  [[nodiscard]] LaunchPoint read_launch(const JsonValue& value) const {
    if (value.is_object()) {
      JsonObject object = value.object();
      const OpId op = ops_.find(object.at("after_op"));
      object.done();
      return LaunchAfterOp{op};
    }
    if (value.word(kLaunchWords) == 0) return LaunchWhenReady{};
    return LaunchAfterBackward{};
  }

  const Program& program_;
  Lookup<TensorId> tensors_;
  Lookup<GroupId> groups_;
  Lookup<OpId> ops_;
  std::set<BucketId> ids_;
};

Prediction read_prediction(JsonObject object) {
  const auto time = [&](std::string_view key) {
    return from_us(object.number(key, 0, kLargestUs));
  };
  Prediction predicted{.step = time("step_us"), .exposed = time("exposed_us"), .lower_bound = {}};
  // Known even when absent, so that a misspelt one is told its right name.
  object.ignore("lower_bound_us");
  if (object.has("lower_bound_us")) predicted.lower_bound = time("lower_bound_us");
  const std::optional<double> gap = predicted.gap();
  if (gap.has_value()) {
    const double stated = object.number("gap");
    if (std::abs(stated - *gap) > 1e-6 * (1 + std::abs(*gap))) {
      object.at("gap").fail("(step_us - lower_bound_us) / lower_bound_us is " +
                            ordered_json(*gap).dump() + ", found " + ordered_json(stated).dump());
    }
  }
  object.done();
  return predicted;
}

Plan plan_from_json(JsonObject object) {
  static constexpr std::array<std::string_view, 1> kKind = {"plan"};
  object.schema(kPlanSchema);
  static_cast<void>(object.word("kind", kKind));
  Plan plan;
  plan.schedule.policy = object.string("policy");
  plan.summary.workload = object.string("workload");
  plan.summary.cluster = object.string("cluster");
  object.ignore("predicted");  // known even when absent
  if (object.has("predicted")) plan.summary.predicted = read_prediction(object.object("predicted"));
  plan.program = program_from_json(object.object("program"));
  BucketReader reader(plan.program);
  for (const JsonValue& bucket : object.array("buckets")) {
    plan.schedule.buckets.push_back(reader.read(bucket.object()));
  }
  object.done();
  return plan;
}

std::string stream_text(const StreamChoice& stream) {
  return visit(
      stream, [](const InlineStream&) { return std::string("inline"); },
      [](const CommStream& comm) { return "comm" + std::to_string(comm.index); });
}

ordered_json launch_to_value(const Program& program, const LaunchPoint& launch) {
  return visit(
      launch, [](const LaunchWhenReady&) { return ordered_json(kLaunchWords[0]); },
      [](const LaunchAfterBackward&) { return ordered_json(kLaunchWords[1]); },
      [&](const LaunchAfterOp& after) {
        return ordered_json{{"after_op", program.op(after.op).name}};
      });
}

ordered_json bucket_to_value(const Program& program, const Bucket& bucket) {
  ordered_json gradients = ordered_json::array();
  std::int64_t elements = 0;
  for (const TensorId id : bucket.gradients) {
    gradients.push_back(program.tensor(id).name);
    elements += program.tensor(id).numel();
  }
  return {{"id", bucket.id.value},
          {"bytes", payload(program, bucket).count()},
          {"elements", elements},
          {"gradients", std::move(gradients)},
          {"group", program.group(bucket.group).name},
          {"collective", to_string(bucket.collective)},
          {"mode", to_string(bucket.mode)},
          {"pad_to_bytes", bucket.pad_to.count()},
          {"stream", stream_text(bucket.stream)},
          {"launch", launch_to_value(program, bucket.launch)},
          {"wait", to_string(bucket.wait)},
          {"scope", to_string(bucket.scope)}};
}

ordered_json prediction_to_value(const Prediction& predicted) {
  ordered_json value{{"step_us", to_us(predicted.step)}, {"exposed_us", to_us(predicted.exposed)}};
  if (predicted.lower_bound.has_value()) value["lower_bound_us"] = to_us(*predicted.lower_bound);
  const std::optional<double> gap = predicted.gap();
  if (gap.has_value()) value["gap"] = *gap;
  return value;
}

}  // namespace

std::optional<double> Prediction::gap() const {
  if (!lower_bound.has_value() || *lower_bound <= Duration{}) return std::nullopt;
  return static_cast<double>((step - *lower_bound).count()) /
         static_cast<double>(lower_bound->count());
}

Plan parse_plan(const std::string& name, std::string_view text) {
  const JsonFile file(name, text);
  return plan_from_json(file.root());
}

Plan read_plan(const std::string& path) {
  const JsonFile file(path);
  return plan_from_json(file.root());
}

std::string plan_to_json(const Plan& plan) {
  ordered_json value{{"schema", kPlanSchema},
                     {"kind", "plan"},
                     {"policy", plan.schedule.policy},
                     {"workload", plan.summary.workload},
                     {"cluster", plan.summary.cluster}};
  if (plan.summary.predicted.has_value()) {
    value["predicted"] = prediction_to_value(*plan.summary.predicted);
  }
  value["buckets"] = ordered_json::array();
  for (const Bucket& bucket : plan.schedule.buckets) {
    value["buckets"].push_back(bucket_to_value(plan.program, bucket));
  }
  value["program"] = program_to_value(plan.program);
  return value.dump(1) + "\n";
}

}  // namespace dovetail::schedule
