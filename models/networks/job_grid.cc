// Lists what each part of a job may be, and puts the parts together.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/job_grid.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/attempt.h"

namespace dovetail::jobs {
namespace {

constexpr std::int64_t kMostMicro = 128;
constexpr std::int64_t kMostChunks = 12;

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

// Powers of two up to the most, with the job's own.
std::vector<std::int64_t> powers_of_two(std::int64_t most, std::int64_t own = 1) {
  std::vector<std::int64_t> found;
  for (std::int64_t power = 1; power <= most; power *= 2) found.push_back(power);
  if (std::ranges::find(found, own) == found.end()) found.push_back(own);
  return found;
}

// How many layers the output layer takes as long as, by FLOP.
double head_in_layers(const Job& job) {
  const Model& m = job.model;
  const double all = forward_flop_per_token(m, job.batch.sequence, true);
  const double head = 2 * static_cast<double>(m.vocabulary) * static_cast<double>(m.width);
  return head / ((all - head) / static_cast<double>(m.layers));
}

// The last stage, which has the output layer besides, gets so many layers fewer; the others share the rest.
std::vector<std::int64_t> fewer_on_last(std::int64_t layers, std::int64_t stages, double head) {
  const double share = (static_cast<double>(layers) + head) / static_cast<double>(stages);
  const std::int64_t last = std::max<std::int64_t>(0, std::llround(share - head));
  const std::int64_t rest = layers - last;
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i + 1 < stages; ++i)
    counts.push_back(rest / (stages - 1) + (i < rest % (stages - 1) ? 1 : 0));
  counts.push_back(last);
  return counts;
}

bool holds_together(Job& job) {
  return static_cast<bool>(attempt([&] { complete(job, "a job of the grid"); }));
}

// What Zero divides and when it travels.
struct Sharding {
  Zero zero = Zero::Nothing;
  bool reshard = true;
  std::int32_t prefetch = 1;
  bool overlap_gradients = true, overlap_parameters = true;
  friend bool operator==(const Sharding&, const Sharding&) = default;
};
Sharding sharding_of(const Job& job) {
  return {job.zero, job.reshard, narrow(job.prefetch), job.overlap_gradients,
          job.overlap_parameters};
}

std::vector<Sharding> shardings(const Job& job, bool divides, bool is_own) {
  std::vector<Sharding> found;
  const auto add = [&](Sharding one) {
    if (std::ranges::find(found, one) == found.end()) found.push_back(one);
  };
  if (is_own) add(sharding_of(job));
  if (divides || is_own) {
    for (const bool reshard : {true, false})
      add({.zero = Zero::Parameters, .reshard = reshard, .prefetch = narrow(job.prefetch)});
  }
  if (divides && !is_own) return found;
  Sharding own = sharding_of(job);
  for (const Zero zero : {Zero::Nothing, Zero::Optimizer, Zero::Gradients}) {
    own.zero = zero;
    own.overlap_gradients = own.overlap_parameters = true;
    add(own);
    if (zero == Zero::Nothing) continue;
    own.overlap_parameters = false;
    add(own);
    own.overlap_gradients = false;
    if (is_own) add(own);
  }
  return found;
}

}  // namespace

JobGrid::JobGrid(const Job& job) : job_(job), head_in_layers_(head_in_layers(job)) {}

