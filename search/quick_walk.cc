// Jumps from launch to launch, then from wait to wait.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/quick_walk.h"

#include <algorithm>
#include <cstdlib>

namespace dovetail::search {
namespace {

using models::KernelClass;
using schedule::BucketMode;
using schedule::WaitScope;

class Walk {
 public:
  Walk(const StepData& data, std::span<const BucketChoice> choices, PriceMemo& prices,
       QuickMemory& memory)
      : data_(data),
        choices_(choices),
        copies_(choices.front().mode == BucketMode::Copy),
        table_(copies_ ? data.packed : data.view),
        prices_(prices),
        memory_(memory) {}

  std::optional<sim::StepSummary> run(std::size_t first, Keep keep) {
    if (copies_) first = before_packs(first);
    if (first > 0) {
      state_ = memory_.states[first];
      first_start_ = memory_.first_start;
      first_spread_ = memory_.first_spread;
    }
    std::vector<std::int64_t>& done = keep == Keep::Yes ? memory_.done : memory_.changed;
    if (done.size() < choices_.size()) done.resize(choices_.size());
    if (keep == Keep::Yes && memory_.states.size() < choices_.size()) {
      memory_.states.resize(choices_.size());
    }
    for (std::size_t b = first; b < choices_.size(); ++b) {
      if (keep == Keep::Yes) memory_.states[b] = state_;
      const std::int32_t wait = data_.wait_of(choices_[b]);
      state_.waits_differ =
          state_.waits_differ || wait < state_.wait || choices_[b].scope == WaitScope::WholeStream;
      state_.wait = wait;
      state_.launch = data_.launch_of(choices_[b], state_.launch);
      run_through(state_.launch);
      if (!launch(b)) return std::nullopt;
      done[b] = state_.horizon;
    }
    if (keep == Keep::Yes) {
      memory_.first_start = first_start_;
      memory_.first_spread = first_spread_;
    }
    wait_for_all(first, done);
    return summary();
  }

 private:
  // The last bucket at or before this one in front of which no gradient of it or a later one has been
  // packed: how packs are divided depends on all borders among the gradients of one producer.
  [[nodiscard]] std::size_t before_packs(std::size_t first) const {
    while (first > 0 && data_.ready[choices_[first].begin] <= memory_.states[first].launch) --first;
    return first;
  }

  // Nodes up to `target`, exclusive.
  void run_to(std::int32_t target) {
    if (state_.now < state_.horizon) {
      const std::int64_t* const beside = table_.beside.data();
      const std::int64_t reach = beside[state_.node] + state_.horizon - state_.now;
      if (beside[target] <= reach) {
        run_beside(target);
        return;
      }
      const auto behind = std::upper_bound(beside + state_.node, beside + target, reach);
      run_beside(static_cast<std::int32_t>(behind - beside) - 1);
      cut(table_.work[state_.node], table_.rate[state_.node], 1);
      ++state_.node;
    }
    const std::int64_t took = table_.full[target] - table_.full[state_.node];
    state_.now += took;
    state_.computed += took - data_.gap * (target - state_.node);
    state_.node = target;
  }

  // The same; all end at the horizon at the latest.
  void run_beside(std::int32_t target) {
    const std::int64_t took = table_.beside[target] - table_.beside[state_.node];
    const std::int64_t shown = took - data_.gap * (target - state_.node);
    state_.now += took;
    state_.computed += shown;
    state_.overlapped += shown;
    state_.node = target;
  }

  // One node that begins before the horizon, or at it, and ends behind it. `counts`: 1 if it is shown as
  // compute, else 0.
  void cut(std::int64_t work, std::int64_t rate, std::int64_t counts) {
    const std::int64_t inside = state_.horizon - state_.now;
    const std::int64_t left = (work << kFractionBits) - inside * rate;
    const std::int64_t end = state_.horizon + lasts(left, kFullRate);
    state_.overlapped += counts * std::max<std::int64_t>(0, inside - data_.gap);
    state_.computed += counts * (end - state_.now - data_.gap);
    state_.now = end;
  }

