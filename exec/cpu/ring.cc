// The ring as two byte streams, one in and one out, that one loop moves along.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/ring.h"

#include "base/error.h"
#include "exec/cpu/ring_course.h"
#include "exec/launch/affinity.h"
#include "exec/launch/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::exec::cpu {
namespace {

using launch::Clock;
using launch::Descriptor;
using launch::IoStatus;
using launch::Session;
using ring::Arrival;
using ring::Course;
using ring::Header;
using ring::Inbound;
using ring::kKinds;
using ring::Position;

constexpr std::array<char, 16> kRingMagic{"dovetail.ring/1"};

// What a rank says when it connects to its successor.
struct RingHello {
  std::array<char, 16> magic{};
  std::int32_t rank = 0;
};

std::string rank_name_of(Rank rank) { return "rank " + std::to_string(rank.value); }

void add(std::span<float> target, const float* summand) {
  float* sum = target.data();
  for (std::size_t i = 0; i < target.size(); ++i) sum[i] += summand[i];
}

void add_and_divide(std::span<float> target, const float* summand, float divisor) {
  float* sum = target.data();
  for (std::size_t i = 0; i < target.size(); ++i) sum[i] = (sum[i] + summand[i]) / divisor;
}

class Ring final : public Transport {
 public:
  Ring(Session& session, std::span<const Rank> ranks, const RingOptions& options)
      : session_(session),
        options_(options),
        ranks_(ranks.size()),
        rank_(static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), session.rank()) -
                                       ranks.begin())),
        sender_(options.link),
        scratch_(static_cast<std::size_t>(options.chunk.count()) / sizeof(float)) {
    DOVETAIL_CHECK(!scratch_.empty()) << options.chunk;
    DOVETAIL_CHECK(rank_ < ranks_) << "rank " << session.rank() << " opens a ring of others";
    next_rank_ = ranks[(rank_ + 1) % ranks_];
    previous_rank_ = ranks[(rank_ + ranks_ - 1) % ranks_];
    if (options.link != nullptr) launch::ask_for_exact_timers();
    if (session.size() > 1) connect_neighbours();
  }

  void all_reduce(std::span<float> data, schedule::ReduceOp op, std::string_view label) override {
    if (ranks_ == 1) return;
    begin(ring::AllReduce, data.size_bytes());
    const std::size_t even = data.size() / ranks_;
    const std::size_t longer = data.size() % ranks_;  // that many segments have one element more
    const auto segment = [&](std::size_t index) {
      const std::size_t r = index % ranks_;
      return std::as_writable_bytes(
          data.subspan(r * even + std::min(r, longer), even + (r < longer ? 1 : 0)));
    };
    add_reduce_phases(segment, op);
    add_gather_phases(segment);
    run(label);
  }

  void reduce_scatter(std::span<float> data, std::span<float> shard, schedule::ReduceOp op,
                      std::string_view label) override {
    DOVETAIL_CHECK(data.size() == shard.size() * ranks_) << data.size() << ' ' << shard.size();
    const std::span<std::byte> bytes = std::as_writable_bytes(data);
    const auto segment = [&](std::size_t index) {
      return bytes.subspan(index % ranks_ * shard.size_bytes(), shard.size_bytes());
    };
    if (ranks_ > 1) {
      begin(ring::ReduceScatter, bytes.size());
      add_reduce_phases(segment, op);
      run(label);
    }
    copy(segment(rank_), std::as_writable_bytes(shard));
  }

  void all_gather(std::span<const std::byte> shard, std::span<std::byte> data,
                  std::string_view label) override {
    DOVETAIL_CHECK(data.size() == shard.size() * ranks_) << data.size() << ' ' << shard.size();
    const auto segment = [&](std::size_t index) {
      return data.subspan(index % ranks_ * shard.size(), shard.size());
    };
    copy(shard, segment(rank_));
    if (ranks_ == 1) return;
    begin(ring::AllGather, data.size());
    add_gather_phases(segment);
    run(label);
  }

  void all_to_all(std::span<const float> data, std::span<float> received,
                  std::string_view label) override {
    DOVETAIL_CHECK(data.size() == received.size() && data.size() % ranks_ == 0) << data.size();
    const std::size_t part = data.size() / ranks_;
    std::ranges::copy(data.subspan(rank_ * part, part), received.subspan(rank_ * part).begin());
    if (ranks_ == 1) return;
    begin(ring::AllToAll, data.size_bytes());
    add_exchange_phases(std::as_bytes(data), std::as_writable_bytes(received));
    run(label);
  }

  void broadcast(std::span<float> data, std::size_t root, std::string_view label) override {
    DOVETAIL_CHECK(root < ranks_) << root;
    if (ranks_ == 1) return;
    const std::span<std::byte> bytes = std::as_writable_bytes(data);
    begin(ring::Broadcast, bytes.size());
    if (rank_ == root) {
      course_.out = {bytes};
    } else {
      course_.out = {{}};
      const bool is_last = (rank_ + 1) % ranks_ == root;
      course_.in = {{.target = bytes, .action = Arrival::Store, .is_passed_on = !is_last}};
      if (!is_last) course_.out.push_back(bytes);
    }
    run(label);
  }

  void send(std::span<const float> data, std::string_view label) override {
    DOVETAIL_CHECK(ranks_ == 2) << ranks_;
    begin(ring::Send, data.size_bytes());
    course_.out = {std::as_bytes(data)};
    run(label);
  }

  void receive(std::span<float> data, std::string_view label) override {
    DOVETAIL_CHECK(ranks_ == 2) << ranks_;
    begin(ring::Receive, data.size_bytes());
    course_.out = {{}};
    course_.in = {
        {.target = std::as_writable_bytes(data), .action = Arrival::Store, .is_passed_on = false}};
    run(label);
  }

 private:
  // Building a course ---------------------------------------------------------------------------

  static void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    if (from.data() != to.data()) std::ranges::copy(from, to.begin());
  }

  void begin(std::uint32_t kind, std::size_t bytes) {
    course_.header = {.number = course_.header.number + 1, .kind = kind, .bytes = bytes};
    course_.out.clear();
    course_.in.clear();
    course_.at_once = 1;
  }

  // Afterwards segment r is complete on rank r. Indices are taken modulo the number of ranks.
  template <class Segment>
  void add_reduce_phases(const Segment& segment, schedule::ReduceOp op) {
    for (std::size_t phase = 0; phase + 1 < ranks_; ++phase) {
      course_.out.push_back(segment(rank_ + 2 * ranks_ - phase - 1));
      const bool is_divided = phase + 2 == ranks_ && op == schedule::ReduceOp::Average;
      course_.in.push_back({.target = segment(rank_ + 2 * ranks_ - phase - 2),
                            .action = is_divided ? Arrival::AddAndDivide : Arrival::Add});
    }
    course_.in.back().is_passed_on = false;
  }

  template <class Segment>
  void add_gather_phases(const Segment& segment) {
    if (!course_.in.empty()) course_.in.back().is_passed_on = true;
    for (std::size_t phase = 0; phase + 1 < ranks_; ++phase) {
      course_.out.push_back(segment(rank_ + ranks_ - phase));
      course_.in.push_back({.target = segment(rank_ + ranks_ - phase - 1),  //
                            .action = Arrival::Store});
    }
    course_.in.back().is_passed_on = false;
  }

  // In phase p the parts that were sent to us by the rank p + 1 before us arrive: first the one for
  // this rank, which stays, then those for its successors, which are passed on.
  void add_exchange_phases(std::span<const std::byte> data, std::span<std::byte> received) {
    const std::size_t part = data.size() / ranks_;
    for (std::size_t ahead = 1; ahead < ranks_; ++ahead) {
      course_.out.push_back(data.subspan((rank_ + ahead) % ranks_ * part, part));
    }
    course_.at_once = course_.out.size();
    passing_.resize((ranks_ - 1) * (ranks_ - 2) / 2 * part);
    std::span<std::byte> room = passing_;
    for (std::size_t phase = 0; phase + 1 < ranks_; ++phase) {
      const std::size_t from = (rank_ + ranks_ - phase - 1) % ranks_;
      course_.in.push_back({.target = received.subspan(from * part, part),
                            .action = Arrival::Store,
                            .is_passed_on = false});
      const std::size_t count = (ranks_ - 2 - phase) * part;
      if (count == 0) continue;
      course_.in.push_back({.target = room.first(count), .action = Arrival::Store});
      course_.out.push_back(room.first(count));
      room = room.subspan(count);
    }
  }

  // Running it ----------------------------------------------------------------------------------

  void run(std::string_view label);
  bool send_some(std::string_view label);
  bool receive_some(std::string_view label);
  std::size_t receive_bytes(void* target, std::size_t size, std::string_view label);
  void take_in(const Inbound& inbound, std::size_t received);
  void take_over(const Inbound& inbound, std::size_t bytes);
  void check_header(std::string_view label) const;
  void wait_for_sockets(std::string_view label);
  void skip_empty_pieces();

  [[nodiscard]] bool is_sending() const { return sent_ < to_send_; }
  [[nodiscard]] bool is_receiving() const {
    return header_received_ < sizeof(Header) || in_.piece < course_.in.size();
  }
  [[noreturn]] void throw_closed(Rank peer, std::string_view label) const {
    session_.throw_failure(rank_name_of(peer) + " closed the connection", label);
  }

  void connect_neighbours();
  void accept_previous(const Descriptor& listener, const launch::Wait& wait);
  void tune(const Descriptor& socket) const;

  Session& session_;
  RingOptions options_;
  std::size_t ranks_;
  std::size_t rank_;
  Rank next_rank_;
  Rank previous_rank_;
  Descriptor next_;
  Descriptor previous_;

  PacedSender sender_;
  Course course_;
  std::vector<float> scratch_;      // arrived, not yet added
  std::vector<std::byte> passing_;  // on its way to other ranks
  std::size_t scratch_bytes_ = 0;   // of an element that has arrived in part
  Header header_in_;
  std::size_t header_received_ = 0;
  Position out_;
  Position in_;
  std::size_t sent_ = 0;     // bytes, with the header
  std::size_t to_send_ = 0;  // bytes that may leave by now: the first phase and what has arrived
  Clock::time_point last_progress_;
};

