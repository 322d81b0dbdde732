// Paddle's data-parallel pass, decision by decision: one walk over the ops with one open bucket,
// and the programs that it refuses.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/source_first_fit.h"

#include "base/count.h"
#include "schedule/policies/definition.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "schedule/policies/grouping.h"

namespace dovetail::schedule {
namespace {

// The single open bucket.
class OneOpenBucket {
 public:
  explicit OneOpenBucket(const FirstFit& rule) : rule_(rule) {}

  // Accepts the gradient, closing the open bucket before if need be. True: it is a first member.
  bool take(const OwedGradient& gradient) {
    if (!open_.empty()) {
      const std::string reason = rejection(gradient);
      if (!reason.empty()) close(reason);
    }
    open_.push_back(gradient);
    members_.insert(gradient.tensor);
    size_ += size_of(gradient);
    return open_.size() == 1;
  }

  // P22.
  void pass(const Op& op) {
    const auto touches = [&](TensorId id) { return members_.contains(id); };
    if (open_.empty()) return;
    if (std::ranges::any_of(op.reads, touches) || std::ranges::any_of(op.writes, touches)) {
      close("reader");
    }
  }

  void close(const std::string& reason) {
    if (open_.empty()) return;
    closed_.push_back({std::exchange(open_, {}), reason});
    members_.clear();
    size_ = 0;
  }

  [[nodiscard]] Groups finish() {
    close("end");
    return std::move(closed_);
  }

 private:
  [[nodiscard]] std::int64_t size_of(const OwedGradient& gradient) const {
    return rule_.elements > 0 ? gradient.numel : gradient.bytes.count();
  }

  // P19, in its order; empty: accepted.
  [[nodiscard]] std::string rejection(const OwedGradient& gradient) const {
    const OwedGradient& member = open_.front();
    const std::int64_t cap = rule_.elements > 0 ? rule_.elements : rule_.cap.count();
    if (gradient.group != member.group) return "process group";
    if (size_of(gradient) + size_ > cap) return "cap";
    if (gradient.dtype != member.dtype) return "dtype";
    if (gradient.op != member.op) return "reduction";
    return "";
  }

  const FirstFit& rule_;
  std::vector<OwedGradient> open_;
  std::set<TensorId> members_;
  std::int64_t size_ = 0;
  Groups closed_;
};

struct Fitted {
  Groups groups;
  std::optional<std::string> refusal;  // PL9
};

// The gradients that one op finishes, in the order in which the synchronous program reduces them
// (P5): process groups outside, gradients inside.
std::vector<OwedGradient> reduced_after(std::span<const OwedGradient> finished) {
  std::vector<OwedGradient> ordered;
  std::vector<GroupId> groups;
  for (const OwedGradient& gradient : finished) {
    if (std::ranges::find(groups, gradient.group) == groups.end()) {
      groups.push_back(gradient.group);
    }
  }
  for (const GroupId group : groups) {
    std::ranges::copy_if(finished, std::back_inserter(ordered),
                         [&](const OwedGradient& gradient) { return gradient.group == group; });
  }
  return ordered;
}

Fitted first_fit(const Program& program, const std::vector<OwedGradient>& owed,
                 const FirstFit& rule, bool scales_stay) {
  OneOpenBucket open(rule);
  Fitted result;
  std::size_t next = 0;
  std::int32_t stage = 0;
  for (std::size_t i = 0; i < program.ops.size() && next < owed.size(); ++i) {
    open.pass(program.ops[i]);
    std::size_t end = next;
    while (end < owed.size() && owed[end].producer_index == i) ++end;
    // The source sees one stage of a pipeline at a time: no bucket of it spans two.
    if (end > next && program.ops[i].stage != stage) open.close("stage");
    if (end > next) stage = program.ops[i].stage;
    bool follows_its_producer = true;
    for (const OwedGradient& gradient : reduced_after(std::span(owed).subspan(next, end - next))) {
      const bool opens = open.take(gradient);
      if (opens && !follows_its_producer && !result.refusal) {
        result.refusal = "fusion: a bucket would begin between two gradients of " +
                         program.ops[i].name + ", at " + program.tensor(gradient.tensor).name +
                         ", whose reduction does not follow its producer";
      }
      follows_its_producer = false;
      if (scales_stay && gradient.op == ReduceOp::Average) open.close("reader");  // PL8
    }
    next = end;
  }
  result.groups = open.finish();
  return result;
}

Groups one_by_one(const std::vector<OwedGradient>& owed, const std::string& reason) {
  Groups groups;
  for (const OwedGradient& gradient : owed) groups.push_back({{gradient}, reason});
  return groups;
}

std::optional<std::string> higher_order(const Program& program) {
  for (const Op& op : program.ops) {
    for (const std::string_view mark : {"_grad_grad", "triple_grad"}) {
      if (op.name.find(mark) == std::string::npos) continue;
      return "fusion: " + op.name + " is a higher-order op; nothing replaces the missing " +
             "waits of compute in the source, here each reader waits";
    }
  }
  return std::nullopt;
}

std::optional<std::string> several_reductions(const Program& program) {
  std::set<TensorId> seen;
  for (const Reduction& reduction : program.reductions) {
    if (seen.insert(reduction.gradient).second) continue;
    return "fusion: " + program.tensor(reduction.gradient).name +
           " is reduced over several process groups, of which the source keeps the first";
  }
  return std::nullopt;
}

class PaddlePass {
 public:
  PaddlePass(const Program& program, const Policy& policy, PolicyResult& result)
      : program_(program),
        rule_(std::get<FirstFit>(*policy.decisions.grouping)),
        place_(placement(policy)),
        result_(result) {}

