// Reads and writes plans (a Schedule with its Program and what was predicted for it) as JSON.
// Buckets, gradients and ops are named, not numbered, so that a person can edit the file; every
// decision that is not the default has a key.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/plan_json.h"

#include "base/count.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "schedule/id_table.h"
#include "schedule/program_json.h"
#include "schedule/visit.h"

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

// What a bucket's gradients may travel by.
constexpr std::array kCollectives = {Collective::AllReduce, Collective::ReduceScatter};
constexpr std::int64_t kMostMicroSteps = 1 << 16;
constexpr std::int64_t kMostElements = std::int64_t{1} << 44;
constexpr std::array<std::string_view, 2> kLaunchWords = {"when-ready", "after-backward"};

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
    for (const JsonValue& gradient : object.array("gradients")) {
      bucket.gradients.push_back(read_slice(gradient));
    }
    if (bucket.gradients.empty()) object.at("gradients").fail("expected at least one gradient");
    check_sizes(object, bucket);
    bucket.group = groups_.find(object.at("group"));
    bucket.collective = object.one_of<Collective>("collective", kCollectives);
    bucket.mode = object.one_of<BucketMode>("mode");
    bucket.pad_to = Bytes(object.integer("pad_to_bytes", 1, kLargestPadding));
    object.ignore("align_to_bytes");  // known even when absent
    if (object.has("align_to_bytes")) {
      bucket.align_to = Bytes(object.integer("align_to_bytes", 1, kLargestPadding));
    }
    bucket.stream = read_stream(object.at("stream"));
    bucket.launch = read_launch(object.at("launch"));
    bucket.wait = object.one_of<WaitPoint>("wait");
    bucket.scope = object.one_of<WaitScope>("scope");
    object.ignore("replicas");  // known even when absent
    if (object.has("replicas")) bucket.replicas = groups_.find(object.at("replicas"));
    bucket.max_ctas = static_cast<std::int32_t>(object.integer_or("max_ctas", 0, 0, 1024));
    bucket.closed_by = object.string_or("closed_by", "");
    object.done();
    return bucket;
  }

  FrozenBlock read_frozen(JsonObject object) {
    FrozenBlock block;
    block.id = BucketId{static_cast<std::int32_t>(object.integer("id", 0, kLargestId))};
    if (!ids_.insert(block.id).second) object.at("id").fail("a bucket or block has this id");
    Bytes bytes;
    for (const JsonValue& parameter : object.array("parameters")) {
      block.parameters.push_back(tensors_.find(parameter));
      bytes += program_.tensor(block.parameters.back()).bytes();
    }
    if (block.parameters.empty()) object.at("parameters").fail("expected at least one parameter");
    if (object.integer("bytes") != bytes.count()) {
      object.at("bytes").fail("the parameters of this block have " + std::to_string(bytes.count()) +
                              ", found " + std::to_string(object.integer("bytes")));
    }
    block.group = groups_.find(object.at("group"));
    block.mode = object.one_of<BucketMode>("mode");
    object.done();
    return block;
  }

  // REQUIRES: all buckets and frozen blocks have been read.
  ParameterGather read_gather(JsonObject object) {
    ParameterGather gather;
    gather.bucket = BucketId{static_cast<std::int32_t>(object.integer("bucket", 0, kLargestId))};
    if (!ids_.contains(gather.bucket)) object.at("bucket").fail("no bucket has this id");
    gather.readers = object.one_of<GatherFor>("readers");
    gather.stream = read_stream(object.at("stream"));
    gather.launch = read_launch(object.at("launch"));
    gather.max_ctas = static_cast<std::int32_t>(object.integer_or("max_ctas", 0, 0, 1024));
    object.done();
    return gather;
  }

  OpPlacement read_collective(JsonObject object) {
    OpPlacement placement;
    const JsonValue& op = object.at("op");
    placement.op = ops_.find(op);
    if (!std::holds_alternative<CollectiveWork>(program_.op(placement.op).work)) {
      op.fail("this op does not communicate");
    }
    if (!placed_.insert(placement.op).second) op.fail("it is placed already");
    placement.stream = read_stream(object.at("stream"));
    placement.launch = read_launch(object.at("launch"));
    placement.scope = object.one_of<WaitScope>("scope");
    placement.max_ctas = static_cast<std::int32_t>(object.integer_or("max_ctas", 0, 0, 1024));
    object.done();
    return placement;
  }

 private:
  [[nodiscard]] Slice read_slice(const JsonValue& value) const {
    if (!value.is_object()) return tensors_.find(value);
    JsonObject object = value.object();
    const TensorId tensor = tensors_.find(object.at("tensor"));
    const std::int64_t first = object.integer("first", 0, kMostElements);
    const std::int64_t count = object.integer("count", 1, kMostElements);
    object.done();
    const std::int64_t all = program_.tensor(tensor).numel();
    if (first + count > all) {
      value.fail("elements " + std::to_string(first) + " to " + std::to_string(first + count - 1) +
                 " of a tensor of " + std::to_string(all));
    }
    return {tensor, first, count};
  }

  void check_sizes(JsonObject& object, const Bucket& bucket) const {
    std::int64_t elements = 0;
    for (const Slice& slice : bucket.gradients) {
      elements += slice.elements(program_.tensor(slice.tensor));
    }
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
      object.ignore("in_batch");
      if (object.has("in_batch")) {
        const auto batch = static_cast<std::int32_t>(object.integer("in_batch", 0, kLargestId));
        object.done();
        return LaunchInBatch{batch};
      }
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
  std::set<OpId> placed_;
};

