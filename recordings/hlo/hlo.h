// HLO modules, as XLA dumps them after optimization: a compiled step of JAX as a Program.
//
//   XLA_FLAGS="--xla_dump_to=hlo --xla_dump_hlo_as_text" python train.py
//   hlo/module_0026.jit_step.cpu_after_optimizations.txt      (or jitted.lower(...).compile().as_text())
//
// Every instruction that computes becomes an op (recordings/hlo/work.h), in the order of the schedule where the module has
// one; loops of a known number of turns are rolled out, calls are opened. Collectives, with their asynchronous
// -start and -done forms, keep their bytes, groups and readers.
//
// A gradient's reduction is not marked in HLO. An all-reduce (sum) is taken for one where what follows it updates
// something of its size that the step was given: through no product and no further all-reduce of more than one element.
// It becomes a debt of the Program, so that a plan may group it otherwise; a combined one becomes a debt
// for each of its operands, named weights[0].grad where one argument weights[0] of the step is updated by it, also where XLA copied these into one array first. All other collectives stay where they are, as the step's own communication.
// Of a loop over layers (jax.lax.scan) each turn reduces its own: XLA combines nothing over turns, and a gradient is a slice of
// what is updated, so these stay the step's own too.
// What reads such a gradient is the optimizer; the rest is backward from the first instruction whose op_name has
// "transpose(" in it, and forward before that.
//
// The host is XLA's runtime, which starts each kernel from C++ (4.5 us, Op::issue), but for those that the module holds in
// computations command_buffer*: they start with their CUDA graph. Where a module is run with graphs and does not say it (XLA makes
// them later in newer versions) that is too much: `read` says so.
//
// A collective-permute has no word in a Program: it is priced as an all-to-all over the devices between which it sends, directly or through others, that
// moves as many bytes per device. Left out are infeed, outfeed, send and recv, and groups of one device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/text.h"
#include "schedule/program.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::imports {

// A collective of the module as it stands there, combined as XLA combined it.
struct HloCollective {
  std::string name;       // of the instruction; in a turn of a loop with #TURN
  std::string kind;       // all-reduce, all-gather, ..., without -start
  std::string type;       // element type of its first operand
  Bytes bytes;            // the whole message, as in schedule::CollectiveWork
  std::size_t parts = 1;  // operands that were combined
  std::vector<std::vector<std::int64_t>> groups;  // devices that it joins
  std::size_t line = 0;  // of the instruction: the same in all turns of a loop
  bool is_async = false;
  bool is_kernel_of_xla = false;  // in a fusion: no call of NCCL
  bool is_gradients = false;      // one of its operands is taken for a gradient
};

struct ImportedHlo {
  schedule::Program program;
  std::vector<HloCollective> collectives;  // in the order of the module
  std::string what;                        // where it comes from and what it could not know
  std::vector<std::string> read;           // what was found, one line each
  std::vector<std::string> left_out;       // what was not used and why, one line each
};

// Throws InputError with file and line: no HLO module, a loop that unrolls to more than a million
// instructions, replicas and partitions in one module.
ImportedHlo read_hlo(const Source& file);

}  // namespace dovetail::imports
