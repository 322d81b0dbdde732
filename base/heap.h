// What the allocator keeps for later.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace dovetail {

// What threads have freed goes back to the system, where the C library can do that: no other thread takes it else.
inline void give_memory_back() {
#ifdef __GLIBC__
  static_cast<void>(::malloc_trim(0));
#endif
}

}  // namespace dovetail
