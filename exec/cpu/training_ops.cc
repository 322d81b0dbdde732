// The kernels of the training job (a small network with real weights), and which op of the plan
// calls which of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/training_ops.h"

#include "base/error.h"
#include "schedule/visit.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace dovetail::exec::cpu {
namespace {

// "block1.fc2.forward@3" without the micro-step.
std::string_view base_name(std::string_view name) { return name.substr(0, name.find('@')); }

// The tanh form of GELU and its derivative.
constexpr double kGelu = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

float gelu(float value) {
  const double x = value;
  return static_cast<float>(0.5 * x * (1 + std::tanh(kGelu * (x + kCubic * x * x * x))));
}

double gelu_slope(float value) {
  const double x = value;
  const double tanh = std::tanh(kGelu * (x + kCubic * x * x * x));
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * kGelu * (1 + 3 * kCubic * x * x);
}

}  // namespace

TrainingOps::TrainingOps(const schedule::ScheduledProgram& plan, Rank rank, TensorMemory& memory,
                         training::Hyperparameters hyperparameters)
    : plan_(plan), rank_(rank), memory_(memory), hyper_(hyperparameters) {
  for (const schedule::Tensor& tensor : plan.program.tensors) {
    if (!memory_.has(tensor.id)) continue;  // of another pipeline stage
    const std::span<float> data = memory_.tensor(tensor.id);
    if (tensor.kind == schedule::TensorKind::Parameter) {
      training::fill_first_weights(tensor.name, data);
      exact_[tensor.id].assign(data.begin(), data.end());
    } else {
      std::ranges::fill(data, 0.0F);
    }
  }
  for (const schedule::Op& op : plan.program.ops) {
    if (op.phase != schedule::Phase::Optimizer) continue;
    for (const TensorId id : op.writes) {
      if (memory_.has(id) && is_parameter(id)) updated_.insert(id);
    }
    const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect);
    if (update != nullptr && memory_.has(update->parameters)) pack_weights(update->parameters);
  }
}

// Parameters that are gathered in the next forward are gathered in the first one too, before any
// update wrote them: the bucket holds the first weights as if a step had gone before.
void TrainingOps::pack_weights(BucketId parameters) const {
  for (const TensorRange& range : memory_.members(parameters)) {
    const std::span<const float> whole = memory_.tensor(range.tensor);
    const std::span<const float> part = whole.subspan(range.first, range.data.size());
    // In view mode they are the same memory.
    if (part.data() != range.data.data()) std::ranges::copy(part, range.data.begin());
  }
  memory_.release(parameters);
}

bool TrainingOps::is_parameter(TensorId id) const {
  return plan_.program.tensor(id).kind == schedule::TensorKind::Parameter;
}

void TrainingOps::begin_step(std::int32_t) {
  ++updates_;
  losses_.push_back(0);
}

void TrainingOps::run(const schedule::Op& op) {
  schedule::visit(
      op.effect, [&](const schedule::Opaque&) { run_by_name(op); },
      [&](const schedule::FillLossGradient& fill) {
        memory_.tensor(op.writes.front())[0] = static_cast<float>(fill.value.value());
      },
      [&](const schedule::Accumulate& sum) { accumulate(op, sum); },
      [&](const schedule::ZeroFill&) {
        for (const TensorId id : op.writes) std::ranges::fill(memory_.tensor(id), 0.0F);
      },
      [&](const schedule::Update& effect) { update(op, effect); },
      [&](const schedule::ShardUpdate& effect) { shard_update(op, effect); },
      [&](const schedule::GlobalNorm& norm) { global_norm(op, norm); });
}

CheckResult TrainingOps::check_values() {
  CheckResult result;
  const auto check = [&](TensorId parameter, std::span<const float> weights) {
    for (const float weight : weights) {
      ++result.checked;
      if (std::isfinite(weight)) continue;
      ++result.wrong;
      if (!result.first_wrong.empty()) continue;
      result.first_wrong = plan_.program.tensor(parameter).name + " is not finite";
    }
  };
  std::set<TensorId> released;  // of which this rank holds its shards only
  for (const schedule::BucketLayout& bucket : plan_.buckets) {
    if (bucket.residence == schedule::Residence::Whole || !memory_.has(bucket.bucket)) continue;
    for (const TensorRange& range : memory_.shard_members(bucket.bucket)) {
      released.insert(range.tensor);
      check(range.tensor, range.data);
    }
  }
  for (const schedule::Tensor& tensor : plan_.program.tensors) {
    if (!is_parameter(tensor.id) || !memory_.has(tensor.id) || released.contains(tensor.id)) {
      continue;
    }
    check(tensor.id, memory_.tensor(tensor.id));
  }
  return result;
}

