// Reads and writes Programs as JSON. Whatever a file says, the reader returns a Program without
// problems() or throws: sizes are limited before they are multiplied, and every name is resolved
// here.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program_json.h"

#include "schedule/name_fields.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace dovetail::schedule {
namespace {

constexpr std::int64_t kLargestNumber = std::numeric_limits<std::int32_t>::max();
constexpr auto kSmallNumber = as_integer(0, kLargestNumber);
constexpr auto kExtent = as_integer(1, std::int64_t{1} << 40);
constexpr double kLargestBytes = 0x1p44;
constexpr auto kWorkBytes = as_integer(0, static_cast<std::int64_t>(kLargestBytes));
constexpr double kLongestWorkUs = 1e12;
constexpr double kLargestFlop = 1e18;
constexpr std::int64_t kLargestWorld = 1 << 20;  // ranks, as of a model's options
constexpr std::int64_t kMostUnrolledSteps = 1 << 16;
constexpr std::int64_t kLargestFactor = 1 << 20;  // above or below the line

// What the parts of a file need to know of those before them.
struct ProgramReading : ProgramNames {
  DType dtype = DType::F32;  // of the op that is being read
};

void limit_bytes(const JsonValue& place, double bytes) {
  if (bytes > kLargestBytes) place.fail("larger than 16 TiB");
}

double bytes_of(DType dtype) { return static_cast<double>(element_size(dtype).count()); }

// "id" and "name" of a new thing.
template <class T>
constexpr auto new_name() {
  return fields<T>(required("id", &T::id, kId), required("name", &T::name, as_name()),
                   check([](JsonObject& object, const T& thing, ProgramNames& names) {
                     names.of(thing.id).add(object, thing.id, thing.name);
                   }));
}

// A fraction of small numbers, as text.
struct FactorValue {
  void read(const JsonValue& value, Rational& into, auto& /*context*/) const {
    const std::string text = value.string();
    const std::optional<Rational> factor = parse_rational(text);
    if (!factor) value.fail("expected a fraction like \"1/8\", found \"" + text + "\"");
    if (std::abs(factor->numerator()) > kLargestFactor || factor->denominator() > kLargestFactor) {
      value.fail("expected a fraction of numbers up to " + std::to_string(kLargestFactor) +
                 ", found \"" + text + "\"");
    }
    into = *factor;
  }
  ordered_json write(Rational factor, const auto& /*context*/) const {
    return dovetail::to_string(factor);
  }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return {{"description", "a fraction of whole numbers of at most " +
                                std::to_string(kLargestFactor) + ", e.g. \"1/8\""},
            {"type", "string"},
            {"pattern", "^-?[0-9]+(/[0-9]+)?$"}};
  }
};

constexpr auto kGroupFields = fields<ProcessGroup>(
    new_name<ProcessGroup>(), required("ranks", &ProcessGroup::ranks, as_list(kSmallNumber)),
    optional("instance_size", &ProcessGroup::instance_size, kSmallNumber,
             "ranks of one instance where `ranks` lists several instances one after another; 0 or "
             "absent: one instance"));

constexpr auto kTensorFields =
    fields<Tensor>(new_name<Tensor>(), required("kind", &Tensor::kind, as_word(), "what it is for"),
                   required("dtype", &Tensor::dtype, as_word(), "element type"),
                   required("shape", &Tensor::shape, as_list(kExtent),
                            "of the whole tensor on one rank; empty: one number"),
                   check([](JsonObject& object, const Tensor& tensor, auto&) {
                     double bytes = bytes_of(tensor.dtype);
                     for (const std::int64_t extent : tensor.shape)
                       bytes *= static_cast<double>(extent);
                     limit_bytes(object.at("shape"), bytes);
                   }),
                   optional("merges", &Tensor::merges, NameOf{},
                            "name of the gradient of which this is the sum over micro-steps"));

// ------------------------------------------------------------------------------------- work

constexpr auto kConvolutionFields = fields<Convolution>(
    required("pass", &Convolution::pass, as_word(),
             "forward, or the gradient of its input or of its weight"),
    required("moved", &Convolution::moved, kExtent,
             "elements of image, weight and result, each once"),
    required("channels", &Convolution::channels, kExtent,
             "the fewer of those that come in and go out"),
    defaulted("strided", &Convolution::strided, as_bool(), "by more than one pixel"));

