// CudaDevice: a GPU as a Device. What takes a stream is a kernel or a copy that is enqueued on that cudaStream_t.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/handles.h"
#include "exec/cuda/module.h"
#include "exec/cuda/op_work.h"
#include "exec/device/device.h"

#include <memory>
#include <vector>

namespace dovetail::exec::cuda {

class CudaDevice final : public Device {
 public:
  // Room::Tensors is of `tensors`. REQUIRES: the thread's current device is the one, here and in every call.
  CudaDevice(Source tensors, F32Math f32_math) : tensors_(tensors), f32_math_(f32_math) {}

  Block allocate(Bytes size, const char* purpose, Room room) override;
  void write(const void* host, void* to, Bytes size) override;
  void read(const void* from, void* host, Bytes size) override;
  void wait(DeviceStream stream) override;

  void set_step(std::int32_t* to, std::int32_t value, DeviceStream stream) override;
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
  void set_number(float* out, float value, DeviceStream stream) override;
  void scale_number(const double* total, const float* fill, double factor, float* out,
                    DeviceStream stream) override;
  void add_scaled(const float* from, const float* factor, float* to, std::int64_t count,
                  DeviceStream stream) override;
  void update(const OptimizerStep& step, DeviceStream stream) override;

 private:
  Source tensors_;
  F32Math f32_math_;
  std::unique_ptr<OpWork> work_;  // of the ops that were reserved
};

}  // namespace dovetail::exec::cuda
