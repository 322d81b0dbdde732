// shard_norms: a global norm of gradients of which each rank holds a shard.
//
// The sum of squares is taken of the shards, and an all-reduce over the group that they are cut over
// completes it. Where the gradients are cut over several groups (those of experts and the dense ones), or
// some are whole, each kind has a norm of its own, and these are added:
//
//   norm                reads the gradients cut over dp    writes norm
//   norm.all-reduce     over dp
//   norm.edp            reads the gradients cut over edp   writes norm.edp
//   norm.edp.all-reduce over edp
//   norm.edp.add        norm := norm + norm.edp
//
// Refused, with the reason: a norm whose work cannot be divided, gradients that are scattered to one rank.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "schedule/id_table.h"
#include "schedule/lower/editor.h"
#include "schedule/lower/rewrite/rewritten.h"

namespace dovetail::schedule {

// `cut_over`: the group of each gradient's shards; -1: it is whole.
std::optional<Refusal> shard_norms(ProgramEditor& editor,
                                   const IdTable<TensorId, GroupId>& cut_over);

}  // namespace dovetail::schedule
