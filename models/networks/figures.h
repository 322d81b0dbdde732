// The figures in which a training job is judged.
//
//   Figures figures = figures_of(job, step, peak);      // 3'120 tokens/s a GPU, MFU 44.1 %
//
// Model FLOP utilisation counts what the model needs, three times its forward pass, attention over the whole
// sequence, nothing for recomputation (PaLM, arXiv 2204.02311, appendix B), against the device's dense peak rate of the
// type that its products with weights multiply (`products`, else `dtype`). With LoRA a frozen weight needs 4 FLOP a token, for y and the gradient of x, and an
// adapter's 6; attention is as ever. (Of the first layer's gradient of x, which nothing reads, it is silent.)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/units.h"
#include "models/networks/job.h"

namespace dovetail::jobs {

// Of a step on one device: they add up to it.
struct Phases {
  Duration forward{}, backward{}, optimizer{}, step{};
};

struct Figures {
  double tokens_per_s_per_gpu = 0;
  double model_flop_per_s_per_gpu = 0;
  std::optional<double> mfu = std::nullopt;  // a share; absent: the peak is unknown
};

// What the model needs of a token, forward and backward.
double model_flop_per_token(const Job& job);

// REQUIRES: step > 0.
Figures figures_of(const Job& job, Duration step, std::optional<FlopPerSecond> peak);

}  // namespace dovetail::jobs
