// Look-ups in Costs, a random draw of all of them from their measured spreads, and Costs as text.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/costs.h"

#include "base/count.h"
#include "base/error.h"
#include "models/costs/topology.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace dovetail::models {

// An op of an earlier micro-step is a copy, NAME@0, of the one that was seen (schedule/lower/rewrite/merge.cc): the host issues it as
// that one. Where the first op was not seen none was.
Duration Costs::issue(const schedule::Op& what) const {
  if (const std::optional<Duration> known = ops.host(what)) return *known;
  const std::int64_t kernels = schedule::launches(what.work);
  if (kernels != 1) return host.op(what.phase) * kernels;
  const std::size_t at = what.name.rfind('@');
  const bool was_seen = !ops.known().empty() && ops.known().front().cost.host.has_value();
  if (at == std::string::npos || !was_seen) return host.op(what.phase);
  const std::string_view name = std::string_view(what.name).substr(0, at);
  const auto original = std::ranges::find(ops.known(), name, &KnownOp::name);
  if (original == ops.known().end()) return host.op(what.phase);
  return original->cost.host.value_or(host.op(what.phase));
}

std::optional<HostModel> recorded_host(const schedule::Program& program) {
  const bool runs_ahead =
      std::ranges::any_of(program.ops, [](const schedule::Op& op) { return op.issue.has_value(); });
  if (!runs_ahead && !program.bucket_call) return std::nullopt;
  return HostModel{.kind = runs_ahead ? HostModel::Kind::Async : HostModel::Kind::Inline,
                   .collective = program.bucket_call.value_or(Duration{})};
}

void reprice(Costs& costs, const schedule::Program& program) {
  costs.ops = OpCosts(costs.ops.model(), program);
  costs.host = recorded_host(program).value_or(costs.host);
}

Bytes without_copies(Bytes bytes, std::int64_t copies, const CollectiveKey& key) {
  if (copies <= 1) return bytes;
  const auto places = static_cast<double>(key.nodes > 1 ? key.nodes : key.ranks);
  const auto k = static_cast<double>(copies);
  const double reached = places * (1 - std::pow(1 - 1 / places, k));
  return Bytes(std::llround(static_cast<double>(bytes.count()) * reached / k));
}

std::string title_of(const CollectiveKey& key) {
  std::string title =
      std::string(to_string(key.collective)) + " over " + std::to_string(key.ranks) + " ranks";
  if (key.nodes > 0) title += " on " + counted(key.nodes, "node");
  if (key.units(1) > 1) title += " in " + counted(key.units(1), "rack");
  if (key.units(2) > 1) title += " in " + counted(key.units(2), "pod");
  return title;
}

CollectiveKey Costs::key(schedule::Collective kind, const schedule::ProcessGroup& group) const {
  return key_of(kind, group, unit_ranks);
}

const CollectiveCost* Costs::find(CollectiveKey key) const {
  for (const CollectiveCost& cost : collectives) {
    const bool fits = cost.key.ranks == key.ranks || cost.key.ranks == 0;
    if (cost.key.collective == key.collective && fits && cost.key.nodes == key.nodes &&
        cost.key.wider == key.wider)
      return &cost;
  }
  return nullptr;
}

CollectiveTime Costs::collective(schedule::Collective kind, const schedule::ProcessGroup& group,
                                 Bytes bytes) const {
  const CollectiveKey wanted = key(kind, group);
  if (const CollectiveCost* cost = find(wanted)) return cost->time.time(bytes);
  if (wanted.ranks == 1) return {};
  std::set<std::int64_t> known;
  for (const CollectiveCost& cost : collectives) known.insert(cost.key.ranks);
  std::string list;
  for (const std::int64_t ranks : known) list += (list.empty() ? "" : ", ") + std::to_string(ranks);
  throw InputError("cluster " + machine + ": no table of " + title_of(wanted) + "; " +
                   (list.empty() ? "it has no tables at all" : "it has tables for ranks: " + list));
}

