// One run of nccl-tests judged: where the rows of several runs stand one after the other they are cut apart,
// then each piece's collective and ranks are found, and which of its rows are usable.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/count.h"
#include "calibrate/logs/nccl_tests.h"
#include "recordings/limits.h"
#include "recordings/text.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <map>
#include <span>
#include <utility>

namespace dovetail::imports {
namespace {

using schedule::Collective;
using Times = NcclTestsRow::Times;

// busbw / algbw of a run with its rounding: both are printed with few digits.
struct Ratio {
  double value = 0;
  double error = 0;
};

void better(std::optional<Ratio>& best, std::int64_t bytes, const std::optional<Times>& times) {
  if (!times || times->algbw <= 0 || times->busbw <= 0) return;
  constexpr double kMargin = 1.02;
  double algbw = times->algbw;
  double relative = times->algbw_error / algbw;
  const double exact = static_cast<double>(bytes) / times->us / 1e3;
  const double exact_relative = times->us_error / times->us;
  if (std::abs(exact - algbw) <= kMargin * (times->algbw_error + exact * exact_relative)) {
    algbw = exact;
    relative = std::min(relative, exact_relative);
  }
  relative = kMargin * (relative + times->busbw_error / times->busbw);
  const double value = times->busbw / algbw;
  if (!best || value * relative < best->error) best = Ratio{value, value * relative};
}

std::optional<Ratio> ratio_of(std::span<const NcclTestsRow> rows) {
  std::optional<Ratio> best;
  for (const NcclTestsRow& row : rows) {
    better(best, row.bytes, row.in_place);
    better(best, row.bytes, row.out_of_place);
  }
  constexpr double kTooRough = 0.1;
  return best && best->error < kTooRough ? best : std::nullopt;
}

bool agrees(const Ratio& ratio, double factor) {
  return std::abs(ratio.value - factor) <= ratio.error + 0.002;
}

// Ranks that have this ratio, if the rounding leaves one number only.
std::optional<std::int64_t> ranks_from(const Ratio& ratio, Collective collective) {
  const double whole = schedule::traits_of(collective).crossings;
  if (whole == 0) return {};
  const auto ranks = [&](double value) { return whole / (whole - value); };
  if (ratio.value + ratio.error >= whole) return {};
  const double low = ranks(ratio.value - ratio.error);
  const double high = ranks(ratio.value + ratio.error);
  const double nearest = std::round(ranks(ratio.value));
  if (nearest < 2 || high - low > 0.9) return {};
  return static_cast<std::int64_t>(nearest);
}

bool reduces(const NcclTestsRow& row) { return !row.redop.empty() && row.redop != "none"; }

struct Judged {
  std::optional<Collective> collective;
  std::string problem;  // why the run cannot be used
};

Judged collective_by_columns(const NcclTestsRun& run, const std::optional<Ratio>& ratio) {
  const std::string ask = "; say which with --collective";
  const NcclTestsRow& row = run.rows.front();
  const bool has_operation = reduces(row);
  const double n = run.ranks ? static_cast<double>(*run.ranks) : 0;
  if (!ratio) return {{}, "its bandwidths are too small to tell the collective" + ask};
  if (row.root >= 0) {
    if (!has_operation && agrees(*ratio, 1)) return {Collective::Broadcast, ""};
    return {{}, "it is a reduce, a gather or a scatter, of which plans make no use"};
  }
  if (!has_operation) return {{}, "it may be an all-gather or an all-to-all" + ask};
  const bool all_reduce = n >= 2 ? agrees(*ratio, 2 * (n - 1) / n) : ratio->value >= 0.995;
  const bool scatter = n >= 2 ? agrees(*ratio, (n - 1) / n) : ratio->value < 0.995;
  if (all_reduce) return {Collective::AllReduce, ""};
  if (scatter) return {Collective::ReduceScatter, ""};
  return {{},
          "its busbw / algbw is that of no collective over " + std::to_string(*run.ranks) +
              " ranks" + ask};
}

Judged collective_of(const NcclTestsRun& run, const std::optional<Ratio>& ratio,
                     const NcclTestsOptions& options) {
  if (options.collective) return {options.collective, ""};
  if (const auto kind =
          schedule::collective_named(&schedule::CollectiveTraits::nccl_tests, run.program)) {
    return {kind, ""};
  }
  if (!run.program.empty()) return {{}, "plans make no use of " + run.program};
  return collective_by_columns(run, ratio);
}

// The run's own statement of ranks against its bandwidths; "" where they agree.
std::string contradiction(const NcclTestsRun& run, const std::optional<Ratio>& ratio,
                          Collective collective, std::int64_t ranks) {
  const double factor = bus_factor(collective, ranks);
  if (!ratio || agrees(*ratio, factor)) return "";
  const auto text = [](double value) { return std::to_string(std::round(value * 1000) / 1000); };
  return "its busbw / algbw is " + text(ratio->value).substr(0, 5) + ", but that of " +
         (run.program.empty() ? std::string(to_string(collective)) : run.program) + " over " +
         std::to_string(ranks) + " ranks is " + text(factor).substr(0, 5);
}

// Cuts rows into runs (see the header). Within a run that has its own first lines only the ratio counts: a program
// may repeat sizes, and reduces with one operation after the other (-o all).
class Cutter {
 public:
  explicit Cutter(bool has_head) : has_head_(has_head) {}

