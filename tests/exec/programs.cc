// Programs of three layers and schedules for them, and a run of a plan over our own ring with
// ranks as threads.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/programs.h"

#include "base/error.h"
#include "exec/cpu/job.h"
#include "exec/launch/local_ranks.h"
#include "exec/measure.h"
#include "schedule/lower/lower.h"
#include "schedule/transfers.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "tests/support/program_builder.h"

namespace dovetail::exec::testing {

using dovetail::testing::ProgramBuilder;

using schedule::Collective;
using schedule::Command;
using schedule::DType;
using schedule::Effect;
using schedule::MemoryWork;
using schedule::Phase;
using schedule::Program;
using schedule::ReduceOp;
using schedule::Schedule;
using schedule::ScheduledProgram;
using schedule::Slice;
using schedule::TensorKind;

namespace {

// Without groups and debts.
ProgramBuilder without_debts(std::int64_t ranks, Clip clip) {
  using enum TensorKind;
  ProgramBuilder build("three layers", ranks);
  const auto add = [&](TensorId id, const std::string& name, TensorKind kind,
                       std::int64_t elements) {
    DOVETAIL_CHECK(build.tensor(name, kind, elements) == id) << name;
  };
  add(kA, "a", Parameter, kANumel);
  add(kB, "b", Parameter, kBNumel);
  add(kC, "c", Parameter, kCNumel);
  add(kAGrad, "a.grad", Gradient, kANumel);
  add(kBGrad, "b.grad", Gradient, kBNumel);
  add(kCGrad, "c.grad", Gradient, kCNumel);
  add(kAOut, "a.out", Activation, 100);
  add(kBOut, "b.out", Activation, 300);
  add(kLossGrad, "loss.grad", Activation, 1);
  add(kCIn, "c.in.grad", Activation, 300);
  add(kBIn, "b.in.grad", Activation, 100);
  const auto run = [&](const std::string& name, Phase phase, std::vector<TensorId> reads,
                       std::vector<TensorId> writes, Effect effect = schedule::Opaque{}) {
    build.op(name, phase, MemoryWork{.bytes = kib(4), .flop = Flop(1)}, std::move(reads),
             std::move(writes), effect);
  };
  run("a.forward", Phase::Forward, {kA}, {kAOut});
  run("b.forward", Phase::Forward, {kAOut, kB}, {kBOut});
  run("c.forward", Phase::Forward, {kBOut, kC}, {});
  run("loss.fill", Phase::Backward, {}, {kLossGrad}, schedule::FillLossGradient{Rational(1)});
  run("c.backward", Phase::Backward, {kLossGrad, kBOut, kC}, {kCGrad, kCIn});
  run("b.backward", Phase::Backward, {kCIn, kAOut, kB}, {kBGrad, kBIn});
  run("a.backward", Phase::Backward, {kBIn, kA}, {kAGrad});
  if (clip == Clip::GlobalNorm) {
    add(kNorm, "norm", TensorKind::Activation, 1);
    run("norm", Phase::Optimizer, {kCGrad, kBGrad, kAGrad}, {kNorm},
        schedule::GlobalNorm{.rescale = Rational(1)});
  }
  const auto update = [&](const std::string& name, TensorId gradient, TensorId parameter) {
    std::vector<TensorId> reads = {gradient, parameter};
    if (clip == Clip::GlobalNorm) reads.push_back(kNorm);
    run(name, Phase::Optimizer, std::move(reads), {parameter},
        schedule::Update{.elementwise = true, .rescale = Rational(1)});
  };
  update("c.update", kCGrad, kC);
  update("b.update", kBGrad, kB);
  update("a.update", kAGrad, kA);
  return build;
}

void owe(Program& program, GroupId group) {
  for (const TensorId gradient : {kCGrad, kBGrad, kAGrad}) {
    program.reductions.push_back({gradient, group, ReduceOp::Average});
  }
}

}  // namespace

Program three_layers(std::int64_t ranks, Clip clip) {
  ProgramBuilder build = without_debts(ranks, clip);
  owe(build.program, build.ranks("dp"));
  return build.program;
}

Program three_layers_in_pairs(Owes owes) {
  Program program = without_debts(4, Clip::None).program;
  program.groups = {{kPairs, "pairs", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}, 2},
                    {kAcross, "across", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2}};
  owe(program, kPairs);
  if (owes == Owes::PairsAndAcross) owe(program, kAcross);
  return program;
}

