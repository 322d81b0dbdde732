// The emulated runtime: events.
//
// Source of rules: CUDA Runtime API reference 13.0, Event Management; CUDA C++ Programming Guide,
// Graphs ("Guide").
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/control.h"
#include "tests/emulated/runtime.h"

#include <algorithm>
#include <utility>

namespace dovetail::emulated {
namespace {

// An edge of the graph for those who wait; no work of its own.
void capture_record(CUstream_st& stream, EventState& event) {
  event.capture = stream.capture;
  event.nodes = stream.tail;
  event.is_recorded = true;
}

void record(CUstream_st& stream, EventState& event) {
  Machine& machine = Machine::instance();
  merge(stream.clock, machine.host[stream.device]);
  machine.races.tick(stream.lane, stream.clock);
  stream.last =
      machine.submit({.device = stream.device, .lane = stream.lane, .after = {stream.last}});
  event.last = stream.last;
  event.clock = stream.clock;
  event.capture = nullptr;
  event.is_recorded = true;
}

// Guide, Cross-stream Dependencies and Events: waiting for a captured event draws the stream into
// the capture; a captured stream cannot wait for what was not captured, nor for another capture.
cudaError_t wait_captured(CUstream_st& stream, const EventState& event) {
  const std::shared_ptr<Capture>& capture = event.capture;
  if (capture == nullptr || capture->is_ended ||
      (stream.capture != nullptr && stream.capture != capture)) {
    if (stream.capture != nullptr) stream.capture->invalidated = cudaErrorStreamCaptureIsolation;
    return report(cudaErrorStreamCaptureIsolation);
  }
  if (stream.capture == nullptr) {
    stream.capture = capture;
    stream.member = capture->members.size();
    stream.tail.clear();
    capture->members.push_back(&stream);
    ++capture->graph->streams;
  }
  stream.tail.insert(stream.tail.end(), event.nodes.begin(), event.nodes.end());
  std::ranges::sort(stream.tail);
  stream.tail.erase(std::unique(stream.tail.begin(), stream.tail.end()), stream.tail.end());
  return cudaSuccess;
}

}  // namespace
}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;
using emulated::locked;
using emulated::Machine;
using emulated::report;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto* made = new CUevent_st;  // a C handle: cudaEventDestroy deletes it
  made->state = std::make_shared<emulated::EventState>();
  made->state->device = emulated::current_device();
  made->state->has_time = (flags & cudaEventDisableTiming) == 0;
  *event = made;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto lock = locked();
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t given, unsigned flags) {
  const auto lock = locked();
  CUstream_st& stream = *emulated::real_stream(given);
  // Guide, Stream and Event Behavior: event and stream belong to one device.
  if (event->state->device != stream.device) return report(cudaErrorInvalidResourceHandle);
  if (const cudaError_t broken = emulated::state_of(stream.device)) return report(broken);
  const bool is_external = (flags & cudaEventRecordExternal) != 0;
  // Event Management: cudaEventRecordExternal is only for a stream that is captured.
  if (is_external && stream.capture == nullptr) return report(cudaErrorInvalidValue);
  if (stream.capture == nullptr) {
    emulated::record(stream, *event->state);
  } else if (is_external) {
    emulated::Node node;
    node.work.name = "event record";
    node.after = stream.tail;
    node.stream = stream.member;
    node.records = event->state;
    stream.capture->graph->nodes.push_back(std::move(node));
    stream.tail = {stream.capture->graph->nodes.size() - 1};
  } else {
    emulated::capture_record(stream, *event->state);
  }
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

// Event Management: an event that was never recorded orders nothing.
cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned) {
  const auto lock = locked();
  if (emulated::is_wait_dropped()) return cudaSuccess;
  CUstream_st& stream = *emulated::real_stream(given);
  const emulated::EventState& state = *event->state;
  if (stream.capture != nullptr || (state.capture != nullptr && !state.capture->is_ended)) {
    return emulated::wait_captured(stream, state);
  }
  if (!state.is_recorded || state.capture != nullptr) {
    emulated::complain(
        "a stream waits for an event that was never recorded, or only in a capture: "
        "it orders nothing");
    return cudaSuccess;
  }
  Machine& machine = Machine::instance();
  emulated::merge(stream.clock, state.clock);
  machine.races.tick(stream.lane, stream.clock);
  stream.last = machine.submit(
      {.device = stream.device, .lane = stream.lane, .after = {stream.last, state.last}});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  auto lock = locked();
  if (const cudaError_t refused = emulated::unsafe_in_capture()) return report(refused);
  const std::shared_ptr<emulated::EventState> state = event->state;
  // Guide, Prohibited and Unhandled Operations: a captured event cannot be asked.
  if (state->capture != nullptr) return report(cudaErrorCapturedEvent);
  if (const cudaError_t broken = emulated::state_of(state->device)) return report(broken);
  const emulated::TaskRef last = state->last;
  if (!Machine::instance().is_done_soon(lock, last)) return cudaErrorNotReady;
  emulated::merge(Machine::instance().host[state->device], state->clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const auto lock = locked();
  for (const cudaEvent_t event : {from, to}) {
    const emulated::EventState& state = *event->state;
    if (!state.has_time || !state.is_recorded || state.last == nullptr) {
      return report(cudaErrorInvalidResourceHandle);
    }
    if (!Machine::instance().is_done(state.last)) return report(cudaErrorNotReady);
  }
  const std::int64_t ns = to->state->last->done_ns - from->state->last->done_ns;
  *milliseconds = static_cast<float>(static_cast<double>(ns) / 1e6);
  return cudaSuccess;
}

}  // extern "C"
