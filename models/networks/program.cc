// Plays the chain of a model's parts forward, then backwards, then updates.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/program.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/interruption.h"
#include "models/networks/adapters.h"
#include "models/networks/groups.h"
#include "models/networks/layer_work.h"
#include "models/networks/memory.h"
#include "models/networks/tensors.h"
#include "models/networks/text.h"
#include "schedule/visit.h"

namespace dovetail::jobs {
namespace {

using schedule::Collective;
using schedule::CollectiveWork;
using schedule::Kernel;
using schedule::KernelsWork;
using schedule::Op;
using schedule::Phase;
using schedule::Purpose;
using schedule::TensorKind;

// An element of the chain with what it took and gave.
struct Played {
  Element element;
  std::int32_t stage = 0;
  TensorId in = {}, out = {};
  std::optional<TensorId> beside = std::nullopt;  // of a ring: what attention gave so far
  std::vector<TensorId> parameters = {};
  Recompute recompute = Recompute::None;  // its layer whole (Full), or by op
};

class ProgramWriter {
 public:
  ProgramWriter(const Job& job, Grain grain) : job_(job), grain_(grain), groups_(groups_of(job)) {}

  schedule::Program run() && {
    program_.name = to_string(job_);
    program_.world_size = job_.layout.world();
    program_.stages = static_cast<std::int32_t>(job_.layout.pp);
    program_.stage_map = schedule::stage_map_of(job_.layout.order);
    program_.groups = groups_.all;
    forward();
    backward();
    if (job_.model.tied && job_.layout.pp > 1 && job_.lora == 0) add_tied_gradients();
    update();
    if (job_.graph) {
      for (Op& op : program_.ops) op.issue = Duration{};
      program_.bucket_call = Duration{};
    }
    return std::move(program_);
  }

 private:
  [[nodiscard]] std::int32_t last_stage() const {
    return static_cast<std::int32_t>(job_.layout.pp * job_.layout.vp) - 1;
  }

  [[nodiscard]] std::int32_t role_of(std::int32_t stage) const {
    return schedule::role_of_stage(program_.stage_map, program_.stages, stage);
  }

  TensorId add_tensor(const std::string& name, TensorKind kind, schedule::DType dtype,
                      std::vector<std::int64_t> shape) {
    const TensorId id{static_cast<std::int32_t>(program_.tensors.size())};
    program_.tensors.push_back(
        {.id = id, .name = name, .kind = kind, .dtype = dtype, .shape = std::move(shape)});
    return id;
  }
  TensorId activation(const std::string& name, const std::vector<std::int64_t>& shape) {
    return add_tensor(name, TensorKind::Activation, job_.precision.compute, shape);
  }
  TensorId like(const std::string& name, TensorId other) {
    const schedule::Tensor& same = program_.tensor(other);
    return add_tensor(name, TensorKind::Activation, same.dtype, std::vector(same.shape));
  }
  // Keys and values have the type of products, not that of what flows between blocks.
  TensorId arrival(const std::string& name, const Travel& travel) {
    const TensorId id = activation(name, travel.out);
    if (travel.over == Over::ContextParallel)
      program_.tensors.back().dtype = job_.precision.product();
    return id;
  }

  Op& add_op(const std::string& name, Phase phase, std::int32_t stage, schedule::Work work,
             std::vector<TensorId> reads, std::vector<TensorId> writes) {
    const OpId id{static_cast<std::int32_t>(program_.ops.size())};
    const bool travels = std::holds_alternative<CollectiveWork>(work);
    program_.ops.push_back({.id = id,
                            .name = name,
                            .phase = phase,
                            .dtype = travels ? job_.precision.compute : job_.precision.product(),
                            .work = std::move(work),
                            .reads = std::move(reads),
                            .writes = std::move(writes),
                            .stage = stage});
    return program_.ops.back();
  }

