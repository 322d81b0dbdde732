// The formats of other programs that `dovetail import` takes: a word each, and a row that says what the format is, what is made
// of it and how its files are known. Everybody who lists formats, offers one or asks what a file gives asks here.
//
//   for (const Format format : kAllOf<Format>) bind(to_string(format), row_of(format).what);
//   row_of(Format::Kineto).product == Product::Recording
//   import_command(Format::Chakra, "step.et") == "dovetail import chakra step.et --ranks N"
//
// Readers stand with whoever may know them: those of recordings in recordings/load/load_job.cc, all others in cli/import.cc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dovetail::imports {

// In the order in which the help lists them.
enum class Format : std::uint8_t {
  NcclTests,
  NcclInspector,
  FlightRecorder,
  NcclLog,
  HorovodTimeline,
  Chakra,
  Nsys,
  Hlo,
  Kineto
};
constexpr auto words_of(Format) {
  return words("nccl-tests", "nccl-inspector", "flight-recorder", "nccl-log", "horovod-timeline",
               "chakra", "nsys", "hlo", "kineto");
}
using dovetail::to_string;

// What is made of a file: times of collectives, a cluster file; a step, a workload file; or everything that a
// profiler recorded, which diagnose takes, too.
enum class Product : std::uint8_t { Cluster, Workload, Recording };

// Whether a file says over how many ranks its job ran. Where it does not, --ranks does.
enum class SaysRanks : std::uint8_t { Yes, Mostly, No };

struct FormatRow {
  Format format{};
  Product product{};                        // of dovetail import
  bool is_recording = false;                // dovetail diagnose takes it (load/load_job.h)
  std::string_view what{};                  // in one phrase
  std::array<std::string_view, 3> marks{};  // words that only its files have, "" where it has fewer
  std::string_view beginning{};             // of each of its files, and of no other; "": none
  SaysRanks says_ranks = SaysRanks::Yes;
  std::string_view examples{};  // how to make a file and to import it, lines of its help
};

// One of each format, in the order in which it is decided what a file is that has marks of several.
std::span<const FormatRow> formats();

const FormatRow& row_of(Format format);

// Whether dovetail diagnose takes it.
bool is_recording(Format format);

// What imports the file, with all that it needs besides: "dovetail import chakra step.et --ranks N". The second writes the
// product: "... -o step.json".
std::string import_command(Format format, const std::string& path);
std::string import_to_file(Format format, const std::string& path);

}  // namespace dovetail::imports
