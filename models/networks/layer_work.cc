// Prices the parts of a transformer in kernels.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/layer_work.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "models/networks/adapters.h"

namespace dovetail::jobs {
namespace {

using schedule::Collective;
using schedule::GemmWork;
using schedule::Kernel;
using schedule::MemoryWork;

constexpr double kBackwardAttention = 2.5;
// Scores that are kept in memory: written, read by softmax, written, read by the second product, with a mask.
constexpr std::int64_t kScorePasses = 5;

class LayerWriter {
 public:
  explicit LayerWriter(const Job& job)
      : job_(job), model_(job.model), layout_(job.layout), parameters_(job_parameters(job)) {}

  std::vector<Element> embedding() {
    begin("model.embed_tokens", {divided_tokens(), model_.width});
    take(-1, Part::Embedding);
    if (model_.patches) {
      const Patches& p = *model_.patches;
      product(tokens(), model_.width, 3 * p.patch * p.patch);
      compute_.backward_input.clear();
    } else {
      pass(2 * tokens() * model_.width);
    }
    if (layout_.tp > 1) {
      compute_.out = {tokens(), model_.width};
      end();
      reduce("model.embed_tokens");
    } else {
      end();
    }
    return std::move(chain_);
  }

  std::vector<Element> layer(std::int64_t layer) {
    layer_ = layer;
    products_ = 0;
    operands_ = job_.precision.products;
    name_ = "model.layers." + std::to_string(layer) + ".";
    attention();
    has_experts(model_, layer) ? experts() : mlp();
    return std::move(chain_);
  }

  std::vector<Element> head() {
    part_ = Part::Head;
    gather("lm_head");
    const std::int64_t out = model_.patches ? model_.patches->classes : model_.vocabulary;
    const std::int64_t rows = model_.patches ? job_.batch.micro : tokens();
    begin("lm_head", {rows, over_tp(out)});
    take(-1, Part::Head);
    if (model_.tied) compute_.parameters.push_back(parameters_.front());  // the embedding
    norm(divided_tokens());
    product(rows, over_tp(out), model_.width);
    end();
    return std::move(chain_);
  }

 private:
  [[nodiscard]] std::int64_t tokens() const {
    return job_.batch.micro * job_.batch.sequence / layout_.cp;
  }
  // Of a rank between blocks.
  [[nodiscard]] std::int64_t divided_tokens() const {
    return layout_.sp ? tokens() / layout_.tp : tokens();
  }
  [[nodiscard]] std::int64_t over_tp(std::int64_t whole) const {
    return (whole + layout_.tp - 1) / layout_.tp;
  }
  [[nodiscard]] std::int64_t element() const {
    return schedule::element_size(job_.precision.compute).count();
  }

  void begin(const std::string& name, std::vector<std::int64_t> out) {
    compute_ = Compute{.name = name, .out = std::move(out)};
  }
  void take(std::int64_t layer, Part part) {
    for (const ParameterShape& parameter : parameters_) {
      if (parameter.layer == layer && parameter.part == part) {
        compute_.parameters.push_back(parameter);
      }
    }
  }
  void take_named(const std::string& word, bool with) {
    for (const ParameterShape& parameter : parameters_) {
      if (parameter.layer != layer_ || parameter.part != Part::Mlp) continue;
      if ((parameter.name.find(word) != std::string::npos) == with) {
        compute_.parameters.push_back(parameter);
      }
    }
  }
  void end() { chain_.emplace_back(std::move(compute_)); }

