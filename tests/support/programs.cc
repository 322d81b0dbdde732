// Builds small Programs (chains of layers with given times), machines for them, and schedules, by
// hand and at random.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/programs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/program_builder.h"

namespace dovetail::testing {

using schedule::Phase;
using schedule::Program;
using schedule::TensorKind;

Duration us(std::int64_t n) { return std::chrono::microseconds(n); }

Program chain(const std::vector<Layer>& layers, std::int64_t world,
              const std::function<Duration(std::int32_t, std::size_t)>& jitter) {
  ProgramBuilder build("chain", world);
  const GroupId dp = build.ranks("dp");
  const auto tensor = [&](const std::string& name, TensorKind kind, Bytes bytes) {
    return build.tensor(name, kind, std::max<std::int64_t>(1, bytes.count() / 4));
  };
  const auto op = [&](const std::string& name, Phase phase, Duration time,
                      std::vector<TensorId> reads, std::vector<TensorId> writes,
                      schedule::Effect effect = schedule::Opaque{}) {
    std::vector<Duration> by_rank;
    for (std::int32_t r = 0; r < world; ++r) {
      by_rank.push_back(time + (jitter ? jitter(r, build.program.ops.size()) : Duration{}));
    }
    build.op(name, phase, schedule::TimedWork{std::move(by_rank)}, std::move(reads),
             std::move(writes), effect);
  };
  std::vector<TensorId> parameters;
  std::vector<TensorId> activations;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string name = "l" + std::to_string(i);
    parameters.push_back(tensor(name, TensorKind::Parameter, layers[i].bytes));
    activations.push_back(tensor(name + ".out", TensorKind::Activation, Bytes(4)));
    std::vector<TensorId> reads{parameters[i]};
    if (i > 0) reads.push_back(activations[i - 1]);
    op(name + ".forward", Phase::Forward, layers[i].forward, reads, {activations[i]});
  }
  std::vector<TensorId> gradients(layers.size());
  for (std::size_t i = layers.size(); i-- > 0;) {
    const std::string name = "l" + std::to_string(i);
    gradients[i] = tensor(name + ".grad", TensorKind::Gradient, layers[i].bytes);
    op(name + ".backward", Phase::Backward, layers[i].backward, {activations[i]}, {gradients[i]});
    build.owe(gradients[i], dp);
  }
  for (std::size_t i = layers.size(); i-- > 0;) {
    op("l" + std::to_string(i) + ".update", Phase::Optimizer, layers[i].update,
       {gradients[i], parameters[i]}, {parameters[i]},
       schedule::Update{.elementwise = true, .rescale = Rational(1)});
  }
  return std::move(build.program);
}

Program with_adapters(int layers, Bytes base, Bytes adapter, Duration op, std::int64_t world) {
  ProgramBuilder build("adapters", world);
  const GroupId dp = build.ranks("dp");
  const auto parameter = [&](const std::string& name, Bytes bytes) {
    return build.tensor(name, TensorKind::Parameter, bytes.count() / 4);
  };
  const schedule::TimedWork work{{op}};
  TensorId passed = build.tensor("batch", TensorKind::Activation, 1);
  const auto step = [&](const std::string& name, Phase phase, TensorId weight,
                        std::vector<TensorId> writes) {
    const TensorId next = build.tensor(name + ".out", TensorKind::Activation, 1);
    writes.push_back(next);
    build.op(name, phase, work, {weight, passed}, std::move(writes));
    passed = next;
  };
  build.op("load", Phase::Forward, schedule::TimedWork{{Duration{}}}, {}, {passed});
  std::vector<TensorId> bases, adapters, gradients;
  for (int i = 0; i < layers; ++i) {
    const std::string name = "h." + std::to_string(i);
    bases.push_back(parameter(name + ".base", base));
    adapters.push_back(parameter(name + ".adapter", adapter));
    step(name + ".base.forward", Phase::Forward, bases.back(), {});
    step(name + ".adapter.forward", Phase::Forward, adapters.back(), {});
  }
  for (std::size_t i = adapters.size(); i-- > 0;) {
    const std::string name = "h." + std::to_string(i);
    gradients.push_back(
        build.tensor(name + ".adapter.grad", TensorKind::Gradient, adapter.count() / 4));
    step(name + ".adapter.backward", Phase::Backward, adapters[i], {gradients.back()});
    step(name + ".base.backward", Phase::Backward, bases[i], {});
    build.owe(gradients.back(), dp);
  }
  for (std::size_t i = adapters.size(); i-- > 0;) {
    build.op("h." + std::to_string(i) + ".update", Phase::Optimizer, work,
             {gradients[adapters.size() - 1 - i], adapters[i]}, {adapters[i]}, schedule::Update{});
  }
  return std::move(build.program);
}

