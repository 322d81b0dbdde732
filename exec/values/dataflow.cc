// Plays a Program on formulas instead of numbers, rank by rank, and so derives what every op and
// every collective of the step must find and leave in memory.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/values/dataflow.h"

#include "exec/run.h"
#include "exec/values/op_message.h"
#include "schedule/collective_traits.h"
#include "schedule/gradient.h"
#include "schedule/visit.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

namespace dovetail::exec::values {
namespace {

using schedule::Op;
using schedule::Phase;
using schedule::TensorKind;

// What one rank knows of one tensor.
struct Entry {
  std::optional<Content> content;
  bool is_complete = false;           // after its last write in this micro-step
  bool is_reduced = false;            // holds or derives from a reduced gradient
  bool is_news = false;               // brought by a collective op, and nobody has looked yet
  std::vector<Content> squares = {};  // of a norm
};

class Deriver {
 public:
  Deriver(const schedule::ScheduledProgram& plan, Rank rank)
      : plan_(plan),
        program_(plan.program),
        owed_(plan.owed.empty() ? plan.program.reductions : plan.owed),
        rank_(rank) {
    for (const schedule::Tensor& tensor : program_.tensors) tensors_[tensor.id] = &tensor;
    find_ranks();
    find_last_writes();
    find_debts();
    find_late_parameters();
    find_frozen_parameters();
  }

