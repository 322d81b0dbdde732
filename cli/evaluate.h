// dovetail evaluate: one schedule or job a line, in and out, for programs that ask thousands of times.
//
//   $ echo '{"workload": "resnet50", "cluster": "a100x8", "policy": "ddp"}' | dovetail evaluate
//   {"origin":"simulated","policy":"torch-ddp:...","step_us":48660.1,"exposed_us":...,"lower_bound_us":...,"paste":"..."}
//
// A line is a JSON object (docs/agents.md has all keys); what is wrong with it is the line's answer, {"error": ...}, and the next
// line goes on, also where dovetail itself is wrong: {"error": ..., "internal": true, "line": ...}. Workloads, machines and what
// was simulated on them are kept between lines (Weigher::kKept), so a policy that is new costs its simulation and one
// that was asked before a look-up.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <list>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::answers {
class Weigher;
}

namespace dovetail::cli {

class Evaluator {
 public:
  // Finds shipped workloads and clusters in this folder.
  explicit Evaluator(std::string data_dir);
  ~Evaluator();

  // The answer to a line, without a line's end. Several threads may ask at once; those that ask of one workload on one machine
  // wait for each other. Throws nothing that a line can cause.
  std::string answer(std::string_view line);
  // The same of several lines, side by side: those of one workload on one machine in their order, on one thread. `use` gets the
  // answers in the order of the lines, each as soon as it and those before it are there. Throws Interrupted as evaluate() does.
  void answer_all(const std::vector<std::string>& lines,
                  const std::function<void(const std::string& answer)>& use);

 private:
  std::unique_ptr<answers::Weigher> weigher_;
};

struct EvaluateOptions {
  std::string data_dir;
};

// Answers each line of `in` until its end. Throws Interrupted once a signal asks to stop; what was answered until then is in `out`.
void evaluate(const EvaluateOptions& options, std::istream& in, std::ostream& out);

}  // namespace dovetail::cli
