// Reads a profiler's trace event by event from a stream and keeps the few fields that matter, so
// that traces of gigabytes fit.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/kineto/reader.h"
#include "recordings/json_stream.h"
#include "recordings/names.h"

#include "base/error.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace dovetail::imports {
namespace {

// Categories of every age, in either case.
std::optional<EventKind> kind_of(std::string_view category) {
  using enum EventKind;
  constexpr std::array<std::pair<std::string_view, EventKind>, 20> kKinds = {
      {{"cpu_op", Operator},
       {"Operator", Operator},
       {"operator", Operator},
       {"user_annotation", Annotation},
       {"cuda_runtime", RuntimeCall},
       {"cuda_driver", RuntimeCall},
       {"Runtime", RuntimeCall},
       {"runtime", RuntimeCall},
       {"hip_runtime", RuntimeCall},
       {"xpu_runtime", RuntimeCall},
       {"xpu_driver", RuntimeCall},
       {"privateuse1_runtime", RuntimeCall},
       {"privateuse1_driver", RuntimeCall},
       {"kernel", Kernel},
       {"Kernel", Kernel},
       {"gpu_memcpy", Memcpy},
       {"Memcpy", Memcpy},
       {"gpu_memset", Memset},
       {"Memset", Memset},
       {"cuda_sync", Synchronisation}}};
  for (const auto& [word, kind] : kKinds) {
    if (word == category) return kind;
  }
  return std::nullopt;
}

// Work of devices whose kernels and launches are told in other ways than CUDA's and ROCm's. The calls of a runtime that is
// not among those above (mtia_runtime) are of such a device, too.
bool is_foreign_device(std::string_view category) {
  constexpr std::array<std::string_view, 4> kCategories = {"mtia_ccp_events", "mtia_workloadd",
                                                           "hpu_op", "privateuse1_kernel"};
  return std::ranges::find(kCategories, category) != kCategories.end() ||
         category.ends_with("_runtime") || category.ends_with("_driver");
}
// Ascend's trace_view.json: its events have no category, their process says what they are.
bool is_foreign_process(std::string_view name) {
  return name == "Ascend Hardware" || name == "HCCL" || name == "NPU" || name == "AI Core" ||
         name.starts_with("/device:TPU");
}
// What NCCL's profiler plugin writes (ext-profiler/example): collectives, messages and what they are made of.
bool is_of_nccl_plugin(std::string_view category) {
  return category == "COLL" || category == "P2P" || category == "GROUP" || category == "PROXY" ||
         category == "NET";
}

// A line of JAX's trace, by its name.
enum class XlaLine : std::uint8_t { Other, Stream, Steps, Modules };
XlaLine xla_line(std::string_view name) {
  if (name.starts_with("Stream #")) return XlaLine::Stream;
  if (name == "Steps") return XlaLine::Steps;
  return name == "XLA Modules" ? XlaLine::Modules : XlaLine::Other;
}
EventKind xla_kind(std::string_view name) {
  if (name.starts_with("Memcpy") || name.starts_with("memcpy")) return EventKind::Memcpy;
  return name.starts_with("Memset") ? EventKind::Memset : EventKind::Kernel;
}

// One event while its keys come in any order.
struct Draft {
  char phase = 0;
  std::optional<EventKind> kind;
  bool has_category = false;
  bool is_timed = false;  // ts was a finite number
  bool has_bad_time = false;
  RecordedEvent event;
  std::string process, thread;
  KernelShape shape;
  bool has_shape = false;
  CollectiveArgs collective;
  bool has_collective = false;
  InputShapes inputs;
  dovetail::imports::Synchronisation sync;
  bool has_sync = false;
  std::string name_arg;  // of metadata: what it gives a name to
  std::string foreign;   // category of a device's events that are not read
  bool is_launch_flow = false;

  void clear() {
    phase = 0;
    kind.reset();
    has_category = is_timed = has_bad_time = has_shape = has_collective = has_sync = false;
    is_launch_flow = false;
    event = {};
    process.clear();
    thread.clear();
    collective = {};
    inputs.dims.clear();
    inputs.types.clear();
    sync = {};
    name_arg.clear();
    foreign.clear();
  }
};

class Reader {
 public:
  explicit Reader(ByteSource source, std::size_t device = 0)
      : source_(std::move(source)), json_(source_), device_(device) {
    trace_.file = source_.name();
    static_cast<void>(names_.number(""));  // of events without a name
  }

