// Positions in the op list say when a block is needed; a place between two ops says when it is gathered. All of
// it is done for one role of the pipeline after another: they share no time.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/fsdp.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/count.h"
#include "schedule/gradient.h"
#include "schedule/policies/definition.h"

namespace dovetail::schedule {
namespace {

constexpr std::size_t kNever = SIZE_MAX;

// One block, as far as its parameters are concerned.
struct Block {
  BucketId bucket;
  std::int32_t role = 0;  // of a pipeline
  BlockUse use = {};
};

// Blocks of one layer are one unit where blocks are layers; else each is its own.
class Units {
 public:
  explicit Units(bool by_layer) : by_layer_(by_layer) {}
  // Of the next block, which holds this parameter.
  std::size_t next(std::string_view parameter) {
    if (!by_layer_) return count_++;
    const auto [at, fresh] = known_.try_emplace(layer_of(parameter), count_);
    if (fresh) ++count_;
    return at->second;
  }

 private:
  bool by_layer_ = false;
  std::map<std::string_view, std::size_t> known_;
  std::size_t count_ = 0;
};

// Finds when each block is gathered, and for how long.
class StayPlacer {
 public:
  StayPlacer(std::span<const BlockUse> blocks, const Gathers& gathers, MicroBatches order)
      : blocks_(blocks), gathers_(gathers), order_(order) {}

  BlockStays run() && {
    list_stays();
    place_stays();
    return std::move(found_);
  }

 private:
  // What each block is gathered for, in the order of first use. Where forward ends and backward
  // begins with one unit, it stays; in a pipeline other micro-batches may come between.
  void list_stays() {
    std::map<std::size_t, std::array<BlockReaders, 2>> units;  // in forward and in backward
    for (const BlockUse& block : blocks_) {
      units[block.unit][0].join(block.forward);
      units[block.unit][1].join(block.backward);
    }
    const std::array<BlockReaders, 2>* ends_forward = nullptr;  // the unit
    const std::array<BlockReaders, 2>* begins_backward = nullptr;
    for (const auto& [unit, readers] : units) {
      for (const BlockReaders& each : readers) {
        if (each.any()) uses_.push_back(each.first);
      }
      const auto& [forward, backward] = readers;
      if (forward.any() && (!ends_forward || forward.last > (*ends_forward)[0].last)) {
        ends_forward = &readers;
      }
      if (backward.any() && (!begins_backward || backward.first < (*begins_backward)[1].first)) {
        begins_backward = &readers;
      }
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const BlockUse& block = blocks_[i];
      const bool both = block.forward.any() && block.backward.any();
      const bool at_once = order_ == MicroBatches::InTurn && ends_forward == begins_backward &&
                           ends_forward == &units.at(block.unit);
      if (both && (at_once || gathers_.reshard == Choice::No)) {
        BlockReaders all = block.forward;
        all.join(block.backward);
        found_.all.push_back({.block = i, .readers = GatherFor::ForwardAndBackward, .used = all});
        continue;
      }
      if (block.forward.any()) {
        found_.all.push_back({.block = i, .readers = GatherFor::Forward, .used = block.forward});
      }
      if (block.backward.any()) {
        found_.all.push_back({.block = i, .readers = GatherFor::Backward, .used = block.backward});
      }
    }
    std::ranges::sort(uses_);
    std::ranges::stable_sort(found_.all, {}, [](const BlockStay& stay) { return stay.used.first; });
    for (BlockStay& stay : found_.all) {
      const std::array<BlockReaders, 2>& unit = units.at(blocks_[stay.block].unit);
      const std::size_t first = unit[stay.readers == GatherFor::Backward ? 1 : 0].first;
      const auto use = std::ranges::lower_bound(uses_, first);
      stay.use = static_cast<std::size_t>(use - uses_.begin());
    }
  }

