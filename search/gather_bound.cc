// The lines under a machine's transfers, and the sums over phases.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/gather_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/interruption.h"
#include "sim/rates.h"

namespace dovetail::search {
namespace {

double as_ns(Duration duration) { return static_cast<double>(duration.count()); }

constexpr std::array kKernels = {models::KernelClass::Gemm, models::KernelClass::Memory,
                                 models::KernelClass::Other};

// The least time of buckets of so many bytes.
struct Knot {
  double bytes = 0;
  double ns = 0;
};

// The edges of the lower convex hull that rise and begin above 0, and the steepest line through the origin.
std::vector<models::LinearPiece> lines_under(std::vector<Knot> knots) {
  std::ranges::sort(knots, [](const Knot& a, const Knot& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.ns < b.ns;
  });
  std::vector<Knot> hull;
  double slope = std::numeric_limits<double>::max();
  for (const Knot& next : knots) {
    slope = std::min(slope, next.ns / next.bytes);
    if (!hull.empty() && hull.back().bytes == next.bytes) continue;
    const auto turns_down = [&](const Knot& a, const Knot& b) {
      return (b.ns - a.ns) * (next.bytes - b.bytes) >= (next.ns - b.ns) * (b.bytes - a.bytes);
    };
    while (hull.size() > 1 && turns_down(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(next);
  }
  std::vector<models::LinearPiece> lines = {{.from = Bytes(0), .base_ns = 0, .ns_per_byte = slope}};
  const auto add = [&](double base, double rise) {
    if (base >= 0 && rise >= 0) {
      lines.push_back({.from = Bytes(0), .base_ns = base, .ns_per_byte = rise});
    }
  };
  double least = std::numeric_limits<double>::max();
  for (const Knot& knot : hull) least = std::min(least, knot.ns);
  add(least, 0);
  for (std::size_t i = 1; i < hull.size(); ++i) {
    const double rise = (hull[i].ns - hull[i - 1].ns) / (hull[i].bytes - hull[i - 1].bytes);
    add(hull[i].ns - rise * hull[i].bytes, rise);
  }
  return lines;
}

// Over all buckets that there may be, each priced by `cost`.
template <class Cost>
TravelLines travel_lines(const StepData& data, const Cost& cost) {
  TravelLines found;
  std::vector<Knot> knots;
  std::array<bool, kKernels.size()> computes{};
  for (const StepOp& op : data.ops) {
    if (!op.own) computes[static_cast<std::size_t>(op.kernel)] = true;
  }
  computes[static_cast<std::size_t>(models::KernelClass::Memory)] = true;  // of copies
  const std::size_t lanes = data.work.size() / data.ops.size();
  constexpr double kRounding = 1;  // ns
  for (std::int32_t end = 1; end <= data.count(); ++end) {
    throw_if_interrupted();
    const std::int32_t role = data.role_of[static_cast<std::size_t>(end) - 1];
    for (std::int32_t begin = end; begin-- > 0;) {
      if (data.role_of[static_cast<std::size_t>(begin)] != role) break;
      const BucketChoice choice{.begin = begin, .end = end};
      const sim::TransferCost price = cost(choice);
      const Duration least = std::min(price.time.isolated, price.time.back_to_back);
      knots.push_back({.bytes = static_cast<double>(data.payload(choice)),
                       .ns = std::max(0.0, as_ns(least) - kRounding)});
      for (std::size_t lane = 0; lane < lanes && found.left < 1; ++lane) {
        const ClockProblem::Travel travel =
            travel_beside(data.costs.contention(Rank{static_cast<std::int32_t>(lane)}), price);
        for (const models::KernelClass kernel : kKernels) {
          const auto at = static_cast<std::size_t>(kernel);
          if (computes[at]) found.left = std::max(found.left, travel.left[at]);
        }
      }
    }
  }
  found.lines = lines_under(std::move(knots));
  return found;
}

}  // namespace

double TravelLines::least_time(double bytes, double most) const {
  if (bytes <= 0) return 0;
  const double buckets = most > 0 ? std::max(1.0, std::ceil(bytes / most - 1e-9)) : 1;
  double least = 0;
  for (const models::LinearPiece& line : lines) {
    least = std::max(least, buckets * line.base_ns + line.ns_per_byte * bytes);
  }
  return least;
}

ClockProblem::Travel travel_beside(models::Contention contention, const sim::TransferCost& cost) {
  ClockProblem::Travel travel{.isolated = as_ns(cost.time.isolated),
                              .queued = as_ns(cost.time.back_to_back)};
  if (contention.none()) return travel;
  // What the processor is taken for depends on how long it lasts; its rate is rounded with it.
  const double rounding =
      contention.collective_cpu > Duration{} ? 1.0 / static_cast<double>(sim::kFullRate) : 0;
  contention.collective_cpu = {};
  sim::Taken taken;
  taken.add(contention, {.gpu = cost.gpu});
  for (const models::KernelClass kernel : kKernels) {
    const auto rate = static_cast<double>(sim::whole_rate(taken.left(kernel)));
    travel.left[static_cast<std::size_t>(kernel)] =
        std::min(1.0, rate / static_cast<double>(sim::kFullRate) + rounding);
  }
  return travel;
}

TravelLines reduction_lines(const StepData& data) {
  return travel_lines(data, [&](const BucketChoice& choice) { return data.travel(choice); });
}
TravelLines gather_lines(const StepData& data) {
  return travel_lines(data, [&](const BucketChoice& choice) { return data.gather(choice); });
}

std::vector<double> least_updates(const StepData& data, std::size_t lane) {
  const auto update = [&](std::int32_t begin, std::int32_t end) {
    const schedule::Op op = data.update_of({.begin = begin, .end = end});
    return as_ns(data.costs.op(op, Rank{static_cast<std::int32_t>(lane)}));
  };
  const std::int32_t count = data.count();
  std::vector<double> least;
  double apart = 0;
  for (std::int32_t g = count; g-- > 0;) {
    apart += update(g, g + 1);
    const double rounding = count;  // of each part
    least.push_back(std::max(0.0, std::min(apart, update(g, count)) - rounding) +
                    static_cast<double>(data.launch_gap()));
  }
  std::ranges::reverse(least);
  return least;
}

std::int64_t most_gathered(const StepData& data, std::span<const BucketChoice> choices) {
  const auto of_gradients = [&](Bytes bytes) {
    return bytes.count() / data.sharding->element * data.element;
  };
  if (data.frame.gather_limit.bytes > Bytes(0)) return of_gradients(data.frame.gather_limit.bytes);
  struct Held {
    std::int32_t from = 0, until = 0;  // places
    std::int64_t bytes = 0;
  };
  std::vector<Held> all;
  std::int32_t previous = 0;
  std::vector<std::int32_t> free(choices.size(), 0);
  for (const GatherStop& stop : gathers_of(data, choices)) {
    const BucketChoice& choice = choices[stop.bucket];
    const Uses uses = uses_of(data.sharding->steps.back(), choice, stop.readers);
    const bool backward = stop.readers == schedule::GatherFor::Backward;
    const std::int32_t asked = *(backward ? choice.gather.backward : choice.gather.forward);
    previous = std::min(std::max({asked, previous, free[stop.bucket]}), uses.first);
    free[stop.bucket] = uses.last + 1;
    all.push_back({previous, uses.last + 1, data.size(choice).count()});
  }
  std::int64_t most = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t held = all[i].bytes;
    for (std::size_t k = 0; k < i; ++k) held += all[k].until > all[i].from ? all[k].bytes : 0;
    most = std::max(most, held);
  }
  return most;
}

namespace {

class GatherPhases {
 public:
  GatherPhases(const StepData& data, const TravelLines& reductions, const TravelLines& gathers,
               const BoundKind& kind, std::size_t lane)
      : data_(data), gathers_(gathers), kind_(kind), reductions_left_(reductions.left) {
    most_ = static_cast<double>(kind.most_gathered);
    const std::size_t lanes = data.work.size() / data.ops.size();
    sums_.push_back(0);
    for (std::size_t op = 0; op < data.ops.size(); ++op) {
      const auto time = static_cast<double>(data.work[op * lanes + lane].ns());
      sums_.push_back(sums_.back() + (data.ops[op].own ? 0 : time));
    }
    updates_ = least_updates(data, lane);
    reduced_ = reductions.least_time(static_cast<double>(data.bytes_sum.back()), most_);
    last_reduced_ = std::numeric_limits<double>::max();
    for (std::int32_t begin = 0; begin < data.count(); ++begin) {
      const models::CollectiveTime time =
          data.travel({.begin = begin, .end = data.count()}).time;
      last_reduced_ = std::min(last_reduced_, as_ns(std::min(time.isolated, time.back_to_back)));
    }
    for (std::size_t i = 0; i < data.sharding->steps.size(); ++i) phases_.push_back(phase(i));
    list_reads();
  }

