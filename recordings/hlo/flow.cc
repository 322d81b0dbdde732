// Walks the entry computation and those that it calls, with the values of each instruction at hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/flow.h"

#include "base/error.h"
#include "recordings/hlo/groups.h"
#include "recordings/hlo/work.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr std::size_t kMostSteps = 1000000;
constexpr std::size_t kMostWalked = 10 * kMostSteps;  // with those that take no time
constexpr int kDeepestCall = 64;

constexpr std::array<std::string_view, 7> kCollectives = {
    "all-reduce",         "all-gather",           "reduce-scatter",   "all-to-all",
    "collective-permute", "collective-broadcast", "ragged-all-to-all"};
// Their result is their first operand.
constexpr std::array<std::string_view, 6> kAliases = {
    "bitcast", "opt-barrier", "optimization-barrier", "domain", "add-dependency", "copy-start"};
constexpr std::array<std::string_view, 7> kNoData = {
    "constant",    "iota", "after-all", "partition-id", "replica-id", "rng-get-and-update-state",
    "create-token"};
constexpr std::array<std::string_view, 8> kOutside = {
    "infeed", "outfeed", "send", "send-done", "recv", "recv-done", "host-send", "host-recv"};

template <class Table>
bool is_among(const Table& table, std::string_view word) {
  return std::ranges::find(table, word) != table.end();
}

using Values = std::vector<std::size_t>;

class Walk {
 public:
  Walk(const Source& file, const HloModule& module, std::int64_t world)
      : file_(file), module_(module), world_(world) {}

  HloFlow run() && {
    const HloComputation& entry = *module_.entry;
    std::map<std::size_t, Values> arguments;
    for (const HloInstruction& at : entry.instructions) {
      if (at.opcode != "parameter") continue;
      const std::size_t number = parameter_number(at);
      Values values;
      const std::string name = argument_name(at);
      for (const HloShape* leaf : at.shape.leaves()) values.push_back(add_value(*leaf, name));
      for (const std::size_t value : values) flow_.values[value].parameter = number;
      arguments[number] = std::move(values);
    }
    flow_.results = walk(entry, arguments, "", 0);
    for (const auto& [what, count] : outside_) {
      flow_.left_out.push_back(std::to_string(count) + " x " + what);
    }
    return std::move(flow_);
  }

 private:
  using Arguments = std::map<std::size_t, Values>;

  // What called the computation that is walked.
  struct Around {
    bool is_async = false, is_fusion = false;
  };

  [[noreturn]] void fail(const HloInstruction& at, const std::string& what) const {
    throw InputError(file_.name + ": line " + std::to_string(at.line) + ": " + printable(at.name) +
                     ": " + what);
  }

  std::size_t add_value(const HloShape& shape, std::string_view name) {
    if (*hlo_element_bytes(shape.type) == 0) return kNoValue;
    flow_.values.push_back({.shape = &shape, .name = std::string(name), .parameter = {}});
    return flow_.values.size() - 1;
  }

  // "weights['out'][0]", as JAX calls an argument of the step; else that of the instruction.
  static std::string argument_name(const HloInstruction& at) {
    constexpr std::string_view kKey = "op_name=\"";
    const std::string_view metadata = at.attribute("metadata");
    const std::size_t key = metadata.find(kKey);
    std::string name;
    for (std::size_t i = key + kKey.size(); key != std::string_view::npos && i < metadata.size();
         ++i) {
      if (metadata[i] == '"') return name;
      if (metadata[i] != '\\') name += metadata[i];
    }
    return std::string(at.name);
  }

  [[nodiscard]] std::size_t parameter_number(const HloInstruction& at) const {
    const auto number = at.operands.size() == 1 ? integer_of(at.operands.front()) : std::nullopt;
    if (!number || *number < 0) fail(at, "expected parameter(NUMBER)");
    return static_cast<std::size_t>(*number);
  }

  [[nodiscard]] const HloComputation& called(const HloInstruction& at, std::string_view key) const {
    const auto found = module_.computations.find(hlo_name(at.attribute(key)));
    if (found == module_.computations.end()) {
      fail(at, "expected " + std::string(key) + "= with a computation of this module");
    }
    return found->second;
  }

