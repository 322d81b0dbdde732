// Files that the assembler puts into the program: they are too large for a compiler to read as code.
//
//   DOVETAIL_EMBED(keys_megatron, DOVETAIL_KEYS_DIR "/megatron.keys")     outside of any namespace, in one source
//   std::string_view text = DOVETAIL_EMBEDDED(keys_megatron);
//
// The source is built by itself (SKIP_UNITY_BUILD_INCLUSION) and again where the file changes (OBJECT_DEPENDS).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#define DOVETAIL_EMBED(NAME, PATH)                                               \
  __asm__(                                                                       \
      ".pushsection .rodata\n"                                                   \
      "dovetail_" #NAME                                                          \
      ":\n"                                                                      \
      ".incbin \"" PATH                                                          \
      "\"\n"                                                                     \
      "dovetail_" #NAME                                                          \
      "_end:\n"                                                                  \
      ".popsection\n");                                                          \
  extern "C" const char dovetail_##NAME[] __attribute__((visibility("hidden"))); \
  extern "C" const char dovetail_##NAME##_end[] __attribute__((visibility("hidden")));

#define DOVETAIL_EMBEDDED(NAME)     \
  std::string_view(dovetail_##NAME, \
                   static_cast<std::size_t>(dovetail_##NAME##_end - dovetail_##NAME))
