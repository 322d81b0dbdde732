// dovetail as a C++ library: all of its interface, installed as <dovetail/dovetail.h> (docs/cpp.md).
//
//   std::ostringstream out;
//   dovetail::answer({"explore", "--workload", "resnet50", "--cluster", "a100x8", "--json"}, out);
//
//   dovetail::Evaluator evaluator;  // keeps what it loaded and simulated: thousands of answers a second
//   evaluator.answer(R"({"workload": "resnet50", "cluster": "a100x8", "policy": "ddp:cap=8MiB"})");
//
// Figures and sentences are those of the command. Several threads may ask at once. Shipped machines and models are found in the
// folder that DOVETAIL_DATA names, else in share/dovetail/models below the prefix that the library is installed in.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"

#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail {

namespace cli {
class Evaluator;
}

// Writes to `out` what `dovetail WORDS...` prints, and returns its exit code: 0; 3 where a run found wrong values; 130 where Ctrl-C
// ended an exploration with what it had found (a program that handles SIGINT itself goes on to do so). What other threads ask at
// that moment ends too: 130, or {"error": "interrupted"}. Long work shows itself on
// standard error, unless DOVETAIL_PROGRESS is "off". Throws InputError, also for words that no command takes, with the command's
// sentence, DeviceError where the machine failed, and CheckError where dovetail itself is wrong, with the words to report; the next
// call is answered.
int answer(const std::vector<std::string>& words, std::ostream& out);

// Answers one JSON line after another, as `dovetail evaluate` does (docs/agents.md lists the keys).
class Evaluator {
 public:
  // Throws InputError where the shipped machines and models are not found.
  Evaluator();
  ~Evaluator();

  // The answer, one line of JSON without a line's end; {"error": ...} for a line that is wrong, and with "internal": true where
  // dovetail is. Threads that ask of one workload on one machine wait for each other.
  std::string answer(std::string_view line);

 private:
  std::unique_ptr<cli::Evaluator> evaluator_;
};

// "0.1.0 (commit d81879d, Release, g++ 12.2.0)"
std::string version();

}  // namespace dovetail
