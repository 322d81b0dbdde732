// Builds the plans that run between the rounds of a measurement (the same collectives, ops and
// copies that the measured plans are made of), and turns their times into Costs of that very
// minute.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/interleaved_calibration.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "base/statistics.h"
#include "exec/compute_only.h"
#include "schedule/lower/lower.h"

namespace dovetail::testbed {
namespace {

using schedule::Collective;

constexpr Duration kLongest = std::chrono::milliseconds(40);  // of one collective
constexpr Bytes kCopied = mib(32);  // in a step, beyond what most caches hold
constexpr Bytes kLargestCopy = mib(4);
constexpr int kRepetitions = 2;
constexpr std::size_t kOpSteps = 8;  // of each program of ops, at least, in a round
// A few collectives between rounds are no better known than the calibration's many: on a link that did not
// change they came out up to 3 % quicker. Less than this is no change.
constexpr double kNoChange = 0.05;
constexpr Bytes kFloat(4);

// The same ops in the same order on every rank.
bool compute_alike(const schedule::ScheduledProgram& a, const schedule::ScheduledProgram& b) {
  if (a.roles.size() != b.roles.size()) return false;
  for (std::size_t role = 0; role < a.roles.size(); ++role) {
    const auto& left = a.roles[role];
    const auto& right = b.roles[role];
    if (left.ranks != right.ranks || left.commands.size() != right.commands.size()) return false;
    for (std::size_t i = 0; i < left.commands.size(); ++i) {
      const OpId x = *schedule::op_run_by(left.commands[i]);
      const OpId y = *schedule::op_run_by(right.commands[i]);
      if (x != y || a.program.op(x) != b.program.op(y)) return false;
    }
  }
  return true;
}

std::vector<OpProbes> ops_alone(std::span<const schedule::ScheduledProgram* const> plans) {
  std::vector<OpProbes> all;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    schedule::ScheduledProgram alone = exec::without_communication(*plans[i]);
    const auto same = std::find_if(all.begin(), all.end(), [&](const OpProbes& other) {
      return compute_alike(other.program, alone);
    });
    if (same == all.end()) {
      all.push_back({.program = std::move(alone), .plans = {i}});
    } else {
      same->plans.push_back(i);
    }
  }
  return all;
}

// The sizes that the plans' buckets have, by what becomes of them, with repetitions; and of what is copied.
struct Sizes {
  std::vector<Bytes> reduced;    // all-reduce
  std::vector<Bytes> scattered;  // reduce-scatter and all-gather
  std::vector<Bytes> copied;
};

Bytes size_of(const schedule::ScheduledProgram& plan, const schedule::Copy& copy) {
  std::int64_t bytes = 0;
  for (const schedule::BucketMember& member : plan.bucket(copy.bucket).members) {
    if (std::find(copy.gradients.begin(), copy.gradients.end(), member.tensor) ==
        copy.gradients.end()) {
      continue;
    }
    const schedule::Tensor& tensor = plan.program.tensor(member.tensor);
    bytes += member.elements(tensor) * schedule::element_size(tensor.dtype).count();
  }
  return Bytes(bytes);
}

Sizes sizes_in(std::span<const schedule::ScheduledProgram* const> plans) {
  Sizes sizes;
  for (const schedule::ScheduledProgram* plan : plans) {
    for (const schedule::Command& command : plan->roles.front().commands) {
      if (const auto* copy = std::get_if<schedule::Copy>(&command.action)) {
        sizes.copied.push_back(size_of(*plan, *copy));
      }
      const auto* run = schedule::bucket_collective(command);
      if (run == nullptr || run->part == schedule::Part::Shard) continue;
      if (plan->program.group(run->group).size() != plan->program.world_size) continue;
      auto& of_kind = run->kind == Collective::AllReduce ? sizes.reduced : sizes.scattered;
      of_kind.push_back(plan->bucket(*run->bucket).size);
    }
  }
  for (auto* of_kind : {&sizes.reduced, &sizes.scattered, &sizes.copied}) {
    std::sort(of_kind->begin(), of_kind->end());
  }
  return sizes;
}

// The size in which the median byte travels. REQUIRES: sorted, not empty.
Bytes typical(const std::vector<Bytes>& sizes) {
  std::int64_t left = 0;
  for (const Bytes size : sizes) left += size.count();
  left /= 2;
  for (const Bytes size : sizes) {
    left -= size.count();
    if (left <= 0) return size;
  }
  return sizes.back();
}

// The smallest, the typical and the largest, cut to what is quick enough, rising.
std::vector<Bytes> few_of(const std::vector<Bytes>& sizes, const models::CollectiveCost& cost,
                          std::int64_t ranks) {
  std::set<Bytes> few;
  const std::int64_t unit = ranks * kFloat.count();
  for (Bytes size : {sizes.front(), typical(sizes), sizes.back()}) {
    while (size > kFloat && cost.time.time(size).back_to_back > kLongest) {
      size = Bytes(size.count() / 2);
    }
    few.insert(Bytes((size.count() + unit - 1) / unit * unit));
  }
  return {few.begin(), few.end()};
}

// One op for each gradient, which writes it, and one that updates its parameter; a bucket each.
class ProbeBuilder {
 public:
  ProbeBuilder(const schedule::Program& like, std::string name) {
    program_.name = std::move(name);
    program_.world_size = like.world_size;
    program_.groups.push_back({.id = GroupId{0}, .name = "all", .ranks = {}});
    for (std::int32_t rank = 0; rank < like.world_size; ++rank) {
      program_.groups.front().ranks.push_back(Rank{rank});
    }
  }

