// Prices the blocks of a model once per way to divide them, and puts steps together from their sums.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_sketch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "models/networks/adapters.h"
#include "models/networks/decisions.h"
#include "models/networks/groups.h"
#include "models/networks/program.h"
#include "schedule/id_table.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/lower/pipeline/weights.h"

namespace dovetail::predict {
namespace {

using jobs::GroupShape;
using schedule::Collective;
using schedule::Pass;

double as_ns(Duration time) { return static_cast<double>(time.count()); }
double size_of_element(schedule::DType dtype) {
  return static_cast<double>(schedule::element_size(dtype).count());
}
Bytes rounded_bytes(double bytes) { return Bytes(std::llround(bytes)); }

// Nanoseconds.
struct PassTime {
  double least = 0, about = 0;
  PassTime& operator+=(const PassTime& other) {
    least += other.least;
    about += other.about;
    return *this;
  }
};

// Of a collective also what compute loses that runs beside it.
struct TravelTime : PassTime {
  double lost = 0;
  TravelTime& operator+=(const TravelTime& other) {
    PassTime::operator+=(other);
    lost += other.lost;
    return *this;
  }
};

// What one block, or several in a row, take of one micro-batch.
struct BlockTime {
  PassTime forward, backward, weights;
  double host = 0;     // to issue all of it
  double serial = 0;   // at least, on the compute stream
  double in_line = 0;  // of that collectives, beside which others take nothing from compute
  double lost = 0;     // at most, by compute to gathers and reductions of Zero 3
  BlockTime& operator+=(const BlockTime& other) {
    host += other.host;
    serial += other.serial;
    in_line += other.in_line;
    lost += other.lost;
    forward += other.forward;
    backward += other.backward;
    weights += other.weights;
    return *this;
  }
  [[nodiscard]] PassTime all() const {
    PassTime sum = forward;
    sum += backward;
    sum += weights;
    return sum;
  }
};

// What Zero 3 does for a block: what travels, and copies of it.
struct Divided {
  TravelTime gather, again, reduce;  // again: in backward, of layers
  double split = 0, split_again = 0, chunk = 0;
  Divided& operator+=(const Divided& other) {
    gather += other.gather;
    again += other.again;
    reduce += other.reduce;
    split += other.split;
    split_again += other.split_again;
    chunk += other.chunk;
    return *this;
  }
};

// A block of a model on one rank. Own collectives in line, and beside what does not need them.
struct Block {
  BlockTime in_line, beside;
  double sum = 0;     // of a micro-batch's gradients, to those before it
  double update = 0;  // of all of its parameters
  jobs::Weights weights;
  std::vector<jobs::Held> gradients = {};  // one by one

  // How many buckets they fill that no gradient is cut for, of so many elements or of one that is larger.
  [[nodiscard]] jobs::Held buckets(double elements) const {
    jobs::Held count;
    for (const jobs::Held& one : gradients)
      count += {.dense = std::min(1.0, one.dense / elements),
                .experts = std::min(1.0, one.experts / elements)};
    return count;
  }
};

// The blocks of a model: its embedding, a layer of each kind, its head.
struct Blocks {
  Block embedding, head;
  std::vector<Block> layers;
};

// The passes of a few micro-batches in an order in which each stands behind what it waits for.
struct PassOrder {
  struct Step {
    std::int32_t role = 0, stage = 0;
    Pass pass = Pass::Forward;
    std::int32_t after = -1;  // the step that it waits for besides the one before it on its role
  };
  std::vector<Step> steps;
  std::int64_t micro_batches = 0;
};

// One instance for each key, made once, or now and then twice at a time.
template <class K, class V>
class Memo {
 public:
  template <class Make>
  std::shared_ptr<const V> of(const K& key, const Make& make) {
    {
      const std::shared_lock lock(guard_);
      if (const auto known = known_.find(key); known != known_.end()) return known->second;
    }
    auto made = std::make_shared<const V>(make());
    const std::unique_lock lock(guard_);
    return known_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::shared_mutex guard_;
  std::map<K, std::shared_ptr<const V>> known_;
};

// Collectives of a cluster, each table made once.
class CollectiveClock {
 public:
  CollectiveClock(const models::Cluster& cluster, const models::Costs& costs)
      : cluster_(cluster), unit_ranks_(costs.unit_ranks), contention_(costs.contention(Rank{0})) {}

