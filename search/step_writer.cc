// The order of what is written is that of lower/emit.cc, and what a command becomes that of sim/compile.cc;
// tests/search/step_model_test.cc holds both to the nanosecond.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_writer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "sim/steady.h"

namespace dovetail::search {
namespace {

using schedule::BucketMode;
using schedule::kComputeStream;
using schedule::WaitPoint;
using schedule::WaitScope;
using sim::NodeKind;
using step::EdgeKind;

constexpr std::size_t kPrices = 4096;  // that are remembered

}  // namespace

StepWriter::StepWriter(const StepData& data)
    : data_(data),
      lanes_(data.program, data.costs.distinct_ranks),
      graph_(lanes_, std::size_t{1} + kMostStreams, data.costs.links.size(), {}),
      prices_(kPrices),
      ops_(data.ops),
      work_(data.work) {
  for (std::size_t op = 0; op < ops_.size(); ++op) {
    if (ops_[op].own) own_at_.push_back(static_cast<std::int32_t>(op));
  }
  step::StepGraph& graph = graph_.made().graph;
  graph.launch_gap = data.launch_gap();
  for (const Rank rank : lanes_.ranks()) graph.contention.push_back(data.costs.contention(rank));
  if (std::ranges::all_of(graph.contention, &models::Contention::none)) graph.contention.clear();
}

Duration StepWriter::steady_step(std::span<const BucketChoice> choices) {
  plan(choices);
  if (const auto step = from_one_step(Detail::Runs)) return *step;
  return Duration(from_many_steps().step_ns);
}

sim::StepSummary StepWriter::steady_summary(std::span<const BucketChoice> choices) {
  plan(choices);
  if (from_one_step(Detail::Ops)) return sim::summarize(graph_.made().graph, workspace_.timeline);
  return from_many_steps();
}

// Where each bucket is launched and waited for, as lower/launch.cc and lower/wait.cc place it.
void StepWriter::plan(std::span<const BucketChoice> choices) {
  transfers_.clear();
  packs_.clear();
  if (data_.sharding) place_updates(choices);
  for (const ReducingStep& step : data_.reducing) {
    std::int32_t previous = step.earliest_launch;
    for (const BucketChoice& choice : choices) {
      // Only one point behind `ready` exists in every micro-step: the end of its backward.
      const bool every = data_.reducing.size() > 1;
      const std::int32_t asked =
          every && choice.launch != kWhenReady ? step.backward_end : choice.launch;
      const std::int32_t ready = step.ready[static_cast<std::size_t>(choice.end) - 1];
      Transfer transfer{.choice = &choice,
                        .stream = StreamId{choice.stream + 1},
                        .launch_after = std::max({ready, asked, previous})};
      previous = transfer.launch_after;
      transfer.wait_before = first_use(step, choice);
      if (data_.sharding) {
        const auto bucket = static_cast<std::size_t>(&choice - choices.data());
        transfer.wait_before = std::min(place_of(transfer.wait_before),
                                        update_behind(transfer.launch_after, choice, bucket));
      }
      if (choice.wait == WaitPoint::EndOfBackward && step.after_backward > transfer.launch_after) {
        transfer.wait_before = std::min(transfer.wait_before, step.after_backward);
      }
      if (choice.mode == BucketMode::Copy) plan_packs(step, choice);
      transfers_.push_back(transfer);
    }
  }
  if (data_.sharding) plan_gathers(choices);
  std::ranges::stable_sort(
      packs_, {}, [](const Pack& pack) { return std::pair(pack.producer, pack.transfer); });
  launches_.resize(transfers_.size());
  std::iota(launches_.begin(), launches_.end(), std::size_t{0});
  waits_ = launches_;
  std::ranges::stable_sort(launches_, {},
                           [this](std::size_t i) { return transfers_[i].launch_after; });
  std::ranges::stable_sort(waits_, {}, [this](std::size_t i) { return transfers_[i].wait_before; });
}

// By no update that is cut.
std::int32_t StepWriter::first_use(const ReducingStep& step, const BucketChoice& choice) const {
  std::int32_t first = kBehindAllOps;
  for (std::int32_t i = choice.begin; i < choice.end; ++i) {
    first = std::min(first, step.first_use[static_cast<std::size_t>(i)]);
  }
  return first;
}

// Of the transfer that comes next: what one op completes is packed together.
void StepWriter::plan_packs(const ReducingStep& step, const BucketChoice& choice) {
  const std::size_t mine = packs_.size();
  for (std::int32_t i = choice.begin; i < choice.end; ++i) {
    const auto g = static_cast<std::size_t>(i);
    if (packs_.size() == mine || packs_.back().producer != step.ready[g]) {
      packs_.push_back({.producer = step.ready[g], .transfer = transfers_.size()});
    }
    packs_.back().bytes += data_.held(choice, i);
  }
}

const StepWriter::Price& StepWriter::price(const BucketChoice& choice) {
  const auto key =
      static_cast<std::size_t>(choice.begin) * 1031 + static_cast<std::size_t>(choice.end) +
      static_cast<std::size_t>(choice.skip) * 31 + static_cast<std::size_t>(choice.take) * 17;
  Price& known = prices_[key % kPrices];
  if (known.begin == choice.begin && known.end == choice.end && known.skip == choice.skip &&
      known.take == choice.take) {
    return known;
  }
  const std::int64_t shards = data_.sharding ? data_.group.size() : 1;
  const std::int64_t pad = shards == 1
                               ? data_.bucket.pad_to.count()
                               : std::lcm(data_.bucket.pad_to.count(), shards * data_.element);
  const Bytes size((data_.extent(choice) + pad - 1) / pad * pad);
  known = {.begin = choice.begin, .end = choice.end, .skip = choice.skip, .take = choice.take};
  known.time = data_.costs.collective(data_.bucket.collective, data_.group, size);
  if (data_.scales_before) known.scale = data_.costs.scale(size);
  if (data_.scales_after) known.scale = data_.costs.scale(Bytes(size.count() / shards));
  if (data_.sharding) {
    known.gather = data_.costs.collective(schedule::Collective::AllGather, data_.group, size);
    price_update(choice, known);
  }
  return known;
}

// Nothing where one step does not show what the steady one takes.
std::optional<Duration> StepWriter::from_one_step(Detail detail) {
  if (lanes_.count() > 1) return std::nullopt;
  write(1, detail);
  const sim::CompiledProgram& made = graph_.complete();
  const std::int64_t last = sim::play(made.graph, workspace_);
  std::int64_t step = 0;
  for (const std::int32_t entry : graph_.waited_for(0, kComputeStream)) {
    step = std::max(step, workspace_.timeline.end_of(made.on_lane(entry, 0)));
  }
  if (last != step || !hosts_keep_ahead(step) || !pauses_change_nothing(step)) return std::nullopt;
  ++counts_.one_step;
  return Duration(step);
}

// Whether the hosts limit no step once a few have passed, and the simulator plays as many.
bool StepWriter::hosts_keep_ahead(std::int64_t step) const {
  if (data_.inline_host()) return true;
  constexpr std::int64_t kClearly = 8;  // ns: what the simulator may take for rounding
  const std::int64_t gain = step - host_step_;
  if (gain < 0) return false;
  const std::int64_t latest = (sim::kMostSteps - 2) * gain;
  bool behind = false;
  for (std::size_t node = 0; node < issued_.size(); ++node) {
    const std::int64_t by = issued_[node] - workspace_.timeline.start[node];
    if (by > latest) return false;
    behind = behind || by > 0;
  }
  return !behind || gain > kClearly;
}

// Whether the first transfer of each stream takes as long behind the last one of the step before.
bool StepWriter::pauses_change_nothing(std::int64_t step) const {
  const step::StepGraph& graph = graph_.made().graph;
  for (const step::Transfer& first : graph.transfers) {
    if (first.previous) continue;
    const step::SlotId slot = graph.slot[static_cast<std::size_t>(first.node)];
    const auto last = std::find_if(
        graph.transfers.rbegin(), graph.transfers.rend(), [&](const step::Transfer& transfer) {
          return graph.slot[static_cast<std::size_t>(transfer.node)] == slot;
        });
    const std::int64_t pause =
        step + workspace_.timeline.start_of(first.node) - workspace_.timeline.end_of(last->node);
    if (first.duration(pause) != first.isolated) return false;
  }
  return true;
}

sim::StepSummary StepWriter::from_many_steps() {
  ++counts_.many_steps;
  const auto graph_of = [this](std::int32_t steps) -> const step::StepGraph& {
    write(steps, Detail::Hosts);
    return graph_.complete().graph;
  };
  return sim::find_steady_state(graph_of, workspace_).summary;
}

void StepWriter::write(std::int32_t steps, Detail detail) {
  detail_ = detail;
  graph_.restart();
  issued_.clear();
  host_step_ = 0;
  for (step_ = 0; step_ < steps; ++step_) {
    graph_.made().graph.begin_step();
    write_step();
    host_step_ = clock_;
  }
}

void StepWriter::write_step() {
  clock_ = 0;
  next_launch_ = next_wait_ = next_pack_ = next_own_ = 0;
  last_on_.assign(std::size_t{1} + kMostStreams, 0);
  for (Transfer& transfer : transfers_) transfer.waited = false;
  as_one_ = detail_ == Detail::Runs;
  write_launches(kBeforeAllOps);
  const auto ops = static_cast<std::int32_t>(ops_.size());
  for (std::int32_t op = 0; op < ops; ++op) {
    write_waits(op);
    if (const auto collective = ops_[static_cast<std::size_t>(op)].own) {
      flush();
      ++next_own_;
      const OwnCollective& own = data_.own[static_cast<std::size_t>(*collective)];
      const sim::Place here = place(kComputeStream, data_.costs.host.collective);
      graph_.add_collective(std::span(&here, 1), own.group, own.cost);
      note_issue(clock_);
    } else {
      const std::int32_t first = op;
      op = last_of_run(first);
      write_ops(first, op);
    }
    write_packs(op);
    write_launches(op);
  }
  write_waits(kBehindAllOps);
  flush();
}

// The last op before something else stands.
std::int32_t StepWriter::last_of_run(std::int32_t op) const {
  std::int32_t last = static_cast<std::int32_t>(ops_.size()) - 1;
  if (next_launch_ < launches_.size()) {
    last = std::min(last, transfers_[launches_[next_launch_]].launch_after);
  }
  if (next_pack_ < packs_.size()) last = std::min(last, packs_[next_pack_].producer);
  if (next_wait_ < waits_.size()) {
    last = std::min(last, transfers_[waits_[next_wait_]].wait_before - 1);
  }
  if (next_own_ < own_at_.size()) last = std::min(last, own_at_[next_own_] - 1);
  return std::max(op, last);
}

void StepWriter::write_ops(std::int32_t first, std::int32_t last) {
  const auto end = static_cast<std::size_t>(last) + 1;
  for (auto op = static_cast<std::size_t>(first); op < end; ++op) {
    if (!keeps()) {
      write_op(op);
      continue;
    }
    clock_ += ops_[op].issue;
    keep(ops_[op].alone, ops_[op].kernel);
  }
}

void StepWriter::write_op(std::size_t op) {
  const auto lanes = static_cast<std::size_t>(lanes_.count());
  graph_.add(place(kComputeStream, Duration(ops_[op].issue)), NodeKind::Compute,
             std::span(work_).subspan(op * lanes, lanes), ops_[op].kernel);
}

void StepWriter::keep(step::Work work, models::KernelClass kernel) {
  if (as_one_) {
    // Each op of a node starts behind those before it; the node must start as much earlier.
    kept_issued_ = kept_work_.empty() ? clock_ : std::max(kept_issued_, clock_ - kept_ns_);
    kept_ns_ += work.ns();
    if (kept_work_.empty()) kept_work_.push_back(work);
    return;
  }
  kept_work_.push_back(work);
  kept_kernels_.push_back(kernel);
  kept_clocks_.push_back(clock_ + data_.launch_lead());
}

void StepWriter::flush() {
  if (kept_work_.empty()) return;
  const sim::Place here{.step = step_, .stream = kComputeStream};
  if (as_one_) {
    constexpr models::KernelClass kAny = models::KernelClass::Other;
    kept_work_.front() = step::Work::fixed(kept_ns_);
    graph_.add_chain(here, kept_work_, std::span(&kAny, 1));
    note_issue(kept_issued_);
    kept_ns_ = 0;
  } else {
    graph_.add_chain(here, kept_work_, kept_kernels_);
    issued_.insert(issued_.end(), kept_clocks_.begin(), kept_clocks_.end());
    kept_kernels_.clear();
    kept_clocks_.clear();
  }
  kept_work_.clear();
}

void StepWriter::write_waits(std::int32_t op) {
  while (next_wait_ < waits_.size() && transfers_[waits_[next_wait_]].wait_before <= op) {
    write_wait(waits_[next_wait_++]);
  }
}

void StepWriter::write_packs(std::int32_t op) {
  while (next_pack_ < packs_.size() && packs_[next_pack_].producer == op) {
    write_pass(kComputeStream, data_.costs.copy(Bytes(packs_[next_pack_++].bytes)));
  }
}

void StepWriter::write_launches(std::int32_t op) {
  while (next_launch_ < launches_.size() &&
         transfers_[launches_[next_launch_]].launch_after <= op) {
    write_launch(launches_[next_launch_++]);
  }
}

void StepWriter::write_launch(std::size_t index) {
  const models::HostModel& host = data_.costs.host;
  Transfer& transfer = transfers_[index];
  const bool reduces = transfer.what == Transfer::What::Reduce;
  const Price& cost = price(*transfer.choice);
  if (reduces && data_.scales_before) write_pass(kComputeStream, cost.scale);
  clock_ += 2 * host.event.count();  // a record, and a wait for it
  flush();
  as_one_ = detail_ == Detail::Runs && graph_.made().graph.contention.empty();
  graph_.follow(0, transfer.stream, kComputeStream);
  if (data_.inline_host() && host.collective > Duration{}) {
    const std::int32_t enqueue =
        write_node(kComputeStream, NodeKind::Enqueue, host.collective, models::KernelClass::Other);
    graph_.wait_for(0, transfer.stream, enqueue, EdgeKind::Launch);
  }
  const sim::Place here = place(transfer.stream, host.collective);
  sim::TransferCost travel = reduces ? data_.travel : data_.gather;
  travel.time = reduces ? cost.time : cost.gather;
  graph_.add_collective(std::span(&here, 1), data_.group, travel);
  note_issue(clock_);
  if (reduces && data_.scales_after) write_pass(transfer.stream, cost.scale);
  clock_ += host.event.count();
  transfer.done = graph_.waited_for(0, transfer.stream).front();
  last_on_[static_cast<std::size_t>(transfer.stream.value)] = index;
}

void StepWriter::write_wait(std::size_t index) {
  const models::HostModel& host = data_.costs.host;
  const Transfer& transfer = transfers_[index];
  const bool reduces = transfer.what == Transfer::What::Reduce;
  const bool whole = reduces && transfer.choice->scope == WaitScope::WholeStream;
  Transfer& awaited =
      transfers_[whole ? last_on_[static_cast<std::size_t>(transfer.stream.value)] : index];
  if (!awaited.waited) {
    awaited.waited = true;
    flush();
    clock_ += host.event.count();
    graph_.wait_for(0, kComputeStream, awaited.done, EdgeKind::Event);
    if (data_.inline_host() && host.event > Duration{}) {
      write_node(kComputeStream, NodeKind::WakeUp, host.event, models::KernelClass::Other);
    }
  }
  // Reduced gradients where they are whole; parameters unless they stay in the bucket's memory.
  const bool copied = transfer.choice->mode == BucketMode::Copy;
  const bool unpacks = reduces ? copied && !data_.sharding : copied || !data_.gathers_each_use();
  if (unpacks) write_pass(kComputeStream, data_.costs.copy(Bytes(data_.payload(*transfer.choice))));
}

void StepWriter::write_pass(StreamId stream, Duration time) {
  clock_ += data_.costs.host.copy.count();
  const Duration fixed = data_.inline_host() ? data_.costs.host.copy : Duration{};
  if (stream == kComputeStream && keeps()) {
    keep(step::Work::fixed((time + fixed).count() + data_.launch_gap()),
         models::KernelClass::Memory);
    return;
  }
  write_node(stream, NodeKind::Copy, time + fixed, models::KernelClass::Memory);
}

std::int32_t StepWriter::write_node(StreamId stream, NodeKind kind, Duration time,
                                    models::KernelClass kernel) {
  if (stream == kComputeStream) flush();
  const sim::Place here = place(stream, Duration{});
  scratch_.assign(static_cast<std::size_t>(lanes_.count()), time.count());
  const std::int32_t entry = graph_.add(here, kind, scratch_, kernel);
  note_issue(clock_);
  return entry;
}

sim::Place StepWriter::place(StreamId stream, Duration issue) {
  clock_ += issue.count();
  sim::Place place{.step = step_, .stream = stream};
  if (detail_ != Detail::Hosts || data_.inline_host()) return place;
  place.issued = std::max<std::int64_t>(0, step_ * host_step_ + clock_ + data_.launch_lead());
  return place;
}

}  // namespace dovetail::search
