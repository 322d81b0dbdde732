// `dovetail import` of logs and of steps: reads them, makes or extends a cluster file or writes a workload file, and tells
// what was used, what was left out and where old and new points meet.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/import.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>
#include <variant>

#include "answers/inputs.h"
#include "base/attempt.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "calibrate/logs/cluster_of.h"
#include "calibrate/logs/flight_recorder.h"
#include "calibrate/logs/nccl_inspector.h"
#include "calibrate/logs/nccl_log.h"
#include "calibrate/logs/nccl_tests.h"
#include "calibrate/logs/verdict.h"
#include "cli/document.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "models/clusters/cluster.h"
#include "recordings/byte_source.h"
#include "recordings/chakra.h"
#include "recordings/guess.h"
#include "recordings/horovod_timeline.h"
#include "recordings/load/nsys_step.h"
#include "recordings/nsys/reader.h"
#include "recordings/text.h"
#include "schedule/program_json.h"

namespace dovetail::cli {
namespace {

using schedule::Collective;

std::optional<Collective> collective_named(const std::string& word) {
  if (word.empty()) return std::nullopt;
  if (const auto known = word_to<Collective>(word)) return known;
  throw InputError("--collective \"" + word + "\": expected " + word_list<Collective>());
}

// A step in the form that its reader gives: both have `what`, `read` and `left_out`.
using ReadStep = std::variant<imports::ImportedStep, imports::ImportedHlo>;
using ReadsStep = ReadStep (*)(const ImportWorkloadOptions&);
using Sources = std::span<const imports::Source>;
using ReadsLog = imports::CollectiveLog (*)(Sources, const ImportClusterOptions&);

imports::CollectiveLog read_nccl_tests(Sources files, const ImportClusterOptions& options) {
  return imports::read_nccl_tests(
      files,
      {.buffers = options.out_of_place ? imports::Buffers::OutOfPlace : imports::Buffers::InPlace,
       .collective = collective_named(options.collective),
       .ranks = options.ranks});
}

// Of a reader without options.
template <imports::CollectiveLog (*kRead)(Sources)>
imports::CollectiveLog read_plain(Sources files, const ImportClusterOptions&) {
  return kRead(files);
}

ReadStep read_horovod_timeline(const ImportWorkloadOptions& options) {
  const std::string text = imports::read_unpacked(options.file);
  return imports::read_horovod_timeline({options.file, text}, options.ranks);
}

ReadStep read_chakra(const ImportWorkloadOptions& options) {
  const std::string text = imports::read_unpacked(options.file);
  return imports::read_chakra({options.file, text}, *options.ranks);
}

ReadStep read_nsys(const ImportWorkloadOptions& options) {
  std::vector<Bytes> bytes;
  for (const std::string& size : options.bytes) bytes.push_back(parse_bytes(size));
  return imports::nsys_step(imports::read_nsys(options.file, {}),
                            {.step = options.step,
                             .pid = options.pid,
                             .all_reduces = {.bytes = std::move(bytes), .ranks = options.ranks}});
}

ReadStep read_hlo(const ImportWorkloadOptions& options) {
  const std::string text = imports::read_unpacked(options.file);
  imports::ImportedHlo step = imports::read_hlo({options.file, text});
  if (step.program.ops.empty()) throw InputError(options.file + ": a module that computes nothing");
  return step;
}

// Who reads each format; recordings are read by imports::load_job.
using Reader = std::variant<std::monostate, ReadsLog, ReadsStep>;
constexpr std::array<std::pair<imports::Format, Reader>, kWordCount<imports::Format>> kReaders = {{
    {imports::Format::NcclTests, read_nccl_tests},
    {imports::Format::NcclInspector, read_plain<imports::read_nccl_inspector>},
    {imports::Format::FlightRecorder, read_plain<imports::read_flight_recorder>},
    {imports::Format::NcclLog, read_plain<imports::read_nccl_log>},
    {imports::Format::HorovodTimeline, read_horovod_timeline},
    {imports::Format::Chakra, read_chakra},
    {imports::Format::Nsys, read_nsys},
    {imports::Format::Hlo, read_hlo},
    {imports::Format::Kineto, std::monostate()},
}};
static_assert(std::ranges::equal(kReaders, kAllOf<imports::Format>, {},
                                 [](const auto& row) { return row.first; }),
              "each format once, in their order");

const Reader& reader_of(imports::Format format) {
  return kReaders[static_cast<std::size_t>(format)].second;
}

imports::CollectiveLog read_log(imports::Format format, const ImportClusterOptions& options) {
  std::vector<std::string> texts;
  for (const std::string& file : options.files) texts.push_back(imports::read_unpacked(file));
  std::vector<imports::Source> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) sources.push_back({options.files[i], texts[i]});
  return std::get<ReadsLog>(reader_of(format))(sources, options);
}

// What stands beside a measured table: the cluster of --over, else a shipped machine of that GPU.
std::optional<models::Cluster> other_of(const models::CollectiveSeries& series,
                                        const std::optional<models::Cluster>& prior,
                                        const imports::CollectiveLog& log,
                                        const std::string& data_dir) {
  const auto is_same = [&series](const models::CollectiveSeries& other) {
    return other.collective == series.collective && other.ranks == series.ranks;
  };
  if (prior && std::ranges::any_of(prior->collectives, is_same)) return prior;
  return imports::shipped_like(log.gpu, series, data_dir + "/clusters");
}

struct PointVerdict {
  models::CollectivePoint point;
  imports::SizeVerdict verdict;
};

// One table as nccl-tests words it, beside another machine's where there is one.
void print_series(std::ostream& out, const models::CollectiveSeries& series,
                  const std::optional<models::Cluster>& other,
                  std::span<const models::CollectiveSeries> own) {
  const auto& points = std::get<std::vector<models::CollectivePoint>>(series.times);
  std::vector<imports::SizeVerdict> verdicts = imports::verdicts(series, other ? &*other : nullptr);
  std::vector<PointVerdict> rows;
  for (std::size_t i = 0; i < points.size(); ++i) {
    rows.push_back({points[i], std::move(verdicts[i])});
  }
  std::vector<Field<PointVerdict>> fields = {
      {{"", "  size"}, [](const PointVerdict& row) { return "  " + to_string(row.point.bytes); }},
      {{"", "time us", Unit::Microseconds, {2}, 2},
       [](const PointVerdict& row) { return row.point.isolated; }},
      {{"", "algbw GB/s", Unit::Own, {2}, 1},
       [](const PointVerdict& row) {
         return imports::algorithm_bandwidth(row.point.bytes, row.point.isolated);
       }},
      {{"", "busbw GB/s", Unit::Own, {2}},
       [](const PointVerdict& row) { return row.verdict.bus_gb_s; }}};
  if (other) {
    fields.push_back({{"", other->name + " GB/s", Unit::Own, {2}},
                      [](const PointVerdict& row) { return row.verdict.other_gb_s; }});
  }
  fields.push_back({{"", other ? "beside it" : "", Unit::Own, {}, 0, Align::Left},
                    [](const PointVerdict& row) { return row.verdict.words; }});
  out << '\n' << to_string(series.collective) << " over " << series.ranks << " ranks\n";
  cli::print_table(out, table_of(fields, rows, [](const PointVerdict& row) {
                     const bool is_odd =
                         row.verdict.dips || row.verdict.beside == imports::Beside::Slower;
                     return is_odd ? Tone::Warning : Tone::Plain;
                   }));
  if (other) {
    const std::string assumed = models::collective_assumption(
        *other, {series.collective, series.ranks, series.nodes.value_or(0)});
    if (!series.nodes) {
      print_text(out, "  over how many nodes is not in the log: " + other->name + " is one node",
                 4);
    }
    if (!assumed.empty()) {
      print_text(out, "  " + other->name + ": " + assumed + ": no measure to judge by", 4);
      const auto line = imports::line_verdict(series, *other, own);
      if (line && line->is_sick()) print_text(out, "  " + imports::in_words(*line), 4);
      return;
    }
    print_text(out,
               "  within " + fixed(100 * imports::kAlikeShare, 0) +
                   " % is alike: so far apart are versions of NCCL on one machine",
               4);
  }
}

bool has_one_size(const models::CollectiveSeries& series) {
  return std::get<std::vector<models::CollectivePoint>>(series.times).size() < 2;
}

void print_lines(std::ostream& out, const char* label, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) print_text(out, label + line, 4);
}

