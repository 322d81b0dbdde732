// Sizes of buckets, and look-ups in a ScheduledProgram.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

std::string_view to_string(ScaleAt scale) {
  switch (scale) {
    case ScaleAt::Collective:
      return "collective";
    case ScaleAt::BeforeCollective:
      return "before-collective";
    case ScaleAt::AfterCollective:
      return "after-collective";
    case ScaleAt::LossGradient:
      return "loss-gradient";
    case ScaleAt::Optimizer:
      return "optimizer";
  }
  return "?";
}

std::string_view to_string(SyncPoint sync) {
  switch (sync) {
    case SyncPoint::EveryMicroStep:
      return "every";
    case SyncPoint::AfterLastMicroStep:
      return "after";
    case SyncPoint::LastMicroStep:
      return "last";
  }
  return "?";
}

std::string_view to_string(ParameterSync sync) {
  switch (sync) {
    case ParameterSync::AfterUpdate:
      return "after-update";
    case ParameterSync::NextForward:
      return "next-forward";
    case ParameterSync::EachUse:
      return "each-use";
  }
  return "?";
}

std::string_view to_string(GatherFor readers) {
  switch (readers) {
    case GatherFor::Forward:
      return "forward";
    case GatherFor::Backward:
      return "backward";
    case GatherFor::ForwardAndBackward:
      return "forward-and-backward";
  }
  return "?";
}

std::string_view to_string(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::Sequential:
      return "sequential";
    case PipelineKind::OneFOneB:
      return "1f1b";
    case PipelineKind::Interleaved:
      return "interleaved";
  }
  return "?";
}

std::string_view to_string(LaunchAlignment alignment) {
  return alignment == LaunchAlignment::PerStage ? "per-stage" : "across-stages";
}

std::string_view to_string(BucketMode mode) { return mode == BucketMode::View ? "view" : "copy"; }

std::string_view to_string(WaitPoint wait) {
  switch (wait) {
    case WaitPoint::EndOfBackward:
      return "end-of-backward";
    case WaitPoint::FirstUse:
      return "first-use";
    case WaitPoint::BeforeNextBatch:
      return "before-next-batch";
  }
  return "?";
}

std::string_view to_string(WaitScope scope) {
  return scope == WaitScope::Event ? "event" : "whole-stream";
}

Bytes payload(const Program& program, const Bucket& bucket) {
  Bytes sum;
  for (const Slice& slice : bucket.gradients) {
    const Tensor& tensor = program.tensor(slice.tensor);
    sum += element_size(tensor.dtype) * slice.elements(tensor);
  }
  return sum;
}

const BucketLayout& ScheduledProgram::bucket(BucketId id) const {
  const auto found = std::ranges::find(buckets, id, &BucketLayout::bucket);
  DOVETAIL_CHECK(found != buckets.end()) << "no bucket " << id;
  return *found;
}

const Transfer& ScheduledProgram::transfer(const Command& command) const {
  DOVETAIL_CHECK(command.transfer.has_value())
      << "command " << command.id << " has no transfer: link_transfers was not called";
  return transfers[static_cast<std::size_t>(command.transfer->value)];
}

}  // namespace dovetail::schedule