  // The values of its root.
  Values walk(const HloComputation& computation, const Arguments& arguments,
              const std::string& turn, int depth) {
    if (depth > kDeepestCall) {
      throw InputError(file_.name + ": computations that call each other more than 64 deep");
    }
    std::map<std::string_view, Values, std::less<>> values;
    for (const HloInstruction& at : computation.instructions) {
      if (++walked_ > kMostWalked) {
        throw InputError(file_.name +
                         ": its loops and calls roll out to more than ten million "
                         "instructions");
      }
      if (at.opcode == "parameter") {
        const auto given = arguments.find(parameter_number(at));
        if (given == arguments.end()) fail(at, "a parameter that the caller does not give");
        values[at.name] = given->second;
        continue;
      }
      std::vector<Values> operands;
      for (const std::string_view name : at.operands) {
        const auto made = values.find(name);
        if (made != values.end()) {
          operands.push_back(made->second);
        } else {
          fail(at, "operand " + printable(name) + " is not made before it");
        }
      }
      values[at.name] = evaluate(computation, at, operands, turn, depth);
    }
    return values[computation.instructions[computation.root].name];
  }

  Values evaluate(const HloComputation& within, const HloInstruction& at,
                  const std::vector<Values>& operands, const std::string& turn, int depth) {
    const std::string_view opcode = at.opcode;
    if (is_among(kNoData, opcode)) return Values(at.shape.leaves().size(), kNoValue);
    if (opcode == "tuple") return joined(operands);
    if (opcode == "get-tuple-element") return element(within, at, operands);
    if (is_among(kOutside, opcode)) {
      ++outside_[std::string(opcode) + ": traffic with the host or another program"];
      return Values(at.shape.leaves().size(), kNoValue);
    }
    if (is_alias(at)) {
      if (operands.empty()) return {};
      if (opcode.ends_with("-done"))
        std::ranges::copy(operands.front(), std::back_inserter(awaited_));
      return operands.front();
    }
    if (opcode == "call") return opened(at, called(at, "to_apply"), operands, turn, depth);
    if (opcode == "async-start" || (opcode == "fusion" && joins_devices(called(at, "calls")))) {
      return opened(at, called(at, "calls"), operands, turn, depth);
    }
    if (opcode == "while") return unroll(at, joined(operands), turn, depth);
    if (opcode == "conditional") return first_branch(at, operands, turn, depth);
    if (is_among(kCollectives, opcode)) return collective(within, at, operands, turn);
    return compute(within, at, operands, turn);
  }

  static bool is_alias(const HloInstruction& at) {
    if (at.opcode.ends_with("-done") || at.opcode.ends_with("-update")) return true;
    if (is_among(kAliases, at.opcode)) return true;
    const std::string_view target = at.attribute("custom_call_target");
    return at.opcode == "custom-call" &&
           (target == "\"Sharding\"" || target == "\"SPMDFullToShardShape\"" ||
            target == "\"SPMDShardToFullShape\"");
  }

  // A collective that XLA emits as a kernel of its own stands in a fusion (jaxlib 0.12, kind __triton_collective).
  static bool joins_devices(const HloComputation& fused) {
    return std::ranges::any_of(fused.instructions, [](const HloInstruction& part) {
      return is_among(kCollectives, part.opcode);
    });
  }

  Values opened(const HloInstruction& at, const HloComputation& called,
                const std::vector<Values>& operands, const std::string& turn, int depth) {
    const Around before = around_;
    around_.is_async = before.is_async || at.is_start || at.opcode == "async-start";
    around_.is_fusion = before.is_fusion || at.opcode == "fusion";
    Values results = walk(called, numbered(operands), turn, depth + 1);
    around_ = before;
    return results;
  }

  static Values joined(const std::vector<Values>& operands) {
    Values all;
    for (const Values& one : operands) all.insert(all.end(), one.begin(), one.end());
    return all;
  }

  static Arguments numbered(const std::vector<Values>& operands) {
    Arguments arguments;
    for (std::size_t i = 0; i < operands.size(); ++i) arguments[i] = operands[i];
    return arguments;
  }

