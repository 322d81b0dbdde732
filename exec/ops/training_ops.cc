// Decides what each op of the training job asks of the device, and holds its weights and samples there.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/ops/training_ops.h"

#include "base/error.h"
#include "exec/rank_work.h"
#include "schedule/visit.h"

#include <cmath>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::exec {
namespace {

using training::Kernel;

bool is_parameter(const schedule::Tensor& tensor) {
  return tensor.kind == schedule::TensorKind::Parameter;
}

}  // namespace

TrainingOps::TrainingOps(const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory,
                         const training::Hyperparameters& hyperparameters)
    : plan_(plan),
      rank_(rank),
      memory_(memory),
      device_(memory.device()),
      hyper_(hyperparameters),
      effects_(plan.program, memory),
      device_updates_(device_.allocate(Bytes(4), "the number of updates")),
      loss_(device_.allocate(Bytes(8), "the loss")) {
  for (const schedule::Tensor& tensor : plan.program.tensors) {
    // Tensors of another pipeline stage have no memory here; others than parameters stay zero, as it is.
    if (memory_.layout().has(tensor.id)) write_first_weights(tensor);
  }
  pack_weights();
  for (const schedule::Op* op : work_of(plan, rank).ops) plan_op(*op);
  for (const schedule::Op& op : plan.program.ops) {
    if (op.phase != schedule::Phase::Optimizer) continue;
    for (const TensorId id : op.writes) {
      if (memory_.layout().has(id) && is_parameter(plan.program.tensor(id))) updated_.insert(id);
    }
  }
}

void TrainingOps::write_first_weights(const schedule::Tensor& tensor) {
  if (tensor.dtype != schedule::DType::F32) {
    throw InputError("the training job computes in f32; " + tensor.name + " is " +
                     std::string(schedule::to_string(tensor.dtype)));
  }
  if (!is_parameter(tensor)) return;
  std::vector<float> weights(static_cast<std::size_t>(tensor.numel()));
  training::fill_first_weights(tensor.name, weights);
  device_.write(weights.data(), data(tensor.id), Bytes(tensor.numel() * 4));
  exact_[tensor.id] = upload(device_, std::vector<double>(weights.begin(), weights.end()));
}

// Parameters that are gathered in the next forward are gathered in the first one too, before any
// update wrote them: their buckets hold the first weights as if a step had gone before.
void TrainingOps::pack_weights() {
  for (const BucketId bucket : memory_.layout().bucket_ids()) {
    for (const MemberRegion& member : memory_.layout().members(bucket)) {
      if (!is_parameter(plan_.program.tensor(member.tensor))) continue;
      const Region own = memory_.layout().part_of(member);
      const std::vector<float> weights = download(device_, memory_.at(own));
      device_.write(weights.data(), memory_.at(member.region).data, Bytes(own.bytes()));
    }
  }
}

// What it computes, and of the four that look at samples, how many rows over which vocabulary.
void TrainingOps::plan_op(const schedule::Op& op) {
  if (std::holds_alternative<schedule::CollectiveWork>(op.work) ||
      !std::holds_alternative<schedule::Opaque>(op.effect)) {
    return;
  }
  const Kernel kernel = training::kernel_of(op);
  kernels_[op.id] = kernel;
  Samples samples;
  samples.micro_step = op.micro_step;
  if (kernel == Kernel::EmbeddingForward) {
    samples.count = matrix(op.writes.at(0)).rows;
    samples.vocabulary = matrix(op.reads.at(0)).rows;
  } else if (kernel == Kernel::EmbeddingBackward) {
    samples.count = matrix(op.reads.at(0)).rows;
    samples.vocabulary = matrix(op.writes.at(0)).rows;
  } else if (kernel == Kernel::LossForward || kernel == Kernel::LossBackward) {
    samples.count = matrix(op.reads.at(0)).rows;
    samples.vocabulary = matrix(op.reads.at(0)).columns;
  } else {
    return;
  }
  samples.tokens = device_.allocate(Bytes(samples.count * 4), "samples");
  samples.next = device_.allocate(Bytes(samples.count * 4), "samples");
  samples_[op.id] = std::move(samples);
}

