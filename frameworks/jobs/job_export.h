// A job in the words of the framework that shall run it, and what is lost on the way.
//
//   JobExport result = export_job("torchtitan", job, {.version = "1.0", .job = "llama3_8b:dp_shard=8"});
//   result.text      TOML, a script of Megatron's arguments, JSON or Python
//   result.losses    "prefetch=2, 1 there: FSDP2 gathers the next layer by itself", in the order of the keys
//
// The text reads back: load_job(FILE:result.behind) is result.as_run, but for FSDP2's Python, which nobody reads.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/networks/job.h"

namespace dovetail::frameworks {

// Something of the job that the target cannot be told.
struct JobLoss {
  std::string what;
  jobs::Job after;  // the job without it, and without those before it
  Duration more{};  // of predicted step time, against the job before it was given up
};

struct JobExport {
  std::string_view title = {}, writes = {};  // of what, for people
  std::string text = {};
  std::string behind =
      {};  // what to say behind the file where it is read again: "model=llama3_8b,world=8"
  jobs::Job as_run;  // as the framework runs it
  std::vector<JobLoss> losses = {};
  std::optional<Duration> asked =
      std::nullopt;  // predicted steps, where there is a machine: of the job, and
  std::optional<Duration> there = std::nullopt;  // of as_run: asked + all losses
  Bytes memory_asked = {},
        memory_there = {};  // of the fullest rank, each by the rules of its own Job::as
  std::vector<std::string> notes = {};
  std::string paste = {};  // the line that uses the file; "FILE" stands for its name
};

struct JobExportOptions {
  std::string version;  // of dovetail, for the first lines of the text
  std::string job;      // as it was typed, likewise
  std::string machine = {};
  // What predicts a job's step on that machine; without it nothing is predicted.
  std::function<Duration(const jobs::Job&)> step = nullptr;
};

// "prefetch=2, 1 there: FSDP2 gathers the next layer by itself: +0.1 %"; without the last where nothing is predicted.
std::string loss_line(const JobExport& result, const JobLoss& loss);
// "713.223 ms a step as it is run there, 695.902 ms as asked". REQUIRES: something is predicted.
std::string predicted_line(const JobExport& result);
// "75.5 GiB a rank as it is run there, 81.5 GiB as asked"; once where they are the same.
std::string memory_line(const JobExport& result);

// Throws InputError where there is no such target, or where it cannot run the job at all, with the reason.
// REQUIRES: complete(job).
JobExport export_job(std::string_view target, jobs::Job job, const JobExportOptions& options);

// "torchtitan", ...
std::vector<std::string> job_targets();
std::string job_target_list();  // with commas

// Who can run the job, and the job that it then runs.
struct JobTarget {
  std::string id;
  jobs::Job as_run;
  std::vector<std::string> given_up =
      {};  // in the words of JobLoss::what; empty: it runs the job as it is
};
// First those whose ways the job has (Job::as), then those that give up less. Who would train something else, without its adapters or by
// another optimizer, is none.
std::vector<JobTarget> job_targets_of(const jobs::Job& job);

}  // namespace dovetail::frameworks