  // A matrix product with weights, three ways; without the last one where they are frozen. Narrower weights that were
  // just gathered are cast both times: read, and written along their rows and their columns.
  void multiply(const GemmWork& y, bool trained) {
    if (y.operands != schedule::Operands::Own && job_.zero == Zero::Parameters &&
        has_copies(job_)) {
      const std::int64_t written = y.operands == schedule::Operands::Fp8 ? 2 : 1;
      const Kernel cast =
          MemoryWork{.bytes = Bytes(y.count * y.n * y.k * (element() + written)), .flop = Flop(0)};
      compute_.forward.push_back(cast);
      compute_.backward_input.push_back(cast);
      compute_.again.push_back(cast);
    }
    const auto like_it = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return GemmWork{
          .m = m, .n = n, .k = k, .count = y.count, .operands = y.operands, .separate = y.separate};
    };
    compute_.forward.emplace_back(y);
    compute_.backward_input.emplace_back(like_it(y.m, y.k, y.n));
    if (trained) compute_.backward_weight.emplace_back(like_it(y.n, y.k, y.m));
  }
  // One product of those that y is, which are saved in turn.
  void keep_or_again(GemmWork y, std::int64_t columns) {
    y.n = columns;
    if (++products_ % 2 == 0 || y.operands != schedule::Operands::Own) {
      compute_.again.emplace_back(y);
    }
  }
  // With the model's weights. Transformer Engine multiplies those of several experts in bf16 one by one.
  [[nodiscard]] GemmWork weights(std::int64_t m, std::int64_t n, std::int64_t k,
                                 std::int64_t count) const {
    const bool separate =
        count > 1 && operands_ == schedule::Operands::Own && job_.as == RunBy::Megatron;
    return {.m = m, .n = n, .k = k, .count = count, .operands = operands_, .separate = separate};
  }
  // With the model's weights, and with the adapters of this part.
  void product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) {
    const GemmWork y = weights(m, n, k, count);
    multiply(y, job_.lora == 0);
    keep_or_again(y, n);
    if (has_adapters(job_, part_)) adapt(m, n, k);
  }
  // A and B in their own type, and a kernel that adds what they give: forward to y, backward to the gradient of x.
  void adapt(std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto add = [&](std::vector<Kernel>& kernels, std::int64_t columns) {
      kernels.emplace_back(
          MemoryWork{.bytes = Bytes(3 * m * columns * element()), .flop = Flop(0)});
    };
    multiply({.m = m, .n = job_.lora, .k = k}, true);
    multiply({.m = m, .n = n, .k = job_.lora}, true);
    add(compute_.forward, n);
    add(compute_.backward_input, k);
  }
  // Memory-bound: so many elements read and written, twice as many backward.
  void pass(std::int64_t elements) {
    const Kernel kernel = MemoryWork{.bytes = Bytes(elements * element()), .flop = Flop(0)};
    compute_.forward.push_back(kernel);
    compute_.again.push_back(kernel);
    compute_.backward_input.emplace_back(
        MemoryWork{.bytes = Bytes(2 * elements * element()), .flop = Flop(0)});
  }

  // Kernels that move so many bytes each of every element, forward; backward each has two of its kind.
  void unfused(std::int64_t elements, std::initializer_list<std::int64_t> bytes) {
    for (const std::int64_t moved : bytes) {
      const Kernel kernel = MemoryWork{.bytes = Bytes(elements * moved), .flop = Flop(0)};
      compute_.forward.push_back(kernel);
      compute_.again.push_back(kernel);
      compute_.backward_input.insert(compute_.backward_input.end(), 2, kernel);
    }
  }
  [[nodiscard]] bool is_eager() const { return job_.kernels == Kernels::Eager; }