  Recording read() {
    try {
      read_document();
    } catch (const JsonCut& cut) {
      if (!saw_events_) throw InputError(trace_.file + ": " + cut.what());
      trace_.problems.push_back("the file " + std::string(cut.what()) +
                                ": what came before is used, the rest is unknown");
    }
    if (!saw_events_) {
      throw InputError(trace_.file +
                       ": expected a profiler's trace (\"traceEvents\", or a list of events)");
    }
    finish();
    return std::move(trace_);
  }

 private:
  void read_document() {
    switch (json_.kind()) {
      case JsonKind::Array:
        trace_.is_array = true;
        read_events();
        break;
      case JsonKind::Object:
        json_.enter_object();
        while (const auto key = json_.next_key()) read_top(*key);
        break;
      default:
        throw InputError(trace_.file + ": expected an object or a list of events");
    }
    json_.expect_end();
  }

  void read_top(std::string_view key) {
    if (key == "traceEvents" && json_.kind() == JsonKind::Array) {
      read_events();
    } else if (key == "deviceProperties" && json_.kind() == JsonKind::Array) {
      json_.enter_array();
      while (json_.next_element()) read_device();
    } else if (key == "distributedInfo" && json_.kind() == JsonKind::Object) {
      json_.enter_object();
      while (const auto info = json_.next_key()) read_distributed(*info);
    } else if (key == "record_shapes") {
      trace_.has_shapes = integer().value_or(0) != 0;
    } else if (key == "baseTimeNanoseconds") {
      const std::int64_t base = integer().value_or(0);
      trace_.base_ns = base >= 0 && base < 4'000'000'000'000'000'000 ? base : 0;  // to 2096
    } else {
      json_.skip();
    }
  }

  // A number, in quotes or not; nothing where something else stands.
  std::optional<std::string_view> number() {
    const JsonKind kind = json_.kind();
    if (kind == JsonKind::Number) return json_.number();
    if (kind == JsonKind::String) return json_.string();
    json_.skip();
    return std::nullopt;
  }

  std::optional<std::int64_t> integer() {
    const auto text = number();
    return text ? whole_number_of(*text) : std::nullopt;
  }

  // A count of things, at most as many as fit.
  std::optional<std::int64_t> count(std::int64_t most = std::numeric_limits<std::int32_t>::max()) {
    const std::optional<std::int64_t> value = integer();
    return value && *value >= 0 && *value <= most ? value : std::nullopt;
  }

  void text(std::string& into) {
    if (json_.kind() == JsonKind::String) {
      into = json_.string();
    } else if (json_.kind() == JsonKind::Number) {
      into = json_.number();
    } else {
      json_.skip();
    }
  }

  void read_device() {
    if (json_.kind() != JsonKind::Object) return json_.skip();
    DeviceProperties device;
    std::int64_t id = 0;
    json_.enter_object();
    while (const auto key = json_.next_key()) {
      if (*key == "name") {
        text(device.name);
      } else if (*key == "id") {
        id = integer().value_or(0);
      } else if (*key == "numSms") {
        device.sms = count().value_or(0);
      } else if (*key == "maxThreadsPerMultiprocessor") {
        device.threads_per_sm = count().value_or(0);
      } else if (*key == "regsPerMultiprocessor") {
        device.registers_per_sm = count().value_or(0);
      } else if (*key == "sharedMemPerMultiprocessor" ||
                 *key == "maxSharedMemoryPerMultiProcessor") {
        device.shared_memory_per_sm = count().value_or(0);
      } else {
        json_.skip();
      }
    }
    if (trace_.devices.size() < 1024) trace_.devices[id] = device;
  }

  void read_distributed(std::string_view key) {
    if (key == "rank") {
      trace_.rank = count();
    } else if (key == "world_size") {
      trace_.world_size = count();
    } else if (key == "backend") {
      text(trace_.backend);
    } else if (key == "nccl_version") {
      text(trace_.nccl_version);
    } else if (key == "pg_config" && json_.kind() == JsonKind::Array) {
      json_.enter_array();
      while (json_.next_element()) read_group();
    } else {
      json_.skip();
    }
  }

