// Plays the plan's neighbours, the plan at other costs, and what others would do.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/costs/scaled_costs.h"
#include "schedule/id_table.h"
#include "search/same_kind.h"

namespace dovetail::search {
namespace {

constexpr const char* kOtherKind =
    "the search groups no plans of several micro-steps, stages or streams, of cut tensors or "
    "replicas of shards";
constexpr const char* kOwnLaunches =
    "its buckets are none of consecutive gradients that travel as soon as they are ready";

// The plan as borders among gradients in ready order.
class Borders {
 public:
  Borders(Planner& planner, const schedule::Policy& like, std::int64_t step)
      : planner_(planner),
        like_(like),
        step_(step),
        kinds_(schedule::kinds_of(planner.program(), like)),
        allowed_(schedule::borders_of(planner.program(), kinds_, like)) {
    // The plan is explained as it is, also where more is gathered than a policy would.
    if (like_.decisions.gathers) like_.decisions.gathers->limit = {};
  }

  // Whether the plan is one of these groupings.
  bool read(const schedule::Schedule& plan) {
    schedule::IdTable<TensorId, std::size_t> position(SIZE_MAX);
    for (std::size_t i = 0; i < kinds_.gradients.size(); ++i) {
      position[kinds_.gradients[i].tensor] = i;
    }
    for (const schedule::Bucket& bucket : plan.buckets) {
      std::size_t last = 0;
      std::size_t first = SIZE_MAX;
      for (const schedule::Slice& slice : bucket.gradients) {
        const std::size_t at = position.at(slice.tensor);
        if (at == SIZE_MAX) return false;
        last = std::max(last, at);
        first = std::min(first, at);
      }
      if (last - first + 1 != bucket.gradients.size()) return false;
      ends_.push_back(last + 1);
      of_end_[last + 1] = bucket.id;
    }
    std::ranges::sort(ends_);
    if (ends_.back() != kinds_.gradients.size()) return false;
    const std::optional<double> same = change(ends_);
    constexpr double kSame = 1e-3;
    return same && std::abs(*same) <= kSame;
  }

  std::vector<BucketBorders> all() {
    std::map<BucketId, BucketBorders> found;
    std::size_t begin = 0;
    for (std::size_t b = 0; b < ends_.size(); ++b) {
      BucketBorders row{.bucket = of_end_.at(ends_[b]), .gradients = ends_[b] - begin};
      for (std::size_t i = begin; i < ends_[b]; ++i) row.bytes += kinds_.gradients[i].bytes;
      add(b, begin, row);
      found.emplace(row.bucket, row);
      begin = ends_[b];
    }
    std::vector<BucketBorders> rows;
    for (auto& [bucket, row] : found) rows.push_back(row);
    return rows;
  }

 private:
  void add(std::size_t b, std::size_t begin, BucketBorders& row) {
    const std::size_t end = ends_[b];
    const auto border = std::ranges::lower_bound(allowed_, end);
    if (!std::ranges::binary_search(kinds_.ends, end)) {  // another bucket of its kind follows
      const std::size_t next = ends_[b + 1];
      row.joined = without(b);
      if (border != allowed_.begin() && *std::prev(border) > begin) {
        row.earlier = moved(b, *std::prev(border));
      }
      if (std::next(border) != allowed_.end() && *std::next(border) < next) {
        row.later = moved(b, *std::next(border));
      }
    }
    const auto middle = std::ranges::lower_bound(allowed_, begin + (end - begin + 1) / 2);
    if (*middle > begin && *middle < end) row.split = with(b, *middle);
  }

  std::optional<double> without(std::size_t b) {
    std::vector<std::size_t> ends = ends_;
    ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(b));
    return change(ends);
  }
  std::optional<double> moved(std::size_t b, std::size_t end) {
    std::vector<std::size_t> ends = ends_;
    ends[b] = end;
    return change(ends);
  }
  std::optional<double> with(std::size_t b, std::size_t end) {
    std::vector<std::size_t> ends = ends_;
    ends.insert(ends.begin() + static_cast<std::ptrdiff_t>(b), end);
    return change(ends);
  }

