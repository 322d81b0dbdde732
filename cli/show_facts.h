// What is known of one machine, one model, one policy, one trace: as text.
//
//   a100x8: 8 ranks, cuda
//     origin      github.com/stas00/ml-engineering ...
//     compute     f32 156 TFLOP/s, bf16 312 TFLOP/s, of which 50 % are reached; memory 2039 GB/s
//   collective  ranks  nodes  from      to      1 MiB us  25 MiB us  busbw GB/s
//   all-reduce      8      1  32 KiB    16 GiB     101.9      350.5       230.5
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "models/clusters/cluster.h"
#include "schedule/policies/policies.h"
#include "schedule/program.h"
#include "traces/trace.h"

namespace dovetail::cli {

// What of contention was measured by class: "; products x1.158, memory-bound ops x1.020, a collective x1.1 beside products, ...; one
// that begins beside a product waits up to 150 us". "" where nothing was.
std::string by_class(const models::Contention& contention);

void print_machine(std::ostream& out, const models::Cluster& cluster);

// A model by layers: parameters, bytes of gradients, work of forward and backward.
void print_model(std::ostream& out, const schedule::Program& program, const std::string& name);

void print_policy(std::ostream& out, const schedule::Policy& spec,
                  const schedule::PolicyHelp& help);

// Where a trace comes from, and its median step.
void print_trace(std::ostream& out, const traces::Trace& trace);

}  // namespace dovetail::cli