  void read_group() {
    if (json_.kind() != JsonKind::Object) return json_.skip();
    std::string name;
    std::vector<std::int64_t> ranks;
    json_.enter_object();
    while (const auto key = json_.next_key()) {
      if (*key == "pg_name") {
        text(name);
      } else if (*key == "ranks") {
        ranks = read_ranks();
      } else {
        json_.skip();
      }
    }
    if (!ranks.empty() && trace_.groups.size() < 65536) trace_.groups[name] = std::move(ranks);
  }

  // "[0, 1, 2]" or a list, rising. Nothing where some are left out: PyTorch cuts long lists ("[0, 1, ..., ]").
  std::vector<std::int64_t> read_ranks() {
    std::vector<std::int64_t> ranks;
    if (json_.kind() == JsonKind::Array) {
      json_.enter_array();
      while (json_.next_element()) add_rank(ranks, integer());
    } else if (json_.kind() == JsonKind::String) {
      std::string_view rest = json_.string();
      if (rest.find("...") != std::string_view::npos) return {};
      while (true) {
        const std::size_t begin = rest.find_first_of("0123456789");
        if (begin == std::string_view::npos) break;
        const std::size_t end = std::min(rest.find_first_not_of("0123456789", begin), rest.size());
        add_rank(ranks, whole_number_of(rest.substr(begin, end - begin)));
        rest.remove_prefix(end);
      }
    } else {
      json_.skip();
    }
    std::ranges::sort(ranks);
    return ranks;
  }
  static void add_rank(std::vector<std::int64_t>& ranks, std::optional<std::int64_t> rank) {
    constexpr std::size_t kMost = 1 << 20;
    if (rank && ranks.size() < kMost) ranks.push_back(*rank);
  }

  void read_events() {
    saw_events_ = true;
    json_.enter_array();
    while (json_.next_element()) {
      if (json_.kind() != JsonKind::Object) {
        json_.skip();
        continue;
      }
      ++trace_.events_in_file;
      draft_.clear();
      json_.enter_object();
      while (const auto key = json_.next_key()) read_field(*key);
      add();
    }
  }

  void read_time(std::int64_t& into, bool& is_set) {
    const auto text = number();
    const auto time = text ? nanoseconds_of(*text) : std::nullopt;
    if (time) into = *time;
    is_set = time.has_value();
    draft_.has_bad_time |= !time;
  }

  void read_field(std::string_view key) {
    bool ignored = false;
    if (key == "ts") {
      read_time(draft_.event.start_ns, draft_.is_timed);
    } else if (key == "dur") {
      read_time(draft_.event.duration_ns, ignored);
    } else if (key == "ph" && json_.kind() == JsonKind::String) {
      const std::string_view phase = json_.string();
      draft_.phase = phase.size() == 1 ? phase[0] : '?';
    } else if (key == "cat" && json_.kind() == JsonKind::String) {
      draft_.has_category = true;
      const std::string_view category = json_.string();
      draft_.kind = kind_of(category);
      if (!draft_.kind && is_foreign_device(category)) draft_.foreign = category;
      draft_.is_launch_flow = category == "ac2g";
      of_nccl_plugin_ += is_of_nccl_plugin(category) ? 1 : 0;
    } else if (key == "name" && json_.kind() == JsonKind::String) {
      draft_.event.name = names_.number(json_.string());
    } else if (key == "pid") {
      text(draft_.process);
    } else if (key == "tid") {
      text(draft_.thread);
    } else if (key == "args" && json_.kind() == JsonKind::Object) {
      json_.enter_object();
      while (const auto arg = json_.next_key()) read_arg(*arg);
    } else {
      json_.skip();
    }
  }

  void integer_into(std::int64_t& into) { into = integer().value_or(into); }
  void integer_into(std::int32_t& into) {
    if (const auto value = count()) into = static_cast<std::int32_t>(*value);
  }

