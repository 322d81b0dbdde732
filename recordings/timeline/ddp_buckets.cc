// Finds DDP's buckets in one step of a trace: which all-reduces were issued from backward, and
// which gradients were accumulated since the one before.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/ddp_buckets.h"

#include "recordings/names.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace dovetail::imports {
namespace {

// Collectives by the operator that issued them and the one around that; of several the first.
using Issued = std::unordered_map<std::int32_t, std::int32_t>;

Issued issued_collectives(const RankTimeline& line) {
  Issued issued;
  for (std::size_t c = 0; c < line.collectives.size(); ++c) {
    const std::int32_t call = line.collectives[c].call;
    if (call == kNone) continue;
    for (const std::int32_t issuer : {call, line.parent[static_cast<std::size_t>(call)]}) {
      issued.emplace(issuer, static_cast<std::int32_t>(c));
    }
  }
  return issued;
}

class Finder {
 public:
  Finder(const Recording& trace, const RankTimeline& line, const TracedStep& step,
         const Issued& issued)
      : trace_(trace), line_(line), step_(step), issued_by_(issued) {}

  TracedBuckets find() {
    const std::int64_t from = line_.origin_ns + step_.start.time_since_epoch().count();
    const std::int64_t to = line_.origin_ns + step_.end.time_since_epoch().count();
    index_launches();
    auto first = std::ranges::lower_bound(trace_.events, from, {}, &RecordedEvent::start_ns);
    for (auto event = first; event != trace_.events.end() && event->start_ns < to; ++event) {
      if (event->kind != EventKind::Operator) continue;
      visit(static_cast<std::int32_t>(event - trace_.events.begin()));
    }
    found_.gradients_after_last = static_cast<std::int64_t>(open_.size());
    take_copied_sizes();
    settle_sizes();
    return std::move(found_);
  }

 private:
  struct Open {
    TracedGradient gradient;
    std::int32_t thread = 0;
    std::size_t pass = 0;
    bool copied = false;
  };

  // Passes that began by then.
  [[nodiscard]] std::size_t pass_of(Instant at) const {
    const auto after = std::ranges::upper_bound(line_.passes, at, {}, &BackwardPass::begin);
    return static_cast<std::size_t>(after - line_.passes.begin());
  }

  [[nodiscard]] const RecordedEvent& event(std::int32_t number) const {
    return trace_.events[static_cast<std::size_t>(number)];
  }

  // The GPU work of the step, by the moment of its launch on the host.
  void index_launches() {
    for (const std::int32_t number : step_.works) {
      const GpuWork& work = line_.works[static_cast<std::size_t>(number)];
      if (work.launch == kNone) continue;
      launches_.push_back({line_.calls[static_cast<std::size_t>(work.launch)].start, number});
    }
    std::ranges::sort(launches_, {}, &Launch::at);
  }

  void visit(std::int32_t number) {
    if (trace_.is(number, Is::AccumulateGrad)) {
      accumulate(number);
    } else if (trace_.is(number, Is::CopyIntoBucket)) {
      copy_in(number);
    } else if (trace_.is(number, Is::CopyOutOfBucket)) {
      copy_out(number);
    } else if (trace_.is(number, Is::C10dReduction)) {
      close(number);
    }
  }

  void accumulate(std::int32_t number) {
    const RecordedEvent& now = event(number);
    const std::size_t pass = pass_of(line_.instant(now.start_ns));
    // What an earlier pass has left is accumulated, and never travels with this one's.
    if (!open_.empty() && open_.back().pass != pass) open_.clear();
    Open open;
    open.pass = pass;
    open.thread = now.thread;
    open.gradient.host_ready = line_.instant(now.end_ns());
    open.gradient.ready = open.gradient.host_ready;
    if (const std::int32_t work = last_compute_before(line_.instant(now.end_ns()), now.thread);
        work != kNone) {
      set_work(open.gradient, work);
    }
    take_dims(open.gradient, now);
    open_.push_back(open);
  }

  void set_work(TracedGradient& gradient, std::int32_t work) const {
    gradient.work = work;
    gradient.ready = line_.works[static_cast<std::size_t>(work)].end;
  }

  void take_dims(TracedGradient& gradient, const RecordedEvent& now) const {
    if (now.shapes == kNone || gradient.size_is_known) return;
    for (const auto& dims : trace_.shapes[static_cast<std::size_t>(now.shapes)].dims) {
      if (dims.empty()) continue;
      std::int64_t product = 1;
      for (const std::int64_t dim : dims) {
        if (dim <= 0 || dim > kMostElements / product) return;
        product *= dim;
      }
      gradient.elements = product;
      gradient.size_is_known = true;
      return;
    }
  }

  // The hook's copy follows its AccumulateGrad at once, on its thread.
  void copy_in(std::int32_t number) {
    const RecordedEvent& now = event(number);
    if (open_.empty() || open_.back().thread != now.thread) return;
    Open& open = open_.back();
    open.copied = true;
    open.gradient.host_ready = line_.instant(now.end_ns());
    take_dims(open.gradient, now);
    if (const std::int32_t work = first_compute_inside(now); work != kNone) {
      set_work(open.gradient, work);
    } else {
      open.gradient.ready = std::max(open.gradient.ready, open.gradient.host_ready);
    }
  }

  void copy_out(std::int32_t number) {
    const RecordedEvent& now = event(number);
    const Instant end = line_.instant(now.end_ns());
    for (auto at =
             std::ranges::lower_bound(launches_, line_.instant(now.start_ns), {}, &Launch::at);
         at != launches_.end() && at->at < end; ++at) {
      const GpuWork& work = line_.works[static_cast<std::size_t>(at->work)];
      copied_bytes_.push_back(event(work.event).bytes);
      found_.copies_back.push_back(at->work);
      return;
    }
  }

