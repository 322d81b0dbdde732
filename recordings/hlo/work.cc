// Finds the products of an instruction, through the computations that it calls, and counts traffic.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/work.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

namespace dovetail::imports {
namespace {

using schedule::GemmWork;
using schedule::Kernel;
using schedule::MemoryWork;

constexpr int kDeepestFusion = 16;  // computations that call each other

// They move or name data and calculate nothing.
constexpr std::array<std::string_view, 25> kMoves = {"parameter",
                                                     "constant",
                                                     "bitcast",
                                                     "reshape",
                                                     "broadcast",
                                                     "transpose",
                                                     "slice",
                                                     "dynamic-slice",
                                                     "concatenate",
                                                     "pad",
                                                     "iota",
                                                     "tuple",
                                                     "copy",
                                                     "convert",
                                                     "get-tuple-element",
                                                     "gather",
                                                     "reverse",
                                                     "after-all",
                                                     "partition-id",
                                                     "replica-id",
                                                     "copy-start",
                                                     "copy-done",
                                                     "dynamic-update-slice",
                                                     "bitcast-convert",
                                                     "opt-barrier"};

template <class Table>
bool is_one_of(const Table& table, std::string_view word) {
  return std::ranges::find(table, word) != table.end();
}

std::string_view target_of(const HloInstruction& call) {
  std::string_view target = call.attribute("custom_call_target");
  if (target.size() >= 2 && target.front() == '"') target = target.substr(1, target.size() - 2);
  return target;
}

bool is_product_call(const HloInstruction& instruction) {
  const std::string_view target = target_of(instruction);
  return target.find("matmul") != std::string_view::npos ||
         target.find("gemm") != std::string_view::npos;
}

// "lhs_contracting_dimensions":["1"] of a backend_config; none where the key is not there.
std::vector<std::int64_t> configured(std::string_view config, const std::string& key) {
  std::vector<std::int64_t> values;
  const std::size_t at = config.find("\"" + key + "\":[");
  if (at == std::string_view::npos) return values;
  const std::size_t begin = at + key.size() + 4;
  const std::size_t end = config.find(']', begin);
  if (end == std::string_view::npos) return values;
  for (std::string_view part : hlo_parts(config.substr(begin, end - begin))) {
    if (part.size() >= 2 && part.front() == '"') part = part.substr(1, part.size() - 2);
    if (const auto value = integer_of(part)) values.push_back(*value);
  }
  return values;
}

// Finds products and counts arithmetic in a computation and those that it calls.
class Counter {
 public:
  Counter(const Source& file, const HloModule& module) : file_(file), module_(module) {}

  void count(const HloComputation& within, const HloInstruction& instruction, int depth = 0) {
    if (depth > kDeepestFusion) fail(instruction, "computations that call each other 16 deep");
    const std::string_view opcode = instruction.opcode;
    if (opcode == "dot") return add_dot(within, instruction);
    if (opcode == "convolution") return add_convolution(within, instruction);
    if (opcode == "custom-call" && is_product_call(instruction)) {
      return add_call(within, instruction);
    }
    if (opcode == "fusion" || opcode == "call") {
      const std::string_view key = opcode == "fusion" ? "calls" : "to_apply";
      const auto called = module_.computations.find(hlo_name(instruction.attribute(key)));
      if (called == module_.computations.end()) fail(instruction, "calls no known computation");
      for (const HloInstruction& part : called->second.instructions) {
        count(called->second, part, depth + 1);
      }
      return;
    }
    if (is_one_of(kMoves, opcode)) return;
    flop += static_cast<double>(opcode == "reduce" || opcode == "reduce-window"
                                    ? first_numel(within, instruction)
                                    : instruction.shape.numel());
  }

  std::vector<Kernel> products;
  double flop = 0;

 private:
  [[noreturn]] void fail(const HloInstruction& at, const std::string& what) const {
    throw InputError(file_.name + ": line " + std::to_string(at.line) + ": " + printable(at.name) +
                     ": " + what);
  }

