// The JSON that nccl-tests writes with -J (versions 1 to 3 of its file).
//
// Only the first device of each process is listed there (parseRankInfo in src/util.cu reads one line), so
// the ranks are processes times threads times GPUs per thread. Numbers that are NaN are written as the
// string "nan"; truth values as strings; the body of skipped buffers as null.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.h"
#include "calibrate/logs/nccl_tests.h"
#include "recordings/json_stream.h"
#include "recordings/limits.h"
#include "recordings/text.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace dovetail::imports {
namespace {

std::optional<NcclTestsRow::Times> read_times(JsonObject& row, const char* key, bool& is_cpu_time) {
  if (!row.has(key) || !row.at(key).is_object()) return std::nullopt;
  JsonObject body = row.object(key);
  if (body.has("cpu_time")) is_cpu_time = true;
  const char* const time = body.has("cpu_time") ? "cpu_time" : "time";
  const auto number = [&](const char* name) {
    const JsonValue value = body.at(name);
    if (value.is_string()) return number_of(value.string());  // "nan" is none
    return value.is_null() ? std::nullopt : std::optional(value.number());
  };
  const std::optional<double> us = number(time), algbw = number("alg_bw"), busbw = number("bus_bw");
  if (!us || !algbw || !busbw) return std::nullopt;
  NcclTestsRow::Times times{.us = *us, .algbw = *algbw, .busbw = *busbw};
  if (body.has("nwrong")) times.is_wrong = number("nwrong").value_or(0) >= 1;
  if (times.us <= 0) return std::nullopt;
  return times;
}

void read_row(const JsonValue& value, NcclTestsRun& run) {
  JsonObject object = value.object();
  NcclTestsRow row;
  row.bytes = object.integer("size", 0, std::numeric_limits<std::int64_t>::max());
  row.dtype = object.string("type");
  row.redop = object.string("redop");
  row.root = integer_of(trimmed(object.string_or("root", "-1"))).value_or(-1);
  row.out_of_place = read_times(object, "out_of_place", run.is_cpu_time);
  row.in_place = read_times(object, "in_place", run.is_cpu_time);
  if (row.in_place || row.out_of_place) {
    run.rows.push_back(std::move(row));
  } else {
    run.remarks.push_back(value.path() + ": it has no usable time");
  }
}

void read_config(JsonObject config, NcclTestsRun& run) {
  const std::int64_t threads = config.integer_or("nthreads", 1, 1, 1 << 12);
  const std::int64_t gpus = config.integer_or("ngpus", 1, 1, 1 << 12);
  run.is_blocking = config.string_or("blocking_collectives", "false") == "true";
  if (!config.has("devices")) return;
  std::set<std::string> hosts;
  std::set<std::int64_t> groups;
  const JsonArray devices = config.array("devices");
  for (const JsonValue item : devices) {
    JsonObject device = item.object();
    hosts.insert(device.string_or("hostname", ""));
    groups.insert(device.integer_or("group", 0));
    if (run.gpu.empty()) run.gpu = printable(device.string_or("device_info", ""));
  }
  if (devices.size() == 0) return;
  const auto processes = static_cast<std::int64_t>(devices.size());
  if (processes > kMostRanks / (threads * gpus))
    devices.value().fail("expected at most 2^24 ranks");
  run.groups = static_cast<std::int64_t>(groups.size());
  run.ranks = std::max<std::int64_t>(processes * threads * gpus / run.groups, 1);
  if (!hosts.contains("")) run.nodes = static_cast<std::int64_t>(hosts.size());
}

std::string program_of(JsonObject& root) {
  if (!root.has("args")) return "";
  const JsonArray arguments = root.array("args");
  if (arguments.size() == 0) return "";
  const std::string path = arguments[0].string();
  std::string base = path.substr(path.find_last_of("/\\") + 1);
  if (base.ends_with("_mpi")) base.resize(base.size() - 4);
  return base.ends_with("_perf") ? printable(base) : "";
}

}  // namespace

NcclTestsRun read_nccl_tests_json(const std::string& name, std::string_view text,
                                  CollectiveLog& log) {
  JsonStream json(name, text);
  const JsonFile file(name, json.document(), JsonNumbers::Loose);
  JsonObject root = file.root();
  NcclTestsRun run{.place = "results", .program = program_of(root), .has_head = true};
  if (root.has("nccl_version")) {
    log.nccl = nccl_version(root.integer("nccl_version", 0, std::numeric_limits<int>::max()));
  }
  if (root.has("config")) read_config(root.object("config"), run);
  for (const JsonValue item : root.array("results")) read_row(item, run);
  return run;
}

}  // namespace dovetail::imports
