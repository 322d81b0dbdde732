// The ops of each kind of move.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/conversion.h"

#include "base/error.h"
#include "schedule/gradient.h"

#include <algorithm>

namespace dovetail::schedule::reshard {
namespace {

Collective collective_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::AllReduce:
      return Collective::AllReduce;
    case MoveKind::ReduceScatter:
      return Collective::ReduceScatter;
    case MoveKind::AllGather:
      return Collective::AllGather;
    case MoveKind::AllToAll:
      return Collective::AllToAll;
    default:
      DOVETAIL_CHECK(false) << to_string(kind) << " is no collective";
      return {};
  }
}

// A group's name says which ranks it joins, so that two programs can be told apart.
std::string group_name(const Mesh& mesh, std::int32_t axis) {
  return "reshard.axis" + std::to_string(axis) + ".of." + std::to_string(mesh.ranks.front().value);
}

// A reader of a reshard's result is a gradient's reader if the tensor was one.
TensorKind kind_of_copy(TensorKind kind) {
  return is_gradient(kind) ? TensorKind::Gradient : TensorKind::Activation;
}

ReduceOp reduction_along(const Layout& from, std::int32_t axis) {
  const auto found = std::ranges::find(from.partial, axis, &Partial::axis);
  return found == from.partial.end() ? ReduceOp::Sum : found->op;
}

// Work that reads one tensor and writes another.
MemoryWork copy_work(const Tensor& from, const Tensor& to) {
  return {.bytes = from.bytes() + to.bytes(), .flop = Flop(0)};
}

}  // namespace

// One move under way.
struct Converter::Step {
  const ConversionSource& source;
  const Layout& from;
  const Move& move;
  Tensor in;
  Tensor out;
  Conversion& result;
  ProgramEditor& editor;
  std::int32_t stage;

  void add(const std::string& what, Work work, const Tensor& reads, const Tensor& writes) {
    result.ops.push_back(op(what, std::move(work)));
    result.ops.back().reads = {reads.id};
    result.ops.back().writes = {writes.id};
  }
  [[nodiscard]] Op op(const std::string& what, Work work) const {
    Op made;
    made.id = editor.new_op_id();
    made.name = out.name + "." + what;
    made.phase = source.phase;
    made.dtype = source.tensor.dtype;
    made.work = std::move(work);
    made.stage = stage;
    made.micro_step = source.micro_step;
    return made;
  }
};

Converter::Converter(ProgramEditor& editor, std::vector<Mesh> meshes)
    : editor_(editor), meshes_(std::move(meshes)) {
  for (const Tensor& tensor : editor.program().tensors) names_.insert(tensor.name);
}

std::int32_t Converter::stage_of(const Mesh& mesh) const {
  const auto found = std::ranges::find(meshes_, mesh);
  DOVETAIL_CHECK(found != meshes_.end()) << to_string(mesh);
  return static_cast<std::int32_t>(found - meshes_.begin());
}

Tensor Converter::new_tensor(const ConversionSource& source, const Shape& shape,
                             const std::string& name) {
  std::string free_name = name;
  for (int copy = 2; !names_.insert(free_name).second; ++copy) {
    free_name = name + "." + std::to_string(copy);
  }
  Tensor tensor{.id = editor_.new_tensor_id(),
                .name = std::move(free_name),
                .kind = kind_of_copy(source.tensor.kind),
                .dtype = source.tensor.dtype,
                .shape = shape};
  editor_.add_tensor(tensor);
  return tensor;
}

GroupId Converter::axis_group(const Mesh& mesh, std::int32_t axis) {
  const auto [known, is_new] = axis_groups_.try_emplace({mesh, axis});
  if (!is_new) return known->second;
  ProcessGroup group{.id = editor_.new_group_id(),
                     .name = group_name(mesh, axis),
                     .ranks = {},
                     .instance_size = mesh.shape[static_cast<std::size_t>(axis)]};
  for (std::size_t i = 0; i < mesh.size(); ++i) {
    const std::vector<std::size_t> line = mesh.line(i, axis);
    if (line.front() != i) continue;
    for (const std::size_t member : line) group.ranks.push_back(mesh.ranks[member]);
  }
  known->second = group.id;
  editor_.add_group(std::move(group));
  return known->second;
}

