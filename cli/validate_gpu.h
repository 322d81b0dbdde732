// dovetail validate gpu: whole training steps that were measured on one GPU beside the predicted ones, phase by phase.
//
//   step, measured ms            run  forward     off  backward     off  optimizer      off   step     off  memory
//   llama8b-4layers seq 4096 ..    1     27.5  +1.1 %      48.6  +1.1 %       14.2  -11.4 %   90.4  -1.0 %  -0.0 %
//
// Below it kernels by kind, of the steps that were profiled. `--without softmax` prices that kind as if nobody had measured it, `--without each`
// shows what each kind is worth.
// Simulated on the GPU's own book (models/clusters/gpu_book.h). A step from which a constant of that book was taken is shown and in no
// mean, and so is a peak that holds what another model left.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"

namespace dovetail::cli {

struct ValidateGpuOptions {
  std::string folder;    // of the tables
  std::string data_dir;  // holds clusters/
  std::string gpu = {};  // another book than the one of the GPU that was measured
  std::string without =
      {};  // a kind of kernel that is priced as if nobody had measured it (answers/validation/gpu_kernels.h); "each": a table
};
// Throws InputError where `gpu` is no book, or `without` no kind.
void validate_gpu(const ValidateGpuOptions& options, const DocumentOptions& document,
                  std::ostream& out);

}  // namespace dovetail::cli
