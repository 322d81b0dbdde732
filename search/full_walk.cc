// Op by op, event by event.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/full_walk.h"

#include <algorithm>
#include <utility>

namespace dovetail::search {
namespace {

using models::KernelClass;
using schedule::BucketMode;
using schedule::WaitScope;

// A communication stream: a queue of launched buckets, the first of which may be in flight.
struct Stream {
  std::int32_t head = -1;  // first that has not ended
  std::int32_t tail = -1;  // last one launched in this step
  bool in_flight = false;  // the head is
  bool used = false;       // a collective has ended before: last_end holds
  std::int64_t free = 0;   // end of what it did last
  std::int64_t last_end = 0;
  std::int64_t left = 0;  // of the head in flight, in 2^-20 ns, at `since`
  std::int64_t since = 0;
  std::int64_t rate = kFullRate;
  std::int64_t alone = 1;       // its duration at full rate
  double wire = 0;              // the share of it that is no latency
  double share = 1;             // its rate as far as links go
  std::int64_t event = kNever;  // when the head ends or begins
};

class Walk {
 public:
  Walk(const StepData& data, std::span<const BucketChoice> choices, PriceMemo& prices,
       FullMemory& memory)
      : data_(data), choices_(choices), prices_(prices), memory_(memory) {
    for (const BucketChoice& choice : choices) {
      streams_ = std::max(streams_, choice.stream + 1);
      shares_links_ = shares_links_ || choice.stream != choices.front().stream;
    }
    shares_links_ = shares_links_ && !data.demands.empty();
    prepare();
  }

  std::optional<sim::StepSummary> run() {
    for (std::int32_t step = 0; step < sim::kMostSteps; ++step) {
      std::swap(memory_.step, memory_.before);
      play_step();
      if (too_long_) return std::nullopt;
      if (step > 0 && repeats()) return summary();
    }
    return std::nullopt;
  }

 private:
  // What is the same in every step.
  void prepare() {
    const std::size_t buckets = choices_.size();
    memory_.owner.resize(data_.ready.size());
    memory_.launch.resize(buckets);
    memory_.next.resize(buckets);
    memory_.waits.clear();
    std::int32_t launch = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      const BucketChoice& choice = choices_[b];
      launch = memory_.launch[b] = data_.launch_of(choice, launch);
      for (std::int32_t g = choice.begin; g < choice.end; ++g) {
        memory_.owner[g] = static_cast<std::int32_t>(b);
      }
      const FullMemory::Wait wait{data_.wait_of(choice), static_cast<std::int32_t>(b)};
      std::size_t at = memory_.waits.size();
      memory_.waits.push_back(wait);
      for (; at > 0 && memory_.waits[at - 1].place > wait.place; --at) {
        memory_.waits[at] = memory_.waits[at - 1];
      }
      memory_.waits[at] = wait;
    }
  }

  void play_step() {
    memory_.step.nodes.clear();
    memory_.step.transfers.assign(choices_.size(), {});
    memory_.waited.assign(choices_.size(), 0);
    memory_.finished.assign(choices_.size(), 0);
    for (std::int32_t s = 0; s < streams_; ++s) stream_[s].head = stream_[s].tail = -1;
    std::size_t wait = 0;
    std::size_t bucket = 0;
    std::int32_t gradient = 0;
    for (std::int32_t op = 0; op < data_.ops(); ++op) {
      for (; wait < memory_.waits.size() && memory_.waits[wait].place <= op; ++wait) {
        wait_for(memory_.waits[wait].bucket);
      }
      run_node(data_.work[op], true, issue(data_.issue[op]), data_.kernel[op]);
      gradient = pack_behind(op, gradient);
      for (; bucket < choices_.size() && memory_.launch[bucket] == op; ++bucket) launch(bucket);
    }
    for (; wait < memory_.waits.size(); ++wait) wait_for(memory_.waits[wait].bucket);
    memory_.step.end = now_;
  }

