// The order of what is written is that of schedule/lower/emit.cc, and what a command becomes that of sim/compile.cc;
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
      graph_(lanes_, static_cast<std::size_t>(data.streams), data.costs.links.size(), {}),
      prices_(kPrices),
      ops_(data.ops),
      work_(data.work),
      roles_(data.roles.size()),
      meetings_(data.meetings.size()) {
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    roles_[i].ops = data.roles[i].ops;
    add_up(roles_[i]);
  }
  step::StepGraph& graph = graph_.made().graph;
  graph.launch_gap = data.launch_gap();
  for (const Rank rank : lanes_.ranks()) graph.contention.push_back(data.costs.contention(rank));
  if (std::ranges::all_of(graph.contention, &models::Contention::none)) graph.contention.clear();
}

void StepWriter::add_up(Role& role) const {
  const std::size_t lanes = lanes_per_role();
  std::size_t ops = role.ops.size();
  if (data_.sharding) ops = static_cast<std::size_t>(data_.sharding->updates.front().before_op);
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

// Where each bucket is launched and waited for, as schedule/lower/launch.cc and schedule/lower/wait.cc place it.
void StepWriter::plan(std::span<const BucketChoice> choices) {
  step_ = 0;
  transfers_.clear();
  for (Role& role : roles_) role.packs.clear();
  if (data_.sharding) place_updates(choices);
  for (const ReducingStep& step : data_.reducing) {
    for (Role& role : roles_) role.last_launch = 0;
    const std::size_t first = transfers_.size();
    for (const BucketChoice& choice : choices) plan_bucket(step, choice, choices);
    plan_batches(step, first);
  }
  if (data_.sharding) plan_gathers(choices);
  plan_messages();
  for (Role& role : roles_) {
    role.launches.clear();
    role.waits.clear();
    role.batch_waits.clear();
    std::ranges::stable_sort(
        role.packs, {}, [](const Pack& pack) { return std::pair(pack.producer, pack.transfer); });
  }
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const Transfer& transfer = transfers_[i];
    Role& role = roles_[static_cast<std::size_t>(transfer.role)];
    role.launches.push_back(i);
    if (transfer.what == Transfer::What::Message && !transfer.message->is_waited_for) continue;
    (transfer.wait_at ? role.batch_waits : role.waits).push_back(i);
  }
  for (Role& role : roles_) {
    std::ranges::stable_sort(role.launches, {},
                             [this](std::size_t i) { return transfers_[i].launch; });
    std::ranges::stable_sort(role.waits, {},
                             [this](std::size_t i) { return transfers_[i].wait_before; });
    std::ranges::stable_sort(role.batch_waits, {},
                             [this](std::size_t i) { return *transfers_[i].wait_at; });
  }
}

void StepWriter::plan_bucket(const ReducingStep& step, const BucketChoice& choice,
                             std::span<const BucketChoice> choices) {
  const std::int32_t role = data_.role_of[static_cast<std::size_t>(choice.begin)];
  const auto r = static_cast<std::size_t>(role);
  // In a micro-step that is not the last, and in a pipeline, only one point behind `ready` can be asked for.
  const bool one_point = data_.reducing.size() > 1 || roles_.size() > 1;
  const std::int32_t asked =
      one_point && choice.launch != kWhenReady ? step.backward_end[r] : choice.launch;
  std::int32_t after = std::max(asked, step.ready[static_cast<std::size_t>(choice.end) - 1]);
  after = std::max(after, roles_[r].last_launch);
  Transfer transfer{.choice = &choice, .role = role, .stream = StreamId{choice.stream + 1}};
  for (std::int32_t i = choice.begin; i < choice.end; ++i) {
    const auto g = static_cast<std::size_t>(i);
    after = std::max(after, step.earliest_launch[g]);
    transfer.wait_before = std::min(transfer.wait_before, step.first_use[g]);
  }
  roles_[r].last_launch = after;
  transfer.launch = behind(after);
  if (data_.sharding) {
    const auto bucket = static_cast<std::size_t>(&choice - choices.data());
    transfer.wait_before =
        std::min(place_of(transfer.wait_before), update_behind(after, choice, bucket));
  }
  if (choice.wait == WaitPoint::EndOfBackward && step.after_backward[r] > after) {
    transfer.wait_before = std::min(transfer.wait_before, step.after_backward[r]);
  }
  if (choice.mode == BucketMode::Copy) plan_packs(step, choice, roles_[r].packs);
  transfers_.push_back(transfer);
}

