// The small step that most tests of the executor run, plans for it written by hand, and ranks as
// threads that reduce through shared memory.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/support.h"

#include "base/error.h"
#include "exec/ops/synthetic_ops.h"
#include "schedule/transfers.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace dovetail::exec::testing {

using schedule::Action;
using schedule::BucketLayout;
using schedule::BucketMode;
using schedule::Collective;
using schedule::Command;
using schedule::Communicate;
using schedule::Copy;
using schedule::CopyDirection;
using schedule::DType;
using schedule::GemmWork;
using schedule::InlineStream;
using schedule::kComputeStream;
using schedule::MemoryWork;
using schedule::Phase;
using schedule::ProcessGroup;
using schedule::Program;
using schedule::RankProgram;
using schedule::RecordEvent;
using schedule::ReduceOp;
using schedule::RunOp;
using schedule::ScheduledProgram;
using schedule::TensorKind;
using schedule::WaitEvent;
using schedule::WaitPoint;

Program two_layers(std::int64_t ranks) {
  Program program;
  program.name = "two-layers";
  program.world_size = ranks;
  program.tensors = {{kW1, "l1.weight", TensorKind::Parameter, DType::F32, {kNumel1}},
                     {kW2, "l2.weight", TensorKind::Parameter, DType::F32, {kNumel2}},
                     {kG1, "l1.weight.grad", TensorKind::Gradient, DType::F32, {kNumel1}},
                     {kG2, "l2.weight.grad", TensorKind::Gradient, DType::F32, {kNumel2}}};
  const GemmWork gemm = {.m = 16, .n = 16, .k = 16, .count = 2};
  const MemoryWork memory = {.bytes = kib(12), .flop = {}};
  const DType f32 = DType::F32;
  program.ops = {{kForward1, "l1.forward", Phase::Forward, f32, gemm, {kW1}, {}},
                 {kForward2, "l2.forward", Phase::Forward, f32, gemm, {kW2}, {}},
                 {kBackward2, "l2.backward", Phase::Backward, f32, gemm, {kW2}, {kG2}},
                 {kBackward1, "l1.backward", Phase::Backward, f32, gemm, {kW1}, {kG1}},
                 {kUpdate2, "l2.update", Phase::Optimizer, f32, memory, {kG2}, {kW2}},
                 {kUpdate1, "l1.update", Phase::Optimizer, f32, memory, {kG1}, {kW1}}};
  ProcessGroup group = {.id = GroupId{0}, .name = "dp", .ranks = {}};
  for (std::int32_t rank = 0; rank < ranks; ++rank) group.ranks.push_back(Rank{rank});
  program.groups = {group};
  program.reductions = {{kG2, GroupId{0}, ReduceOp::Average}, {kG1, GroupId{0}, ReduceOp::Sum}};
  return program;
}

namespace {

class PlanWriter {
 public:
  explicit PlanWriter(const PlanOptions& options) : options_(options) {
    plan_.program = two_layers(options.ranks);
    plan_.policy = "by hand";
    plan_.streams = {{StreamId{0}, "compute"}};
    if (!is_inline()) plan_.streams.push_back({StreamId{1}, "comm0"});
    plan_.buckets = {layout(BucketId{0}, kG2, kNumel2), layout(BucketId{1}, kG1, kNumel1)};
    role_.ranks = plan_.program.groups[0].ranks;
  }