  // One node that is not in the table.
  void run_one(std::int64_t work, KernelClass kernel, std::int64_t counts) {
    if (state_.now < state_.horizon) {
      const std::int64_t rate = data_.beside_of(kernel);
      const std::int64_t slow = lasts(work << kFractionBits, rate);
      if (state_.now + slow > state_.horizon) {
        cut(work, rate, counts);
        return;
      }
      state_.now += slow;
      state_.computed += counts * (slow - data_.gap);
      state_.overlapped += counts * (slow - data_.gap);
      return;
    }
    state_.now += work;
    state_.computed += counts * (work - data_.gap);
  }

  // All up to and including this op, and the packs behind it.
  void run_through(std::int32_t op) {
    if (copies_) pack_cut_producers(op);
    const std::int32_t target = table_.of_op[op + 1];
    if (target > state_.node) run_to(target);
  }

  // Where a border divides the gradients of one producer, each bucket has a pack of its own. Of producers
  // up to this op.
  void pack_cut_producers(std::int32_t op) {
    const auto last = static_cast<std::int32_t>(choices_.size()) - 1;
    while (state_.cut < last) {
      const std::int32_t border = choices_[state_.cut].end;
      const std::int32_t producer = data_.ready[border];
      if (data_.ready[border - 1] > op) return;
      if (data_.ready[border - 1] == producer) {
        run_to(table_.of_op[producer] + 1);
        pack_in_parts(producer);
        state_.node = table_.of_op[producer + 1];
      } else {
        ++state_.cut;
      }
    }
  }

  // Leaves `cut` at the bucket that holds the producer's last gradient. REQUIRES: the end of `cut` is a
  // border among its gradients.
  void pack_in_parts(std::int32_t producer) {
    std::int32_t next = choices_[state_.cut].end;
    while (next > 0 && data_.ready[next - 1] == producer) --next;
    for (;; ++state_.cut, ++state_.extra_packs) {
      const std::int32_t begin = next;
      const std::int32_t end = choices_[state_.cut].end;
      while (next < end && data_.ready[next] == producer) ++next;
      run_one(data_.copy_work(data_.bytes_sum[next] - data_.bytes_sum[begin]), KernelClass::Memory,
              1);
      if (next == data_.count() || data_.ready[next] != producer) return;
    }
  }

  bool launch(std::size_t b) {
    const BucketPrice& price = prices_.of(choices_[b].begin, choices_[b].end);
    if (data_.scales_before) run_one(price.scale, KernelClass::Memory, 1);
    if (data_.enqueue > 0) run_one(data_.enqueue, KernelClass::Other, 1);
    const std::int64_t start = std::max(state_.now, state_.horizon);
    std::int64_t took = price.isolated;
    if (b > 0) {
      took = price.duration(start - state_.last_end);
    } else {
      first_start_ = start;
      first_spread_ = std::abs(price.isolated - price.back_to_back);
    }
    if (took > kLargestWork) return false;
    state_.communication += took;
    state_.horizon = state_.last_end = start + took;
    return true;
  }

  // Waits stand in the order of their places, those of one place in launch order.
  void order_waits() {
    std::vector<QuickMemory::Wait>& order = memory_.order;
    order.clear();
    for (std::size_t b = 0; b < choices_.size(); ++b) {
      const QuickMemory::Wait wait{data_.wait_of(choices_[b]), static_cast<std::int32_t>(b)};
      std::size_t at = order.size();
      order.push_back(wait);
      for (; at > 0 && order[at - 1].place > wait.place; --at) order[at] = order[at - 1];
      order[at] = wait;
    }
  }

  // Waits that stand in launch order and do nothing but wait. Those that ended before the last launch are
  // passed over: they end in launch order too.
  void wait_in_order(std::size_t first, const std::vector<std::int64_t>& done) {
    const auto end = static_cast<std::int32_t>(table_.work.size());
    const auto pending = [&](const std::vector<std::int64_t>& of, std::size_t from,
                             std::size_t to) {
      const auto begin = of.begin();
      return static_cast<std::size_t>(std::upper_bound(begin + static_cast<std::ptrdiff_t>(from),
                                                       begin + static_cast<std::ptrdiff_t>(to),
                                                       state_.now) -
                                      begin);
    };
    std::size_t b = pending(memory_.done, 0, first);
    if (b == first) b = pending(done, first, choices_.size());
    for (; b < choices_.size() && state_.now < state_.horizon; ++b) {
      const std::int32_t place = data_.wait_of(choices_[b]);
      const std::int32_t target = place == kBehindAllOps ? end : table_.of_op[place];
      if (target > state_.node) run_to(target);
      state_.now = std::max(state_.now, b < first ? memory_.done[b] : done[b]);
    }
  }