  // The least over all blocks that may stay: those that hold the last parameter of forward.
  [[nodiscard]] double bound() const {
    double least = with_block(0, 0, 0);
    if (!kind_.reshards) return least;
    const GatheringStep& step = data_.sharding->steps.front();
    std::int32_t last = kBeforeAllOps;
    for (const Uses& uses : step.forward) last = std::max(last, uses.last);
    const auto is_last = [&](std::size_t g) { return step.forward[g].last == last; };
    for (std::size_t begin = 0; begin < data_.gradients.size(); ++begin) {
      throw_if_interrupted();
      bool holds_last = false;
      double bytes = 0;
      std::int32_t first = kBehindAllOps;
      for (std::size_t end = begin; end < data_.gradients.size(); ++end) {
        bytes += static_cast<double>(data_.bytes[end]);
        if (bytes > most_) break;
        holds_last = holds_last || is_last(end);
        first = std::min(first, step.forward[end].first);
        if (!holds_last || first == kBehindAllOps) continue;
        const auto [upto, here] = read_by(first);
        const double needed = gathers_.least_time(upto + std::max(0.0, bytes - here), most_);
        least = std::min(least, with_block(bytes, needed, sums_[phases_.front().split] - sum(first)));
      }
    }
    return least;
  }

 private:
  // Of a micro-step: ops from `begin`, the first reader in backward, behind the last op; and the bytes that each half reads.
  struct Phase {
    std::size_t begin = 0, split = 0, end = 0;
    double forward = 0, backward = 0;
  };