  // Nothing where the group has one rank or there are no bytes.
  [[nodiscard]] TravelTime time(Collective kind, const GroupShape& group, double bytes,
                                std::int64_t copies = 1) {
    if (group.size <= 1 || bytes < 1) return {};
    const models::CollectiveKey key =
        models::placed(kind, group.size, unit_ranks_,
                       [&group](std::int64_t unit) { return units_of(group, unit); });
    if (copies > 1)
      bytes = static_cast<double>(
          models::without_copies(Bytes(std::llround(bytes)), copies, key).count());
    const auto table = tables_.of(key, [&] {
      models::Costs costs;
      costs.collectives = {{.key = key, .time = models::collective_table(cluster_, key)}};
      models::apply(cluster_.what_if, costs);
      return std::move(costs.collectives.front().time);
    });
    const models::CollectiveTime takes = table->time(rounded_bytes(bytes));
    TravelTime time;
    time.least = as_ns(std::min(takes.isolated, takes.back_to_back));
    time.about = as_ns(takes.isolated);
    time.lost = time.least * share_of(key, rounded_bytes(bytes));
    return time;
  }

  // The most that compute loses to one beside it, as a share.
  [[nodiscard]] double most_lost() const {
    if (const auto& gpu = contention_.multiprocessors) {
      const std::int64_t ctas = std::max({gpu->ctas, gpu->all_reduce_ctas, gpu->network_ctas});
      return static_cast<double>(ctas) / static_cast<double>(gpu->count);
    }
    return 1 - 1 / least_slowdown();
  }

 private:
  // Nodes, racks, ... of so many ranks, of the first instance.
  [[nodiscard]] static std::int64_t units_of(const GroupShape& group, std::int64_t unit) {
    if (group.stride >= unit) return group.size;
    return (group.size - 1) * group.stride / unit + 1;
  }
  // Of compute beside it, as it was measured, the least of all classes, or by multiprocessors.
  [[nodiscard]] double share_of(const models::CollectiveKey& key, Bytes bytes) const {
    if (const auto& gpu = contention_.multiprocessors) {
      const std::int64_t ctas = gpu->ctas_of(
          {.kind = key.collective, .ranks = key.ranks, .nodes = key.nodes, .bytes = bytes});
      return static_cast<double>(ctas) / static_cast<double>(gpu->count);
    }
    return 1 - 1 / least_slowdown();
  }
  [[nodiscard]] double least_slowdown() const {
    const double usual = contention_.compute_slowdown;
    return std::min({usual, contention_.gemm_slowdown.value_or(usual),
                     contention_.memory_slowdown.value_or(usual)});
  }

  const models::Cluster& cluster_;
  std::vector<std::int64_t> unit_ranks_;
  models::Contention contention_;
  Memo<models::CollectiveKey, models::CollectiveTable> tables_;
};

// Sums up the ops of a Program in which each block is a virtual stage of its own.
class BlockClock {
 public:
  BlockClock(const schedule::Program& program, const models::Costs& costs,
             CollectiveClock& collectives, const jobs::Job& job)
      : program_(program),
        costs_(costs),
        host_(models::recorded_host(program).value_or(costs.host)),
        collectives_(collectives),
        groups_(jobs::group_shapes(job)),
        has_ring_(jobs::has_ring(job)) {
    schedule::IdTable<TensorId, char> shared{0};
    for (const schedule::Tensor& tensor : program.tensors) {
      if (tensor.kind != schedule::TensorKind::Activation) shared[tensor.id] = 1;
    }
    is_weight_work_ = schedule::find_weight_work(program, shared);
  }

  [[nodiscard]] std::vector<Block> run(bool splits_backward) {
    std::vector<std::array<Counted, 3>> passes(static_cast<std::size_t>(program_.stages));
    std::vector<Block> blocks(passes.size());
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const schedule::Op& op = program_.ops[i];
      const auto stage = static_cast<std::size_t>(op.stage);
      for (const TensorId tensor : op.writes) blocks[stage].sum += sum_of(op, tensor);
      if (op.phase == schedule::Phase::Optimizer) {
        blocks[stage].update += as_ns(costs_.ops.model().price(op).by_class.front());
      } else if (schedule::is_repeated(op)) {
        const bool is_forward = op.phase == schedule::Phase::Forward;
        const bool is_weights = splits_backward && is_weight_work_[i] != 0;
        const Pass pass = is_forward ? Pass::Forward : is_weights ? Pass::Weights : Pass::Backward;
        count(op, passes[stage][static_cast<std::size_t>(pass)]);
      }
    }
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const auto& [forward, backward, weights] = passes[i];
      const double host = runs_ahead() ? forward.host + backward.host + weights.host : 0;
      double compute = 0, travel = 0, lost = 0;
      for (const Counted& pass : passes[i]) {
        compute += pass.compute.least + pass.ring.lost;
        travel += pass.travel.least;
        lost += pass.travel.lost;
      }
      blocks[i].in_line = {.forward = in_line(forward),
                           .backward = in_line(backward),
                           .weights = in_line(weights),
                           .host = host,
                           .serial = compute + travel,
                           .in_line = travel};
      blocks[i].beside = {.forward = beside(forward),
                          .backward = beside(backward),
                          .weights = beside(weights),
                          .host = host,
                          .serial = compute + lost};
    }
    return blocks;
  }