  // The packs of what the op produced, by bucket; gives the first gradient of a later producer.
  std::int32_t pack_behind(std::int32_t op, std::int32_t gradient) {
    std::int32_t end = gradient;
    while (end < data_.count() && data_.ready[end] == op) ++end;
    for (std::int32_t last = -1; gradient < end;) {
      // The next bucket in launch order that holds some of them.
      std::int32_t owner = kBehindAllOps;
      for (std::int32_t g = gradient; g < end; ++g) {
        if (memory_.owner[g] > last) owner = std::min(owner, memory_.owner[g]);
      }
      if (owner == kBehindAllOps) break;
      last = owner;
      if (choices_[owner].mode != BucketMode::Copy) continue;
      std::int64_t bytes = 0;
      for (std::int32_t g = gradient; g < end; ++g) {
        if (memory_.owner[g] == owner) bytes += data_.bytes[g];
      }
      run_node(data_.copy_work(bytes), true, issue(data_.copy), KernelClass::Memory);
    }
    return end;
  }

  // The host goes on; when what it has issued may start.
  std::int64_t issue(std::int64_t takes) {
    if (data_.inline_host) return 0;
    host_ += takes;
    return std::max<std::int64_t>(0, host_ + data_.latency);
  }

  void launch(std::size_t b) {
    const BucketChoice& choice = choices_[b];
    PlayedStep::Transfer& transfer = memory_.step.transfers[b];
    if (data_.scales_before) {
      run_node(prices_.of(choice.begin, choice.end).scale, true, issue(data_.copy),
               KernelClass::Memory);
    }
    issue(data_.event);
    issue(data_.event);
    transfer.issued = issue(data_.collective);
    if (data_.scales_after) transfer.scale_issued = issue(data_.copy);
    issue(data_.event);
    if (data_.enqueue > 0) run_node(data_.enqueue, true, 0);
    transfer.start = std::max(now_, transfer.issued);  // the earliest, until it begins
    Stream& stream = stream_[choice.stream];
    const auto index = static_cast<std::int32_t>(b);
    memory_.next[b] = -1;
    if (stream.tail >= 0) memory_.next[stream.tail] = index;
    stream.tail = index;
    if (stream.head >= 0) return;
    stream.head = index;
    expect_begin(stream);
  }

  void expect_begin(Stream& stream) {
    stream.event =
        stream.head < 0 ? kNever : std::max(stream.free, memory_.step.transfers[stream.head].start);
  }

  void wait_for(std::int32_t bucket) {
    const BucketChoice& choice = choices_[bucket];
    const std::int32_t event =
        choice.scope == WaitScope::WholeStream ? stream_[choice.stream].tail : bucket;
    if (memory_.waited[event] == 0) {
      memory_.waited[event] = 1;
      issue(data_.event);
      if (memory_.finished[event] == 0 || memory_.step.transfers[event].done > now_) {
        set_busy(false);
        while (memory_.finished[event] == 0) handle_events(next_event());
        now_ = std::max(now_, memory_.step.transfers[event].done);
      }
      if (data_.wake_up > 0) run_node(data_.wake_up, false, 0);
    }
    if (choice.mode == BucketMode::Copy) {
      run_node(prices_.of(choice.begin, choice.end).unpack, true, issue(data_.copy),
               KernelClass::Memory);
    }
  }

  // A node of the compute stream, from now or from when it is issued.
  void run_node(std::int64_t work, bool counts, std::int64_t issued,
                KernelClass kernel = KernelClass::Other) {
    const std::int64_t start = std::max(now_, issued);
    if (start > now_) set_busy(false);
    while (next_event() <= start) handle_events(next_event());
    now_ = start;
    set_busy(true);
    std::int64_t left = work << kFractionBits;
    std::int64_t since = start;
    std::int64_t end = 0;
    for (;;) {
      const std::int64_t rate = compute_rate(kernel);
      end = since + lasts(left, rate);
      const std::int64_t event = next_event();
      if (end <= event) break;
      left = std::max<std::int64_t>(0, left - (event - since) * rate);
      since = event;
      handle_events(event);
    }
    now_ = end;
    memory_.step.nodes.push_back({start, end, issued, counts});
  }

  [[nodiscard]] std::int64_t next_event() const {
    std::int64_t first = kNever;
    for (std::int32_t s = 0; s < streams_; ++s) first = std::min(first, stream_[s].event);
    return first;
  }

