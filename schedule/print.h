// Programs, Schedules and ScheduledPrograms as text for people: one line per thing, aligned
// columns.
//
// Column widths follow the widest value; names beyond 32 characters lose their middle, and of long
// lists only the first names are shown ("+3": three more). The text is for reading and for golden
// files; program_json.h and plan_json.h keep everything.
//
//   program mlp  world 2
//     forward    fc1.forward          gemm 64x256x784  reads fc1.weight  writes fc1.out
//     backward   fc1.backward.weight  gemm 784x256x64  reads fc1.out     writes fc1.grad
//     optimizer  fc1.weight.update    memory 4.59 MiB  reads fc1.grad    writes fc1.weight
//   owes fc1.grad: average over dp
// An op, its work (GEMMs as m x n x k), what it reads and writes; then the debts.
//
//   schedule per-tensor
//     bucket 0  784 KiB  1 gradient  all-reduce over dp on comm0  view  launch when ready  wait ...
// Buckets in launch order; sizes before padding. Decisions about the whole step stand in the first
// line, why a bucket was closed at the end of its own.
//
//   commands of mlp  per-tensor
//   streams s0 compute  s1 comm0
//   ranks 0..1
//     c0  s0  run         fc1.forward
//     c4  s1  all-reduce  bucket 0  784 KiB over dp
// One list per role, in host issue order; sizes with padding: what the collective moves.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"

#include <ostream>

namespace dovetail::schedule {

void print_program(std::ostream& out, const Program& program);
// REQUIRES: the Schedule names only what the Program has.
void print_schedule(std::ostream& out, const Program& program, const Schedule& schedule);
void print_commands(std::ostream& out, const ScheduledProgram& scheduled);

}  // namespace dovetail::schedule
