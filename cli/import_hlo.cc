// What `dovetail import hlo` prints of a module: its collectives as XLA combined them.
//
//   collectives, in the order of the module
//   name            kind        type  parts       size  devices          what
//   all-reduce.7    all-reduce  f32       7  450.3 KiB  {0,1}            gradients
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>

#include "cli/import.h"
#include "cli/text.h"

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

}  // namespace

void print_hlo_collectives(std::ostream& out, const std::vector<imports::HloCollective>& all) {
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

}  // namespace dovetail::cli
