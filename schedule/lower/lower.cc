// The passes of lower, in order; each is a file of schedule/lower/.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/lower.h"

#include "base/count.h"
#include "base/interruption.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/lower/draft.h"
#include "schedule/lower/emit.h"
#include "schedule/lower/gather.h"
#include "schedule/lower/launch.h"
#include "schedule/lower/layout.h"
#include "schedule/lower/messages.h"
#include "schedule/lower/rewrite.h"
#include "schedule/lower/scale.h"
#include "schedule/lower/survey.h"
#include "schedule/lower/wait.h"
#include "schedule/transfers.h"

namespace dovetail::schedule {

using internal::Draft;
using internal::RoleDraft;

Lowered lower(Program program, const Schedule& schedule) {
  std::vector<ShardedBucket> sharded;
  Draft draft = internal::rewrite(std::move(program), schedule, sharded);
  // Between two passes somebody may want to stop.
  const auto next = [&draft]() -> Draft& {
    throw_if_interrupted();
    return draft;
  };
  collect_debts(next());
  name_streams(next());
  lay_out(next());
  place_scales(next());
  lay_out_parameters(next(), sharded);
  std::vector<RoleDraft> roles;
  for (std::int32_t i = 0; i < draft.program().stages; ++i) {
    RoleDraft& role = roles.emplace_back(survey(next(), i));
    place_launches(next(), role);
    place_waits(next(), role);
    place_gathers(next(), role);
    place_messages(next(), role);
  }
  draft.tell(LoweringPass::Launch, launch_report(roles));
  draft.tell(LoweringPass::Wait, wait_report(draft));
  draft.tell(LoweringPass::Gather, gather_report(draft));
  draft.tell(LoweringPass::Messages, message_report(roles));
  for (const RoleDraft& role : roles) draft.out.roles.push_back(emit(next(), role));
  link_transfers(draft.out);
  draft.tell(LoweringPass::Emit, counted(std::int64_t{draft.next_command}, "command") + " on " +
                                     counted(draft.out.streams.size(), "stream"));
  return {std::move(draft.out), std::move(draft.report)};
}

}  // namespace dovetail::schedule