  // The keys that all GPU work has; whether this is one.
  bool read_gpu_arg(std::string_view key) {
    if (key == "correlation" || key == "correlation_id") {
      integer_into(draft_.event.correlation);
    } else if (key == "External id" || key == "external id") {
      integer_into(draft_.event.external_id);
    } else if (key == "stream") {
      integer_into(draft_.event.stream);
    } else if (key == "bytes") {
      integer_into(draft_.event.bytes);
      if (draft_.event.bytes > (std::int64_t{1} << 50)) draft_.event.bytes = -1;
    } else if (key == "grid") {
      read_triple(draft_.shape.grid);
    } else if (key == "block") {
      read_triple(draft_.shape.block);
    } else if (key == "registers per thread") {
      integer_into(draft_.shape.registers_per_thread);
    } else if (key == "shared memory") {
      integer_into(draft_.shape.shared_memory_bytes);
    } else {
      return false;
    }
    return true;
  }

  bool read_collective_arg(std::string_view key) {
    CollectiveArgs& collective = draft_.collective;
    if (key == "Collective name") {
      text(collective.kind);
      draft_.has_collective = true;
    } else if (key == "In msg nelems") {
      collective.in_elements = count(kMostElements);
    } else if (key == "Out msg nelems") {
      collective.out_elements = count(kMostElements);
    } else if (key == "dtype") {
      text(collective.dtype);
    } else if (key == "Group size") {
      collective.group_size = count();
    } else if (key == "Process Group Name") {
      text(collective.group);
    } else if (key == "Process Group Description") {
      text(collective.description);
    } else if (key == "Process Group Ranks") {
      collective.ranks = read_ranks();
    } else if (key == "Seq") {
      collective.sequence = integer();
    } else if (key == "Src Rank") {
      collective.source = count();
    } else if (key == "Dst Rank") {
      collective.destination = count();
    } else if (key == "Concrete Inputs" && is_of_message()) {
      read_peer();
    } else {
      return false;
    }
    return true;
  }

  [[nodiscard]] bool is_of_message() const {
    const std::string_view name = names_.text(draft_.event.name);
    return name == "c10d::send" || name == "c10d::recv_";
  }

  // ["", "", "1", "0"]: tensors, group, rank, tag.
  void read_peer() {
    if (json_.kind() != JsonKind::Array) return json_.skip();
    json_.enter_array();
    for (int place = 0; json_.next_element(); ++place) {
      if (place != 2) {
        json_.skip();
        continue;
      }
      draft_.collective.peer = count();
      draft_.has_collective |= draft_.collective.peer.has_value();
    }
  }

  void read_arg(std::string_view key) {
    if (key == "name") {  // of a process, in metadata
      draft_.name_arg.clear();
      return text(draft_.name_arg);
    }
    if (read_gpu_arg(key) || read_collective_arg(key)) return;
    if (key == "Input Dims") {
      read_dims();
    } else if (key == "Input type") {
      read_types();
    } else if (key == "wait_on_stream") {
      draft_.has_sync = true;
      integer_into(draft_.sync.waits_on_stream);
    } else if (key == "wait_on_cuda_event_record_corr_id") {
      draft_.has_sync = true;
      integer_into(draft_.sync.waits_on_record);
    } else {
      json_.skip();
    }
  }

  void read_triple(std::array<std::int32_t, 3>& into) {
    draft_.has_shape = true;
    if (json_.kind() != JsonKind::Array) return json_.skip();
    std::size_t i = 0;
    json_.enter_array();
    while (json_.next_element()) {
      std::int32_t value = 0;
      integer_into(value);
      if (i < into.size()) into[i] = value;
      ++i;
    }
  }

  static constexpr std::size_t kMostInputs = 64;

  // [[2, 3], [[4], [5]], []]: one entry per input, of a list of tensors the first.
  void read_dims() {
    if (json_.kind() != JsonKind::Array) return json_.skip();
    json_.enter_array();
    while (json_.next_element()) {
      std::vector<std::int64_t> dims;
      if (json_.kind() != JsonKind::Array || draft_.inputs.dims.size() >= kMostInputs) {
        json_.skip();
      } else {
        json_.enter_array();
        bool first = true;
        while (json_.next_element()) {
          if (json_.kind() == JsonKind::Array && first) {
            json_.enter_array();
            while (json_.next_element()) add_dim(dims);
          } else {
            add_dim(dims);
          }
          first = false;
        }
      }
      if (draft_.inputs.dims.size() < kMostInputs) draft_.inputs.dims.push_back(std::move(dims));
    }
  }