float* TrainingOps::data(TensorId id) const { return static_cast<float*>(memory_.tensor(id).data); }

DeviceMatrix TrainingOps::matrix(TensorId id) const {
  const std::vector<std::int64_t>& shape = plan_.program.tensor(id).shape;
  const Array array = memory_.tensor(id);
  const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
  const std::int64_t columns = array.count / rows;
  return {.data = static_cast<float*>(array.data),
          .rows = rows,
          .columns = columns,
          .row_stride = columns,
          .column_stride = 1};
}

void TrainingOps::begin_step(std::int32_t, DeviceStream stream) {
  ++updates_;
  device_.set_step(device_updates_.as<std::int32_t>(), updates_, stream);
  device_.zero({.data = loss_.at(), .count = 1, .element = Element::F64}, stream);
  const schedule::Program& program = plan_.program;
  const std::int64_t parallel = program.world_size / program.stages;
  for (const auto& [op, samples] : samples_) {
    const std::int64_t per_step = samples.count * program.micro_steps;
    const std::int64_t first = ((updates_ - 1) * parallel + rank_.value % parallel) * per_step +
                               samples.micro_step * samples.count;
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> next;
    for (std::int64_t row = 0; row < samples.count; ++row) {
      const training::Sample sample = training::sample(first + row, samples.vocabulary);
      tokens.push_back(static_cast<std::int32_t>(sample.token));
      next.push_back(static_cast<std::int32_t>(sample.next));
    }
    device_.write(tokens.data(), samples.tokens.at(), samples.tokens.size());
    device_.write(next.data(), samples.next.at(), samples.next.size());
  }
}

void TrainingOps::run(const schedule::Op& op, DeviceStream stream) {
  schedule::visit(
      op.effect, [&](const schedule::Opaque&) { run_kernel(op, stream); },
      [&](const schedule::FillLossGradient& fill) {
        device_.set_number(data(op.writes.front()), static_cast<float>(fill.value.value()), stream);
      },
      [&](const schedule::Accumulate& sum) { effects_.accumulate(op, sum, stream); },
      [&](const schedule::ZeroFill&) { effects_.zero_fill(op, stream); },
      [&](const schedule::Update& effect) { update_whole(op, effect, stream); },
      [&](const schedule::ShardUpdate& effect) { update_shard(op, effect, stream); },
      [&](const schedule::GlobalNorm& norm) { effects_.global_norm(op, norm, stream); });
}

