// Prices the parts of a transformer in kernels.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/layer_work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <span>
#include <utility>

#include "models/networks/adapters.h"
#include "models/networks/written_out.h"

namespace dovetail::jobs {
namespace {

using schedule::Access;
using schedule::Collective;
using schedule::GemmWork;
using schedule::Kernel;
using schedule::MemoryWork;

// Scores that are kept in memory: written, read by softmax, written, read by the second product, with a mask. Autocast casts them to f32
// for softmax, and back.
constexpr std::int64_t kScorePasses = 5, kScoreCasts = 4 + 8 + 4;

// Kernels by which Transformer Engine 2.9 makes an operand narrow (pytorch/csrc/quantizer.cpp): its largest element, the scale
// of it, the cast; where the scale is known or every block has its own, one. (Of delayed scales those of all experts are one
// kernel, which is not counted.)
std::int64_t casts_of(const Precision& precision) {
  if (precision.products == schedule::Operands::Fp4) return 1;
  return precision.scaling == Scaling::Tensor ? 3 : precision.scaling == Scaling::Delayed ? 0 : 1;
}

// What a product is, beside its sides.
struct Linear {
  std::int64_t count = 1;
  bool has_bias = false;
  std::int64_t input = 0;  // bytes of an element of what it multiplies; 0: of what flows between
};

class LayerWriter {
 public:
  LayerWriter(const Job& job, const std::vector<ParameterShape>& parameters)
      : job_(job), model_(job.model), layout_(job.layout), parameters_(parameters) {}

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
    // Hooks of ZeRO-3 gather what a module holds before its backward, whatever that reads.
    compute_.backward_reads = job_.zero == Zero::Parameters && has_copies(job_) &&
                              std::ranges::any_of(compute_.parameters, &ParameterShape::trained);
    compute_.is_gathered_again = compute_.backward_reads && job_.reshard;
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
    compute_.is_gathered_again |= is_in_layer_ && job_.reshard;
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
      again(cast);
    }
    const auto like_it = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return GemmWork{
          .m = m, .n = n, .k = k, .count = y.count, .operands = y.operands, .separate = y.separate};
    };
    compute_.forward.emplace_back(y);
    compute_.backward_input.emplace_back(like_it(y.m, y.k, y.n));
    std::get<GemmWork>(compute_.backward_input.back()).casts = y.casts;  // of the gradient, once
    if (!trained) return;
    GemmWork gradient = like_it(y.n, y.k, y.m);
    if (adds_to_sums(job_)) gradient.adds = schedule::element_size(job_.precision.reduce).count();
    compute_.backward_weight.emplace_back(gradient);
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
  // Whether modules say what is computed again, not every second product.
  [[nodiscard]] bool by_module() const { return recomputes_modules(job_); }
  void again(const Kernel& kernel) {
    if (!by_module() || modules_again_ > 0) compute_.again.push_back(kernel);
  }
  // What is written in its life is this module's.
  class Again {
   public:
    Again(LayerWriter& writer, RecomputedModule module)
        : count_(writer.modules_again_), is_one_(recomputes(writer.job_, module)) {
      if (is_one_) ++count_;
    }
    ~Again() {
      if (is_one_) --count_;
    }
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;

