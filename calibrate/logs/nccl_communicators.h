// Communicators of a log of NCCL, put together from what each process says of its own.
//
// A process calls a communicator by a pointer, which means nothing in another process. What makes pointers of
// several processes one communicator is told in nccl_log.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dovetail::imports {

// One call of a collective by one process.
struct NcclCall {
  std::string name{};  // "AllReduce"
  std::int64_t count = 0;
  std::int64_t datatype = 0;
  std::int64_t root = 0;
  friend auto operator<=>(const NcclCall&, const NcclCall&) = default;
};

// One rank's part of one communicator.
struct NcclMember {
  std::string process{};               // and device, "host:pid[0]"; "": the line does not say it
  std::string host{};                  // "": unknown
  std::int64_t ranks = 0;              // of the communicator; 0: unknown
  std::optional<std::int64_t> rank{};  // its own
  std::optional<std::int64_t> nodes{};
  std::string id{};  // the same on all ranks; "": the log does not say it
  std::int64_t channels = 0;
  bool has_begun = false, is_complete = false;             // "Init START" and "Init COMPLETE"
  std::map<std::uint64_t, std::vector<NcclCall>> calls{};  // by opCount, in their order
};

struct NcclCommunicator {
  std::int64_t ranks = 0;
  std::vector<std::size_t> members{};  // which of the given ones
  std::optional<std::int64_t> nodes{};
  std::set<std::string> hosts{};
  std::int64_t channels = 0;
};

// In the order of their first members.
std::vector<NcclCommunicator> communicators_of(const std::vector<NcclMember>& members);

// A collective of one communicator: its opCount, which of several calls under it (a group of calls shares one), and
// how many members called it so. Where ranks differ under one opCount there are several.
struct NcclCollective {
  std::uint64_t op_count = 0;
  std::size_t index = 0;
  NcclCall call{};
  std::size_t seen = 0;
};
std::vector<NcclCollective> collectives_of(const NcclCommunicator& communicator,
                                           const std::vector<NcclMember>& members);

}  // namespace dovetail::imports
