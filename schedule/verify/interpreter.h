// Plays the commands of one role on symbolic values, in host issue order.
//
// Host issue order is one of the orders in which the streams may run, and where two commands are not
// ordered by happens-before but touch the same memory, that is reported as a race; so what holds in
// this order holds in every order. Each cell of memory (memory.h) carries a Value (value.h):
//   - the producer of an owed gradient starts a value, Accumulate joins values, Scale and averages
//     multiply them, a collective adds its group, a copy copies, the sum of tied weights adds what the
//     other stages' gradients hold by then;
//   - every read in the optimizer phase asks for all micro-steps, all groups that are owed, and the
//     owed factor; a backward op that reads a gradient after its producer asks for the same within
//     its micro-step, unless it is linear (Accumulate);
//   - a parameter whose shard was updated is incomplete until its bucket is gathered and unpacked.
// Where the end of the step is not a state from which everything is whole (parameters gathered in
// the next forward, merged gradients that go on from zero), a second step is played after the first.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verify/happens_before.h"
#include "schedule/verify/index.h"
#include "schedule/verify/loss_factors.h"
#include "schedule/verify/memory.h"
#include "schedule/verify/races.h"
#include "schedule/verify/value.h"
#include "schedule/verify/verify.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace dovetail::schedule::verification {

class Interpreter {
 public:
  // `completions`: of one step of all roles (progress.h); empty where they cannot all complete, or where
  // there is one role. REQUIRES: check_references and check_layouts found nothing.
  Interpreter(const Index& index, const Memory& memory, const LossFactors& losses,
              const RankProgram& role, std::span<const Completion> completions,
              std::vector<Problem>& problems);

  // Plays a step.
  void run();
  // And the one after it, where the end of the first leaves anything open. REQUIRES: run() of all roles found
  // nothing: what one of them does wrong would be told again of the others.
  void run_second();

  // How a gradient stands when an op adds those that it is tied to: its ranks must find them alike.
  struct Tie {
    Rational factor;
    std::vector<std::int64_t> groups;  // over which it was reduced
    friend bool operator==(const Tie&, const Tie&) = default;
  };
  // By the op's group, after run().
  [[nodiscard]] const std::map<GroupId, Tie>& ties() const { return ties_; }

 private:
  struct Fault {
    ProblemKind kind = ProblemKind::ReadBeforeReduced;
    std::string text;  // follows "<op> reads <tensor>"
  };
  // A collective that sums where an average is owed, or averages where a sum is. Right if something
  // else applies the factor that then lacks; told if nothing does.
  struct OtherOp {
    std::string message;
    Rational lacks;
  };
  // Whether the reader is content with this rank's shard.
  enum class Extent { Whole, Shard };

  // interpreter.cc: the walk, and what must hold at its end.
  void set_initial_values();
  void walk_step();
  void walk();
  void begin_next_step();
  [[nodiscard]] bool needs_second_step() const;
  void check_end();
  [[nodiscard]] bool ends_reduced(const Debt& debt, std::int32_t piece);
  void add(ProblemKind kind, const std::string& message);
  [[nodiscard]] const Command& command(std::size_t index) const;
  [[nodiscard]] std::string label() const { return index_.label(command(now_)); }
  void touch(std::int32_t cell, Access access);
  void touch(Cells cells, Access access);
  Value& value(std::int32_t cell) { return values_[cell]; }

  // ops.cc: RunOp.
  void walk_op(const Op& op);
  void read_all(const Op& op);
  void read_packed(const Op& op, const std::vector<Place>& places);
  void read_shards(const Op& op, TensorId gradient);
  void write_all(const Op& op);
  void check_shards(const ShardUpdate& update, const Op& op);
  void write_shards(const ShardUpdate& update, const Op& op);
  void write_gradient(const Op& op, TensorId gradient, Rational factor);
  void write_other(const Op& op, TensorId tensor);
  void add_tied(const CollectiveWork& message, TensorId tensor);
  struct Pieces {
    TensorId tensor;
    Cells cells;
  };
  void accumulate(const Op& op, const Accumulate& sum);
  void accumulate_shards(const Op& op, const Accumulate& sum, std::optional<TensorId> other);
  void add_pieces(const Op& op, const Accumulate& sum, const Pieces& from, const Pieces& to);
  // Whether what it adds is followed in its target: such a sum may be formed before the reduction.
  [[nodiscard]] bool sums_gradients(const Op& op) const;
  Value sum(const Value& target, const Value& other, TensorId target_id, TensorId other_id);
  [[nodiscard]] bool is_partial(const Op& op, TensorId gradient) const;
  // Whether any piece of it was made of owed gradients.
  [[nodiscard]] bool holds_gradient(TensorId tensor) const;

  // reads.cc: what a reader may find.
  void check_read(const Op& op, Cells own, Cells cells, Extent extent);
  void check_owed_read(const Op& op, std::int32_t own, const Value& value, Extent extent);
  void check_backward_read(const Op& op, TensorId tensor, const Value& value);
  [[nodiscard]] std::optional<Fault> fault_of(const Value& value, Rational rescale, Extent extent,
                                              std::int32_t micro_steps);
  std::optional<Fault> wrong_scale(const Value& value, Rational rescale);

  // transfers.cc: the other commands.
  void walk_collective(const Communicate& collective);
  void reduce(const Communicate& collective, const BucketLayout& bucket, const Place& place);
  void reduce_cell(const Communicate& collective, std::int32_t own, Value& value);
  void note_reduction(const Communicate& collective, const Value& value);
  void gather(const Place& place);
  void walk_copy(const Copy& copy);
  void walk_scale(const Scale& scale);

  // gathers.cc: parameters that are there between a gather and its release only.
  void begin_gather(const BucketLayout& bucket);
  void check_gather_limit(const BucketLayout& bucket);
  void walk_release(const Release& release);
  void leave_shard(BucketId bucket);
  void check_released();
  // What the two commands that touch one cell unordered mean where parameters come and go.
  [[nodiscard]] std::optional<Fault> gather_fault(const Command& mine, const Command& earlier,
                                                  std::int32_t cell) const;
  [[nodiscard]] std::string not_gathered(TensorId parameter) const;

  [[nodiscard]] bool is_followed(TensorId tensor) const;

  const Index& index_;
  const Memory& memory_;
  const LossFactors& losses_;
  const RankProgram& role_;
  std::span<const Completion> completions_;
  std::vector<Problem>& problems_;
  HappensBefore order_;
  Races races_;
  Indexed<CellId, Value> values_;
  Contributions contributions_;
  Sets groups_;
  std::vector<SetId> owed_groups_;  // by debt
  Indexed<std::int32_t, SetId>
      reduced_over_;  // by debt: groups of all collectives that had part of it
  Indexed<std::int32_t, OtherOp> other_op_;  // by debt: the latest
  // A stay of a bucket's parameters: commands, counted through all steps.
  struct Stay {
    BucketId bucket;
    std::size_t gather = 0;
    std::optional<std::size_t> release = std::nullopt;
    Bytes bytes;
  };
  std::vector<Stay> stays_;
  std::map<GroupId, Tie> ties_;
  // What collectives took: piece (by own cell), contributions and group.
  std::set<std::tuple<std::int32_t, SetId, GroupId>> taken_;
  Indexed<CellId, char> read_by_optimizer_;  // by own cell of an owed gradient
  std::vector<Conflict> conflicts_;          // scratch
  std::size_t now_ = 0;                      // the command at hand, counted through all steps
  bool in_second_step_ = false;
  bool sums_onto_zero_ = false;
};

}  // namespace dovetail::schedule::verification
