// One pass a table and process: kernels, copies, calls, waits and ranges become events, and NCCL's ranges what the launches inside them
// communicate.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/nsys/reader.h"

#include "base/error.h"

#ifdef DOVETAIL_SQLITE

#include "recordings/names.h"
#include "recordings/nsys/database.h"
#include "recordings/nsys/payload.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr const char* kProcessOf = " / 16777216";  // 2^24, of globalPid and globalTid
constexpr std::int64_t kInProcess = 0xffffff;

constexpr const char* kGraphNodes = "--cuda-graph-trace=node";

// Where things stand in this file: tables under their names of this version, and columns that not all have.
struct Layout {
  std::string kernels, copies, sets, calls, waits, ranges, whole_graphs;
  bool has_processes = false;  // kernels and calls say theirs
  bool has_devices = false, has_streams = false;
  bool calls_have_names = false;
  bool ranges_have_threads = false, ranges_have_payload = false;
  std::string kernel_name = "shortName";
};

Layout layout_of(Database& database, const std::string& path) {
  const auto table = [&](const char* name) { return database.table_like(name); };
  Layout layout{.kernels = table("CUPTI_ACTIVITY_KIND_KERNEL"),
                .copies = table("CUPTI_ACTIVITY_KIND_MEMCPY"),
                .sets = table("CUPTI_ACTIVITY_KIND_MEMSET"),
                .calls = table("CUPTI_ACTIVITY_KIND_RUNTIME"),
                .waits = table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
                .ranges = table("NVTX_EVENTS"),
                .whole_graphs = table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")};
  if (layout.kernels.empty() && layout.calls.empty() && layout.ranges.empty()) {
    database.fail("no such table: CUPTI_ACTIVITY_KIND_KERNEL");
  }
  if (layout.kernels.empty() && !layout.whole_graphs.empty()) {
    throw InputError(path + ": it has CUDA graphs as a whole, and no kernel: record with " +
                     kGraphNodes);
  }
  if (layout.kernels.empty() || layout.calls.empty()) {
    throw InputError(path + ": it has no kernels and launches of CUDA: record with -t cuda,nvtx");
  }
  const auto has = [](const std::vector<std::string>& columns, const char* name) {
    return std::ranges::find(columns, name) != columns.end();
  };
  const std::vector<std::string> kernels = database.columns_of(layout.kernels);
  const std::vector<std::string> calls = database.columns_of(layout.calls);
  layout.has_processes = has(kernels, "globalPid") && has(calls, "globalTid");
  layout.has_devices = has(kernels, "deviceId");
  layout.has_streams = has(kernels, "streamId");
  layout.calls_have_names = has(calls, "nameId");
  if (has(kernels, "demangledName")) layout.kernel_name = "demangledName";
  if (!layout.ranges.empty()) {
    const std::vector<std::string> ranges = database.columns_of(layout.ranges);
    layout.ranges_have_threads = has(ranges, "globalTid");
    layout.ranges_have_payload = has(ranges, "binaryData");
  }
  return layout;
}

// A process on one of its devices: one rank.
struct Rank {
  std::optional<std::int64_t>
      process;  // with the host in its upper bits; none: the file does not tell
  std::int64_t device = 0;
  std::int64_t kernels = 0;
  bool has_other_devices = false;  // of its process

  [[nodiscard]] std::int64_t pid() const { return process.value_or(0) & kInProcess; }
};

std::vector<Rank> ranks_of(Database& database, const std::string& path, const Layout& layout) {
  constexpr std::size_t kMost = 4096;
  std::vector<Rank> ranks;
  const std::string process = layout.has_processes ? std::string("globalPid") + kProcessOf : "0";
  database.each("SELECT " + process + " AS p, " + (layout.has_devices ? "deviceId" : "0") +
                    " AS d, COUNT(*) FROM " + layout.kernels + " GROUP BY p, d ORDER BY d, p",
                [&](sqlite3_stmt* row) {
                  if (ranks.size() == kMost) database.fail("more than 4096 processes and devices");
                  Rank rank;
                  if (layout.has_processes) rank.process = sqlite3_column_int64(row, 0);
                  rank.device = sqlite3_column_int64(row, 1);
                  rank.kernels = sqlite3_column_int64(row, 2);
                  ranks.push_back(rank);
                });
  if (ranks.empty()) throw InputError(path + ": no kernel in it");
  for (Rank& rank : ranks) {
    rank.has_other_devices =
        std::ranges::count(ranks, rank.process, [](const Rank& one) { return one.process; }) > 1;
  }
  return ranks;
}

// "aten::add, seq = 3, op_id = 7" is aten::add; "cudaLaunchKernel_v7000" is cudaLaunchKernel.
std::string_view operator_of(std::string_view range) {
  for (const std::string_view part : {", seq = ", ", op_id = ", ", sizes = "}) {
    range = range.substr(0, range.find(part));
  }
  return range;
}
std::string_view call_of(std::string_view name) {
  const std::size_t version = name.rfind("_v");
  if (version == std::string_view::npos || version + 2 == name.size()) return name;
  const bool is_number = std::ranges::all_of(name.substr(version + 2),
                                             [](unsigned char c) { return std::isdigit(c) != 0; });
  return is_number ? name.substr(0, version) : name;
}

// What PyTorch's profiler calls an annotation is one here, too.
bool is_annotation(std::string_view range, std::string_view name) {
  if (range.find(", op_id = ") == std::string_view::npos) return true;
  constexpr std::array<std::string_view, 5> kTheirs = {"nccl:", "ProfilerStep#", "Optimizer.",
                                                       "FSDP::", "enumerate(DataLoader)"};
  return std::ranges::any_of(kTheirs,
                             [&](std::string_view front) { return name.starts_with(front); });
}

// As PyTorch's profiler names copies, by CUPTI's numbers of their kinds.
std::string copy_name(std::int64_t kind, std::int64_t from, std::int64_t to) {
  constexpr std::array<std::string_view, 11> kKinds = {
      "Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  constexpr std::array<std::string_view, 5> kMemory = {"Pageable", "Pinned", "Device", "Array",
                                                       "Managed"};
  const auto memory = [&](std::int64_t number) -> std::string_view {
    const bool is_known = number >= 0 && std::cmp_less(number, kMemory.size());
    return is_known ? kMemory[static_cast<std::size_t>(number)] : "Unknown";
  };
  const bool is_known = kind >= 0 && std::cmp_less(kind, kKinds.size());
  return "Memcpy " + std::string(kKinds[is_known ? static_cast<std::size_t>(kind) : 0]) + " (" +
         std::string(memory(from)) + " -> " + std::string(memory(to)) + ")";
}

class RankReader {
 public:
  RankReader(Database& database, const std::string& path, const Layout& layout,
             const PayloadSchemas& schemas, const Rank& rank)
      : database_(database), layout_(layout), schemas_(schemas), rank_(rank) {
    recording_.file = path;
    recording_.recorder = Recorder::Nsys;
    static_cast<void>(names_.number(""));  // of events without a name
  }

  Recording read() {
    read_kernels();
    if (!layout_.copies.empty()) read_copies();
    if (!layout_.sets.empty()) read_sets();
    if (!layout_.whole_graphs.empty()) read_whole_graphs();
    read_calls();
    if (!layout_.waits.empty()) read_waits();
    if (!layout_.ranges.empty()) read_ranges();
    recording_.names = names_.take();
    recording_.events_in_file = std::ssize(recording_.events);
    static_cast<void>(settle(recording_));
    require_one_recording(recording_);
    return std::move(recording_);
  }

 private:
  // "WHERE k.globalPid / 16777216 = 7 AND k.deviceId = 0", as far as the file tells it.
  [[nodiscard]] std::string only(const std::string& process, const std::string& device) const {
    std::string where = " WHERE 1";
    if (rank_.process && !process.empty()) {
      where += " AND " + process + kProcessOf + " = " + std::to_string(*rank_.process);
    }
    if (rank_.has_other_devices && !device.empty()) {
      where += " AND " + device + " = " + std::to_string(rank_.device);
    }
    return where;
  }

  // Rows of a table that are more than it has: an id stands twice in what is joined with it.
  void each_row(const std::string& table, const std::string& query,
                const std::function<void(sqlite3_stmt*)>& visit) {
    const std::size_t most = database_.rows_of(table);
    std::size_t seen = 0;
    database_.each(query, [&](sqlite3_stmt* row) {
      if (++seen > most) database_.fail("an id stands twice in StringIds");
      visit(row);
    });
  }

  // Its first three columns are start, end and correlationId.
  RecordedEvent event_at(sqlite3_stmt* row, EventKind kind, std::string_view name) {
    RecordedEvent event;
    event.kind = kind;
    event.start_ns = database_.time(row, 0);
    event.duration_ns = database_.time(row, 1) - event.start_ns;
    event.correlation = sqlite3_column_int64(row, 2);
    event.name = names_.number(name);
    if (event.duration_ns < 0) database_.fail("an event ends before it starts");
    return event;
  }

  std::int32_t thread_number(const std::string& thread) {
    const auto [known, is_new] =
        threads_.emplace(thread, static_cast<std::int32_t>(recording_.threads.size()));
    if (is_new) recording_.threads.push_back({std::to_string(rank_.pid()), thread});
    return known->second;
  }

  void add_gpu_work(RecordedEvent event, std::int64_t stream) {
    event.stream = static_cast<std::int32_t>(stream & 0x7fffffff);
    event.thread = thread_number("stream " + std::to_string(event.stream));
    recording_.events.push_back(event);
  }

  void read_kernels() {
    bool is_of_nccl = false;
    each_row(
        layout_.kernels,
        "SELECT k.start, k.end, k.correlationId, " +
            std::string(layout_.has_streams ? "k.streamId" : "0") + ", s.value, t.value FROM " +
            layout_.kernels + " AS k LEFT JOIN StringIds AS s ON s.id = k." + layout_.kernel_name +
            " LEFT JOIN StringIds AS t ON t.id = k.shortName" + only("k.globalPid", "k.deviceId"),
        [&](sqlite3_stmt* row) {
          const std::string full = text_at(row, 4);
          const std::string brief = text_at(row, 5);
          is_of_nccl = is_of_nccl || brief.find("nccl") != std::string::npos;
          // Streams are told apart in newer exports only; without them NCCL's kernels are on their own.
          const bool is_apart = !layout_.has_streams && brief.find("ccl") != std::string::npos;
          add_gpu_work(event_at(row, EventKind::Kernel, full.empty() ? brief : full),
                       is_apart ? 1 : sqlite3_column_int64(row, 3));
        });
    if (is_of_nccl) recording_.backend = "nccl";
  }

  void read_copies() {
    const std::vector<std::string> columns = database_.columns_of(layout_.copies);
    const auto or_null = [&](const std::string& name) {
      const bool has = std::ranges::find(columns, name) != columns.end();
      return ", " + (has ? name : "NULL");
    };
    each_row(layout_.copies,
             "SELECT start, end, correlationId" + or_null("streamId") + or_null("copyKind") +
                 or_null("srcKind") + or_null("dstKind") + or_null("bytes") + " FROM " +
                 layout_.copies + only("globalPid", "deviceId"),
             [&](sqlite3_stmt* row) {
               const std::string name =
                   copy_name(sqlite3_column_int64(row, 4), kind_at(row, 5), kind_at(row, 6));
               RecordedEvent event = event_at(row, EventKind::Memcpy, name);
               const std::int64_t bytes = sqlite3_column_int64(row, 7);
               event.bytes = bytes >= 0 && bytes <= (std::int64_t{1} << 50) ? bytes : -1;
               add_gpu_work(event, sqlite3_column_int64(row, 3));
             });
  }
  static std::int64_t kind_at(sqlite3_stmt* row, int column) {
    return sqlite3_column_type(row, column) == SQLITE_NULL ? -1 : sqlite3_column_int64(row, column);
  }

  void read_sets() {
    each_row(layout_.sets,
             "SELECT start, end, correlationId, streamId FROM " + layout_.sets +
                 only("globalPid", "deviceId"),
             [&](sqlite3_stmt* row) {
               add_gpu_work(event_at(row, EventKind::Memset, "Memset (Device)"),
                            sqlite3_column_int64(row, 3));
             });
  }

  // Executions of graphs that were recorded without their kernels: the GPU is busy, with what nobody knows.
  void read_whole_graphs() {
    std::int64_t graphs = 0;
    each_row(layout_.whole_graphs,
             "SELECT start, end, correlationId, streamId FROM " + layout_.whole_graphs +
                 only("globalPid", "deviceId"),
             [&](sqlite3_stmt* row) {
               add_gpu_work(event_at(row, EventKind::Kernel, "CUDA graph"),
                            sqlite3_column_int64(row, 3));
               ++graphs;
             });
    if (graphs == 0) return;
    recording_.problems.push_back(
        std::to_string(graphs) +
        " executions of CUDA graphs are in the report as a whole, without their kernels, and count "
        "as computation, collectives in them too: record with " +
        kGraphNodes);
  }

  void read_calls() {
    std::map<std::int64_t, int> seen;
    const std::string name = layout_.calls_have_names ? "s.value" : "'cudaLaunchKernel'";
    const std::string thread = layout_.has_processes ? "c.globalTid & 16777215" : "0";
    each_row(layout_.calls,
             "SELECT c.start, MAX(c.start, c.end), c.correlationId, " + name + ", " + thread +
                 " FROM " + layout_.calls + " AS c" +
                 (layout_.calls_have_names ? " LEFT JOIN StringIds AS s ON s.id = c.nameId" : "") +
                 only("c.globalTid", ""),
             [&](sqlite3_stmt* row) {
               RecordedEvent event =
                   event_at(row, EventKind::RuntimeCall, call_of(text_at(row, 3)));
               event.thread = thread_number(text_at(row, 4));
               if (!rank_.process && ++seen[event.correlation] > 1) {
                 database_.fail("a correlation id stands for several launches: export one process");
               }
               recording_.events.push_back(event);
             });
  }

  void read_waits() {
    constexpr std::array<std::string_view, 5> kNames = {
        "Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"};
    each_row(layout_.waits,
             "SELECT start, end, correlationId, syncType, streamId FROM " + layout_.waits +
                 only("globalPid", ""),
             [&](sqlite3_stmt* row) {
               const std::int64_t type = sqlite3_column_int64(row, 3);
               const bool is_known = type >= 0 && std::cmp_less(type, kNames.size());
               RecordedEvent event =
                   event_at(row, EventKind::Synchronisation,
                            kNames[is_known ? static_cast<std::size_t>(type) : 0]);
               event.stream = static_cast<std::int32_t>(sqlite3_column_int64(row, 4) & 0x7fffffff);
               event.thread = thread_number("waits");
               recording_.events.push_back(event);
             });
  }

  // Calls of NCCL on a thread since ncclGroupStart.
  struct Group {
    int depth = 0;
    std::vector<std::pair<std::string_view, NcclPayload>> calls;
  };

  // 59 is a range pushed and popped, 60 one started and ended; others are no ranges.
  void read_ranges() {
    const std::string thread = layout_.ranges_have_threads ? "e.globalTid & 16777215" : "0";
    each_row(layout_.ranges,
             "SELECT e.start, e.end, -1, COALESCE(e.text, s.value), " + thread + ", " +
                 (layout_.ranges_have_payload ? "e.binaryData" : "NULL") + " FROM " +
                 layout_.ranges + " AS e LEFT JOIN StringIds AS s ON s.id = e.textId" +
                 only(layout_.ranges_have_threads ? "e.globalTid" : "", "") +
                 " AND e.end > e.start AND e.eventType IN (59, 60) ORDER BY e.start",
             [&](sqlite3_stmt* row) { add_range(row); });
  }

  void add_range(sqlite3_stmt* row) {
    const std::string range = printable(text_at(row, 3));
    const std::string_view name = operator_of(range);
    RecordedEvent event = event_at(
        row, is_annotation(range, name) ? EventKind::Annotation : EventKind::Operator, name);
    event.thread = thread_number(text_at(row, 4));
    if (name.starts_with("nccl") && !name.starts_with("nccl:")) {
      const auto* const blob = static_cast<const char*>(sqlite3_column_blob(row, 5));
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, 5));
      take_nccl(event, name, schemas_.read(blob == nullptr ? "" : std::string_view(blob, size)));
    }
    recording_.events.push_back(event);
  }

  void take_nccl(RecordedEvent& event, std::string_view name, const NcclPayload& payload) {
    Group& group = groups_[event.thread];
    if (payload.rank && payload.ranks && *payload.rank < *payload.ranks) {
      if (payload.communicator) ranks_of_[*payload.communicator] = *payload.ranks;
      // The largest communicator is the job's.
      if (*payload.ranks > recording_.world_size.value_or(0)) {
        recording_.world_size = payload.ranks;
        recording_.rank = payload.rank;
      }
    }
    const std::string_view call = nccl_call(name);
    if (name == "ncclGroupStart") {
      if (group.depth++ == 0) group.calls.clear();
    } else if (name == "ncclGroupEnd" && group.depth > 0) {
      if (--group.depth == 0) describe(event, group.calls);
    } else if (!call.empty() && group.depth > 0) {
      group.calls.emplace_back(call, payload);
    } else if (!call.empty()) {
      describe(event, {{call, payload}});
    }
  }

  // One message, where all calls are of a kind; sends and receives are as long as what is sent.
  void describe(RecordedEvent& event,
                const std::vector<std::pair<std::string_view, NcclPayload>>& calls) {
    if (calls.empty()) return;
    const bool has_sends =
        std::ranges::any_of(calls, [](const auto& c) { return c.first == "send"; });
    const std::string_view kind = has_sends ? "send" : calls.front().first;
    CollectiveArgs args;
    std::optional<std::int64_t> bytes = 0;
    for (const auto& [call, payload] : calls) {
      if (call != kind && !(has_sends && call == "recv")) return;
      if (payload.communicator)
        args.group = "communicator " + std::to_string(*payload.communicator);
      if (call != kind) continue;
      const auto part = whole_of(call, payload);
      bytes = bytes && part ? std::optional(*bytes + *part) : std::nullopt;
      if (payload.communicator) {
        const auto known = ranks_of_.find(*payload.communicator);
        if (known != ranks_of_.end()) args.group_size = known->second;
      }
    }
    if (calls.size() == 1) {
      (kind == "send" ? args.destination : args.source) = calls.front().second.peer;
    }
    args.kind = kind;
    args.bytes = bytes;
    event.collective = static_cast<std::int32_t>(recording_.collectives.size());
    recording_.collectives.push_back(std::move(args));
  }

  // NCCL gives of an all-gather what one rank sends, of a reduce-scatter what one receives, of its own all-to-all what one sends to one.
  [[nodiscard]] std::optional<std::int64_t> whole_of(std::string_view call,
                                                     const NcclPayload& payload) const {
    if (call != "allgather" && call != "reducescatter" && call != "alltoall") return payload.bytes;
    if (!payload.communicator || !payload.bytes) return std::nullopt;
    const auto ranks = ranks_of_.find(*payload.communicator);
    if (ranks == ranks_of_.end() || *payload.bytes > (std::int64_t{1} << 50) / ranks->second) {
      return std::nullopt;
    }
    return *payload.bytes * ranks->second;
  }

  Database& database_;
  const Layout& layout_;
  const PayloadSchemas& schemas_;
  const Rank& rank_;
  Recording recording_;
  Names names_;
  std::map<std::string, std::int32_t> threads_;
  std::map<std::int32_t, Group> groups_;            // by thread
  std::map<std::uint64_t, std::int64_t> ranks_of_;  // by communicator
};

