// Reads and writes plans (a Schedule with its Program and what was predicted for it) as JSON.
// Buckets, gradients and ops are named, not numbered, so that a person can edit the file; every
// decision that is not the default has a key.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/plan_json.h"

#include "base/count.h"
#include "schedule/name_fields.h"
#include "schedule/program_json.h"
#include "schedule/visit.h"

#include <array>
#include <cmath>
#include <set>
#include <utility>

namespace dovetail::schedule {
namespace {

constexpr auto kPadding = as_integer(1, std::int64_t{1} << 30);
constexpr std::int32_t kStreams = 64;
constexpr auto kStepTime = as_us(0, 1e12);
constexpr auto kMaxCtas = as_integer(0, 1024);

// What a bucket's gradients may travel by.
constexpr std::array kCollectives = {Collective::AllReduce, Collective::ReduceScatter};
constexpr std::int64_t kMostMicroSteps = 1 << 16;
constexpr std::int64_t kMostElements = std::int64_t{1} << 44;
constexpr std::array<std::string_view, 2> kLaunchWords = {"when-ready", "after-backward"};

// What the parts of a plan refer to.
struct PlanReading : ProgramNames {
  const Program& program;
};

// ----------------------------------------------------------------------------------- values

// A number that follows from the rest, for people who read the file: one that disagrees is refused.
template <class Compute>
struct DerivedPart {
  std::string_view key;
  std::string_view whose;
  Compute compute;
  std::string_view words;

  constexpr void keys(const auto& visitor) const { visitor(key); }
  void read(JsonObject& object, const auto& /*owner*/, auto& /*context*/) const {
    static_cast<void>(object.integer(key));
  }
  void write(JsonMembers& members, const auto& owner, const Program& program) const {
    members.emplace_back(key, compute(program, owner));
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    whole.add(key, as_integer(0).schema<std::int64_t>(), words);
    whole.required.emplace_back(key);
  }
  // REQUIRES: what it follows from was read.
  void confirm(JsonObject& object, const auto& owner, const Program& program) const {
    const std::int64_t stated = object.integer(key);
    const std::int64_t derived = compute(program, owner);
    if (stated == derived) return;
    object.at(key).fail(std::string(whose) + " have " + std::to_string(derived) + ", found " +
                        std::to_string(stated));
  }
};
template <class Compute>
constexpr DerivedPart<Compute> derived(std::string_view key, std::string_view whose,
                                       Compute compute, std::string_view words) {
  return {key, whose, compute, words};
}

// A gradient's name, or a part of it.
struct SliceValue {
  static constexpr auto kPart = as_object(
      fields<Slice>(required("tensor", &Slice::tensor, NameOf{}),
                    required("first", &Slice::first, as_integer(0, kMostElements), "element"),
                    required("count", &Slice::count, as_integer(1, kMostElements), "elements")));

  void read(const JsonValue& value, Slice& slice, PlanReading& plan) const {
    if (!value.is_object()) return NameOf{}.read(value, slice.tensor, plan);
    kPart.read(value, slice, plan);
    const std::int64_t all = plan.program.tensor(slice.tensor).numel();
    if (slice.first + slice.count > all) {
      value.fail("elements " + std::to_string(slice.first) + " to " +
                 std::to_string(slice.first + slice.count - 1) + " of a tensor of " +
                 std::to_string(all));
    }
  }
  ordered_json write(const Slice& slice, const Program& program) const {
    const Tensor& tensor = program.tensor(slice.tensor);
    if (slice == Slice(slice.tensor)) return tensor.name;
    return kPart.write(Slice(slice.tensor, slice.first, slice.elements(tensor)), program);
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"oneOf",
             {{{"description", "name of a gradient"}, {"type", "string"}}, kPart.schema<Slice>()}}};
  }
};

struct StreamValue {
  void read(const JsonValue& value, StreamChoice& stream, const auto& /*context*/) const {
    const std::string text = value.string();
    if (text == "inline") {
      stream = InlineStream{};
      return;
    }
    for (std::int32_t i = 0; i < kStreams; ++i) {
      if (text != "comm" + std::to_string(i)) continue;
      stream = CommStream{i};
      return;
    }
    value.fail("expected \"inline\" or \"comm0\" to \"comm" + std::to_string(kStreams - 1) +
               "\", found \"" + text + "\"");
  }
  ordered_json write(const StreamChoice& stream, const auto& /*context*/) const {
    return visit(
        stream, [](const InlineStream&) { return std::string("inline"); },
        [](const CommStream& comm) { return "comm" + std::to_string(comm.index); });
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"type", "string"}, {"pattern", "^(inline|comm[0-9]+)$"}};
  }
};

