// Times commands with CUDA events around them and maps the elapsed times to the host's clock.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/timing.h"

#include "exec/clock.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace dovetail::exec::cuda {
namespace {

constexpr std::size_t kAnchorSamples = 4;
constexpr std::size_t kEmptyPairs = 64;
constexpr auto kHeadStart = std::chrono::milliseconds(2);  // to enqueue all of them

float elapsed_ms(const Event& from, const Event& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace

bool is_done(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) {
    // Not an error. Where a runtime keeps it as the last one (13.0 on an H100 does not), the next launch would report
    // it as its own.
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(state, "cudaEventQuery");
  return true;
}

StepTimer::StepTimer(cudaStream_t stream, Watch& watch) {
  for (std::size_t i = 0; i < kAnchorSamples; ++i)
    anchors_.push_back(make_event(EventKind::Timing));
  std::vector<Event> starts;
  std::vector<Event> ends;
  for (std::size_t i = 0; i < kEmptyPairs; ++i) {
    starts.push_back(make_event(EventKind::Timing));
    ends.push_back(make_event(EventKind::Timing));
  }
  // On an idle stream the pairs would tell how fast the host records, not what the device takes.
  check(cudaLaunchHostFunc(
            stream, [](void*) { std::this_thread::sleep_for(kHeadStart); }, nullptr),
        "cudaLaunchHostFunc");
  for (std::size_t i = 0; i < kEmptyPairs; ++i) {
    check(cudaEventRecord(starts[i].get(), stream), "cudaEventRecord");
    check(cudaEventRecord(ends[i].get(), stream), "cudaEventRecord");
  }
  watch.wait([&] { return is_done(ends.back().get()); },
             [] { return std::string("measuring empty pairs of events"); }, Pace::Sleep);
  std::vector<float> times;
  for (std::size_t i = 0; i < kEmptyPairs; ++i) times.push_back(elapsed_ms(starts[i], ends[i]));
  empty_pair_ns_ = median_ns(std::move(times));
}

void StepTimer::anchor(cudaStream_t stream, Watch& watch) {
  const auto doing = [] { return std::string("the preparation of a step"); };
  std::vector<AnchorSample> samples;
  for (const Event& event : anchors_) {
    AnchorSample sample;
    sample.before_ns = now_ns();
    check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
    watch.wait([&] { return is_done(event.get()); }, doing, Pace::Spin);
    sample.after_ns = now_ns();
    samples.push_back(sample);
  }
  anchor_ = best_anchor(samples);
}

void StepTimer::restart(Recording recording) {
  recording_ = recording;
  used_ = 0;
  spans_.clear();
}

std::size_t StepTimer::record(cudaStream_t stream) {
  if (used_ == events_.size()) events_.push_back(make_event(EventKind::Timing));
  // External: a node that really records, instead of a mere edge between captured nodes.
  const unsigned flags =
      recording_ == Recording::Captured ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(cudaEventRecordWithFlags(events_[used_].get(), stream, flags), "cudaEventRecordWithFlags");
  return used_++;
}

std::size_t StepTimer::begin(CommandId command, StreamId id, cudaStream_t stream) {
  const std::size_t start = record(stream);
  spans_.push_back({.command = command, .stream = id, .start = start, .end = start});
  return spans_.size() - 1;
}

void StepTimer::end(std::size_t span, cudaStream_t stream) { spans_[span].end = record(stream); }

std::vector<Timing> StepTimer::read(std::int32_t step) const {
  std::vector<Timing> timings;
  timings.reserve(spans_.size());
  const Event& zero = anchors_[anchor_.sample];
  for (const Span& span : spans_) {
    const DeviceSpan on_device = {.start_ms = elapsed_ms(zero, events_[span.start]),
                                  .end_ms = elapsed_ms(zero, events_[span.end])};
    const HostSpan on_host = to_host(on_device, anchor_, empty_pair_ns_);
    timings.push_back({.command = span.command,
                       .stream = span.stream,
                       .step = step,
                       .start_ns = on_host.start_ns,
                       .end_ns = on_host.end_ns});
  }
  return timings;
}

std::optional<CommandId> StepTimer::unfinished() const {
  for (const Span& span : spans_) {
    if (is_done(events_[span.start].get()) && !is_done(events_[span.end].get())) {
      return span.command;
    }
  }
  return std::nullopt;
}

}  // namespace dovetail::exec::cuda
