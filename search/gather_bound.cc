// The lines under a machine's transfers, and the sums over phases.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/gather_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/interruption.h"
#include "sim/rates.h"

namespace dovetail::search {
namespace {

double as_ns(Duration duration) { return static_cast<double>(duration.count()); }

constexpr std::array kKernels = {models::KernelClass::Gemm, models::KernelClass::Memory,
                                 models::KernelClass::Other};

// The edges of the lower convex hull that rise and begin above 0, and the steepest line through the origin.
std::vector<models::LinearPiece> lines_under(std::span<const TravelKnot> knots, double rate) {
  struct Point {
    double bytes = 0;
    double ns = 0;
  };
  std::vector<Point> hull;
  std::vector<models::LinearPiece> lines = {{.from = Bytes(0), .base_ns = 0, .ns_per_byte = rate}};
  double least = std::numeric_limits<double>::max();
  for (const TravelKnot& knot : knots) {
    // As large as it may be: a line that rises lies under all that it stands for.
    const Point next{knot.to, knot.ns};
    least = std::min(least, knot.ns);
    const auto turns_down = [&](const Point& a, const Point& b) {
      return (b.ns - a.ns) * (next.bytes - b.bytes) >= (next.ns - b.ns) * (b.bytes - a.bytes);
    };
    while (hull.size() > 1 && turns_down(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(next);
  }
  lines.push_back({.from = Bytes(0), .base_ns = least, .ns_per_byte = 0});
  for (std::size_t i = 1; i < hull.size(); ++i) {
    const double rise = (hull[i].ns - hull[i - 1].ns) / (hull[i].bytes - hull[i - 1].bytes);
    const double base = hull[i].ns - rise * hull[i].bytes;
    if (base < 0 || rise <= 0) continue;
    lines.push_back({.from = Bytes(0), .base_ns = base, .ns_per_byte = rise});
  }
  return lines;
}

// The most that each class of compute goes on beside it, on any rank; a class without compute: nothing.
class Beside {
 public:
  explicit Beside(const StepData& data) : data_(data) {
    for (const StepOp& op : data.ops) {
      if (!op.own) computes_[static_cast<std::size_t>(op.kernel)] = true;
    }
    computes_[static_cast<std::size_t>(models::KernelClass::Memory)] = true;  // updates, copies
    for (std::size_t lane = 0; lane < data.work.size() / data.ops.size(); ++lane)
      contentions_.push_back(data.costs.contention(Rank{static_cast<std::int32_t>(lane)}));
  }

  [[nodiscard]] std::array<double, 3> rates(const sim::TransferCost& price) const {
    std::array<double, 3> most = {};
    for (const models::Contention& contention : contentions_) {
      const ClockProblem::Travel travel = travel_beside(contention, price);
      for (std::size_t kernel = 0; kernel < most.size(); ++kernel) {
        if (computes_[kernel]) most[kernel] = std::max(most[kernel], travel.left[kernel]);
      }
    }
    return most;
  }

 private:
  const StepData& data_;
  std::array<bool, kKernels.size()> computes_{};
  std::vector<models::Contention> contentions_;
};

// Over all buckets that there may be, each priced by `cost`.
template <class Cost>
TravelKnots travel_knots(const StepData& data, const Cost& cost) {
  constexpr double kPerOctave = 256;
  constexpr double kRounding = 1;  // ns
  const Beside beside(data);
  std::map<int, TravelKnot> found;
  for (std::int32_t end = 1; end <= data.count(); ++end) {
    throw_if_interrupted();
    const std::int32_t kind = data.kind_of[static_cast<std::size_t>(end) - 1];
    for (std::int32_t begin = end; begin-- > 0;) {
      if (data.kind_of[static_cast<std::size_t>(begin)] != kind) break;
      const BucketChoice choice{.begin = begin, .end = end};
      const sim::TransferCost price = cost(choice);
      const auto bytes = static_cast<double>(data.payload(choice));
      const double ns =
          std::max(0.0, as_ns(std::min(price.time.isolated, price.time.back_to_back)) - kRounding);
      const std::array<double, 3> rates = beside.rates(price);
      const auto cell = static_cast<int>(std::log2(std::max(1.0, bytes)) * kPerOctave);
      const auto [at, fresh] = found.try_emplace(cell, TravelKnot{bytes, bytes, ns});
      TravelKnot& knot = at->second;
      knot.from = std::min(knot.from, bytes);
      knot.to = std::max(knot.to, bytes);
      knot.ns = std::min(knot.ns, ns);
      for (std::size_t kernel = 0; kernel < rates.size(); ++kernel) {
        const double done = ns * rates[kernel];
        knot.done[kernel] = fresh ? done : std::min(knot.done[kernel], done);
        knot.lost[kernel] = fresh ? ns - done : std::min(knot.lost[kernel], ns - done);
      }
    }
  }
  TravelKnots knots;
  for (const auto& [cell, knot] : found) knots.push_back(knot);
  return knots;
}

}  // namespace

TravelLines::TravelLines(const TravelKnots& knots, double most) : knots_(knots), most_(most) {
  const auto end = std::ranges::upper_bound(knots_, most, {}, &TravelKnot::from);
  knots_ = knots_.first(std::max<std::size_t>(1, static_cast<std::size_t>(end - knots_.begin())));
  constexpr double kUnknown = std::numeric_limits<double>::max();
  rate_ = any_lost_ = kUnknown;
  lost_.fill(kUnknown);
  done_.fill(kUnknown);
  for (const TravelKnot& knot : knots_) {
    rate_ = std::min(rate_, knot.ns / knot.to);
    for (std::size_t kernel = 0; kernel < lost_.size(); ++kernel) {
      lost_[kernel] = std::min(lost_[kernel], knot.lost[kernel] / knot.to);
      done_[kernel] = std::min(done_[kernel], knot.done[kernel] / knot.to);
    }
  }
  any_lost_ = *std::ranges::min_element(lost_);
  lines_ = lines_under(knots_, rate_);
}

double TravelLines::least_time(double bytes) const {
  if (bytes <= 0) return 0;
  const double buckets = std::max(1.0, std::ceil(bytes / most_ - 1e-9));
  double least = 0;
  for (const models::LinearPiece& line : lines_) {
    least = std::max(least, buckets * line.base_ns + line.ns_per_byte * bytes);
  }
  return least;
}

double TravelLines::least_lost(double bytes, const std::array<double, 3>& compute) const {
  std::array<std::size_t, 3> order = {0, 1, 2};
  std::ranges::sort(order, {}, [&](std::size_t kernel) { return lost_[kernel]; });
  double left = std::max(0.0, bytes);
  double lost = 0;
  for (const std::size_t kernel : order) {
    if (compute[kernel] <= 0 || left <= 0) continue;
    const double beside =
        done_[kernel] > 0 ? std::min(left, compute[kernel] / done_[kernel]) : left;
    lost += beside * std::min(lost_[kernel], rate_);
    left -= beside;
  }
  return lost + left * rate_;
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

TravelKnots reduction_knots(const StepData& data) {
  return travel_knots(data, [&](const BucketChoice& choice) { return data.travel(choice); });
}
TravelKnots gather_knots(const StepData& data) {
  return travel_knots(data, [&](const BucketChoice& choice) { return data.gather(choice); });
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
    return bytes.count() / data.kinds.front().parameter * data.kinds.front().element;
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
  GatherPhases(const StepData& data, const BoundKnots& knots, const BoundKind& kind,
               std::size_t lane)
      : data_(data),
        kind_(kind),
        most_(static_cast<double>(kind.most_gathered)),
        all_(static_cast<double>(data.bytes_sum.back())),
        gathers_(knots.gathers, most_),
        reductions_(knots.reductions, most_) {
    const std::size_t lanes = data.work.size() / data.ops.size();
    sums_.push_back(0);
    for (std::size_t op = 0; op < data.ops.size(); ++op) {
      const auto time = static_cast<double>(data.work[op * lanes + lane].ns());
      sums_.push_back(sums_.back() + (data.ops[op].own ? 0 : time));
      if (!data.ops[op].own) classes_[static_cast<std::size_t>(data.ops[op].kernel)] += time;
    }
    updates_ = least_updates(data, lane);
    for (std::size_t i = 0; i < data.sharding->steps.size(); ++i) phases_.push_back(phase(i));
    list_reads();
    time_phases();
  }

  // The least over all blocks that may stay: those that hold the last parameter of forward.
  [[nodiscard]] double bound() const {
    double least = with_block({}, 0, 0, 0);
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
        const BucketChoice block{.begin = static_cast<std::int32_t>(begin),
                                 .end = static_cast<std::int32_t>(end) + 1};
        const double behind = sums_[phases_.front().forward.end] - sum(first);
        const double others = gathers_.least_time(upto - here);
        least = std::min(least, with_block(block, bytes, others, behind));
      }
    }
    return least;
  }

 private:
  // Forward or backward of a micro-step.
  struct Half {
    std::size_t begin = 0, end = 0;  // ops
    double bytes = 0;                // that it reads
    double copies = 0;               // ns, of these
    // Ops that first read parameters, or only some of them; bytes that are read up to each one, that nobody reads from it on,
    // and of gradients that are ready before it.
    struct Stop {
      std::size_t op = 0;
      double read = 0, released = 0, ready = 0;
    };
    std::vector<Stop> stops = {};
  };
  struct Phase {
    Half forward = {}, backward = {};
  };

  [[nodiscard]] double sum(std::int32_t op) const { return sums_[static_cast<std::size_t>(op)]; }

  [[nodiscard]] Phase phase(std::size_t index) const {
    const std::vector<GatheringStep>& steps = data_.sharding->steps;
    const GatheringStep& step = steps[index];
    const bool is_last = index + 1 == steps.size();
    Phase found;
    found.forward.begin = index == 0 ? 0 : static_cast<std::size_t>(step.begin.front());
    found.backward.end =
        is_last ? static_cast<std::size_t>(data_.reducing.back().backward_end.front()) + 1
                : static_cast<std::size_t>(steps[index + 1].begin.front());
    std::size_t turn = found.backward.end;
    for (const Uses& uses : step.backward) {
      if (uses.first != kBehindAllOps) turn = std::min(turn, static_cast<std::size_t>(uses.first));
    }
    if (is_last)
      turn = std::min(turn, static_cast<std::size_t>(data_.reducing.back().ready.front()));
    found.forward.end = found.backward.begin = turn;
    list_stops(step.forward, found.forward);
    if (kind_.reshards) list_stops(step.backward, found.backward);
    if (is_last) list_ready(data_.reducing.back(), found.backward);
    return found;
  }

  // Of parameters whose first reader is in the half.
  void list_stops(const std::vector<Uses>& uses, Half& half) const {
    struct Change {
      std::size_t op = 0;
      double bytes = 0;
    };
    std::vector<Change> reads, releases;
    for (std::size_t g = 0; g < uses.size(); ++g) {
      const auto first = static_cast<std::size_t>(uses[g].first);
      if (uses[g].first == kBehindAllOps || first < half.begin || first >= half.end) continue;
      const auto bytes = static_cast<double>(data_.bytes[g]);
      half.bytes += bytes;
      reads.push_back({first, bytes});
      releases.push_back({static_cast<std::size_t>(uses[g].last) + 1, bytes});
    }
    half.copies = unpack(half.bytes);
    std::ranges::sort(reads, {}, &Change::op);
    std::ranges::sort(releases, {}, &Change::op);
    std::size_t released = 0;
    Half::Stop stop;
    std::vector<Half::Stop> all;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      stop.op = reads[i].op;
      stop.read += reads[i].bytes;
      for (; released < releases.size() && releases[released].op <= stop.op; ++released)
        stop.released += releases[released].bytes;
      if (i + 1 == reads.size() || reads[i + 1].op != stop.op) all.push_back(stop);
    }
    constexpr std::size_t kMostStops = 128;
    const std::size_t apart = (all.size() + kMostStops - 1) / kMostStops;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % apart == 0 || i + 1 == all.size()) half.stops.push_back(all[i]);
    }
  }

  void list_ready(const ReducingStep& step, Half& half) const {
    for (Half::Stop& stop : half.stops) {
      for (std::size_t g = 0; g < step.ready.size(); ++g) {
        const auto launch = std::max(step.ready[g], step.earliest_launch[g]);
        if (static_cast<std::size_t>(launch) < stop.op)
          stop.ready += static_cast<double>(data_.bytes[g]);
      }
    }
  }

  // Who first reads parameters in forward.
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
  }

  // A copy of so much, in one pass at best.
  [[nodiscard]] double copy(double bytes, models::CopyKind kind) const {
    if (!kind_.is_copied || bytes <= 0) return 0;
    const auto whole = Bytes(static_cast<std::int64_t>(bytes));
    return std::max(0.0, as_ns(data_.costs.copy(whole, kind)) - static_cast<double>(data_.count()));
  }
  [[nodiscard]] double unpack(double bytes) const {
    const double scale = static_cast<double>(data_.kinds.front().parameter) /
                         static_cast<double>(data_.kinds.front().element);
    return copy(bytes * scale, models::CopyKind::Split);
  }

  // Bytes of parameters that forward first reads by an op and before it, and by that op alone.
  [[nodiscard]] std::pair<double, double> read_by(std::int32_t op) const {
    const auto at = std::ranges::upper_bound(reads_, op, {}, &Read::op);
    if (at == reads_.begin()) return {0, 0};
    return {std::prev(at)->upto, std::prev(at)->op == op ? std::prev(at)->bytes : 0};
  }

  // What gathers and reductions take from compute; on two streams, where they may be beside each other, the larger.
  [[nodiscard]] double losses(double gathered, double reduced) const {
    return link(gathers_.least_lost(gathered), reductions_.least_lost(reduced));
  }
  [[nodiscard]] double link(double gathered, double reduced) const {
    return kind_.shares_stream ? gathered + reduced : std::max(gathered, reduced);
  }

  // What must follow backward with the losses of these reductions, and what must follow the last reduction at least.
  struct Tail {
    double of_compute = 0;
    double of_link = 0;
  };
  // `lost`: what reductions of so many bytes take from compute.
  template <class Lost>
  [[nodiscard]] Tail tail(const Lost& lost) const {
    const std::size_t end = phases_.back().backward.end;
    const double last_ready = sum(data_.reducing.back().ready.back() + 1);
    const double slack = std::max(0.0, sums_[end] - last_ready);
    const double after = sums_.back() - sums_[end] + updates_.front();
    Tail least{std::numeric_limits<double>::max(), slack > 0 ? 0 : updates_.back()};
    // The last reduction begins behind the last gradient; it may hold more.
    for (std::int32_t begin = 0; begin < data_.count(); ++begin) {
      const BucketChoice last{.begin = begin, .end = data_.count()};
      const auto bytes = static_cast<double>(data_.payload(last));
      if (bytes > most_ && begin + 1 < data_.count()) continue;
      const double alone = alone_ns(data_.travel(last)) + updates_.back() - slack;
      least.of_compute = std::min(least.of_compute, std::max(after, alone) + lost(all_ - bytes));
    }
    return least;
  }
  [[nodiscard]] static double alone_ns(const sim::TransferCost& cost) {
    return std::max(0.0, as_ns(std::min(cost.time.isolated, cost.time.back_to_back)) - 1);
  }

  // The least time of a half. `carried`: bytes that may be gathered before it; `reduced`: bytes of gradients that it reduces;
  // `packs`: copies besides; `behind`: what must follow it, `at_least` whatever was before.
  [[nodiscard]] double time_of(const Half& half, double carried, double reduced, double packs,
                               const Tail& behind, const Tail& at_least) const {
    struct At {
      double time = 0;      // when its op may begin
      double gathered = 0;  // bytes, at most, by then
    };
    const auto gather = [&](double bytes) { return gathers_.least_time(bytes); };
    const auto reduce = [&](double bytes) { return reductions_.least_time(bytes); };
    const auto op_of = [&](std::size_t i) { return i == 0 ? half.begin : half.stops[i - 1].op; };
    const auto ready_at = [&](std::size_t i) { return i == 0 ? 0 : half.stops[i - 1].ready; };
    std::vector<At> at = {{0, carried}};
    for (std::size_t q = 1; q <= half.stops.size(); ++q) {
      const Half::Stop& stop = half.stops[q - 1];
      // The last of its gathers is launched when that much is released, behind reductions that are launched before.
      std::size_t launch = 0;
      while (launch + 1 < q && half.stops[launch].released + most_ < stop.read) ++launch;
      At here{0, stop.released + most_};
      for (std::size_t p = 0; p < q; ++p) {
        const double compute = sums_[stop.op] - sums_[op_of(p)];
        const double bytes = stop.read - at[p].gathered;
        const double gathers = gather(bytes);
        double transfers = gathers;
        if (gathers > 0 && kind_.shares_stream && reduced > 0 && launch > p)
          transfers += reduce(ready_at(launch) - ready_at(p) - most_);
        here.time =
            std::max(here.time, at[p].time + std::max(compute + losses(bytes, 0), transfers));
      }
      at.push_back(here);
    }
    double least = 0;
    for (std::size_t p = 0; p < at.size(); ++p) {
      const double copies = p == 0 ? half.copies + packs : 0;
      const double compute = sums_[half.end] - sums_[op_of(p)] + copies;
      const double bytes = half.bytes - at[p].gathered;
      const double left = reduced > 0 ? reduce(reduced - ready_at(p)) : 0;
      const double lost = p == 0 ? losses(bytes, 0) : 0;
      // Reductions may have travelled before the stop.
      const double ends = p == 0 ? behind.of_compute : at_least.of_compute;
      least = std::max({least, at[p].time + compute + lost + ends,
                        at[p].time + link(gather(bytes), left) + behind.of_link});
    }
    return least;
  }

  void time_phases() {
    const bool each = data_.reducing.size() > 1;
    const auto lost = [&](double bytes) {
      return kind_.shares_stream ? reductions_.least_lost(bytes) : 0;
    };
    const Tail ends = tail(lost);
    double compute = 0;
    double gathered = 0;  // bytes
    for (std::size_t i = 0; i < phases_.size(); ++i) {
      const Phase& phase = phases_[i];
      const bool is_last = i + 1 == phases_.size();
      const double packs = is_last || each ? copy(all_, models::CopyKind::Chunk) : 0;
      forward_.push_back(time_of(phase.forward, i == 0 ? 0 : most_, 0, 0, {}, {}));
      Half backward = phase.backward;
      const double again = std::max(0.0, backward.bytes - most_);  // without what stays
      backward.copies = unpack(again);
      backward_.push_back(
          is_last ? time_of(backward, most_, all_, packs, ends, tail([](double) { return 0.0; }))
                  : time_of(backward, most_, 0, packs, {}, {}));
      compute += sums_[backward.end] - sums_[phase.forward.begin] + packs + phase.forward.copies +
                 backward.copies;
      classes_[static_cast<std::size_t>(models::KernelClass::Memory)] +=
          packs + phase.forward.copies + backward.copies;
      gathered += phase.forward.bytes + again;
    }
    time_compute(compute, gathered);
  }

  // All compute, what transfers of the step take from it, and what stands alone before and behind it.
  void time_compute(double compute, double gathered) {
    classes_[static_cast<std::size_t>(models::KernelClass::Memory)] += updates_.front();
    double first = gathers_.least_lost(gathered, classes_);
    if (!reads_.empty()) {
      first = std::numeric_limits<double>::max();
      for (const TravelKnot& knot : gathers_.knots()) {
        if (knot.to < reads_.front().bytes) continue;
        const double alone = std::max(0.0, knot.ns - sum(reads_.front().op));
        first = std::min(first, alone + gathers_.least_lost(gathered - knot.to, classes_));
      }
      if (first == std::numeric_limits<double>::max()) first = 0;
    }
    const double before = all_ * (static_cast<double>(data_.reducing.size()) - 1);
    const Tail ends = tail([&](double bytes) {
      return kind_.shares_stream ? reductions_.least_lost(before + bytes, classes_) : 0;
    });
    by_compute_ = first + compute + ends.of_compute;
  }

  // Where this block stays, of so many bytes; the gathers before its own take `others`, and from its first reader on forward
  // has as much compute as `behind`.
  [[nodiscard]] double with_block(const BucketChoice& block, double bytes, double others,
                                  double behind) const {
    const double own = bytes > 0 ? alone_ns(data_.gather(block)) : 0;
    const double reduction = bytes > 0 ? alone_ns(data_.travel(block)) : 0;
    const double needed = bytes > 0 ? others + own + behind : 0;
    double by_phases = std::max(0.0, needed - forward_.front());
    double gathered = 0;  // ns
    double reduced = 0;
    for (std::size_t i = 0; i < phases_.size(); ++i) {
      by_phases += forward_[i] + backward_[i];
      gathered += own + gathers_.least_time(phases_[i].forward.bytes - bytes) +
                  gathers_.least_time(phases_[i].backward.bytes - bytes);
    }
    for (std::size_t i = 0; i < data_.reducing.size(); ++i)
      reduced += reduction + reductions_.least_time(all_ - bytes);
    const std::size_t end = phases_.back().backward.end;
    const double last_ready = sum(data_.reducing.back().ready.back() + 1);
    const double update = last_ready < sums_[end] ? 0 : updates_.back();
    return std::max({by_phases, by_compute_, link(gathered, reduced) + update});
  }

  const StepData& data_;
  const BoundKind& kind_;
  double most_ = 0;  // bytes that are gathered at a time
  double all_ = 0;   // of gradients
  TravelLines gathers_, reductions_;
  std::vector<double> sums_;            // of compute before each op
  std::array<double, 3> classes_ = {};  // of all compute
  std::vector<double> updates_;         // of all from each gradient on
  std::vector<Phase> phases_;
  std::vector<double> forward_, backward_;  // the least time of each half
  double by_compute_ = 0;
  struct Read {
    std::int32_t op = 0;
    double bytes = 0;
    double upto = 0;  // of this op and those before
  };
  std::vector<Read> reads_;  // by op
};

}  // namespace

Duration gather_bound(const StepData& data, const BoundKnots& knots, const BoundKind& kind) {
  constexpr double kRounding = 2;  // the step is an average, rounded; so is every transfer
  double bound = 0;
  for (std::size_t lane = 0; lane < data.work.size() / data.ops.size(); ++lane) {
    bound = std::max(bound, GatherPhases(data, knots, kind, lane).bound());
  }
  return Duration(static_cast<std::int64_t>(std::max(0.0, bound - kRounding)));
}

}  // namespace dovetail::search
