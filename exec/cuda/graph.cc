// Captures a step over all streams as one CUDA graph and launches it. Streams fork from the
// compute stream by an event and join it again before the capture ends, as CUDA demands.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/graph.h"

namespace dovetail::exec::cuda {

StepGraph::StepGraph(std::span<const Stream> streams)
    : streams_(streams), fork_(make_event(EventKind::Dependency)) {
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    joins_.push_back(make_event(EventKind::Dependency));
  }
  cudaStream_t compute = streams_[0].get();
  check(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  is_capturing_ = true;
  check(cudaEventRecord(fork_.get(), compute), "cudaEventRecord");
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check(cudaStreamWaitEvent(streams_[i].get(), fork_.get(), 0), "cudaStreamWaitEvent");
  }
}

StepGraph::~StepGraph() {
  if (!is_capturing_) return;
  // An error came in between; the stream must leave capture, whatever came of it.
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(streams_[0].get(), &graph));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
}

void StepGraph::finish() {
  cudaStream_t compute = streams_[0].get();
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check(cudaEventRecord(joins_[i - 1].get(), streams_[i].get()), "cudaEventRecord");
    check(cudaStreamWaitEvent(compute, joins_[i - 1].get(), 0), "cudaStreamWaitEvent");
  }
  cudaGraph_t captured = nullptr;
  is_capturing_ = false;
  check(cudaStreamEndCapture(compute, &captured), "cudaStreamEndCapture");
  const GraphHandle graph(captured);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
        "cudaGraphInstantiate");
  executable_ = GraphExecHandle(executable);
}

void StepGraph::launch() {
  check(cudaGraphLaunch(executable_.get(), streams_[0].get()), "cudaGraphLaunch");
}

void StepGraph::release() { executable_ = GraphExecHandle(); }

}  // namespace dovetail::exec::cuda