  // Ahead as far as asked for, later where the limits demand it.
  void place_stays() {
    std::size_t previous = 0;
    for (std::size_t i = 0; i < found_.all.size(); ++i) {
      BlockStay& stay = found_.all[i];
      const auto ahead = static_cast<std::size_t>(
          stay.readers == GatherFor::Backward ? gathers_.backward : gathers_.forward);
      stay.launch = std::max(previous, stay.use < ahead ? 0 : uses_[stay.use - ahead]);
      for (std::size_t k = 0; k < i; ++k) {
        if (found_.all[k].block == stay.block) {
          stay.launch = std::max(stay.launch, found_.all[k].used.last + 1);
        }
      }
      while (const std::optional<std::size_t> later = too_early(i)) {
        if (*later > stay.used.first) return fail(i);
        stay.launch = *later;
      }
      previous = stay.launch;
      found_.most = std::max(found_.most, gathered_at(i).bytes);
    }
  }

  // What is gathered once stay i is launched, itself included.
  [[nodiscard]] GatherLimit gathered_at(std::size_t i) const {
    GatherLimit all{.bytes = blocks_[found_.all[i].block].bytes, .buckets = 1};
    for (std::size_t k = 0; k < i; ++k) {
      if (found_.all[k].used.last + 1 <= found_.all[i].launch) continue;
      all.bytes += blocks_[found_.all[k].block].bytes;
      ++all.buckets;
    }
    return all;
  }

  [[nodiscard]] bool exceeds(const GatherLimit& all) const {
    const GatherLimit& limit = gathers_.limit;
    return (limit.bytes > Bytes(0) && all.bytes > limit.bytes) ||
           (limit.buckets > 0 && all.buckets > limit.buckets);
  }

  // Where the next block in the way is released; nothing: the limits hold.
  [[nodiscard]] std::optional<std::size_t> too_early(std::size_t i) const {
    if (!exceeds(gathered_at(i))) return std::nullopt;
    std::size_t next = kNever;
    for (std::size_t k = 0; k < i; ++k) {
      const std::size_t released = found_.all[k].used.last + 1;
      if (released > found_.all[i].launch) next = std::min(next, released);
    }
    return next;
  }

  void fail(std::size_t i) {
    found_.all[i].launch = found_.all[i].used.first;  // as late as can be
    found_.failed = i;
    found_.too_much = gathered_at(i);
  }

  std::span<const BlockUse> blocks_;
  const Gathers& gathers_;
  MicroBatches order_;
  BlockStays found_;
  std::vector<std::size_t> uses_;  // where forward or backward of each unit begins, rising
};

class GatherPlacer {
 public:
  GatherPlacer(const Program& program, const Policy& policy, PolicyResult& result)
      : program_(program),
        gathers_(*policy.decisions.gathers),
        stream_(placement(policy).streams - 1),
        max_ctas_(placement(policy).max_ctas),
        parameter_(parameters_of(program)),
        result_(result) {}

  std::optional<std::string> run(const Groups& groups, const Groups& frozen) && {
    by_layer_ = groups.front().closed_by == "layer";
    Units units(by_layer_);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      make_block(groups[i], result_.schedule.buckets[i].id, units);
    }
    for (std::size_t i = 0; i < frozen.size(); ++i) {
      make_block(frozen[i], result_.schedule.frozen[i].id, units);
    }
    frozen_ = frozen.size();
    find_readers(groups);
    for (std::int32_t role = 0; role < program_.stages && !failure_; ++role) {
      role_ = role;
      place_stays();
      if (!failure_) write_gathers();
    }
    if (!failure_) report();
    return std::move(failure_);
  }

 private:
  // Of gradients, or of parameters that stand for them.
  [[nodiscard]] TensorId parameter_of(const OwedGradient& gradient) const {
    const TensorId updated = parameter_.at(gradient.tensor);
    return updated.value < 0 ? gradient.tensor : updated;
  }

  void make_block(const GradientGroup& group, BucketId id, Units& units) {
    const OwedGradient& front = group.members.front();
    const std::int64_t ranks = program_.group(front.group).size();
    std::int64_t elements = 0;
    for (const OwedGradient& gradient : group.members) {
      elements += gradient.numel;
      block_of_[parameter_of(gradient)] = static_cast<std::int32_t>(blocks_.size());
    }
    const Tensor& first = program_.tensor(parameter_of(front));
    blocks_.push_back(
        {.bucket = id,
         .role = program_.role_of(program_.ops[front.producer_index]),
         .use = {.bytes = element_size(first.dtype) * ((elements + ranks - 1) / ranks * ranks),
                 .unit = units.next(first.name)}});
  }

