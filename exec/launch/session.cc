// Calls over the star: others send to rank 0, rank 0 sends to the others.
//
// Each message begins with the kind of call, so that ranks which disagree find out at once.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/session.h"

#include "base/error.h"
#include "exec/launch/monitor.h"
#include "exec/launch/netns.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

namespace dovetail::exec::launch {
namespace {

// In the order of CallKind.
constexpr std::array<std::string_view, 4> kCallNames{"barrier", "broadcast", "gather",
                                                     "all-gather"};

struct CallHeader {
  std::uint32_t kind = 0;
  std::uint32_t reserved = 0;
  std::uint64_t length = 0;
};

std::string rank_name(Rank rank) { return "rank " + std::to_string(rank.value); }

std::span<const std::byte> text_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A list of strings as one: each with its length in front.
std::string pack(const std::vector<std::string>& parts) {
  std::string packed;
  for (const std::string& part : parts) {
    const std::uint64_t length = part.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof(length));
    packed += part;
  }
  return packed;
}

std::vector<std::string> unpack(std::string_view packed) {
  std::vector<std::string> parts;
  while (!packed.empty()) {
    std::uint64_t length = 0;
    std::memcpy(&length, packed.data(), sizeof(length));
    parts.emplace_back(packed.substr(sizeof(length), length));
    packed.remove_prefix(sizeof(length) + length);
  }
  return parts;
}

}  // namespace

Session::Session(World world, Links links, Kind kind, SessionOptions options)
    : world_(std::move(world)),
      links_(std::move(links)),
      options_(std::move(options)),
      exceptions_at_start_(std::uncaught_exceptions()) {
  if (world_.size == 1) return;
  Monitor::Options monitor{.heartbeat = options_.heartbeat,
                           .silence = options_.silence,
                           .is_process = kind == Kind::Process,
                           .graces = options_.graces,
                           .clock = options_.clock};
  monitor.last_words = [this] {
    const std::lock_guard lock(words_mutex_);
    return last_words_.empty() ? rank_name(rank()) + ": " + failure_.message() : last_words_;
  };
  if (rank() == Rank{0}) {
    for (Rank peer{1}; peer.value < world_.size; ++peer.value) {
      monitor.peers.push_back({.rank = peer, .control = link_to(peer).control.get()});
    }
  } else {
    monitor.peers.push_back({.rank = Rank{0}, .control = link_to(Rank{0}).control.get()});
  }
  monitor_ = std::make_unique<Monitor>(std::move(monitor), failure_);
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_at_start_) abort("it ended with an error");
  monitor_.reset();
}

void Session::barrier(std::string_view what) {
  const Call call{.kind = CallKind::Barrier, .what = what};
  const std::lock_guard lock(calls_);
  collect(call, "");
  distribute(call, "");
}

std::string Session::broadcast(std::string_view bytes, std::string_view what) {
  const std::lock_guard lock(calls_);
  return distribute({.kind = CallKind::Broadcast, .what = what}, bytes);
}

std::vector<std::string> Session::gather(std::string_view bytes, std::string_view what) {
  const std::lock_guard lock(calls_);
  return collect({.kind = CallKind::Gather, .what = what}, bytes);
}

std::vector<std::string> Session::all_gather(std::string_view bytes, std::string_view what) {
  const Call call{.kind = CallKind::AllGather, .what = what};
  const std::lock_guard lock(calls_);
  return unpack(distribute(call, pack(collect(call, bytes))));
}

void Session::abort(const std::string& reason) {
  // What a call threw begins with the name of its rank already.
  const std::string prefix = rank_name(rank()) + ": ";
  const bool is_named = reason.compare(0, prefix.size(), prefix) == 0;
  failure_.raise(rank_name(rank()) +
                 " failed: " + (is_named ? reason.substr(prefix.size()) : reason));
  if (monitor_ != nullptr) monitor_->wake();
}

void Session::throw_failure(const std::string& suspicion, std::string_view label) const {
  const std::string news = failure_.await(options_.graces.news);
  // A rank that was stopped and goes on too late hears what the others think of it.
  const bool is_about_me = news.rfind(rank_name(rank()) + " does not answer", 0) == 0;
  const std::string words = rank_name(rank()) + ": " + (is_about_me ? "given up: " : "") +
                            (news.empty() ? suspicion : news) + " during " + std::string(label);
  {
    const std::lock_guard lock(words_mutex_);
    last_words_ = words;
  }
  throw DeviceError(words);
}

