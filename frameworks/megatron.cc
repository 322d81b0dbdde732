// Megatron-Core: a FullParamLayout, the bucket and the place of every parameter.
//
// Megatron lays parameters out in the reverse of their definition, one buffer per dtype; bucket numbers
// rise along it. With the distributed optimizer (a sharded plan) a parameter begins at a multiple of 64
// elements and a bucket ends at one of lcm(ranks, 128); without it nothing is padded
// (core/optimizer/param_layout.py). Gradients are views of the buffer; a bucket is launched once all of
// its gradients are ready, and all are waited for at the end of backward.
//
// A plan of several stages or process groups becomes arguments (megatron_buckets.h).
//
// Where the reverse of the definition meets the plan's buckets in another order, each bucket is closed
// once it holds as many bytes as the plan's.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "frameworks/list.h"
#include "frameworks/megatron_buckets.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/policies/typed.h"
#include "schedule/sharding.h"

namespace dovetail::frameworks {
namespace {

using schedule::Bucket;
using schedule::Program;
using schedule::Schedule;

constexpr std::int64_t kParameterAlignment = 64;  // elements
constexpr std::int64_t kBucketAlignment = 128;

// The owed gradients in the reverse of the order in which parameters are defined.
struct Definition {
  std::vector<TensorId> reversed;
  bool is_assumed =
      false;  // the Program has its parameters as their gradients are ready: a profile
};

Definition reversed_definition(const Program& program) {
  std::map<std::string, TensorId> gradients;
  for (const TensorId gradient : ready_order(program)) {
    gradients.emplace(parameter_name(program, gradient), gradient);
  }
  std::vector<TensorId> order;
  for (const schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind != schedule::TensorKind::Parameter) continue;
    if (const auto found = gradients.find(tensor.name); found != gradients.end()) {
      order.push_back(found->second);
    }
  }
  if (order.size() != gradients.size()) {
    throw CannotRun(
        "the plan does not tell in which order parameters are defined (a gradient "
        "\"w.grad\" "
        "belongs to the parameter \"w\")");
  }
  if (order.size() > 1 && order == ready_order(program)) return {order, true};
  std::ranges::reverse(order);
  return {order};
}

// Consecutive groups along `order`: the plan's own where its buckets follow each other there, else by
// the plan's sizes.
std::vector<std::vector<TensorId>> groups_along(const Program& program, const Schedule& schedule,
                                                const std::vector<TensorId>& order) {
  std::map<TensorId, std::size_t> bucket_of;
  std::vector<Bytes> limit;
  Bytes sum;
  for (std::size_t b = 0; b < schedule.buckets.size(); ++b) {
    for (const schedule::Slice& slice : schedule.buckets[b].gradients) bucket_of[slice.tensor] = b;
    sum += payload(program, schedule.buckets[b]);
    limit.push_back(sum);
  }
  const auto by_bucket = [&](TensorId a, TensorId b) { return bucket_of.at(a) < bucket_of.at(b); };
  const bool follows = std::ranges::is_sorted(order, by_bucket);
  std::vector<std::vector<TensorId>> groups(1);
  Bytes before;
  std::size_t open = 0;  // the plan's bucket whose end comes next
  for (const TensorId gradient : order) {
    bool starts = follows && !groups.back().empty() &&
                  bucket_of.at(groups.back().back()) != bucket_of.at(gradient);
    for (; !follows && open + 1 < limit.size() && before >= limit[open]; ++open) starts = true;
    if (starts && !groups.back().empty()) groups.emplace_back();
    groups.back().push_back(gradient);
    before += program.tensor(gradient).bytes();
  }
  return groups;
}

// In launch order: by the last gradient that becomes ready.
void sort_by_readiness(const Program& program, Schedule& schedule) {
  std::map<TensorId, std::size_t> place;
  for (const TensorId gradient : ready_order(program)) place.emplace(gradient, place.size());
  const auto ready = [&](const Bucket& bucket) {
    std::size_t last = 0;
    for (const schedule::Slice& slice : bucket.gradients) {
      last = std::max(last, place.at(slice.tensor));
    }
    return last;
  };
  std::ranges::stable_sort(schedule.buckets, {}, ready);
}

std::int64_t megatron_rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The literal of one buffer: all gradients of one dtype.
std::string buffer_text(const Program& program, const std::vector<std::vector<TensorId>>& groups,
                        std::int64_t ranks, bool is_sharded_plan) {
  const std::int64_t end_unit = is_sharded_plan ? std::lcm(ranks, kBucketAlignment) : 1;
  const std::int64_t start_unit = is_sharded_plan ? kParameterAlignment : 1;
  std::string parameters;
  std::string indices;
  std::vector<std::int64_t> unpadded;
  std::int64_t at = 0;
  for (std::size_t b = 0; b < groups.size(); ++b) {
    const std::int64_t first = at;
    for (const TensorId gradient : groups[b]) {
      const std::int64_t start = megatron_rounded_up(at, start_unit);
      at = start + program.tensor(gradient).numel();
      parameters += "    (" + python_quoted(parameter_name(program, gradient)) + ", " +
                    std::to_string(start) + ", " + std::to_string(at) + ", " + std::to_string(b) +
                    "),\n";
    }
    unpadded.push_back(at - first);
    at = megatron_rounded_up(at, end_unit);
    indices += (b == 0 ? "(" : ", (") + std::to_string(first) + ", " + std::to_string(at) + ")";
  }
  return "PARAMETERS = [  # name, first and end element, bucket; in the reverse of their "
         "definition\n" +
         parameters + "]\nBUCKET_INDICES = [" + indices +
         "]\nPER_BUCKET_NUMEL_UNPADDED = " + number_list(unpadded) + "\n";
}

constexpr std::string_view kMegatronFunctions = R"py(

def full_param_layout(module, grad_dtype=None):
    """For DistributedDataParallel(config, ddp_config, module, full_param_layout=...); set overlap_grad_reduce,
    and use_distributed_optimizer as DISTRIBUTED_OPTIMIZER says."""
    from megatron.core.optimizer.param_layout import BufferKey, FullParamLayout, PerBufferParamLayout

    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    expected = [name for name, _, _, _ in PARAMETERS]
    if [name for name, _ in reversed(named)] != expected:
        raise ValueError("the module's parameters are not those of the plan, or in another order")
    for (name, start, end, _), (_, parameter) in zip(PARAMETERS, reversed(named)):
        if end - start != parameter.numel():
            raise ValueError(f"{name} has {parameter.numel()} elements, the plan {end - start}")
    parameters = dict(named)
    key = BufferKey(param_dtype=named[0][1].dtype, grad_dtype=grad_dtype or named[0][1].dtype,
                    is_expert_parallel=False)
    layout = PerBufferParamLayout(
        param_index_map={parameters[name]: (start, end, bucket) for name, start, end, bucket in PARAMETERS},
        bucket_indices=BUCKET_INDICES,
        per_bucket_numel_unpadded=PER_BUCKET_NUMEL_UNPADDED,
        param_indices=list(range(len(named))))
    return FullParamLayout(layouts={key: layout})
)py";

