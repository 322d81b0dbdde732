// Editing replays.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/what_if.h"

#include <algorithm>
#include <map>

namespace dovetail::diagnose {
namespace {

Duration scaled(Duration time, Bytes bytes, Bytes of) {
  const double ns = static_cast<double>(time.count()) * static_cast<double>(bytes.count()) /
                    static_cast<double>(of.count());
  return std::min(from_ns(ns), kLongestTime);
}

// Nothing of none.
Duration quartile(std::vector<Duration> costs, BucketCall which) {
  if (costs.empty()) return {};
  std::ranges::sort(costs);
  const std::size_t quarters = static_cast<std::size_t>(which) + 1;
  return costs[std::min(costs.size() - 1, costs.size() * quarters / 4)];
}

// Replaces the buckets of one model.
class Regrouping {
 public:
  Regrouping(const RankTrace& rank, const ReplayModel& model,
             const std::vector<TracedBuckets>& buckets, const std::vector<std::size_t>& ends,
             const AllReduceCost& cost, RegroupOptions options)
      : rank_(rank), old_(model), ends_(ends), cost_(cost), options_(options) {
    removed_.assign(model.nodes.size(), 0);
    inserted_.resize(model.nodes.size() + 1);
    bucket_of_.assign(model.nodes.size(), {kNone, kNone});
    for (std::size_t s = 0; s < buckets.size(); ++s)
      plan_step(static_cast<std::int32_t>(s), buckets[s]);
  }

  ReplayModel build() {
    const Duration host_cost = quartile(host_costs_, options_.bucket_call);
    new_ = old_;
    new_.nodes.clear();
    number_.assign(old_.nodes.size(), kNone);
    for (std::size_t i = 0; i <= old_.nodes.size(); ++i) {
      for (const Insertion& insertion : inserted_[i]) insert(insertion, host_cost);
      if (i < old_.nodes.size() && removed_[i] == 0) copy(i);
    }
    for (std::int32_t& node : new_.node_of_work) node = renumbered(node);
    for (std::int32_t& node : new_.node_of_call) node = renumbered(node);
    for (ReplayStep& step : new_.steps) {
      step.begin = renumbered(step.begin);
      step.end = renumbered(step.end);
    }
    return std::move(new_);
  }

 private:
  struct Insertion {
    std::int32_t step = 0, bucket = 0;  // of the new grouping
    std::int32_t gradient_node = kNone;
    std::int32_t like = kNone;  // an old collective: its stream and latency
    Bytes bytes;
  };

  [[nodiscard]] std::int32_t renumbered(std::int32_t node) const {
    return node == kNone ? kNone : number_[static_cast<std::size_t>(node)];
  }

  // Of its collective; kNone: launched after the last step.
  [[nodiscard]] std::int32_t node_of(const TracedBucket& bucket) const {
    const TracedCollective& collective =
        rank_.line.collectives[static_cast<std::size_t>(bucket.collective)];
    return old_.node_of_work[static_cast<std::size_t>(collective.work)];
  }

  void plan_step(std::int32_t s, const TracedBuckets& step) {
    std::vector<std::int32_t> node;  // of each gradient
    std::vector<Bytes> bytes;
    std::vector<std::size_t> old_ends;
    std::map<std::size_t, std::size_t> place_of_end;  // gradient end -> place of the old launch
    std::int32_t like = kNone;
    for (const TracedBucket& bucket : step.buckets) {
      if (bucket.collective == kNone) return;
      for (const TracedGradient& gradient : bucket.gradients) {
        if (gradient.work == kNone) return;
        node.push_back(old_.node_of_work[static_cast<std::size_t>(gradient.work)]);
        bytes.push_back(bucket.element_size * gradient.elements);
        if (node.back() == kNone) return;
      }
      if (node_of(bucket) == kNone) return;
      old_ends.push_back(node.size());
    }
    if (node.empty() || ends_.empty() || node.size() != ends_.back()) return;
    std::int32_t b = 0;
    for (const TracedBucket& bucket : step.buckets) {
      place_of_end[old_ends[static_cast<std::size_t>(b)]] = remove(bucket, s, b, like);
      ++b;
    }
    old_ends_[s] = old_ends;
    std::size_t from = 0;
    for (std::size_t e = 0; e < ends_.size(); ++e) {
      Insertion insertion{s, static_cast<std::int32_t>(e), node[ends_[e] - 1], like, {}};
      for (; from < ends_[e]; ++from) insertion.bytes += bytes[from];
      const auto same = place_of_end.find(ends_[e]);
      // Behind its gradient also where a trace that lacks launches shows it the other way round.
      std::size_t place = static_cast<std::size_t>(insertion.gradient_node) + 1;
      if (same != place_of_end.end()) place = std::max(place, same->second);
      inserted_[place].push_back(insertion);
    }
  }

