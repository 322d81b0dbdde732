// Prices the blocks of a model once per layout, and puts steps together from their sums.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_sketch.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <ranges>
#include <utility>

#include "models/networks/decisions.h"
#include "models/networks/groups.h"
#include "models/networks/program.h"
#include "schedule/id_table.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/lower/pipeline/weights.h"

namespace dovetail::predict {
namespace {

using schedule::Collective;
using schedule::Pass;

double as_double(Bytes bytes) { return static_cast<double>(bytes.count()); }
double as_ns(Duration time) { return static_cast<double>(time.count()); }

// Nanoseconds.
struct PassTime {
  double least = 0, about = 0;
  PassTime& operator+=(const PassTime& other) {
    least += other.least;
    about += other.about;
    return *this;
  }
};

struct BlockTime {
  PassTime forward, backward, weights;
  PassTime gather, reduce;  // of its parameters and their gradients, where Zero 3 divides them
  double split = 0, chunk = 0;  // copies of what was gathered, and before it is reduced
  double update = 0;            // of all of its parameters
  BlockTime& operator+=(const BlockTime& other) {
    forward += other.forward;
    backward += other.backward;
    weights += other.weights;
    gather += other.gather;
    reduce += other.reduce;
    split += other.split;
    chunk += other.chunk;
    update += other.update;
    return *this;
  }
  [[nodiscard]] PassTime all() const {
    PassTime sum = forward;
    sum += backward;
    sum += weights;
    return sum;
  }
};

}  // namespace

struct JobSketcher::Blocks {
  BlockTime embedding, head;
  std::vector<BlockTime> layers;  // of each kind
  double tied = 0;                // the sum of tied weights' gradients
  models::Costs costs;
  jobs::Groups groups;
  jobs::BlockWeights weights;     // [kind]

  // Nothing where the group has one rank or there are no bytes.
  [[nodiscard]] PassTime collective(Collective kind, GroupId group, double bytes) const {
    const schedule::ProcessGroup& ranks = groups.all[static_cast<std::size_t>(group.value)];
    if (ranks.size() <= 1 || bytes < 1) return {};
    const models::CollectiveTime time = costs.collective(kind, ranks, Bytes(std::llround(bytes)));
    return {as_ns(std::min(time.isolated, time.back_to_back)), as_ns(time.isolated)};
  }
  void divide(const jobs::Job& job);
  // What reductions and gathers of whole buckets take that nothing runs beside: what is longer than its window, and one bucket.
  [[nodiscard]] double beside_update(const jobs::Job& job, const jobs::Held& held,
                                     const BlockTime& role, bool is_first) const;
  // Of parameters that lie over a group and over the replicas of its shards, `each` bytes an element.
  [[nodiscard]] PassTime over(Collective kind, const jobs::Held& held, double each) const {
    PassTime time = collective(kind, groups.of_dense.front(), held.dense * each);
    time += collective(kind, groups.of_experts.front(), held.experts * each);
    if (kind == Collective::AllGather || groups.of_dense.size() < 2) return time;
    const auto shard = [&](GroupId group, double elements) {
      const auto size = groups.all[static_cast<std::size_t>(group.value)].size();
      return elements * each / static_cast<double>(std::max<std::int64_t>(1, size));
    };
    const double parts = shard(groups.of_dense.front(), held.dense) +
                         shard(groups.of_experts.front(), held.experts);
    time += collective(Collective::AllReduce, groups.of_dense.back(), parts);
    return time;
  }
};

// The passes of a few micro-batches in an order in which each stands behind what it waits for.
struct JobSketcher::Order {
  struct Step {
    std::int32_t role = 0, stage = 0;
    Pass pass = Pass::Forward;
    std::int32_t after = -1;  // the step of another role or stage that it waits for
  };
  std::vector<Step> steps;
  std::int64_t micro_batches = 0;
};

namespace {

// What compute loses of the time in which a collective runs beside it, of multiprocessors or as it was measured.
double lost_beside(const models::Costs& costs) {
  const models::Contention contention = costs.contention(Rank{0});
  if (const auto& gpu = contention.multiprocessors)
    return static_cast<double>(gpu->ctas) / static_cast<double>(gpu->count);
  return 1 - 1 / contention.compute_slowdown;
}

// Sums up the ops of a Program in which each block is a virtual stage of its own.
class BlockClock {
 public:
  BlockClock(const schedule::Program& program, const models::Costs& costs, const jobs::Job& job)
      : program_(program), costs_(costs), is_async_(job.async_tp && job.layout.tp > 1) {
    if (!schedule::splits_backward(job.layout.order)) return;
    schedule::IdTable<TensorId, char> shared{0};
    for (const schedule::Tensor& tensor : program.tensors) {
      if (tensor.kind != schedule::TensorKind::Activation) shared[tensor.id] = 1;
    }
    is_weight_work_ = schedule::find_weight_work(program, shared);
  }