  void add(Bytes bytes) {
    const std::string name = "probe" + std::to_string(count_++);
    const TensorId parameter = tensor(name, schedule::TensorKind::Parameter, bytes);
    const TensorId gradient = tensor(name + ".grad", schedule::TensorKind::Gradient, bytes);
    schedule::Op backward;
    backward.name = name + ".backward";
    backward.phase = schedule::Phase::Backward;
    backward.work = schedule::MemoryWork{.bytes = bytes, .flop = Flop(0)};
    backward.writes = {gradient};
    backward_.push_back(std::move(backward));
    schedule::Op update;
    update.name = name + ".update";
    update.phase = schedule::Phase::Optimizer;
    update.work = schedule::MemoryWork{.bytes = bytes * 3, .flop = Flop(0)};
    update.reads = {gradient, parameter};
    update.writes = {parameter};
    update.effect = schedule::Update{.elementwise = true, .rescale = Rational(1)};
    updates_.push_back(std::move(update));
    program_.reductions.push_back(
        {.gradient = gradient, .group = GroupId{0}, .op = schedule::ReduceOp::Sum});
  }

  [[nodiscard]] schedule::ScheduledProgram lowered(Collective collective,
                                                   schedule::BucketMode mode) {
    for (const auto* phase : {&backward_, &updates_}) {
      for (schedule::Op op : *phase) {
        op.id = OpId{static_cast<std::int32_t>(program_.ops.size())};
        program_.ops.push_back(std::move(op));
      }
    }
    schedule::Schedule schedule;
    schedule.policy = program_.name;
    for (const schedule::Reduction& owed : program_.reductions) {
      schedule::Bucket bucket;
      bucket.launch = schedule::LaunchAfterBackward{};
      bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
      bucket.gradients = {owed.gradient};
      bucket.group = owed.group;
      bucket.collective = collective;
      bucket.mode = mode;
      schedule.buckets.push_back(std::move(bucket));
    }
    return schedule::lower(program_, schedule).program;
  }

 private:
  TensorId tensor(const std::string& name, schedule::TensorKind kind, Bytes bytes) {
    const TensorId id{static_cast<std::int32_t>(program_.tensors.size())};
    program_.tensors.push_back({.id = id,
                                .name = name,
                                .kind = kind,
                                .dtype = schedule::DType::F32,
                                .shape = {bytes.count() / kFloat.count()}});
    return id;
  }

  schedule::Program program_;
  std::vector<schedule::Op> backward_;
  std::vector<schedule::Op> updates_;
  int count_ = 0;
};

// The first one finds an idle link and is not looked at (add_collectives).
schedule::ScheduledProgram collectives_of(const schedule::Program& like, Collective kind,
                                          const std::vector<Bytes>& sizes) {
  ProbeBuilder builder(like, std::string(to_string(kind)) + " between rounds");
  builder.add(sizes.front());
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (const Bytes size : sizes) builder.add(size);
  }
  return builder.lowered(kind, schedule::BucketMode::View);
}

