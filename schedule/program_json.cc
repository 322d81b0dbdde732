// Reads and writes Programs as JSON. Whatever a file says, the reader returns a Program without
// problems() or throws: sizes are limited before they are multiplied, and every name is resolved
// here.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program_json.h"

#include "base/error.h"
#include "base/json.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kLargestNumber = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestCount = std::int64_t{1} << 40;
constexpr double kLargestBytes = 0x1p44;
constexpr double kLongestWorkUs = 1e12;
constexpr double kLargestFlop = 1e18;
constexpr std::int64_t kLargestWorld = 1 << 20;  // ranks, as of a model's options
constexpr std::int64_t kMostUnrolledSteps = 1 << 16;
constexpr std::int64_t kLargestFactor = 1 << 20;  // above or below the line

constexpr std::array<std::string_view, 5> kWorkKinds = {"gemm", "memory", "timed", "collective",
                                                        "kernels"};
constexpr std::array<std::string_view, 2> kKernelKinds = {"gemm", "memory"};
constexpr std::array<std::string_view, 5> kEffects = {"fill-loss-gradient", "accumulate",
                                                      "zero-fill", "update", "global-norm"};

// The names of one kind of thing, each with the id it stands for.
template <class IdType>
class Names {
 public:
  explicit Names(std::string what) : what_(std::move(what)) {}

  // Reads "id" and "name" of a new thing; both must be new.
  std::pair<IdType, std::string> read_new(JsonObject& object) {
    const IdType id{static_cast<std::int32_t>(object.integer("id", 0, kLargestId))};
    if (!ids_.insert(id).second) {
      object.at("id").fail("another " + what_ + " has the id " + std::to_string(id.value));
    }
    std::string name = object.string("name");
    if (name.empty()) object.at("name").fail("expected a name, found \"\"");
    if (!by_name_.emplace(name, id).second) {
      object.at("name").fail("another " + what_ + " is called \"" + name + "\"");
    }
    return {id, std::move(name)};
  }