models::CollectiveTable line(Duration alpha, std::int64_t ns_per_byte) {
  return models::CollectiveTable(
      models::AlphaBeta{.alpha = alpha, .ns_per_byte = static_cast<double>(ns_per_byte)});
}

models::CollectiveTable table_at(const std::vector<std::pair<Bytes, Duration>>& times) {
  std::vector<models::CollectivePoint> points;
  for (const auto& [bytes, time] : times) points.push_back({.bytes = bytes, .isolated = time});
  return models::CollectiveTable(points);
}

std::vector<models::CollectiveCost> every_collective(const models::CollectiveTable& table,
                                                     const std::vector<models::LinkLoad>& loads) {
  using schedule::Collective;
  std::vector<models::CollectiveCost> costs;
  for (const Collective kind :
       {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather,
        Collective::AllToAll, Collective::Broadcast, Collective::SendRecv}) {
    costs.push_back({.key = {kind, 0}, .time = table, .loads = loads});
  }
  return costs;
}

models::Costs costs_of(const SimpleMachine& machine, const Program& program) {
  models::Costs costs;
  costs.machine = "test";
  const models::CopyModel copy{.fixed = {}, .ns_per_byte = machine.copy_ns_per_byte};
  costs.ops = models::OpCosts({.machine = "test", .copy = copy});
  costs.collectives = every_collective(machine.collective, machine.loads);
  costs.copies = copy;
  costs.host = machine.host;
  costs.contention_by_class = {machine.contention};
  costs.distinct_ranks = program.world_size;
  return costs;
}

Program random_chain(Random& random, std::int64_t max_layers, std::int64_t world) {
  const std::int64_t count = random.between(1, max_layers);
  std::vector<Layer> layers;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto time = [&] {
      return Duration(random.between(0, 4) == 0 ? 0 : random.between(1, 9999));
    };
    layers.push_back({time(), time(), Bytes(4 * random.between(1, 3000)), time()});
  }
  std::vector<std::int64_t> noise;
  for (std::int64_t i = 0; i < world * count * 3; ++i) noise.push_back(random.between(0, 50));
  const std::int64_t ops = count * 3;
  return chain(layers, world, [noise, ops](std::int32_t rank, std::size_t op) {
    return Duration(noise[static_cast<std::size_t>(rank * ops) + op]);
  });
}

SimpleMachine random_machine(Random& random) {
  SimpleMachine machine;
  const std::int64_t alpha = random.between(0, 4000);
  const std::int64_t queued = random.between(0, 4000);
  const std::int64_t rate = random.between(0, 3);
  const auto slope = static_cast<double>(rate);
  machine.collective =
      models::CollectiveTable(models::AlphaBeta{.alpha = Duration(alpha), .ns_per_byte = slope},
                              models::AlphaBeta{.alpha = Duration(queued), .ns_per_byte = slope});
  machine.copy_ns_per_byte = 0.25 * static_cast<double>(random.between(0, 3));
  const bool inline_host = random.between(0, 1) == 0;
  const auto cost = [&] {
    return Duration(random.between(0, 1) == 0 ? 0 : random.between(1, 800));
  };
  machine.host = {
      .kind = inline_host ? models::HostModel::Kind::Inline : models::HostModel::Kind::Async,
      .run_op = cost(),
      .collective = cost(),
      .event = cost(),
      .copy = cost(),
      .launch_latency = cost(),
      .launch_gap = cost()};
  return machine;
}

