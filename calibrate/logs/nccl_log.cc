// Reads NCCL's own log line by line into members of communicators with their calls, and tells what they have in
// common; of the table of NCCL's cost model the least over algorithms and protocols is taken as a
// collective's time.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_log.h"

#include "base/count.h"
#include "base/error.h"
#include "calibrate/logs/log_lines.h"
#include "calibrate/logs/nccl_communicators.h"
#include "calibrate/logs/sequence.h"
#include "recordings/limits.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dovetail::imports {
namespace {

using schedule::Collective;

std::optional<Collective> logged_kind(std::string_view name) {
  return schedule::collective_named(&schedule::CollectiveTraits::nccl, name);
}

// ncclDataType_t, nccl.h.
struct LoggedType {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<LoggedType, 12> kLoggedTypes = {{{"int8", 1},
                                                      {"uint8", 1},
                                                      {"int32", 4},
                                                      {"uint32", 4},
                                                      {"int64", 8},
                                                      {"uint64", 8},
                                                      {"float16", 2},
                                                      {"float32", 4},
                                                      {"float64", 8},
                                                      {"bfloat16", 2},
                                                      {"float8_e4m3", 1},
                                                      {"float8_e5m2", 1}}};

const LoggedType* logged_type(std::int64_t number) {
  const bool is_known = number >= 0 && number < static_cast<std::int64_t>(kLoggedTypes.size());
  return is_known ? &kLoggedTypes[static_cast<std::size_t>(number)] : nullptr;
}

// Of the whole collective, as models::CollectivePoint has it; 0: not known.
std::int64_t bytes_of(const NcclCall& call, std::int64_t ranks) {
  const LoggedType* const type = logged_type(call.datatype);
  const std::optional<Collective> kind = logged_kind(call.name);
  if (type == nullptr || call.count > kMostBytes / type->bytes) return 0;
  const std::int64_t bytes = call.count * type->bytes;
  if (!kind || !schedule::traits_of(*kind).is_cut()) return bytes;  // else the count is a share's
  return ranks > 0 && bytes <= kMostBytes / ranks ? bytes * ranks : 0;
}

std::string words_of_kind(const std::string& name) {
  const std::optional<Collective> kind = logged_kind(name);
  return kind ? std::string(to_string(*kind)) : name;
}

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

std::optional<std::uint64_t> hex_after(std::string_view text, std::string_view key) {
  std::string_view word = word_after(text, key);
  if (word.starts_with("0x")) word.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// NCCL's choice for one size. `collective` is "" where neither the line nor a call before it names it.
struct Choice {
  std::string algorithm{}, protocol{};
  std::optional<double> us{};
  friend bool operator==(const Choice&, const Choice&) = default;
};
struct ChoiceKey {
  std::string name{};
  std::int64_t bytes = 0;
  std::int64_t ranks = 0;  // 0: unknown
  friend auto operator<=>(const ChoiceKey&, const ChoiceKey&) = default;
};

// Words for the numbers of older versions (ncclAlgoStr and ncclProtoStr, src/init.cc).
std::string named(std::string_view word, std::span<const std::string_view> names) {
  const std::optional<std::int64_t> number = integer_of(word);
  const bool is_known = number && *number >= 0 && *number < static_cast<std::int64_t>(names.size());
  return is_known ? std::string(names[static_cast<std::size_t>(*number)]) : printable(word);
}
constexpr std::array<std::string_view, 7> kAlgorithms = {
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, 3> kProtocols = {"LL", "LL128", "Simple"};

// By collective.
using Table = std::map<Collective, std::vector<Cell>>;

class LogReader {
 public:
  // First for all lines: which hosts there are, for lines that are glued together.
  void learn(std::string_view raw) {
    constexpr std::size_t kMostHosts = 65'536;
    std::string storage;
    const std::optional<NcclLine> line = nccl_line(plain(raw, storage), hosts_);
    if (line && !line->host.empty() && hosts_.size() < kMostHosts) hosts_.emplace(line->host);
  }

  void line(std::string_view raw) {
    std::string storage;
    std::string_view text = plain(raw, storage);
    is_of_ras_ =
        is_of_ras_ || text.starts_with("Job summary") || contains(text, "\"nccl_version\"");
    if (const std::optional<LibraryVersion> version = library_version(text)) {
      ++lines_;
      log_.nccl = printable(version->version);
      log_.library = version->library;
      return;
    }
    std::optional<NcclLine> line = nccl_line(text, hosts_);
    // What is glued before another process's line, or has lost its own front, may be a call.
    call(text.substr(0, line ? line->begin : text.size()), nullptr);
    while (line) {
      ++lines_;
      const std::optional<NcclLine> next = nccl_line(line->message, hosts_);
      std::string_view message = line->message.substr(0, next ? next->begin : std::string::npos);
      while (!message.empty() && message.front() == ' ') message.remove_prefix(1);
      read(message, *line);
      line = next;
    }
  }

  CollectiveLog finish(const std::string& name) {
    refuse_nothing(name);
    log_.tool = log_.library + "'s log";
    communicators_ = communicators_of(members_);
    leave_out_never_completed();
    tell_communicators();
    if (!network_.empty()) log_.read.push_back("network: " + network_);
    if (trees_ && *trees_ >= 0 && *trees_ <= kMostBytes) {
      log_.read.push_back("trees up to " + to_string(Bytes(*trees_)) + ", rings above");
    }
    tell_calls();
    tell_choices();
    model();
    return std::move(log_);
  }

 private:
  // Throws InputError where there is nothing to tell.
  void refuse_nothing(const std::string& name) const {
    const bool tells = !members_.empty() || !choices_.empty() || !pending_.empty();
    if (tells) return;
    const std::string way =
        "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING,ENV and take its log";
    if (is_of_ras_) {
      throw InputError(
          name +
          ": ncclras tells the state of communicators, and of no collective its size or time; " +
          way + "; which ranks hang in what, dovetail import flight-recorder tells");
    }
    if (lines_ == 0) {
      throw InputError(name +
                       ": no line of NCCL's log (expected \"... NCCL INFO ...\"; run the job "
                       "with NCCL_DEBUG=INFO)");
    }
    if (network_.empty()) {
      throw InputError(name + ": lines of " + log_.library +
                       " and no communicator, collective or choice among them; " + way);
    }
  }

  static bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }
  static std::string process_of(const NcclLine& line) {
    return std::string(line.host) + ":" + std::string(line.pid);
  }
  static std::string thread_of(const NcclLine& line) {
    return process_of(line) + ":" + std::string(line.tid);
  }

  void read(std::string_view message, const NcclLine& line) {
    if (contains(message, "Init START")) return initialising(message, line, Stage::Start);
    if (contains(message, "Init COMPLETE") || message.ends_with(" - COMPLETE")) {  // to 2.3
      return initialising(message, line, Stage::Complete);
    }
    if (contains(message, "Destroy COMPLETE") || contains(message, "Abort COMPLETE")) {
      // The pointer may be another communicator's from now on.
      of_pointer(process_of(line), std::string(word_after(message, "comm "))) = kNone;
      return;
    }
    if (contains(message, "nNodes ")) return initialising(message, line, Stage::Nodes);
    if (contains(message, ": opCount ")) return call(message, &line);
    if (contains(message, " Bytes -> ")) return choice(message, line);
    if (contains(message, "|")) return table_row(message, line);
    if (message.starts_with("NCCL_ALGO set by") || message.starts_with("NCCL_PROTO set by") ||
        (message.starts_with("Best tuning {") && contains(message, "forced = 1 "))) {  // 2.31
      is_forced_ = true;
    }
    if (contains(message, " coll channels")) {
      std::int64_t& channels = pending_[thread_of(line)].channels;
      channels = std::max(channels, integer_of(words_of(message).front()).value_or(0));
      settle(line);
    } else if (contains(message, "Trees enabled up to size ")) {  // 2.4
      trees_ = integer_after(message, "Trees enabled up to size ");
    } else if (contains(message, "Using network ")) {
      network_ = printable(trimmed(message.substr(message.find("Using network ") + 14)));
    }
  }

  enum class Stage { Start, Nodes, Complete };

  // "[ncclCommInitRank ]comm 0x55d0 rank 0 nranks 16 cudaDev 0 .. commId 0x84 - Init COMPLETE"
  // "[ncclCommSplit ]comm 0x55d0 rank 0 nranks 8 .. parent 0x77 splitCount 1 color 3 key 0 - Init COMPLETE"
  // "comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0"
  void initialising(std::string_view message, const NcclLine& line, Stage stage) {
    const std::string pointer(word_after(message, "comm "));
    auto ranks = integer_after(message, "nranks ");
    if (!ranks) ranks = integer_after(message, "nRanks ");
    const auto rank = integer_after(message, " rank ");
    if (!ranks || !rank || *ranks < 1 || *ranks > kMostRanks || *rank < 0 || *rank >= *ranks)
      return;
    const std::string id = id_of(message, line);
    std::size_t& current = of_pointer(process_of(line), pointer);
    const bool is_other =
        current == kNone || members_[current].ranks != *ranks ||
        members_[current].rank.value_or(*rank) != *rank ||
        (!id.empty() && !members_[current].id.empty() && members_[current].id != id) ||
        (members_[current].is_complete && stage == Stage::Start);
    if (is_other) current = new_member(line, *ranks);
    NcclMember& member = members_[current];
    member.rank = rank;
    if (!id.empty()) member.id = id;
    if (stage == Stage::Nodes) {
      const auto nodes = integer_after(message, "nNodes ");
      if (nodes && *nodes >= 1) member.nodes = std::min(*nodes, *ranks);
    }
    of_thread_[thread_of(line)] = current;
    settle(line);
    if (stage == Stage::Start) member.has_begun = true;
    if (stage == Stage::Complete) {
      member.is_complete = true;
      of_thread_.erase(thread_of(line));
    }
  }

  // What is the same on all ranks of a communicator and of no other; "": the line does not say it.
  std::string id_of(std::string_view message, const NcclLine& line) {
    const std::string_view id = word_after(message, "commId ");
    if (!id.empty()) return std::string(id);
    const std::string_view parent = word_after(message, "parent ");
    std::string_view count = word_after(message, "splitCount ");
    if (count.empty()) count = word_after(message, "childCount ");
    const std::string_view color = word_after(message, "color ");
    if (parent.empty() || count.empty() || color.empty()) return "";
    const std::size_t from = of_pointer(process_of(line), std::string(parent));
    if (from == kNone || members_[from].id.empty()) return "";
    return members_[from].id + "/" + std::string(count) + "/" + std::string(color);
  }

  std::size_t& of_pointer(const std::string& process, const std::string& pointer) {
    return of_pointer_.try_emplace({process, pointer}, kNone).first->second;
  }

  std::size_t new_member(const NcclLine& line, std::int64_t ranks) {
    // One process may drive several devices: "[3]" is the line's.
    members_.push_back({.process = process_of(line) + std::string(line.device),
                        .host = std::string(line.host),
                        .ranks = ranks});
    tables_.emplace_back();
    return members_.size() - 1;
  }

  // Gives what a thread said of the communicator that it is initialising to that one, once it is known.
  void settle(const NcclLine& line) {
    const auto thread = of_thread_.find(thread_of(line));
    const auto pending = pending_.find(thread_of(line));
    if (thread == of_thread_.end() || pending == pending_.end()) return;
    NcclMember& member = members_[thread->second];
    member.channels = std::max(member.channels, pending->second.channels);
    for (auto& [collective, cells] : pending->second.table) {
      std::vector<Cell>& to = tables_[thread->second][collective];
      to.insert(to.end(), cells.begin(), cells.end());
    }
    pending_.erase(pending);
  }

  // "AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x1 count 262144 datatype 7 op 0 root 0 comm 0x2 [nranks=8] .."
  void call(std::string_view text, const NcclLine* line) {
    const std::size_t mark = text.find(": opCount ");
    if (mark == std::string_view::npos) return;
    const std::vector<std::string_view> before = words_of(text.substr(0, mark));
    const auto op_count = hex_after(text, ": opCount ");
    const auto count = integer_after(text, " count ");
    const auto datatype = integer_after(text, " datatype ");
    const std::string pointer(word_after(text, " comm "));
    if (before.empty() || !op_count || !count || *count < 0 || !datatype) return;
    std::string_view after = text.substr(std::min(text.size(), text.find("[nranks=")));
    if (!after.empty()) after.remove_prefix(8);
    const std::int64_t ranks = std::clamp<std::int64_t>(
        integer_of(after.substr(0, after.find(']'))).value_or(0), 0, kMostRanks);
    if (line == nullptr) {
      if (pointer.empty() || ranks == 0) return;  // any text
      ++lines_;
    }
    const std::string process = line == nullptr ? "" : process_of(*line);
    std::size_t& current = of_pointer(process, pointer);
    if (current == kNone || (ranks > 0 && members_[current].ranks != ranks)) {
      current = line == nullptr ? new_member({}, ranks) : new_member(*line, ranks);
      if (line == nullptr) members_[current].process.clear();
    }
    const NcclCall made{.name = printable(before.back()),
                        .count = *count,
                        .datatype = *datatype,
                        .root = integer_after(text, " root ").value_or(0)};
    members_[current].calls[*op_count].push_back(made);
    if (line != nullptr) last_call_[process] = {made, members_[current].ranks};
  }

  // "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}", without "AllReduce: ", with
  // numbers and "time 25.229528", or "AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 .."
  void choice(std::string_view message, const NcclLine& line) {
    constexpr std::size_t kMost = 256;
    const std::size_t mark = message.find(" Bytes -> ");
    const std::vector<std::string_view> before = words_of(message.substr(0, mark));
    const std::string_view what = message.substr(mark + 10);
    const auto bytes = before.empty() ? std::nullopt : integer_of(before.back());
    if (!bytes || *bytes < 0 || *bytes > kMostBytes) return;
    ChoiceKey key{.bytes = *bytes};
    std::string_view name = before.size() > 1 ? before.front() : "";
    if (name.ends_with(':')) name.remove_suffix(1);
    key.name = printable(name);
    const auto last = last_call_.find(process_of(line));
    if (last != last_call_.end()) {
      const auto& [call, ranks] = last->second;
      const std::int64_t share = bytes_of(call, 1);
      const std::int64_t whole = bytes_of(call, ranks);
      const bool is_its = *bytes == share || *bytes == whole;
      if (is_its && (key.name.empty() || key.name == call.name)) {
        key = {call.name, std::max(whole, *bytes), ranks};
      }
    }
    if (choices_.size() >= kMost && !choices_.contains(key)) return;
    Choice made{.algorithm = named(word_after(what, "Algo "), kAlgorithms),
                .protocol = named(word_after(what, "proto "), kProtocols),
                .us = number_of(word_after(what, " time "))};
    if (what.starts_with("Kernel ")) made.algorithm = printable(word_after(what, "Kernel "));
    if (made.algorithm.empty()) made.algorithm = printable(trimmed(what.substr(0, what.find(';'))));
    choices_[key] = std::move(made);
  }

  // One row of the table of latencies and bandwidths; blocks of three algorithms follow each other.
  void table_row(std::string_view message, const NcclLine& line) {
    constexpr std::size_t kMostCells = 256;
    const std::vector<std::string_view> parts = split(message, '|');
    const std::optional<Collective> kind = logged_kind(trimmed(parts.front()));
    if (!kind) return;
    std::vector<Cell>& cells = pending_[thread_of(line)].table[*kind];
    for (std::size_t i = 1; i < parts.size() && cells.size() < kMostCells; ++i) {
      if (const std::optional<Cell> cell = cell_of(parts[i])) cells.push_back(*cell);
      has_negative_ = has_negative_ || trimmed(parts[i]).starts_with('-');
    }
    settle(line);
  }

  static std::string nodes_in_words(const NcclCommunicator& one) {
    if (one.nodes) return " on " + counted(*one.nodes, "node");
    return ", nodes unknown" + (one.hosts.empty()
                                    ? std::string()
                                    : " (" + counted(one.hosts.size(), "host") + " seen)");
  }

  // A communicator whose ranks all began to initialise it, of which none ended and none called anything, is none.
  void leave_out_never_completed() {
    const auto is_open = [&](std::size_t number) {
      const NcclMember& member = members_[number];
      return member.has_begun && !member.is_complete && member.calls.empty();
    };
    std::map<std::pair<std::int64_t, std::size_t>, std::size_t>
        open;  // by ranks, and how many began
    std::erase_if(communicators_, [&](const NcclCommunicator& one) {
      if (!std::ranges::all_of(one.members, is_open)) return false;
      ++open[{one.ranks, one.members.size()}];
      return true;
    });
    for (const auto& [what, count] : open) {
      log_.left_out.push_back(counted(count, "communicator") + " of " +
                              counted(what.first, "rank") +
                              " never completed: " + counted(what.second, "rank") +
                              " began (\"Init START\"), none says \"Init COMPLETE\"");
    }
  }

  void tell_communicators() {
    // Those that are alike are told once.
    std::map<std::string, std::pair<std::size_t, std::size_t>> alike;  // how many, place
    std::vector<std::string> order;
    for (const NcclCommunicator& one : communicators_) {
      if (one.ranks == 0) continue;  // its calls are told
      const std::string text =
          " of " + counted(one.ranks, "rank") + nodes_in_words(one) + ", seen from " +
          counted(one.members.size(), "rank") +
          (one.channels > 0 ? ", " + counted(one.channels, "channel") + " for collectives" : "");
      if (alike[text].first++ == 0) order.push_back(text);
    }
    for (const std::string& text : order) {
      const std::size_t count = alike[text].first;
      log_.read.push_back(counted(count, "communicator") + text);
    }
    for (const auto& [thread, facts] : pending_) {
      if (facts.channels == 0) continue;
      log_.read.push_back(counted(facts.channels, "channel") +
                          " for collectives, of a communicator that the log does not name");
      break;
    }
  }

  // What the ranks of each communicator called, in the order of its opCount.
  void tell_calls() {
    constexpr std::size_t kShown = 8;
    std::size_t told = 0;
    std::size_t more = 0;
    for (const NcclCommunicator& one : communicators_) {
      const std::vector<NcclCollective> collectives = collectives_of(one, members_);
      if (collectives.empty()) continue;
      if (told++ >= kShown) {
        ++more;
        continue;
      }
      tell_calls(one, collectives);
    }
    if (more > 0) {
      log_.left_out.push_back("the calls of " + counted(more, "further communicator"));
    }
  }

  void tell_calls(const NcclCommunicator& one, const std::vector<NcclCollective>& collectives) {
    std::vector<SequenceEntry> sequence;
    std::set<std::int64_t> types;
    std::size_t fewest = collectives.front().seen;
    std::size_t most = 0;
    std::size_t differ = 0;
    for (std::size_t i = 0; i < collectives.size(); ++i) {
      const NcclCollective& call = collectives[i];
      sequence.push_back({words_of_kind(call.call.name), bytes_of(call.call, one.ranks)});
      types.insert(call.call.datatype);
      fewest = std::min(fewest, call.seen);
      most = std::max(most, call.seen);
      differ += i > 0 && call.op_count == collectives[i - 1].op_count &&
                        call.index == collectives[i - 1].index
                    ? 1
                    : 0;
    }
    const std::string of =
        one.ranks > 0 ? "over " + counted(one.ranks, "rank") : "over unknown ranks";
    const LoggedType* const type = types.size() == 1 ? logged_type(*types.begin()) : nullptr;
    const bool is_repeated = period_of(sequence) > 0;
    log_.read.push_back(
        of + ": " + (is_repeated ? counted(collectives.size(), "call") + ", " : "") +
        in_words(sequence) + "; " +
        (type != nullptr ? "of " + std::string(type->name) + ", " : std::string()) +
        (collectives.size() > 1 ? "each " : "") + "seen from " +
        (fewest == most ? "" : std::to_string(fewest) + " to ") + counted(most, "rank"));
    if (differ > 0) {
      log_.left_out.push_back(of + ": under " + counted(differ, "opCount") +
                              " the ranks call different collectives: lines are missing, or their "
                              "communicators are several that the log does not tell apart");
    }
  }

  // Sizes in a row for which it chose the same are one line: "AllReduce of 16 MiB to 104 MiB: algorithm RING".
  void tell_choices() {
    constexpr std::size_t kShown = 64;
    std::size_t told = 0;
    for (auto first = choices_.begin(); first != choices_.end() && told < kShown; ++told) {
      const auto& [key, choice] = *first;
      auto last = first;
      auto next = std::next(first);
      while (next != choices_.end() && next->first.name == key.name && next->second == choice) {
        last = next++;
      }
      const std::string what = key.name.empty() ? "a collective" : key.name;
      const std::string smallest = to_string(Bytes(key.bytes));
      const std::string largest = to_string(Bytes(last->first.bytes));
      log_.read.push_back(
          what + " of " + smallest + (largest == smallest ? "" : " to " + largest) +
          ": algorithm " + choice.algorithm +
          (choice.protocol.empty() ? "" : ", protocol " + choice.protocol) +
          (choice.us
               ? ", " + to_string(from_us(std::clamp(*choice.us, 0.0, 1e12))) + " by NCCL's model"
               : ""));
      first = next;
    }
  }

  // The least over the enabled ones of latency + bytes / bandwidth, from 1 KiB to 4 GiB.
  static std::optional<double> least_us(const std::vector<Cell>& cells, Bytes bytes) {
    std::optional<double> best;
    for (const Cell& cell : cells) {
      if (cell.gb_per_s <= 0) continue;
      const double us =
          cell.latency_us + static_cast<double>(bytes.count()) / (1e3 * cell.gb_per_s);
      if (!best || us < *best) best = us;
    }
    return best;
  }

  void add_sample(Collective collective, std::int64_t ranks, std::optional<std::int64_t> nodes,
                  std::int64_t bytes, double us) {
    if (us < 0.001 || us > 1e12 || ranks < 2 || bytes < 1) return;
    log_.samples.push_back({collective, ranks, nodes, Bytes(bytes), from_us(us), Launch::Queued});
  }

  void model() {
    std::set<std::pair<Collective, std::int64_t>> known;
    if (is_forced_ && has_negative_) {
      log_.left_out.emplace_back(
          "the table of NCCL's model of times, which since 2.31 also has what NCCL_ALGO and "
          "NCCL_PROTO rule out: take the log without them");
      for (Table& table : tables_) table.clear();
    }
    for (const NcclCommunicator& one : communicators_) {
      Table table;
      for (const std::size_t member : one.members) {
        if (!tables_[member].empty()) table = tables_[member];  // rank 0's
      }
      for (const auto& [collective, cells] : table) {
        if (!known.insert({collective, one.ranks}).second) continue;
        for (Bytes bytes = kib(1); bytes <= gib(4); bytes = bytes * 2) {
          const std::optional<double> us = least_us(cells, bytes);
          if (us) add_sample(collective, one.ranks, one.nodes, bytes.count(), *us);
        }
      }
    }
    model_of_choices(known);
    const bool has_lost_table = std::ranges::any_of(
        pending_, [](const auto& entry) { return !entry.second.table.empty(); });
    if (!log_.samples.empty()) {
      log_.is_model = true;
      log_.left_out.emplace_back(
          "the times are NCCL's own model, not measured: 15 to 50 % off where we could compare");
    } else if (std::ranges::any_of(choices_,
                                   [](const auto& one) { return one.second.us.has_value(); })) {
      log_.left_out.emplace_back(
          "NCCL's model of times, as the log does not say of which collective and how many ranks: "
          "run with NCCL_DEBUG_SUBSYS=INIT,TUNING,COLL,ENV");
    } else if (is_forced_ && has_negative_) {
      return;
    } else if (has_lost_table) {
      log_.left_out.emplace_back(
          "a table of NCCL's model of times, as no line says over how many ranks (the \"Init "
          "COMPLETE\" of the same thread is missing)");
    } else {
      log_.left_out.emplace_back(
          "no table of NCCL's model of times: run with NCCL_DEBUG_SUBSYS=INIT,TUNING,ENV and take "
          "rank 0's log");
    }
  }

  // The times of choices, of collectives that no table has.
  void model_of_choices(const std::set<std::pair<Collective, std::int64_t>>& known) {
    // A choice without a call is of the only communicator there is.
    const std::int64_t only = communicators_.size() == 1 ? communicators_.front().ranks : 0;
    for (const auto& [key, choice] : choices_) {
      const std::optional<Collective> kind = logged_kind(key.name);
      const std::int64_t ranks = key.ranks > 0 ? key.ranks : only;
      if (!kind || !choice.us || ranks < 2 || known.contains({*kind, ranks})) {
        continue;
      }
      const auto same = std::ranges::find(communicators_, ranks, &NcclCommunicator::ranks);
      add_sample(*kind, ranks, same == communicators_.end() ? std::nullopt : same->nodes, key.bytes,
                 *choice.us);
    }
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // Of the communicator that a thread is initialising, before it is named.
  struct Pending {
    std::int64_t channels = 0;
    Table table;
  };

  CollectiveLog log_;
  std::size_t lines_ = 0;
  std::set<std::string, std::less<>> hosts_;
  std::vector<NcclMember> members_;
  std::vector<Table> tables_;                                              // of each member
  std::map<std::pair<std::string, std::string>, std::size_t> of_pointer_;  // by process and pointer
  std::map<std::string, std::size_t> of_thread_;
  std::map<std::string, Pending> pending_;                              // by thread
  std::map<std::string, std::pair<NcclCall, std::int64_t>> last_call_;  // by process; ranks
  std::map<ChoiceKey, Choice> choices_;
  std::vector<NcclCommunicator> communicators_;
  bool is_of_ras_ = false;  // a report of NCCL's RAS client
  bool is_forced_ = false;  // the user names algorithms or protocols
  bool has_negative_ =
      false;  // a table of 2.31 or later: what no table before has for what does not exist
  std::string network_;
  std::optional<std::int64_t> trees_;  // the largest message that goes over trees
};

}  // namespace

CollectiveLog read_nccl_log(std::span<const Source> files) {
  LogReader reader;
  for (const Source& source : files) {
    for_each_line(source.text, [&](std::string_view line, std::size_t) { reader.learn(line); });
  }
  for (const Source& source : files) {
    for_each_line(source.text, [&](std::string_view line, std::size_t) { reader.line(line); });
  }
  return reader.finish(files.empty() ? "no file" : files.front().name);
}

}  // namespace dovetail::imports
