// Reads logs of NCCL's inspector plugin and joins what the ranks saw of one collective by
// communicator and serial number: the shortest time is that of moving the data, the rest is
// waiting for the last rank.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_inspector.h"

#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "imports/json_items.h"
#include "imports/limits.h"
#include "imports/rank_views.h"
#include "imports/text.h"

#include <array>
#include <optional>

namespace dovetail::imports {
namespace {

using schedule::Collective;

constexpr std::int64_t kLongestCollectiveUs = std::int64_t{1'000'000'000'000};

struct InspectedKind {
  std::string_view name;
  Collective collective;
  bool is_share;  // the size is that of one rank's share
};
constexpr std::array<InspectedKind, 5> kInspectedKinds = {
    {{"AllReduce", Collective::AllReduce, false},
     {"ReduceScatter", Collective::ReduceScatter, true},
     {"AllGather", Collective::AllGather, true},
     {"AlltoAll", Collective::AllToAll, false},
     {"Broadcast", Collective::Broadcast, false}}};

// What was not used, by reason.
struct Counts {
  std::size_t sends = 0, other_kinds = 0, cpu_times = 0, no_time = 0, lone = 0;
};

class InspectorReader {
 public:
  void item(const std::string& name, std::string_view text) {
    const JsonFile file(name, text);
    JsonObject root = file.root();
    if (root.has("p2p_perf")) {
      ++counts_.sends;
      return;
    }
    JsonObject header = root.object("header");
    const std::string id = header.string("id");
    const std::int64_t ranks = header.integer("n_ranks", 1, kMostRanks);
    const std::int64_t rank = header.integer("rank", 0, kMostRanks - 1);
    const std::int64_t nodes = header.integer_or("nnodes", 1, 1, kMostRanks);
    if (rank >= ranks) header.at("rank").fail("expected a rank below " + std::to_string(ranks));
    version(root);
    JsonObject perf = root.object("coll_perf");
    const InspectedKind* const kind = kind_of(perf.string("coll"));
    const std::int64_t serial = perf.integer("coll_sn", 0);
    const std::int64_t bytes = perf.integer("coll_msg_size_bytes", 0, kMostBytes);
    const std::int64_t us = perf.integer("coll_exec_time_us", 0, kLongestCollectiveUs);
    const std::string source = perf.string_or("coll_timing_source", "kernel_gpu");
    if (kind == nullptr) {
      ++counts_.other_kinds;
    } else if (source != "kernel_gpu") {
      ++counts_.cpu_times;
    } else if (us == 0 || bytes == 0) {
      ++counts_.no_time;
    } else if (ranks == 1) {
      ++counts_.lone;
    } else {
      if (kind->is_share && bytes > kMostBytes / ranks) {
        perf.at("coll_msg_size_bytes").fail("expected at most 2^50 bytes over all ranks");
      }
      const std::int64_t whole = kind->is_share ? bytes * ranks : bytes;
      views_.add({id, serial, kind->collective, whole}, rank, ranks, nodes,
                 from_us(static_cast<double>(us)));
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
    if (!views_.empty()) views_.finish(log);
    log.tool = "nccl-inspector" + (version_.empty() ? "" : " " + version_);
  }

 private:
  static const InspectedKind* kind_of(const std::string& name) {
    for (const InspectedKind& kind : kInspectedKinds) {
      if (kind.name == name) return &kind;
    }
    return nullptr;
  }

  void version(JsonObject& root) {
    if (!version_.empty() || !root.has("metadata")) return;
    version_ = printable(root.object("metadata").string_or("inspector_output_format_version", ""));
  }

  RankViews views_;
  Counts counts_;
  std::string version_;
};

}  // namespace

CollectiveLog read_nccl_inspector(std::span<const Source> files) {
  CollectiveLog log;
  InspectorReader reader;
  for (const Source& source : files) {
    const auto visit = [&](const JsonItem& item) {
      reader.item(source.name + ": line " + std::to_string(item.line), item.text);
    };
    const JsonItemsEnd end = for_each_json_item(source.name, source.text, visit);
    if (end.is_cut_off) {
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