Matrix TrainingOps::matrix(TensorId id) const {
  const std::vector<std::int64_t>& shape = plan_.program.tensor(id).shape;
  const std::span<float> data = memory_.tensor(id);
  const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
  const std::int64_t columns = static_cast<std::int64_t>(data.size()) / rows;
  return {.data = data, .rows = rows, .columns = columns, .row_stride = columns};
}

std::vector<training::Sample> TrainingOps::samples_of(const schedule::Op& op, std::int64_t count,
                                                      std::int64_t vocabulary) const {
  const schedule::Program& program = plan_.program;
  const std::int64_t parallel = program.world_size / program.stages;
  const std::int64_t per_step = count * program.micro_steps;
  const std::int64_t first = ((updates_ - 1) * parallel + rank_.value % parallel) * per_step;
  std::vector<training::Sample> samples;
  for (std::int64_t row = 0; row < count; ++row) {
    samples.push_back(training::sample(first + op.micro_step * count + row, vocabulary));
  }
  return samples;
}

void TrainingOps::run_by_name(const schedule::Op& op) {
  std::string_view name = base_name(op.name);
  if (name.substr(0, 5) == "block") name.remove_prefix(name.find('.') + 1);
  if (name == "embedding.forward") return embedding_forward(op);
  if (name == "embedding.backward") return embedding_backward(op);
  if (name == "loss.forward") return loss_forward(op);
  if (name == "loss.backward") return loss_backward(op);
  if (name == "fc1.backward.weight") return fc1_backward_weight(op);
  if (name == "penalty") return penalty(op);
  run_product(op, name);
}

void TrainingOps::run_product(const schedule::Op& op, std::string_view name) {
  const auto in = [&](std::size_t index) { return matrix(op.reads.at(index)); };
  const Matrix out = matrix(op.writes.front());
  if (name == "fc1.forward") {
    multiply(in(0), in(1), out, {.bias = in(2)});
  } else if (name == "fc2.forward") {
    multiply(in(0), in(1), out, {.bias = in(2), .rest = in(3)});
  } else if (name == "gelu.forward") {
    std::ranges::transform(in(0).data, out.data.begin(), gelu);
  } else if (name == "gelu.backward") {
    const Matrix h = in(0);
    const Matrix du = in(1);
    for (std::size_t i = 0; i < out.data.size(); ++i) {
      out.data[i] = static_cast<float>(gelu_slope(h.data[i]) * du.data[i]);
    }
  } else if (name == "output.forward" || name == "fc2.backward.input") {
    multiply(in(0), in(1).transposed(), out);
  } else if (name == "output.backward.input") {
    multiply(in(0), in(1), out);
  } else if (name == "output.backward.weight") {
    multiply(in(0).transposed(), in(1), out);
  } else if (name == "fc2.backward.weight") {
    multiply(in(0).transposed(), in(1), out);
    sum_rows(in(1), matrix(op.writes.at(1)));
  } else if (name == "fc1.backward.input") {
    multiply(in(0), in(1).transposed(), out, {.bias = {}, .rest = in(2)});
  } else {
    DOVETAIL_CHECK(false) << "no kernel for op " << op.name;
  }
}

void TrainingOps::embedding_forward(const schedule::Op& op) {
  const Matrix weights = matrix(op.reads.front());
  const Matrix out = matrix(op.writes.front());
  const auto samples = samples_of(op, out.rows, weights.rows);
  for (std::int64_t i = 0; i < out.rows; ++i) {
    const std::int64_t token = samples[static_cast<std::size_t>(i)].token;
    for (std::int64_t j = 0; j < out.columns; ++j) out.at(i, j) = weights.at(token, j);
  }
}

// Adds the rows of dx to those of their tokens: onto what the output layer left there (the tied
// embedding, whose gradient the op then reads), or onto zero.
void TrainingOps::embedding_backward(const schedule::Op& op) {
  const Matrix dx = matrix(op.reads.front());
  const Matrix gradient = matrix(op.writes.front());
  if (op.reads.size() == 1) std::ranges::fill(gradient.data, 0.0F);
  const auto samples = samples_of(op, dx.rows, gradient.rows);
  for (std::int64_t i = 0; i < dx.rows; ++i) {
    const std::int64_t token = samples[static_cast<std::size_t>(i)].token;
    for (std::int64_t j = 0; j < dx.columns; ++j) gradient.at(token, j) += dx.at(i, j);
  }
}

