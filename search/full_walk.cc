// From event to event.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/full_walk.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace dovetail::search {
namespace {

using models::KernelClass;
using schedule::BucketMode;
using schedule::WaitScope;

enum class Host { FarAhead, Limits };

class Walk {
 public:
  Walk(const StepData& data, std::span<const BucketChoice> choices, Host host, PriceMemo& prices,
       FullMemory& memory)
      : data_(data),
        choices_(choices),
        limits_(host == Host::Limits && !data.inline_host),
        slows_transfers_(data.contention.collective_slowdown != 1),
        copies_(std::ranges::any_of(
            choices, [](const BucketChoice& of) { return of.mode == BucketMode::Copy; })),
        prices_(prices),
        memory_(memory),
        flight_(data, choices, prices, times_of(host, choices.size(), memory),
                done_of(choices.size(), memory), memory.shares, memory.rates, memory.streams) {
    memory_.rejoined = false;
    if (copies_) find_owners();
  }

  std::optional<sim::StepSummary> one_step(std::size_t first, Keep keep) {
    begin_step();
    keeps_ = keep == Keep::Yes;
    const std::size_t streams = flight_.streams().size();
    KeptWalk& kept = memory_.kept;
    if (keep == Keep::Yes) {
      kept.prepare(choices_, streams, copies_);
    } else if (first > 0) {
      alike_ = kept.compare(choices_, first, streams, copies_);
      first = kept.start_of(first, streams, copies_);
      if (first > 0) kept.take_up(first, choices_, state_, flight_, memory_.done);
    }
    play(first, keep);
    if (keep == Keep::Yes) {
      kept.keep(kept.ended(), state_, flight_);
      kept.keep_ends(memory_.done, flight_);
    }
    if (flight_.state().too_long || !stands_for_all()) return std::nullopt;
    return summary_since({}, 0);
  }

  std::optional<sim::StepSummary> steps() {
    Standing before;
    for (std::int32_t step = 0; step < sim::kMostSteps; ++step) {
      const WalkState start = state_;
      const std::int64_t communication = flight_.communication();
      begin_step();
      play(0, Keep::No);
      if (flight_.state().too_long) return std::nullopt;
      const Standing now = standing();
      const bool host_repeats =
          !limits_ || now.host == before.host || (!limited() && now.host <= before.host);
      if (step > 0 && now.pauses == before.pauses && host_repeats) {
        return summary_since(start, communication);
      }
      before = now;
    }
    return std::nullopt;
  }

 private:
  // As seen from the end of a step: how long each stream has been idle, and how far the host is.
  struct Standing {
    std::array<std::int64_t, kMostStreams> pauses{};
    std::int64_t host = 0;
  };
  [[nodiscard]] Standing standing() const {
    Standing found{.host = state_.host - state_.now};
    for (std::size_t s = 0; s < flight_.streams().size(); ++s) {
      const StreamState& stream = flight_.streams()[s];
      found.pauses[s] = stream.used ? state_.now - stream.last_end : -1;
    }
    return found;
  }

  static std::span<const BucketTimes> times_of(Host host, std::size_t buckets, FullMemory& memory) {
    std::vector<BucketTimes>& times = host == Host::Limits ? memory.times : memory.at_once;
    if (times.size() < buckets) times.resize(buckets);
    return times;
  }
  static std::span<std::int64_t> done_of(std::size_t buckets, FullMemory& memory) {
    if (memory.done.size() < buckets) memory.done.resize(buckets);
    return memory.done;
  }

  void find_owners() {
    memory_.owner.resize(data_.ready.size());
    for (std::size_t b = 0; b < choices_.size(); ++b) {
      std::fill(memory_.owner.begin() + choices_[b].begin, memory_.owner.begin() + choices_[b].end,
                static_cast<std::int32_t>(b));
    }
  }