  ScheduledProgram write() {
    const bool at_end = options_.wait == WaitPoint::EndOfBackward;
    for (const OpId op : {kForward1, kForward2, kBackward2}) add(kComputeStream, RunOp{op});
    launch(0);
    add(kComputeStream, RunOp{kBackward1});
    launch(1);
    wait(0);
    if (at_end) wait(1);
    add(kComputeStream, RunOp{kUpdate2});
    if (!at_end) wait(1);
    add(kComputeStream, RunOp{kUpdate1});
    plan_.roles = {std::move(role_)};
    link_transfers(plan_);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool is_inline() const {
    return std::holds_alternative<InlineStream>(options_.stream);
  }
  [[nodiscard]] BucketLayout layout(BucketId id, TensorId gradient, std::int64_t numel) const {
    BucketLayout bucket;
    bucket.bucket = id;
    bucket.mode = options_.mode;
    bucket.payload = Bytes(numel * 4);
    bucket.size = bucket.payload + options_.padding;
    bucket.members = {{gradient, Bytes(0)}};
    if (options_.collective != Collective::AllReduce) {
      bucket.shards = plan_.program.groups[0].size();
      bucket.cut_over = GroupId{0};
    }
    return bucket;
  }
  void add(StreamId stream, Action action) {
    const auto id = static_cast<std::int32_t>(role_.commands.size());
    role_.commands.push_back({CommandId{id}, stream, std::move(action)});
  }
  void copy(std::int32_t bucket, CopyDirection direction) {
    if (options_.mode == BucketMode::View) return;
    const TensorId gradient = bucket == 0 ? kG2 : kG1;
    add(kComputeStream, Copy{BucketId{bucket}, direction, {gradient}});
  }
  void collective(StreamId stream, std::int32_t bucket) {
    const ReduceOp op = bucket == 0 ? ReduceOp::Average : ReduceOp::Sum;
    const BucketId id{bucket};
    if (options_.collective == Collective::AllReduce) {
      add(stream, Communicate{id, Collective::AllReduce, op, GroupId{0}});
    } else {
      add(stream, Communicate{id, Collective::ReduceScatter, op, GroupId{0}});
      add(stream, Communicate{id, Collective::AllGather, op, GroupId{0}});
    }
  }
  void launch(std::int32_t bucket) {
    copy(bucket, CopyDirection::Pack);
    if (is_inline()) return collective(kComputeStream, bucket);
    const StreamId comm{1};
    add(kComputeStream, RecordEvent{EventId{2 * bucket}});
    add(comm, WaitEvent{EventId{2 * bucket}});
    collective(comm, bucket);
    add(comm, RecordEvent{EventId{2 * bucket + 1}});
  }
  void wait(std::int32_t bucket) {
    if (!is_inline()) add(kComputeStream, WaitEvent{EventId{2 * bucket + 1}});
    copy(bucket, CopyDirection::Unpack);
  }

  PlanOptions options_;
  ScheduledProgram plan_;
  RankProgram role_;
};

}  // namespace

ScheduledProgram two_buckets(const PlanOptions& options) { return PlanWriter(options).write(); }

ScheduledProgram without_waits(ScheduledProgram plan) {
  for (RankProgram& role : plan.roles) {
    std::erase_if(role.commands, [](const Command& command) {
      return command.stream == kComputeStream && std::holds_alternative<WaitEvent>(command.action);
    });
  }
  link_transfers(plan);
  return plan;
}

CommandId find_command(const ScheduledProgram& plan,
                       const std::function<bool(const Command&)>& predicate) {
  std::vector<CommandId> found;
  for (const Command& command : plan.roles.at(0).commands) {
    if (predicate(command)) found.push_back(command.id);
  }
  DOVETAIL_CHECK(found.size() == 1) << found.size() << " commands";
  return found[0];
}

// Where the ranks of one stream and group meet: everybody shows its data, everybody takes what it
// needs, everybody leaves.
class ThreadRanks::Meeting {
 public:
  explicit Meeting(std::size_t ranks) : shown(ranks), turn(static_cast<std::ptrdiff_t>(ranks)) {}
  std::vector<std::span<const std::byte>> shown;
  std::barrier<> turn;
};

namespace {

class SharedTransport final : public cpu::Transport {
 public:
  // `before` runs first in every collective.
  SharedTransport(ThreadRanks::Meeting& meeting, std::size_t index, std::function<void()> before,
                  const char& cut)
      : meeting_(meeting), index_(index), before_(std::move(before)), cut_(cut) {}

