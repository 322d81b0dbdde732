// Fields by their names in the schema, so that another order of them is read, too.
//
// SPDX-License-Identifier: Apache-2.0
#ifdef DOVETAIL_SQLITE

#include "recordings/nsys/payload.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr std::size_t kHead = 32;           // bytes before the payload
constexpr std::size_t kSchemaAt = 8;        // in the head, 32 bits
constexpr std::size_t kMostOffset = 65536;  // no field of NCCL's lies further in

// Little endian, as all hosts of CUDA are.
std::uint64_t whole_at(std::string_view blob, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t byte = 0; byte < size; ++byte) {
    value |= std::uint64_t{static_cast<unsigned char>(blob[at + byte])} << (8 * byte);
  }
  return value;
}

}  // namespace

PayloadSchemas::PayloadSchemas(Database& database) {
  using enum Entry::Field;
  constexpr std::array<std::pair<std::string_view, Entry::Field>, 5> kFields = {
      {{"Message size [bytes]", Bytes},
       {"No. of ranks", Ranks},
       {"Rank", Rank},
       {"Peer rank", Peer},
       {"NCCL communicator ID", Communicator}}};
  const std::string table = database.table_like("NVTX_PAYLOAD_SCHEMA_ENTRIES");
  if (table.empty()) return;
  // Types of NVTX: 5 is an int, 18 a 64-bit whole number, 22 a size.
  database.each("SELECT DISTINCT schemaId, name, type, offset FROM " + table + " LIMIT 4096",
                [&](sqlite3_stmt* row) {
                  const std::string name = text_at(row, 1);
                  const std::int64_t type = sqlite3_column_int64(row, 2);
                  const std::int64_t offset = sqlite3_column_int64(row, 3);
                  if (offset < 0 || std::cmp_greater(offset, kMostOffset)) return;
                  for (const auto& [word, field] : kFields) {
                    if (name != word || (type != 5 && type != 18 && type != 22)) continue;
                    entries_[static_cast<std::uint64_t>(sqlite3_column_int64(row, 0))].push_back(
                        {field, static_cast<std::size_t>(offset), type == 5 ? std::size_t{4} : 8});
                  }
                });
}

NcclPayload PayloadSchemas::read(std::string_view blob) const {
  NcclPayload payload;
  if (blob.size() < kHead) return payload;
  const auto schema = entries_.find(whole_at(blob, kSchemaAt, 4));
  if (schema == entries_.end()) return payload;
  for (const Entry& entry : schema->second) {
    if (kHead + entry.offset + entry.size > blob.size()) continue;
    const std::uint64_t value = whole_at(blob, kHead + entry.offset, entry.size);
    if (entry.field == Entry::Field::Communicator) {
      payload.communicator = value;
      continue;
    }
    constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
    if (value > kMost) continue;
    const auto whole = static_cast<std::int64_t>(value);
    switch (entry.field) {
      case Entry::Field::Bytes:
        payload.bytes = whole;
        break;
      case Entry::Field::Ranks:
        payload.ranks = whole;
        break;
      case Entry::Field::Rank:
        payload.rank = whole;
        break;
      case Entry::Field::Peer:
        payload.peer = whole;
        break;
      case Entry::Field::Communicator:
        break;
    }
  }
  return payload;
}

std::string_view nccl_call(std::string_view range) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kCalls = {
      {{"ncclAllReduce", "allreduce"},
       {"ncclAllGather", "allgather"},
       {"ncclReduceScatter", "reducescatter"},
       {"ncclBroadcast", "broadcast"},
       {"ncclBcast", "broadcast"},
       {"ncclReduce", "reduce"},
       {"ncclAlltoAll", "alltoall"},
       {"ncclAllToAll", "alltoall"},
       {"ncclSend", "send"},
       {"ncclRecv", "recv"}}};
  for (const auto& [name, call] : kCalls) {
    if (range == name) return call;
  }
  return "";
}

}  // namespace dovetail::imports

#endif
