// Turns a drawn benchmark step into a Program, a Schedule and Costs.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dag_program.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "tests/support/programs.h"

namespace dovetail::support {

DagPlan plan_of(const BenchmarkDag& dag, std::int32_t ranks) {
  using schedule::Phase;
  schedule::Program program;
  program.name = "benchmark";
  program.world_size = ranks;
  program.groups.push_back({GroupId{0}, "dp", {}});
  for (std::int32_t rank = 0; rank < ranks; ++rank) program.groups[0].ranks.push_back(Rank{rank});
  std::vector<TensorId> gradients;
  std::vector<std::size_t> ends;        // of each bucket, in gradients
  std::vector<std::int32_t> dag_index;  // of each op of the Program
  for (std::size_t i = 0; i < dag.ops.size(); ++i) {
    const BenchmarkOp& op = dag.ops[i];
    if (op.is_collective()) {
      ends.push_back(gradients.size());
      continue;
    }
    const bool forward = op.kind == BenchmarkOp::Kind::Forward;
    const bool backward = op.kind == BenchmarkOp::Kind::Backward;
    schedule::Op entry;
    entry.id = OpId{static_cast<std::int32_t>(program.ops.size())};
    entry.name = "op" + std::to_string(i);
    entry.phase = forward ? Phase::Forward : backward ? Phase::Backward : Phase::Optimizer;
    entry.work = schedule::TimedWork{{op.duration}};
    if (backward) {
      const TensorId gradient{static_cast<std::int32_t>(program.tensors.size())};
      program.tensors.push_back({gradient,
                                 "g" + std::to_string(i),
                                 schedule::TensorKind::Gradient,
                                 schedule::DType::F32,
                                 {op.bytes.count() / 4}});
      program.reductions.push_back({gradient, GroupId{0}, schedule::ReduceOp::Average});
      gradients.push_back(gradient);
      entry.writes = {gradient};
    } else if (!forward) {
      entry.reads = gradients;
    }
    program.ops.push_back(std::move(entry));
    dag_index.push_back(static_cast<std::int32_t>(i));
  }
  DagPlan plan;
  plan.costs.machine = "benchmark";
  for (const schedule::Op& op : program.ops) {
    models::OpCost cost;
    const auto index = static_cast<std::size_t>(dag_index[static_cast<std::size_t>(op.id.value)]);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      cost.by_class.emplace_back(duration_on_rank(dag, index, rank, ranks));
    }
    plan.costs.ops.set(op, std::move(cost));
  }
  // A staircase, so the table is exact at the sizes that occur; a table needs two of them.
  std::map<Bytes, Duration> times;
  for (const BenchmarkOp& op : dag.ops) {
    if (!op.is_collective()) continue;
    for (const Bytes bytes : {op.bytes, op.bytes + Bytes(1)}) {
      times[bytes] = std::chrono::microseconds(20 + bytes.count() / 100'000);
    }
  }
  plan.costs.collectives =
      testing::every_collective(testing::table_at({times.begin(), times.end()}));
  plan.costs.copies = models::CopyModel{};
  plan.costs.host.kind = models::HostModel::Kind::Inline;
  plan.costs.distinct_ranks = ranks;
  const schedule::Schedule schedule =
      schedule::partition(program, ends, schedule::parse_policy("exact"));
  plan.program = schedule::lower(std::move(program), schedule).program;
  return plan;
}

}  // namespace dovetail::support