  [[nodiscard]] double sum(std::int32_t op) const { return sums_[static_cast<std::size_t>(op)]; }

  [[nodiscard]] Phase phase(std::size_t index) const {
    const std::vector<GatheringStep>& steps = data_.sharding->steps;
    const GatheringStep& step = steps[index];
    Phase found;
    found.begin = index == 0 ? 0 : static_cast<std::size_t>(step.begin);
    found.end = index + 1 < steps.size()
                    ? static_cast<std::size_t>(steps[index + 1].begin)
                    : static_cast<std::size_t>(data_.reducing.back().backward_end.front()) + 1;
    found.split = found.end;
    for (const Uses& uses : step.backward) {
      if (uses.first != kBehindAllOps)
        found.split = std::min(found.split, static_cast<std::size_t>(uses.first));
    }
    for (std::size_t g = 0; g < data_.gradients.size(); ++g) {
      const auto bytes = static_cast<double>(data_.bytes[g]);
      const auto reader = static_cast<std::size_t>(step.forward[g].first);
      if (reader < found.split) found.forward += bytes;
      if (step.backward[g].first != kBehindAllOps && kind_.reshards) found.backward += bytes;
    }
    return found;
  }

  // Who first reads parameters in forward, and how long the first of them waits.
  void list_reads() {
    const GatheringStep& step = data_.sharding->steps.front();
    for (std::size_t g = 0; g < data_.gradients.size(); ++g) {
      if (step.forward[g].first == kBehindAllOps) continue;
      reads_.push_back({step.forward[g].first, static_cast<double>(data_.bytes[g]), 0});
    }
    std::ranges::sort(reads_, {}, &Read::op);
    double upto = 0;
    std::vector<Read> joined;
    for (const Read& read : reads_) {
      if (joined.empty() || joined.back().op != read.op) joined.push_back({read.op, 0, 0});
      joined.back().bytes += read.bytes;
      joined.back().upto = upto += read.bytes;
    }
    reads_ = std::move(joined);
    if (reads_.empty()) return;
    first_.time = gathers_.least_time(reads_.front().bytes, 0);
    first_.exposed = std::max(0.0, first_.time - sum(reads_.front().op));
  }

  // A copy of so much, in one pass at best.
  [[nodiscard]] double copy(double bytes, models::CopyKind kind) const {
    if (!kind_.is_copied || bytes <= 0) return 0;
    const auto whole = Bytes(static_cast<std::int64_t>(bytes));
    return std::max(0.0, as_ns(data_.costs.copy(whole, kind)) - static_cast<double>(data_.count()));
  }
  [[nodiscard]] double unpack(double bytes) const {
    const double scale =
        static_cast<double>(data_.sharding->element) / static_cast<double>(data_.element);
    return copy(bytes * scale, models::CopyKind::Split);
  }

  // Bytes of parameters that forward first reads by an op and before it, and by that op alone.
  [[nodiscard]] std::pair<double, double> read_by(std::int32_t op) const {
    const auto at = std::ranges::upper_bound(reads_, op, {}, &Read::op);
    if (at == reads_.begin()) return {0, 0};
    return {std::prev(at)->upto, std::prev(at)->op == op ? std::prev(at)->bytes : 0};
  }

