// Finds DDP's buckets in one step of a trace: which all-reduces were issued from backward, and
// which gradients were accumulated since the one before.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/ddp_buckets.h"

#include "recordings/names.h"
#include "recordings/timeline/collectives.h"

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
    std::int64_t element_size = 0;  // 0: not told
    std::int32_t copy = kNone;      // GPU work of its own copy
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
    // A loss that is compiled alone has a compiled backward, too, behind which each layer has its own.
    if (trace_.is(number, Is::CompiledBackward)) {
      found_.is_compiled_whole = found_.buckets.empty() && open_.empty();
    } else if (trace_.is(number, Is::Backward) && !trace_.is(number, Is::OfGradients)) {
      found_.is_compiled_whole = false;
    }
    if (trace_.is(number, Is::AccumulateGrad)) {
      accumulate(number);
    } else if (trace_.is(number, Is::CopyIntoBucket)) {
      copy_in(number);
    } else if (trace_.is(number, Is::BatchedCopy)) {
      copy_all_in(number);
    } else if (trace_.is(number, Is::Cast)) {
      is_cast_ |= is_of_hook(number);
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
    take_dims(open, now);
    open_.push_back(open);
    batch_.reset();
    is_cast_ = false;
  }

  void set_work(TracedGradient& gradient, std::int32_t work) const {
    gradient.work = work;
    gradient.ready = line_.works[static_cast<std::size_t>(work)].end;
  }

  void take_dims(Open& open, const RecordedEvent& now) const {
    if (now.shapes == kNone || open.gradient.size_is_known) return;
    const InputShapes& shapes = trace_.shapes[static_cast<std::size_t>(now.shapes)];
    const auto dims =
        std::ranges::find_if(shapes.dims, [](const auto& one) { return !one.empty(); });
    if (dims == shapes.dims.end()) return;
    std::int64_t product = 1;
    for (const std::int64_t dim : *dims) {
      if (dim <= 0 || dim > kMostElements / product) return;
      product *= dim;
    }
    open.gradient.elements = product;
    open.gradient.size_is_known = true;
    const auto place = static_cast<std::size_t>(dims - shapes.dims.begin());
    if (place < shapes.types.size()) open.element_size = element_size(shapes.types[place]);
  }

  // The hook's copy follows its AccumulateGrad at once, on its thread.
  void copy_in(std::int32_t number) {
    const RecordedEvent& now = event(number);
    if (open_.empty() || open_.back().thread != now.thread) return;
    Open& open = open_.back();
    open.copied = true;
    is_hooked_ |= trace_.is(number, Is::CopyForHook);
    open.gradient.host_ready = line_.instant(now.end_ns());
    take_dims(open, now);
    open.copy = first_compute_inside(now);
    count(found_.into, now);
    if (open.copy != kNone) {
      set_work(open.gradient, open.copy);
    } else {
      open.gradient.ready = std::max(open.gradient.ready, open.gradient.host_ready);
    }
  }

  // What DDP's own hook runs, behind the last AccumulateGrad: its operators stand in that node of the engine.
  [[nodiscard]] bool is_of_hook(std::int32_t number) const {
    if (open_.empty() || open_.back().thread != event(number).thread) return false;
    std::int32_t around = line_.parent[static_cast<std::size_t>(number)];
    if (around != kNone && !trace_.is(around, Is::EngineFunction)) {  // aten::to
      around = line_.parent[static_cast<std::size_t>(around)];
    }
    return around != kNone && trace_.is(around, Is::EngineFunction) &&
           trace_.is(around, Is::OfGradients);
  }

  void copy_all_in(std::int32_t number) {
    if (!is_of_hook(number)) return;
    batch_ = line_.instant(event(number).start_ns);
    for (Open& open : open_) open.copied = true;
    count(found_.into, event(number));
    found_.is_batched = true;
  }

  void copy_out(std::int32_t number) {
    const RecordedEvent& now = event(number);
    const std::vector<std::int32_t> works =
        works_between(line_.instant(now.start_ns), line_.instant(now.end_ns()));
    count(found_.out, now);
    if (works.empty()) return;
    copied_bytes_.push_back(
        event(line_.works[static_cast<std::size_t>(works.front())].event).bytes);
    found_.copies_back.insert(found_.copies_back.end(), works.begin(), works.end());
  }

  void count(GradientCopies& copies, const RecordedEvent& copy) const {
    if (line_.on_cpu) {
      ++copies.launches;
      copies.time += Duration(copy.duration_ns);
      return;
    }
    for (const std::int32_t number :
         works_between(line_.instant(copy.start_ns), line_.instant(copy.end_ns()))) {
      const GpuWork& work = line_.works[static_cast<std::size_t>(number)];
      ++copies.launches;
      copies.time += work.end - work.start;
    }
  }

  // Compute that was launched in that time, by that thread or by any.
  [[nodiscard]] std::vector<std::int32_t> works_between(
      Instant from, Instant to, std::optional<std::int32_t> thread = std::nullopt) const {
    std::vector<std::int32_t> works;
    for (auto at = std::ranges::lower_bound(launches_, from, {}, &Launch::at);
         at != launches_.end() && at->at < to; ++at) {
      const auto launch =
          static_cast<std::size_t>(line_.works[static_cast<std::size_t>(at->work)].launch);
      const bool is_there = !thread || line_.calls[launch].thread == *thread;
      if (is_there && is_compute(at->work)) works.push_back(at->work);
    }
    return works;
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
    fill(bucket, now);
    std::int64_t element = 0;  // bytes, of the gradients
    std::optional<std::int64_t> sent;
    for (const Open& open : open_) {
      bucket.gradients.push_back(open.gradient);
      element = std::max(element, open.element_size);
    }
    open_.clear();
    if (const auto issued = issued_by_.find(number); issued != issued_by_.end()) {
      const TracedCollective& of_call = line_.collectives[static_cast<std::size_t>(issued->second)];
      bucket.collective = issued->second;
      bucket.elements = of_call.elements.value_or(0);
      // A size without a type: counted in elements of the gradients', or of four bytes.
      if (!of_call.elements && of_call.bytes) {
        bucket.elements = of_call.bytes->count() / (element > 0 ? element : 4);
      } else if (of_call.bytes && of_call.elements.value_or(0) > 0) {
        sent = std::max<std::int64_t>(1, of_call.bytes->count() / *of_call.elements);
      }
    } else if (now.shapes != kNone) {
      Open whole;
      take_dims(whole, now);
      bucket.elements = whole.gradient.elements;
    }
    const bool is_narrowed = std::exchange(is_cast_, false) && sent.value_or(4) < 4;
    bucket.element_size = Bytes(element > 0 ? element : is_narrowed ? 4 : sent.value_or(4));
    bucket.sent_element = sent ? Bytes(*sent) : bucket.element_size;
    found_.buckets.push_back(std::move(bucket));
  }

  // What fills the bucket. Where that follows the last gradient, by one copy of all or a hook's cast, this one is ready behind it.
  void fill(TracedBucket& bucket, const RecordedEvent& now) {
    for (const Open& open : open_) {
      if (open.copy != kNone) bucket.copies_in.push_back(open.copy);
    }
    const std::optional<Instant> batch = std::exchange(batch_, std::nullopt);
    if (!batch && !is_cast_) return;
    const Instant at = line_.instant(now.start_ns);
    if (batch) bucket.copies_in = works_between(*batch, at, now.thread);
    TracedGradient& last = open_.back().gradient;
    last.host_ready = last.ready = at;
    if (const std::int32_t work = last_compute_before(at, now.thread); work != kNone) {
      set_work(last, work);
    }
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
        found_.is_compressed |= is_hooked_ && bucket.elements > 0 && bucket.elements < sum &&
                                std::ranges::all_of(bucket.gradients, known);
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
  std::vector<Open> open_;        // gradients that no bucket has taken yet
  std::optional<Instant> batch_;  // when all of them began to be copied
  bool is_cast_ = false;          // since the last of them a hook has cast the bucket
  bool is_hooked_ = false;        // DDP copies for a hook
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
