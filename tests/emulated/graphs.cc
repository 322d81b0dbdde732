// The emulated runtime: capture and graphs.
//
// Source of rules: CUDA C++ Programming Guide, Graphs ("Guide"); CUDA Runtime API reference 13.0,
// Stream Management and Graph Management ("Runtime API").
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/control.h"
#include "tests/emulated/runtime.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

namespace dovetail::emulated {
namespace {

thread_local std::vector<std::shared_ptr<Capture>> t_captures;  // that this thread began

// The nodes from which the origin's last ones can be reached.
std::set<std::size_t> joined_nodes(const Capture& capture) {
  std::vector<std::size_t> open = capture.origin->tail;
  std::set<std::size_t> joined(open.begin(), open.end());
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    for (const std::size_t before : capture.graph->nodes[node].after) {
      if (joined.insert(before).second) open.push_back(before);
    }
  }
  return joined;
}

// All streams leave; cudaErrorStreamCaptureUnjoined where one of them had not been waited for.
cudaError_t dissolve(Capture& capture) {
  const std::set<std::size_t> joined = joined_nodes(capture);
  cudaError_t result = cudaSuccess;
  for (const cudaStream_t member : capture.members) {
    for (const std::size_t node : member->tail) {
      if (joined.count(node) == 0) result = cudaErrorStreamCaptureUnjoined;
    }
    member->tail.clear();
    if (member != capture.origin) member->capture = nullptr;
  }
  capture.origin->capture = nullptr;
  capture.is_ended = true;
  return result;
}

// One launch of a graph: what its nodes became.
struct Launched {
  std::vector<TaskRef> tasks;
  std::vector<Clock> clocks;
  Clock end;
  bool is_admitted = true;
};

void launch_node(GraphBody& graph, std::size_t index, const CUstream_st& stream, Launched& all) {
  Machine& machine = Machine::instance();
  const Node& node = graph.nodes[index];
  const std::size_t lane = graph.lanes[node.stream];
  Clock clock = stream.clock;
  std::vector<TaskRef> after = {stream.last, graph.last};
  for (const std::size_t before : node.after) {
    merge(clock, all.clocks[before]);
    after.push_back(all.tasks[before]);
  }
  machine.races.tick(lane, clock);
  const bool is_admitted = admit(node.work, stream.device, lane, clock);
  all.is_admitted = all.is_admitted && is_admitted;
  // Work of one communicator stays in order, but a program must not count on it: not in the clock.
  if (node.work.serial != nullptr) after.push_back(node.work.serial->last);
  const TaskRef task =
      machine.submit({.device = stream.device,
                      .lane = lane,
                      .run = is_admitted && node.work.begin ? node.work.begin() : Run(),
                      .after = std::move(after)});
  if (node.work.serial != nullptr) node.work.serial->last = task;
  if (node.records != nullptr) {
    node.records->last = task;
    node.records->clock = clock;
    node.records->capture = nullptr;
    node.records->is_recorded = true;
  }
  merge(all.end, clock);
  all.tasks.push_back(task);
  all.clocks.push_back(std::move(clock));
}

}  // namespace

GraphBody::~GraphBody() {
  for (const std::size_t lane : lanes) Machine::instance().races.end_lane(lane);
}

std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> count{0};
  thread_local const std::uint64_t number = ++count;
  return number;
}

// Runtime API, cudaThreadExchangeStreamCaptureMode: in mode ThreadLocal a thread with a capture of
// its own may not make potentially unsafe calls (allocating, synchronising, asking); such a call
// invalidates the capture.
cudaError_t unsafe_in_capture() {
  std::erase_if(t_captures, [](const auto& capture) { return capture->is_ended; });
  if (t_captures.empty()) return cudaSuccess;
  t_captures.back()->invalidated = cudaErrorStreamCaptureInvalidated;
  return cudaErrorStreamCaptureUnsupported;
}

void begin_thread_capture(const std::shared_ptr<Capture>& capture) {
  t_captures.push_back(capture);
}

}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;
using emulated::Capture;
using emulated::GraphBody;
using emulated::locked;
using emulated::Machine;
using emulated::report;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const auto lock = locked();
  // Runtime API: not on the default stream; not on one that is captured already.
  if (stream == nullptr || stream->is_default) return report(cudaErrorStreamCaptureUnsupported);
  if (stream->capture != nullptr) return report(cudaErrorIllegalState);
  if (mode != cudaStreamCaptureModeThreadLocal) {
    emulated::complain("only capture mode ThreadLocal is emulated");
  }
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->members = {stream};
  stream->capture->graph->streams = 1;
  stream->capture->thread = emulated::this_thread();
  stream->member = 0;
  stream->tail.clear();
  emulated::begin_thread_capture(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = locked();
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return report(cudaErrorIllegalState);
  // Runtime API: on the stream where capture began, by the thread that began it (but for Relaxed).
  if (capture->origin != stream) return report(cudaErrorStreamCaptureUnmatched);
  if (capture->thread != emulated::this_thread()) return report(cudaErrorStreamCaptureWrongThread);
  const cudaError_t unjoined = emulated::dissolve(*capture);
  if (capture->invalidated != cudaSuccess) return report(cudaErrorStreamCaptureInvalidated);
  if (unjoined != cudaSuccess) return report(unjoined);
  *graph = new CUgraph_st{std::move(capture->graph)};  // a C handle: cudaGraphDestroy deletes it
  return cudaSuccess;
}

// An executable graph is a copy: it lives on when the graph is destroyed.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  const auto lock = locked();
  auto body = std::make_shared<GraphBody>();
  body->nodes = graph->body->nodes;
  body->streams = graph->body->streams;
  for (std::size_t i = 0; i < body->streams; ++i) {
    body->lanes.push_back(Machine::instance().races.new_lane());
  }
  *executable = new CUgraphExec_st{std::move(body)};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const auto lock = locked();
  delete graph;
  return cudaSuccess;
}
// Runtime API: freed once its launches have ended; the engine's tasks keep it until then.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const auto lock = locked();
  delete executable;
  return cudaSuccess;
}

// Guide, Graphs: a launch is ordered in its stream; launches of one executable do not overlap.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t given) {
  const auto lock = locked();
  CUstream_st& stream = *emulated::real_stream(given);
  if (const cudaError_t broken = emulated::state_of(stream.device)) return report(broken);
  Machine& machine = Machine::instance();
  emulated::merge(stream.clock, machine.host[stream.device]);
  machine.races.tick(stream.lane, stream.clock);
  emulated::count_graph_launch();
  const std::shared_ptr<GraphBody> body = executable->body;
  emulated::Launched all;
  for (std::size_t i = 0; i < body->nodes.size(); ++i) launch_node(*body, i, stream, all);
  emulated::merge(stream.clock, all.end);
  all.tasks.push_back(stream.last);
  // The last task holds the graph, so that what it retains outlives the launch.
  stream.last = machine.submit({.device = stream.device,
                                .lane = stream.lane,
                                .run =
                                    [body] {
                                      static_cast<void>(body);
                                      return emulated::Progress::Done;
                                    },
                                .after = all.tasks});
  body->last = stream.last;
  return all.is_admitted ? cudaSuccess : report(cudaErrorIllegalAddress);
}

}  // extern "C"