  void find_readers(const Groups& groups) {
    IdTable<TensorId, char> is_read(0);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.phase == Phase::Optimizer) continue;
      for (const TensorId id : op.reads) {
        if (block_of_.at(id) < 0) continue;
        is_read[id] = 1;
        Block& block = blocks_[static_cast<std::size_t>(block_of_.at(id))];
        (op.phase == Phase::Forward ? block.use.forward : block.use.backward).join({i, i});
      }
    }
    for (const OwedGradient& gradient : in_ready_order(groups)) {
      const TensorId parameter = parameter_of(gradient);
      if (is_read.at(parameter) != 0) continue;
      failure_ = "no op of forward or backward is known to read parameter " +
                 program_.tensor(parameter).name + ", so when it is needed is not known";
      return;
    }
  }

  static std::vector<OwedGradient> in_ready_order(const Groups& groups) {
    std::vector<OwedGradient> all;
    for (const GradientGroup& group : groups) {
      all.insert(all.end(), group.members.begin(), group.members.end());
    }
    std::ranges::stable_sort(all, {}, &OwedGradient::producer_index);
    return all;
  }

  void place_stays() {
    std::vector<BlockUse> uses;
    std::vector<std::size_t> at;  // of the blocks
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].role != role_) continue;
      uses.push_back(blocks_[i].use);
      at.push_back(i);
    }
    const BlockStays placed = stays_of(
        uses, gathers_, program_.stages == 1 ? MicroBatches::InTurn : MicroBatches::Interleaved);
    if (placed.failed) return fail(placed.all[*placed.failed], placed.too_much);
    most_ = std::max(most_, placed.most);
    stays_ = placed.all;
    for (BlockStay& stay : stays_) stay.block = at[stay.block];
  }

  void fail(const BlockStay& stay, const GatherLimit& all) {
    failure_ = "when op " + program_.ops[stay.used.first].name + " runs, " +
               counted(std::int64_t{all.buckets}, "block") + " of " +
               dovetail::to_string(all.bytes) + " must be gathered, above the limit of ";
    const GatherLimit& limit = gathers_.limit;
    const bool in_bytes = limit.bytes > Bytes(0) && all.bytes > limit.bytes;
    *failure_ += in_bytes ? "memory=" + dovetail::to_string(limit.bytes)
                          : "limit=" + std::to_string(limit.buckets);
  }

  // Behind the role's op before the place, or where the host waits, in front of its op there; nothing: at the start.
  [[nodiscard]] std::optional<LaunchPoint> launch_of(const BlockStay& stay) const {
    const auto is_own = [&](std::size_t op) { return program_.role_of(program_.ops[op]) == role_; };
    std::size_t place = stay.launch;
    if (gathers_.host_waits == Choice::Yes && place < stay.used.first) {
      while (!is_own(place)) ++place;
      return LaunchBeforeOp{program_.ops[place].id};
    }
    while (place > 0 && !is_own(place - 1)) --place;
    if (place == 0) return std::nullopt;
    return LaunchAfterOp{program_.ops[place - 1].id};
  }

  void write_gathers() {
    for (const BlockStay& stay : stays_) {
      ParameterGather gather;
      gather.bucket = blocks_[stay.block].bucket;
      gather.readers = stay.readers;
      gather.stream = CommStream{stream_};
      gather.max_ctas = max_ctas_;
      if (const auto launch = launch_of(stay)) gather.launch = *launch;
      kept_ += stay.readers == GatherFor::ForwardAndBackward ? 1 : 0;
      result_.schedule.gathers.push_back(gather);
    }
  }

  void report() {
    result_.most_gathered = most_;
    Bytes all;
    Bytes largest;
    const bool per_micro_batch = program_.stages > 1 && gathers_.reshard == Choice::Yes;
    for (const Block& block : blocks_) {
      all += block.use.bytes;
      largest = std::max(largest, block.use.bytes);
    }
    const std::string frozen = " (" + std::to_string(frozen_) + " frozen)";
    result_.report.push_back(counted(blocks_.size(), "block") + (frozen_ > 0 ? frozen : "") +
                             " by " + (by_layer_ ? "layer" : "size") + ", the largest " +
                             dovetail::to_string(largest) + "; " +
                             counted(result_.schedule.gathers.size(), "gather") +
                             (per_micro_batch ? " a micro-batch, " : " a step, ") +
                             counted(kept_, "block") + " kept from forward to backward");
    if (program_.stages > 1) return;  // what overlaps is decided by the order of the micro-batches
    result_.report.push_back("gathered at a time: at most " + dovetail::to_string(most_) + " of " +
                             dovetail::to_string(all) + " of parameters");
  }

  const Program& program_;
  const Gathers& gathers_;
  std::int32_t stream_ = 0;
  std::int32_t max_ctas_ = 0;
  IdTable<TensorId, TensorId> parameter_;         // of a gradient
  IdTable<TensorId, std::int32_t> block_of_{-1};  // of a parameter
  PolicyResult& result_;
  std::optional<std::string> failure_;
  bool by_layer_ = false;
  std::size_t frozen_ = 0;        // of the blocks, the last ones
  std::vector<Block> blocks_;     // in gradient-ready order, as the buckets; then the frozen ones
  std::int32_t role_ = 0;         // whose turn it is
  std::vector<BlockStay> stays_;  // of that
  std::size_t kept_ = 0;
  Bytes most_;
};

}  // namespace