  Values element(const HloComputation& within, const HloInstruction& at,
                 const std::vector<Values>& operands) const {
    const auto index = integer_of(at.attribute("index"));
    const HloInstruction* const tuple =
        at.operands.empty() ? nullptr : within.find(at.operands.front());
    if (!index || *index < 0 || tuple == nullptr ||
        static_cast<std::size_t>(*index) >= tuple->shape.parts.size()) {
      fail(at, "expected index= of a part of its tuple");
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(*index); ++i) {
      begin += tuple->shape.parts[i].leaves().size();
    }
    const std::size_t size = at.shape.leaves().size();
    const Values& from = operands.front();
    if (begin + size > from.size()) fail(at, "its tuple has fewer parts");
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
    return {first, first + static_cast<std::ptrdiff_t>(size)};
  }

  // {"known_trip_count":{"n":"4"},...} of the backend's configuration.
  static std::optional<std::int64_t> turns_of(const HloInstruction& at) {
    const std::string_view config = at.attribute("backend_config");
    const std::size_t key = config.find("\"known_trip_count\":{\"n\":\"");
    if (key == std::string_view::npos) return std::nullopt;
    const std::string_view rest = config.substr(key + 25);
    return integer_of(rest.substr(0, rest.find('"')));
  }

  Values unroll(const HloInstruction& at, Values state, const std::string& turn, int depth) {
    const HloComputation& body = called(at, "body");
    const std::optional<std::int64_t> turns = turns_of(at);
    if (!turns) {
      ++outside_["loop " + printable(at.name) + " of an unknown number of turns: one is taken"];
    }
    for (std::int64_t i = 0; i < turns.value_or(1); ++i) {
      const std::size_t before = flow_.steps.size();
      state = walk(body, {{0, state}}, turn + "#" + std::to_string(i), depth + 1);
      if (flow_.steps.size() == before) break;  // it does nothing that takes time
    }
    return state;
  }

  Values first_branch(const HloInstruction& at, const std::vector<Values>& operands,
                      const std::string& turn, int depth) {
    ++outside_["conditional " + printable(at.name) + ": its first branch is taken"];
    std::string_view branches = at.attribute("branch_computations");
    const HloComputation* branch = nullptr;
    if (branches.size() > 2) {
      const auto parts = hlo_parts(branches.substr(1, branches.size() - 2));
      const auto found = parts.empty() ? module_.computations.end()
                                       : module_.computations.find(hlo_name(parts.front()));
      if (found != module_.computations.end()) branch = &found->second;
    } else {
      branch = &called(at, "true_computation");
    }
    if (branch == nullptr) fail(at, "expected branch_computations= of this module");
    if (operands.size() < 2) fail(at, "a conditional without operands");
    return walk(*branch, {{0, operands[1]}}, turn, depth + 1);
  }

  std::string unique(const HloInstruction& at, const std::string& turn) {
    std::string name = printable(at.name) + turn;
    while (!names_.insert(name).second) name += "'";
    return name;
  }

  void keep(HloStep step) {
    if (flow_.steps.size() >= kMostSteps) {
      throw InputError(file_.name + ": its loops roll out to more than a million instructions");
    }
    step.awaits = std::exchange(awaited_, {});
    flow_.steps.push_back(std::move(step));
  }

  Values compute(const HloComputation& within, const HloInstruction& at,
                 const std::vector<Values>& operands, const std::string& turn) {
    if (is_unknown_call(at)) {
      ++outside_["custom call " + printable(at.attribute("custom_call_target")) +
                 ": only its operands and results are counted"];
    }
    HloStep step{.within = &within, .instruction = &at, .name = unique(at, turn)};
    for (const std::size_t value : joined(operands)) {
      if (value != kNoValue && std::ranges::find(step.reads, value) == step.reads.end()) {
        step.reads.push_back(value);
      }
    }
    return finish(std::move(step), at.shape.leaves());
  }

  Values finish(HloStep step, const std::vector<const HloShape*>& shapes) {
    Values results;
    for (const HloShape* shape : shapes) {
      results.push_back(add_value(
          *shape, step.name + (shapes.size() > 1 ? "." + std::to_string(results.size()) : "")));
    }
    step.writes = results;
    keep(std::move(step));
    return results;
  }

