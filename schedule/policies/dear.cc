// dear: reduce-scatters beside backward, all-gathers beside the next forward, in groups of whole modules.
//
// Modules that own parameters are packed from the first of forward on, and a group closes before the module that would
// bring it to the cap. Gradients are copied into the group's buffer, whose reduce-scatter is launched once it is full; all
// are waited for after backward, and each all-gather is launched when the one before it has ended. What is gathered are
// parameters, after updates of shards, as in DeAR's dopt_zero.py; by itself it gathers gradients, as many bytes, and each
// rank updates all parameters of a module before its forward, which a Schedule cannot say.
// Source: lzhangbv/dear_pytorch at 249a7e9, dear/dear_dopt.py; b9b1d7a, dear/dopt_zero.py (Zhang et al., ICDCS 2023).
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"

namespace dovetail::schedule {

PolicyDefinition dear_policy() {
  return {
      .name = "dear",
      .purpose = "DeAR: reduce-scatters beside backward, all-gathers beside the next forward",
      .sizes = {options::cap()},
      .decide =
          [](Decisions& decisions) {
            decisions.grouping = ByModules{};
            decisions.sharding = Sharding{.gather = ParameterSync::NextForward};
            decisions.placement =
                BucketPlacement{.mode = BucketMode::Copy, .wait = WaitPoint::EndOfBackward};
          },
      .groups_by = "whole modules from the first of forward on, closed before they reach the cap",
      .compared = false};
}

}  // namespace dovetail::schedule
