// From a Program, Costs and a probe schedule to the flat arrays of a StepModel.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "lower/lower.h"
#include "schedule/scheduled_program.h"
#include "search/step_data.h"
#include "search/step_model.h"

namespace dovetail::search {
namespace {

using schedule::Bucket;
using schedule::Op;
using schedule::OwedGradient;
using schedule::Phase;
using schedule::Program;
using schedule::Schedule;
using schedule::ScheduledProgram;

// One bucket per gradient, launched when ready.
Schedule probe_of(const Schedule& frame, const std::vector<OwedGradient>& owed) {
  Schedule probe = frame;
  // Without the frame's gradients: their memory would be kept once per bucket.
  Bucket like = frame.buckets.front();
  like.gradients = std::vector<schedule::Slice>();
  probe.buckets.clear();
  probe.buckets.reserve(owed.size());
  for (const OwedGradient& gradient : owed) {
    Bucket bucket = like;
    bucket.id = BucketId{static_cast<std::int32_t>(probe.buckets.size())};
    bucket.gradients = {gradient.tensor};
    bucket.group = gradient.group;
    bucket.mode = schedule::BucketMode::View;
    bucket.stream = schedule::CommStream{};
    bucket.launch = schedule::LaunchWhenReady{};
    bucket.wait = schedule::WaitPoint::FirstUse;
    bucket.scope = schedule::WaitScope::Event;
    probe.buckets.push_back(std::move(bucket));
  }
  return probe;
}

std::optional<std::string> refusal_of(const Program& program, const models::Costs& costs,
                                      const Schedule& frame,
                                      const std::vector<OwedGradient>& owed) {
  if (owed.empty()) return "no gradient needs a reduction";
  if (program.stages > 1) return "a pipeline has several roles";
  if (!frame.collectives.empty()) return "collectives of the program leave the compute stream";
  if (frame.merge.micro_steps > 1 && frame.merge.sync == schedule::SyncPoint::EveryMicroStep) {
    return "every micro-step reduces";
  }
  if (frame.buckets.front().collective != schedule::Collective::AllReduce) {
    return "updates are sharded";
  }
  if (std::min(costs.distinct_ranks, program.world_size) > 1) return "ranks differ";
  std::set<TensorId> seen;
  for (const OwedGradient& gradient : owed) {
    if (gradient.group != owed.front().group || gradient.dtype != owed.front().dtype ||
        gradient.op != owed.front().op) {
      return "gradients differ in process group, dtype or reduction";
    }
    if (!seen.insert(gradient.tensor).second) return "a gradient needs two reductions";
  }
  return std::nullopt;
}

std::vector<std::int64_t> differences(const std::vector<std::int64_t>& sums) {
  std::vector<std::int64_t> found;
  for (std::size_t i = 1; i < sums.size(); ++i) found.push_back(sums[i] - sums[i - 1]);
  return found;
}

class Builder {
 public:
  Builder(const models::Costs& costs, const Schedule& frame, ScheduledProgram probe)
      : frame_(frame), probe_(std::move(probe)), program_(probe_.program) {
    data_.costs = costs;
    data_.frame = frame;
    data_.frame.buckets.clear();
    data_.bucket = frame.buckets.front();
    data_.bucket.gradients.clear();
  }

  // Nothing: `refusal` says why.
  std::optional<StepData> build(const std::vector<OwedGradient>& owed) {
    take_machine();
    if (!read_commands() || !take_ops() || !take_gradients(owed)) return std::nullopt;
    data_.group = program_.group(owed.front().group);
    take_links();
    data_.view = node_table(false);
    if (!data_.inline_host) {
      data_.full_runs = IssuedRuns(data_.work, data_.issue);
      data_.beside_runs = IssuedRuns(differences(data_.view.beside), data_.issue);
    }
    try {
      data_.packed = node_table(true);
    } catch (const InputError&) {
      data_.packed = {};  // the machine has no time for copies
    }
    return std::move(data_);
  }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  bool refuse(const std::string& why) {
    refusal_ = why;
    return false;
  }

  void take_machine() {
    const models::HostModel& host = data_.costs.host;
    data_.inline_host = host.kind == models::HostModel::Kind::Inline;
    data_.collective = host.collective.count();
    data_.event = host.event.count();
    data_.copy = host.copy.count();
    data_.gap = data_.inline_host ? 0 : host.launch_gap.count();
    data_.latency = host.launch_latency.count() - host.launch_gap.count();
    data_.enqueue = data_.inline_host ? host.collective.count() : 0;
    data_.wake_up = data_.inline_host ? host.event.count() : 0;
    data_.contention = data_.costs.contention(Rank{0});
    data_.slowed = sim::whole_rate(1 / data_.contention.collective_slowdown);
    sim::Taken taken;
    taken.add(data_.contention, 1, 1);
    taken.core = 0;
    for (const models::KernelClass kernel :
         {models::KernelClass::Gemm, models::KernelClass::Memory, models::KernelClass::Other}) {
      data_.beside[static_cast<std::size_t>(kernel)] = Rate(sim::whole_rate(taken.left(kernel)));
    }
  }