// "master copy": "master_copy_bytes".
std::string key_of_kind(std::string_view word) {
  std::string key(word);
  std::ranges::replace(key, ' ', '_');
  std::ranges::replace(key, '-', '_');
  return key + "_bytes";
}

Holding read_holding(JsonObject object) {
  constexpr std::int64_t kMostStages = 1 << 20;
  constexpr std::int64_t kMostHeld = std::int64_t{1} << 58;
  Holding held{.stage = static_cast<std::int32_t>(object.integer("stage", 0, kMostStages))};
  for (const auto& [word, bytes] : kHoldingKinds) {
    held.*bytes = Bytes(object.integer_or(key_of_kind(word), 0, 0, kMostHeld));
  }
  object.done();
  return held;
}

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
    const double stated = object.number("gap_percent");
    const double derived = 100 * *gap;
    if (std::abs(stated - derived) > 1e-6 * (1 + std::abs(derived))) {
      object.at("gap_percent")
          .fail("100 (step_us - lower_bound_us) / lower_bound_us is " +
                ordered_json(derived).dump() + ", found " + ordered_json(stated).dump());
    }
  }
  object.done();
  return predicted;
}

Merge read_merge(JsonObject object) {
  Merge merge;
  merge.micro_steps = static_cast<std::int32_t>(object.integer("micro_steps", 1, kMostMicroSteps));
  merge.op = object.one_of<ReduceOp>("op");
  merge.sync = object.one_of<SyncPoint>("sync");
  merge.dtype = object.one_of<DType>("dtype");
  object.done();
  return merge;
}

Pipeline read_pipeline(JsonObject object) {
  Pipeline pipeline;
  pipeline.kind = object.one_of<PipelineKind>("kind");
  pipeline.alignment = object.one_of<LaunchAlignment>("alignment");
  object.done();
  return pipeline;
}

// The decisions that concern the whole step; an absent one is the default.
void read_decisions(JsonObject& object, BucketReader& reader, Schedule& schedule) {
  for (const std::string_view key : {"scale", "merge", "parameters", "pipeline", "frozen",
                                     "gathers", "gather_limit", "collectives"}) {
    object.ignore(key);
  }
  if (object.has("scale")) schedule.scale = object.one_of<ScaleAt>("scale");
  if (object.has("merge")) schedule.merge = read_merge(object.object("merge"));
  if (object.has("parameters")) {
    schedule.parameters = object.one_of<ParameterSync>("parameters");
  }
  if (object.has("pipeline")) schedule.pipeline = read_pipeline(object.object("pipeline"));
  if (object.has("frozen")) {
    for (const JsonValue& block : object.array("frozen")) {
      schedule.frozen.push_back(reader.read_frozen(block.object()));
    }
  }
  if (object.has("gathers")) {
    for (const JsonValue& gather : object.array("gathers")) {
      schedule.gathers.push_back(reader.read_gather(gather.object()));
    }
  }
  if (object.has("gather_limit")) {
    JsonObject limit = object.object("gather_limit");
    schedule.gather_limit = {
        .bytes = Bytes(limit.integer_or("bytes", 0, 0, kMostElements)),
        .buckets = static_cast<std::int32_t>(limit.integer_or("buckets", 0, 0, kLargestId))};
    limit.done();
  }
  if (object.has("collectives")) {
    for (const JsonValue& collective : object.array("collectives")) {
      schedule.collectives.push_back(reader.read_collective(collective.object()));
    }
  }
}

// The schedule refers to the Program by names: `other`, if there is one, takes the place of the file's own.
// A pipeline's Schedule says nothing of a Program that is not cut into the same stages, although the names are the same.
void require_as_many_stages(JsonObject planned, const Program& other) {
  const std::int64_t stages = planned.integer_or("stages", 1);
  if (stages == other.stages) return;
  planned.value().fail("the plan is of " + counted(stages, "pipeline stage") +
                       ", the workload here of " + std::to_string(other.stages));
}