void Ring::run(std::string_view label) {
  header_received_ = 0;
  scratch_bytes_ = 0;
  sent_ = 0;
  to_send_ = sizeof(Header);
  for (std::size_t i = 0; i < course_.at_once; ++i) to_send_ += course_.out[i].size_bytes();
  out_ = {};
  in_ = {};
  last_progress_ = Clock::now();
  sender_.begin(last_progress_);
  skip_empty_pieces();
  while (is_sending() || is_receiving()) {
    bool has_moved = is_sending() && send_some(label);
    has_moved |= is_receiving() && receive_some(label);
    if (has_moved) {
      last_progress_ = Clock::now();
    } else {
      wait_for_sockets(label);
    }
  }
}

void Ring::skip_empty_pieces() {
  while (out_.piece < course_.out.size() && course_.out[out_.piece].empty()) ++out_.piece;
  while (in_.piece < course_.in.size() && course_.in[in_.piece].target.empty()) ++in_.piece;
}

bool Ring::send_some(std::string_view label) {
  const std::size_t allowed = sender_.allowed(to_send_ - sent_, Clock::now());
  if (allowed == 0) return false;
  const void* from = nullptr;
  std::size_t size = 0;
  int flags = MSG_NOSIGNAL;
  if (sent_ < sizeof(Header)) {
    from = reinterpret_cast<const std::byte*>(&course_.header) + sent_;
    size = sizeof(Header) - sent_;
    if (to_send_ > sizeof(Header)) flags |= MSG_MORE;  // no packet of its own
  } else {
    const std::span<const std::byte> piece = course_.out[out_.piece];
    from = piece.data() + out_.offset;
    size = std::min(piece.size() - out_.offset, static_cast<std::size_t>(options_.chunk.count()));
  }
  size = std::min(size, allowed);
  const ssize_t sent = ::send(next_.get(), from, size, flags);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    throw_closed(next_rank_, label);
  }
  const auto bytes = static_cast<std::size_t>(sent);
  if (sent_ >= sizeof(Header)) out_.advance(bytes, course_.out[out_.piece].size_bytes());
  sent_ += bytes;
  sender_.sent(bytes);
  skip_empty_pieces();
  return true;
}

