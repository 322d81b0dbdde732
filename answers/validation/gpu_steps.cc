// Each row's keys are those of a job's text, or of a workload, with blanks between them.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/gpu_steps.h"

#include <algorithm>
#include <utility>

#include "answers/validation/table.h"
#include "models/networks/text.h"

namespace dovetail::yardsticks {
namespace {

GpuStep gpu_step(const TableRow& table) {
  const auto time = [&](const char* column) { return from_us(table.number(column) * 1e3); };
  GpuStep step{.name = table.text("name"),
               .run = table.count("run"),
               .workload = table.text("workload"),
               .measured = {.forward = time("forward_ms"),
                            .backward = time("backward_ms"),
                            .optimizer = time("optimizer_ms"),
                            .step = time("step_ms")},
               .host = time("host_ms"),
               .peak = Bytes(table.count("peak_bytes")),
               .left_over = Bytes(table.count_or("left_over_bytes", 0)),
               .gives = table.text("gives")};
  std::ranges::replace(step.workload, ' ', ',');
  if (!step.workload.empty()) return step;
  std::string keys = table.text("keys");
  std::ranges::replace(keys, ' ', ',');
  jobs::Job job = jobs::parse_job(table.text("model") + ":" + keys);
  job.model.layers = table.count_or("layers", job.model.layers);
  step.job = std::move(job);
  return step;
}

}  // namespace

std::vector<GpuStep> gpu_steps(const std::string& folder) {
  std::vector<GpuStep> steps;
  for (const TableRow& row : read_table(folder + "/gpu_steps_h100.csv"))
    steps.push_back(gpu_step(row));
  return steps;
}

}  // namespace dovetail::yardsticks
