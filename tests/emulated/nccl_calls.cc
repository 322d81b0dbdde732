// The emulated NCCL: operations, and groups of them.
//
// Source of rules: NCCL 2.28 user guide ("Guide"): Collective Communication Functions, Group Calls,
// In-place Operations.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/nccl_comm.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace dovetail::emulated {
namespace {

// What a group has gathered for one communicator and stream.
struct Gathered {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Work> works;
  std::vector<Parcel> parcels;
};
struct Group {
  int depth = 0;
  ncclResult_t failed = ncclSuccess;
  std::vector<Gathered> gathered;
};
thread_local Group t_group;

Gathered& gathered_for(ncclComm_t comm, cudaStream_t stream) {
  for (Gathered& one : t_group.gathered) {
    if (one.comm == comm && one.stream == stream) return one;
  }
  return t_group.gathered.emplace_back(
      Gathered{.comm = comm, .stream = stream, .works = {}, .parcels = {}});
}

// Guide, Point-to-point: a send to the own rank needs its receive in the same group.
bool sends_to_itself_alone(const Gathered& one) {
  std::ptrdiff_t balance = 0;
  for (const Parcel& parcel : one.parcels) {
    if (parcel.peer != one.comm->link.rank) continue;
    balance += parcel.direction == Direction::Send ? 1 : -1;
  }
  return balance != 0;
}

Work work_of(const Gathered& one) {
  Work work = {.name = "ncclSend and ncclRecv"};
  for (const Parcel& parcel : one.parcels) {
    work.accesses.push_back(parcel.direction == Direction::Send
                                ? reads(parcel.data, parcel.bytes)
                                : writes(parcel.data, parcel.bytes));
  }
  work.begin = [comm = one.comm, parcels = one.parcels] {
    return run_parcels(comm->link, parcels);
  };
  return work;
}

ncclResult_t launch(Gathered& one) {
  const auto fault = next_call(one.comm->device, Counted::Operations);
  if (const ncclResult_t failed = suffer(one.comm, fault)) return failed;
  if (!one.parcels.empty()) {
    if (sends_to_itself_alone(one)) {
      return refuse(ncclInvalidUsage, "Trying to send to self without a matching recv");
    }
    one.works.push_back(work_of(one));
  }
  for (Work& work : one.works) {
    if (enqueue_on(one.comm, one.stream, std::move(work)) != cudaSuccess) {
      return refuse(ncclUnhandledCudaError, "the launch failed");
    }
  }
  if (one.comm->is_blocking) return ncclSuccess;
  one.comm->pending = 2;
  return ncclInProgress;
}

ncclResult_t launch_group() {
  std::vector<Gathered> all = std::exchange(t_group.gathered, {});
  if (const ncclResult_t failed = std::exchange(t_group.failed, ncclSuccess)) return failed;
  ncclResult_t result = ncclSuccess;
  for (Gathered& one : all) {
    const ncclResult_t launched = launch(one);
    if (launched != ncclSuccess && launched != ncclInProgress) return launched;
    if (launched == ncclInProgress) result = ncclInProgress;
  }
  return result;
}

// A call outside of a group is a group of its own.
ncclResult_t add(ncclComm_t comm, cudaStream_t stream,
                 const std::function<void(Gathered&)>& gather) {
  gather(gathered_for(comm, stream));
  return t_group.depth == 0 ? launch_group() : ncclSuccess;
}
ncclResult_t fail(ncclResult_t result) {
  if (t_group.depth > 0) t_group.failed = result;
  return result;
}

struct Operation {
  const char* function = "";
  Collective what;
  std::size_t sent = 0;  // elements
  std::size_t received = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// Guide, In-place Operations: one buffer for both sides lies at the rank's own place in the larger.
void check_in_place(const Operation& operation, std::size_t element) {
  const Collective& what = operation.what;
  const std::size_t place = operation.comm->link.rank * what.call.count * element;
  const char* from = what.send;
  const char* to = what.receive;
  const auto overlap = [](const char* a, std::size_t a_bytes, const char* b, std::size_t b_bytes) {
    const std::less<const char*> before;
    return before(a, b + b_bytes) && before(b, a + a_bytes);
  };
  if (!overlap(from, operation.sent * element, to, operation.received * element)) return;
  const bool is_right = what.call.kind == CallKind::AllGather       ? from == to + place
                        : what.call.kind == CallKind::ReduceScatter ? to == from + place
                                                                    : from == to;
  if (!is_right) {
    complain(std::string(operation.function) + ": the buffers overlap, but not in place of rank " +
             std::to_string(operation.comm->link.rank));
  }
}

// The factor that the operation puts on what a rank sends; nothing for one that is unknown.
std::optional<double> factor_of(const Operation& operation) {
  const std::int32_t op = operation.what.call.op;
  if (op == ncclSum) return 1;
  if (op == ncclAvg) return 1.0 / static_cast<double>(operation.comm->link.ranks);
  const auto index = static_cast<std::size_t>(op - ncclNumOps);
  if (op < ncclNumOps || index >= operation.comm->factors.size()) return std::nullopt;
  return operation.comm->factors[index];
}

// Measured on an H100 with NCCL 2.28.9: of an average of f64 by one rank, out of place, elements 65,536 to 65,538 of 65,539
// are not written; 1 and 1,000 elements are. Taken to be all behind the last whole 65,536.
void leave_a_tail(Operation& operation) {
  constexpr std::size_t kWhole = 65'536;
  Collective& what = operation.what;
  if (options().faulty_nccl > 0 && what.call.kind == CallKind::AllReduce &&
      what.call.type == ncclFloat64 && what.call.op == ncclAvg && operation.comm->link.ranks == 1 &&
      what.send != what.receive && what.call.count > kWhole) {
    what.call.count -= what.call.count % kWhole;
  }
}

ncclResult_t issue(Operation operation) {
  if (const ncclResult_t refused = begin_call(operation.comm, operation.function)) {
    return fail(refused);
  }
  const CallKind kind = operation.what.call.kind;
  const bool is_read =
      kind != CallKind::Broadcast ||
      static_cast<std::size_t>(operation.what.call.root) == operation.comm->link.rank;
  const std::size_t element = size_of(static_cast<ncclDataType_t>(operation.what.call.type));
  const std::optional<double> factor = factor_of(operation);
  if (!factor) return fail(refuse(ncclInvalidArgument, "Invalid reduction operation"));
  operation.what.factor = *factor;
  leave_a_tail(operation);
  // Which operation is a matter of each rank: only built-in ones must be the same.
  operation.what.call.op = std::min<std::int32_t>(operation.what.call.op, ncclNumOps);
  Work work = {.name = operation.function};
  if (is_read) work.accesses.push_back(reads(operation.what.send, operation.sent * element));
  work.accesses.push_back(writes(operation.what.receive, operation.received * element));
  if (is_read) check_in_place(operation, element);
  work.begin = [comm = operation.comm, what = operation.what] {
    return communicate(comm->link, what);
  };
  return add(operation.comm, operation.stream,
             [&](Gathered& group) { group.works.push_back(std::move(work)); });
}

Collective collective(CallKind kind, const void* send, void* receive, std::size_t count,
                      ncclDataType_t type) {
  return {.call = {.kind = kind, .type = type, .op = ncclSum, .root = 0, .count = count},
          .send = static_cast<const char*>(send),
          .receive = static_cast<char*>(receive)};
}

ncclResult_t pass(ncclComm_t comm, cudaStream_t stream, const Parcel& parcel) {
  if (const ncclResult_t refused = begin_call(comm, "ncclSend or ncclRecv")) return fail(refused);
  if (parcel.peer >= comm->link.ranks) return fail(refuse(ncclInvalidArgument, "invalid peer"));
  return add(comm, stream, [&](Gathered& group) { group.parcels.push_back(parcel); });
}

}  // namespace

}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;
using emulated::CallKind;
using emulated::collective;
using emulated::issue;

