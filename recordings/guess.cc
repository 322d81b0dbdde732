// Guesses the format of a file from its first bytes by words that only this format has.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/guess.h"

#include "base/attempt.h"
#include "recordings/byte_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace dovetail::imports {
namespace {

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
    Unread{"Job summary\n===",
           "is the report of ncclras, the state of a running job without times: give a profiler's "
           "trace, dovetail diagnose TRACE, or NCCL's log (NCCL_DEBUG=INFO), dovetail import "
           "nccl-log LOG"},
    Unread{"# OSU MPI",
           "is the output of OSU's micro-benchmarks, which measure MPI: run nccl-tests on the same "
           "ranks, dovetail import nccl-tests LOG"},
    Unread{"\"rocprofiler-sdk-tool\"",
           "is the JSON of rocprofiler-sdk (rocprofv3), which is not read: record with "
           "torch.profiler, whose trace has ROCm's kernels, dovetail diagnose TRACE"},
};

// Files of this tool, by the beginning of their "schema".
struct OwnKind {
  std::string_view schema;
  FileKind kind;
  std::string_view way;  // with the path behind it
};
constexpr std::array kOwn = {
    OwnKind{"dovetail.plan/", FileKind::Plan, "dovetail predict "},
    OwnKind{"dovetail.profile/", FileKind::Workload, "dovetail explore --workload "},
    OwnKind{"dovetail.program/", FileKind::Workload, "dovetail explore --workload "},
    OwnKind{"dovetail.cluster/", FileKind::Cluster, "name it with --cluster; dovetail show "},
    OwnKind{"dovetail.costs/", FileKind::Costs, "dovetail predict PLAN --cluster "},
    OwnKind{"dovetail.trace/", FileKind::Trace, "dovetail compare PREDICTED "},
    OwnKind{"dovetail.", FileKind::Report,
            "scripts read it, no command does; give what it was made of, not "},
};

const OwnKind* own_kind(std::string_view head) {
  constexpr std::size_t kBeginning = 2048;
  head = head.substr(0, kBeginning);
  const std::size_t key = head.find("\"schema\"");
  if (key == std::string_view::npos) return nullptr;
  const std::size_t open = head.find('"', key + std::string_view("\"schema\"").size());
  if (open == std::string_view::npos) return nullptr;
  const auto* const found = std::ranges::find_if(
      kOwn, [&](const OwnKind& kind) { return head.substr(open + 1).starts_with(kind.schema); });
  return found == kOwn.end() ? nullptr : found;
}

// A measured workload has times of collectives, and so have costs.
bool serves(FileKind kind, FileKind expected) {
  return kind == expected ||
         (expected == FileKind::Cluster && (kind == FileKind::Workload || kind == FileKind::Costs));
}

// "" where it cannot be read, which its reader will say.
std::string head_if_readable(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return "";
  return attempt([&] { return head_of(path); }).value.value_or("");
}

// The way from a file of another program to where a plan or a trace is expected.
std::string way_from(Format format, const std::string& path, FileKind expected) {
  if (is_recording(format)) {
    return "a profiler's trace: dovetail diagnose " + path + ", or " +
           import_to_file(format, path) + " and dovetail plan --workload step.json";
  }
  const bool is_half = expected == FileKind::Trace && row_of(format).product == Product::Cluster;
  return "what dovetail import reads: " + import_to_file(format, path) +
         (is_half ? " and compare two of these" : "");
}

// Its own report, by the file's name (the format is not public), or its exports as JSON lines, HDF5 and Arrow.
bool is_report_of_nsys(const std::string& path, std::string_view head) {
  const std::string ending = std::filesystem::path(path).extension().string();
  const bool is_its = ending == ".nsys-rep" || ending == ".qdrep" || ending == ".qdstrm";
  const bool is_json = head.find("\"CudaEvent\":{") != std::string_view::npos ||
                       head.find("\"TraceProcessEvent\":{") != std::string_view::npos;
  const bool is_hdf5 = head.starts_with("\x89HDF\r\n") && ending == ".h5";
  return is_its || is_json || is_hdf5;
}

}  // namespace

std::optional<Format> guess_format(std::string_view text) {
  const std::string_view head = text.substr(0, kHeadOfFile);
  const auto has = [head](std::string_view mark) {
    return !mark.empty() && head.find(mark) != std::string_view::npos;
  };
  for (const FormatRow& row : formats()) {
    const bool begins = !row.beginning.empty() && head.starts_with(row.beginning);
    if (begins || std::ranges::any_of(row.marks, has)) return row.format;
  }
  return std::nullopt;
}

std::optional<Format> guess_format_of_file(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return std::nullopt;
  return guess_format(head_of(path));
}

bool is_cluster_file(const std::string& path) {
  const std::string head = head_if_readable(path);
  const OwnKind* const own = own_kind(head);
  return own != nullptr && own->kind == FileKind::Cluster;
}

std::string wrong_kind(const std::string& path, FileKind expected) {
  const std::string head = head_if_readable(path);
  if (head.empty()) return "";
  const std::string is_no = ", not " + std::string(to_string(expected)) + ": ";
  if (const OwnKind* const own = own_kind(head)) {
    if (serves(own->kind, expected)) return "";
    return path + ": " + std::string(to_string(own->kind)) + is_no + std::string(own->way) + path;
  }
  const std::optional<Format> format = guess_format(head);
  const bool is_asked_later = expected != FileKind::Plan && expected != FileKind::Trace;
  if (!format || is_asked_later || (expected == FileKind::Trace && is_recording(*format)))
    return "";
  return path + ": no " + std::string(to_string(expected)).substr(2) + ", but " +
         way_from(*format, path, expected);
}

std::string way_on(const std::string& path, Format format) {
  const std::string head = head_of(path);
  if (const std::optional<Format> other = guess_format(head)) {
    if (*other == format || (is_recording(*other) && is_recording(format))) return "";
    return path + " looks like " + std::string(to_string(*other)) + ": " +
           import_command(*other, path);
  }
  if (is_report_of_nsys(path, head)) {
    const std::string sqlite = std::filesystem::path(path).stem().string() + ".sqlite";
    return path +
           " is of Nsight Systems, of which the SQLite export is read: nsys export --type=sqlite "
           "--include-blobs=true -o " +
           sqlite + " REPORT.nsys-rep, then dovetail diagnose " + sqlite;
  }
  for (const Unread& unread : kUnread) {
    if (head.find(unread.word) != std::string::npos) return path + " " + unread.what;
  }
  return "";
}

}  // namespace dovetail::imports
