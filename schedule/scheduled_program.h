// A ScheduledProgram: the commands each rank enqueues, in host issue order. Both machines read
// nothing else.
//
// One RankProgram per role; all ranks of a role issue the same commands. Data-parallel training has
// one role. The host of a rank walks its list from top to bottom and puts each command on its
// stream; a stream executes its commands in order; only WaitEvent orders streams among each other.
// Collectives on one communication stream form one FIFO communicator.
//
//   c12  s0  run         fc2.backward.weight
//   c13  s0  pack        bucket 0  4 gradients  7.82 MiB
//   c14  s0  record      e3
//   c15  s1  wait        e3
//   c16  s1  all-reduce  bucket 0  7.82 MiB over dp
//   c17  s1  record      e4
//   c18  s0  run         fc1.backward.weight
//   c19  s0  wait        e4
//   c20  s0  unpack      bucket 0  4 gradients  7.82 MiB
//
// The Program is the one that the rewriting passes of lower left behind: with micro-steps unrolled,
// merged gradients, sharded updates, and the sends and receives of a pipeline. Ops whose work is a
// collective may run on a communication stream.
//
// Memory: each bucket is one buffer of `size` bytes. In view mode its members are windows of the
// buffer; in copy mode they have memory of their own and Copy commands move them in and out.
// Reading and writing of tensors follows from the Program: an op reads and writes what its Op says,
// a collective reads and writes its bucket's buffer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/rational.h"
#include "base/units.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::schedule {

inline constexpr StreamId kComputeStream{0};

// An op that computes.
struct RunOp {
  OpId op;
  friend bool operator==(const RunOp&, const RunOp&) = default;
};
// Whole: the bucket's buffer. Shard: the part of it that this rank holds after a reduce-scatter.
enum class Part { Whole, Shard };
// Something travels: a bucket, or what an op of the Program reads and writes whose work is a collective. Of a bucket:
// AllReduce of either part; ReduceScatter from Whole to Shard; AllGather from Shard to Whole.
struct Communicate {
  std::optional<BucketId> bucket = {};  // absent: of an op
  Collective kind = Collective::AllReduce;
  ReduceOp reduce = ReduceOp::Average;
  GroupId group;
  Part part = Part::Whole;      // of the bucket
  std::int32_t max_ctas = 0;    // as in Placement
  std::optional<OpId> op = {};  // absent: of a bucket
  std::int32_t root = 0;        // as in CollectiveWork
  friend bool operator==(const Communicate&, const Communicate&) = default;
};
enum class CopyDirection { Pack, Unpack };  // gradients -> bucket, bucket -> gradients
struct Copy {
  BucketId bucket;
  CopyDirection direction = CopyDirection::Pack;
  std::vector<TensorId> gradients;  // those moved by this command
  friend bool operator==(const Copy&, const Copy&) = default;
};
struct RecordEvent {
  EventId event;
  friend bool operator==(const RecordEvent&, const RecordEvent&) = default;
};
struct WaitEvent {
  EventId event;
  friend bool operator==(const WaitEvent&, const WaitEvent&) = default;
};
// Multiplies the bucket's buffer by a factor of an average (ScaleAt).
struct Scale {
  BucketId bucket;
  Rational factor;
  Part part = Part::Whole;
  friend bool operator==(const Scale&, const Scale&) = default;
};
// Frees what an all-gather brought: of the bucket the rank keeps its shard, and its members have no
// other memory until they are gathered again. Takes no time; only for buckets of Residence::Shard.
struct Release {
  BucketId bucket;
  friend bool operator==(const Release&, const Release&) = default;
};
using Action = std::variant<RunOp, Communicate, Copy, RecordEvent, WaitEvent, Scale, Release>;

