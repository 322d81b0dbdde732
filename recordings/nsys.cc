// Reads the SQLite export of Nsight Systems: kernels are joined with their launches by correlation
// id and sorted into the steps that NVTX ranges mark; all-reduces become gradients, with medians
// over the steps.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/nsys.h"

#include "base/error.h"
#include "base/statistics.h"

#ifdef DOVETAIL_SQLITE

#include <sqlite3.h>

#include "base/count.h"
#include "recordings/byte_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace dovetail::imports {
namespace {

using Nanoseconds = std::int64_t;

constexpr Nanoseconds kMostNs = std::int64_t{1} << 60;

struct Kernel {
  Nanoseconds launch = 0, start = 0, end = 0;
  bool is_collective = false;
  bool is_all_reduce = false;
  std::string other{};  // "ReduceScatter" of another collective
};

struct Range {
  Nanoseconds start = 0, end = 0;
};

// A database of somebody else: nothing that it brings along is run, and no query runs for ever. Source of
// the settings: sqlite.org/security.html, "Untrusted SQLite Database Files".
class Database {
 public:
  Database(const std::string& path, std::int64_t effort) : path_(path), effort_(effort) {
    open(path, SQLITE_OPEN_READONLY);
  }
  // `file` must outlive the database.
  Database(const Source& file, std::int64_t effort) : path_(file.name), effort_(effort) {
    open(":memory:", SQLITE_OPEN_READWRITE);
    const auto size = static_cast<sqlite3_int64>(file.text.size());
    // SQLite's interface is not const-correct; what is read only is not written.
    auto* const bytes =
        reinterpret_cast<unsigned char*>(const_cast<char*>(file.text.data()));  // NOLINT
    if (file.text.empty() || sqlite3_deserialize(handle_.get(), "main", bytes, size, size,
                                                 SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) {
      fail("file is not a database");
    }
  }

  // Calls `row` for every row of the query, which has `text` as its parameter where that is given.
  void each(const std::string& query, const std::string& text,
            const std::function<void(sqlite3_stmt*)>& row) {
    used_ = 0;
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(handle_.get(), query.c_str(), -1, &made, nullptr) != SQLITE_OK) {
      fail(sqlite3_errmsg(handle_.get()));
    }
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(made, sqlite3_finalize);
    if (!text.empty()) sqlite3_bind_text(made, 1, text.c_str(), -1, SQLITE_TRANSIENT);
    int status = sqlite3_step(made);
    for (; status == SQLITE_ROW; status = sqlite3_step(made)) row(made);
    if (status != SQLITE_DONE) fail(sqlite3_errmsg(handle_.get()));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(path_ +
                     ": no SQLite export of Nsight Systems that can be read: " + printable(what));
  }

  [[nodiscard]] Nanoseconds time(sqlite3_stmt* row, int column) const {
    const Nanoseconds value = sqlite3_column_int64(row, column);
    if (value < -kMostNs || value > kMostNs) fail("a time beyond 36 years");
    return value;
  }

 private:
  void open(const std::string& path, int flags) {
    sqlite3* opened = nullptr;
    const int status = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
    handle_.reset(opened);
    if (status != SQLITE_OK) fail(opened == nullptr ? "out of memory" : sqlite3_errmsg(opened));
    sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, 1 << 24);  // bytes of a value
    sqlite3_exec(opened, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0", nullptr, nullptr,
                 nullptr);
    sqlite3_progress_handler(opened, 100'000, &Database::count, this);
  }

  static int count(void* self) {
    auto* const database = static_cast<Database*>(self);
    return ++database->used_ > database->effort_ ? 1 : 0;
  }