  void add_dim(std::vector<std::int64_t>& dims) {
    const auto value = integer();
    if (value && dims.size() < 16) dims.push_back(*value);
  }

  void read_types() {
    if (json_.kind() != JsonKind::Array) return json_.skip();
    json_.enter_array();
    while (json_.next_element()) {
      std::string type;
      text(type);
      if (draft_.inputs.types.size() < kMostInputs) {
        draft_.inputs.types.push_back(std::move(type));
      }
    }
  }

  template <class T>
  static std::int32_t append(std::vector<T>& table, T value) {
    table.push_back(std::move(value));
    return static_cast<std::int32_t>(table.size()) - 1;
  }

  // Those of a step are those of every other one: kept once.
  std::int32_t shapes_number() {
    shapes_key_.clear();
    for (const auto& dims : draft_.inputs.dims) {
      for (const std::int64_t dim : dims) (shapes_key_ += std::to_string(dim)) += ',';
      shapes_key_ += ';';
    }
    for (const std::string& type : draft_.inputs.types) (shapes_key_ += type) += ';';
    const auto found = shapes_.find(shapes_key_);
    if (found != shapes_.end()) return found->second;
    const std::int32_t number = append(trace_.shapes, draft_.inputs);
    shapes_.emplace(shapes_key_, number);
    return number;
  }

  std::int32_t thread_number() {
    const std::string key = draft_.process + '\n' + draft_.thread;
    const auto found = threads_.find(key);
    if (found != threads_.end()) return found->second;
    trace_.threads.push_back({draft_.process, draft_.thread});
    const auto number = static_cast<std::int32_t>(trace_.threads.size()) - 1;
    threads_.emplace(key, number);
    return number;
  }

  // The old writer has no categories: all its events are operators and annotations.
  void settle_old_kind() {
    if (!trace_.is_array || draft_.has_category) return;
    draft_.kind = EventKind::Operator;
  }

  // Names of JAX's processes and lines stand before their events.
  void note_xla_metadata() {
    const std::string_view what = names_.text(draft_.event.name);
    if (what == "process_name") {
      const bool is_device = draft_.name_arg.starts_with("/device:GPU:");
      if (is_device) {
        if (trace_.device_lines.size() == device_) xla_device_ = draft_.process;
        trace_.device_lines.push_back(draft_.name_arg);
      }
      if (draft_.name_arg.starts_with("/host:CPU")) xla_host_ = draft_.process;
      if (is_device || !xla_host_.empty()) trace_.recorder = Recorder::Jax;
    } else if (what == "thread_name" && trace_.recorder == Recorder::Jax) {
      xla_lines_[draft_.process + '\n' + draft_.thread] = xla_line(draft_.name_arg);
    }
  }

  // What an event of JAX's trace is; nothing for one that says again what another one does.
  void settle_xla_kind() {
    if (trace_.recorder != Recorder::Jax || draft_.has_category) return;
    const std::string_view name = names_.text(draft_.event.name);
    if (draft_.process == xla_host_) {
      const bool is_call = name.starts_with("cu") || name.starts_with("hip");
      if (is_call) draft_.kind = EventKind::RuntimeCall;
      if (name.starts_with("PjitFunction")) draft_.kind = EventKind::Operator;
      return;
    }
    if (draft_.process != xla_device_) return;
    const auto line = xla_lines_.find(draft_.process + '\n' + draft_.thread);
    if (line == xla_lines_.end() || line->second == XlaLine::Other) return;
    if (line->second == XlaLine::Stream) {
      draft_.kind = xla_kind(name);
      return;
    }
    if (!draft_.is_timed || draft_.has_bad_time || draft_.event.duration_ns < 0) return;
    (line->second == XlaLine::Steps ? xla_steps_ : xla_modules_).push_back(draft_.event);
  }