  Groups run(const std::vector<OwedGradient>& owed) {
    for (const OwedGradient& gradient : owed) {
      streams_.try_emplace(gradient.group, static_cast<std::int32_t>(streams_.size()));
    }
    decide_overlap();
    return decide_groups(owed);
  }

  // P30: a fused program has one stream; otherwise each process group has its own (P15), or, without
  // overlap, none.
  void place(Bucket& bucket) const {
    const bool asked_inline =
        place_.launch != LaunchRule::WhenReady || rule_.sharding == Choice::Yes;
    if (fused_ && !asked_inline) {
      bucket.stream = CommStream{0};
    } else if (overlaps_) {
      bucket.stream = CommStream{streams_.at(bucket.group)};
    } else {
      bucket.stream = InlineStream{};
    }
    // P27: each member fills whole chunks, the device's smallest. A single gradient is its own buffer
    // (P23).
    if (bucket.gradients.size() > 1) bucket.pad_to = bucket.align_to = Bytes(256);
  }

 private:
  void decide_overlap() {
    overlaps_ = place_.launch == LaunchRule::WhenReady && rule_.sharding == Choice::No;
    if (rule_.sharding == Choice::Yes) {
      result_.refusals.emplace_back("overlap: the program is sharded");
    } else if (streams_.size() > static_cast<std::size_t>(place_.groups)) {
      overlaps_ = false;
      result_.refusals.push_back("overlap: " + counted(streams_.size(), "process group") +
                                 " and at most " + counted(std::int64_t{place_.groups}, "stream"));
    }
  }

  Groups decide_groups(const std::vector<OwedGradient>& owed) {
    std::optional<std::string> refusal;
    if (rule_.sharding == Choice::Yes) refusal = "fusion: the program is sharded";
    if (!refusal) refusal = higher_order(program_);
    if (!refusal) refusal = several_reductions(program_);
    if (!refusal && rule_.fuse == Choice::Yes) {
      const ScaleAt scale = result_.schedule.scale;
      const bool scales_stay =
          scale == ScaleAt::AfterCollective || scale == ScaleAt::BeforeCollective;
      Fitted fit = first_fit(program_, owed, rule_, scales_stay);
      refusal = fit.refusal;
      fused_ = !refusal;
      if (fused_) return std::move(fit.groups);
    }
    if (refusal) result_.refusals.push_back(*refusal);
    return one_by_one(owed, refusal ? "refused" : "not fused");
  }

  const Program& program_;
  const FirstFit& rule_;
  const BucketPlacement place_;
  std::map<GroupId, std::int32_t> streams_;
  bool overlaps_ = true;
  bool fused_ = false;
  PolicyResult& result_;
};

}  // namespace

void apply_first_fit(const Program& program, const Policy& policy,
                     const std::vector<OwedGradient>& owed, PolicyResult& result) {
  PaddlePass pass(program, policy, result);
  append_buckets(result.schedule, pass.run(owed), placement(policy));
  for (Bucket& bucket : result.schedule.buckets) pass.place(bucket);
}

namespace {

using typed::Typed;

FirstFit& rule_of(Decisions& decisions) { return std::get<FirstFit>(*decisions.grouping); }
const FirstFit& rule_of(const Decisions& decisions) {
  return std::get<FirstFit>(*decisions.grouping);
}

PolicyOption pass_cap_option() {
  PolicyOption option = options::cap();
  option.read = [](Decisions& decisions, const Typed& typed) {
    rule_of(decisions).cap = typed::size(typed);
    rule_of(decisions).elements = 0;
  };
  option.print = [](const Decisions& decisions) {
    return rule_of(decisions).elements > 0 ? std::string()
                                           : typed::exact_size(rule_of(decisions).cap);
  };
  return option;
}

PolicyOption elements_option() {
  return {"elements", Decision::Grouping,
          [](Decisions& decisions, const Typed& typed) {
            rule_of(decisions).elements = typed::number(typed, std::int64_t{1} << 44);
          },
          [](const Decisions& decisions) { return typed::positive(rule_of(decisions).elements); },
          true};
}

PolicyOption fuse_option() {
  return {
      "fuse", Decision::Grouping,
      [](Decisions& decisions, const Typed& typed) {
        rule_of(decisions).fuse = typed::word<Choice>(typed);
      },
      [](const Decisions& decisions) { return std::string(to_string(rule_of(decisions).fuse)); }};
}

PolicyOption sharding_option() {
  return {"sharding", Decision::Grouping,
          [](Decisions& decisions, const Typed& typed) {
            rule_of(decisions).sharding = typed::word<Choice>(typed);
          },
          [](const Decisions& decisions) {
            return std::string(to_string(rule_of(decisions).sharding));
          }};
}

void check_caps(Decisions&, const TypedOptions& typed) {
  if (!typed.has("cap") || !typed.has("elements")) return;
  typed::fail(typed.text, "cap counts bytes and elements counts elements: give one of them");
}

}  // namespace

PolicyDefinition source_first_fit_policy() {
  return {.name = "source-first-fit",
          .purpose = "the data-parallel pass of Paddle, rule by rule",
          .sizes = {pass_cap_option(), elements_option()},
          .batches = {options::batch(), options::tail()},
          .others = {options::overlap(), fuse_option(), sharding_option(), options::max_streams()},
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = FirstFit{.elements = kSourceElements};
                decisions.scaling = ScaleDecision{.rule = ScaleRule::Source};
                decisions.placement = BucketPlacement{.scope = WaitScope::WholeStream};
              },
          .complete = check_caps,
          .groups_by = "one open bucket, first fit in program order"};
}

}  // namespace dovetail::schedule