  std::string path_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_{nullptr, sqlite3_close};
  std::int64_t used_ = 0;  // of the query that runs
  std::int64_t effort_;
};

// How many rows a table has: more cannot come of it unless ids stand more than once.
std::size_t rows_of(Database& database, const std::string& table) {
  std::int64_t rows = 0;
  database.each("SELECT COUNT(*) FROM " + table, "",
                [&](sqlite3_stmt* row) { rows = sqlite3_column_int64(row, 0); });
  return static_cast<std::size_t>(rows);
}

std::string text_at(sqlite3_stmt* row, int column) {
  const unsigned char* const text = sqlite3_column_text(row, column);
  return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

// Where things stand in this file: tables under their names of this version, and columns that not all have.
struct Layout {
  std::string kernels{}, launches{}, ranges{};
  bool has_processes = false;  // kernels and launches say theirs
  bool ranges_have_processes = false;
};

bool has_column(Database& database, const std::string& table, const std::string& column) {
  bool found = false;
  database.each("SELECT 1 FROM pragma_table_info('" + table + "') WHERE name = ?1", column,
                [&](sqlite3_stmt*) { found = true; });
  return found;
}

// The table of that name, else one that has it in front; "": none. A name with anything but letters, digits and '_'
// is none of Nsight Systems'.
std::string table_like(Database& database, const std::string& name) {
  std::vector<std::string> found;
  database.each(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND (name = ?1 OR substr(name, 1, "
      "length(?1) "
      "+ 1) = ?1 || '_') ORDER BY name",
      name, [&](sqlite3_stmt* row) { found.push_back(text_at(row, 0)); });
  for (const std::string& table : found) {
    const bool is_plain = std::ranges::all_of(
        table, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (is_plain) return table;
  }
  return "";
}

Layout layout_of(Database& database, const std::string& path) {
  Layout layout{.kernels = table_like(database, "CUPTI_ACTIVITY_KIND_KERNEL"),
                .launches = table_like(database, "CUPTI_ACTIVITY_KIND_RUNTIME"),
                .ranges = table_like(database, "NVTX_EVENTS")};
  if (layout.kernels.empty() && layout.ranges.empty()) {
    database.fail("no such table: CUPTI_ACTIVITY_KIND_KERNEL");
  }
  if (layout.ranges.empty()) {
    throw InputError(
        path +
        ": it has no NVTX ranges, so nothing says where a step begins: mark the steps "
        "(torch.cuda.nvtx.range_push(\"iteration\") ... range_pop()) and record with -t "
        "cuda,nvtx");
  }
  if (layout.kernels.empty() || layout.launches.empty()) {
    throw InputError(path + ": it has no kernels and launches of CUDA: record with -t cuda,nvtx");
  }
  layout.has_processes = has_column(database, layout.kernels, "globalPid") &&
                         has_column(database, layout.launches, "globalTid");
  layout.ranges_have_processes = has_column(database, layout.ranges, "globalTid");
  return layout;
}

constexpr const char* kProcessOf = " / 16777216";  // 2^24, of globalPid and globalTid

struct Process {
  std::int64_t id = 0;  // with the host in its upper bits
  std::int64_t kernels = 0;
  [[nodiscard]] std::int64_t pid() const { return id & 0xffffff; }
};

// The process to read, of those that ran kernels; absent: the file does not tell processes apart.
std::optional<Process> process_of(Database& database, const std::string& path, const Layout& layout,
                                  const NsysOptions& options, ImportedStep& result) {
  if (!layout.has_processes) {
    if (options.pid) throw InputError(path + ": --pid: it does not say which process ran a kernel");
    return std::nullopt;
  }
  constexpr std::size_t kMost = 4096;
  std::vector<Process> processes;
  database.each(std::string("SELECT globalPid") + kProcessOf + " AS p, COUNT(*) FROM " +
                    layout.kernels + " GROUP BY p ORDER BY p",
                "", [&](sqlite3_stmt* row) {
                  if (processes.size() == kMost) database.fail("more than 4096 processes");
                  processes.push_back({sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1)});
                });
  if (processes.empty()) throw InputError(path + ": no kernel in it");
  const auto chosen = options.pid ? std::ranges::find(processes, *options.pid, &Process::pid)
                                  : std::ranges::max_element(processes, {}, &Process::kernels);
  std::vector<std::string> others;
  constexpr std::size_t kShown = 16;
  for (auto one = processes.begin(); one != processes.end() && others.size() < kShown; ++one) {
    if (one != chosen) others.push_back(std::to_string(one->pid()));
  }
  if (chosen == processes.end()) {
    throw InputError(path + ": --pid " + std::to_string(*options.pid) +
                     ": no kernel of that process; there are " + listed(others));
  }
  if (processes.size() > 1) {
    result.read.push_back(std::to_string(processes.size()) + " processes in the report: this is " +
                          std::to_string(chosen->pid()) + "; --pid names another, of " +
                          listed(others));
  }
  return *chosen;
}

// "AND NVTX.globalTid / 16777216 = 7", where the file tells processes apart.
std::string only(const std::string& column, const std::optional<Process>& process) {
  if (!process) return "";
  return " AND " + column + kProcessOf + " = " + std::to_string(process->id);
}

// The ranges of that name, in order; where there is none, an error that lists what there is.
std::vector<Range> steps_named(Database& database, const std::string& path, const Layout& layout,
                               const std::optional<Process>& process, const std::string& name) {
  const std::string named =
      "FROM " + layout.ranges +
      " AS e LEFT JOIN StringIds AS s ON s.id = e.textId WHERE e.end > e.start" +
      (layout.ranges_have_processes ? only("e.globalTid", process) : "");
  const std::size_t most = rows_of(database, layout.ranges);
  std::vector<Range> ranges;
  database.each("SELECT e.start, e.end " + named + " AND COALESCE(e.text, s.value) = ?1", name,
                [&](sqlite3_stmt* row) {
                  if (ranges.size() == most) database.fail("an id stands twice in StringIds");
                  ranges.push_back({database.time(row, 0), database.time(row, 1)});
                });
  std::ranges::sort(ranges, {}, &Range::start);
  if (ranges.size() >= 2) return ranges;
  std::vector<std::string> known;
  database.each(
      "SELECT COALESCE(e.text, s.value) AS n, COUNT(*) " + named +
          " GROUP BY n HAVING COUNT(*) > 1 ORDER BY COUNT(*) DESC LIMIT 8",
      "", [&](sqlite3_stmt* row) {
        known.push_back("\"" + printable(text_at(row, 0)) + "\" (" + text_at(row, 1) + ")");
      });
  throw InputError(
      path + ": " + counted(ranges.size(), "NVTX range") + " named \"" + name +
      "\", at least two are needed; " +
      (known.empty() ? "no name stands more than once" : "there are " + listed(known)));
}

void name_kernel(Kernel& kernel, const std::string& name) {
  constexpr std::array<std::string_view, 4> kLibraries = {"nccl", "rccl", "msccl", "oneccl"};
  constexpr std::array<std::string_view, 6> kOthers = {"ReduceScatter", "AllGather", "AllToAll",
                                                       "Broadcast",     "SendRecv",  "Reduce"};
  const auto stands = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  kernel.is_collective = std::ranges::any_of(kLibraries, stands);
  if (!kernel.is_collective) return;
  kernel.is_all_reduce = stands("AllReduce");
  const auto* const other = std::ranges::find_if(kOthers, stands);
  if (!kernel.is_all_reduce && other != kOthers.end()) kernel.other = *other;
}

std::vector<Kernel> kernels_of(Database& database, const Layout& layout,
                               const std::optional<Process>& process) {
  const std::size_t most = rows_of(database, layout.kernels);
  std::vector<Kernel> kernels;
  database.each(
      "SELECT r.start, k.start, k.end, s.value FROM " + layout.kernels + " AS k JOIN " +
          layout.launches + " AS r ON r.correlationId = k.correlationId" +
          only("r.globalTid", process) + " LEFT JOIN StringIds AS s ON s.id = k.shortName WHERE 1" +
          only("k.globalPid", process),
      "", [&](sqlite3_stmt* row) {
        if (kernels.size() == most) {
          database.fail("a correlation id stands for several launches: export one process");
        }
        Kernel kernel{.launch = database.time(row, 0),
                      .start = database.time(row, 1),
                      .end = database.time(row, 2)};
        if (kernel.end < kernel.start) database.fail("a kernel ends before it starts");
        name_kernel(kernel, text_at(row, 3));
        kernels.push_back(std::move(kernel));
      });
  std::ranges::stable_sort(
      kernels, {}, [](const Kernel& kernel) { return std::pair(kernel.launch, kernel.start); });
  return kernels;
}

// One step: ready times and durations of its all-reduces, from its first kernel on.
struct Step {
  std::vector<Nanoseconds> ready, took;
  Nanoseconds optimizer = 0;
};

Step step_of(std::span<const Kernel> kernels) {
  Step step;
  Nanoseconds first = kMostNs;
  Nanoseconds computed = -kMostNs;  // end of the last computation that was launched so far
  Nanoseconds reduced = -kMostNs;
  for (const Kernel& kernel : kernels) {
    first = std::min(first, kernel.start);
    if (!kernel.is_collective) computed = std::max(computed, kernel.end);
    if (!kernel.is_all_reduce) continue;
    step.ready.push_back(std::clamp(computed, first, std::max(first, kernel.start)) - first);
    step.took.push_back(std::max<Nanoseconds>(kernel.end - kernel.start, 1));
    reduced = std::max(reduced, kernel.end);
  }
  for (const Kernel& kernel : kernels) {
    if (kernel.is_collective || kernel.start < reduced) continue;
    step.optimizer = std::min(step.optimizer + kernel.end - kernel.start, kMostNs);
  }
  return step;
}

// What a step has instead of all-reduces: "; it has 3 of ReduceScatter, of which no gradients are made".
std::string others_in_words(std::span<const Kernel> kernels) {
  std::map<std::string, std::size_t> counts;
  for (const Kernel& kernel : kernels) {
    if (!kernel.other.empty()) ++counts[kernel.other];
  }
  std::vector<std::string> others;
  for (const auto& [what, count] : counts) others.push_back(std::to_string(count) + " " + what);
  return others.empty() ? ""
                        : "; it also has " + listed(others) +
                              ": gradients are made of all-reduces only (DDP), not of sharded ones";
}

// The steps with all-reduces, which must be as many in each as sizes are given.
std::vector<Step> steps_of(const std::string& path, const std::vector<Range>& ranges,
                           std::span<const Kernel> kernels, const NsysOptions& options) {
  std::vector<Step> steps;
  for (const Range& range : ranges) {
    const auto begin = std::ranges::lower_bound(kernels, range.start, {}, &Kernel::launch);
    const auto end = std::ranges::lower_bound(kernels, range.end, {}, &Kernel::launch);
    if (begin >= end) continue;
    Step step = step_of({begin, end});
    if (step.ready.size() != options.bytes.size()) {
      throw InputError(path + ": a step has " + counted(step.ready.size(), "NCCL all-reduce") +
                       ", but --bytes gives " + counted(options.bytes.size(), "size") +
                       others_in_words({begin, end}));
    }
    steps.push_back(std::move(step));
  }
  if (steps.empty()) throw InputError(path + ": no kernel was launched in a step");
  return steps;
}

bool is_packed(const std::string& path) {
  std::array<char, 2> front{};
  std::ifstream file(path, std::ios::binary);
  return file.read(front.data(), front.size()) && front[0] == '\x1f' && front[1] == '\x8b';
}

ImportedStep read_database(const std::string& path, Database& database,
                           const NsysOptions& options) {
  if (options.bytes.empty())
    throw InputError(path + ": --bytes: expected the size of each all-reduce");
  ImportedStep result;
  const Layout layout = layout_of(database, path);
  const std::optional<Process> process = process_of(database, path, layout, options, result);
  const std::vector<Range> ranges = steps_named(database, path, layout, process, options.step);
  const std::vector<Kernel> kernels = kernels_of(database, layout, process);
  const std::vector<Step> steps = steps_of(path, ranges, kernels, options);
  models::Profile& profile = result.profile;
  std::map<Bytes, Duration> shortest;
  std::vector<Duration> ready;
  for (std::size_t i = 0; i < options.bytes.size(); ++i) {
    std::vector<Nanoseconds> at;
    for (const Step& step : steps) {
      at.push_back(step.ready[i]);
      Duration& time = shortest.try_emplace(options.bytes[i], Duration(step.took[i])).first->second;
      time = std::min(time, Duration(step.took[i]));
    }
    ready.push_back(Duration(median(std::move(at))));
    if (i > 0) ready[i] = std::max(ready[i], ready[i - 1]);
  }
  std::vector<Nanoseconds> optimizer;
  for (const Step& step : steps) optimizer.push_back(step.optimizer);
  profile.name = std::filesystem::path(path).stem().string();
  profile.world_size = options.ranks;
  profile.by_rank.push_back({.forward = ready.front(),
                             .backward = ready.back() - ready.front(),
                             .optimizer = Duration(median(std::move(optimizer)))});
  for (std::size_t i = 0; i < ready.size(); ++i) {
    profile.gradients.push_back({.name = "all-reduce " + std::to_string(i),
                                 .numel = (options.bytes[i].count() + 3) / 4,
                                 .dtype = schedule::DType::F32,
                                 .ready = {ready[i] - ready.front()}});
  }
  if (shortest.size() >= 2) {
    models::ProfiledCollectives table;
    for (const auto& [bytes, time] : shortest) {
      table.points.push_back({.bytes = bytes, .isolated = time});
    }
    profile.collectives = std::move(table);
  } else {
    result.left_out.emplace_back(
        "one size only: no all-reduce table; name a machine with --cluster");
  }
  result.read.push_back(counted(steps.size(), "step") + ", " + counted(kernels.size(), "kernel") +
                        ", " + counted(ready.size(), "all-reduce") + " a step");
  result.what =
      "Nsight Systems export of one rank; each all-reduce is one gradient of float32, medians over "
      "the "
      "steps; times of all-reduces are the shortest over the steps, an upper bound, as they hold "
      "the wait "
      "for the last rank; waits for the host count as computation.";
  return result;
}

}  // namespace

ImportedStep read_nsys(const std::string& path, const NsysOptions& options) {
  if (is_packed(path)) {
    const std::string bytes = read_unpacked(path);
    return read_nsys(Source{path, bytes}, options);
  }
  Database database(path, options.effort);
  return read_database(path, database, options);
}

ImportedStep read_nsys(const Source& file, const NsysOptions& options) {
  Database database(file, options.effort);
  return read_database(file.name, database, options);
}

}  // namespace dovetail::imports

#else  // a build without SQLite

namespace dovetail::imports {

ImportedStep read_nsys(const std::string& path, const NsysOptions& options) {
  return read_nsys(Source{path, {}}, options);
}

ImportedStep read_nsys(const Source& file, const NsysOptions& /*options*/) {
  throw InputError(file.name +
                   ": this build cannot read SQLite files; install libsqlite3-dev and build again");
}

}  // namespace dovetail::imports

#endif
