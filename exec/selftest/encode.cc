// IEEE half and bfloat16 by hand.
//
// f16: sign, 5 bits of exponent (bias 15), 10 of mantissa. bf16: the upper half of a float.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/selftest/encode.h"

#include "base/error.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace dovetail::exec::selftest {
namespace {

template <class T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T load(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

void encode_one(schedule::DType dtype, double value, std::byte* to) {
  switch (dtype) {
    case schedule::DType::F32:
      store(static_cast<float>(value), to);
      return;
    case schedule::DType::F16:
      store(to_f16(value), to);
      return;
    case schedule::DType::BF16:
      store(to_bf16(value), to);
      return;
    case schedule::DType::F64:
      store(value, to);
      return;
  }
}

double decode_one(schedule::DType dtype, const std::byte* from) {
  switch (dtype) {
    case schedule::DType::F32:
      return load<float>(from);
    case schedule::DType::F16:
      return from_f16(load<std::uint16_t>(from));
    case schedule::DType::BF16:
      return from_bf16(load<std::uint16_t>(from));
    case schedule::DType::F64:
      break;
  }
  return load<double>(from);
}

}  // namespace

std::uint16_t to_bf16(double exact) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
  const auto result = static_cast<std::uint16_t>(bits >> 16);
  DOVETAIL_CHECK(from_bf16(result) == exact) << exact << " is not exact in bf16";
  return result;
}

double from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_f16(double exact) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  std::uint16_t result = sign;
  if (exact != 0) {
    // Normal numbers only: the known values are between 1/2 and 256.
    const std::uint32_t exponent = ((bits >> 23) & 0xffU) - 127 + 15;
    result = static_cast<std::uint16_t>(sign | (exponent << 10) | ((bits >> 13) & 0x3ffU));
  }
  DOVETAIL_CHECK(from_f16(result) == exact) << exact << " is not exact in f16";
  return result;
}

double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const double mantissa = (bits & 0x3ff) / 1024.0;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, -14);
  return sign * std::ldexp(1 + mantissa, exponent - 15);
}

std::vector<std::byte> encode(schedule::DType dtype, std::span<const double> exact) {
  const auto size = static_cast<std::size_t>(element_size(dtype).count());
  std::vector<std::byte> bytes(exact.size() * size);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    encode_one(dtype, exact[i], bytes.data() + i * size);
  }
  return bytes;
}

std::vector<double> decode(schedule::DType dtype, std::span<const std::byte> bytes) {
  const auto size = static_cast<std::size_t>(element_size(dtype).count());
  DOVETAIL_CHECK(bytes.size() % size == 0) << bytes.size();
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = decode_one(dtype, bytes.data() + i * size);
  }
  return values;
}

double tolerance(schedule::DType dtype, std::int64_t ranks) {
  if (std::has_single_bit(static_cast<std::uint64_t>(ranks))) return 0;
  switch (dtype) {
    case schedule::DType::F32:
      return std::ldexp(1, -22);
    case schedule::DType::F16:
      return std::ldexp(1, -9);
    case schedule::DType::BF16:
      return std::ldexp(1, -6);
    case schedule::DType::F64:
      break;
  }
  return std::ldexp(1, -51);
}

}  // namespace dovetail::exec::selftest
