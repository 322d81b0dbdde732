// Makes a Program of the flow of an HLO module: finds the gradients, the phases and the updates, and names the groups.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/hlo.h"

#include "base/count.h"
#include "base/error.h"
#include "base/rational.h"
#include "recordings/hlo/flattened.h"
#include "recordings/hlo/flow.h"
#include "recordings/hlo/module.h"
#include "recordings/hlo/work.h"
#include "schedule/visit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace dovetail::imports {
namespace {

using schedule::Collective;
using schedule::CollectiveWork;
using schedule::DType;
using schedule::Op;
using schedule::Phase;
using schedule::Purpose;
using schedule::TensorKind;

// Elements that a Program has no word for keep their bytes.
DType dtype_of(std::string_view type) {
  if (type == "f16") return DType::F16;
  if (type == "bf16") return DType::BF16;
  if (type == "f64") return DType::F64;
  return DType::F32;
}

bool is_float(std::string_view type) { return type.starts_with('f') || type.starts_with("bf"); }

// An all-reduce's part that is taken for a gradient.
struct Debt {
  std::size_t gradient = 0;  // value
  std::size_t reduced = 0;   // value
  std::size_t step = 0;
};

// Who reads each value, and what lies behind one.
class Readers {
 public:
  explicit Readers(const HloFlow& flow) : flow_(flow), by_value_(flow.values.size()) {
    for (std::size_t i = 0; i < flow.steps.size(); ++i) {
      for (const std::size_t value : flow.steps[i].reads) {
        if (value != kNoValue) by_value_[value].push_back(i);
      }
    }
  }

  [[nodiscard]] const std::vector<std::size_t>& of(std::size_t value) const {
    return by_value_[value];
  }

  // Steps that need the value, also through others, until `is_enough` says so of one.
  template <class Stop>
  std::set<std::size_t> behind(std::size_t value, Stop is_enough) const {
    std::set<std::size_t> seen;
    std::vector<std::size_t> open = by_value_[value];
    while (!open.empty()) {
      const std::size_t step = open.back();
      open.pop_back();
      if (!seen.insert(step).second) continue;
      if (is_enough(step)) break;
      for (const std::size_t written : flow_.steps[step].writes) {
        if (written == kNoValue) continue;
        open.insert(open.end(), by_value_[written].begin(), by_value_[written].end());
      }
    }
    return seen;
  }

 private:
  const HloFlow& flow_;
  std::vector<std::vector<std::size_t>> by_value_;
};

// A bare launch of a kernel: one H100's host, 2026-11-28 (docs/gpu-executor.md).
constexpr Duration kLaunch = std::chrono::nanoseconds(4500);

class Builder {
 public:
  Builder(const Source& file, const HloModule& module, std::int64_t world)
      : file_(file),
        module_(module),
        flow_(hlo_flow(file, module, world)),
        flattened_(take_apart_flattened(module, flow_)),
        readers_(flow_) {
    made_.program.name = printable(module.name);
    made_.program.world_size = world;
  }

  ImportedHlo run() && {
    count_work();
    find_debts();
    find_phases();
    find_weights();
    find_updates();
    add_ops();
    issue_ops();
    say();
    made_.collectives = std::move(flow_.collectives);
    return std::move(made_);
  }

 private:
  // XLA's runtime starts each kernel and collective from C++; what it recorded in a CUDA graph starts with that.
  void issue_ops() {
    for (std::size_t at = 0; at < made_.program.ops.size(); ++at) {
      const bool is_in_graph =
          flow_.steps[step_of_op_[at]].within->name.starts_with("command_buffer");
      Op& op = made_.program.ops[at];
      const bool is_wait = std::holds_alternative<schedule::TimedWork>(op.work);
      op.issue = is_in_graph || is_wait ? Duration{} : kLaunch;
      in_graphs_ += is_in_graph && !is_wait ? 1 : 0;
      waits_ += is_wait ? 1 : 0;
    }
    made_.program.bucket_call = kLaunch;
  }

  void count_work() {
    for (const HloStep& step : flow_.steps) {
      kernels_.push_back(step.collective
                             ? std::vector<schedule::Kernel>{}
                             : hlo_kernels(file_, module_, *step.within, *step.instruction));
    }
  }

  [[nodiscard]] bool has_product(std::size_t step) const {
    return !kernels_[step].empty() &&
           std::holds_alternative<schedule::GemmWork>(kernels_[step].front());
  }

