// Checks the files that a command line names before any work is done: none named twice, none both
// read and written, each of them writable.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/outputs.h"

#include "base/error.h"
#include "base/file.h"
#include "predict/inputs.h"

namespace dovetail::cli {
namespace {

void require_other(const NamedFile& output, const NamedFile& other, const std::string& role) {
  if (output.path.empty() || other.path.empty()) return;
  if (!is_same_file(output.path, other.path)) return;
  throw InputError(output.flag + " " + output.path + ": the same file as " + other.flag + " " +
                   other.path + role);
}

}  // namespace

void require_distinct(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
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
