// Reading Nsight Systems' SQLite export.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nsys.h"

#include "base/error.h"

#ifdef DOVETAIL_SQLITE

#include <sqlite3.h>

#include "base/count.h"
#include "imports/text.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

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

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    sqlite3* opened = nullptr;
    const int status = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
    handle_.reset(opened);
    if (status != SQLITE_OK) fail(opened == nullptr ? "out of memory" : sqlite3_errmsg(opened));
    // A file may bring views and triggers of its own: none is run, and no query runs for ever.
    sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    constexpr int kSteps = 1'000'000;
    sqlite3_progress_handler(opened, kSteps, &Database::count, this);
  }

  // Calls `row` for every row of the query, which has `text` as its parameter where that is given.
  void each(const std::string& query, const std::string& text,
            const std::function<void(sqlite3_stmt*)>& row) {
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
  static int count(void* self) {
    constexpr std::int64_t kMost = 20'000;  // times kSteps
    return ++static_cast<Database*>(self)->used_ > kMost ? 1 : 0;
  }

  std::string path_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_{nullptr, sqlite3_close};
  std::int64_t used_ = 0;
};

std::string text_at(sqlite3_stmt* row, int column) {
  const unsigned char* const text = sqlite3_column_text(row, column);
  return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

// The ranges of that name, in order; where there is none, an error that lists what there is.
std::vector<Range> steps_named(Database& database, const std::string& path,
                               const std::string& name) {
  const std::string named =
      "FROM NVTX_EVENTS AS e LEFT JOIN StringIds AS s ON s.id = e.textId WHERE e.end > e.start";
  std::vector<Range> ranges;
  database.each(
      "SELECT e.start, e.end " + named + " AND COALESCE(e.text, s.value) = ?1 ORDER BY e.start",
      name, [&](sqlite3_stmt* row) {
        ranges.push_back({database.time(row, 0), database.time(row, 1)});
      });
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
  std::vector<Kernel> kernels;
  database.each(
      "SELECT r.start, k.start, k.end, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
      "JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON r.correlationId = k.correlationId "
      "LEFT JOIN StringIds AS s ON s.id = k.shortName ORDER BY r.start, k.start",
      "", [&](sqlite3_stmt* row) {
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
    if (!kernel.is_collective && kernel.start >= reduced)
      step.optimizer += kernel.end - kernel.start;
  }
  return step;
}

Duration median(std::vector<Nanoseconds> values) {
  std::ranges::sort(values);
  return Duration(values[values.size() / 2]);
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

}  // namespace

ImportedStep read_nsys(const std::string& path, const NsysOptions& options) {
  if (options.bytes.empty())
    throw InputError(path + ": --bytes: expected the size of each all-reduce");
  Database database(path);
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
    ready.push_back(median(std::move(at)));
    if (i > 0) ready[i] = std::max(ready[i], ready[i - 1]);
  }
  std::vector<Nanoseconds> optimizer;
  for (const Step& step : steps) optimizer.push_back(step.optimizer);
  profile.name = std::filesystem::path(path).stem().string();
  profile.world_size = options.ranks;
  profile.by_rank.push_back({.forward = ready.front(),
                             .backward = ready.back() - ready.front(),
                             .optimizer = median(std::move(optimizer))});
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

}  // namespace dovetail::imports

#else  // a build without SQLite

namespace dovetail::imports {

ImportedStep read_nsys(const std::string& path, const NsysOptions& /*options*/) {
  throw InputError(path +
                   ": this build cannot read SQLite files; install libsqlite3-dev and build again");
}

}  // namespace dovetail::imports

#endif
