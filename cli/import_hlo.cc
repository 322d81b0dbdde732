// `dovetail import hlo`: turns a module of XLA into a workload, and prints its collectives as XLA combined them.
//
//   collectives, in the order of the module
//   name            kind        type  parts       size  devices          what
//   all-reduce.7    all-reduce  f32       7  450.3 KiB  {0,1}            gradients
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>

#include "base/attempt.h"
#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/document.h"
#include "cli/import.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "recordings/byte_source.h"
#include "recordings/hlo/hlo.h"
#include "schedule/program_json.h"

namespace dovetail::cli {
namespace {

constexpr std::size_t kMostRows = 40;
constexpr std::size_t kMostDevices = 8;  // of a group

std::string group_text(const std::vector<std::vector<std::int64_t>>& groups) {
  std::string text = "{";
  for (std::size_t i = 0; i < groups.front().size(); ++i) {
    if (i > 0) text += ",";
    if (i == kMostDevices) return text + "...} x " + std::to_string(groups.size());
    text += std::to_string(groups.front()[i]);
  }
  text += "}";
  return groups.size() > 1 ? text + " x " + std::to_string(groups.size()) : text;
}

void print_collectives(std::ostream& out, const std::vector<imports::HloCollective>& all) {
  if (all.empty()) return;
  out << "collectives, in the order of the module\n";
  using imports::HloCollective;
  cli::print_table(
      out,
      table_of<HloCollective>(
          {{{"", "name"}, &HloCollective::name},
           {{"", "kind"},
            [](const HloCollective& one) { return one.kind + (one.is_async ? " (async)" : ""); }},
           {{"", "type"}, &HloCollective::type},
           {{"", "parts"}, &HloCollective::parts},
           {{"", "size"}, &HloCollective::bytes},
           {{"", "devices"}, [](const HloCollective& one) { return group_text(one.groups); }},
           {{"", "what"},
            [](const HloCollective& one) {
              return one.is_gradients ? "gradients" : "the step's own";
            }}},
          std::span(all).first(std::min(all.size(), kMostRows))));
  if (all.size() > kMostRows) out << "and " << all.size() - kMostRows << " more\n";
}

}  // namespace

void import_hlo(const ImportHloOptions& options, std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  require_outputs({document_file(product)}, {{"input", options.file}});
  const std::string text = imports::read_unpacked(options.file);
  auto read = attempt([&] { return imports::read_hlo({options.file, text}); });
  if (!read) refuse_as(read.error, {options.file}, "hlo");
  imports::ImportedHlo& step = *read.value;
  if (step.program.ops.empty()) throw InputError(options.file + ": a module that computes nothing");
  put_document(
      product, [&step] { return schedule::program_to_json(step.program); }, out);
  if (replaces_report(product)) return;
  out << step.what << '\n';
  for (const std::string& line : step.read) out << "  " << line << '\n';
  for (const std::string& line : step.left_out) out << "  left out: " << line << '\n';
  print_collectives(out, step.collectives);
  if (options.output.empty()) {
    out << "nothing written; -o FILE writes the workload file\n";
    return;
  }
  out << options.output << ": workload \"" << step.program.name << "\", "
      << counted(step.program.world_size, "rank") << "; use it with --workload " << options.output
      << " --cluster CLUSTER\n";
}

}  // namespace dovetail::cli
