// How the ranks of a job find each other: rank 0 listens on one of a few candidate ports, and each
// rank says which job and rank it is and learns the addresses of all others.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/store.h"

#include "base/error.h"
#include "base/random.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

namespace dovetail::exec::launch {
namespace {

constexpr std::array<char, 16> kStoreMagic{"dovetail.meet/1"};
constexpr Duration kStrangerPatience = std::chrono::seconds(2);  // for one hello or one answer
constexpr Duration kRetryPause = std::chrono::milliseconds(50);

enum class Channel : std::int32_t { Calls, Control };
enum class Answer : std::int32_t { Welcome, OtherJob, Refused };

// Both messages are plain bytes: all ranks run the same program on the same kind of processor.
struct Hello {
  std::array<char, 16> magic{};
  std::uint64_t token = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Channel channel = Channel::Calls;
  std::int32_t reserved = 0;
};
struct Reply {
  std::array<char, 16> magic{};
  Answer answer = Answer::Welcome;
  std::array<char, 236> text{};
};

std::uint64_t token_of(const World& world) {
  std::uint64_t hash = 1;
  for (const char letter : world.job) hash = splitmix64(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

template <class Message>
std::span<std::byte> bytes_of(Message& message) {
  return std::as_writable_bytes(std::span(&message, 1));
}

std::string to_text(const StoreAddress& address) {
  return address.host + ":" + std::to_string(address.port);
}

// Nobody said where rank 0 is, and the launcher did not say that there are other hosts.
std::string hint_for(const StoreAddress& address) {
  if (address.host != kOwnHost) return "";
  return "; with ranks on several hosts set DOVETAIL_STORE=HOST:PORT to the host of rank 0";
}

void answer(const Descriptor& socket, Answer verdict, std::string_view text) {
  Reply reply{.magic = kStoreMagic, .answer = verdict};
  std::copy_n(text.begin(), std::min(text.size(), reply.text.size() - 1), reply.text.begin());
  // A rank that is gone by now will be missed in the end; nothing to do about it here.
  static_cast<void>(
      send_all(socket, bytes_of(reply), {.deadline = Clock::now() + kStrangerPatience}));
}

// Rank 0 ------------------------------------------------------------------------------------------

// Whether somebody is still at the other end. A rank that was not answered in time has closed its
// end, and comes again.
bool is_live(const Descriptor& socket) {
  if (!socket.is_open()) return false;
  char byte = 0;
  const ssize_t got = recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

// Where rank 0 listens. A name may mean a loopback address to its own host (Debian maps it to
// 127.0.1.1), and a number need not be an address of this host (a tunnel's): then on all addresses,
// where the job's token keeps strangers out.
std::optional<Descriptor> listen_as(const std::string& host, std::uint16_t port) {
  if (host == "localhost" || is_numeric_address(host)) {
    try {
      return listen_on(host, port);
    } catch (const DeviceError&) {
    }
  }
  try {
    return listen_on("::", port);  // IPv4 as well, where the system has not switched that off
  } catch (const DeviceError&) {
    return listen_on("0.0.0.0", port);
  }
}

// The first candidate port that is free.
Descriptor listen_for_ranks(const StoreAddress& address) {
  for (std::int32_t i = 0; i < kStorePorts; ++i) {
    const auto port = static_cast<std::uint16_t>(address.port + i);
    std::optional<Descriptor> listener = listen_as(address.host, port);
    if (listener) return std::move(*listener);
  }
  throw DeviceError("rank 0: all " + std::to_string(kStorePorts) + " ports from " +
                    to_text(address) + " on are taken; set DOVETAIL_STORE=HOST:PORT");
}

class Reception {
 public:
  explicit Reception(const World& world) : world_(world), token_(token_of(world)) {
    links_.by_rank.resize(static_cast<std::size_t>(world.size));
  }

  [[nodiscard]] bool is_complete() const { return missing().empty(); }

  // Ranks that have not come yet: "ranks 2, 3".
  [[nodiscard]] std::string missing() const {
    std::string names;
    int count = 0;
    for (std::size_t rank = 1; rank < links_.by_rank.size(); ++rank) {
      const Link& link = links_.by_rank[rank];
      if (is_live(link.calls) && is_live(link.control)) continue;
      names += (count++ == 0 ? "" : ", ") + std::to_string(rank);
    }
    return count == 0 ? "" : (count == 1 ? "rank " : "ranks ") + names;
  }

  // Hears who it is. Strangers are sent away; ranks that contradict this job end it.
  void welcome(Descriptor socket) {
    Hello hello;
    const Wait wait{.deadline = Clock::now() + kStrangerPatience};
    if (receive_all(socket, bytes_of(hello), wait) != IoStatus::Done ||
        hello.magic != kStoreMagic) {
      return;
    }
    if (hello.token != token_) return answer(socket, Answer::OtherJob, "");
    if (hello.size != world_.size || hello.rank < 1 || hello.rank >= world_.size) {
      refuse(socket, "rank " + std::to_string(hello.rank) + " believes in " +
                         std::to_string(hello.size) + " ranks, rank 0 in " +
                         std::to_string(world_.size));
    }
    Link& link = links_.by_rank[static_cast<std::size_t>(hello.rank)];
    Descriptor& place = hello.channel == Channel::Calls ? link.calls : link.control;
    if (is_live(place))
      refuse(socket, "two processes say that they are rank " + std::to_string(hello.rank));
    answer(socket, Answer::Welcome, "");
    if (links_.local_address.empty()) links_.local_address = local_address(socket);
    place = std::move(socket);
  }

  // All are here: lets them go.
  Links dismiss() {
    for (const Link& link : links_.by_rank) {
      if (link.calls.is_open()) answer(link.calls, Answer::Welcome, "");
    }
    return std::move(links_);
  }

 private:
  [[noreturn]] static void refuse(const Descriptor& socket, const std::string& reason) {
    answer(socket, Answer::Refused, reason);
    throw DeviceError("rank 0: " + reason);
  }

  const World& world_;
  std::uint64_t token_;
  Links links_;
};

Links receive_ranks(const World& world, const StoreAddress& address, Duration patience) {
  const Wait wait{.deadline = Clock::now() + patience};
  const Descriptor listener = listen_for_ranks(address);
  Reception reception(world);
  while (!reception.is_complete()) {
    std::optional<Descriptor> socket = accept_from(listener, wait);
    if (!socket) {
      throw DeviceError("rank 0: " + reception.missing() + " did not come to " +
                        to_text({address.host, local_port(listener)}) + " within " +
                        to_string(patience) + hint_for(address));
    }
    reception.welcome(std::move(*socket));
  }
  return reception.dismiss();
}

// The others --------------------------------------------------------------------------------------

// Whether rank 0 says welcome in time. Throws when it refuses this rank.
bool is_welcome(const Descriptor& socket, const Hello& hello, const Wait& wait) {
  Reply reply;
  if (receive_all(socket, bytes_of(reply), wait) != IoStatus::Done || reply.magic != kStoreMagic ||
      reply.answer == Answer::OtherJob) {
    return false;
  }
  if (reply.answer == Answer::Refused) {
    reply.text.back() = '\0';
    throw DeviceError("rank " + std::to_string(hello.rank) +
                      ": refused by rank 0: " + reply.text.data());
  }
  return true;
}

// One try at one port. Nothing when rank 0 of this job is not there.
std::optional<Descriptor> visit(const StoreAddress& address, Hello hello) {
  const Wait wait{.deadline = Clock::now() + kStrangerPatience};
  std::optional<Descriptor> socket = connect_to(address.host, address.port, wait);
  if (!socket) return std::nullopt;
  if (send_all(*socket, bytes_of(hello), wait) != IoStatus::Done ||
      !is_welcome(*socket, hello, wait)) {
    return std::nullopt;
  }
  return socket;
}

Links find_rank_0(const World& world, StoreAddress address, Duration patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  const StoreAddress first = address;
  const std::string name = "rank " + std::to_string(world.rank.value);
  Hello hello{.magic = kStoreMagic,
              .token = token_of(world),
              .rank = world.rank.value,
              .size = world.size,
              .channel = Channel::Calls};
  while (Clock::now() < deadline) {
    for (std::int32_t i = 0; i < kStorePorts; ++i) {
      address.port = static_cast<std::uint16_t>(first.port + i);
      hello.channel = Channel::Calls;
      std::optional<Descriptor> calls = visit(address, hello);
      if (!calls) continue;
      hello.channel = Channel::Control;
      std::optional<Descriptor> control = visit(address, hello);
      if (!control) break;
      // Rank 0 waits for the others, at most as long as it was told to.
      if (!is_welcome(*calls, hello, {.deadline = deadline + patience})) {
        throw DeviceError(name + ": rank 0 ended before all ranks had come");
      }
      Links links;
      links.local_address = local_address(*control);
      links.by_rank.push_back({.calls = std::move(*calls), .control = std::move(*control)});
      return links;
    }
    std::this_thread::sleep_for(kRetryPause);
  }
  throw DeviceError(name + ": rank 0 was not found at " + to_text(first) + " and the " +
                    std::to_string(kStorePorts - 1) + " ports after it within " +
                    to_string(patience) + hint_for(first));
}

}  // namespace

Links meet(const World& world, const StoreAddress& address, Duration patience) {
  if (world.size == 1) return {};
  if (world.rank == Rank{0}) return receive_ranks(world, address, patience);
  return find_rank_0(world, address, patience);
}

std::vector<Links> local_links(std::int32_t ranks) {
  std::vector<Links> links(static_cast<std::size_t>(ranks));
  for (Links& each : links) each.local_address = "127.0.0.1";
  links[0].by_rank.resize(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 1; rank < links.size(); ++rank) {
    auto [calls_0, calls] = connected_pair();
    auto [control_0, control] = connected_pair();
    links[0].by_rank[rank] = {.calls = std::move(calls_0), .control = std::move(control_0)};
    links[rank].by_rank.push_back({.calls = std::move(calls), .control = std::move(control)});
  }
  return links;
}

}  // namespace dovetail::exec::launch