   private:
    int& count_;
    bool is_one_;
  };
  // One product of those that y is, which are saved in turn; those of routers and of experts, which are grouped, are not.
  void keep_or_again(GemmWork y, std::int64_t columns) {
    y.n = columns;
    const bool is_kept = !by_module() && takes_turns_ && ++products_ % 2 != 0;
    if (!is_kept || y.operands != schedule::Operands::Own) {
      again(y);
    }
  }
  // With the model's weights. Transformer Engine multiplies those of several experts one by one.
  [[nodiscard]] GemmWork weights(std::int64_t m, std::int64_t n, std::int64_t k,
                                 std::int64_t count) const {
    const bool is_engine = job_.as == RunBy::Megatron;
    return {.m = m,
            .n = n,
            .k = k,
            .count = count,
            .operands = operands_,
            .separate = count > 1 && is_engine,
            .casts = is_engine && is_narrow(operands_) ? casts_of(job_.precision) : 0};
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
      again(kernel);
    }
  }
  void backward(std::int64_t elements, std::initializer_list<Pass> passes,
                std::int64_t columns = 0) {
    for (const Pass& pass : passes)
      compute_.backward_input.push_back(memory(elements, pass, columns));
  }
  // Kernels of transformers' models, in place of those of modules.
  void put(const KernelLists& lists) {
    const auto append = [](std::vector<Kernel>& to, const std::vector<Kernel>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(compute_.forward, lists.forward);
    for (const Kernel& kernel : lists.forward) again(kernel);
    append(compute_.backward_input, lists.backward);
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
    const auto table = [&](std::int64_t rows, std::int64_t looked_up) {
      forward(looked_up, {{2 * e, Access::Gathered}});
      backward(rows * model_.width, {{e, Access::Filled}});
      backward(looked_up, {{3 * e, Access::Scattered}});
    };
    module("model.embed_tokens");
    table(over_tp(model_.vocabulary), all);
    if (model_.tied) sum_gradients(over_tp(model_.vocabulary) * model_.width, 1);
    if (model_.positions > 0) {
      module("model.embed_positions");
      if (is_written_out()) {
        add_positions(all);
        table(model_.positions, job_.batch.sequence / layout_.cp * model_.width);
      } else {
        forward(all, {{3 * e, Access::Plain}});
        backward(all, {{2 * e, Access::SumColumns}, {3 * e, Access::Scattered}});
      }
    }
    if (!is_written_out()) return;
    put(positions_lists(
        model_, {.samples = job_.batch.micro, .sequence = job_.batch.sequence, .element = e}));
    if (model_.positions == 0) compute_.dtype = schedule::DType::F32;  // of the angles' product
  }
  // Those of one sample, to each; backward their gradients are summed over samples.
  void add_positions(std::int64_t all) {
    const std::int64_t e = between(), samples = job_.batch.micro;
    const Access summed = e == 4 ? Access::Rows : Access::Columns;
    put({.forward = {memory(all / samples,
                            {e * (2 * samples + 1), samples > 1 ? summed : Access::Plain}, 0)}});
    if (samples > 1) backward(all / samples, {{e * (samples + 1), Access::SumColumns}});
  }

  // PyTorch has a kernel for each norm; RMS norms transformers writes out.
  void layer_norm(std::int64_t rows) {
    const Again scope(*this, RecomputedModule::LayerNorm);
    norm(rows, model_.width);
  }
  void norm(std::int64_t rows, std::int64_t width) { norm(rows, width, between()); }
  void norm(std::int64_t rows, std::int64_t width, std::int64_t input, bool is_of_heads = false) {
    const std::int64_t all = rows * width;
    const bool is_layer_norm = model_.norm == Norm::Layer;
    if (is_written_out() && !is_layer_norm) {
      put(rms_norm_lists({.rows = rows,
                          .width = width,
                          .is_of_heads = is_of_heads,
                          .scales_wide = model_.written.norm_scales_wide},
                         {.input = input, .between = between()}));
      return;
    }
    const std::int64_t moved = input + normed();
    forward(all, {{moved, is_layer_norm ? Access::LayerNorm : Access::RmsNorm}}, width);
    backward(all,
             {{input + moved, is_layer_norm ? Access::LayerNormBackward : Access::RmsNormBackward}},
             width);
  }
  // Of queries and keys, and behind them what brings their gradients into the products' order.
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
    if (model_.attention.latent) return rotate_latent();
    // Autocast has f32 angles, so what is rotated is f32, and is cast for attention.
    RotarySize size{.tokens = tokens(),
                    .sequence = job_.batch.sequence / layout_.cp,
                    .heads = heads(),
                    .width = key_dim(),
                    .input = model_.attention.normed_heads ? between() : e,
                    .output = between(),
                    .attention = e};
    put(rotary_lists(model_.written.rotary, size));
    size.heads = key_value_heads();
    size.is_repeated = is_repeated();
    put(rotary_lists(model_.written.rotary, size));
    const Pass copied{2 * e, Access::Strided};
    backward(queries, {copied});
    backward(keys, {copied});
    if (size.is_repeated) backward(keys, {copied});  // values, too
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
  // Whether attention gets a mask, of a window; transformers repeats keys and values then.
  [[nodiscard]] bool is_masked() const {
    return is_written_out() && is_windowed(model_, layer_) &&
           model_.attention.window < job_.batch.sequence;
  }
  [[nodiscard]] bool is_repeated() const {
    return (is_masked() || writes_scores(job_)) && heads() > key_value_heads();
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
    layer_norm(divided_tokens());
    project();
    rotate();
    if (has_ring(job_)) {
      ring(name);
    } else {
      if (layout_.cp > 1) exchange(name);
      module("self_attn.attention");
      inner_products();
    }
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
        norm(tokens() * side.n / key_dim(), key_dim(), element(), true);
      }
      return;
    }
    latent();
  }
  // Through low ranks, each with a norm of its own.
  void latent() {
    module("self_attn.latent");
    const Latent& l = *model_.attention.latent;
    const std::int64_t d = model_.width;
    if (l.query_rank > 0) {
      product(tokens(), l.query_rank, d);
      norm(tokens(), l.query_rank, element());
    }
    {
      const Again scope(*this, RecomputedModule::MlaUpProj);
      product(tokens(), heads() * key_dim(), l.query_rank > 0 ? l.query_rank : d);
    }
    product(tokens(), l.key_value_rank + l.rope_dim, d);
    if (is_eager()) sum_gradients(tokens() * d, 1);
    norm(tokens(), l.key_value_rank, element());
    const Again scope(*this, RecomputedModule::MlaUpProj);
    product(tokens(), heads() * (l.nope_dim + l.value_dim), l.key_value_rank);
  }
  // Of what has positions only; then queries, keys and values are put together, as transformers does it.
  void rotate_latent() {
    const Latent& l = *model_.attention.latent;
    const std::int64_t e = element(), t = tokens(), h = heads();
    RotarySize size{.tokens = t,
                    .sequence = job_.batch.sequence / layout_.cp,
                    .heads = h,
                    .width = l.rope_dim,
                    .input = e,
                    .output = e,
                    .attention = e};
    put(rotary_lists(model_.written.rotary, size));
    size.heads = 1;
    put(rotary_lists(model_.written.rotary, size));
    const std::int64_t queries = t * h * key_dim(), rotated = t * h * l.rope_dim;
    forward(queries, {{2 * e, Access::Strided}});
    forward(t * h * l.nope_dim, {{2 * e, Access::Any}});  // into keys, beside
    forward(t * l.rope_dim * (h + 1), {{e, Access::Any}});
    backward(queries, {{2 * e, Access::Any}, {2 * e, Access::Any}});
    backward(rotated, {{2 * e, Access::Strided}, {e, Access::Filled}, {2 * e, Access::Any}});
    backward(t * h * l.nope_dim, {{2 * e, Access::Strided}});
    backward(t * l.rope_dim * (h + 1), {{e, Access::SumColumns}});
    for (const std::int64_t all : {t * h * (l.nope_dim + l.value_dim), queries})
      backward(all, {{2 * e, Access::Strided}, {2 * e, Access::Strided}});
    backward(t * (l.key_value_rank + l.rope_dim), {{2 * e, Access::Plain}});
  }

  // Keys and values of the other ranks; the queries stay.
  void exchange(const std::string& name) {
    exchange_by(name, Travel{.name = name + ".exchange",
                             .over = Over::ContextParallel,
                             .forward = Collective::AllGather,
                             .backward = Collective::ReduceScatter,
                             .out = {tokens() * layout_.cp, key_value_width()}});
  }
  void exchange_by(const std::string& name, Element way) {
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
    chain_.push_back(std::move(way));
    begin(name, {tokens(), model_.width});
    compute_.parameters = std::move(later);
  }

  // Attention of a rank's queries to its own keys and values, then to those of each other rank: as many scores each, since a rank has a
  // chunk of the front and its mirror image of the back. Where it is causal, attention to others is of all queries to half of the keys,
  // or of half of the queries to all; the ranks of the first kind, which is slower, are waited for.
  void ring(const std::string& name) {
    const bool is_causal = model_.attention.causal;
    const std::int64_t own = job_.batch.sequence / layout_.cp;
    const std::int64_t seen = is_causal ? (own + 1) / 2 : own;
    const std::int64_t brought = tokens() / (is_causal ? 2 : 1) * key_value_width();
    Ring ring{.name = name + ".exchange",
              .out = {tokens(), key_value_width()},
              .result = {tokens(), heads() * value_dim()}};
    for (std::int64_t i = 0; i < layout_.cp; ++i) {
      const bool is_first = i == 0;
      const Attended part{.tokens = seen, .causal = is_causal && is_first};
      const std::int64_t moved = is_first ? tokens() * key_value_width() : brought;
      ring.forward.push_back({attended(part, moved, false)});
      // Backward begins with those that came last.
      ring.backward.insert(ring.backward.begin(), {attended(part, moved, true)});
    }
    join(ring, brought);
    std::vector<Kernel> last = std::move(ring.forward.back());
    ring.forward.pop_back();
    exchange_by(name, std::move(ring));
    module("self_attn.attention");
    compute_.forward = std::move(last);
  }
  struct Attended {
    std::int64_t tokens = 1;  // by a query, in the mean
    bool causal = false;
  };
  // One of cp equal parts of a layer's attention, in one kernel.
  [[nodiscard]] Kernel attended(const Attended& part, std::int64_t keys_moved,
                                bool is_backward) const {
    const auto keys = static_cast<double>(key_dim()), values = static_cast<double>(value_dim());
    const double pairs = 2 * static_cast<double>(tokens() * heads()) *
                         seen_tokens(model_, layer_, job_.batch.sequence, true) /
                         static_cast<double>(layout_.cp);
    const std::int64_t moved =
        (tokens() * heads() * (key_dim() + value_dim()) + keys_moved) * element();
    MemoryWork work{.bytes = Bytes(moved * (is_backward ? 2 : 1) + 4 * tokens() * heads()),
                    .flop = Flop(pairs * (is_backward ? 3 * keys + 2 * values : keys + values))};
    work.attention = {.tokens = std::max<std::int64_t>(1, part.tokens),
                      .head_dim = (key_dim() + value_dim()) / 2,
                      .backward = is_backward,
                      .causal = part.causal,
                      .kernel = job_.attention};
    return work;
  }
  // What joins the parts: keys and values side by side; each part's sums of rows to those before it (f32), and, behind all of them, its
  // result to theirs; backward each part's gradients of queries, keys and values.
  void join(Ring& ring, std::int64_t brought) const {
    const std::int64_t e = element(), rows = tokens() * heads();
    const auto add = [](std::vector<Kernel>& to, std::int64_t elements, std::int64_t bytes) {
      to.push_back(memory(elements, {bytes}, 0));
    };
    ring.forward.front().insert(ring.forward.front().begin(),
                                memory(tokens() * key_value_width(), {2 * e}, 0));
    for (std::size_t i = 0; i < ring.forward.size(); ++i)
      add(ring.forward[i], rows, i == 0 ? 8 : 12);
    for (std::size_t i = 0; i < ring.forward.size(); ++i)
      add(ring.forward.back(), rows, (i == 0 ? 2 : 3) * e * value_dim() + 8);
    for (std::size_t i = 0; i < ring.backward.size(); ++i) {
      const std::int64_t passes = i == 0 ? 2 : 3;
      const bool is_own = i + 1 == ring.backward.size();
      add(ring.backward[i], rows * key_dim(), passes * e);
      for (int tensor = 0; tensor < 2; ++tensor)
        add(ring.backward[i], (is_own ? tokens() * key_value_width() : brought) / 2, passes * e);
    }
  }

  void inner_products() {
    const std::int64_t samples = job_.batch.micro, sequence = job_.batch.sequence;
    const ScoresSize size{.samples = samples,
                          .queries = sequence / layout_.cp,
                          .sequence = sequence,
                          .heads = heads(),
                          .key_value_heads = key_value_heads(),
                          .width = key_dim(),
                          .element = element()};
    if (writes_scores(job_)) return put(scores_lists(size));
    if (is_repeated()) put(repeat_lists(size));
    // A mask hides scores, which are computed all the same.
    const double seen =
        is_masked() ? static_cast<double>(sequence) : seen_tokens(model_, layer_, sequence, true);
    const auto pairs = 2 * static_cast<double>(tokens() * heads()) * seen;
    const auto keys = static_cast<double>(key_dim()), values = static_cast<double>(value_dim());
    const std::int64_t repeated = is_repeated() ? heads() / key_value_heads() : 1;
    const std::int64_t moved = tokens() * heads() * (key_dim() + value_dim()) +
                               tokens() * layout_.cp * key_value_width() * repeated;
    const std::int64_t score = kScorePasses * element() + (casts() ? kScoreCasts : 0);
    const std::int64_t scores = job_.flash ? 0 : tokens() * sequence * heads();
    const Bytes bytes(moved * element() + scores * score);
    // The sums of rows, which a fused kernel keeps, and the mask.
    const Bytes beside(job_.flash ? 4 * tokens() * heads() + (is_masked() ? sequence * sequence : 0)
                                  : 0);
    const bool is_again = job_.recompute == Recompute::Selective && !job_.flash;
    MemoryWork forward{.bytes = bytes + beside, .flop = Flop(pairs * (keys + values))};
    // Scores again, then gradients of scores, queries and keys, of probabilities and values.
    MemoryWork backward{
        .bytes = bytes * (is_again ? 3 : 2) + beside,
        .flop = Flop(pairs * (3 * keys + 2 * values) + (is_again ? pairs * (keys + values) : 0))};
    if (job_.flash) {
      forward.attention = {.tokens = std::max<std::int64_t>(1, std::llround(seen)),
                           .head_dim = (key_dim() + value_dim()) / 2,
                           .causal = model_.attention.causal,
                           .kernel = job_.attention};
      backward.attention = forward.attention;
      backward.attention->backward = true;
    }
    compute_.forward.emplace_back(forward);
    compute_.backward_input.emplace_back(backward);
    if (!job_.flash) again(forward);
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
    layer_norm(divided_tokens());
    {
      const Again scope(*this, RecomputedModule::Mlp);
      dense("mlp.", model_.inner);
    }
    residual();
    compute_.needed = before_product_.forward;
    if (!by_module())
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
    const std::int64_t held = e.count / layout_.ep;
    const std::int64_t inner = (e.inner + layout_.etp - 1) / layout_.etp;
    RoutedSize routed{.rows = own,
                      .chosen = sent,
                      .width = model_.width,
                      .inner = inner,
                      .held = held,
                      .element = element()};
    begin(name + ".gate", {sent, model_.width});
    take_named(".experts.", false);
    route(own, routed);
    if (e.shared_inner > 0 && !is_written_out()) {
      const Again scope(*this, RecomputedModule::SharedExperts);
      const Again whole(*this, RecomputedModule::Moe);
      dense("mlp.shared_experts.", e.shared_inner);
    }
    const Again whole(*this, RecomputedModule::Moe);
    module("mlp.dispatch");
    if (is_written_out()) {
      put(dispatch_lists(model_, routed));
    } else {  // in the order of their experts: each token is read once, backward its gradients are summed
      move_rows(own + sent, between());
    }
    std::vector<ParameterShape> shared;
    if (is_written_out()) shared = take_out(".shared_experts.");
    end();
    dispatch(name + ".dispatch", sent);
    const auto busiest =
        static_cast<std::int64_t>(static_cast<double>(sent * layout_.etp) * job_.expert_imbalance);
    const std::int64_t rows = std::max<std::int64_t>(1, busiest / held);
    begin(name + ".experts", {sent, model_.width});
    take_named(".experts.", true);
    const std::string experts = "mlp.experts.";
    takes_turns_ = false;
    // What comes from other ranks lies by rank, and goes by expert.
    const bool is_sorted = layout_.ep > 1 && held > 1 && !is_written_out();
    if (is_sorted) {
      module(experts + "sort");
      move_rows(2 * rows * held, between());
    }
    if (is_written_out()) {
      module(experts + "gate_up_proj", inner);
      product(rows, 2 * inner, model_.width, {.count = held});
      module(experts + "act", inner);
      routed.chosen = rows * held;
      put(between_experts_lists(model_, routed));
    } else {
      up_projection(experts, rows, inner, held);
      module(experts + "act", inner);
      const Again scope(*this, RecomputedModule::MoeAct);
      activate(rows * held * inner);
    }
    module(experts + "down_proj");
    product(rows, model_.width, inner, {.count = held, .input = activated()});
    if (is_sorted) move_rows(2 * rows * held, element());
    // What experts give is scaled before them (torchtitan) and kept by the all-to-all: nothing reads it again.
    if (!is_written_out() && !by_module()) compute_.again.resize(before_product_.again);
    takes_turns_ = true;
    end();
    dispatch(name + ".combine", sent);
    begin(name + ".sum", {divided_tokens(), model_.width});
    compute_.parameters = std::move(shared);
    routed.chosen = sent;
    sum_experts(own, routed);
    end();
  }
  // So many rows, read and written, of bytes an element; backward as many.
  void move_rows(std::int64_t rows, std::int64_t bytes) {
    forward(rows * model_.width, {{bytes, Access::Gathered}});
    backward(rows * model_.width, {{bytes, Access::Gathered}});
  }
  // Norm and router.
  void route(std::int64_t own, const RoutedSize& routed) {
    const Experts& e = *model_.experts;
    module("post_attention_layernorm");
    layer_norm(own);
    const Again scope(*this, RecomputedModule::Moe);
    operands_ = schedule::Operands::Own;  // the router's
    module("mlp.gate", e.count);
    if (is_written_out()) put(before_router_lists(model_, routed));
    takes_turns_ = false;
    product(own, e.count, model_.width, {.has_bias = e.biases && is_written_out()});
    takes_turns_ = true;
    if (is_written_out()) {
      put(router_lists(model_, routed));
      sum_gradients(own * model_.width, 1);
      if (model_.written.router.wide) compute_.dtype = schedule::DType::F32;
    }
    operands_ = job_.precision.products;
  }
  // What experts give, by token, with what the shared ones give, to what flows.
  void sum_experts(std::int64_t own, const RoutedSize& routed) {
    const Experts& e = *model_.experts;
    module("mlp.combine");
    if (!is_written_out()) {
      move_rows(own + routed.chosen, element());
      residual();
      if (!by_module()) compute_.again.clear();
      return;
    }
    const KernelLists combine = combine_lists(model_, routed);
    put(combine);
    compute_.needed = compute_.forward.size() - combine.after;
    if (e.shared_inner > 0) {
      dense("mlp.shared_experts.", e.shared_inner);
      compute_.needed = before_product_.forward;
      module("mlp.shared_experts.add");
      forward(own * model_.width, {{3 * between()}});
      sum_gradients(own * model_.width, 1);
    }
    residual();
  }
  // Of what this Compute reads the parameters that another one will.
  std::vector<ParameterShape> take_out(const std::string& word) {
    std::vector<ParameterShape> taken;
    std::erase_if(compute_.parameters, [&](const ParameterShape& parameter) {
      if (parameter.name.find(word) == std::string::npos) return false;
      taken.push_back(parameter);
      return true;
    });
    return taken;
  }

  void dispatch(const std::string& name, std::int64_t rows) {
    if (layout_.ep == 1) return;
    chain_.emplace_back(
        Travel{.name = name,
               .over = Over::ExpertParallel,
               .forward = Collective::AllToAll,
               .backward = Collective::AllToAll,
               .out = {rows, model_.width},
               .copies = job_.dispatch == Dispatch::AllToAll ? 1 : model_.experts->per_token});
  }

  const Job& job_;
  const Model& model_;
  const Layout& layout_;
  const std::vector<ParameterShape>& parameters_;
  std::int64_t layer_ = 0;
  bool is_in_layer_ = false;
  bool takes_turns_ = true;  // recompute=op keeps every second product
  int modules_again_ = 0;    // of recompute_modules, in which what is written lies
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
                     .backward_reads = compute.backward_reads,
                     .dtype = compute.dtype});
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