// What has arrived is reduced at once, and may leave again.
bool Ring::receive_some(std::string_view label) {
  if (header_received_ < sizeof(Header)) {
    std::byte* header = reinterpret_cast<std::byte*>(&header_in_);
    const std::size_t received =
        receive_bytes(header + header_received_, sizeof(Header) - header_received_, label);
    header_received_ += received;
    if (header_received_ == sizeof(Header)) check_header(label);
    return received > 0;
  }
  const Inbound& inbound = course_.in[in_.piece];
  const std::size_t missing = inbound.target.size_bytes() - in_.offset;
  std::size_t received = 0;
  if (inbound.action == Arrival::Store) {
    std::byte* target = inbound.target.data() + in_.offset;
    received = receive_bytes(target, missing, label);
    take_over(inbound, received);
  } else {
    std::byte* target = reinterpret_cast<std::byte*>(scratch_.data()) + scratch_bytes_;
    const std::size_t room = scratch_.size() * sizeof(float) - scratch_bytes_;
    received = receive_bytes(target, std::min(missing - scratch_bytes_, room), label);
    take_in(inbound, received);
  }
  skip_empty_pieces();
  return received > 0;
}

// Adds the whole elements in scratch_; the bytes of a partial one stay for the next arrival.
void Ring::take_in(const Inbound& inbound, std::size_t received) {
  scratch_bytes_ += received;
  const std::size_t whole = scratch_bytes_ / sizeof(float);
  if (whole == 0) return;
  const std::span<float> target(reinterpret_cast<float*>(inbound.target.data() + in_.offset),
                                whole);
  if (inbound.action == Arrival::AddAndDivide) {
    add_and_divide(target, scratch_.data(), static_cast<float>(ranks_));
  } else {
    add(target, scratch_.data());
  }
  const std::size_t used = whole * sizeof(float);
  scratch_bytes_ -= used;
  if (scratch_bytes_ > 0) {
    std::byte* begin = reinterpret_cast<std::byte*>(scratch_.data());
    std::memmove(begin, begin + used, scratch_bytes_);
  }
  take_over(inbound, used);
}

