// Reading a job, writing its framework's file, and predicting each thing that is given up.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/export_job.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "cli/job_flag.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "frameworks/jobs/job_export.h"
#include "frameworks/python_text.h"
#include "predict/inputs.h"
#include "predict/job_prediction.h"

namespace dovetail::cli {
namespace {

using frameworks::JobExport;

std::string more_percent(Duration more, Duration of) {
  const double share = static_cast<double>(more.count()) / static_cast<double>(of.count());
  return (share < 0 ? "" : "+") + fixed(100 * share, 1) + " %";
}

void print_losses(std::ostream& out, const JobExport& result) {
  for (const frameworks::JobLoss& loss : result.losses) out << "  given up: " << loss.what << '\n';
}

// The same with what each costs, one after the other; the rest is what the framework does where nothing was asked for.
void print_prices(std::ostream& out, const JobExport& result, const jobs::Job& job,
                  const models::Cluster& cluster) {
  const auto step = [&](const jobs::Job& one) { return predict::predict_job(one, cluster).step; };
  const Duration asked = step(job);
  const Duration there = step(result.as_run);
  out << "predicted (simulated) " << frameworks::in_ms(there) << " a step as it is run there, "
      << frameworks::in_ms(asked) << " as asked\n";
  Duration now = asked;
  for (const frameworks::JobLoss& loss : result.losses) {
    const Duration next = step(loss.after);
    out << "  given up: " << loss.what << ": " << more_percent(next - now, asked) << '\n';
    now = next;
  }
  if (there != now) {
    out << "  its own way where nothing is asked for (buckets): "
        << more_percent(there - now, asked) << '\n';
  }
}

std::string with_quotes(const std::string& job) {
  return job.find_first_of(" \t\n") == std::string::npos ? job : "\"" + job + "\"";
}

}  // namespace

void export_job(const ExportCommandOptions& options, std::ostream& out) {
  const std::string output = options.output == "-" ? "" : options.output;
  require_outputs({{"-o", output}}, {cluster_file(options.cluster, options.data_dir)});
  const jobs::Job job = job_of(options.job);
  const JobExport result = frameworks::export_job(
      options.target, job, {.version = DOVETAIL_VERSION, .job = options.job});
  if (output.empty()) {
    out << result.text;
    return;
  }
  write_file(output, result.text);
  out << output << ": " << result.writes << ", for " << result.title << '\n';
  if (options.cluster.empty()) {
    print_losses(out, result);
  } else {
    print_prices(out, result, job, predict::load_cluster(options.cluster, options.data_dir));
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
  const std::vector<std::string> targets = frameworks::job_targets_of(job);
  if (targets.empty()) return "";
  std::string command =
      "dovetail export --job \"" + text + "\" --cluster " + cluster + " --to " + targets.front();
  for (std::size_t i = 1; i < targets.size(); ++i) {
    command += (i == 1 ? " (or " : ", ") + targets[i];
  }
  return command + (targets.size() > 1 ? ")" : "");
}

}  // namespace dovetail::cli