  // Windows of the device's time: the line of steps, else from one execution of the longest module to the next.
  void add_xla_steps() {
    std::vector<RecordedEvent> windows = std::move(xla_steps_);
    if (windows.empty()) windows = longest_module();
    std::ranges::stable_sort(windows, {}, &RecordedEvent::start_ns);
    for (std::size_t w = 0; w < windows.size(); ++w) {
      RecordedEvent& window = windows[w];
      const std::string_view text = names_.text(window.name);
      const auto number = whole_number_of(text.substr(0, text.find(' ')));
      window.kind = EventKind::Annotation;
      window.name = names_.number("ProfilerStep#" +
                                  std::to_string(number.value_or(static_cast<std::int64_t>(w))));
      draft_.process = "steps of the device";
      draft_.thread.clear();
      window.thread = thread_number();
      window.correlation = window.external_id = -1;
      trace_.events.push_back(window);
    }
    trace_.steps_are_on_device = !windows.empty();
  }

  [[nodiscard]] std::vector<RecordedEvent> longest_module() const {
    std::map<std::int32_t, std::int64_t> time;
    for (const RecordedEvent& module : xla_modules_) time[module.name] += module.duration_ns;
    const auto longest =
        std::ranges::max_element(time, {}, [](const auto& entry) { return entry.second; });
    std::vector<RecordedEvent> runs;
    for (const RecordedEvent& module : xla_modules_) {
      if (module.name == longest->first) runs.push_back(module);
    }
    std::ranges::stable_sort(runs, {}, &RecordedEvent::start_ns);
    for (std::size_t r = 0; r + 1 < runs.size(); ++r) {
      runs[r].duration_ns = runs[r + 1].start_ns - runs[r].start_ns;
    }
    return runs;
  }

  // Whether the event is metadata, or of a device whose work is not read. Names of processes stand before
  // their events.
  bool is_set_aside() {
    if (draft_.phase == 'M' && names_.text(draft_.event.name) == "process_name" &&
        is_foreign_process(draft_.name_arg)) {
      foreign_processes_.emplace(draft_.process, draft_.name_arg);
    }
    if (draft_.phase == 'M') note_xla_metadata();
    trace_.unread.flows += draft_.is_launch_flow && draft_.phase == 'f' ? 1 : 0;
    if (draft_.phase != 'X') return true;
    if (!draft_.has_category && draft_.process == "CUDA functions") has_legacy_gpu_ = true;
    if (!draft_.foreign.empty()) {
      ++trace_.unread.foreign["category " + draft_.foreign];
      return true;
    }
    if (draft_.has_category || foreign_processes_.empty()) return false;
    const auto process = foreign_processes_.find(draft_.process);
    if (process == foreign_processes_.end()) return false;
    ++trace_.unread.foreign["process \"" + process->second + '"'];
    return true;
  }

  void add() {
    if (is_set_aside()) return;
    settle_old_kind();
    settle_xla_kind();
    if (!draft_.kind) return;
    RecordedEvent& event = draft_.event;
    event.kind = *draft_.kind;
    const bool is_gpu = event.kind == EventKind::Kernel || event.kind == EventKind::Memcpy ||
                        event.kind == EventKind::Memset;
    if (!draft_.is_timed || draft_.has_bad_time || event.duration_ns < 0) {
      ++without_time_;
      trace_.unread.without_time += is_gpu ? 1 : 0;
      return;
    }
    event.thread = thread_number();
    if (is_gpu && event.stream < 0) {
      event.stream = static_cast<std::int32_t>(whole_number_of(draft_.thread).value_or(0));
    }
    if (is_gpu && draft_.has_shape) event.kernel = append(trace_.kernels, draft_.shape);
    if (draft_.has_collective) event.collective = append(trace_.collectives, draft_.collective);
    if (draft_.has_sync) event.sync = append(trace_.syncs, draft_.sync);
    const bool has_inputs =
        std::ranges::any_of(draft_.inputs.dims, [](const auto& dims) { return !dims.empty(); });
    if (!is_gpu && has_inputs && wants_shapes(event)) {
      event.shapes = shapes_number();
    }
    trace_.events.push_back(event);
  }

