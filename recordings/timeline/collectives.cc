// From the kernel's own args, and outwards from its launch: the library's range, PyTorch's annotation, record_param_comms, c10d's operator.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/collectives.h"

#include "recordings/names.h"

#include <array>
#include <unordered_map>
#include <utility>

namespace dovetail::imports {
namespace {

// "float" of ncclDevKernel_AllReduce_Sum_f32_RING_LL and ncclKernel_AllReduce_RING_LL_Sum_float; "" where the name has no type.
std::string dtype_of_kernel(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, const char*>, 6> kTypes = {
      {{"_f32", "float"},
       {"_float", "float"},
       {"_bf16", "bfloat16"},
       {"_f16", "half"},
       {"_half", "half"},
       {"_f64", "double"}}};
  if (!name.starts_with("nccl")) return "";
  for (const auto& [part, dtype] : kTypes) {
    const std::size_t at = name.find(part);
    if (at == std::string_view::npos) continue;
    const std::size_t end = at + part.size();
    if (end == name.size() || name[end] == '_' || name[end] == '(') return dtype;
  }
  return "";
}

class Describer {
 public:
  Describer(const Recording& trace, RankTimeline& line) : trace_(trace), line_(line) {}

  void describe_all() {
    index_calls_by_external_id();
    for (TracedCollective& collective : line_.collectives) describe(collective);
  }

 private:
  [[nodiscard]] const RecordedEvent& event(std::int32_t index) const {
    return trace_.events[static_cast<std::size_t>(index)];
  }

  // For collectives whose launches are not in the file: external id joins, too.
  void index_calls_by_external_id() {
    std::unordered_map<std::int64_t, std::int32_t> wanted;
    for (const TracedCollective& collective : line_.collectives) {
      const GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
      const std::int64_t id = event(work.event).external_id;
      if (work.launch == kNone && id >= 0) wanted.emplace(id, kNone);
    }
    if (wanted.empty()) return;
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const RecordedEvent& now = trace_.events[i];
      if (now.kind != EventKind::Operator && now.kind != EventKind::Annotation) continue;
      const auto found = wanted.find(now.external_id);
      if (found != wanted.end() && found->second == kNone) {
        found->second = static_cast<std::int32_t>(i);
      }
    }
    std::erase_if(wanted, [](const auto& entry) { return entry.second == kNone; });
    by_external_id_ = std::move(wanted);
  }

  // Whose message it is: of events from the kernel outwards, the first that tells.
  void take_message(TracedCollective& collective, std::int32_t number) {
    const RecordedEvent& from = event(number);
    const Message told = message_of(trace_.name_of(from));
    Message& message = collective.message;
    if (message.direction == Direction::None) message.direction = told.direction;
    if (!in_group_) in_group_ = told.peer;
    if (from.collective == kNone) return;
    const CollectiveArgs& args = trace_.collectives[static_cast<std::size_t>(from.collective)];
    if (message.direction == Direction::None) {
      message.direction = message_of(args.kind).direction;
    }
    if (!in_group_) in_group_ = args.peer;
    if (!message.peer) {
      message.peer = message.direction == Direction::Send      ? args.destination
                     : message.direction == Direction::Receive ? args.source
                                                               : std::nullopt;
    }
  }

  // The peer as a rank of the job; of two ranks it is the other one.
  void settle_message(TracedCollective& collective) {
    Message& message = collective.message;
    const std::vector<std::int64_t>& members = collective.members;
    if (collective.kind != CollectiveKind::SendReceive) message = {};
    if (message.direction == Direction::None || message.peer) return;
    if (in_group_) {
      const auto place = static_cast<std::size_t>(*in_group_);
      message.peer = members.empty()          ? in_group_
                     : place < members.size() ? std::optional(members[place])
                                              : std::nullopt;
    } else if (trace_.rank && members.size() == 2) {
      message.peer = members[0] == *trace_.rank ? members[1] : members[0];
    } else if (trace_.rank && members.empty() && trace_.world_size.value_or(0) == 2) {
      message.peer = 1 - *trace_.rank;
    }
  }

  void describe(TracedCollective& collective) {
    in_group_.reset();
    describe_by_events(collective);
    settle_message(collective);
  }