// These bytes are final on this rank.
void Ring::take_over(const Inbound& inbound, std::size_t bytes) {
  if (inbound.is_passed_on) {
    if (!is_sending()) sender_.begin(Clock::now());
    to_send_ += bytes;
  }
  in_.advance(bytes, inbound.target.size_bytes());
}

void Ring::check_header(std::string_view label) const {
  Header expected = course_.header;
  if (expected.kind == ring::Send || expected.kind == ring::Receive) {
    expected.kind ^= ring::Send ^ ring::Receive;
  }
  if (header_in_ == expected) return;
  const auto text = [](const Header& header) {
    return "collective " + std::to_string(header.number) + " (" +
           kKinds[header.kind < kKinds.size() ? header.kind : 0] + " of " +
           std::to_string(header.bytes) + " bytes)";
  };
  throw DeviceError(rank_name_of(session_.rank()) + ": " + rank_name_of(previous_rank_) + " runs " +
                    text(header_in_) + ", this rank " + text(course_.header) + " during " +
                    std::string(label));
}

// Bytes that were there; 0 when there are none yet.
std::size_t Ring::receive_bytes(void* target, std::size_t size, std::string_view label) {
  const ssize_t received = ::recv(previous_.get(), target, size, 0);
  if (received > 0) return static_cast<std::size_t>(received);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  throw_closed(previous_rank_, label);
}