// One batch at a time: what waits for that waits before the next bucket of another batch is launched, those of the last
// batch where backward ends.
void StepWriter::plan_batches(const ReducingStep& step, std::size_t first) {
  for (std::size_t i = first; i < transfers_.size(); ++i) {
    Transfer& mine = transfers_[i];
    if (mine.choice->wait != WaitPoint::BeforeNextBatch) continue;
    std::size_t next = i + 1;
    while (next < transfers_.size() && (transfers_[next].role != mine.role ||
                                        is_same_batch(*mine.choice, *transfers_[next].choice))) {
      ++next;
    }
    if (next < transfers_.size()) {
      if (transfers_[next].launch < before(mine.wait_before)) mine.wait_at = next;
      continue;
    }
    const std::int32_t after = step.after_backward[static_cast<std::size_t>(mine.role)];
    if (behind(after) > mine.launch) mine.wait_before = std::min(mine.wait_before, after);
  }
}

bool StepWriter::is_same_batch(const BucketChoice& a, const BucketChoice& b) const {
  if (a.batch || b.batch) return a.batch == b.batch;
  return a.launch == data_.backward_end_for(a) && b.launch == data_.backward_end_for(b);
}

// Behind all buckets and gathers at one place.
void StepWriter::plan_messages() {
  std::size_t next = 0;
  for (std::size_t r = 0; r < roles_.size(); ++r) {
    for (const StepMessage& message : data_.roles[r].messages) {
      Transfer transfer{.what = Transfer::What::Message,
                        .message = &message,
                        .sent = next++,
                        .role = static_cast<std::int32_t>(r),
                        .stream = message.stream,
                        .launch = message.launch,
                        .wait_before = message.wait_before};
      if (data_.sharding) {
        const auto op = static_cast<std::int32_t>(message.launch / 2);
        transfer.launch = before(place_of(op)) + message.launch % 2;
        transfer.wait_before = place_of(message.wait_before);
      }
      transfers_.push_back(transfer);
    }
  }
  sent_.resize(next);
}