  [[nodiscard]] IdType find(const JsonValue& value) const {
    const std::string name = value.string();
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
    std::vector<std::string> known;
    known.reserve(by_name_.size());
    for (const auto& entry : by_name_) known.push_back(entry.first);
    const std::string near = nearest_word(name, known);
    value.fail("no " + what_ + " is called \"" + name + "\"" +
               (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }

 private:
  std::string what_;
  std::set<IdType> ids_;
  std::map<std::string, IdType> by_name_;
};

void limit_bytes(const JsonValue& place, double bytes) {
  if (bytes > kLargestBytes) place.fail("larger than 16 TiB");
}

Tensor read_tensor(JsonObject object, Names<TensorId>& names) {
  Tensor tensor;
  std::tie(tensor.id, tensor.name) = names.read_new(object);
  tensor.kind = object.one_of<TensorKind>("kind");
  tensor.dtype = object.one_of<DType>("dtype");
  auto bytes = static_cast<double>(element_size(tensor.dtype).count());
  for (const JsonValue& extent : object.array("shape")) {
    tensor.shape.push_back(extent.integer(1, kLargestCount));
    bytes *= static_cast<double>(tensor.shape.back());
  }
  limit_bytes(object.at("shape"), bytes);
  object.ignore("merges");  // known even when absent, as are all optional keys below
  if (object.has("merges")) tensor.merges = names.find(object.at("merges"));
  object.done();
  return tensor;
}

ProcessGroup read_group(JsonObject object, Names<GroupId>& names) {
  ProcessGroup group;
  std::tie(group.id, group.name) = names.read_new(object);
  for (const JsonValue& rank : object.array("ranks")) {
    group.ranks.push_back(Rank{static_cast<std::int32_t>(rank.integer(0, kLargestNumber))});
  }
  group.instance_size = object.integer_or("instance_size", 0, 0, kLargestNumber);
  object.done();
  return group;
}

Operands read_operands(JsonObject& object, DType dtype) {
  object.ignore("operands");
  if (!object.has("operands")) return Operands::Own;
  const auto operands = object.one_of<Operands>("operands");
  if (operands == Operands::Tf32 && dtype != DType::F32) {
    object.value().fail("operands: tf32 is of an op of f32, not of " +
                        std::string(to_string(dtype)));
  }
  return operands;
}

GemmWork read_gemm(JsonObject& object, DType dtype) {
  object.ignore("count");  // known even when absent, so that a misspelt one is told its right name
  object.ignore("separate");
  const GemmWork work{.m = object.integer("m", 1, kLargestCount),
                      .n = object.integer("n", 1, kLargestCount),
                      .k = object.integer("k", 1, kLargestCount),
                      .count = object.integer_or("count", 1, 1, kLargestCount),
                      .operands = read_operands(object, dtype),
                      .separate = object.has("separate") && object.at("separate").boolean()};
  const auto m = static_cast<double>(work.m);
  const auto n = static_cast<double>(work.n);
  const auto k = static_cast<double>(work.k);
  limit_bytes(object.value(), static_cast<double>(element_size(dtype).count()) *
                                  static_cast<double>(work.count) * (m * k + k * n + m * n));
  return work;
}

TimedWork read_timed(JsonObject& object) {
  TimedWork work;
  for (const JsonValue& time : object.array("by_rank_us")) {
    work.by_rank.push_back(from_us(time.number(0, kLongestWorkUs)));
  }
  return work;
}

CollectiveWork read_message(JsonObject& object, const Names<GroupId>& groups) {
  CollectiveWork work;
  work.kind = object.one_of<Collective>("collective");
  work.group = groups.find(object.at("group"));
  work.bytes = Bytes(object.integer("message_bytes", 0, static_cast<std::int64_t>(kLargestBytes)));
  work.op = object.one_of<ReduceOp>("op");
  work.purpose = object.one_of<Purpose>("purpose");
  work.root = static_cast<std::int32_t>(object.integer_or("root", 0, 0, kLargestNumber));
  return work;
}

Rational read_factor(JsonObject& object, std::string_view key) {
  const std::string text = object.string(key);
  const std::optional<Rational> factor = parse_rational(text);
  if (!factor) {
    object.at(key).fail("expected a fraction like \"1/8\", found \"" + text + "\"");
  }
  if (std::abs(factor->numerator()) > kLargestFactor || factor->denominator() > kLargestFactor) {
    object.at(key).fail("expected a fraction of numbers up to " + std::to_string(kLargestFactor) +
                        ", found \"" + text + "\"");
  }
  return *factor;
}

std::optional<Rational> read_rescale(JsonObject& object) {
  object.ignore("rescale");
  if (!object.has("rescale")) return std::nullopt;
  return read_factor(object, "rescale");
}

Effect read_effect(JsonObject object) {
  Effect effect;
  const std::string_view kind = kEffects[object.word("kind", kEffects)];
  if (kind == "fill-loss-gradient") {
    effect = FillLossGradient{read_factor(object, "value")};
  } else if (kind == "accumulate") {
    effect = Accumulate{.overwrite = object.at("overwrite").boolean(),
                        .factor = read_factor(object, "factor")};
  } else if (kind == "zero-fill") {
    effect = ZeroFill{};
  } else if (kind == "update") {
    effect =
        Update{.elementwise = object.at("elementwise").boolean(), .rescale = read_rescale(object)};
  } else {
    effect = GlobalNorm{.shard = object.at("shard").boolean(),
                        .rescale = read_factor(object, "rescale")};
  }
  object.done();
  return effect;
}

Attention read_attention(JsonObject object) {
  Attention attention{.tokens = object.integer("tokens", 1, kLargestCount),
                      .head_dim = object.integer("head_dim", 1, kLargestCount)};
  object.ignore("backward");
  if (object.has("backward")) attention.backward = object.at("backward").boolean();
  object.done();
  return attention;
}

MemoryWork read_memory(JsonObject& object) {
  const auto bytes = object.integer("traffic_bytes", 0, static_cast<std::int64_t>(kLargestBytes));
  MemoryWork work{.bytes = Bytes(bytes), .flop = Flop(object.number("work_flop", 0, kLargestFlop))};
  object.ignore("attention");
  if (object.has("attention")) work.attention = read_attention(object.object("attention"));
  return work;
}

KernelsWork read_several(JsonObject& object, DType dtype) {
  KernelsWork work;
  for (const JsonValue& value : object.array("kernels")) {
    JsonObject kernel = value.object();
    if (kernel.word("kind", kKernelKinds) == 0) {
      work.kernels.emplace_back(read_gemm(kernel, dtype));
    } else {
      work.kernels.emplace_back(read_memory(kernel));
    }
    kernel.done();
  }
  return work;
}

Work read_work(JsonObject object, DType dtype, const Names<GroupId>& groups) {
  Work work;
  const std::size_t kind = object.word("kind", kWorkKinds);
  if (kWorkKinds[kind] == "gemm") {
    work = read_gemm(object, dtype);
  } else if (kWorkKinds[kind] == "memory") {
    work = read_memory(object);
  } else if (kWorkKinds[kind] == "kernels") {
    work = read_several(object, dtype);
  } else if (kWorkKinds[kind] == "timed") {
    work = read_timed(object);
  } else {
    work = read_message(object, groups);
  }
  object.done();
  return work;
}

std::optional<Duration> read_time(JsonObject& object, std::string_view key) {
  object.ignore(key);  // known even when absent
  if (!object.has(key)) return std::nullopt;
  return from_us(object.number(key, 0, kLongestWorkUs));
}

Op read_op(JsonObject object, Names<OpId>& ops, const Names<TensorId>& tensors,
           const Names<GroupId>& groups) {
  Op op;
  std::tie(op.id, op.name) = ops.read_new(object);
  op.phase = object.one_of<Phase>("phase");
  op.dtype = object.one_of<DType>("dtype");
  op.work = read_work(object.object("work"), op.dtype, groups);
  for (const JsonValue& name : object.array("reads")) op.reads.push_back(tensors.find(name));
  for (const JsonValue& name : object.array("writes")) op.writes.push_back(tensors.find(name));
  object.ignore("effect");
  if (object.has("effect")) op.effect = read_effect(object.object("effect"));
  op.stage = static_cast<std::int32_t>(object.integer_or("stage", 0, 0, kLargestNumber));
  op.micro_step = static_cast<std::int32_t>(object.integer_or("micro_step", 0, 0, kLargestNumber));
  op.issue = read_time(object, "issue_us");
  object.done();
  return op;
}

// A finite number: NaN and infinity would be written as null.
double finite(double value) {
  DOVETAIL_CHECK(std::isfinite(value)) << value;
  return value;
}

// A list of what `to_value` makes of each. Appending one by one would cost the square of the length:
// with diagnostics on, every push_back tells all elements anew where they lie.
template <class List, class ToValue>
ordered_json list_of(const List& list, const ToValue& to_value) {
  ordered_json::array_t values;
  values.reserve(list.size());
  for (const auto& each : list) values.emplace_back(to_value(each));
  return ordered_json(std::move(values));
}

ordered_json kernel_to_value(const GemmWork& gemm) {
  ordered_json object = {
      {"kind", "gemm"}, {"m", gemm.m}, {"n", gemm.n}, {"k", gemm.k}, {"count", gemm.count}};
  if (gemm.operands != Operands::Own) object["operands"] = to_string(gemm.operands);
  if (gemm.separate) object["separate"] = true;
  return object;
}

ordered_json kernel_to_value(const MemoryWork& memory) {
  ordered_json object = {{"kind", "memory"},
                         {"traffic_bytes", memory.bytes.count()},
                         {"work_flop", finite(memory.flop.count())}};
  if (memory.attention) {
    object["attention"] = {{"tokens", memory.attention->tokens},
                           {"head_dim", memory.attention->head_dim},
                           {"backward", memory.attention->backward}};
  }
  return object;
}

ordered_json work_to_value(const Program& program, const Work& work) {
  return visit(
      work, [](const GemmWork& gemm) { return kernel_to_value(gemm); },
      [](const MemoryWork& memory) { return kernel_to_value(memory); },
      [](const KernelsWork& several) {
        return ordered_json{{"kind", "kernels"},
                            {"kernels", list_of(several.kernels, [](const Kernel& kernel) {
                               return std::visit(
                                   [](const auto& one) { return kernel_to_value(one); }, kernel);
                             })}};
      },
      [](const TimedWork& timed) {
        ordered_json times =
            list_of(timed.by_rank, [](Duration time) { return ordered_json(to_us(time)); });
        return ordered_json{{"kind", "timed"}, {"by_rank_us", std::move(times)}};
      },
      [&](const CollectiveWork& message) {
        ordered_json value{{"kind", "collective"},
                           {"collective", to_string(message.kind)},
                           {"group", program.group(message.group).name},
                           {"message_bytes", message.bytes.count()},
                           {"op", to_string(message.op)},
                           {"purpose", to_string(message.purpose)}};
        if (message.root != 0) value["root"] = message.root;
        return value;
      });
}

// Null for an opaque op, which has no such key.
ordered_json effect_to_value(const Effect& effect) {
  const auto with_rescale = [](ordered_json value, const std::optional<Rational>& rescale) {
    if (rescale) value["rescale"] = dovetail::to_string(*rescale);
    return value;
  };
  return visit(
      effect, [](const Opaque&) { return ordered_json(); },
      [](const FillLossGradient& fill) {
        return ordered_json{{"kind", "fill-loss-gradient"},
                            {"value", dovetail::to_string(fill.value)}};
      },
      [](const Accumulate& sum) {
        return ordered_json{{"kind", "accumulate"},
                            {"overwrite", sum.overwrite},
                            {"factor", dovetail::to_string(sum.factor)}};
      },
      [](const ZeroFill&) {
        return ordered_json{{"kind", "zero-fill"}};
      },
      [&](const Update& update) {
        return with_rescale({{"kind", "update"}, {"elementwise", update.elementwise}},
                            update.rescale);
      },
      [](const ShardUpdate& update) {
        DOVETAIL_CHECK(false) << "the update of a shard of bucket " << update.gradients;
        return ordered_json();
      },
      [](const GlobalNorm& norm) {
        return ordered_json{{"kind", "global-norm"},
                            {"shard", norm.shard},
                            {"rescale", dovetail::to_string(norm.rescale)}};
      });
}

ordered_json tensor_names(const Program& program, const std::vector<TensorId>& ids) {
  return list_of(ids, [&](TensorId id) { return ordered_json(program.tensor(id).name); });
}

ordered_json group_to_value(const ProcessGroup& group) {
  ordered_json ranks = list_of(group.ranks, [](Rank rank) { return ordered_json(rank.value); });
  ordered_json value{{"id", group.id.value}, {"name", group.name}, {"ranks", std::move(ranks)}};
  if (group.instance_size != 0) value["instance_size"] = group.instance_size;
  return value;
}

ordered_json tensor_to_value(const Program& program, const Tensor& tensor) {
  ordered_json value{{"id", tensor.id.value},
                     {"name", tensor.name},
                     {"kind", to_string(tensor.kind)},
                     {"dtype", to_string(tensor.dtype)},
                     {"shape", tensor.shape}};
  if (tensor.merges) value["merges"] = program.tensor(*tensor.merges).name;
  return value;
}

ordered_json op_to_value(const Program& program, const Op& op) {
  ordered_json value{{"id", op.id.value},
                     {"name", op.name},
                     {"phase", to_string(op.phase)},
                     {"dtype", to_string(op.dtype)},
                     {"work", work_to_value(program, op.work)},
                     {"reads", tensor_names(program, op.reads)},
                     {"writes", tensor_names(program, op.writes)}};
  ordered_json effect = effect_to_value(op.effect);
  if (!effect.is_null()) value["effect"] = std::move(effect);
  if (op.stage != 0) value["stage"] = op.stage;
  if (op.micro_step != 0) value["micro_step"] = op.micro_step;
  if (op.issue) value["issue_us"] = to_us(*op.issue);
  return value;
}

ordered_json reduction_to_value(const Program& program, const Reduction& reduction) {
  ordered_json value{{"gradient", program.tensor(reduction.gradient).name},
                     {"group", program.group(reduction.group).name},
                     {"op", to_string(reduction.op)}};
  if (reduction.scale != Rational()) value["scale"] = dovetail::to_string(reduction.scale);
  return value;
}

}  // namespace

Program program_from_json(JsonObject object) {
  static constexpr std::array<std::string_view, 1> kKind = {"program"};
  object.schema(kProgramSchema);
  static_cast<void>(object.word("kind", kKind));

  Program program;
  program.name = object.string("name");
  program.world_size = object.integer("world_size", 1, kLargestWorld);
  Names<GroupId> groups("process group");
  Names<TensorId> tensors("tensor");
  Names<OpId> ops("op");
  for (const JsonValue& group : object.array("groups")) {
    program.groups.push_back(read_group(group.object(), groups));
  }
  for (const JsonValue& tensor : object.array("tensors")) {
    program.tensors.push_back(read_tensor(tensor.object(), tensors));
  }
  for (const JsonValue& op : object.array("ops")) {
    program.ops.push_back(read_op(op.object(), ops, tensors, groups));
  }
  for (const JsonValue& value : object.array("reductions")) {
    JsonObject reduction = value.object();
    Reduction owed{.gradient = tensors.find(reduction.at("gradient")),
                   .group = groups.find(reduction.at("group")),
                   .op = reduction.one_of<ReduceOp>("op")};
    reduction.ignore("scale");
    if (reduction.has("scale")) owed.scale = read_factor(reduction, "scale");
    reduction.done();
    program.reductions.push_back(owed);
  }
  program.stages = static_cast<std::int32_t>(object.integer_or("stages", 1, 1, kLargestNumber));
  object.ignore("stage_map");
  if (object.has("stage_map")) program.stage_map = object.one_of<StageMap>("stage_map");
  program.micro_steps =
      static_cast<std::int32_t>(object.integer_or("micro_steps", 1, 1, kMostUnrolledSteps));
  program.bucket_call = read_time(object, "bucket_call_us");
  object.done();
  const std::vector<std::string> wrong = problems(program);
  if (!wrong.empty()) object.value().fail(wrong.front());
  return program;
}

Program parse_program(const std::string& name, std::string_view text) {
  const JsonFile file(name, text);
  return program_from_json(file.root());
}

Program read_program(const std::string& path) {
  const JsonFile file(path);
  return program_from_json(file.root());
}

ordered_json program_to_value(const Program& program) {
  const auto with_program = [&](auto to_value) {
    return [&program, to_value](const auto& each) { return to_value(program, each); };
  };
  ordered_json groups = list_of(program.groups, group_to_value);
  ordered_json tensors = list_of(program.tensors, with_program(tensor_to_value));
  ordered_json ops = list_of(program.ops, with_program(op_to_value));
  ordered_json reductions = list_of(program.reductions, with_program(reduction_to_value));
  ordered_json value{{"schema", kProgramSchema},    {"kind", "program"},
                     {"name", program.name},        {"world_size", program.world_size},
                     {"groups", std::move(groups)}, {"tensors", std::move(tensors)},
                     {"ops", std::move(ops)},       {"reductions", std::move(reductions)}};
  if (program.stages != 1) value["stages"] = program.stages;
  if (program.stage_map != StageMap::Loop) value["stage_map"] = to_string(program.stage_map);
  if (program.micro_steps != 1) value["micro_steps"] = program.micro_steps;
  if (program.bucket_call) value["bucket_call_us"] = to_us(*program.bucket_call);
  return value;
}

std::string program_to_json(const Program& program) {
  return program_to_value(program).dump(1) + "\n";
}

}  // namespace dovetail::schedule
