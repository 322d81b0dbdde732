// The options that several policies take.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/definition.h"

namespace dovetail::schedule {
namespace options {

using typed::Typed;

PolicyOption cap() {
  return {"cap", [](PolicySpec& spec, const Typed& typed) { spec.threshold = typed::size(typed); },
          [](const PolicySpec& spec) { return typed::exact_size(spec.threshold); }, true};
}

PolicyOption batch() {
  return {"batch",
          [](PolicySpec& spec, const Typed& typed) {
            spec.batch = typed::small_number(typed, 1 << 16);
          },
          [](const PolicySpec& spec) { return typed::positive(spec.batch); }};
}

PolicyOption tail() {
  return {"tail",
          [](PolicySpec& spec, const Typed& typed) {
            spec.tail = typed::word(typed, std::array{Tail::AfterBackward, Tail::LastGradient});
          },
          [](const PolicySpec& spec) { return std::string(to_string(spec.tail)); }};
}

PolicyOption overlap() {
  return {"overlap",
          [](PolicySpec& spec, const Typed& typed) {
            spec.overlap = typed::word(typed, typed::kChoices);
          },
          [](const PolicySpec& spec) { return std::string(to_string(spec.overlap)); }};
}

PolicyOption max_streams() {
  return {"max-streams",
          [](PolicySpec& spec, const Typed& typed) {
            spec.max_streams = typed::small_number(typed, 64);
          },
          [](const PolicySpec& spec) { return std::to_string(spec.max_streams); }};
}

PolicyOption replicas() {
  return {"replicas",
          [](PolicySpec& spec, const Typed& typed) { spec.replicas = std::string(typed.value); },
          [](const PolicySpec& spec) { return spec.replicas; }};
}

}  // namespace options

void refuse_sums_of_whole_gradients(const PolicySpec& spec, const TypedOptions& typed) {
  if (spec.merge.micro_steps == 1 || spec.merge.sync != SyncPoint::EveryMicroStep) return;
  typed::fail(typed.text,
              "sync=every with sharded updates: each micro-step would add up whole gradients, of "
              "which a rank holds only its shard; use sync=last");
}

}  // namespace dovetail::schedule
