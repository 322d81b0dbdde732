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
    Mark{"HloModule ", "hlo"},
};

// Files of programs near by that no format reads, and what to give instead.
struct Unread {
  std::string_view word;
  const char* what;
};
constexpr std::array kUnread = {
    Unread{
        "[pytorch|profiler|execution_",
        "is PyTorch's execution trace, which has no times: give the profiler's trace of the same "
        "run (export_chrome_trace), dovetail diagnose TRACE; or join the two by chakra_trace_link "
        "and chakra_converter, dovetail import chakra STEP.et --ranks N"},
    Unread{"\"rocprofiler-sdk-tool\"",
           "is the JSON of rocprofiler-sdk (rocprofv3), which is not read: record with "
           "torch.profiler, whose trace has ROCm's kernels, dovetail diagnose TRACE"},
};

// The first bytes of a file, unpacked where it is gzip.
std::string head_of(const std::string& path) {
  ByteSource source = ByteSource::file(path, {});
  std::string head(kLookedAt, '\0');
  std::size_t held = 0;
  while (held < head.size()) {
    const std::size_t size = source.read(std::span(head).subspan(held));
    if (size == 0) break;
    held += size;
  }
  head.resize(held);
  return head;
}

}  // namespace

std::string guess_format(std::string_view text) {
  const std::string_view head = text.substr(0, kLookedAt);
  if (head.starts_with("SQLite format 3")) return "nsys";
  for (const Mark& mark : kMarks) {
    if (head.find(mark.word) != std::string_view::npos) return mark.format;
  }
  return "";
}

std::string guess_format_of_file(const std::string& path) { return guess_format(head_of(path)); }

std::string way_on(const std::string& path, std::string_view format) {
  const std::string head = head_of(path);
  const std::string other = guess_format(head);
  if (!other.empty()) {
    if (other == format) return "";
    const bool needs_ranks = other == "nsys" || other == "chakra";
    return path + " looks like " + other + ": dovetail import " + other + " " + path +
           (needs_ranks ? " --ranks N" : "");
  }
  for (const Unread& unread : kUnread) {
    if (head.find(unread.word) != std::string::npos) return path + " " + unread.what;
  }
  return "";
}

}  // namespace dovetail::imports
