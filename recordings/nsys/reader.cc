// One pass a table: kernels, copies, calls, waits and ranges become events, and NCCL's ranges what the launches inside them
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
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
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
  bool has_devices = false;
  bool calls_have_names = false;
  bool ranges_have_threads = false, ranges_have_payload = false;
  std::string kernel_name = "shortName";
};

bool has(const std::vector<std::string>& columns, const std::string& name) {
  return std::ranges::find(columns, name) != columns.end();
}

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
  const std::vector<std::string> kernels = database.columns_of(layout.kernels);
  const std::vector<std::string> calls = database.columns_of(layout.calls);
  layout.has_processes = has(kernels, "globalPid") && has(calls, "globalTid");
  layout.has_devices = has(kernels, "deviceId");
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
  bool has_other_devices = false;  // of its process

  [[nodiscard]] std::int64_t pid() const { return process.value_or(0) & kInProcess; }
};

std::vector<Rank> ranks_of(Database& database, const std::string& path, const Layout& layout) {
  constexpr std::size_t kMost = 4096;
  std::vector<Rank> ranks;
  const std::string process = layout.has_processes ? std::string("globalPid") + kProcessOf : "0";
  database.each("SELECT " + process + " AS p, " + (layout.has_devices ? "deviceId" : "0") +
                    " AS d FROM " + layout.kernels + " GROUP BY p, d ORDER BY d, p",
                [&](sqlite3_stmt* row) {
                  if (ranks.size() == kMost) database.fail("more than 4096 processes and devices");
                  Rank rank;
                  if (layout.has_processes) rank.process = sqlite3_column_int64(row, 0);
                  rank.device = sqlite3_column_int64(row, 1);
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

// What PyTorch's profiler calls annotations, though emit_nvtx gives them an id of an operator.
constexpr std::uint64_t kAnnotations = bit(Is::LibraryRange) | bit(Is::ProfilerStep) |
                                       bit(Is::OptimizerStep) | bit(Is::ZeroGrad) | bit(Is::Fsdp) |
                                       bit(Is::DataLoading);

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

// What a row becomes, of one rank. The first five columns of a row are start, end, correlationId, process and device.
class RankReader {
 public:
  RankReader(Database& database, std::string file, const PayloadSchemas& schemas, const Rank& rank)
      : database_(database), schemas_(schemas), rank_(rank) {
    recording_.file = std::move(file);
    recording_.recorder = Recorder::Nsys;
    static_cast<void>(names_.number(""));  // of events without a name
  }

  // Whether a row is of this rank; what does not tell its process or device is of all.
  [[nodiscard]] bool owns(sqlite3_stmt* row) const {
    const auto is = [row](int column, std::int64_t wanted) {
      return sqlite3_column_type(row, column) == SQLITE_NULL ||
             sqlite3_column_int64(row, column) == wanted;
    };
    return (!rank_.process || is(3, *rank_.process)) &&
           (!rank_.has_other_devices || is(4, rank_.device));
  }

  Recording end() {
    if (graphs_ > 0) {
      recording_.problems.push_back(
          std::to_string(graphs_) +
          " executions of CUDA graphs are in the report as a whole, without their kernels, and "
          "count as computation, collectives in them too: record with " +
          kGraphNodes);
    }
    recording_.names = names_.take();
    recording_.events_in_file = std::ssize(recording_.events);
    static_cast<void>(settle(recording_));
    require_one_recording(recording_);
    recording_.process = rank_.pid();
    return std::move(recording_);
  }

  // Stream, full and short name.
  void add_kernel(sqlite3_stmt* row) {
    const std::string full = text_at(row, 6);
    const std::string brief = text_at(row, 7);
    if (brief.find("nccl") != std::string::npos) recording_.backend = "nccl";
    // Streams are told apart in newer exports only; without them NCCL's kernels are on their own.
    const bool is_apart =
        sqlite3_column_type(row, 5) == SQLITE_NULL && brief.find("ccl") != std::string::npos;
    add_gpu_work(event_at(row, EventKind::Kernel, full.empty() ? brief : full),
                 is_apart ? 1 : sqlite3_column_int64(row, 5));
  }

  // Stream, kind, from, to, bytes.
  void add_copy(sqlite3_stmt* row) {
    const auto kind = [row](int column) {
      const bool is_told = sqlite3_column_type(row, column) != SQLITE_NULL;
      return is_told ? sqlite3_column_int64(row, column) : -1;
    };
    RecordedEvent event = event_at(row, EventKind::Memcpy, copy_name(kind(6), kind(7), kind(8)));
    const std::int64_t bytes = kind(9);
    event.bytes = bytes <= (std::int64_t{1} << 50) ? std::max<std::int64_t>(bytes, -1) : -1;
    add_gpu_work(event, sqlite3_column_int64(row, 5));
  }

  void add_set(sqlite3_stmt* row) {
    add_gpu_work(event_at(row, EventKind::Memset, "Memset (Device)"), sqlite3_column_int64(row, 5));
  }

  // An execution of a graph that was recorded without its kernels: the GPU is busy, with what nobody knows.
  void add_whole_graph(sqlite3_stmt* row) {
    add_gpu_work(event_at(row, EventKind::Kernel, "CUDA graph"), sqlite3_column_int64(row, 5));
    ++graphs_;
  }

  // Name, thread.
  void add_call(sqlite3_stmt* row) {
    const std::string name = text_at(row, 5);
    RecordedEvent event =
        event_at(row, EventKind::RuntimeCall, name.empty() ? "cudaLaunchKernel" : call_of(name));
    event.thread = thread_number(text_at(row, 6));
    if (!rank_.process && !launches_.insert(event.correlation).second) {
      database_.fail("a correlation id stands for several launches: export one process");
    }
    recording_.events.push_back(event);
  }

  // Kind, stream.
  void add_wait(sqlite3_stmt* row) {
    constexpr std::array<std::string_view, 5> kNames = {
        "Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"};
    const std::int64_t type = sqlite3_column_int64(row, 5);
    const bool is_known = type >= 0 && std::cmp_less(type, kNames.size());
    RecordedEvent event = event_at(row, EventKind::Synchronisation,
                                   kNames[is_known ? static_cast<std::size_t>(type) : 0]);
    event.stream = static_cast<std::int32_t>(sqlite3_column_int64(row, 6) & 0x7fffffff);
    event.thread = thread_number("waits");
    recording_.events.push_back(event);
  }

  // Text, thread, payload.
  void add_range(sqlite3_stmt* row) {
    const std::string range = printable(text_at(row, 5));
    const std::string_view name = operator_of(range);
    RecordedEvent event = event_at(row, EventKind::Operator, name);
    if (name.size() == range.size() || is_annotation(event.name))
      event.kind = EventKind::Annotation;
    event.thread = thread_number(text_at(row, 6));
    if (name.starts_with("nccl") && !name.starts_with("nccl:")) {
      const auto* const blob = static_cast<const char*>(sqlite3_column_blob(row, 7));
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, 7));
      take_nccl(event, name, schemas_.read(blob == nullptr ? "" : std::string_view(blob, size)));
    }
    recording_.events.push_back(event);
  }

 private:
  // Of a name, told once.
  bool is_annotation(std::int32_t name) {
    const auto at = static_cast<std::size_t>(name);
    if (at >= kinds_.size()) kinds_.resize(at + 1);
    if (!kinds_[at]) kinds_[at] = kinds_of(names_.text(name));
    return (*kinds_[at] & kAnnotations) != 0;
  }

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

  // Calls of NCCL on a thread since ncclGroupStart.
  struct Group {
    int depth = 0;
    std::vector<std::pair<std::string_view, NcclPayload>> calls;
  };

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
    args.is_of_library = true;
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
  const PayloadSchemas& schemas_;
  const Rank rank_;
  Recording recording_;
  Names names_;
  std::vector<std::optional<std::uint64_t>> kinds_;  // of names of ranges
  std::unordered_map<std::string, std::int32_t> threads_;
  std::map<std::int32_t, Group> groups_;            // by thread
  std::map<std::uint64_t, std::int64_t> ranks_of_;  // by communicator
  std::unordered_set<std::int64_t> launches_;       // correlations, where no process is told
  std::int64_t graphs_ = 0;
};

// Each table once, for all ranks.
class ReportReader {
 public:
  ReportReader(Database& database, const Layout& layout, std::vector<RankReader>& ranks)
      : database_(database), layout_(layout), ranks_(ranks) {}

  void read() {
    const std::string kernel_names = " LEFT JOIN StringIds AS s ON s.id = x." +
                                     layout_.kernel_name +
                                     " LEFT JOIN StringIds AS t ON t.id = x.shortName";
    each(layout_.kernels, "globalPid", {"streamId"}, ", s.value, t.value", kernel_names,
         &RankReader::add_kernel);
    each(layout_.copies, "globalPid", {"streamId", "copyKind", "srcKind", "dstKind", "bytes"}, "",
         "", &RankReader::add_copy);
    each(layout_.sets, "globalPid", {"streamId"}, "", "", &RankReader::add_set);
    each(layout_.whole_graphs, "globalPid", {"streamId"}, "", "", &RankReader::add_whole_graph);
    each(layout_.calls, "globalTid", {},
         std::string(layout_.calls_have_names ? ", s.value" : ", NULL") +
             (layout_.has_processes ? ", x.globalTid & 16777215" : ", 0"),
         layout_.calls_have_names ? " LEFT JOIN StringIds AS s ON s.id = x.nameId" : "",
         &RankReader::add_call);
    each(layout_.waits, "globalPid", {"syncType", "streamId"}, "", "", &RankReader::add_wait);
    // 59 is a range pushed and popped, 60 one started and ended; others are no ranges.
    each(layout_.ranges, "globalTid", {},
         std::string(", COALESCE(x.text, s.value)") +
             (layout_.ranges_have_threads ? ", x.globalTid & 16777215" : ", 0") +
             (layout_.ranges_have_payload ? ", x.binaryData" : ", NULL"),
         " LEFT JOIN StringIds AS s ON s.id = x.textId WHERE x.end > x.start AND x.eventType IN "
         "(59, 60) ORDER BY x.start",
         &RankReader::add_range);
  }

 private:
  // `owner`: the column that tells the process; `fields`: columns, NULL where the table has none of that name; `more`: further
  // ones as SQL.
  void each(const std::string& table, const std::string& owner,
            const std::vector<std::string>& fields, const std::string& more,
            const std::string& behind, void (RankReader::*add)(sqlite3_stmt*)) {
    if (table.empty()) return;
    const std::vector<std::string> columns = database_.columns_of(table);
    const auto or_null = [&](const std::string& name, const std::string& of = "") {
      return ", " + (has(columns, name) ? "x." + name + of : "NULL");
    };
    // Of a call the end may lie before its start where it never returned.
    const bool is_of_calls = table == layout_.calls;
    std::string query =
        std::string("SELECT x.start, ") + (is_of_calls ? "MAX(x.start, x.end)" : "x.end") +
        or_null("correlationId") + or_null(owner, kProcessOf) +
        (owner == "globalPid" && table != layout_.waits ? or_null("deviceId") : ", NULL");
    for (const std::string& field : fields) query += or_null(field);
    query += more + " FROM " + table + " AS x" + behind;
    // Rows of a table that are more than it has: an id stands twice in what is joined with it.
    const std::size_t most = database_.rows_of(table);
    std::size_t seen = 0;
    database_.each(query, [&](sqlite3_stmt* row) {
      if (++seen > most) database_.fail("an id stands twice in StringIds");
      for (RankReader& rank : ranks_) {
        if (rank.owns(row)) (rank.*add)(row);
      }
    });
  }

  Database& database_;
  const Layout& layout_;
  std::vector<RankReader>& ranks_;
};

// Names of the GPUs by their number, and when the recording began since 1970.
void add_facts(Database& database, Recording& recording, std::int64_t device) {
  if (const std::string gpus = database.table_like("TARGET_INFO_GPU"); !gpus.empty()) {
    const std::vector<std::string> columns = database.columns_of(gpus);
    database.each(
        std::string("SELECT name, ") + (has(columns, "smCount") ? "smCount" : "0") + " FROM " +
            gpus + (has(columns, "id") ? " WHERE id = " + std::to_string(device) : "") + " LIMIT 1",
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
  std::vector<RankReader> readers;
  for (const Rank& rank : ranks) {
    std::string file = path;
    if (ranks.size() > 1) {
      file +=
          " (process " + std::to_string(rank.pid()) + ", GPU " + std::to_string(rank.device) + ")";
    }
    readers.emplace_back(database, std::move(file), schemas, rank);
  }
  ReportReader(database, layout, readers).read();
  std::vector<Recording> recordings;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    recordings.push_back(readers[r].end());
    recordings.back().report = path;
    add_facts(database, recordings.back(), ranks[r].device);
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