  [[nodiscard]] std::vector<BlockTime> run() {
    std::vector<std::array<Counted, 3>> passes(static_cast<std::size_t>(program_.stages));
    std::vector<double> updates(passes.size());
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const schedule::Op& op = program_.ops[i];
      const auto stage = static_cast<std::size_t>(op.stage);
      if (op.phase == schedule::Phase::Optimizer) {
        updates[stage] += as_ns(costs_.op(op, Rank{0}));
      } else if (schedule::is_repeated(op)) {
        count(op, passes[stage][static_cast<std::size_t>(pass_of(i))]);
      }
    }
    std::vector<BlockTime> blocks;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const auto& [forward, backward, weights] = passes[i];
      blocks.push_back({.forward = done(forward),
                        .backward = done(backward),
                        .weights = done(weights),
                        .gather = {},
                        .reduce = {},
                        .update = updates[i]});
    }
    return blocks;
  }

 private:
  struct Counted {
    PassTime line, compute;  // all in a row; what computes alone
    double longest = 0;      // way through it
    double host = 0;
  };

  [[nodiscard]] Pass pass_of(std::size_t op) const {
    if (program_.ops[op].phase == schedule::Phase::Forward) return Pass::Forward;
    return !is_weight_work_.empty() && is_weight_work_[op] != 0 ? Pass::Weights : Pass::Backward;
  }

  void count(const schedule::Op& op, Counted& pass) {
    PassTime time;
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work != nullptr) {
      const schedule::ProcessGroup& group = program_.group(work->group);
      if (group.size() > 1) {
        const models::CollectiveTime takes = costs_.collective(work->kind, group, work->bytes);
        time = {as_ns(std::min(takes.isolated, takes.back_to_back)), as_ns(takes.isolated)};
      }
      pass.host += as_ns(costs_.host.collective);
    } else {
      time.least = time.about = as_ns(costs_.op(op, Rank{0}));
      for (std::int32_t rank = 1; rank < costs_.distinct_ranks; ++rank)
        time.least = std::min(time.least, as_ns(costs_.op(op, Rank{rank})));
      time.about += as_ns(costs_.host.launch_gap);
      pass.host += as_ns(costs_.issue(op));
      pass.compute += time;
    }
    pass.line += time;
    double ready = 0;
    for (const TensorId tensor : op.reads) {
      const At* const made = &made_[tensor];
      if (made->pass == &pass) ready = std::max(ready, made->end);
    }
    for (const TensorId tensor : op.writes) {
      if (program_.tensor(tensor).kind == schedule::TensorKind::Activation)
        made_[tensor] = {&pass, ready + time.least};
    }
    pass.longest = std::max(pass.longest, ready + time.least);
  }

  [[nodiscard]] PassTime done(const Counted& pass) const {
    PassTime time = pass.line;
    if (is_async_) {
      const double longest = std::max(pass.longest, pass.compute.least);
      const double beside = pass.line.about - pass.compute.about;
      time = {longest,
              longest + pass.compute.about - pass.compute.least + lost_beside(costs_) * beside};
    }
    if (costs_.host.kind == models::HostModel::Kind::Async) time.about = std::max(time.about, pass.host);
    return time;
  }

  struct At {
    const Counted* pass = nullptr;
    double end = 0;
  };

  const schedule::Program& program_;
  const models::Costs& costs_;
  bool is_async_;
  std::vector<char> is_weight_work_;
  schedule::IdTable<TensorId, At> made_;
};

}  // namespace