std::string names_of(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const std::string& file : files) {
    names.push_back(std::filesystem::path(file).filename().string());
  }
  return imports::listed(names);
}

// Asked for only where the file can be one of the format.
void require_ranks(imports::Format format, const ImportWorkloadOptions& options) {
  if (options.ranks || imports::row_of(format).says_ranks != imports::SaysRanks::No) return;
  const std::string way = imports::way_on(options.file, format);
  throw InputError(!way.empty() ? way
                                : "import " + std::string(to_string(format)) +
                                      ": the file does not hold the number of ranks; say it with "
                                      "--ranks");
}

const models::Profile& workload_in(const imports::ImportedStep& step) { return step.profile; }
const schedule::Program& workload_in(const imports::ImportedHlo& step) { return step.program; }

template <class Step>
void put_step(const Step& step, const DocumentOptions& product, std::ostream& out) {
  constexpr bool kIsModule = std::is_same_v<Step, imports::ImportedHlo>;
  const auto text = [&step] {
    if constexpr (kIsModule) {
      return schedule::program_to_json(step.program);
    } else {
      return imports::profile_to_json(step);
    }
  };
  put_document(product, text, out);
  if (replaces_report(product)) return;
  out << step.what << '\n';
  print_lines(out, "  ", step.read);
  print_lines(out, "  left out: ", step.left_out);
  if constexpr (kIsModule) print_hlo_collectives(out, step.collectives);
  if (product.output.empty()) {
    out << "nothing written; -o FILE writes the workload file\n";
    return;
  }
  out << product.output << ": workload \"" << workload_in(step).name << "\", "
      << counted(workload_in(step).world_size, "rank") << "; use it with --workload "
      << product.output << (kIsModule ? " --cluster CLUSTER\n" : "\n");
}

