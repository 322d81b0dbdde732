// Decides which kernel each op of the training job launches, and holds its weights and samples on
// the device.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/training_ops.h"

#include "base/error.h"
#include "exec/cuda/kernels.h"
#include "exec/run.h"
#include "schedule/visit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

// "block1.fc2.forward@3" without block and micro-step.
std::string_view kernel_name(const schedule::Op& op) {
  std::string_view name = op.name;
  name = name.substr(0, name.find('@'));
  if (name.substr(0, 5) == "block") name.remove_prefix(name.find('.') + 1);
  return name;
}

bool is_parameter(const schedule::Tensor& tensor) {
  return tensor.kind == schedule::TensorKind::Parameter;
}

// The ops that this rank runs; a tensor of theirs may also be one of another stage's ops.
std::set<OpId> op_ids_of(const schedule::ScheduledProgram& plan, Rank rank) {
  std::set<OpId> ops;
  for (const schedule::Command& command : role_of(plan, rank).commands) {
    if (const std::optional<OpId> op = schedule::op_run_by(command)) ops.insert(*op);
  }
  return ops;
}

void require_fit(const Product& product) {
  const DeviceMatrix& out = product.out;
  DOVETAIL_CHECK(product.a.columns == product.b.rows && product.a.rows == out.rows &&
                 product.b.columns == out.columns)
      << product.a.rows << 'x' << product.a.columns << " times " << product.b.rows << 'x'
      << product.b.columns << " into " << out.rows << 'x' << out.columns;
}

void put(const std::vector<float>& values, void* to) {
  if (values.empty()) return;
  check(cudaMemcpy(to, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice),
        "cudaMemcpy to the device");
}

}  // namespace