 private:
  struct Counted {
    PassTime compute;  // in a row
    TravelTime travel;
    TravelTime ring;     // beside compute whatever the rest is
    double longest = 0;  // way through it
    double host = 0;
  };
  struct At {
    const Counted* pass = nullptr;
    double end = 0;
  };

  [[nodiscard]] TravelTime time_of(const schedule::CollectiveWork& work) {
    const GroupShape& group = work.purpose == schedule::Purpose::ContextParallel  ? groups_.context
                              : work.purpose == schedule::Purpose::ExpertParallel ? groups_.expert
                                                                                  : groups_.tensor;
    return collectives_.time(work.kind, group, static_cast<double>(work.bytes.count()),
                             work.copies);
  }

  void count(const schedule::Op& op, Counted& pass) {
    PassTime time;
    if (const auto* work = std::get_if<schedule::CollectiveWork>(&op.work)) {
      const TravelTime travels = time_of(*work);
      pass.host += as_ns(host_.collective);
      const bool is_ring = has_ring_ && work->purpose == schedule::Purpose::ContextParallel;
      (is_ring ? pass.ring : pass.travel) += travels;
      time = {travels.least, travels.about};
    } else {
      const models::OpCost cost = costs_.ops.model().price(op);
      time = {as_ns(std::ranges::min(cost.by_class)),
              as_ns(cost.by_class.front()) + as_ns(host_.launch_gap)};
      pass.host += as_ns(cost.host ? *cost.host : costs_.issue(op));
      pass.compute += time;
    }
    double end = 0;
    for (const TensorId tensor : op.reads) {
      const At& made = made_.at(tensor);
      if (made.pass == &pass) end = std::max(end, made.end);
    }
    end += time.least;
    for (const TensorId tensor : op.writes) {
      if (program_.tensor(tensor).kind == schedule::TensorKind::Activation)
        made_[tensor] = {&pass, end};
    }
    pass.longest = std::max(pass.longest, end);
  }

  // As a pipeline and an accumulation add a gradient to the sum of those before it (schedule/lower/rewrite/merge.h), once a gradient.
  [[nodiscard]] double sum_of(const schedule::Op& writer, TensorId id) {
    const schedule::Tensor& tensor = program_.tensor(id);
    if (tensor.kind != schedule::TensorKind::Gradient || schedule::adds_to_sum(writer, tensor) ||
        std::exchange(is_summed_[id], char{1}) != 0)
      return 0;
    const schedule::Op op{
        .id = {},
        .name = {},
        .phase = schedule::Phase::Backward,
        .dtype = tensor.dtype,
        .work = schedule::MemoryWork{.bytes = tensor.bytes() * 3,
                                     .flop = Flop(static_cast<double>(tensor.numel())),
                                     .access = schedule::Access::Plain},
        .reads = {},
        .writes = {}};
    return as_ns(costs_.ops.model().price(op).by_class.front()) + as_ns(host_.launch_gap);
  }

  [[nodiscard]] bool runs_ahead() const { return host_.kind == models::HostModel::Kind::Async; }
  [[nodiscard]] PassTime issued(PassTime time, const Counted& pass) const {
    if (runs_ahead()) time.about = std::max(time.about, pass.host);
    return time;
  }
  [[nodiscard]] PassTime in_line(const Counted& pass) const {
    PassTime time = pass.compute;
    time += pass.travel;
    if (has_ring_) {
      time += {pass.ring.lost, pass.ring.lost};
      time = {std::max(time.least, pass.longest), std::max(time.about, pass.longest)};
    }
    return issued(time, pass);
  }
  [[nodiscard]] PassTime beside(const Counted& pass) const {
    const double lost = pass.travel.lost + pass.ring.lost;
    const double longest = std::max(pass.longest, pass.compute.least + lost);
    return issued({longest, std::max(pass.longest, pass.compute.least) + pass.compute.about -
                                pass.compute.least + lost},
                  pass);
  }

