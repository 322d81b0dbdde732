// The passes from Schedule to commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

constexpr std::size_t kEnd = std::numeric_limits<std::size_t>::max();

// Positions in program.ops where a bucket's commands stand.
struct Plan {
  std::size_t launch_after = 0;    // issue the collective after this op
  std::size_t wait_before = kEnd;  // wait before this op; kEnd: after the last one
};

class Lowering {
 public:
  Lowering(Program program, const Schedule& schedule)
      : program_(out_.program), schedule_(schedule) {
    out_.program = std::move(program);
    out_.policy = schedule.policy;
    owed_list_ = owed_gradients(program_);
    for (std::size_t i = 0; i < owed_list_.size(); ++i) {
      owed_[owed_list_[i].tensor] = static_cast<std::int32_t>(i);
    }
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].phase != Phase::Optimizer) backward_end_ = i;
    }
  }

  Lowered run() {
    name_streams();
    lay_out();
    place_launches();
    place_waits();
    emit();
    return {std::move(out_), std::move(report_)};
  }

 private:
  [[nodiscard]] std::string bucket_name(const Bucket& bucket) const {
    return "schedule " + schedule_.policy + ": bucket " + std::to_string(bucket.id.value);
  }

  void name_streams() {
    std::int32_t streams = 0;
    for (const Bucket& bucket : schedule_.buckets) {
      if (const auto* comm = std::get_if<CommStream>(&bucket.stream)) {
        if (comm->index < 0) throw InputError(bucket_name(bucket) + ": negative stream");
        streams = std::max(streams, comm->index + 1);
      }
    }
    out_.streams.push_back({kComputeStream, "compute"});
    for (std::int32_t i = 0; i < streams; ++i) {
      out_.streams.push_back({StreamId{i + 1}, "comm" + std::to_string(i)});
    }
  }

  static StreamId stream_of(const Bucket& bucket) {
    return visit(
        bucket.stream, [](const InlineStream&) { return kComputeStream; },
        [](const CommStream& comm) { return StreamId{comm.index + 1}; });
  }

  void lay_out() {
    Bytes payload_sum;
    Bytes padding;
    std::set<BucketId> ids;
    for (const Bucket& bucket : schedule_.buckets) {
      if (bucket.gradients.empty()) throw InputError(bucket_name(bucket) + ": has no gradients");
      if (!ids.insert(bucket.id).second) {
        throw InputError(bucket_name(bucket) + ": its id is used twice");
      }
      if (bucket.pad_to < Bytes(1)) throw InputError(bucket_name(bucket) + ": pad_to is below 1");
      BucketLayout layout;
      layout.bucket = bucket.id;
      layout.mode = bucket.mode;
      layout.dtype = program_.tensor(bucket.gradients.front().tensor).dtype;
      for (const Slice& slice : bucket.gradients) {
        const TensorId id = slice.tensor;
        const Tensor& tensor = program_.tensor(id);
        if (owed_.at(id) < 0) {
          throw InputError(bucket_name(bucket) + ": " + tensor.name + " owes no reduction");
        }
        if (tensor.dtype != layout.dtype) {
          throw InputError(bucket_name(bucket) + ": mixes dtypes: " + tensor.name);
        }
        const std::int64_t elements = slice.elements(tensor);
        layout.members.push_back({id, layout.payload, slice.first, slice.count});
        layout.payload += element_size(tensor.dtype) * elements;
      }
      const std::int64_t unit = bucket.pad_to.count();
      layout.size = Bytes((layout.payload.count() + unit - 1) / unit * unit);
      payload_sum += layout.payload;
      padding += layout.size - layout.payload;
      out_.buckets.push_back(std::move(layout));
    }
    report_.push_back("lay out: " + std::to_string(owed_list_.size()) + " gradients in " +
                      std::to_string(out_.buckets.size()) + " buckets, " +
                      dovetail::to_string(payload_sum) + ", padding " +
                      dovetail::to_string(padding));
  }

  void place_launches() {
    std::size_t previous = 0;
    std::size_t overlapped = 0;
    for (const Bucket& bucket : schedule_.buckets) {
      std::size_t ready = 0;
      for (const Slice& slice : bucket.gradients) {
        ready = std::max(ready, owed(slice.tensor).producer_index);
      }
      const std::size_t asked = visit(
          bucket.launch, [&](const LaunchWhenReady&) { return ready; },
          [&](const LaunchAfterOp& after) { return position(bucket, after.op); },
          [&](const LaunchAfterBackward&) { return backward_end_; },
          [&](const LaunchInBatch&) { return ready; });
      Plan plan;
      plan.launch_after = std::max({ready, asked, previous});
      previous = plan.launch_after;
      if (plan.launch_after < backward_end_) ++overlapped;
      plans_.push_back(plan);
    }
    report_.push_back("launch: " + std::to_string(overlapped) + " of " +
                      std::to_string(plans_.size()) + " collectives before backward ends");
  }

  // REQUIRES: the gradient owes a reduction (lay_out checked it).
  [[nodiscard]] const OwedGradient& owed(TensorId id) const {
    return owed_list_[static_cast<std::size_t>(owed_.at(id))];
  }

  [[nodiscard]] std::size_t position(const Bucket& bucket, OpId op) const {
    const auto found = std::ranges::find(program_.ops, op, &Op::id);
    if (found == program_.ops.end()) {
      throw InputError(bucket_name(bucket) + ": launch after unknown op " +
                       std::to_string(op.value));
    }
    return static_cast<std::size_t>(found - program_.ops.begin());
  }

  // The first op after the launch that reads one of the bucket's gradients.
  [[nodiscard]] std::size_t first_use(std::size_t index) const {
    std::size_t first = kEnd;
    for (const Slice& slice : schedule_.buckets[index].gradients) {
      for (std::int32_t k = first_reader_.at(slice.tensor); k >= 0;
           k = readers_[static_cast<std::size_t>(k)].next) {
        const std::size_t reader = readers_[static_cast<std::size_t>(k)].op;
        if (reader > plans_[index].launch_after) first = std::min(first, reader);
      }
    }
    return first;
  }

  void place_waits() {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      for (const TensorId id : program_.ops[i].reads) {
        if (owed_.at(id) < 0) continue;
        readers_.push_back({i, first_reader_.at(id)});
        first_reader_[id] = static_cast<std::int32_t>(readers_.size()) - 1;
      }
    }
    const std::size_t optimizer =
        backward_end_ + 1 < program_.ops.size() ? backward_end_ + 1 : kEnd;
    std::size_t at_first_use = 0;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      const std::size_t use = first_use(i);
      const bool first = schedule_.buckets[i].wait == WaitPoint::FirstUse;
      plans_[i].wait_before = first ? use : std::min(use, optimizer);
      if (first) ++at_first_use;
    }
    report_.push_back("wait: " + std::to_string(at_first_use) + " buckets at first use, " +
                      std::to_string(plans_.size() - at_first_use) + " at end of backward");
  }

  void emit() {
    RankProgram role;
    for (std::int32_t rank = 0; rank < program_.world_size; ++rank) {
      role.ranks.push_back(Rank{rank});
    }
    commands_ = &role.commands;
    std::multimap<std::size_t, std::size_t> launches;
    std::multimap<std::size_t, std::size_t> waits;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      launches.emplace(plans_[i].launch_after, i);
      waits.emplace(plans_[i].wait_before, i);
    }
    collect_packs();
    role.commands.reserve(program_.ops.size() + packs_.size() + 6 * plans_.size());
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      emit_waits(waits, i);
      add(kComputeStream, RunOp{program_.ops[i].id});
      emit_packs(i);
      const auto [from, to] = launches.equal_range(i);
      for (auto it = from; it != to; ++it) emit_launch(it->second);
    }
    emit_waits(waits, kEnd);
    report_.push_back("emit: " + std::to_string(role.commands.size()) + " commands on " +
                      std::to_string(out_.streams.size()) + " streams");
    out_.roles.push_back(std::move(role));
  }

  void add(StreamId stream, Action action) {
    const auto id = static_cast<std::int32_t>(commands_->size());
    commands_->push_back({CommandId{id}, stream, std::move(action)});
  }

  // The packs of all copy-mode gradients, by producer, then bucket.
  void collect_packs() {
    for (std::size_t i = 0; i < schedule_.buckets.size(); ++i) {
      if (schedule_.buckets[i].mode != BucketMode::Copy) continue;
      for (const Slice& slice : schedule_.buckets[i].gradients) {
        packs_.push_back({owed(slice.tensor).producer_index, i, slice.tensor});
      }
    }
    std::ranges::stable_sort(
        packs_, {}, [](const Pack& pack) { return std::pair(pack.producer, pack.bucket); });
  }

  // Those of one producer; called with rising op positions.
  void emit_packs(std::size_t op_index) {
    while (next_pack_ < packs_.size() && packs_[next_pack_].producer == op_index) {
      const std::size_t bucket = packs_[next_pack_].bucket;
      Copy copy{schedule_.buckets[bucket].id, CopyDirection::Pack, {}};
      while (next_pack_ < packs_.size() && packs_[next_pack_].producer == op_index &&
             packs_[next_pack_].bucket == bucket) {
        copy.gradients.push_back(packs_[next_pack_++].gradient);
      }
      add(kComputeStream, std::move(copy));
    }
  }

  void emit_launch(std::size_t index) {
    const Bucket& bucket = schedule_.buckets[index];
    const StreamId stream = stream_of(bucket);
    const ReduceOp reduce = owed(bucket.gradients.front().tensor).op;
    const RunCollective collective{bucket.id, bucket.collective, reduce, bucket.group};
    if (stream == kComputeStream) {
      add(stream, collective);
      return;
    }
    const EventId ready{next_event_++};
    const EventId done{next_event_++};
    add(kComputeStream, RecordEvent{ready});
    add(stream, WaitEvent{ready});
    add(stream, collective);
    add(stream, RecordEvent{done});
    done_[index] = done;
    last_done_[stream] = done;
  }

  void emit_waits(const std::multimap<std::size_t, std::size_t>& waits, std::size_t op_index) {
    // multimap keeps insertion order of equal keys, so buckets are waited for in launch order.
    const auto [from, to] = waits.equal_range(op_index);
    for (auto it = from; it != to; ++it) {
      const Bucket& bucket = schedule_.buckets[it->second];
      const StreamId stream = stream_of(bucket);
      if (stream != kComputeStream) {
        const bool whole = bucket.scope == WaitScope::WholeStream;
        const EventId event = whole ? last_done_.at(stream) : done_.at(it->second);
        // A stream that already waited for this event, or for a later one, need not wait again.
        if (waited_.insert(event).second) add(kComputeStream, WaitEvent{event});
      }
      if (bucket.mode == BucketMode::Copy) {
        Copy unpack{bucket.id, CopyDirection::Unpack, {}};
        for (const Slice& slice : bucket.gradients) unpack.gradients.push_back(slice.tensor);
        add(kComputeStream, std::move(unpack));
      }
    }
  }

  ScheduledProgram out_;
  const Program& program_;  // out_.program
  const Schedule& schedule_;
  std::vector<std::string> report_;
  std::vector<OwedGradient> owed_list_;
  IdTable<TensorId, std::int32_t> owed_{-1};  // index in owed_list_
  // The ops that read a gradient, as linked lists.
  struct Reader {
    std::size_t op = 0;
    std::int32_t next = -1;
  };
  std::vector<Reader> readers_;
  IdTable<TensorId, std::int32_t> first_reader_{-1};
  std::size_t backward_end_ = 0;  // position of the last op before the optimizer
  std::vector<Plan> plans_;       // parallel to schedule_.buckets
  struct Pack {
    std::size_t producer = 0;  // position in program.ops
    std::size_t bucket = 0;    // position in schedule.buckets
    TensorId gradient;
  };
  std::vector<Pack> packs_;
  std::size_t next_pack_ = 0;
  std::vector<Command>* commands_ = nullptr;
  std::int32_t next_event_ = 0;
  std::map<std::size_t, EventId> done_;
  std::map<StreamId, EventId> last_done_;
  std::set<EventId> waited_;
};

}  // namespace

Lowered lower(Program program, const Schedule& schedule) {
  return Lowering(std::move(program), schedule).run();
}

}  // namespace dovetail::schedule
