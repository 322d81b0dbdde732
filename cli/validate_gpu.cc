// `dovetail validate gpu`: predicts every step, and tells how far each phase is off.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_gpu.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "answers/host_phases.h"
#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/step_phases.h"
#include "answers/validation/gpu_held_out.h"
#include "answers/validation/gpu_kernels.h"
#include "answers/validation/gpu_steps.h"
#include "base/decimal.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "models/clusters/gpu_book.h"
#include "models/networks/memory.h"
#include "models/workloads/workload.h"
#include "schedule/lower/lower.h"

namespace dovetail::cli {
namespace {

using jobs::Phases;
using nlohmann::ordered_json;
using yardsticks::GpuStep;

struct JudgedStep {
  GpuStep step;
  Phases predicted = {};
  std::optional<Bytes> peak = std::nullopt;  // predicted
  std::vector<predict::HostPhase> host_bound = {};
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
double error_of(const JudgedStep& one, Duration Phases::*time) {
  return to_us(one.predicted.*time) / to_us(one.step.measured.*time) - 1;
}
std::optional<double> memory_error_of(const JudgedStep& one) {
  if (!one.peak) return std::nullopt;
  return static_cast<double>(one.peak->count()) / static_cast<double>(one.step.peak.count()) - 1;
}

// The job, or the workload without what wraps it.
predict::LoweredJob lowered(const GpuStep& step, const models::Cluster& cluster,
                            const std::string& data_dir) {
  if (step.job) return predict::lower_job(*step.job, cluster);
  schedule::Program program = models::load_workload(step.workload, 1, data_dir).program;
  program.reductions.clear();
  models::Costs costs = models::costs_for(cluster, program);
  return {.program = schedule::lower(std::move(program), {}).program, .costs = std::move(costs)};
}

JudgedStep judge(GpuStep step, const models::Cluster& cluster, const std::string& data_dir) {
  JudgedStep judged{.step = std::move(step)};
  const auto [program, costs] = lowered(judged.step, cluster, data_dir);
  judged.predicted = predict::step_phases(program, costs);
  judged.host_bound = predict::host_bound_phases(program.program, costs);
  if (!judged.step.job) return judged;
  const std::vector<jobs::StageMemory> memory = jobs::memory_of(*judged.step.job);
  judged.peak = memory[jobs::fullest(memory)].allocated() + judged.step.left_over;
  return judged;
}

// Of the phase, where it is host-bound.
std::optional<double> host_share_of(const JudgedStep& one, std::string_view phase) {
  const auto found = std::ranges::find(one.host_bound, phase, [](const predict::HostPhase& known) {
    return schedule::to_string(known.phase);
  });
  return found == one.host_bound.end() ? std::nullopt : std::optional(found->share);
}

Table step_table(const std::vector<JudgedStep>& steps) {
  std::vector<Field<JudgedStep>> fields = {
      {{"name", "step, measured ms"}, [](const JudgedStep& one) { return one.step.name; }},
      {{"run", "run"}, [](const JudgedStep& one) { return one.step.run; }}};
  for (const PhaseColumn& phase : kPhases) {
    const std::string name = phase.name;
    fields.push_back(
        {{name + ".measured_us", name, Unit::Milliseconds, {1}, phase.spare},
         [time = phase.time](const JudgedStep& one) { return one.step.measured.*time; }});
    fields.push_back({{name + ".predicted_us"},
                      [time = phase.time](const JudgedStep& one) { return one.predicted.*time; }});
    fields.push_back({{name + ".error", "off", Unit::Share, {1, Sign::Always}, phase.spare},
                      [time = phase.time](const JudgedStep& one) { return error_of(one, time); }});
    if (phase.time == &Phases::step) continue;
    fields.push_back({{name + ".host_share"},
                      [name](const JudgedStep& one) { return host_share_of(one, name); }});
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

std::vector<PhaseScore> phase_scores(const std::vector<JudgedStep>& steps) {
  std::vector<PhaseScore> scores;
  for (const PhaseColumn& phase : kPhases) {
    scores.push_back(score_of(phase.name, steps, [time = phase.time](const JudgedStep& one) {
      return error_of(one, time);
    }));
  }
  return scores;
}

Table score_table(const std::vector<JudgedStep>& steps) {
  std::vector<PhaseScore> scores = phase_scores(steps);
  scores.push_back(score_of("memory", steps, [](const JudgedStep& one) {
    return one.step.left_over > Bytes() ? std::nullopt : memory_error_of(one);
  }));
  const std::vector<Field<PhaseScore>> fields = {
      {{"what", "off"}, &PhaseScore::what},
      {{"mean", "mean", Unit::Share, {1}}, &PhaseScore::mean},
      {{"worst", "worst", Unit::Share, {1, Sign::Always}}, &PhaseScore::worst}};
  return table_of(fields, scores);
}

// Of all profiled steps together.
struct KindScore {
  std::string kind;
  double launches = 0;
  Duration measured{}, predicted{};
};

std::vector<KindScore> kind_scores(const std::string& folder, const std::vector<GpuStep>& steps,
                                   const models::Cluster& cluster, const std::string& data_dir) {
  std::map<std::string, KindScore> kinds;
  std::string last;
  for (const yardsticks::KernelSum& sum : yardsticks::kernel_sums(folder)) {
    KindScore& score = kinds.try_emplace(sum.kind, KindScore{.kind = sum.kind}).first->second;
    score.launches += sum.launches;
    score.measured += sum.time;
    if (std::exchange(last, sum.step) == sum.step) continue;
    const auto step = std::ranges::find(steps, sum.step, &GpuStep::name);
    if (step == steps.end()) throw InputError("no step is called " + sum.step);
    const auto [program, costs] = lowered(*step, cluster, data_dir);
    for (const auto& [kind, time] :
         yardsticks::kernel_times(program, costs, sum.backwards, sum.updates))
      kinds.try_emplace(kind, KindScore{.kind = kind}).first->second.predicted += time;
  }
  std::vector<KindScore> list;
  for (auto& [kind, score] : kinds) list.push_back(std::move(score));
  std::ranges::stable_sort(list, std::greater<>(), &KindScore::measured);
  return list;
}

Table kind_table(const std::vector<KindScore>& kinds) {
  const std::vector<Field<KindScore>> fields = {
      {{"kind", "kernels of profiled steps"}, &KindScore::kind},
      {{"launches", "launches", Unit::Own, {0}}, &KindScore::launches},
      {{"measured_us", "measured ms", Unit::Milliseconds, {2}}, &KindScore::measured},
      {{"predicted_us", "predicted", Unit::Milliseconds, {2}}, &KindScore::predicted},
      {{"error", "off", Unit::Share, {1, Sign::Always}}, [](const KindScore& one) -> Cell {
         const bool is_known = one.measured > Duration{} && one.predicted > Duration{};
         return is_known ? Cell(to_us(one.predicted) / to_us(one.measured) - 1) : Cell();
       }}};
  return table_of(fields, kinds);
}

Table held_out_table(const std::vector<yardsticks::HeldOut>& all) {
  using yardsticks::HeldOut;
  const std::vector<Field<HeldOut>> fields = {
      {{"kind", "kernels by tables made without them"}, &HeldOut::kind},
      {{"kernels", "kernels"},
       [](const HeldOut& one) { return static_cast<std::int64_t>(one.kernels); }},
      {{"median", "|median|", Unit::Share, {1}}, &HeldOut::median},
      {{"p95", "p95", Unit::Share, {1}}, &HeldOut::p95}};
  return table_of(fields, all);
}

struct LeftOut {
  std::string kind;
  std::vector<PhaseScore> scores;  // as kPhases
};

std::vector<LeftOut> left_out(const std::vector<GpuStep>& steps, const models::Cluster& cluster,
                              const std::string& data_dir) {
  const auto judged_on = [&](const models::Cluster& machine) {
    std::vector<JudgedStep> judged;
    for (const GpuStep& step : steps) judged.push_back(judge(step, machine, data_dir));
    return phase_scores(judged);
  };
  std::vector<LeftOut> all = {{.kind = "nothing", .scores = judged_on(cluster)}};
  for (const std::string& kind : yardsticks::kinds_to_leave_out())
    all.push_back({.kind = kind, .scores = judged_on(yardsticks::without(cluster, kind))});
  return all;
}

Table left_out_table(const std::vector<LeftOut>& all) {
  std::vector<Field<LeftOut>> fields = {{{"without", "without"}, &LeftOut::kind}};
  for (std::size_t i = 0; i < std::size(kPhases); ++i) {
    const std::string name = kPhases[i].name;
    fields.push_back({{name + ".mean", name, Unit::Share, {1}, kPhases[i].spare},
                      [i](const LeftOut& one) { return one.scores[i].mean; }});
    fields.push_back({{name + ".worst", "worst", Unit::Share, {1, Sign::Always}, kPhases[i].spare},
                      [i](const LeftOut& one) { return one.scores[i].worst; }});
  }
  return table_of(fields, all);
}

void print_remarks(std::ostream& out, const std::vector<JudgedStep>& steps) {
  for (const JudgedStep& one : steps) {
    if (one.step.run != 1) continue;
    if (!one.host_bound.empty()) print_text(out, one.step.name + ": " + to_string(one.host_bound));
    if (!one.step.gives.empty())
      print_text(out, one.step.name + " gives " + one.step.gives + " and is not judged");
  }
}

}  // namespace

void validate_gpu(const ValidateGpuOptions& options, const DocumentOptions& document,
                  std::ostream& out) {
  require_outputs({document_file(document)}, {});
  models::WhatIf own;
  own.gpu = options.gpu.empty() ? options.folder + "/gpu_h100.json" : options.gpu;
  // Read here too, so that another machine's name is refused as no book.
  const models::GpuBook book = models::load_gpu_book(own.gpu);
  models::Cluster cluster = predict::load_cluster("h100x1", options.data_dir, own);
  const std::vector<GpuStep> measured = yardsticks::gpu_steps(options.folder);
  const bool is_each = options.without == "each";
  if (!options.without.empty() && !is_each)
    cluster = yardsticks::without(std::move(cluster), options.without);
  std::vector<JudgedStep> steps;
  for (const GpuStep& step : measured) steps.push_back(judge(step, cluster, options.data_dir));
  const Table kinds = kind_table(kind_scores(options.folder, measured, cluster, options.data_dir));
  const Table held_out = held_out_table(yardsticks::held_out(
      options.folder, *predict::load_cluster("h100x1", options.data_dir).compute));
  std::optional<Table> each;
  if (is_each) each = left_out_table(left_out(measured, cluster, options.data_dir));
  put_document(document,
               {.json =
                    [&] {
                      ordered_json json = {{"schema", "dovetail.gpu-steps/1"},
                                           {"kind", "gpu-steps"},
                                           {"gpu", book.name},
                                           {"rows", rows_json(step_table(steps))},
                                           {"scores", rows_json(score_table(steps))},
                                           {"kinds", rows_json(kinds)},
                                           {"held_out", rows_json(held_out)}};
                      if (each) json["without"] = rows_json(*each);
                      return json.dump(1) + "\n";
                    },
                .table = [&] { return step_table(steps); }},
               out);
  if (replaces_report(document)) return;
  print_table(out, step_table(steps));
  print_table(out, score_table(steps));
  print_table(out, kinds);
  print_table(out, held_out);
  if (each) print_table(out, *each);
  print_remarks(out, steps);
  if (!options.without.empty() && !is_each)
    print_text(out, "as if nobody had measured " + options.without);
  print_text(out, "simulated on " + book.name + " by its own book; off: predicted / measured - 1");
}

}  // namespace dovetail::cli