  // Shapes are kept where a size can hang on them.
  bool wants_shapes(const RecordedEvent& event) {
    while (wants_.size() <= static_cast<std::size_t>(event.name)) wants_.push_back('?');
    char& wants = wants_[static_cast<std::size_t>(event.name)];
    if (wants == '?') {
      const std::string_view name = names_.text(event.name);
      constexpr std::array<std::string_view, 6> kParts = {
          "nccl:", "gloo:", "c10d::", "reducer", "AccumulateGrad", "record_param_comms"};
      wants = std::ranges::any_of(
                  kParts,
                  [&](std::string_view part) { return name.find(part) != std::string_view::npos; })
                  ? 'y'
                  : 'n';
    }
    return wants == 'y';
  }

  // A time of 0 among times since the machine started, or since 1970, was lost.
  void leave_out_lost_times() {
    constexpr std::int64_t kHour = 3'600'000'000'000;
    std::vector<RecordedEvent>& events = trace_.events;
    const auto first = std::ranges::find_if(
        events, [](const RecordedEvent& event) { return event.start_ns != 0; });
    if (first == events.begin() || first == events.end() || first->start_ns < kHour) return;
    for (auto event = events.begin(); event != first; ++event) {
      const bool is_gpu = event->kind == EventKind::Kernel || event->kind == EventKind::Memcpy ||
                          event->kind == EventKind::Memset;
      trace_.unread.without_time += is_gpu ? 1 : 0;
    }
    without_time_ += first - events.begin();
    events.erase(events.begin(), first);
  }

  // What torch.autograd.profiler wrote before Kineto, and still writes without it.
  void require_kernels() const {
    if (!has_legacy_gpu_) return;
    throw InputError(trace_.file +
                     ": the list of PyTorch's old profiler (torch.autograd.profiler; processes "
                     "\"CPU functions\" "
                     "and \"CUDA functions\"): it has when operators ran on the GPU, but no "
                     "kernels, streams and "
                     "launches; record with torch.profiler.profile(activities=[CPU, CUDA]), "
                     "PyTorch 1.9 or later");
  }

  void finish() {
    require_kernels();
    if (!trace_.device_lines.empty()) add_xla_steps();
    if (trace_.recorder == Recorder::Kineto && trace_.events.empty() && of_nccl_plugin_ > 0) {
      trace_.recorder = Recorder::NcclPlugin;
    }
    if (device_ < trace_.device_lines.size()) {
      const std::string& line = trace_.device_lines[device_];
      const std::size_t open = line.find('(');
      if (open != std::string::npos && line.ends_with(')')) {
        trace_.devices[static_cast<std::int64_t>(device_)].name =
            line.substr(open + 1, line.size() - open - 2);
      }
    }
    trace_.names = names_.take();
    trace_.bytes = source_.unpacked();
    const std::int64_t twice = settle(trace_);
    leave_out_lost_times();
    require_one_recording(trace_);
    if (twice > 0) {
      trace_.problems.push_back(std::to_string(twice) + " events stand twice and count once");
    }
    if (without_time_ > 0) {
      trace_.problems.push_back(std::to_string(without_time_) +
                                " events have no finite time and are left out");
    }
  }

  ByteSource source_;
  JsonStream json_;
  Recording trace_;
  Names names_;
  std::unordered_map<std::string, std::int32_t> threads_;
  std::unordered_map<std::string, std::int32_t> shapes_;  // by what they are, written out
  std::string shapes_key_;
  std::vector<char> wants_;
  Draft draft_;
  std::unordered_map<std::string, std::string> foreign_processes_;  // names, by process
  std::size_t device_;                                  // of JAX's devices the one wanted
  std::string xla_device_, xla_host_;                   // their processes
  std::unordered_map<std::string, XlaLine> xla_lines_;  // by process and thread
  std::vector<RecordedEvent> xla_steps_, xla_modules_;
  std::int64_t of_nccl_plugin_ = 0;  // events
  bool saw_events_ = false;
  bool has_legacy_gpu_ = false;
  std::int64_t without_time_ = 0;
};

}  // namespace

Recording read_kineto(const std::string& path, const ByteLimits& limits, std::size_t device) {
  return Reader(ByteSource::file(path, limits), device).read();
}

Recording read_kineto(ByteSource source) { return Reader(std::move(source)).read(); }

}  // namespace dovetail::imports
