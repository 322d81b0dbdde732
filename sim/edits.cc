// Every change first keeps what was there; undo() puts it back, the last change first.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/edits.h"

#include <cmath>

#include "base/error.h"

namespace dovetail::step {
namespace {

std::int64_t scaled(std::int64_t ns, double factor) {
  return std::llround(static_cast<double>(ns) * factor);
}

}  // namespace

void Patch::keep(NodeId node) {
  const Work work = graph_.work[static_cast<std::size_t>(node)];
  times_.push_back({node, work});
  if (work.is_transfer()) transfers_.push_back(graph_.transfer(node));
  first_ = std::min(first_, node);
}

void Patch::set_time(NodeId node, std::int64_t ns) {
  DOVETAIL_CHECK(ns >= 0) << ns;
  keep(node);
  Work& work = graph_.work[static_cast<std::size_t>(node)];
  if (!work.is_transfer()) {
    work = Work::fixed(ns);
    return;
  }
  Transfer& transfer = graph_.transfers[work.index()];
  transfer.isolated = transfer.back_to_back = ns;
  transfer.latency = std::min(transfer.latency, ns);
}

void Patch::scale(NodeId node, double factor) {
  DOVETAIL_CHECK(factor >= 0) << factor;
  const Work work = graph_.work[static_cast<std::size_t>(node)];
  if (!work.is_transfer()) return set_time(node, scaled(work.ns(), factor));
  keep(node);
  Transfer& transfer = graph_.transfers[work.index()];
  for (std::int64_t* time : {&transfer.isolated, &transfer.back_to_back, &transfer.latency}) {
    *time = scaled(*time, factor);
  }
}

void Patch::scale_kind(NodeKind kind, double factor) {
  for (NodeId node = 0; node < graph_.size(); ++node) {
    if (graph_.kind[static_cast<std::size_t>(node)] == kind) scale(node, factor);
  }
}

void Patch::scale_kernels(models::KernelClass kernel, double factor) {
  for (NodeId node = 0; node < graph_.size(); ++node) {
    const auto n = static_cast<std::size_t>(node);
    if (graph_.kind[n] == NodeKind::Compute && graph_.kernel[n] == kernel) scale(node, factor);
  }
}

void Patch::scale_curve(std::int32_t curve, double factor) {
  for (std::size_t i = 0; i < graph_.transfers.size(); ++i) {
    if (graph_.transfers[i].curve == curve) scale(graph_.transfers[i].node, factor);
  }
}

void Patch::set_release(NodeId node, std::int64_t ns) {
  const auto n = static_cast<std::size_t>(node);
  if (graph_.release.empty()) graph_.release.resize(graph_.work.size(), 0);
  releases_.push_back({n, graph_.release[n]});
  graph_.release[n] = ns;
  first_ = std::min(first_, node);
}

void Patch::set_lag(NodeId node, std::size_t edge, std::int64_t ns) {
  const auto [begin, end] = graph_.edges_of(node);
  DOVETAIL_CHECK(edge >= begin && edge < end) << edge << " is no edge of node " << node;
  if (graph_.lag.empty()) graph_.lag.resize(graph_.predecessors.size(), 0);
  lags_.push_back({edge, graph_.lag[edge]});
  graph_.lag[edge] = ns;
  first_ = std::min(first_, node);
}

void Patch::undo() {
  for (auto old = times_.rbegin(); old != times_.rend(); ++old) {
    graph_.work[static_cast<std::size_t>(old->node)] = old->work;
    if (!old->work.is_transfer()) continue;
    graph_.transfers[old->work.index()] = transfers_.back();
    transfers_.pop_back();
  }
  for (auto old = releases_.rbegin(); old != releases_.rend(); ++old) {
    graph_.release[old->at] = old->value;
  }
  for (auto old = lags_.rbegin(); old != lags_.rend(); ++old) graph_.lag[old->at] = old->value;
  times_.clear();
  releases_.clear();
  lags_.clear();
  first_ = graph_.size();
}

}  // namespace dovetail::step