  [[nodiscard]] schedule::DType dtype_of(const Compute& compute) const {
    return compute.dtype.value_or(job_.precision.product());
  }

  static schedule::Work kernels(std::vector<Kernel> list) {
    if (list.size() > 1) return KernelsWork{std::move(list)};
    return std::visit([](const auto& work) { return schedule::Work(work); }, list.front());
  }

  [[nodiscard]] CollectiveWork message(Collective kind, const Travel& travel, TensorId one,
                                       TensorId other) const {
    static constexpr std::array kPurposes = {Purpose::TensorParallel, Purpose::ContextParallel,
                                             Purpose::ExpertParallel};
    const Bytes bytes = std::max(program_.tensor(one).bytes(), program_.tensor(other).bytes());
    return {.kind = kind,
            .group = groups_.over(travel.over),
            .bytes = bytes,
            .purpose = kPurposes[static_cast<std::size_t>(travel.over)],
            .copies = travel.copies};
  }

  // Forward.
  void forward() {
    const std::vector<ParameterShape> all = job_parameters(job_);
    play(embedding_work(job_, all), 0, Recompute::None);
    for (std::int64_t layer = 0; layer < job_.model.layers; ++layer) {
      play(layer_work(job_, all, layer), static_cast<std::int32_t>(stage_of_layer(job_, layer)),
           is_recomputed(job_, layer)                                    ? Recompute::Full
           : job_.recompute == Recompute::Op || recomputes_modules(job_) ? Recompute::Op
                                                                         : Recompute::None);
    }
    play(head_work(job_, all), last_stage(), Recompute::None);
    const LossWork loss = loss_work(job_);
    add_op("loss.forward", Phase::Forward, last_stage(), kernels(loss.forward), {flowing_},
           {activation("loss.out", {1})});
  }

  static std::vector<Element> in_modules(const std::vector<Element>& chain) {
    std::vector<Element> finer;
    for (const Element& element : chain) {
      schedule::visit(
          element,
          [&](const Compute& compute) {
            std::ranges::move(modules_of(compute), std::back_inserter(finer));
          },
          [&](const auto& travel) { finer.emplace_back(travel); });
    }
    return finer;
  }

  void play(std::vector<Element> chain, std::int32_t stage, Recompute recompute) {
    throw_if_interrupted();
    if (grain_ == Grain::Modules) chain = in_modules(chain);
    for (Element& element : chain) {
      Played played{
          .element = std::move(element), .stage = stage, .in = flowing_, .recompute = recompute};
      schedule::visit(
          played.element, [&](const Compute& compute) { play_compute(compute, played); },
          [&](const Travel& travel) { play_travel(travel, played); },
          [&](const Ring& ring) { go_around(ring, played, ".forward", Phase::Forward); });
      flowing_ = played.out;
      has_input_ = true;
      played_.push_back(std::move(played));
    }
  }

  void play_compute(const Compute& compute, Played& played) {
    played.out = activation(compute.name + ".out", compute.out);
    for (const ParameterShape& parameter : compute.parameters) {
      played.parameters.push_back(parameter_of(parameter, played.stage));
    }
    std::vector<TensorId> reads;
    if (has_input_) reads.push_back(played.in);
    if (!played_.empty() && played_.back().beside) reads.push_back(*played_.back().beside);
    reads.insert(reads.end(), played.parameters.begin(), played.parameters.end());
    std::vector<Kernel> all = compute.on_gather;
    all.insert(all.end(), compute.forward.begin(), compute.forward.end());
    add_op(compute.name + ".forward", Phase::Forward, played.stage, kernels(std::move(all)),
           std::move(reads), {played.out})
        .dtype = dtype_of(compute);
  }

  void play_travel(const Travel& travel, Played& played) {
    if (!travel.forward) {
      played.out = played.in;
      return;
    }
    played.out = arrival(travel.name + ".out", travel);
    add_op(travel.name, Phase::Forward, played.stage,
           message(*travel.forward, travel, played.in, played.out), {played.in}, {played.out});
  }