// A word, or an object that names an op or a batch.
struct LaunchValue {
  static constexpr auto kAfterOp = as_object(
      fields<LaunchAfterOp>(required("after_op", &LaunchAfterOp::op, NameOf{}, "name of an op")));
  static constexpr auto kBeforeOp = as_object(
      fields<LaunchBeforeOp>(required("before_op", &LaunchBeforeOp::op, NameOf{},
                                      "name of an op, behind all that it waits for; of gathers")));
  static constexpr auto kInBatch = as_object(fields<LaunchInBatch>(
      required("in_batch", &LaunchInBatch::batch, kId, "with the other buckets of this batch")));

  void read(const JsonValue& value, LaunchPoint& launch, PlanReading& plan) const {
    if (!value.is_object()) {
      launch = LaunchWhenReady{};
      if (value.word(kLaunchWords) == 1) launch = LaunchAfterBackward{};
      return;
    }
    const JsonObject object = value.object();
    if (object.has("in_batch")) {
      launch = read_as<LaunchInBatch>(kInBatch, object, plan);
    } else if (object.has("before_op")) {
      launch = read_as<LaunchBeforeOp>(kBeforeOp, object, plan);
    } else {
      launch = read_as<LaunchAfterOp>(kAfterOp, object, plan);
    }
  }
  ordered_json write(const LaunchPoint& launch, const Program& program) const {
    return visit(
        launch, [](const LaunchWhenReady&) { return ordered_json(kLaunchWords[0]); },
        [](const LaunchAfterBackward&) { return ordered_json(kLaunchWords[1]); },
        [&](const LaunchAfterOp& after) { return kAfterOp.write(after, program); },
        [&](const LaunchBeforeOp& before) { return kBeforeOp.write(before, program); },
        [&](const LaunchInBatch& in) { return kInBatch.write(in, program); });
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"oneOf",
             {{{"enum", kLaunchWords}},
              kAfterOp.schema<LaunchAfterOp>(),
              kBeforeOp.schema<LaunchBeforeOp>(),
              kInBatch.schema<LaunchInBatch>()}}};
  }
};

template <class T>
constexpr auto placed() {
  return fields<T>(
      required("stream", &T::stream, StreamValue{},
               R"("inline" is the compute stream, "comm0" the first communicator)"),
      required("launch", &T::launch, LaunchValue{}, "when its collective is enqueued"));
}

template <class T>
constexpr auto max_ctas() {
  return optional("max_ctas", &T::max_ctas, kMaxCtas,
                  "thread blocks for the collective; 0 or absent: the library decides");
}

constexpr std::string_view kScopeWords = "wait for this bucket (event) or all that was launched";
constexpr std::string_view kModeWords =
    "are gradients written into the bucket (view) or copied there and back (copy)";

// ---------------------------------------------------------------------------------- buckets

constexpr auto kBucketBytes = derived(
    "bytes", "the gradients of this bucket",
    [](const Program& program, const Bucket& bucket) { return payload(program, bucket).count(); },
    "of its gradients");
constexpr auto kBucketElements = derived(
    "elements", "the gradients of this bucket",
    [](const Program& program, const Bucket& bucket) {
      std::int64_t elements = 0;
      for (const Slice& slice : bucket.gradients) {
        elements += slice.elements(program.tensor(slice.tensor));
      }
      return elements;
    },
    "of its gradients");