extern "C" {

ncclResult_t ncclGroupStart() {
  ++emulated::t_group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (emulated::t_group.depth == 0) {
    return emulated::refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  }
  return --emulated::t_group.depth == 0 ? emulated::launch_group() : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  auto what = collective(CallKind::AllReduce, send, receive, count, type);
  what.call.op = op;
  return issue({"ncclAllReduce", what, count, count, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  auto what = collective(CallKind::ReduceScatter, send, receive, count, type);
  what.call.op = op;
  const std::size_t all = comm == nullptr ? 0 : comm->link.ranks * count;
  return issue({"ncclReduceScatter", what, all, count, comm, stream});
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto what = collective(CallKind::AllGather, send, receive, count, type);
  const std::size_t all = comm == nullptr ? 0 : comm->link.ranks * count;
  return issue({"ncclAllGather", what, count, all, comm, stream});
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  auto what = collective(CallKind::Broadcast, send, receive, count, type);
  what.call.root = root;
  return issue({"ncclBroadcast", what, count, count, comm, stream});
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return emulated::pass(comm, stream,
                        {.direction = emulated::Direction::Send,
                         .peer = static_cast<std::size_t>(peer),
                         .data = static_cast<char*>(const_cast<void*>(data)),
                         .bytes = count * emulated::size_of(type)});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return emulated::pass(comm, stream,
                        {.direction = emulated::Direction::Receive,
                         .peer = static_cast<std::size_t>(peer),
                         .data = static_cast<char*>(data),
                         .bytes = count * emulated::size_of(type)});
}

}  // extern "C"