constexpr auto kGemmFields = fields<GemmWork>(
    required("m", &GemmWork::m, kExtent), required("n", &GemmWork::n, kExtent),
    required("k", &GemmWork::k, kExtent),
    defaulted("count", &GemmWork::count, kExtent, "products of this size; absent: 1"),
    optional("operands", &GemmWork::operands, as_word(),
             "what is multiplied; absent: the op's type"),
    optional("separate", &GemmWork::separate, as_bool(),
             "each product is a kernel of its own; absent: one kernel for all"),
    optional("casts", &GemmWork::casts, as_integer(0, 64),
             "kernels that make an operand narrow, which the host launches; absent: 0"),
    optional("adds", &GemmWork::adds, as_integer(0, 8),
             "bytes of an element of the sum that it adds to; absent: it has a result"),
    optional("convolution", &GemmWork::convolution, as_object(kConvolutionFields),
             "the product is the one that a convolution implies"),
    check([](const JsonObject& object, const GemmWork& work, const ProgramReading& reading) {
      if (work.operands == Operands::Tf32 && reading.dtype != DType::F32) {
        object.value().fail("operands: tf32 is of an op of f32, not of " +
                            std::string(to_string(reading.dtype)));
      }
      const auto m = static_cast<double>(work.m);
      const auto n = static_cast<double>(work.n);
      const auto k = static_cast<double>(work.k);
      limit_bytes(object.value(), bytes_of(reading.dtype) * static_cast<double>(work.count) *
                                      (m * k + k * n + m * n));
    }));

constexpr auto kAttentionFields = fields<Attention>(
    required("tokens", &Attention::tokens, kExtent, "that a query attends to, in the mean"),
    required("head_dim", &Attention::head_dim, kExtent, "of queries and values, their mean"),
    defaulted("backward", &Attention::backward, as_bool()),
    defaulted("causal", &Attention::causal, as_bool(),
              "a query attends to what is before it; absent: true"),
    optional("kernel", &Attention::kernel, as_word(), "whose; absent: cudnn"));

constexpr auto kMemoryFields = fields<MemoryWork>(
    required("traffic_bytes", &MemoryWork::bytes, kWorkBytes, "read and written"),
    required("work_flop", &MemoryWork::flop, as_number(0, kLargestFlop),
             "floating-point operations, a count"),
    optional("attention", &MemoryWork::attention, as_object(kAttentionFields),
             "of a fused attention kernel, which keeps no scores"),
    optional("access", &MemoryWork::access, as_word(), "how it goes over its bytes"),
    optional("columns", &MemoryWork::columns, as_integer(0, std::int64_t{1} << 40),
             "of a row; absent: it does not matter"));

constexpr auto kGemmChoice =
    when<GemmWork>("gemm", kGemmFields, "a matrix product: m rows, n columns, k summed over");
constexpr auto kMemoryChoice =
    when<MemoryWork>("memory", kMemoryFields, "work that is bound by memory");

constexpr auto kCollectiveFields = fields<CollectiveWork>(
    required("collective", &CollectiveWork::kind, as_word(), "kind of collective"),
    required("group", &CollectiveWork::group, NameOf{}, "name of a process group"),
    required("message_bytes", &CollectiveWork::bytes, kWorkBytes, "of the whole message"),
    required("op", &CollectiveWork::op, as_word(), "how the values of the ranks are joined"),
    required("purpose", &CollectiveWork::purpose, as_word(), "why it communicates"),
    optional("root", &CollectiveWork::root, kSmallNumber,
             "index of the sender within the group; absent: 0"),
    optional("copies", &CollectiveWork::copies, as_integer(1, std::int64_t{1} << 20),
             "of an all-to-all: how often each of its rows stands among message_bytes, of which "
             "one goes to a rank, and to a node; absent: 1"),
    optional("asynchronous", &CollectiveWork::asynchronous, as_bool(),
             "started where it stands and waited for before the first use of what it brings; "
             "absent: it is waited for where it stands"));

constexpr auto kWork =
    tagged("kind", kGemmChoice, kMemoryChoice,
           when<TimedWork>("timed",
                           fields<TimedWork>(required(
                               "by_rank_us", &TimedWork::by_rank, as_list(as_us(0, kLongestWorkUs)),
                               "one entry: all ranks alike; else one per rank")),
                           "a measured duration"),
           when<CollectiveWork>("collective", kCollectiveFields, "an op that communicates"),
           when<KernelsWork>(
               "kernels",
               fields<KernelsWork>(required("kernels", &KernelsWork::kernels,
                                            as_list(tagged("kind", kGemmChoice, kMemoryChoice)))),
               "several kernels, one after another, as one op"));

