// Happens-before, memory and reduction state of a ScheduledProgram.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "schedule/happens_before.h"
#include "schedule/progress.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

// One piece of memory: a tensor of its own, or (copy mode) a gradient's place inside a bucket's
// buffer.
struct Cell {
  TensorId tensor;
  bool in_bucket = false;  // the packed copy of the gradient, not the gradient itself
  friend auto operator<=>(const Cell&, const Cell&) = default;
};

struct CellHash {
  std::size_t operator()(const Cell& cell) const {
    return std::hash<std::int32_t>{}(cell.tensor.value * 2 + (cell.in_bucket ? 1 : 0));
  }
};

// The commands that touched a cell since its last write, that write included.
struct History {
  std::optional<std::size_t> last_write;
  std::vector<std::size_t> reads;
};

// How far a copy of an owed gradient has come.
enum class State { Unwritten, Partial, Reduced };

// Checks the commands of one role in host issue order.
class RoleVerifier {
 public:
  RoleVerifier(const ScheduledProgram& program, const RankProgram& role,
               std::vector<Problem>& problems)
      : program_(program), role_(role), problems_(problems), order_(program, role) {
    for (const OwedGradient& gradient : owed_gradients(program.program)) {
      owed_.emplace(gradient.tensor, gradient);
    }
    for (const Op& op : program.program.ops) ops_.emplace(op.id, &op);
    for (const BucketLayout& bucket : program.buckets) buckets_.emplace(bucket.bucket, &bucket);
  }

  void run() {
    if (!check_references()) return;  // the rest would look up what does not exist
    for (const HappensBefore::Unrecorded& wait : order_.unrecorded()) {
      add(ProblemKind::UnrecordedEvent, label(wait.command) + " waits for event e" +
                                            std::to_string(wait.event.value) +
                                            ", which no earlier command records");
    }
    check_op_order();
    for (std::size_t i = 0; i < role_.commands.size(); ++i) walk(i);
    for (const auto& [tensor, gradient] : owed_) {
      if (reductions_[tensor] == 0) {
        unreduced_.push_back(tensor);
      }
    }
    std::ranges::sort(unreduced_);
    for (const TensorId tensor : unreduced_) {
      add(ProblemKind::NotReduced, "gradient " + tensor_name(tensor) + " is never reduced over " +
                                       program_.program.group(owed_.at(tensor).group).name);
    }
  }

 private:
  void add(ProblemKind kind, std::string message) {
    problems_.push_back({kind, std::move(message)});
  }

  [[nodiscard]] const std::string& tensor_name(TensorId id) const {
    return program_.program.tensor(id).name;
  }

  // "op fc1.forward (c3)", "bucket 0: all-reduce (c15)"
  [[nodiscard]] std::string label(std::size_t index) const {
    const Command& command = role_.commands[index];
    const std::string place = " (c" + std::to_string(command.id.value) + ")";
    return visit(
               command.action, [&](const RunOp& run) { return "op " + ops_.at(run.op)->name; },
               [](const RunCollective& collective) {
                 return "bucket " + std::to_string(collective.bucket.value) + ": " +
                        std::string(to_string(collective.kind));
               },
               [](const Copy& copy) {
                 return "bucket " + std::to_string(copy.bucket.value) +
                        (copy.direction == CopyDirection::Pack ? ": pack" : ": unpack");
               },
               [](const RecordEvent& record) {
                 return "record of e" + std::to_string(record.event.value);
               },
               [](const WaitEvent& wait) {
                 return "wait for e" + std::to_string(wait.event.value);
               },
               [](const Scale& scale) {
                 return "bucket " + std::to_string(scale.bucket.value) + ": scale";
               }) +
           place;
  }

