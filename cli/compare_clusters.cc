// Prints the rows that two clusters have in common (models/clusters/cluster_difference.h), as a table for each collective, as JSON and
// as CSV.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_clusters.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/count.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "models/clusters/cluster_difference.h"
#include "recordings/guess.h"

namespace dovetail::cli {
namespace {

using models::ClusterRow;
using nlohmann::ordered_json;

// Ratios further from 1 are marked: below, or above.
constexpr double kMarked = 0.1;

std::string cluster_label(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string mark_of(const ClusterRow& row) {
  if (row.modelled != models::Modelled::Neither)
    return "the " + std::string(to_string(row.modelled)) + " is modelled";
  if (row.ratio() < 1 - kMarked) return "slower";
  return row.ratio() > 1 + kMarked ? "faster" : "";
}

Table cluster_rows_table(const CompareOptions& options, const std::vector<ClusterRow>& rows) {
  return table_of<ClusterRow>(
      {{{"collective"}, &ClusterRow::collective},
       {{"ranks"}, &ClusterRow::ranks},
       {{"size_bytes", "  size"},
        [](const ClusterRow& row) {
          return Cell(row.bytes).shown_as("  " + to_string(row.bytes));
        }},
       {{"first_busbw_gb_per_s", cluster_label(options.first) + " GB/s", Unit::Own, {2}},
        &ClusterRow::first_gb_s},
       {{"second_busbw_gb_per_s", cluster_label(options.second) + " GB/s", Unit::Own, {2}},
        &ClusterRow::second_gb_s},
       {{"ratio", "ratio", Unit::Own, {2}}, &ClusterRow::ratio},
       {{"modelled"}, &ClusterRow::modelled},
       {{"", "", Unit::Own, {}, 0, Align::Left}, mark_of}},
      rows, [](const ClusterRow& row) {
        const bool is_measured = row.modelled == models::Modelled::Neither;
        return is_measured && row.ratio() < 1 - kMarked ? Tone::Warning : Tone::Plain;
      });
}

// A table for each collective over a number of ranks.
void print_rows_of_clusters(std::ostream& out, const CompareOptions& options,
                            const std::vector<ClusterRow>& rows) {
  auto begin = rows.begin();
  while (begin != rows.end()) {
    const auto end = std::find_if(begin, rows.end(), [&](const ClusterRow& row) {
      return row.collective != begin->collective || row.ranks != begin->ranks;
    });
    out << '\n' << to_string(begin->collective) << " over " << begin->ranks << " ranks\n";
    print_table(out, cluster_rows_table(options, {begin, end}));
    begin = end;
  }
}

std::string clusters_json(const CompareOptions& options, const std::vector<ClusterRow>& rows) {
  const ordered_json document = {{"schema", "dovetail.clusters/1"},
                                 {"kind", "clusters"},
                                 {"first", options.first},
                                 {"second", options.second},
                                 {"rows", rows_json(cluster_rows_table(options, rows))}};
  return document.dump(1) + "\n";
}

bool is_cluster(const std::string& given, const std::string& data_dir) {
  return imports::is_cluster_file(given) ||
         models::is_shipped_cluster(given, data_dir + "/clusters");
}

void print_only(std::ostream& out, const std::string& file, const std::vector<std::string>& names) {
  for (const std::string& name : names) print_text(out, "only in " + file + ": " + name);
}

}  // namespace

bool are_clusters(const CompareOptions& options) {
  const bool first = is_cluster(options.first, options.data_dir);
  const bool second = is_cluster(options.second, options.data_dir);
  if (first == second) return first;
  throw InputError("compare: " + (first ? options.first : options.second) +
                   " is a cluster, and so has to be " + (first ? options.second : options.first));
}

void compare_clusters(const CompareOptions& options, std::ostream& out) {
  const auto refuse = [](bool given, const std::string& flag) {
    if (given) throw InputError("compare: " + flag + " has no effect on two clusters");
  };
  refuse(options.timeline, "--timeline");
  refuse(!options.perfetto.empty(), "--perfetto");
  refuse(options.page.wanted(), "--html");
  require_outputs({document_file(options.document)},
                  {{"--cluster", options.first}, {"--cluster", options.second}});
  const std::string shipped = options.data_dir + "/clusters";
  const models::Cluster first = models::load_cluster(options.first, shipped);
  const models::Cluster second = models::load_cluster(options.second, shipped);
  const std::vector<ClusterRow> rows = models::rows_of_both(first, second);
  if (rows.empty()) {
    throw InputError("compare: " + options.first + " and " + options.second +
                     " have no collective over as many ranks, at sizes of both, in common");
  }
  put_document(options.document,
               {.json = [&] { return clusters_json(options, rows); },
                .table = [&] { return cluster_rows_table(options, rows); }},
               out);
  if (replaces_report(options.document)) return;
  print_text(out, "bus bandwidth of " + first.name + " and " + second.name +
                      "; a ratio below 1: the second is slower");
  print_rows_of_clusters(out, options, rows);
  print_only(out, options.first, models::only_in(first, second));
  print_only(out, options.second, models::only_in(second, first));
}

}  // namespace dovetail::cli
