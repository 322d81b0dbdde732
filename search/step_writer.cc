// What a command becomes is that of sim/compile.cc; tests/search/step_model_test.cc holds both to the nanosecond.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_writer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "schedule/lower/wait.h"
#include "sim/steady.h"

namespace dovetail::search {
namespace {

using schedule::BucketMode;
using schedule::kComputeStream;
using sim::NodeKind;
using step::EdgeKind;

constexpr std::size_t kPrices = 4096;  // that are remembered

}  // namespace

StepWriter::StepWriter(const StepData& data)
    : data_(data),
      lanes_(data.program, data.costs.distinct_ranks),
      graph_(lanes_, static_cast<std::size_t>(data.streams), data.costs.links.size(), {}),
      prices_(kPrices),
      ops_(data.ops),
      work_(data.work),
      roles_(data.roles.size()),
      meetings_(data.meetings.size()) {
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    roles_[i].ops = data.roles[i].ops;
    add_up(roles_[i]);
    add_channels(roles_[i], data.roles[i].messages);
  }
  step::StepGraph& graph = graph_.made().graph;
  graph.launch_gap = data.launch_gap();
  for (const Rank rank : lanes_.ranks()) graph.contention.push_back(data.costs.contention(rank));
  if (std::ranges::all_of(graph.contention, &models::Contention::none)) graph.contention.clear();
}

void StepWriter::add_channels(Role& role, std::span<const schedule::Travel> messages) const {
  role.sent.resize(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!meets(messages[i])) continue;
    auto known = std::ranges::find(role.channels, messages[i].stream, &Channel::stream);
    if (known == role.channels.end()) {
      known = role.channels.insert(known, {.stream = messages[i].stream, .messages = {}});
    }
    known->messages.push_back(i);
  }
}

void StepWriter::add_up(Role& role) const {
  const std::size_t lanes = lanes_per_role();
  std::size_t ops = role.ops.size();
  if (data_.sharding) {
    const auto updates = static_cast<std::size_t>(data_.sharding->updates.front().before_op);
    ops = static_cast<std::size_t>(std::ranges::lower_bound(role.ops, updates) - role.ops.begin());
  }
  role.unmoved = ops;
  role.work_sum.assign(1, 0);
  role.issue_sum.assign(1, 0);
  role.late_sum.assign(1, 0);
  role.gap_sum.assign(1, 0);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < ops; ++i) {
    const auto op = static_cast<std::size_t>(role.ops[i]);
    const std::int64_t issue = ops_[op].issue;
    role.issue_sum.push_back(role.issue_sum.back() + issue);
    role.late_sum.push_back(role.late_sum.back() + std::max<std::int64_t>(0, issue - before));
    before = work_[op * lanes].ns();
    role.work_sum.push_back(role.work_sum.back() + before);
    role.gap_sum.push_back(role.gap_sum.back() + gap_of(before));
  }
  role.next_own.assign(ops, ops);
  for (std::size_t i = ops; i-- > 0;) {
    if (ops_[static_cast<std::size_t>(role.ops[i])].own) {
      role.next_own[i] = i;
    } else if (i + 1 < ops) {
      role.next_own[i] = role.next_own[i + 1];
    }
  }
}

Duration StepWriter::steady_step(std::span<const BucketChoice> choices) {
  plan(choices);
  if (const auto step = from_one_step(Detail::Runs)) return *step;
  return Duration(from_many_steps().step_ns);
}

sim::StepSummary StepWriter::steady_summary(std::span<const BucketChoice> choices) {
  plan(choices);
  if (runs_tell_all() && from_one_step(Detail::Runs)) {
    sim::StepSummary summary = sim::summarize(graph_.made().graph, workspace_.timeline);
    summary.compute_ns -= hidden_gaps_;
    return summary;
  }
  if (from_one_step(Detail::Ops)) return sim::summarize(graph_.made().graph, workspace_.timeline);
  return from_many_steps();
}