  std::vector<std::vector<NcclTestsRow>> cut(const std::vector<NcclTestsRow>& rows) {
    std::vector<std::vector<NcclTestsRow>> pieces;
    for (const NcclTestsRow& row : rows) {
      const std::optional<Ratio> ratio = ratio_of(std::span(&row, 1));
      if (pieces.empty() || begins_anew(pieces.back(), row, ratio)) {
        pieces.emplace_back();
        ratio_.reset();
        direction_ = std::strong_ordering::equal;
      } else if (direction_ == 0) {
        direction_ = row.bytes <=> pieces.back().back().bytes;
      }
      if (ratio && (!ratio_ || ratio->error < ratio_->error)) ratio_ = ratio;
      pieces.back().push_back(row);
    }
    return pieces;
  }

 private:
  [[nodiscard]] bool begins_anew(const std::vector<NcclTestsRow>& piece, const NcclTestsRow& row,
                                 const std::optional<Ratio>& ratio) const {
    if (ratio && ratio_ &&
        std::abs(ratio->value - ratio_->value) > ratio->error + ratio_->error + 0.002) {
      return true;
    }
    if (has_head_) return false;
    const NcclTestsRow& last = piece.back();
    const std::strong_ordering step = row.bytes <=> last.bytes;
    return row.dtype != last.dtype || row.redop != last.redop || row.origin != last.origin ||
           step == 0 || (direction_ != 0 && step != direction_);
  }