constexpr auto kBucketFields = fields<Bucket>(
    required("id", &Bucket::id, kId), kBucketBytes, kBucketElements,
    required("gradients", &Bucket::gradients, as_list(SliceValue{})),
    check([](JsonObject& object, const Bucket& bucket, const PlanReading& plan) {
      if (bucket.gradients.empty()) object.at("gradients").fail("expected at least one gradient");
      kBucketBytes.confirm(object, bucket, plan.program);
      kBucketElements.confirm(object, bucket, plan.program);
    }),
    required("group", &Bucket::group, NameOf{}, "name of a process group"),
    required("collective", &Bucket::collective, as_word_among(kCollectives), "how it is reduced"),
    required("mode", &Bucket::mode, as_word(), kModeWords),
    required("pad_to_bytes", &Bucket::pad_to, kPadding, "its size is a multiple of this"),
    placed<Bucket>(), required("wait", &Bucket::wait, as_word(), "where compute waits for it"),
    required("scope", &Bucket::scope, as_word(), kScopeWords),
    optional("align_to_bytes", &Bucket::align_to, kPadding,
             "each gradient starts at a multiple of this; absent: 1"),
    optional("sums_whole", &Bucket::sums_whole, as_bool(),
             "of a reduce-scatter: an all-reduce in its place, of which each rank goes on with its "
             "shard; absent: false"),
    optional("replicas", &Bucket::replicas, NameOf{},
             "process group over which shards are all-reduced"),
    max_ctas<Bucket>(),
    optional("closed_by", &Bucket::closed_by, as_text(), "why the policy closed it"));

constexpr auto kFrozenBytes = derived(
    "bytes", "the parameters of this block",
    [](const Program& program, const FrozenBlock& block) {
      Bytes bytes;
      for (const TensorId id : block.parameters) bytes += program.tensor(id).bytes();
      return bytes.count();
    },
    "of all its parameters, on all ranks");

constexpr auto kFrozenFields = fields<FrozenBlock>(
    required("id", &FrozenBlock::id, kId, "by which gathers name it; of no bucket"), kFrozenBytes,
    required("parameters", &FrozenBlock::parameters, as_list(NameOf{}),
             "names of parameters, in the order in which they lie"),
    check([](JsonObject& object, const FrozenBlock& block, const PlanReading& plan) {
      if (block.parameters.empty()) {
        object.at("parameters").fail("expected at least one parameter");
      }
      kFrozenBytes.confirm(object, block, plan.program);
    }),
    required("group", &FrozenBlock::group, NameOf{},
             "name of the process group over which it is sharded"),
    required("mode", &FrozenBlock::mode, as_word(), kModeWords));

constexpr auto kGatherFields = fields<ParameterGather>(
    required("bucket", &ParameterGather::bucket, kId,
             "id of the bucket whose parameters are gathered, or of a frozen block"),
    required("readers", &ParameterGather::readers, as_word(),
             "for whose use; they are freed behind the last of these"),
    placed<ParameterGather>(), max_ctas<ParameterGather>());

constexpr auto kOwnCollectiveFields = fields<OpPlacement>(
    required("op", &OpPlacement::op, NameOf{},
             "name of an op that communicates; with micro-steps, in each of them"),
    check([](JsonObject& object, const OpPlacement& placement, const PlanReading& plan) {
      if (!std::holds_alternative<CollectiveWork>(plan.program.op(placement.op).work)) {
        object.at("op").fail("this op does not communicate");
      }
    }),
    placed<OpPlacement>(), required("scope", &OpPlacement::scope, as_word(), kScopeWords),
    max_ctas<OpPlacement>());

void check_placed_once(const JsonValue& item, const std::vector<OpPlacement>& before,
                       const OpPlacement& placement) {
  for (const OpPlacement& other : before) {
    if (other.op == placement.op) item.object().at("op").fail("it is placed already");
  }
}

// Of buckets and frozen blocks together; gathers are of either.
void check_bucket_ids(JsonObject& object, const Schedule& schedule) {
  std::set<BucketId> ids;
  const auto at = [&object](std::string_view list, std::size_t i, std::string_view key) {
    return object.array(list)[i].object().at(key);
  };
  for (std::size_t i = 0; i < schedule.buckets.size(); ++i) {
    if (!ids.insert(schedule.buckets[i].id).second) {
      at("buckets", i, "id").fail("another bucket has this id");
    }
  }
  for (std::size_t i = 0; i < schedule.frozen.size(); ++i) {
    if (!ids.insert(schedule.frozen[i].id).second) {
      at("frozen", i, "id").fail("a bucket or block has this id");
    }
  }
  for (std::size_t i = 0; i < schedule.gathers.size(); ++i) {
    if (!ids.contains(schedule.gathers[i].bucket)) {
      at("gathers", i, "bucket").fail("no bucket has this id");
    }
  }
}

// ------------------------------------------------------------------------------------- plan

