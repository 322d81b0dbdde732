// An SQLite file of somebody else: nothing that it brings along is run, and no queries run for ever. Source of the settings:
// sqlite.org/security.html, "Untrusted SQLite Database Files". Absent from builds without SQLite.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/text.h"

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

class Database {
 public:
  // `effort`: how long SQLite may work on the file, all queries together, before it is refused, in 100,000 instructions of its machine. A file
  // packed with gzip is unpacked into memory, up to 1 GiB. Throws InputError: it cannot be read.
  Database(const std::string& path, std::int64_t effort);
  // The bytes of such a file, which must outlive the database.
  Database(const Source& file, std::int64_t effort);

  // Calls `row` for every row of the query.
  void each(const std::string& query, const std::function<void(sqlite3_stmt*)>& row);

  // The table of that name, else one that has it in front with '_' behind it; "": none. A name with anything but letters,
  // digits and '_' is none of Nsight Systems'.
  std::string table_like(const std::string& name);
  std::vector<std::string> columns_of(const std::string& table);
  // How many rows a table has: more cannot come of a query of it unless ids stand more than once.
  std::size_t rows_of(const std::string& table);

  // Throws InputError with the file's name: no export that can be read.
  [[noreturn]] void fail(const std::string& what) const;
  // Throws InputError: beyond 36 years.
  [[nodiscard]] std::int64_t time(sqlite3_stmt* row, int column) const;

 private:
  void open(const std::string& path, int flags);
  void open_bytes(std::string_view bytes);
  static int count(void* self);

  std::string path_;
  std::string unpacked_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_{nullptr, sqlite3_close};
  std::int64_t used_ = 0;
  std::int64_t effort_;
};

std::string text_at(sqlite3_stmt* row, int column);

}  // namespace dovetail::imports
