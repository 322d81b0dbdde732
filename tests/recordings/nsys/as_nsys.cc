// Writes each event of a recording as the row that Nsight Systems' export would have for it.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/recordings/nsys/as_nsys.h"

#include <sqlite3.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iomanip>
#include <sstream>

namespace dovetail::testing {
namespace {

using imports::EventKind;
using imports::RecordedEvent;

constexpr const char* kTables = R"(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, end INT, streamId INT, correlationId INT, globalPid INT, syncType INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (schemaId INT, name TEXT, type INT, offset INT);
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (9, 'NCCL communicator ID', 18, NULL), (9, 'Message size [bytes]', 22, 8),
  (2, 'NCCL communicator ID', 18, NULL), (2, 'No. of ranks', 5, 8), (2, 'Rank', 5, 12);
)";

constexpr std::int64_t kProcess = std::int64_t{7} << 24;

std::string sql_text(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    result += c;
    if (c == '\'') result += c;
  }
  return result + "'";
}

// A blob's head and its fields, little endian.
std::string payload(std::int64_t schema, std::int64_t first, std::int64_t second) {
  std::ostringstream hex;
  const auto put = [&hex](std::int64_t value, int bytes) {
    for (int byte = 0; byte < bytes; ++byte) {
      hex << std::hex << std::setw(2) << std::setfill('0') << ((value >> (8 * byte)) & 0xff);
    }
  };
  put(1, 8);
  put(schema, 8);
  put(16, 8);
  put(48, 8);
  put(first, 8);
  put(second, 8);
  return "x'" + hex.str() + "'";
}

class Writer {
 public:
  Writer(const imports::Recording& recording, const imports::RankTimeline& line)
      : recording_(recording), line_(line) {}

  std::string write() {
    out_ << kTables;
    if (recording_.rank && recording_.world_size) {
      const std::int64_t at = recording_.events.front().start_ns;
      range(at - 20, at - 10, "ncclCommInitRank", 0,
            payload(2, 77, *recording_.world_size | (*recording_.rank << 32)));
    }
    for (const RecordedEvent& event : recording_.events) put(event);
    for (const imports::TracedCollective& collective : line_.collectives) call_of_nccl(collective);
    for (const auto& [name, id] : ids_) {
      out_ << "INSERT INTO StringIds VALUES (" << id << "," << sql_text(name) << ");\n";
    }
    return out_.str();
  }

 private:
  int id_of(const std::string& name) {
    return ids_.emplace(name, static_cast<int>(ids_.size()) + 1).first->second;
  }

  void range(std::int64_t start, std::int64_t end, const std::string& text, std::int32_t thread,
             const std::string& blob = "NULL") {
    out_ << "INSERT INTO NVTX_EVENTS VALUES (" << start << "," << end << ",59," << sql_text(text)
         << ",NULL," << kProcess + thread << "," << blob << ");\n";
  }

  void put(const RecordedEvent& event) {
    const std::string& name = recording_.name_of(event);
    const auto times = [&] {
      out_ << " VALUES (" << event.start_ns << "," << event.end_ns() << ",";
    };
    switch (event.kind) {
      case EventKind::Operator:
        range(event.start_ns, event.end_ns(), name + ", seq = 3, op_id = 9", event.thread);
        break;
      case EventKind::Annotation:
        range(event.start_ns, event.end_ns(), name, event.thread);
        break;
      case EventKind::RuntimeCall:
        out_ << "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME";
        times();
        out_ << kProcess + event.thread << "," << event.correlation << "," << id_of(name + "_v7000")
             << ");\n";
        break;
      case EventKind::Kernel:
        out_ << "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL";
        times();
        out_ << "0," << event.stream << "," << event.correlation << "," << kProcess << ","
             << id_of(name) << ");\n";
        break;
      case EventKind::Memcpy:
        out_ << "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY";
        times();
        out_ << "0," << event.stream << "," << event.correlation << "," << kProcess << ","
             << event.bytes << "," << (name.find("DtoH") != std::string::npos ? 2 : 8)
             << (name.find("Pageable") != std::string::npos ? ",2,0" : ",2,1") << ");\n";
        break;
      case EventKind::Memset:
        out_ << "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET";
        times();
        out_ << "0," << event.stream << "," << event.correlation << "," << kProcess << ");\n";
        break;
      case EventKind::Synchronisation:
        out_ << "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
        times();
        out_ << event.stream << "," << event.correlation << "," << kProcess << ",3);\n";
        break;
    }
  }

  void call_of_nccl(const imports::TracedCollective& collective) {
    const imports::GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
    if (work.launch == imports::kNone || !collective.bytes) return;
    const RecordedEvent& call = recording_.events[static_cast<std::size_t>(
        line_.calls[static_cast<std::size_t>(work.launch)].event)];
    range(call.start_ns - 1, call.end_ns() + 1,
          collective.kind == imports::CollectiveKind::AllReduce ? "ncclAllReduce" : "ncclBroadcast",
          call.thread, payload(9, 77, collective.bytes->count()));
  }

  const imports::Recording& recording_;
  const imports::RankTimeline& line_;
  std::ostringstream out_;
  std::map<std::string, int> ids_;
};

}  // namespace

std::string as_nsys(const imports::Recording& recording, const imports::RankTimeline& line) {
  return Writer(recording, line).write();
}

void write_database(const std::string& path, const std::string& statements) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  // One transaction: each would wait for the disk.
  const std::string all = "BEGIN;" + statements + "COMMIT;";
  EXPECT_EQ(sqlite3_exec(database, all.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
}

}  // namespace dovetail::testing