  [[nodiscard]] bool is_compute(std::int32_t work) const {
    return line_.works[static_cast<std::size_t>(work)].collective == kNone;
  }

  [[nodiscard]] std::int32_t first_compute_inside(const RecordedEvent& op) const {
    const Instant end = line_.instant(op.end_ns());
    for (auto at = std::ranges::lower_bound(launches_, line_.instant(op.start_ns), {}, &Launch::at);
         at != launches_.end() && at->at < end; ++at) {
      if (is_compute(at->work)) return at->work;
    }
    return kNone;
  }

  [[nodiscard]] std::int32_t last_compute_before(Instant moment, std::int32_t thread) const {
    auto at = std::ranges::lower_bound(launches_, moment, {}, &Launch::at);
    while (at != launches_.begin()) {
      --at;
      const GpuWork& work = line_.works[static_cast<std::size_t>(at->work)];
      const HostCall& call = line_.calls[static_cast<std::size_t>(work.launch)];
      if (is_compute(at->work) && call.thread == thread) return at->work;
    }
    return kNone;
  }

  // A bucket of what is open on this thread, if anything is.
  void close(std::int32_t number) {
    const RecordedEvent& now = event(number);
    if (open_.empty() || open_.back().thread != now.thread) return;
    TracedBucket bucket;
    bucket.call = number;
    bucket.copied = std::ranges::all_of(open_, &Open::copied);
    for (Open& open : open_) bucket.gradients.push_back(open.gradient);
    open_.clear();
    if (const auto issued = issued_by_.find(number); issued != issued_by_.end()) {
      const TracedCollective& of_call = line_.collectives[static_cast<std::size_t>(issued->second)];
      bucket.collective = issued->second;
      bucket.elements = of_call.elements.value_or(0);
      // A size without a type: counted in elements of four bytes.
      if (!of_call.elements && of_call.bytes) bucket.elements = of_call.bytes->count() / 4;
      if (of_call.bytes && of_call.elements.value_or(0) > 0) {
        bucket.element_size = Bytes(of_call.bytes->count() / *of_call.elements);
      }
    } else if (now.shapes != kNone) {
      TracedGradient whole;
      take_dims(whole, now);
      bucket.elements = whole.elements;
    }
    found_.buckets.push_back(std::move(bucket));
  }

  // The copies back stand in the order of the buckets, one per gradient.
  void take_copied_sizes() {
    std::size_t total = 0;
    for (const TracedBucket& bucket : found_.buckets) total += bucket.gradients.size();
    if (copied_bytes_.size() != total) return;
    std::size_t next = 0;
    for (TracedBucket& bucket : found_.buckets) {
      std::int64_t sum = 0;
      const std::size_t first = next;
      next += bucket.gradients.size();
      for (std::size_t i = first; i < next; ++i) sum += std::max<std::int64_t>(copied_bytes_[i], 0);
      if (bucket.elements > 0 && sum != bucket.elements * bucket.element_size.count()) continue;
      for (std::size_t i = first; i < next; ++i) {
        TracedGradient& gradient = bucket.gradients[i - first];
        if (copied_bytes_[i] <= 0) continue;
        gradient.elements = copied_bytes_[i] / bucket.element_size.count();
        gradient.size_is_known = true;
      }
    }
  }

  void settle_sizes() {
    for (TracedBucket& bucket : found_.buckets) {
      const auto known = [](const TracedGradient& g) { return g.size_is_known; };
      const std::int64_t sum = std::accumulate(
          bucket.gradients.begin(), bucket.gradients.end(), std::int64_t{0},
          [](std::int64_t total, const TracedGradient& g) { return total + g.elements; });
      if (std::ranges::all_of(bucket.gradients, known) &&
          (bucket.elements == 0 || bucket.elements == sum)) {
        bucket.elements = sum;
      } else {
        found_.sizes_known = false;
        share_out(bucket);
      }
      bucket.bytes = bucket.element_size * bucket.elements;
    }
  }

  static void share_out(TracedBucket& bucket) {
    const auto count = static_cast<std::int64_t>(bucket.gradients.size());
    std::int64_t given = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      TracedGradient& gradient = bucket.gradients[static_cast<std::size_t>(i)];
      const std::int64_t until =
          bucket.elements / count * (i + 1) + std::min(i + 1, bucket.elements % count);
      gradient.elements = until - given;
      gradient.size_is_known = false;
      given = until;
    }
  }

  struct Launch {
    Instant at;
    std::int32_t work = kNone;
  };
  const Recording& trace_;
  const RankTimeline& line_;
  const TracedStep& step_;
  const Issued& issued_by_;
  std::vector<Launch> launches_;
  std::vector<Open> open_;  // gradients that no bucket has taken yet
  std::vector<std::int64_t> copied_bytes_;
  TracedBuckets found_;
};

}  // namespace

TracedBuckets ddp_buckets(const Recording& trace, const RankTimeline& line,
                          const TracedStep& step) {
  return Finder(trace, line, step, issued_collectives(line)).find();
}

std::vector<TracedBuckets> ddp_buckets(const Recording& trace, const RankTimeline& line) {
  const Issued issued = issued_collectives(line);
  std::vector<TracedBuckets> buckets;
  for (const TracedStep& step : line.steps) {
    buckets.push_back(Finder(trace, line, step, issued).find());
  }
  return buckets;
}

}  // namespace dovetail::imports
