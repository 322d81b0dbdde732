// One walk over the ops: what does each need, and is it already there?
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/program.h"

#include "base/error.h"
#include "schedule/editor.h"
#include "schedule/gradient.h"
#include "schedule/reshard/conversion.h"
#include "schedule/reshard/stages.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

// One form in which a version of a tensor exists by now.
struct Form {
  Layout layout;
  TensorId tensor;
  bool is_behind_writer = true;  // or only before some reader
};

struct TensorState {
  TensorLayout declared;
  Shape whole;
  bool is_owed = false;
  std::int64_t version = 0;  // writes so far
  std::optional<OpId> writer = std::nullopt;
  std::vector<Form> forms = {};  // of this version; the tensor itself first
};

// Rule R4: norms add up what is there.
bool takes_everything(const Op& op) {
  const auto* message = std::get_if<CollectiveWork>(&op.work);
  return std::holds_alternative<GlobalNorm>(op.effect) ||
         (message != nullptr && message->purpose == Purpose::GlobalNorm);
}

Program with_local_shapes(Program program, const Requirements& requirements) {
  std::map<TensorId, Tensor*> tensors;
  for (Tensor& tensor : program.tensors) tensors[tensor.id] = &tensor;
  for (const TensorLayout& wanted : requirements.tensors) {
    const auto known = tensors.find(wanted.tensor);
    if (known == tensors.end()) {
      throw InputError("reshard: unknown tensor " + std::to_string(wanted.tensor.value));
    }
    Tensor* const tensor = known->second;
    if (const auto reason = cannot_lay_out(tensor->shape, wanted.layout)) {
      throw InputError("tensor " + tensor->name + ": " + *reason);
    }
    tensor->shape = local_shape(tensor->shape, wanted.layout);
  }
  return program;
}

class Resharder {
 public:
  Resharder(const Program& program, const Requirements& requirements, const ReshardCosts& costs)
      : original_(program),
        options_{.costs = costs, .transfers = Transfers::Pairwise},
        stages_(stages_of(program, requirements)),
        editor_(with_local_shapes(program, requirements)),
        converter_(editor_, stages_),
        as_it_lies_(requirements.as_it_lies.begin(), requirements.as_it_lies.end()) {
    for (const Op& op : program.ops) ops_[op.id] = &op;
    for (const Tensor& tensor : program.tensors) tensors_[tensor.id] = &tensor;
    for (const Reduction& reduction : program.reductions) owed_.insert(reduction.gradient);
    for (const TensorLayout& declared : requirements.tensors) add_state(declared);
    for (const UseLayout& use : requirements.reads) reads_[{use.op, use.tensor}] = use.layout;
    for (const UseLayout& use : requirements.writes) writes_[{use.op, use.tensor}] = use.layout;
    check_uses(requirements.reads);
    check_uses(requirements.writes);
  }

  Resharded run() {
    for (const Op& op : original_.ops) visit_op(op);
    Resharded result;
    EditCounts edits;
    result.program = std::move(editor_).commit(edits);
    counts_.work = edits.work;
    result.program.stages = static_cast<std::int32_t>(stages_.size());
    result.meshes = stages_;
    result.counts = counts_;
    result.report = "reshard: made " + std::to_string(counts_.made) + ", reused " +
                    std::to_string(counts_.reused) + ", inserted ops " +
                    std::to_string(counts_.ops) + ", meshes " + std::to_string(stages_.size());
    return result;
  }

 private:
  void add_state(const TensorLayout& declared) {
    TensorState state{.declared = declared, .whole = tensor_of(declared.tensor).shape};
    state.forms = {{.layout = declared.layout, .tensor = declared.tensor}};
    state.is_owed = owed_.contains(declared.tensor);
    if (!states_.emplace(declared.tensor, std::move(state)).second) {
      throw InputError("tensor " + name_of(declared.tensor) + " has two layouts");
    }
  }

  void check_uses(const std::vector<UseLayout>& uses) const {
    for (const UseLayout& use : uses) {
      if (!ops_.contains(use.op)) {
        throw InputError("reshard: unknown op " + std::to_string(use.op.value));
      }
      const auto state = states_.find(use.tensor);
      if (state == states_.end()) {
        throw InputError("op " + op_of(use.op).name + " needs a layout of tensor " +
                         std::to_string(use.tensor.value) + ", which has none");
      }
      if (const auto reason = cannot_lay_out(state->second.whole, use.layout)) {
        throw InputError("op " + op_of(use.op).name + ", tensor " + name_of(use.tensor) + ": " +
                         *reason);
      }
    }
  }