  const schedule::Program& program_;
  const models::Costs& costs_;
  models::HostModel host_;
  CollectiveClock& collectives_;
  jobs::GroupShapes groups_;
  bool has_ring_;
  std::vector<char> is_weight_work_;
  schedule::IdTable<TensorId, At> made_;
  schedule::IdTable<TensorId, char> is_summed_{0};
};

// With what it gathers and reduces beside it, and the copies of that, which take their part of compute.
BlockTime beside_gathers(BlockTime block, const Divided& divided, const jobs::Job& job) {
  const bool is_each = job.layout.pp == 1 && job.sync_each;  // reductions: of each micro-batch
  const bool is_gathered = job.layout.pp == 1 || job.reshard;
  const auto beside = [&](PassTime& pass, const TravelTime& travels, double copied) {
    pass.about = std::max(pass.about + copied + travels.lost, travels.about);
    pass.least += copied;
    block.serial += copied;
    block.lost += travels.lost;
  };
  TravelTime back;
  back += divided.again;
  if (is_each) back += divided.reduce;
  beside(block.forward, is_gathered ? divided.gather : TravelTime{},
         is_gathered ? divided.split : 0);
  beside(block.backward, back, divided.split_again + (is_each ? divided.chunk : 0));
  return block;
}

// A pipeline of one job: its virtual stages and the sums of its roles.
struct Pipeline {
  const jobs::Job& job;
  std::vector<BlockTime> stages, roles;
  std::vector<double> sums;  // of each role: of a micro-batch's gradients, to those before it
  PassTime send;
  double most_lost = 0;  // of compute to a collective beside it, as a share

  [[nodiscard]] double count() const { return static_cast<double>(job.micro_batches()); }

  // Before the role's first op, what it has to do, behind its last; each as docs of JobSketch say.
  [[nodiscard]] double least() const {
    const bool is_split = schedule::splits_backward(job.layout.order);
    double most = 0, before = 0, behind = 0;
    for (std::size_t role = 0; role < roles.size(); ++role) {
      const BlockTime& all = roles[role];
      const double lost = std::max(0.0, all.lost - most_lost * all.in_line);
      const double each = std::max(all.all().least, all.serial + lost);
      const double busy = count() * each + (count() - 1) * sums[role];
      most = std::max({most, before + busy + (is_split ? 0 : behind), count() * roles[role].host});
      before += stages[role].forward.least;
      behind += stages[role].backward.least;
    }
    return most;
  }

  // When each role has ended the last of its passes.
  [[nodiscard]] std::vector<double> ends(const PassOrder& order) const {
    std::vector<double> free(roles.size()), done;
    done.reserve(order.steps.size());
    for (const PassOrder::Step& step : order.steps) {
      double& at = free[static_cast<std::size_t>(step.role)];
      if (step.after >= 0) {
        const auto needed = static_cast<std::size_t>(step.after);
        const bool is_sent = order.steps[needed].role != step.role;
        at = std::max(at, done[needed] + (is_sent ? send.about : 0));
      }
      const BlockTime& stage = stages[static_cast<std::size_t>(step.stage)];
      at += step.pass == Pass::Forward    ? stage.forward.about
            : step.pass == Pass::Backward ? stage.backward.about
                                          : stage.weights.about;
      done.push_back(at);
    }
    double busiest = 0;
    for (const BlockTime& role : roles) busiest = std::max(busiest, role.all().about);
    for (double& end : free) end += (count() - static_cast<double>(order.micro_batches)) * busiest;
    return free;
  }
};

// A step's parts, of each role: what is behind its passes.
struct Assembled {
  Pipeline pipeline;
  std::vector<jobs::Held> held = std::vector<jobs::Held>(pipeline.roles.size());
  std::vector<jobs::Held> buckets = std::vector<jobs::Held>(pipeline.roles.size());
  std::vector<Divided> travels = std::vector<Divided>(pipeline.roles.size());
  std::vector<double> updates = std::vector<double>(pipeline.roles.size());
  double largest = 0;  // gather and reduction of a block
};

PassOrder pass_order(const schedule::PipelineShape& shape) {
  PassOrder order{.steps = {}, .micro_batches = shape.micro_steps};
  std::map<std::array<std::int32_t, 3>, std::int32_t> places;
  const auto stage_of = [&](const schedule::RoleStep& at) {
    return shape.stage_of(at.role, at.step.chunk);
  };
  const auto place = [&](const schedule::RoleStep& at) {
    return std::array{stage_of(at), static_cast<std::int32_t>(at.step.pass), at.step.micro_step};
  };
  for (const schedule::RoleStep& step : schedule::serial_order(shape)) {
    PassOrder::Step one{.role = step.role, .stage = stage_of(step), .pass = step.step.pass};
    if (const auto needed = schedule::step_needed(shape, step))
      one.after = places.at(place(*needed));
    places[place(step)] = static_cast<std::int32_t>(order.steps.size());
    order.steps.push_back(one);
  }
  return order;
}

}  // namespace

struct JobSketcher::Parts {
  const models::Cluster& cluster;
  models::Costs costs;  // of no Program
  CollectiveClock collectives;
  std::vector<std::size_t> kind_of_layer;   // index into Blocks::layers
  std::vector<std::int64_t> first_of_kind;  // the first layer of each kind
  Memo<std::array<std::int64_t, 14>, Blocks> blocks;
  Memo<std::array<std::int64_t, 3>, jobs::BlockWeights> weights;
  Memo<std::array<std::int64_t, 4>, PassOrder> orders;