// Ops and copies alone: each gradient is packed right after it was written, as in a plan.
schedule::ScheduledProgram copies_of(const schedule::Program& like, Bytes size) {
  ProbeBuilder builder(like, "copies between rounds");
  for (Bytes sum = size; sum <= std::max(size, kCopied); sum = sum + size) builder.add(size);
  schedule::ScheduledProgram program =
      builder.lowered(Collective::AllReduce, schedule::BucketMode::Copy);
  program.streams.resize(1);
  for (schedule::RankProgram& role : program.roles) {
    std::erase_if(role.commands, [](const schedule::Command& command) {
      return !schedule::op_run_by(command) &&
             !std::holds_alternative<schedule::Copy>(command.action);
    });
  }
  return program;
}

double ratio(Duration measured, Duration known) {
  return known <= Duration{}
             ? 1
             : static_cast<double>(measured.count()) / static_cast<double>(known.count());
}

// Of the time in a queue; 1 where the costs do not know the collective.
double share_of(const Remeasured& one, const models::Costs& costs) {
  const models::CollectiveCost* known = costs.find(one.key);
  return known == nullptr ? 1 : ratio(one.time, known->time.time(one.bytes).back_to_back);
}

}  // namespace

std::vector<const schedule::ScheduledProgram*> InterleavedProbes::programs() const {
  std::vector<const schedule::ScheduledProgram*> all;
  for (const OpProbes& one : ops) all.push_back(&one.program);
  for (const schedule::ScheduledProgram& one : collectives) all.push_back(&one);
  if (copies) all.push_back(&*copies);
  return all;
}

InterleavedProbes interleaved_probes(std::span<const schedule::ScheduledProgram* const> plans,
                                     const models::Costs& costs) {
  InterleavedProbes between = {.ops = ops_alone(plans), .collectives = {}, .copies = std::nullopt};
  const schedule::Program& like = plans.front()->program;
  const Sizes sizes = sizes_in(plans);
  const auto add = [&](Collective kind, const std::vector<Bytes>& of_kind) {
    const models::CollectiveCost* cost = costs.find({kind, like.world_size});
    if (of_kind.empty() || cost == nullptr || like.world_size == 1) return;
    between.collectives.push_back(
        collectives_of(like, kind, few_of(of_kind, *cost, like.world_size)));
  };
  add(Collective::AllReduce, sizes.reduced);
  add(Collective::ReduceScatter, sizes.scattered);
  if (!sizes.copied.empty()) {
    const Bytes size = std::clamp(typical(sizes.copied), kib(4), kLargestCopy);
    between.copies = copies_of(like, Bytes(size.count() / kFloat.count() * kFloat.count()));
  }
  return between;
}

std::vector<exec::Turn> turns_of(const InterleavedProbes& between, std::size_t plans,
                                 std::size_t others, const exec::RunOptions& options) {
  const std::size_t first = plans + others;
  std::vector<exec::Turn> turns;
  std::vector<bool> is_warm(between.ops.size(), false);
  for (std::size_t lane = 0; lane < first; ++lane) {
    turns.push_back({.lane = lane, .warmup = options.warmup, .steps = options.steps});
    for (std::size_t i = 0; i < between.ops.size(); ++i) {
      const std::vector<std::size_t>& of = between.ops[i].plans;
      if (std::find(of.begin(), of.end(), lane) == of.end()) continue;
      turns.push_back({.lane = first + i,
                       .warmup = is_warm[i] ? 0 : options.warmup,
                       .steps = static_cast<std::int32_t>((kOpSteps + of.size() - 1) / of.size())});
      is_warm[i] = true;
    }
  }
  for (std::size_t i = between.ops.size(); i < between.programs().size(); ++i) {
    turns.push_back(
        {.lane = first + i, .warmup = options.warmup, .steps = std::max(2, options.steps / 2)});
  }
  return turns;
}

