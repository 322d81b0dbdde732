// Device: what one rank's hardware can do with memory, below everything that both backends share.
//
// Above it one text lays out tensors (layout.h), computes ops (exec/ops) and compares values (exec/values); below it
// lie exec/cpu/device.h and exec/cuda/device.h. A new kind of hardware implements this class, its streams and
// events (exec/backend.h), and its collectives.
//
//   Block block = device.allocate(mib(4), "buckets");
//   device.fill_known({.data = block.at(), .count = 1 << 20}, write, step, stream);
//   device.wait(stream);
//
// What takes a stream is enqueued on it: it may run later, and may be captured in a graph that later steps
// replay, so what changes from step to step is read from device memory. A processor has no such streams and runs it at
// once. What takes none is done on return. Pointers in arguments are to device memory, unless said. Every call may throw
// DeviceError with the name of what failed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/array.h"
#include "exec/device/kernel_arguments.h"
#include "exec/values/comparison.h"
#include "exec/values/pattern.h"
#include "schedule/program.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dovetail::exec {

// A cudaStream_t, for instance; nullptr on a processor.
using DeviceStream = void*;

// Memory of a device, freed with its last owner. Not initialised.
class Block {
 public:
  Block() = default;
  Block(std::shared_ptr<void> data, Bytes size) : data_(std::move(data)), size_(size) {}

  [[nodiscard]] void* at(Bytes offset = Bytes(0)) const {
    return static_cast<char*>(data_.get()) + offset.count();
  }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_.get());
  }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  std::shared_ptr<void> data_;
  Bytes size_;
};

// What memory is for, and who shares it. Own: one owner. Tensors (and buckets) and Observed (copies of what ops read, for
// the check): a device may give all plans that one rank runs in turn the same memory, as processors do.
enum class Room { Own, Tensors, Observed };

class Device {
 public:
  virtual ~Device() = default;

  // `purpose` is what a person hears when there is not enough: "gradients, buckets and parameters".
  [[nodiscard]] virtual Block allocate(Bytes size, const char* purpose, Room room = Room::Own) = 0;
  // Bytes from the host, and to it. REQUIRES: nothing under way uses that memory.
  virtual void write(const void* host, void* to, Bytes size) = 0;
  virtual void read(const void* from, void* host, Bytes size) = 0;
  // Until all that was enqueued has run.
  virtual void wait(DeviceStream stream) = 0;

  // *to = value.
  virtual void set_step(std::int32_t* to, std::int32_t value, DeviceStream stream) = 0;
  // Every element becomes 0.
  virtual void zero(const Array& data, DeviceStream stream) = 0;

  // Known values of the step that *step holds when this runs (exec/values/pattern.h).
  virtual void fill_known(const Array& data, const values::KnownWrite& write,
                          const std::int32_t* step, DeviceStream stream) = 0;
  // Fills tables.found.
  virtual void compare_known(const values::ComparisonTables& tables, DeviceStream stream) = 0;

  // Copies each range of the list.
  virtual void move_ranges(const Moves& moves, DeviceStream stream) = 0;
  // NaN into one element of every 4 KiB of each array, the first one included: whoever reads what was freed is found.
  virtual void spoil(const Freed& freed, DeviceStream stream) = 0;
  // to = from x factor. REQUIRES (all of two arrays): equal counts.
  virtual void copy_scaled(const Array& from, const Array& to, double factor,
                           DeviceStream stream) = 0;
  // to = ((to or nothing) + from) x factor.
  virtual void accumulate(const Array& from, const Array& to, double factor, Onto onto,
                          DeviceStream stream) = 0;
  // *sum.total += sum of (data[i] x factor)^2, in an order that does not depend on timing.
  virtual void add_squares(const Array& data, double factor, const SquareSum& sum,
                           DeviceStream stream) = 0;
  // out[0] = *total, rounded to out's type.
  virtual void store_number(const double* total, const Array& out, DeviceStream stream) = 0;

  // The work of ops: matrix products of their shapes, and memory-bound passes of their bytes over a ring as
  // large as all memory-bound work of one step, so that what a step touches once is as cold as in a real one.
  // `reserve` makes room for these ops. REQUIRES: none has timed work.
  virtual void reserve(const std::vector<const schedule::Op*>& ops) = 0;
  virtual void run_product(const schedule::GemmWork& work, Element element,
                           DeviceStream stream) = 0;
  virtual void run_pass(Bytes bytes, DeviceStream stream) = 0;

  // The training job (exec/ops/training_ops.h); all in f32, sums in double.
  virtual void multiply(const Product& product, DeviceStream stream) = 0;
  virtual void sum_rows(const DeviceMatrix& in, float* out, DeviceStream stream) = 0;
  virtual void gelu(const float* in, float* out, std::int64_t count, DeviceStream stream) = 0;
  virtual void gelu_backward(const GeluGradient& what, DeviceStream stream) = 0;
  // out[i] = weights[tokens[i]]; and the sum of dx[i] onto gradient[tokens[i]], in the order of i.
  virtual void gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens,
                           const DeviceMatrix& out, DeviceStream stream) = 0;
  virtual void add_rows(const DeviceMatrix& dx, const std::int32_t* tokens,
                        const DeviceMatrix& gradient, DeviceStream stream) = 0;
  // Mean cross entropy of the rows. *mean is written; *total += mean x share.
  virtual void loss(const Loss& what, DeviceStream stream) = 0;
  // out = (softmax - one at the right column) x *fill / rows.
  virtual void loss_backward(const Loss& what, const float* fill, const DeviceMatrix& out,
                             DeviceStream stream) = 0;
  virtual void set_number(float* out, float value, DeviceStream stream) = 0;
  // *out = *total x *fill x factor.
  virtual void scale_number(const double* total, const float* fill, double factor, float* out,
                            DeviceStream stream) = 0;
  // to += *factor x from.
  virtual void add_scaled(const float* from, const float* factor, float* to, std::int64_t count,
                          DeviceStream stream) = 0;
  // A fused update: momentum SGD, or Adam where there is a variance.
  virtual void update(const OptimizerStep& step, DeviceStream stream) = 0;
};

// A copy of host values in device memory. REQUIRES: T is plain data.
template <class T>
Block upload(Device& device, const std::vector<T>& values) {
  const Bytes size(static_cast<std::int64_t>(values.size() * sizeof(T)));
  Block block = device.allocate(size, "a small table");
  if (!values.empty()) device.write(values.data(), block.at(), size);
  return block;
}

// And the other way: the floats of an array.
inline std::vector<float> download(Device& device, const Array& data) {
  std::vector<float> values(static_cast<std::size_t>(data.count));
  if (!values.empty()) device.read(data.data, values.data(), Bytes(data.bytes()));
  return values;
}

}  // namespace dovetail::exec
