// What frameworks cannot do, as changes of a Schedule. Each is a small function of its own, so that a framework's
// file reads as a list of what has to be given up, in the order that surprises least.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/restriction.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "base/error.h"
#include "schedule/sharding.h"

namespace dovetail::frameworks {

using schedule::Bucket;
using schedule::Program;
using schedule::Schedule;

Restriction::Restriction(const Program& program, Schedule schedule, Step step)
    : program_(program), step_(std::move(step)), schedule_(std::move(schedule)) {
  if (step_ != nullptr) planned_ = now_ = step_(schedule_);
}

void Restriction::give_up(const std::string& what, const std::function<void(Schedule&)>& change) {
  if (step_ == nullptr) return change(schedule_);  // explore asks for every row
  Schedule changed = schedule_;
  change(changed);
  if (changed == schedule_) return;
  const Duration step = step_(changed);
  losses_.push_back({what, step - now_});
  schedule_ = std::move(changed);
  now_ = step;
}

Export Restriction::result() const {
  return {.text = {},
          .schedule = schedule_,
          .planned = planned_,
          .as_run = now_,
          .losses = losses_,
          .notes = {},
          .writes = {},
          .paste = {}};
}

void launch_when_ready(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) bucket.launch = schedule::LaunchWhenReady{};
}

void wait_at(Schedule& schedule, schedule::WaitPoint wait) {
  for (Bucket& bucket : schedule.buckets) {
    bucket.wait = wait;
    bucket.scope = schedule::WaitScope::Event;
  }
}

void wait_for_the_previous(Schedule& schedule) {
  std::int32_t batch = 0;
  for (Bucket& bucket : schedule.buckets) {
    bucket.launch = schedule::LaunchInBatch{batch++};
    bucket.wait = schedule::WaitPoint::BeforeNextBatch;
    bucket.scope = schedule::WaitScope::Event;
  }
}

void use_one_stream(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) bucket.stream = schedule::CommStream{0};
}

void use_mode(Schedule& schedule, schedule::BucketMode mode) {
  for (Bucket& bucket : schedule.buckets) bucket.mode = mode;
  for (schedule::FrozenBlock& block : schedule.frozen) block.mode = mode;
}

namespace {

// Those of fsdp, one by one.
void place_no_gathers(Schedule& schedule) {
  schedule.gathers.clear();
  schedule.frozen.clear();
  schedule.gather_limit = {};
}

}  // namespace

void all_reduce(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) {
    bucket.collective = schedule::Collective::AllReduce;
    bucket.sums_whole = false;
    bucket.replicas = std::nullopt;
  }
  place_no_gathers(schedule);
  schedule.parameters = schedule::ParameterSync::AfterUpdate;
}

void shard(Schedule& schedule, schedule::ParameterSync parameters) {
  for (Bucket& bucket : schedule.buckets) {
    bucket.collective = schedule::Collective::ReduceScatter;
    bucket.sums_whole = false;
  }
  place_no_gathers(schedule);
  schedule.parameters = parameters;
}

void drop_padding(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) {
    // A reduce-scatter needs shards of equal size.
    if (!is_sharded(bucket)) bucket.pad_to = Bytes(1);
    bucket.align_to = Bytes(1);
  }
}

void drop_ctas(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) bucket.max_ctas = 0;
}

void sync_micro_steps(Schedule& schedule, schedule::SyncPoint sync) {
  if (schedule.merge.micro_steps > 1) schedule.merge.sync = sync;
}

void keep_gradients_whole(const Program& program, Schedule& schedule) {
  const auto is_whole = [&](const schedule::Slice& slice) {
    const schedule::Tensor& tensor = program.tensor(slice.tensor);
    return slice.elements(tensor) == tensor.numel();
  };
  if (std::ranges::all_of(schedule.buckets, [&](const Bucket& bucket) {
        return std::ranges::all_of(bucket.gradients, is_whole);
      })) {
    return;
  }
  struct Home {
    std::size_t bucket = 0;
    std::int64_t elements = 0;
  };
  std::map<TensorId, Home> homes;
  for (std::size_t b = 0; b < schedule.buckets.size(); ++b) {
    for (const schedule::Slice& slice : schedule.buckets[b].gradients) {
      const std::int64_t elements = slice.elements(program.tensor(slice.tensor));
      Home& home = homes[slice.tensor];
      if (elements > home.elements) home = {b, elements};
    }
  }
  for (std::size_t b = 0; b < schedule.buckets.size(); ++b) {
    std::vector<schedule::Slice> whole;
    for (const schedule::Slice& slice : schedule.buckets[b].gradients) {
      if (homes.at(slice.tensor).bucket == b) whole.emplace_back(slice.tensor);
    }
    schedule.buckets[b].gradients = std::move(whole);
  }
  std::erase_if(schedule.buckets, [](const Bucket& bucket) { return bucket.gradients.empty(); });
}