  // What streams share.
  void take_links() {
    const models::CollectiveCost* cost =
        data_.costs.find({schedule::Collective::AllReduce, data_.group.size()});
    data_.resources = 2 * data_.costs.links.size();
    if (cost == nullptr || cost->loads.empty()) return;
    data_.wire_latency = cost->time.latency().count();
    for (const models::LinkLoad& load : cost->loads) {
      if (load.share <= 0) continue;
      data_.demands.push_back({2 * load.link, load.share});
      data_.demands.push_back({2 * load.link + 1, load.share});
    }
  }

  // Where the probe scales, and that it does nothing that a StepModel does not know.
  bool read_commands() {
    if (probe_.roles.size() != 1) return refuse("the step has several roles");
    std::size_t before = 0;
    std::size_t after = 0;
    for (const schedule::Command& command : probe_.roles.front().commands) {
      const bool compute = command.stream == schedule::kComputeStream;
      if (std::holds_alternative<schedule::Copy>(command.action)) {
        return refuse("the step copies beside its buckets");
      }
      if (std::holds_alternative<schedule::RunOp>(command.action) && !compute) {
        return refuse("an op runs on another stream");
      }
      if (std::holds_alternative<schedule::Scale>(command.action)) ++(compute ? before : after);
    }
    const std::size_t buckets = probe_.buckets.size();
    if ((before > 0 && before < buckets) || (after > 0 && after < buckets)) {
      return refuse("only some gradients are scaled");
    }
    data_.scales_before = before > 0;
    data_.scales_after = after > 0;
    return true;
  }

  bool take_ops() {
    data_.backward_end = -1;
    for (const Op& op : program_.ops) {
      if (std::holds_alternative<schedule::CollectiveWork>(op.work)) {
        return refuse("the model communicates itself");
      }
      const std::int64_t work = data_.costs.op(op, Rank{0}).count() + data_.gap;
      if (work > kLargestWork) return refuse("an op is too long");
      if (op.phase != Phase::Optimizer) data_.backward_end = data_.ops();
      data_.work.push_back(work);
      data_.kernel.push_back(models::kernel_class(op));
      data_.issue.push_back(data_.inline_host ? 0 : data_.costs.issue(op).count());
      data_.issue_sum += data_.issue.back();
      data_.ids.push_back(op.id);
    }
    if (data_.backward_end < 0) return refuse("there is no backward");
    data_.after_backward =
        data_.backward_end + 1 < data_.ops() ? data_.backward_end + 1 : kBehindAllOps;
    const bool merged = program_.micro_steps > 1;
    if (merged && frame_.merge.sync == schedule::SyncPoint::AfterLastMicroStep) {
      data_.earliest_launch = data_.backward_end;
    }
    return true;
  }

  bool take_gradients(const std::vector<OwedGradient>& owed) {
    const auto count = static_cast<std::int32_t>(owed.size());
    schedule::IdTable<TensorId, std::int32_t> travels{-1};  // of what travels: its gradient
    for (std::int32_t i = 0; i < count; ++i) {
      data_.tensors.push_back(owed[i].tensor);
      data_.position[owed[i].tensor] = i;
      const TensorId tensor = probe_.buckets[i].members.front().tensor;
      travels[tensor] = i;
      data_.bytes.push_back(program_.tensor(tensor).bytes().count());
    }
    data_.ready.assign(owed.size(), -1);
    data_.first_use.assign(owed.size(), kBehindAllOps);
    if (!find_accesses(travels)) return false;
    if (!std::ranges::is_sorted(data_.ready)) return refuse("gradients are not in ready order");
    data_.uses_rise = std::ranges::is_sorted(data_.first_use);
    const std::int64_t element = schedule::element_size(probe_.buckets.front().dtype).count();
    const std::int64_t spacing = std::lcm(data_.bucket.align_to.count(), element);
    data_.bytes_sum.push_back(0);
    data_.spaced_sum.push_back(0);
    data_.producers.push_back(0);
    for (std::int32_t i = 0; i < count; ++i) {
      const bool another = i == 0 || data_.ready[i] != data_.ready[i - 1];
      const std::int64_t spaced = (data_.bytes[i] + spacing - 1) / spacing * spacing;
      data_.bytes_sum.push_back(data_.bytes_sum.back() + data_.bytes[i]);
      data_.spaced_sum.push_back(data_.spaced_sum.back() + spaced);
      data_.producers.push_back(data_.producers.back() + (another ? 1 : 0));
    }
    return true;
  }

