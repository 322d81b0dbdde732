// Checks the files that a command line names before any work is done: none named twice, none both
// read and written, each of them writable.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/outputs.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "answers/inputs.h"
#include "base/error.h"
#include "base/file.h"
#include "recordings/guess.h"

namespace dovetail::cli {
namespace {

void require_other(const NamedFile& output, const NamedFile& other, const std::string& role) {
  if (output.path.empty() || other.path.empty()) return;
  if (!is_same_file(output.path, other.path)) return;
  throw InputError(output.flag + " " + output.path + ": the same file as " + other.flag + " " +
                   other.path + role);
}

struct KindOfFlag {
  std::string_view flag;
  imports::FileKind kind;
};
constexpr std::array kKinds = {
    KindOfFlag{"--workload", imports::FileKind::Workload},
    KindOfFlag{"--cluster", imports::FileKind::Cluster},
    KindOfFlag{"--plan", imports::FileKind::Plan},
    KindOfFlag{"PLAN", imports::FileKind::Plan},
    KindOfFlag{"the plan", imports::FileKind::Plan},
    KindOfFlag{"the first trace", imports::FileKind::Trace},
    KindOfFlag{"the second trace", imports::FileKind::Trace},
    KindOfFlag{"input", imports::FileKind::Foreign},
};

void require_kind(const NamedFile& input) {
  const auto* const known = std::ranges::find(kKinds, input.flag, &KindOfFlag::flag);
  if (known == kKinds.end() || input.path.empty()) return;
  const std::string wrong = imports::wrong_kind(input.path, known->kind);
  if (!wrong.empty()) throw InputError(wrong);
}

}  // namespace

void require_distinct(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  for (const NamedFile& input : inputs) require_kind(input);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const NamedFile& input : inputs) require_other(outputs[i], input, ", which is read");
    for (std::size_t j = 0; j < i; ++j) {
      require_other(outputs[i], outputs[j], ", which is written too");
    }
  }
}

void require_writable(const std::vector<NamedFile>& outputs) {
  for (const NamedFile& output : outputs) {
    if (!output.path.empty()) dovetail::require_writable(output.path);
  }
}

void require_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  require_distinct(outputs, inputs);
  require_writable(outputs);
}

NamedFile workload_file(const std::string& name, const std::string& data_dir) {
  return {"--workload", predict::given_or_shipped(name, data_dir + "/workloads")};
}

NamedFile cluster_file(const std::string& name, const std::string& data_dir) {
  return {"--cluster", predict::given_or_shipped(name, data_dir + "/clusters")};
}

}  // namespace dovetail::cli