void Ring::wait_for_sockets(std::string_view label) {
  const int receiver = is_receiving() ? previous_.get() : -1;  // poll() skips negative descriptors
  const bool waits_for_link = is_sending() && sender_.departure() > Clock::now();
  const int sender = is_sending() && !waits_for_link ? next_.get() : -1;
  std::array<pollfd, 3> fds{
      {{receiver, POLLIN, 0}, {sender, POLLOUT, 0}, {session_.failure().fd(), POLLIN, 0}}};
  // The link's own time is not silence.
  const Clock::time_point deadline =
      std::max(last_progress_, sender_.departure()) + options_.deadline;
  const int ready = launch::poll_until(fds, waits_for_link ? sender_.departure() : deadline);
  if (ready < 0 && errno != EINTR) throw DeviceError("poll: " + launch::errno_text(errno));
  if (ready > 0 && fds[2].revents != 0) session_.throw_failure("a rank failed", label);
  if (ready == 0 && Clock::now() >= deadline) {
    const Rank peer = is_receiving() ? previous_rank_ : next_rank_;
    session_.throw_failure("no byte moved between this rank and " + rank_name_of(peer) + " for " +
                               to_string(options_.deadline),
                           label);
  }
}

// Meeting the neighbours --------------------------------------------------------------------------

void Ring::tune(const Descriptor& socket) const {
  if (session_.network_namespace().empty() && options_.link == nullptr) return;
  // A link that we shape, or pace: no other pacing, no probing. Refused where it is not available, and
  // not needed.
  constexpr std::string_view kReno = "reno";
  setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

void Ring::connect_neighbours() {
  const std::string address = session_.data_address();
  const std::optional<Descriptor> listener = launch::listen_on(address, 0);
  DOVETAIL_CHECK(listener.has_value()) << "no free port";
  const std::string endpoint = address + " " + std::to_string(launch::local_port(*listener));
  constexpr std::string_view kWhat = "the exchange of ring addresses";
  const std::string theirs =
      session_.all_gather(endpoint, kWhat)[static_cast<std::size_t>(next_rank_.value)];
  if (ranks_ == 1) return;

  const std::size_t space = theirs.find(' ');
  const std::string host = theirs.substr(0, space);
  const int port = std::stoi(theirs.substr(space + 1));
  const launch::Wait wait{.deadline = Clock::now() + options_.patience,
                          .interrupt = session_.failure().fd()};
  const RingHello hello{.magic = kRingMagic, .rank = session_.rank().value};
  std::optional<Descriptor> next = launch::connect_to(host, static_cast<std::uint16_t>(port), wait);
  if (!next ||
      launch::send_all(*next, std::as_bytes(std::span(&hello, 1)), wait) != IoStatus::Done) {
    session_.throw_failure(
        "no connection to " + rank_name_of(next_rank_) + " at " + host + ":" + std::to_string(port),
        "the connection of the ring");
  }
  next_ = std::move(*next);
  accept_previous(*listener, wait);
  tune(next_);
  tune(previous_);
}

// Whoever else connects to our port is sent away.
void Ring::accept_previous(const Descriptor& listener, const launch::Wait& wait) {
  while (std::optional<Descriptor> socket = launch::accept_from(listener, wait)) {
    RingHello hello;
    const auto bytes = std::as_writable_bytes(std::span(&hello, 1));
    if (launch::receive_all(*socket, bytes, wait) != IoStatus::Done || hello.magic != kRingMagic ||
        hello.rank != previous_rank_.value) {
      continue;
    }
    previous_ = std::move(*socket);
    return;
  }
  session_.throw_failure(rank_name_of(previous_rank_) + " did not connect",
                         "the connection of the ring");
}

}  // namespace

std::unique_ptr<Transport> open_ring(Session& session, const RingOptions& options) {
  std::vector<Rank> all;
  for (std::int32_t rank = 0; rank < session.size(); ++rank) all.push_back(Rank{rank});
  return open_ring(session, all, options);
}

std::unique_ptr<Transport> open_ring(Session& session, std::span<const Rank> ranks,
                                     const RingOptions& options) {
  return std::make_unique<Ring>(session, ranks, options);
}

}  // namespace dovetail::exec::cpu