  Values collective(const HloComputation& within, const HloInstruction& at,
                    const std::vector<Values>& operands, const std::string& turn) {
    const std::string_view kind = at.opcode;
    HloCollective made;
    made.kind = std::string(kind);
    made.line = at.line;
    made.is_async = at.is_start || around_.is_async;
    made.is_kernel_of_xla = around_.is_fusion;
    const std::vector<const HloShape*> shapes = result_shapes(at, operands);
    Values inputs = joined(operands);
    made.groups = kind == "collective-permute" ? permuted(at) : hlo_groups(file_, at, world_);
    if (made.groups.empty()) {
      ++outside_[std::string(kind) + " over one device: no communication"];
      return inputs;
    }
    std::int64_t in = 0;
    for (const HloShape* shape : operand_shapes(within, at)) {
      if (in > 0 && kind == "ragged-all-to-all") break;  // behind it: where what goes
      in += shape->bytes();
      if (made.type.empty())
        made.type = printable(shape->leaves().empty() ? "" : shape->leaves().front()->type);
    }
    std::int64_t out = 0;
    for (const HloShape* shape : shapes) out += shape->bytes();
    made.bytes = Bytes(kind == "all-gather" ? out : in);
    made.parts = shapes.size();
    made.name = unique(at, turn);
    HloStep step{.within = &within,
                 .instruction = &at,
                 .is_in_loop = !turn.empty(),
                 .name = made.name,
                 .reads = inputs,
                 .collective = flow_.collectives.size()};
    flow_.collectives.push_back(std::move(made));
    return finish(std::move(step), shapes);
  }

  // Devices between which a permutation sends, directly or through others; those that keep what they have in groups as large, as the others
  // go no sooner. All as one group where they do not come out even.
  [[nodiscard]] HloGroups permuted(const HloInstruction& at) const {
    std::map<std::int64_t, std::int64_t> first;  // a device's group, by its least device
    for (const auto& [source, target] : hlo_pairs(file_, at, world_)) {
      if (source == target) continue;
      const std::int64_t a = first.emplace(source, source).first->second;
      const std::int64_t b = first.emplace(target, target).first->second;
      for (auto& [device, of] : first) {
        if (of == std::max(a, b)) of = std::min(a, b);
      }
    }
    std::map<std::int64_t, std::vector<std::int64_t>> groups;
    std::vector<std::int64_t> all(static_cast<std::size_t>(world_));
    std::iota(all.begin(), all.end(), 0);
    for (const auto& [device, of] : first) groups[of].push_back(device);
    HloGroups made;
    for (auto& [of, devices] : groups) {
      if (!made.empty() && devices.size() != made.front().size()) return {all};
      made.push_back(std::move(devices));
    }
    if (made.empty()) return made;
    const std::size_t size = made.front().size();
    if (all.size() % size != 0) return {all};
    for (const std::int64_t device : all) {
      if (first.contains(device)) continue;
      if (made.back().size() == size) made.emplace_back();
      made.back().push_back(device);
    }
    return made;
  }

  std::vector<const HloShape*> result_shapes(const HloInstruction& at,
                                             const std::vector<Values>& operands) const {
    std::vector<const HloShape*> shapes = at.shape.leaves();
    if (!at.opcode.ends_with("all-to-all") && shapes.size() != joined(operands).size()) {
      fail(at, "has " + std::to_string(joined(operands).size()) + " operands and " +
                   std::to_string(shapes.size()) + " results");
    }
    return shapes;
  }

  const Source& file_;
  const HloModule& module_;
  std::int64_t world_;
  HloFlow flow_;
  Values awaited_;  // by dones since the last step
  std::size_t walked_ = 0;
  Around around_;
  std::set<std::string, std::less<>> names_;
  std::map<std::string, std::size_t> outside_;
};

}  // namespace

HloFlow hlo_flow(const Source& file, const HloModule& module, std::int64_t world) {
  return Walk(file, module, world).run();
}

}  // namespace dovetail::imports
