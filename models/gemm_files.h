// The files of models/gemm, held in the program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace dovetail::models {

struct GemmFile {
  std::string_view device;
  std::string_view text;
};
std::vector<GemmFile> gemm_files();

}  // namespace dovetail::models