void JobGrid::add_points(GridPoint degrees, bool divides) {
  const bool is_own = has_layout_;
  const Layout& own = job_.layout;
  const std::int64_t ranks = std::int64_t{degrees.dp} * degrees.dp_shard * degrees.cp * degrees.tp;
  const std::int64_t replicas = std::int64_t{degrees.dp} * degrees.dp_shard;
  const bool has_company = replicas * degrees.cp > 1;
  std::vector<Sharding> sharded = {sharding_of(job_)};
  if (!is_own && !has_company) sharded.front().zero = Zero::Nothing;
  if (has_company) sharded = shardings(job_, divides, is_own);
  std::vector<std::pair<std::int64_t, std::int64_t>> experts = {{own.ep, own.etp}};
  if (job_.model.experts) {
    for (const std::int64_t ep : powers_of_two(std::min(ranks, job_.model.experts->count))) {
      for (const std::int64_t etp : {std::int64_t{1}, std::int64_t{degrees.tp}}) {
        const std::pair one(ep, etp);
        const bool is_whole = job_.model.experts->count % ep == 0 && ranks % (ep * etp) == 0;
        if (is_whole && std::ranges::find(experts, one) == experts.end()) experts.push_back(one);
      }
    }
  }
  std::vector<std::int64_t> micros = powers_of_two(kMostMicro, job_.batch.micro);
  for (std::int64_t three = 3; three <= kMostMicro; three *= 2) {
    if (three != job_.batch.micro) micros.push_back(three);
  }
  for (const std::int64_t micro : micros) {
    if (job_.batch.global % (micro * replicas) != 0) continue;
    for (const Sharding& one : sharded) {
      for (const auto& [ep, etp] : experts) {
        GridPoint point = degrees;
        point.micro = narrow(micro);
        point.ep = narrow(ep);
        point.etp = narrow(etp);
        point.zero = one.zero;
        point.reshard = one.reshard;
        point.prefetch = one.prefetch;
        point.overlap_gradients = one.overlap_gradients;
        point.overlap_parameters = one.overlap_parameters;
        const Sharding plain = is_own ? sharding_of(job_) : Sharding{.zero = one.zero};
        point.changes = static_cast<std::int8_t>(
            (micro != job_.batch.micro ? 1 : 0) + (one != plain ? 1 : 0) +
            (ep != own.ep || etp != own.etp ? 1 : 0) + (!is_own && degrees.cp > 1 ? 1 : 0));
        points_.push_back(point);
      }
    }
  }
}

JobGrid JobGrid::beside(const Job& job) {
  JobGrid grid(job);
  grid.has_layout_ = true;
  const Layout& l = job.layout;
  grid.add_points({.tp = narrow(l.tp),
                   .cp = narrow(l.cp),
                   .pp = narrow(l.pp),
                   .dp = narrow(l.dp),
                   .dp_shard = narrow(l.dp_shard)},
                  job.zero == Zero::Parameters);
  return grid;
}

JobGrid JobGrid::over(const Job& job, std::int64_t world, std::int64_t node) {
  JobGrid grid(job);
  const std::int64_t most_cp = std::max<std::int64_t>(1, job.batch.sequence / 1024);
  for (const std::int64_t tp : powers_of_two(std::min(node, world))) {
    for (const std::int64_t pp : powers_of_two(std::min(world / tp, job.model.layers))) {
      for (const std::int64_t cp : powers_of_two(std::min(world / (tp * pp), most_cp))) {
        if (world % (tp * pp * cp) != 0) continue;
        const std::int64_t left = world / (tp * pp * cp);
        GridPoint point{.tp = narrow(tp), .cp = narrow(cp), .pp = narrow(pp), .dp = narrow(left)};
        grid.add_points(point, false);
        if (left == 1 && cp > 1) grid.add_points(point, true);
        for (std::int64_t shards = left; shards > 1 && left % shards == 0; shards /= 2) {
          point.dp_shard = narrow(shards);
          point.dp = narrow(left / shards);
          grid.add_points(point, true);
        }
      }
    }
  }
  return grid;
}

std::optional<Job> JobGrid::job_at(const GridPoint& point) const {
  Job job = job_;
  Layout& l = job.layout;
  l.tp = point.tp;
  l.cp = point.cp;
  l.pp = point.pp;
  l.dp = point.dp;
  l.dp_shard = point.dp_shard;
  l.ep = point.ep;
  l.etp = point.etp;
  l.vp = 1;
  l.order = schedule::PipelineKind::OneFOneB;
  l.layers.clear();
  job.batch.micro = point.micro;
  job.zero = point.zero;
  job.reshard = point.reshard;
  job.prefetch = point.prefetch;
  job.overlap_gradients = point.overlap_gradients;
  job.overlap_parameters = point.overlap_parameters;
  job.async_tp = false;
  job.recompute = Recompute::None;
  job.recompute_layers = 0;
  if (!holds_together(job)) return std::nullopt;
  return job;
}