  Expectations derive() {
    for (const Op& op : program_.ops) {
      if (std::holds_alternative<schedule::CollectiveWork>(op.work)) {
        communicate(op);
        continue;
      }
      for (const Rank rank : ranks_) {
        if (!runs(rank, op)) continue;
        if (rank == rank_) observe(op);
        execute(rank, op);
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  // Preparation -----------------------------------------------------------------------------------

  // This rank, and whoever its collective ops meet, and whom theirs meet.
  void find_ranks() {
    std::vector<Rank> open = {rank_};
    while (!open.empty()) {
      const Rank rank = open.back();
      open.pop_back();
      if (!ranks_.insert(rank).second) continue;
      for (const Op& op : program_.ops) {
        const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
        if (work == nullptr) continue;
        for (const Rank peer : program_.group(work->group).instance_of(rank)) open.push_back(peer);
      }
    }
    for (const Rank rank : ranks_) {
      std::set<OpId>& ops = ops_of_[rank];
      for (const schedule::Command& command : role_of(plan_, rank).commands) {
        if (const std::optional<OpId> op = schedule::op_run_by(command)) ops.insert(*op);
      }
    }
  }

  [[nodiscard]] bool runs(Rank rank, const Op& op) const {
    return ops_of_.at(rank).count(op.id) > 0;
  }

  // A merged gradient is complete once in the step, everything else once in each micro-step.
  void find_last_writes() {
    std::map<std::tuple<Rank, TensorId, std::int32_t>, std::int32_t> seen;
    for (auto op = program_.ops.rbegin(); op != program_.ops.rend(); ++op) {
      if (op->phase == Phase::Optimizer) continue;
      for (const Rank rank : ranks_) {
        if (!runs(rank, *op)) continue;
        for (const TensorId id : op->writes) {
          const bool is_merged = tensors_.at(id)->kind == TensorKind::MergedGradient;
          writes_left_[{rank, op->id, id}] = seen[{rank, id, is_merged ? -1 : op->micro_step}]++;
        }
      }
    }
  }

  // A debt is paid on the gradient, or, when micro-steps are summed first, on the sum.
  void find_debts() {
    std::set<TensorId> bucketed;
    for (const schedule::BucketLayout& layout : plan_.buckets) {
      for (const schedule::BucketMember& member : layout.members) bucketed.insert(member.tensor);
    }
    std::map<TensorId, TensorId> sums;
    for (const schedule::Tensor& tensor : program_.tensors) {
      if (tensor.merges) sums[*tensor.merges] = tensor.id;
    }
    for (const schedule::Reduction& reduction : owed_) {
      const auto sum = sums.find(reduction.gradient);
      const bool is_late = sum != sums.end() && bucketed.count(reduction.gradient) == 0;
      debts_[is_late ? sum->second : reduction.gradient].push_back(&reduction);
    }
  }

  // Parameters whose shards are gathered before they are updated: in the next step's forward.
  void find_late_parameters() {
    std::set<BucketId> gathered;
    std::map<OpId, const Op*> ops;
    for (const Op& op : program_.ops) ops[op.id] = &op;
    for (const schedule::Command& command : role_of(plan_, rank_).commands) {
      if (const auto* run = schedule::bucket_collective(command)) {
        if (run->kind == schedule::Collective::AllGather) gathered.insert(*run->bucket);
      } else if (const auto* run_op = std::get_if<schedule::RunOp>(&command.action)) {
        const auto* update = std::get_if<schedule::ShardUpdate>(&ops.at(run_op->op)->effect);
        if (update == nullptr || gathered.count(update->parameters) == 0) continue;
        const schedule::BucketLayout& parameters = plan_.bucket(update->parameters);
        const bool is_released = parameters.residence == schedule::Residence::Shard;
        for (const schedule::BucketMember& member : parameters.members) {
          late_.insert(member.tensor);
          if (is_released) released_.insert(member.tensor);
        }
      }
    }
  }

  // Parameters that are gathered and never updated: of each rank its own shard.
  void find_frozen_parameters() {
    std::set<BucketId> gathered;
    for (const schedule::Command& command : role_of(plan_, rank_).commands) {
      const auto* run = schedule::bucket_collective(command);
      if (run != nullptr && run->kind == schedule::Collective::AllGather) {
        gathered.insert(*run->bucket);
      }
    }
    for (const schedule::BucketLayout& layout : plan_.buckets) {
      const bool is_updated = std::ranges::any_of(
          layout.members, [&](const auto& member) { return late_.count(member.tensor) > 0; });
      if (layout.residence == schedule::Residence::Whole || is_updated) continue;
      if (gathered.count(layout.bucket) == 0) continue;
      result_.frozen.push_back(layout.bucket);
      for (const schedule::BucketMember& member : layout.members) {
        state_[rank_][member.tensor] = {.content = shards_of(layout, member)};
        frozen_.insert(member.tensor);
      }
    }
  }

  [[nodiscard]] Content shards_of(const schedule::BucketLayout& layout,
                                  const schedule::BucketMember& member) const {
    std::span<const Rank> owners(&rank_, 1);
    if (layout.cut_over) owners = program_.group(*layout.cut_over).instance_of(rank_);
    const std::int64_t element = schedule::element_size(layout.dtype).count();
    const std::int64_t shard = layout.size.count() / layout.shards / element;
    const std::int64_t first = member.offset.count() / element;
    const std::int64_t end = first + member.elements(*tensors_.at(member.tensor));
    Content content;
    for (std::int64_t at = first; at < end;) {
      const std::int64_t owner = at / shard;
      const std::int64_t stop = std::min(end, (owner + 1) * shard);
      content.push_back({.begin = static_cast<std::size_t>(member.first + at - first),
                         .count = static_cast<std::size_t>(stop - at),
                         .source = 0,
                         .terms = {{.tensor = member.tensor,
                                    .writes_left = kInput,
                                    .ranks = {owners[static_cast<std::size_t>(owner)]}}}});
      at = stop;
    }
    return content;
  }

  // Reading ---------------------------------------------------------------------------------------

  // The factor with which updates multiply this gradient, or what is summed up from it.
  [[nodiscard]] double rescale_of(TensorId id, std::size_t depth = 0) const {
    std::optional<double> of_sum;
    for (const Op& op : program_.ops) {
      if (std::find(op.reads.begin(), op.reads.end(), id) == op.reads.end()) continue;
      if (const std::optional<double> factor = rescale_by(op)) return *factor;
      const bool is_sum = std::holds_alternative<schedule::Accumulate>(op.effect);
      if (is_sum && depth < program_.tensors.size() && op.writes.at(0) != id && !of_sum) {
        of_sum = rescale_of(op.writes[0], depth + 1);
      }
    }
    return of_sum.value_or(1.0);
  }
  // Of an update.
  static std::optional<double> rescale_by(const Op& op) {
    if (const auto* update = std::get_if<schedule::Update>(&op.effect)) {
      return update->rescale ? update->rescale->value() : 1.0;
    }
    if (const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect)) {
      return update->rescale ? update->rescale->value() : 1.0;
    }
    return std::nullopt;
  }

  // What a reader finds: a complete gradient is reduced by now.
  Entry read(Rank rank, TensorId id) {
    const auto known = state_[rank].find(id);
    if (known == state_[rank].end()) return {};
    Entry entry = known->second;
    const auto debt = debts_.find(id);
    if (debt == debts_.end() || !entry.is_complete || !entry.content) return entry;
    double factor = 1.0 / rescale_of(id);
    for (const schedule::Reduction* reduction : debt->second) {
      const schedule::ProcessGroup& group = program_.group(reduction->group);
      factor *= reduction->scale.value();
      if (reduction->op == schedule::ReduceOp::Average) {
        factor /= static_cast<double>(group.size());
      }
      entry.content =
          summed_over(*entry.content, [&group](Rank of) { return group.instance_of(of); });
      if (!entry.content) return entry;
    }
    entry.content = scaled(*std::move(entry.content), factor);
    entry.is_reduced = true;
    return entry;
  }

  void observe(const Op& op) {
    const std::set<TensorId> reads(op.reads.begin(), op.reads.end());
    for (const TensorId id : reads) {
      const Entry entry = read(rank_, id);
      Observation look = {.op = op.id, .tensor = id};
      if (!entry.squares.empty()) {
        look.squares = entry.squares;
      } else if (late_.count(id) > 0 && op.phase != Phase::Optimizer &&
                 (seen_late_.insert(id).second || released_.count(id) > 0)) {
        look.is_of_previous_step = true;
      } else if (entry.content && frozen_.count(id) > 0) {
        look.expected = *entry.content;
      } else if (entry.content && entry.is_news) {
        look.expected = *entry.content;
        state_[rank_].at(id).is_news = false;
      } else if (entry.content && entry.is_reduced && looks_at_gradient(op, id)) {
        look.factor = rescale_by(op).value_or(1.0);
        look.expected = scaled(*entry.content, look.factor);
      } else {
        continue;
      }
      result_.observations.push_back(std::move(look));
    }
    if (const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect)) {
      observe_shard(op, *update);
    }
  }

  // Updates always do; in backward whoever reads a reduced gradient; of other optimizer ops the
  // first, if no update follows.
  bool looks_at_gradient(const Op& op, TensorId id) {
    if (std::holds_alternative<schedule::Update>(op.effect)) return true;
    if (!std::holds_alternative<schedule::Opaque>(op.effect) && op.phase == Phase::Optimizer) {
      return false;
    }
    if (op.phase != Phase::Optimizer) return program_.micro_steps == 1;
    for (const Op& other : program_.ops) {
      const bool is_reader =
          std::find(other.reads.begin(), other.reads.end(), id) != other.reads.end();
      if (is_reader && rescale_by(other)) return false;
    }
    return seen_.insert(id).second;
  }

  void observe_shard(const Op& op, const schedule::ShardUpdate& update) {
    const std::vector<schedule::BucketMember>& members = plan_.bucket(update.gradients).members;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Entry entry = read(rank_, members[i].tensor);
      if (!entry.content || !entry.is_reduced) continue;
      const double factor = rescale_by(op).value_or(1.0);
      result_.observations.push_back({.op = op.id,
                                      .tensor = members[i].tensor,
                                      .bucket = update.gradients,
                                      .member = i,
                                      .factor = factor,
                                      .expected = scaled(*entry.content, factor)});
    }
  }

