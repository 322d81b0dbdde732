// dovetail validate gpu: whole training steps that were measured on one GPU beside the predicted ones, phase by phase.
//
//   step                        run  forward          backward         optimizer        step           memory
//   llama3_8b, 4 layers ...       1  27.5   +0.4 %    48.6  +1.1 %     14.2  -2.5 %     90.4  +0.2 %   +0.0 %
//
// Simulated on the GPU's own book (models/clusters/gpu_book.h), which holds nothing that was taken from these steps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"

namespace dovetail::cli {

// `folder`: of the tables; `data_dir`: holds clusters/; `gpu`: another book than the one of the GPU that was measured, or "".
void validate_gpu(const std::string& folder, const std::string& data_dir, const std::string& gpu,
                  const DocumentOptions& document, std::ostream& out);

}  // namespace dovetail::cli