std::string Session::data_address() const {
  if (options_.network_namespace.empty()) return links_.local_address;
  std::string address = first_network_address();
  if (address.empty()) {
    throw DeviceError(rank_name(rank()) + ": network namespace " + options_.network_namespace +
                      std::to_string(world_.local_rank) + " has no address");
  }
  return address;
}

// At rank 0, the bytes of all ranks; at the others, nothing.
std::vector<std::string> Session::collect(const Call& call, std::string_view bytes) {
  if (rank() != Rank{0}) {
    send(Rank{0}, call, bytes);
    return {};
  }
  std::vector<std::string> all{std::string(bytes)};
  for (Rank peer{1}; peer.value < world_.size; ++peer.value) all.push_back(receive(peer, call));
  return all;
}

std::string Session::distribute(const Call& call, std::string_view bytes) {
  if (rank() != Rank{0}) return receive(Rank{0}, call);
  for (Rank peer{1}; peer.value < world_.size; ++peer.value) send(peer, call, bytes);
  return std::string(bytes);
}

void Session::send(Rank to, const Call& call, std::string_view bytes) {
  const CallHeader header{.kind = static_cast<std::uint32_t>(call.kind), .length = bytes.size()};
  const Wait wait{.deadline = Clock::now() + options_.call_deadline, .interrupt = failure_.fd()};
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message += bytes;
  throw_unless_done(send_all(link_to(to).calls, text_bytes(message), wait), to, call);
}

std::string Session::receive(Rank from, const Call& call) {
  CallHeader header;
  const Wait wait{.deadline = Clock::now() + options_.call_deadline, .interrupt = failure_.fd()};
  const Descriptor& socket = link_to(from).calls;
  const auto header_bytes = std::as_writable_bytes(std::span(&header, 1));
  throw_unless_done(receive_all(socket, header_bytes, wait), from, call);
  const auto kind = static_cast<std::uint32_t>(call.kind);
  if (header.kind != kind) {
    const std::string_view theirs = kCallNames[header.kind % kCallNames.size()];
    throw DeviceError(rank_name(rank()) + ": " + rank_name(from) + " is at a " +
                      std::string(theirs) + ", this rank at " + std::string(call.what) + " (a " +
                      std::string(kCallNames[kind]) + ")");
  }
  std::string bytes(header.length, '\0');
  const auto content = std::as_writable_bytes(std::span(bytes.data(), bytes.size()));
  throw_unless_done(receive_all(socket, content, wait), from, call);
  return bytes;
}

void Session::throw_unless_done(IoStatus status, Rank peer, const Call& call) const {
  if (status == IoStatus::Done) return;
  if (status == IoStatus::TimedOut) {
    throw DeviceError(rank_name(rank()) + ": " + rank_name(peer) + " did not come within " +
                      to_string(options_.call_deadline) + " during " + std::string(call.what));
  }
  throw_failure(rank_name(peer) + " left", call.what);
}

const Link& Session::link_to(Rank peer) const {
  return links_.by_rank[rank() == Rank{0} ? static_cast<std::size_t>(peer.value) : 0];
}

void tell_others_of_errors(Session& session, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    session.abort(error.what());
    throw;
  }
}

std::unique_ptr<Session> connect(const World& world, const SessionOptions& options) {
  const StoreAddress address = store_address(world, process_environment(), options.store);
  Links links = meet(world, address, options.patience);
  if (links.local_address.empty()) links.local_address = "127.0.0.1";
  if (options.cores == Cores::OneEach) pin_to_core_of(world.local_rank);
  // Its monitor still runs outside, where rank 0 was met; sockets stay where they were made.
  auto session =
      std::make_unique<Session>(world, std::move(links), Session::Kind::Process, options);
  if (!options.network_namespace.empty()) {
    enter_network_namespace(options.network_namespace + std::to_string(world.local_rank));
  }
  return session;
}

}  // namespace dovetail::exec::launch