  // Executing -------------------------------------------------------------------------------------

  void execute(Rank rank, const Op& op) {
    schedule::visit(
        op.effect, [&](const schedule::Opaque&) { produce(rank, op); },
        [&](const schedule::FillLossGradient&) { produce(rank, op); },
        [&](const schedule::Accumulate& sum) { accumulate(rank, op, sum); },
        [&](const schedule::ZeroFill&) {
          for (const TensorId id : op.writes) {
            state_[rank][id] = {.content = whole(*tensors_.at(id), {})};
          }
        },
        [](const schedule::Update&) {},
        [&](const schedule::ShardUpdate& update) { update_shard(rank, op, update); },
        [&](const schedule::GlobalNorm& norm) { take_norm(rank, op, norm); });
  }

  // An opaque op of the optimizer leaves gradients as they are (clipping).
  void produce(Rank rank, const Op& op) {
    if (op.phase == Phase::Optimizer) return;
    const double loss = loss_factor(program_, op.micro_step);
    for (const TensorId id : op.writes) {
      const TensorKind kind = tensors_.at(id)->kind;
      if (kind == TensorKind::Parameter || kind == TensorKind::OptimizerState) continue;
      const std::int32_t left = writes_left_.at({rank, op.id, id});
      const bool is_gradient = schedule::is_gradient(kind);
      const double factor = is_gradient || op.phase == Phase::Backward ? loss : 1.0;
      const Term term = {.tensor = id,
                         .writes_left = left,
                         .micro_step = op.micro_step,
                         .factor = is_gradient ? 1.0 : factor,
                         .ranks = {rank}};
      state_[rank][id] = {.content = whole(*tensors_.at(id), {term}), .is_complete = left == 0};
      if (rank != rank_) continue;
      result_.productions[op.id].push_back(
          {.tensor = id, .writes_left = left, .micro_step = op.micro_step, .factor = factor});
    }
  }

