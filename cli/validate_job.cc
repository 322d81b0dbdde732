// `dovetail validate job`: predicts the job of a log, and lays each figure of the log beside the one that is meant.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_job.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/room.h"
#include "base/count.h"
#include "base/decimal.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/answer.h"
#include "cli/job_flag.h"
#include "cli/outputs.h"
#include "frameworks/jobs/job_source.h"
#include "frameworks/jobs/measured_run.h"
#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::cli {
namespace {

using frameworks::LoggedMemory;
using frameworks::LoggedStep;
using frameworks::MeasuredRun;
using nlohmann::ordered_json;

struct Span {
  double low = 0, high = 0;
};

// One figure, measured beside predicted.
struct Quantity {
  std::string key;    // with its unit
  std::string title;  // for people
  double unit = 1;    // of theirs
  int digits = 1;
  double measured = 0;
  std::optional<Span> spread = std::nullopt;  // p10 and p90 of what was measured
  double predicted = 0;
  std::optional<Span> interval = std::nullopt;  // of what is predicted

  [[nodiscard]] double ratio() const { return measured / predicted; }
  [[nodiscard]] std::string text(double value) const { return fixed(value / unit, digits); }
  [[nodiscard]] std::string text(const std::optional<Span>& span) const {
    return span ? text(span->low) + " to " + text(span->high) : "-";
  }
  [[nodiscard]] Cell inside() const {
    if (!interval) return {};
    const bool is_inside = interval->low <= measured && measured <= interval->high;
    return Cell(is_inside).shown_as(is_inside ? "yes" : "no");
  }
};

struct JudgedRun {
  std::string log;
  MeasuredRun run;
  std::vector<LoggedStep> steps = {};                  // that count
  std::size_t unlike = 0;                              // of another batch than the job's
  std::optional<LoggedMemory> fullest = std::nullopt;  // rank
  std::size_t stage = 0;                               // its
  predict::JobPrediction found = {};
  std::string cluster = {};
  std::vector<Quantity> quantities = {};
  std::vector<std::string> notes = {};
};

// The lines behind the first ones that are steps of this job.
void choose_steps(JudgedRun& judged) {
  const std::string& log = judged.log;
  if (judged.run.steps.empty()) {
    throw InputError(log +
                     ": no steps in it: expected lines \"iteration 10/ 100 | ... elapsed time per "
                     "iteration (ms): 5231.2 | ...\" of Megatron-LM or \"step: 10 ... tps: 5,762 "
                     "...\" of torchtitan");
  }
  const std::size_t all = judged.run.steps.size();
  judged.steps = judged.run.steady();
  if (judged.steps.empty()) {
    throw InputError(log + ": " + counted(all, "line") +
                     " of steps, all of them warm-up: expected more than " +
                     std::to_string(MeasuredRun::kWarmUp));
  }
  const std::int64_t batch = judged.found.job.batch.global;
  const std::int64_t last = judged.steps.back().global_batch.value_or(batch);
  judged.unlike = std::erase_if(judged.steps, [batch](const LoggedStep& step) {
    return step.global_batch.value_or(batch) != batch;
  });
  if (judged.steps.empty()) {
    throw InputError(log + ": its steps have a global batch of " + std::to_string(last) +
                     " samples, the job one of " + std::to_string(batch));
  }
}

// The rank that holds most, and its stage: ranks of a stage are in a row.
void choose_rank(JudgedRun& judged) {
  const jobs::Layout& layout = judged.found.job.layout;
  for (const LoggedMemory& one : judged.run.memory) {
    if (one.rank < 0 || one.rank >= layout.world()) {
      throw InputError(judged.log + ": a report of memory of rank " + std::to_string(one.rank) +
                       ", and the job has " + counted(layout.world(), "rank"));
    }
    const auto of = [](const LoggedMemory& memory) {
      return memory.allocated ? memory.allocated : memory.reserved;
    };
    if (!judged.fullest || of(one) > of(*judged.fullest)) judged.fullest = one;
  }
  if (judged.fullest)
    judged.stage = static_cast<std::size_t>(judged.fullest->rank / layout.stage_ranks());
}

struct Quantiles {
  double p10 = 0, p50 = 0, p90 = 0;
};
// REQUIRES: values is not empty.
Quantiles quantiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&values](double share) {
    return values[static_cast<std::size_t>(
        std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {.p10 = at(0.1), .p50 = median(values), .p90 = at(0.9)};
}

void add_times(JudgedRun& judged) {
  const predict::JobPrediction& found = judged.found;
  std::vector<double> times, rates, work;
  for (const LoggedStep& step : judged.steps) {
    times.push_back(to_us(step.time(found.job)));
    if (!step.tflop_per_s) continue;
    rates.push_back(*step.tflop_per_s);
    work.push_back(*step.tflop_per_s * times.back());
  }
  const Quantiles took = quantiles_of(times);
  const double predicted = to_us(found.step);
  const auto range = found.range();
  const auto interval =
      range ? std::optional(Span{to_us(range->p5), to_us(range->p95)}) : std::nullopt;
  // What is done in a step, by the second.
  const auto inverse = [&](double done) {
    return interval ? std::optional(Span{done / interval->high, done / interval->low})
                    : std::nullopt;
  };
  judged.quantities.push_back({.key = "step_us",
                               .title = "step ms",
                               .unit = 1e3,
                               .measured = took.p50,
                               .spread = Span{took.p10, took.p90},
                               .predicted = predicted,
                               .interval = interval});
  const double tokens =
      1e6 * static_cast<double>(found.job.tokens()) / static_cast<double>(found.job.layout.world());
  judged.quantities.push_back({.key = "tokens_per_s_per_gpu",
                               .title = "tokens/s/GPU",
                               .digits = 0,
                               .measured = tokens / took.p50,
                               .spread = Span{tokens / took.p90, tokens / took.p10},
                               .predicted = tokens / predicted,
                               .interval = inverse(tokens)});
  if (rates.empty()) return;
  const Quantiles rate = quantiles_of(rates);
  const double done = median(work);
  judged.quantities.push_back({.key = "tflop_per_s_per_gpu",
                               .title = "TFLOP/s/GPU",
                               .measured = rate.p50,
                               .spread = Span{rate.p10, rate.p90},
                               .predicted = done / predicted,
                               .interval = inverse(done)});
}

void add_memory(JudgedRun& judged) {
  if (!judged.fullest) return;
  const jobs::StageMemory& stage = judged.found.memory[judged.stage];
  const auto add = [&](const char* key, const char* what, std::optional<Bytes> measured,
                       Bytes predicted) {
    if (!measured) return;
    const auto bytes = static_cast<double>(predicted.count());
    judged.quantities.push_back(
        {.key = key,
         .title = std::string("GiB ") + what + ", rank " + std::to_string(judged.fullest->rank),
         .unit = static_cast<double>(gib(1).count()),
         .measured = static_cast<double>(measured->count()),
         .predicted = bytes,
         .interval = Span{predict::kPublicMemory.p5 * bytes, predict::kPublicMemory.p95 * bytes}});
  };
  add("allocated_bytes", "allocated", judged.fullest->allocated, stage.allocated());
  add("reserved_bytes", "reserved", judged.fullest->reserved, stage.reserved());
}

void add_notes(JudgedRun& judged, const models::Cluster& cluster) {
  const predict::JobPrediction& found = judged.found;
  if (!found.host_bound.empty()) judged.notes.push_back(to_string(found.host_bound));
  if (judged.unlike > 0)
    judged.notes.push_back(counted(judged.unlike, "line") +
                           " of steps with another global batch left out");
  if (judged.run.unread > 0)
    judged.notes.push_back(counted(judged.run.unread, "line") + " of steps cut off, left out");
  for (std::string& note : jobs::notes_on(found.job)) judged.notes.push_back(std::move(note));
  if (found.idle > 0) judged.notes.push_back(predict::idle_note(found.job, found.idle));
  for (std::string& note : models::assumptions(cluster, jobs::program_of(found.job)))
    judged.notes.push_back(std::move(note));
}

JudgedRun judge_run(const ValidateJobOptions& options) {
  JudgedRun judged;
  if (options.log.empty()) {
    const auto log = frameworks::log_of_job(options.job);
    if (!log) {
      throw InputError("validate job: " + options.job +
                       " is no log with Megatron-LM's arguments at its head; name the log of its "
                       "run with --log");
    }
    judged.log = *log;
  } else {
    judged.log = options.log;
  }
  judged.found.job = job_of(options.job);
  judged.run = frameworks::measured_run(read_file(judged.log));
  choose_steps(judged);
  choose_rank(judged);
  models::WhatIf what_if;
  what_if.gpu = options.gpu;
  const models::Cluster cluster = predict::load_cluster(options.cluster, options.data_dir, what_if);
  judged.cluster = cluster.name;
  judged.found = predict::predict_job(judged.found.job, cluster);
  add_times(judged);
  add_memory(judged);
  add_notes(judged, cluster);
  return judged;
}

Table quantity_table(const JudgedRun& judged) {
  const auto low = [](std::optional<Span> Quantity::*span) {
    return [span](const Quantity& one) { return one.*span ? Cell((one.*span)->low) : Cell(); };
  };
  const auto high = [](std::optional<Span> Quantity::*span) {
    return [span](const Quantity& one) { return one.*span ? Cell((one.*span)->high) : Cell(); };
  };
  return table_of<Quantity>(
      {{{"quantity", "of a step or rank"},
        [](const Quantity& one) { return Cell(one.key).shown_as(one.title); }},
       {{"measured", "measured"},
        [](const Quantity& one) { return Cell(one.measured).shown_as(one.text(one.measured)); }},
       {{"measured_p10"}, low(&Quantity::spread)},
       {{"measured_p90"}, high(&Quantity::spread)},
       {{"", "p10 to p90", Unit::Own, {}, 1},
        [](const Quantity& one) { return one.text(one.spread); }},
       {{"predicted", "predicted"},
        [](const Quantity& one) { return Cell(one.predicted).shown_as(one.text(one.predicted)); }},
       {{"predicted_p5"}, low(&Quantity::interval)},
       {{"predicted_p95"}, high(&Quantity::interval)},
       {{"", "p5 to p95"}, [](const Quantity& one) { return one.text(one.interval); }},
       {{"ratio", "ratio", Unit::Own, {2}}, &Quantity::ratio},
       {{"inside", "inside"}, &Quantity::inside}},
      judged.quantities);
}

std::string to_json(const JudgedRun& judged) {
  ordered_json memory = nullptr;
  if (judged.fullest) {
    memory = {{"rank", judged.fullest->rank},
              {"stage", judged.stage},
              {"ranks", judged.run.memory.size()}};
  }
  const ordered_json document = {{"schema", "dovetail.validated-job/1"},
                                 {"kind", "validated-job"},
                                 {"log", judged.log},
                                 {"logged_by", to_string(judged.run.by)},
                                 {"job", jobs::to_string(judged.found.job)},
                                 {"cluster", judged.cluster},
                                 {"steps",
                                  {{"counted", judged.steps.size()},
                                   {"warm_up", MeasuredRun::kWarmUp},
                                   {"other_batch", judged.unlike},
                                   {"unread", judged.run.unread},
                                   {"first", judged.steps.front().iteration},
                                   {"last", judged.steps.back().iteration}}},
                                 {"memory", std::move(memory)},
                                 {"rows", rows_json(quantity_table(judged))},
                                 {"assumed", assumed_json(judged.found.job.assumed)},
                                 {"notes", judged.notes}};
  return document.dump(1) + "\n";
}

void print(std::ostream& out, const JudgedRun& judged, const Detail& detail) {
  print_assumed(out, judged.found.job.assumed, detail);
  print_text(out, std::string("dovetail ") + DOVETAIL_VERSION + "; measured: " + judged.log + " (" +
                      std::string(to_string(judged.run.by)) + "), predicted (simulated): " +
                      jobs::to_string(judged.found.job) + " on " + judged.cluster);
  print_table(out, quantity_table(judged));
  print_text(out, "measured: the median of " + counted(judged.steps.size(), "line") +
                      " of steps, " + std::to_string(judged.steps.front().iteration) + " to " +
                      std::to_string(judged.steps.back().iteration) + ", behind the first " +
                      std::to_string(MeasuredRun::kWarmUp));
  if (judged.fullest) {
    print_text(out, "memory: the most of rank " + std::to_string(judged.fullest->rank) +
                        " (stage " + std::to_string(judged.stage) + "), the fullest of " +
                        counted(judged.run.memory.size(), "rank") +
                        " in the log; without CUDA's context and NCCL's buffers");
  }
  print_text(out,
             "ratio: measured / predicted; p5 to p95: by how far public steps and peaks lay from "
             "their predictions; FLOP as " +
                 std::string(to_string(judged.run.by)) + " counts them");
  Answer said;
  said.assumed = judged.found.job.assumed;
  print_notes(out, notes_beside(said, judged.notes), detail);
}

}  // namespace

void validate_job(const ValidateJobOptions& options, const DocumentOptions& document,
                  std::ostream& out) {
  if (options.cluster.empty())
    throw InputError("validate job: name the machine that it ran on with --cluster");
  require_outputs({document_file(document)},
                  {{"--log", options.log}, cluster_file(options.cluster, options.data_dir)});
  const JudgedRun judged = judge_run(options);
  put_document(
      document,
      {.json = [&] { return to_json(judged); }, .table = [&] { return quantity_table(judged); }},
      out);
  if (!replaces_report(document)) print(out, judged, options.detail);
}

}  // namespace dovetail::cli
