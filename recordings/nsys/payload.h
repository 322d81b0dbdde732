// What NCCL says of its own calls in NVTX: the kind of a collective, and in the payload its size, communicator and ranks.
//
// Source: NCCL's src/include/nvtx_payload_schemas.h and src/collectives.cc (the names of the fields; all-gather and reduce-scatter give the bytes
// of one rank's part), NVTX's nvToolsExtPayload.h (types of entries). In an export binaryData is a head of 32 bytes (domain, schema, size;
// found in exports of 2026.2 and as public readers of that column take it), then the fields at the offsets of NVTX_PAYLOAD_SCHEMA_ENTRIES.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/nsys/database.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

struct NcclPayload {
  std::optional<std::int64_t> bytes, ranks, rank, peer;
  std::optional<std::uint64_t> communicator;
};

class PayloadSchemas {
 public:
  // None where the export has no such table.
  explicit PayloadSchemas(Database& database);
  // All fields absent where the blob is none of a known schema.
  [[nodiscard]] NcclPayload read(std::string_view blob) const;

 private:
  struct Entry {
    enum class Field : std::uint8_t { Bytes, Ranks, Rank, Peer, Communicator } field;
    std::size_t offset = 0, size = 0;  // bytes
  };
  std::map<std::uint64_t, std::vector<Entry>> entries_;  // by schema
};

// "ncclAllReduce" is "allreduce"; "" where it is no call that communicates.
std::string_view nccl_call(std::string_view range);

}  // namespace dovetail::imports
