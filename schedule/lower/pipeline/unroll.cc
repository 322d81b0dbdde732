// Repeats the micro-batches in pipeline order; sums and transfers are passes of their own.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/unroll.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/count.h"
#include "base/interruption.h"
#include "schedule/id_table.h"
#include "schedule/lower/pass_line.h"
#include "schedule/lower/pipeline/async.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/lower/pipeline/transfers.h"
#include "schedule/lower/pipeline/weights.h"
#include "schedule/lower/rewrite/merge.h"
#include "schedule/lower/rewrite/repeated.h"

namespace dovetail::schedule {
namespace {

// Tensors that all micro-batches have in common; the others are values of one micro-batch.
IdTable<TensorId, char> shared_tensors(const Program& program) {
  IdTable<TensorId, char> shared;
  for (const Tensor& tensor : program.tensors) {
    const bool value = tensor.kind == TensorKind::Activation || tensor.kind == TensorKind::Gradient;
    shared[tensor.id] = value ? 0 : 1;
  }
  for (const Reduction& reduction : program.reductions) shared[reduction.gradient] = 1;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    for (const TensorId id : op.reads) {
      if (program.tensor(id).kind == TensorKind::Gradient) shared[id] = 1;
    }
  }
  return shared;
}

// Why some shared tensor has no single home, if so.
std::optional<Refusal> refuse_shared(const Program& program,
                                     const IdTable<TensorId, char>& shared) {
  IdTable<TensorId, const Op*> users(nullptr);
  for (const Op& op : program.ops) {
    for (const auto* list : {&op.reads, &op.writes}) {
      for (const TensorId id : *list) {
        if (!shared.at(id)) continue;
        const Op*& first = users[id];
        if (first == nullptr) first = &op;
        const Tensor& tensor = program.tensor(id);
        const bool is_added_up = tensor.kind == TensorKind::Gradient && first->stage != op.stage &&
                                 first->phase == Phase::Backward && op.phase == Phase::Backward;
        if (program.role_of(*first) == program.role_of(op) && !is_added_up) continue;
        const bool optimizer = op.phase == Phase::Optimizer;
        return Refusal{std::string(to_string(tensor.kind)) + " " + tensor.name + " is used by " +
                       first->name + " of pipeline stage " + std::to_string(first->stage) +
                       " and by " + op.name + " of stage " + std::to_string(op.stage) +
                       (optimizer ? ": optimizer ops over several stages are not supported"
                                  : ": weights shared by stages are not supported")};
      }
    }
  }
  return std::nullopt;
}

constexpr std::size_t kBefore = SIZE_MAX;  // what was there before the step

// A read, and the position of the op whose write it sees.
struct Read {
  std::size_t reader = 0;
  TensorId tensor;
  std::size_t writer = kBefore;
  friend bool operator==(const Read&, const Read&) = default;
};

// All reads when the ops run in `order` (of positions), sorted by reader.
std::vector<Read> reads_in(const Program& program, const std::vector<std::size_t>& order) {
  IdTable<TensorId, std::size_t> writer(kBefore);
  std::vector<Read> seen;
  for (const std::size_t i : order) {
    for (const TensorId id : program.ops[i].reads) seen.push_back({i, id, writer.at(id)});
    for (const TensorId id : program.ops[i].writes) writer[id] = i;
  }
  std::ranges::stable_sort(seen, {}, &Read::reader);
  return seen;
}

// Orders the ops by `when`. Refuses where a read would then see another write than before.
template <class When>
std::optional<Refusal> sort_ops(Program& program, const When& when) {
  std::vector<std::size_t> order(program.ops.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const std::vector<Read> before = reads_in(program, order);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return when(program.ops[i]); });
  const std::vector<Read> after = reads_in(program, order);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    const Op& reader = program.ops[before[i].reader];
    const std::size_t writer = before[i].writer == kBefore ? after[i].writer : before[i].writer;
    return Refusal{
        "op " + reader.name + " of pipeline stage " + std::to_string(reader.stage) + " reads " +
        program.tensor(before[i].tensor).name + ", which " + program.ops[writer].name +
        " of stage " + std::to_string(program.ops[writer].stage) + " writes " +
        (before[i].writer == kBefore ? "before" : "after") + " it in the order of a pipeline"};
  }
  std::vector<Op> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order) sorted.push_back(std::move(program.ops[i]));
  program.ops = std::move(sorted);
  return std::nullopt;
}