  // A sum over micro-steps leaves its factor out: it belongs to what is owed.
  void accumulate(Rank rank, const Op& op, const schedule::Accumulate& sum) {
    const TensorId target = op.writes.at(0);
    Entry result;
    for (const TensorId id : op.reads) {
      if (id == target) continue;
      const Entry summand = read(rank, id);
      result.squares = summand.squares;
      result.content = summand.content;
      result.is_reduced = summand.is_reduced;
    }
    if (!sum.overwrite) {
      const auto old = state_[rank].find(target);
      if (old != state_[rank].end() &&
          !result.squares.empty()) {  // norms of parts of the gradients
        const std::vector<Content>& others = old->second.squares;
        result.squares.insert(result.squares.begin(), others.begin(), others.end());
      }
      if (old != state_[rank].end() && result.content) {
        result.content =
            old->second.content ? sum_of(*old->second.content, *result.content) : std::nullopt;
        result.is_reduced = result.is_reduced || old->second.is_reduced;
      }
    }
    const bool is_merged = tensors_.at(target)->kind == TensorKind::MergedGradient;
    if (result.content && !is_merged) {
      result.content = scaled(*std::move(result.content), sum.factor.value());
    }
    const auto left = writes_left_.find({rank, op.id, target});
    result.is_complete = left != writes_left_.end() && left->second == 0;
    state_[rank][target] = std::move(result);
  }

  void update_shard(Rank rank, const Op& op, const schedule::ShardUpdate& update) {
    const std::vector<schedule::BucketMember>& gradients = plan_.bucket(update.gradients).members;
    const std::vector<schedule::BucketMember>& parameters = plan_.bucket(update.parameters).members;
    for (std::size_t i = 0; i < std::min(gradients.size(), parameters.size()); ++i) {
      const Entry entry = read(rank, gradients[i].tensor);
      if (!entry.content || !entry.is_reduced) continue;
      const schedule::Tensor& parameter = *tensors_.at(parameters[i].tensor);
      const auto first = static_cast<std::size_t>(parameters[i].first);
      const auto count = static_cast<std::size_t>(parameters[i].elements(parameter));
      if (rank != rank_) continue;
      summed_in_[parameter.id] = plan_.bucket(update.gradients).dtype;
      for (Piece piece : part_of(scaled(*entry.content, rescale_by(op).value_or(1.0)),
                                 static_cast<std::size_t>(gradients[i].first), count)) {
        piece.begin += first;
        updated_[parameter.id].push_back(std::move(piece));
      }
    }
  }

  void take_norm(Rank rank, const Op& op, const schedule::GlobalNorm& norm) {
    Entry entry;
    for (const TensorId id : op.reads) {
      if (!schedule::is_gradient(tensors_.at(id)->kind)) continue;
      const Entry gradient = read(rank, id);
      if (!gradient.content) return;
      entry.squares.push_back(scaled(*gradient.content, norm.rescale.value()));
    }
    if (!op.writes.empty()) state_[rank][op.writes[0]] = std::move(entry);
  }

  // Ops that are collectives ------------------------------------------------------------------------

