// Numbers in the element types that a device computes with, bit by bit on the host.
//
// Made for small known values (known.h): encode() refuses numbers that the type cannot hold
// exactly. decode() takes any bits, since a wrong result may be anything, infinity and NaN
// included.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec::selftest {

std::uint16_t to_f16(double exact);
double from_f16(std::uint16_t bits);
std::uint16_t to_bf16(double exact);
double from_bf16(std::uint16_t bits);

std::vector<std::byte> encode(schedule::DType dtype, std::span<const double> exact);
// REQUIRES: bytes.size() is a multiple of the element's size.
std::vector<double> decode(schedule::DType dtype, std::span<const std::byte> bytes);

// How far an average over so many ranks may be from the exact one, relative. 0 where the division
// is exact (a power of two); else two units in the last place: the factor and the product are
// rounded.
double tolerance(schedule::DType dtype, std::int64_t ranks);

}  // namespace dovetail::exec::selftest
