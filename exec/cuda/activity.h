// What a profiling library recorded about the device, in our own words, and whose work it was.
//
// While a command is enqueued, its number is pushed as the external correlation id of the thread
// (cupti.h). Every call into CUDA then leaves two records: the call's correlation id with that
// external id, and, under the same correlation id, the kernel or copy with its times. Both may
// arrive in any order. Work that no command enqueued (checks, event records) has no external id.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::exec::cuda {

struct Activity {
  std::uint32_t correlation = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::string name;  // as recorded: "_ZN...", "copy to the device"
};

struct ActivityLog {
  std::vector<Activity> activities;
  std::map<std::uint32_t, std::uint64_t> external;  // by correlation id
  std::size_t dropped = 0;                          // records that the library had no room for
};

// 0 is what calls outside of any command have.
std::uint64_t external_id(CommandId command);

// The work of commands, by start; their step is 0.
struct AttributedWork {
  std::vector<DeviceWork> works;
  std::size_t lost = 0;  // of commands, but without times
};
AttributedWork attribute(const ActivityLog& log);

// "void dovetail::gelu_kernel<float>(float const*, long)", mangled or not: "gelu_kernel".
std::string short_name(std::string_view recorded);

}  // namespace dovetail::exec::cuda