  bool has_head_;
  std::optional<Ratio> ratio_;                                    // the best of the piece
  std::strong_ordering direction_ = std::strong_ordering::equal;  // in which its sizes go
};

// The value that most rows have, the first of equals.
std::string most_frequent(const NcclTestsRun& run, std::string NcclTestsRow::*field) {
  std::map<std::string, int> counts;
  std::string best;
  for (const NcclTestsRow& row : run.rows) ++counts[row.*field];
  for (const NcclTestsRow& row : run.rows) {
    if (best.empty() || counts[row.*field] > counts[best]) best = row.*field;
  }
  return best;
}

// Of the operations that a run reduced with: gradients are summed.
std::string wanted_operation(const NcclTestsRun& run) {
  const bool has_sum = std::ranges::count(run.rows, "sum", &NcclTestsRow::redop) > 0;
  return has_sum ? "sum" : most_frequent(run, &NcclTestsRow::redop);
}

// Whether the time gives the bandwidth that stands beside it: else columns were lost or numbers edited.
bool is_consistent(std::int64_t bytes, const Times& times) {
  constexpr double kTolerance = 0.2;
  if (times.algbw <= 0) return true;
  const double expected = static_cast<double>(bytes) / times.us / 1e3;
  return std::abs(expected - times.algbw) <= kTolerance * times.algbw + 2 * times.algbw_error;
}

constexpr std::size_t kShownProblems = 8;

// What became of the rows.
struct Unused {
  std::size_t no_bytes = 0, wrong = 0, other_kind = 0, too_large = 0, inconsistent = 0;
  // Used all the same: the log does not say whether their values were right; those of the other buffers were wrong.
  std::size_t unchecked = 0, wrong_elsewhere = 0;
};

// Adds the usable rows.
void take_rows(std::span<const NcclTestsRow> rows, const std::string& dtype,
               const std::string& redop, Buffers buffers, NcclTestsPart& part, Unused& unused) {
  constexpr double kLongestUs = 1e12;
  const bool wants_in_place = buffers == Buffers::InPlace;
  for (const NcclTestsRow& row : rows) {
    const std::optional<Times>& wanted = wants_in_place ? row.in_place : row.out_of_place;
    const Times& times = wanted ? *wanted : *(wants_in_place ? row.out_of_place : row.in_place);
    if (row.bytes <= 0) {
      ++unused.no_bytes;
    } else if (row.bytes > kMostBytes || times.us > kLongestUs || times.us < 0.001) {
      ++unused.too_large;
    } else if (row.dtype != dtype || (reduces(row) && row.redop != redop)) {
      ++unused.other_kind;
    } else if (times.is_wrong) {
      ++unused.wrong;
    } else if (!is_consistent(row.bytes, times)) {
      ++unused.inconsistent;
    } else {
      part.other_buffers += wanted ? 0 : 1;
      unused.unchecked += times.is_checked ? 0 : 1;
      const std::optional<Times>& other = wants_in_place ? row.out_of_place : row.in_place;
      unused.wrong_elsewhere += wanted && other && other->is_wrong ? 1 : 0;
      part.samples.push_back({Bytes(row.bytes), from_us(times.us)});
    }
  }
}

void tell(const std::string& at, const NcclTestsRun& run, const Unused& unused,
          const std::string& kind, CollectiveLog& log) {
  const auto leave_out = [&](std::size_t count, const std::string& why) {
    if (count > 0) log.left_out.push_back(at + counted(count, "row") + " " + why);
  };
  leave_out(unused.no_bytes, "of 0 bytes");
  leave_out(unused.wrong, "with wrong values: their times are those of a broken run");
  leave_out(unused.other_kind, "of other types or operations than " + kind);
  leave_out(unused.too_large, "with a size or a time beyond what a cluster file holds");
  leave_out(unused.inconsistent, "whose time and bandwidth contradict each other");
  if (!run.verdict.empty() && unused.wrong == 0) {
    std::string text = at + "the run ended with \"" + run.verdict +
                       "\", though no row of the columns taken shows a wrong value";
    if (unused.unchecked > 0) {
      text += ", which were not checked in " + counted(unused.unchecked, "row");
    }
    if (unused.wrong_elsewhere > 0) {
      text += "; wrong in the other columns: " + counted(unused.wrong_elsewhere, "row");
    }
    log.left_out.push_back(std::move(text));
  }
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < std::min(kShown, run.remarks.size()); ++i) {
    log.left_out.push_back(at + run.remarks[i]);
  }
  if (run.remarks.size() > kShown) {
    log.left_out.push_back(at + std::to_string(run.remarks.size() - kShown) + " more like that");
  }
}

// "lines 5 to 9"; a run with its own first lines is where these begin.
std::string place_of(const NcclTestsRun& run, std::span<const NcclTestsRow> rows) {
  if (run.has_head || rows.empty()) return run.place;
  const std::string first = std::to_string(rows.front().line);
  if (rows.size() == 1) return "line " + first;
  return "lines " + first + " to " + std::to_string(rows.back().line);
}

// Which collective over how many ranks the rows of `run` are of; absent, with the reason told: they are unusable.
std::optional<NcclTestsPart> judge(const std::string& at, const NcclTestsRun& run,
                                   const NcclTestsOptions& options, CollectiveLog& log) {
  const auto refuse = [&](const std::string& why) {
    log.left_out.push_back(at + why);
    return std::nullopt;
  };
  const std::optional<Ratio> ratio = ratio_of(run.rows);
  const Judged judged = collective_of(run, ratio, options);
  if (!judged.collective) return refuse(judged.problem);
  std::optional<std::int64_t> ranks = run.ranks;
  std::string ranks_by;
  if (options.ranks) {
    ranks = options.ranks;
    ranks_by = "as --ranks says";
  }
  if (!ranks && ratio) {
    ranks = ranks_from(*ratio, *judged.collective);
    ranks_by = "by busbw / algbw";
  }
  if (!ranks) return refuse("it does not say over how many ranks; say it with --ranks");
  if (*ranks < 2) return refuse("it ran over one rank, which communicates with nobody");
  if (*ranks > kMostRanks) return refuse("it is over more than 2^24 ranks");
  const std::string wrong = contradiction(run, ratio, *judged.collective, *ranks);
  if (!wrong.empty()) return refuse(wrong);
  NcclTestsPart part{.collective = *judged.collective,
                     .ranks = *ranks,
                     .ranks_by = ranks_by,
                     .nodes = run.nodes,
                     .gpu = run.gpu,
                     .is_blocking = run.is_blocking,
                     .groups = run.groups,
                     .is_bare = !run.has_head};
  if (part.nodes) part.nodes = std::min(*part.nodes, *ranks);
  return part;
}

}  // namespace