  void begin_step() {
    memory_.waited.assign(choices_.size(), 0);
    std::fill_n(memory_.done.begin(), choices_.size(), kNever);
    state_.op = state_.gradient = state_.launch = state_.packs = 0;
    limited_ = false;
    flight_.begin_step();
  }
  [[nodiscard]] bool limited() const { return limited_ || flight_.state().limited; }

  void play(std::size_t first, Keep keep) {
    KeptWalk& kept = memory_.kept;
    for (std::size_t b = first; b < choices_.size(); ++b) {
      if (b >= alike_.from && kept.stands(b, alike_, state_, flight_)) {
        if (rejoin(b)) return;
        break;
      }
      if (keep == Keep::Yes) kept.keep(b, state_, flight_);
      state_.launch = data_.launch_of(choices_[b], state_.launch);
      run_through(state_.launch);
      launch(b);
    }
    if (keep == Keep::Yes) kept.keep(kept.launched(), state_, flight_);
    order_waits(data_, choices_, memory_.waits);
    finish(memory_.rejoined ? move_on_to_quiet() : 0, keep);
    communication_ = flight_.communication();
  }

  // What follows up to the last launch is as in the settled candidate, and what follows that, too, where
  // waits for what has ended cost nothing: then it gives true.
  bool rejoin(std::size_t b) {
    const KeptWalk& kept = memory_.kept;
    const std::size_t entry = b + alike_.ahead;
    memory_.rejoined = true;
    if (!copies_ && !data_.scales_after && data_.wake_up == 0 &&
        kept.wait_alone(choices_, alike_)) {
      kept.move_on(entry, kept.ended(), alike_, state_, flight_);
      communication_ = flight_.communication();
      return true;
    }
    const std::int64_t shift = kept.move_on(entry, kept.launched(), alike_, state_, flight_);
    kept.shift_ends(choices_, alike_, shift, flight_, memory_.done);
    return false;
  }

  // Behind the last launch; likewise. Gives the next wait.
  std::size_t move_on_to_quiet() {
    const KeptWalk& kept = memory_.kept;
    const std::size_t next = kept.waits_before_quiet(choices_, memory_.waits, alike_);
    if (next == 0) return 0;
    kept.move_on(kept.launched(), kept.quiet(), alike_, state_, flight_);
    for (std::size_t i = 0; i < next; ++i) memory_.waited[at(memory_.waits[i].bucket)] = 1;
    return next;
  }

  // From this wait on.
  void finish(std::size_t next, Keep keep) {
    const std::vector<Wait>& waits = memory_.waits;
    for (; next < waits.size(); ++next) {
      if (!limits_ && flight_.idle(state_.now)) {
        if (keep == Keep::Yes) {
          memory_.kept.keep(memory_.kept.quiet(), state_, flight_);
          memory_.kept.keep_quiet(waits, next);
        }
        finish_alone(next);
        return;
      }
      run_to(std::min(waits[next].place, data_.ops()));
      wait_for(waits[next].bucket);
    }
    run_to(data_.ops());
  }

  // Where nothing is in flight any more, the order of what is left does not matter.
  void finish_alone(std::size_t next) {
    const std::int32_t left = data_.ops() - state_.op;
    std::int64_t took = data_.view.full.back() - data_.view.full[at(state_.op)];
    state_.computed += took - data_.gap * left;
    state_.op = data_.ops();
    if (data_.wake_up > 0 || copies_) {
      for (; next < memory_.waits.size(); ++next) {
        const std::int32_t bucket = memory_.waits[next].bucket;
        const BucketChoice& choice = choices_[at(bucket)];
        char& waited = memory_.waited[at(event_of(bucket))];
        if (waited == 0) took += data_.wake_up;
        waited = 1;
        if (choice.mode != BucketMode::Copy) continue;
        const std::int64_t unpack = prices_.of(choice.begin, choice.end).unpack;
        took += unpack;
        state_.computed += std::max<std::int64_t>(0, unpack - data_.gap);
      }
    }
    state_.now += took;
  }