  // Takes the launch of a bucket out; where it stood.
  std::size_t remove(const TracedBucket& bucket, std::int32_t s, std::int32_t number,
                     std::int32_t& like) {
    const std::int32_t gpu = node_of(bucket);
    like = gpu;
    removed_[static_cast<std::size_t>(gpu)] = 1;
    bucket_of_[static_cast<std::size_t>(gpu)] = {s, number};
    const TraceEvent& op = rank_.trace.events[static_cast<std::size_t>(bucket.call)];
    std::size_t place = static_cast<std::size_t>(gpu);
    Duration cost{};
    // The calls inside the operator stand around the launch.
    const auto inside = [&](const ReplayNode& node) {
      if (node.kind != ReplayNode::Kind::Host || node.call == kNone) return false;
      const HostCall& call = rank_.line.calls[static_cast<std::size_t>(node.call)];
      const std::int64_t at = rank_.line.origin_ns + call.start.time_since_epoch().count();
      return call.thread == op.thread && at >= op.start_ns && at < op.end_ns();
    };
    const auto take = [&](std::size_t i) {
      cost += old_.nodes[i].gap + old_.nodes[i].duration;
      removed_[i] = 1;
      place = std::min(place, i);
    };
    for (std::size_t i = static_cast<std::size_t>(gpu); i-- > 0 && inside(old_.nodes[i]);) take(i);
    for (std::size_t i = static_cast<std::size_t>(gpu) + 1;
         i < old_.nodes.size() && inside(old_.nodes[i]); ++i) {
      take(i);
    }
    host_costs_.push_back(cost);
    return place;
  }

  void insert(const Insertion& insertion, Duration host_cost) {
    ReplayNode host;
    host.duration = host_cost;
    new_.nodes.push_back(host);
    ReplayNode gpu;
    if (insertion.like != kNone) gpu = old_.nodes[static_cast<std::size_t>(insertion.like)];
    gpu.duration = cost_.time(insertion.bytes);
    gpu.lag = {};
    gpu.launch = static_cast<std::int32_t>(new_.nodes.size()) - 1;
    gpu.work = kNone;
    gpu.step = insertion.step;
    gpu.waits = {renumbered(insertion.gradient_node)};
    const auto before = made_.find({insertion.step, insertion.bucket - 1});
    if (options_.in_flight == InFlight::One && before != made_.end()) {
      held_by_ = before->second;
      held_stream_ = old_.nodes[static_cast<std::size_t>(insertion.gradient_node)].stream;
    }
    made_[{insertion.step, insertion.bucket}] = static_cast<std::int32_t>(new_.nodes.size());
    new_.nodes.push_back(std::move(gpu));
  }

  void copy(std::size_t i) {
    ReplayNode node = old_.nodes[i];
    std::vector<std::int32_t> waits;
    for (const std::int32_t wait : node.waits) {
      const auto [s, bucket] = bucket_of_[static_cast<std::size_t>(wait)];
      if (bucket == kNone) {
        waits.push_back(renumbered(wait));
      } else {
        add_waits(waits, s, bucket);
      }
    }
    std::erase(waits, kNone);
    if (held_by_ != kNone && node.kind == ReplayNode::Kind::Gpu && node.stream == held_stream_) {
      waits.push_back(held_by_);
      held_by_ = kNone;
    }
    node.waits = std::move(waits);
    if (node.kind == ReplayNode::Kind::Gpu) node.launch = renumbered(node.launch);
    number_[i] = static_cast<std::int32_t>(new_.nodes.size());
    new_.nodes.push_back(std::move(node));
  }

  // The new buckets that hold gradients of an old one, as far as they are launched already.
  void add_waits(std::vector<std::int32_t>& waits, std::int32_t s, std::int32_t bucket) {
    const std::vector<std::size_t>& old_ends = old_ends_.at(s);
    const auto b = static_cast<std::size_t>(bucket);
    const std::size_t from = b == 0 ? 0 : old_ends[b - 1];
    const std::size_t to = old_ends[b];
    std::size_t begin = 0;
    for (std::size_t e = 0; e < ends_.size(); ++e) {
      const auto made = made_.find({s, static_cast<std::int32_t>(e)});
      if (begin < to && ends_[e] > from && made != made_.end()) waits.push_back(made->second);
      begin = ends_[e];
    }
  }

