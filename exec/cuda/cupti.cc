// Records kernels and copies with CUPTI, opened with dlopen. The library has one set of callbacks
// per process, so all recorders share one store, and a stub stands in where the headers of CUPTI
// were missing.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cupti.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/cuda/check.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#if __has_include(<cupti.h>)
#include <cupti.h>
#define DOVETAIL_HAVE_CUPTI 1
#else
#define DOVETAIL_HAVE_CUPTI 0
#endif

namespace dovetail::exec::cuda {

#if DOVETAIL_HAVE_CUPTI

namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20U;
constexpr std::size_t kRecordAlignment = 8;
constexpr CUpti_ExternalCorrelationKind kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
// Records of calls are not kept, but external ids come only with them: NCCL launches through the
// driver, all others through the runtime.
constexpr std::array<CUpti_ActivityKind, 6> kKinds = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                                      CUPTI_ACTIVITY_KIND_RUNTIME,
                                                      CUPTI_ACTIVITY_KIND_DRIVER,
                                                      CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                      CUPTI_ACTIVITY_KIND_MEMCPY,
                                                      CUPTI_ACTIVITY_KIND_MEMSET};

// What we call. `next_record` serves the callback, which has no object to ask.
struct Api {
  CUptiResult (*enable)(CUpti_ActivityKind) = nullptr;
  CUptiResult (*disable)(CUpti_ActivityKind) = nullptr;
  CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc,
                                    CUpti_BuffersCallbackCompleteFunc) = nullptr;
  CUptiResult (*register_clock)(CUpti_TimestampCallbackFunc) = nullptr;
  CUptiResult (*next_record)(std::uint8_t*, std::size_t, CUpti_Activity**) = nullptr;
  CUptiResult (*dropped)(CUcontext, std::uint32_t, std::size_t*) = nullptr;
  CUptiResult (*flush)(std::uint32_t) = nullptr;
  CUptiResult (*push)(CUpti_ExternalCorrelationKind, std::uint64_t) = nullptr;
  CUptiResult (*pop)(CUpti_ExternalCorrelationKind, std::uint64_t*) = nullptr;
  CUptiResult (*words)(CUptiResult, const char**) = nullptr;
};

// The records of the process: filled by CUPTI's threads, emptied by take().
struct Records {
  std::mutex mutex;
  ActivityLog log;
  Api api;
};
Records& records() {
  static Records all;
  return all;
}

template <class Record>
Activity activity_of(const Record& record, std::string name) {
  return {.correlation = record.correlationId,
          .start_ns = static_cast<std::int64_t>(record.start),
          .end_ns = static_cast<std::int64_t>(record.end),
          .name = std::move(name)};
}

std::string copy_name(std::uint8_t kind) {
  if (kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD) return "copy to the device";
  if (kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH) return "copy to the host";
  return "copy";
}

// Later versions of these structs only add fields at their ends.
void keep(const CUpti_Activity* record, ActivityLog& log) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto* found = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (found->externalKind == kOurs) log.external[found->correlationId] = found->externalId;
      return;
    }
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* found = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      log.activities.push_back(activity_of(*found, found->name == nullptr ? "?" : found->name));
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* found = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      log.activities.push_back(activity_of(*found, copy_name(found->copyKind)));
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* found = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      log.activities.push_back(activity_of(*found, "fill"));
      return;
    }
    default:
      return;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kRecordAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
  Records& all = records();
  {
    const std::lock_guard lock(all.mutex);
    CUpti_Activity* record = nullptr;
    while (all.api.next_record(buffer, valid, &record) == CUPTI_SUCCESS) keep(record, all.log);
  }
  std::free(buffer);
}

std::uint64_t CUPTIAPI our_clock() { return static_cast<std::uint64_t>(now_ns()); }