// Puts the ops in the order of one micro-batch: forward of stage 0, 1, ..., backward of the last,
// ..., 0, the sums of tied weights, then the optimizer.
std::optional<Refusal> sort_by_stage(Program& program) {
  return sort_ops(program, [](const Op& op) {
    const std::int32_t forward = op.phase == Phase::Forward ? op.stage : 0;
    const std::int32_t backward = is_repeated(op) ? -op.stage : 1;
    return std::pair(op.phase, op.phase == Phase::Backward ? backward : forward);
  });
}

// The pass of an op of every micro-batch; `late`: those of Pass::Weights.
Pass pass_of(const Op& op, const IdTable<OpId, char>& late) {
  if (op.phase == Phase::Forward) return Pass::Forward;
  return late.at(op.id) != 0 ? Pass::Weights : Pass::Backward;
}

// Puts the ops in the order in which the last micro-batch takes its steps.
std::optional<Refusal> sort_by_step(Program& program, const PipelineShape& shape,
                                    const IdTable<OpId, char>& late) {
  std::map<std::pair<std::int32_t, Pass>, std::size_t> place;
  for (const RoleStep& at : serial_order(shape)) {
    if (at.step.micro_step + 1 != shape.micro_steps) continue;
    place.emplace(std::pair(shape.stage_of(at.role, at.step.chunk), at.step.pass), place.size());
  }
  return sort_ops(program, [&](const Op& op) {
    if (!is_repeated(op)) return place.size() + (op.phase == Phase::Optimizer ? 1 : 0);
    return place.at({op.stage, pass_of(op, late)});
  });
}

// Writes the micro-batches of a Program whose ops are sorted by stage, all in the serial order of their steps: those of the last one
// are in it as they stand.
class Unroller {
 public:
  // `late`: ops of Pass::Weights.
  Unroller(Program program, const PipelineShape& shape, const IdTable<OpId, char>& late)
      : shape_(shape),
        late_(late),
        shared_(shared_tensors(program)),
        program_(std::move(program)),
        next_op_(first_unused(program_.ops)),
        next_tensor_(first_unused(program_.tensors)),
        values_(static_cast<std::size_t>(shape.micro_steps),
                IdTable<TensorId, TensorId>(TensorId{-1})) {}

  Program run() && {
    std::map<std::pair<std::int32_t, Pass>, std::vector<std::size_t>> steps;  // of a virtual stage
    std::vector<std::size_t> behind;                                          // all of them
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      (is_repeated(op) ? steps[{op.stage, pass_of(op, late_)}] : behind).push_back(i);
    }
    const std::size_t repeated = program_.ops.size() - behind.size();
    std::vector<Op> ops;
    ops.reserve(repeated * static_cast<std::size_t>(shape_.micro_steps) + behind.size());
    const std::int32_t last = shape_.micro_steps - 1;
    const auto keep = [&](std::size_t position) {
      Op& op = ops.emplace_back(std::move(program_.ops[position]));
      if (op.phase != Phase::Optimizer) op.micro_step = last;
    };
    for (const RoleStep& at : serial_order(shape_)) {
      throw_if_interrupted();
      const std::int32_t micro_step = at.step.micro_step;
      for (const std::size_t position :
           steps[{shape_.stage_of(at.role, at.step.chunk), at.step.pass}]) {
        if (micro_step == last) {
          keep(position);
        } else {
          ops.push_back(earlier(program_.ops[position], micro_step));
        }
      }
    }
    for (const std::size_t position : behind) keep(position);
    program_.ops = std::move(ops);
    program_.micro_steps = shape_.micro_steps;
    return std::move(program_);
  }

 private:
  Op earlier(const Op& op, std::int32_t micro_step) {
    return {.id = OpId{next_op_++},
            .name = repeated_name(op.name, micro_step),
            .phase = op.phase,
            .dtype = op.dtype,
            .work = op.work,
            .reads = values_of(op.reads, micro_step),
            .writes = values_of(op.writes, micro_step),
            .effect = op.effect,
            .stage = op.stage,
            .micro_step = micro_step,
            .issue = op.issue};
  }

  std::vector<TensorId> values_of(const std::vector<TensorId>& ids, std::int32_t micro_step) {
    std::vector<TensorId> values;
    values.reserve(ids.size());
    for (const TensorId id : ids) values.push_back(value_of(id, micro_step));
    return values;
  }

  TensorId value_of(TensorId id, std::int32_t micro_step) {
    if (shared_.at(id)) return id;
    TensorId& known = values_[static_cast<std::size_t>(micro_step)][id];
    if (known.value >= 0) return known;
    known = TensorId{next_tensor_++};
    const Tensor& tensor = program_.tensor(id);
    Tensor value{.id = known,
                 .name = repeated_name(tensor.name, micro_step),
                 .kind = tensor.kind,
                 .dtype = tensor.dtype,
                 .shape = tensor.shape,
                 .merges = tensor.merges};
    program_.tensors.push_back(std::move(value));
    return known;
  }

  PipelineShape shape_;
  const IdTable<OpId, char>& late_;
  IdTable<TensorId, char> shared_;
  Program program_;
  std::int32_t next_op_;
  std::int32_t next_tensor_;
  std::vector<IdTable<TensorId, TensorId>> values_;  // of each micro-step; -1: none yet
};