  // An exchange with both neighbors of so many of a rank's tensors, at the pace of an all-gather's ring, which brings cp - 1.
  [[nodiscard]] CollectiveWork exchange(TensorId one, std::int64_t count) const {
    const std::int64_t cp = job_.layout.cp;
    return {.kind = Collective::AllGather,
            .group = groups_.context,
            .bytes = Bytes(program_.tensor(one).bytes().count() * count * cp / (cp - 1)),
            .purpose = Purpose::ContextParallel};
  }

  TensorId keys_and_values(const std::string& name, const Ring& ring) {
    return add_tensor(name, TensorKind::Activation, job_.precision.product(),
                      std::vector(ring.out));
  }

  // Forward, first or once more: each exchange beside attention to what came before.
  void go_around(const Ring& ring, Played& played, const std::string& pass, Phase phase) {
    TensorId here = played.in;
    std::optional<TensorId> result;
    for (std::size_t i = 0; i < ring.forward.size(); ++i) {
      const std::string name = ring.name + "." + std::to_string(i);
      const TensorId next = keys_and_values(name + pass + ".out", ring);
      std::vector<TensorId> reads{here};
      add_op(name + pass, phase, played.stage, exchange(next, 1), {here}, {next});
      const TensorId joined = activation(name + pass + ".attention.out", ring.result);
      if (result) reads.push_back(*result);
      add_op(name + pass + ".attention", phase, played.stage, kernels(ring.forward[i]),
             std::move(reads), {joined});
      result = joined;
      here = next;
    }
    played.out = here;
    played.beside = result;
  }

  // Backward: keys and values once more, and behind the first attention their gradients, all the way home.
  void go_around_back(const Ring& ring, const Played& played) {
    const std::size_t last = ring.backward.size() - 1;
    const TensorId arriving = flowing_;
    TensorId here = played.out;
    for (std::size_t i = 0; i <= last; ++i) {
      const std::string name = ring.name + "." + std::to_string(i) + ".backward";
      const TensorId next = keys_and_values(name + ".out", ring);
      const TensorId gradient = like(name + ".attention.out", played.in);
      std::vector<TensorId> sent{here}, reads{arriving, here};
      if (i == 0) sent.push_back(arriving);
      if (beside_grad_) sent.push_back(*beside_grad_), reads.push_back(*beside_grad_);
      add_op(name, Phase::Backward, played.stage, exchange(next, i == 0 || i == last ? 1 : 2),
             std::move(sent), {next});
      add_op(name + ".attention", Phase::Backward, played.stage, kernels(ring.backward[i]),
             std::move(reads), {gradient});
      beside_grad_ = gradient;
      here = next;
    }
    flowing_ = here;
  }

  // A tied embedding in another stage is a tensor of its own.
  TensorId parameter_of(const ParameterShape& parameter, std::int32_t stage) {
    const std::int32_t role = role_of(stage);
    const auto [known, is_new] = parameters_.try_emplace({parameter.name, role}, TensorId{});
    if (!is_new) return known->second;
    const bool is_copy = std::ranges::any_of(parameters_, [&](const auto& entry) {
      return entry.first.first == parameter.name && entry.first.second != role;
    });
    const Layout& l = job_.layout;
    const std::string name = is_copy ? "lm_head.tied.weight" : parameter.name;
    const TensorId id = add_tensor(name, TensorKind::Parameter, job_.precision.compute,
                                   local_shape(parameter, l.tp, l.ep, l.etp));
    known->second = id;
    is_expert_[id] = parameter.expert;
    is_trained_[id] = parameter.trained;
    return id;
  }

