// Who sends to whom, of a send or a receive, as far as a name or the args of an event tell.
//
//   message_of("nccl:send 0->1").destination      1
//   message_of("gloo:recv").direction             Direction::Receive; who sends is not told
//
// Numbers are ranks of the group; c10d writes "nccl:send 0->1" and "nccl:recv 0<-1" (ProcessGroupNCCL.cpp, pointToPoint).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dovetail::imports {

// None: no send or receive, or both in one (a coalesced pair).
enum class Direction : std::uint8_t { None, Send, Receive };

struct Message {
  Direction direction = Direction::None;
  std::optional<std::int64_t> peer;  // where a send goes, where a receive comes from
};

Message message_of(std::string_view name);

}  // namespace dovetail::imports