// Names of the GPUs by their number, and when the recording began since 1970.
void add_facts(Database& database, Recording& recording, std::int64_t device) {
  if (const std::string gpus = database.table_like("TARGET_INFO_GPU"); !gpus.empty()) {
    const std::vector<std::string> columns = database.columns_of(gpus);
    const auto has = [&](const char* name) {
      return std::ranges::find(columns, name) != columns.end();
    };
    database.each(std::string("SELECT name, ") + (has("smCount") ? "smCount" : "0") + " FROM " +
                      gpus + (has("id") ? " WHERE id = " + std::to_string(device) : "") +
                      " LIMIT 1",
                  [&](sqlite3_stmt* row) {
                    recording.devices[0] = {.name = printable(text_at(row, 0)),
                                            .sms = sqlite3_column_int64(row, 1)};
                  });
  }
  const std::string start = database.table_like("TARGET_INFO_SESSION_START_TIME");
  if (start.empty()) return;
  database.each("SELECT utcEpochNs FROM " + start + " LIMIT 1", [&](sqlite3_stmt* row) {
    const std::int64_t base = sqlite3_column_int64(row, 0);
    constexpr std::int64_t kMost = 4'000'000'000'000'000'000;  // to 2096
    if (base > 0 && base < kMost) recording.base_ns = base;
  });
}

