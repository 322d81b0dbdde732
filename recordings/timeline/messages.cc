// A name is of a send or of a receive where only one of these words stands in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/messages.h"

#include "recordings/names.h"

#include <charconv>

namespace dovetail::imports {

Message message_of(std::string_view name) {
  const bool sends = contains(name, "send") || contains(name, "Send");
  const bool receives = contains(name, "recv") || contains(name, "Recv");
  if (sends == receives) return {};
  Message message{sends ? Direction::Send : Direction::Receive, {}};
  for (const std::string_view arrow : {"->", "<-"}) {
    const std::size_t at = name.find(arrow);
    if (at == std::string_view::npos) continue;
    const std::string_view digits = name.substr(at + arrow.size());
    std::int64_t peer = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), peer);
    if (error == std::errc() && end != digits.data()) message.peer = peer;
  }
  return message;
}

}  // namespace dovetail::imports
