// The files of models/rates/gemm, held in the program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "schedule/program.h"

namespace dovetail::models {

struct GemmFile {
  std::string_view name;    // "h100-fp8"
  std::string_view device;  // "h100"
  schedule::Operands operands = schedule::Operands::Own;
  std::string_view text;
};
std::vector<GemmFile> gemm_files();
std::string_view attention_file();
std::string_view convolutions_file();
std::string_view memory_file();
std::string_view products_file();

}  // namespace dovetail::models
