// Puts the files of models/rates/gemm into the program by the assembler: they are too large for a compiler to read as code.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/gemm_files.h"

#include "base/embedded.h"

// SYMBOL names it in C, NAME is that of the file without ".csv".
#define DOVETAIL_GEMM(SYMBOL, NAME) DOVETAIL_EMBED(gemm_##SYMBOL, DOVETAIL_GEMM_DIR "/" NAME ".csv")

// Of a GPU: SYMBOL, its name, its operands.
#define DOVETAIL_GEMMS(EACH)                 \
  EACH(a100, "a100", "a100", Own)            \
  EACH(b200, "b200", "b200", Own)            \
  EACH(b200_fp4, "b200-fp4", "b200", Fp4)    \
  EACH(b200_fp8, "b200-fp8", "b200", Fp8)    \
  EACH(gb200, "gb200", "gb200", Own)         \
  EACH(gb200_fp4, "gb200-fp4", "gb200", Fp4) \
  EACH(gb200_fp8, "gb200-fp8", "gb200", Fp8) \
  EACH(gb300, "gb300", "gb300", Own)         \
  EACH(gb300_fp4, "gb300-fp4", "gb300", Fp4) \
  EACH(gb300_fp8, "gb300-fp8", "gb300", Fp8) \
  EACH(h100, "h100", "h100", Own)            \
  EACH(h100_fp8, "h100-fp8", "h100", Fp8)    \
  EACH(h200, "h200", "h200", Own)            \
  EACH(h200_fp8, "h200-fp8", "h200", Fp8)    \
  EACH(l40s, "l40s", "l40s", Own)            \
  EACH(l40s_fp8, "l40s-fp8", "l40s", Fp8)

#define DOVETAIL_HOLD(SYMBOL, NAME, DEVICE, OPERANDS) DOVETAIL_GEMM(SYMBOL, NAME)
DOVETAIL_GEMMS(DOVETAIL_HOLD)
#undef DOVETAIL_HOLD
DOVETAIL_GEMM(attention, "attention")
DOVETAIL_GEMM(convolutions, "convolutions")
DOVETAIL_GEMM(memory, "memory")
DOVETAIL_GEMM(products, "products")

namespace dovetail::models {

std::vector<GemmFile> gemm_files() {
#define DOVETAIL_LIST(SYMBOL, NAME, DEVICE, OPERANDS) \
  {NAME, DEVICE, schedule::Operands::OPERANDS, DOVETAIL_EMBEDDED(gemm_##SYMBOL)},
  return {DOVETAIL_GEMMS(DOVETAIL_LIST)};
#undef DOVETAIL_LIST
}

std::string_view attention_file() { return DOVETAIL_EMBEDDED(gemm_attention); }

std::string_view convolutions_file() { return DOVETAIL_EMBEDDED(gemm_convolutions); }

std::string_view products_file() { return DOVETAIL_EMBEDDED(gemm_products); }

std::string_view memory_file() { return DOVETAIL_EMBEDDED(gemm_memory); }

}  // namespace dovetail::models
