// The options that several policies take, each with its help text, parser and printer, so that
// they read alike everywhere.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"
#include "schedule/visit.h"

namespace dovetail::schedule {

BucketPlacement& placing(Decisions& decisions) {
  if (!decisions.placement) decisions.placement.emplace();
  return *decisions.placement;
}

namespace options {

using typed::Typed;

namespace {

BucketPlacement placement_of(const Decisions& decisions) {
  return decisions.placement.value_or(BucketPlacement{});
}

}  // namespace

PolicyOption cap() {
  return {"cap", Decision::Grouping,
          [](Decisions& decisions, const Typed& typed) {
            visit(*decisions.grouping, [&](auto& grouping) {
              if constexpr (requires { grouping.cap; }) grouping.cap = typed::size(typed);
            });
          },
          [](const Decisions& decisions) {
            if (!decisions.grouping) return std::string();
            return visit(*decisions.grouping, [](const auto& grouping) {
              if constexpr (requires { grouping.cap; }) return typed::exact_size(grouping.cap);
              return std::string();
            });
          },
          true};
}

PolicyOption batch() {
  return {
      "batch", Decision::Placement,
      [](Decisions& decisions, const Typed& typed) {
        placing(decisions).batch = typed::small_number(typed, 1 << 16);
      },
      [](const Decisions& decisions) { return typed::positive(placement_of(decisions).batch); }};
}

PolicyOption tail() {
  return {"tail", Decision::Placement,
          [](Decisions& decisions, const Typed& typed) {
            placing(decisions).tail = typed::word<Tail>(typed);
          },
          [](const Decisions& decisions) {
            return std::string(to_string(placement_of(decisions).tail));
          }};
}

PolicyOption overlap() {
  return {"overlap", Decision::Placement,
          [](Decisions& decisions, const Typed& typed) {
            placing(decisions).launch = typed::word<Choice>(typed) == Choice::Yes
                                            ? LaunchRule::WhenReady
                                            : LaunchRule::AfterBackward;
          },
          [](const Decisions& decisions) {
            const bool overlaps = placement_of(decisions).launch == LaunchRule::WhenReady;
            return std::string(to_string(overlaps ? Choice::Yes : Choice::No));
          }};
}

PolicyOption max_streams() {
  return {
      "max-streams", Decision::Placement,
      [](Decisions& decisions, const Typed& typed) {
        placing(decisions).groups = typed::small_number(typed, 64);
      },
      [](const Decisions& decisions) { return std::to_string(placement_of(decisions).groups); }};
}

PolicyOption replicas() {
  return {"replicas", Decision::Sharding,
          [](Decisions& decisions, const Typed& typed) {
            decisions.sharding->replicas = std::string(typed.value);
          },
          [](const Decisions& decisions) {
            return decisions.sharding ? decisions.sharding->replicas : std::string();
          }};
}

}  // namespace options
}  // namespace dovetail::schedule