IdTable<TensorId, TensorId> parameters_of(const Program& program) {
  IdTable<TensorId, TensorId> parameters(TensorId{-1});
  for (const Op& op : program.ops) {
    if (!std::holds_alternative<Update>(op.effect)) continue;
    std::vector<TensorId> written;
    for (const TensorId id : op.writes) {
      if (program.tensor(id).kind == TensorKind::Parameter) written.push_back(id);
    }
    std::size_t next = 0;
    for (const TensorId id : op.reads) {
      if (is_gradient(program.tensor(id).kind) && next < written.size()) {
        parameters[id] = written[next++];
      }
    }
  }
  return parameters;
}

std::vector<OwedGradient> frozen_parameters(const Program& program, GroupId group) {
  struct Use {
    std::size_t forward = kNever;  // the last reader
    std::size_t backward = kNever;
    bool is_written = false;
  };
  IdTable<TensorId, Use> uses;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const TensorId id : op.writes) uses[id].is_written = true;
    if (op.phase == Phase::Optimizer) continue;
    for (const TensorId id : op.reads) {
      (op.phase == Phase::Forward ? uses[id].forward : uses[id].backward) = i;
    }
  }
  std::vector<OwedGradient> frozen;
  std::vector<OwedGradient> of_forward;  // alone: their backward would come last
  for (const Tensor& tensor : program.tensors) {
    const Use& use = uses.at(tensor.id);
    const bool is_read = use.forward != kNever || use.backward != kNever;
    if (tensor.kind != TensorKind::Parameter || use.is_written || !is_read) continue;
    const std::size_t last = use.backward == kNever ? use.forward : use.backward;
    (use.backward == kNever ? of_forward : frozen)
        .push_back({.tensor = tensor.id,
                    .group = group,
                    .dtype = tensor.dtype,
                    .bytes = tensor.bytes(),
                    .numel = tensor.numel(),
                    .producer = program.ops[last].id,
                    .producer_index = last});
  }
  std::ranges::stable_sort(frozen, {}, &OwedGradient::producer_index);
  std::ranges::stable_sort(of_forward, std::ranges::greater(), &OwedGradient::producer_index);
  frozen.insert(frozen.end(), of_forward.begin(), of_forward.end());
  return frozen;
}

void append_frozen(Schedule& schedule, const Groups& frozen, BucketMode mode) {
  std::int32_t next = 0;
  for (const Bucket& bucket : schedule.buckets) next = std::max(next, bucket.id.value + 1);
  for (const GradientGroup& group : frozen) {
    FrozenBlock block{.id = BucketId{next++},
                      .parameters = {},
                      .group = group.members.front().group,
                      .mode = mode};
    for (const OwedGradient& parameter : group.members)
      block.parameters.push_back(parameter.tensor);
    schedule.frozen.push_back(std::move(block));
  }
}