  Parts(const jobs::Job& like, const models::Cluster& where)
      : cluster(where),
        costs(models::costs_for(where, {.name = {},
                                        .world_size = like.layout.world(),
                                        .tensors = {},
                                        .ops = {},
                                        .groups = {},
                                        .reductions = {}})),
        collectives(where, costs) {
    std::map<std::pair<bool, bool>, std::size_t> known;
    for (std::int64_t layer = 0; layer < like.model.layers; ++layer) {
      const auto kind = std::pair(has_experts(like.model, layer), is_windowed(like.model, layer));
      const auto [at, is_new] = known.emplace(kind, known.size());
      if (is_new) first_of_kind.push_back(layer);
      kind_of_layer.push_back(at->second);
    }
  }

  [[nodiscard]] std::shared_ptr<const Blocks> blocks_of(const jobs::Job& job,
                                                        jobs::Recompute again);
  [[nodiscard]] std::shared_ptr<const PassOrder> order_of(const jobs::Job& job);
  [[nodiscard]] Assembled assembled(const jobs::Job& job, const jobs::GroupShapes& groups);
  // Of each block what Zero 3 does: the embedding, each kind of layer, the head.
  [[nodiscard]] std::vector<Divided> all_divided(const jobs::Job& job,
                                                 const jobs::GroupShapes& groups, const Blocks& of);
  // A micro-batch's way to the next stage.
  [[nodiscard]] PassTime send(const jobs::Job& job);

  // Of parameters over their group, `each` bytes an element; of sums over the replicas of their shards, too.
  [[nodiscard]] TravelTime over(Collective kind, const jobs::GroupShapes& groups,
                                const jobs::Held& held, double each) {
    const GroupShape& of_experts = groups.experts ? *groups.experts : groups.dense;
    TravelTime time = collectives.time(kind, groups.dense, held.dense * each);
    time += collectives.time(kind, of_experts, held.experts * each);
    if (kind == Collective::AllGather) return time;
    const double shard =
        held.dense / static_cast<double>(groups.dense.size) +
        held.experts / static_cast<double>(std::max<std::int64_t>(1, of_experts.size));
    time += collectives.time(Collective::AllReduce, groups.replicas, shard * each);
    return time;
  }
  [[nodiscard]] Divided divided(const jobs::Job& job, const jobs::GroupShapes& groups,
                                const jobs::Weights& held, bool is_layer);
  [[nodiscard]] double beside_update(const jobs::Job& job, const jobs::GroupShapes& groups,
                                     const jobs::Held& held, const jobs::Held& buckets,
                                     const BlockTime& role, bool is_first);
};

// A job of the first layer of each kind, each block a virtual stage of its own, on as few ranks as hold them.
std::shared_ptr<const Blocks> JobSketcher::Parts::blocks_of(const jobs::Job& job,
                                                            jobs::Recompute again) {
  const jobs::Layout& l = job.layout;
  const bool is_divided = job.zero == jobs::Zero::Parameters && jobs::has_copies(job);
  const bool splits = schedule::splits_backward(l.order);
  const bool adds = jobs::adds_to_sums(job);
  const std::array<std::int64_t, 14> key = {l.tp,
                                            l.cp,
                                            l.ep,
                                            l.etp,
                                            l.sp ? 1 : 0,
                                            job.batch.micro,
                                            job.batch.sequence,
                                            static_cast<std::int64_t>(again),
                                            is_divided ? 1 : 0,
                                            splits ? 1 : 0,
                                            job.reshard ? 1 : 0,
                                            adds ? 1 : 0,
                                            jobs::has_ring(job) ? 1 : 0,
                                            static_cast<std::int64_t>(job.as)};
  return blocks.of(key, [&] {
    jobs::Job probe = job;
    const std::int64_t layers = first_of_kind.back() + 1;
    probe.model.layers = layers;
    probe.layout.pp = layers + 2;
    probe.layout.vp = 1;
    probe.layout.order =
        splits ? schedule::PipelineKind::ZeroBubble : schedule::PipelineKind::OneFOneB;
    probe.layout.layers.assign(static_cast<std::size_t>(layers) + 2, 1);
    probe.layout.layers.front() = probe.layout.layers.back() = 0;
    probe.layout.dp = std::max<std::int64_t>(1, l.ep * l.etp);
    probe.layout.dp_shard = 1;
    // As many shards as there can be: what casts a shard is not more than it is.
    if (is_divided) {
      probe.layout.dp = 1;
      probe.layout.dp_shard = std::max<std::int64_t>(2, l.world() / (l.cp * l.tp));
    }
    probe.batch.global = probe.batch.micro * probe.layout.replicas();
    probe.recompute = again;
    probe.recompute_layers = 0;
    probe.zero = is_divided ? jobs::Zero::Parameters : jobs::Zero::Nothing;
    if (jobs::adds_to_sums(probe) != adds) {  // not with sums that are divided
      probe.zero = jobs::Zero::Gradients;
      probe.layout.dp *= 2;
      probe.batch.global *= 2;
    }
    const schedule::Program program = jobs::program_of(probe);
    const std::vector<Block> found = BlockClock(program, costs, collectives, job).run(splits);
    const jobs::BlockWeights held = jobs::block_weights(probe);
    Blocks made{.embedding = found.front(), .head = found.back(), .layers = {}};
    made.embedding.weights = held.embedding;
    made.head.weights = held.head;
    for (const std::int64_t layer : first_of_kind) {
      made.layers.push_back(found[static_cast<std::size_t>(layer) + 1]);
      made.layers.back().weights = held.layers[static_cast<std::size_t>(layer)];
    }
    for (const jobs::ParameterShape& parameter : jobs::job_parameters(probe)) {
      const auto kind = std::ranges::find(first_of_kind, parameter.layer);
      if (!parameter.trained || (parameter.layer >= 0 && kind == first_of_kind.end())) continue;
      Block& block = parameter.layer >= 0
                         ? made.layers[static_cast<std::size_t>(kind - first_of_kind.begin())]
                     : parameter.part == jobs::Part::Embedding ? made.embedding
                                                               : made.head;
      double elements = 1;
      for (const std::int64_t extent : jobs::local_shape(parameter, l.tp, l.ep, l.etp))
        elements *= static_cast<double>(extent);
      block.gradients.push_back(parameter.expert ? jobs::Held{.experts = elements}
                                                 : jobs::Held{.dense = elements});
    }
    return made;
  });
}

