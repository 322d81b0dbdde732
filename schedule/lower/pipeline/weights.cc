// Walks backward from its end and marks what something marked, or another stage, reads; again while gradients that
// several ops share bring more.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/weights.h"

#include <algorithm>

namespace dovetail::schedule {
namespace {

class WeightFinder {
 public:
  WeightFinder(const Program& program, const IdTable<TensorId, char>& shared)
      : program_(program), shared_(shared), is_weight_work_(program.ops.size(), 1) {}

  std::vector<char> run() && {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      is_weight_work_[i] = is_backward(program_.ops[i]) ? 1 : 0;
    }
    while (mark_needed() || mark_sharers()) {
    }
    return std::move(is_weight_work_);
  }

 private:
  // Of every micro-batch.
  static bool is_backward(const Op& op) { return op.phase == Phase::Backward && is_repeated(op); }

  // Whether some op turned out to be needed for a gradient of an input.
  bool mark_needed() {
    bool marked = false;
    IdTable<TensorId, std::int32_t> read_on(-1);  // the earliest stage that reads the value
    IdTable<TensorId, char> needed(0);            // by what is no weight work
    for (std::size_t i = program_.ops.size(); i-- > 0;) {
      const Op& op = program_.ops[i];
      if (!is_backward(op)) continue;
      const auto is_needed = [&](TensorId id) {
        const std::int32_t stage = read_on.at(id);
        return needed.at(id) != 0 || (stage >= 0 && stage != op.stage);
      };
      const auto is_for_weights = [&](TensorId id) {
        return shared_.at(id) != 0 || read_on.at(id) >= 0;
      };
      if (is_weight_work_[i] != 0 && (std::ranges::any_of(op.writes, is_needed) ||
                                      std::ranges::none_of(op.writes, is_for_weights))) {
        is_weight_work_[i] = 0;
        marked = true;
      }
      for (const TensorId id : op.reads) {
        if (read_on.at(id) < 0) read_on[id] = op.stage;
        if (is_weight_work_[i] == 0) needed[id] = 1;
      }
    }
    return marked;
  }

  // Whether weight work turned out to touch a gradient that needed ops write, or a parameter that they read.
  bool mark_sharers() {
    bool marked = false;
    IdTable<TensorId, char> early(0);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (!is_backward(program_.ops[i]) || is_weight_work_[i] != 0) continue;
      for (const TensorId id : program_.ops[i].writes) early[id] = shared_.at(id);
      for (const TensorId id : program_.ops[i].reads) {
        if (program_.tensor(id).kind == TensorKind::Parameter) early[id] = 1;
      }
    }
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      const auto is_early = [&](TensorId id) { return early.at(id) != 0; };
      if (is_weight_work_[i] == 0) continue;
      if (std::ranges::any_of(op.reads, is_early) || std::ranges::any_of(op.writes, is_early)) {
        is_weight_work_[i] = 0;
        marked = true;
      }
    }
    return marked;
  }

  const Program& program_;
  const IdTable<TensorId, char>& shared_;
  std::vector<char> is_weight_work_;
};

}  // namespace

std::vector<char> find_weight_work(const Program& program, const IdTable<TensorId, char>& shared) {
  return WeightFinder(program, shared).run();
}

}  // namespace dovetail::schedule
