// Guesses the format of a file from its first bytes by words that only this format has; the order
// of the table decides where a file could be two things.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/guess.h"

#include "imports/byte_source.h"

#include <array>
#include <span>

namespace dovetail::imports {
namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 16;

struct Mark {
  std::string_view word;
  const char* format;
};

// In this order: a log of nccl-tests may hold NCCL's own lines, a Kineto trace may name anything.
constexpr std::array kMarks = {
    Mark{"NEGOTIATE_ALLREDUCE", "horovod-timeline"},
    Mark{"\"traceEvents\"", "kineto"},
    Mark{"\"coll_perf\"", "nccl-inspector"},
    Mark{"\"dump_stats\"", "nccl-inspector"},
    Mark{"\"pg_config\"", "flight-recorder"},
    Mark{"nThread ", "nccl-tests"},
    Mark{"algbw", "nccl-tests"},
    Mark{"\"alg_bw\"", "nccl-tests"},
    Mark{"NCCL INFO", "nccl-log"},
    Mark{"\"workload_graph\"", "chakra"},
};

}  // namespace

std::string guess_format(std::string_view text) {
  const std::string_view head = text.substr(0, kLookedAt);
  if (head.starts_with("SQLite format 3")) return "nsys";
  for (const Mark& mark : kMarks) {
    if (head.find(mark.word) != std::string_view::npos) return mark.format;
  }
  return "";
}

std::string guess_format_of_file(const std::string& path) {
  ByteSource source = ByteSource::file(path, {});
  std::string head(kLookedAt, '\0');
  std::size_t held = 0;
  while (held < head.size()) {
    const std::size_t size = source.read(std::span(head).subspan(held));
    if (size == 0) break;
    held += size;
  }
  return guess_format(std::string_view(head).substr(0, held));
}

}  // namespace dovetail::imports