struct MegatronGradient {
  bool is_sharded = false;
  std::int64_t ranks = 1;
  Bytes element;
};

MegatronGradient megatron_gradient_of(const Program& program, const Schedule& schedule) {
  const Bucket& first = schedule.buckets.front();
  const schedule::Tensor& tensor = program.tensor(first.gradients.front().tensor);
  return {is_sharded(schedule), program.group(first.group).size(),
          schedule::element_size(tensor.dtype)};
}

void restrict_to_megatron(Restriction& left) {
  if (!has_one_stage_and_group(left.program(), left.schedule())) {
    return restrict_to_megatron_buckets(left);
  }
  const Definition definition = reversed_definition(left.program());
  require_one_dtype(left, "only one Megatron buffer is written");
  const MegatronGradient gradient = megatron_gradient_of(left.program(), left.schedule());
  keep_parameters_whole(left, "Megatron's distributed optimizer",
                        schedule::ParameterSync::NextForward);
  give_up_the_usual(left, "Megatron");
  const auto groups = groups_along(left.program(), left.schedule(), definition.reversed);
  left.give_up("groups in gradient-ready order: Megatron's follow the reverse of the definition",
               [&](Schedule& schedule) {
                 regroup(schedule, groups);
                 sort_by_readiness(left.program(), schedule);
               });
  left.give_up("copies into buckets: Megatron's gradients are views",
               [](Schedule& schedule) { use_mode(schedule, schedule::BucketMode::View); });
  left.give_up("other padding than Megatron's", [&](Schedule& schedule) {
    for (Bucket& bucket : schedule.buckets) {
      bucket.pad_to = gradient.is_sharded
                          ? gradient.element * std::lcm(gradient.ranks, kBucketAlignment)
                          : Bytes(1);
      bucket.align_to = gradient.is_sharded ? gradient.element * kParameterAlignment : Bytes(1);
    }
  });
  left.give_up("waits at first use: Megatron waits at the end of backward",
               [](Schedule& schedule) { wait_at(schedule, schedule::WaitPoint::EndOfBackward); });
}

