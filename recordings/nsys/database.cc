// Opens what may be anything, read only, with SQLite's defences up.
//
// SPDX-License-Identifier: Apache-2.0
#ifdef DOVETAIL_SQLITE

#include "recordings/nsys/database.h"

#include "base/error.h"
#include "recordings/byte_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>

namespace dovetail::imports {
namespace {

bool is_packed(const std::string& path) {
  std::array<char, 2> front{};
  std::ifstream file(path, std::ios::binary);
  return file.read(front.data(), front.size()) && front[0] == '\x1f' && front[1] == '\x8b';
}

}  // namespace

Database::Database(const std::string& path, std::int64_t effort) : path_(path), effort_(effort) {
  if (!is_packed(path)) {
    open(path, SQLITE_OPEN_READONLY);
    return;
  }
  unpacked_ = read_unpacked(path);
  open_bytes(unpacked_);
}

Database::Database(const Source& file, std::int64_t effort) : path_(file.name), effort_(effort) {
  open_bytes(file.text);
}

void Database::open_bytes(std::string_view bytes) {
  open(":memory:", SQLITE_OPEN_READWRITE);
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  // SQLite's interface is not const-correct; what is read only is not written.
  auto* const data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // NOLINT
  if (bytes.empty() || sqlite3_deserialize(handle_.get(), "main", data, size, size,
                                           SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) {
    fail("file is not a database");
  }
}

void Database::open(const std::string& path, int flags) {
  sqlite3* opened = nullptr;
  const int status = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
  handle_.reset(opened);
  if (status != SQLITE_OK) fail(opened == nullptr ? "out of memory" : sqlite3_errmsg(opened));
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, 1 << 24);  // bytes of a value
  sqlite3_exec(opened, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0", nullptr, nullptr, nullptr);
  sqlite3_progress_handler(opened, 100'000, &Database::count, this);
}

int Database::count(void* self) {
  auto* const database = static_cast<Database*>(self);
  return ++database->used_ > database->effort_ ? 1 : 0;
}

void Database::each(const std::string& query, const std::function<void(sqlite3_stmt*)>& row) {
  sqlite3_stmt* made = nullptr;
  if (sqlite3_prepare_v2(handle_.get(), query.c_str(), -1, &made, nullptr) != SQLITE_OK) {
    fail(sqlite3_errmsg(handle_.get()));
  }
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(made, sqlite3_finalize);
  int status = sqlite3_step(made);
  for (; status == SQLITE_ROW; status = sqlite3_step(made)) row(made);
  if (status != SQLITE_DONE) fail(sqlite3_errmsg(handle_.get()));
}

std::string Database::table_like(const std::string& name) {
  std::vector<std::string> found;
  each("SELECT name FROM sqlite_master WHERE type = 'table' AND (name = '" + name +
           "' OR substr(name, 1, " + std::to_string(name.size() + 1) + ") = '" + name +
           "_') ORDER BY name",
       [&](sqlite3_stmt* row) { found.push_back(text_at(row, 0)); });
  for (const std::string& table : found) {
    const bool is_plain = std::ranges::all_of(
        table, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (is_plain) return table;
  }
  return "";
}

std::vector<std::string> Database::columns_of(const std::string& table) {
  std::vector<std::string> columns;
  each("SELECT name FROM pragma_table_info('" + table + "')",
       [&](sqlite3_stmt* row) { columns.push_back(text_at(row, 0)); });
  return columns;
}

std::size_t Database::rows_of(const std::string& table) {
  std::int64_t rows = 0;
  each("SELECT COUNT(*) FROM " + table,
       [&](sqlite3_stmt* row) { rows = sqlite3_column_int64(row, 0); });
  return static_cast<std::size_t>(rows);
}

void Database::fail(const std::string& what) const {
  throw InputError(path_ +
                   ": no SQLite export of Nsight Systems that can be read: " + printable(what));
}

std::int64_t Database::time(sqlite3_stmt* row, int column) const {
  constexpr std::int64_t kMostNs = std::int64_t{1} << 60;
  const std::int64_t value = sqlite3_column_int64(row, column);
  if (value < -kMostNs || value > kMostNs) fail("a time beyond 36 years");
  return value;
}

std::string text_at(sqlite3_stmt* row, int column) {
  const unsigned char* const text = sqlite3_column_text(row, column);
  return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

}  // namespace dovetail::imports

#endif