  // Backward.
  void backward() {
    const TensorId gradient = like("loss.grad", flowing_);
    add_op("loss.backward", Phase::Backward, last_stage(), kernels(loss_work(job_).backward),
           {flowing_}, {gradient})
        .effect = schedule::FillLossGradient{Rational(1)};
    flowing_ = gradient;
    while (first_trained_ < played_.size() && !trains(played_[first_trained_])) ++first_trained_;
    for (std::size_t i = played_.size(); i-- > first_trained_;) {
      recompute_before(i);
      const Played& played = played_[i];
      if (const auto* travel = std::get_if<Travel>(&played.element)) {
        undo_travel(*travel, played);
      } else if (const auto* ring = std::get_if<Ring>(&played.element)) {
        go_around_back(*ring, played);
      } else {
        i = undo_compute(i);
      }
    }
  }

  [[nodiscard]] bool trains(const Played& played) const {
    return std::ranges::any_of(played.parameters, [&](TensorId id) { return is_trained_.at(id); });
  }

  // Where a recomputed layer ends: its forward once more, whole or what was not kept of it.
  void recompute_before(std::size_t end) {
    const auto layer = [&](std::size_t i) { return layer_name(played_[i].element); };
    if (played_[end].recompute == Recompute::None) return;
    const bool is_whole = played_[end].recompute == Recompute::Full;
    if (end + 1 < played_.size() && layer(end + 1) == layer(end)) return;
    std::size_t first = end;
    while (first > 0 && layer(first - 1) == layer(end)) --first;
    TensorId flowing = played_[first].in;
    bool is_first = true;
    const auto inputs = [&] {
      std::vector<TensorId> reads{flowing};
      if (std::exchange(is_first, false))
        reads.push_back(flowing_);  // not before its gradient has come
      return reads;
    };
    for (std::size_t i = first; i <= end; ++i) {
      Played& played = played_[i];
      played.in = flowing;
      schedule::visit(
          played.element,
          [&](const Compute& compute) {
            std::vector<Kernel> again = is_whole ? compute.forward : compute.again;
            // PyTorch's checkpoint stops behind what was saved last; Megatron's own goes through.
            if (is_whole && compute.needed && job_.as != RunBy::Megatron)
              again.resize(*compute.needed);
            if (again.empty()) {
              flowing = played.out;
              return;
            }
            std::vector<TensorId> reads = inputs();
            flowing = activation(compute.name + ".again", compute.out);
            if (i > first && played_[i - 1].beside) reads.push_back(*played_[i - 1].beside);
            reads.insert(reads.end(), played.parameters.begin(), played.parameters.end());
            add_op(compute.name + ".recompute", Phase::Backward, played.stage,
                   kernels(std::move(again)), std::move(reads), {flowing})
                .dtype = dtype_of(compute);
          },
          [&](const Travel& travel) {
            if (!travel.forward) return;
            const bool is_again =
                recomputes_modules(job_)
                    ? travel.over == Over::ExpertParallel && recomputes(job_, RecomputedModule::Moe)
                    : travel.over == Over::TensorParallel &&
                          *travel.forward != Collective::ReduceScatter;
            const bool is_kept = !is_whole && !is_again;
            if (is_kept) {
              flowing = played.out;
              return;
            }
            std::vector<TensorId> reads = inputs();
            const TensorId out = arrival(travel.name + ".again", travel);
            add_op(travel.name + ".recompute", Phase::Backward, played.stage,
                   message(*travel.forward, travel, flowing, out), std::move(reads), {out});
            flowing = out;
          },
          [&](const Ring& ring) {
            if (is_whole) go_around(ring, played, ".recompute", Phase::Backward);
            flowing = played.out;
          });
      played.out = flowing;
    }
  }

  static std::string layer_name(const Element& element) {
    const std::string& name =
        std::visit([](const auto& part) -> const std::string& { return part.name; }, element);
    const std::size_t number = std::string_view("model.layers.").size();
    return name.starts_with("model.layers.") ? name.substr(0, name.find('.', number)) : name;
  }

