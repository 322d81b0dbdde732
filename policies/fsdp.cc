// Blocks, then the gathers of their parameters in the order of use.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/fsdp.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "base/count.h"
#include "policies/definition.h"
#include "policies/grouping.h"
#include "policies/scaling.h"
#include "policies/sharded.h"
#include "schedule/gradient.h"
#include "schedule/id_table.h"

namespace dovetail::schedule {
namespace {

constexpr std::size_t kNever = SIZE_MAX;

// Positions of ops.
struct Readers {
  std::size_t first = kNever;
  std::size_t last = 0;

  [[nodiscard]] bool any() const { return first != kNever; }
  void join(const Readers& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

// One block, as far as its parameters are concerned.
struct Block {
  BucketId bucket;
  Bytes bytes;  // when gathered, with padding
  Readers forward = {};
  Readers backward = {};
};

// One gather that the Schedule will list: from place `launch` on (0 is the start of the step, p + 1
// behind the op at position p) until behind its last reader.
struct Stay {
  std::size_t block = 0;
  GatherFor readers = GatherFor::Forward;
  Readers used = {};
  std::size_t use = 0;  // its first one, position in the list of uses
  std::size_t launch = 0;
};

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char letter) {
    return std::isdigit(static_cast<unsigned char>(letter)) != 0;
  });
}

// "transformer.h.3" of "transformer.h.3.attn.weight"; without a number the module: "head" of
// "head.weight".
std::string_view layer_of(std::string_view parameter) {
  std::size_t begin = 0;
  while (begin < parameter.size()) {
    const std::size_t end = std::min(parameter.find('.', begin), parameter.size());
    if (is_number(parameter.substr(begin, end - begin))) return parameter.substr(0, end);
    begin = end + 1;
  }
  return parameter.substr(0, parameter.rfind('.'));
}

// The parameter that is updated with each gradient: the i-th that the update writes.
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

class Fsdp {
 public:
  Fsdp(const Program& program, const PolicySpec& spec)
      : program_(program), spec_(spec), parameter_(parameters_of(program)) {}

  PolicyResult run() && {
    result_.failure = refusal();
    if (result_.failure) return std::move(result_);
    make_buckets();
    find_readers();
    if (!result_.failure) list_stays();
    if (!result_.failure) place_stays();
    if (result_.failure) return std::move(result_);
    write_gathers();
    report();
    return std::move(result_);
  }

 private:
  std::optional<std::string> refusal() {
    if (program_.reductions.empty()) return "no gradient of the program is to be reduced";
    if (program_.stages > 1) {
      return "the program is split into pipeline stages, and the parameters of one stage would be "
             "gathered once for each micro-batch";
    }
    groups_ = find_shard_groups(program_, spec_);
    if (groups_.refusal) return groups_.refusal;
    owed_ = travelling(program_, spec_);
    if (groups_.replicas) {
      std::erase_if(owed_,
                    [&](const OwedGradient& owes) { return owes.group == *groups_.replicas; });
    }
    return sharding_refusal(program_, spec_, owed_);
  }

  [[nodiscard]] Grouping blocks() const {
    if (spec_.blocks == Blocks::Size) {
      return group_by_limits(program_, owed_, {.limits = {spec_.threshold.count()}});
    }
    std::map<std::pair<BucketKey, std::string_view>, std::size_t> known;
    Grouping result;
    for (const OwedGradient& gradient : owed_) {
      const std::string_view layer = layer_of(program_.tensor(parameter_.at(gradient.tensor)).name);
      const auto [at, fresh] =
          known.try_emplace({key_of(program_, gradient), layer}, result.size());
      if (fresh) result.push_back({{}, "layer"});
      result[at->second].members.push_back(gradient);
    }
    std::ranges::stable_sort(
        result, {}, [](const GradientGroup& group) { return group.members.back().producer_index; });
    return result;
  }