std::vector<GridWay> JobGrid::ways(const Job& at_point) const {
  using Layers = GridWay::Layers;
  using schedule::PipelineKind;
  const Layout& own = job_.layout;
  const bool is_staged = at_point.layout.pp > 1;
  std::vector<GridWay> orders;
  const auto add = [&](PipelineKind order, std::int64_t vp, Layers layers) {
    GridWay way{.order = order, .vp = static_cast<std::int16_t>(vp), .layers = layers};
    Job job = with(at_point, way);
    if (!holds_together(job)) return;
    if (layers == Layers::Fewer) {
      const bool is_own = order == own.order && job.layout.layers == own.layers;
      if (is_own || in_effect(job).layout.layers.empty()) return;  // as even
    }
    const bool is_own = order == own.order && vp == own.vp &&
                        (layers == Layers::Own || (layers == Layers::Even && own.layers.empty()));
    way.changes = is_own ? 0 : 1;
    orders.push_back(way);
  };
  if (is_staged && has_layout_ && !own.layers.empty()) add(own.order, own.vp, Layers::Own);
  add(PipelineKind::OneFOneB, 1, Layers::Even);
  if (is_staged) {
    add(PipelineKind::OneFOneB, 1, Layers::Fewer);
    add(PipelineKind::ZeroBubble, 1, Layers::Even);
    add(PipelineKind::ZeroBubble, 1, Layers::Fewer);
    add(PipelineKind::ZeroBubble, 2, Layers::Even);
    add(PipelineKind::Zbv, 2, Layers::Even);
    for (std::int64_t vp = 2; vp <= std::max<std::int64_t>(kMostChunks, own.vp); ++vp) {
      const bool is_even = at_point.model.layers % (at_point.layout.pp * vp) == 0;
      if (is_even || vp == 2 || vp == own.vp) add(PipelineKind::Interleaved, vp, Layers::Even);
    }
  }
  std::vector<GridWay> found;
  for (const GridWay& order : orders) {
    for (const bool async : {false, true}) {
      if (async && at_point.layout.tp == 1) continue;
      for (const Recompute kind : kAllOf<Recompute>) {
        const bool is_own = kind == job_.recompute;
        // What a fused kernel does by itself; what torchtitan alone does.
        const bool is_selective = kind == Recompute::Selective;
        if (is_selective && job_.flash && !is_own) continue;
        if (kind == Recompute::None && job_.flash && job_.recompute == Recompute::Selective)
          continue;
        if (kind == Recompute::Op && job_.as != RunBy::Any && job_.as != RunBy::Fsdp && !is_own)
          continue;
        GridWay way = order;
        way.async_tp = async;
        way.recompute = kind;
        if (is_own) way.recompute_layers = static_cast<std::int16_t>(job_.recompute_layers);
        way.changes = static_cast<std::int8_t>(way.changes + (async != job_.async_tp ? 1 : 0) +
                                               (is_own ? 0 : 1));
        found.push_back(way);
        if (!is_own || job_.recompute_layers == 0) continue;
        way.recompute_layers = 0;
        ++way.changes;
        found.push_back(way);
      }
    }
  }
  return found;
}

Job JobGrid::with(Job at_point, const GridWay& way) const {
  Layout& l = at_point.layout;
  l.order = way.order;
  l.vp = way.vp;
  if (way.layers == GridWay::Layers::Fewer)
    l.layers = fewer_on_last(at_point.model.layers, l.pp, head_in_layers_);
  if (way.layers == GridWay::Layers::Own) l.layers = job_.layout.layers;
  // Said, where the job says others.
  if (way.layers == GridWay::Layers::Even && l.pp > 1 && !job_.layout.layers.empty())
    l.layers = layers_of_stages(at_point);
  at_point.async_tp = way.async_tp;
  at_point.recompute = way.recompute;
  // What changes nothing stays as it is said.
  at_point.recompute_layers =
      way.recompute == Recompute::Full ? way.recompute_layers : job_.recompute_layers;
  return at_point;
}

}  // namespace dovetail::jobs
