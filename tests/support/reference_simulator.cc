// Plays moment by moment, rank by rank, stream by stream, and looks everything up anew each time: slow, and easy to
// read beside the definitions.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference_simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "schedule/visit.h"
#include "sim/issue_order.h"

namespace dovetail::testing {
namespace {

using models::KernelClass;
using schedule::Command;

constexpr double kUnit = 1048576;  // of rates and of progress: 2^-20
constexpr std::int64_t kUnits = 1048576;

// One command of a stream as its host issued it.
struct Item {
  const Command* command = nullptr;
  bool enqueue = false;       // not the command, but the host's work to enqueue it
  std::int64_t earliest = 0;  // start, as far as the host is concerned
  std::int32_t number = 0;    // of a collective: how many of its kind came before it in its step
  std::int32_t step = 0;
};

struct Talk {
  schedule::Collective kind;
  GroupId group;
  Bytes bytes;
  std::int32_t root = 0;
  std::int32_t max_ctas = 0;
};

using Link = std::tuple<Rank, std::int32_t, bool>;  // of a rank, by number, is inwards

// What is in flight: a collective on all its ranks, or anything else on one stream of one rank.
struct Flight {
  std::vector<std::pair<Rank, StreamId>> where = {};
  std::vector<Item> items = {};  // in the order of `where`
  std::int64_t start = 0;
  std::int64_t left = 0;   // in units
  std::int64_t alone = 0;  // ns at full rate
  bool collective = false;
  KernelClass kernel = KernelClass::Other;
  double multiprocessors = 0, memory = 0;  // of a collective: what it takes of its ranks' GPUs
  // Of a collective: what it uses of (rank, link, is inwards) while it moves at full rate.
  std::map<Link, double> wants = {};
  std::map<Link, double> loads = {};  // the same while it moves bytes
  std::int64_t patience = 0;          // until then it may wait for thread blocks
  // The products for which it waits: of each rank the number of the op; nothing where that is not known yet.
  std::optional<std::set<std::pair<Rank, std::int64_t>>> held_by = {};
  std::int64_t number = 0;  // of what began
  std::int64_t rate = kUnits;
};

struct RankState {
  const schedule::RankProgram* role = nullptr;
  std::map<StreamId, std::deque<Item>> streams;  // what is still to begin
  std::set<StreamId> busy;
  std::map<StreamId, std::int64_t> last_collective;  // its end
  std::set<std::pair<std::int32_t, EventId>> happened;
  std::set<std::pair<std::int32_t, CommandId>> to_enqueue;  // has not been enqueued
};

class Reference {
 public:
  Reference(const schedule::ScheduledProgram& program, const models::Costs& costs)
      : program_(program),
        costs_(costs),
        inline_host_(costs.host.kind == models::HostModel::Kind::Inline),
        gap_(inline_host_ ? 0 : costs.host.launch_gap.count()) {
    for (const schedule::RankProgram& role : program.roles) {
      for (const Rank rank : role.ranks) {
        ranks_[rank].role = &role;
        const models::Contention contention = costs.contention(rank);
        for (const KernelClass kernel : kAllOf<KernelClass>) {
          double& slowest = slowest_beside_.try_emplace(kernel, 1).first->second;
          slowest = std::max(slowest, contention.collective_slowdown_beside(kernel));
        }
        start_delay_ = std::max(start_delay_, contention.start_delay.count());
      }
    }
    note_order();
  }

