// The files that a command line names, looked at before any of them is read or written.
//
//   require_outputs({{"-o", options.output}, {"--trace", options.trace}},
//                   {{"--plan", options.plan}});
//
// A file that is not given has an empty path.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace dovetail::cli {

struct NamedFile {
  std::string flag;  // as people write it
  std::string path;
};

// Throws InputError where an output is the same file as another output, or as an input; and where what stands behind a flag is
// plainly of another kind (recordings/guess.h): a plan given as a workload.
void require_distinct(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// Throws InputError where an output cannot be written.
void require_writable(const std::vector<NamedFile>& outputs);

// Both.
void require_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// The files that these flags read: as given, or shipped by that name; none for a model of the zoo.
NamedFile workload_file(const std::string& name, const std::string& data_dir);
NamedFile cluster_file(const std::string& name, const std::string& data_dir);

}  // namespace dovetail::cli