  [[nodiscard]] bool reduces_more_than_one_element(std::size_t step) const {
    const HloStep& at = flow_.steps[step];
    if (!at.collective) return false;
    const std::string& kind = flow_.collectives[*at.collective].kind;
    return (kind == "all-reduce" || kind == "reduce-scatter") && at.instruction->shape.numel() > 1;
  }

  // add, as to_apply= names it.
  [[nodiscard]] bool is_sum(const HloInstruction& at) const {
    const auto applied = module_.computations.find(hlo_name(at.attribute("to_apply")));
    if (applied == module_.computations.end()) return false;
    const HloComputation& body = applied->second;
    const HloInstruction* root = &body.instructions[body.root];
    while (root->opcode == "convert" && root->operands.size() == 1) {  // bf16 that was promoted
      const HloInstruction* const from = body.find(root->operands.front());
      if (from == nullptr || from == root) break;
      root = from;
    }
    return root->opcode == "add";
  }

  void find_debts() {
    std::set<std::size_t> owed;
    for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
      const HloStep& step = flow_.steps[i];
      if (!step.collective || flow_.collectives[*step.collective].kind != "all-reduce") continue;
      if (!is_sum(*step.instruction)) continue;
      for (std::size_t k = 0; k < step.writes.size(); ++k) {
        const std::size_t from = step.reads[k];
        const std::size_t to = step.writes[k];
        if (from == kNoValue || to == kNoValue || !is_gradient(from, to)) continue;
        if (!owed.insert(from).second) continue;
        debts_.push_back({from, to, i});
        debt_of_[to] = from;
        flow_.collectives[*step.collective].is_gradients = true;
      }
    }
    for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
      for (const std::size_t value : flow_.steps[i].writes) {
        if (value != kNoValue) writer_[value] = i;
      }
    }
  }

  // What follows updates something of its size that the step was given.
  [[nodiscard]] bool is_gradient(std::size_t from, std::size_t to) const {
    if (flow_.values[from].parameter || readers_.of(from).size() != 1) return false;
    if (!is_float(flow_.values[from].shape->type)) return false;
    bool mixes = false;
    const std::set<std::size_t> behind = readers_.behind(to, [&](std::size_t step) {
      mixes = has_product(step) || reduces_more_than_one_element(step);
      return mixes;
    });
    if (mixes) return false;
    const std::int64_t numel = flow_.values[to].shape->numel();
    return std::ranges::any_of(behind, [&](std::size_t step) {
      return std::ranges::any_of(flow_.steps[step].reads, [&](std::size_t value) {
        return value != kNoValue && flow_.values[value].parameter &&
               flow_.values[value].shape->numel() == numel;
      });
    });
  }

  // What needs a reduced gradient is the optimizer.
  void find_phases() {
    phases_.assign(flow_.steps.size(), Phase::Forward);
    const auto nothing = [](std::size_t) { return false; };
    for (const Debt& debt : debts_) {
      for (const std::size_t step : readers_.behind(debt.reduced, nothing)) {
        phases_[step] = Phase::Optimizer;
      }
    }
    bool is_backward = false;
    for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
      if (phases_[i] == Phase::Optimizer) continue;
      is_backward =
          is_backward || flow_.steps[i].instruction->attribute("metadata").find("transpose(") !=
                             std::string_view::npos;
      if (is_backward) phases_[i] = Phase::Backward;
    }
    has_backward_ = is_backward;
    if (!is_backward && !debts_.empty()) {
      for (Phase& phase : phases_) phase = std::max(phase, Phase::Backward);
    }
  }

  // The one argument of the step that has a gradient's size, is read in forward or backward, and in the optimizer by what
  // reads the gradient, or else by what follows from it: over a norm of all gradients that is every weight.
  void find_weights() {
    const auto nothing = [](std::size_t) { return false; };
    for (const Debt& debt : debts_) {
      const std::vector<std::size_t>& readers = readers_.of(debt.reduced);
      std::set<std::size_t> found = weights_among({readers.begin(), readers.end()}, debt.gradient);
      if (found.empty()) {
        found = weights_among(readers_.behind(debt.reduced, nothing), debt.gradient);
      }
      if (found.size() == 1) weight_of_[debt.gradient] = *found.begin();
    }
  }

  [[nodiscard]] std::set<std::size_t> weights_among(const std::set<std::size_t>& steps,
                                                    std::size_t gradient) const {
    std::set<std::size_t> found;
    for (const std::size_t step : steps) {
      for (const std::size_t value : flow_.steps[step].reads) {
        const bool fits =
            value != kNoValue && flow_.values[value].parameter && !is_state(value) &&
            flow_.values[value].shape->numel() == flow_.values[gradient].shape->numel();
        if (fits) found.insert(value);
      }
    }
    return found;
  }

  [[nodiscard]] bool is_state(std::size_t value) const {
    return std::ranges::all_of(
        readers_.of(value), [this](std::size_t step) { return phases_[step] == Phase::Optimizer; });
  }

  // A result of the optimizer is the new value of what the step was given of its shape.
  void find_updates() {
    std::set<std::size_t> taken;
    for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
      if (phases_[i] != Phase::Optimizer || flow_.steps[i].collective) continue;
      for (const std::size_t written : flow_.steps[i].writes) {
        if (written == kNoValue ||
            std::ranges::find(flow_.results, written) == flow_.results.end()) {
          continue;
        }
        for (const std::size_t read : flow_.steps[i].reads) {
          const HloValue& old = flow_.values[read];
          const HloShape& shape = *flow_.values[written].shape;
          const bool fits =
              old.parameter && old.shape->numel() == shape.numel() && old.shape->type == shape.type;
          if (!fits || !taken.insert(read).second) continue;
          new_value_of_[written] = read;
          updated_.insert(read);
          break;
        }
      }
    }
  }

  // The value that stands for it in the Program: the gradient for its sum, the parameter for its new value.
  [[nodiscard]] std::size_t stands_for(std::size_t value) const {
    if (const auto debt = debt_of_.find(value); debt != debt_of_.end()) return debt->second;
    if (const auto old = new_value_of_.find(value); old != new_value_of_.end()) return old->second;
    return value;
  }

  TensorId tensor(std::size_t value) {
    const auto known = tensors_.find(value);
    if (known != tensors_.end()) return known->second;
    const HloValue& of = flow_.values[value];
    const TensorId id{static_cast<std::int32_t>(made_.program.tensors.size())};
    TensorKind kind = TensorKind::Activation;
    if (of.parameter) {
      kind = is_state(value) ? TensorKind::OptimizerState : TensorKind::Parameter;
    }
    const bool is_owed =
        std::ranges::any_of(debts_, [value](const Debt& debt) { return debt.gradient == value; });
    if (is_owed) kind = TensorKind::Gradient;
    DType dtype = dtype_of(of.shape->type);
    std::vector<std::int64_t> shape = of.shape->dims;
    const std::int64_t bytes = of.shape->bytes();
    if (!is_float(of.shape->type) ||
        schedule::element_size(dtype).count() * of.shape->numel() != bytes) {
      dtype = DType::F16;  // as many bytes, two to an element
      shape = {std::max<std::int64_t>(1, (bytes + 1) / 2)};
    }
    for (std::int64_t& extent : shape) extent = std::max<std::int64_t>(extent, 1);
    const auto weight = weight_of_.find(value);
    std::string name = weight == weight_of_.end()
                           ? printable(of.name)
                           : printable(flow_.values[weight->second].name) + ".grad";
    while (!tensor_names_.insert(name).second) name += "'";
    made_.program.tensors.push_back({.id = id,
                                     .name = std::move(name),
                                     .kind = kind,
                                     .dtype = dtype,
                                     .shape = std::move(shape)});
    tensors_.emplace(value, id);
    return id;
  }

  // Known tensors, each once. What the step was given and does not update, its data, has no word in a Program.
  std::vector<TensorId> tensors(const std::vector<std::size_t>& values) {
    std::vector<TensorId> ids;
    for (const std::size_t value : values) {
      if (value == kNoValue) continue;
      const std::size_t at = stands_for(value);
      if (flow_.values[at].parameter && !updated_.contains(at)) continue;
      const TensorId id = tensor(at);
      if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
    }
    return ids;
  }

  // Forward and backward, then the optimizer, each in the order of the module.
  void add_ops() {
    for (const bool is_optimizer : {false, true}) {
      for (std::size_t i = 0; i < flow_.steps.size(); ++i) {
        if ((phases_[i] == Phase::Optimizer) != is_optimizer) continue;
        add_waits(i);
        if (flow_.steps[i].collective) {
          add_collective(i);
        } else {
          add_compute(i);
        }
      }
    }
    std::ranges::stable_sort(debts_, {},
                             [this](const Debt& debt) { return writer_.at(debt.gradient); });
    for (const Debt& debt : debts_) {
      const HloStep& step = flow_.steps[debt.step];
      made_.program.reductions.push_back(
          {.gradient = tensor(debt.gradient),
           .group = group(flow_.collectives[*step.collective].groups),
           .op = schedule::ReduceOp::Sum});
    }
  }

  Op& add_op(std::size_t i, schedule::Work work) {
    const OpId id{static_cast<std::int32_t>(made_.program.ops.size())};
    step_of_op_.push_back(i);
    made_.program.ops.push_back({.id = id,
                                 .name = flow_.steps[i].name,
                                 .phase = phases_[i],
                                 .dtype = dtype_of_step(flow_.steps[i]),
                                 .work = std::move(work),
                                 .reads = {},
                                 .writes = {}});
    return made_.program.ops.back();
  }

  // In front of the step, for what it does not read itself: a -done mostly stands long before the first use.
  void add_waits(std::size_t i) {
    const HloStep& step = flow_.steps[i];
    std::vector<std::size_t> awaited;
    for (const std::size_t value : step.awaits) {
      const bool is_read = std::ranges::find(step.reads, value) != step.reads.end();
      if (value != kNoValue && started_.erase(value) > 0 && !is_read) awaited.push_back(value);
    }
    if (awaited.empty()) return;
    std::set<std::size_t> collectives;
    for (const std::size_t value : awaited) collectives.insert(writer_.at(value));
    early_ += collectives.size();
    std::vector<TensorId> reads = tensors(awaited);
    Op& wait = add_op(i, schedule::TimedWork{.by_rank = {Duration{}}});
    wait.name = step.name + " waits";
    wait.reads = std::move(reads);
  }

  static DType dtype_of_step(const HloStep& step) {
    const std::vector<const HloShape*> shapes = operand_shapes(*step.within, *step.instruction);
    const HloShape* const first = shapes.empty() ? &step.instruction->shape : shapes.front();
    const std::vector<const HloShape*> leaves = first->leaves();
    return leaves.empty() ? DType::F32 : dtype_of(leaves.front()->type);
  }

  void add_compute(std::size_t i) {
    const HloStep& step = flow_.steps[i];
    std::vector<schedule::Kernel>& kernels = kernels_[i];
    schedule::Work work = schedule::KernelsWork{kernels};
    if (kernels.size() == 1) {
      work = std::visit([](const auto& one) { return schedule::Work(one); }, kernels.front());
    }
    Op& op = add_op(i, std::move(work));
    const std::size_t at = made_.program.ops.size() - 1;
    std::vector<TensorId> reads = tensors(step.reads);
    std::vector<TensorId> writes = tensors(step.writes);
    made_.program.ops[at].reads = std::move(reads);
    made_.program.ops[at].writes = std::move(writes);
    if (is_update(i)) op.effect = schedule::Update{.elementwise = true};
  }

  // Of one gradient, element by element, of things that the step was given and that get their new values here.
  [[nodiscard]] bool is_update(std::size_t i) const {
    const HloStep& step = flow_.steps[i];
    if (phases_[i] != Phase::Optimizer || !is_elementwise(module_, *step.instruction)) return false;
    const auto is_new = [this](std::size_t value) { return new_value_of_.contains(value); };
    const auto gradients = std::ranges::count_if(
        step.reads, [this](std::size_t value) { return debt_of_.contains(value); });
    const auto others = std::ranges::count_if(step.reads, [this](std::size_t value) {
      return !debt_of_.contains(value) && !updated_.contains(value);
    });
    return gradients == 1 && others == 0 && !step.writes.empty() &&
           std::ranges::all_of(step.writes, is_new);
  }

  // The parts that are no gradients.
  void add_collective(std::size_t i) {
    const HloStep& step = flow_.steps[i];
    const HloCollective& of = flow_.collectives[*step.collective];
    std::vector<std::size_t> reads;
    std::vector<std::size_t> writes;
    std::int64_t owed = 0;
    for (const std::size_t value : step.reads) {
      const bool is_owed = std::ranges::any_of(
          debts_, [&](const Debt& debt) { return debt.gradient == value && debt.step == i; });
      if (is_owed) {
        owed += flow_.values[value].shape->bytes();
      } else {
        reads.push_back(value);
      }
    }
    for (const std::size_t value : step.writes) {
      if (value != kNoValue && !debt_of_.contains(value)) writes.push_back(value);
    }
    if (writes.empty()) return;
    CollectiveWork work = message(of, Bytes(of.bytes.count() - owed));
    work.asynchronous =
        of.is_async && step.instruction->shape.numel() > 1;  // a scalar hides nothing
    if (is_of_parameters(step)) work.purpose = Purpose::ParameterSync;
    if (work.asynchronous) started_.insert(writes.begin(), writes.end());
    add_op(i, work);
    const std::size_t at = made_.program.ops.size() - 1;
    std::vector<TensorId> ids = tensors(reads);
    made_.program.ops[at].reads = std::move(ids);
    ids = tensors(writes);
    made_.program.ops[at].writes = std::move(ids);
  }

  // Gathers what the step was given, or sums what it updates: no product lies before it, or behind it.
  [[nodiscard]] bool is_of_parameters(const HloStep& step) const {
    const auto multiplies = [this](std::size_t at) { return has_product(at); };
    const auto is_free = [&](const std::vector<std::size_t>& values, auto&& along) {
      return std::ranges::all_of(values, [&](std::size_t value) {
        return value == kNoValue || std::ranges::none_of(along(value), multiplies);
      });
    };
    return is_free(step.reads, [&](std::size_t value) { return before(value, multiplies); }) ||
           is_free(step.writes,
                   [&](std::size_t value) { return readers_.behind(value, multiplies); });
  }

  // Steps that a value is made by, also through others, until `is_enough` says so of one.
  template <class Stop>
  std::set<std::size_t> before(std::size_t value, Stop is_enough) const {
    std::set<std::size_t> seen;
    std::vector<std::size_t> open = {value};
    while (!open.empty()) {
      const auto writer = writer_.find(open.back());
      open.pop_back();
      if (writer == writer_.end() || !seen.insert(writer->second).second) continue;
      if (is_enough(writer->second)) break;
      for (const std::size_t read : flow_.steps[writer->second].reads) {
        if (read != kNoValue) open.push_back(read);
      }
    }
    return seen;
  }

  CollectiveWork message(const HloCollective& of, Bytes bytes) {
    CollectiveWork work{.group = group(of.groups), .bytes = bytes};
    const auto ranks = static_cast<std::int64_t>(of.groups.front().size());
    if (of.kind == "all-gather") work.kind = Collective::AllGather;
    if (of.kind == "reduce-scatter") work.kind = Collective::ReduceScatter;
    if (of.kind.ends_with("all-to-all")) work.kind = Collective::AllToAll;
    if (of.kind == "collective-broadcast") work.kind = Collective::Broadcast;
    if (of.kind == "collective-permute") {
      // Of an all-to-all of S bytes each rank sends S (n - 1) / n.
      work.kind = Collective::AllToAll;
      work.bytes = Bytes(bytes.count() + bytes.count() / (ranks - 1));
      has_permute_ = true;
    }
    return work;
  }

  GroupId group(const std::vector<std::vector<std::int64_t>>& groups) {
    const auto known = groups_.find(groups);
    if (known != groups_.end()) return known->second;
    schedule::ProcessGroup made;
    made.id = GroupId{static_cast<std::int32_t>(made_.program.groups.size())};
    made.name = "g" + std::to_string(made.id.value);
    if (groups.size() > 1) made.instance_size = static_cast<std::int64_t>(groups.front().size());
    for (const std::vector<std::int64_t>& one : groups) {
      for (const std::int64_t device : one) {
        made.ranks.push_back(Rank{static_cast<std::int32_t>(device)});
      }
    }
    groups_.emplace(groups, made.id);
    made_.program.groups.push_back(made);
    return made.id;
  }

  void say() {
    std::size_t products = 0;
    double flop = 0;
    for (const Op& op : made_.program.ops) {
      const bool multiplies = std::ranges::any_of(
          schedule::kernels_of(op.work),
          [](const auto& kernel) { return std::holds_alternative<schedule::GemmWork>(kernel); });
      products += multiplies ? 1 : 0;
      flop += multiplies ? static_cast<double>(op.flop().count()) : 0;
    }
    std::ostringstream total;
    total << Flop(flop);
    Bytes owed;
    for (const Debt& debt : debts_) owed += Bytes(flow_.values[debt.gradient].shape->bytes());
    made_.read.push_back(counted(made_.program.ops.size() - waits_, "op") + ", " +
                         std::to_string(products) + " with products of " + total.str() +
                         " in all; " + counted(flow_.collectives.size(), "collective"));
    made_.read.push_back(counted(debts_.size(), "gradient") + " of " + to_string(owed) +
                         " in all, by what follows their all-reduces");
    made_.read.push_back(
        "its host is taken to be XLA's runtime in C++: " + to_string(kLaunch) +
        " a kernel (a bare launch, measured on an H100's host); " +
        (in_graphs_ > 0
             ? counted(in_graphs_, "op") + " in CUDA graphs (command_buffer) take none"
             : "XLA puts most kernels into CUDA graphs where it runs them, which take none: "
               "explore --what-if host=1000x"));
    if (early_ > 0) {
      made_.read.push_back(
          counted(early_, "collective") +
          " waited for before something uses it, as XLA has one in flight at a time: "
          "XLA_FLAGS=--xla_gpu_experimental_parallel_collective_overlap_limit=8 lets more travel");
    }
    if (flattened_ > 0) {
      made_.read.push_back(
          counted(flattened_, "all-reduce") +
          " of operands that XLA copies together first: the copies are left to the "
          "plan's buckets");
    }
    if (!module_.is_scheduled) {
      made_.left_out.emplace_back("the module is not scheduled: its order is that of the text");
    }
    if (!has_backward_ && !flow_.steps.empty()) {
      made_.left_out.emplace_back(
          "no op_name with \"transpose(\": forward and backward are not told apart");
    }
    if (has_permute_) {
      made_.left_out.emplace_back(
          "collective-permute: priced as an all-to-all that moves as many bytes per device");
    }
    say_collectives();
    for (std::string& line : flow_.left_out) made_.left_out.push_back(std::move(line));
    made_.what = "HLO module " + made_.program.name + ", " +
                 counted(made_.program.world_size, "device") +
                 ". Gradients are not marked in HLO: all-reduces (sum) that lead to an update are "
                 "taken for theirs. Times are those of --cluster.";
  }

  void say_collectives() {
    std::map<std::size_t, std::size_t> turns;  // by line
    std::size_t kernels = 0;
    for (const HloCollective& of : flow_.collectives) {
      kernels += of.is_kernel_of_xla ? 1 : 0;
      const bool reduces = of.kind == "all-reduce" || of.kind == "reduce-scatter";
      if (reduces && !of.is_gradients) ++turns[of.line];
    }
    std::erase_if(turns, [](const auto& one) { return one.second < 2; });
    std::size_t reductions = 0;
    for (const auto& [line, count] : turns) reductions += count;
    if (reductions > 0) {
      made_.left_out.push_back(counted(reductions, "reduction") +
                               " in the turns of loops: XLA combines within a turn only, so they "
                               "stay the step's own and no plan groups them");
    }
    if (kernels > 0) {
      made_.left_out.push_back(counted(kernels, "collective") +
                               " that XLA runs as kernels of its own over NVLink, without NCCL: "
                               "priced as the machine's");
    }
  }

  const Source& file_;
  const HloModule& module_;
  HloFlow flow_;
  std::size_t flattened_ = 0;  // all-reduces that were taken apart
  Readers readers_;
  ImportedHlo made_;
  std::vector<std::vector<schedule::Kernel>> kernels_;
  std::vector<Phase> phases_;
  std::vector<Debt> debts_;
  std::map<std::size_t, std::size_t> debt_of_;       // the gradient, by its sum
  std::map<std::size_t, std::size_t> new_value_of_;  // the parameter, by its new value
  std::map<std::size_t, std::size_t> weight_of_;     // the parameter, by its gradient
  std::map<std::size_t, std::size_t> writer_;
  std::set<std::size_t> updated_;
  std::map<std::size_t, TensorId> tensors_;
  std::set<std::string, std::less<>> tensor_names_;
  std::map<std::vector<std::vector<std::int64_t>>, GroupId> groups_;
  std::vector<std::size_t> step_of_op_;  // in flow_.steps
  std::size_t in_graphs_ = 0;            // ops
  std::size_t waits_ = 0;                // ops
  std::size_t early_ = 0;          // collectives that are waited for before something uses them
  std::set<std::size_t> started_;  // values of collectives that nothing has waited for yet
  bool has_backward_ = false;
  bool has_permute_ = false;
};

}  // namespace

ImportedHlo read_hlo(const Source& file) {
  const HloModule module = read_hlo_module(file);
  if (module.replicas > 1 && module.partitions > 1) {
    throw InputError(file.name +
                     ": replicas and partitions in one module; expected one of them to be 1");
  }
  ImportedHlo made = Builder(file, module, module.replicas * module.partitions).run();
  const std::vector<std::string> problems = schedule::problems(made.program);
  if (!problems.empty()) throw InputError(file.name + ": " + problems.front());
  return made;
}

}  // namespace dovetail::imports
