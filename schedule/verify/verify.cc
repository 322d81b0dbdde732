// Runs the parts of the proof one after another. References and layouts come first: if a command
// names what does not exist, or a buffer cannot be, the later parts would have nothing to work on.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/verify.h"

#include <deque>
#include <map>

#include "base/interruption.h"
#include "schedule/verify/index.h"
#include "schedule/verify/interpreter.h"
#include "schedule/verify/kept.h"
#include "schedule/verify/layout.h"
#include "schedule/verify/loss_factors.h"
#include "schedule/verify/memory.h"
#include "schedule/verify/progress.h"
#include "schedule/verify/references.h"

namespace dovetail::schedule {

std::vector<Problem> verify(const Program& original, const ScheduledProgram& plan,
                            const Merge& merge) {
  std::vector<Problem> problems;
  const verification::Index index(original, merge, plan);
  verification::check_layouts(index, problems);
  if (!problems.empty() || !verification::check_kept(index, problems))
    return problems;  // the rest would speak of memory that cannot be
  const verification::LossFactors losses(index, problems);
  const verification::Memory memory(index);
  std::vector<std::vector<Problem>> references(plan.roles.size());
  bool all_good = true;
  for (std::size_t i = 0; i < plan.roles.size(); ++i) {
    throw_if_interrupted();
    all_good = verification::check_references(index, plan.roles[i], references[i]) && all_good;
  }
  std::vector<Problem> stuck;
  std::vector<Completion> completions;
  if (all_good) completions = check_progress(index, stuck);
  if (!stuck.empty() || plan.roles.size() == 1) completions.clear();
  std::deque<verification::Interpreter> interpreters;
  for (std::size_t i = 0; i < plan.roles.size(); ++i) {
    problems.insert(problems.end(), references[i].begin(), references[i].end());
    if (!references[i].empty()) continue;
    throw_if_interrupted();
    const RankProgram& role = plan.roles[i];
    verification::check_op_order(index, role, problems);
    interpreters.emplace_back(index, memory, losses, role, completions, problems).run();
  }
  std::map<GroupId, verification::Interpreter::Tie> ties;
  for (const verification::Interpreter& interpreter : interpreters) {
    for (const auto& [group, tie] : interpreter.ties()) {
      if (ties.try_emplace(group, tie).first->second == tie) continue;
      problems.push_back({ProblemKind::WrongReduction,
                          "the gradients of a tied weight meet over " + index.group(group)->name +
                              " scaled differently, or reduced over different groups"});
    }
  }
  if (problems.empty()) {
    for (verification::Interpreter& interpreter : interpreters) {
      throw_if_interrupted();
      interpreter.run_second();
    }
  }
  return problems.empty() ? stuck : problems;
}

}  // namespace dovetail::schedule