  void wait_for_all(std::size_t first, const std::vector<std::int64_t>& done) {
    const auto end = static_cast<std::int32_t>(table_.work.size());
    const auto last = static_cast<std::int32_t>(choices_.size()) - 1;
    const bool nothing_to_do = !copies_ && data_.wake_up == 0;
    if (nothing_to_do && !state_.waits_differ) {
      wait_in_order(first, done);
      if (end > state_.node) run_to(end);
      return;
    }
    bool waited_for_last = false;
    order_waits();
    for (const QuickMemory::Wait& wait : memory_.order) {
      if (nothing_to_do && state_.now >= state_.horizon) break;  // all have arrived
      const std::int32_t target = wait.place == kBehindAllOps ? end : table_.of_op[wait.place];
      if (target > state_.node) run_to(target);
      const BucketChoice& choice = choices_[wait.bucket];
      const std::int32_t event = choice.scope == WaitScope::WholeStream ? last : wait.bucket;
      if (event != last || !waited_for_last) {
        waited_for_last = waited_for_last || event == last;
        const auto at = static_cast<std::size_t>(event);
        state_.now = std::max(state_.now, at < first ? memory_.done[at] : done[at]);
        if (data_.wake_up > 0) run_one(data_.wake_up, KernelClass::Other, 0);
      }
      if (copies_) run_one(prices_.of(choice.begin, choice.end).unpack, KernelClass::Memory, 1);
    }
    if (end > state_.node) run_to(end);
  }

  // Of a step that follows others of its kind for ever, if it can.
  [[nodiscard]] std::optional<sim::StepSummary> summary() const {
    if (data_.inline_host) {
      const std::int64_t pause = state_.now - state_.last_end + first_start_;
      if (pause < first_spread_) return std::nullopt;
    } else {
      if (first_start_ < first_spread_) return std::nullopt;
      const std::int64_t host = host_time();
      if ((sim::kMostSteps / 2 - 2) * (state_.now - host) < host + data_.latency) {
        return std::nullopt;
      }
    }
    return sim::StepSummary{.step_ns = state_.now,
                            .exposed_ns = state_.communication - state_.overlapped,
                            .communication_ns = state_.communication,
                            .compute_ns = state_.computed};
  }

  // To issue one step; waits that lower leaves out are counted too.
  [[nodiscard]] std::int64_t host_time() const {
    const auto buckets = static_cast<std::int64_t>(choices_.size());
    std::int64_t copies = data_.scales_before ? buckets : 0;
    if (copies_) copies += buckets + data_.producers.back() + state_.extra_packs;
    return data_.issue_sum + buckets * (data_.collective + 4 * data_.event) + copies * data_.copy;
  }

  const StepData& data_;
  const std::span<const BucketChoice> choices_;
  const bool copies_;
  const NodeTable& table_;
  PriceMemo& prices_;
  QuickMemory& memory_;
  QuickState state_;
  std::int64_t first_start_ = 0;
  std::int64_t first_spread_ = 0;
};

}  // namespace

bool is_quick(const StepData& data, std::span<const BucketChoice> choices, std::size_t first) {
  const bool copies = choices.front().mode == BucketMode::Copy;
  if (data.contention.collective_slowdown != 1 || data.contention.collective_cpu != Duration{} ||
      data.scales_after) {
    return false;
  }
  if (copies && !data.packed.known) return false;
  std::int32_t next = first > 0 ? choices[first - 1].end : 0;
  for (std::size_t b = first; b < choices.size(); ++b) {
    const BucketChoice& choice = choices[b];
    if (choice.stream != choices.front().stream || choice.mode != choices.front().mode ||
        choice.wait == schedule::WaitPoint::BeforeNextBatch) {
      return false;
    }
    if (copies && choice.begin != next) return false;
    next = choice.end;
  }
  return true;
}

std::optional<sim::StepSummary> quick_walk(const StepData& data,
                                           std::span<const BucketChoice> choices, std::size_t first,
                                           Keep keep, PriceMemo& prices, QuickMemory& memory) {
  return Walk(data, choices, prices, memory).run(first, keep);
}

}  // namespace dovetail::search
