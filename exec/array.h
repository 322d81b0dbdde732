// Arrays in device memory as a pointer, a count and an element type: light enough for .cu files,
// which know nothing else of the project.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace dovetail::exec {

// As schedule::DType, in the same order (layout.h maps one to the other).
enum class Element : std::int32_t { F32, F16, BF16, F64 };

constexpr std::int64_t size_of(Element element) {
  switch (element) {
    case Element::F32:
      return 4;
    case Element::F16:
    case Element::BF16:
      return 2;
    case Element::F64:
      return 8;
  }
  return 0;
}

struct Array {
  void* data = nullptr;
  std::int64_t count = 0;
  Element element = Element::F32;
  [[nodiscard]] constexpr std::int64_t bytes() const { return count * size_of(element); }
};

}  // namespace dovetail::exec
