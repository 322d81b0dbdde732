// Pipeline, micro-steps, factors, shards: in this order, each only where the Schedule asks for it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/interruption.h"
#include "schedule/lower/pipeline/unroll.h"
#include "schedule/lower/rewrite/merge.h"
#include "schedule/lower/rewrite/scale.h"
#include "schedule/lower/survey.h"
#include "schedule/sharding.h"

namespace dovetail::schedule::internal {
namespace {

// The result of a pass, or the reason why it refused as an error.
template <class Result>
Result accept(LoweringPass pass, std::variant<Result, Refusal> outcome, Draft& draft) {
  if (const auto* refusal = std::get_if<Refusal>(&outcome)) {
    throw InputError("schedule " + draft.schedule.policy + ": " + refusal->reason);
  }
  throw_if_interrupted();
  Result result = std::get<Result>(std::move(outcome));
  draft.tell(pass, std::move(result.report));
  return result;
}

bool has_factors(const Program& program, const Schedule& schedule) {
  return schedule.scale != ScaleAt::Collective || program.micro_steps > 1 ||
         std::ranges::any_of(program.reductions, [](const Reduction& reduction) {
           return reduction.scale != Rational();
         });
}

// Every micro-step has ops of its own. Each costs 2.6 us and 0.85 KB where ResNet-18 is predicted, 10 us and 2.2 KB where a
// small pipeline is. 512 micro-batches of Llama 3 405B over 64 stages are 1.6 million of them: 75 s and 9 GB with the proof.
void require_room(const Program& program, const Schedule& schedule) {
  constexpr std::int64_t kMostOps = std::int64_t{1} << 21;
  // Where every micro-step reduces or gathers, each looks through its like in all of them: 0.17 us a look with the proof.
  constexpr std::int64_t kMostLooks = std::int64_t{1} << 27;
  const std::int64_t steps = schedule.merge.micro_steps;
  const std::string begin =
      "schedule " + schedule.policy + ": " + std::to_string(steps) + " micro-steps ";
  const std::int64_t ops = std::ssize(program.ops) * steps;
  if (ops > kMostOps) {
    throw InputError(begin + "of " + std::to_string(program.ops.size()) + " ops are " +
                     std::to_string(ops) + "; expected at most " + std::to_string(kMostOps));
  }
  const bool every = schedule.merge.sync == SyncPoint::EveryMicroStep;
  const std::size_t each = std::max(every ? program.reductions.size() : 0, schedule.gathers.size());
  if (static_cast<std::int64_t>(each) * steps * steps > kMostLooks) {
    throw InputError(begin + "that each reduce or gather " + std::to_string(each) +
                     " times are too many to plan");
  }
}

// The gradient travels, or its sum over micro-steps if that is what is reduced.
void find_travellers(Draft& draft) {
  const Program& program = draft.program();
  draft.travels.reserve(program.tensors.size());
  draft.debt.reserve(program.tensors.size());
  for (const Reduction& owed : program.reductions) draft.travels[owed.gradient] = owed.gradient;
  if (program.micro_steps == 1 || draft.schedule.merge.sync == SyncPoint::EveryMicroStep) return;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.merges && draft.travels.at(*tensor.merges).value >= 0) {
      draft.travels[*tensor.merges] = tensor.id;
    }
  }
}

}  // namespace

Draft rewrite(Program program, const Schedule& schedule, std::vector<ShardedBucket>& sharded) {
  require_room(program, schedule);
  Draft draft{.schedule = schedule};
  if (program.stages > 1) {
    program =
        accept(LoweringPass::Pipeline, split_pipeline(std::move(program), schedule), draft).program;
  } else if (schedule.merge.micro_steps != 1) {
    program =
        accept(LoweringPass::Merge, merge_micro_steps(std::move(program), schedule.merge), draft)
            .program;
  }
  if (has_factors(program, schedule)) {
    Folded folded = accept(LoweringPass::Scale, fold_scaling(std::move(program), schedule), draft);
    program = std::move(folded.program);
    draft.left = std::move(folded.left);
  }
  if (is_sharded(schedule)) {
    Sharded result =
        accept(LoweringPass::Shard, shard_updates(std::move(program), schedule), draft);
    program = std::move(result.program);
    sharded = std::move(result.buckets);
  }
  draft.out.program = std::move(program);
  draft.out.policy = schedule.policy;
  find_travellers(draft);
  index_ops(draft);
  return draft;
}

}  // namespace dovetail::schedule::internal
