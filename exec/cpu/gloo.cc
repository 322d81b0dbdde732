// Runs collectives with Gloo instead of our own ring: opens one Gloo context per process group
// over the session's store, and turns Gloo's exceptions into DeviceErrors that name the rank and
// the call.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/gloo.h"

#include "base/error.h"

#if DOVETAIL_HAVE_GLOO

#include "exec/launch/socket.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::cpu {
namespace {

using launch::Session;
using std::chrono::milliseconds;

// Gloo waits five times as long while it connects: a minute. Until then nobody can wake it
// (FailureWatch); the monitor of a process ends it sooner.
constexpr milliseconds kConnectTimeout{12'000};
// Above the prefixes of Gloo's own collectives (gloo/types.h).
constexpr std::uint64_t kReduceScatterSlot = std::uint64_t{0xD0} << 56;

// A rank of Gloo writes one value, its addresses, and then reads everybody's. So the write is the
// moment to exchange them all.
class SessionStore final : public gloo::rendezvous::Store {
 public:
  explicit SessionStore(Session& session) : session_(session) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string mine = key + '\n' + std::string(data.begin(), data.end());
    for (const std::string& entry : session_.all_gather(mine, "the exchange of Gloo's addresses")) {
      const std::size_t end = entry.find('\n');
      values_[entry.substr(0, end)] =
          std::vector<char>(entry.begin() + static_cast<std::ptrdiff_t>(end) + 1, entry.end());
    }
  }
  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    DOVETAIL_CHECK(found != values_.end()) << "Gloo reads \"" << key << "\" before it was written";
    return found->second;
  }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const milliseconds&) override {}

  [[nodiscard]] const std::map<std::string, std::vector<char>>& values() const { return values_; }

 private:
  Session& session_;
  std::map<std::string, std::vector<char>> values_;
};

// Address and port as bytes, "" for other than internet addresses. What else stands in a sockaddr_storage
// that Gloo hands out was never written.
std::string endpoint(const char* bytes, std::size_t count) {
  sockaddr_storage address{};
  std::memcpy(&address, bytes, std::min(count, sizeof(address)));
  const auto words = [](const auto& host, in_port_t port) {
    std::string text(reinterpret_cast<const char*>(&host), sizeof(host));
    return text.append(reinterpret_cast<const char*>(&port), sizeof(port));
  };
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return words(v4.sin_addr, v4.sin_port);
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return words(v6.sin6_addr, v6.sin6_port);
  }
  return "";
}

// Of a socket's own side (getsockname) or of the other one (getpeername).
std::string endpoint(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  std::array<char, sizeof(sockaddr_storage)> address{};
  socklen_t size = address.size();
  if (name(fd, reinterpret_cast<sockaddr*>(address.data()), &size) != 0) return "";
  return endpoint(address.data(), size);
}

class Mesh final : public gloo::rendezvous::Context {
 public:
  using gloo::rendezvous::Context::Context;

  void connect(Session& session) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = session.data_address();
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    SessionStore store(session);
    setTimeout(kConnectTimeout);
    connectFullMesh(store, device);
    // A rank's value is its addresses, one per peer, each at the same listening socket.
    for (const auto& [key, addresses] : store.values()) {
      if (key != std::to_string(rank)) peers_.insert(endpoint(addresses.data(), addresses.size()));
    }
  }

  void set_deadline(milliseconds deadline) {
    setTimeout(deadline);
    transportContext_->setTimeout(deadline);
  }

  // The connections to all peers are cut, so whoever waits for a message, or will, gets an
  // exception. Gloo keeps its sockets to itself: they are found among all of this process by the
  // address at which one side listened: ours, which Gloo tells, or the peer's, which it told us.
  void cut() {
    std::set<std::string> listened = peers_;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> bytes = getPair(peer)->address().bytes();
      listened.insert(endpoint(bytes.data(), bytes.size()));
    }
    listened.erase("");
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
      const int fd = std::atoi(entry.path().filename().c_str());
      if (listened.count(endpoint(fd, getsockname)) > 0 ||
          listened.count(endpoint(fd, getpeername)) > 0) {
        shutdown(fd, SHUT_RDWR);
      }
    }
  }

 private:
  std::set<std::string> peers_;  // where they listened
};

