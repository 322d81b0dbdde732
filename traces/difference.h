// What moved between two traces, whatever they are: two plans, two machines, before and after a change, two
// recordings of a profiler. A prediction beside the measurement of the same plan is compare.h's, command by
// command; here the two need not have a command in common.
//
//   change = second - first
//
// Each side gives its median step, on its slowest rank. The figures of a whole step first; then, where both say which
// stream computes, what the compute stream did (its lines sum to the step); then all that ran, by class, the largest
// change first:
//
//   what moved, largest first: 3 of 12
//                                                   times  first ms  second ms  change ms
//     all-reduce of 2 tensors from l2.grad on, 3 MiB   1, 0    30.000          -    -30.000
//     backward layer*.backward                         3, 3    30.000     40.000     10.000
//     all-reduce of l1.grad, 2 MiB                     1, 1    15.000     19.000      4.000
//
// Classes. Ops: the name with each number in it as *, and nothing behind a "<", so that the layers of a model and
// the variants of a kernel are one class each; ops of different phases never are. Collectives: those that carry the
// same tensors; where a trace does not know the tensors, the n-th of a kind and size. A bucket that the other side cuts
// in another way has no counterpart: it stands on one side only.
//
// What it does not say: causes. traces/critical_path.h says which of the work a simulated step waited for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/table.h"
#include "base/units.h"
#include "traces/compare.h"
#include "traces/perfetto_counters.h"
#include "traces/trace.h"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::traces {

// Time of one kind on both sides, and how often it ran there.
struct Moved {
  std::string what;
  SpanKind kind = SpanKind::Compute;
  std::int64_t first_count = 0;
  std::int64_t second_count = 0;
  Duration first{};
  Duration second{};
  [[nodiscard]] Duration change() const { return second - first; }
  friend bool operator==(const Moved&, const Moved&) = default;
};

struct Difference {
  Side first;
  Side second;
  std::vector<std::string> notes;  // "policy: exact first, torch-ddp second"
  std::vector<Moved> whole;  // step time, compute, communication, exposed communication, neither
  std::vector<Moved>
      activities;            // of the compute stream; empty where a side does not say which that is
  std::vector<Moved> moved;  // ops, copies and collectives, the largest change first
  friend bool operator==(const Difference&, const Difference&) = default;
};

// A trace and what hides communication in it: nobody says which stream of a profiler's trace computes.
struct Compared {
  const Trace& trace;
  ComputeWork compute = ComputeWork::FirstStream;
};

// REQUIRES: every step of each has a span.
Difference difference(const Compared& first, const Compared& second);

// The class of an op by its name: "layers.12.q_proj" to "layers.*.q_proj".
std::string op_class(std::string_view name);

// Aligned plain text, with the 20 largest changes.
void print(std::ostream& out, const Difference& difference);

// What moved, all of it: the rows that CSV has.
Table rows_of(const Difference& difference);

// All of it as JSON, schema "dovetail.difference/1".
std::string to_json(const Difference& difference);

}  // namespace dovetail::traces