std::shared_ptr<const PassOrder> JobSketcher::Parts::order_of(const jobs::Job& job) {
  constexpr std::int64_t kRounds = 4;  // of a micro-batch a stage: more only repeat
  const jobs::Layout& l = job.layout;
  const std::int64_t count = job.micro_batches();
  const std::int64_t played = std::min(count, kRounds * l.pp + count % l.pp);
  return orders.of({static_cast<std::int64_t>(l.order), l.pp, l.vp, played}, [&] {
    return pass_order({.kind = l.order,
                       .stages = static_cast<std::int32_t>(l.pp),
                       .chunks = static_cast<std::int32_t>(l.vp),
                       .micro_steps = static_cast<std::int32_t>(played)});
  });
}

Divided JobSketcher::Parts::divided(const jobs::Job& job, const jobs::GroupShapes& groups,
                                    const jobs::Weights& held, bool is_layer) {
  const double compute = size_of_element(job.precision.compute);
  const double reduce = size_of_element(job.precision.reduce);
  const bool has_experts_divided = (groups.experts ? *groups.experts : groups.dense).size > 1;
  const auto divided = [&](jobs::Held some) {
    if (groups.dense.size <= 1) some.dense = 0;
    if (!has_experts_divided) some.experts = 0;
    return some;
  };
  jobs::Held all = held.trained;
  all += held.frozen;
  all = divided(all);
  const jobs::Held trained = divided(held.trained);
  const auto copied = [&](double bytes, models::CopyKind kind) {
    return bytes < 1 ? 0 : as_ns(costs.copy(rounded_bytes(bytes), kind));
  };
  Divided one{.gather = over(Collective::AllGather, groups, all, compute),
              .again = {},
              .reduce = over(Collective::ReduceScatter, groups, trained, reduce),
              .split = copied(all.all() * compute, models::CopyKind::Split),
              .split_again = 0,
              .chunk = copied(trained.all() * reduce, models::CopyKind::Chunk)};
  if (is_layer && job.reshard) {
    one.again = one.gather;
    one.split_again = one.split;
  }
  return one;
}