TrainingOps::TrainingOps(const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory,
                         const training::Hyperparameters& hyperparameters)
    : plan_(plan),
      rank_(rank),
      memory_(memory),
      hyper_(hyperparameters),
      device_updates_(Bytes(4)),
      squares_(Bytes((kSquareBlocks + 1) * 8)),
      loss_(Bytes(8)) {
  for (const schedule::Tensor& tensor : plan.program.tensors) {
    if (!memory_.layout().has(tensor.id)) continue;  // of another pipeline stage
    if (tensor.dtype != schedule::DType::F32) {
      throw InputError("the training job computes in f32; " + tensor.name + " is " +
                       std::string(schedule::to_string(tensor.dtype)));
    }
    if (!is_parameter(tensor)) continue;  // zero, as the memory is
    std::vector<float> weights(static_cast<std::size_t>(tensor.numel()));
    training::fill_first_weights(tensor.name, weights);
    put(weights, data(tensor.id));
    exact_[tensor.id] = upload(std::vector<double>(weights.begin(), weights.end()));
  }
  // Parameters that are gathered in the next forward are gathered in the first one too, before any
  // update wrote them: their buckets hold the first weights as if a step had gone before.
  for (const BucketId bucket : memory_.layout().bucket_ids()) {
    for (const MemberRegion& member : memory_.layout().members(bucket)) {
      const schedule::Tensor& tensor = plan.program.tensor(member.tensor);
      if (!is_parameter(tensor)) continue;
      Region own = memory_.layout().tensor(tensor.id);
      own.offset += member.first * size_of(own.element);
      own.count = member.region.count;
      put(download(own), memory_.at(member.region).data);
    }
  }
  const std::set<OpId> mine = op_ids_of(plan, rank);
  for (const schedule::Op& op : plan.program.ops) {
    if (mine.count(op.id) > 0) plan_samples(op);
    if (op.phase != schedule::Phase::Optimizer) continue;
    for (const TensorId id : op.writes) {
      if (memory_.layout().has(id) && is_parameter(plan.program.tensor(id))) updated_.insert(id);
    }
  }
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

// Of the four ops that look at samples: how many rows, over which vocabulary.
void TrainingOps::plan_samples(const schedule::Op& op) {
  const std::string_view name = kernel_name(op);
  const auto shape = [&](TensorId id) { return matrix(id); };
  Samples samples;
  if (name == "embedding.forward") {
    samples.count = shape(op.writes.at(0)).rows;
    samples.vocabulary = shape(op.reads.at(0)).rows;
  } else if (name == "embedding.backward") {
    samples.count = shape(op.reads.at(0)).rows;
    samples.vocabulary = shape(op.writes.at(0)).rows;
  } else if (name == "loss.forward" || name == "loss.backward") {
    samples.count = shape(op.reads.at(0)).rows;
    samples.vocabulary = shape(op.reads.at(0)).columns;
  } else {
    return;
  }
  samples.micro_step = op.micro_step;
  samples.tokens = DeviceBuffer(Bytes(samples.count * 4));
  samples.next = DeviceBuffer(Bytes(samples.count * 4));
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

std::vector<float> TrainingOps::download(const Region& region) const {
  std::vector<float> values(static_cast<std::size_t>(region.count));
  if (values.empty()) return values;
  check(cudaMemcpy(values.data(), memory_.at(region).data, values.size() * sizeof(float),
                   cudaMemcpyDeviceToHost),
        "cudaMemcpy to the host");
  return values;
}

const std::int32_t* TrainingOps::updates() const {
  return static_cast<const std::int32_t*>(device_updates_.data());
}

void TrainingOps::begin_step(std::int32_t, cudaStream_t stream) {
  ++updates_;
  check(set_step(static_cast<std::int32_t*>(device_updates_.data()), updates_, stream),
        "kernel set_step");
  check(cudaMemsetAsync(loss_.data(), 0, sizeof(double), stream), "cudaMemsetAsync");
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
    const std::size_t bytes = tokens.size() * sizeof(std::int32_t);
    check(cudaMemcpy(samples.tokens.data(), tokens.data(), bytes, cudaMemcpyHostToDevice),
          "cudaMemcpy to the device");
    check(cudaMemcpy(samples.next.data(), next.data(), bytes, cudaMemcpyHostToDevice),
          "cudaMemcpy to the device");
  }
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // our copies, no peer
}

void TrainingOps::run(const schedule::Op& op, cudaStream_t stream) {
  schedule::visit(
      op.effect, [&](const schedule::Opaque&) { run_by_name(op, stream); },
      [&](const schedule::FillLossGradient& fill) {
        const auto value = static_cast<float>(fill.value.value());
        check(set_number(data(op.writes.front()), value, stream), "kernel set_number");
      },
      [&](const schedule::Accumulate& sum) {
        const TensorId target = op.writes.front();
        const auto other = std::find_if(op.reads.begin(), op.reads.end(),
                                        [&](TensorId id) { return id != target; });
        DOVETAIL_CHECK(other != op.reads.end()) << op.name << " adds nothing";
        check(accumulate(memory_.tensor(*other), memory_.tensor(target), sum.factor.value(),
                         sum.overwrite ? Onto::Nothing : Onto::Old, stream),
              "kernel accumulate");
      },
      [&](const schedule::ZeroFill&) {
        for (const TensorId id : op.writes) {
          const Region region = memory_.layout().tensor(id);
          check(cudaMemsetAsync(data(id), 0, static_cast<std::size_t>(region.bytes()), stream),
                "cudaMemsetAsync");
        }
      },
      [&](const schedule::Update& effect) { update_whole(op, effect, stream); },
      [&](const schedule::ShardUpdate& effect) { update_shard(op, effect, stream); },
      [&](const schedule::GlobalNorm& norm) { square(op, norm, stream); });
}

void TrainingOps::run_by_name(const schedule::Op& op, cudaStream_t stream) {
  const std::string_view name = kernel_name(op);
  if (name.substr(0, 10) == "embedding.") return embed(op, name, stream);
  if (name == "loss.forward" || name == "loss.backward") return run_loss(op, name, stream);
  if (name == "fc1.backward.weight") return fc1_backward_weight(op, stream);
  if (name == "penalty") return penalty(op, stream);
  run_product(op, name, stream);
}

void TrainingOps::run_product(const schedule::Op& op, std::string_view name, cudaStream_t stream) {
  const auto in = [&](std::size_t index) { return matrix(op.reads.at(index)); };
  const DeviceMatrix out = matrix(op.writes.front());
  const auto product = [&](const Product& what) {
    require_fit(what);
    check(multiply(what, stream), "kernel multiply");
  };
  if (name == "fc1.forward") {
    product({.a = in(0), .b = in(1), .out = out, .bias = in(2)});
  } else if (name == "fc2.forward") {
    product({.a = in(0), .b = in(1), .out = out, .bias = in(2), .rest = in(3)});
  } else if (name == "gelu.forward") {
    check(gelu(in(0).data, out.data, out.count(), stream), "kernel gelu");
  } else if (name == "gelu.backward") {
    check(gelu_backward(
              {.in = in(0).data, .gradient = in(1).data, .out = out.data, .count = out.count()},
              stream),
          "kernel gelu_backward");
  } else if (name == "output.forward" || name == "fc2.backward.input") {
    product({.a = in(0), .b = in(1).transposed(), .out = out});
  } else if (name == "output.backward.input") {
    product({.a = in(0), .b = in(1), .out = out});
  } else if (name == "output.backward.weight") {
    product({.a = in(0).transposed(), .b = in(1), .out = out});
  } else if (name == "fc2.backward.weight") {
    product({.a = in(0).transposed(), .b = in(1), .out = out});
    check(sum_rows(in(1), data(op.writes.at(1)), stream), "kernel sum_rows");
  } else if (name == "fc1.backward.input") {
    product({.a = in(0), .b = in(1).transposed(), .out = out, .bias = {}, .rest = in(2)});
  } else {
    DOVETAIL_CHECK(false) << "no kernel for op " << op.name;
  }
}

// Backward adds the rows of dx to those of their tokens: onto what the output layer left there (the
// tied embedding, whose gradient the op then reads), or onto zero.
void TrainingOps::embed(const schedule::Op& op, std::string_view name, cudaStream_t stream) {
  const DeviceMatrix in = matrix(op.reads.front());
  const DeviceMatrix out = matrix(op.writes.front());
  const auto* tokens = static_cast<const std::int32_t*>(samples_.at(op.id).tokens.data());
  if (name == "embedding.forward") {
    check(gather_rows(in, tokens, out, stream), "kernel gather_rows");
    return;
  }
  if (op.reads.size() == 1) {
    check(cudaMemsetAsync(out.data, 0, static_cast<std::size_t>(out.count() * 4), stream),
          "cudaMemsetAsync");
  }
  check(add_rows(in, tokens, out, stream), "kernel add_rows");
}

void TrainingOps::run_loss(const schedule::Op& op, std::string_view name, cudaStream_t stream) {
  Loss what;
  what.logits = matrix(op.reads.front());
  what.next = static_cast<const std::int32_t*>(samples_.at(op.id).next.data());
  what.total = static_cast<double*>(loss_.data());
  what.share = 1.0 / plan_.program.micro_steps;
  if (name == "loss.backward") {
    check(loss_backward(what, data(op.reads.at(1)), matrix(op.writes.front()), stream),
          "kernel loss_backward");
    return;
  }
  what.mean = data(op.writes.front());
  check(loss(what, stream), "kernel loss");
}

// reads x, dh and, for the penalised block, the penalty and the weights.
void TrainingOps::fc1_backward_weight(const schedule::Op& op, cudaStream_t stream) {
  const DeviceMatrix dh = matrix(op.reads.at(1));
  const DeviceMatrix gradient = matrix(op.writes.at(0));
  const Product product = {.a = matrix(op.reads.at(0)).transposed(), .b = dh, .out = gradient};
  require_fit(product);
  check(multiply(product, stream), "kernel multiply");
  check(sum_rows(dh, data(op.writes.at(1)), stream), "kernel sum_rows");
  if (op.reads.size() < 4) return;
  check(add_scaled(data(op.reads.at(3)), data(op.reads.at(2)), gradient.data, gradient.count(),
                   stream),
        "kernel add_scaled");
}

// The squared norm of a reduced gradient, times the loss gradient, to which it must stay
// proportional like all that backward computes.
void TrainingOps::penalty(const schedule::Op& op, cudaStream_t stream) {
  auto* partial = static_cast<double*>(squares_.data());
  double* total = partial + kSquareBlocks;
  check(cudaMemsetAsync(total, 0, sizeof(double), stream), "cudaMemsetAsync");
  check(add_squares(memory_.tensor(op.reads.front()), 1, partial, total, stream),
        "kernel add_squares");
  check(scale_number(total, data(op.reads.at(1)), hyper_.penalty, data(op.writes.front()), stream),
        "kernel scale_number");
}

void TrainingOps::square(const schedule::Op& op, const schedule::GlobalNorm& norm,
                         cudaStream_t stream) {
  auto* partial = static_cast<double*>(squares_.data());
  double* total = partial + kSquareBlocks;
  check(cudaMemsetAsync(total, 0, sizeof(double), stream), "cudaMemsetAsync");
  const auto add = [&](const Region& region) {
    check(add_squares(memory_.at(region), norm.rescale.value(), partial, total, stream),
          "kernel add_squares");
  };
  const Layout& layout = memory_.layout();
  for (const TensorId id : op.reads) {
    if (!norm.shard) {
      add(layout.tensor(id));
      continue;
    }
    for (const BucketId bucket : layout.bucket_ids()) {
      if (plan_.bucket(bucket).shards == 1) continue;
      for (const MemberRegion& member : layout.shard_members(bucket)) {
        if (member.tensor == id) add(member.region);
      }
    }
  }
  check(store_number(total, memory_.tensor(op.writes.front()), stream), "kernel store_number");
}

OptimizerStep TrainingOps::step_of(const schedule::Op& op,
                                   const std::optional<Rational>& rescale) const {
  OptimizerStep step;
  step.factor = rescale ? rescale->value() : 1;
  step.updates = updates();
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
  return static_cast<double*>(exact_.at(parameter).data()) + first;
}

// reads gradient, parameter, states, [norm]; writes parameter, states.
void TrainingOps::update_whole(const schedule::Op& op, const schedule::Update& effect,
                               cudaStream_t stream) {
  const TensorId parameter = op.writes.front();
  OptimizerStep step = step_of(op, effect.rescale);
  step.gradient = data(op.reads.front());
  step.exact = exact(parameter, 0);
  step.to = data(parameter);
  step.momentum = state(parameter, ".momentum");
  step.variance = state(parameter, ".variance");
  step.count = memory_.layout().tensor(parameter).count;
  check(cuda::update(step, stream), "kernel update");
}

void TrainingOps::update_shard(const schedule::Op& op, const schedule::ShardUpdate& effect,
                               cudaStream_t stream) {
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
    check(cuda::update(step, stream), "kernel update");
  }
}

CheckResult TrainingOps::check_values(cudaStream_t stream) {
  double loss_of_step = 0;
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // the step has ended
  check(cudaMemcpy(&loss_of_step, loss_.data(), sizeof(double), cudaMemcpyDeviceToHost),
        "cudaMemcpy to the host");
  losses_.push_back(loss_of_step);
  CheckResult result;
  const auto look_at = [&](const schedule::Tensor& tensor, const Region& region) {
    for (const float weight : download(region)) {
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

Trained TrainingOps::trained() const {
  Trained trained;
  trained.losses = losses_;
  std::set<TensorId> sharded;
  for (const BucketId bucket : memory_.layout().bucket_ids()) {
    for (const MemberRegion& member : memory_.layout().shard_members(bucket)) {
      if (!is_parameter(plan_.program.tensor(member.tensor))) continue;
      sharded.insert(member.tensor);
      trained.weights.push_back({member.tensor, member.first, download(member.region)});
    }
  }
  for (const TensorId id : updated_) {
    if (sharded.count(id) > 0) continue;
    trained.weights.push_back({id, 0, download(memory_.layout().tensor(id))});
  }
  return trained;
}

}  // namespace dovetail::exec::cuda