Plan plan_from_json(JsonObject object, std::optional<Program> other = std::nullopt) {
  static constexpr std::array<std::string_view, 1> kKind = {"plan"};
  object.schema(kPlanSchema);
  static_cast<void>(object.word("kind", kKind));
  Plan plan;
  plan.schedule.policy = object.string("policy");
  plan.summary.workload = object.string("workload");
  plan.summary.cluster = object.string("cluster");
  object.ignore("predicted");  // known even when absent
  object.ignore("link");
  if (object.has("link")) plan.summary.link = object.string("link");
  object.ignore("cluster_file");
  if (object.has("cluster_file")) plan.summary.cluster_file = object.string("cluster_file");
  object.ignore("what_if");
  if (object.has("what_if")) plan.summary.what_if = object.string("what_if");
  object.ignore("measured_on");
  if (object.has("measured_on")) plan.summary.measured_on = object.string("measured_on");
  object.ignore("notes");
  if (object.has("notes")) {
    for (const JsonValue note : object.array("notes")) plan.summary.notes.push_back(note.string());
  }
  object.ignore("memory");
  if (object.has("memory")) plan.summary.memory = read_holding(object.object("memory"));
  if (object.has("predicted")) plan.summary.predicted = read_prediction(object.object("predicted"));
  if (other) {
    require_as_many_stages(object.object("program"), *other);
    plan.program = *std::move(other);
  } else {
    plan.program = program_from_json(object.object("program"));
  }
  BucketReader reader(plan.program);
  for (const JsonValue& bucket : object.array("buckets")) {
    plan.schedule.buckets.push_back(reader.read(bucket.object()));
  }
  read_decisions(object, reader, plan.schedule);
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
      },
      [](const LaunchInBatch& in) {
        return ordered_json{{"in_batch", in.batch}};
      });
}

ordered_json bucket_to_value(const Program& program, const Bucket& bucket) {
  ordered_json::array_t
      gradients;  // push_back on an ordered_json costs its length (program_json.cc)
  gradients.reserve(bucket.gradients.size());
  std::int64_t elements = 0;
  for (const Slice& slice : bucket.gradients) {
    const Tensor& tensor = program.tensor(slice.tensor);
    if (slice == Slice(slice.tensor)) {
      gradients.emplace_back(tensor.name);
    } else {
      gradients.push_back(ordered_json{
          {"tensor", tensor.name}, {"first", slice.first}, {"count", slice.elements(tensor)}});
    }
    elements += slice.elements(tensor);
  }
  ordered_json value{{"id", bucket.id.value},
                     {"bytes", payload(program, bucket).count()},
                     {"elements", elements},
                     {"gradients", ordered_json(std::move(gradients))},
                     {"group", program.group(bucket.group).name},
                     {"collective", to_string(bucket.collective)},
                     {"mode", to_string(bucket.mode)},
                     {"pad_to_bytes", bucket.pad_to.count()},
                     {"stream", stream_text(bucket.stream)},
                     {"launch", launch_to_value(program, bucket.launch)},
                     {"wait", to_string(bucket.wait)},
                     {"scope", to_string(bucket.scope)}};
  if (bucket.align_to > Bytes(1)) value["align_to_bytes"] = bucket.align_to.count();
  if (bucket.replicas) value["replicas"] = program.group(*bucket.replicas).name;
  if (bucket.max_ctas != 0) value["max_ctas"] = bucket.max_ctas;
  if (!bucket.closed_by.empty()) value["closed_by"] = bucket.closed_by;
  return value;
}

ordered_json frozen_to_value(const Program& program, const Schedule& schedule) {
  ordered_json::array_t frozen;
  for (const FrozenBlock& block : schedule.frozen) {
    ordered_json::array_t parameters;
    Bytes bytes;
    for (const TensorId id : block.parameters) {
      parameters.emplace_back(program.tensor(id).name);
      bytes += program.tensor(id).bytes();
    }
    frozen.push_back(ordered_json{{"id", block.id.value},
                                  {"bytes", bytes.count()},
                                  {"parameters", ordered_json(std::move(parameters))},
                                  {"group", program.group(block.group).name},
                                  {"mode", to_string(block.mode)}});
  }
  return ordered_json(std::move(frozen));
}

