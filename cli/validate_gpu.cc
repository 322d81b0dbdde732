// `dovetail validate gpu`: predicts every step, and tells how far each phase is off.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_gpu.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/step_phases.h"
#include "answers/validation/gpu_steps.h"
#include "base/decimal.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "models/clusters/gpu_book.h"
#include "models/networks/memory.h"

namespace dovetail::cli {
namespace {

using jobs::Phases;
using nlohmann::ordered_json;
using yardsticks::GpuStep;

struct JudgedStep {
  GpuStep step;
  std::optional<Phases> predicted = std::nullopt;  // nothing: it is no job
  std::optional<Bytes> peak = std::nullopt;        // predicted
};

struct PhaseColumn {
  const char* name;
  Duration Phases::*time;
  int spare;  // as of a Column: of what there is no room for the whole step goes last
};
constexpr PhaseColumn kPhases[] = {{"forward", &Phases::forward, 2},
                                   {"backward", &Phases::backward, 3},
                                   {"optimizer", &Phases::optimizer, 1},
                                   {"step", &Phases::step, 0}};

// Predicted / measured - 1, as a share.
std::optional<double> error_of(const JudgedStep& one, Duration Phases::*time) {
  if (!one.predicted) return std::nullopt;
  return to_us((*one.predicted).*time) / to_us(one.step.measured.*time) - 1;
}
std::optional<double> memory_error_of(const JudgedStep& one) {
  if (!one.peak) return std::nullopt;
  return static_cast<double>(one.peak->count()) / static_cast<double>(one.step.peak.count()) - 1;
}

JudgedStep judge(GpuStep step, const models::Cluster& cluster) {
  JudgedStep judged{.step = std::move(step)};
  if (!judged.step.job) return judged;
  const jobs::Job& job = *judged.step.job;
  const auto [program, costs] = predict::lower_job(job, cluster);
  judged.predicted = predict::step_phases(program, costs);
  const std::vector<jobs::StageMemory> memory = jobs::memory_of(job);
  judged.peak = memory[jobs::fullest(memory)].allocated() + judged.step.left_over;
  return judged;
}

Table step_table(const std::vector<JudgedStep>& steps) {
  std::vector<Field<JudgedStep>> fields = {
      {{"name", "step, measured ms"}, [](const JudgedStep& one) { return one.step.name; }},
      {{"run", "run"}, [](const JudgedStep& one) { return one.step.run; }},
      {{"no_job"}, [](const JudgedStep& one) { return one.step.no_job; }}};
  for (const PhaseColumn& phase : kPhases) {
    const std::string name = phase.name;
    fields.push_back(
        {{name + ".measured_us", name, Unit::Milliseconds, {1}, phase.spare},
         [time = phase.time](const JudgedStep& one) { return one.step.measured.*time; }});
    fields.push_back({{name + ".predicted_us"}, [time = phase.time](const JudgedStep& one) {
                        return one.predicted ? Cell((*one.predicted).*time) : Cell();
                      }});
    fields.push_back({{name + ".error", "off", Unit::Share, {1, Sign::Always}, phase.spare},
                      [time = phase.time](const JudgedStep& one) { return error_of(one, time); }});
  }
  fields.push_back({{"peak.measured_bytes"}, [](const JudgedStep& one) { return one.step.peak; }});
  fields.push_back({{"peak.predicted_bytes"}, &JudgedStep::peak});
  fields.push_back({{"peak.error", "memory", Unit::Share, {1, Sign::Always}}, memory_error_of});
  return table_of(fields, steps);
}

struct PhaseScore {
  std::string what;
  double mean = 0, worst = 0;  // of |error|, and the one that is furthest off
};

PhaseScore score_of(const std::string& what, const std::vector<JudgedStep>& steps,
                    const std::function<std::optional<double>(const JudgedStep&)>& error) {
  PhaseScore score{.what = what};
  double count = 0;
  for (const JudgedStep& one : steps) {
    const std::optional<double> off = error(one);
    if (!off || !one.step.gives.empty()) continue;
    ++count;
    score.mean += std::abs(*off);
    if (std::abs(*off) > std::abs(score.worst)) score.worst = *off;
  }
  if (count > 0) score.mean /= count;
  return score;
}

Table score_table(const std::vector<JudgedStep>& steps) {
  std::vector<PhaseScore> scores;
  for (const PhaseColumn& phase : kPhases) {
    scores.push_back(score_of(phase.name, steps, [time = phase.time](const JudgedStep& one) {
      return error_of(one, time);
    }));
  }
  scores.push_back(score_of("memory", steps, [](const JudgedStep& one) {
    return one.step.left_over > Bytes() ? std::nullopt : memory_error_of(one);
  }));
  const std::vector<Field<PhaseScore>> fields = {
      {{"what", "off"}, &PhaseScore::what},
      {{"mean", "mean", Unit::Share, {1}}, &PhaseScore::mean},
      {{"worst", "worst", Unit::Share, {1, Sign::Always}}, &PhaseScore::worst}};
  return table_of(fields, scores);
}

}  // namespace

void validate_gpu(const std::string& folder, const std::string& data_dir, const std::string& gpu,
                  const DocumentOptions& document, std::ostream& out) {
  require_outputs({document_file(document)}, {});
  models::WhatIf own;
  own.gpu = gpu.empty() ? folder + "/gpu_h100.json" : gpu;
  // Read here too, so that another machine's name is refused as no book.
  const models::GpuBook book = models::load_gpu_book(own.gpu);
  const models::Cluster cluster = predict::load_cluster("h100x1", data_dir, own);
  std::vector<JudgedStep> steps;
  for (GpuStep& step : yardsticks::gpu_steps(folder)) {
    steps.push_back(judge(std::move(step), cluster));
  }
  put_document(document,
               {.json =
                    [&] {
                      return ordered_json({{"schema", "dovetail.gpu-steps/1"},
                                           {"kind", "gpu-steps"},
                                           {"gpu", book.name},
                                           {"rows", rows_json(step_table(steps))},
                                           {"scores", rows_json(score_table(steps))}})
                                 .dump(1) +
                             "\n";
                    },
                .table = [&] { return step_table(steps); }},
               out);
  if (replaces_report(document)) return;
  print_table(out, step_table(steps));
  print_table(out, score_table(steps));
  for (const JudgedStep& one : steps) {
    if (!one.step.gives.empty())
      print_text(out, one.step.name + " gives " + one.step.gives + " and is not judged");
    if (!one.step.no_job.empty() && one.step.run == 1)
      print_text(out, "not judged: " + one.step.no_job);
  }
  print_text(out, "simulated on " + book.name + " by its own book; off: predicted / measured - 1");
}

}  // namespace dovetail::cli
