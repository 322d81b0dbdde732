// Joins the events of one rank: GPU work with the call that launched it, calls with the step that
// they belong to, and the kind and size of each collective.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/kineto/rank_timeline.h"

#include "imports/kineto/likely_collectives.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace dovetail::imports {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_gpu(EventKind kind) {
  return kind == EventKind::Kernel || kind == EventKind::Memcpy || kind == EventKind::Memset;
}

CallKind call_kind(std::string_view name) {
  if (contains(name, "Synchronize")) return CallKind::Blocking;
  if (contains(name, "StreamWaitEvent")) return CallKind::WaitEvent;
  if (contains(name, "Launch") || contains(name, "Memcpy") || contains(name, "Memset")) {
    return CallKind::Launch;
  }
  return CallKind::Other;
}

// Bytes of one element, by the names that PyTorch and NCCL use; 0: unknown.
std::int64_t element_size(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 24> kSizes = {
      {{"float", 4},   {"float32", 4},   {"int", 4},           {"int32", 4},
       {"uint32", 4},  {"double", 8},    {"float64", 8},       {"long", 8},
       {"int64", 8},   {"uint64", 8},    {"long int", 8},      {"half", 2},
       {"float16", 2}, {"c10::half", 2}, {"bfloat16", 2},      {"c10::bfloat16", 2},
       {"short", 2},   {"char", 1},      {"byte", 1},          {"int8", 1},
       {"uint8", 1},   {"bool", 1},      {"unsigned char", 1}, {"signed char", 1}}};
  const std::string word = lower(dtype);
  for (const auto& [name, size] : kSizes) {
    if (word == name) return size;
  }
  return contains(word, "float8") ? 1 : 0;
}

CollectiveKind collective_kind(std::string_view text) {
  std::string word;
  for (const char c : lower(text)) {
    if (c != '_' && c != '-' && c != ' ') word += c;
  }
  using enum CollectiveKind;
  constexpr std::array<std::pair<std::string_view, CollectiveKind>, 9> kWords = {
      {{"allreduce", AllReduce},
       {"reducescatter", ReduceScatter},
       {"allgather", AllGather},
       {"broadcast", Broadcast},
       {"alltoall", AllToAll},
       {"sendrecv", SendReceive},
       {"send", SendReceive},
       {"recv", SendReceive},
       {"reduce", Reduce}}};
  for (const auto& [part, kind] : kWords) {
    if (contains(word, part)) return kind;
  }
  return Unknown;
}

class Joiner {
 public:
  Joiner(const KinetoTrace& trace, const JoinOptions& options) : trace_(trace) {
    for (const std::string& part : options.collective_patterns) patterns_.push_back(lower(part));
    takes_args_ = patterns_.empty();
    if (patterns_.empty()) patterns_ = {"nccl", "rccl", "msccl"};
  }

  RankTimeline join() {
    line_.rank = trace_.rank;
    line_.world_size = trace_.world_size;
    if (!trace_.events.empty()) line_.origin_ns = trace_.events.front().start_ns;
    find_parents();
    find_steps();
    find_calls();
    find_works();
    assign_steps();
    find_collectives();
    say_what_is_unknown();
    return std::move(line_);
  }