  // For whose end the compute stream waits.
  [[nodiscard]] std::int32_t event_of(std::int32_t bucket) const {
    const BucketChoice& choice = choices_[at(bucket)];
    if (choice.scope == WaitScope::Event) return bucket;
    return flight_.streams()[at(choice.stream)].tail;
  }

  // All ops up to and including this one, and the packs behind them.
  void run_through(std::int32_t op) {
    while (copies_ && state_.gradient < data_.count() && data_.ready[state_.gradient] <= op) {
      const std::int32_t producer = data_.ready[state_.gradient];
      run_to(producer + 1);
      pack_behind(producer);
    }
    run_to(op + 1);
  }

  // The packs of what the op produced, by bucket.
  void pack_behind(std::int32_t op) {
    const std::int32_t begin = state_.gradient;
    std::int32_t end = begin;
    while (end < data_.count() && data_.ready[end] == op) ++end;
    state_.gradient = end;
    for (std::int32_t last = -1;;) {
      // The next bucket in launch order that holds some of them.
      std::int32_t owner = kBehindAllOps;
      for (std::int32_t g = begin; g < end; ++g) {
        if (memory_.owner[g] > last) owner = std::min(owner, memory_.owner[g]);
      }
      if (owner == kBehindAllOps) return;
      last = owner;
      if (choices_[owner].mode != BucketMode::Copy) continue;
      std::int64_t bytes = 0;
      for (std::int32_t g = begin; g < end; ++g) {
        if (memory_.owner[g] == owner) bytes += data_.bytes[g];
      }
      ++state_.packs;
      run_node(data_.copy_work(bytes), KernelClass::Memory, 1, issue(data_.copy));
    }
  }

  // Ops up to `target`, exclusive.
  void run_to(std::int32_t target) {
    while (state_.op < target) {
      if (limits_) {
        run_as_issued(target);
      } else {
        run_together(target);
      }
      if (state_.op == target) return;
      const std::int32_t op = state_.op++;
      run_node(data_.work[op], data_.kernel[op], 1, issue(data_.issue[op]));
    }
  }

  // Those of them that end before the next event, or at it.
  void run_together(std::int32_t target) {
    while (flight_.next_event() <= state_.now) flight_.handle(flight_.next_event());
    flight_.set_busy(true, state_.now);
    const std::int64_t event = flight_.next_event();
    const std::int32_t first = state_.op;
    std::int64_t took = 0;
    if (flight_.none() || flight_.plain()) {
      const std::vector<std::int64_t>& sums = flight_.none() ? data_.view.full : data_.view.beside;
      const std::int64_t from = sums[first];
      state_.op = target;
      if (event != kNever && sums[target] - from > event - state_.now) {
        const auto behind = std::upper_bound(sums.begin() + first, sums.begin() + target,
                                             event - state_.now + from);
        state_.op = static_cast<std::int32_t>(behind - sums.begin()) - 1;
      }
      took = sums[state_.op] - from;
    } else {
      const std::array<Rate, 3>& rates = flight_.rates();
      const std::int64_t room = event - state_.now;
      took = run_as_known(target, room);
      for (; state_.op < target; ++state_.op) {
        const Rate& rate = rates[static_cast<std::size_t>(data_.kernel[state_.op])];
        const std::int64_t more = took + rate.lasts(data_.work[state_.op] << kFractionBits);
        if (more > room) break;
        took = more;
      }
    }
    state_.now += took;
    count(took - data_.gap * (state_.op - first));
    if (keeps_ && flight_.single() != nullptr && !flight_.plain()) {
      const StreamState& only = *flight_.single();
      memory_.kept.keep_beside(only.head, only.alone, flight_.rates(), data_, first, state_.op);
    }
  }

