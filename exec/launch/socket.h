// TCP sockets with owners and deadlines: what the store, the session and the ring are made of.
//
// All sockets are non-blocking and close-on-exec; whoever waits does so in poll(), with a deadline
// and an eye on `interrupt`, a descriptor that becomes readable when the job has failed (or -1).
// Addresses are numeric or resolved host names; IPv4 and IPv6.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace dovetail::exec::launch {

using Clock = std::chrono::steady_clock;

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// How waiting for a socket ended.
enum class IoStatus { Done, Closed, TimedOut, Interrupted };

struct Wait {
  Clock::time_point deadline;
  int interrupt = -1;
};

// Whether the host is an address rather than a name.
bool is_numeric_address(const std::string& host);

// A listening socket, or nothing when the port is taken. Port 0 takes any free one. Throws
// DeviceError for any other reason, e.g. when the host is not an address of this machine.
std::optional<Descriptor> listen_on(const std::string& host, std::uint16_t port);
std::uint16_t local_port(const Descriptor& socket);
// The numeric address of our side of a connection, e.g. "10.77.0.1".
std::string local_address(const Descriptor& socket);

// A connection, or nothing when there is none by the deadline. Throws DeviceError when the host
// name cannot be resolved.
std::optional<Descriptor> connect_to(const std::string& host, std::uint16_t port, const Wait& wait);
// The next connection of a listener, or nothing by the deadline or when interrupted.
std::optional<Descriptor> accept_from(const Descriptor& listener, const Wait& wait);

// Two ends of one connection inside this process.
std::pair<Descriptor, Descriptor> connected_pair();

// Send or receive exactly these bytes.
IoStatus send_all(const Descriptor& socket, std::span<const std::byte> bytes, const Wait& wait);
IoStatus receive_all(const Descriptor& socket, std::span<std::byte> bytes, const Wait& wait);

// poll() that wakes up at this time, to the nanosecond as far as the system goes.
int poll_until(std::span<pollfd> descriptors, Clock::time_point time);

// Milliseconds until then as poll() takes them, rounded up, 0 when it has passed.
int milliseconds_until(Clock::time_point deadline);

// "Connection refused (111)"
std::string errno_text(int error);

}  // namespace dovetail::exec::launch