  // PyTorch's own: to f32, squared, mean, with epsilon, root, times it, back, times the weight.
  void norm(std::int64_t rows) {
    const std::int64_t all = rows * model_.width;
    if (!is_eager()) return pass(2 * all);
    unfused(all, {element() + 4, 8, 4});
    unfused(rows, {8, 8});
    unfused(all, {8, 4 + element(), 2 * element()});
  }
  // To f32, times the angles as complex numbers, back.
  void rotate() {
    const std::int64_t queries = tokens() * heads() * key_dim();
    const std::int64_t keys = tokens() * key_value_width() / 2;
    if (!is_eager()) return pass(2 * (queries + keys));
    for (const std::int64_t all : {queries, keys}) unfused(all, {element() + 4, 8, 4 + element()});
  }
  void activate(std::int64_t elements) {
    const std::int64_t up = model_.gated ? 2 : 1;
    if (!is_eager()) return pass((up + 1) * elements);
    unfused(elements, {2 * element()});
    if (model_.gated) unfused(elements, {3 * element()});
  }
  // Products of one input, which is one product of them side by side.
  void products(std::int64_t m, std::initializer_list<std::int64_t> widths, std::int64_t k,
                std::int64_t count = 1) {
    if (is_eager()) {
      for (const std::int64_t n : widths) product(m, n, k, count);
      return;
    }
    const std::int64_t all = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    const GemmWork y = weights(m, all, k, count);
    multiply(y, job_.lora == 0);
    for (const std::int64_t n : widths) keep_or_again(y, n);
    if (!has_adapters(job_, part_)) return;
    for (const std::int64_t n : widths) adapt(m, n, k);
  }
  void up_projection(std::int64_t rows, std::int64_t inner, std::int64_t count = 1) {
    if (!model_.gated) return product(rows, inner, model_.width, count);
    products(rows, {inner, inner}, model_.width, count);
  }

  void gather(const std::string& name) {
    if (layout_.tp == 1) return;
    Travel travel{.name = name + ".gather", .out = {tokens(), model_.width}};
    if (layout_.sp) {
      travel.forward = Collective::AllGather;
      travel.backward = Collective::ReduceScatter;
      travel.again_for_weights = true;
    } else {
      travel.backward = Collective::AllReduce;
    }
    chain_.emplace_back(std::move(travel));
  }
  void reduce(const std::string& name) {
    if (layout_.tp == 1) return;
    Travel travel{.name = name + ".reduce", .out = {divided_tokens(), model_.width}};
    if (layout_.sp) {
      travel.forward = Collective::ReduceScatter;
      travel.backward = Collective::AllGather;
    } else {
      travel.forward = Collective::AllReduce;
    }
    chain_.emplace_back(std::move(travel));
  }

  [[nodiscard]] std::int64_t heads() const { return model_.attention.heads / layout_.tp; }
  [[nodiscard]] std::int64_t key_value_heads() const {
    const std::int64_t all = model_.attention.key_value_heads;
    return all > layout_.tp ? all / layout_.tp : 1;
  }
  [[nodiscard]] std::int64_t key_dim() const {
    const auto& latent = model_.attention.latent;
    return latent ? latent->rope_dim + latent->nope_dim : model_.attention.head_dim;
  }
  [[nodiscard]] std::int64_t value_dim() const {
    const auto& latent = model_.attention.latent;
    return latent ? latent->value_dim : model_.attention.head_dim;
  }
  // Elements of a rank's keys and values.
  [[nodiscard]] std::int64_t key_value_width() const {
    const std::int64_t heads_held = model_.attention.latent ? heads() : key_value_heads();
    return heads_held * (key_dim() + value_dim());
  }

  void attention() {
    const std::string name = name_ + "self_attn";
    part_ = Part::Attention;
    gather(name);
    begin(name, {tokens(), model_.width});
    take(layer_, Part::Attention);
    norm(divided_tokens());
    project();
    rotate();
    if (layout_.cp > 1) exchange(name);
    inner_products();
    product(tokens(), model_.width, heads() * value_dim());
    pass(3 * divided_tokens() * model_.width);  // residual sum
    end();
    reduce(name);
  }

  void project() {
    const std::int64_t d = model_.width;
    if (!model_.attention.latent) {
      products(tokens(), {heads() * key_dim(), key_value_width() / 2, key_value_width() / 2}, d);
      return;
    }
    const Latent& l = *model_.attention.latent;
    if (l.query_rank > 0) product(tokens(), l.query_rank, d);
    product(tokens(), heads() * key_dim(), l.query_rank > 0 ? l.query_rank : d);
    product(tokens(), l.key_value_rank + l.rope_dim, d);
    product(tokens(), heads() * (l.nope_dim + l.value_dim), l.key_value_rank);
  }