  void communicate(const Op& op) {
    const auto& work = std::get<schedule::CollectiveWork>(op.work);
    const OpMessage message = message_of(program_, op);
    std::map<Rank, Entry> results;
    for (const Rank rank : ranks_) {
      if (!runs(rank, op)) continue;
      if (message.source) know_input(rank, *message.source);
      const std::span<const Rank> group = program_.group(work.group).instance_of(rank);
      if (message.target && !group.empty()) {
        results[rank] = bring(op, message, group, rank);
        const auto left = writes_left_.find({rank, op.id, *message.target});
        results[rank].is_complete = left != writes_left_.end() && left->second == 0;
      }
    }
    for (auto& [rank, entry] : results) state_[rank][*message.target] = std::move(entry);
  }

  // A tensor that nobody wrote in this step, as parameters that are broadcast, has a known value.
  void know_input(Rank rank, TensorId id) {
    if (state_[rank].count(id) > 0 || late_.count(id) > 0) return;
    const Term term = {.tensor = id, .writes_left = kInput, .ranks = {rank}};
    state_[rank][id] = {.content = whole(*tensors_.at(id), {term})};
    if (rank == rank_) result_.inputs.push_back(id);
  }

  Entry bring(const Op& op, const OpMessage& message, std::span<const Rank> group, Rank rank) {
    const auto& work = std::get<schedule::CollectiveWork>(op.work);
    const bool is_gradient = schedule::is_gradient(tensors_.at(*message.target)->kind);
    const bool has_root = schedule::traits_of(work.kind).rooted();
    const auto index =
        static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
    if (std::any_of(group.begin(), group.end(), [&](Rank peer) { return !runs(peer, op); })) {
      if (work.purpose == schedule::Purpose::GlobalNorm) return of_stages(op, group, rank);
      if (work.purpose == schedule::Purpose::TiedWeights) return of_ties(op, group, index);
    }
    std::vector<Content> contents(group.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (has_root && i != static_cast<std::size_t>(work.root)) continue;
      // The receiver's op of a send-recv names the tensor that the sender's op read.
      const TensorId from = message.source.value_or(*message.target);
      if (message.source) know_input(group[i], from);
      const auto known = state_[group[i]].find(from);
      if (known == state_[group[i]].end()) return {};
      if (!known->second.squares.empty()) return known->second;  // the all-reduce of a norm
      if (!known->second.content) return {};
      contents[i] = *known->second.content;
    }
    return {.content = received(work, contents, index), .is_news = !is_gradient};
  }

  // A norm that the stages of a pipeline add up, each by an op of its own: the n-th of the group on each rank.
  // The first of these ops notes what all bring, before it changes that.
  Entry of_stages(const Op& op, std::span<const Rank> group, Rank rank) {
    const std::vector<const Op*> own = meetings_of(rank, op);
    const auto nth = static_cast<std::size_t>(std::find(own.begin(), own.end(), &op) - own.begin());
    const GroupId over = std::get<schedule::CollectiveWork>(op.work).group;
    const auto [brought, fresh] = brought_.try_emplace({over, group.front(), nth});
    std::vector<Content>& squares = brought->second;
    std::set<OpId> seen;
    for (std::size_t i = 0; fresh && i < group.size(); ++i) {
      const std::vector<const Op*> all = meetings_of(group[i], op);
      if (nth >= all.size() || !seen.insert(all[nth]->id).second) continue;
      const Entry& part = state_[group[i]][all[nth]->reads.at(0)];
      squares.insert(squares.end(), part.squares.begin(), part.squares.end());
    }
    return {.content = std::nullopt, .squares = squares};
  }

  // Gradients of one weight that stages add up, likewise.
  Entry of_ties(const Op& op, std::span<const Rank> group, std::size_t index) {
    const auto& work = std::get<schedule::CollectiveWork>(op.work);
    const std::vector<const Op*> own = meetings_of(group[index], op);
    const auto nth = static_cast<std::size_t>(std::find(own.begin(), own.end(), &op) - own.begin());
    const auto [brought, fresh] = brought_.try_emplace({work.group, group.front(), nth});
    std::vector<Content>& contents = brought->second;
    for (std::size_t i = 0; fresh && i < group.size(); ++i) {
      const std::vector<const Op*> all = meetings_of(group[i], op);
      const Entry part = nth < all.size() ? state_[group[i]][all[nth]->reads.at(0)] : Entry();
      contents.push_back(part.content.value_or(Content()));
    }
    return {.content = received(work, contents, index)};
  }