  void handle_events(std::int64_t time) {
    for (std::int32_t s = 0; s < streams_; ++s) {
      Stream& stream = stream_[s];
      while (stream.event == time) {
        if (stream.in_flight) {
          end_transfer(stream, time);
        } else {
          begin_transfer(stream, time);
        }
      }
    }
  }

  void begin_transfer(Stream& stream, std::int64_t time) {
    const BucketChoice& choice = choices_[stream.head];
    const BucketPrice& price = prices_.of(choice.begin, choice.end);
    const std::int64_t work = stream.used ? price.duration(time - stream.last_end) : price.isolated;
    too_long_ = too_long_ || work > kLargestWork;
    memory_.step.transfers[stream.head].start = time;
    stream.in_flight = true;
    stream.left = (too_long_ ? 0 : work) << kFractionBits;
    stream.since = time;
    stream.alone = std::max<std::int64_t>(work, 1);
    const std::int64_t latency = std::min(data_.wire_latency, stream.alone);
    stream.wire = static_cast<double>(stream.alone - latency) / static_cast<double>(stream.alone);
    stream.share = 1;
    stream.rate = transfer_rate(stream);
    stream.event = time + lasts(stream.left, stream.rate);
    active_[in_flight_++] = choice.stream;
    if (shares_links_) share_links(time);
  }

  void end_transfer(Stream& stream, std::int64_t time) {
    PlayedStep::Transfer& transfer = memory_.step.transfers[stream.head];
    transfer.end = transfer.done = time;
    if (data_.scales_after) {
      const BucketChoice& choice = choices_[stream.head];
      transfer.done =
          std::max(time, transfer.scale_issued) + prices_.of(choice.begin, choice.end).scale;
    }
    const auto last = active_.begin() + in_flight_;
    static_cast<void>(std::remove(active_.begin(), last, choices_[stream.head].stream));
    --in_flight_;
    stream.in_flight = false;
    stream.used = true;
    stream.last_end = time;
    stream.free = transfer.done;
    memory_.finished[stream.head] = 1;
    stream.head = memory_.next[stream.head];
    expect_begin(stream);
    if (shares_links_) share_links(time);
  }

  // The compute stream computes or waits from now on.
  void set_busy(bool busy) {
    if (busy_ == busy) return;
    busy_ = busy;
    if (data_.contention.collective_slowdown == 1 || in_flight_ == 0) return;
    if (shares_links_) {
      share_links(now_);
      return;
    }
    for (std::int32_t s = 0; s < streams_; ++s) {
      if (stream_[s].in_flight) retime(stream_[s], now_);
    }
  }

  // Gives the transfer its rate from this time on.
  void retime(Stream& stream, std::int64_t time) {
    const std::int64_t rate = transfer_rate(stream);
    if (rate == stream.rate) return;
    stream.left = std::max<std::int64_t>(0, stream.left - (time - stream.since) * stream.rate);
    stream.since = time;
    stream.rate = rate;
    stream.event = time + lasts(stream.left, rate);
  }

  // How much slower transfers are at most for what is computed.
  [[nodiscard]] double beside_compute() const {
    return busy_ ? data_.contention.collective_slowdown : 1;
  }

  [[nodiscard]] std::int64_t transfer_rate(const Stream& stream) const {
    if (!busy_ && stream.share == 1) return kFullRate;
    return sim::whole_rate(stream.share / beside_compute());
  }

  // Solves for all transfers in flight.
  void share_links(std::int64_t time) {
    if (in_flight_ > 1) {
      memory_.shares.clear();
      for (std::int32_t s = 0; s < streams_; ++s) {
        if (!stream_[s].in_flight) continue;
        memory_.shares.add(data_.demands, stream_[s].wire / beside_compute());
      }
      const std::span<const double> shares = memory_.shares.solve();
      std::size_t next = 0;
      for (std::int32_t s = 0; s < streams_; ++s) {
        if (stream_[s].in_flight) stream_[s].share = shares[next++];
      }
    }
    for (std::int32_t s = 0; s < streams_; ++s) {
      Stream& stream = stream_[s];
      if (!stream.in_flight) continue;
      if (in_flight_ == 1) stream.share = 1;
      retime(stream, time);
    }
  }

