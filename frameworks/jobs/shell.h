// The flags that a shell script passes on: every `--flag value` of the command that trains (it runs a .py whose name says so; without
// one of any .py, without that of the whole script), in order, with what variables and arrays hold in their place.
//
//   TP=8
//   ARGS=(--tensor-model-parallel-size $TP --bf16)     becomes {"--tensor-model-parallel-size", "8"}, {"--bf16", ""}
//   EXTRA="--seq-length ${SEQ:-4096}"                  becomes {"--seq-length", "4096"}
//
// The script is not run: functions and commands are not called, and a variable that it does not set itself stays as it is
// written. Of a condition on what is known (test, [ ], [[ ]], case; also before && and ||) the branch that is taken is read, of
// any other all branches are, and what stands last in a variable counts; -z and -n take what nobody sets as empty. Words behind its name are $1, $2, ..., which shift moves.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/options.h"

namespace dovetail::frameworks {

struct Script {
  std::vector<OptionText>
      flags;  // names with their dashes; without a value where none follows on the line
  std::map<std::string, std::string> variables = {};    // those that it sets
  std::vector<std::vector<std::string>> commands = {};  // the words of each that runs a program
  std::size_t trainings = 1;  // that differ; the flags are those of the first
};

// What a script is started with.
struct Started {
  std::vector<std::string> words = {};                  // $1, $2, ...
  std::map<std::string, std::string> environment = {};  // NAME=VALUE before its name
};

// Also of one command line. Throws InputError where it has flags without end.
Script read_script(const std::string& file, std::string_view text, const Started& started = {});

// The words of a command line before its first flag.
std::vector<std::string> words_of(const std::string& file, std::string_view text);

}  // namespace dovetail::frameworks
