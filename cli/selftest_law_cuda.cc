// The law (exec/selftest/law.h) on GPUs, eagerly and as graphs.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest_law_cuda.h"

#include "exec/run.h"
#include "exec/selftest/law.h"

#include <string>

namespace dovetail::cli {
namespace {

using exec::selftest::LawCase;
using exec::selftest::LawJob;

exec::selftest::Train train_on(const exec::cuda::Module& module, exec::cuda::BackendOptions options,
                               exec::cuda::Issue issue) {
  options.content = exec::cuda::Content::TrainingJob;
  options.issue = issue;
  return [&module, options](const schedule::ScheduledProgram& plan) {
    const auto backend = module.make_backend(plan, options);
    exec::run(plan, options.exchange.rank, *backend,
              {.warmup = 0, .steps = exec::selftest::kLawSteps});
    return module.trained(*backend);
  };
}

}  // namespace

std::vector<exec::selftest::Row> cuda_law_rows(const exec::cuda::Module& module,
                                               const exec::cuda::BackendOptions& on_gpu) {
  using exec::cuda::Issue;
  const std::int64_t ranks = on_gpu.exchange.world_size;
  LawJob job = {.backend = "cuda",
                .ranks = ranks,
                .suffix = ", " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"),
                .train_naive = train_on(module, on_gpu, Issue::Eager),
                .cases = {}};
  for (const std::string policy : {"threshold:cap=4KiB", "torch-ddp:cap=8KiB,first=1KiB"}) {
    for (const Issue issue : {Issue::Eager, Issue::Graph}) {
      const std::string how = issue == Issue::Graph ? "graph, " : "eager, ";
      job.cases.push_back({how + policy, policy, train_on(module, on_gpu, issue)});
    }
  }
  job.sum = [&](const std::array<std::int64_t, 2>& mine) {
    std::array<std::int64_t, 2> sums{};
    for (const std::vector<std::int64_t>& of_rank : share(on_gpu.exchange, mine)) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_rank.at(i);
    }
    return sums;
  };
  return exec::selftest::law_rows(job);
}

}  // namespace dovetail::cli
