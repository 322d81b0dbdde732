// TCP sockets over POSIX calls. Nothing blocks without a deadline: every wait is a poll() that
// also looks for the failure of a peer.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/socket.h"

#include "base/error.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace dovetail::exec::launch {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw DeviceError("cannot resolve host \"" + host + "\": " + gai_strerror(error));
  }
  return {found, &freeaddrinfo};
}

Descriptor make_socket(const addrinfo& address) {
  Descriptor socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                             address.ai_protocol));
  if (!socket.is_open()) throw DeviceError("socket: " + errno_text(errno));
  return socket;
}

// Small messages must not wait for an acknowledgement.
void send_at_once(const Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Waits until the socket is ready for `events`.
IoStatus await(const Descriptor& socket, std::int16_t events, const Wait& wait) {
  while (true) {
    std::array<pollfd, 2> fds{{{socket.get(), events, 0}, {wait.interrupt, POLLIN, 0}}};
    const int timeout = milliseconds_until(wait.deadline);
    const int ready = poll(fds.data(), fds.size(), timeout);  // a negative descriptor is skipped
    if (ready < 0 && errno != EINTR) throw DeviceError("poll: " + errno_text(errno));
    if (ready > 0 && fds[0].revents != 0) return IoStatus::Done;
    if (ready > 0 && fds[1].revents != 0) return IoStatus::Interrupted;
    if (timeout == 0) return IoStatus::TimedOut;
  }
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool is_numeric_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

std::optional<Descriptor> listen_on(const std::string& host, std::uint16_t port) {
  const AddressList addresses = resolve(host, port);
  Descriptor socket = make_socket(*addresses);
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    throw DeviceError("cannot listen on " + host + ":" + std::to_string(port) + ": " +
                      errno_text(errno));
  }
  return socket;
}

std::uint16_t local_port(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string local_address(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  std::array<char, NI_MAXHOST> text{};
  getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text.data(), text.size(), nullptr, 0,
              NI_NUMERICHOST);
  return text.data();
}

std::optional<Descriptor> connect_to(const std::string& host, std::uint16_t port,
                                     const Wait& wait) {
  const AddressList addresses = resolve(host, port);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Descriptor socket = make_socket(*address);
    if (connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) continue;
      if (await(socket, POLLOUT, wait) != IoStatus::Done) continue;
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) continue;
    }
    send_at_once(socket);
    return socket;
  }
  return std::nullopt;
}

std::optional<Descriptor> accept_from(const Descriptor& listener, const Wait& wait) {
  while (await(listener, POLLIN, wait) == IoStatus::Done) {
    Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      send_at_once(socket);
      return socket;
    }
    // A connection that went away before it was accepted is no reason to stop listening.
    if (errno != ECONNABORTED && !would_block(errno)) {
      throw DeviceError("accept: " + errno_text(errno));
    }
  }
  return std::nullopt;
}

std::pair<Descriptor, Descriptor> connected_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw DeviceError("socketpair: " + errno_text(errno));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

IoStatus send_all(const Descriptor& socket, std::span<const std::byte> bytes, const Wait& wait) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (!would_block(errno)) return IoStatus::Closed;
    const IoStatus status = await(socket, POLLOUT, wait);
    if (status != IoStatus::Done) return status;
  }
  return IoStatus::Done;
}

IoStatus receive_all(const Descriptor& socket, std::span<std::byte> bytes, const Wait& wait) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
      continue;
    }
    if (received == 0 || !would_block(errno)) return IoStatus::Closed;
    const IoStatus status = await(socket, POLLIN, wait);
    if (status != IoStatus::Done) return status;
  }
  return IoStatus::Done;
}

int poll_until(std::span<pollfd> descriptors, Clock::time_point time) {
  const auto left = std::max(Duration{}, std::chrono::ceil<Duration>(time - Clock::now()));
  const timespec timeout{.tv_sec = left.count() / 1'000'000'000,
                         .tv_nsec = left.count() % 1'000'000'000};
  return ppoll(descriptors.data(), descriptors.size(), &timeout, nullptr);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

std::string errno_text(int error) {
  std::array<char, 128> buffer{};
  // The GNU strerror_r returns the text, which may or may not lie in the buffer.
  return std::string(strerror_r(error, buffer.data(), buffer.size())) + " (" +
         std::to_string(error) + ")";
}

}  // namespace dovetail::exec::launch