std::vector<Element> embedding_work(const Job& job, const std::vector<ParameterShape>& all) {
  return LayerWriter(job, all).embedding();
}
std::vector<Element> layer_work(const Job& job, const std::vector<ParameterShape>& all,
                                std::int64_t layer) {
  return LayerWriter(job, all).layer(layer);
}
std::vector<Element> head_work(const Job& job, const std::vector<ParameterShape>& all) {
  return LayerWriter(job, all).head();
}

namespace {

// Transformers' causal models: labels of the next token, and the word of each row; backward begins with a one.
void shift_labels(LossWork& work, std::int64_t rows, std::int64_t samples) {
  const auto kernel = [](std::int64_t bytes, Access access) {
    return MemoryWork{.bytes = Bytes(bytes), .flop = Flop(0), .access = access};
  };
  const auto begin = work.forward.begin();
  const auto at = work.forward.insert(begin, kernel(16 * rows + 8 * samples, Access::Filled));
  if (samples > 1) work.forward.insert(at + 1, kernel(16 * rows, Access::Any));
  work.forward.push_back(kernel(8 * rows + 16, Access::Any));
  work.backward.insert(work.backward.begin(), kernel(4, Access::Filled));
}

}  // namespace

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
    if (job.kernels != Kernels::Eager && !job.model.patches)
      shift_labels(work, rows, job.batch.micro);
    if (element == 4) return work;
    work.forward.insert(work.forward.begin(), pass(element + 4, Access::Widened));
    work.backward.push_back(pass(4 + element, Access::Plain));
    return work;
  }
  return {.forward = {pass(element + 4 + 2 * 4, Access::Plain)},
          .backward = {pass(4 + element, Access::Plain)}};
}