  void all_reduce(std::span<float> data, ReduceOp op, std::string_view label) override {
    begin(data, label);
    std::vector<float> sum(data.size());
    reduce(0, sum, op);
    end();
    std::copy(sum.begin(), sum.end(), data.begin());
  }
  void reduce_scatter(std::span<float> data, std::span<float> shard, ReduceOp op,
                      std::string_view label) override {
    begin(data, label);
    std::vector<float> sum(shard.size());
    reduce(index_ * sum.size(), sum, op);
    end();
    std::copy(sum.begin(), sum.end(), shard.begin());
  }
  void all_gather(std::span<const std::byte> shard, std::span<std::byte> data,
                  std::string_view label) override {
    begin(shard, label);
    std::vector<std::byte> all;
    for (const std::span<const std::byte> part : meeting_.shown) {
      all.insert(all.end(), part.begin(), part.end());
    }
    end();
    std::copy(all.begin(), all.end(), data.begin());
  }
  void all_to_all(std::span<const float> data, std::span<float> received,
                  std::string_view label) override {
    begin(data, label);
    const std::size_t part = data.size() / meeting_.shown.size();
    auto out = received.begin();
    for (std::size_t rank = 0; rank < meeting_.shown.size(); ++rank) {
      const std::span<const float> mine = shown_by(rank).subspan(index_ * part, part);
      out = std::copy(mine.begin(), mine.end(), out);
    }
    end();
  }
  void broadcast(std::span<float> data, std::size_t root, std::string_view label) override {
    begin(data, label);
    const std::span<const float> from = shown_by(root);
    if (index_ != root) std::copy(from.begin(), from.end(), data.begin());
    end();
  }
  void send(std::span<const float> data, std::string_view label) override {
    begin(data, label);
    end();
  }
  void receive(std::span<float> data, std::string_view label) override {
    broadcast(data, 1 - index_, label);
  }

 private:
  void begin(std::span<const float> data, std::string_view label) {
    begin(std::as_bytes(data), label);
  }
  void begin(std::span<const std::byte> data, std::string_view label) {
    if (cut_ != 0) throw DeviceError(std::string(label) + ": link cut");
    before_();
    meeting_.shown[index_] = data;
    meeting_.turn.arrive_and_wait();
  }
  void end() { meeting_.turn.arrive_and_wait(); }
  [[nodiscard]] std::span<const float> shown_by(std::size_t rank) const {
    const std::span<const std::byte> bytes = meeting_.shown[rank];
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
  // `sum` becomes the elements from `first` on. Plain loops: tests are compiled without optimisation.
  void reduce(std::size_t first, std::vector<float>& sum, ReduceOp op) const {
    float* to = sum.data();
    const std::size_t size = sum.size();
    for (std::size_t rank = 0; rank < meeting_.shown.size(); ++rank) {
      const float* from = shown_by(rank).data() + first;
      for (std::size_t i = 0; i < size; ++i) to[i] += from[i];
    }
    if (op != ReduceOp::Average) return;
    const float share = 1.0F / static_cast<float>(meeting_.shown.size());
    for (std::size_t i = 0; i < size; ++i) to[i] *= share;
  }

  ThreadRanks::Meeting& meeting_;
  std::size_t index_;
  std::function<void()> before_;
  const char& cut_;
};

// Whether a rank has run all ops of its step.
class Progress {
 public:
  void begin_step() {
    const std::lock_guard lock(mutex_);
    has_computed_ = false;
  }
  void end_of_ops() {
    {
      const std::lock_guard lock(mutex_);
      has_computed_ = true;
    }
    changed_.notify_all();
  }
  void await_end_of_ops() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_computed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_computed_ = false;
};

// Tells when the last op has run.
class ObservedOps final : public OpRunner {
 public:
  ObservedOps(std::unique_ptr<OpRunner> inner, OpId last, Progress& progress)
      : inner_(std::move(inner)), last_(last), progress_(progress) {}

  void begin_step(std::int32_t step, DeviceStream stream) override {
    progress_.begin_step();
    inner_->begin_step(step, stream);
  }
  void run(const schedule::Op& op, DeviceStream stream) override {
    inner_->run(op, stream);
    if (op.id == last_) progress_.end_of_ops();
  }
  CheckResult check_values(DeviceStream stream) override { return inner_->check_values(stream); }