  ReferenceTimeline run(std::int32_t steps) {
    for (auto& [rank, state] : ranks_) issue_all(state, steps);
    while (true) {
      while (finish_all() || begin_all()) {
      }
      if (flights_.empty() && next_issue() == kNever) break;
      set_rates();
      move_on();
    }
    for (const auto& [rank, state] : ranks_) {
      for (const auto& [stream, items] : state.streams) {
        DOVETAIL_CHECK(items.empty()) << "rank " << rank << " waits for ever";
      }
    }
    return result_;
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // With one role the order of its list.
  void note_order() {
    if (program_.roles.size() == 1) {
      for (const Command& command : program_.roles.front().commands) {
        issued_.emplace(&command, issued_.size());
      }
      return;
    }
    const bool timed = inline_host_ && costs_.host.collective > Duration{};
    const sim::IssueOrder order =
        sim::issue_order(program_, timed ? sim::Enqueues::Timed : sim::Enqueues::Free);
    for (const sim::Issue& issue : order.issues) {
      for (const sim::Side& side : order.sides_of(issue)) {
        const schedule::RankProgram& role = program_.roles[static_cast<std::size_t>(side.role)];
        if (issue.kind == sim::Issue::Kind::Enqueue) continue;
        issued_.emplace(&role.commands[static_cast<std::size_t>(side.command)], issued_.size());
      }
    }
  }

  // ------------------------------------------------------------------------- what commands mean

  [[nodiscard]] std::optional<Talk> talk(const Command& command) const {
    const auto* run = std::get_if<schedule::Communicate>(&command.action);
    if (run == nullptr) return std::nullopt;
    if (run->op) {
      const auto& work = std::get<schedule::CollectiveWork>(program_.program.op(*run->op).work);
      return Talk{work.kind, work.group, work.bytes, work.root, run->max_ctas};
    }
    const schedule::BucketLayout& layout = program_.bucket(*run->bucket);
    const bool shard =
        run->part == schedule::Part::Shard && run->kind == schedule::Collective::AllReduce;
    return Talk{run->kind, run->group,
                shard ? Bytes(layout.size.count() / layout.shards) : layout.size, 0, run->max_ctas};
  }

  [[nodiscard]] Duration host_cost(const Command& command) const {
    return schedule::visit(
        command.action,
        [&](const schedule::RunOp& run) { return costs_.issue(program_.program.op(run.op)); },
        [&](const schedule::Communicate&) { return costs_.host.collective; },
        [&](const schedule::Copy&) { return costs_.host.copy; },
        [&](const schedule::RecordEvent&) { return costs_.host.event; },
        [&](const schedule::WaitEvent&) { return costs_.host.event; },
        [&](const schedule::Scale&) { return costs_.host.copy; },
        [](const schedule::Release&) { return Duration{}; });
  }

  // The host puts all steps on its streams.
  void issue_all(RankState& state, std::int32_t steps) {
    std::int64_t host = 0;
    const bool timed = inline_host_ && costs_.host.collective > Duration{};
    for (std::int32_t step = 0; step < steps; ++step) {
      // The collectives of one rank are told apart by group, stream, direction of a send, and number.
      std::map<std::tuple<GroupId, StreamId, std::int32_t>, std::int32_t> numbers;
      for (const Command& command : state.role->commands) {
        Item item{.command = &command, .step = step};
        if (!inline_host_) {
          host += host_cost(command).count();
          item.earliest =
              std::max<std::int64_t>(0, host + costs_.host.launch_latency.count() - gap_);
        }
        if (const std::optional<Talk> about = talk(command)) {
          item.number = numbers[{about->group, command.stream, direction(*about)}]++;
          if (timed && command.stream != schedule::kComputeStream) {
            state.streams[schedule::kComputeStream].push_back(
                {.command = &command, .enqueue = true, .step = step});
            state.to_enqueue.insert({step, command.id});
          }
        }
        state.streams[command.stream].push_back(item);
      }
    }
  }

  static std::int32_t direction(const Talk& talk) {
    return talk.kind == schedule::Collective::SendRecv ? ~talk.root : 0;
  }

  [[nodiscard]] Duration work(Rank rank, const Command& command) const {
    const Duration fixed = inline_host_ ? costs_.host.copy : Duration{};
    if (const auto* run = std::get_if<schedule::RunOp>(&command.action)) {
      return costs_.op(program_.program.op(run->op), rank);
    }
    if (const auto* scale = std::get_if<schedule::Scale>(&command.action)) {
      const schedule::BucketLayout& layout = program_.bucket(scale->bucket);
      const bool shard = scale->part == schedule::Part::Shard;
      const Bytes bytes = shard ? Bytes(layout.size.count() / layout.shards) : layout.size;
      return fixed + costs_.scale(bytes);
    }
    const auto& copy = std::get<schedule::Copy>(command.action);
    Bytes bytes;
    for (const schedule::BucketMember& member : program_.bucket(copy.bucket).members) {
      if (std::ranges::count(copy.gradients, member.tensor) == 0) continue;
      const schedule::Tensor& tensor = program_.program.tensor(member.tensor);
      bytes += schedule::element_size(tensor.dtype) * member.elements(tensor);
    }
    return fixed + costs_.copy(bytes);
  }

  [[nodiscard]] KernelClass kernel(const Command& command) const {
    const auto* run = std::get_if<schedule::RunOp>(&command.action);
    if (run == nullptr) return KernelClass::Memory;  // a copy, a scale
    const schedule::Work& of = program_.program.op(run->op).work;
    if (std::holds_alternative<schedule::GemmWork>(of)) return KernelClass::Gemm;
    return std::holds_alternative<schedule::MemoryWork>(of) ? KernelClass::Memory
                                                            : KernelClass::Other;
  }

  // --------------------------------------------------------------------------- what can begin now

  // Of collectives one at a time, when nothing else can begin: the pause of the next one depends on those in flight.
  bool begin_all() {
    bool any = false;
    for (auto& [rank, state] : ranks_) {
      for (auto& [stream, items] : state.streams) {
        while (!items.empty() && !is_collective(items.front()) && begin(rank, state, stream)) {
          any = true;
        }
      }
    }
    return any || begin_first_collective();
  }

  [[nodiscard]] bool is_collective(const Item& item) const {
    return !item.enqueue && talk(*item.command).has_value();
  }

  // Of all that can begin now the first one in the order of issue.
  bool begin_first_collective() {
    std::optional<Flight> first;
    for (auto& [rank, state] : ranks_) {
      for (auto& [stream, items] : state.streams) {
        if (items.empty() || !is_collective(items.front()) || state.busy.contains(stream)) continue;
        std::optional<Flight> flight = meet(rank, *talk(*items.front().command), items.front());
        if (flight && (!first || place(*flight) < place(*first))) first = std::move(flight);
      }
    }
    if (first) begin_collective(std::move(*first));
    return first.has_value();
  }

  // Step and place in the order of issue.
  [[nodiscard]] std::pair<std::int32_t, std::size_t> place(const Flight& flight) const {
    return {flight.items.front().step, issued_.at(flight.items.front().command)};
  }

  // The head of one stream; false where it has to wait.
  bool begin(Rank rank, RankState& state, StreamId stream) {
    if (state.busy.contains(stream)) return false;
    const Item item = state.streams[stream].front();
    const Command& command = *item.command;
    if (item.enqueue) {
      occupy(rank, stream, item, costs_.host.collective, KernelClass::Other);
    } else if (const auto* wait = std::get_if<schedule::WaitEvent>(&command.action)) {
      if (!state.happened.contains({item.step, wait->event})) return false;
      const bool wake_up =
          inline_host_ && stream == schedule::kComputeStream && costs_.host.event > Duration{};
      if (wake_up) occupy(rank, stream, item, costs_.host.event, KernelClass::Other);
    } else if (const auto* record = std::get_if<schedule::RecordEvent>(&command.action)) {
      state.happened.insert({item.step, record->event});
    } else if (!std::holds_alternative<schedule::Release>(command.action)) {
      if (item.earliest > now_) return false;
      occupy(rank, stream, item, work(rank, command), kernel(command));
    }
    state.streams[stream].pop_front();
    return true;
  }

  // Work on one stream of one rank.
  void occupy(Rank rank, StreamId stream, const Item& item, Duration time, KernelClass kernel) {
    const std::int64_t alone = gap_ + time.count();
    ranks_.at(rank).busy.insert(stream);
    flights_.push_back({.where = {{rank, stream}},
                        .items = {item},
                        .start = now_,
                        .left = alone * kUnits,
                        .alone = alone,
                        .kernel = kernel,
                        .number = begun_++});
  }

  // Once it is at the head of an idle stream on all ranks of the instance.
  [[nodiscard]] std::optional<Flight> meet(Rank rank, const Talk& about, const Item& item) const {
    const schedule::ProcessGroup& group = program_.program.group(about.group);
    const std::span<const Rank> peers = group.instance_of(rank);
    DOVETAIL_CHECK(!peers.empty()) << "rank " << rank << " is not in the group";
    Flight flight{.start = now_, .collective = true};
    for (const Rank peer : peers) {
      const std::optional<StreamId> stream = waiting(peer, about, item);
      if (!stream) return std::nullopt;
      flight.where.emplace_back(peer, *stream);
      flight.items.push_back(ranks_.at(peer).streams.at(*stream).front());
    }
    return flight;
  }

  void begin_collective(Flight flight) {
    const Talk about = *talk(*flight.items.front().command);
    load_links(flight, about);
    const std::optional<std::int64_t> pause = pause_before(flight);
    flight.alone = duration(about, pause);
    if (flight.alone > 0) {
      flight.patience = now_ + std::min(start_delay_, pause.value_or(start_delay_));
    }
    take_of_gpus(flight, about);
    flight.left = flight.alone * kUnits;
    want_links(flight, about);
    for (const auto& [peer, stream] : flight.where) {
      ranks_.at(peer).streams.at(stream).pop_front();
      ranks_.at(peer).busy.insert(stream);
    }
    flights_.push_back(std::move(flight));
  }

  // The stream on which this rank waits in the same collective; roles may use different ones.
  [[nodiscard]] std::optional<StreamId> waiting(Rank peer, const Talk& about,
                                                const Item& item) const {
    const RankState& state = ranks_.at(peer);
    for (const auto& [stream, items] : state.streams) {
      if (items.empty() || state.busy.contains(stream) || items.front().enqueue) continue;
      const Item& theirs = items.front();
      const std::optional<Talk> other = talk(*theirs.command);
      const bool same = other && other->group == about.group && stream == item.command->stream &&
                        direction(*other) == direction(about) && theirs.number == item.number &&
                        theirs.step == item.step;
      const bool ready =
          theirs.earliest <= now_ && !state.to_enqueue.contains({theirs.step, theirs.command->id});
      if (same && ready) return stream;
    }
    return std::nullopt;
  }

  // The pause counts on the stream of the first rank, and on the links that the collective loads most.
  [[nodiscard]] std::optional<std::int64_t> pause_before(const Flight& flight) const {
    std::optional<std::int64_t> since;  // the latest end before it
    const auto& [first, stream] = flight.where.front();
    const auto& last = ranks_.at(first).last_collective;
    if (const auto found = last.find(stream); found != last.end()) since = found->second;
    double most = 0;
    for (const auto& [link, load] : flight.loads) most = std::max(most, load);
    for (const auto& [link, load] : flight.loads) {
      if (load < most) continue;
      for (const Flight& other : flights_) {
        if (other.loads.contains(link)) return 0;
      }
      const auto found = last_on_.find(link);
      if (found != last_on_.end()) since = std::max(since.value_or(0), found->second);
    }
    if (!since) return std::nullopt;
    return now_ - *since;
  }

  [[nodiscard]] std::int64_t duration(const Talk& about, std::optional<std::int64_t> pause) const {
    const models::CollectiveTime time =
        costs_.collective(about.kind, program_.program.group(about.group), about.bytes);
    const auto& gpu = costs_.contention(Rank{0}).multiprocessors;
    const std::int64_t least = gpu ? gpu->least_time(on_gpu(about)).count() : 0;
    const std::int64_t isolated = std::max(least, time.isolated.count());
    const std::int64_t queued = std::max(least, time.back_to_back.count());
    if (!pause) return isolated;
    return std::min(std::max(isolated, queued - *pause), queued + *pause);
  }

  [[nodiscard]] models::GpuMessage on_gpu(const Talk& about) const {
    const models::CollectiveKey key = costs_.key(about.kind, program_.program.group(about.group));
    return {about.kind, key.ranks, key.nodes, about.bytes, about.max_ctas};
  }

  void take_of_gpus(Flight& flight, const Talk& about) const {
    const auto& gpu = costs_.contention(Rank{0}).multiprocessors;
    const models::GpuMessage message = on_gpu(about);
    if (!gpu || message.ranks == 1) return;
    flight.multiprocessors =
        static_cast<double>(gpu->ctas_of(message)) / static_cast<double>(gpu->count);
    const Duration time =
        costs_.collective(about.kind, program_.program.group(about.group), about.bytes).isolated;
    flight.memory = gpu->memory_share(message, std::max(time, gpu->least_time(message)));
  }

  void load_links(Flight& flight, const Talk& about) const {
    const models::CollectiveCost* cost =
        costs_.find(costs_.key(about.kind, program_.program.group(about.group)));
    if (cost == nullptr) return;
    for (std::size_t i = 0; i < flight.where.size(); ++i) {
      const Rank rank = flight.where[i].first;
      const bool send = about.kind == schedule::Collective::SendRecv;
      const bool is_sender = static_cast<std::int32_t>(i) == about.root;
      for (const models::LinkLoad& load : cost->loads) {
        if (load.share <= 0) continue;
        if (!send || is_sender) flight.loads[{rank, load.link, false}] += load.share;
        if (!send || !is_sender) flight.loads[{rank, load.link, true}] += load.share;
      }
    }
  }

  // It moves bytes in the part of its time that is no latency.
  void want_links(Flight& flight, const Talk& about) const {
    const models::CollectiveCost* cost =
        costs_.find(costs_.key(about.kind, program_.program.group(about.group)));
    if (cost == nullptr || flight.alone == 0) return;
    const std::int64_t latency = std::min(cost->time.latency(about.bytes).count(), flight.alone);
    const double wire =
        static_cast<double>(flight.alone - latency) / static_cast<double>(flight.alone);
    for (const auto& [link, load] : flight.loads) {
      if (wire * load > 0) flight.wants[link] = wire * load;
    }
  }

  // ------------------------------------------------------------------------------------- rates

  // What a rank computes; null: nothing.
  [[nodiscard]] const Flight* computed_by(Rank rank) const {
    for (const Flight& flight : flights_) {
      const bool here = flight.where.front() == std::pair(rank, schedule::kComputeStream);
      if (!flight.collective && here) return &flight;
    }
    return nullptr;
  }

  // When all that can begin has, a collective knows the products beside which it begins.
  [[nodiscard]] bool waits(Flight& flight) const {
    if (flight.patience <= now_) return false;
    std::set<std::pair<Rank, std::int64_t>> beside;
    for (const auto& [rank, stream] : flight.where) {
      const Flight* op = computed_by(rank);
      if (op != nullptr && op->kernel == KernelClass::Gemm) beside.emplace(rank, op->number);
    }
    if (!flight.held_by) flight.held_by = beside;
    return std::ranges::any_of(*flight.held_by,
                               [&](const auto& product) { return beside.contains(product); });
  }

  void set_rates() {
    // Of each collective that moves: by what its ranks compute.
    std::map<const Flight*, double> limit;
    for (Flight& flight : flights_) {
      if (!flight.collective || waits(flight)) continue;
      double slowest = 1;
      for (const auto& [rank, stream] : flight.where) {
        const Flight* op = computed_by(rank);
        if (op != nullptr) slowest = std::max(slowest, slowest_beside_.at(op->kernel));
      }
      limit[&flight] = 1 / slowest;
    }
    const std::map<const Flight*, double> share = as_memory_allows(shares(limit));
    for (Flight& flight : flights_) {
      if (flight.collective && !limit.contains(&flight)) {
        flight.rate = 0;
      } else if (flight.collective) {
        flight.rate = rounded(share.at(&flight) * limit.at(&flight));
      } else if (flight.where.front().second == schedule::kComputeStream) {
        flight.rate = rounded(left_for(flight, share));
      }
    }
  }

  static std::int64_t rounded(double rate) {
    return std::max<std::int64_t>(1, std::llround(rate * kUnit));
  }

  // What collectives leave of a rank's compute and core for what it computes.
  [[nodiscard]] double left_for(const Flight& op,
                                const std::map<const Flight*, double>& share) const {
    const Rank rank = op.where.front().first;
    const models::Contention contention = costs_.contention(rank);
    double core = 1;
    double compute = 1;
    double multiprocessors = 1;
    double memory = 1;
    for (const Flight& flight : flights_) {
      const bool here = std::ranges::any_of(
          flight.where, [rank](const auto& place) { return place.first == rank; });
      if (!flight.collective || !here) continue;
      if (!share.contains(&flight)) {  // it waits, with what blocks it has
        compute -= 1 - 1 / contention.slowdown_of(op.kernel);
        multiprocessors -= flight.multiprocessors;
        continue;
      }
      const auto alone = static_cast<double>(std::max<std::int64_t>(1, flight.alone));
      const auto busy = static_cast<double>(contention.collective_cpu.count());
      core -= share.at(&flight) * std::min(1.0, busy / alone);
      compute -= share.at(&flight) * (1 - 1 / contention.slowdown_of(op.kernel));
      multiprocessors -= flight.multiprocessors;
      if (op.kernel == KernelClass::Memory) memory -= share.at(&flight) * flight.memory;
    }
    return std::max(1.0 / 64, std::max(0.0, core) * std::max(0.0, compute) *
                                  std::max(0.0, multiprocessors) * std::max(0.0, memory));
  }

  // Max-min: what each collective uses of the link that it uses most rises in step with that of all
  // others; it stops when the collective is at full speed or one of its links is full.
  [[nodiscard]] std::map<const Flight*, double> shares(
      const std::map<const Flight*, double>& limit) const {
    std::map<const Flight*, double> share;
    std::set<const Flight*> rising;
    for (const auto& [flight, most] : limit) {
      share[flight] = 1;
      if (!flight->wants.empty()) rising.insert(flight);
    }
    const auto want = [&](const Flight* flight, const auto& link) {
      const auto found = flight->wants.find(link);
      return found == flight->wants.end() ? 0 : found->second * limit.at(flight);
    };
    const auto largest = [&](const Flight* flight) {
      double most = 0;
      for (const auto& [link, amount] : flight->wants) most = std::max(most, want(flight, link));
      return most;
    };
    while (!rising.empty()) {
      double level = std::numeric_limits<double>::infinity();
      for (const Flight* flight : rising) level = std::min(level, largest(flight));
      std::map<Link, double> full_at;
      for (const Flight* flight : rising) {
        for (const auto& [link, amount] : flight->wants) {
          double settled = 0;
          double slope = 0;
          for (const auto& [other, most] : limit) {
            if (!rising.contains(other)) settled += share.at(other) * want(other, link);
            if (rising.contains(other)) slope += want(other, link) / largest(other);
          }
          full_at[link] = std::max(0.0, 1 - settled) / slope;
          level = std::min(level, full_at[link]);
        }
      }
      std::vector<const Flight*> stopped;
      for (const Flight* flight : rising) {
        const bool full = std::ranges::any_of(
            flight->wants, [&](const auto& one) { return full_at.at(one.first) <= level; });
        if (full || largest(flight) <= level) stopped.push_back(flight);
      }
      for (const Flight* flight : stopped) {
        share[flight] = std::clamp(level / largest(flight), 1e-6, 1.0);
      }
      for (const Flight* flight : stopped) rising.erase(flight);
    }
    return share;
  }

  // Memory of each rank, from whoever wants least on: each has what it wants, or an equal part of what is left.
  [[nodiscard]] std::map<const Flight*, double> as_memory_allows(
      std::map<const Flight*, double> share) const {
    std::map<const Flight*, double> pace;
    for (const auto& [rank, state] : ranks_) {
      std::vector<std::pair<double, const Flight*>> wants;
      std::size_t waiting = streams(rank) ? 1 : 0;  // for its part
      for (const auto& [flight, rate] : share) {
        for (const auto& [peer, stream] : flight->where) {
          if (peer == rank) wants.emplace_back(rate * flight->memory, flight);
        }
      }
      std::ranges::sort(wants);
      waiting += wants.size();
      double left = 1;
      for (const auto& [want, flight] : wants) {
        const double part = std::min(want, left / static_cast<double>(waiting--));
        left -= part;
        if (part < want)
          pace[flight] = std::min(pace.try_emplace(flight, 1).first->second, part / want);
      }
    }
    for (const auto& [flight, factor] : pace) share.at(flight) *= factor;
    return share;
  }

  [[nodiscard]] bool streams(Rank rank) const {
    const Flight* op = computed_by(rank);
    return op != nullptr && op->kernel == KernelClass::Memory;
  }

  // -------------------------------------------------------------------------------------- time

  [[nodiscard]] std::int64_t next_issue() const {
    std::int64_t next = kNever;
    for (const auto& [rank, state] : ranks_) {
      for (const auto& [stream, items] : state.streams) {
        if (items.empty() || items.front().earliest <= now_) continue;
        next = std::min(next, items.front().earliest);
      }
    }
    return next;
  }

  void move_on() {
    std::int64_t next = next_issue();
    for (const Flight& flight : flights_) {
      next =
          std::min(next, flight.rate == 0 ? flight.patience
                                          : now_ + (flight.left + flight.rate - 1) / flight.rate);
    }
    for (Flight& flight : flights_) {
      flight.left = std::max<std::int64_t>(0, flight.left - (next - now_) * flight.rate);
    }
    now_ = next;
  }

  bool finish_all() {
    bool any = false;
    for (auto flight = flights_.begin(); flight != flights_.end();) {
      if (flight->left > 0) {
        ++flight;
        continue;
      }
      for (const auto& [link, load] : flight->loads) last_on_[link] = now_;
      for (std::size_t i = 0; i < flight->where.size(); ++i) {
        const auto& [rank, stream] = flight->where[i];
        const Item& item = flight->items[i];
        RankState& state = ranks_.at(rank);
        state.busy.erase(stream);
        if (flight->collective) state.last_collective[stream] = now_;
        if (item.enqueue) state.to_enqueue.erase({item.step, item.command->id});
        result_[{item.step, rank, item.command->id, item.enqueue}] = {flight->start, now_};
      }
      flight = flights_.erase(flight);
      any = true;
    }
    return any;
  }

  const schedule::ScheduledProgram& program_;
  const models::Costs& costs_;
  const bool inline_host_;
  const std::int64_t gap_;
  std::map<KernelClass, double> slowest_beside_;  // how much slower collectives are
  std::int64_t start_delay_ = 0;
  std::int64_t begun_ = 0;
  std::int64_t now_ = 0;
  std::map<const Command*, std::size_t> issued_;
  std::map<Link, std::int64_t> last_on_;  // the end of a collective
  std::map<Rank, RankState> ranks_;
  std::list<Flight> flights_;
  ReferenceTimeline result_;
};

}  // namespace

ReferenceTimeline reference_simulate(const schedule::ScheduledProgram& program,
                                     const models::Costs& costs, std::int32_t steps) {
  return Reference(program, costs).run(steps);
}

}  // namespace dovetail::testing