schedule::Work update_work(const Job& job, const std::vector<std::int64_t>& shape) {
  constexpr double kIterations = 5;
  // Passes of each operator over its tensor. Adam: decay, both moments (lerp; mul and addcmul), root, division by the bias, epsilon, the
  // step; momentum: decay, momentum, the step (torch/optim/adamw.py and sgd.py).
  static constexpr std::array<std::int64_t, 8> kAdam = {2, 3, 2, 3, 2, 2, 2, 4};
  static constexpr std::array<std::int64_t, 3> kMomentum = {2, 3, 3};
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  const std::int64_t gradient = schedule::element_size(job.precision.gradient).count();
  // Megatron's --clip-grad, 1.0 by itself: a norm reads gradients, a factor goes over them.
  const std::int64_t clipped = job.as == RunBy::Megatron ? 3 * gradient : 0;
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
  if (job.updates != Updates::Fused && job.optimizer != Optimizer::Muon) {
    const std::span<const std::int64_t> passes = job.optimizer == Optimizer::Adam
                                                     ? std::span<const std::int64_t>(kAdam)
                                                     : std::span<const std::int64_t>(kMomentum);
    const auto over = [&](std::int64_t count) {
      return MemoryWork{
          .bytes = Bytes(elements * count * std::max(gradient, job.precision.master_bytes)),
          .flop = Flop(0),
          .access = Access::Foreach};
    };
    if (job.updates == Updates::Foreach) {
      return over(std::accumulate(passes.begin(), passes.end(), std::int64_t{0}));
    }
    std::vector<schedule::Kernel> kernels;
    for (const std::int64_t count : passes) kernels.emplace_back(over(count));
    return schedule::KernelsWork{std::move(kernels)};
  }
  return MemoryWork{.bytes = Bytes(elements * (gradient + clipped + 2 * kept + written + read)),
                    .flop = Flop(flop),
                    .access = Access::Updated};
}

}  // namespace dovetail::jobs