  void make_buckets() {
    const Grouping grouping = blocks();
    Schedule& schedule = result_.schedule;
    schedule = to_schedule(grouping, spec_);
    schedule.scale = spec_.scale.value_or(ScaleAt::Collective);
    schedule.parameters = ParameterSync::EachUse;
    schedule.gather_limit = spec_.gathered;
    for (std::size_t i = 0; i < grouping.size(); ++i) {
      Bucket& bucket = schedule.buckets[i];
      bucket.collective = Collective::ReduceScatter;
      bucket.replicas = groups_.replicas;
      const Bytes element = element_size(grouping[i].members.front().dtype);
      const std::int64_t unit = element.count() * program_.group(bucket.group).size();
      Bytes bytes;
      for (const OwedGradient& gradient : grouping[i].members) {
        bytes += gradient.bytes;
        block_of_[parameter_.at(gradient.tensor)] = static_cast<std::int32_t>(i);
      }
      bytes = Bytes((bytes.count() + unit - 1) / unit * unit);
      blocks_.push_back({.bucket = bucket.id, .bytes = bytes});
    }
  }

  void find_readers() {
    IdTable<TensorId, char> is_read(0);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.phase == Phase::Optimizer) continue;
      for (const TensorId id : op.reads) {
        if (block_of_.at(id) < 0) continue;
        is_read[id] = 1;
        Block& block = blocks_[static_cast<std::size_t>(block_of_.at(id))];
        (op.phase == Phase::Forward ? block.forward : block.backward).join({i, i});
      }
    }
    for (const OwedGradient& gradient : owed_) {
      const TensorId parameter = parameter_.at(gradient.tensor);
      if (is_read.at(parameter) != 0) continue;
      result_.failure = "no op of forward or backward is known to read parameter " +
                        program_.tensor(parameter).name + ", so when it is needed is not known";
      return;
    }
  }

  // What each block is gathered for, in the order of first use.
  void list_stays() {
    std::optional<std::size_t> ends_forward;  // the block
    std::optional<std::size_t> begins_backward;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Readers& forward = blocks_[i].forward;
      const Readers& backward = blocks_[i].backward;
      if (forward.any()) {
        uses_.push_back(forward.first);
        if (!ends_forward || forward.last > blocks_[*ends_forward].forward.last) ends_forward = i;
      }
      if (backward.any()) {
        uses_.push_back(backward.first);
        if (!begins_backward || backward.first < blocks_[*begins_backward].backward.first) {
          begins_backward = i;
        }
      }
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      const bool both = block.forward.any() && block.backward.any();
      const bool at_once = i == ends_forward && i == begins_backward;
      if (both && (at_once || spec_.reshard == Choice::No)) {
        Readers all = block.forward;
        all.join(block.backward);
        stays_.push_back({.block = i, .readers = GatherFor::ForwardAndBackward, .used = all});
        continue;
      }
      if (block.forward.any()) {
        stays_.push_back({.block = i, .readers = GatherFor::Forward, .used = block.forward});
      }
      if (block.backward.any()) {
        stays_.push_back({.block = i, .readers = GatherFor::Backward, .used = block.backward});
      }
    }
    std::ranges::sort(uses_);
    std::ranges::stable_sort(stays_, {}, [](const Stay& stay) { return stay.used.first; });
    for (Stay& stay : stays_) {
      const auto use = std::ranges::lower_bound(uses_, stay.used.first);
      stay.use = static_cast<std::size_t>(use - uses_.begin());
    }
  }

  // Ahead as far as asked for, later where the limits demand it.
  void place_stays() {
    std::size_t previous = 0;
    for (std::size_t i = 0; i < stays_.size(); ++i) {
      Stay& stay = stays_[i];
      const auto ahead = static_cast<std::size_t>(
          stay.readers == GatherFor::Backward ? spec_.prefetch_backward : spec_.prefetch_forward);
      stay.launch = std::max(previous, stay.use < ahead ? 0 : uses_[stay.use - ahead]);
      for (std::size_t k = 0; k < i; ++k) {
        if (stays_[k].block == stay.block) {
          stay.launch = std::max(stay.launch, stays_[k].used.last + 1);
        }
      }
      while (const std::optional<std::size_t> later = too_early(i)) {
        if (*later > stay.used.first) return fail(i);
        stay.launch = *later;
      }
      previous = stay.launch;
      most_ = std::max(most_, gathered_at(i).bytes);
    }
  }

  // What is gathered once stay i is launched, itself included.
  [[nodiscard]] GatherLimit gathered_at(std::size_t i) const {
    GatherLimit all{.bytes = blocks_[stays_[i].block].bytes, .buckets = 1};
    for (std::size_t k = 0; k < i; ++k) {
      if (stays_[k].used.last + 1 <= stays_[i].launch) continue;
      all.bytes += blocks_[stays_[k].block].bytes;
      ++all.buckets;
    }
    return all;
  }

  [[nodiscard]] bool exceeds(const GatherLimit& all) const {
    const GatherLimit& limit = spec_.gathered;
    return (limit.bytes > Bytes(0) && all.bytes > limit.bytes) ||
           (limit.buckets > 0 && all.buckets > limit.buckets);
  }

  // Where the next block in the way is released; nothing: the limits hold.
  [[nodiscard]] std::optional<std::size_t> too_early(std::size_t i) const {
    if (!exceeds(gathered_at(i))) return std::nullopt;
    std::size_t next = kNever;
    for (std::size_t k = 0; k < i; ++k) {
      const std::size_t released = stays_[k].used.last + 1;
      if (released > stays_[i].launch) next = std::min(next, released);
    }
    return next;
  }

  void fail(std::size_t i) {
    Stay& stay = stays_[i];
    stay.launch = stay.used.first;  // as late as can be
    const GatherLimit all = gathered_at(i);
    result_.failure = "when op " + program_.ops[stay.used.first].name + " runs, " +
                      counted(std::int64_t{all.buckets}, "block") + " of " +
                      dovetail::to_string(all.bytes) + " must be gathered, above the limit of ";
    const GatherLimit& limit = spec_.gathered;
    const bool in_bytes = limit.bytes > Bytes(0) && all.bytes > limit.bytes;
    *result_.failure += in_bytes ? "memory=" + dovetail::to_string(limit.bytes)
                                 : "limit=" + std::to_string(limit.buckets);
  }

  void write_gathers() {
    for (const Stay& stay : stays_) {
      ParameterGather gather;
      gather.bucket = blocks_[stay.block].bucket;
      gather.readers = stay.readers;
      gather.stream = CommStream{spec_.streams - 1};
      if (stay.launch > 0) gather.launch = LaunchAfterOp{program_.ops[stay.launch - 1].id};
      result_.schedule.gathers.push_back(gather);
    }
  }

  void report() {
    Bytes all;
    Bytes largest;
    for (const Block& block : blocks_) {
      all += block.bytes;
      largest = std::max(largest, block.bytes);
    }
    std::size_t kept = 0;
    for (const Stay& stay : stays_) kept += stay.readers == GatherFor::ForwardAndBackward ? 1 : 0;
    result_.report.push_back(
        counted(blocks_.size(), "block") + " by " + std::string(to_string(spec_.blocks)) +
        ", the largest " + dovetail::to_string(largest) + "; " + counted(stays_.size(), "gather") +
        " a step, " + counted(kept, "block") + " kept from forward to backward");
    result_.report.push_back("gathered at a time: at most " + dovetail::to_string(most_) + " of " +
                             dovetail::to_string(all) + " of parameters");
  }

  const Program& program_;
  const PolicySpec& spec_;
  IdTable<TensorId, TensorId> parameter_;         // of a gradient
  IdTable<TensorId, std::int32_t> block_of_{-1};  // of a parameter
  ShardGroups groups_;
  std::vector<OwedGradient> owed_;
  std::vector<Block> blocks_;      // in gradient-ready order, as the buckets
  std::vector<std::size_t> uses_;  // where forward or backward of each block begins, rising
  std::vector<Stay> stays_;        // in the order of first use
  Bytes most_;
  PolicyResult result_;
};

}  // namespace

