// How emulated communicators move data: barriers between ranks, and mailboxes through which chunks
// pass, with the arithmetic of reductions.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/nccl_link.h"

#include "tests/emulated/emulated.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

namespace dovetail::emulated {
namespace {

template <class T>
double load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}
template <>
double load<__half>(const char* from) {
  __half value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(__half2float(value));
}
template <>
double load<__nv_bfloat16>(const char* from) {
  __nv_bfloat16 value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(__bfloat162float(value));
}

template <class T>
void store(char* to, double value) {
  const T rounded = static_cast<T>(value);
  std::memcpy(to, &rounded, sizeof rounded);
}
template <>
void store<__half>(char* to, double value) {
  const __half rounded = __float2half(static_cast<float>(value));
  std::memcpy(to, &rounded, sizeof rounded);
}
template <>
void store<__nv_bfloat16>(char* to, double value) {
  const __nv_bfloat16 rounded = __float2bfloat16(static_cast<float>(value));
  std::memcpy(to, &rounded, sizeof rounded);
}

// to += from, each result rounded to the type.
template <class T>
void add(char* to, const char* from, std::size_t count) {
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    store<T>(to + i, load<T>(to + i) + load<T>(from + i));
  }
}
template <class T>
void scale(char* data, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
    store<T>(data + i, load<T>(data + i) * factor);
  }
}

// Calls action with a value of the type.
template <class Action>
void with_type(std::int32_t type, const Action& action) {
  switch (static_cast<ncclDataType_t>(type)) {
    case ncclFloat32:
      return action(float());
    case ncclFloat64:
      return action(double());
    case ncclFloat16:
      return action(__half());
    case ncclBfloat16:
      return action(__nv_bfloat16());
    case ncclInt8:
      return action(std::int8_t());
    default:
      complain("a collective of an element type that is not emulated");
  }
}

// One rank's side of one collective: publish the call, compare, then chunk by chunk put and take.
class CollectiveRun {
 public:
  CollectiveRun(Link& link, const Collective& what)
      : link_(link), what_(what), element_(size_of(static_cast<ncclDataType_t>(what.call.type))) {
    total_ = what.call.count;
    if (what.call.kind == CallKind::ReduceScatter) total_ *= link.ranks;
  }

  Progress step() {
    while (!link_.is_aborted) {
      if (stage_ != Stage::Begin && !link_.is_complete(barrier_)) return Progress::Waiting;
      if (is_refused_) return Progress::Waiting;
      switch (stage_) {
        case Stage::Begin:
          link_.segment->calls[link_.rank] = what_.call;
          next(Stage::Compare);
          break;
        case Stage::Compare:
          compare();
          next(Stage::Put);
          break;
        case Stage::Put:
          if (at_ >= total_) return Progress::Done;
          put();
          next(Stage::Take);
          break;
        case Stage::Take:
          take();
          at_ += part();
          next(Stage::Put);
          break;
      }
    }
    return Progress::Done;  // an aborted kernel leaves the device
  }

 private:
  enum class Stage { Begin, Compare, Put, Take };
  void next(Stage stage) {
    stage_ = stage;
    barrier_ = link_.arrive();
  }
  [[nodiscard]] std::size_t part() const { return std::min(kChunk / element_, total_ - at_); }

  // NCCL, Usage: collectives must be called in the same order, with the same count and type, by all
  // ranks of a communicator; else it hangs, crashes or corrupts data.
  void compare() {
    for (std::size_t rank = 0; rank < link_.ranks; ++rank) {
      const Call& theirs = link_.segment->calls[rank];
      if (theirs == what_.call) continue;
      is_refused_ = true;
      complain("NCCL: rank " + std::to_string(link_.rank) + " is in " + to_string(what_.call) +
               ", rank " + std::to_string(rank) + " in " + to_string(theirs));
    }
  }
  void put() {
    char* slot = link_.segment->slots[link_.rank].data();
    const bool is_read = what_.call.kind != CallKind::Broadcast ||
                         static_cast<std::size_t>(what_.call.root) == link_.rank;
    if (!is_read) return;
    std::memcpy(slot, what_.send + at_ * element_, part() * element_);
    if (what_.factor == 1) return;
    with_type(what_.call.type,
              [&](auto value) { scale<decltype(value)>(slot, part(), what_.factor); });
  }
  [[nodiscard]] const char* slot(std::size_t rank) const {
    return link_.segment->slots[rank].data();
  }
  // The sum of all slots, in rank order.
  std::vector<char> summed() const {
    std::vector<char> sum(slot(0), slot(0) + part() * element_);
    with_type(what_.call.type, [&](auto value) {
      for (std::size_t rank = 1; rank < link_.ranks; ++rank) {
        add<decltype(value)>(sum.data(), slot(rank), part());
      }
    });
    return sum;
  }
  void take() {
    const std::size_t count = what_.call.count;
    const std::size_t bytes = part() * element_;
    switch (what_.call.kind) {
      case CallKind::AllReduce:
        std::memcpy(what_.receive + at_ * element_, summed().data(), bytes);
        return;
      case CallKind::ReduceScatter: {
        const std::size_t begin = std::max(at_, count * link_.rank);
        const std::size_t end = std::min(at_ + part(), count * (link_.rank + 1));
        if (begin >= end) return;
        std::memcpy(what_.receive + (begin - count * link_.rank) * element_,
                    summed().data() + (begin - at_) * element_, (end - begin) * element_);
        return;
      }
      case CallKind::AllGather:
        for (std::size_t rank = 0; rank < link_.ranks; ++rank) {
          std::memcpy(what_.receive + (rank * count + at_) * element_, slot(rank), bytes);
        }
        return;
      case CallKind::Broadcast:
        std::memcpy(what_.receive + at_ * element_, slot(static_cast<std::size_t>(what_.call.root)),
                    bytes);
        return;
    }
  }