 private:
  [[nodiscard]] const TraceEvent& event(std::int32_t index) const {
    return trace_.events[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::string_view name(std::int32_t index) const {
    return trace_.name_of(event(index));
  }

  // Operators and annotations of a thread nest; a stack per thread finds the parent of each event.
  void find_parents() {
    line_.parent.assign(trace_.events.size(), kNone);
    std::vector<std::vector<std::int32_t>> open(trace_.threads.size());
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& now = trace_.events[i];
      if (is_gpu(now.kind) || now.kind == EventKind::Synchronisation) continue;
      auto& stack = open[static_cast<std::size_t>(now.thread)];
      while (!stack.empty() && event(stack.back()).end_ns() <= now.start_ns) stack.pop_back();
      if (!stack.empty()) line_.parent[i] = stack.back();
      if (now.kind != EventKind::RuntimeCall) stack.push_back(static_cast<std::int32_t>(i));
    }
  }

  void find_steps() {
    constexpr std::string_view kStep = "ProfilerStep#";
    for (const TraceEvent& now : trace_.events) {
      const bool can_be =
          now.kind == EventKind::Annotation || (trace_.is_array && now.kind == EventKind::Operator);
      const std::string& text = trace_.name_of(now);
      if (!can_be || !text.starts_with(kStep)) continue;
      TracedStep step;
      step.name = text;
      std::from_chars(text.data() + kStep.size(), text.data() + text.size(), step.number);
      step.start = line_.instant(now.start_ns);
      step.end = line_.instant(now.end_ns());
      // A second annotation of the same moments (another thread's) adds nothing.
      if (!line_.steps.empty() && step.start < line_.steps.back().end) continue;
      line_.steps.push_back(std::move(step));
    }
    if (!line_.steps.empty()) return;
    line_.has_step_annotations = false;
    TracedStep whole;
    whole.name = "whole trace";
    for (const TraceEvent& now : trace_.events) {
      whole.end = std::max(whole.end, line_.instant(now.end_ns()));
    }
    line_.steps.push_back(std::move(whole));
  }

  // Calls of the threads that launch anything; a watchdog's polling is no work of the step.
  void find_calls() {
    std::vector<char> launches(trace_.threads.size(), 0);
    for (const TraceEvent& now : trace_.events) {
      if (now.kind == EventKind::RuntimeCall &&
          call_kind(trace_.name_of(now)) == CallKind::Launch) {
        launches[static_cast<std::size_t>(now.thread)] = 1;
      }
    }
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& now = trace_.events[i];
      if (now.kind != EventKind::RuntimeCall ||
          launches[static_cast<std::size_t>(now.thread)] == 0) {
        continue;
      }
      HostCall call;
      call.start = line_.instant(now.start_ns);
      call.end = line_.instant(now.end_ns());
      call.event = static_cast<std::int32_t>(i);
      call.thread = now.thread;
      call.kind = call_kind(trace_.name_of(now));
      // Driver calls repeat the correlation of the runtime call around them, which comes first.
      if (now.correlation >= 0) {
        call_of_.emplace(now.correlation, static_cast<std::int32_t>(line_.calls.size()));
      }
      line_.calls.push_back(call);
    }
  }

  bool is_collective(const TraceEvent& kernel) {
    if (takes_args_ && kernel.collective != kNone) {
      const CollectiveArgs& args = trace_.collectives[static_cast<std::size_t>(kernel.collective)];
      if (collective_kind(args.kind) != CollectiveKind::Unknown) return true;
    }
    return is_named_as_collective(kernel.name);
  }

  bool is_named_as_collective(std::int32_t name_number) {
    const auto known = is_collective_.find(name_number);
    if (known != is_collective_.end()) return known->second;
    const std::string text = lower(trace_.names[static_cast<std::size_t>(name_number)]);
    const bool is = std::ranges::any_of(
        patterns_, [&](const std::string& part) { return contains(text, part); });
    is_collective_.emplace(name_number, is);
    return is;
  }

  std::int32_t stream_number(std::int32_t id) {
    const auto next = static_cast<std::int32_t>(line_.streams.size());
    const auto [entry, added] = streams_.emplace(id, next);
    if (added) line_.streams.push_back({id, false});
    return entry->second;
  }