  bool check_references() {
    const std::size_t before = problems_.size();
    std::set<CommandId> ids;
    std::set<EventId> recorded;
    for (const Command& command : role_.commands) {
      const std::string at = "c" + std::to_string(command.id.value);
      const auto bad = [&](const std::string& what) { add(ProblemKind::BadReference, at + what); };
      if (!ids.insert(command.id).second) bad(": this command id is used twice");
      const auto streams = static_cast<std::int32_t>(program_.streams.size());
      if (command.stream.value < 0 || command.stream.value >= streams) bad(" names no stream");
      const auto check_bucket = [&](BucketId id) {
        if (!buckets_.contains(id)) bad(" names the unknown bucket " + std::to_string(id.value));
      };
      visit(
          command.action,
          [&](const RunOp& run) {
            if (!ops_.contains(run.op)) bad(" runs the unknown op " + std::to_string(run.op.value));
          },
          [&](const RunCollective& collective) { check_bucket(collective.bucket); },
          [&](const Copy& copy) {
            check_bucket(copy.bucket);
            for (const TensorId id : copy.gradients) {
              if (!is_member(copy.bucket, id)) {
                bad(" copies tensor " + std::to_string(id.value) + ", no member of bucket " +
                    std::to_string(copy.bucket.value));
              }
            }
          },
          [&](const RecordEvent& record) {
            if (!recorded.insert(record.event).second) {
              bad(" records e" + std::to_string(record.event.value) + " a second time");
            }
          },
          [](const WaitEvent&) {}, [&](const Scale& scale) { check_bucket(scale.bucket); });
    }
    return problems_.size() == before;
  }

  [[nodiscard]] bool is_member(BucketId bucket, TensorId tensor) const {
    const auto found = buckets_.find(bucket);
    return found != buckets_.end() &&
           std::ranges::count(found->second->members, tensor, &Placement::tensor) > 0;
  }

  void check_op_order() {
    std::vector<OpId> run;
    for (const Command& command : role_.commands) {
      if (const auto* op = std::get_if<RunOp>(&command.action)) run.push_back(op->op);
    }
    std::map<OpId, int> count;
    for (const OpId id : run) ++count[id];
    for (const Op& op : program_.program.ops) {
      if (count[op.id] != 1) {
        add(ProblemKind::OpOrder,
            "op " + op.name + " runs " + std::to_string(count[op.id]) + " times, not once");
      }
    }
  }

  // One access of command `index`; reports the pairs that nothing orders.
  void access(std::size_t index, Cell cell, bool write) {
    History& history = cells_[cell];
    const auto check = [&](std::size_t earlier, const char* what) {
      if (order_.before(earlier, index)) return;
      const bool collective = std::holds_alternative<RunCollective>(role_.commands[index].action);
      add(ProblemKind::Race,
          label(index) + " is not ordered after the " + what + " of " + tensor_name(cell.tensor) +
              (cell.in_bucket && !collective ? " in its bucket" : "") + " by " + label(earlier));
    };
    if (history.last_write) check(*history.last_write, "write");
    if (write) {
      for (const std::size_t read : history.reads) check(read, "read");
      history.reads.clear();
      history.last_write = index;
    } else {
      history.reads.push_back(index);
    }
  }

  void walk(std::size_t index) {
    visit(
        role_.commands[index].action, [&](const RunOp& run) { walk_op(index, *ops_.at(run.op)); },
        [&](const RunCollective& collective) { walk_collective(index, collective); },
        [&](const Copy& copy) { walk_copy(index, copy); }, [](const RecordEvent&) {},
        [](const WaitEvent&) {}, [](const Scale&) {});
  }

  void walk_op(std::size_t index, const Op& op) {
    done_ops_.insert(op.id);
    for (const TensorId id : op.reads) {
      access(index, {id}, false);
      const auto owed = owed_.find(id);
      if (owed == owed_.end() || op.id == owed->second.producer) continue;
      const bool after_producer = done_ops_.contains(owed->second.producer);
      if ((after_producer || op.phase == Phase::Optimizer) && states_[{id}] != State::Reduced) {
        add(ProblemKind::ReadBeforeReduced,
            label(index) + " reads " + tensor_name(id) + " before it holds the reduced value");
      }
    }
    for (const TensorId id : op.writes) {
      access(index, {id}, true);
      if (!owed_.contains(id)) continue;
      if (reductions_[id] > 0 && op.phase != Phase::Optimizer) {
        add(ProblemKind::ReducedTooEarly,
            label(index) + " writes " + tensor_name(id) + " after its reduction");
      }
      states_[{id}] = State::Partial;
    }
  }

  void walk_copy(std::size_t index, const Copy& copy) {
    const bool pack = copy.direction == CopyDirection::Pack;
    for (const TensorId id : copy.gradients) {
      const Cell gradient{id};
      const Cell packed{id, true};
      access(index, pack ? gradient : packed, false);
      access(index, pack ? packed : gradient, true);
      states_[pack ? packed : gradient] = states_[pack ? gradient : packed];
      if (pack && !done_ops_.contains(owed_.at(id).producer)) {
        add(ProblemKind::ReducedTooEarly,
            label(index) + " moves " + tensor_name(id) + " before its last write");
      }
    }
  }

