// The public functions, each by the code of the command that prints the same.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/dovetail.h"

#include "base/interruption.h"
#include "cli/environment.h"
#include "cli/evaluate.h"
#include "cli/front_door.h"
#include "cli/tool_facts.h"

namespace dovetail {
namespace {

std::string checked_data_dir() {
  cli::check_environment();
  return cli::data_dir();
}

}  // namespace

int answer(const std::vector<std::string>& words, std::ostream& out) {
  return cli::answer(words, out);
}

Evaluator::Evaluator() : evaluator_(std::make_unique<cli::Evaluator>(checked_data_dir())) {}
Evaluator::~Evaluator() = default;

std::string Evaluator::answer(std::string_view line) {
  try {
    return evaluator_->answer(line);
  } catch (const Interrupted&) {  // an exploration on another thread was
    return R"({"error":"interrupted"})";
  }
}

std::string version() { return cli::tool_text(); }

}  // namespace dovetail
