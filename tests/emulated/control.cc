// Reads the options of the emulated device from the environment of the process, and keeps the
// complaints (races, misuse) that tests ask for afterwards.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/control.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace dovetail::emulated {
namespace {

// Never destroyed: devices go on to the very end of the process.
struct Control {
  std::mutex mutex;
  Options options;
  std::vector<std::string> complaints;
  std::map<std::int32_t, std::int64_t> calls;          // by device
  std::map<std::int32_t, std::int64_t> registrations;  // by device
  std::int64_t waits = 0;
  Counts counts;
  bool has_struck = false;
};

Control& control() {
  static auto* const the = [] {
    auto* made = new Control;
    const char* words = std::getenv("DOVETAIL_EMULATED");
    if (words != nullptr) made->options = parse_options(words);
    return made;
  }();
  return *the;
}

std::int64_t number_of(std::string_view text) {
  std::size_t used = 0;
  const std::string copy(text);
  const long long value = std::stoll(copy, &used);
  if (used != copy.size()) throw std::invalid_argument("not a number: " + copy);
  return value;
}

Fault parse_fault(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, FaultKind>, 6> kKinds = {
      {{"hang", FaultKind::Hang},
       {"call-hang", FaultKind::HangInCall},
       {"error", FaultKind::Error},
       {"kill", FaultKind::Kill},
       {"device-error", FaultKind::DeviceError},
       {"register-hang", FaultKind::HangInRegister}}};
  const std::size_t first = text.find(':');
  const std::size_t second = text.find(':', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) {
    throw std::invalid_argument("expected DEVICE:CALL:KIND, found " + std::string(text));
  }
  for (const auto& [word, kind] : kKinds) {
    if (text.substr(second + 1) != word) continue;
    return {.device = static_cast<std::int32_t>(number_of(text.substr(0, first))),
            .call = number_of(text.substr(first + 1, second - first - 1)),
            .kind = kind};
  }
  throw std::invalid_argument("no such fault: " + std::string(text));
}

}  // namespace

Options parse_options(std::string_view words) {
  Options result;
  while (!words.empty()) {
    const std::string_view one = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), one.size() + 1));
    const std::string_view name = one.substr(0, one.find('='));
    if (name.size() == one.size()) throw std::invalid_argument("no value: " + std::string(one));
    const std::string_view value = one.substr(name.size() + 1);
    if (name == "devices") {
      result.devices = static_cast<std::int32_t>(number_of(value));
    } else if (name == "seed") {
      result.seed = static_cast<std::uint64_t>(number_of(value));
    } else if (name == "memory-mib") {
      result.memory_bytes = static_cast<std::size_t>(number_of(value)) << 20;
    } else if (name == "drop-wait") {
      result.dropped_wait = number_of(value);
    } else if (name == "fault") {
      result.faults.push_back(parse_fault(value));
    } else {
      throw std::invalid_argument("no such option: " + std::string(one));
    }
  }
  return result;
}

void configure(const Options& options) {
  mend_devices();
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  the.options = options;
  the.calls.clear();
  the.registrations.clear();
  the.waits = 0;
  the.counts = {};
  the.has_struck = false;
}

Options options() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  return the.options;
}

bool has_struck() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  return the.has_struck;
}

void strike() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  the.has_struck = true;
}

Counts counts() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  return the.counts;
}

void count_communicator() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  ++the.counts.communicators;
}

void count_registration(bool is_mapped) {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  ++the.counts.registrations;
  the.counts.mapped_registrations += is_mapped ? 1 : 0;
}

void count_graph_launch() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  ++the.counts.graph_launches;
}

std::uint64_t seed() { return options().seed; }
std::int32_t devices() { return options().devices; }
bool is_exclusive() { return options().is_exclusive; }
std::size_t memory_bytes() { return options().memory_bytes; }

void complain(const std::string& what) {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  static_cast<void>(std::fprintf(stderr, "EMULATED DEVICE: %s\n", what.c_str()));
  the.complaints.push_back(what);
}

std::vector<std::string> take_complaints() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  return std::exchange(the.complaints, {});
}

std::optional<FaultKind> next_call(std::int32_t device, Counted counted) {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  const bool registers = counted == Counted::Registrations;
  const std::int64_t call = (registers ? the.registrations : the.calls)[device]++;
  for (const Fault& fault : the.options.faults) {
    const bool is_register_fault = fault.kind == FaultKind::HangInRegister;
    if (fault.device == device && fault.call == call && is_register_fault == registers) {
      return fault.kind;
    }
  }
  return std::nullopt;
}

bool is_wait_dropped() {
  Control& the = control();
  const std::lock_guard lock(the.mutex);
  return the.options.dropped_wait == the.waits++;
}

}  // namespace dovetail::emulated