void* open_library() {
  const std::string versioned = "libcupti.so." + std::to_string(CUDART_VERSION / 1000);
  void* library = dlopen(versioned.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libcupti.so", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = dlerror();
  throw DeviceError(std::string("kernels cannot be traced: ") +
                    (why != nullptr ? why : "libcupti is missing"));
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw DeviceError(std::string("kernels cannot be traced: this libcupti has no ") + name);
}

Api load() {
  void* library = open_library();  // stays open, as its threads may run on
  Api api;
  find(library, "cuptiActivityEnable", api.enable);
  find(library, "cuptiActivityDisable", api.disable);
  find(library, "cuptiActivityRegisterCallbacks", api.register_callbacks);
  find(library, "cuptiActivityRegisterTimestampCallback", api.register_clock);
  find(library, "cuptiActivityGetNextRecord", api.next_record);
  find(library, "cuptiActivityGetNumDroppedRecords", api.dropped);
  find(library, "cuptiActivityFlushAll", api.flush);
  find(library, "cuptiActivityPushExternalCorrelationId", api.push);
  find(library, "cuptiActivityPopExternalCorrelationId", api.pop);
  find(library, "cuptiGetResultString", api.words);
  return api;
}

}  // namespace

// Recording, from the first recorder to the end of the last.
class Cupti {
 public:
  static std::shared_ptr<Cupti> shared() {
    static std::weak_ptr<Cupti> current;
    std::shared_ptr<Cupti> cupti = current.lock();
    if (cupti == nullptr) {
      cupti = std::make_shared<Cupti>();
      current = cupti;
    }
    return cupti;
  }

  Cupti() : api_(load()) {
    {
      const std::lock_guard lock(records().mutex);
      records().api = api_;
      records().log = {};
    }
    check(api_.register_clock(our_clock), "cuptiActivityRegisterTimestampCallback");
    check(api_.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : kKinds) check(api_.enable(kind), "cuptiActivityEnable");
  }
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;
  ~Cupti() {
    for (const CUpti_ActivityKind kind : kKinds) static_cast<void>(api_.disable(kind));
    static_cast<void>(api_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  }

  void push(CommandId command) const {
    check(api_.push(kOurs, external_id(command)), "cuptiActivityPushExternalCorrelationId");
  }
  void pop() const {
    std::uint64_t last = 0;
    static_cast<void>(api_.pop(kOurs, &last));  // in destructors
  }

  ActivityLog take() const {
    // Forced: a buffer with a call of another thread under way would be held back.
    check(api_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    std::size_t dropped = 0;
    check(api_.dropped(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");
    Records& all = records();
    const std::lock_guard lock(all.mutex);
    ActivityLog log = std::exchange(all.log, {});
    log.dropped = dropped;
    return log;
  }

 private:
  void check(CUptiResult result, const char* call) const {
    if (result == CUPTI_SUCCESS) return;
    const char* words = nullptr;
    if (api_.words(result, &words) != CUPTI_SUCCESS || words == nullptr) words = "unknown error";
    throw DeviceError(std::string("kernels cannot be traced: ") + call + ": " + words);
  }

  Api api_;
};

#else

// Stands for what could not be built.
class Cupti {
 public:
  static std::shared_ptr<Cupti> shared() {
    throw DeviceError("kernels cannot be traced: cupti.h was not found when this was built");
  }
  void push(CommandId) const {}
  void pop() const {}
  ActivityLog take() const { return {}; }
};

#endif

ActivityRecorder::ActivityRecorder() : cupti_(Cupti::shared()) {}
ActivityRecorder::~ActivityRecorder() = default;

void ActivityRecorder::push(CommandId command) { cupti_->push(command); }
void ActivityRecorder::pop() { cupti_->pop(); }

AttributedWork ActivityRecorder::take() {
  // The streams are idle; this is for what CUPTI itself still has to collect.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const ActivityLog log = cupti_->take();
  AttributedWork work = attribute(log);
  work.lost += log.dropped;
  return work;
}

}  // namespace dovetail::exec::cuda