  void undo_travel(const Travel& travel, const Played& played) {
    if (!travel.backward) return;
    const TensorId back = like(travel.name + ".grad", played.in);
    add_op(travel.name + ".backward", Phase::Backward, played.stage,
           message(*travel.backward, travel, flowing_, back), {flowing_}, {back});
    flowing_ = back;
  }

  // The gradient of the input first, then what undoes the message before it, then those of the weights, which need
  // not wait for that; in one op where nothing comes between. In front of the first weight that trains no gradient is
  // wanted. Returns the first element that was undone.
  std::size_t undo_compute(std::size_t at) {
    const Played& played = played_[at];
    const Compute& compute = std::get<Compute>(played.element);
    const TensorId arriving = flowing_;
    const auto* before = at == 0 ? nullptr : std::get_if<Travel>(&played_[at - 1].element);
    if (before != nullptr && !before->backward) before = nullptr;
    const bool is_first = at == first_trained_;
    const bool has_both = !compute.backward_input.empty() && !compute.backward_weight.empty();
    const bool is_split =
        !is_first && has_both && (before != nullptr || splits_backward(job_.layout.order));
    TensorId input = played.in;
    if (is_first && before != nullptr && before->again_for_weights) input = gather_again(at - 1);
    std::vector<TensorId> reads{arriving};
    if (at > 0) reads.push_back(input);
    if (at > 0 && played_[at - 1].beside) reads.push_back(*played_[at - 1].beside);
    if (beside_grad_) reads.push_back(*std::exchange(beside_grad_, std::nullopt));
    if (compute.backward_reads)
      reads.insert(reads.end(), played.parameters.begin(), played.parameters.end());
    std::vector<Kernel> gathering;
    if (compute.is_gathered_again) gathering = compute.on_gather;
    if (!is_split) {
      std::vector<Kernel> all = std::move(gathering);
      all.insert(all.end(), compute.backward_input.begin(), compute.backward_input.end());
      all.insert(all.end(), compute.backward_weight.begin(), compute.backward_weight.end());
      if (all.empty()) all = compute.forward;  // an embedding: its rows are added up
      std::vector<TensorId> writes = write_gradients(played, reads);
      if (!is_first) {
        flowing_ = like(compute.name + ".grad", played.in);
        writes.insert(writes.begin(), flowing_);
      }
      add_op(compute.name + ".backward", Phase::Backward, played.stage, kernels(std::move(all)),
             std::move(reads), std::move(writes))
          .dtype = dtype_of(compute);
      return at;
    }
    if (before != nullptr && before->again_for_weights) input = gather_again(at - 1);
    flowing_ = like(compute.name + ".grad", played.in);
    gathering.insert(gathering.end(), compute.backward_input.begin(), compute.backward_input.end());
    add_op(compute.name + ".backward.input", Phase::Backward, played.stage,
           kernels(std::move(gathering)), reads, {flowing_})
        .dtype = dtype_of(compute);
    if (before != nullptr) undo_travel(*before, played_[at - 1]);
    std::vector<TensorId> weight_reads{arriving, input};
    std::vector<TensorId> writes = write_gradients(played, weight_reads);
    add_op(compute.name + ".backward.weight", Phase::Backward, played.stage,
           kernels(compute.backward_weight), std::move(weight_reads), std::move(writes))
        .dtype = dtype_of(compute);
    return before != nullptr ? at - 1 : at;
  }

  // What the message at this element brought forward, once more.
  TensorId gather_again(std::size_t at) {
    const Played& gather = played_[at];
    const Travel& travel = std::get<Travel>(gather.element);
    const TensorId again = like(travel.name + ".again.out", gather.out);
    add_op(travel.name + ".again", Phase::Backward, gather.stage,
           message(*travel.forward, travel, gather.in, gather.out), {gather.in, flowing_}, {again});
    return again;
  }