GroupId Converter::pair_group(const Mesh& from, const Mesh& to) {
  const auto [low, high] = std::minmax(from, to);
  const auto [known, is_new] = pair_groups_.try_emplace({low, high});
  if (!is_new) return known->second;
  ProcessGroup group{.id = editor_.new_group_id(),
                     .name = "reshard.pairs." + std::to_string(low.ranks.front().value) + "." +
                             std::to_string(high.ranks.front().value),
                     .ranks = {},
                     .instance_size = 2};
  for (std::size_t i = 0; i < low.size(); ++i) {
    group.ranks.push_back(std::min(low.ranks[i], high.ranks[i]));
    group.ranks.push_back(std::max(low.ranks[i], high.ranks[i]));
  }
  known->second = group.id;
  editor_.add_group(std::move(group));
  return known->second;
}

void Converter::add_pairwise(Step& step) const {
  const std::int32_t target = stage_of(step.move.to.mesh);
  CollectiveWork message;
  message.kind = Collective::SendRecv;
  message.group = pair_groups_.at(std::minmax(step.from.mesh, step.move.to.mesh));
  message.bytes = step.in.bytes();
  message.purpose = Purpose::Reshard;
  message.root = step.stage < target ? 0 : 1;
  Op send = step.op("send", message);
  send.reads = {step.in.id};
  Op receive = step.op("receive", message);
  receive.writes = {step.out.id};
  receive.stage = target;
  step.result.ops.push_back(std::move(send));
  step.result.ops.push_back(std::move(receive));
}

void Converter::add_local(Step& step) {
  // A slice reads only what it keeps.
  const Tensor& read = step.move.kind == MoveKind::Slice ? step.out : step.in;
  step.add(std::string(to_string(step.move.kind)), copy_work(read, step.out), step.in, step.out);
}

void Converter::add_collective(Step& step) {
  const AxisChange change = change_along(step.from, step.move);
  CollectiveWork work;
  work.kind = collective_of(step.move.kind);
  work.group = axis_group(step.from.mesh, step.move.axis);
  work.bytes = work.kind == Collective::AllGather ? step.out.bytes() : step.in.bytes();
  work.op = reduction_along(step.from, step.move.axis);
  work.purpose = Purpose::Reshard;
  Tensor sent = step.in;
  if (change.cut_after && !is_contiguous(step.in.shape, *change.cut_after)) {
    sent = new_tensor(step.source, step.in.shape, step.out.name + ".packed");
    step.add("pack", copy_work(step.in, sent), step.in, sent);
  }
  Tensor received = step.out;
  const bool unpacks = change.cut_before && !is_contiguous(step.out.shape, *change.cut_before);
  if (unpacks) received = new_tensor(step.source, step.out.shape, step.out.name + ".gathered");
  step.add(std::string(to_string(step.move.kind)), work, sent, received);
  if (unpacks) step.add("unpack", copy_work(received, step.out), received, step.out);
}

Conversion Converter::convert(const ConversionSource& source, const Path& path,
                              std::optional<TensorId> into) {
  Conversion result;
  Layout at = path.from;
  Tensor tensor = source.tensor;
  for (std::size_t i = 0; i < path.moves.size(); ++i) {
    const Move& move = path.moves[i];
    const Shape shape = local_shape(source.whole, move.to);
    const std::int32_t target = stage_of(move.to.mesh);
    const std::string name = source.label + "." + to_string(move.to) +
                             (meshes_.size() > 1 ? "@" + std::to_string(target) : "");
    const bool is_last = i + 1 == path.moves.size();
    const Tensor next =
        is_last && into ? editor_.program().tensor(*into) : new_tensor(source, shape, name);
    Step step{.source = source,
              .from = at,
              .move = move,
              .in = tensor,
              .out = next,
              .result = result,
              .editor = editor_,
              .stage = stage_of(at.mesh)};
    if (move.kind == MoveKind::Pairwise) {
      pair_group(at.mesh, move.to.mesh);
      add_pairwise(step);
    } else if (move.kind == MoveKind::Slice || move.kind == MoveKind::MakePartial) {
      add_local(step);
    } else {
      add_collective(step);
    }
    result.results.push_back(next.id);
    tensor = next;
    at = move.to;
  }
  return result;
}

}  // namespace dovetail::schedule::reshard
