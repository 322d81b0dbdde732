// problems(): every reason why a Program is not sound, from a group without ranks to an op that reads what nobody
// has written yet. All are collected in one pass per subject, so that whoever wrote the file sees them at once.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "schedule/gradient.h"
#include "schedule/id_table.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

// Collects the complaints about one Program.
class Inspector {
 public:
  explicit Inspector(const Program& program) : program_(program) {}

  std::vector<std::string> inspect() {
    if (program_.world_size < 1) {
      add("world size is " + std::to_string(program_.world_size) + ", must be at least 1");
    }
    if (program_.micro_steps < 1) add("fewer than one micro-step");
    if (program_.stages < 1 || program_.world_size % std::max(program_.stages, 1) != 0) {
      add(std::to_string(program_.stages) + " pipeline stages do not divide a world of " +
          std::to_string(program_.world_size));
    }
    check_tensors();
    check_groups();
    check_ops();
    check_reductions();
    check_sums();
    return std::move(problems_);
  }

 private:
  void add(std::string problem) { problems_.push_back(std::move(problem)); }

  template <class Items>
  void check_unique(const Items& items, const std::string& what) {
    std::set<std::int32_t> ids;
    std::set<std::string> names;
    for (const auto& item : items) {
      if (!ids.insert(item.id.value).second) {
        add(what + " id " + std::to_string(item.id.value) + " is used twice");
      }
      if (!names.insert(item.name).second) {
        add(what + " name \"" + item.name + "\" is used twice");
      }
      if (item.id.value < 0 || item.id.value > kLargestId) {
        add(what + " id " + std::to_string(item.id.value) + " is outside 0.." +
            std::to_string(kLargestId));
      }
      if (item.name.empty()) add(what + " " + std::to_string(item.id.value) + " has no name");
    }
  }

  void check_tensors() {
    check_unique(program_.tensors, "tensor");
    for (const Tensor& tensor : program_.tensors) {
      tensors_[tensor.id] = &tensor;
      for (const std::int64_t extent : tensor.shape) {
        if (extent < 1) {
          add("tensor " + tensor.name + " has an extent of " + std::to_string(extent) +
              ", must be at least 1");
        }
      }
    }
  }

  void check_groups() {
    check_unique(program_.groups, "process group");
    for (const ProcessGroup& group : program_.groups) {
      groups_.insert(group.id);
      if (group.ranks.empty()) add("process group " + group.name + " has no ranks");
      for (const Rank rank : group.ranks) {
        if (rank.value < 0 || rank.value >= program_.world_size) {
          add("process group " + group.name + " names rank " + std::to_string(rank.value) +
              " in a world of " + std::to_string(program_.world_size));
        }
      }
      check_instances(group);
    }
  }

  void check_instances(const ProcessGroup& group) {
    const auto ranks = static_cast<std::int64_t>(group.ranks.size());
    if (group.instance_size < 0 || group.instance_size > ranks ||
        (group.instance_size > 0 && ranks % group.instance_size != 0)) {
      add("process group " + group.name + " has " + std::to_string(ranks) +
          " ranks, which instances of " + std::to_string(group.instance_size) + " do not divide");
      return;
    }
    for (std::size_t i = 1; i < group.ranks.size(); ++i) {
      const bool same_instance = static_cast<std::int64_t>(i) % group.size() != 0;
      if (same_instance && group.ranks[i] <= group.ranks[i - 1]) {
        add("ranks of process group " + group.name + " are not strictly rising");
        return;
      }
    }
    if (std::set<Rank>(group.ranks.begin(), group.ranks.end()).size() != group.ranks.size()) {
      add("process group " + group.name + " names a rank twice");
    }
  }