std::vector<NcclTestsPart> parts_of(const std::string& file, const NcclTestsRun& run,
                                    const NcclTestsOptions& options, CollectiveLog& log) {
  const std::string whole = file + ": " + run.place + ": ";
  std::vector<NcclTestsPart> parts;
  if (run.rows.empty()) {
    tell(whole, run, {}, "", log);
    return parts;
  }
  if (run.is_cpu_time) {
    log.left_out.push_back(
        whole + "it printed the CPU's time (-C 1), how long the calls took; run it without -C");
    return parts;
  }
  const std::string redop = wanted_operation(run);
  const std::string dtype = most_frequent(run, &NcclTestsRow::dtype);
  Unused unused;
  NcclTestsRun piece = run;
  const std::size_t told = log.left_out.size();
  for (std::vector<NcclTestsRow>& rows : Cutter(run.has_head).cut(run.rows)) {
    piece.rows = std::move(rows);
    const std::string place = place_of(run, piece.rows);
    std::optional<NcclTestsPart> part = judge(file + ": " + place + ": ", piece, options, log);
    if (!part) continue;
    part->file = file;
    part->place = place;
    take_rows(piece.rows, run.has_head ? dtype : piece.rows.front().dtype, redop, options.buffers,
              *part, unused);
    if (part->samples.empty()) continue;
    if (log.gpu.empty()) log.gpu = run.gpu;
    const auto same = std::ranges::find_if(parts, [&](const NcclTestsPart& other) {
      return run.has_head && other.collective == part->collective && other.ranks == part->ranks;
    });
    if (same == parts.end()) {
      parts.push_back(std::move(*part));
    } else {
      same->samples.insert(same->samples.end(), part->samples.begin(), part->samples.end());
      same->other_buffers += part->other_buffers;
    }
  }
  if (log.left_out.size() > told + kShownProblems) {
    const std::size_t more = log.left_out.size() - told - kShownProblems;
    log.left_out.resize(told + kShownProblems);
    log.left_out.push_back(whole + std::to_string(more) + " more pieces like that");
  }
  tell(whole, run, unused, dtype + (redop.empty() || redop == "none" ? "" : " " + redop), log);
  return parts;
}

}  // namespace dovetail::imports