// 100 (step - lower bound) / lower bound: there where it is known, and then as derived.
struct GapPart {
  constexpr void keys(const auto& /*visitor*/) const {}
  void read(JsonObject& object, const Prediction& predicted, const auto& /*context*/) const {
    const std::optional<double> gap = predicted.gap();
    if (!gap) return;
    const double stated = object.number("gap_percent");
    const double derived = 100 * *gap;
    if (std::abs(stated - derived) <= 1e-6 * (1 + std::abs(derived))) return;
    object.at("gap_percent")
        .fail("100 (step_us - lower_bound_us) / lower_bound_us is " + ordered_json(derived).dump() +
              ", found " + ordered_json(stated).dump());
  }
  void write(JsonMembers& members, const Prediction& predicted, const auto& /*context*/) const {
    const std::optional<double> gap = predicted.gap();
    if (gap) members.emplace_back("gap_percent", 100 * *gap);
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    whole.add("gap_percent", as_number().schema<double>(),
              "100 (step_us - lower_bound_us) / lower_bound_us");
  }
};

constexpr auto kPredictionFields = fields<Prediction>(
    required("step_us", &Prediction::step, kStepTime, "steady step time, microseconds"),
    required("exposed_us", &Prediction::exposed, kStepTime, "communication that nothing hides"),
    optional("lower_bound_us", &Prediction::lower_bound, kStepTime,
             "no schedule of the kind that the bound covers is faster"),
    GapPart{});

// What a rank of a job's fullest stage holds; kinds of which there is nothing are absent.
constexpr auto kHeld = as_integer(0, std::int64_t{1} << 58);
constexpr auto kHoldingFields =
    fields<Holding>(required("stage", &Holding::stage, as_integer(0, 1 << 20)),
                    optional("parameters_bytes", &Holding::parameters, kHeld),
                    optional("gradients_bytes", &Holding::gradients, kHeld),
                    optional("sums_of_micro_steps_bytes", &Holding::accumulated, kHeld),
                    optional("copies_in_buckets_bytes", &Holding::copies, kHeld),
                    optional("master_copy_bytes", &Holding::master, kHeld),
                    optional("optimizer_bytes", &Holding::optimizer, kHeld),
                    optional("activations_bytes", &Holding::activations, kHeld),
                    optional("logits_bytes", &Holding::logits, kHeld),
                    optional("working_bytes", &Holding::working, kHeld),
                    optional("gathered_parameters_bytes", &Holding::gathered, kHeld),
                    optional("buffers_bytes", &Holding::buffers, kHeld),
                    optional("fragmentation_bytes", &Holding::fragmentation, kHeld),
                    optional("context_and_NCCL_bytes", &Holding::outside, kHeld));

constexpr auto kSummaryFields = fields<PlanSummary>(
    required("workload", &PlanSummary::workload, as_text()),
    required("cluster", &PlanSummary::cluster, as_text(), "that the prediction is for"),
    optional("link", &PlanSummary::link, as_text(), "of a calibrated machine"),
    optional("cluster_file", &PlanSummary::cluster_file, as_text(),
             "where the cluster was read, where it is no shipped one"),
    optional("what_if", &PlanSummary::what_if, as_text(),
             "how the machine differs from the cluster, as --what-if has it"),
    optional(
        "measured_on", &PlanSummary::measured_on, as_text(),
        "the machine that the durations of ops were measured on; absent where they follow from "
        "shapes"),
    optional("notes", &PlanSummary::notes, as_list(as_text()),
             "what a prediction of this plan rests on, on any machine: one sentence each"),
    optional("memory", &PlanSummary::memory, as_object(kHoldingFields),
             "of a plan of a job: what a rank of the fullest stage holds at its worst moment, by "
             "kind; kinds of which there is nothing are absent"),
    optional("predicted", &PlanSummary::predicted, as_object(kPredictionFields)));

constexpr auto kMergeFields = fields<Merge>(
    required("micro_steps", &Merge::micro_steps, as_integer(1, kMostMicroSteps),
             "per update (gradient accumulation)"),
    required("op", &Merge::op, as_word(), "how the values of the ranks are joined"),
    required("sync", &Merge::sync, as_word(), "in which micro-steps gradients travel"),
    required("dtype", &Merge::dtype, as_word(), "element type"));

constexpr auto kPipelineFields =
    fields<Pipeline>(required("kind", &Pipeline::kind, as_word(), "order of micro-batches"),
                     required("alignment", &Pipeline::alignment, as_word(), "when chunks launch"));