// Sleeps until the job fails, and then wakes whoever is inside Gloo.
class FailureWatch {
 public:
  FailureWatch(const launch::Failure& failure, Mesh& mesh)
      : stop_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), thread_([&failure, &mesh, this] {
          std::array<pollfd, 2> fds{{{failure.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
          while (poll(fds.data(), fds.size(), -1) < 0) {
          }
          if (fds[0].revents != 0 && fds[1].revents == 0) mesh.cut();
        }) {}
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;
  ~FailureWatch() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

 private:
  launch::Descriptor stop_;
  std::thread thread_;
};

// Gloo writes to sockets that a peer may have closed, without saying MSG_NOSIGNAL. While one of
// these lives, the SIGPIPE that would end the process stays pending, and is then taken away. Threads
// started meanwhile (Gloo's own) keep it blocked.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec no_time{};
    sigtimedwait(&sigpipe_, nullptr, &no_time);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t sigpipe_{};
  sigset_t before_{};
};

void add_floats(void* sum, const void* left, const void* right, std::size_t count) {
  auto* s = static_cast<float*>(sum);
  const auto* a = static_cast<const float*>(left);
  const auto* b = static_cast<const float*>(right);
  for (std::size_t i = 0; i < count; ++i) s[i] = a[i] + b[i];
}

void divide(std::span<float> data, std::size_t divisor) {
  for (float& value : data) value /= static_cast<float>(divisor);
}

class GlooTransport final : public Transport {
 public:
  GlooTransport(Session& session, const GlooOptions& options)
      : session_(session),
        ranks_(static_cast<std::size_t>(session.size())),
        rank_(static_cast<std::size_t>(session.rank().value)) {
    if (ranks_ == 1) return;
    mesh_ = std::make_shared<Mesh>(session.rank().value, static_cast<int>(session.size()));
    guard("the connection of Gloo", [&] { mesh_->connect(session); });
    mesh_->set_deadline(std::chrono::ceil<milliseconds>(options.deadline));
    watch_ = std::make_unique<FailureWatch>(session.failure(), *mesh_);
  }

  void all_reduce(std::span<float> data, schedule::ReduceOp op, std::string_view label) override {
    if (ranks_ == 1 || data.empty()) return;
    guard(label, [&] {
      gloo::AllreduceOptions options(mesh_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setReduceFunction(add_floats);
      options.setTag(++calls_);
      options.setOutput(data.data(), data.size());
      gloo::allreduce(options);
    });
    if (op == schedule::ReduceOp::Average) divide(data, ranks_);
  }

  void reduce_scatter(std::span<float> data, std::span<float> shard, schedule::ReduceOp op,
                      std::string_view label) override {
    DOVETAIL_CHECK(data.size() == shard.size() * ranks_) << data.size() << ' ' << shard.size();
    if (shard.empty()) return;
    if (ranks_ > 1) guard(label, [&] { pass_partial_sums(data, shard.size()); });
    const std::span<float> mine = data.subspan(rank_ * shard.size(), shard.size());
    if (mine.data() != shard.data()) std::copy(mine.begin(), mine.end(), shard.begin());
    if (op == schedule::ReduceOp::Average) divide(shard, ranks_);
  }

  void all_gather(std::span<const std::byte> shard, std::span<std::byte> data,
                  std::string_view label) override {
    DOVETAIL_CHECK(data.size() == shard.size() * ranks_) << data.size() << ' ' << shard.size();
    if (shard.empty()) return;
    const std::span<std::byte> mine = data.subspan(rank_ * shard.size(), shard.size());
    if (mine.data() != shard.data()) std::copy(shard.begin(), shard.end(), mine.begin());
    if (ranks_ == 1) return;
    guard(label, [&] {
      // Without an input, each rank's part is taken from its place in the output.
      gloo::AllgatherOptions options(mesh_);
      options.setTag(++calls_);
      options.setOutput(reinterpret_cast<char*>(data.data()), data.size());
      gloo::allgather(options);
    });
  }

  void all_to_all(std::span<const float>, std::span<float>, std::string_view label) override {
    refuse(label);
  }
  void broadcast(std::span<float>, std::size_t, std::string_view label) override { refuse(label); }
  void send(std::span<const float>, std::string_view label) override { refuse(label); }
  void receive(std::span<float>, std::string_view label) override { refuse(label); }

 private:
  [[noreturn]] static void refuse(std::string_view label) {
    throw InputError("Gloo reduces, scatters and gathers only, not " + std::string(label) +
                     "; use the transport \"ring\"");
  }

  // The first half of a ring all-reduce: afterwards segment r of rank r is the sum.
  void pass_partial_sums(std::span<float> data, std::size_t segment) {
    const std::size_t bytes = segment * sizeof(float);
    std::vector<float> arrived(segment);
    const auto out = mesh_->createUnboundBuffer(data.data(), data.size_bytes());
    const auto in = mesh_->createUnboundBuffer(arrived.data(), bytes);
    const int next = static_cast<int>((rank_ + 1) % ranks_);
    const int previous = static_cast<int>((rank_ + ranks_ - 1) % ranks_);
    const std::uint64_t slot = kReduceScatterSlot + ++calls_;
    for (std::size_t phase = 0; phase + 1 < ranks_; ++phase) {
      const std::size_t send = (rank_ + 2 * ranks_ - phase - 1) % ranks_;
      const std::size_t receive = (send + ranks_ - 1) % ranks_;
      in->recv(previous, slot);
      out->send(next, slot, send * bytes, bytes);
      in->waitRecv();
      float* sum = data.data() + receive * segment;
      add_floats(sum, sum, arrived.data(), segment);
      out->waitSend();
    }
  }

  void guard(std::string_view label, const std::function<void()>& body) const {
    // A wait that begins once the connections are cut (FailureWatch) may not be told of it.
    if (session_.failed()) session_.throw_failure("the job failed", label);
    const NoSigpipe no_sigpipe;
    try {
      body();
    } catch (const DeviceError&) {
      throw;  // of the session, while ranks exchanged addresses
    } catch (const std::exception& error) {
      session_.throw_failure(std::string("Gloo: ") + error.what(), label);
    }
  }

  Session& session_;
  std::size_t ranks_;
  std::size_t rank_;
  std::uint32_t calls_ = 0;
  std::shared_ptr<Mesh> mesh_;
  std::unique_ptr<FailureWatch> watch_;  // ends before the mesh does
};

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<Transport> open_gloo(Session& session, const GlooOptions& options) {
  return std::make_unique<GlooTransport>(session, options);
}

}  // namespace dovetail::exec::cpu

#else

namespace dovetail::exec::cpu {

bool has_gloo() { return false; }

std::unique_ptr<Transport> open_gloo(launch::Session&, const GlooOptions&) {
  throw InputError("this program was built without Gloo; use the transport \"ring\"");
}

}  // namespace dovetail::exec::cpu

#endif
