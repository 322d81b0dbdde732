// Reads logs of NCCL's inspector plugin and joins what the ranks saw of one collective by
// communicator and serial number: the shortest time is that of moving the data, the rest is
// waiting for the last rank.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_inspector.h"

#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "calibrate/logs/rank_views.h"
#include "recordings/json_stream.h"
#include "recordings/limits.h"
#include "recordings/text.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace dovetail::imports {
namespace {

using schedule::Collective;

constexpr double kLongestCollectiveUs = 1e12;

// What was not used, by reason.
struct Counts {
  std::size_t sends = 0, other_kinds = 0, cpu_times = 0, no_time = 0, lone = 0, others = 0;
  std::size_t no_header = 0;
  std::int64_t lost = 0;
};

// Of whom the records are.
struct Header {
  std::string id{};
  std::int64_t ranks = 1, rank = 0;
  std::optional<std::int64_t> nodes{};
};

class InspectorReader {
 public:
  void begin_file() { header_.reset(); }

  void item(const std::string& name, std::string_view text) {
    const JsonFile file(name, text, JsonNumbers::Loose);
    JsonObject root = file.root();
    version(root);
    if (root.has("p2p_perf")) {
      ++counts_.sends;
      return;
    }
    if (root.has("header")) header_ = read_header(root.object("header"));
    if (root.has("dump_stats")) {
      count_lost(root.object("dump_stats"));
    } else if (!root.has("coll_perf")) {
      ++counts_.others;
    } else if (!header_) {
      ++counts_.no_header;
    } else {
      collective(root.object("coll_perf"), *header_);
    }
  }

  void collective(JsonObject perf, const Header& header) {
    const std::int64_t ranks = header.ranks;
    const std::optional<Collective> kind =
        schedule::collective_named(&schedule::CollectiveTraits::nccl, perf.string("coll"));
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const std::int64_t serial = perf.integer("coll_sn", 0, kMost);
    const std::int64_t bytes = perf.integer("coll_msg_size_bytes", 0, kMostBytes);
    const JsonValue time = perf.at("coll_exec_time_us");
    const double us = time.is_null() ? 0 : time.number(0, kLongestCollectiveUs);
    const std::string source = perf.string_or("coll_timing_source", "kernel_gpu");
    if (!kind) {
      ++counts_.other_kinds;
    } else if (source != "kernel_gpu") {
      ++counts_.cpu_times;
    } else if (us < 0.001 || bytes == 0) {
      ++counts_.no_time;
    } else if (ranks == 1) {
      ++counts_.lone;
    } else {
      // The size is that of one rank's share.
      const bool is_share = schedule::traits_of(*kind).is_half();
      if (is_share && bytes > kMostBytes / ranks) {
        perf.at("coll_msg_size_bytes").fail("expected at most 2^50 bytes over all ranks");
      }
      const std::int64_t whole = is_share ? bytes * ranks : bytes;
      views_.add({"communicator " + header.id, serial, *kind, whole}, header.rank, ranks,
                 header.nodes, from_us(us));
    }
  }

  void tell(CollectiveLog& log) const {
    const auto leave_out = [&](std::size_t count, const std::string& what) {
      if (count > 0)
        log.left_out.push_back(std::to_string(count) + (count == 1 ? " entry" : " entries") + " " +
                               what);
    };
    leave_out(counts_.sends, "of sends and receives");
    leave_out(counts_.other_kinds, "of collectives that plans do not use");
    leave_out(counts_.cpu_times, "timed by the CPU, not by the kernel");
    leave_out(counts_.no_time, "of 0 us or 0 bytes (the log has whole microseconds)");
    leave_out(counts_.lone, "of communicators with one rank");
    leave_out(counts_.others, "of proxies, calls and other events");
    leave_out(counts_.no_header,
              "whose communicator is unknown, as the record that begins its dump is missing");
    if (counts_.lost > 0) {
      log.left_out.push_back(counted(counts_.lost, "collective") +
                             " that the plugin overwrote before they were written (set "
                             "NCCL_INSPECTOR_DUMP_COLL_RING_SIZE higher)");
    }
    if (!views_.empty()) views_.finish(log);
    log.tool = "nccl-inspector" + (version_.empty() ? "" : " " + version_);
  }

 private:
  static Header read_header(JsonObject header) {
    Header read{.id = header.string("id"),
                .ranks = header.integer("n_ranks", 1, kMostRanks),
                .rank = header.integer("rank", 0, kMostRanks - 1)};
    if (read.rank >= read.ranks) {
      header.at("rank").fail("expected a rank below " + std::to_string(read.ranks));
    }
    if (header.has("nnodes")) read.nodes = header.integer("nnodes", 1, kMostRanks);
    return read;
  }

  void count_lost(JsonObject stats) {
    const char* const key = "coll_dropped_since_last_dump";
    if (!stats.has(key)) return;
    counts_.lost = std::min(counts_.lost + stats.integer(key, 0, kMostBytes), kMostBytes);
  }

  void version(JsonObject& root) {
    if (!version_.empty() || !root.has("metadata")) return;
    version_ = printable(root.object("metadata").string_or("inspector_output_format_version", ""));
  }

  RankViews views_;
  Counts counts_;
  std::optional<Header> header_;  // of the records that follow
  std::string version_;
};

// The plugin's other form, which has means over ranges of sizes.
void refuse_metrics(std::span<const Source> files) {
  for (const Source& file : files) {
    if (file.text.find("nccl_collective_exec_time_microseconds") == std::string_view::npos)
      continue;
    throw InputError(
        file.name +
        ": the inspector's metrics for Prometheus, which hold means over ranges of sizes; "
        "read are its JSON lines (without NCCL_INSPECTOR_PROM_DUMP)");
  }
}

}  // namespace

CollectiveLog read_nccl_inspector(std::span<const Source> files) {
  CollectiveLog log;
  InspectorReader reader;
  refuse_metrics(files);
  for (const Source& source : files) {
    reader.begin_file();
    JsonStream json(source.name, source.text);
    while (const auto item = json.next_item()) {
      reader.item(source.name + ": line " + std::to_string(item->line), item->text);
    }
    const JsonItemsEnd& end = json.items_end();
    if (end.cut_line > 0) {
      log.left_out.push_back(source.name + ": line " + std::to_string(end.cut_line) +
                             ": the last entry is cut off");
    }
    if (end.other_lines > 0) {
      log.left_out.push_back(source.name + ": " + counted(end.other_lines, "line") +
                             " that hold no entry");
    }
  }
  reader.tell(log);
  if (log.samples.empty()) {
    std::string why;
    for (const std::string& reason : log.left_out) why += "; " + reason;
    throw InputError((files.empty() ? std::string("no file") : files.front().name) +
                     ": no usable collective of the NCCL inspector (expected JSON lines with "
                     "\"header\" and \"coll_perf\")" +
                     why);
  }
  return log;
}

}  // namespace dovetail::imports
