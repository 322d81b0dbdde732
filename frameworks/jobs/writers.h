// A writer per framework: a job in the words that start it, the inverse of the readers (readers.h). job_export.h asks
// them.
//
// A writer says what its framework can be told and nothing else. What the framework does otherwise is found by reading
// the words back: each key that comes out different is given up, for the reason that stands in `unsaid`. So the words
// and what is said of them cannot part; a test draws jobs and holds both to it (tests/frameworks/job_export_test.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/readers.h"
#include "models/networks/job.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {

struct JobWords {
  std::string body;         // the file, without the lines that say where it comes from
  std::string behind = {};  // what the file cannot hold, as it stands behind it: "imbalance=1.5"
  std::vector<std::string> notes = {};
};

// Why a framework does not do what a key of models/networks/text.h says.
struct Unsaid {
  std::string_view key, why;
};

// How the first lines of a file are marked: comments, or a member of a JSON object.
enum class Marked { Comment, Member };

struct JobWriter {
  std::string_view id;      // as typed after --to
  std::string_view title;   // for people: "torchtitan 0.2.2"
  std::string_view writes;  // what is in the file
  std::string_view paste;   // what uses it; "FILE" stands for its name
  Marked marked = Marked::Comment;
  std::vector<Unsaid> unsaid = {};
  // Throws InputError where the framework cannot run the job at all. REQUIRES: in_effect(job) == job.
  JobWords (*write)(const jobs::Job& job) = nullptr;
  // The job that the words start: what its reader makes of them.
  jobs::Job (*as_run)(const jobs::Job& job, const JobWords& words) = nullptr;
};

// What a reader makes of a job, with what stands behind its file.
template <class Read>
jobs::Job read_back(const std::string& file, const std::string& behind, Read read) {
  const Behind said = said_after(file, behind);
  jobs::Job job = read(said);
  jobs::set_options(job, said.list, file);
  jobs::complete(job, file);
  return job;
}

JobWriter torchtitan_writer();
JobWriter megatron_writer();
JobWriter deepspeed_writer();
JobWriter fsdp2_writer();

// "imbalance=1.5", or nothing: what no framework's file holds, since the data decides it.
std::string imbalance_of(const jobs::Job& job);

}  // namespace dovetail::frameworks
