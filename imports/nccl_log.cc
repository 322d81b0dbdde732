// Reads NCCL's own log line by line: communicators, calls, chosen algorithms, and the table of
// NCCL's cost model, of which the least over algorithms and protocols is taken as a collective's
// time.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_log.h"
#include "imports/limits.h"

#include "base/count.h"
#include "base/error.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using schedule::Collective;

struct LoggedKind {
  std::string_view name;
  Collective collective;
};
constexpr std::array<LoggedKind, 4> kLoggedKinds = {{{"AllReduce", Collective::AllReduce},
                                                     {"ReduceScatter", Collective::ReduceScatter},
                                                     {"AllGather", Collective::AllGather},
                                                     {"Broadcast", Collective::Broadcast}}};

// "    9.0/   2.4 ": latency in us, bandwidth in 10^9 bytes per second.
struct Cell {
  double latency_us = 0;
  double gb_per_s = 0;
};

std::optional<Cell> cell_of(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<double> latency = number_of(trimmed(text.substr(0, slash)));
  const std::optional<double> rate = number_of(trimmed(text.substr(slash + 1)));
  constexpr double kMost = 1e9;
  if (!latency || !rate || *latency < 0 || *rate < 0 || *latency > kMost || *rate > kMost) {
    return std::nullopt;
  }
  return Cell{*latency, *rate};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// NCCL's choice for one size.
struct Choice {
  std::string algorithm, protocol;
};

class LogReader {
 public:
  void line(std::string_view text) {
    const std::size_t version = text.find("NCCL version ");
    if (version != std::string_view::npos) {
      ++lines_;
      log_.nccl = printable(word_after(text.substr(version), "NCCL version "));
      return;
    }
    const std::string_view mark = "NCCL INFO ";
    const std::size_t at = text.find(mark);
    if (at == std::string_view::npos) return;
    ++lines_;
    const std::string_view message = text.substr(at + mark.size());
    if (message.find('|') != std::string_view::npos) return table_row(message);
    if (contains(message, "nNodes ")) return communicator(message);
    if (contains(message, "Init COMPLETE")) return ready(message);
    if (contains(message, " coll channels")) {
      channels_ = std::max(channels_, integer_of(words_of(message).front()).value_or(0));
    } else if (contains(message, "Using network ")) {
      network_ = printable(trimmed(message.substr(message.find("Using network ") + 14)));
    } else if (contains(message, ": opCount ")) {
      ++calls_[printable(trimmed(message.substr(0, message.find(':'))))];
    } else if (contains(message, " Bytes -> Algo ")) {
      choice(message);
    }
  }

  CollectiveLog finish(const std::string& name) {
    if (lines_ == 0) {
      throw InputError(name +
                       ": no line of NCCL's log (expected \"... NCCL INFO ...\"; run the job "
                       "with NCCL_DEBUG=INFO)");
    }
    log_.tool = "NCCL's log";
    for (const auto& [key, count] : communicators_) {
      log_.read.push_back("communicators of " + counted(key.first, "rank") + " on " +
                          counted(key.second, "node") + ": seen from " +
                          counted(count.size(), "rank"));
    }
    if (channels_ > 0) log_.read.push_back(counted(channels_, "channel") + " for collectives");
    if (!network_.empty()) log_.read.push_back("network: " + network_);
    for (const auto& [call, count] : calls_) {
      log_.read.push_back(call + ": called " + counted(count, "time"));
    }
    for (const auto& [size, choice] : choices_) {
      log_.read.push_back(size.first + " of " + to_string(Bytes(size.second)) + ": algorithm " +
                          choice.algorithm + ", protocol " + choice.protocol);
    }
    model();
    return std::move(log_);
  }

 private:
  static bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }

  // "comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 ..."
  void communicator(std::string_view message) {
    const auto ranks = integer_after(message, "nRanks ");
    const auto nodes = integer_after(message, "nNodes ");
    const auto rank = integer_after(message, " rank ");
    if (!ranks || !nodes || !rank || *ranks < 1 || *nodes < 1 || *ranks > kMostRanks) return;
    communicators_[{*ranks, std::min(*nodes, *ranks)}].insert(*rank);
    nodes_[*ranks] = std::min(*nodes, *ranks);
    if (*rank == 0) last_ranks_ = *ranks;
  }

  // "ncclCommInitRank comm 0x.. rank 3 nranks 16 cudaDev 3 ... - Init COMPLETE"
  void ready(std::string_view message) {
    const auto ranks = integer_after(message, "nranks ");
    if (!ranks || *ranks < 1 || *ranks > kMostRanks) return;
    if (!nodes_.contains(*ranks)) communicators_[{*ranks, 1}].insert(0);
    if (last_ranks_ == 0) last_ranks_ = *ranks;
  }

  // "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}"
  void choice(std::string_view message) {
    constexpr std::size_t kMost = 64;
    const std::string call = printable(trimmed(message.substr(0, message.find(':'))));
    const auto bytes = integer_after(message, ":");
    if (!bytes || *bytes < 0 || (choices_.size() >= kMost && !choices_.contains({call, *bytes}))) {
      return;
    }
    choices_[{call, *bytes}] = {printable(word_after(message, "Algo ")),
                                printable(word_after(message, "proto "))};
  }

  // One row of the table of latencies and bandwidths; blocks of three algorithms follow each other.
  void table_row(std::string_view message) {
    const std::vector<std::string_view> parts = split(message, '|');
    const std::string_view name = trimmed(parts.front());
    for (const LoggedKind& kind : kLoggedKinds) {
      if (kind.name != name) continue;
      std::vector<Cell>& cells = tables_[{kind.collective, last_ranks_}];
      for (std::size_t i = 1; i < parts.size() && cells.size() < 256; ++i) {
        if (const std::optional<Cell> cell = cell_of(parts[i])) cells.push_back(*cell);
      }
    }
  }

  // The least over the enabled ones of latency + bytes / bandwidth, from 1 KiB to 4 GiB.
  void model() {
    for (const auto& [key, cells] : tables_) {
      const auto [collective, ranks] = key;
      if (ranks < 2) continue;
      for (Bytes bytes = kib(1); bytes <= gib(4); bytes = bytes * 2) {
        double best = 0;
        for (const Cell& cell : cells) {
          if (cell.gb_per_s <= 0) continue;
          const double us =
              cell.latency_us + static_cast<double>(bytes.count()) / (1e3 * cell.gb_per_s);
          if (best == 0 || us < best) best = us;
        }
        if (best < 0.001 || best > 1e12) continue;
        const std::int64_t nodes = nodes_.contains(ranks) ? nodes_[ranks] : 1;
        log_.samples.push_back({collective, ranks, nodes, bytes, from_us(best), Launch::Queued});
      }
    }
    if (log_.samples.empty()) {
      log_.left_out.emplace_back(
          "no table of NCCL's model of times: run with NCCL_DEBUG_SUBSYS=INIT,TUNING and take rank "
          "0's log");
    } else {
      log_.is_model = true;
      log_.left_out.emplace_back(
          "the times are NCCL's own model, not measured: 15 to 50 % off where we could compare");
    }
  }

  CollectiveLog log_;
  std::size_t lines_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::int64_t>> communicators_;
  std::map<std::int64_t, std::int64_t> nodes_;  // by number of ranks
  std::int64_t last_ranks_ = 0;                 // of the communicator whose table follows
  std::int64_t channels_ = 0;
  std::string network_;
  std::map<std::string, std::size_t> calls_;
  std::map<std::pair<std::string, std::int64_t>, Choice> choices_;
  std::map<std::pair<Collective, std::int64_t>, std::vector<Cell>> tables_;
};

}  // namespace

CollectiveLog read_nccl_log(std::span<const Source> files) {
  LogReader reader;
  for (const Source& source : files) {
    for_each_line(source.text, [&](std::string_view line, std::size_t) { reader.line(line); });
  }
  return reader.finish(files.empty() ? "no file" : files.front().name);
}

}  // namespace dovetail::imports
