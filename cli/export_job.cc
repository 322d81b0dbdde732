// Reading a job, writing its framework's file, and predicting each thing that is given up.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/export_job.h"

#include <algorithm>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "base/file.h"
#include "cli/job_flag.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "frameworks/jobs/job_export.h"

namespace dovetail::cli {
namespace {

using frameworks::JobExport;

std::string with_quotes(const std::string& job) {
  return job.find_first_of(" \t\n") == std::string::npos ? job : "\"" + job + "\"";
}

}  // namespace

void export_job(const ExportCommandOptions& options, std::ostream& out) {
  const std::string output = options.output == "-" ? "" : options.output;
  require_outputs({{"-o", output}}, {cluster_file(options.cluster, options.data_dir)});
  const jobs::Job job = job_of(options.job);
  frameworks::JobExportOptions how = {
      .version = DOVETAIL_VERSION, .job = options.job, .machine = options.cluster};
  if (!options.cluster.empty()) {
    how.step = [cluster = predict::load_cluster(options.cluster, options.data_dir)](
                   const jobs::Job& one) { return predict::predict_job(one, cluster).step; };
  }
  const JobExport result = frameworks::export_job(options.target, job, how);
  if (!output.empty()) write_file(output, result.text);
  if (options.json) {
    ExportAnswer answer{.framework = result.title,
                        .writes = result.writes,
                        .text = result.text,
                        .use = with_file(result.paste, output.empty() ? "FILE" : output),
                        .asked = result.asked,
                        .as_run = result.there,
                        .given_up = {},
                        .notes = result.notes};
    for (const frameworks::JobLoss& loss : result.losses) {
      answer.given_up.push_back(
          {loss.what, result.asked ? std::optional(loss.more) : std::nullopt});
    }
    out << to_json(answer, options);
    return;
  }
  if (output.empty()) {
    out << result.text;
    return;
  }
  out << output << ": " << result.writes << ", for " << result.title << '\n';
  if (result.asked) {
    out << "predicted (simulated) " << frameworks::predicted_line(result) << '\n';
  }
  out << "predicted memory " << frameworks::memory_line(result) << '\n';
  for (const frameworks::JobLoss& loss : result.losses) {
    out << "  given up: " << frameworks::loss_line(result, loss) << '\n';
  }
  print_notes(out, result.notes);
  out << "use: " << with_file(result.paste, output) << '\n';
  if (output.ends_with(".py")) return;  // which nobody reads
  const std::string again = output + (result.behind.empty() ? "" : ":" + result.behind);
  out << "to see it: dovetail explore --job " << with_quotes(again) << " --cluster "
      << (options.cluster.empty() ? "CLUSTER" : options.cluster) << '\n';
}

std::string export_job_command(const jobs::Job& job, const std::string& text,
                               const std::string& cluster) {
  std::vector<frameworks::JobTarget> targets = frameworks::job_targets_of(job);
  const auto gives_up = [](const frameworks::JobTarget& target) {
    return !target.given_up.empty();
  };
  if (!std::ranges::all_of(targets, gives_up)) std::erase_if(targets, gives_up);
  if (targets.empty()) return "";
  std::string command =
      "dovetail export --job \"" + text + "\" --cluster " + cluster + " --to " + targets.front().id;
  for (std::size_t i = 1; i < targets.size(); ++i) {
    command += (i == 1 ? " (or " : ", ") + targets[i].id;
  }
  return command + (targets.size() > 1 ? ")" : "");
}

}  // namespace dovetail::cli