// A ShardUpdate, which lowering makes, has no word.
constexpr auto kEffect = tagged(
    "kind",
    when<FillLossGradient>(
        "fill-loss-gradient",
        fields<FillLossGradient>(required("value", &FillLossGradient::value, FactorValue{}))),
    when<Accumulate>("accumulate",
                     fields<Accumulate>(required("overwrite", &Accumulate::overwrite, as_bool()),
                                        required("factor", &Accumulate::factor, FactorValue{}))),
    when<ZeroFill>("zero-fill", fields<ZeroFill>()),
    when<Update>("update", fields<Update>(required("elementwise", &Update::elementwise, as_bool()),
                                          optional("rescale", &Update::rescale, FactorValue{}))),
    when<GlobalNorm>("global-norm",
                     fields<GlobalNorm>(required("shard", &GlobalNorm::shard, as_bool()),
                                        required("rescale", &GlobalNorm::rescale, FactorValue{}))));

// ---------------------------------------------------------------------------------- program

constexpr auto kOpFields =
    fields<Op>(new_name<Op>(), required("phase", &Op::phase, as_word(), "part of the step"),
               required("dtype", &Op::dtype, as_word(), "element type"),
               check([](const JsonObject&, const Op& op, ProgramReading& reading) {
                 reading.dtype = op.dtype;
               }),
               required("work", &Op::work, kWork, "what the op costs"),
               required("reads", &Op::reads, as_list(NameOf{}), "names of tensors"),
               required("writes", &Op::writes, as_list(NameOf{}), "names of tensors"),
               optional("effect", &Op::effect, kEffect,
                        "what the op means for values; absent: only what it reads and writes"),
               optional("stage", &Op::stage, kSmallNumber, "of a pipeline; absent: 0"),
               optional("micro_step", &Op::micro_step, kSmallNumber, "absent: 0"),
               optional("issue_us", &Op::issue, as_us(0, kLongestWorkUs),
                        "microseconds that the host took to issue it; absent: not seen"));

constexpr auto kReductionFields = fields<Reduction>(
    required("gradient", &Reduction::gradient, NameOf{}, "name of a tensor"),
    required("group", &Reduction::group, NameOf{}, "name of a process group"),
    required("op", &Reduction::op, as_word(), "how the values of the ranks are joined"),
    optional("scale", &Reduction::scale, FactorValue{}));

constexpr auto kProgramFields = as_object(fields<Program>(
    document(kProgramSchema, "program"),
    required("name", &Program::name, as_text(), "of the workload"),
    required("world_size", &Program::world_size, as_integer(1, kLargestWorld),
             "ranks of the whole job"),
    required("groups", &Program::groups, as_list(as_object(kGroupFields)), "process groups"),
    required("tensors", &Program::tensors, as_list(as_object(kTensorFields))),
    required("ops", &Program::ops, as_list(as_object(kOpFields)),
             "in the order in which a rank issues them"),
    required("reductions", &Program::reductions, as_list(as_object(kReductionFields)),
             "what each gradient owes before the optimizer may read it"),
    optional("stages", &Program::stages, as_integer(1, kLargestNumber), "of a pipeline; absent: 1"),
    optional("stage_map", &Program::stage_map, as_word(),
             "which stage of the pipeline runs a virtual one: again from the first, or there and "
             "back; absent: loop"),
    optional("micro_steps", &Program::micro_steps, as_integer(1, kMostUnrolledSteps),
             "that are written out already; absent: 1"),
    optional("bucket_call_us", &Program::bucket_call, as_us(0, kLongestWorkUs),
             "microseconds that the host took to launch the collective of a bucket; absent: not "
             "seen")));

}  // namespace

Program program_from_json(const JsonObject& object) {
  ProgramReading reading{{.groups = {"process group", "no process group is called "},
                          .tensors = {"tensor", "no tensor is called "},
                          .ops = {"op", "no op is called "}}};
  Program program = read_as<Program>(kProgramFields, object, reading);
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
  return as_json(kProgramFields, program, program);
}

ordered_json program_schema() {
  return schema_of<Program>(
      kProgramFields, "dovetail.program/1: one training step",
      "What a step computes: tensors, ops in order, process groups and the reductions that "
      "gradients owe. Written inside plans; read by --workload. Ids and names are unique; ops "
      "refer "
      "to tensors and groups by name.");
}

std::string program_to_json(const Program& program) {
  return program_to_value(program).dump(1) + "\n";
}

}  // namespace dovetail::schedule
