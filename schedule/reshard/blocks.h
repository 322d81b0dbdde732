// Boxes of a row-major tensor as plain lists of elements, for those who carry out a ReshardPlan.
//
//   pack    the elements of a box, in row-major order of the box
//   unpack  back again
//
// REQUIRES: the box lies inside the tensor; the spans have the sizes of the tensor and of the box.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/reshard/layout.h"

#include <cstddef>
#include <span>

namespace dovetail::schedule::reshard {

// Calls run(tensor offset, list offset, length) for each run of consecutive elements.
template <class Run>
void for_each_run(const Shape& shape, const Box& box, const Run& run) {
  const std::int64_t count = elements(box);
  if (count == 0) return;
  const std::int64_t length = box.empty() ? 1 : box.back().size();
  for (std::int64_t listed = 0; listed < count; listed += length) {
    std::int64_t rest = listed / length;
    std::int64_t offset = box.empty() ? 0 : box.back().begin;
    std::int64_t stride = box.empty() ? 1 : shape.back();
    for (std::size_t d = box.empty() ? 0 : box.size() - 1; d-- > 0;) {
      offset += (box[d].begin + rest % box[d].size()) * stride;
      rest /= box[d].size();
      stride *= shape[d];
    }
    run(static_cast<std::size_t>(offset), static_cast<std::size_t>(listed),
        static_cast<std::size_t>(length));
  }
}

template <class T>
void pack(std::span<const T> tensor, const Shape& shape, const Box& box, std::span<T> list) {
  for_each_run(shape, box, [&](std::size_t offset, std::size_t listed, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) list[listed + i] = tensor[offset + i];
  });
}

template <class T>
void unpack(std::span<const T> list, const Shape& shape, const Box& box, std::span<T> tensor) {
  for_each_run(shape, box, [&](std::size_t offset, std::size_t listed, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) tensor[offset + i] = list[listed + i];
  });
}

}  // namespace dovetail::schedule::reshard