void TrainingOps::loss_forward(const schedule::Op& op) {
  const Matrix logits = matrix(op.reads.front());
  const auto samples = samples_of(op, logits.rows, logits.columns);
  double loss = 0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const std::int64_t next = samples[static_cast<std::size_t>(i)].next;
    double sum = 0;
    for (std::int64_t j = 0; j < logits.columns; ++j) {
      sum += std::exp(static_cast<double>(logits.at(i, j)));
    }
    loss += std::log(sum) - static_cast<double>(logits.at(i, next));
  }
  loss /= static_cast<double>(logits.rows);
  memory_.tensor(op.writes.front())[0] = static_cast<float>(loss);
  losses_.back() += loss / plan_.program.micro_steps;
}

void TrainingOps::loss_backward(const schedule::Op& op) {
  const Matrix logits = matrix(op.reads.front());
  const double fill = memory_.tensor(op.reads.at(1))[0];
  const Matrix out = matrix(op.writes.front());
  const auto samples = samples_of(op, logits.rows, logits.columns);
  const double each = fill / static_cast<double>(logits.rows);
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const std::int64_t next = samples[static_cast<std::size_t>(i)].next;
    double sum = 0;
    for (std::int64_t j = 0; j < logits.columns; ++j) {
      sum += std::exp(static_cast<double>(logits.at(i, j)));
    }
    for (std::int64_t j = 0; j < logits.columns; ++j) {
      const double p = std::exp(static_cast<double>(logits.at(i, j))) / sum;
      out.at(i, j) = static_cast<float>(each * (p - (j == next ? 1 : 0)));
    }
  }
}

// reads x, dh and, for the penalised block, the penalty and the weights.
void TrainingOps::fc1_backward_weight(const schedule::Op& op) {
  const Matrix x = matrix(op.reads.at(0));
  const Matrix dh = matrix(op.reads.at(1));
  const Matrix gradient = matrix(op.writes.at(0));
  multiply(x.transposed(), dh, gradient);
  sum_rows(dh, matrix(op.writes.at(1)));
  if (op.reads.size() < 4) return;
  const float penalty = memory_.tensor(op.reads.at(2))[0];
  const Matrix weights = matrix(op.reads.at(3));
  for (std::size_t i = 0; i < gradient.data.size(); ++i) {
    gradient.data[i] += penalty * weights.data[i];
  }
}

// The squared norm of a reduced gradient, times the loss gradient, to which it must stay
// proportional like all that backward computes.
void TrainingOps::penalty(const schedule::Op& op) {
  double sum = 0;
  for (const float value : memory_.tensor(op.reads.front())) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  const double fill = memory_.tensor(op.reads.at(1))[0];
  memory_.tensor(op.writes.front())[0] = static_cast<float>(hyper_.penalty * sum * fill);
}

void TrainingOps::accumulate(const schedule::Op& op, const schedule::Accumulate& sum) {
  const TensorId target = op.writes.front();
  const auto other = std::ranges::find_if(op.reads, [&](TensorId id) { return id != target; });
  DOVETAIL_CHECK(other != op.reads.end()) << op.name << " adds nothing";
  const std::span<const float> from = memory_.tensor(*other);
  const std::span<float> to = memory_.tensor(target);
  const auto factor = static_cast<float>(sum.factor.value());
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = factor * (sum.overwrite ? from[i] : to[i] + from[i]);
  }
}

void TrainingOps::global_norm(const schedule::Op& op, const schedule::GlobalNorm& norm) {
  const double rescale = norm.rescale.value();
  double sum = 0;
  const auto add = [&](std::span<const float> values) {
    for (const float value : values) {
      const double scaled = rescale * static_cast<double>(value);
      sum += scaled * scaled;
    }
  };
  for (const TensorId id : op.reads) {
    if (!norm.shard) {
      add(memory_.tensor(id));
      continue;
    }
    for (const schedule::BucketLayout& bucket : plan_.buckets) {
      if (bucket.shards == 1 || !memory_.has(bucket.bucket)) continue;
      for (const TensorRange& range : memory_.shard_members(bucket.bucket)) {
        if (range.tensor == id) add(range.data);
      }
    }
  }
  memory_.tensor(op.writes.front())[0] = static_cast<float>(sum);
}

