// Signs of a device without its work, and what no event tells.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/unknowns.h"

#include "recordings/names.h"
#include "recordings/timeline/likely_collectives.h"
#include "recordings/timeline/side_work.h"

#include <algorithm>
#include <utility>

namespace dovetail::imports {
std::string way_to_sizes(const Recording& trace) {
  switch (trace.recorder) {
    case Recorder::Jax:
    case Recorder::NcclPlugin:
      return ", which " + std::string(to_string(trace.recorder)) +
             " does not tell: dovetail import hlo has those of the compiled module";
    case Recorder::Nsys:
      return ": record NCCL's ranges (nsys profile -t cuda,nvtx) and export them with what they "
             "say (nsys export --type=sqlite --include-blobs=true)";
    case Recorder::Kineto:
      break;
  }
  return trace.has_shapes ? ", which the trace lacks though it has shapes"
                          : ": record with record_shapes=True";
}

// What a trace without GPU work has of it all the same.
void find_signs_of_a_device(const Recording& trace, RankTimeline& line) {
  for (const RecordedEvent& now : trace.events) {
    const std::string_view text = trace.name_of(now);
    if (now.kind == EventKind::RuntimeCall) {
      line.unrecognised.launches += contains(text, "Launch") ? 1 : 0;
      continue;
    }
    const std::string_view library = text.substr(0, text.find(':'));
    if (library.size() < text.size() && library.ends_with("ccl")) {
      ++line.unrecognised.device_libraries[std::string(library)];
    }
  }
}

void say_what_is_unknown(const Recording& trace, RankTimeline& line) {
  std::vector<std::string>& unknowns = line.unknowns;
  for (std::string& text : side_work_in_words(trace, line)) {
    line.notes.push_back(std::move(text));
  }
  if (!trace.rank) unknowns.emplace_back("the rank is not in the file");
  line.unrecognised.recorder = trace.recorder;
  line.unrecognised.likely = likely_collectives(trace, line);
  if (line.works.empty() && !line.unrecognised.tells_of_device() &&
      trace.recorder == Recorder::Kineto) {
    unknowns.emplace_back("no GPU work in the file: recorded without CUDA activity, or on a CPU");
  } else if (!line.works.empty() && line.collectives.empty()) {
    unknowns.emplace_back(
        "no collective found: no kernel has nccl, rccl or msccl in its name "
        "(--collective-pattern "
        "names others)");
  }
  for (const LikelyCollectives& likely : line.unrecognised.likely) {
    unknowns.push_back(
        "whether " + std::to_string(likely.kernels) +
        (likely.kernels == 1 ? " kernel" : " kernels") + " that count as compute here are " +
        likely.what + ": --collective-pattern " + likely.pattern + " counts them as communication");
  }
  const auto without_launch = std::ranges::count(line.works, kNone, &GpuWork::launch);
  if (without_launch > 0 && !line.on_cpu) {
    unknowns.push_back(std::to_string(without_launch) + " of " + std::to_string(line.works.size()) +
                       " pieces of GPU work have no launch in the file: launched before it began");
  }
  const auto unsized = std::ranges::count_if(line.collectives, [](const TracedCollective& c) {
    return !c.bytes.has_value() && c.kind != CollectiveKind::Barrier;
  });
  if (unsized > 0) {
    unknowns.push_back("the size of " + std::to_string(unsized) + " of " +
                       std::to_string(line.collectives.size()) + " collectives" +
                       way_to_sizes(trace));
  }
}

}  // namespace dovetail::imports