void TrainingOps::run_kernel(const schedule::Op& op, DeviceStream stream) const {
  const auto in = [&](std::size_t index) { return matrix(op.reads.at(index)); };
  const auto tokens = [&] { return samples_.at(op.id).tokens.as<std::int32_t>(); };
  const DeviceMatrix out = matrix(op.writes.front());
  switch (kernels_.at(op.id)) {
    case Kernel::EmbeddingForward:
      return device_.gather_rows(in(0), tokens(), out, stream);
    case Kernel::EmbeddingBackward:
      // The rows of dx are added to those of their tokens: onto what the output layer left there (the tied
      // embedding, whose gradient the op then reads), or onto zero.
      if (op.reads.size() == 1) device_.zero(memory_.tensor(op.writes.front()), stream);
      return device_.add_rows(in(0), tokens(), out, stream);
    case Kernel::Fc1Forward:
      return multiply({.a = in(0), .b = in(1), .out = out, .bias = in(2)}, stream);
    case Kernel::GeluForward:
      return device_.gelu(in(0).data, out.data, out.count(), stream);
    case Kernel::Fc2Forward:
      return multiply({.a = in(0), .b = in(1), .out = out, .bias = in(2), .rest = in(3)}, stream);
    case Kernel::LossForward:
      return device_.loss(loss_of(op), stream);
    case Kernel::LossBackward:
      return device_.loss_backward(loss_of(op), data(op.reads.at(1)), out, stream);
    case Kernel::OutputForward:
    case Kernel::Fc2BackwardInput:
      return multiply({.a = in(0), .b = in(1).transposed(), .out = out}, stream);
    case Kernel::OutputBackwardInput:
      return multiply({.a = in(0), .b = in(1), .out = out}, stream);
    case Kernel::OutputBackwardWeight:
      return multiply({.a = in(0).transposed(), .b = in(1), .out = out}, stream);
    case Kernel::Fc2BackwardWeight:
    case Kernel::Fc1BackwardWeight:
      multiply({.a = in(0).transposed(), .b = in(1), .out = out}, stream);
      device_.sum_rows(in(1), data(op.writes.at(1)), stream);
      // The penalised block reads the penalty and its weights too.
      if (op.reads.size() < 4) return;
      return device_.add_scaled(data(op.reads.at(3)), data(op.reads.at(2)), out.data, out.count(),
                                stream);
    case Kernel::GeluBackward:
      return device_.gelu_backward(
          {.in = in(0).data, .gradient = in(1).data, .out = out.data, .count = out.count()},
          stream);
    case Kernel::Penalty:
      return add_penalty(op, stream);
    case Kernel::Fc1BackwardInput:
      return multiply({.a = in(0), .b = in(1).transposed(), .out = out, .bias = {}, .rest = in(2)},
                      stream);
  }
}

void TrainingOps::multiply(const Product& product, DeviceStream stream) const {
  const DeviceMatrix& out = product.out;
  DOVETAIL_CHECK(product.a.columns == product.b.rows && product.a.rows == out.rows &&
                 product.b.columns == out.columns)
      << product.a.rows << 'x' << product.a.columns << " times " << product.b.rows << 'x'
      << product.b.columns << " into " << out.rows << 'x' << out.columns;
  device_.multiply(product, stream);
}

Loss TrainingOps::loss_of(const schedule::Op& op) const {
  return {.logits = matrix(op.reads.front()),
          .next = samples_.at(op.id).next.as<std::int32_t>(),
          .mean = data(op.writes.front()),
          .total = loss_.as<double>(),
          .share = 1.0 / plan_.program.micro_steps};
}

// The squared norm of a reduced gradient, times the loss gradient, to which it must stay
// proportional like all that backward computes.
void TrainingOps::add_penalty(const schedule::Op& op, DeviceStream stream) const {
  const double* const total =
      effects_.sum_of_squares({memory_.layout().tensor(op.reads.front())}, 1, stream);
  device_.scale_number(total, data(op.reads.at(1)), hyper_.penalty, data(op.writes.front()),
                       stream);
}

OptimizerStep TrainingOps::step_of(const schedule::Op& op,
                                   const std::optional<Rational>& rescale) const {
  OptimizerStep step;
  step.factor = rescale ? rescale->value() : 1;
  step.updates = device_updates_.as<std::int32_t>();
  step.learning_rate = hyper_.learning_rate;
  step.decay = hyper_.momentum;
  step.adam_rate = hyper_.adam_rate;
  step.beta1 = hyper_.beta1;
  step.beta2 = hyper_.beta2;
  step.epsilon = hyper_.epsilon;
  step.max_norm = hyper_.max_norm;
  if (hyper_.max_norm <= 0) return step;
  for (const TensorId id : op.reads) {
    // The norm is the only activation that an update reads.
    const bool is_norm = plan_.program.tensor(id).kind == schedule::TensorKind::Activation;
    if (is_norm) step.squared_norm = data(id);
  }
  return step;
}