BlockStays stays_of(std::span<const BlockUse> blocks, const Gathers& gathers, MicroBatches order) {
  return StayPlacer(blocks, gathers, order).run();
}

std::optional<std::string> place_gathers(const Program& program, const Policy& policy,
                                         const Groups& groups, const Groups& frozen,
                                         PolicyResult& result) {
  return GatherPlacer(program, policy, result).run(groups, frozen);
}

Prefetch prefetch_of(const Program& program, const Schedule& schedule) {
  const IdTable<TensorId, TensorId> parameter = parameters_of(program);
  IdTable<TensorId, std::int32_t> unit_of(-1);
  std::map<BucketId, std::int32_t> units;
  Units all(std::ranges::all_of(schedule.buckets,
                                [](const Bucket& bucket) { return bucket.closed_by == "layer"; }));
  const auto next = [&](BucketId block, TensorId named) {
    return units[block] = static_cast<std::int32_t>(all.next(program.tensor(named).name));
  };
  for (const Bucket& bucket : schedule.buckets) {
    const std::int32_t unit = next(bucket.id, parameter.at(bucket.gradients.front().tensor));
    for (const Slice& slice : bucket.gradients) unit_of[parameter.at(slice.tensor)] = unit;
  }
  for (const FrozenBlock& block : schedule.frozen) {
    const std::int32_t unit = next(block.id, block.parameters.front());
    for (const TensorId id : block.parameters) unit_of[id] = unit;
  }
  std::map<std::pair<std::int32_t, Phase>, std::size_t> first;  // reader of a unit in a phase
  IdTable<OpId, std::size_t> position(0);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    position[program.ops[i].id] = i;
    if (program.ops[i].phase == Phase::Optimizer) continue;
    for (const TensorId id : program.ops[i].reads) {
      if (unit_of.at(id) >= 0) first.try_emplace({unit_of.at(id), program.ops[i].phase}, i);
    }
  }
  Prefetch prefetch;
  for (const ParameterGather& gather : schedule.gathers) {
    const bool backward = gather.readers == GatherFor::Backward;
    const auto use =
        first.find({units.at(gather.bucket), backward ? Phase::Backward : Phase::Forward});
    if (use == first.end()) continue;
    const auto* after = std::get_if<LaunchAfterOp>(&gather.launch);
    const auto* before = std::get_if<LaunchBeforeOp>(&gather.launch);
    const std::size_t launch = after != nullptr    ? position.at(after->op) + 1
                               : before != nullptr ? position.at(before->op)
                                                   : 0;
    const std::size_t reader = use->second;
    const auto role = [&](std::size_t op) { return program.role_of(program.ops[op]); };
    std::set<std::size_t> between;  // blocks that one op reads first are wanted together
    for (const auto& [unit, op] : first) {
      if (op >= launch && op < reader && role(op) == role(reader)) between.insert(op);
    }
    std::int32_t& most = backward ? prefetch.backward : prefetch.forward;
    most = std::max(most, static_cast<std::int32_t>(between.size()));
  }
  return prefetch;
}