  // The gradients of its parameters that train; one that another op wrote before is added to.
  std::vector<TensorId> write_gradients(const Played& played, std::vector<TensorId>& reads) {
    std::vector<TensorId> written;
    for (auto at = played.parameters.rbegin(); at != played.parameters.rend(); ++at) {
      if (!is_trained_.at(*at)) continue;
      const schedule::Tensor& parameter = program_.tensor(*at);
      const auto [known, is_new] = gradients_.try_emplace(*at, TensorId{});
      if (is_new) {
        known->second = add_tensor(parameter.name + ".grad", TensorKind::Gradient,
                                   job_.precision.reduce, std::vector(parameter.shape));
      } else {
        reads.push_back(known->second);
        std::erase(ready_, *at);
      }
      ready_.push_back(*at);
      written.push_back(known->second);
    }
    return written;
  }

  // Behind all of backward: the other stage comes late.
  void add_tied_gradients() {
    const std::string name = model_parameters(job_.model).front().name;
    for (const std::int32_t stage : {0, last_stage()}) {
      const TensorId parameter = parameters_.at({name, role_of(stage)});
      const schedule::Tensor& gradient = program_.tensor(gradients_.at(parameter));
      const CollectiveWork sum{.kind = Collective::AllReduce,
                               .group = groups_.tied,
                               .bytes = gradient.bytes(),
                               .purpose = Purpose::TiedWeights};
      Op& op = add_op(gradient.name + ".tied", Phase::Backward, stage, sum, {gradient.id},
                      {gradient.id});
      op.dtype = gradient.dtype;
      std::erase(ready_, parameter);
      ready_.push_back(parameter);
    }
  }

  void update() {
    std::map<TensorId, std::int32_t> home;
    for (const Played& played : played_) {
      for (const TensorId id : played.parameters) home.emplace(id, played.stage);
    }
    for (const TensorId id : ready_) {
      const TensorId gradient = gradients_.at(id);
      const std::string name = program_.tensor(id).name + ".update";
      Op& op = add_op(name, Phase::Optimizer, home.at(id),
                      update_work(job_, program_.tensor(id).shape), {gradient, id}, {id});
      const bool is_muon = job_.optimizer == Optimizer::Muon;
      // Newton-Schulz iterates in bf16 (torch.optim.Muon, and the code that it came from).
      op.dtype = is_muon ? schedule::DType::BF16 : job_.precision.gradient;
      op.effect = schedule::Update{.elementwise = !is_muon};
      for (const GroupId group : is_expert_.at(id) ? groups_.of_experts : groups_.of_dense) {
        // Experts of which no other rank has a copy, beside layers that have one.
        if (has_copies(job_) && job_.wrap == Wrap::Auto && program_.group(group).size() == 1)
          continue;
        program_.reductions.push_back({.gradient = gradient, .group = group});
      }
    }
  }

