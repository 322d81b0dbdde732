// The work of ops on a device, whatever values they carry: matrix products of their shapes, and
// streaming passes over a ring of memory that moves their bytes.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/op_work.h"

#include "base/error.h"
#include "exec/cuda/kernels.h"
#include "exec/device/layout.h"
#include "schedule/visit.h"

#include <algorithm>
#include <map>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

constexpr std::int64_t kBytesPerElement = 12;               // two reads and one write
constexpr std::int64_t kMostRing = std::int64_t{32} << 20;  // floats: 128 MiB in each array
constexpr std::int64_t kFewestRing = 4096;
// Cursors stay at multiples of this, so that every pass can use accesses of 16 bytes.
constexpr std::int64_t kStride = 64;

std::int64_t round_up(std::int64_t count) { return (count + kStride - 1) / kStride * kStride; }

std::int64_t elements(Bytes bytes) {
  return std::max<std::int64_t>(0, bytes.count()) / kBytesPerElement;
}

// Floats in each of the ring's arrays.
std::int64_t ring_for(const std::vector<const schedule::Op*>& ops) {
  std::int64_t per_step = 0;
  for (const schedule::Op* op : ops) {
    for (const schedule::Kernel& kernel : schedule::kernels_of(op->work)) {
      const auto* work = std::get_if<schedule::MemoryWork>(&kernel);
      if (work != nullptr) per_step += elements(work->bytes);
    }
  }
  return round_up(std::clamp(per_step, kFewestRing, kMostRing));
}

DeviceBuffer random_floats(std::int64_t count) {
  DeviceBuffer buffer(Bytes(count * 4), "the ring of memory-bound work");
  check(fill_random({.data = buffer.data(), .count = count, .element = Element::F32}, 4, nullptr),
        "kernel fill_random");
  return buffer;
}

}  // namespace

Bytes room_for_work(const std::vector<const schedule::Op*>& ops) {
  std::map<Element, GemmRoom> rooms;
  for (const schedule::Op* op : ops) {
    for (const schedule::Kernel& kernel : schedule::kernels_of(op->work)) {
      const auto* work = std::get_if<schedule::GemmWork>(&kernel);
      if (work == nullptr) continue;
      GemmRoom& room = rooms[element_of(op->dtype)];
      room = wider(room, room_of(*work, element_of(op->dtype)));
    }
  }
  std::int64_t bytes = kGemmWorkspace.count() + 2 * 4 * ring_for(ops);
  for (const auto& [element, room] : rooms) bytes += (room.a + room.b + room.c) * size_of(element);
  return Bytes(bytes);
}

OpWork::OpWork(const std::vector<const schedule::Op*>& ops, F32Math math)
    : gemm_(math), ring_(ring_for(ops)) {
  for (const schedule::Op* op : ops) {
    for (const schedule::Kernel& kernel : schedule::kernels_of(op->work)) {
      const auto* work = std::get_if<schedule::GemmWork>(&kernel);
      if (work != nullptr) gemm_.reserve(*work, element_of(op->dtype));
    }
  }
  x_ = random_floats(ring_);
  y_ = random_floats(ring_);
  gemm_.allocate();
}

void OpWork::run_pass(Bytes bytes, cudaStream_t stream) {
  std::int64_t left = elements(bytes);
  while (left > 0) {
    const std::int64_t count = std::min(left, ring_ - cursor_);
    const Bytes offset = Bytes(cursor_ * 4);
    check(stream_pass(static_cast<const float*>(x_.at(offset)), static_cast<float*>(y_.at(offset)),
                      count, stream),
          "kernel stream_pass");
    cursor_ = round_up(cursor_ + count) % ring_;
    left -= count;
  }
}

}  // namespace dovetail::exec::cuda
