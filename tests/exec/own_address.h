// Addresses and times of tests that meet over sockets, so that neither other tests nor a slow machine
// come between.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/launch/failure.h"
#include "exec/launch/socket.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace dovetail::exec::testing {

// For what must happen: shorter than ctest's limit for a whole test, longer than any machine needs.
inline constexpr Duration kPatience = std::chrono::minutes(4);

// Nothing is given up before the news has come.
inline constexpr launch::Graces kPatient = {
    .news = kPatience, .end = kPatience, .sigterm_news = kPatience, .sigterm_end = kPatience};

// An address of the loopback network that belongs to this process alone: 127.64.0.0 plus its id, which
// Linux keeps below 2^22. Tests run side by side, and nobody else takes a port there.
inline std::string own_address() {
  const auto id = static_cast<std::uint32_t>(::getpid());
  return "127." + std::to_string(64 + (id >> 16U) % 64) + "." + std::to_string((id >> 8U) % 256) +
         "." + std::to_string(id % 256);
}

// A port of that address which is free, and so are those after it.
inline std::uint16_t free_port() {
  const auto listener = launch::listen_on(own_address(), 0);
  return static_cast<std::uint16_t>(launch::local_port(*listener) % 10'000 + 20'000);
}

}  // namespace dovetail::exec::testing
