// NCCL's example tuner: thread blocks (channels) per size of collective.
//
// Lines of the CSV: collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks. The first
// line that fits wins; -1 stands for any number of nodes. Two traps of the plugin as it is shipped
// (ext-tuner/example/plugin.c, 2.30): a collective that no line fits runs on ONE channel, and so does a
// line with channels -1. So there are lines for all sizes from 0 to the largest, for every
// collective that NCCL knows, and NCCL's own choice is written 0, which its core takes for "no limit". A line
// also forces an algorithm and a protocol: ring and simple, as NCCL takes for large buckets within
// rings; below 64 KiB tree and ll. Sizes are the key, so buckets of one size cannot differ.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "frameworks/list.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"

namespace dovetail::frameworks {
namespace {

using schedule::Bucket;
using schedule::Collective;
using schedule::Schedule;

constexpr std::uint64_t kAllBytes = ~std::uint64_t{0};
constexpr std::int64_t kSmall = 64 << 10;

std::int64_t padded(const schedule::Program& program, const Bucket& bucket) {
  const std::int64_t bytes = payload(program, bucket).count();
  const std::int64_t unit = bucket.pad_to.count();
  return (bytes + unit - 1) / unit * unit;
}

// Thread blocks by size; of buckets of one size the most.
std::map<std::int64_t, std::int32_t> ctas_by_size(const schedule::Program& program,
                                                  const Schedule& schedule, Collective collective) {
  std::map<std::int64_t, std::int32_t> ctas;
  for (const Bucket& bucket : schedule.buckets) {
    if (bucket.collective != collective) continue;
    const std::int64_t bytes = padded(program, bucket);
    const auto [at, is_new] = ctas.emplace(bytes, bucket.max_ctas);
    if (is_new) continue;
    const bool either_free = at->second == 0 || bucket.max_ctas == 0;
    at->second = either_free ? 0 : std::max(at->second, bucket.max_ctas);
  }
  return ctas;
}

struct Row {
  std::uint64_t first = 0, last = 0;
  std::int32_t channels = 0;
};

// The boundary between two sizes lies halfway; small messages are NCCL's own affair.
std::vector<Row> rows_of(const std::map<std::int64_t, std::int32_t>& ctas) {
  std::vector<Row> rows = {{0, kSmall - 1, 0}};
  std::int64_t previous = -1;
  for (const auto& [bytes, channels] : ctas) {
    if (bytes < kSmall) continue;
    if (previous < 0) {
      rows.push_back({kSmall, kAllBytes, channels});
    } else if (channels != rows.back().channels) {
      const auto middle = static_cast<std::uint64_t>(previous + (bytes - previous) / 2);
      rows.back().last = middle;
      rows.push_back({middle + 1, kAllBytes, channels});
    }
    previous = bytes;
  }
  if (rows.size() == 1) rows.push_back({kSmall, kAllBytes, 0});
  return rows;
}

// All that NCCL knows: what no line fits would run on one channel. The all-gather of a sharded bucket is
// limited as its reduce-scatter is.
struct Listed {
  std::string_view word;
  Collective like;
  bool has_tree = false;  // trees only reduce to all
};
constexpr std::array<Listed, 5> kListed = {{
    {"allreduce", Collective::AllReduce, true},
    {"reducescatter", Collective::ReduceScatter},
    {"allgather", Collective::ReduceScatter},
    {"broadcast", Collective::Broadcast},
    {"reduce", Collective::Broadcast},
}};

std::string row_text(const Listed& listed, const Row& row, std::int64_t ranks) {
  const bool is_small = row.last < static_cast<std::uint64_t>(kSmall);
  return std::string(listed.word) + "," + std::to_string(row.first) + "," +
         std::to_string(row.last) + "," + (is_small && listed.has_tree ? "tree" : "ring") + "," +
         (is_small ? "ll" : "simple") + "," + std::to_string(row.channels) + ",-1," +
         std::to_string(ranks) + "\n";
}

void restrict_to_tuner(Restriction& left) {
  const bool caps = std::ranges::any_of(left.schedule().buckets,
                                        [](const Bucket& bucket) { return bucket.max_ctas > 0; });
  if (!caps) {
    throw CannotRun(
        "the plan limits the thread blocks of no collective, so a tuner file would only "
        "take "
        "choices away from NCCL: run without one");
  }
  left.give_up("different thread blocks for buckets of one size: NCCL's tuner goes by size",
               [&](Schedule& schedule) {
                 for (const Collective kind : {Collective::AllReduce, Collective::ReduceScatter}) {
                   const auto ctas = ctas_by_size(left.program(), schedule, kind);
                   for (Bucket& bucket : schedule.buckets) {
                     if (bucket.collective != kind) continue;
                     bucket.max_ctas = ctas.at(padded(left.program(), bucket));
                   }
                 }
               });
}

Export write_tuner(Restriction& left, const Writing& writing) {
  Export result = left.result();
  result.notes = {
      "the file says nothing of buckets: give the framework the same plan (--to torch, ...)",
      "algorithm and protocol are forced too: ring and simple from 64 KiB, tree and ll below",
      "sizes without a limit are written 0 channels: NCCL's own number; -1 would mean one channel"};
  const schedule::ProcessGroup& group = left.program().group(result.schedule.buckets.front().group);
  result.text = head(writing, result);
  result.text += "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks\n";
  for (const Listed& listed : kListed) {
    for (const Row& row : rows_of(ctas_by_size(left.program(), result.schedule, listed.like))) {
      result.text += row_text(listed, row, group.size());
    }
  }
  result.paste = "NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=FILE";
  return result;
}

}  // namespace

std::vector<Framework> nccl_tuner() {
  return {{.id = "nccl-tuner",
           .name = "NCCL's tuner",
           .title = "NCCL's example tuner plugin",
           .writes = "a CSV of thread blocks with rows for all sizes",
           .restrict_to = restrict_to_tuner,
           .write = write_tuner}};
}

}  // namespace dovetail::frameworks