 private:
  std::unique_ptr<OpRunner> inner_;
  OpId last_;
  Progress& progress_;
};

}  // namespace

ThreadRanks::ThreadRanks(std::int64_t ranks, std::chrono::microseconds delay)
    : ranks_(ranks),
      delay_(delay),
      barrier_(ranks),
      cut_(static_cast<std::size_t>(ranks), 0),
      said_(static_cast<std::size_t>(ranks)) {}

ThreadRanks::Meeting& ThreadRanks::meeting(StreamId stream, std::span<const Rank> ranks) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Meeting>& meeting = meetings_[{stream, {ranks.begin(), ranks.end()}}];
  if (meeting == nullptr) meeting = std::make_unique<Meeting>(ranks.size());
  return *meeting;
}

ThreadRanks::~ThreadRanks() = default;

cpu::Ports ThreadRanks::ports(Rank rank) {
  cpu::Ports ports;
  ports.rank = rank;
  ports.barrier = [this] { barrier_.arrive_and_wait(); };
  ports.open_transport = [this, rank](
                             StreamId stream,
                             std::span<const Rank> ranks) -> std::unique_ptr<cpu::Transport> {
    const auto index = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    const auto before = [this, rank] {
      std::this_thread::sleep_for(delay_);
      if (hold_) hold_(rank);
    };
    return std::make_unique<SharedTransport>(meeting(stream, ranks),
                                             static_cast<std::size_t>(index), before,
                                             cut_[static_cast<std::size_t>(rank.value)]);
  };
  return ports;
}

Exchange ThreadRanks::exchange(Rank rank) {
  Exchange exchange;
  exchange.rank = rank;
  exchange.world_size = ranks_;
  exchange.barrier = [this] { barrier_.arrive_and_wait(); };
  exchange.gather = [this, rank](const std::string& bytes) {
    said_[static_cast<std::size_t>(rank.value)] = bytes;
    barrier_.arrive_and_wait();
    std::vector<std::string> all;
    if (rank == Rank{0}) all = said_;
    barrier_.arrive_and_wait();
    return all;
  };
  exchange.broadcast = [this, rank](const std::string& bytes) {
    if (rank == Rank{0}) said_[0] = bytes;
    barrier_.arrive_and_wait();
    std::string heard = said_[0];
    barrier_.arrive_and_wait();
    return heard;
  };
  return exchange;
}

void ThreadRanks::cut(Rank rank) { cut_[static_cast<std::size_t>(rank.value)] = 1; }

void ThreadRanks::run(const std::function<void(Rank)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks_));
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([&body, &failures, rank] {
      try {
        body(Rank{rank});
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

std::vector<RankResult> run_on_threads(const ScheduledProgram& plan, const RunOptions& options,
                                       std::chrono::microseconds delay) {
  ThreadRanks ranks(plan.program.world_size, delay);
  std::vector<RankResult> results(static_cast<std::size_t>(plan.program.world_size));
  ranks.run([&](Rank rank) {
    cpu::CpuBackend backend(plan, ranks.ports(rank));
    results[static_cast<std::size_t>(rank.value)] = run(plan, rank, backend, options);
  });
  return results;
}

std::vector<RankResult> run_with_late_collectives(const ScheduledProgram& plan,
                                                  const RunOptions& options) {
  const auto world = static_cast<std::size_t>(plan.program.world_size);
  std::vector<Progress> progress(world);
  const auto of = [&](Rank rank) -> Progress& {
    return progress[static_cast<std::size_t>(rank.value)];
  };
  ThreadRanks ranks(plan.program.world_size);
  ranks.hold([&](Rank rank) { of(rank).await_end_of_ops(); });
  std::vector<RankResult> results(world);
  ranks.run([&](Rank rank) {
    cpu::Ports ports = ranks.ports(rank);
    ports.make_ops = [&](const ScheduledProgram& scheduled, Rank of_rank, DeviceMemory& memory) {
      auto ops = std::make_unique<SyntheticOps>(scheduled, of_rank, memory);
      return std::make_unique<ObservedOps>(std::move(ops), scheduled.program.ops.back().id,
                                           of(of_rank));
    };
    cpu::CpuBackend backend(plan, ports);
    results[static_cast<std::size_t>(rank.value)] = run(plan, rank, backend, options);
  });
  return results;
}

CheckResult sum_of_checks(const std::vector<RankResult>& results) {
  CheckResult sum;
  for (const RankResult& result : results) add(result.check, sum);
  return sum;
}

}  // namespace dovetail::exec::testing