JobSketcher::JobSketcher(const jobs::Job& like, const models::Cluster& cluster) : cluster_(cluster) {
  std::map<std::pair<bool, bool>, std::int32_t> known;
  for (std::int64_t layer = 0; layer < like.model.layers; ++layer) {
    const auto kind = std::pair(has_experts(like.model, layer), is_windowed(like.model, layer));
    const auto [at, is_new] = known.emplace(kind, static_cast<std::int32_t>(known.size()));
    if (is_new) first_of_kind_.push_back(layer);
    kind_of_layer_.push_back(at->second);
  }
}
JobSketcher::~JobSketcher() = default;

std::shared_ptr<const jobs::BlockWeights> JobSketcher::weights_of(const jobs::Job& job) {
  const std::array<std::int64_t, 3> key = {job.layout.tp, job.layout.ep, job.layout.etp};
  {
    const std::scoped_lock lock(looking_);
    if (const auto known = weights_.find(key); known != weights_.end()) return known->second;
  }
  auto made = std::make_shared<const jobs::BlockWeights>(jobs::block_weights(job));
  const std::scoped_lock lock(looking_);
  return weights_.emplace(key, std::move(made)).first->second;
}

std::vector<jobs::StageMemory> JobSketcher::memory_of(const jobs::Job& job,
                                                      const jobs::MemoryRules& rules) {
  return jobs::memory_of(job, rules, *weights_of(job));
}

// A job of the first layer of each kind, each block a virtual stage of its own.
std::shared_ptr<const JobSketcher::Blocks> JobSketcher::blocks_of(const jobs::Job& job,
                                                                  jobs::Recompute again) {
  const jobs::Layout& l = job.layout;
  const bool is_divided = job.zero == jobs::Zero::Parameters;
  const bool splits = schedule::splits_backward(l.order);
  const Key key = {l.tp, l.cp, l.ep, l.etp, l.dp, l.dp_shard, l.sp ? 1 : 0,
                   job.batch.micro, job.batch.sequence, static_cast<std::int64_t>(again), is_divided ? 1 : 0,
                   splits ? 1 : 0, job.async_tp ? 1 : 0, job.reshard ? 1 : 0, static_cast<std::int64_t>(job.as),
                   static_cast<std::int64_t>(job.exchange)};
  {
    const std::scoped_lock lock(looking_);
    if (const auto known = blocks_.find(key); known != blocks_.end()) return known->second;
  }
  jobs::Job probe = job;
  const std::int64_t layers = first_of_kind_.back() + 1;
  probe.model.layers = layers;
  probe.layout.pp = layers + 2;
  probe.layout.vp = 1;
  probe.layout.order = splits ? schedule::PipelineKind::ZeroBubble : schedule::PipelineKind::OneFOneB;
  probe.layout.layers.assign(static_cast<std::size_t>(layers) + 2, 1);
  probe.layout.layers.front() = probe.layout.layers.back() = 0;
  probe.batch.global = probe.batch.micro * l.replicas();
  probe.recompute = again;
  probe.recompute_layers = 0;
  if (!is_divided) probe.zero = jobs::Zero::Nothing;
  schedule::Program program = jobs::program_of(probe);
  program.world_size = l.world();  // of which costs know how far ranks are apart
  auto made = std::make_shared<Blocks>();
  made->costs = models::costs_for(cluster_, program);
  made->groups = jobs::groups_of(probe);
  const jobs::BlockWeights weights = jobs::block_weights(probe);
  made->weights = {.layers = {}, .embedding = weights.embedding, .head = weights.head};
  const std::vector<BlockTime> times = BlockClock(program, made->costs, probe).run();
  made->embedding = times.front();
  made->head = times.back();
  for (const std::int64_t layer : first_of_kind_) {
    made->layers.push_back(times[static_cast<std::size_t>(layer) + 1]);
    made->weights.layers.push_back(weights.layers[static_cast<std::size_t>(layer)]);
  }
  if (is_divided && jobs::has_copies(job)) made->divide(job);
  for (const schedule::Op& op : program.ops) {
    const auto* sum = std::get_if<schedule::CollectiveWork>(&op.work);
    if (sum != nullptr && sum->purpose == schedule::Purpose::TiedWeights)
      made->tied = made->collective(sum->kind, sum->group, as_double(sum->bytes)).about;
  }
  const std::scoped_lock lock(looking_);
  return blocks_.emplace(key, std::move(made)).first->second;
}