  // Keys and values of the other ranks; the queries stay.
  void exchange(const std::string& name) {
    std::vector<ParameterShape> later;
    compute_.name = name + ".qkv";
    compute_.out = {tokens(), key_value_width()};
    for (const ParameterShape& parameter : compute_.parameters) {
      if (parameter.name.find("o_proj") != std::string::npos) later.push_back(parameter);
    }
    std::erase_if(compute_.parameters, [](const ParameterShape& parameter) {
      return parameter.name.find("o_proj") != std::string::npos;
    });
    end();
    chain_.emplace_back(Travel{.name = name + ".exchange",
                               .over = Over::ContextParallel,
                               .forward = Collective::AllGather,
                               .backward = Collective::ReduceScatter,
                               .out = {tokens() * layout_.cp, key_value_width()}});
    begin(name, {tokens(), model_.width});
    compute_.parameters = std::move(later);
  }

  void inner_products() {
    const double seen = seen_tokens(model_, layer_, job_.batch.sequence, true);
    const auto rows = static_cast<double>(tokens());
    const double flop = 2 * rows * seen * static_cast<double>(heads() * (key_dim() + value_dim()));
    std::int64_t moved =
        tokens() * heads() * (key_dim() + value_dim()) + tokens() * layout_.cp * key_value_width();
    if (!job_.flash) moved += kScorePasses * tokens() * job_.batch.sequence * heads();
    const Bytes bytes(moved * element());
    const bool again = job_.recompute == Recompute::Selective && !job_.flash;
    MemoryWork forward{.bytes = bytes, .flop = Flop(flop)};
    MemoryWork backward{.bytes = bytes * (again ? 3 : 2),
                        .flop = Flop((kBackwardAttention + (again ? 1 : 0)) * flop)};
    if (job_.flash) {
      forward.attention = {.tokens = std::max<std::int64_t>(1, std::llround(seen)),
                           .head_dim = (key_dim() + value_dim()) / 2};
      backward.attention = forward.attention;
      backward.attention->backward = true;
    }
    compute_.forward.emplace_back(forward);
    compute_.backward_input.emplace_back(backward);
    if (!job_.flash) compute_.again.emplace_back(forward);
  }

  // The feed-forward network of every token: norm, products, activation, residual sum.
  void dense(std::int64_t inner) {
    up_projection(tokens(), over_tp(inner));
    activate(tokens() * over_tp(inner));
    needed_again_ = compute_.again.size();
    product(tokens(), model_.width, over_tp(inner));
  }

  void mlp() {
    const std::string name = name_ + "mlp";
    part_ = Part::Mlp;
    gather(name);
    begin(name, {tokens(), model_.width});
    take(layer_, Part::Mlp);
    norm(divided_tokens());
    dense(model_.inner);
    pass(3 * divided_tokens() * model_.width);
    compute_.again.resize(needed_again_);  // nothing reads what comes behind
    end();
    reduce(name);
  }

  void experts() {
    const Experts& e = *model_.experts;
    const std::string name = name_ + "mlp";
    part_ = Part::Mlp;
    const std::int64_t own = over_tp(tokens());  // each rank of tp routes its part of the tokens
    const std::int64_t sent = own * e.per_token;
    begin(name + ".gate", {sent, model_.width});
    take_named(".experts.", false);
    norm(own);
    operands_ = schedule::Operands::Own;  // the router's
    product(own, e.count, model_.width);
    operands_ = job_.precision.products;
    if (e.shared_inner > 0) dense(e.shared_inner);
    pass(2 * sent * model_.width);  // tokens in the order of their experts
    end();
    dispatch(name + ".dispatch", sent);
    const auto busiest =
        static_cast<std::int64_t>(static_cast<double>(sent * layout_.etp) * job_.expert_imbalance);
    const std::int64_t held = e.count / layout_.ep;
    const std::int64_t rows = std::max<std::int64_t>(1, busiest / held);
    const std::int64_t inner = (e.inner + layout_.etp - 1) / layout_.etp;
    begin(name + ".experts", {sent, model_.width});
    take_named(".experts.", true);
    up_projection(rows, inner, held);
    activate(rows * held * inner);
    product(rows, model_.width, inner, held);
    end();
    dispatch(name + ".combine", sent);
    begin(name + ".sum", {divided_tokens(), model_.width});
    pass((e.per_token + 2) * own * model_.width);
    end();
  }