  // Ops beside a transfer beside which the settled candidate has had them, too; gives how long they took.
  std::int64_t run_as_known(std::int32_t target, std::int64_t room) {
    const StreamState* const only = flight_.single();
    if (only == nullptr) return 0;
    const Beside* const known = memory_.kept.beside(only->head, only->alone, alike_);
    if (known == nullptr || !known->has(state_.op)) return 0;
    const std::int64_t* const sums = known->sums.data();
    const std::int32_t begin = state_.op - known->first;
    std::int32_t end = std::min(target - known->first, known->count);
    const std::int64_t latest = room + sums[begin];
    if (sums[end] > latest) {
      end =
          static_cast<std::int32_t>(std::upper_bound(sums + begin, sums + end, latest) - sums) - 1;
    }
    state_.op = known->first + end;
    return sums[end] - sums[begin];
  }

  // The same, each op not before it has been issued.
  void run_as_issued(std::int32_t target) {
    if (!flight_.none() && (slows_transfers_ || !flight_.plain())) {
      run_each_as_issued(target);
      return;
    }
    const IssuedRuns& runs = flight_.none() ? data_.full_runs : data_.beside_runs;
    const std::int32_t first = state_.op;
    const IssuedRuns::Run run =
        runs.run({first, state_.now, state_.host + data_.latency}, target, flight_.next_event());
    limited_ = limited_ || run.now - state_.now > run.work;
    state_.op = run.op;
    state_.now = run.now;
    state_.host += runs.issue(first, run.op);
    count(run.work - data_.gap * (run.op - first));
  }

  void run_each_as_issued(std::int32_t target) {
    const std::array<Rate, 3>& rates = flight_.rates();
    const std::int64_t event = flight_.next_event();
    const bool keeps_rates = !slows_transfers_ || flight_.none();
    std::int64_t shown = 0;
    for (; state_.op < target; ++state_.op) {
      const std::int64_t host = state_.host + data_.issue[state_.op];
      const std::int64_t start = std::max(state_.now, host + data_.latency);
      if (event <= start || !(keeps_rates || (start == state_.now && flight_.state().busy))) break;
      const Rate& rate = rates[static_cast<std::size_t>(data_.kernel[state_.op])];
      const std::int64_t end = start + rate.lasts(data_.work[state_.op] << kFractionBits);
      if (end > event) break;
      limited_ = limited_ || start > state_.now;
      shown += end - start - data_.gap;
      state_.host = host;
      state_.now = end;
    }
    count(shown);
  }

  void count(std::int64_t shown) {
    state_.computed += shown;
    if (!flight_.none()) state_.overlapped += shown;
  }

  // A node of the compute stream, from now or from when it is issued. `counts`: 1 if it is shown as
  // compute, else 0.
  void run_node(std::int64_t work, KernelClass kernel, std::int64_t counts, std::int64_t issued) {
    const std::int64_t start = std::max(state_.now, issued);
    if (start > state_.now) {
      limited_ = true;
      flight_.set_busy(false, state_.now);
    }
    while (flight_.next_event() <= start) flight_.handle(flight_.next_event());
    flight_.set_busy(true, start);
    const std::int64_t shown = start + data_.gap;  // from there on
    std::int64_t left = work << kFractionBits;
    std::int64_t since = start;
    for (;;) {
      const Rate& rate = flight_.rates()[static_cast<std::size_t>(kernel)];
      const std::int64_t end = since + rate.lasts(left);
      const std::int64_t event = flight_.next_event();
      const std::int64_t until = std::min(end, event);
      if (!flight_.none()) {
        state_.overlapped += counts * std::max<std::int64_t>(0, until - std::max(since, shown));
      }
      state_.now = until;
      if (end <= event) break;
      left = std::max<std::int64_t>(0, left - (event - since) * rate.rate);
      since = event;
      flight_.handle(event);
    }
    state_.computed += counts * std::max<std::int64_t>(0, state_.now - shown);
  }

  // The host goes on; when what it has issued may start.
  std::int64_t issue(std::int64_t takes) {
    if (!limits_) return 0;
    state_.host += takes;
    return std::max<std::int64_t>(0, state_.host + data_.latency);
  }