  [[nodiscard]] const Op& op_of(OpId id) const { return *ops_.at(id); }
  [[nodiscard]] const Tensor& tensor_of(TensorId id) const { return *tensors_.at(id); }
  [[nodiscard]] const std::string& name_of(TensorId id) const { return tensor_of(id).name; }

  // What an op needs ------------------------------------------------------------------------------

  [[nodiscard]] Layout needed(const Op& op, const TensorState& state) const {
    const Layout& declared = state.declared.layout;
    if (as_it_lies_.contains(op.id) || takes_everything(op)) return declared;
    const auto use = reads_.find({op.id, state.declared.tensor});
    return use == reads_.end() ? declared : use->second;
  }
  [[nodiscard]] Layout left(const Op& op, const TensorState& state) const {
    const auto use = writes_.find({op.id, state.declared.tensor});
    return use == writes_.end() ? state.declared.layout : use->second;
  }

  // The stage that runs the op: that of the mesh of all its tensors. Data inputs of another mesh
  // and what is whole on all ranks say nothing.
  [[nodiscard]] std::int32_t stage_of(const Op& op) const {
    std::set<Mesh> meshes;
    for (const TensorId id : op.writes) {
      if (const TensorState* state = find(id)) meshes.insert(left(op, *state).mesh);
    }
    for (const TensorId id : op.reads) {
      const TensorState* state = find(id);
      if (state == nullptr) continue;
      const bool is_data = state->declared.source == Source::DataInput;
      if (!is_data || reads_.contains({op.id, id})) meshes.insert(needed(op, *state).mesh);
    }
    std::erase_if(meshes, [&](const Mesh& mesh) { return is_union(mesh, stages_); });
    if (meshes.size() > 1) {
      throw InputError("op " + op.name + " would run on two meshes, " + to_string(*meshes.begin()) +
                       " and " + to_string(*std::next(meshes.begin())) +
                       ": say how it needs what it reads and leaves what it writes");
    }
    if (!meshes.empty()) return converter_.stage_of(*meshes.begin());
    if (stages_.size() == 1) return 0;
    throw InputError("op " + op.name +
                     " names no tensor that lies on one mesh: where does it run?");
  }

  [[nodiscard]] const TensorState* find(TensorId id) const {
    const auto found = states_.find(id);
    return found == states_.end() ? nullptr : &found->second;
  }

  // Walking ---------------------------------------------------------------------------------------

  void visit_op(const Op& op) {
    Op changed = op;
    changed.stage = stage_of(op);
    for (TensorId& id : changed.reads) {
      const auto state = states_.find(id);
      if (state != states_.end()) id = fetch(op, state->second, needed(op, state->second));
    }
    for (TensorId& id : changed.writes) {
      const auto state = states_.find(id);
      if (state != states_.end()) id = leave(op, state->second, left(op, state->second));
    }
    if (changed != op) editor_.replace(std::move(changed));
  }

  // The tensor that the op reads; makes it where it does not exist.
  TensorId fetch(const Op& reader, TensorState& state, const Layout& layout) {
    const TensorId id = state.declared.tensor;
    if (!needs_reshard(state.declared.layout, layout, state.declared.source)) return id;
    const auto known = std::ranges::find(state.forms, layout, &Form::layout);
    if (known != state.forms.end()) {
      ++counts_.reused;
      return known->tensor;
    }
    const bool goes_behind_writer = reader.phase == Phase::Optimizer && state.writer &&
                                    is_gradient(tensor_of(id).kind) && !state.is_owed &&
                                    op_of(*state.writer).phase != Phase::Optimizer;
    const auto [form, path] = cheapest_source(state, layout, goes_behind_writer);
    const ConversionSource source =
        source_of(state, form, goes_behind_writer ? op_of(*state.writer) : reader);
    Conversion conversion = converter_.convert(source, path);
    for (std::size_t i = 0; i < path.moves.size(); ++i) {
      state.forms.push_back({.layout = path.moves[i].to,
                             .tensor = conversion.results[i],
                             .is_behind_writer = goes_behind_writer});
    }
    count(conversion);
    if (goes_behind_writer) {
      editor_.insert_after(*state.writer, std::move(conversion.ops));
    } else {
      editor_.insert_before(reader.id, std::move(conversion.ops));
    }
    return state.forms.back().tensor;
  }