  // Both kinds of losses, or on two streams, where they may be beside each other, the larger.
  [[nodiscard]] double losses(double gathered, double reduced) const {
    const double of_gathers = (1 - gathers_.left) * std::max(0.0, gathered);
    const double of_reductions = (1 - reductions_left_) * std::max(0.0, reduced);
    return kind_.shares_stream ? of_gathers + of_reductions : std::max(of_gathers, of_reductions);
  }
  [[nodiscard]] double link(double gathered, double reduced) const {
    return kind_.shares_stream ? gathered + reduced : std::max(gathered, reduced);
  }

  // Where the block that stays holds so many bytes; the gathers up to its own take `needed`, and from its first reader on
  // forward has as much compute as `behind`.
  [[nodiscard]] double with_block(double stays, double needed_by_it, double behind) const {
    const double all_updates = updates_.front();
    const double after = sums_.back() - sums_[phases_.back().end];
    const double last_ready = sum(data_.reducing.back().ready.back() + 1);
    const double slack = std::max(0.0, sums_[phases_.back().end] - last_ready);
    const double last_update = slack > 0 ? 0 : updates_.back();
    const double end = std::max(after + all_updates, last_reduced_ + updates_.back() - slack);
    const double first = first_.time;
    const std::size_t reducing = data_.reducing.size();
    double by_phases = 0;
    double compute = 0;   // of forward and backward
    double gathered = 0;  // time of all gathers
    for (std::size_t i = 0; i < phases_.size(); ++i) {
      const Phase& phase = phases_[i];
      const bool is_first = i == 0;
      const bool is_last = i + 1 == phases_.size();
      const double carried = is_first ? 0 : most_;
      const double forward = sums_[phase.split] - sums_[phase.begin] + unpack(phase.forward);
      const double packs = is_last || reducing > 1 ? copy(static_cast<double>(data_.bytes_sum.back()),
                                                          models::CopyKind::Chunk)
                                                   : 0;
      const double again = std::max(0.0, phase.backward - stays);
      const double backward = sums_[phase.end] - sums_[phase.split] + unpack(again) + packs;
      compute += forward + backward;
      gathered += gathers_.least_time(phase.forward, most_) + gathers_.least_time(again, most_);
      const double needed = gathers_.least_time(phase.forward - carried, most_);
      const double exposed = is_first ? first_.exposed : 0;
      by_phases += std::max({exposed + forward + losses(needed - (is_first ? first : 0), 0), needed,
                             is_first ? needed_by_it + behind : 0});
      const double left = gathers_.least_time(phase.backward - most_, most_);
      const double reduced = is_last ? reduced_ : 0;
      const double ends = is_last ? end : 0;
      by_phases += std::max(backward + losses(left, reduced - last_reduced_) + ends,
                            link(left, reduced) + (is_last ? last_update : 0));
    }
    const double all_reduced = static_cast<double>(reducing) * reduced_;
    const double by_compute =
        first_.exposed + compute + losses(gathered - first, all_reduced - last_reduced_) + end;
    const double by_link = link(gathered, all_reduced) + last_update;
    return std::max({by_phases, by_compute, by_link});
  }

  const StepData& data_;
    const TravelLines& gathers_;
  const BoundKind& kind_;
  double reductions_left_ = 0;
  double most_ = 0;
  std::vector<double> sums_;     // of compute before each op
  std::vector<double> updates_;  // of all from each gradient on
  double reduced_ = 0;           // the least time of all reductions of a micro-step
  double last_reduced_ = 0;      // ... of the one that holds the last gradient
  std::vector<Phase> phases_;
  struct Read {
    std::int32_t op = 0;
    double bytes = 0;
    double upto = 0;  // of this op and those before
  };
  std::vector<Read> reads_;  // by op
  struct {
    double time = 0;     // of the first gather
    double exposed = 0;  // of that, before the op that waits for it
  } first_;
};

}  // namespace

Duration gather_bound(const StepData& data, const TravelLines& reductions,
                      const TravelLines& gathers, const BoundKind& kind) {
  constexpr double kRounding = 2;  // the step is an average, rounded; so is every transfer
  double bound = 0;
  for (std::size_t lane = 0; lane < data.work.size() / data.ops.size(); ++lane) {
    bound = std::max(bound, GatherPhases(data, reductions, gathers, kind, lane).bound());
  }
  return Duration(static_cast<std::int64_t>(std::max(0.0, bound - kRounding)));
}

}  // namespace dovetail::search
