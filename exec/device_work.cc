// Adds the kernels and copies that a device ran to a measured trace: streams of their own beside
// the stream of their command, and one name per kernel of a command.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/device_work.h"

#include "base/error.h"
#include "schedule/scheduled_program.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

namespace dovetail::exec {
namespace {

using traces::CommandInfo;
using traces::Span;
using traces::Trace;

// Places the works of one trace, rank by rank.
class Placement {
 public:
  Placement(const schedule::ScheduledProgram& plan, std::int64_t origin_ns, Trace& trace)
      : origin_ns_(origin_ns), trace_(trace) {
    std::int32_t last_command = -1;
    for (const schedule::RankProgram& role : plan.roles) {
      for (const schedule::Command& command : role.commands) {
        stream_of_[command.id] = command.stream;
        last_command = std::max(last_command, command.id.value);
      }
    }
    next_command_ = last_command + 1;
    for (const schedule::Stream& stream : plan.streams) {
      next_stream_ = std::max(next_stream_, stream.id.value + 1);
      names_[stream.id] = stream.name;
    }
  }

  void add(Rank rank, std::vector<DeviceWork> works) {
    std::stable_sort(works.begin(), works.end(), [](const DeviceWork& a, const DeviceWork& b) {
      return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
    });
    std::map<StreamId, std::int64_t> busy_until;  // by stream of kernels
    for (const DeviceWork& work : works) {
      const std::int64_t start = std::max(work.start_ns, origin_ns_);
      if (work.end_ns < start) continue;
      Span span;
      span.command = named(work);
      span.rank = rank;
      span.stream = free_stream(stream_of_.at(work.command), start, busy_until);
      span.step = work.step;
      span.start = Instant(Duration(start - origin_ns_));
      span.end = Instant(Duration(work.end_ns - origin_ns_));
      busy_until[span.stream] = work.end_ns;
      trace_.spans.push_back(span);
    }
  }

  void finish() {
    std::stable_sort(trace_.spans.begin(), trace_.spans.end(), [](const Span& a, const Span& b) {
      return std::tie(a.rank, a.stream, a.start, a.end, a.command) <
             std::tie(b.rank, b.stream, b.start, b.end, b.command);
    });
  }

 private:
  // The kernel of a command, under an id of its own.
  CommandId named(const DeviceWork& work) {
    const auto [found, is_new] = kernels_.try_emplace({work.command, work.name}, CommandId{});
    if (!is_new) return found->second;
    const CommandInfo& of = trace_.command(work.command);
    CommandInfo info;
    info.id = CommandId{next_command_++};
    info.kind = traces::SpanKind::Kernel;
    info.phase = of.phase;
    info.name = work.name;
    info.bucket = of.bucket;
    found->second = info.id;
    trace_.commands.push_back(std::move(info));
    return found->second;
  }

  // The first of a stream's streams of kernels on which nothing runs any more.
  StreamId free_stream(StreamId of, std::int64_t start,
                       const std::map<StreamId, std::int64_t>& busy_until) {
    std::vector<StreamId>& lanes = lanes_[of];
    for (const StreamId lane : lanes) {
      const auto busy = busy_until.find(lane);
      if (busy == busy_until.end() || busy->second <= start) return lane;
    }
    lanes.push_back(StreamId{next_stream_++});
    const std::string number = lanes.size() > 1 ? " " + std::to_string(lanes.size()) : "";
    trace_.streams.push_back({lanes.back(), names_.at(of) + " kernels" + number});
    return lanes.back();
  }

  std::int64_t origin_ns_;
  Trace& trace_;
  std::map<CommandId, StreamId> stream_of_;
  std::map<StreamId, std::string> names_;
  std::map<StreamId, std::vector<StreamId>> lanes_;  // of kernels, by stream of commands
  std::map<std::pair<CommandId, std::string>, CommandId> kernels_;
  std::int32_t next_command_ = 0;
  std::int32_t next_stream_ = 0;
};

}  // namespace

std::string encode(std::span<const DeviceWork> works) {
  std::ostringstream text;
  for (const DeviceWork& work : works) {
    DOVETAIL_CHECK(work.name.find('\n') == std::string::npos) << work.name;
    text << work.command << ' ' << work.step << ' ' << work.start_ns << ' ' << work.end_ns << ' '
         << work.name << '\n';
  }
  return text.str();
}

std::vector<DeviceWork> decode_device_work(std::string_view bytes) {
  std::vector<DeviceWork> works;
  std::istringstream text{std::string(bytes)};
  DeviceWork work;
  while (text >> work.command.value >> work.step >> work.start_ns >> work.end_ns) {
    text.ignore(1);
    std::getline(text, work.name);
    works.push_back(work);
  }
  return works;
}

void add_device_work(const schedule::ScheduledProgram& plan,
                     std::span<const std::vector<DeviceWork>> by_rank, std::int64_t origin_ns,
                     traces::Trace& trace) {
  Placement placement(plan, origin_ns, trace);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    placement.add(Rank{static_cast<std::int32_t>(rank)}, by_rank[rank]);
  }
  placement.finish();
}

}  // namespace dovetail::exec