void print_cluster(const imports::CollectiveLog& log, const imports::ClusterOptions& wanted,
                   const DocumentOptions& product, std::ostream& out) {
  if (log.samples.empty()) throw InputError(wanted.origin + ": no time of a collective in it");
  const imports::ClusterResult result = imports::cluster_of(log, wanted);
  put_document(
      product, [&result] { return models::cluster_to_json(result.cluster); }, out);
}

}  // namespace

void refuse_as(const std::string& error, const std::vector<std::string>& files,
               imports::Format format) {
  for (const std::string& file : files) {
    const std::string way = imports::way_on(file, format);
    if (way.empty()) continue;
    throw InputError(way + "; read as " + std::string(to_string(format)) + ": " + error);
  }
  throw InputError(error);
}

void import_cluster(imports::Format format, const ImportClusterOptions& options,
                    std::ostream& out) {
  std::vector<NamedFile> inputs;
  for (const std::string& file : options.files) inputs.push_back({"input", file});
  inputs.push_back(cluster_file(options.over, options.data_dir));
  const DocumentOptions product = product_of(options.output, options.json);
  require_outputs({document_file(product)}, inputs);

  imports::ClusterOptions wanted{.name = options.name,
                                 .origin = names_of(options.files),
                                 .gpu = options.gpu,
                                 .node_ranks = options.node_ranks};
  if (!options.over.empty()) {
    wanted.prior = predict::load_cluster(options.over, options.data_dir);
  }
  const auto read = attempt([&] { return read_log(format, options); });
  if (!read) refuse_as(read.error, options.files, format);
  const imports::CollectiveLog& log = *read.value;
  if (replaces_report(product)) return print_cluster(log, wanted, product, out);
  out << log.tool << imports::library_in_words(log)
      << (log.samples.empty() ? "\n"
          : log.is_model      ? "; a model, not measured\n"
                              : "; measured\n");
  print_lines(out, "  ", log.read);
  print_lines(out, "  left out: ", log.left_out);
  if (log.samples.empty()) {
    if (options.output.empty()) return;
    throw InputError(names_of(options.files) +
                     ": no time of a collective in it; nothing to write to " + options.output);
  }
  std::vector<std::string> doubts;
  const std::vector<models::CollectiveSeries> tables = imports::tables_of(log.samples);
  for (const models::CollectiveSeries& series : tables) {
    print_series(out, series, other_of(series, wanted.prior, log, options.data_dir), tables);
    for (std::string& doubt : imports::doubts_of(series)) doubts.push_back(std::move(doubt));
  }
  out << '\n';
  print_lines(out, "doubtful: ", doubts);
  for (const models::CollectiveSeries& series : tables) {
    const std::string fusing = imports::fusing_in_words(series);
    if (!fusing.empty()) print_text(out, fusing);
  }
  if (options.output.empty() && !wanted.prior && std::ranges::all_of(tables, has_one_size)) {
    out << "one size each: a cluster file needs two, or --over CLUSTER\n";
    return;
  }
  const imports::ClusterResult result = imports::cluster_of(log, wanted);
  if (!options.output.empty()) {
    write_file(options.output, with_tool(models::cluster_to_json(result.cluster)));
  }
  print_lines(out, "", result.ranges);
  print_lines(out, "  ", result.seams);
  print_notes(out, result.missing);
  if (options.output.empty()) {
    out << "nothing written; -o FILE writes the cluster file\n";
  } else {
    out << options.output << ": cluster \"" << result.cluster.name << "\", " << result.cluster.ranks
        << " ranks; use it with --cluster " << options.output << '\n';
  }
}

void import_workload(imports::Format format, const ImportWorkloadOptions& options,
                     std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  require_outputs({document_file(product)}, {{"input", options.file}});
  require_ranks(format, options);
  const auto read = attempt([&] { return std::get<ReadsStep>(reader_of(format))(options); });
  if (!read) refuse_as(read.error, {options.file}, format);
  std::visit([&](const auto& step) { put_step(step, product, out); }, *read.value);
}

}  // namespace dovetail::cli
