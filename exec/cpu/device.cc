// A processor's memory and the loops over it that every plan needs: known values, copies, sums and the work of
// ops. Those of the training job: training_kernels.cc.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/device.h"

#include "base/error.h"
#include "exec/cpu/kernels.h"
#include "exec/values/known_values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace dovetail::exec::cpu {
namespace {

std::size_t size_t_of(std::int64_t count) { return static_cast<std::size_t>(count); }

// What a comparison expects, block by block.
class Expected {
 public:
  Expected(const values::ComparisonTables& tables, const values::Comparison& what)
      : sums_(tables.sums + what.sum),
        salts_(tables.salts + what.salts, size_t_of(what.salt_count)) {}

  // The pattern's sums from this element of the tensor on, to the end of its block.
  [[nodiscard]] const double* sums(std::int64_t index) const {
    return sums_ + index % values::kPatternPeriod;
  }
  [[nodiscard]] double salt(std::int64_t index) const {
    double sum = 0;
    for (const values::Salted& salted : salts_) {
      sum += values::salt_value(salted.tensor, index / values::kPatternPeriod, salted.bits) *
             salted.factor;
    }
    return sum;
  }

 private:
  const double* sums_;
  std::span<const values::Salted> salts_;
};

values::Found compare(const values::ComparisonTables& tables, const values::Comparison& what) {
  const Expected expected(tables, what);
  const auto* data = static_cast<const float*>(what.data);
  values::Found found;
  for (std::int64_t begin = 0; begin < what.count;) {
    const std::int64_t index = what.first + begin;
    const std::int64_t count = std::min<std::int64_t>(
        values::kPatternPeriod - index % values::kPatternPeriod, what.count - begin);
    const double add = expected.salt(index);
    const double* const sum = expected.sums(index);
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = sum[i] + add;
      if (data == nullptr) {
        found.squares += value * value;
        continue;
      }
      // Not greater, so that NaN is wrong too.
      if (std::abs(static_cast<double>(data[begin + i]) - value) <= what.tolerance) continue;
      if (found.wrong++ == 0) found.first = static_cast<unsigned long long>(begin + i);
    }
    begin += count;
  }
  return found;
}

}  // namespace

Block CpuDevice::allocate(Bytes size, const char* purpose, Room room) {
  if (room == Room::Own) {
    constexpr std::size_t kLine = 64;
    const std::size_t whole = (size_t_of(size.count()) + kLine - 1) / kLine * kLine;
    std::shared_ptr<void> own(std::aligned_alloc(kLine, whole), std::free);
    if (own == nullptr && whole > 0) {
      throw DeviceError("out of memory: " + to_string(size) + " for " + purpose);
    }
    return {std::move(own), size};
  }
  const std::size_t floats = (size_t_of(size.count()) + sizeof(float) - 1) / sizeof(float);
  Floats& shared = room == Room::Tensors ? workspace_->tensors : workspace_->observed;
  shared.reserve(floats);
  return {std::shared_ptr<void>(workspace_, shared.data()), size};
}

void CpuDevice::write(const void* host, void* to, Bytes size) {
  std::memcpy(to, host, size_t_of(size.count()));
}

void CpuDevice::read(const void* from, void* host, Bytes size) {
  std::memcpy(host, from, size_t_of(size.count()));
}

void CpuDevice::zero(const Array& data, DeviceStream) {
  if (data.count > 0) std::memset(data.data, 0, size_t_of(data.bytes()));
}

void CpuDevice::fill_known(const Array& data, const values::KnownWrite& write,
                           const std::int32_t* step, DeviceStream) {
  values::fill(write, *step, floats(data));
}

void CpuDevice::compare_known(const values::ComparisonTables& tables, DeviceStream) {
  for (std::int32_t i = 0; i < tables.count; ++i) {
    tables.found[i] = compare(tables, tables.comparisons[i]);
  }
}

void CpuDevice::move_ranges(const Moves& moves, DeviceStream) {
  for (std::int32_t i = 0; i < moves.count; ++i) {
    std::memcpy(moves.list[i].to, moves.list[i].from, size_t_of(moves.list[i].bytes));
  }
}

void CpuDevice::spoil(const Freed& freed, DeviceStream) {
  for (std::int32_t i = 0; i < freed.count; ++i) {
    const std::span<float> data = floats(freed.list[i]);
    for (std::size_t at = 0; at < data.size(); at += size_t_of(freed.stride)) {
      data[at] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void CpuDevice::copy_scaled(const Array& from, const Array& to, double factor, DeviceStream) {
  if (to.element == Element::F64) {
    for (std::int64_t i = 0; i < to.count; ++i) {
      static_cast<double*>(to.data)[i] =
          factor * static_cast<double>(static_cast<const float*>(from.data)[i]);
    }
    return;
  }
  const float times = static_cast<float>(factor);
  const std::span<const float> in = floats(from);
  const std::span<float> out = floats(to);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i] * times;
}

void CpuDevice::accumulate(const Array& from, const Array& to, double factor, Onto onto,
                           DeviceStream) {
  const float times = static_cast<float>(factor);
  const std::span<const float> in = floats(from);
  const std::span<float> out = floats(to);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = ((onto == Onto::Nothing ? 0.0F : out[i]) + in[i]) * times;
  }
}

void CpuDevice::add_squares(const Array& data, double factor, const SquareSum& sum, DeviceStream) {
  double total = *sum.total;
  for (const float element : floats(data)) {
    const double value = static_cast<double>(element) * factor;
    total += value * value;
  }
  *sum.total = total;
}

void CpuDevice::store_number(const double* total, const Array& out, DeviceStream) {
  floats(out)[0] = static_cast<float>(*total);
}

void CpuDevice::reserve(const std::vector<const schedule::Op*>& ops) {
  cpu::reserve(ops, *workspace_);
}

void CpuDevice::run_product(const schedule::GemmWork& work, Element, DeviceStream) {
  run_gemm(work, *workspace_);
}

void CpuDevice::run_pass(Bytes bytes, DeviceStream) { run_memory(bytes, *workspace_); }

}  // namespace dovetail::exec::cpu