// What is absent is the default.
constexpr auto kDecisionFields = fields<Schedule>(
    optional("scale", &Schedule::scale, as_word(), "where 1/degree is applied; absent: collective"),
    optional("merge", &Schedule::merge, as_object(kMergeFields)),
    optional("parameters", &Schedule::parameters, as_word(),
             "when sharded parameters are gathered; absent: after-update"),
    optional("pipeline", &Schedule::pipeline, as_object(kPipelineFields)),
    optional("frozen", &Schedule::frozen, as_list(as_object(kFrozenFields)),
             "with parameters each-use: parameters that nothing updates, which are sharded and "
             "gathered like those of a bucket"),
    optional("gathers", &Schedule::gathers, as_list(as_object(kGatherFields)),
             "with parameters each-use: every all-gather of parameters, in launch order"),
    optional("gather_limit", &Schedule::gather_limit,
             as_object(fields<GatherLimit>(
                 defaulted("bytes", &GatherLimit::bytes, as_integer(0, kMostElements)),
                 defaulted("buckets", &GatherLimit::buckets, kId))),
             "the most that one rank may have gathered at a time; 0 or absent: no limit"),
    optional("collectives", &Schedule::collectives,
             as_list(as_object(kOwnCollectiveFields),
                     [](const JsonValue& item, const std::vector<OpPlacement>& before,
                        const OpPlacement& placement,
                        auto&) { check_placed_once(item, before, placement); }),
             "where collectives of the program itself run; those not listed: where they stand, on "
             "the compute stream"),
    required("buckets", &Schedule::buckets, as_list(as_object(kBucketFields)), "in launch order"),
    check([](JsonObject& object, const Schedule& schedule, auto&) {
      check_bucket_ids(object, schedule);
    }));

// Read before all else, for the schedule refers to it by names.
struct ProgramPart {
  constexpr void keys(const auto& visitor) const { visitor("program"); }
  void read(JsonObject& /*object*/, const Plan& /*plan*/, const auto& /*context*/) const {}
  void write(JsonMembers& members, const Plan& plan, const auto& /*context*/) const {
    members.emplace_back("program", program_to_value(plan.program));
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    ordered_json program = program_schema();
    program.erase("$schema");
    whole.add("program", std::move(program), "");
    whole.required.push_back("program");
  }
};

constexpr auto kPlanDocument = document(kPlanSchema, "plan");
constexpr auto kPlanFields = as_object(fields<Plan>(
    kPlanDocument,
    inlined(&Plan::schedule, fields<Schedule>(required("policy", &Schedule::policy, as_text(),
                                                       "that made it, with its options"))),
    inlined(&Plan::summary, kSummaryFields), inlined(&Plan::schedule, kDecisionFields),
    ProgramPart{}));

// The schedule refers to the Program by names: `other`, if there is one, takes the place of the
// file's own. A pipeline's Schedule says nothing of a Program that is not cut into the same stages,
// although the names are the same.
void require_as_many_stages(JsonObject planned, const Program& other) {
  const std::int64_t stages = planned.integer_or("stages", 1);
  if (stages == other.stages) return;
  planned.value().fail("the plan is of " + counted(stages, "pipeline stage") +
                       ", the workload here of " + std::to_string(other.stages));
}

Plan plan_from_json(JsonObject object, std::optional<Program> other = std::nullopt) {
  Plan plan;
  NoContext none;
  kPlanDocument.read(object, plan, none);
  if (other) {
    require_as_many_stages(object.object("program"), *other);
    plan.program = *std::move(other);
  } else {
    plan.program = program_from_json(object.object("program"));
  }
  PlanReading reading{{.groups = {"process group", "the program has no process group "},
                       .tensors = {"tensor", "the program has no tensor "},
                       .ops = {"op", "the program has no op "}},
                      plan.program};
  reading.groups.add_all(plan.program.groups);
  reading.tensors.add_all(plan.program.tensors);
  reading.ops.add_all(plan.program.ops);
  kPlanFields.read(object, plan, reading);
  return plan;
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
  return as_json(kPlanFields, plan, plan.program).dump(1) + "\n";
}

ordered_json plan_schema() {
  return schema_of<Plan>(
      kPlanFields, "dovetail.plan/1: a schedule and its step",
      "When and where the gradients of a step travel. Written by `dovetail plan`; read by show, "
      "predict and run. A plan may also be written by hand: what is illegal is refused with its "
      "reason.");
}

}  // namespace dovetail::schedule