void contend(Random& random, SimpleMachine& machine) {
  const auto maybe = [&random](double factor) {
    return random.between(0, 2) == 0 ? 1 : 1 + factor * random.uniform();
  };
  machine.contention = {.compute_slowdown = maybe(1.5),
                        .collective_slowdown = maybe(0.5),
                        .collective_cpu = Duration(random.between(0, 1) * random.between(0, 2000))};
  if (random.between(0, 2) == 0) machine.contention.memory_slowdown = maybe(2);
  Random own = random;  // so that what is drawn besides stays what it was
  if (own.between(0, 2) == 0) {
    machine.contention = {.multiprocessors =
                              models::Multiprocessors{.count = 16,
                                                      .ctas = own.between(0, 6),
                                                      .all_reduce_ctas = own.between(0, 6),
                                                      .network_ctas = own.between(0, 6),
                                                      .memory = BytesPerSecond(4e9)}};
  }
  if (own.between(0, 1) == 0) {
    models::Contention& measured = machine.contention;
    if (own.between(0, 1) == 0) measured.start_delay = Duration(own.between(1, 6000));
    const bool by_class = !measured.multiprocessors && own.between(0, 1) == 0;
    if (by_class) measured.gemm_slowdown = 1 + own.uniform();
    if (by_class) measured.collective_gemm_slowdown = 1 + 2 * own.uniform();
    if (by_class) measured.collective_memory_slowdown = 1 + own.uniform();
  }
  if (random.between(0, 3) > 0)
    machine.loads = {{.link = 0, .share = random.between(0, 1) == 0 ? 1 : 0.75}};
}

void draw_kernels(Random& random, Program& program, models::Costs& costs) {
  for (schedule::Op& op : program.ops) {
    models::OpCost cost = costs.ops.cost(op);
    switch (random.between(0, 2)) {
      case 0:
        op.work = schedule::GemmWork{.m = 1, .n = 1, .k = 1};
        break;
      case 1:
        op.work = schedule::MemoryWork{.bytes = Bytes(8), .flop = Flop(0)};
        break;
      default:
        break;
    }
    cost.kernel = models::kernel_class(op);
    costs.ops.set(op, cost);
  }
}

schedule::Schedule random_schedule(Random& random, const Program& program,
                                   std::int64_t most_streams) {
  const std::vector<schedule::OwedGradient> owed = schedule::owed_gradients(program);
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i < owed.size(); ++i) {
    if (random.between(0, 2) == 0) ends.push_back(i);
  }
  ends.push_back(owed.size());
  schedule::Schedule result = schedule::partition(program, ends, schedule::parse_policy("exact"));
  result.policy = "random";
  const std::int64_t streams = random.between(1, most_streams);
  for (schedule::Bucket& bucket : result.buckets) {
    bucket.mode =
        random.between(0, 1) == 0 ? schedule::BucketMode::View : schedule::BucketMode::Copy;
    bucket.wait = random.between(0, 1) == 0 ? schedule::WaitPoint::FirstUse
                                            : schedule::WaitPoint::EndOfBackward;
    bucket.scope =
        random.between(0, 2) == 0 ? schedule::WaitScope::WholeStream : schedule::WaitScope::Event;
    bucket.pad_to = Bytes(std::int64_t{4} << random.between(0, 6));
    if (random.between(0, 5) == 0) {
      bucket.stream = schedule::InlineStream{};
    } else {
      bucket.stream =
          schedule::CommStream{static_cast<std::int32_t>(random.between(0, streams - 1))};
    }
    const std::int64_t launch = random.between(0, 3);
    if (launch == 0) bucket.launch = schedule::LaunchAfterBackward{};
    if (launch == 1) {
      // After any backward op; before its last producer means as soon as ready.
      const auto index = static_cast<std::size_t>(
          random.between(static_cast<std::int64_t>(owed.front().producer_index),
                         static_cast<std::int64_t>(owed.back().producer_index)));
      bucket.launch = schedule::LaunchAfterOp{program.ops[index].id};
    }
  }
  return result;
}

std::vector<std::vector<std::size_t>> all_groupings(std::size_t n) {
  std::vector<std::vector<std::size_t>> result;
  for (std::uint64_t cuts = 0; cuts < (std::uint64_t{1} << (n - 1)); ++cuts) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i < n; ++i) {
      if (((cuts >> (i - 1)) & 1) != 0) ends.push_back(i);
    }
    ends.push_back(n);
    result.push_back(std::move(ends));
  }
  return result;
}

}  // namespace dovetail::testing
