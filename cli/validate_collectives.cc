// `dovetail validate collectives`: reads the logs, asks models for scores, prints them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_collectives.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
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

// A world, a range of sizes, or all of them.
struct ScoredWorld {
  std::string what;  // for people
  ErrorSummary errors;
  std::optional<models::CollectiveKey> key = std::nullopt;
  std::optional<Bytes> from = std::nullopt;
};

std::vector<ScoredWorld> worlds_of(const WorldScores& scores) {
  std::vector<ScoredWorld> rows;
  for (const auto& [key, errors] : scores.worlds) rows.push_back({title_of(key), errors, key});
  return rows;
}

std::vector<ScoredWorld> sizes_of(const WorldScores& scores) {
  std::vector<ScoredWorld> rows;
  for (const auto& [from, errors] : scores.sizes) {
    rows.push_back({to_string(from) + " to " + to_string(from * 16), errors, {}, from});
  }
  return rows;
}

Table error_table(const std::vector<ScoredWorld>& rows, std::vector<Field<ScoredWorld>> keys) {
  const auto percent = [](double ErrorSummary::*error) {
    return [error](const ScoredWorld& row) { return 100 * (row.errors.*error); };
  };
  std::vector<Field<ScoredWorld>> fields = std::move(keys);
  fields.insert(fields.end(),
                {{{"", "predicted"}, &ScoredWorld::what},
                 {{"points", "sizes"}, [](const ScoredWorld& row) { return row.errors.points; }},
                 {{"median_percent", "median", Unit::Percent, {1, Sign::Always}},
                  percent(&ErrorSummary::median)},
                 {{"median_absolute_percent", "|median|", Unit::Percent, {1}},
                  percent(&ErrorSummary::median_absolute)},
                 {{"p95_absolute_percent", "p95", Unit::Percent, {0}},
                  percent(&ErrorSummary::p95_absolute)}});
  return table_of(fields, rows);
}

Table world_table(const WorldScores& scores) {
  return error_table(worlds_of(scores),
                     {{{"collective"}, [](const ScoredWorld& row) { return row.key->collective; }},
                      {{"ranks"}, [](const ScoredWorld& row) { return row.key->ranks; }},
                      {{"nodes"}, [](const ScoredWorld& row) { return row.key->nodes; }}});
}

std::string to_json(const WorldScores& scores, std::int64_t fit_ranks) {
  const ordered_json document = {
      {"schema", "dovetail.worlds/1"},
      {"kind", "worlds"},
      {"fit_ranks", fit_ranks},
      {"links", to_string(scores.topology)},
      {"rows", rows_json(world_table(scores))},
      {"sizes", rows_json(error_table(sizes_of(scores), {{{"from_bytes"}, &ScoredWorld::from}}))},
      {"all", row_json(error_table({{"all", scores.all}}, {}), 0)}};
  return document.dump(1) + "\n";
}

void print(std::ostream& out, const WorldScores& scores, std::int64_t fit_ranks) {
  out << "fitted to worlds of up to " << fit_ranks << " ranks: " << to_string(scores.topology)
      << '\n';
  std::vector<ScoredWorld> rows = worlds_of(scores);
  for (ScoredWorld& row : sizes_of(scores)) rows.push_back(std::move(row));
  rows.push_back({"all", scores.all});
  print_table(out, error_table(rows, {}));
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
  put_document(document,
               {.json = [&] { return to_json(scores, options.fit_ranks); },
                .table = [&] { return world_table(scores); }},
               out);
  if (!replaces_report(document)) print(out, scores, options.fit_ranks);
}

}  // namespace dovetail::cli
