// One walk over the ops, backwards, so that each list of accesses comes out in program order.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/survey.h"

#include <algorithm>
#include <variant>

#include "base/error.h"
#include "schedule/lower/pipeline/async.h"

namespace dovetail::schedule::internal {
namespace {

// The sums over micro-steps of gradients that are reduced in every micro-step come behind its
// backward, as the optimizer does behind the last one.
bool is_in_backward(const Draft& draft, const Op& op) {
  if (op.phase == Phase::Optimizer) return false;
  if (draft.program().micro_steps == 1) return true;
  if (draft.schedule.merge.sync != SyncPoint::EveryMicroStep) return true;
  if (!std::holds_alternative<Accumulate>(op.effect)) return true;
  return std::ranges::none_of(op.writes, [&](TensorId id) {
    return draft.program().tensor(id).kind == TensorKind::MergedGradient;
  });
}

Repeated repeated(const Op& op, std::int32_t micro_step) {
  const auto* work = std::get_if<CollectiveWork>(&op.work);
  return {.micro_step = micro_step,
          .stage = op.stage,
          .phase = op.phase,
          .sends = work != nullptr && work->kind == Collective::SendRecv};
}

}  // namespace

RoleDraft survey(const Draft& draft, std::int32_t role) {
  const Program& program = draft.program();
  RoleDraft result;
  result.role = role;
  const auto micro_steps = static_cast<std::size_t>(program.micro_steps);
  result.backward_end.assign(micro_steps, 0);
  result.after_backward.assign(micro_steps, kEnd);
  result.accesses.reserve(3 * draft.debts.size());
  std::vector<char> ended(micro_steps, 0);
  std::size_t next = kEnd;  // the role's op behind this one
  const std::vector<std::size_t>& mine = draft.ops_of(role);
  for (auto at = mine.rbegin(); at != mine.rend(); ++at) {
    const std::size_t i = *at;
    const Op& op = program.ops[i];
    const std::size_t step = micro_steps > 1 ? static_cast<std::size_t>(op.micro_step) : 0;
    if (ended[step] == 0 && is_in_backward(draft, op)) {
      ended[step] = 1;
      result.backward_end[step] = i;
      result.after_backward[step] = next;
    }
    const auto touch = [&](TensorId id, bool writes) {
      if (draft.debt.at(id) < 0) return;
      std::int32_t& first = result.first_access[id];
      result.accesses.push_back({i, writes, first});
      first = static_cast<std::int32_t>(result.accesses.size()) - 1;
    };
    for (const TensorId id : op.writes) touch(id, true);
    for (const TensorId id : op.reads) touch(id, false);
    next = i;
  }
  return result;
}

std::size_t ready_after(const Draft& draft, const RoleDraft& role, TensorId tensor,
                        std::int32_t micro_step) {
  const std::vector<Op>& ops = draft.program().ops;
  const bool every =
      draft.program().micro_steps > 1 && draft.schedule.merge.sync == SyncPoint::EveryMicroStep;
  std::size_t ready = kEnd;
  for (std::int32_t k = role.first_access.at(tensor); k >= 0;) {
    const Access& access = role.accesses[static_cast<std::size_t>(k)];
    k = access.next;
    const Op& op = ops[access.op];
    if (!access.writes || op.phase == Phase::Optimizer) continue;
    if (every && op.micro_step != micro_step) continue;
    ready = access.op;
  }
  DOVETAIL_CHECK(ready != kEnd) << "tensor " << tensor << " is never written in micro-step "
                                << micro_step;
  return ready;
}

std::size_t position_of(const Draft& draft, const RoleDraft& role, const std::string& name, OpId id,
                        std::int32_t micro_step) {
  const std::size_t at = draft.positions.at(id);
  if (at == kEnd) throw InputError(name + ": launch after unknown op " + std::to_string(id.value));
  const Program& program = draft.program();
  if (micro_step == program.micro_steps - 1) return at;
  if (!is_repeated(program.ops[at])) {
    return role.backward_end[static_cast<std::size_t>(micro_step)];
  }
  const auto alike = draft.repeated.find(repeated(program.ops[at], micro_step));
  DOVETAIL_CHECK(alike != draft.repeated.end() && draft.place[at] < alike->second.size())
      << "micro-step " << micro_step << " lacks a repetition of op " << id;
  return alike->second[draft.place[at]];
}

void index_ops(Draft& draft) {
  const Program& program = draft.program();
  draft.positions.reserve(program.ops.size());
  draft.place.assign(program.ops.size(), kEnd);
  draft.repeated.clear();
  draft.ops_of_role.assign(static_cast<std::size_t>(program.stages), {});
  draft.shape = pipeline_shape(program, draft.schedule);
  auto alike = draft.repeated.end();  // nearly always that of the op before
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    draft.positions[op.id] = i;
    draft.ops_of_role[static_cast<std::size_t>(program.role_of(op))].push_back(i);
    if (op.phase == Phase::Optimizer) continue;
    const Repeated kind = repeated(op, op.micro_step);
    if (alike == draft.repeated.end() || alike->first != kind) {
      alike = draft.repeated.try_emplace(kind).first;
    }
    draft.place[i] = alike->second.size();
    alike->second.push_back(i);
  }
}

}  // namespace dovetail::schedule::internal