std::vector<Recording> read_database(const std::string& path, Database& database) {
  const Layout layout = layout_of(database, path);
  const std::vector<Rank> ranks = ranks_of(database, path, layout);
  const PayloadSchemas schemas(database);
  std::vector<Recording> recordings;
  for (const Rank& rank : ranks) {
    std::string file = path;
    if (ranks.size() > 1) {
      file +=
          " (process " + std::to_string(rank.pid()) + ", GPU " + std::to_string(rank.device) + ")";
    }
    recordings.push_back(RankReader(database, file, layout, schemas, rank).read());
    recordings.back().process = rank.pid();
    recordings.back().report = path;
    add_facts(database, recordings.back(), rank.device);
  }
  return recordings;
}

}  // namespace

std::vector<Recording> read_nsys(const std::string& path, const NsysOptions& options) {
  Database database(path, options.effort);
  return read_database(path, database);
}

std::vector<Recording> read_nsys(const Source& file, const NsysOptions& options) {
  Database database(file, options.effort);
  return read_database(file.name, database);
}

}  // namespace dovetail::imports

#else  // a build without SQLite

namespace dovetail::imports {

std::vector<Recording> read_nsys(const std::string& path, const NsysOptions& options) {
  return read_nsys(Source{path, {}}, options);
}

std::vector<Recording> read_nsys(const Source& file, const NsysOptions& /*options*/) {
  throw InputError(file.name +
                   ": this build cannot read SQLite files; install libsqlite3-dev and build again");
}

}  // namespace dovetail::imports

#endif