  // From any form that exists where the conversion will stand.
  [[nodiscard]] std::pair<Form, Path> cheapest_source(const TensorState& state,
                                                      const Layout& layout,
                                                      bool goes_behind_writer) const {
    const Value value{.shape = state.whole, .dtype = tensor_of(state.declared.tensor).dtype};
    std::optional<std::pair<Form, Path>> best;
    for (const Form& form : state.forms) {
      if (goes_behind_writer && !form.is_behind_writer) continue;
      if (is_union(form.layout.mesh, stages_)) continue;
      Path path = cheapest_path(value, form.layout, layout, options_);
      const auto rank = [](const Path& p) { return std::pair(p.cost, p.moves.size()); };
      if (!best || rank(path) < rank(best->second)) best.emplace(form, std::move(path));
    }
    if (best) return *best;
    // Whole on all ranks: also on those of the reader.
    Form whole = state.forms.front();
    whole.layout = replicated(layout.mesh, state.whole.size());
    return {whole, cheapest_path(value, whole.layout, layout, options_)};
  }

  [[nodiscard]] ConversionSource source_of(const TensorState& state, const Form& form,
                                           const Op& beside) const {
    Tensor tensor = tensor_of(state.declared.tensor);
    std::string label = tensor.name;
    if (state.version > 1) label += ".v" + std::to_string(state.version);
    tensor.id = form.tensor;
    tensor.shape = local_shape(state.whole, form.layout);
    return {.tensor = std::move(tensor),
            .whole = state.whole,
            .label = std::move(label),
            .phase = beside.phase,
            .micro_step = beside.micro_step};
  }

  // The tensor that the op writes: a new one where it runs on another mesh than the tensor's.
  TensorId leave(const Op& writer, TensorState& state, const Layout& layout) {
    const Layout& declared = state.declared.layout;
    const TensorId id = state.declared.tensor;
    if (layout.cuts != declared.cuts || layout.partial != declared.partial) {
      throw InputError("op " + writer.name + " leaves " + name_of(id) + " as " + to_string(layout) +
                       ", but it lies as " + to_string(declared));
    }
    ++state.version;
    state.writer = writer.id;
    state.forms = {{.layout = declared, .tensor = id}};
    if (layout.mesh == declared.mesh || is_union(declared.mesh, stages_)) return id;
    ConversionSource source = source_of(state, state.forms.front(), writer);
    const Path path = cheapest_path({.shape = state.whole, .dtype = source.tensor.dtype}, layout,
                                    declared, options_);
    source.tensor = converter_.new_tensor_like(source, source.label + ".sent");
    Conversion conversion = converter_.convert(source, path, id);
    count(conversion);
    editor_.insert_after(writer.id, std::move(conversion.ops));
    return source.tensor.id;
  }

  void count(const Conversion& conversion) {
    ++counts_.made;
    counts_.ops += static_cast<std::int64_t>(conversion.ops.size());
  }

  const Program& original_;
  std::map<OpId, const Op*> ops_;
  std::map<TensorId, const Tensor*> tensors_;
  std::set<TensorId> owed_;
  PathOptions options_;
  std::vector<Mesh> stages_;
  ProgramEditor editor_;
  Converter converter_;
  std::set<OpId> as_it_lies_;
  std::map<TensorId, TensorState> states_;
  std::map<std::pair<OpId, TensorId>, Layout> reads_;
  std::map<std::pair<OpId, TensorId>, Layout> writes_;
  ConversionCounts counts_;
};

}  // namespace

Resharded reshard_program(const Program& program, const Requirements& requirements,
                          const ReshardCosts& costs) {
  return Resharder(program, requirements, costs).run();
}

Program project(const Program& program, Rank rank) {
  DOVETAIL_CHECK(rank.value >= 0 && rank.value < program.world_size) << rank;
  const std::int64_t stage = rank.value / (program.world_size / program.stages);
  ProgramEditor editor(program);
  std::set<TensorId> named;
  std::set<TensorId> written;
  for (const Op& op : program.ops) {
    if (op.stage % program.stages != stage) {
      editor.remove(op.id);
      continue;
    }
    named.insert(op.reads.begin(), op.reads.end());
    named.insert(op.writes.begin(), op.writes.end());
    if (op.phase != Phase::Optimizer) written.insert(op.writes.begin(), op.writes.end());
  }
  Program result = std::move(editor).commit();
  std::erase_if(result.tensors, [&](const Tensor& t) { return !named.contains(t.id); });
  std::erase_if(result.reductions,
                [&](const Reduction& r) { return !written.contains(r.gradient); });
  return result;
}

}  // namespace dovetail::schedule::reshard