  // The rank's collectives over the op's group.
  [[nodiscard]] std::vector<const Op*> meetings_of(Rank rank, const Op& op) const {
    const GroupId group = std::get<schedule::CollectiveWork>(op.work).group;
    std::vector<const Op*> all;
    for (const Op& other : program_.ops) {
      const auto* work = std::get_if<schedule::CollectiveWork>(&other.work);
      if (work != nullptr && work->group == group && runs(rank, other)) all.push_back(&other);
    }
    return all;
  }

  // The end of the step ----------------------------------------------------------------------------

  void finish() {
    for (Observation& look : result_.observations) {
      if (!look.is_of_previous_step) continue;
      look.expected = updated_[look.tensor];
      look.summed_in = summed_in_.at(look.tensor);
    }
    for (const schedule::Tensor& tensor : program_.tensors) {
      if (tensor.kind == TensorKind::MergedGradient) result_.sums.push_back(tensor.id);
    }
    if (program_.micro_steps == 1) look_at_gradients();
    for (const auto& [id, content] : updated_) {
      if (late_.count(id) > 0) continue;
      result_.at_end.push_back({.tensor = id, .expected = content, .summed_in = summed_in_.at(id)});
    }
  }

  // Those that lie reduced in memory when the step is over.
  void look_at_gradients() {
    std::set<TensorId> seen;
    for (const schedule::Reduction& reduction : owed_) {
      const TensorId id = reduction.gradient;
      if (debts_.count(id) == 0 || stays_scattered(id) || !seen.insert(id).second) continue;
      const Entry entry = read(rank_, id);
      if (entry.content && entry.is_reduced)
        result_.at_end.push_back({.tensor = id, .expected = *entry.content});
    }
  }

  // Whether the gradient's bucket is scattered, or of its sum a shard goes on, and it is never gathered again.
  [[nodiscard]] bool stays_scattered(TensorId id) const {
    std::set<BucketId> scattered;
    for (const schedule::Command& command : role_of(plan_, rank_).commands) {
      const auto* run = schedule::bucket_collective(command);
      if (run == nullptr) continue;
      const bool reduces = schedule::traits_of(run->kind).reduces();
      if (reduces && plan_.bucket(*run->bucket).shards > 1) scattered.insert(*run->bucket);
      if (run->kind == schedule::Collective::AllGather) scattered.erase(*run->bucket);
    }
    for (const schedule::BucketLayout& layout : plan_.buckets) {
      if (scattered.count(layout.bucket) == 0) continue;
      for (const schedule::BucketMember& member : layout.members) {
        if (member.tensor == id) return true;
      }
    }
    return false;
  }

  const schedule::ScheduledProgram& plan_;
  const schedule::Program& program_;
  const std::vector<schedule::Reduction>& owed_;
  Rank rank_;
  std::map<TensorId, const schedule::Tensor*> tensors_;
  std::set<Rank> ranks_;
  std::map<Rank, std::set<OpId>> ops_of_;
  std::map<std::tuple<Rank, OpId, TensorId>, std::int32_t> writes_left_;
  std::map<TensorId, std::vector<const schedule::Reduction*>> debts_;
  std::set<TensorId> late_;       // parameters gathered in the next step
  std::set<TensorId> seen_late_;  // those with an observation
  std::set<TensorId> released_;   // those that are gathered before each use: every reader looks
  std::set<TensorId> frozen_;     // ... of those the ones that nothing updates
  std::set<TensorId> seen_;       // gradients with one by an opaque op
  std::map<Rank, std::map<TensorId, Entry>> state_;
  // Of norms and tied gradients of several stages: by group, first rank of its instance, and how many came before.
  std::map<std::tuple<GroupId, Rank, std::size_t>, std::vector<Content>> brought_;
  std::map<TensorId, Content> updated_;  // parameters
  std::map<TensorId, schedule::DType> summed_in_;
  Expectations result_;
};

}  // namespace

double loss_factor(const schedule::Program& program, std::int32_t micro_step) {
  double any = 1;
  for (const Op& op : program.ops) {
    const auto* fill = std::get_if<schedule::FillLossGradient>(&op.effect);
    if (fill == nullptr) continue;
    any = fill->value.value();
    if (op.micro_step == micro_step) return any;
  }
  return any;
}

Expectations expectations(const schedule::ScheduledProgram& plan, Rank rank) {
  return Deriver(plan, rank).derive();
}

}  // namespace dovetail::exec::values
