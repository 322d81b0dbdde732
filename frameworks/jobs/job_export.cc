// Writes a job, reads what was written, and tells the difference.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/job_export.h"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "frameworks/jobs/readers.h"
#include "frameworks/jobs/writers.h"
#include "frameworks/python_text.h"
#include "models/networks/memory.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

const std::vector<JobWriter>& writers() {
  static const std::vector<JobWriter> kWriters = {torchtitan_writer(), megatron_writer(),
                                                  deepspeed_writer(), fsdp2_writer()};
  return kWriters;
}

const JobWriter& parse_target(std::string_view word) {
  const auto found = std::ranges::find(writers(), word, &JobWriter::id);
  if (found != writers().end()) return *found;
  const std::string near = nearest_word(word, job_targets());
  throw InputError("--to \"" + std::string(word) +
                   "\": " + (near.empty() ? "unknown" : "did you mean " + near + "?") +
                   " (for a job there are " + job_target_list() + ")");
}

std::string why_not(const JobWriter& writer, const std::string& key) {
  const auto found = std::ranges::find(writer.unsaid, key, &Unsaid::key);
  DOVETAIL_CHECK(found != writer.unsaid.end())
      << writer.id << " loses " << key << " without a word";
  return std::string(found->why);
}

// "llama3 x 8 of base 500000".
std::string rotation_text(const jobs::RotaryScale& scale) {
  std::ostringstream text;
  text << to_string(scale.kind);
  if (scale.factor != 1) text << " x " << scale.factor;
  if (scale.base != jobs::RotaryScale{}.base)
    text << " of base " << std::fixed << std::setprecision(0) << scale.base;
  return text.str();
}

std::vector<JobLoss> losses_of(const JobWriter& writer, const jobs::Job& job,
                               const jobs::Job& as_run) {
  std::vector<JobLoss> losses;
  jobs::Job now = job;
  if (now.model.vocabulary != as_run.model.vocabulary) {
    now.model = as_run.model;
    losses.push_back({"a vocabulary of " + std::to_string(job.model.vocabulary) + ", " +
                          std::to_string(as_run.model.vocabulary) +
                          " there: " + why_not(writer, "vocabulary"),
                      now});
  }
  const auto rotation = job.model.written.scale.value_or(jobs::RotaryScale{});
  const auto there = as_run.model.written.scale.value_or(jobs::RotaryScale{});
  if (rotation != there) {
    now.model.written.scale = there;
    losses.push_back({"rope_scaling=" + rotation_text(rotation) + ", " + rotation_text(there) +
                          " there: " + why_not(writer, "rope_scaling"),
                      now});
  }
  for (const jobs::Difference& one : jobs::differences(job, as_run)) {
    if (one.here.empty()) continue;  // nothing was asked for
    if (one.key == "as") continue;   // the target is who runs it now
    const std::vector<jobs::Difference> left = jobs::differences(now, as_run);
    if (std::ranges::find(left, one.key, &jobs::Difference::key) == left.end())
      continue;  // went with another
    if (one.key == "autocast") {
      now.precision = as_run.precision;  // says the others, too
    } else if (one.there.empty()) {
      now.bucket_bytes = std::nullopt;
    } else {
      jobs::set_option(now, one.key, one.there, "export");
    }
    now = jobs::in_effect(std::move(now));
    losses.push_back({one.key + "=" + one.here + ", " + (one.there.empty() ? "none" : one.there) +
                          " there: " + why_not(writer, one.key),
                      now});
  }
  return losses;
}

Bytes most_held(const jobs::Job& job) {
  const std::vector<jobs::StageMemory> stages = jobs::memory_of(job);
  return stages[jobs::fullest(stages)].total();
}

// What each loss costs, one after the other; the rest is what the framework does where nothing was asked for.
void price(JobExport& result, const jobs::Job& job,
           const std::function<Duration(const jobs::Job&)>& step) {
  result.asked = step(job);
  result.there = step(result.as_run);
  Duration now = *result.asked;
  for (JobLoss& loss : result.losses) {
    const Duration next = step(loss.after);
    loss.more = next - now;
    now = next;
  }
  if (*result.there == now) return;
  result.losses.push_back({.what = "its own way where nothing is asked for (buckets)",
                           .after = result.as_run,
                           .more = *result.there - now});
}

