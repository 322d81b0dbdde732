// Reads the traces of PyTorch's profiler (Kineto, "Chrome trace" JSON) and of JAX's, which has the same frame.
//
// Fields and oddities: docs/import.md; source of the format: pytorch/kineto,
// libkineto/src/output_json.cpp. Read are versions from 1.13 (a bare array of events, or an object with
// categories `async_cpu_to_gpu`) on, with CUDA and ROCm names. Times are exact: whole nanoseconds, from
// the decimal digits of the file.
//
// Kept are complete events (ph X) of operators, runtime calls, GPU work, synchronisation and user
// annotations; Python functions, flows, markers and metadata are counted. An event without a finite
// time, and one that stands twice, is left out and counted. Numbers may stand in quotes, as Ascend's
// profiler and tools that rewrite traces put them. A file that is cut off gives the events up
// to there, and `problems` says so.
//
// JAX's profiler (xprof, *.trace.json.gz) is read, too, one device at a time: kernels and copies are what the lines "Stream #N" of a
// process "/device:GPU:N" hold, launches the calls of CUDA on the host, joined by correlation_id; steps are the line "Steps", without
// it the executions of the module that takes most time. It has no operators, and no sizes of collectives.
//
// Cost: about 2.5 ns a byte, unpacking included.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/byte_source.h"
#include "recordings/recording.h"

#include <cstddef>
#include <string>

namespace dovetail::imports {

// Throws InputError: unreadable, not JSON, no list of events in it, or the list of PyTorch's profiler before
// Kineto, which has no kernels.
// `device`: which of the device_lines, of a trace that has several.
Recording read_kineto(const std::string& path, const ByteLimits& limits, std::size_t device = 0);
Recording read_kineto(ByteSource source);

}  // namespace dovetail::imports