void keep_parameters_whole(Restriction& left, const std::string& framework,
                           schedule::ParameterSync instead) {
  if (left.schedule().parameters != schedule::ParameterSync::EachUse) return;
  Bytes whole;
  for (const schedule::Tensor& tensor : left.program().tensors) {
    if (tensor.kind == schedule::TensorKind::Parameter) whole += tensor.bytes();
  }
  const std::int64_t ranks =
      left.program().reductions.empty()
          ? 1
          : left.program().group(left.program().reductions.front().group).size();
  const Bytes more = whole - Bytes(whole.count() / ranks);
  left.give_up("sharded parameters: " + framework + " holds them whole, " +
                   dovetail::to_string(more) + " more on each rank",
               [instead](Schedule& schedule) { shard(schedule, instead); });
}

namespace {

// Those that the program starts itself stay as they are.
void leave_own_collectives(const Program& program, Schedule& schedule) {
  std::erase_if(schedule.collectives, [&](const schedule::OpPlacement& placed) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&program.op(placed.op).work);
    return work == nullptr || !work->asynchronous;
  });
}

}  // namespace

void give_up_the_usual(Restriction& left, const std::string& framework, Reduces reduces) {
  left.give_up(framework + " does not cut a gradient over buckets",
               [&](Schedule& schedule) { keep_gradients_whole(left.program(), schedule); });
  left.give_up(framework + " launches a bucket as soon as it is ready", launch_when_ready);
  left.give_up(framework + " has one stream of communication", use_one_stream);
  left.give_up("collectives of the program beside compute: the model's own code calls them",
               [&](Schedule& schedule) { leave_own_collectives(left.program(), schedule); });
  left.give_up("thread blocks per bucket (NCCL's tuner can set them by size: --to nccl-tuner)",
               drop_ctas);
  left.give_up("padding and alignment of buckets", drop_padding);
  using schedule::SyncPoint;
  if (reduces == Reduces::InEveryMicroStep) {
    left.give_up(framework + " reduces the gradients of every micro-step",
                 [](Schedule& schedule) { sync_micro_steps(schedule, SyncPoint::EveryMicroStep); });
  } else if (reduces == Reduces::InLastMicroStep ||
             left.schedule().merge.sync == SyncPoint::AfterLastMicroStep) {
    left.give_up(
        "micro-steps are reduced as the last one's gradients are ready (no_sync before it)",
        [](Schedule& schedule) { sync_micro_steps(schedule, SyncPoint::LastMicroStep); });
  }
}

void regroup(Schedule& schedule, const std::vector<std::vector<TensorId>>& groups) {
  Bucket like = schedule.buckets.front();
  like.closed_by = "";
  schedule.buckets.clear();
  for (const std::vector<TensorId>& group : groups) {
    like.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    like.gradients.assign(group.begin(), group.end());
    schedule.buckets.push_back(like);
  }
}

bool has_one_stage_and_group(const Program& program, const Schedule& schedule) {
  return program.stages == 1 && std::ranges::all_of(schedule.buckets, [&](const Bucket& bucket) {
           return bucket.group == schedule.buckets.front().group && !bucket.replicas;
         });
}

void require_one_stage_and_group(const Restriction& left, const std::string& framework) {
  const Program& program = left.program();
  if (program.stages != 1) {
    throw CannotRun("the plan has " + std::to_string(program.stages) +
                    " pipeline stages; what can be written for " + framework +
                    " is one stage only (--to megatron and fsdp take several; dovetail export "
                    "--job writes the job that it was made of)");
  }
  for (const Bucket& bucket : left.schedule().buckets) {
    const GroupId first = left.schedule().buckets.front().group;
    if (bucket.group == first && !bucket.replicas) continue;
    throw CannotRun("the plan reduces over process groups " + program.group(first).name + " and " +
                    program.group(bucket.replicas.value_or(bucket.group)).name + ", and " +
                    framework +
                    " has one: use dovetail_torch.apply, which takes several, or dovetail export "
                    "--job, where a job was planned");
  }
}

void require_one_dtype(const Restriction& left, const std::string& why) {
  const std::vector<schedule::OwedGradient> owed = schedule::owed_gradients(left.program());
  for (const schedule::OwedGradient& gradient : owed) {
    if (gradient.dtype == owed.front().dtype) continue;
    throw CannotRun("the plan's gradients have several dtypes; " + why);
  }
}

std::string parameter_name(const Program& program, TensorId gradient) {
  constexpr std::string_view kSuffix = ".grad";
  std::string name = program.tensor(gradient).name;
  if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
  }
  return name;
}

std::vector<std::string> parameter_names(const Program& program, const Bucket& bucket) {
  std::vector<std::string> names;
  for (const schedule::Slice& slice : bucket.gradients) {
    names.push_back(parameter_name(program, slice.tensor));
  }
  return names;
}

std::vector<TensorId> ready_order(const Program& program) {
  std::vector<TensorId> order;
  std::set<TensorId> seen;  // what is owed over shards and over their replicas stands there twice
  for (const schedule::OwedGradient& gradient : schedule::owed_gradients(program)) {
    if (seen.insert(gradient.tensor).second) order.push_back(gradient.tensor);
  }
  return order;
}

}  // namespace dovetail::frameworks