  const Job& job_;
  Grain grain_;
  Groups groups_;
  schedule::Program program_;
  std::vector<Played> played_;
  TensorId flowing_;  // the activation, then the gradient, that the next element takes
  bool has_input_ = false;
  std::optional<TensorId> beside_grad_;  // of a ring: what attention's backward gave so far
  std::map<std::pair<std::string, std::int32_t>, TensorId> parameters_;  // by name and role
  std::map<TensorId, bool> is_expert_, is_trained_;
  std::size_t first_trained_ = 0;  // of played_
  std::map<TensorId, TensorId> gradients_;
  std::vector<TensorId> ready_;  // parameters, by the last write of their gradient
};

void multiply_in_tf32(schedule::Work& work) {
  const auto mark = [](auto& kernel) {
    if constexpr (std::is_same_v<decltype(kernel), schedule::GemmWork&>)
      kernel.operands = schedule::Operands::Tf32;
  };
  if (auto* several = std::get_if<KernelsWork>(&work)) {
    for (Kernel& kernel : several->kernels.edit()) std::visit(mark, kernel);
  } else {
    std::visit(mark, work);
  }
}

}  // namespace

namespace {

// What of kernels=transformers and =layers is held to no list that PyTorch dispatches (tests/models/networks/families_test.cc).
void note_kernels(const Job& job, std::vector<std::string>& notes) {
  const Model& m = job.model;
  if (job.kernels == Kernels::Layers && m.experts) {
    notes.emplace_back(
        "kernels=layers: what torch.compile makes of routers and experts is counted as fused, and "
        "held to no list of kernels");
  }
  if (job.kernels != Kernels::Transformers) return;
  if (m.patches || (m.positions > 0 && !m.joined_qkv)) {
    notes.push_back("kernels=transformers: " + m.name +
                    " is no model of transformers; its kernels are held to no list");
  }
  if (writes_scores(job)) {
    notes.emplace_back(
        "kernels=transformers: attention with sinks is in operators (flash=no), as transformers "
        "has "
        "it where attn_implementation does not say otherwise");
  } else if (!job.flash) {
    notes.emplace_back(
        "flash=no: attention's scores are one kernel each way, not the operators of transformers");
  }
  if (m.experts && job.precision.autocast != Autocast::No) {
    notes.emplace_back(
        "autocast: casts of routers and experts are held to no list of kernels, those of their "
        "products alone are counted");
  }
  if (m.experts && job.layout.ep > 1) {
    notes.emplace_back(
        "kernels=transformers: with ep, what a rank does to sort the tokens of others is left out");
  }
  if (m.written.dropout) notes.emplace_back("dropout: its kernels are left out");
}

}  // namespace

std::vector<std::string> notes_on(const Job& job) {
  std::vector<std::string> notes;
  for (const Assumed& one : job.assumed) notes.push_back(to_string(one));
  notes.insert(notes.end(), job.notes.begin(), job.notes.end());
  const std::string dtype(to_string(job.precision.compute));
  if (job.precision.products != schedule::Operands::Own &&
      job.precision.products != schedule::Operands::Tf32) {
    const std::string products(to_string(job.precision.products));
    notes.push_back("products=" + products + ": of layers' products with weights; " +
                    (memory_rules(job).narrow_inputs
                         ? "what goes into them is kept so, parameters are"
                         : "activations are kept and parameters") +
                    " gathered in " + dtype);
  }
  if (job.precision.product() == schedule::DType::F32 &&
      job.precision.products == schedule::Operands::Own) {
    notes.emplace_back(
        "dtype=f32: products do not use tensor cores, as PyTorch has it by itself; products=tf32 "
        "where torch.set_float32_matmul_precision(\"high\") was called");
  }
  if (job.precision.autocast == Autocast::F16)
    notes.emplace_back(
        "autocast=f16: what scales gradients and looks for infinite ones is left out");
  if (job.layout.cp > 1 && job.exchange == ContextExchange::Ring && !has_ring(job)) {
    notes.emplace_back(
        "exchange=ring: with windows or without a fused kernel counted as a gather of keys and "
        "values before attention");
  }
  note_kernels(job, notes);
  if (job.model.experts && job.model.experts->shared_inner > 0 && job.layout.tp > 1) {
    notes.emplace_back("shared experts: what they gather and scatter over tp is left out");
  }
  if (job.lora > 0 && job.layout.tp > 1) {
    notes.emplace_back("lora: sums over tp of what is rank wide are left out");
  }
  return notes;
}

schedule::Program program_of(const Job& job, Grain grain) {
  if (job.precision.products != schedule::Operands::Tf32) return ProgramWriter(job, grain).run();
  Job full = job;
  full.precision.products = schedule::Operands::Own;
  schedule::Program program = ProgramWriter(full, grain).run();
  for (schedule::Op& op : program.ops) multiply_in_tf32(op.work);
  return program;
}

}  // namespace dovetail::jobs
