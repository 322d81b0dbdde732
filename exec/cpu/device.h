// CpuDevice: a processor core as a Device. What is asked for runs at once, on the calling thread, in plain loops;
// there are no streams.
//
// Elements are f32 or bf16 (and single numbers of f64); the training job's are f32. Sums of squares and products add up in double, in index order: the same
// bits every time, and as exact as a float can be, so that differences between two Schedules come from the Schedules.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/elements.h"
#include "exec/cpu/memory.h"
#include "exec/device/device.h"

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dovetail::exec::cpu {

class CpuDevice final : public Device {
 public:
  // Room::Tensors, Room::Observed, operands of products and the ring of passes lie in the workspace, which other plans
  // use in turn.
  explicit CpuDevice(std::shared_ptr<Workspace> workspace) : workspace_(std::move(workspace)) {}

  Block allocate(Bytes size, const char* purpose, Room room) override;
  void write(const void* host, void* to, Bytes size) override;
  void read(const void* from, void* host, Bytes size) override;
  void wait(DeviceStream) override {}

  void set_step(std::int32_t* to, std::int32_t value, DeviceStream) override { *to = value; }
  void zero(const Array& data, DeviceStream stream) override;
  void fill_known(const Array& data, const values::KnownWrite& write, const std::int32_t* step,
                  DeviceStream stream) override;
  void compare_known(const values::ComparisonTables& tables, DeviceStream stream) override;
  void move_ranges(const Moves& moves, DeviceStream stream) override;
  void spoil(const Freed& freed, DeviceStream stream) override;
  void copy_scaled(const Array& from, const Array& to, double factor, DeviceStream stream) override;
  void accumulate(const Array& from, const Array& to, double factor, Onto onto,
                  DeviceStream stream) override;
  void add_squares(const Array& data, double factor, const SquareSum& sum,
                   DeviceStream stream) override;
  void store_number(const double* total, const Array& out, DeviceStream stream) override;

  void reserve(const std::vector<const schedule::Op*>& ops) override;
  void run_product(const schedule::GemmWork& work, Element element, DeviceStream stream) override;
  void run_pass(Bytes bytes, DeviceStream stream) override;

  void multiply(const Product& product, DeviceStream stream) override;
  void sum_rows(const DeviceMatrix& in, float* out, DeviceStream stream) override;
  void gelu(const float* in, float* out, std::int64_t count, DeviceStream stream) override;
  void gelu_backward(const GeluGradient& what, DeviceStream stream) override;
  void gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens, const DeviceMatrix& out,
                   DeviceStream stream) override;
  void add_rows(const DeviceMatrix& dx, const std::int32_t* tokens, const DeviceMatrix& gradient,
                DeviceStream stream) override;
  void loss(const Loss& what, DeviceStream stream) override;
  void loss_backward(const Loss& what, const float* fill, const DeviceMatrix& out,
                     DeviceStream stream) override;
  void set_number(float* out, float value, DeviceStream) override { *out = value; }
  void scale_number(const double* total, const float* fill, double factor, float* out,
                    DeviceStream stream) override;
  void add_scaled(const float* from, const float* factor, float* to, std::int64_t count,
                  DeviceStream stream) override;
  void update(const OptimizerStep& step, DeviceStream stream) override;

 private:
  std::shared_ptr<Workspace> workspace_;
};

}  // namespace dovetail::exec::cpu
