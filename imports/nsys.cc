// Reads the SQLite export of Nsight Systems: kernels are joined with their launches by correlation
// id and sorted into the steps that NVTX ranges mark; all-reduces become gradients, with medians
// over the steps.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nsys.h"

#include "base/error.h"
#include "base/statistics.h"

#ifdef DOVETAIL_SQLITE

#include <sqlite3.h>

#include "base/count.h"
#include "imports/byte_source.h"

#include <algorithm>
#include <array>
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

// The ranges of that name, in order; where there is none, an error that lists what there is.
std::vector<Range> steps_named(Database& database, const std::string& path,
                               const std::string& name) {
  const std::string named =
      "FROM NVTX_EVENTS AS e LEFT JOIN StringIds AS s ON s.id = e.textId WHERE e.end > e.start";
  const std::size_t most = rows_of(database, "NVTX_EVENTS");
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

std::vector<Kernel> kernels_of(Database& database) {
  const std::size_t most = rows_of(database, "CUPTI_ACTIVITY_KIND_KERNEL");
  std::vector<Kernel> kernels;
  database.each(
      "SELECT r.start, k.start, k.end, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
      "JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON r.correlationId = k.correlationId "
      "LEFT JOIN StringIds AS s ON s.id = k.shortName",
      "", [&](sqlite3_stmt* row) {
        if (kernels.size() == most) {
          database.fail("a correlation id stands for several launches: export one process");
        }
        Kernel kernel{.launch = database.time(row, 0),
                      .start = database.time(row, 1),
                      .end = database.time(row, 2)};
        if (kernel.end < kernel.start) database.fail("a kernel ends before it starts");
        const std::string name = text_at(row, 3);
        kernel.is_collective =
            name.find("nccl") != std::string::npos || name.find("rccl") != std::string::npos;
        kernel.is_all_reduce = kernel.is_collective && name.find("AllReduce") != std::string::npos;
        kernels.push_back(kernel);
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
                       ", but --bytes gives " + counted(options.bytes.size(), "size"));
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
  const std::vector<Range> ranges = steps_named(database, path, options.step);
  const std::vector<Kernel> kernels = kernels_of(database);
  const std::vector<Step> steps = steps_of(path, ranges, kernels, options);
  ImportedStep result;
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