// Where the file comes from and what is known of it.
std::vector<std::string> first_lines(const JobExport& result, const JobExportOptions& options) {
  std::vector<std::string> lines = {
      "For " + std::string(result.title) + ": " + std::string(result.writes) + ".",
      "  written by  dovetail " + options.version + " from " + options.job,
      "  ranks       " + std::to_string(result.as_run.layout.world())};
  if (result.asked) {
    lines.push_back("  predicted   " + predicted_line(result) + ", on " + options.machine +
                    " (simulated, not measured)");
  }
  lines.push_back("  memory      " + memory_line(result) + " (predicted)");
  for (const JobLoss& loss : result.losses) {
    lines.push_back("  given up    " + loss_line(result, loss));
  }
  for (const std::string& note : result.notes) lines.push_back("  note        " + note);
  return lines;
}

std::string marked_text(Marked marked, const std::vector<std::string>& lines,
                        const std::string& body) {
  std::string text;
  if (marked == Marked::Comment) {
    for (const std::string& line : lines) text += "# " + one_line(line) + "\n";
    return text + body;
  }
  text = "{\n  \"dovetail\": [\n";
  for (const std::string& line : lines) {
    text += "    " + python_quoted(line) + (&line == &lines.back() ? "\n" : ",\n");
  }
  return text + "  ],\n" + body + "}\n";
}

}  // namespace

std::string loss_line(const JobExport& result, const JobLoss& loss) {
  if (!result.asked) return loss.what;
  return loss.what + ": " + percent_of(loss.more, *result.asked);
}

std::string predicted_line(const JobExport& result) {
  return in_ms(*result.there) + " a step as it is run there, " + in_ms(*result.asked) + " as asked";
}

std::string memory_line(const JobExport& result) {
  std::string there = to_string(result.memory_there) + " a rank as it is run there";
  if (result.memory_there == result.memory_asked) return there;
  return there + ", " + to_string(result.memory_asked) + " as asked";
}

std::string imbalance_of(const jobs::Job& job) {
  for (const jobs::Difference& one : jobs::differences(job, {.model = job.model})) {
    if (one.key == "imbalance") return "imbalance=" + one.here;
  }
  return "";
}

JobExport export_job(std::string_view target, jobs::Job job, const JobExportOptions& options) {
  const JobWriter& writer = parse_target(target);
  job.model = recognised(std::move(job.model));
  job = jobs::in_effect(std::move(job));
  JobWords words = writer.write(job);
  JobExport result{.title = writer.title,
                   .writes = writer.writes,
                   .behind = words.behind,
                   .as_run = jobs::in_effect(writer.as_run(job, words)),
                   .notes = std::move(words.notes),
                   .paste = std::string(writer.paste)};
  result.losses = losses_of(writer, job, result.as_run);
  result.memory_asked = most_held(job);
  result.memory_there = most_held(result.as_run);
  if (options.step != nullptr) price(result, job, options.step);
  for (const std::vector<std::string>& more : {job.notes, result.as_run.notes}) {
    for (const std::string& note : more) {
      if (std::ranges::find(result.notes, note) == result.notes.end()) result.notes.push_back(note);
    }
  }
  result.text = marked_text(writer.marked, first_lines(result, options), words.body);
  return result;
}

std::vector<std::string> job_targets() {
  std::vector<std::string> ids;
  for (const JobWriter& writer : writers()) ids.emplace_back(writer.id);
  return ids;
}

std::string job_target_list() {
  std::string list;
  for (const std::string& id : job_targets()) list += (list.empty() ? "" : ", ") + id;
  return list;
}

namespace {

// Whether the same is learnt: a step without the adapters is another training, not another schedule.
bool trains_as(const jobs::Job& a, const jobs::Job& b) {
  return a.lora == b.lora && (a.lora == 0 || a.lora_on == b.lora_on) && a.optimizer == b.optimizer;
}

}  // namespace

std::vector<JobTarget> job_targets_of(const jobs::Job& job) {
  std::vector<JobTarget> found;
  for (const std::string& id : job_targets()) {
    std::optional<JobExport> result = attempt([&] { return export_job(id, job, {}); }).value;
    if (!result || !trains_as(result->as_run, job)) continue;  // not by this one
    JobTarget& target = found.emplace_back();
    target = {.id = id, .as_run = std::move(result->as_run)};
    for (JobLoss& loss : result->losses) target.given_up.push_back(std::move(loss.what));
  }
  // What nobody is named for and divides parameters is FSDP2's.
  const bool is_fsdp = job.as == jobs::RunBy::Any && job.zero == jobs::Zero::Parameters;
  const jobs::RunBy own = is_fsdp ? jobs::RunBy::Fsdp : job.as;
  std::ranges::stable_sort(found, {}, [&](const JobTarget& one) {
    return std::tuple(job.as != jobs::RunBy::Any && one.as_run.as != own, one.given_up.size(),
                      one.as_run.as != own);
  });
  return found;
}

}  // namespace dovetail::frameworks
