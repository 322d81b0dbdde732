// SyntheticOps on the device: every op does work of its size and shape, and the tensors that travel
// hold known values, so that each run proves its schedule. The twin of exec/cpu/synthetic_ops.h;
// what must be found where is derived by the same code (exec/values/dataflow.h).
//
// Observations are copied aside by a kernel when the op runs, and compared on the device after the
// step; only counts, and the first wrong element, come back.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/cuda/device_memory.h"
#include "exec/cuda/expected.h"
#include "exec/cuda/op_runner.h"
#include "exec/cuda/op_work.h"
#include "exec/values/dataflow.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dovetail::exec::cuda {

enum class Checks { All, None };  // None: nothing is reduced, or by nobody but a stand-in

class SyntheticOps final : public OpRunner {
 public:
  struct Options {
    Rank rank;
    Checks checks = Checks::All;
    F32Math f32_math = F32Math::Full;
  };
  // REQUIRES: plan and memory outlive this; the plan has no timed work.
  SyntheticOps(const schedule::ScheduledProgram& plan, DeviceMemory& memory,
               const Options& options);

  void begin_step(std::int32_t step, cudaStream_t stream) override;
  void run(const schedule::Op& op, cudaStream_t stream) override;
  CheckResult check_values(cudaStream_t stream) override;

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
    std::int64_t first = 0;  // element of the tensor at the comparison's start
    std::string where;
  };

  void plan_looks();
  [[nodiscard]] Bytes touched_by(const schedule::Op& op) const;
  [[nodiscard]] Array kept(const Look& look) const;
  void fill(const values::Production& made, cudaStream_t stream) const;
  void run_effect(const schedule::Op& op, cudaStream_t stream);
  void add_up(const schedule::Op& op, const schedule::Accumulate& sum, cudaStream_t stream) const;
  void square(const schedule::Op& op, const schedule::GlobalNorm& norm, cudaStream_t stream) const;
  void update_shard(const schedule::ShardUpdate& update, cudaStream_t stream) const;
  [[nodiscard]] std::vector<Region> squared_parts(TensorId tensor,
                                                  const schedule::GlobalNorm& norm) const;

  [[nodiscard]] std::vector<Found> found(const ExpectedTables& tables, cudaStream_t stream) const;
  void ask(const Array& data, const Subject& subject, const values::Content& content,
           std::int32_t step);
  void count_wrong(const std::vector<Found>& answers, CheckResult& result) const;
  void count_wrong_norms(const Look& look, CheckResult& result, cudaStream_t stream) const;
  [[nodiscard]] double number_at(const Array& data, std::int64_t index) const;

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  Checks checks_;
  DeviceMemory& memory_;
  values::Expectations expected_;
  OpWork work_;
  std::map<OpId, std::vector<Look>> looks_;
  std::map<OpId, Bytes> touched_;
  DeviceBuffer copies_;
  DeviceBuffer device_step_;  // one int32: the number of the step that runs
  DeviceBuffer squares_;      // kSquareBlocks partial sums and the total
  ExpectedTables tables_;     // of the latest check
  std::vector<Subject> subjects_;
  std::int32_t step_ = 0;
  bool follows_previous_ = false;  // the step before was this plan's too
  bool has_run_ = false;
};

}  // namespace dovetail::exec::cuda