namespace {

using typed::Typed;

constexpr std::int32_t kMostBlocks = 1 << 16;

constexpr std::string_view kSearchAhead = "search";

std::int32_t blocks_ahead(const Typed& typed) {
  if (typed.value == kSearchAhead) return kSearchedPrefetch;
  return static_cast<std::int32_t>(typed::number(typed, kMostBlocks, 0));
}

Gathers gathers_of(const Decisions& decisions) { return decisions.gathers.value_or(Gathers{}); }
bool by_layer(const Decisions& decisions) {
  return std::holds_alternative<ByLayer>(*decisions.grouping);
}

// A block that closes by its size.
PolicyOption block_size_option() {
  PolicyOption option = options::cap();
  option.read = [](Decisions& decisions, const Typed& typed) {
    decisions.grouping = ByLimits{.cap = typed::size(typed)};
  };
  return option;
}

PolicyOption blocks_option() {
  return {"blocks", Decision::Grouping,
          [](Decisions& decisions, const Typed& typed) {
            if (typed.value == "layer") {
              decisions.grouping = ByLayer{};
            } else if (typed.value == "size") {
              decisions.grouping = ByLimits{};
            } else {
              fail(typed, "expected layer or size, found \"" + std::string(typed.value) + "\"");
            }
          },
          [](const Decisions& decisions) {
            return by_layer(decisions) ? std::string("layer") : std::string();
          },
          true};
}

bool both_are_searched(const Decisions& decisions) {
  const Gathers gathers = gathers_of(decisions);
  return gathers.forward == kSearchedPrefetch && gathers.backward == kSearchedPrefetch;
}
// Of one direction; nothing where `prefetch` says it.
std::string ahead_text(const Decisions& decisions, std::int32_t ahead) {
  if (both_are_searched(decisions)) return "";
  return ahead == kSearchedPrefetch ? std::string(kSearchAhead) : std::to_string(ahead);
}

// `prefetch` is both directions at once and printed as these, unless both are searched.
std::vector<PolicyOption> prefetch_options() {
  return {{"prefetch", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             decisions.gathers->forward = decisions.gathers->backward = blocks_ahead(typed);
           },
           [](const Decisions& decisions) {
             return std::string(both_are_searched(decisions) ? kSearchAhead : "");
           },
           true},
          {"forward", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             decisions.gathers->forward = blocks_ahead(typed);
           },
           [](const Decisions& decisions) {
             return ahead_text(decisions, gathers_of(decisions).forward);
           },
           true},
          {"backward", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             decisions.gathers->backward = blocks_ahead(typed);
           },
           [](const Decisions& decisions) {
             return ahead_text(decisions, gathers_of(decisions).backward);
           },
           true}};
}

// How much is gathered at a time, and for how long.
std::vector<PolicyOption> memory_options() {
  return {{"memory", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             decisions.gathers->limit.bytes = typed::size(typed);
           },
           [](const Decisions& decisions) {
             const Bytes bytes = gathers_of(decisions).limit.bytes;
             return bytes > Bytes(0) ? typed::exact_size(bytes) : std::string();
           }},
          {"limit", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             decisions.gathers->limit.buckets = typed::small_number(typed, kMostBlocks);
           },
           [](const Decisions& decisions) {
             return typed::positive(gathers_of(decisions).limit.buckets);
           }},
          {"reshard", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             if (is_some_ranks(typed.value)) typed::fail(typed, std::string(kReshardOverSome));
             decisions.gathers->reshard = typed::word<Choice>(typed);
           },
           [](const Decisions& decisions) {
             return std::string(to_string(gathers_of(decisions).reshard));
           }},
          {"host_waits", Decision::Gathers,
           [](Decisions& decisions, const Typed& typed) {
             decisions.gathers->host_waits = typed::word<Choice>(typed);
           },
           [](const Decisions& decisions) {
             const bool waits = gathers_of(decisions).host_waits == Choice::Yes;
             return std::string(waits ? to_string(Choice::Yes) : "");
           }}};
}

void check_blocks(Decisions&, const TypedOptions& typed) {
  if (typed.has("cap") && typed.has("blocks")) {
    typed::fail(typed.text,
                "cap closes a block by its size and blocks= by its layer: give one of them");
  }
  if (typed.has("prefetch") && (typed.has("forward") || typed.has("backward"))) {
    typed::fail(typed.text, "prefetch= sets forward= and backward= at once: give one or the other");
  }
}

}  // namespace

PolicyDefinition fsdp_policy() {
  std::vector<PolicyOption> others = {options::replicas(), blocks_option()};
  for (const PolicyOption& option : prefetch_options()) others.push_back(option);
  for (const PolicyOption& option : memory_options()) others.push_back(option);
  return {.name = "fsdp",
          .purpose = "ZeRO-3: parameters gathered block by block before each use",
          .sizes = {block_size_option()},
          .batches = {options::batch()},
          .others = std::move(others),
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = ByLayer{};
                decisions.sharding = Sharding{};
                decisions.gathers = Gathers{};
              },
          .grouping = Firmness::DefaultOfShards,
          .complete = check_blocks,
          .groups_by = "the parameters of one block"};
}

}  // namespace dovetail::schedule