ordered_json gathers_to_value(const Program& program, const Schedule& schedule) {
  ordered_json::array_t gathers;
  for (const ParameterGather& gather : schedule.gathers) {
    ordered_json value{{"bucket", gather.bucket.value},
                       {"readers", to_string(gather.readers)},
                       {"stream", stream_text(gather.stream)},
                       {"launch", launch_to_value(program, gather.launch)}};
    if (gather.max_ctas != 0) value["max_ctas"] = gather.max_ctas;
    gathers.push_back(std::move(value));
  }
  return ordered_json(std::move(gathers));
}

ordered_json collectives_to_value(const Program& program, const Schedule& schedule) {
  ordered_json::array_t collectives;
  for (const OpPlacement& placement : schedule.collectives) {
    ordered_json value{{"op", program.op(placement.op).name},
                       {"stream", stream_text(placement.stream)},
                       {"launch", launch_to_value(program, placement.launch)},
                       {"scope", to_string(placement.scope)}};
    if (placement.max_ctas != 0) value["max_ctas"] = placement.max_ctas;
    collectives.push_back(std::move(value));
  }
  return ordered_json(std::move(collectives));
}

void write_decisions(const Program& program, const Schedule& schedule, ordered_json& value) {
  const Schedule none;
  if (schedule.scale != none.scale) value["scale"] = to_string(schedule.scale);
  if (schedule.merge != none.merge) {
    value["merge"] = {{"micro_steps", schedule.merge.micro_steps},
                      {"op", to_string(schedule.merge.op)},
                      {"sync", to_string(schedule.merge.sync)},
                      {"dtype", to_string(schedule.merge.dtype)}};
  }
  if (schedule.parameters != none.parameters) {
    value["parameters"] = to_string(schedule.parameters);
  }
  if (schedule.pipeline != none.pipeline) {
    value["pipeline"] = {{"kind", to_string(schedule.pipeline.kind)},
                         {"alignment", to_string(schedule.pipeline.alignment)}};
  }
  if (!schedule.frozen.empty()) value["frozen"] = frozen_to_value(program, schedule);
  if (!schedule.gathers.empty()) value["gathers"] = gathers_to_value(program, schedule);
  if (schedule.gather_limit != none.gather_limit) {
    value["gather_limit"] = {{"bytes", schedule.gather_limit.bytes.count()},
                             {"buckets", schedule.gather_limit.buckets}};
  }
  if (!schedule.collectives.empty()) value["collectives"] = collectives_to_value(program, schedule);
}

ordered_json holding_to_value(const Holding& held) {
  ordered_json value{{"stage", held.stage}};
  for (const auto& [word, bytes] : kHoldingKinds) {
    if (held.*bytes > Bytes()) value[key_of_kind(word)] = (held.*bytes).count();
  }
  return value;
}

ordered_json prediction_to_value(const Prediction& predicted) {
  ordered_json value{{"step_us", to_us(predicted.step)}, {"exposed_us", to_us(predicted.exposed)}};
  if (predicted.lower_bound.has_value()) value["lower_bound_us"] = to_us(*predicted.lower_bound);
  const std::optional<double> gap = predicted.gap();
  if (gap.has_value()) value["gap_percent"] = 100 * *gap;
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

Plan read_plan_onto(const std::string& path, Program program) {
  const JsonFile file(path);
  return plan_from_json(file.root(), std::move(program));
}

std::string plan_to_json(const Plan& plan) {
  ordered_json value{{"schema", kPlanSchema},
                     {"kind", "plan"},
                     {"policy", plan.schedule.policy},
                     {"workload", plan.summary.workload},
                     {"cluster", plan.summary.cluster}};
  if (!plan.summary.link.empty()) value["link"] = plan.summary.link;
  if (!plan.summary.cluster_file.empty()) value["cluster_file"] = plan.summary.cluster_file;
  if (!plan.summary.what_if.empty()) value["what_if"] = plan.summary.what_if;
  if (!plan.summary.measured_on.empty()) value["measured_on"] = plan.summary.measured_on;
  if (!plan.summary.notes.empty()) value["notes"] = plan.summary.notes;
  if (plan.summary.memory) value["memory"] = holding_to_value(*plan.summary.memory);
  if (plan.summary.predicted.has_value()) {
    value["predicted"] = prediction_to_value(*plan.summary.predicted);
  }
  write_decisions(plan.program, plan.schedule, value);
  ordered_json::array_t buckets;
  buckets.reserve(plan.schedule.buckets.size());
  for (const Bucket& bucket : plan.schedule.buckets) {
    buckets.push_back(bucket_to_value(plan.program, bucket));
  }
  value["buckets"] = ordered_json(std::move(buckets));
  value["program"] = program_to_value(plan.program);
  return value.dump(1) + "\n";
}

}  // namespace dovetail::schedule