std::shared_ptr<const JobSketcher::Order> JobSketcher::order_of(const jobs::Job& job) {
  constexpr std::int64_t kRounds = 4;  // of a micro-batch a stage: more only repeat
  const jobs::Layout& l = job.layout;
  const std::int64_t count = job.micro_batches();
  const std::int64_t most = kRounds * l.pp + count % l.pp;
  const std::int64_t played = std::min(count, most);
  const std::array<std::int64_t, 4> key = {static_cast<std::int64_t>(l.order), l.pp, l.vp, played};
  {
    const std::scoped_lock lock(looking_);
    if (const auto known = orders_.find(key); known != orders_.end()) return known->second;
  }
  const schedule::PipelineShape shape{.kind = l.order,
                                      .stages = static_cast<std::int32_t>(l.pp),
                                      .chunks = static_cast<std::int32_t>(l.vp),
                                      .micro_steps = static_cast<std::int32_t>(played)};
  auto made = std::make_shared<Order>();
  made->micro_batches = played;
  std::map<std::array<std::int32_t, 3>, std::int32_t> places;  // of each stage, pass and micro-batch
  const auto place = [&](const schedule::RoleStep& at) {
    return std::array{shape.stage_of(at.role, at.step.chunk), static_cast<std::int32_t>(at.step.pass),
                      at.step.micro_step};
  };
  for (const schedule::RoleStep& step : schedule::serial_order(shape)) {
    Order::Step one{.role = step.role,
                    .stage = shape.stage_of(step.role, step.step.chunk),
                    .pass = step.step.pass};
    if (const auto needed = schedule::step_needed(shape, step)) one.after = places.at(place(*needed));
    places[place(step)] = static_cast<std::int32_t>(made->steps.size());
    made->steps.push_back(one);
  }
  const std::scoped_lock lock(looking_);
  return orders_.emplace(key, std::move(made)).first->second;
}

namespace {

// Of one job: its virtual stages and what they put together.
class StepSketch {
 public:
  using Stages = std::vector<BlockTime>;
  StepSketch(const jobs::Job& job, Stages stages, double send_least, double send_about)
      : job_(job),
        layout_(job.layout),
        stages_(std::move(stages)),
        count_(static_cast<double>(job.micro_batches())),
        send_least_(send_least),
        send_about_(send_about) {
    // Nobody waits for the gradient of the first stage's input.
    if (schedule::splits_backward(layout_.order)) {
      stages_.front().weights += stages_.front().backward;
      stages_.front().backward = {};
    }
  }

  [[nodiscard]] std::int32_t role_of(std::size_t stage) const {
    return schedule::role_of_stage(schedule::stage_map_of(layout_.order),
                                   static_cast<std::int32_t>(layout_.pp),
                                   static_cast<std::int32_t>(stage));
  }
  // Of each role, over all of its stages.
  [[nodiscard]] Stages roles() const {
    Stages sums(static_cast<std::size_t>(layout_.pp));
    for (std::size_t i = 0; i < stages_.size(); ++i)
      sums[static_cast<std::size_t>(role_of(i))] += stages_[i];
    return sums;
  }

  // Head, what the role has to do, tail.
  [[nodiscard]] double least() const {
    const bool is_split = schedule::splits_backward(layout_.order);
    double most = 0;
    double before = 0, behind = 0;
    const Stages all = roles();
    for (std::size_t role = 0; role < all.size(); ++role) {
      const double busy = count_ * all[role].all().least;
      most = std::max(most, before + busy + (is_split ? 0 : behind));
      before += stages_[role].forward.least + send_least_;
      behind += stages_[role].backward.least + send_least_;
    }
    return most;
  }