PolicyResult fsdp(const Program& program, const PolicySpec& spec) {
  return Fsdp(program, spec).run();
}

namespace {

using typed::Typed;

constexpr std::int32_t kMost = 1 << 16;

std::int32_t blocks_ahead(const Typed& typed) {
  return static_cast<std::int32_t>(typed::number(typed, kMost, 0));
}

PolicyOption cap_option() {
  PolicyOption option = options::cap();
  option.read = [](PolicySpec& spec, const Typed& typed) {
    spec.threshold = typed::size(typed);
    spec.blocks = Blocks::Size;
  };
  option.print = [](const PolicySpec& spec) {
    return spec.blocks == Blocks::Layer ? std::string() : typed::exact_size(spec.threshold);
  };
  return option;
}

PolicyOption blocks_option() {
  return {"blocks",
          [](PolicySpec& spec, const Typed& typed) {
            spec.blocks = typed::word(typed, std::array{Blocks::Layer, Blocks::Size});
          },
          [](const PolicySpec& spec) {
            return spec.blocks == Blocks::Layer ? std::string(to_string(spec.blocks))
                                                : std::string();
          },
          true};
}

// `prefetch` is both directions at once and printed as these.
std::vector<PolicyOption> prefetch_options() {
  return {
      {"prefetch",
       [](PolicySpec& spec, const Typed& typed) {
         spec.prefetch_forward = spec.prefetch_backward = blocks_ahead(typed);
       },
       [](const PolicySpec&) { return std::string(); }},
      {"forward",
       [](PolicySpec& spec, const Typed& typed) { spec.prefetch_forward = blocks_ahead(typed); },
       [](const PolicySpec& spec) { return std::to_string(spec.prefetch_forward); }, true},
      {"backward",
       [](PolicySpec& spec, const Typed& typed) { spec.prefetch_backward = blocks_ahead(typed); },
       [](const PolicySpec& spec) { return std::to_string(spec.prefetch_backward); }, true}};
}

// How much is gathered at a time, and for how long.
std::vector<PolicyOption> memory_options() {
  return {
      {"memory",
       [](PolicySpec& spec, const Typed& typed) { spec.gathered.bytes = typed::size(typed); },
       [](const PolicySpec& spec) {
         return spec.gathered.bytes > Bytes(0) ? typed::exact_size(spec.gathered.bytes)
                                               : std::string();
       }},
      {"limit",
       [](PolicySpec& spec, const Typed& typed) {
         spec.gathered.buckets = typed::small_number(typed, kMost);
       },
       [](const PolicySpec& spec) { return typed::positive(spec.gathered.buckets); }},
      {"reshard",
       [](PolicySpec& spec, const Typed& typed) {
         spec.reshard = typed::word(typed, typed::kChoices);
       },
       [](const PolicySpec& spec) { return std::string(to_string(spec.reshard)); }},
      {"streams",
       [](PolicySpec& spec, const Typed& typed) { spec.streams = typed::small_number(typed, 2); },
       [](const PolicySpec& spec) { return std::to_string(spec.streams); }}};
}

void check(PolicySpec& spec, const TypedOptions& typed) {
  if (typed.has("cap") && typed.has("blocks")) {
    typed::fail(typed.text,
                "cap closes a block by its size and blocks= by its layer: give one of them");
  }
  if (typed.has("prefetch") && (typed.has("forward") || typed.has("backward"))) {
    typed::fail(typed.text, "prefetch= sets forward= and backward= at once: give one or the other");
  }
  refuse_sums_of_whole_gradients(spec, typed);
}

}  // namespace

PolicyDefinition fsdp_policy() {
  std::vector<PolicyOption> others = {options::replicas(), blocks_option()};
  for (const PolicyOption& option : prefetch_options()) others.push_back(option);
  for (const PolicyOption& option : memory_options()) others.push_back(option);
  return {.name = "fsdp",
          .purpose = "ZeRO-3: parameters gathered block by block before each use",
          .sizes = {cap_option()},
          .others = std::move(others),
          .complete = check,
          .apply = fsdp,
          .groups_by = "the parameters of one block"};
}

}  // namespace dovetail::schedule