  // Who writes each gradient last before the optimizer, and who touches it first after backward.
  bool find_accesses(const schedule::IdTable<TensorId, std::int32_t>& travels) {
    for (std::int32_t op = 0; op < data_.ops(); ++op) {
      const Op& entry = program_.ops[op];
      if (entry.phase == Phase::Optimizer) continue;
      for (const TensorId id : entry.writes) {
        if (travels.at(id) >= 0) data_.ready[travels.at(id)] = op;
      }
    }
    for (std::int32_t op = 0; op < data_.ops(); ++op) {
      const auto touch = [&](TensorId id) {
        const std::int32_t gradient = travels.at(id);
        if (gradient < 0 || op <= data_.ready[gradient]) return true;
        data_.first_use[gradient] = std::min(data_.first_use[gradient], op);
        return op > data_.backward_end;
      };
      const Op& entry = program_.ops[op];
      if (!std::ranges::all_of(entry.reads, touch) || !std::ranges::all_of(entry.writes, touch)) {
        return refuse("backward reads reduced gradients");
      }
    }
    return std::ranges::count(data_.ready, -1) == 0 || refuse("a gradient is never written");
  }

  [[nodiscard]] NodeTable node_table(bool packs) const {
    NodeTable table;
    table.known = true;
    std::int32_t gradient = 0;
    for (std::int32_t op = 0; op < data_.ops(); ++op) {
      table.of_op.push_back(static_cast<std::int32_t>(table.work.size()));
      table.work.push_back(data_.work[op]);
      table.rate.push_back(data_.beside_of(data_.kernel[op]));
      const std::int32_t first = gradient;
      while (gradient < data_.count() && data_.ready[gradient] == op) ++gradient;
      if (!packs || gradient == first) continue;
      table.work.push_back(data_.copy_work(data_.bytes_sum[gradient] - data_.bytes_sum[first]));
      table.rate.push_back(data_.beside_of(models::KernelClass::Memory));
    }
    table.of_op.push_back(static_cast<std::int32_t>(table.work.size()));
    table.full.push_back(0);
    table.beside.push_back(0);
    for (std::size_t i = 0; i < table.work.size(); ++i) {
      const std::int64_t slow = lasts(table.work[i] << kFractionBits, table.rate[i]);
      table.full.push_back(table.full.back() + table.work[i]);
      table.beside.push_back(table.beside.back() + slow);
    }
    return table;
  }

  const Schedule& frame_;
  const ScheduledProgram probe_;
  const Program& program_;
  StepData data_;
  std::string refusal_;
};

}  // namespace

BucketPrice StepData::price(std::int32_t begin, std::int32_t end) const {
  const std::int64_t held = spaced_sum[end - 1] - spaced_sum[begin] + bytes[end - 1];
  const std::int64_t pad = bucket.pad_to.count();
  const Bytes size((held + pad - 1) / pad * pad);
  BucketPrice cost{.begin = begin, .end = end};
  const models::CollectiveTime time =
      costs.collective(schedule::Collective::AllReduce, group, size);
  cost.isolated = time.isolated.count();
  cost.back_to_back = time.back_to_back.count();
  if (scales_before || scales_after) {
    const Duration scaling = costs.scale(size);
    cost.scale = scaling.count() + (inline_host ? copy : 0) + gap;
  }
  if (packed.known) cost.unpack = copy_work(bytes_sum[end] - bytes_sum[begin]);
  return cost;
}

StepModel::Made StepModel::make(const Program& program, const models::Costs& costs,
                                const Schedule& frame) {
  DOVETAIL_CHECK(!frame.buckets.empty()) << "a frame without a bucket";
  const std::vector<OwedGradient> owed = schedule::owed_gradients(program);
  if (auto refusal = refusal_of(program, costs, frame, owed)) {
    return {.refusal = *std::move(refusal)};
  }
  std::optional<schedule::Lowered> probe;
  try {
    probe = schedule::lower(program, probe_of(frame, owed));
  } catch (const InputError& error) {
    return {.refusal = error.what()};
  }
  Builder builder(costs, frame, std::move(probe->program));
  std::optional<StepData> data = builder.build(owed);
  if (!data) return {.refusal = builder.refusal()};
  return {.model = StepModel(std::make_shared<const StepData>(*std::move(data)))};
}

}  // namespace dovetail::search