// With contention ops are one node until something travels (write_enqueue).
bool StepWriter::runs_tell_all() const {
  return data_.launch_gap() == 0 || (roles_.size() == 1 && !graph_.made().graph.contention.empty());
}

void StepWriter::plan(std::span<const BucketChoice> choices) {
  step_ = 0;
  choices_ = choices;
  steps_.clear();
  for (const BucketChoice& choice : choices) {
    const GradientKind& kind = data_.kind(choice);
    steps_.push_back({.scales_before = kind.scales_before,
                      .scales_after = kind.scales_after,
                      .has_replicas = kind.replicas.has_value(),
                      .unpacks = choice.mode == BucketMode::Copy && !data_.sharding});
  }
  for (Role& role : roles_) {
    role.travels.clear();
    role.packs.clear();
  }
  if (data_.sharding) place_updates(choices);
  for (const ReducingStep& step : data_.reducing) {
    for (Role& role : roles_) {
      role.first = role.travels.size();
      role.last_launch = 0;
    }
    for (std::size_t b = 0; b < choices.size(); ++b) {
      if (!data_.is_frozen(choices[b])) plan_bucket(step, b);
    }
    for (std::size_t r = 0; r < roles_.size(); ++r) plan_waits(step, r);
  }
  for (std::size_t r = 0; data_.sharding && r < roles_.size(); ++r) plan_gathers(r);
  plan_messages();
  for (Role& role : roles_) role.agenda.fill(timetable(role));
}

void StepWriter::plan_bucket(const ReducingStep& step, std::size_t bucket) {
  const BucketChoice& choice = choices_[bucket];
  const auto r = static_cast<std::size_t>(data_.kind(choice).role);
  Role& role = roles_[r];
  const std::int32_t asked = choice.launch == kWhenReady ? 0 : data_.launch_in(step, choice);
  const auto begin = static_cast<std::size_t>(choice.begin);
  const auto end = static_cast<std::size_t>(choice.end);
  std::int32_t after = std::max({role.last_launch, asked, step.ready_of(choice)});
  for (std::size_t g = begin; step.is_held && g < end; ++g) {
    after = std::max(after, step.earliest_launch[g]);
  }
  role.last_launch = after;
  if (choice.mode == BucketMode::Copy) plan_packs(step, choice, role);
  role.travels.push_back({.what = bucket,
                          .stream = StreamId{choice.stream + 1},
                          .scope = choice.scope,
                          .launch_after = after});
}

// Of the travel that comes next: what one op completes is packed together, or all of it.
void StepWriter::plan_packs(const ReducingStep& step, const BucketChoice& choice,
                            Role& role) const {
  const std::size_t mine = role.packs.size();
  for (std::int32_t i = choice.begin; i < choice.end; ++i) {
    const std::int32_t ready =
        data_.gathers_each_use() ? step.ready_of(choice) : step.ready[static_cast<std::size_t>(i)];
    const auto behind = static_cast<std::size_t>(ready);
    auto known = role.packs.end();
    if (role.packs.size() > mine && role.packs.back().behind == behind) --known;
    if (!step.is_rising) {
      known = std::find_if(role.packs.begin() + static_cast<std::ptrdiff_t>(mine), role.packs.end(),
                           [&](const schedule::Pack& pack) { return pack.behind == behind; });
    }
    if (known == role.packs.end()) {
      known = role.packs.insert(known, {.behind = behind,
                                        .travel = role.travels.size(),
                                        .gradient = static_cast<std::size_t>(i - choice.begin)});
    }
    known->bytes += Bytes(data_.held(choice, i));
  }
}