  void dispatch(const std::string& name, std::int64_t rows) {
    if (layout_.ep == 1) return;
    chain_.emplace_back(Travel{.name = name,
                               .over = Over::ExpertParallel,
                               .forward = Collective::AllToAll,
                               .backward = Collective::AllToAll,
                               .out = {rows, model_.width}});
  }

  const Job& job_;
  const Model& model_;
  const Layout& layout_;
  const std::vector<ParameterShape> parameters_;
  std::int64_t layer_ = 0;
  schedule::Operands operands_ = schedule::Operands::Own;  // of products with weights
  Part part_ = Part::Embedding;
  std::int64_t products_ = 0;     // of the layer, with weights
  std::size_t needed_again_ = 0;  // of Compute::again, so many before the last product
  std::string name_;
  Compute compute_;
  std::vector<Element> chain_;
};

}  // namespace

std::vector<Element> embedding_work(const Job& job) { return LayerWriter(job).embedding(); }
std::vector<Element> layer_work(const Job& job, std::int64_t layer) {
  return LayerWriter(job).layer(layer);
}
std::vector<Element> head_work(const Job& job) { return LayerWriter(job).head(); }

LossWork loss_work(const Job& job) {
  const std::int64_t rows = job.batch.micro * job.batch.sequence / job.layout.cp;
  const std::int64_t classes =
      job.model.patches ? job.model.patches->classes : job.model.vocabulary;
  const std::int64_t scores = (job.model.patches ? job.batch.micro : rows) *
                              ((classes + job.layout.tp - 1) / job.layout.tp);
  const std::int64_t element = schedule::element_size(job.precision.compute).count();
  const auto kernel = [&](std::int64_t bytes) {
    return schedule::Kernel(schedule::MemoryWork{.bytes = Bytes(scores * bytes), .flop = Flop(0)});
  };
  // Logits become f32, their maximum and sum are taken; backward reads and writes them once. Eager: to f32, logarithm of softmax;
  // backward zeros, the gradient of that logarithm, and back.
  if (job.kernels == Kernels::Eager)
    return {.forward = {kernel(element + 4), kernel(8)},
            .backward = {kernel(4), kernel(12), kernel(4 + element)}};
  return {.forward = {kernel(element + 4 + 2 * 4)}, .backward = {kernel(4 + element)}};
}

schedule::MemoryWork update_work(const Job& job, const std::vector<std::int64_t>& shape) {
  constexpr double kIterations = 5;
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  const std::int64_t gradient = schedule::element_size(job.precision.gradient).count();
  const std::int64_t parameter = schedule::element_size(job.precision.compute).count();
  const std::int64_t kept = job.precision.master_bytes + job.precision.state_bytes;
  double flop = 0;
  if (job.optimizer == Optimizer::Muon && shape.size() > 1) {
    const auto rows = static_cast<double>(std::min(shape[shape.size() - 2], shape.back()));
    const auto columns = static_cast<double>(std::max(shape[shape.size() - 2], shape.back()));
    flop = kIterations * 2 * (2 * rows * rows * columns + rows * rows * rows) *
           (static_cast<double>(elements) / (rows * columns));
  }
  return {.bytes = Bytes(elements * (gradient + 2 * kept + parameter)), .flop = Flop(flop)};
}

}  // namespace dovetail::jobs
