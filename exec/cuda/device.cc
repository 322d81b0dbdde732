// Launches our kernels, copies between device and host, and names what failed.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device.h"

#include "exec/cuda/check.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/training_kernels.h"

#include <cstddef>

namespace dovetail::exec::cuda {
namespace {

cudaStream_t native(DeviceStream stream) { return static_cast<cudaStream_t>(stream); }

std::size_t count_of(Bytes size) { return static_cast<std::size_t>(size.count()); }

}  // namespace

Block CudaDevice::allocate(Bytes size, const char* purpose, Room room) {
  const auto buffer = std::make_shared<DeviceBuffer>(
      size, purpose, room == Room::Tensors ? tensors_ : Source::Runtime);
  return {std::shared_ptr<void>(buffer, buffer->data()), size};
}

// From pageable memory a copy may return before the last bytes arrive, and our streams do not wait for the
// default stream.
void CudaDevice::write(const void* host, void* to, Bytes size) {
  check(cudaMemcpy(to, host, count_of(size), cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  wait(nullptr);
}

void CudaDevice::read(const void* from, void* host, Bytes size) {
  check(cudaMemcpy(host, from, count_of(size), cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
}

void CudaDevice::wait(DeviceStream stream) {
  check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize");
}

void CudaDevice::set_step(std::int32_t* to, std::int32_t value, DeviceStream stream) {
  check(cuda::set_step(to, value, native(stream)), "kernel set_step");
}

void CudaDevice::zero(const Array& data, DeviceStream stream) {
  if (data.count == 0) return;
  check(cudaMemsetAsync(data.data, 0, static_cast<std::size_t>(data.bytes()), native(stream)),
        "cudaMemsetAsync");
}

void CudaDevice::fill_known(const Array& data, const values::KnownWrite& write,
                            const std::int32_t* step, DeviceStream stream) {
  check(cuda::fill_known(data, write, step, native(stream)), "kernel fill_known");
}

void CudaDevice::compare_known(const values::ComparisonTables& tables, DeviceStream stream) {
  check(cuda::compare_known(tables, native(stream)), "kernel compare_known");
}

void CudaDevice::move_ranges(const Moves& moves, DeviceStream stream) {
  check(cuda::move_ranges(moves, native(stream)), "kernel move_ranges");
}

void CudaDevice::spoil(const Freed& freed, DeviceStream stream) {
  check(cuda::spoil(freed, native(stream)), "kernel spoil");
}

void CudaDevice::copy_scaled(const Array& from, const Array& to, double factor,
                             DeviceStream stream) {
  check(cuda::copy_scaled(from, to, factor, native(stream)), "kernel copy_scaled");
}

void CudaDevice::accumulate(const Array& from, const Array& to, double factor, Onto onto,
                            DeviceStream stream) {
  check(cuda::accumulate(from, to, factor, onto, native(stream)), "kernel accumulate");
}

void CudaDevice::add_squares(const Array& data, double factor, const SquareSum& sum,
                             DeviceStream stream) {
  check(cuda::add_squares(data, factor, sum.partial, sum.total, native(stream)),
        "kernel add_squares");
}

void CudaDevice::store_number(const double* total, const Array& out, DeviceStream stream) {
  check(cuda::store_number(total, out, native(stream)), "kernel store_number");
}

void CudaDevice::reserve(const std::vector<const schedule::Op*>& ops) {
  work_ = std::make_unique<OpWork>(ops, f32_math_);
}

void CudaDevice::run_product(const schedule::GemmWork& work, Element element, DeviceStream stream) {
  work_->run_product(work, element, native(stream));
}

void CudaDevice::run_pass(Bytes bytes, DeviceStream stream) {
  work_->run_pass(bytes, native(stream));
}

void CudaDevice::multiply(const Product& product, DeviceStream stream) {
  check(cuda::multiply(product, native(stream)), "kernel multiply");
}

void CudaDevice::sum_rows(const DeviceMatrix& in, float* out, DeviceStream stream) {
  check(cuda::sum_rows(in, out, native(stream)), "kernel sum_rows");
}

void CudaDevice::gelu(const float* in, float* out, std::int64_t count, DeviceStream stream) {
  check(cuda::gelu(in, out, count, native(stream)), "kernel gelu");
}

void CudaDevice::gelu_backward(const GeluGradient& what, DeviceStream stream) {
  check(cuda::gelu_backward(what, native(stream)), "kernel gelu_backward");
}

void CudaDevice::gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens,
                             const DeviceMatrix& out, DeviceStream stream) {
  check(cuda::gather_rows(weights, tokens, out, native(stream)), "kernel gather_rows");
}

void CudaDevice::add_rows(const DeviceMatrix& dx, const std::int32_t* tokens,
                          const DeviceMatrix& gradient, DeviceStream stream) {
  check(cuda::add_rows(dx, tokens, gradient, native(stream)), "kernel add_rows");
}

void CudaDevice::loss(const Loss& what, DeviceStream stream) {
  check(cuda::loss(what, native(stream)), "kernel loss");
}

void CudaDevice::loss_backward(const Loss& what, const float* fill, const DeviceMatrix& out,
                               DeviceStream stream) {
  check(cuda::loss_backward(what, fill, out, native(stream)), "kernel loss_backward");
}

void CudaDevice::set_number(float* out, float value, DeviceStream stream) {
  check(cuda::set_number(out, value, native(stream)), "kernel set_number");
}

void CudaDevice::scale_number(const double* total, const float* fill, double factor, float* out,
                              DeviceStream stream) {
  check(cuda::scale_number(total, fill, factor, out, native(stream)), "kernel scale_number");
}

void CudaDevice::add_scaled(const float* from, const float* factor, float* to, std::int64_t count,
                            DeviceStream stream) {
  check(cuda::add_scaled(from, factor, to, count, native(stream)), "kernel add_scaled");
}

void CudaDevice::update(const OptimizerStep& step, DeviceStream stream) {
  check(cuda::update(step, native(stream)), "kernel update");
}

}  // namespace dovetail::exec::cuda