  const RankTrace& rank_;
  const ReplayModel& old_;
  const std::vector<std::size_t>& ends_;
  const AllReduceCost& cost_;
  RegroupOptions options_;
  std::int32_t held_by_ = kNone;  // new node that the next work of `held_stream_` waits for
  std::int32_t held_stream_ = kNone;
  ReplayModel new_;
  std::vector<char> removed_;
  std::vector<std::vector<Insertion>> inserted_;  // before the old node of this number
  std::vector<std::pair<std::int32_t, std::int32_t>>
      bucket_of_;                                              // step and old bucket of an old node
  std::map<std::int32_t, std::vector<std::size_t>> old_ends_;  // by step
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t>
      made_;                          // step and new bucket -> node
  std::vector<std::int32_t> number_;  // new number of an old node
  std::vector<Duration> host_costs_;
};

}  // namespace

std::vector<Duration> step_times(const ReplayModel& model) {
  std::vector<Duration> times;
  for (const ReplayedStep& step : replayed_steps(model, play(model))) times.push_back(step.step);
  return times;
}

ReplayModel without_communication(ReplayModel model) {
  for (ReplayNode& node : model.nodes) {
    if (node.communicates) node.duration = {};
  }
  return model;
}

ReplayModel without_waiting(const RankTrace& rank, ReplayModel model) {
  for (ReplayNode& node : model.nodes) {
    if (!node.communicates || node.work == kNone) continue;
    const std::int32_t collective = rank.line.works[static_cast<std::size_t>(node.work)].collective;
    node.duration = std::min(node.duration, rank.transfer[static_cast<std::size_t>(collective)]);
  }
  return model;
}

ReplayModel without_host(ReplayModel model) {
  for (ReplayNode& node : model.nodes) {
    if (node.kind != ReplayNode::Kind::Host) continue;
    node.gap = {};
    node.duration = {};
  }
  return model;
}

AllReduceCost::AllReduceCost(const std::vector<std::pair<Bytes, Duration>>& points, Below below)
    : points_(points), below_(below) {
  for (std::size_t i = points_.size(); i-- > 1;) {
    points_[i - 1].second = std::min(points_[i - 1].second, points_[i].second);
  }
}

Duration AllReduceCost::time(Bytes bytes) const {
  constexpr Duration kFloor = std::chrono::microseconds(20);
  const auto& [smallest, least] = points_.front();
  const auto& [largest, most] = points_.back();
  if (bytes <= smallest) {
    if (below_ == Below::Pessimist) return least;
    return std::max(std::min(kFloor, least), scaled(least, bytes, smallest));
  }
  if (bytes >= largest) return scaled(most, bytes, largest);
  const auto after =
      std::ranges::upper_bound(points_, bytes, {}, &std::pair<Bytes, Duration>::first);
  const auto before = after - 1;
  return before->second + scaled(after->second - before->second, bytes - before->first,
                                 after->first - before->first);
}

ReplayModel with_buckets(const RankTrace& rank, const ReplayModel& model,
                         const std::vector<TracedBuckets>& buckets,
                         const std::vector<std::size_t>& ends, const AllReduceCost& cost,
                         RegroupOptions options) {
  return Regrouping(rank, model, buckets, ends, cost, options).build();
}

std::vector<std::size_t> best_bucket_ends(const std::vector<Duration>& ready,
                                          const std::vector<Bytes>& gradients,
                                          const AllReduceCost& cost, Duration per_bucket) {
  const std::size_t n = gradients.size();
  std::vector<Bytes> sum(n + 1);
  for (std::size_t i = 0; i < n; ++i) sum[i + 1] = sum[i] + gradients[i];
  std::vector<Duration> end(n + 1);
  std::vector<std::size_t> from(n + 1, 0);
  for (std::size_t j = 1; j <= n; ++j) {
    end[j] = Duration::max();
    for (std::size_t i = 0; i < j; ++i) {
      const Duration done =
          std::max(end[i], ready[j - 1]) + cost.time(sum[j] - sum[i]) + per_bucket;
      // Of equals the fewer buckets.
      if (done < end[j]) {
        end[j] = done;
        from[j] = i;
      }
    }
  }
  std::vector<std::size_t> ends;
  for (std::size_t j = n; j > 0; j = from[j]) ends.push_back(j);
  std::ranges::reverse(ends);
  return ends;
}

}  // namespace dovetail::diagnose