  Link& link_;
  Collective what_;
  std::size_t element_ = 1;
  std::size_t total_ = 0;
  std::size_t at_ = 0;
  Stage stage_ = Stage::Begin;
  std::uint64_t barrier_ = 0;
  bool is_refused_ = false;
};

class ParcelsRun {
 public:
  ParcelsRun(Link& link, std::vector<Parcel> parcels) : link_(link) {
    for (Parcel& parcel : parcels) open_.push_back({.parcel = parcel});
  }

  Progress step() {
    while (!link_.is_aborted) {
      bool moved = false;
      for (std::size_t i = 0; i < open_.size(); ++i)
        moved = (is_first(i) && move(open_[i])) || moved;
      std::erase_if(open_, [](const Open& one) { return one.is_done; });
      if (open_.empty()) return Progress::Done;
      if (!moved) return Progress::Waiting;
    }
    return Progress::Done;
  }

 private:
  struct Open {
    Parcel parcel;
    std::size_t at = 0;
    bool is_done = false;
  };
  [[nodiscard]] bool is_first(std::size_t index) const {
    const Parcel& own = open_[index].parcel;
    for (std::size_t i = 0; i < index; ++i) {
      const Parcel& other = open_[i].parcel;
      if (!open_[i].is_done && other.direction == own.direction && other.peer == own.peer) {
        return false;
      }
    }
    return true;
  }
  bool move(Open& one) {
    if (one.is_done) return false;
    const Parcel& parcel = one.parcel;
    const bool sends = parcel.direction == Direction::Send;
    auto& boxes = link_.segment->boxes;
    Mailbox& box = sends ? boxes[link_.rank][parcel.peer] : boxes[parcel.peer][link_.rank];
    if (box.is_full != (sends ? 0U : 1U)) return false;
    const std::size_t bytes = std::min(kParcel, parcel.bytes - one.at);
    if (sends) {
      std::memcpy(box.data.data(), parcel.data + one.at, bytes);
      box.bytes = static_cast<std::uint32_t>(bytes);
    } else {
      // NCCL, Point-to-point: both sides give the same count.
      if (box.bytes != bytes) complain("NCCL: a send and its receive have different sizes");
      std::memcpy(parcel.data + one.at, box.data.data(), std::min<std::size_t>(bytes, box.bytes));
    }
    box.is_full = sends ? 1U : 0U;
    one.at += bytes;
    one.is_done = one.at >= parcel.bytes;
    return true;
  }

  Link& link_;
  std::vector<Open> open_;
};

}  // namespace

std::string to_string(const Call& call) {
  constexpr std::array<const char*, 4> kNames = {"all-reduce", "reduce-scatter", "all-gather",
                                                 "broadcast"};
  std::ostringstream words;
  words << kNames[static_cast<std::size_t>(call.kind)] << " of " << call.count
        << " elements of type " << call.type;
  return words.str();
}

std::uint64_t Link::arrive() {
  segment->arrived.fetch_add(1);
  return ++barriers;
}

bool Link::is_complete(std::uint64_t barrier) const {
  return segment->arrived.load() >= barrier * ranks;
}

Segment* open_segment(const std::string& name) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (ftruncate(file, sizeof(Segment)) == 0) {
    memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Segment*>(memory);
}

void remove_segment(const std::string& name) { shm_unlink(name.c_str()); }

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
      return 8;
    default:
      return 4;
  }
}

double number_from(const char* data, ncclDataType_t type) {
  double number = 0;
  with_type(type, [&](auto value) { number = load<decltype(value)>(data); });
  return number;
}

Run communicate(Link& link, const Collective& what) {
  const auto run = std::make_shared<CollectiveRun>(link, what);
  return [run] { return run->step(); };
}

Run run_parcels(Link& link, std::vector<Parcel> parcels) {
  const auto run = std::make_shared<ParcelsRun>(link, std::move(parcels));
  return [run] { return run->step(); };
}

}  // namespace dovetail::emulated