Export write_megatron(Restriction& left, const Writing& writing) {
  if (!has_one_stage_and_group(left.program(), left.schedule())) {
    return write_megatron_buckets(left, writing);
  }
  const Definition definition = reversed_definition(left.program());
  const MegatronGradient gradient = megatron_gradient_of(left.program(), left.schedule());
  Export result = left.result();
  result.notes = {"the first batch is reduced at its end: Megatron learns what is ready when"};
  if (definition.is_assumed) {
    result.notes.emplace_back(
        "parameters are taken to be defined in the reverse of the order in which their gradients "
        "are "
        "ready; full_param_layout() refuses another order");
  }
  if (gradient.is_sharded && result.schedule.parameters == schedule::ParameterSync::NextForward) {
    result.notes.emplace_back("gathers in the next forward need --overlap-param-gather");
  }
  result.text = head(writing, result);
  result.text += "\nDATA_PARALLEL_SIZE = " + std::to_string(gradient.ranks) +
                 "\nDISTRIBUTED_OPTIMIZER = " + (gradient.is_sharded ? "True" : "False") + "\n" +
                 buffer_text(left.program(),
                             groups_along(left.program(), left.schedule(), definition.reversed),
                             gradient.ranks, gradient.is_sharded);
  result.text += kMegatronFunctions;
  result.paste =
      "from FILE import full_param_layout; DistributedDataParallel(..., full_param_layout="
      "full_param_layout(module))";
  return result;
}

std::vector<std::int64_t> megatron_limits(std::optional<std::int64_t> elements,
                                          std::int64_t ranks) {
  constexpr std::int64_t kLeast = 40'000'000;
  constexpr std::int64_t kPerRank = 1'000'000;
  return {elements.value_or(std::max(kLeast, kPerRank * ranks))};
}

Written megatron_setting(const Chosen& chosen) {
  const std::string overlap = "--overlap-grad-reduce";
  if (!chosen.is_set) return {overlap, overlap};
  const std::string size = "--ddp-bucket-size " + std::to_string(chosen.number);
  return {size, overlap + " " + size};
}

Written megatron_list_setting(std::span<const Bytes> /*sizes*/, const std::string& counts,
                              schedule::BucketMode /*mode*/) {
  return {"full_param_layout=",
          "DistributedDataParallel(..., full_param_layout=layout)  # " + counts};
}

std::string megatron_policy(std::span<const Bytes> limits) {
  return "threshold:cap=" + schedule::typed::exact_size(limits.back()) + ",wait=end-of-backward";
}

std::optional<Said> say_megatron(const schedule::Policy& policy, const Gradients& gradients) {
  using schedule::WaitPoint;
  const schedule::BucketPlacement place = schedule::placement(policy);
  if (policy.decisions.stages && !policy.decisions.gathers)
    return Said{"Megatron pipelines", "", ToldBy::File};
  if (shards_updates(policy)) {
    const bool is_overlapped =
        place.wait != WaitPoint::BeforeNextBatch && place.launch == schedule::LaunchRule::WhenReady;
    if (!is_overlapped) return std::nullopt;
    return Said{policy.decisions.sharding->gather == schedule::ParameterSync::NextForward
                    ? "Megatron --overlap-param-gather (export --to megatron)"
                    : "Megatron's distributed optimizer (export --to megatron)",
                "", ToldBy::File};
  }
  const bool is_run = place.wait == WaitPoint::EndOfBackward && place.batch == 0 &&
                      place.mode == schedule::BucketMode::View && groups_freely(policy);
  if (!is_run) return std::nullopt;
  const schedule::ByLimits* closed = limits_of(policy);
  if (closed == nullptr || closed->first || closed->closes != schedule::Closes::OnReaching) {
    return Said{"Megatron-Core: full_param_layout (export --to megatron)", "", ToldBy::List};
  }
  const std::int64_t elements = closed->cap.count() / gradients.element.count();
  if (elements == megatron_limits(std::nullopt, gradients.ranks).front()) {
    return Said{"Megatron-Core: --overlap-grad-reduce", "--overlap-grad-reduce"};
  }
  const Written written = megatron_setting({.number = elements});
  return Said{"Megatron-Core: " + written.setting, written.line};
}

}  // namespace

std::vector<Framework> megatron() {
  constexpr std::string_view kSharded = "sharded:cap=160000000B,p=1,gather=next-forward";
  return {
      {.id = "megatron",
       .name = "Megatron-Core",
       .presets = {{"megatron", kSharded}, {"distributed-optimizer", kSharded}},
       .size = SizeOption{.unit = schedule::CountedIn::Elements,
                          .limits = megatron_limits,
                          .write = megatron_setting},
       .policy = megatron_policy,
       .more = {"exact:wait=end-of-backward"},
       .swept = {"sharded:p=1,gather=next-forward"},
       .says = say_megatron,
       .list = megatron_list_setting,
       .not_replayed =
           {"buckets follow the reverse of the order in which parameters are defined: taken to be "
            "the order in which gradients are ready",
            "with --use-distributed-optimizer a bucket is reduce-scattered and its parameters are "
            "gathered (--overlap-param-gather hides that behind the next forward)"},
       .curve = "sharded:p=1,gather=next-forward",
       .axis = "Megatron --overlap-param-gather: bucket size",
       .title = "Megatron-Core (0.19.2 and 0.20)",
       .writes = "a FullParamLayout: the bucket of every parameter",
       .names_parameters = true,
       .restrict_to = restrict_to_megatron,
       .write = write_megatron}};
}

}  // namespace dovetail::frameworks