void add_collectives(const exec::Exchange& exchange, const schedule::ScheduledProgram& collectives,
                     const Watched& mine, RemeasuredCosts& costs) {
  std::map<models::CollectiveKey, std::map<Bytes, std::vector<Duration>>> found;
  std::map<models::CollectiveKey, bool> has_begun;
  const TransferTimes times = collective_times(exchange, collectives, mine);
  for (const schedule::Command& command : collectives.roles.front().commands) {
    const auto* run = schedule::bucket_collective(command);
    if (run == nullptr) continue;
    const models::CollectiveKey key = {run->kind, collectives.program.world_size};
    if (!std::exchange(has_begun[key], true)) continue;
    const auto of_command = times.find(command.id);
    if (of_command == times.end()) continue;
    std::vector<Duration>& all = found[key][collectives.bucket(*run->bucket).size];
    all.insert(all.end(), of_command->second.begin(), of_command->second.end());
  }
  for (const auto& [key, sizes] : found) {
    for (const auto& [bytes, all] : sizes) {
      costs.collectives.push_back({.key = key, .bytes = bytes, .time = median(all)});
    }
  }
}

void add_copies(const exec::Exchange& exchange, const schedule::ScheduledProgram& copies,
                const Watched& mine, RemeasuredCosts& costs) {
  std::vector<Duration> all;
  for (const auto& [command, times] : copy_times(exchange, copies, mine)) {
    all.insert(all.end(), times.begin(), times.end());
  }
  costs.copied = copies.buckets.front().payload;
  if (!all.empty()) costs.copy = median(std::move(all));
}

RemeasuredCosts completed(RemeasuredCosts later, const RemeasuredCosts& earlier) {
  const auto is_same = [](const Remeasured& a, const Remeasured& b) {
    return a.key == b.key && a.bytes == b.bytes;
  };
  for (const Remeasured& known : earlier.collectives) {
    const bool again = std::ranges::any_of(
        later.collectives, [&](const Remeasured& one) { return is_same(one, known); });
    if (!again) later.collectives.push_back(known);
  }
  std::ranges::sort(later.collectives, [](const Remeasured& a, const Remeasured& b) {
    return std::pair(a.key, a.bytes) < std::pair(b.key, b.bytes);
  });
  if (!later.copy) {
    later.copy = earlier.copy;
    later.copied = earlier.copied;
  }
  return later;
}

std::vector<MeasuredAgain> measured_again(const models::Costs& costs,
                                          std::span<const RemeasuredCosts> rounds) {
  std::vector<MeasuredAgain> all;
  const auto add = [&all](const std::string& what, Bytes bytes, double share) {
    const auto known = std::ranges::find_if(
        all, [&](const MeasuredAgain& one) { return one.what == what && one.bytes == bytes; });
    if (known == all.end()) {
      all.push_back({.what = what, .bytes = bytes, .least = share, .most = share});
      return;
    }
    known->least = std::min(known->least, share);
    known->most = std::max(known->most, share);
  };
  for (const RemeasuredCosts& round : rounds) {
    for (const Remeasured& one : round.collectives) {
      add(std::string(to_string(one.key.collective)), one.bytes, share_of(one, costs));
    }
    if (round.copy && costs.copies) {
      add("copy", round.copied, ratio(*round.copy, costs.copy(round.copied)));
    }
  }
  return all;
}

models::Costs with(models::Costs costs, const RemeasuredCosts& round) {
  std::map<models::CollectiveKey, std::vector<models::SizeTime>> times;
  for (const Remeasured& one : round.collectives) {
    const models::CollectiveCost* known = costs.find(one.key);
    if (known == nullptr) continue;
    const bool changed = std::abs(share_of(one, costs) - 1) > kNoChange;
    // A size that did not change holds the table where it is, whatever happened to the others.
    times[one.key].push_back(
        {.bytes = one.bytes,
         .time = changed ? one.time : known->time.time(one.bytes).back_to_back});
  }
  for (const auto& [key, of_key] : times) {
    const models::CollectiveCost* known = costs.find(key);
    models::CollectiveCost again = *known;
    again.key = key;
    again.time = known->time.remeasured(of_key);
    const auto own = std::ranges::find(costs.collectives, key, &models::CollectiveCost::key);
    if (own == costs.collectives.end()) {
      costs.collectives.insert(costs.collectives.begin(), std::move(again));
    } else {
      *own = std::move(again);
    }
  }
  if (round.copy && costs.copies) {
    const double factor = ratio(*round.copy, costs.copy(round.copied));
    costs.copies->fixed = Duration(
        static_cast<std::int64_t>(factor * static_cast<double>(costs.copies->fixed.count())));
    costs.copies->ns_per_byte *= factor;
  }
  return costs;
}

}  // namespace dovetail::testbed
