// SyntheticOps: every op does work of its size and shape, and the tensors that travel hold known
// values, so that each run proves its schedule.
//
// A producer works and then writes known values (exec/values/pattern.h), times the loss factor in force.
// Accumulate, ZeroFill, GlobalNorm, Update and ShardUpdate really compute on them: an update copies
// what it reads, times its rescale factor, into memory of its own, as an optimizer would; a
// sharded one writes the same into its shard of the parameters. After the step every copy is compared, on the device,
// with what it must be (exec/values/dataflow.h); only counts, and the first wrong element, come back. Memory-bound work
// counts the bytes that it really touches this way towards its total.
//
//   rank 1 step 3 fc1.weight.grad[17] as the optimizer read it: expected 12.5, found 12
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/device/memory.h"
#include "exec/ops/effects.h"
#include "exec/ops/op_runner.h"
#include "exec/values/dataflow.h"
#include "exec/values/expected.h"
#include "schedule/id_table.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::exec {

enum class Checks { All, None };  // None: nothing is reduced, or by nobody but a stand-in

class SyntheticOps final : public OpRunner {
 public:
  // REQUIRES: plan and memory outlive this; the plan has no timed work (require_executable).
  SyntheticOps(const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory,
               Checks checks = Checks::All);

  void begin_step(std::int32_t step, DeviceStream stream) override;
  void run(const schedule::Op& op, DeviceStream stream) override;
  CheckResult check_values(DeviceStream stream) override;

 private:
  // An observation, where the op reads it and where it is kept.
  struct Look {
    values::Observation what;
    Region from;
    std::int64_t first = 0;   // element of the tensor
    std::int64_t offset = 0;  // of the copy, in the buffer of all copies
  };
  // What one comparison of a check is about, for its message.
  struct Subject {
    TensorId tensor;
    std::int64_t first = 0;           // element of the tensor at the comparison's start
    std::optional<OpId> reader = {};  // absent: as the step left it
    std::optional<schedule::DType> summed_in = {};
    Array data = {};
  };

  // A known value that an op writes.
  struct Filling {
    OpId op;
    Array data;
    values::KnownWrite write;
  };
  // What an op sees, writes, and touches that way.
  struct OpPlan {
    std::span<const Look> looks;
    std::span<const Filling> fillings;
    Bytes touched;
  };

  void plan_looks();
  void plan_fillings();
  void plan_ops();
  [[nodiscard]] Bytes touched_by(const schedule::Op& op, const OpPlan& plan) const;
  [[nodiscard]] Array kept(const Look& look) const;
  void fill(const Filling& filling, DeviceStream stream) const;
  void run_work(const schedule::Op& op, Bytes touched, DeviceStream stream) const;
  void run_effect(const schedule::Op& op, DeviceStream stream);
  void update_shard(const schedule::ShardUpdate& update, DeviceStream stream) const;

  [[nodiscard]] std::vector<values::Found> found(const values::ExpectedTables& tables,
                                                 DeviceStream stream) const;
  [[nodiscard]] std::string reading_of(std::optional<OpId> reader) const;
  void ask(const Array& data, const Subject& subject, const values::Content& content,
           std::int32_t step);
  void count_wrong(const std::vector<values::Found>& answers, CheckResult& result) const;
  void count_wrong_norms(const Look& look, CheckResult& result, DeviceStream stream) const;
  [[nodiscard]] double number_at(const Array& data, std::int64_t index) const;

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  Checks checks_;
  DeviceMemory& memory_;
  values::Expectations expected_;
  Effects effects_;
  std::vector<Look> looks_;        // by op
  std::vector<Filling> fillings_;  // by op
  std::vector<Filling> frozen_;    // shards of parameters that nothing updates
  schedule::IdTable<OpId, OpPlan> plans_;
  Block copies_;
  Block device_step_;              // one int32: the number of the step that runs
  values::ExpectedTables tables_;  // of the latest check
  std::vector<Subject> subjects_;
  std::int32_t step_ = 0;
  bool follows_previous_ = false;  // the step before was this plan's too
  bool has_run_ = false;
};

}  // namespace dovetail::exec