// What reductions and gathers of whole buckets take that nothing runs beside: what is longer than its window, and one bucket.
double JobSketcher::Parts::beside_update(const jobs::Job& job, const jobs::GroupShapes& groups,
                                         const jobs::Held& held, const jobs::Held& buckets,
                                         const BlockTime& role, bool is_first) {
  if (!jobs::has_copies(job)) return 0;
  const double size = size_of_element(job.precision.reduce);
  // Whole, and one bucket: of dense gradients in theirs, then of those of experts, each busy with the one before.
  const auto bucketed = [&](Collective kind, double each) {
    std::pair<double, double> time;
    const auto add = [&](jobs::Held some, double filled) {
      const double count = std::max(1.0, std::ceil(filled));
      some.dense /= count;
      some.experts /= count;
      const TravelTime one = over(kind, groups, some, each);
      time.first += one.about + (count - 1) * one.least;
      time.second = std::max(time.second, one.about);
    };
    add({.dense = held.dense}, buckets.dense);
    add({.experts = held.experts}, buckets.experts);
    return time;
  };
  const auto exposed = [&](const std::pair<double, double>& time, bool overlaps, double window) {
    return overlaps ? std::max(time.second, time.first - window) : time.first;
  };
  // In a pipeline the first role alone has a backward beside them; the others have the bubble behind their last one.
  const auto chunks = static_cast<double>(job.layout.vp);
  const double backward = is_first ? (role.backward.about + role.weights.about) / chunks : 0;
  if (job.zero == jobs::Zero::Nothing) {
    const bool copies = job.as != jobs::RunBy::Megatron;
    return (copies ? 2 * as_ns(costs.copy(rounded_bytes(held.all() * size))) : 0) +
           exposed(bucketed(Collective::AllReduce, size), job.overlap_gradients, backward);
  }
  const bool sums_whole = job.as == jobs::RunBy::Deepspeed;
  const auto reduce =
      bucketed(sums_whole ? Collective::AllReduce : Collective::ReduceScatter, size);
  const auto gather = bucketed(Collective::AllGather, size_of_element(job.precision.compute));
  // Of sums that are divided each micro-batch pays.
  const bool is_each = job.zero == jobs::Zero::Gradients && job.layout.pp == 1 && job.sync_each;
  const double times = is_each ? static_cast<double>(job.micro_batches()) : 1;
  return times * exposed(reduce, job.overlap_gradients, backward) +
         exposed(gather, job.overlap_parameters, role.forward.about / chunks);
}

JobSketcher::JobSketcher(const jobs::Job& like, const models::Cluster& cluster)
    : parts_(std::make_unique<Parts>(like, cluster)) {}
JobSketcher::~JobSketcher() = default;

std::vector<jobs::StageMemory> JobSketcher::memory_of(const jobs::Job& job) {
  const auto weights = parts_->weights.of({job.layout.tp, job.layout.ep, job.layout.etp},
                                          [&] { return jobs::block_weights(job); });
  return jobs::memory_of(job, jobs::memory_rules(jobs::in_effect(job)), *weights);
}

Duration JobSketcher::least_of_any_order(const jobs::Job& job) {
  const auto blocks = parts_->blocks_of(job, jobs::Recompute::None);
  BlockTime all = blocks->embedding.beside;
  all += blocks->head.beside;
  for (const std::size_t kind : parts_->kind_of_layer) all += blocks->layers[kind].beside;
  const double sum = std::max(all.all().least, all.host);
  return Duration(static_cast<std::int64_t>(sum * static_cast<double>(job.micro_batches()) /
                                            static_cast<double>(job.layout.pp)));
}

namespace {

bool is_divided(const jobs::Job& job) {
  return job.zero == jobs::Zero::Parameters && jobs::has_copies(job);
}

// Elements of a bucket of gradients; beyond all of them where there are none.
double bucket_of(const jobs::Job& job) {
  constexpr double kEndless = 1e18;
  if (is_divided(job)) return kEndless;
  const std::optional<Bytes> cap = schedule::bucket_size(jobs::policy_of(job));
  return cap ? static_cast<double>(cap->count()) / size_of_element(job.precision.reduce) : kEndless;
}

}  // namespace

std::vector<Divided> JobSketcher::Parts::all_divided(const jobs::Job& job,
                                                     const jobs::GroupShapes& groups,
                                                     const Blocks& of) {
  std::vector<Divided> all(of.layers.size() + 2);
  if (!is_divided(job)) return all;
  const jobs::Weights& table = of.embedding.weights;
  all.front() = divided(job, groups, table, table.trained.all() > 0);
  all.back() = divided(job, groups, of.head.weights, false);
  for (std::size_t i = 0; i < of.layers.size(); ++i)
    all[i + 1] = divided(job, groups, of.layers[i].weights, true);
  return all;
}

PassTime JobSketcher::Parts::send(const jobs::Job& job) {
  const jobs::Layout& l = job.layout;
  if (l.pp == 1) return {};
  const double rows = static_cast<double>(job.batch.micro * job.batch.sequence) /
                      static_cast<double>(l.cp * (l.sp ? l.tp : 1));
  const TravelTime time = collectives.time(
      Collective::SendRecv, {.size = 2, .stride = l.stage_ranks()},
      rows * static_cast<double>(job.model.width) * size_of_element(job.precision.compute));
  return {time.least, time.about};
}