  static std::int64_t first_numel(const HloComputation& within, const HloInstruction& at) {
    const std::vector<const HloShape*> shapes = operand_shapes(within, at);
    return shapes.empty() ? 0 : shapes.front()->numel();
  }

  std::int64_t extent(const HloInstruction& at, const HloShape& shape,
                      const std::vector<std::int64_t>& dims) const {
    std::int64_t product = 1;
    for (const std::int64_t dim : dims) {
      if (dim < 0 || static_cast<std::size_t>(dim) >= shape.dims.size()) {
        fail(at, "a dimension that the operand lacks");
      }
      product *= shape.dims[static_cast<std::size_t>(dim)];
    }
    return product;
  }

  void add(const HloInstruction& at, const HloShape& left, const HloShape& right, std::int64_t k,
           std::int64_t batch) {
    const std::int64_t shared = k * batch;
    if (shared == 0 || left.numel() == 0 || right.numel() == 0) return;
    if (left.numel() % shared != 0 || right.numel() % shared != 0) {
      fail(at, "operands of a product that do not fit");
    }
    products.emplace_back(
        GemmWork{.m = left.numel() / shared, .n = right.numel() / shared, .k = k, .count = batch});
  }

  void add_dot(const HloComputation& within, const HloInstruction& at) {
    const std::vector<const HloShape*> shapes = operand_shapes(within, at);
    if (shapes.size() < 2) fail(at, "a product of fewer than two operands");
    const auto dims = [&](std::string_view key) {
      return hlo_integers(at.attribute(key)).value_or(std::vector<std::int64_t>{});
    };
    add(at, *shapes[0], *shapes[1], extent(at, *shapes[0], dims("lhs_contracting_dims")),
        extent(at, *shapes[0], dims("lhs_batch_dims")));
  }

  void add_call(const HloComputation& within, const HloInstruction& at) {
    const std::vector<const HloShape*> shapes = operand_shapes(within, at);
    const std::string_view config = at.attribute("backend_config");
    const std::vector<std::int64_t> inner = configured(config, "lhs_contracting_dimensions");
    if (shapes.size() < 2 || inner.empty()) return;  // its traffic is counted
    add(at, *shapes[0], *shapes[1], extent(at, *shapes[0], inner),
        extent(at, *shapes[0], configured(config, "lhs_batch_dimensions")));
  }

  // dim_labels=b01f_01io->b01f: where the kernel's output features stand.
  void add_convolution(const HloComputation& within, const HloInstruction& at) {
    const std::vector<const HloShape*> shapes = operand_shapes(within, at);
    const std::string_view labels = at.attribute("dim_labels");
    const std::size_t begin = labels.find('_');
    const std::size_t out = labels.find('o');
    if (shapes.size() < 2 || begin == std::string_view::npos || out == std::string_view::npos ||
        out < begin) {
      fail(at, "a convolution without dim_labels");
    }
    const auto place = static_cast<std::int64_t>(out - begin - 1);
    const std::int64_t features = extent(at, *shapes[1], {place});
    if (features == 0 || at.shape.numel() % features != 0 || shapes[1]->numel() % features != 0) {
      fail(at, "operands of a convolution that do not fit");
    }
    const std::int64_t rows = at.shape.numel() / features;
    const std::int64_t inner = shapes[1]->numel() / features;
    if (rows > 0 && inner > 0)
      products.emplace_back(GemmWork{.m = rows, .n = features, .k = inner});
  }

