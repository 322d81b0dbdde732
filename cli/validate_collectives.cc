// `dovetail validate collectives`: reads the logs, asks models for scores, prints them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_collectives.h"

#include <algorithm>
#include <utility>

#include "base/decimal.h"
#include "base/error.h"
#include "base/json.h"
#include "calibrate/logs/gpus.h"
#include "calibrate/logs/nccl_tests.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "models/clusters/topology_fit.h"
#include "recordings/byte_source.h"

namespace dovetail::cli {
namespace {

using models::ErrorSummary;
using models::WorldScores;
using nlohmann::ordered_json;

imports::CollectiveLog read_logs(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) texts.push_back(imports::read_unpacked(file));
  std::vector<imports::Source> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) sources.push_back({files[i], texts[i]});
  return imports::read_nccl_tests(sources);
}

// Of the fullest node that the logs show.
std::int64_t node_ranks_of(const std::vector<models::CollectiveSeries>& series) {
  std::int64_t most = 0;
  for (const models::CollectiveSeries& one : series) {
    if (one.nodes) most = std::max(most, (one.ranks + *one.nodes - 1) / *one.nodes);
  }
  if (most == 0) {
    throw InputError(
        "validate collectives: the logs do not say on how many nodes their ranks lie; "
        "say it with --node-ranks");
  }
  return most;
}

ordered_json to_json(const ErrorSummary& errors) {
  return {{"points", errors.points},
          {"median_percent", 100 * errors.median},
          {"median_absolute_percent", 100 * errors.median_absolute},
          {"p95_absolute_percent", 100 * errors.p95_absolute}};
}

std::string to_json(const WorldScores& scores, std::int64_t fit_ranks) {
  ordered_json worlds = ordered_json::array();
  for (const auto& [key, errors] : scores.worlds) {
    ordered_json row = {
        {"collective", to_string(key.collective)}, {"ranks", key.ranks}, {"nodes", key.nodes}};
    row.update(to_json(errors));
    worlds.push_back(std::move(row));
  }
  ordered_json sizes = ordered_json::array();
  for (const auto& [from, errors] : scores.sizes) {
    ordered_json row = {{"from_bytes", from.count()}};
    row.update(to_json(errors));
    sizes.push_back(std::move(row));
  }
  const ordered_json document = {
      {"schema", "dovetail.worlds/1"}, {"kind", "worlds"},
      {"fit_ranks", fit_ranks},        {"links", to_string(scores.topology)},
      {"rows", std::move(worlds)},     {"sizes", std::move(sizes)},
      {"all", to_json(scores.all)}};
  return document.dump(1) + "\n";
}

void print(std::ostream& out, const WorldScores& scores, std::int64_t fit_ranks) {
  out << "fitted to worlds of up to " << fit_ranks << " ranks: " << to_string(scores.topology)
      << '\n';
  TextTable table({"predicted", "sizes", "median", "|median|", "p95"});
  const auto add = [&table](const std::string& what, const ErrorSummary& errors) {
    table.add({what, std::to_string(errors.points), fixed(100 * errors.median, 1, "+") + " %",
               fixed(100 * errors.median_absolute, 1) + " %",
               fixed(100 * errors.p95_absolute, 0) + " %"});
  };
  for (const auto& [key, errors] : scores.worlds) add(title_of(key), errors);
  for (const auto& [from, errors] : scores.sizes) {
    add(to_string(from) + " to " + to_string(from * 16), errors);
  }
  add("all", scores.all);
  table.print(out);
}

}  // namespace

void validate_collectives(const ValidateCollectivesOptions& options,
                          const DocumentOptions& document, std::ostream& out) {
  if (options.files.empty()) {
    throw InputError(
        "validate collectives: expected logs of nccl-tests over several numbers of ranks");
  }
  std::vector<NamedFile> inputs;
  for (const std::string& file : options.files) inputs.push_back({"input", file});
  require_outputs({document_file(document)}, inputs);
  const imports::CollectiveLog log = read_logs(options.files);
  const std::vector<models::CollectiveSeries> series = imports::tables_of(log.samples);
  const std::int64_t node_ranks = options.node_ranks ? *options.node_ranks : node_ranks_of(series);
  const WorldScores scores = models::score_worlds(
      series, {.fit_ranks = options.fit_ranks,
               .links = {.node_ranks = node_ranks, .gpu = imports::nccl_gpu(log.gpu)}});
  put_document(
      document, [&] { return to_json(scores, options.fit_ranks); }, out);
  if (!replaces_report(document)) print(out, scores, options.fit_ranks);
}

}  // namespace dovetail::cli