  void describe_by_events(TracedCollective& collective) {
    const GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
    const RecordedEvent& kernel = event(work.event);
    if (kernel.collective != kNone) take(collective, kernel.collective);
    take_message(collective, work.event);
    if (collective.call != kNone) take_message(collective, collective.call);
    if (line_.on_cpu) take_shapes(collective, kernel.shapes);
    if (line_.on_cpu && trace_.is(kernel, Is::Barrier)) {
      collective.kind = CollectiveKind::Barrier;
      return;
    }
    // Outwards from the launch: nccl: annotation, record_param_comms, c10d::.
    std::int32_t around = kNone;
    if (work.launch != kNone) {
      around = line_.parent[static_cast<std::size_t>(
          line_.calls[static_cast<std::size_t>(work.launch)].event)];
    } else if (const auto found = by_external_id_.find(kernel.external_id);
               kernel.external_id >= 0 && found != by_external_id_.end()) {
      around = found->second;
    }
    CollectiveKind by_library = CollectiveKind::Unknown;
    for (; around != kNone; around = line_.parent[static_cast<std::size_t>(around)]) {
      const std::string_view text = trace_.name_of(event(around));
      if (const std::int32_t args = event(around).collective;
          args != kNone && trace_.collectives[static_cast<std::size_t>(args)].is_of_library) {
        by_library = take_library(collective, args);
        continue;
      }
      const bool comms = trace_.is(around, Is::Comms) || trace_.is(around, Is::C10d);
      if (!trace_.is(around, Is::LibraryRange) && !comms) continue;
      if (event(around).collective != kNone) take(collective, event(around).collective);
      take_message(collective, around);
      if (collective.kind == CollectiveKind::Unknown && !trace_.is(around, Is::Comms)) {
        collective.kind = collective_kind(text.substr(text.find(':') + 1));
      }
      take_shapes(collective, event(around).shapes);
      if (comms) collective.call = around;
    }
    if (collective.kind == CollectiveKind::Unknown) collective.kind = by_library;
    if (collective.kind == CollectiveKind::Unknown) {
      collective.kind = trace_.is(kernel, Is::PeerCopy) ? CollectiveKind::SendReceive
                                                        : collective_kind(trace_.name_of(kernel));
      if (kernel.bytes > 0 && collective.kind == CollectiveKind::SendReceive) {
        collective.bytes = Bytes(kernel.bytes);
      }
    }
    if (const auto group = trace_.groups.find(collective.group);
        collective.members.empty() && group != trace_.groups.end()) {
      collective.members = group->second;
    }
    if (collective.dtype.empty()) collective.dtype = dtype_of_kernel(trace_.name_of(kernel));
    const std::int64_t size = element_size(collective.dtype);
    if (size == 0) return;
    if (collective.elements) {
      collective.bytes = Bytes(*collective.elements * size);
    } else if (collective.bytes) {
      collective.elements = collective.bytes->count() / size;
    }
  }

  // What NCCL's own range says. PyTorch's all-to-all is sends and receives to it, so that its kind comes last.
  CollectiveKind take_library(TracedCollective& collective, std::int32_t args_number) {
    const CollectiveArgs& args = trace_.collectives[static_cast<std::size_t>(args_number)];
    if (args.bytes && *args.bytes > 0) collective.bytes = Bytes(*args.bytes);
    if (!collective.group_size) collective.group_size = args.group_size;
    if (collective.group.empty()) collective.group = args.group;
    const Message told = message_of(args.kind);
    if (told.direction != Direction::None) {
      collective.message.direction = told.direction;
      in_group_ = told.direction == Direction::Send ? args.destination : args.source;
    }
    return collective_kind(args.kind);
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
    if (collective.members.empty()) collective.members = args.ranks;
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

  const Recording& trace_;
  RankTimeline& line_;
  std::optional<std::int64_t> in_group_;  // who a message is to or from, of what is described
  std::unordered_map<std::int64_t, std::int32_t> by_external_id_;
};

}  // namespace

CollectiveKind collective_kind(std::string_view text) {
  std::string word;
  for (const char c : in_lower_case(text)) {
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
    case CollectiveKind::Barrier:
      return "barrier";
    case CollectiveKind::Unknown:
      break;
  }
  return "collective";
}

std::int64_t element_size(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 24> kSizes = {
      {{"float", 4},   {"float32", 4},   {"int", 4},           {"int32", 4},
       {"uint32", 4},  {"double", 8},    {"float64", 8},       {"long", 8},
       {"int64", 8},   {"uint64", 8},    {"long int", 8},      {"half", 2},
       {"float16", 2}, {"c10::half", 2}, {"bfloat16", 2},      {"c10::bfloat16", 2},
       {"short", 2},   {"char", 1},      {"byte", 1},          {"int8", 1},
       {"uint8", 1},   {"bool", 1},      {"unsigned char", 1}, {"signed char", 1}}};
  const std::string word = in_lower_case(dtype);
  for (const auto& [name, size] : kSizes) {
    if (word == name) return size;
  }
  return contains(word, "float8") ? 1 : 0;
}

void describe_collectives(const Recording& trace, RankTimeline& line) {
  Describer(trace, line).describe_all();
}

}  // namespace dovetail::imports
