// Parts a norm's gradients by the roles that write them: the first role keeps the norm's op and tensor.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/norms.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schedule/gradient.h"
#include "schedule/id_table.h"
#include "schedule/lower/editor.h"
#include "schedule/lower/rewrite/shard_work.h"

namespace dovetail::schedule {
namespace {

class NormDivider {
 public:
  explicit NormDivider(Program program) : editor_(std::move(program)) {
    for (const Op& op : this->program().ops) {
      if (op.phase == Phase::Optimizer) continue;
      for (const TensorId id : op.writes) stage_of_[id] = op.stage;
    }
  }

  Program run() && {
    for (const Op& op : program().ops) {
      const bool is_norm = std::holds_alternative<GlobalNorm>(op.effect) && op.writes.size() == 1;
      if (is_norm) divide(op);
    }
    return std::move(editor_).commit();
  }

 private:
  // Of one role.
  struct StageNorm {
    Op norm;
    std::int64_t elements = 0;
  };
  using StageNorms = std::map<std::int32_t, StageNorm>;

  [[nodiscard]] const Program& program() const { return editor_.program(); }
  [[nodiscard]] std::int32_t role_of(std::int32_t stage) const {
    return role_of_stage(program().stage_map, program().stages, stage);
  }

  void divide(const Op& norm) {
    StageNorms parts;
    std::int64_t all = 0;
    for (const TensorId id : norm.reads) {
      const Tensor& tensor = program().tensor(id);
      if (!is_gradient(tensor.kind)) return;
      const std::int32_t stage = stage_of_.at(id);
      const auto [part, fresh] = parts.try_emplace(role_of(stage), StageNorm{.norm = norm});
      if (fresh) part->second.norm.reads.clear();
      if (fresh) part->second.norm.stage = stage;
      part->second.norm.reads.push_back(id);
      part->second.elements += tensor.numel();
      all += tensor.numel();
    }
    if (parts.size() < 2 || is_completed(norm)) return;
    for (auto& [role, part] : parts) {
      WorkSum work;
      if (!work.add(norm.work, {.part = part.elements, .whole = all})) return;
      part.norm.work = work.total();
    }
    write(norm, parts);
  }

  // Whether another op goes on with what the norm writes: each role would need one of its own.
  [[nodiscard]] bool is_completed(const Op& norm) const {
    return std::ranges::any_of(program().ops, [&](const Op& op) {
      return op.id != norm.id && std::ranges::count(op.writes, norm.writes.front()) > 0;
    });
  }

  void write(const Op& norm, StageNorms& parts) {
    const GroupId group = across(parts);
    const Bytes size = program().tensor(norm.writes.front()).bytes();
    std::vector<Op> behind;
    std::vector<Op> sums;
    for (auto& [role, part] : parts) {
      if (role == parts.begin()->first) {
        editor_.replace(part.norm);
      } else {
        make_own(role, part.norm);
        behind.push_back(part.norm);
        rename_readers(norm.writes.front(), role, part.norm.writes.front());
      }
      sums.push_back(completion(part.norm, group, size));
    }
    behind.insert(behind.end(), sums.begin(), sums.end());
    editor_.insert_after(norm.id, std::move(behind));
  }

  void make_own(std::int32_t role, Op& norm) {
    const std::string suffix = ".stage" + std::to_string(role);
    norm.id = editor_.new_op_id();
    norm.name += suffix;
    Tensor own = program().tensor(norm.writes.front());
    own.id = editor_.new_tensor_id();
    own.name += suffix;
    norm.writes = {own.id};
    editor_.add_tensor(std::move(own));
  }

  void rename_readers(TensorId norm, std::int32_t role, TensorId own) {
    for (const Op& op : program().ops) {
      if (role_of(op.stage) != role || std::ranges::count(op.reads, norm) == 0) continue;
      editor_.rename_use(op.id, norm, own);
    }
  }

  [[nodiscard]] Op completion(const Op& norm, GroupId group, Bytes size) {
    return {.id = editor_.new_op_id(),
            .name = norm.name + ".across-stages",
            .phase = Phase::Optimizer,
            .dtype = norm.dtype,
            .work = CollectiveWork{.kind = Collective::AllReduce,
                                   .group = group,
                                   .bytes = size,
                                   .op = ReduceOp::Sum,
                                   .purpose = Purpose::GlobalNorm},
            .reads = norm.writes,
            .writes = norm.writes,
            .stage = norm.stage};
  }

  // The ranks that hold the same place of each of these roles; made when first asked for.
  GroupId across(const StageNorms& parts) {
    std::vector<std::int32_t> roles;
    for (const auto& [role, part] : parts) roles.push_back(role);
    const auto known = groups_.find(roles);
    if (known != groups_.end()) return known->second;
    ProcessGroup group{.id = editor_.new_group_id(),
                       .name = groups_.empty() ? "pp" : "pp." + std::to_string(groups_.size()),
                       .ranks = {},
                       .instance_size = std::ssize(roles)};
    const std::int64_t ranks = program().world_size / program().stages;
    for (std::int64_t i = 0; i < ranks; ++i) {
      for (const std::int32_t role : roles) {
        group.ranks.push_back(Rank{static_cast<std::int32_t>(role * ranks + i)});
      }
    }
    groups_[roles] = group.id;
    editor_.add_group(std::move(group));
    return groups_[roles];
  }

  ProgramEditor editor_;
  IdTable<TensorId, std::int32_t> stage_of_{0};  // of what forward and backward write
  std::map<std::vector<std::int32_t>, GroupId> groups_;
};

}  // namespace

Program divide_norms(Program program) { return NormDivider(std::move(program)).run(); }

}  // namespace dovetail::schedule