  void launch(std::size_t b) {
    const BucketChoice& choice = choices_[b];
    if (data_.scales_before) {
      run_node(prices_.of(choice.begin, choice.end).scale, KernelClass::Memory, 1,
               issue(data_.copy));
    }
    if (limits_) {
      issue(2 * data_.event);
      BucketTimes& times = memory_.times[b];
      times.issued = issue(data_.collective);
      if (data_.scales_after) times.scale_issued = issue(data_.copy);
      issue(data_.event);
      limited_ = limited_ || times.issued > state_.now;
    }
    if (data_.enqueue > 0) run_node(data_.enqueue, KernelClass::Other, 1, 0);
    flight_.launch(static_cast<std::int32_t>(b), state_.now);
  }

  void wait_for(std::int32_t bucket) {
    const BucketChoice& choice = choices_[at(bucket)];
    const std::int32_t event = event_of(bucket);
    if (memory_.waited[at(event)] == 0) {
      memory_.waited[at(event)] = 1;
      issue(data_.event);
      const std::int64_t& done = memory_.done[at(event)];
      if (done > state_.now) {
        flight_.set_busy(false, state_.now);
        while (done == kNever) flight_.handle(flight_.next_event());
        state_.now = std::max(state_.now, done);
      }
      if (data_.wake_up > 0) run_node(data_.wake_up, KernelClass::Other, 0, 0);
    }
    if (choice.mode == BucketMode::Copy) {
      run_node(prices_.of(choice.begin, choice.end).unpack, KernelClass::Memory, 1,
               issue(data_.copy));
    }
  }

  // Whether a step that begins with idle streams and a host far ahead is followed by equal ones.
  [[nodiscard]] bool stands_for_all() const {
    for (const StreamState& stream : flight_.streams()) {
      if (stream.first_start < 0) continue;
      const std::int64_t before = data_.inline_host ? state_.now - stream.last_end : 0;
      if (before + stream.first_start < stream.first_spread) return false;
    }
    if (data_.inline_host) return true;
    const std::int64_t host = host_time();
    return (sim::kMostSteps / 2 - 2) * (state_.now - host) >= host + data_.latency;
  }

  // To issue one step; waits that lower leaves out are counted too.
  [[nodiscard]] std::int64_t host_time() const {
    const auto buckets = static_cast<std::int64_t>(choices_.size());
    std::int64_t copies = data_.scales_before || data_.scales_after ? buckets : 0;
    if (copies_) {
      copies += state_.packs + std::ranges::count(choices_, BucketMode::Copy, &BucketChoice::mode);
    }
    return data_.issue_sum + buckets * (data_.collective + 4 * data_.event) + copies * data_.copy;
  }

  [[nodiscard]] sim::StepSummary summary_since(const WalkState& start,
                                               std::int64_t communication_before) const {
    const std::int64_t communication = communication_ - communication_before;
    return {.step_ns = state_.now - start.now,
            .exposed_ns = communication - (state_.overlapped - start.overlapped),
            .communication_ns = communication,
            .compute_ns = state_.computed - start.computed};
  }

  template <typename Index>
  static std::size_t at(Index index) {
    return static_cast<std::size_t>(index);
  }

  const StepData& data_;
  const std::span<const BucketChoice> choices_;
  const bool limits_;
  const bool slows_transfers_;
  const bool copies_;
  PriceMemo& prices_;
  FullMemory& memory_;
  InFlight flight_;
  WalkState state_;
  bool limited_ = false;            // the host held something back in this step
  std::int64_t communication_ = 0;  // at its end
  Alike alike_;
  bool keeps_ = false;
};

}  // namespace

std::optional<sim::StepSummary> walk_one_step(const StepData& data,
                                              std::span<const BucketChoice> choices,
                                              std::size_t first, Keep keep, PriceMemo& prices,
                                              FullMemory& memory) {
  return Walk(data, choices, Host::FarAhead, prices, memory).one_step(first, keep);
}

std::optional<sim::StepSummary> walk_steps(const StepData& data,
                                           std::span<const BucketChoice> choices, PriceMemo& prices,
                                           FullMemory& memory) {
  return Walk(data, choices, Host::Limits, prices, memory).steps();
}

}  // namespace dovetail::search