  // When each role has ended the last of its passes.
  template <class Order>
  [[nodiscard]] std::vector<double> ends(const Order& order) const {
    std::vector<double> free(static_cast<std::size_t>(layout_.pp)), done;
    done.reserve(order.steps.size());
    for (const auto& step : order.steps) {
      double& at = free[static_cast<std::size_t>(step.role)];
      if (step.after >= 0) {
        const auto& needed = order.steps[static_cast<std::size_t>(step.after)];
        const double send = needed.role == step.role ? 0 : send_about_;
        at = std::max(at, done[static_cast<std::size_t>(step.after)] + send);
      }
      const BlockTime& stage = stages_[static_cast<std::size_t>(step.stage)];
      at += step.pass == Pass::Forward    ? stage.forward.about
            : step.pass == Pass::Backward ? stage.backward.about
                                          : stage.weights.about;
      done.push_back(at);
    }
    double busiest = 0;
    for (const BlockTime& role : roles()) busiest = std::max(busiest, role.all().about);
    for (double& end : free) end += (count_ - static_cast<double>(order.micro_batches)) * busiest;
    return free;
  }

 private:
  const jobs::Job& job_;
  const jobs::Layout& layout_;
  Stages stages_;
  double count_;
  double send_least_, send_about_;
};

}  // namespace

// What Zero 3 gathers and reduces of each block.
void JobSketcher::Blocks::divide(const jobs::Job& job) {
  const double compute = as_double(schedule::element_size(job.precision.compute));
  const double reduce = as_double(schedule::element_size(job.precision.reduce));
  const auto divide_one = [&](BlockTime& time, const jobs::Weights& held) {
    jobs::Held all = held.trained;
    all += held.frozen;
    time.gather = over(Collective::AllGather, all, compute);
    time.reduce = over(Collective::ReduceScatter, held.trained, reduce);
    const auto copied = [&](double bytes, models::CopyKind kind) {
      return bytes < 1 ? 0 : as_ns(costs.copy(Bytes(std::llround(bytes)), kind));
    };
    time.split = copied(all.all() * compute, models::CopyKind::Split);
    time.chunk = copied(held.trained.all() * reduce, models::CopyKind::Chunk);
    time.update /= jobs::shards_of(job, false);
  };
  divide_one(embedding, weights.embedding);
  divide_one(head, weights.head);
  for (std::size_t i = 0; i < layers.size(); ++i) divide_one(layers[i], weights.layers[i]);
}

namespace {

// With what it gathers and reduces beside it, and the copies of that, which take their part of compute.
BlockTime beside_gathers(BlockTime block, const jobs::Job& job, double lost) {
  const bool is_each = job.layout.pp == 1;  // reductions: of each micro-batch
  const bool is_gathered = is_each || job.reshard;
  const auto beside = [&](PassTime& pass, double travels, double copied) {
    pass.about = std::max(pass.about + copied + lost * travels, travels);
  };
  beside(block.forward, is_gathered ? block.gather.about : 0, is_gathered ? block.split : 0);
  beside(block.backward,
         (job.reshard ? block.gather.about : 0) + (is_each ? block.reduce.about : 0),
         (job.reshard ? block.split : 0) + (is_each ? block.chunk : 0));
  return block;
}

}  // namespace

double JobSketcher::Blocks::beside_update(const jobs::Job& job, const jobs::Held& held,
                                          const BlockTime& role, bool is_first) const {
  if (!jobs::has_copies(job)) return 0;
  const double size = as_double(schedule::element_size(job.precision.reduce));
  const std::optional<Bytes> cap = schedule::bucket_size(jobs::policy_of(job));
  const double buckets = cap ? std::max(1.0, std::ceil(held.all() * size / as_double(*cap))) : 1;
  const jobs::Held bucket{.dense = held.dense / buckets, .experts = held.experts / buckets};
  const auto exposed = [&](double each, bool overlaps, double window) {
    const double all = each * buckets;
    return overlaps ? std::max(each, all - window) : all;
  };
  // In a pipeline only the first role has its last backward beside it; the others' bubble is in when their passes end.
  const double chunks = static_cast<double>(job.layout.vp);
  const double backward =
      is_first ? (role.backward.about + role.weights.about) / chunks : 0;
  if (job.zero == jobs::Zero::Nothing) {
    const double copied = job.as == jobs::RunBy::Megatron ? 0 : 2 * as_ns(costs.copy(Bytes(std::llround(held.all() * size))));
    return copied + exposed(over(Collective::AllReduce, bucket, size).about, job.overlap_gradients, backward);
  }
  const double reduce = over(Collective::ReduceScatter, bucket, size).about;
  const double gather =
      over(Collective::AllGather, bucket, as_double(schedule::element_size(job.precision.compute))).about;
  return exposed(reduce, job.overlap_gradients, backward) +
         exposed(gather, job.overlap_parameters, role.forward.about / chunks);
}