struct Command {
  CommandId id;
  StreamId stream;
  Action action;
  // Of what communicates, filled by link_transfers (transfers.h): what travels, and the record on the
  // compute stream behind which the host enqueues it; absent where there is none, as for an inline
  // collective.
  std::optional<TransferId> transfer = std::nullopt;
  std::optional<CommandId> launch = std::nullopt;
  friend bool operator==(const Command&, const Command&) = default;
};

// The op that the command runs, computing or communicating.
std::optional<OpId> op_run_by(const Command& command);
// Its collective of a bucket; null: it is none.
const Communicate* bucket_collective(const Command& command);
// What runs the op: RunOp, or Communicate where its work is a collective.
Action action_of(const Op& op, std::int32_t max_ctas = 0);

struct Stream {
  StreamId id;
  std::string name;  // "compute", "comm0"
  friend bool operator==(const Stream&, const Stream&) = default;
};

// Where one gradient (or parameter), or a range of it, lies in its bucket. The offset is in bytes
// from the buffer's start.
struct BucketMember {
  TensorId tensor;
  Bytes offset;
  std::int64_t first = 0;  // element of the tensor
  std::int64_t count = 0;  // elements; 0: all from `first` on

  [[nodiscard]] std::int64_t elements(const Tensor& of) const {
    return count > 0 ? count : of.numel() - first;
  }
  friend bool operator==(const BucketMember&, const BucketMember&) = default;
};
// What a rank keeps of a bucket between its uses: all of it, or its shard. Of the latter the rest has
// memory from an AllGather to the next Release only.
enum class Residence { Whole, Shard };
struct BucketLayout {
  BucketId bucket;
  DType dtype = DType::F32;
  BucketMode mode = BucketMode::View;
  Bytes payload;  // sum of the members
  Bytes size;     // payload plus padding; what the collective moves
  std::vector<BucketMember> members;
  std::int64_t shards = 1;  // equal parts of `size`
  // Shard s belongs to the rank at index s of an instance of this group; absent where there is one shard.
  std::optional<GroupId> cut_over = std::nullopt;
  Residence residence = Residence::Whole;
  friend bool operator==(const BucketLayout&, const BucketLayout&) = default;
};

struct RankProgram {
  std::vector<Rank> ranks;  // the ranks that play this role
  std::vector<Command> commands;
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

// Something that travels once in a step: a bucket, a gather of parameters, a send and its receive, or
// a collective of the Program. The commands that meet in it, one of each role that takes part, name it.
// Roles that do the same over disjoint instances of a group have Transfers of their own.
struct Transfer {
  TransferId id;  // its position in ScheduledProgram::transfers
  Collective kind = Collective::AllReduce;
  ReduceOp reduce = ReduceOp::Sum;
  GroupId group;
  Bytes bytes = {};  // the whole message, with padding, as costs count it
  DType dtype = DType::F32;
  std::int32_t root = 0;           // index in the instance of the group
  std::int32_t max_ctas = 0;       // most thread blocks of a GPU; 0: its choice
  std::int64_t copies = 1;         // as in CollectiveWork
  std::optional<BucketId> bucket;  // whose buffer it works on; absent: tensors of an op
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

struct ScheduledProgram {
  Program program;
  std::string policy;
  std::vector<Stream> streams;        // streams[i].id == i
  std::vector<BucketLayout> buckets;  // in launch order
  std::vector<RankProgram> roles;
  GatherLimit gather_limit = {};
  std::vector<Transfer> transfers = {};  // in issue order, role by role
  // What the user's Program owes, with 1 / k where micro-steps are averaged; written by who holds that
  // Program beside the plan (exec/legal.h), never by lower. Empty: not known.
  std::vector<Reduction> owed = {};

  // REQUIRES: the bucket exists.
  [[nodiscard]] const BucketLayout& bucket(BucketId id) const;
  // What travels with a command. REQUIRES: link_transfers (transfers.h) gave it one.
  [[nodiscard]] const Transfer& transfer(const Command& command) const;
  friend bool operator==(const ScheduledProgram&, const ScheduledProgram&) = default;
};

}  // namespace dovetail::schedule