Schedule buckets_of(const Program& program, const std::vector<std::vector<Slice>>& buckets) {
  Schedule schedule;
  schedule.policy = "by hand";
  for (const std::vector<Slice>& gradients : buckets) {
    const auto id = static_cast<std::int32_t>(schedule.buckets.size());
    schedule::Bucket bucket;
    bucket.id = BucketId{id};
    bucket.gradients = gradients;
    bucket.group = program.reductions[0].group;
    bucket.mode = schedule::BucketMode::Copy;
    schedule.buckets.push_back(std::move(bucket));
  }
  return schedule;
}

Schedule two_buckets_of(const Program& program) {
  return buckets_of(program, {{kCGrad, kBGrad}, {kAGrad}});
}

ScheduledProgram plan_of(const Program& program, const Schedule& schedule) {
  return schedule::lower(program, schedule).program;
}

CheckResult run_over_ring(const ScheduledProgram& plan, const RunOptions& options,
                          const Wrap& wrap) {
  CheckResult check;
  std::mutex mutex;
  launch::run_local_ranks(
      {.ranks = static_cast<std::int32_t>(plan.program.world_size), .network_namespace = {}},
      [&](launch::Session& session) {
        cpu::Ports ports = cpu::ports_of(session, cpu::TransportKind::Ring);
        if (wrap) {
          ports.open_transport = [&wrap, open = ports.open_transport](auto stream, auto ranks) {
            return wrap(open(stream, ranks));
          };
        }
        cpu::CpuBackend backend(plan, ports);
        const Lane lane = {.plan = &plan, .backend = &backend};
        const Measured measured =
            measure(cpu::exchange_of(session), std::span(&lane, 1), options, {});
        const std::lock_guard lock(mutex);
        check = measured.checks[0];
      });
  return check;
}

ScheduledProgram without(ScheduledProgram plan,
                         const std::function<bool(const Command&)>& predicate) {
  std::size_t erased = 0;
  for (schedule::RankProgram& role : plan.roles) erased += std::erase_if(role.commands, predicate);
  DOVETAIL_CHECK(erased > 0) << "no such command";
  schedule::link_transfers(plan);
  return plan;
}

ScheduledProgram without_op(const ScheduledProgram& plan, std::string_view name) {
  return without(plan, [&](const Command& command) {
    const auto run = schedule::op_run_by(command);
    return run && plan.program.op(*run).name == name;
  });
}

ScheduledProgram in_two_buckets(std::int64_t ranks) {
  const Program program = three_layers(ranks);
  return plan_of(program, two_buckets_of(program));
}

ScheduledProgram without_gather(const ScheduledProgram& plan, int n) {
  return without(plan, [&](const Command& command) {
    const auto* run = schedule::bucket_collective(command);
    return run != nullptr && run->kind == schedule::Collective::AllGather && n-- == 0;
  });
}

ScheduledProgram released_before(ScheduledProgram plan, std::string_view op) {
  for (schedule::RankProgram& role : plan.roles) {
    std::vector<Command>& commands = role.commands;
    const auto reader = std::ranges::find_if(commands, [&](const Command& command) {
      const auto run = schedule::op_run_by(command);
      return run && plan.program.op(*run).name == op;
    });
    const auto release = std::find_if(reader, commands.end(), [](const Command& command) {
      return std::holds_alternative<schedule::Release>(command.action);
    });
    DOVETAIL_CHECK(release != commands.end()) << "no such command";
    std::rotate(reader, release, release + 1);
  }
  return plan;
}

}  // namespace dovetail::exec::testing
