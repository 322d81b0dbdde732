// Prices the parts of a transformer in kernels.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/layer_work.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "models/networks/adapters.h"

namespace dovetail::jobs {
namespace {

using schedule::Access;
using schedule::Collective;
using schedule::GemmWork;
using schedule::Kernel;
using schedule::MemoryWork;

constexpr double kBackwardAttention = 2.5;
// Scores that are kept in memory: written, read by softmax, written, read by the second product, with a mask. Autocast casts them to f32
// for softmax, and back.
constexpr std::int64_t kScorePasses = 5, kScoreCasts = 4 + 8 + 4;

// What a product is, beside its sides.
struct Linear {
  std::int64_t count = 1;
  bool has_bias = false;
  std::int64_t input = 0;  // bytes of an element of what it multiplies; 0: of what flows between
};

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
      look_up();
    }
    compute_.backward_reads = false;
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
    is_in_layer_ = true;
    products_ = 0;
    operands_ = job_.precision.products;
    name_ = "model.layers." + std::to_string(layer) + ".";
    attention();
    has_experts(model_, layer) ? experts() : mlp();
    return std::move(chain_);
  }

  std::vector<Element> head() {
    part_ = Part::Head;
    is_in_layer_ = false;
    gather("lm_head");
    const std::int64_t out = model_.patches ? model_.patches->classes : model_.vocabulary;
    const std::int64_t rows = model_.patches ? job_.batch.micro : tokens();
    begin("lm_head", {rows, over_tp(out)});
    take(-1, Part::Head);
    if (model_.tied) compute_.parameters.push_back(parameters_.front());  // the embedding
    module("model.norm");
    norm(divided_tokens(), model_.width);
    module("lm_head", over_tp(out));
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
  // Bytes of an element of what products give,
  [[nodiscard]] std::int64_t element() const {
    return schedule::element_size(job_.precision.product()).count();
  }
  // and of what flows between them: norms, residual sums.
  [[nodiscard]] std::int64_t between() const {
    return schedule::element_size(job_.precision.compute).count();
  }
  [[nodiscard]] bool casts() const { return job_.precision.autocast != Autocast::No; }
  // What a norm gives: one that is a kernel of its own leaves the cast to the products.
  [[nodiscard]] std::int64_t normed() const { return is_eager() ? between() : element(); }

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
  // The kernels from here on are this module's.
  void module(const std::string& name, std::int64_t columns = 0) {
    compute_.modules.push_back({.name = module_name(model_, is_in_layer_ ? layer_ : -1, name),
                                .columns = columns > 0 ? columns : model_.width,
                                .forward = compute_.forward.size(),
                                .backward_input = compute_.backward_input.size(),
                                .backward_weight = compute_.backward_weight.size()});
  }
  void end() {
    if (job_.zero == Zero::Parameters && has_copies(job_) && job_.as != RunBy::Deepspeed &&
        job_.as != RunBy::Megatron)
      copy_as_fsdp2();
    chain_.emplace_back(std::move(compute_));
  }
  // FSDP2 casts its shard and copies it into the gather's buffer; a rank that is alone copies the sum of gradients out of its buffer.
  // What is gathered is split into parameters, and gradients are put together, by copies of the schedule.
  void copy_as_fsdp2() {
    double mine = 0, whole = 0;
    for (const ParameterShape& parameter : compute_.parameters) {
      double numel = 1;
      for (const std::int64_t extent : local_shape(parameter, layout_.tp, layout_.ep, layout_.etp))
        numel *= static_cast<double>(extent);
      mine += numel / shards_of(job_, parameter.expert);
      if (parameter.trained) whole += numel;
    }
    if (mine == 0) return;
    const auto shard = static_cast<std::int64_t>(mine);
    const bool is_alone = shards_of(job_, false) <= 1;
    if (casts_gathered(job_))
      compute_.on_gather.push_back(
          memory(shard, {job_.precision.master_bytes + between(), Access::Plain}, 0));
    if (!is_alone) {
      compute_.on_gather.push_back(memory(shard, {2 * between(), Access::Plain}, 0));
    } else if (whole > 0) {
      const std::int64_t sum = schedule::element_size(job_.precision.reduce).count();
      compute_.backward_weight.push_back(
          memory(static_cast<std::int64_t>(whole), {2 * sum, Access::Plain}, 0));
    }
    compute_.is_gathered_again = is_in_layer_ && job_.reshard;
  }

  // A matrix product with weights, three ways; without the last one where they are frozen. Narrower weights that were
  // just gathered are cast both times: read, and written along their rows and their columns.
  void multiply(const GemmWork& y, bool trained) {
    before_product_ = {compute_.forward.size(), compute_.again.size()};
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
  // Of autocast: what y multiplies is cast, each weight once a forward, and so are their gradients. What a fused kernel gives is cast by it.
  void cast(const GemmWork& y, bool trained, std::int64_t input) {
    if (!casts()) return;
    const std::int64_t e = element();
    const std::int64_t weights = y.count * y.n * y.k;
    const std::int64_t inputs = y.count * y.m * y.k;
    const bool is_wide = is_eager() && input > e;
    if (is_wide) forward(inputs, {{input + e}});
    forward(weights, {{between() + e}});
    const Pass back{e + between(), Access::Widened};
    if (trained) compute_.backward_weight.push_back(memory(weights, back, 0));
    if (is_wide) backward(inputs, {back});
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
  void product(std::int64_t m, std::int64_t n, std::int64_t k, const Linear& linear = {}) {
    const GemmWork y = weights(m, n, k, linear.count);
    bias(m * linear.count, n, linear.has_bias);
    cast(y, job_.lora == 0, linear.input > 0 ? linear.input : between());
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
    const GemmWork down{.m = m, .n = job_.lora, .k = k};
    const GemmWork up{.m = m, .n = n, .k = job_.lora};
    cast(down, true, between());
    multiply(down, true);
    cast(up, true, element());
    multiply(up, true);
    add(compute_.forward, n);
    add(compute_.backward_input, k);
  }
  // Kernels over so many elements, each of which moves so many bytes of every one.
  struct Pass {
    std::int64_t bytes;
    Access access = Access::Plain;
  };
  void forward(std::int64_t elements, std::initializer_list<Pass> passes,
               std::int64_t columns = 0) {
    for (const Pass& pass : passes) {
      const Kernel kernel = memory(elements, pass, columns);
      compute_.forward.push_back(kernel);
      compute_.again.push_back(kernel);
    }
  }
  void backward(std::int64_t elements, std::initializer_list<Pass> passes,
                std::int64_t columns = 0) {
    for (const Pass& pass : passes)
      compute_.backward_input.push_back(memory(elements, pass, columns));
  }
  static Kernel memory(std::int64_t elements, const Pass& pass, std::int64_t columns) {
    return MemoryWork{.bytes = Bytes(elements * pass.bytes),
                      .flop = Flop(0),
                      .access = pass.access,
                      .columns = columns};
  }
  // Whether what is written now is what PyTorch runs by itself.
  [[nodiscard]] bool is_eager() const { return job_.kernels == Kernels::Eager || is_written_out(); }
  // Whether it is what transformers' models are written in.
  [[nodiscard]] bool is_written_out() const {
    return job_.kernels == Kernels::Transformers ||
           (job_.kernels == Kernels::Layers && !is_in_layer_);
  }

  // Rows of the embedding, and the angles and positions that transformers makes of every input; backward the whole table is zeroed.
  void look_up() {
    const std::int64_t e = between();
    const std::int64_t all = tokens() * model_.width;
    module("model.embed_tokens");
    forward(all, {{2 * e, Access::Gathered}});
    backward(over_tp(model_.vocabulary) * model_.width, {{e, Access::Filled}});
    backward(all, {{3 * e, Access::Scattered}});
    if (model_.tied) sum_gradients(over_tp(model_.vocabulary) * model_.width, 1);
    if (model_.positions > 0) {
      module("model.embed_positions");
      forward(all, {{3 * e, Access::Plain}});
      backward(all, {{2 * e, Access::SumColumns}, {3 * e, Access::Scattered}});
    }
    if (!is_written_out()) return;
    const std::int64_t sequence = job_.batch.sequence;
    constexpr int kOfPositions = 9, kOfAngles = 10;
    for (int i = 0; i < kOfPositions; ++i) forward(sequence, {{16}});
    if (model_.positions > 0) return;
    for (int i = 0; i < kOfAngles; ++i) forward(sequence * model_.attention.head_dim, {{8}});
  }

  // PyTorch has a kernel for each norm; RMS norms transformers writes out: to f32, squared, mean, with epsilon, root, times it, back,
  // times the weight. Of what is f32 no cast is needed.
  void norm(std::int64_t rows, std::int64_t width) { norm(rows, width, between()); }
  void norm(std::int64_t rows, std::int64_t width, std::int64_t input) {
    const std::int64_t all = rows * width;
    const bool is_layer_norm = model_.norm == Norm::Layer;
    if (!is_written_out() || is_layer_norm) {
      const std::int64_t moved = input + normed();
      forward(all, {{moved, is_layer_norm ? Access::LayerNorm : Access::RmsNorm}}, width);
      backward(
          all,
          {{input + moved, is_layer_norm ? Access::LayerNormBackward : Access::RmsNormBackward}},
          width);
      return;
    }
    const bool is_narrow = input < 4;
    const std::int64_t e = input, out = between();
    if (is_narrow) forward(all, {{e + 4, Access::Widened}});
    forward(all, {{8}, {4, Access::SumRows}});
    forward(rows, {{8}, {8}});
    forward(all, {{8, Access::Rows}});
    if (is_narrow) forward(all, {{4 + e}});
    forward(all, {{e + out, Access::Columns}});
    backward(all, {{2 * out, Access::Columns}, {e + 2 * out}, {out, Access::SumColumns}});
    if (out > e) backward(all, {{out + e}});
    if (is_narrow) backward(all, {{e + 4, Access::Widened}});
    backward(all, {{12}, {8, Access::Rows}, {4, Access::SumRows}});
    backward(rows, {{8}, {8}, {12}});
    backward(all, {{4, Access::Rows}, {8}, {8}, {12}, {12}});
    if (is_narrow) backward(all, {{4 + e}});
  }
  // Transformers: times cosines, halves exchanged and one negated, times sines, summed; backward each half is put into zeros.
  void rotate() {
    if (model_.positions > 0 || model_.patches) return;
    module("self_attn.rotary");
    const std::int64_t e = element();
    const std::int64_t queries = tokens() * heads() * key_dim();
    const std::int64_t keys = tokens() * key_value_width() / 2;
    if (!is_eager()) {
      forward(queries + keys, {{2 * e}});
      return backward(queries + keys, {{2 * e}});
    }
    if (!is_written_out()) {  // to f32, times the angles as complex numbers, back
      for (const std::int64_t all : {queries, keys}) {
        forward(all, {{e + 4, Access::Widened}, {8, Access::Columns}, {4 + e, Access::Strided}});
        backward(all, {{e + 4, Access::Widened}, {8, Access::Columns}, {4 + e, Access::Strided}});
      }
      return;
    }
    // Autocast has f32 angles, so what is rotated is f32, and is cast for attention.
    const std::int64_t in = model_.attention.normed_heads ? between() : e;
    const std::int64_t out = between();
    for (const std::int64_t all : {queries, keys}) {
      forward(all, {{in + out, Access::Columns},
                    {in, Access::Strided},
                    {2 * in, Access::Strided},
                    {in + out, Access::Columns},
                    {3 * out, Access::Strided}});
      if (out > e) {
        forward(all, {{out + e}});
        backward(all, {{e + out, Access::Widened}});
      }
      backward(all, {{2 * out, Access::Columns}});
      if (out > in) backward(all, {{out + in}});
      backward(all, {{in, Access::Strided},
                     {in, Access::Filled},
                     {in, Access::Strided},
                     {in, Access::Filled},
                     {in, Access::Strided},
                     {3 * in},
                     {2 * out, Access::Columns}});
      if (out > in) backward(all, {{out + in}});
      backward(all, {{3 * in, Access::Strided},
                     {2 * e, Access::Strided}});  // and a copy in the product's order
    }
  }
  void activate(std::int64_t elements) {
    const std::int64_t e = element();
    if (!model_.gated) {
      if (is_written_out() && model_.gelu_new) return gelu(elements);
      forward(elements, {{2 * e}});
      return backward(elements, {{3 * e}});
    }
    if (!is_eager()) {
      forward(elements, {{3 * e}});
      return backward(elements, {{5 * e}});
    }
    forward(elements, {{2 * e}, {3 * e}});
    backward(elements, {{3 * e}, {3 * e}, {3 * e}});
  }
  // Transformers' gelu_new: halved, cubed, times, plus, times, tanh, plus one, times. Autocast has powers in f32, and what follows them.
  void gelu(std::int64_t elements) {
    const std::int64_t e = element();
    if (casts()) {
      const Pass both{e + 8, Access::Mixed};
      const Pass wide{e + 4, Access::Widened}, narrow{4 + e};
      forward(elements, {{2 * e}, wide, {8}, {8}, both, {8}, {8}, {8}, both});
      return backward(elements, {both,
                                 {12},
                                 narrow,
                                 {12},
                                 {8},
                                 narrow,
                                 {8},
                                 {8},
                                 {8},
                                 {12},
                                 narrow,
                                 {3 * e},
                                 {2 * e},
                                 {3 * e}});
    }
    forward(elements, {{2 * e}, {2 * e}, {2 * e}, {3 * e}, {2 * e}, {2 * e}, {2 * e}, {3 * e}});
    backward(elements, {{3 * e},
                        {3 * e},
                        {3 * e},
                        {2 * e},
                        {2 * e},
                        {2 * e},
                        {2 * e},
                        {3 * e},
                        {3 * e},
                        {2 * e},
                        {3 * e}});
  }
  // Of the tensors that meet again in backward: one kernel for each further one.
  void sum_gradients(std::int64_t elements, int further) {
    for (int i = 0; i < further; ++i) backward(elements, {{3 * between()}});
  }
  // What a product gives is added to what flows; backward its gradient is cast for that product.
  void residual() {
    module(part_ == Part::Attention ? "self_attn.add" : "mlp.add");
    const std::int64_t all = divided_tokens() * model_.width;
    forward(all, {{2 * between() + element(), casts() ? Access::Mixed : Access::Plain}});
    if (casts() && !is_eager()) return backward(all, {{3 * between() + element()}});
    sum_gradients(all, 1);
    if (casts()) backward(all, {{between() + element()}});
  }
  // A bias is added by the product; backward its gradient is summed over all rows.
  void bias(std::int64_t rows, std::int64_t columns, bool has_one) {
    if (!has_one || !is_eager()) return;
    if (casts()) forward(columns, {{between() + element()}});
    backward(rows * columns, {{element(), Access::SumColumns}});
    if (casts()) backward(columns, {{between() + element(), Access::Widened}});
  }
  // Products of one input, m x k, with so many columns each; one product of them side by side.
  struct Side {
    std::string module;
    std::int64_t n;
  };
  void products(std::int64_t m, const std::vector<Side>& sides, std::int64_t k,
                const Linear& linear = {}) {
    if (is_eager()) {
      for (const Side& side : sides) {
        module(side.module, side.n);
        product(m, side.n, k, linear);
      }
      return sum_gradients(m * linear.count * k, static_cast<int>(sides.size()) - 1);
    }
    std::int64_t all = 0;
    for (const Side& side : sides) all += side.n;
    module(sides.front().module, all);
    const GemmWork y = weights(m, all, k, linear.count);
    cast(y, job_.lora == 0, between());
    multiply(y, job_.lora == 0);
    for (const Side& side : sides) keep_or_again(y, side.n);
    if (!has_adapters(job_, part_)) return;
    for (const Side& side : sides) adapt(m, side.n, k);
  }
  void up_projection(const std::string& mlp, std::int64_t rows, std::int64_t inner,
                     std::int64_t count = 1) {
    std::vector<Side> sides = {{mlp + "up_proj", inner}};
    if (model_.gated) sides.insert(sides.begin(), {mlp + "gate_proj", inner});
    products(rows, sides, model_.width, {.count = count, .has_bias = model_.mlp_bias});
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
    module("input_layernorm");
    norm(divided_tokens(), model_.width);
    project();
    rotate();
    if (layout_.cp > 1) exchange(name);
    module("self_attn.attention");
    inner_products();
    module("self_attn.o_proj");
    product(tokens(), model_.width, heads() * value_dim(),
            {.has_bias = model_.attention.out_bias, .input = element()});
    residual();
    end();
    reduce(name);
  }

  void project() {
    const std::int64_t d = model_.width;
    if (!model_.attention.latent) {
      const std::int64_t queries = heads() * key_dim();
      const std::int64_t keys = key_value_width() / 2;
      const Linear in{.has_bias = model_.attention.in_bias};
      if (model_.joined_qkv) {
        module("self_attn.qkv_proj", queries + 2 * keys);
        product(tokens(), queries + 2 * keys, d, in);
        if (is_eager()) backward(tokens() * (queries + 2 * keys), {{2 * element()}});  // joined
        return;
      }
      const std::string self = "self_attn.";
      products(tokens(),
               {{self + "q_proj", queries}, {self + "k_proj", keys}, {self + "v_proj", keys}}, d,
               in);
      if (!model_.attention.normed_heads) return;
      for (const Side& side : {Side{self + "q_norm", queries}, Side{self + "k_norm", keys}}) {
        module(side.module, side.n);
        norm(tokens() * side.n / key_dim(), key_dim(), element());
      }
      return;
    }
    module("self_attn.latent");
    const Latent& l = *model_.attention.latent;
    if (l.query_rank > 0) product(tokens(), l.query_rank, d);
    product(tokens(), heads() * key_dim(), l.query_rank > 0 ? l.query_rank : d);
    product(tokens(), l.key_value_rank + l.rope_dim, d);
    product(tokens(), heads() * (l.nope_dim + l.value_dim), l.key_value_rank);
  }

  // Keys and values of the other ranks; the queries stay.
  void exchange(const std::string& name) {
    static const std::string kOut = "self_attn.o_proj";
    std::vector<ParameterShape> later;
    compute_.name = name + ".qkv";
    compute_.out = {tokens(), key_value_width()};
    for (const ParameterShape& parameter : compute_.parameters) {
      if (parameter.module == kOut) later.push_back(parameter);
    }
    std::erase_if(compute_.parameters,
                  [](const ParameterShape& parameter) { return parameter.module == kOut; });
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
    const std::int64_t moved =
        tokens() * heads() * (key_dim() + value_dim()) + tokens() * layout_.cp * key_value_width();
    const std::int64_t score = kScorePasses * element() + (casts() ? kScoreCasts : 0);
    const std::int64_t scores = job_.flash ? 0 : tokens() * job_.batch.sequence * heads();
    const Bytes bytes(moved * element() + scores * score);
    const bool again = job_.recompute == Recompute::Selective && !job_.flash;
    MemoryWork forward{.bytes = bytes, .flop = Flop(flop)};
    MemoryWork backward{.bytes = bytes * (again ? 3 : 2),
                        .flop = Flop((kBackwardAttention + (again ? 1 : 0)) * flop)};
    if (job_.flash) {
      forward.attention = {.tokens = std::max<std::int64_t>(1, std::llround(seen)),
                           .head_dim = (key_dim() + value_dim()) / 2,
                           .causal = model_.attention.causal};
      backward.attention = forward.attention;
      backward.attention->backward = true;
    }
    compute_.forward.emplace_back(forward);
    compute_.backward_input.emplace_back(backward);
    if (!job_.flash) compute_.again.emplace_back(forward);
  }

  // The feed-forward network of every token: norm, products, activation, residual sum.
  void dense(const std::string& mlp, std::int64_t inner) {
    up_projection(mlp, tokens(), over_tp(inner));
    module(mlp + "act", over_tp(inner));
    activate(tokens() * over_tp(inner));
    module(mlp + "down_proj");
    product(tokens(), model_.width, over_tp(inner),
            {.has_bias = model_.mlp_bias, .input = activated()});
  }
  // Bytes of an element of what activate() gives.
  [[nodiscard]] std::int64_t activated() const {
    return !model_.gated && model_.gelu_new && is_written_out() ? between() : element();
  }

  void mlp() {
    const std::string name = name_ + "mlp";
    part_ = Part::Mlp;
    gather(name);
    begin(name, {tokens(), model_.width});
    take(layer_, Part::Mlp);
    module("post_attention_layernorm");
    norm(divided_tokens(), model_.width);
    dense("mlp.", model_.inner);
    residual();
    compute_.needed = before_product_.forward;
    compute_.again.resize(before_product_.again);  // nothing reads what comes behind
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
    module("post_attention_layernorm");
    norm(own, model_.width);
    operands_ = schedule::Operands::Own;  // the router's
    module("mlp.gate", e.count);
    product(own, e.count, model_.width);
    operands_ = job_.precision.products;
    if (e.shared_inner > 0) dense("mlp.shared_experts.", e.shared_inner);
    module("mlp.dispatch");
    forward(sent * model_.width,
            {{2 * between(), Access::Gathered}});  // in the order of their experts
    backward(sent * model_.width, {{2 * between(), Access::Gathered}});
    end();
    dispatch(name + ".dispatch", sent);
    const auto busiest =
        static_cast<std::int64_t>(static_cast<double>(sent * layout_.etp) * job_.expert_imbalance);
    const std::int64_t held = e.count / layout_.ep;
    const std::int64_t rows = std::max<std::int64_t>(1, busiest / held);
    const std::int64_t inner = (e.inner + layout_.etp - 1) / layout_.etp;
    begin(name + ".experts", {sent, model_.width});
    take_named(".experts.", true);
    const std::string experts = "mlp.experts.";
    up_projection(experts, rows, inner, held);
    module(experts + "act", inner);
    activate(rows * held * inner);
    module(experts + "down_proj");
    product(rows, model_.width, inner, {.count = held, .input = activated()});
    end();
    dispatch(name + ".combine", sent);
    begin(name + ".sum", {divided_tokens(), model_.width});
    const Pass sum{e.per_token * element() + 2 * between()};
    forward(own * model_.width, {sum});
    backward(own * model_.width, {sum});
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
  bool is_in_layer_ = false;
  schedule::Operands operands_ = schedule::Operands::Own;  // of products with weights
  Part part_ = Part::Embedding;
  std::int64_t products_ = 0;  // of the layer, with weights
  // Kernels before the last product.
  struct {
    std::size_t forward = 0, again = 0;
  } before_product_;
  std::string name_;
  Compute compute_;
  std::vector<Element> chain_;
};

}  // namespace

std::vector<Compute> modules_of(const Compute& compute) {
  const std::vector<Module>& modules = compute.modules;
  std::vector<Compute> parts;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto slice = [&](const std::vector<Kernel>& all, std::size_t Module::*begin) {
      const std::size_t end = i + 1 < modules.size() ? modules[i + 1].*begin : all.size();
      return std::vector<Kernel>(all.begin() + static_cast<std::ptrdiff_t>(modules[i].*begin),
                                 all.begin() + static_cast<std::ptrdiff_t>(end));
    };
    parts.push_back({.name = modules[i].name,
                     .forward = slice(compute.forward, &Module::forward),
                     .backward_input = slice(compute.backward_input, &Module::backward_input),
                     .backward_weight = slice(compute.backward_weight, &Module::backward_weight),
                     .out = {compute.out.front(), modules[i].columns},
                     .backward_reads = compute.backward_reads});
  }
  if (parts.empty()) return {compute};
  for (const ParameterShape& parameter : compute.parameters) {
    const auto own = std::ranges::find_if(
        parts, [&](const Compute& part) { return parameter.name.starts_with(part.name + "."); });
    // The output layer's is the embedding's where they are tied.
    (own == parts.end() ? parts.back() : *own).parameters.push_back(parameter);
  }
  return parts;
}

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
  const std::int64_t element = schedule::element_size(job.precision.product()).count();
  const std::int64_t columns = scores / (job.model.patches ? job.batch.micro : rows);
  const auto pass = [&](std::int64_t bytes, Access access) {
    return schedule::Kernel(MemoryWork{
        .bytes = Bytes(scores * bytes), .flop = Flop(0), .access = access, .columns = columns});
  };
  // To f32, the logarithm of the softmax, one word of each row; backward zeros with one word a row, the gradient of that logarithm,
  // and back. Fused: one kernel each way that keeps the sums of rows.
  if (job.kernels != Kernels::Fused) {
    LossWork work{.forward = {pass(8, Access::Softmax)},
                  .backward = {pass(4, Access::Filled), pass(12, Access::SoftmaxBackward)}};
    if (element == 4) return work;
    work.forward.insert(work.forward.begin(), pass(element + 4, Access::Widened));
    work.backward.push_back(pass(4 + element, Access::Plain));
    return work;
  }
  return {.forward = {pass(element + 4 + 2 * 4, Access::Plain)},
          .backward = {pass(4 + element, Access::Plain)}};
}

