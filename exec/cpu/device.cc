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

template <class T>
values::Found compare(const values::ComparisonTables& tables, const values::Comparison& what) {
  const Expected expected(tables, what);
  const auto* data = static_cast<const T*>(what.data);
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
      const auto held = static_cast<double>(static_cast<float>(data[begin + i]));
      if (std::abs(held - value) <= what.tolerance) continue;
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
  with_elements(data, [&](auto elements) { values::fill(write, *step, elements); });
}

void CpuDevice::compare_known(const values::ComparisonTables& tables, DeviceStream) {
  for (std::int32_t i = 0; i < tables.count; ++i) {
    const values::Comparison& what = tables.comparisons[i];
    tables.found[i] =
        what.element == Element::BF16 ? compare<Bf16>(tables, what) : compare<float>(tables, what);
  }
}

void CpuDevice::move_ranges(const Moves& moves, DeviceStream) {
  for (std::int32_t i = 0; i < moves.count; ++i) {
    std::memcpy(moves.list[i].to, moves.list[i].from, size_t_of(moves.list[i].bytes));
  }
}

void CpuDevice::spoil(const Freed& freed, DeviceStream) {
  for (std::int32_t i = 0; i < freed.count; ++i) {
    with_elements(freed.list[i], [&](auto data) {
      using Number = typename decltype(data)::value_type;
      for (std::size_t at = 0; at < data.size(); at += size_t_of(freed.stride)) {
        data[at] = Number(std::numeric_limits<float>::quiet_NaN());
      }
    });
  }
}

void CpuDevice::copy_scaled(const Array& from, const Array& to, double factor, DeviceStream) {
  with_elements(from, [&](auto in) {
    if (to.element == Element::F64) {
      auto* numbers = static_cast<double*>(to.data);
      for (std::size_t i = 0; i < in.size(); ++i) {
        numbers[i] = factor * static_cast<double>(static_cast<float>(in[i]));
      }
      return;
    }
    with_elements(to, [&](auto out) {
      using Number = typename decltype(out)::value_type;
      const auto times = static_cast<float>(factor);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = Number(static_cast<float>(in[i]) * times);
    });
  });
}

void CpuDevice::accumulate(const Array& from, const Array& to, double factor, Onto onto,
                           DeviceStream) {
  const auto times = static_cast<float>(factor);
  with_elements(from, [&](auto in) {
    with_elements(to, [&](auto out) {
      using Number = typename decltype(out)::value_type;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const float old = onto == Onto::Nothing ? 0.0F : static_cast<float>(out[i]);
        out[i] = Number((old + static_cast<float>(in[i])) * times);
      }
    });
  });
}

void CpuDevice::add_squares(const Array& data, double factor, const SquareSum& sum, DeviceStream) {
  double total = *sum.total;
  with_elements(data, [&](auto elements) {
    for (const auto element : elements) {
      const double value = static_cast<double>(static_cast<float>(element)) * factor;
      total += value * value;
    }
  });
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