double TrainingOps::gradient_factor(const schedule::Op& op,
                                    const std::optional<Rational>& rescale) const {
  const double factor = rescale ? rescale->value() : 1;
  if (hyper_.max_norm <= 0) return factor;
  for (const TensorId id : op.reads) {
    const schedule::Tensor& tensor = plan_.program.tensor(id);
    if (tensor.kind != schedule::TensorKind::Activation) continue;  // the norm is the only one
    const double norm = std::sqrt(static_cast<double>(memory_.tensor(id)[0]));
    return factor * std::min(1.0, hyper_.max_norm / (norm + 1e-6));
  }
  return factor;
}

std::span<float> TrainingOps::state(TensorId parameter, const char* which) const {
  const std::string name = plan_.program.tensor(parameter).name + which;
  for (const schedule::Tensor& tensor : plan_.program.tensors) {
    if (tensor.name == name) return memory_.tensor(tensor.id);
  }
  return {};
}

std::span<double> TrainingOps::exact(TensorId parameter, std::size_t first, std::size_t count) {
  return std::span(exact_.at(parameter)).subspan(first, count);
}

void TrainingOps::step_range(const UpdateRange& range, double factor) const {
  const double steps = static_cast<double>(updates_);
  const double bias1 = 1 - std::pow(hyper_.beta1, steps);
  const double bias2 = 1 - std::pow(hyper_.beta2, steps);
  for (std::size_t i = 0; i < range.gradient.size(); ++i) {
    const double gradient = factor * static_cast<double>(range.gradient[i]);
    double step = 0;
    if (range.variance.empty()) {
      const double momentum = hyper_.momentum * range.momentum[i] + gradient;
      range.momentum[i] = static_cast<float>(momentum);
      step = hyper_.learning_rate * momentum;
    } else {
      const double mean = hyper_.beta1 * range.momentum[i] + (1 - hyper_.beta1) * gradient;
      const double square =
          hyper_.beta2 * range.variance[i] + (1 - hyper_.beta2) * gradient * gradient;
      range.momentum[i] = static_cast<float>(mean);
      range.variance[i] = static_cast<float>(square);
      step = hyper_.adam_rate * (mean / bias1) / (std::sqrt(square / bias2) + hyper_.epsilon);
    }
    range.exact[i] -= step;
    range.to[i] = static_cast<float>(range.exact[i]);
  }
}

// reads gradient, parameter, states, [norm]; writes parameter, states.
void TrainingOps::update(const schedule::Op& op, const schedule::Update& effect) {
  const TensorId parameter = op.writes.front();
  const std::span<float> weights = memory_.tensor(parameter);
  step_range({.gradient = memory_.tensor(op.reads.front()),
              .exact = exact(parameter, 0, weights.size()),
              .to = weights,
              .momentum = state(parameter, ".momentum"),
              .variance = state(parameter, ".variance")},
             gradient_factor(op, effect.rescale));
}

void TrainingOps::shard_update(const schedule::Op& op, const schedule::ShardUpdate& effect) {
  const double factor = gradient_factor(op, effect.rescale);
  const std::vector<TensorRange> gradients = memory_.shard_members(effect.gradients);
  const std::vector<TensorRange> parameters = memory_.shard_members(effect.parameters);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const TensorRange& range = parameters.at(i);
    const auto same_range = [&](std::span<float> whole) {
      return whole.empty() ? whole : whole.subspan(range.first, range.data.size());
    };
    step_range({.gradient = gradients[i].data,
                .exact = exact(range.tensor, range.first, range.data.size()),
                .to = range.data,
                .momentum = same_range(state(range.tensor, ".momentum")),
                .variance = same_range(state(range.tensor, ".variance"))},
               factor);
  }
}

std::vector<OwnedWeights> TrainingOps::weights() const {
  std::vector<OwnedWeights> owned;
  std::set<TensorId> sharded;
  const auto add = [&](const TensorRange& range) {
    owned.push_back({.parameter = range.tensor,
                     .first = static_cast<std::int64_t>(range.first),
                     .values = {range.data.begin(), range.data.end()}});
  };
  for (const schedule::BucketLayout& bucket : plan_.buckets) {
    if (!memory_.has(bucket.bucket)) continue;
    for (const TensorRange& range : memory_.shard_members(bucket.bucket)) {
      if (!is_parameter(range.tensor)) continue;
      sharded.insert(range.tensor);
      add(range);
    }
  }
  for (const TensorId id : updated_) {
    if (!sharded.contains(id)) add({.tensor = id, .first = 0, .data = memory_.tensor(id)});
  }
  return owned;
}

}  // namespace dovetail::exec::cpu