void StepWriter::plan_waits(const ReducingStep& step, std::size_t index) {
  Role& role = roles_[index];
  auto after_backward = static_cast<std::size_t>(step.after_backward[index]);
  if (data_.sharding) {  // it may be an update of the placement
    const auto end = static_cast<std::size_t>(step.backward_end[index]);
    const auto next = std::ranges::upper_bound(role.ops, end);
    after_backward = next == role.ops.end() ? schedule::kEnd : *next;
  }
  schedule::place_waits(
      std::span(role.travels), role.first, after_backward,
      [this](const schedule::Travel& travel) -> schedule::WaitAsk {
        const BucketChoice& choice = choice_of(travel);
        const bool last = choice.launch == data_.backward_end_for(choice);
        return {choice.wait, choice.batch ? choice.batch
                             : last       ? std::optional(schedule::kBatchAfterBackward)
                                          : std::nullopt};
      },
      [&](const schedule::Travel& travel) {
        const BucketChoice& choice = choice_of(travel);
        std::int32_t use = kBehindAllOps;
        for (auto g = static_cast<std::size_t>(choice.begin);
             g < static_cast<std::size_t>(choice.end); ++g) {
          use = std::min(use, step.first_use[g]);
        }
        if (!data_.sharding) return static_cast<std::size_t>(use);
        const auto after = static_cast<std::int32_t>(*travel.launch_after);
        return std::min(place_of(static_cast<std::size_t>(use)),
                        static_cast<std::size_t>(update_behind(after, choice, travel.what)));
      });
}

void StepWriter::plan_messages() {
  for (std::size_t r = 0; r < roles_.size(); ++r) {
    Role& role = roles_[r];
    role.first_message = role.travels.size();
    for (schedule::Travel message : data_.roles[r].messages) {
      if (data_.sharding) {
        message.what = place_of(message.what);
        message.wait_before = place_of(message.wait_before);
        if (message.launch_after) message.launch_after = place_of(*message.launch_after);
      }
      role.travels.push_back(message);
    }
  }
}

const StepWriter::Price& StepWriter::price(std::size_t bucket) {
  const BucketChoice& choice = choices_[bucket];
  const std::size_t named = data_.names_updates ? bucket : 0;
  const auto key = static_cast<std::size_t>(choice.begin) * 1031 +
                   static_cast<std::size_t>(choice.end) +
                   static_cast<std::size_t>(choice.skip) * 31 +
                   static_cast<std::size_t>(choice.take) * 17 + named * 7;
  Price& known = prices_[key % kPrices];
  if (known.begin == choice.begin && known.end == choice.end && known.skip == choice.skip &&
      known.take == choice.take && known.bucket == named) {
    return known;
  }
  const Bytes size = data_.size(choice);
  known = {.begin = choice.begin,
           .end = choice.end,
           .skip = choice.skip,
           .take = choice.take,
           .bucket = named};
  const GradientKind& kind = data_.kind(choice);
  if (kind.scales_before) known.scale = data_.costs.scale(size);
  if (kind.scales_after) known.scale = data_.costs.scale(Bytes(size.count() / data_.shards(kind)));
  if (kind.replicas) known.replicate = data_.replicate(choice);
  if (data_.sharding) known.gather = data_.gather(choice);
  if (kind.is_frozen) return known;
  known.travel = data_.travel(choice);
  if (data_.sharding) price_update(bucket, known);
  return known;
}

// Nothing where one step does not show what the steady one takes.
std::optional<Duration> StepWriter::from_one_step(Detail detail) {
  if (lanes_.count() > static_cast<std::int32_t>(roles_.size())) return std::nullopt;
  write(1, detail);
  graph_.complete();
  const std::int64_t step = sim::play(graph_.made().graph, workspace_);
  if (!next_begins_at(step) || !hosts_keep_ahead(step) || !pauses_change_nothing(step)) {
    return std::nullopt;
  }
  ++counts_.one_step;
  return Duration(step);
}