// The ops that an order with backward in two may run late.
IdTable<OpId, char> late_ops(const Program& program) {
  IdTable<OpId, char> late(0);
  const std::vector<char> is_late = find_weight_work(program, shared_tensors(program));
  for (std::size_t i = 0; i < program.ops.size(); ++i) late[program.ops[i].id] = is_late[i];
  return late;
}

// Why there is nothing to gain: only the first stage, to which nobody waits for anything, has weight work.
std::optional<Refusal> refuse_whole(const Program& program, const IdTable<OpId, char>& late) {
  const auto waits = [&](const Op& op) { return op.stage > 0 && late.at(op.id) != 0; };
  if (program.stages == 1 || std::ranges::any_of(program.ops, waits)) return std::nullopt;
  return Refusal{
      "no backward op behind the first stage makes gradients of weights alone, so backward cannot "
      "be split: use 1f1b or "
      "interleaved"};
}

std::string describe(const PipelineShape& shape) {
  std::string text = std::to_string(shape.stages) + " stages";
  if (shape.chunks > 1) text += " x " + std::to_string(shape.chunks) + " chunks";
  return text + ", " + std::to_string(shape.micro_steps) + " micro-batches, " +
         std::string(to_string(shape.kind));
}

}  // namespace

Rewrite split_pipeline(Program program, const Schedule& schedule) {
  const PipelineShape shape = pipeline_shape(program, schedule);
  if (program.micro_steps > 1) return Refusal{"the program's micro-steps are unrolled already"};
  if (auto reason = problem(shape)) return Refusal{*std::move(reason)};
  if (program.stage_map != stage_map_of(shape.kind)) {
    return Refusal{"stages lie on ranks in the map " + std::string(to_string(program.stage_map)) +
                   ", which the order " + std::string(to_string(shape.kind)) + " does not run"};
  }
  if (shape.kind != PipelineKind::Sequential && shape.micro_steps > 1 &&
      schedule.merge.sync == SyncPoint::EveryMicroStep) {
    return Refusal{"a pipeline in the order " + std::string(to_string(shape.kind)) +
                   " lets gradients travel in the last micro-batch only (sync=every asks for all)"};
  }
  if (auto refusal = refuse_shared(program, shared_tensors(program))) return *std::move(refusal);
  if (auto refusal = sort_by_stage(program)) return *std::move(refusal);
  std::string report = describe(shape);
  IdTable<OpId, char> late(0);
  if (splits_backward(shape.kind)) {
    late = late_ops(program);
    if (auto refusal = refuse_whole(program, late)) return *std::move(refusal);
    if (auto refusal = sort_by_step(program, shape, late)) return *std::move(refusal);
    const auto is_late = [&](const Op& op) { return late.at(op.id) != 0; };
    report += ", " + counted(std::ranges::count_if(program.ops, is_late), "backward op") +
              " after the gradient of its stage's input";
  }
  program = Unroller(std::move(program), shape, late).run();
  const auto then = [&](const auto& rewrite,
                        std::string_view front = "") -> std::optional<Refusal> {
    throw_if_interrupted();
    Rewrite outcome = rewrite(std::move(program));
    if (auto* refusal = std::get_if<Refusal>(&outcome)) return std::move(*refusal);
    auto& rewritten = std::get<Rewritten>(outcome);
    program = std::move(rewritten.program);
    if (!rewritten.report.empty()) report += "; " + std::string(front) + rewritten.report;
    return std::nullopt;
  };
  if (shape.micro_steps > 1) {
    auto refusal =
        then([&](Program step) { return accumulate_gradients(std::move(step), schedule.merge); },
             std::string(to_string(LoweringPass::Merge)) + ": ");
    if (refusal) return *std::move(refusal);
  }
  if (auto refusal = then([](Program step) { return add_transfers(std::move(step)); })) {
    return *std::move(refusal);
  }
  return Rewritten{.program = std::move(program), .report = std::move(report)};
}

}  // namespace dovetail::schedule
