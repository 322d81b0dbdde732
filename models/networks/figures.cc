// Divides a step's tokens and products by its time and its ranks.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/figures.h"

#include "models/networks/adapters.h"

namespace dovetail::jobs {

double model_flop_per_token(const Job& job) {
  const double forward = forward_flop_per_token(job.model, job.batch.sequence);
  if (job.lora == 0) return 3 * forward;
  const double products = forward_flop_per_token(job.model, 0);
  return 3 * forward - products + 6 * static_cast<double>(trained_parameters(job));
}

Figures figures_of(const Job& job, Duration step, std::optional<FlopPerSecond> peak) {
  const double seconds = to_us(step) / 1e6;
  const double per_gpu =
      static_cast<double>(job.tokens()) / seconds / static_cast<double>(job.layout.world());
  Figures figures{.tokens_per_s_per_gpu = per_gpu,
                  .model_flop_per_s_per_gpu = model_flop_per_token(job) * per_gpu};
  if (peak) figures.mfu = figures.model_flop_per_s_per_gpu / peak->count();
  return figures;
}

}  // namespace dovetail::jobs