Duration Costs::copy(Bytes bytes, CopyKind kind) const {
  const std::optional<CopyModel>& own = kind == CopyKind::Split ? splits : chunks;
  if (kind != CopyKind::Any && own) return own->time(bytes);
  if (!copies) {
    throw InputError("cluster " + machine +
                     ": the plan copies into buckets, but the cluster has neither a copy nor a "
                     "compute section; buckets that are views need no copy");
  }
  return copies->time(bytes);
}

Duration Costs::scale(Bytes bytes) const { return scales ? scales->time(bytes * 2) : copy(bytes); }

Contention Costs::contention(Rank rank) const {
  if (contention_by_class.empty()) return {};
  const auto index = static_cast<std::size_t>(rank.value);
  return contention_by_class[index < contention_by_class.size() ? index : 0];
}

bool Costs::has_spread() const {
  const auto op_has = [](const KnownOp& known) { return known.cost.spread.known(); };
  const auto knot_has = [](const CollectiveTable::Knot& knot) { return knot.spread.known(); };
  return std::ranges::any_of(ops.known(), op_has) ||
         std::ranges::any_of(collectives, [&](const CollectiveCost& cost) {
           return std::ranges::any_of(cost.time.knots(), knot_has);
         });
}

Costs sampled(const Costs& costs, Random& random) {
  Costs draw = costs;
  for (const KnownOp& known : costs.ops.known()) {
    if (!known.cost.spread.known()) continue;
    const double factor = known.cost.spread.draw(random);
    KnownOp drawn = known;
    for (Duration& time : drawn.cost.by_class) {
      time = stretched(time, factor);
    }
    draw.ops.set(std::move(drawn));
  }
  for (CollectiveCost& cost : draw.collectives) cost.time = cost.time.drawn(random.uniform());
  return draw;
}

namespace {

void print_ops(std::ostream& out, const Costs& costs) {
  for (const KnownOp& known : costs.ops.known()) {
    out << "  " << known.name << "  " << to_string(known.cost.kernel);
    for (const Duration time : known.cost.by_class) out << "  " << dovetail::to_string(time);
    if (known.cost.spread.known()) {
      out << "  p10 x" << known.cost.spread.p10 << " p90 x" << known.cost.spread.p90;
    }
    if (known.cost.host) out << "  issued in " << dovetail::to_string(*known.cost.host);
    out << '\n';
  }
}

void print_collectives(std::ostream& out, const Costs& costs) {
  for (const CollectiveCost& cost : costs.collectives) {
    out << "  " << to_string(cost.key.collective) << " over ";
    if (cost.key.ranks == 0) {
      out << "any number of ranks";
    } else {
      out << cost.key.ranks << " ranks";
    }
    if (cost.key.nodes > 0) out << " on " << counted(cost.key.nodes, "node");
    for (const Bytes size : {kib(64), mib(1), mib(25), mib(256)}) {
      const CollectiveTime time = cost.time.time(size);
      out << "  " << dovetail::to_string(size) << ' ' << dovetail::to_string(time.isolated);
      if (time.back_to_back != time.isolated)
        out << " (queued " << dovetail::to_string(time.back_to_back) << ')';
    }
    for (const LinkLoad& load : cost.loads) {
      out << "  loads " << costs.links[static_cast<std::size_t>(load.link)] << " x" << load.share;
    }
    out << '\n';
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Costs& costs) {
  out << "costs on " << costs.machine << ", " << costs.distinct_ranks << " distinct ranks\n";
  print_ops(out, costs);
  print_collectives(out, costs);
  for (const Contention& contention : costs.contention_by_class) {
    if (contention.none()) continue;
    if (contention.start_delay > Duration{}) {
      out << "  contention: a collective that begins beside a product waits up to "
          << dovetail::to_string(contention.start_delay) << '\n';
    }
    if (const auto& gpu = contention.multiprocessors) {
      out << "  contention: collectives hold " << gpu->ctas << " of " << gpu->count
          << " multiprocessors, all-reduces " << gpu->all_reduce_ctas << ", over several nodes "
          << gpu->network_ctas << '\n';
      continue;
    }
    out << "  contention: compute x" << contention.compute_slowdown << ", collective x"
        << contention.collective_slowdown << ", " << dovetail::to_string(contention.collective_cpu)
        << " of processor time a collective\n";
  }
  return out;
}

}  // namespace dovetail::models
