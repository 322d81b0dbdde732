// One pass over each step in issue order: which compute waits for which collective, and behind which compute that collective
// was started.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/serial_waits.h"

#include <algorithm>
#include <set>

namespace dovetail::diagnose {
namespace {

constexpr std::int64_t kNoLag = -1'000'000'000'000'000;  // an edge that never holds anything up

class Finder {
 public:
  Finder(const RankTrace& rank, const RecordedGraph& recorded,
         const std::vector<TracedBuckets>& buckets)
      : rank_(rank),
        recorded_(recorded),
        has_gathers_(std::ranges::any_of(rank.line.collectives, [](const TracedCollective& c) {
          return c.kind == CollectiveKind::AllGather;
        })) {
    for (const TracedBuckets& step : buckets) {
      std::optional<step::NodeId> last;
      for (std::size_t b = 0; b < step.buckets.size(); ++b) {
        const TracedBucket& bucket = step.buckets[b];
        const bool is_last = b + 1 == step.buckets.size();
        if (bucket.collective != kNone && !is_last) early_buckets_.insert(bucket.collective);
        for (const TracedGradient& gradient : bucket.gradients) {
          if (gradient.work == kNone) continue;
          last = std::max(last, recorded.node_of_work[static_cast<std::size_t>(gradient.work)]);
        }
      }
      last_gradient_.push_back(last);
    }
  }

  std::vector<SerialWait> find() {
    for (std::size_t s = 0; s < recorded_.steps.size(); ++s) {
      const RecordedGraph::Step& step = recorded_.steps[s];
      in_step_ = step;
      last_backward_ = last_gradient_[s];
      computes_.clear();
      layer_.reset();
      update_ = false;
      for (step::NodeId node = step.begin; node <= step.end; ++node) visit(node);
    }
    return std::move(found_);
  }

 private:
  [[nodiscard]] const GpuWork& work_of(step::NodeId node) const {
    return rank_.line.works[static_cast<std::size_t>(recorded_.origin_of(node).index)];
  }
  [[nodiscard]] bool is_compute(step::NodeId node) const {
    return recorded_.is_gpu_work(node) && !recorded_.communicates(node) && !work_of(node).is_aside;
  }
  [[nodiscard]] CollectiveKind kind_of(std::int32_t collective) const {
    return rank_.line.collectives[static_cast<std::size_t>(collective)].kind;
  }
  [[nodiscard]] bool launched_in(step::NodeId node, Is kind) const {
    const GpuWork& work = work_of(node);
    if (work.launch == kNone) return false;
    const HostCall& call = rank_.line.calls[static_cast<std::size_t>(work.launch)];
    return imports::enclosing(rank_.trace, rank_.line,
                              rank_.line.parent[static_cast<std::size_t>(call.event)],
                              kind) != kNone;
  }

  void visit(step::NodeId node) {
    const bool returns = recorded_.origin_of(node).kind == Origin::Kind::Return;
    if (!is_compute(node) && !returns) return;
    const auto [begin, end] = recorded_.graph.edges_of(node);
    for (std::size_t k = begin; k < end; ++k) {
      const step::Edge edge = recorded_.graph.edge(k);
      const bool waits =
          edge.kind == step::EdgeKind::Event || edge.kind == step::EdgeKind::Synchronise;
      if (!waits || !recorded_.communicates(edge.from) || edge.from < in_step_.begin) continue;
      const std::int32_t collective = work_of(edge.from).collective;
      if (early_buckets_.contains(collective)) {
        if (last_backward_ && node <= *last_backward_) {
          found_.push_back({SerialWait::Kind::Reduction, collective, node, {k}, std::nullopt});
        }
      } else if (!returns && !update_ && kind_of(collective) == CollectiveKind::AllGather) {
        add_gather(node, edge.from, collective);
        layer_ = computes_.size();
      }
    }
    if (returns) return;
    update_ = update_ || (has_gathers_ && launched_in(node, Is::OptimizerStep));
    computes_.push_back(node);
  }

  // Of what the gather started behind: compute of the layer before the waiting one, and collectives that are no gather and
  // were issued since.
  void add_gather(step::NodeId waiting, step::NodeId gather, std::int32_t collective) {
    if (!layer_ || *layer_ >= computes_.size()) return;
    const step::NodeId first = computes_[*layer_];  // of the layer before
    SerialWait wait{SerialWait::Kind::Gather, collective, waiting, {}, std::nullopt};
    if (*layer_ > 0) wait.instead = computes_[*layer_ - 1];
    const auto [begin, end] = recorded_.graph.edges_of(gather);
    for (std::size_t k = begin; k < end; ++k) {
      const step::Edge edge = recorded_.graph.edge(k);
      if (edge.from < first || !recorded_.is_gpu_work(edge.from)) continue;
      const bool gathers = recorded_.communicates(edge.from) &&
                           kind_of(work_of(edge.from).collective) == CollectiveKind::AllGather;
      if (!gathers) wait.edges.push_back(k);
    }
    if (!wait.edges.empty()) found_.push_back(std::move(wait));
  }

  const RankTrace& rank_;
  const RecordedGraph& recorded_;
  bool has_gathers_ = false;
  std::set<std::int32_t> early_buckets_;                    // all but the last of each step
  std::vector<std::optional<step::NodeId>> last_gradient_;  // by step
  RecordedGraph::Step in_step_;
  std::optional<step::NodeId> last_backward_;  // that makes a gradient
  std::vector<step::NodeId> computes_;         // of the step so far
  std::optional<std::size_t> layer_;  // in computes_: the first that waited for the gather before
  bool update_ = false;               // the update has begun
  std::vector<SerialWait> found_;
};

}  // namespace

std::vector<SerialWait> serial_waits(const RankTrace& rank, const RecordedGraph& recorded,
                                     const std::vector<TracedBuckets>& buckets) {
  return Finder(rank, recorded, buckets).find();
}

void take_away(RecordedGraph& recorded, const std::vector<SerialWait>& waits,
               SerialWait::Kind kind) {
  step::StepGraph& graph = recorded.graph;
  if (graph.lag.empty()) graph.lag.resize(graph.predecessors.size());
  for (const SerialWait& wait : waits) {
    if (wait.kind != kind) continue;
    for (const std::size_t edge : wait.edges) {
      const bool moves = wait.instead && graph.edge_kind[edge] == step::EdgeKind::Event;
      if (moves) {
        graph.predecessors[edge] = *wait.instead;
      } else {
        graph.lag[edge] = kNoLag;
      }
    }
  }
}

}  // namespace dovetail::diagnose