  std::optional<double> change(const std::vector<std::size_t>& ends) {
    const schedule::PolicyResult made = schedule::try_partition(planner_.program(), ends, like_);
    if (made.failure) return std::nullopt;
    const auto step = static_cast<double>(planner_.evaluate(made.schedule).step_ns);
    return step / static_cast<double>(step_) - 1;
  }

  Planner& planner_;
  schedule::Policy like_;
  std::int64_t step_;
  schedule::GradientKinds kinds_;
  std::vector<std::size_t> allowed_;
  std::vector<std::size_t> ends_;
  std::map<std::size_t, BucketId> of_end_;
};

Duration step_with(const schedule::Program& program, models::Costs costs,
                   const schedule::Schedule& plan) {
  return Duration(Planner(program, std::move(costs)).evaluate(plan).step_ns);
}

std::vector<Lever> levers_of(const Planner& planner, const schedule::Schedule& plan) {
  constexpr double kLess = 0.8;  // of the time
  std::vector<Lever> levers;
  const auto add = [&](std::string what, models::Costs costs) {
    levers.push_back({std::move(what), step_with(planner.program(), std::move(costs), plan)});
  };
  for (const models::CostPart part : kAllOf<models::CostPart>) {
    add(std::string(to_string(part)) + ": 20 % less time",
        models::scaled(planner.costs(), part, kLess));
  }
  models::Costs alone = planner.costs();
  const bool contends = std::ranges::any_of(
      alone.contention_by_class, [](const models::Contention& of) { return !of.none(); });
  if (contends) {
    alone.contention_by_class.clear();
    add("compute and collectives do not slow each other down", std::move(alone));
  }
  const bool copies = std::ranges::any_of(plan.buckets, [](const schedule::Bucket& bucket) {
    return bucket.mode == schedule::BucketMode::Copy;
  });
  if (copies) {
    models::Costs free = planner.costs();
    free.copies = models::CopyModel{};
    add("bucket copies cost nothing", std::move(free));
  }
  std::ranges::stable_sort(levers, {}, &Lever::step);
  return levers;
}

// What else such a job could do, each at its usual setting.
std::vector<Tried> tried_on(Planner& planner) {
  std::vector<Tried> tried;
  for (const char* text : {"no-overlap", "per-tensor", "one-bucket", "torch-ddp",
                           "exact:mode=copy,wait=end-of-backward", "exact",
                           "sharded:p=1,gather=next-forward,mode=view+exact",
                           "fsdp:blocks=layer,mode=copy,wait=end-of-backward",
                           "fsdp:mode=copy,wait=end-of-backward+exact"}) {
    const schedule::Policy policy = schedule::parse_policy(text);
    const Weighed weighed = planner.try_policy(policy);
    if (!weighed.candidate) continue;
    tried.push_back({.policy = policy,
                     .step = Duration(weighed.candidate->summary.step_ns),
                     .buckets = weighed.candidate->buckets()});
  }
  std::ranges::stable_sort(tried, {}, &Tried::step);
  return tried;
}

}  // namespace

Explanation explain(Planner& planner, const schedule::Schedule& plan) {
  Explanation found;
  found.step = Duration(planner.evaluate(plan).step_ns);
  std::optional<schedule::Policy> like = searched_like(planner.program(), plan);
  if (like && planner.refusal_of(*like)) like.reset();
  if (like) {
    Borders borders(planner, *like, found.step.count());
    if (borders.read(plan)) {
      found.buckets = borders.all();
    } else {
      found.no_borders = kOwnLaunches;
    }
    const Candidate best = planner.evaluate(*like);
    found.searched =
        Tried{.policy = *like, .step = Duration(best.summary.step_ns), .buckets = best.buckets()};
  } else {
    found.no_borders = kOtherKind;
  }
  found.levers = levers_of(planner, plan);
  if (planner.program().stages == 1 && plan.merge.micro_steps == 1) found.tried = tried_on(planner);
  if (planner.is_bounded(plan)) {
    Candidate of_plan{.spec = {}, .schedule = plan};
    of_plan.summary.step_ns = found.step.count();
    Bound bound = planner.lower_bound(of_plan);
    found.bound = bound.time;
    found.bounded_schedules = std::move(bound.schedules);
  }
  return found;
}

}  // namespace dovetail::search