// Whether the next step begins when all of this one has ended: what waits for nothing within its step waits for the
// compute stream of a role that ends last.
bool StepWriter::next_begins_at(std::int64_t step) {
  const step::StepGraph& graph = graph_.made().graph;
  for (std::size_t role = 0; role < roles_.size(); ++role) {
    Role& each = roles_[role];
    each.end = 0;
    const auto lane = static_cast<std::int32_t>(role);
    for (const std::int32_t entry : graph_.waited_for(lane, kComputeStream)) {
      const sim::NodeId node = graph_.made().on_lane(entry, lane);
      each.end = std::max(each.end, workspace_.timeline.end_of(node));
    }
  }
  for (sim::NodeId node = 0; node < graph.size(); ++node) {
    if (!graph.predecessors_of(node).empty()) continue;
    for (const std::int32_t lane : graph.lanes_of(node)) {
      if (roles_[static_cast<std::size_t>(lane)].end != step) return false;
    }
  }
  return true;
}

// Whether the hosts limit no step once a few have passed, and the simulator plays as many.
bool StepWriter::hosts_keep_ahead(std::int64_t step) const {
  if (data_.inline_host()) return true;
  constexpr std::int64_t kClearly = 8;  // ns: what the simulator may take for rounding
  std::int64_t slowest = 0;
  std::int64_t compute = 0;
  for (const Role& role : roles_) {
    slowest = std::max(slowest, role.host_step);
    compute = std::max(compute, role.work_sum.back());
  }
  // With contention a step that its hosts limit may be the shorter one, as less computes beside what travels, and stay so: they
  // gain for sure only on what computes.
  const bool is_sure = graph_.made().graph.contention.empty();
  const std::int64_t gain = (is_sure ? step : std::min(step, compute)) - slowest;
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

// Whether the first transfer of each stream takes as long behind the last one of the step before: of its stream or, where
// streams share links, of any.
bool StepWriter::pauses_change_nothing(std::int64_t step) const {
  const step::StepGraph& graph = graph_.made().graph;
  Duration delay{};  // which a shorter pause shortens
  for (const models::Contention& lane : graph.contention) delay = std::max(delay, lane.start_delay);
  std::int64_t last_of_all = 0;
  for (const step::Transfer& transfer : graph.transfers) {
    last_of_all = std::max(last_of_all, workspace_.timeline.end_of(transfer.node));
  }
  for (const step::Transfer& first : graph.transfers) {
    if (first.previous) continue;
    const step::SlotId slot = graph.slot[static_cast<std::size_t>(first.node)];
    const auto last = std::find_if(
        graph.transfers.rbegin(), graph.transfers.rend(), [&](const step::Transfer& transfer) {
          return graph.slot[static_cast<std::size_t>(transfer.node)] == slot;
        });
    const std::int64_t before =
        graph.shares_links ? last_of_all : workspace_.timeline.end_of(last->node);
    const std::int64_t pause = step + workspace_.timeline.start_of(first.node) - before;
    if (pause < delay.count()) return false;
    if (first.duration(std::max<std::int64_t>(0, pause)) != first.isolated) return false;
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

// Steps are written behind those that are there, where these have all their ops, too.
void StepWriter::write(std::int32_t steps, Detail detail) {
  if (step_ == 0 || detail != detail_) {
    detail_ = detail;
    step_ = 0;
    graph_.restart();
    issued_.clear();
    hidden_gaps_ = 0;
    for (Role& role : roles_) role.host_step = 0;
  }
  for (; step_ < steps; ++step_) {
    graph_.made().graph.begin_step();
    write_step();
    for (Role& role : roles_) role.host_step = role.clock;
  }
}

// Role by role, each as far as it gets before it waits for another one. The order is that of sim/issue_order.h: it decides
// which of two transfers is first that begin at once on one link.
void StepWriter::write_step() {
  for (role_ = 0; role_ < std::ssize(roles_); ++role_) begin_role();
  for (bool moved = true; moved;) {
    moved = false;
    for (role_ = 0; role_ < std::ssize(roles_); ++role_) moved = take_turn() || moved;
  }
  DOVETAIL_CHECK(std::ranges::all_of(roles_, &Role::ended)) << "roles wait for each other";
}

// Whether anything is done.
bool StepWriter::take_turn() {
  Role& role = at();
  const std::size_t before = role.walk.done();
  bool moved = false;
  for (bool met = true; met; moved = moved || met) {
    while (arrive_next(true)) moved = true;
    if (!role.ended) role.ended = role.walk.go_on(role.agenda, *this);
    flush();
    met = arrive_next(false);
  }
  return moved || role.walk.done() != before;
}

void StepWriter::begin_role() {
  Role& role = at();
  role.clock = 0;
  role.ended = role.is_recorded = false;
  role.done.assign(role.travels.size(), kNotYet);
  for (Sent& sent : role.sent) {
    sent.behind.clear();
    sent.enqueue.reset();
    sent.is_issued = sent.has_arrived = sent.has_left = false;
    sent.issued = 0;
  }
  role.standing = {};
  for (Channel& channel : role.channels) channel.head = 0;
  // Of several roles another one may have something in flight.
  role.as_one =
      detail_ == Detail::Runs && (roles_.size() == 1 || graph_.made().graph.contention.empty());
  role.walk.begin(timetable(role), *this);
}

void StepWriter::arrive(std::span<const StreamId> streams) {
  at().is_recorded = true;
  at().clock += (1 + std::ssize(streams)) * data_.costs.host.event.count();
  for (const StreamId stream : streams) graph_.follow(role_, stream, kComputeStream);
}

std::size_t StepWriter::run(std::size_t begin, std::size_t end) {
  Role& role = at();
  const std::size_t lanes = lanes_per_role();
  while (begin < end) {
    if (role.as_one && begin < role.next_own.size() && role.next_own[begin] > begin) {
      const std::size_t until = std::min(end, role.next_own[begin]);
      role.is_recorded = false;
      keep_run(begin, until);
      begin = until;
      continue;
    }
    const std::size_t op = role.ops[begin];
    const StepOp& what = ops_[op];
    const OwnCollective* own = what.own ? &data_.own[static_cast<std::size_t>(*what.own)] : nullptr;
    if (!what.is_message && own != nullptr) {
      if (!meets(*own)) {
        write_transfer(kComputeStream, NodeKind::Call, own->group, own->cost);
      } else if (!stand(*own)) {
        return begin;
      }
    }
    ++begin;
    if (own != nullptr) continue;
    role.is_recorded = false;
    role.clock += what.issue;
    keep(std::span(work_).subspan(op * lanes, lanes), what.kernel);
  }
  return end;
}

bool StepWriter::stand(const OwnCollective& own) {
  Sent& mine = at().standing;
  if (!mine.has_arrived) {
    flush();
    at().is_recorded = false;
    mine = Sent();
    mine.place = place(kComputeStream, data_.costs.host.collective);
    mine.issued = at().clock;
    mine.has_arrived = true;
    join(own, {.role = role_, .sent = &mine});
  }
  mine.has_arrived = !mine.has_left;
  return mine.has_left;
}

void StepWriter::keep(std::span<const step::Work> work, models::KernelClass kernel) {
  if (at().as_one) {
    // Each op of a node starts behind those before it; the node must start as much earlier.
    kept_issued_ = kept_work_.empty() ? at().clock : std::max(kept_issued_, at().clock - kept_ns_);
    kept_ns_ += work.front().ns();
    kept_gaps_ += gap_of(work.front().ns());
    if (kept_work_.empty()) kept_work_.push_back(work.front());
    return;
  }
  kept_work_.insert(kept_work_.end(), work.begin(), work.end());
  kept_kernels_.push_back(kernel);
  kept_clocks_.push_back(at().clock + data_.launch_lead());
}

// The next ops up to this one, as one node. When it must start for its hosts is known by the sums, or a little later:
// then hosts are thought to limit the step, and all of it is written.
void StepWriter::keep_run(std::size_t begin, std::size_t end) {
  Role& role = at();
  const std::int64_t first = role.clock + role.issue_sum[begin + 1] - role.issue_sum[begin];
  const std::int64_t latest = first - kept_ns_ + role.late_sum[end] - role.late_sum[begin + 1];
  kept_issued_ = kept_work_.empty() ? latest : std::max(kept_issued_, latest);
  if (kept_work_.empty()) kept_work_.emplace_back();
  kept_ns_ += role.work_sum[end] - role.work_sum[begin];
  kept_gaps_ += role.gap_sum[end] - role.gap_sum[begin];
  role.clock += role.issue_sum[end] - role.issue_sum[begin];
}

void StepWriter::flush() {
  if (kept_work_.empty()) return;
  const sim::Place here{.role = role_, .step = step_, .stream = kComputeStream};
  if (at().as_one) {
    constexpr models::KernelClass kAny = models::KernelClass::Other;
    kept_work_.front() = step::Work::fixed(kept_ns_);
    graph_.add_chain(here, kept_work_, std::span(&kAny, 1));
    note_issue(kept_issued_);
    hidden_gaps_ += kept_gaps_ - gap_of(kept_ns_);
    kept_ns_ = kept_gaps_ = 0;
  } else {
    const bool waits = detail_ == Detail::Hosts && !data_.inline_host();
    if (!waits) issued_.insert(issued_.end(), kept_clocks_.begin(), kept_clocks_.end());
    const std::int64_t begin = step_ * at().host_step;
    for (std::int64_t& clock : kept_clocks_) clock = std::max<std::int64_t>(0, begin + clock);
    const std::span<const std::int64_t> clocks = kept_clocks_;
    graph_.add_chain(here, kept_work_, kept_kernels_, waits ? clocks : clocks.first(0));
    kept_kernels_.clear();
    kept_clocks_.clear();
  }
  kept_work_.clear();
}

void StepWriter::open(std::size_t i) {
  const schedule::Travel& travel = this->travel(i);
  flush();
  if (travel.after_compute) at().clock += 2 * data_.costs.host.event.count();  // record and wait
  if (!travel.after_compute) return;
  if (meets(travel)) {
    sent(i).behind = graph_.waited_for(role_, kComputeStream);
  } else {
    graph_.follow(role_, travel.stream, kComputeStream);
  }
}

void StepWriter::close(std::size_t i) {
  const schedule::Travel& travel = this->travel(i);
  at().clock += data_.costs.host.event.count();
  if (!meets(travel)) {
    at().done[i] = graph_.first_waited_for(role_, travel.stream);
    return;
  }
  while (arrive_next(true)) {
  }
}

void StepWriter::communicate(std::size_t i, schedule::Part part) {
  const schedule::Travel& travel = this->travel(i);
  if (travel.kind == schedule::Travel::Kind::Message) {
    // Behind a record it opens a launch (schedule/transfers.h).
    const bool launches = travel.after_compute || at().is_recorded;
    const NodeKind enqueue = launches ? NodeKind::Enqueue : NodeKind::Call;
    if (meets(travel)) return send(i, enqueue);
    return write_transfer(travel.stream, enqueue, own_of(travel).group, own_of(travel).cost);
  }
  const Price& cost = price(travel.what);
  const GradientKind& kind = data_.kind(choice_of(travel));
  const bool gathers = travel.kind == schedule::Travel::Kind::Gather;
  if (part == schedule::Part::Shard) {
    write_transfer(travel.stream, NodeKind::Enqueue, *kind.replicas, cost.replicate);
  } else {
    write_transfer(travel.stream, NodeKind::Enqueue, kind.group,
                   gathers ? cost.gather : cost.travel);
  }
}

void StepWriter::write_transfer(StreamId stream, NodeKind enqueue,
                                const schedule::ProcessGroup& group,
                                const sim::TransferCost& cost) {
  if (stream == kComputeStream) {
    flush();
    at().is_recorded = false;
  } else if (const auto handed_over = write_enqueue(enqueue)) {
    graph_.wait_for(role_, stream, *handed_over, EdgeKind::Launch);
  }
  const sim::Place here = place(stream, data_.costs.host.collective);
  graph_.add_collective(std::span(&here, 1), group, cost);
  note_issue(at().clock);
}

void StepWriter::scale(std::size_t i, bool before) {
  write_pass(before ? kComputeStream : travel(i).stream, price(travel(i).what).scale);
}

void StepWriter::follow(std::size_t i, std::size_t other) {
  at().clock += data_.costs.host.event.count();
  graph_.wait_for(role_, travel(i).stream, at().done[other], EdgeKind::Event);
}

// The host's work to hand a transfer over, where that takes time of the compute stream.
std::optional<std::int32_t> StepWriter::write_enqueue(NodeKind kind) {
  flush();
  at().as_one = detail_ == Detail::Runs && graph_.made().graph.contention.empty();
  at().is_recorded = at().is_recorded || kind == NodeKind::Enqueue;
  const Duration time = data_.costs.host.collective;
  if (!data_.inline_host() || time == Duration{}) return std::nullopt;
  return write_node(kComputeStream, kind, time, models::KernelClass::Other);
}

// One side of a message is issued. It may have travelled, as a receive waits for nothing but its turn.
void StepWriter::send(std::size_t i, NodeKind enqueue) {
  Sent& mine = sent(i);
  mine.enqueue = write_enqueue(enqueue);
  mine.place = place(travel(i).stream, data_.costs.host.collective);
  mine.issued = at().clock;
  mine.is_issued = true;
  const std::int32_t entry = at().done[i];
  if (entry == kNotYet) return;
  const sim::CommandNode& known = graph_.made().command_nodes[static_cast<std::size_t>(entry)];
  graph_.made().graph.hold(known.first, known.count, mine.place.issued);
  for (sim::NodeId node = known.first; node < known.first + known.count; ++node) {
    std::int64_t& issued = issued_[static_cast<std::size_t>(node)];
    issued = std::max(issued, mine.issued + data_.launch_lead());
  }
}

bool StepWriter::arrive_next(bool issued) {
  const bool needs_host = data_.inline_host() && data_.costs.host.collective > Duration{};
  if (!issued && needs_host) return false;
  Role& role = at();
  for (;;) {
    Channel* next = nullptr;  // the first that its host issues
    for (Channel& channel : role.channels) {
      if (channel.head == channel.messages.size()) continue;
      const std::size_t head = channel.messages[channel.head];
      const Sent& mine = role.sent[head];
      if (mine.has_arrived || mine.is_issued != issued) continue;
      if (!issued && role.travels[role.first_message + head].after_compute) continue;
      if (next == nullptr || head < next->messages[next->head]) next = &channel;
    }
    if (next == nullptr) return false;
    if (arrive(*next)) return true;
  }
}

// Whether its head travels: all its sides are there.
bool StepWriter::arrive(Channel& channel) {
  Role& role = at();
  const std::size_t head = channel.messages[channel.head];
  const schedule::Travel& message = role.travels[role.first_message + head];
  Sent& mine = role.sent[head];
  mine.has_arrived = true;
  if (!mine.is_issued) mine.place = {.role = role_, .step = step_, .stream = message.stream};
  return join(own_of(message), {.role = role_, .sent = &mine, .channel = &channel});
}

bool StepWriter::join(const OwnCollective& own, Side mine) {
  std::vector<Side>& sides = meetings_[static_cast<std::size_t>(own.meeting)];
  sides.push_back(mine);
  if (std::ssize(sides) < data_.meetings[static_cast<std::size_t>(own.meeting)]) return false;
  std::ranges::sort(sides, {}, &Side::role);
  places_.clear();
  std::int64_t issued = 0;
  for (const Side& side : sides) {
    for (const std::int32_t entry : side.sent->behind) {
      graph_.wait_for(side.role, side.stream(), entry, EdgeKind::Event);
    }
    if (side.sent->enqueue) {
      graph_.wait_for(side.role, side.stream(), *side.sent->enqueue, EdgeKind::Launch);
    }
    places_.push_back(side.sent->place);
    issued = std::max(issued, side.sent->issued);
  }
  graph_.add_collective(places_, own.group, own.cost);
  note_issue(issued);
  for (const Side& side : sides) {
    side.sent->has_left = true;
    if (side.channel == nullptr) continue;
    Role& theirs = roles_[static_cast<std::size_t>(side.role)];
    const std::size_t travelled = side.channel->messages[side.channel->head++];
    theirs.done[theirs.first_message + travelled] =
        graph_.first_waited_for(side.role, side.channel->stream);
  }
  sides.clear();
  return true;
}

void StepWriter::wait(std::size_t i) {
  const Duration event = data_.costs.host.event;
  at().is_recorded = false;
  flush();
  at().clock += event.count();
  graph_.wait_for(role_, kComputeStream, at().done[i], EdgeKind::Event);
  if (data_.inline_host() && event > Duration{}) {
    write_node(kComputeStream, NodeKind::WakeUp, event, models::KernelClass::Other);
  }
}

void StepWriter::pack(const schedule::Pack& pack) {
  write_pass(kComputeStream,
             data_.costs.copy(pack.bytes, data_.gathers_each_use() ? models::CopyKind::Chunk
                                                                   : models::CopyKind::Any));
}

// Reduced gradients where they are whole; parameters unless they stay in the bucket's memory.
void StepWriter::unpack(std::size_t i) {
  const BucketChoice& choice = choice_of(travel(i));
  if (choice.mode != BucketMode::Copy) return;
  const std::int64_t payload = data_.payload(choice);
  const bool reduces = travel(i).kind == schedule::Travel::Kind::Bucket;
  write_pass(kComputeStream,
             reduces ? data_.costs.copy(Bytes(payload))
                     : data_.costs.copy(data_.kind(choice).parameters(payload),
                                        data_.gathers_each_use() ? models::CopyKind::Split
                                                                 : models::CopyKind::Any));
}

void StepWriter::write_pass(StreamId stream, Duration time) {
  if (stream == kComputeStream) at().is_recorded = false;
  at().clock += data_.costs.host.copy.count();
  const Duration fixed = data_.inline_host() ? data_.costs.host.copy : Duration{};
  if (stream == kComputeStream) {
    const auto work = step::Work::fixed((time + fixed).count() + data_.launch_gap());
    pass_.assign(lanes_per_role(), work);
    keep(pass_, models::KernelClass::Memory);
    return;
  }
  write_node(stream, NodeKind::Copy, time + fixed, models::KernelClass::Memory);
}

std::int32_t StepWriter::write_node(StreamId stream, NodeKind kind, Duration time,
                                    models::KernelClass kernel) {
  if (stream == kComputeStream) flush();
  const sim::Place here = place(stream, Duration{});
  scratch_.assign(lanes_per_role(), time.count());
  const std::int32_t entry = graph_.add(here, kind, scratch_, kernel);
  note_issue(at().clock);
  return entry;
}

sim::Place StepWriter::place(StreamId stream, Duration issue) {
  at().clock += issue.count();
  sim::Place place{.role = role_, .step = step_, .stream = stream};
  if (detail_ != Detail::Hosts || data_.inline_host()) return place;
  place.issued =
      std::max<std::int64_t>(0, step_ * at().host_step + at().clock + data_.launch_lead());
  return place;
}

}  // namespace dovetail::search