// Of the transfer that comes next: what one op completes is packed together.
void StepWriter::plan_packs(const ReducingStep& step, const BucketChoice& choice,
                            std::vector<Pack>& packs) const {
  const std::size_t mine = packs.size();
  for (std::int32_t i = choice.begin; i < choice.end; ++i) {
    const auto g = static_cast<std::size_t>(i);
    if (packs.size() == mine || packs.back().producer != step.ready[g]) {
      packs.push_back({.producer = step.ready[g], .transfer = transfers_.size()});
    }
    packs.back().bytes += data_.held(choice, i);
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
  const Bytes size = data_.size(choice);
  known = {.begin = choice.begin, .end = choice.end, .skip = choice.skip, .take = choice.take};
  known.travel = data_.travel(choice);
  if (data_.scales_before) known.scale = data_.costs.scale(size);
  if (data_.scales_after) known.scale = data_.costs.scale(Bytes(size.count() / data_.shards()));
  if (data_.sharding) {
    known.gather = data_.gather(choice);
    price_update(choice, known);
  }
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
  for (const Role& role : roles_) slowest = std::max(slowest, role.host_step);
  const std::int64_t gain = step - slowest;
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

// Role by role, each as far as it gets before it waits for another one.
void StepWriter::write_step() {
  for (Transfer& transfer : transfers_) {
    transfer.is_done = false;
    transfer.waited = false;
  }
  for (role_ = 0; role_ < std::ssize(roles_); ++role_) begin_role();
  for (bool moved = true; moved;) {
    moved = false;
    for (role_ = 0; role_ < std::ssize(roles_); ++role_) {
      Role& role = at();
      const std::pair before(role.next_op, role.next_wait);
      if (role.ended) continue;
      role.ended = write_role();
      flush();
      moved = moved || role.ended || before != std::pair(role.next_op, role.next_wait);
    }
  }
  DOVETAIL_CHECK(std::ranges::all_of(roles_, &Role::ended)) << "roles wait for each other";
}

// What stands before the first op: a message of this step may arrive once the last one is over.
void StepWriter::begin_role() {
  Role& role = at();
  role.next_op = role.next_launch = role.next_wait = role.next_pack = 0;
  role.next_batch_wait = 0;
  role.clock = 0;
  role.ended = role.is_recorded = false;
  role.last_on.assign(static_cast<std::size_t>(data_.streams), 0);
  // Of several roles another one may have something in flight.
  role.as_one =
      detail_ == Detail::Runs && (roles_.size() == 1 || graph_.made().graph.contention.empty());
  write_launches(kBeforeAllOps);
  const std::vector<StreamId>& arriving = data_.roles[static_cast<std::size_t>(role_)].arriving;
  if (arriving.empty()) return;
  role.is_recorded = true;
  role.clock += (1 + std::ssize(arriving)) * data_.costs.host.event.count();
  for (const StreamId stream : arriving) graph_.follow(role_, stream, kComputeStream);
}

// False where it waits for a message that another role has not sent yet.
bool StepWriter::write_role() {
  Role& role = at();
  while (role.next_op < role.ops.size()) {
    std::int32_t op = role.ops[role.next_op];
    write_launches(op - 1);
    if (!write_waits(op)) return false;
    const StepOp& what = ops_[static_cast<std::size_t>(op)];
    if (what.is_message) {
      write_launches_up_to(before(op));
      ++role.next_op;
    } else if (what.own) {
      write_own(*what.own);
      ++role.next_op;
    } else {
      op = write_run(last_of_run(op));
    }
    write_packs(op);
    write_launches(op);
  }
  write_launches(kBehindAllOps);
  return write_waits(kBehindAllOps);
}

void StepWriter::write_own(std::int32_t index) {
  flush();
  at().is_recorded = false;
  const OwnCollective& own = data_.own[static_cast<std::size_t>(index)];
  const sim::Place here = place(kComputeStream, data_.costs.host.collective);
  graph_.add_collective(std::span(&here, 1), own.group, own.cost);
  note_issue(at().clock);
}

// The last place before something else stands.
std::int32_t StepWriter::last_of_run(std::int32_t op) const {
  const Role& role = roles_[static_cast<std::size_t>(role_)];
  std::int64_t last = kBehindAllOps;
  if (role.next_launch < role.launches.size()) {
    last = std::min(last, transfers_[role.launches[role.next_launch]].launch / 2);
  }
  if (role.next_pack < role.packs.size()) {
    last = std::min<std::int64_t>(last, role.packs[role.next_pack].producer);
  }
  if (role.next_wait < role.waits.size()) {
    last = std::min<std::int64_t>(last, transfers_[role.waits[role.next_wait]].wait_before - 1);
  }
  return static_cast<std::int32_t>(std::max<std::int64_t>(op, last));
}

// The role's ops up to this place, or up to one that communicates. Gives the last one.
std::int32_t StepWriter::write_run(std::int32_t last) {
  Role& role = at();
  const std::size_t lanes = lanes_per_role();
  role.is_recorded = false;
  if (role.as_one && role.next_op < role.next_own.size()) {
    auto end = static_cast<std::size_t>(
        std::min<std::int64_t>(last + std::int64_t{1}, std::ssize(role.ops)));
    if (roles_.size() > 1) {
      end = static_cast<std::size_t>(std::ranges::upper_bound(role.ops, last) - role.ops.begin());
    }
    keep_run(std::min(end, role.next_own[role.next_op]));
    return role.ops[role.next_op - 1];
  }
  std::int32_t op = 0;
  do {
    op = role.ops[role.next_op++];
    const auto index = static_cast<std::size_t>(op);
    role.clock += ops_[index].issue;
    keep(std::span(work_).subspan(index * lanes, lanes), ops_[index].kernel);
  } while (role.next_op < role.ops.size() && role.ops[role.next_op] <= last &&
           !ops_[static_cast<std::size_t>(role.ops[role.next_op])].own);
  return op;
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
void StepWriter::keep_run(std::size_t end) {
  Role& role = at();
  const std::size_t begin = role.next_op;
  const std::int64_t first = role.clock + role.issue_sum[begin + 1] - role.issue_sum[begin];
  const std::int64_t latest = first - kept_ns_ + role.late_sum[end] - role.late_sum[begin + 1];
  kept_issued_ = kept_work_.empty() ? latest : std::max(kept_issued_, latest);
  if (kept_work_.empty()) kept_work_.emplace_back();
  kept_ns_ += role.work_sum[end] - role.work_sum[begin];
  kept_gaps_ += role.gap_sum[end] - role.gap_sum[begin];
  role.clock += role.issue_sum[end] - role.issue_sum[begin];
  role.next_op = end;
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

// False where one waits for what has not been sent yet.
bool StepWriter::write_waits(std::int32_t op) {
  Role& role = at();
  for (; role.next_wait < role.waits.size(); ++role.next_wait) {
    const std::size_t index = role.waits[role.next_wait];
    if (transfers_[index].wait_before > op) break;
    if (!transfers_[index].is_done) return false;
    write_wait(index);
  }
  return true;
}

void StepWriter::write_packs(std::int32_t op) {
  Role& role = at();
  while (role.next_pack < role.packs.size() && role.packs[role.next_pack].producer == op) {
    write_pass(kComputeStream, data_.costs.copy(Bytes(role.packs[role.next_pack++].bytes),
                                                data_.gathers_each_use() ? models::CopyKind::Chunk
                                                                         : models::CopyKind::Any));
  }
}

void StepWriter::write_launches_up_to(LaunchPlace place) {
  Role& role = at();
  while (role.next_launch < role.launches.size() &&
         transfers_[role.launches[role.next_launch]].launch <= place) {
    const std::size_t index = role.launches[role.next_launch++];
    if (transfers_[index].what == Transfer::What::Message) {
      write_message(index);
      continue;
    }
    const bool reduces = transfers_[index].what == Transfer::What::Reduce;
    while (reduces && role.next_batch_wait < role.batch_waits.size() &&
           *transfers_[role.batch_waits[role.next_batch_wait]].wait_at <= index) {
      write_wait(role.batch_waits[role.next_batch_wait++]);
    }
    write_launch(index);
  }
}

void StepWriter::write_launch(std::size_t index) {
  Transfer& transfer = transfers_[index];
  const bool reduces = transfer.what == Transfer::What::Reduce;
  const Price& cost = price(*transfer.choice);
  if (reduces && data_.scales_before) write_pass(kComputeStream, cost.scale);
  if (transfer.stream == kComputeStream) return write_inline(transfer, cost);
  at().clock += 2 * data_.costs.host.event.count();  // a record, and a wait for it
  flush();
  graph_.follow(role_, transfer.stream, kComputeStream);
  if (const auto enqueue = write_enqueue(NodeKind::Enqueue)) {
    graph_.wait_for(role_, transfer.stream, *enqueue, EdgeKind::Launch);
  }
  const sim::Place here = place(transfer.stream, data_.costs.host.collective);
  graph_.add_collective(std::span(&here, 1), data_.group, cost.of(transfer.what));
  note_issue(at().clock);
  if (reduces && data_.scales_after) write_pass(transfer.stream, cost.scale);
  at().clock += data_.costs.host.event.count();
  note_done(index);
}

// On the compute stream, which needs no events.
void StepWriter::write_inline(Transfer& transfer, const Price& cost) {
  flush();
  at().is_recorded = false;
  const sim::Place here = place(kComputeStream, data_.costs.host.collective);
  graph_.add_collective(std::span(&here, 1), data_.group, cost.of(transfer.what));
  note_issue(at().clock);
  transfer.is_done = true;
  const bool reduces = transfer.what == Transfer::What::Reduce;
  if (reduces && data_.scales_after) write_pass(kComputeStream, cost.scale);
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

void StepWriter::note_done(std::size_t index) {
  Transfer& transfer = transfers_[index];
  transfer.is_done = true;
  transfer.done = graph_.first_waited_for(transfer.role, transfer.stream);
  roles_[static_cast<std::size_t>(transfer.role)]
      .last_on[static_cast<std::size_t>(transfer.stream.value)] = index;
}

// One side of a message is issued. It travels once all sides are.
void StepWriter::write_message(std::size_t index) {
  const Transfer& transfer = transfers_[index];
  const StepMessage& message = *transfer.message;
  const std::int64_t event = data_.costs.host.event.count();
  flush();
  Sent& sent = sent_[transfer.sent];
  sent.behind.clear();
  if (message.after_compute) {
    at().clock += 2 * event;
    sent.behind = graph_.waited_for(role_, kComputeStream);
  }
  // Behind a record it opens a launch (schedule/transfers.h).
  const bool launches = message.after_compute || at().is_recorded;
  sent.enqueue = write_enqueue(launches ? NodeKind::Enqueue : NodeKind::Call);
  sent.place = place(transfer.stream, data_.costs.host.collective);
  sent.issued = at().clock;
  at().clock += event;
  const OwnCollective& own = data_.own[static_cast<std::size_t>(message.own)];
  std::vector<std::size_t>& sides = meetings_[static_cast<std::size_t>(own.meeting)];
  sides.push_back(index);
  if (std::ssize(sides) < data_.meetings[static_cast<std::size_t>(own.meeting)]) return;
  std::ranges::sort(sides, {}, [this](std::size_t side) { return transfers_[side].role; });
  places_.clear();
  std::int64_t issued = 0;
  for (const std::size_t side : sides) {
    const Transfer& each = transfers_[side];
    const Sent& mine = sent_[each.sent];
    for (const std::int32_t entry : mine.behind) {
      graph_.wait_for(each.role, each.stream, entry, EdgeKind::Event);
    }
    if (mine.enqueue) graph_.wait_for(each.role, each.stream, *mine.enqueue, EdgeKind::Launch);
    places_.push_back(mine.place);
    issued = std::max(issued, mine.issued);
  }
  graph_.add_collective(places_, own.group, own.cost);
  note_issue(issued);
  for (const std::size_t side : sides) note_done(side);
  sides.clear();
}

void StepWriter::write_wait(std::size_t index) {
  const models::HostModel& host = data_.costs.host;
  const Transfer& transfer = transfers_[index];
  const bool whole = transfer.scope() == WaitScope::WholeStream;
  Transfer& awaited =
      transfers_[whole ? at().last_on[static_cast<std::size_t>(transfer.stream.value)] : index];
  if (!awaited.waited && transfer.stream != kComputeStream) {
    awaited.waited = true;
    at().is_recorded = false;
    flush();
    at().clock += host.event.count();
    graph_.wait_for(role_, kComputeStream, awaited.done, EdgeKind::Event);
    if (data_.inline_host() && host.event > Duration{}) {
      write_node(kComputeStream, NodeKind::WakeUp, host.event, models::KernelClass::Other);
    }
  }
  if (transfer.what == Transfer::What::Message) return;
  // Reduced gradients where they are whole; parameters unless they stay in the bucket's memory.
  const bool copied = transfer.choice->mode == BucketMode::Copy;
  const bool reduces = transfer.what == Transfer::What::Reduce;
  const bool unpacks = copied && (!reduces || !data_.sharding);
  if (!unpacks) return;
  const std::int64_t payload = data_.payload(*transfer.choice);
  write_pass(kComputeStream,
             reduces ? data_.costs.copy(Bytes(payload))
                     : data_.costs.copy(data_.parameters(payload), data_.gathers_each_use()
                                                                       ? models::CopyKind::Split
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