Assembled JobSketcher::Parts::assembled(const jobs::Job& job, const jobs::GroupShapes& groups) {
  const jobs::Layout& l = job.layout;
  const bool is_part = job.recompute == jobs::Recompute::Full && job.recompute_layers > 0;
  const auto again = blocks_of(job, job.recompute);
  const auto kept = is_part ? blocks_of(job, jobs::Recompute::None) : again;
  const std::vector<Divided> divided = all_divided(job, groups, *again);
  const bool is_async = job.async_tp && l.tp > 1;
  const bool is_split = schedule::splits_backward(l.order);
  const std::vector<std::int64_t> counts = jobs::layers_of_stages(job);
  Assembled all{.pipeline = {.job = job,
                             .stages = std::vector<BlockTime>(counts.size()),
                             .roles = std::vector<BlockTime>(static_cast<std::size_t>(l.pp)),
                             .sums = std::vector<double>(static_cast<std::size_t>(l.pp)),
                             .send = send(job),
                             .most_lost = collectives.most_lost()}};
  // Sums of shards, where each micro-batch is reduced.
  const bool is_shard_summed = l.pp == 1 && job.zero >= jobs::Zero::Gradients && job.sync_each;
  const double count = all.pipeline.count();
  const double of_shards =
      (count - 1) / count / (is_shard_summed ? jobs::shards_of(job, false) : 1);
  const double bucket = job.zero == jobs::Zero::Nothing ? bucket_of(job) : 1;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const auto role = static_cast<std::size_t>(
        schedule::role_of_stage(schedule::stage_map_of(l.order), static_cast<std::int32_t>(l.pp),
                                static_cast<std::int32_t>(stage)));
    BlockTime& time = all.pipeline.stages[stage];
    const auto add = [&](const Block& block, const Divided& of_block) {
      const BlockTime& own = is_async ? block.beside : block.in_line;
      time += is_divided(job) ? beside_gathers(own, of_block, job) : own;
      (is_split ? time.weights : time.backward).about += of_shards * block.sum;
      if (!is_shard_summed) all.pipeline.sums[role] += block.sum;
      all.held[role] += block.weights.trained;
      all.travels[role] += of_block;
      all.updates[role] += block.update;
      if (job.zero == jobs::Zero::Nothing) all.buckets[role] += block.buckets(bucket);
      all.largest = std::max(all.largest, of_block.gather.about + of_block.reduce.about);
    };
    if (stage == 0) add(again->embedding, divided.front());
    for (std::int64_t i = 0; i < counts[stage]; ++i, ++layer) {
      const std::size_t kind = kind_of_layer[layer];
      const bool is_again = !is_part || i < job.recompute_layers;
      add((is_again ? again : kept)->layers[kind], divided[kind + 1]);
    }
    if (stage + 1 == counts.size()) add(again->head, divided.back());
    // Nobody waits for the gradient of the first stage's input.
    if (is_split && stage == 0) time.weights += std::exchange(time.backward, {});
    all.pipeline.roles[role] += time;
  }
  return all;
}

namespace {

// No less than all gathers, or all reductions, of one rank in a row.
double least_of(const Assembled& all) {
  const jobs::Job& job = all.pipeline.job;
  double least = all.pipeline.least();
  if (!is_divided(job)) return least;
  const bool is_staged = job.layout.pp > 1;
  const double times = is_staged ? 1 : all.pipeline.count();
  for (const Divided& travels : all.travels) {
    const double back = is_staged ? 0 : travels.again.least;
    least = std::max({least, times * (travels.gather.least + back), times * travels.reduce.least});
  }
  return least;
}

Duration whole(double least) { return Duration(static_cast<std::int64_t>(least)); }

}  // namespace

Duration JobSketcher::least(const jobs::Job& job) {
  return whole(least_of(parts_->assembled(job, jobs::group_shapes(job))));
}

JobSketch JobSketcher::sketch(const jobs::Job& job) {
  const jobs::GroupShapes groups = jobs::group_shapes(job);
  const Assembled all = parts_->assembled(job, groups);
  const Pipeline& pipeline = all.pipeline;
  const bool is_staged = job.layout.pp > 1;
  const std::vector<double> ends =
      is_staged ? pipeline.ends(*parts_->order_of(job))
                : std::vector<double>{pipeline.count() * pipeline.roles.front().all().about};
  const double bucket = bucket_of(job);
  const double shards = job.zero == jobs::Zero::Nothing ? 1 : jobs::shards_of(job, false);
  double about = 0;
  for (std::size_t role = 0; role < ends.size(); ++role) {
    double end = ends[role] + all.updates[role] / shards;
    if (is_divided(job)) {
      end += all.largest + (is_staged ? all.travels[role].reduce.about : 0);
    } else {
      // Buckets of sharded updates are of one size and cut gradients.
      const jobs::Held& held = all.held[role];
      const jobs::Held cut{.dense = held.dense / bucket, .experts = held.experts / bucket};
      end += parts_->beside_update(job, groups, held,
                                   job.zero == jobs::Zero::Nothing ? all.buckets[role] : cut,
                                   pipeline.roles[role], role == 0);
    }
    about = std::max(about, end);
  }
  return {.least = whole(least_of(all)), .about = Duration(std::llround(about))};
}

}  // namespace dovetail::predict