  [[nodiscard]] std::int64_t compute_rate(KernelClass kernel) const {
    if (in_flight_ == 0) return kFullRate;
    if (in_flight_ == 1 && data_.contention.collective_cpu == Duration{}) {
      return data_.beside_of(kernel);
    }
    sim::Taken taken;
    for (std::int32_t i = 0; i < in_flight_; ++i) {  // in the order in which they began
      const Stream& stream = stream_[active_[i]];
      taken.add(data_.contention, stream.share, stream.alone);
    }
    return sim::whole_rate(taken.left(kernel));
  }

  [[nodiscard]] bool repeats() const {
    const PlayedStep& step = memory_.step;
    const PlayedStep& before = memory_.before;
    const std::int64_t shift = step.end - before.end;
    for (std::size_t i = 0; i < step.nodes.size(); ++i) {
      const PlayedStep::Node& node = step.nodes[i];
      const PlayedStep::Node& earlier = before.nodes[i];
      if (node.start - earlier.start != shift || node.end - earlier.end != shift) return false;
      if (node.issued - earlier.issued > shift) return false;
    }
    for (std::size_t i = 0; i < step.transfers.size(); ++i) {
      const PlayedStep::Transfer& transfer = step.transfers[i];
      const PlayedStep::Transfer& earlier = before.transfers[i];
      if (transfer.start - earlier.start != shift || transfer.end - earlier.end != shift ||
          transfer.done - earlier.done != shift || transfer.issued - earlier.issued > shift ||
          transfer.scale_issued - earlier.scale_issued > shift) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] sim::StepSummary summary() {
    std::vector<PlayedStep::Transfer>& transfers = memory_.step.transfers;
    std::ranges::sort(transfers, {}, &PlayedStep::Transfer::start);
    sim::StepSummary summary{.step_ns = memory_.step.end - memory_.before.end};
    std::size_t next = 0;
    for (std::size_t i = 0; i < transfers.size();) {
      std::int64_t begin = transfers[i].start;
      std::int64_t end = transfers[i].end;
      for (++i; i < transfers.size() && transfers[i].start <= end; ++i) {
        end = std::max(end, transfers[i].end);
      }
      summary.communication_ns += end - begin;
      summary.exposed_ns += end - begin - covered(begin, end, next);
    }
    for (const PlayedStep::Node& node : memory_.step.nodes) {
      if (node.counts) summary.compute_ns += node.end - shown_from(node);
    }
    return summary;
  }

  [[nodiscard]] std::int64_t shown_from(const PlayedStep::Node& node) const {
    return std::min(node.start + data_.gap, node.end);
  }

  // How much of an interval nodes cover that count. `next`: the first node that may reach into it.
  std::int64_t covered(std::int64_t begin, std::int64_t end, std::size_t& next) const {
    const std::vector<PlayedStep::Node>& nodes = memory_.step.nodes;
    std::int64_t sum = 0;
    for (; next < nodes.size() && nodes[next].start < end; ++next) {
      const PlayedStep::Node& node = nodes[next];
      const std::int64_t from = std::max(begin, shown_from(node));
      const std::int64_t to = std::min(end, node.end);
      if (node.counts && to > from) sum += to - from;
      if (node.end > end) break;  // it may reach into the next one too
    }
    return sum;
  }

  const StepData& data_;
  const std::span<const BucketChoice> choices_;
  PriceMemo& prices_;
  FullMemory& memory_;
  std::int32_t streams_ = 0;
  std::array<Stream, kMostStreams> stream_;
  std::array<std::int32_t, kMostStreams> active_{};  // in flight, as they began
  std::int32_t in_flight_ = 0;
  bool busy_ = false;
  bool too_long_ = false;
  bool shares_links_ = false;
  std::int64_t now_ = 0;
  std::int64_t host_ = 0;
};

}  // namespace

std::optional<sim::StepSummary> full_walk(const StepData& data,
                                          std::span<const BucketChoice> choices, PriceMemo& prices,
                                          FullMemory& memory) {
  return Walk(data, choices, prices, memory).run();
}

}  // namespace dovetail::search
