// Creates NCCL communicators and issues collectives on them. Creation and calls run under a watch
// with a deadline, since NCCL itself waits for ever for a peer that never comes.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/communicators.h"

#include "base/error.h"
#include "exec/selftest/encode.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

namespace dovetail::exec::cuda {
namespace {

using schedule::Collective;

// Less than the grace of call_guard.h, after which a process is ended.
constexpr Duration kAbortPatience = std::chrono::seconds(1);

static_assert(sizeof(ncclUniqueId) == kIdBytes);

ncclDataType_t nccl_type(Element element) {
  switch (element) {
    case Element::F32:
      return ncclFloat32;
    case Element::F16:
      return ncclFloat16;
    case Element::BF16:
      return ncclBfloat16;
    case Element::F64:
      return ncclFloat64;
  }
  return ncclFloat32;
}

// A sum of what was multiplied by a factor that the type holds exactly.
ncclRedOp_t make_multiplying_sum(Element element, double factor, ncclComm_t communicator) {
  const std::vector<std::byte> bytes =
      selftest::encode(dtype_of(element), std::array<double, 1>{factor});
  alignas(double) std::array<std::byte, sizeof(double)> scalar{};
  std::copy(bytes.begin(), bytes.end(), scalar.begin());
  ncclRedOp_t op = ncclSum;
  check(ncclRedOpCreatePreMulSum(&op, scalar.data(), nccl_type(element), ncclScalarHostImmediate,
                                 communicator),
        "ncclRedOpCreatePreMulSum");
  return op;
}

std::string make_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

// Gathers every rank's ids on rank 0 and hands all of them to everyone.
std::string meet(const Exchange& exchange, const std::string& mine) {
  std::string all;
  for (const std::string& part : exchange.gather(mine)) all += part;
  return exchange.broadcast(all);
}

// The call that talks to the peers.
const char* function_of(Collective kind, StandIn stand_in) {
  if (stand_in == StandIn::SendToSelf) return "ncclGroupEnd";
  switch (kind) {
    case Collective::AllReduce:
      return "ncclAllReduce";
    case Collective::ReduceScatter:
      return "ncclReduceScatter";
    case Collective::AllGather:
      return "ncclAllGather";
    case Collective::Broadcast:
      return "ncclBroadcast";
    case Collective::AllToAll:
      return "ncclGroupEnd";
    case Collective::SendRecv:
      return "ncclSend or ncclRecv";
  }
  return "NCCL";
}

// The calls in between become one. Closed whatever happens: an open group swallows all later calls
// of this thread.
template <class Calls>
void grouped(const Calls& calls) {
  check(ncclGroupStart(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    static_cast<void>(ncclGroupEnd());  // launches nothing, since a call has failed
    throw;
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
}

struct Seat {
  std::int32_t device = 0;
  ncclUniqueId id{};
  int ranks = 1;
  int rank = 0;
  std::int32_t max_ctas = 0;
  StandIn stand_in = StandIn::None;
  std::int32_t cluster_size = 0;
};

ncclComm_t take_seat(const Seat& seat) {
  check(cudaSetDevice(seat.device), "cudaSetDevice");  // the device is each thread's own choice
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  if (seat.max_ctas > 0) config.maxCTAs = seat.max_ctas;
  if (seat.max_ctas > 0 && seat.stand_in == StandIn::SendToSelf) config.minCTAs = seat.max_ctas;
  if (seat.cluster_size > 0) config.cgaClusterSize = seat.cluster_size;
  ncclComm_t communicator = nullptr;
  check(ncclCommInitRankConfig(&communicator, seat.ranks, seat.id, seat.rank, &config),
        "ncclCommInitRankConfig");
  return communicator;
}

std::string name_of(const CommunicatorKey& key, const schedule::Program& program) {
  std::ostringstream name;
  name << "connecting group " << program.group(key.group).name << " on stream " << key.stream;
  return name.str();
}

}  // namespace

Communicators::Communicators(const schedule::ScheduledProgram& plan, const DeviceMemory& memory,
                             Watch& watch, const Options& options)
    : plan_(plan),
      memory_(memory),
      watch_(watch),
      options_(options),
      stand_in_(options.stand_in),
      keys_(communicators_of(plan)),
      all_(keys_.size()),
      exceptions_at_start_(std::uncaught_exceptions()) {
  watch.set_library([this] { return error(); }, [this] { abort(); });
  try {
    connect(options.exchange);
  } catch (...) {
    abort();  // the destructor of an unfinished object does not run
    throw;
  }
}

KeptKey Communicators::kept_key(const CommunicatorKey& key) const {
  const schedule::ProcessGroup& group = plan_.program.group(key.group);
  return {.ranks = group.ranks,
          .instance_size = group.instance_size,
          .max_ctas = key.max_ctas,
          .stand_in = stand_in_,
          .cluster_size = options_.cluster_size};
}

std::vector<std::size_t> Communicators::take_kept() {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    std::optional<ncclComm_t> found;
    if (options_.kept != nullptr) found = options_.kept->take(kept_key(keys_[i]));
    if (found) {
      all_[i].communicator = *found;
    } else {
      missing.push_back(i);
    }
  }
  return missing;
}

void Communicators::connect(const Exchange& exchange) {
  create(exchange, take_kept());
  for (std::size_t i = 0; i < keys_.size(); ++i) register_block(i);
}

void Communicators::create(const Exchange& exchange, const std::vector<std::size_t>& missing) {
  if (missing.empty()) return;
  const Rank rank = exchange.rank;
  std::vector<CommunicatorKey> keys;
  for (const std::size_t i : missing) keys.push_back(keys_[i]);
  const std::string ids = meet(exchange, ids_made_by(plan_.program, keys, rank, make_id));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::span<const Rank> instance = plan_.program.group(keys[i].group).instance_of(rank);
    if (instance.empty()) continue;
    Seat seat;
    seat.device = options_.device;
    const std::string_view id = id_of(plan_.program, keys, rank, i, ids);
    std::memcpy(seat.id.internal, id.data(), kIdBytes);
    seat.ranks = static_cast<int>(instance.size());
    seat.rank =
        static_cast<int>(std::find(instance.begin(), instance.end(), rank) - instance.begin());
    seat.max_ctas = keys[i].max_ctas;
    seat.stand_in = stand_in_;
    seat.cluster_size = options_.cluster_size;
    // Shared, because the thread may outlive this call when the watch gives up.
    const auto taken = std::make_shared<ncclComm_t>(nullptr);
    watch_.run([seat, taken] { *taken = take_seat(seat); }, name_of(keys[i], plan_.program));
    all_[missing[i]].communicator = *taken;
  }
}

void Communicators::register_block(std::size_t index) {
  One& one = all_[index];
  const Block& block = memory_.block();
  if (one.communicator == nullptr || block.size() == Bytes(0)) return;
  const std::string name = name_of(keys_[index], plan_.program);
  watch_.call({.function = "ncclCommRegister", .subject = name}, [&] {
    check(ncclCommRegister(one.communicator, block.at(),
                           static_cast<std::size_t>(block.size().count()), &one.registration),
          "ncclCommRegister");
  });
}

Communicators::~Communicators() {
  // While an exception is on its way a peer may be gone: ncclCommDestroy would wait for it.
  if (std::uncaught_exceptions() > exceptions_at_start_) abort();
  if (is_aborted_) {
    static_cast<void>(aborts_.wait(kAbortPatience));
    return;
  }
  try {
    for (std::size_t i = 0; i < all_.size(); ++i) destroy(i);
  } catch (const std::exception&) {
    // It hung and was aborted; the other ranks have been told.
  }
}

// Or gives it back to where it came from.
void Communicators::destroy(std::size_t index) {
  const One& one = all_[index];
  if (one.communicator != nullptr) {
    watch_.call({.function = "ncclCommDestroy", .subject = "the end of the run"}, [&] {
      if (one.registration != nullptr) {
        static_cast<void>(ncclCommDeregister(one.communicator, one.registration));
      }
      for (const auto& [key, op] : one.multiplying) {
        static_cast<void>(ncclRedOpDestroy(op, one.communicator));
      }
      if (options_.kept == nullptr) static_cast<void>(ncclCommDestroy(one.communicator));
    });
  }
  if (options_.kept != nullptr) options_.kept->give(kept_key(keys_[index]), one.communicator);
}

std::size_t Communicators::index_of(const schedule::Command& command) const {
  return communicator_of(plan_, keys_, command);
}

void Communicators::reserve(const Message& message, std::size_t index) {
  One& one = all_.at(index);
  if (stand_in_ == StandIn::None) {
    if (message.factor == Rational()) return;
    const std::pair key(message.send.element, message.factor.value());
    if (one.multiplying.count(key) > 0) return;
    one.multiplying[key] = make_multiplying_sum(key.first, key.second, one.communicator);
    return;
  }
  const Bytes payload = Bytes(message.payload_bytes());
  if (payload > one.twin.size()) one.twin = DeviceBuffer(payload, "what a stand-in receives");
}

void Communicators::enqueue(const Message& message, std::size_t index, cudaStream_t stream) {
  const One& one = all_.at(index);
  DOVETAIL_CHECK(one.communicator != nullptr) << message.label;
  watch_.call({.function = function_of(message.kind, stand_in_), .subject = message.label},
              [&] { issue(message, one, stream); });
}

void Communicators::issue(const Message& message, const One& one, cudaStream_t stream) {
  if (stand_in_ == StandIn::SendToSelf) return send_to_self(message, one, stream);
  switch (message.kind) {
    case Collective::AllReduce:
    case Collective::ReduceScatter:
    case Collective::AllGather:
    case Collective::Broadcast:
      return reduce(message, one, stream);
    case Collective::AllToAll:
      return exchange_parts(message, one, stream);
    case Collective::SendRecv:
      return pass_on(message, one, stream);
  }
}

// With nothing to send NCCL would launch nothing.
void Communicators::send_to_self(const Message& message, const One& one, cudaStream_t stream) {
  const Region& larger = message.send.bytes() >= message.recv.bytes() ? message.send : message.recv;
  const auto bytes = static_cast<std::size_t>(larger.bytes());
  grouped([&] {
    check(ncclSend(memory_.at(larger).data, bytes, ncclInt8, 0, one.communicator, stream),
          "ncclSend");
    check(ncclRecv(one.twin.data(), bytes, ncclInt8, 0, one.communicator, stream), "ncclRecv");
  });
}

ncclRedOp_t Communicators::operation(const Message& message, const One& one) {
  if (message.op == schedule::ReduceOp::Average) return ncclAvg;
  if (message.factor == Rational()) return ncclSum;
  return one.multiplying.at({message.send.element, message.factor.value()});
}

void Communicators::reduce(const Message& message, const One& one, cudaStream_t stream) {
  const void* send = memory_.at(message.send).data;
  void* recv = memory_.at(message.recv).data;
  const auto count = static_cast<std::size_t>(message.count);
  const ncclDataType_t type = nccl_type(message.send.element);
  if (message.kind == Collective::AllReduce) {
    check(ncclAllReduce(send, recv, count, type, operation(message, one), one.communicator, stream),
          "ncclAllReduce");
  } else if (message.kind == Collective::ReduceScatter) {
    check(ncclReduceScatter(send, recv, count, type, operation(message, one), one.communicator,
                            stream),
          "ncclReduceScatter");
  } else if (message.kind == Collective::AllGather) {
    check(ncclAllGather(send, recv, count, type, one.communicator, stream), "ncclAllGather");
  } else {
    check(ncclBroadcast(send, recv, count, type, message.root, one.communicator, stream),
          "ncclBroadcast");
  }
}

// All-to-all: part i goes to the rank at index i.
void Communicators::exchange_parts(const Message& message, const One& one, cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(message.count);
  const std::size_t bytes = count * static_cast<std::size_t>(size_of(message.send.element));
  const ncclDataType_t type = nccl_type(message.send.element);
  const auto* send = static_cast<const char*>(memory_.at(message.send).data);
  auto* recv = static_cast<char*>(memory_.at(message.recv).data);
  grouped([&] {
    for (int peer = 0; peer < message.ranks; ++peer) {
      const std::size_t part = static_cast<std::size_t>(peer) * bytes;
      check(ncclSend(send + part, count, type, peer, one.communicator, stream), "ncclSend");
      check(ncclRecv(recv + part, count, type, peer, one.communicator, stream), "ncclRecv");
    }
  });
}

void Communicators::pass_on(const Message& message, const One& one, cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(message.count);
  const ncclDataType_t type = nccl_type(message.send.element);
  const int other = 1 - message.index;
  if (message.index == message.root) {
    check(ncclSend(memory_.at(message.send).data, count, type, other, one.communicator, stream),
          "ncclSend");
  } else {
    check(ncclRecv(memory_.at(message.recv).data, count, type, other, one.communicator, stream),
          "ncclRecv");
  }
}

std::string Communicators::error() const {
  if (is_aborted_) return "";
  for (const One& one : all_) {
    if (one.communicator == nullptr) continue;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(one.communicator, &state);
    const ncclResult_t worst = asked != ncclSuccess ? asked : state;
    if (worst != ncclSuccess && worst != ncclInProgress) {
      return std::string("NCCL: ") + ncclGetErrorString(worst);
    }
  }
  return "";
}

void Communicators::abort() {
  if (is_aborted_.exchange(true)) return;
  std::vector<std::function<void()>> calls;
  for (One& one : all_) {
    if (one.communicator == nullptr) continue;
    calls.emplace_back(
        [communicator = one.communicator] { static_cast<void>(ncclCommAbort(communicator)); });
  }
  aborts_.start(std::move(calls));
  static_cast<void>(aborts_.wait(kAbortPatience));
}

}  // namespace dovetail::exec::cuda