float* TrainingOps::state(TensorId parameter, const char* which) const {
  const std::string name = plan_.program.tensor(parameter).name + which;
  for (const schedule::Tensor& tensor : plan_.program.tensors) {
    if (tensor.name == name) return data(tensor.id);
  }
  return nullptr;
}

double* TrainingOps::exact(TensorId parameter, std::int64_t first) const {
  return exact_.at(parameter).as<double>() + first;
}

// reads gradient, parameter, states, [norm]; writes parameter, states.
void TrainingOps::update_whole(const schedule::Op& op, const schedule::Update& effect,
                               DeviceStream stream) const {
  const TensorId parameter = op.writes.front();
  OptimizerStep step = step_of(op, effect.rescale);
  step.gradient = data(op.reads.front());
  step.exact = exact(parameter, 0);
  step.to = data(parameter);
  step.momentum = state(parameter, ".momentum");
  step.variance = state(parameter, ".variance");
  step.count = memory_.layout().tensor(parameter).count;
  device_.update(step, stream);
}

void TrainingOps::update_shard(const schedule::Op& op, const schedule::ShardUpdate& effect,
                               DeviceStream stream) const {
  const std::vector<MemberRegion> gradients = memory_.layout().shard_members(effect.gradients);
  const std::vector<MemberRegion> parameters = memory_.layout().shard_members(effect.parameters);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const MemberRegion& range = parameters.at(i);
    const auto at_range = [&](float* whole) {
      return whole == nullptr ? nullptr : whole + range.first;
    };
    OptimizerStep step = step_of(op, effect.rescale);
    step.gradient = static_cast<const float*>(memory_.at(gradients[i].region).data);
    step.exact = exact(range.tensor, range.first);
    step.to = static_cast<float*>(memory_.at(range.region).data);
    step.momentum = at_range(state(range.tensor, ".momentum"));
    step.variance = at_range(state(range.tensor, ".variance"));
    step.count = range.region.count;
    device_.update(step, stream);
  }
}

CheckResult TrainingOps::check_values(DeviceStream stream) {
  device_.wait(stream);  // the step has ended
  device_.read(loss_.at(), &losses_.emplace_back(), Bytes(8));
  CheckResult result;
  const auto look_at = [&](const schedule::Tensor& tensor, const Region& region) {
    for (const float weight : download(device_, memory_.at(region))) {
      ++result.checked;
      if (std::isfinite(weight)) continue;
      ++result.wrong;
      if (result.first_wrong.empty()) result.first_wrong = tensor.name + " is not finite";
    }
  };
  const Layout& layout = memory_.layout();
  std::set<TensorId> released;  // of which this rank holds its shards only
  for (const BucketId bucket : layout.bucket_ids()) {
    if (plan_.bucket(bucket).residence == schedule::Residence::Whole) continue;
    for (const MemberRegion& member : layout.shard_members(bucket)) {
      released.insert(member.tensor);
      look_at(plan_.program.tensor(member.tensor), member.region);
    }
  }
  for (const schedule::Tensor& tensor : plan_.program.tensors) {
    if (!is_parameter(tensor) || !layout.has(tensor.id) || released.count(tensor.id) > 0) continue;
    look_at(tensor, layout.tensor(tensor.id));
  }
  return result;
}

training::Trained TrainingOps::trained() const {
  training::Trained trained;
  trained.losses = losses_;
  std::set<TensorId> sharded;
  for (const BucketId bucket : memory_.layout().bucket_ids()) {
    for (const MemberRegion& member : memory_.layout().shard_members(bucket)) {
      if (!is_parameter(plan_.program.tensor(member.tensor))) continue;
      sharded.insert(member.tensor);
      trained.weights.push_back(
          {member.tensor, member.first, download(device_, memory_.at(member.region))});
    }
  }
  for (const TensorId id : updated_) {
    if (sharded.count(id) > 0) continue;
    trained.weights.push_back({id, 0, download(device_, memory_.tensor(id))});
  }
  return trained;
}

}  // namespace dovetail::exec
