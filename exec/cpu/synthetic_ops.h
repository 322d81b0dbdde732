// SyntheticOps: every op does work of its size and shape, and the tensors that travel hold known
// values, so that each run proves its schedule.
//
// A producer works and then writes known values (exec/values/known_values.h), times the loss factor in force.
// Accumulate, ZeroFill, GlobalNorm, Update and ShardUpdate really compute on them: an update copies
// what it reads, times its rescale factor, into memory of its own, as an optimizer would; a
// sharded one writes the same into its shard of the parameters. After the step every copy is compared
// with what it must be (dataflow.h). Memory-bound work counts the bytes that it really touches this
// way towards its total.
//
//   rank 1 step 3 fc1.weight.grad[17] as the optimizer read it: expected 12.5, found 12
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/cpu/memory.h"
#include "exec/cpu/op_runner.h"
#include "exec/cpu/tensor_memory.h"
#include "exec/values/dataflow.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dovetail::exec::cpu {

class SyntheticOps final : public OpRunner {
 public:
  // REQUIRES: plan and memory outlive this. Throws InputError for timed work.
  SyntheticOps(const schedule::ScheduledProgram& plan, Rank rank, TensorMemory& memory,
               std::shared_ptr<Workspace> workspace);

  void begin_step(std::int32_t step) override;
  void run(const schedule::Op& op) override;
  CheckResult check_values() override;

 private:
  // An observation and where it is kept.
  struct Look {
    values::Observation what;
    std::size_t offset = 0;  // in the workspace's `observed`
    std::size_t first = 0;   // element of the tensor
    std::size_t count = 0;
  };
  void plan_looks(const std::vector<values::Observation>& observations);
  [[nodiscard]] Bytes touched_by(const schedule::Op& op) const;
  [[nodiscard]] std::span<float> kept(const Look& look) const;
  void observe(const Look& look) const;
  void run_effect(const schedule::Op& op);
  void accumulate(const schedule::Op& op, const schedule::Accumulate& sum) const;
  void square(const schedule::Op& op, const schedule::GlobalNorm& norm) const;
  void update_shard(const schedule::Op& op, const schedule::ShardUpdate& update) const;
  [[nodiscard]] std::vector<std::span<const float>> squared_parts(TensorId tensor,
                                                                  bool is_shard) const;
  void compare(const Look& look, CheckResult& result) const;
  void compare_norm(const Look& look, CheckResult& result) const;
  // `data` holds elements first .. of the tensor.
  struct Found {
    TensorId tensor;
    std::size_t first = 0;
    std::span<const float> data;
    std::string where;
    std::int32_t step = 0;
  };
  void compare(const Found& found, const values::Content& expected, CheckResult& result) const;

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  TensorMemory& memory_;
  std::shared_ptr<Workspace> workspace_;
  values::Expectations expected_;
  std::map<OpId, std::vector<Look>> looks_;
  std::map<OpId, Bytes> touched_;
  std::int32_t step_ = 0;
  bool follows_previous_ = false;  // the step before was this plan's too
  bool has_run_ = false;
};

}  // namespace dovetail::exec::cpu
