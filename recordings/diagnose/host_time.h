// Where the host's time of a step goes: by part of the step, by operator, in pauses without any.
//
//   HostTime host = host_time(rank);
//   host.part(HostPart::Optimizer).time        35 ms, of which .python no operator runs
//
// Each moment of a step is in one part, the first of these that holds:
//   Waiting        a call waits for the GPU (synchronise); on a CPU the thread waits for a collective
//   DataLoading    annotated enumerate(DataLoader)
//   Optimizer      annotated Optimizer.step or Optimizer.zero_grad
//   Backward       autograd evaluates a function, pauses of up to 0.5 ms between two of them included
//   Forward        what else comes before the step's last backward begins: forward, loss, what is not annotated
//   Other          what comes after it
// and is spent in a call of the runtime (launches), in an operator outside such calls, or in neither: Python, and what is not
// recorded. All threads that launch work are one host, as in recorded_graph.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "recordings/diagnose/traced.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::diagnose {

enum class HostPart : std::uint8_t { Waiting, DataLoading, Optimizer, Backward, Forward, Other };
inline constexpr std::size_t kHostParts = 6;
constexpr auto words_of(HostPart) {
  return words("waiting for GPU or network", "data loading", "optimizer", "backward",
               "forward and before backward", "after backward");
}

// All figures are means over steps.
struct HostPartTime {
  Duration time{};
  Duration in_calls{}, in_operators{}, python{};  // their sum is `time`
  double launches = 0;
};

struct NamedTime {
  std::string name;
  Duration time{};
  double count = 0;
};

// A pause in which no operator and no call ran.
struct HostPause {
  Duration time{};
  HostPart part = HostPart::Other;
  std::string after, before;  // operators or calls; empty: none in the step
};

struct HostTime {
  Duration step{};
  std::array<HostPartTime, kHostParts> parts;
  std::vector<NamedTime>
      operators;  // by their own time without what they call; the five that take most
  std::vector<NamedTime> annotations;  // the user's own, whole; the five that take most
  std::vector<HostPause> pauses;       // the three longest of all steps

  [[nodiscard]] const HostPartTime& part(HostPart part) const {
    return parts[static_cast<std::size_t>(part)];
  }
};

HostTime host_time(const RankTrace& rank);

// Calls of the runtime inside the optimizer's step that launch work, a step, and which calls are inside it, by number.
struct OptimizerCalls {
  double launches = 0;
  std::vector<char> inside;  // by RankTimeline::calls
};
OptimizerCalls optimizer_calls(const RankTrace& rank);

}  // namespace dovetail::diagnose
