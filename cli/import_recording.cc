// `dovetail import` of recordings: turns what a profiler recorded into a workload, and prints what was found in it.
//
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/diagnose.h"
#include "cli/diagnose_json.h"
#include "cli/import.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "cli/trace_groups.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/what_if.h"
#include "recordings/diagnose/words.h"
#include "recordings/diagnose/workload.h"
#include "recordings/parameters.h"
#include "recordings/trace_folder.h"

namespace dovetail::cli {
namespace {

using imports::JobTrace;
using imports::RankTrace;

// A step of a rank.
struct FiguresOfStep {
  std::string name;
  imports::StepFigures figures;
};

void print_traced_figures(std::ostream& out, const JobTrace& job) {
  out << "figures of the trace (measured, ms; definitions: docs/import.md)\n";
  std::vector<FiguresOfStep> rows;
  for (const RankTrace& rank : job.ranks) {
    for (const imports::TracedStep& step : rank.line.steps) {
      rows.push_back(
          {std::to_string(rank.rank) + " " + step.name, imports::figures_of(rank.line, step)});
    }
  }
  const auto time = [](const char* title, Duration imports::StepFigures::*figure) {
    return Field<FiguresOfStep>{{"", title, Unit::Milliseconds, {3}},
                                [figure](const FiguresOfStep& row) { return row.figures.*figure; }};
  };
  using imports::StepFigures;
  cli::print_table(
      out,
      table_of<FiguresOfStep>(
          {{{"", "rank step"}, &FiguresOfStep::name},
           time("CPU step", &StepFigures::cpu_step),
           time("span", &StepFigures::span),
           time("compute", &StepFigures::comp),
           time("communication", &StepFigures::comm),
           time("overlap", &StepFigures::overlap),
           time("exposed", &StepFigures::exposed),
           time("idle", &StepFigures::idle),
           {{"", "GPU events"}, [](const FiguresOfStep& row) { return row.figures.gpu_works; }}},
          rows));
}

void print_buckets(std::ostream& out, const RankTrace& rank) {
  using imports::TracedBucket;
  const imports::TracedStep& step = rank.line.steps.back();
  const imports::TracedBuckets found = imports::ddp_buckets(rank.trace, rank.line, step);
  const std::vector<TracedBucket>& buckets = found.buckets;
  if (buckets.empty()) return;
  out << "buckets of " << step.name << " (rank " << rank.rank << "), in order of launch\n";
  const auto number = [&](const TracedBucket& bucket) { return &bucket - buckets.data(); };
  const auto time = [&](const TracedBucket& bucket) {
    if (bucket.collective < 0) return Cell();
    const auto& c = rank.line.collectives[static_cast<std::size_t>(bucket.collective)];
    const imports::GpuWork& work = rank.line.works[static_cast<std::size_t>(c.work)];
    return Cell(work.end - work.start);
  };
  cli::print_table(
      out, table_of<TracedBucket>(
               {{{"", "bucket"}, number},
                {{"", "elements"}, &TracedBucket::elements},
                {{"", "size"}, &TracedBucket::bytes},
                {{"", "parameters"}, [](const TracedBucket& row) { return row.gradients.size(); }},
                {{"", "gradients are"},
                 [](const TracedBucket& row) { return row.copied ? "copied" : "views"; }},
                {{"", "all-reduce ms", Unit::Milliseconds, {3}}, time}},
               buckets));
}

std::string workload_name(const ImportRecordingOptions& options) {
  if (!options.name.empty()) return options.name;
  if (options.output.empty() || options.output == "-") return "step";
  return std::filesystem::path(options.output).stem().string();
}

// Names of a list, and how far they are certain.
void name_gradients(diagnose::TracedWorkload& workload, const std::string& file) {
  if (file.empty()) return;
  const imports::ParameterList list = imports::read_parameters(file, read_file(file));
  workload.notes.push_back(imports::name_gradients(
      workload.profile, workload.ends,
      workload.sizes_known ? imports::GradientSizes::Known : imports::GradientSizes::OfBucketsOnly,
      list));
  workload.profile.notes = workload.notes;
}

// Of the first rank given. Where it does not give the recorded step it says so.
diagnose::TracedWorkload workload_of(const JobTrace& job, const std::string& name) {
  const RankTrace& rank = job.ranks.front();
  auto made = diagnose::import_workload(job, 0, diagnose::replay_rank(rank), name);
  if (const auto* const problem = std::get_if<std::string>(&made)) {
    throw InputError(rank.trace.file + ": " + *problem);
  }
  auto& imported = std::get<diagnose::ImportedWorkload>(made);
  if (imported.check && !imported.check->is_trustworthy()) {
    imported.workload.notes.push_back("with the recorded buckets this workload takes " +
                                      to_string(imported.check->predicted) + " a step, the trace " +
                                      to_string(imported.check->recorded));
    imported.workload.profile.notes = imported.workload.notes;
  }
  return std::move(imported.workload);
}

}  // namespace

void import_recording(const ImportRecordingOptions& options, std::ostream& out) {
  if (!options.parameters.empty() && options.output.empty()) {
    throw InputError(
        "import kineto: --parameters names the gradients of the workload: give -o FILE, too");
  }
  const imports::TraceFiles found = imports::find_traces(options.files);
  const std::vector<std::string>& files = found.files;
  std::vector<NamedFile> inputs;
  for (const std::string& file : files) inputs.push_back({"input", file});
  if (!options.parameters.empty()) inputs.push_back({"the parameters", options.parameters});
  const std::string file = options.output == "-" ? "" : options.output;
  require_outputs({{"-o", file}}, inputs);
  imports::JobOptions wanted;
  wanted.join.collective_patterns = options.collective_patterns;
  wanted.join.step = options.step;
  const JobTrace job = load_traces(files, wanted);
  const RankTrace& first = job.ranks.front();
  if (first.line.works.empty()) {
    throw InputError(first.trace.file + ": " + diagnose::no_work_sentence(first.line.unrecognised));
  }
  std::optional<diagnose::TracedWorkload> workload;
  if (!options.output.empty()) {
    workload = workload_of(job, workload_name(options));
    name_gradients(*workload, options.parameters);
    const std::string text = with_tool(diagnose::workload_json(*workload));
    if (file.empty()) {
      out << text;
      return;
    }
    write_file(file, text);
  }
  if (options.json) {
    out << with_tool(diagnosis_json(job, diagnose::diagnose(job), bus_rows(job, options.data_dir)));
    return;
  }
  print_traced_figures(out, job);
  const auto sharding = imports::sharding_of(first.trace, first.line);
  if (sharding) print_groups(out, first.rank, *sharding);
  const bool is_sharded = diagnose::is_sharded(first.trace);
  if (!is_sharded) print_buckets(out, first);
  std::vector<std::string> notes = found.notes;
  for (const RankTrace& rank : job.ranks) {
    for (const std::string& problem : rank.trace.problems) {
      notes.push_back(rank.trace.file + ": " + problem);
    }
    for (const std::string& note : rank.line.notes) notes.push_back(rank.trace.file + ": " + note);
    for (const std::string& unknown : rank.line.unknowns) {
      notes.push_back(rank.trace.file + ": not known: " + unknown);
    }
  }
  if (!workload) {
    print_notes(out, notes);
    out << (is_sharded ? "nothing written: a step of FSDP makes no workload of buckets\n"
                       : "nothing written; -o FILE writes the workload\n");
    return;
  }
  notes.insert(notes.end(), workload->notes.begin(), workload->notes.end());
  print_notes(out, notes);
  const models::ProfiledStep& step = workload->profile.by_rank.front();
  out << options.output << ": " << counted(workload->profile.gradients.size(), "gradient")
      << "; without communication (replayed) forward " << milliseconds(step.forward)
      << ", backward " << milliseconds(step.backward) << ", rest " << milliseconds(step.optimizer)
      << "\nuse it with --workload " << options.output << '\n';
}

}  // namespace dovetail::cli
