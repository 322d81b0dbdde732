// Words, kinds and lines of passes.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/passes.h"

#include "base/error.h"
#include "schedule/visit.h"

#include <variant>

namespace dovetail::models {

std::string_view to_string(PassKind kind) {
  switch (kind) {
    case PassKind::Accumulate:
      return "accumulate";
    case PassKind::ZeroFill:
      return "zero-fill";
    case PassKind::Update:
      return "update";
    case PassKind::ShardUpdate:
      return "shard-update";
    case PassKind::GlobalNorm:
      return "global-norm";
    case PassKind::Scale:
      return "scale";
  }
  DOVETAIL_CHECK(false) << "no such kind of pass";
  return "";
}

std::optional<PassKind> pass_of(const schedule::Op& op) {
  using Kind = std::optional<PassKind>;
  if (std::holds_alternative<schedule::TimedWork>(op.work) ||
      std::holds_alternative<schedule::CollectiveWork>(op.work)) {
    return std::nullopt;
  }
  return schedule::visit(
      op.effect, [](const schedule::Opaque&) { return Kind(); },
      [](const schedule::FillLossGradient&) { return Kind(); },
      [](const schedule::Accumulate&) { return Kind(PassKind::Accumulate); },
      [](const schedule::ZeroFill&) { return Kind(PassKind::ZeroFill); },
      [](const schedule::Update&) { return Kind(PassKind::Update); },
      [](const schedule::ShardUpdate&) { return Kind(PassKind::ShardUpdate); },
      [](const schedule::GlobalNorm&) { return Kind(PassKind::GlobalNorm); });
}

Duration PassModel::time(Bytes traffic) const {
  return fixed + from_us(ns_per_byte * static_cast<double>(traffic.count()) / 1e3);
}

}  // namespace dovetail::models
