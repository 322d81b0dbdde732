// What the tool finds by itself: its data, its CUDA module, and how wide the terminal is.
//
//   DOVETAIL_DATA         folder with workloads/ and clusters/. Default: share/dovetail/models beside the folder, or the
//                         folder above it, of the executable or of the library that holds this code (an installed tool,
//                         Python module or libdovetail.so), else models/ of the source tree
//   DOVETAIL_CUDA_MODULE  the CUDA module. Default: beside the executable
//   COLUMNS               width of texts. Default: that of the terminal, else 80
//   NO_COLOR              set to anything: no colours on a terminal; so with TERM=dumb
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dovetail::cli {

std::string data_dir();

// "2026-11-25", and "2026-11-25T17:05:03Z".
std::string date_of_today();
std::string time_of_now();

// Throws InputError where DOVETAIL_DATA names no folder with workloads and clusters.
void check_environment();

// Path of the CUDA module that the environment names; "" if it names none.
std::string cuda_module();

// Those of COLUMNS, else of the terminal that standard output goes to, else 80; 40 at least.
std::size_t text_width();

// Whether lines may be coloured: on a terminal, unless the environment says no.
bool wants_colour();

// Columns for the drawn part of a timeline: beside the name of its stream it fits into a terminal.
std::int64_t timeline_columns();

}  // namespace dovetail::cli