JobSketch JobSketcher::sketch(const jobs::Job& job) {
  const jobs::Layout& l = job.layout;
  const bool is_full = job.recompute == jobs::Recompute::Full;
  const bool is_part = is_full && job.recompute_layers > 0;
  const auto blocks = blocks_of(job, job.recompute);
  const auto kept = is_part ? blocks_of(job, jobs::Recompute::None) : blocks;
  const bool is_divided = job.zero == jobs::Zero::Parameters && jobs::has_copies(job);
  const double lost = lost_beside(blocks->costs);
  const auto shown = [&](const BlockTime& block) {
    return is_divided ? beside_gathers(block, job, lost) : block;
  };
  const std::vector<std::int64_t> counts = jobs::layers_of_stages(job);
  std::vector<BlockTime> stages(counts.size());
  std::vector<jobs::Held> held(static_cast<std::size_t>(l.pp));
  double largest_gather = 0;
  std::size_t layer = 0;
  const auto map = schedule::stage_map_of(l.order);
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const auto role = static_cast<std::size_t>(schedule::role_of_stage(
        map, static_cast<std::int32_t>(l.pp), static_cast<std::int32_t>(stage)));
    const auto add = [&](const BlockTime& block, const jobs::Weights& weights) {
      stages[stage] += shown(block);
      held[role] += weights.trained;
      largest_gather = std::max(largest_gather, block.gather.about + block.reduce.about);
    };
    if (stage == 0) add(blocks->embedding, blocks->weights.embedding);
    for (std::int64_t i = 0; i < counts[stage]; ++i, ++layer) {
      const auto kind = static_cast<std::size_t>(kind_of_layer_[layer]);
      const bool is_again = !is_part || i < job.recompute_layers;
      add((is_again ? blocks : kept)->layers[kind], blocks->weights.layers[kind]);
    }
    if (stage + 1 == counts.size()) add(blocks->head, blocks->weights.head);
  }
  const double width = as_double(schedule::element_size(job.precision.compute)) *
                       static_cast<double>(job.model.width * job.batch.micro * job.batch.sequence / l.cp /
                                           (l.sp ? l.tp : 1));
  PassTime send;
  if (l.pp > 1) {
    const schedule::ProcessGroup pair{
        .id = {}, .name = "pp", .ranks = {Rank{0}, Rank{static_cast<std::int32_t>(l.stage_ranks())}}};
    const models::CollectiveTime time =
        blocks->costs.collective(Collective::SendRecv, pair, Bytes(std::llround(width)));
    send = {as_ns(std::min(time.isolated, time.back_to_back)), as_ns(time.isolated)};
  }
  const StepSketch step(job, stages, 0, send.about);
  double least = step.least();
  std::vector<double> ends =
      l.pp > 1 ? step.ends(*order_of(job))
               : std::vector<double>{static_cast<double>(job.micro_batches()) * stages.front().all().about};
  const std::vector<BlockTime> roles = step.roles();
  double about = 0;
  for (std::size_t role = 0; role < ends.size(); ++role) {
    const BlockTime& all = roles[role];
    double end = ends[role];
    if (is_divided) {
      const double in_line = l.pp == 1 ? static_cast<double>(job.micro_batches()) : 1;
      const double again = job.reshard ? std::max(0.0, all.gather.least - largest_gather) : 0;
      least = std::max({least, in_line * (all.gather.least + (l.pp == 1 ? again : 0)),
                        in_line * all.reduce.least});
      end += largest_gather + (l.pp == 1 ? 0 : all.reduce.about) + all.update;
    } else {
      end += blocks->beside_update(job, held[role], all, role == 0) +
             all.update / (job.zero == jobs::Zero::Nothing ? 1 : jobs::shards_of(job, false));
    }
    about = std::max(about, end);
  }
  about += blocks->tied;
  return {.least = Duration(std::llround(std::floor(least))), .about = Duration(std::llround(about))};
}

}  // namespace dovetail::predict