  void find_works() {
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& now = trace_.events[i];
      if (!is_gpu(now.kind)) continue;
      GpuWork work;
      work.start = line_.instant(now.start_ns);
      work.end = line_.instant(now.end_ns());
      work.event = static_cast<std::int32_t>(i);
      work.stream = stream_number(now.stream);
      const auto number = static_cast<std::int32_t>(line_.works.size());
      if (const auto found = call_of_.find(now.correlation);
          now.correlation >= 0 && found != call_of_.end()) {
        work.launch = found->second;
        HostCall& call = line_.calls[static_cast<std::size_t>(work.launch)];
        if (call.first_work == kNone) call.first_work = number;
        call.kind = call.kind == CallKind::Other ? CallKind::Launch : call.kind;
      } else {
        ++without_launch_;
      }
      if (now.kind == EventKind::Kernel && is_collective(now)) {
        work.collective = static_cast<std::int32_t>(line_.collectives.size());
        line_.streams[static_cast<std::size_t>(work.stream)].communicates = true;
        TracedCollective collective;
        collective.work = number;
        line_.collectives.push_back(collective);
      }
      line_.works.push_back(work);
    }
  }

  std::int32_t step_at(Instant moment) const {
    const auto after = std::ranges::upper_bound(line_.steps, moment, {}, &TracedStep::start);
    if (after == line_.steps.begin()) return kNone;
    const auto step = after - 1;
    return moment < step->end ? static_cast<std::int32_t>(step - line_.steps.begin()) : kNone;
  }

  void assign_steps() {
    for (std::size_t i = 0; i < line_.works.size(); ++i) {
      GpuWork& work = line_.works[i];
      if (work.launch != kNone) {
        work.step = step_at(line_.calls[static_cast<std::size_t>(work.launch)].start);
      } else if (!line_.has_step_annotations) {
        work.step = 0;
      }
      if (work.step == kNone) continue;
      line_.steps[static_cast<std::size_t>(work.step)].works.push_back(
          static_cast<std::int32_t>(i));
    }
    for (TracedStep& step : line_.steps) {
      std::ranges::stable_sort(step.works, {}, [&](std::int32_t w) {
        const GpuWork& work = line_.works[static_cast<std::size_t>(w)];
        return work.launch == kNone ? work.start
                                    : line_.calls[static_cast<std::size_t>(work.launch)].start;
      });
    }
  }

  void find_collectives() {
    index_calls_by_external_id();
    std::vector<std::int32_t> seen(line_.steps.size(), 0);
    for (TracedCollective& collective : line_.collectives) {
      describe(collective);
      const GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
      if (work.step != kNone) collective.place = seen[static_cast<std::size_t>(work.step)]++;
    }
  }

  // For traces whose collectives' launches are not in the file: external id joins too.
  void index_calls_by_external_id() {
    if (line_.collectives.empty()) return;
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& now = trace_.events[i];
      if (now.kind != EventKind::Operator && now.kind != EventKind::Annotation) continue;
      if (now.external_id >= 0)
        by_external_id_.emplace(now.external_id, static_cast<std::int32_t>(i));
    }
  }

  void describe(TracedCollective& collective) {
    const GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
    const TraceEvent& kernel = event(work.event);
    if (kernel.collective != kNone) take(collective, kernel.collective);
    // Outwards from the launch: nccl: annotation, record_param_comms, c10d::.
    std::int32_t around = kNone;
    if (work.launch != kNone) {
      around = line_.parent[static_cast<std::size_t>(
          line_.calls[static_cast<std::size_t>(work.launch)].event)];
    } else if (const auto found = by_external_id_.find(kernel.external_id);
               kernel.external_id >= 0 && found != by_external_id_.end()) {
      around = found->second;
    }
    for (; around != kNone; around = line_.parent[static_cast<std::size_t>(around)]) {
      const std::string_view text = name(around);
      const bool annotation = text.starts_with("nccl:") || text.starts_with("rccl:");
      const bool comms = text == "record_param_comms" || text.starts_with("c10d::");
      if (!annotation && !comms) continue;
      if (event(around).collective != kNone) take(collective, event(around).collective);
      if (collective.kind == CollectiveKind::Unknown && text != "record_param_comms") {
        collective.kind = collective_kind(text.substr(text.find(':') + 1));
      }
      take_shapes(collective, event(around).shapes);
      if (comms) collective.call = around;
    }
    if (collective.kind == CollectiveKind::Unknown) {
      collective.kind = collective_kind(trace_.name_of(kernel));
    }
    const std::int64_t size = element_size(collective.dtype);
    if (collective.elements && size > 0) {
      collective.bytes = Bytes(*collective.elements * size);
    }
  }

  void take(TracedCollective& collective, std::int32_t args_number) {
    const CollectiveArgs& args = trace_.collectives[static_cast<std::size_t>(args_number)];
    if (collective.kind == CollectiveKind::Unknown) collective.kind = collective_kind(args.kind);
    if (collective.dtype.empty()) collective.dtype = args.dtype;
    if (!collective.elements && args.in_elements.value_or(0) > 0) {
      collective.elements = args.in_elements;
      // An all-gather is named by its result, as in the rest of the tool.
      if (collective.kind == CollectiveKind::AllGather && args.out_elements.value_or(0) > 0) {
        collective.elements = args.out_elements;
      }
    }
    if (!collective.group_size) collective.group_size = args.group_size;
    if (collective.group.empty()) collective.group = args.group;
  }

  void take_shapes(TracedCollective& collective, std::int32_t shapes_number) {
    if (shapes_number == kNone || collective.elements) return;
    const InputShapes& shapes = trace_.shapes[static_cast<std::size_t>(shapes_number)];
    for (std::size_t i = 0; i < shapes.dims.size(); ++i) {
      if (shapes.dims[i].empty()) continue;
      std::int64_t product = 1;
      for (const std::int64_t dim : shapes.dims[i]) {
        if (dim <= 0 || dim > kMostElements / product) return;
        product *= dim;
      }
      collective.elements = product;
      if (collective.dtype.empty() && i < shapes.types.size()) collective.dtype = shapes.types[i];
      return;
    }
  }

  void find_unrecognised() {
    line_.unrecognised.unread = trace_.unread;
    line_.unrecognised.likely = likely_collectives(trace_, line_);
    if (!line_.works.empty()) return;
    for (const TraceEvent& now : trace_.events) {
      if (now.kind == EventKind::RuntimeCall && contains(trace_.name_of(now), "Launch")) {
        ++line_.unrecognised.launches;
      }
    }
  }

  void say_what_is_unknown() {
    std::vector<std::string>& unknowns = line_.unknowns;
    if (!line_.has_step_annotations) {
      unknowns.emplace_back("no ProfilerStep annotation: the whole trace counts as one step");
    }
    if (!trace_.rank) unknowns.emplace_back("the rank is not in the file");
    find_unrecognised();
    if (line_.works.empty() && line_.unrecognised.unread.foreign.empty() &&
        line_.unrecognised.unread.without_time == 0) {
      unknowns.emplace_back("no GPU work in the file: recorded without CUDA activity, or on a CPU");
    } else if (!line_.works.empty() && line_.collectives.empty()) {
      unknowns.emplace_back(
          "no collective found: no kernel has nccl, rccl or msccl in its name "
          "(--collective-pattern "
          "names others)");
    }
    for (const LikelyCollectives& likely : line_.unrecognised.likely) {
      unknowns.push_back("whether " + std::to_string(likely.kernels) +
                         (likely.kernels == 1 ? " kernel" : " kernels") +
                         " that count as compute here are " + likely.what +
                         ": --collective-pattern " + likely.pattern +
                         " counts them as communication");
    }
    if (without_launch_ > 0) {
      unknowns.push_back(
          std::to_string(without_launch_) + " of " + std::to_string(line_.works.size()) +
          " pieces of GPU work have no launch in the file: launched before it began");
    }
    const auto unsized = std::ranges::count_if(
        line_.collectives, [](const TracedCollective& c) { return !c.bytes.has_value(); });
    if (unsized > 0) {
      unknowns.push_back("the size of " + std::to_string(unsized) + " of " +
                         std::to_string(line_.collectives.size()) +
                         " collectives: record with record_shapes=True");
    }
  }

  const KinetoTrace& trace_;
  RankTimeline line_;
  std::vector<std::string> patterns_;
  bool takes_args_ = true;  // kernels with args of a collective are collectives
  std::unordered_map<std::int64_t, std::int32_t> call_of_;  // by correlation
  std::unordered_map<std::int64_t, std::int32_t> by_external_id_;
  std::unordered_map<std::int32_t, std::int32_t> streams_;  // by the id of the file
  std::unordered_map<std::int32_t, bool> is_collective_;
  std::int64_t without_launch_ = 0;
};

}  // namespace

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return "all-reduce";
    case CollectiveKind::ReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::AllGather:
      return "all-gather";
    case CollectiveKind::Broadcast:
      return "broadcast";
    case CollectiveKind::Reduce:
      return "reduce";
    case CollectiveKind::AllToAll:
      return "all-to-all";
    case CollectiveKind::SendReceive:
      return "send-receive";
    case CollectiveKind::Unknown:
      break;
  }
  return "collective";
}

RankTimeline join(const KinetoTrace& trace, const JoinOptions& options) {
  return Joiner(trace, options).join();
}

std::int32_t enclosing(const KinetoTrace& trace, const RankTimeline& line, std::int32_t event,
                       std::string_view part) {
  for (std::int32_t at = event; at != kNone; at = line.parent[static_cast<std::size_t>(at)]) {
    const TraceEvent& now = trace.events[static_cast<std::size_t>(at)];
    if (now.kind != EventKind::RuntimeCall && contains(trace.name_of(now), part)) return at;
  }
  return kNone;
}

}  // namespace dovetail::imports