schedule::MemoryWork update_work(const Job& job, const std::vector<std::int64_t>& shape) {
  constexpr double kIterations = 5;
  constexpr std::int64_t kAdamPasses = 20, kMomentumPasses = 8;
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  const std::int64_t gradient = schedule::element_size(job.precision.gradient).count();
  const std::int64_t parameter = schedule::element_size(job.precision.compute).count();
  const std::int64_t kept = job.precision.master_bytes + job.precision.state_bytes;
  const std::int64_t written = casts_gathered(job) ? 0 : parameter;
  double flop = 0;
  if (job.optimizer == Optimizer::Muon && shape.size() > 1) {
    const auto rows = static_cast<double>(std::min(shape[shape.size() - 2], shape.back()));
    const auto columns = static_cast<double>(std::max(shape[shape.size() - 2], shape.back()));
    flop = kIterations * 2 * (2 * rows * rows * columns + rows * rows * rows) *
           (static_cast<double>(elements) / (rows * columns));
  }
  // A parameter without a master copy is read, too.
  const std::int64_t read = job.precision.master_bytes == 0 ? parameter : 0;
  if (job.updates == Updates::Foreach && job.optimizer != Optimizer::Muon) {
    // Operator by operator, each of which reads and writes whole tensors.
    const std::int64_t passes = job.optimizer == Optimizer::Adam ? kAdamPasses : kMomentumPasses;
    return {.bytes = Bytes(elements * passes * std::max(gradient, job.precision.master_bytes)),
            .flop = Flop(0),
            .access = Access::Foreach};
  }
  return {.bytes = Bytes(elements * (gradient + 2 * kept + written + read)),
          .flop = Flop(flop),
          .access = Access::Updated};
}

}  // namespace dovetail::jobs