  void walk_collective(std::size_t index, const RunCollective& collective) {
    const BucketLayout& bucket = *buckets_.at(collective.bucket);
    if (collective.kind != Collective::AllReduce) {
      add(ProblemKind::WrongReduction,
          label(index) + " leaves the bucket's gradients incomplete: they owe an all-reduce");
    }
    for (const Placement& member : bucket.members) {
      const TensorId id = member.tensor;
      const Cell cell{id, bucket.mode == BucketMode::Copy};
      access(index, cell, true);
      const auto owed = owed_.find(id);
      if (owed == owed_.end()) continue;
      if (owed->second.group != collective.group || owed->second.op != collective.reduce) {
        add(ProblemKind::WrongReduction,
            label(index) + " does not reduce " + tensor_name(id) +
                " as it owes: " + std::string(to_string(owed->second.op)) + " over " +
                program_.program.group(owed->second.group).name);
      }
      if (++reductions_[id] == 2) {
        add(ProblemKind::ReducedTwice,
            "gradient " + tensor_name(id) + " is reduced a second time by " + label(index));
      }
      if (!done_ops_.contains(owed->second.producer) || states_[cell] == State::Unwritten) {
        add(ProblemKind::ReducedTooEarly,
            label(index) + " runs before the last write of " + tensor_name(id));
      }
      states_[cell] = State::Reduced;
    }
  }

  const ScheduledProgram& program_;
  const RankProgram& role_;
  std::vector<Problem>& problems_;
  HappensBefore order_;
  std::unordered_map<TensorId, OwedGradient> owed_;
  std::unordered_map<OpId, const Op*> ops_;
  std::unordered_map<BucketId, const BucketLayout*> buckets_;
  std::unordered_map<Cell, History, CellHash> cells_;
  std::unordered_map<Cell, State, CellHash> states_;
  std::unordered_map<TensorId, int> reductions_;
  std::set<OpId> done_ops_;
  std::vector<TensorId> unreduced_;
};

void check_layouts(const ScheduledProgram& program, std::vector<Problem>& problems) {
  std::map<TensorId, BucketId> home;
  for (const BucketLayout& bucket : program.buckets) {
    const std::string at = "bucket " + std::to_string(bucket.bucket.value);
    const auto bad = [&](const std::string& message) {
      problems.push_back({ProblemKind::BadLayout, at + message});
    };
    std::vector<std::pair<Bytes, Bytes>> windows;
    for (const Placement& member : bucket.members) {
      const Tensor& tensor = program.program.tensor(member.tensor);
      if (!home.emplace(tensor.id, bucket.bucket).second) {
        problems.push_back(
            {ProblemKind::ReducedTwice, at + ": " + tensor.name + " already lies in bucket " +
                                            std::to_string(home.at(tensor.id).value)});
      }
      if (member.offset < Bytes(0) || member.offset + tensor.bytes() > bucket.size) {
        bad(": " + tensor.name + " lies outside the buffer");
      }
      if (tensor.dtype != bucket.dtype) bad(": " + tensor.name + " has another dtype");
      windows.emplace_back(member.offset, member.offset + tensor.bytes());
    }
    std::ranges::sort(windows);
    for (std::size_t i = 1; i < windows.size(); ++i) {
      if (windows[i].first < windows[i - 1].second) bad(": two members overlap");
    }
  }
}

}  // namespace

std::string_view to_string(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::BadReference:
      return "bad reference";
    case ProblemKind::OpOrder:
      return "op order";
    case ProblemKind::UnrecordedEvent:
      return "unrecorded event";
    case ProblemKind::Race:
      return "race";
    case ProblemKind::NotReduced:
      return "not reduced";
    case ProblemKind::ReducedTwice:
      return "reduced twice";
    case ProblemKind::ReducedTooEarly:
      return "reduced too early";
    case ProblemKind::ReadBeforeReduced:
      return "read before reduced";
    case ProblemKind::WrongReduction:
      return "wrong reduction";
    case ProblemKind::RankMismatch:
      return "rank mismatch";
    case ProblemKind::Deadlock:
      return "deadlock";
    case ProblemKind::BadLayout:
      return "bad layout";
  }
  return "?";
}

std::vector<Problem> verify(const ScheduledProgram& program) {
  std::vector<Problem> problems;
  check_layouts(program, problems);
  for (const RankProgram& role : program.roles) RoleVerifier(program, role, problems).run();
  if (problems.empty()) check_progress(program, problems);
  return problems;
}

}  // namespace dovetail::schedule