  // `written`: what ops before this one have written. A read of anything else of this step is out of order, or closes
  // a cycle.
  void check_ops() {
    check_unique(program_.ops, "op");
    std::unordered_map<TensorId, std::vector<std::size_t>> writers;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      for (const TensorId id : program_.ops[i].writes) writers[id].push_back(i);
    }
    std::set<TensorId> written;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      check_work(op);
      check_phase(op);
      check_operands(op);
      for (const TensorId id : op.reads) check_read(i, id, written, writers[id]);
      for (const TensorId id : op.writes) {
        if (!tensors_.contains(id)) add_unknown(op, id);
        written.insert(id);
        if (op.phase != Phase::Optimizer) written_in_[id].insert(op.micro_step);
      }
    }
  }

  // Forward, then backward, then the optimizer: each micro-step of a stage by itself, as these
  // alternate, but all of a rank's micro-steps before its optimizer.
  void check_phase(const Op& op) {
    const std::int32_t role = program_.role_of(op);
    Phase& step = step_phase_[{program_.stages > 1 ? op.stage : 0, op.micro_step}];
    Phase& rank = role_phase_[role];
    const Phase latest = rank == Phase::Optimizer ? rank : step;
    if (op.phase < latest) {
      add("op " + op.name + " (" + std::string(to_string(op.phase)) + ") stands after a " +
          std::string(to_string(latest)) + " op");
    }
    step = std::max(step, op.phase);
    rank = std::max(rank, op.phase);
  }

  // The effects whose operands have parts to play.
  void check_operands(const Op& op) {
    const std::string writes = " writes " + std::to_string(op.writes.size()) + " tensors, not one";
    if (std::holds_alternative<GlobalNorm>(op.effect) && op.writes.size() != 1) {
      add("norm " + op.name + writes);
    }
    if (!std::holds_alternative<Accumulate>(op.effect)) return;
    if (op.writes.size() != 1) return add("sum " + op.name + writes);
    const auto target = std::ranges::count(op.reads, op.writes.front());
    const auto others = static_cast<std::ptrdiff_t>(op.reads.size()) - target;
    if (others == 1) return;
    add("sum " + op.name + " reads " + std::to_string(others) +
        " tensors besides the one that it writes, not one");
  }

  void check_tied(const Op& op, const CollectiveWork& work) {
    const auto gradient = op.writes.size() == 1 ? tensors_.find(op.writes.front()) : tensors_.end();
    if (op.phase == Phase::Backward && work.kind == Collective::AllReduce &&
        work.op == ReduceOp::Sum && op.reads == op.writes && gradient != tensors_.end() &&
        is_gradient(gradient->second->kind)) {
      return;
    }
    add("op " + op.name +
        " sums tied weights, but is no all-reduce (sum) of one gradient in backward, in place");
  }

  void check_work(const Op& op) {
    const auto bad = [&](const std::string& what) { add("op " + op.name + " has " + what); };
    const auto check_gemm = [&](const GemmWork& work) {
      if (std::min({work.m, work.n, work.k, work.count}) < 1) bad("a GEMM with an extent below 1");
    };
    const auto check_memory = [&](const MemoryWork& work) {
      if (work.bytes < Bytes(0) || work.flop < Flop(0)) bad("negative work");
      const auto& attention = work.attention;
      if (attention && std::min(attention->tokens, attention->head_dim) < 1)
        bad("attention to no tokens");
    };
    std::visit(Visitor{check_gemm, check_memory,
                       [&](const KernelsWork& work) {
                         if (work.kernels.empty()) bad("no kernel");
                         for (const Kernel& kernel : work.kernels) {
                           std::visit(Visitor{check_gemm, check_memory}, kernel);
                         }
                       },
                       [&](const TimedWork& work) {
                         if (work.by_rank.empty()) bad("no measured time");
                         for (const Duration time : work.by_rank) {
                           if (time < Duration{}) bad("a negative measured time");
                         }
                         const auto known = static_cast<std::int64_t>(work.by_rank.size());
                         if (known > 1 && known != program_.world_size) {
                           bad("times for " + std::to_string(known) + " ranks in a world of " +
                               std::to_string(program_.world_size));
                         }
                       },
                       [&](const CollectiveWork& work) {
                         if (work.bytes < Bytes(0)) bad("a message of negative size");
                         if (!groups_.contains(work.group)) bad("an unknown process group");
                         if (work.purpose == Purpose::TiedWeights) check_tied(op, work);
                       }},
               op.work);
    if (op.stage < 0) bad("a negative stage");
    if (op.micro_step < 0 || op.micro_step >= program_.micro_steps) {
      bad("micro-step " + std::to_string(op.micro_step) + ", outside 0.." +
          std::to_string(program_.micro_steps - 1));
    }
  }

  void check_read(std::size_t index, TensorId id, const std::set<TensorId>& written,
                  const std::vector<std::size_t>& writers) {
    const Op& op = program_.ops[index];
    const auto tensor = tensors_.find(id);
    if (tensor == tensors_.end()) return add_unknown(op, id);
    const TensorKind kind = tensor->second->kind;
    const bool from_this_step = kind == TensorKind::Gradient || kind == TensorKind::Activation;
    if (!from_this_step || written.contains(id)) return;
    const std::string& name = tensor->second->name;
    if (writers.empty()) return add("op " + op.name + " reads " + name + ", which no op writes");
    const Op& writer = program_.ops[writers.front()];
    if (depends_on(writers.front(), index)) {
      add("cycle: " + op.name + " reads " + name + " from " + writer.name +
          ", which itself depends on " + op.name);
    } else {
      add("op " + op.name + " reads " + name + " before " + writer.name + " writes it");
    }
  }

  // Whether op `from` needs, through tensors written in this step, a result of op `target`.
  // Only asked where the order is wrong already, so it may look at all ops again and again.
  [[nodiscard]] bool depends_on(std::size_t from, std::size_t target) const {
    std::set<std::size_t> seen{from};
    std::vector<std::size_t> open{from};
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      if (at == target) return true;
      for (std::size_t i = 0; i < program_.ops.size(); ++i) {
        const auto feeds = [&](TensorId id) {
          return std::ranges::count(program_.ops[i].writes, id) > 0;
        };
        if (!seen.contains(i) && std::ranges::any_of(program_.ops[at].reads, feeds)) {
          seen.insert(i);
          open.push_back(i);
        }
      }
    }
    return false;
  }

  void check_reductions() {
    std::set<std::pair<TensorId, GroupId>> owed;
    for (const Reduction& reduction : program_.reductions) {
      const auto tensor = tensors_.find(reduction.gradient);
      if (tensor == tensors_.end()) {
        add("a reduction names the unknown tensor " + std::to_string(reduction.gradient.value));
        continue;
      }
      const std::string& name = tensor->second->name;
      if (tensor->second->kind != TensorKind::Gradient) {
        add("reduced tensor " + name + " is no gradient");
      }
      if (!groups_.contains(reduction.group)) {
        add("the reduction of " + name + " names an unknown process group");
      }
      if (!owed.emplace(reduction.gradient, reduction.group).second) {
        add("gradient " + name + " needs the same reduction twice");
      }
      check_producers(reduction.gradient, name);
    }
  }

  // Each micro-step owes its part.
  void check_producers(TensorId gradient, const std::string& name) {
    const std::size_t steps = written_in_[gradient].size();
    if (steps == 0) return add("gradient " + name + " is to be reduced but no op writes it");
    if (static_cast<std::int64_t>(steps) >= program_.micro_steps) return;
    add("gradient " + name + " is to be reduced but only " + std::to_string(steps) + " of " +
        std::to_string(program_.micro_steps) + " micro-steps write it");
  }

  void check_sums() {
    for (const Tensor& tensor : program_.tensors) {
      if (!tensor.merges) continue;
      if (tensor.kind != TensorKind::MergedGradient) {
        add("tensor " + tensor.name + " merges a gradient, but is no merged gradient");
      }
      if (!tensors_.contains(*tensor.merges)) {
        add("tensor " + tensor.name + " merges the unknown tensor " +
            std::to_string(tensor.merges->value));
      }
      if (written_in_[tensor.id].empty()) {
        add("merged gradient " + tensor.name + " is written by no op before the optimizer");
      }
    }
  }

  void add_unknown(const Op& op, TensorId id) {
    add("op " + op.name + " names the unknown tensor " + std::to_string(id.value));
  }

  const Program& program_;
  std::vector<std::string> problems_;
  std::map<TensorId, const Tensor*> tensors_;
  std::set<GroupId> groups_;
  std::map<TensorId, std::set<std::int32_t>> written_in_;  // before the optimizer: micro-steps
  std::map<std::pair<std::int32_t, std::int32_t>, Phase> step_phase_;  // (stage, micro-step)
  std::map<std::int32_t, Phase> role_phase_;
};

}  // namespace

std::vector<std::string> problems(const Program& program) { return Inspector(program).inspect(); }

}  // namespace dovetail::schedule
