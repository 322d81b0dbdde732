// dovetail validate gpu: whole training steps that were measured on one GPU beside the predicted ones, phase by phase.
//
//   step, measured ms            run  forward     off  backward     off  optimizer      off   step     off  memory
//   llama8b-4layers seq 4096 ..    1     27.5  +1.1 %      48.6  +1.1 %       14.2  -11.4 %   90.4  -1.0 %  -0.0 %
//
// Simulated on the GPU's own book (models/clusters/gpu_book.h). A step from which a constant of that book was taken is shown and in no
// mean, and so is a peak that holds what another model left.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"

namespace dovetail::cli {

// `folder`: of the tables; `data_dir`: holds clusters/; `gpu`: another book than the one of the GPU that was measured, or
// "". Throws InputError where that is no book.
void validate_gpu(const std::string& folder, const std::string& data_dir, const std::string& gpu,
                  const DocumentOptions& document, std::ostream& out);

}  // namespace dovetail::cli
