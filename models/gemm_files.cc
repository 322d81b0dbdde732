// Puts the files of models/gemm into the program by the assembler: they are too large for a compiler to read as code.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/gemm_files.h"

#include <cstddef>

#define DOVETAIL_GEMM(DEVICE)                                                           \
  __asm__(                                                                              \
      ".pushsection .rodata\n"                                                          \
      "dovetail_gemm_" #DEVICE                                                          \
      ":\n"                                                                             \
      ".incbin \"" DOVETAIL_GEMM_DIR "/" #DEVICE                                        \
      ".csv\"\n"                                                                        \
      "dovetail_gemm_" #DEVICE                                                          \
      "_end:\n"                                                                         \
      ".popsection\n");                                                                 \
  extern "C" const char dovetail_gemm_##DEVICE[] __attribute__((visibility("hidden"))); \
  extern "C" const char dovetail_gemm_##DEVICE##_end[] __attribute__((visibility("hidden")));

DOVETAIL_GEMM(a100)
DOVETAIL_GEMM(b200)
DOVETAIL_GEMM(gb200)
DOVETAIL_GEMM(gb300)
DOVETAIL_GEMM(h100)
DOVETAIL_GEMM(h200)
DOVETAIL_GEMM(l40s)
#undef DOVETAIL_GEMM

namespace dovetail::models {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::vector<GemmFile> gemm_files() {
  return {{"a100", between(dovetail_gemm_a100, dovetail_gemm_a100_end)},
          {"b200", between(dovetail_gemm_b200, dovetail_gemm_b200_end)},
          {"gb200", between(dovetail_gemm_gb200, dovetail_gemm_gb200_end)},
          {"gb300", between(dovetail_gemm_gb300, dovetail_gemm_gb300_end)},
          {"h100", between(dovetail_gemm_h100, dovetail_gemm_h100_end)},
          {"h200", between(dovetail_gemm_h200, dovetail_gemm_h200_end)},
          {"l40s", between(dovetail_gemm_l40s, dovetail_gemm_l40s_end)}};
}

}  // namespace dovetail::models
