// What the emulated libraries ask of the options (emulated.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/emulated.h"

#include <cstdint>
#include <optional>

namespace dovetail::emulated {

void strike();  // a fault hangs from now on
void count_communicator();
void count_registration(bool is_mapped);
void count_graph_launch();

enum class Counted { Operations, Registrations };
// Counts one more NCCL call of the device; the fault that strikes it, if one does.
std::optional<FaultKind> next_call(std::int32_t device, Counted counted);

std::uint64_t seed();
std::int32_t devices();
bool is_exclusive();
std::size_t memory_bytes();

// Forgets broken devices (memory.cc).
void mend_devices();

// Counts one more cudaStreamWaitEvent.
bool is_wait_dropped();

}  // namespace dovetail::emulated