  const Source& file_;
  const HloModule& module_;
};

bool only_slices(std::string_view opcode) {
  return opcode == "slice" || opcode == "dynamic-slice" || opcode == "gather";
}

// What a fusion reads of its operand number `at`: slices, or all of it.
std::int64_t read_of(const HloComputation& fused, const HloInstruction& parameter) {
  std::int64_t sliced = 0;
  for (const HloInstruction& user : fused.instructions) {
    const auto used = std::ranges::find(user.operands, parameter.name);
    if (used == user.operands.end() || user.opcode == "parameter") continue;
    const bool is_first = used == user.operands.begin();
    if (user.opcode == "dynamic-update-slice" && is_first) continue;  // the rest stays as it is
    if (!only_slices(user.opcode) || !is_first) return parameter.shape.bytes();
    sliced += user.shape.bytes();
  }
  return std::min(sliced, parameter.shape.bytes());
}

std::int64_t written_by(const HloComputation& fused, const HloInstruction& root) {
  if (root.opcode == "dynamic-update-slice" && root.operands.size() > 1) {
    const HloInstruction* const update = fused.find(root.operands[1]);
    if (update != nullptr) return update->shape.bytes();
  }
  return root.shape.bytes();
}

std::int64_t traffic_of(const HloModule& module, const HloComputation& within,
                        const HloInstruction& at) {
  const std::vector<const HloShape*> shapes = operand_shapes(within, at);
  const auto called = at.opcode == "fusion"
                          ? module.computations.find(hlo_name(at.attribute("calls")))
                          : module.computations.end();
  if (called != module.computations.end()) {
    const HloComputation& fused = called->second;
    std::int64_t sum = written_by(fused, fused.instructions[fused.root]);
    for (const HloInstruction& part : fused.instructions) {
      if (part.opcode == "parameter") sum += read_of(fused, part);
    }
    return sum;
  }
  if (only_slices(at.opcode)) return 2 * at.shape.bytes();
  if (at.opcode == "dynamic-update-slice" && shapes.size() > 1) return 2 * shapes[1]->bytes();
  if (at.opcode == "scatter" && shapes.size() > 2) return 3 * shapes[2]->bytes();
  std::int64_t sum = at.shape.bytes();
  for (const HloShape* shape : shapes) sum += shape->bytes();
  return sum;
}

}  // namespace

std::vector<const HloShape*> operand_shapes(const HloComputation& within,
                                            const HloInstruction& instruction) {
  std::vector<const HloShape*> shapes;
  for (const std::string_view operand : instruction.operands) {
    if (const HloInstruction* const made = within.find(operand)) shapes.push_back(&made->shape);
  }
  return shapes;
}

std::vector<Kernel> hlo_kernels(const Source& file, const HloModule& module,
                                const HloComputation& within, const HloInstruction& instruction) {
  Counter counter(file, module);
  counter.count(within, instruction);
  if (!counter.products.empty()) return std::move(counter.products);
  return {MemoryWork{.bytes = Bytes(traffic_of(module, within, instruction)),
                     .flop = Flop(counter.flop)}};
}

bool is_unknown_call(const HloInstruction& instruction) {
  return instruction.opcode == "custom-call" && !is_product_call(instruction);
}

bool is_elementwise(const HloModule& module, const HloInstruction& instruction) {
  static constexpr std::array<std::string_view, 17> kMixes = {"dot",
                                                              "convolution",
                                                              "reduce",
                                                              "reduce-window",
                                                              "sort",
                                                              "scatter",
                                                              "gather",
                                                              "slice",
                                                              "fft",
                                                              "dynamic-slice",
                                                              "concatenate",
                                                              "pad",
                                                              "while",
                                                              "custom-call",
                                                              "reverse",
                                                              "transpose",
                                                              "dynamic-update-slice"};
  if (instruction.opcode != "fusion") return !is_one_of(kMixes, instruction.opcode);
  const auto called = module.computations.find(hlo_name(instruction.attribute("calls")));
  if (called == module.computations.end()) return false;
  return std::ranges::none_of(called->second.instructions, [](const HloInstruction& part) {
    return is_one_of(kMixes, part.opcode) || part.opcode == "fusion";
  });
}

}  // namespace dovetail::imports
