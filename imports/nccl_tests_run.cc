// One run of nccl-tests judged: which collective over how many ranks, and which rows are usable.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/count.h"
#include "imports/limits.h"
#include "imports/nccl_tests.h"
#include "imports/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace dovetail::imports {
namespace {

using schedule::Collective;
using Times = NcclTestsRow::Times;

struct Program {
  std::string_view name;
  Collective collective;
};
constexpr std::array<Program, 6> kProgramKinds = {
    {{"all_reduce_perf", Collective::AllReduce},
     {"reduce_scatter_perf", Collective::ReduceScatter},
     {"all_gather_perf", Collective::AllGather},
     {"alltoall_perf", Collective::AllToAll},
     {"broadcast_perf", Collective::Broadcast},
     {"sendrecv_perf", Collective::SendRecv}}};

// busbw / algbw of a run with its rounding: both are printed with few digits.
struct Ratio {
  double value = 0;
  double error = 0;
};

// Half of the last digit that is printed in six places: two after the point, one or none from 1000 on.
double half_digit(double value) { return value >= 10000 ? 0.51 : value >= 1000 ? 0.051 : 0.0051; }

void better(std::optional<Ratio>& best, const std::optional<Times>& times) {
  if (!times || times->algbw <= 0 || times->busbw <= 0) return;
  const double relative =
      half_digit(times->algbw) / times->algbw + half_digit(times->busbw) / times->busbw;
  const double value = times->busbw / times->algbw;
  if (!best || value * relative < best->error) best = Ratio{value, value * relative};
}

std::optional<Ratio> ratio_of(const NcclTestsRun& run) {
  std::optional<Ratio> best;
  for (const NcclTestsRow& row : run.rows) {
    better(best, row.in_place);
    better(best, row.out_of_place);
  }
  constexpr double kTooRough = 0.1;
  return best && best->error < kTooRough ? best : std::nullopt;
}

bool agrees(const Ratio& ratio, double factor) {
  return std::abs(ratio.value - factor) <= ratio.error + 0.002;
}

// Ranks that have this ratio, if the rounding leaves one number only.
std::optional<std::int64_t> ranks_from(const Ratio& ratio, Collective collective) {
  const double whole = collective == Collective::AllReduce ? 2 : 1;
  if (collective == Collective::Broadcast || collective == Collective::SendRecv) return {};
  const auto ranks = [&](double value) { return whole / (whole - value); };
  if (ratio.value + ratio.error >= whole) return {};
  const double low = ranks(ratio.value - ratio.error);
  const double high = ranks(ratio.value + ratio.error);
  const double nearest = std::round(ranks(ratio.value));
  if (nearest < 2 || high - low > 0.9) return {};
  return static_cast<std::int64_t>(nearest);
}

struct Judged {
  std::optional<Collective> collective;
  std::string problem;  // why the run cannot be used
};

Judged collective_by_columns(const NcclTestsRun& run, const std::optional<Ratio>& ratio) {
  const std::string ask = "; say which with --collective";
  const NcclTestsRow& row = run.rows.front();
  const bool reduces = !row.redop.empty() && row.redop != "none";
  const double n = run.ranks ? static_cast<double>(*run.ranks) : 0;
  if (!ratio) return {{}, "its bandwidths are too small to tell the collective" + ask};
  if (row.root >= 0) {
    if (!reduces && agrees(*ratio, 1)) return {Collective::Broadcast, ""};
    return {{}, "it is a reduce, a gather or a scatter, of which plans make no use"};
  }
  if (!reduces) return {{}, "it may be an all-gather or an all-to-all" + ask};
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
  for (const Program& program : kProgramKinds) {
    if (program.name == run.program) return {program.collective, ""};
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

std::string sizes_in_words(const std::set<std::int64_t>& sizes) {
  std::string text = counted(sizes.size(), "size");
  if (sizes.size() < 2) return text + ", " + to_string(Bytes(*sizes.begin()));
  return text + " from " + to_string(Bytes(*sizes.begin())) + " to " +
         to_string(Bytes(*sizes.rbegin()));
}

// What became of the rows.
struct Used {
  std::set<std::int64_t> sizes;
  std::size_t no_bytes = 0, wrong = 0, other_kind = 0, other_buffers = 0, too_large = 0;
};

Used add_rows(const NcclTestsRun& run, const NcclTestsOptions& options, CollectiveSample sample,
              CollectiveLog& log) {
  constexpr double kLongestUs = 1e12;
  Used used;
  const std::string dtype = most_frequent(run, &NcclTestsRow::dtype);
  const std::string redop = most_frequent(run, &NcclTestsRow::redop);
  for (const NcclTestsRow& row : run.rows) {
    const bool wants_in_place = options.buffers == Buffers::InPlace;
    const std::optional<Times>& wanted = wants_in_place ? row.in_place : row.out_of_place;
    const Times& times = wanted ? *wanted : *(wants_in_place ? row.out_of_place : row.in_place);
    if (row.bytes <= 0) {
      ++used.no_bytes;
    } else if (row.bytes > kMostBytes || times.us > kLongestUs || times.us < 0.001) {
      ++used.too_large;
    } else if (row.dtype != dtype || row.redop != redop) {
      ++used.other_kind;
    } else if (times.is_wrong) {
      ++used.wrong;
    } else {
      used.other_buffers += wanted ? 0 : 1;
      used.sizes.insert(row.bytes);
      sample.bytes = Bytes(row.bytes);
      sample.time = from_us(times.us);
      log.samples.push_back(sample);
    }
  }
  return used;
}

void tell(const std::string& at, const NcclTestsRun& run, const NcclTestsOptions& options,
          const Used& used, CollectiveLog& log) {
  const auto leave_out = [&](std::size_t count, const std::string& why) {
    if (count > 0) log.left_out.push_back(at + counted(count, "row") + " " + why);
  };
  const std::string wanted = options.buffers == Buffers::InPlace ? "in" : "out of";
  leave_out(used.no_bytes, "of 0 bytes");
  leave_out(used.wrong, "with wrong values: their times are those of a broken run");
  leave_out(used.other_kind, "of another type or reduction than most");
  leave_out(used.too_large, "with a size or a time beyond what a cluster file holds");
  if (used.other_buffers > 0) {
    log.read.push_back(at + counted(used.other_buffers, "row") + " had no time " + wanted +
                       " place: the other one was taken");
  }
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < std::min(kShown, run.remarks.size()); ++i) {
    log.left_out.push_back(at + run.remarks[i]);
  }
  if (run.remarks.size() > kShown) {
    log.left_out.push_back(at + std::to_string(run.remarks.size() - kShown) + " more like that");
  }
}

}  // namespace

void add_run(const std::string& name, const NcclTestsRun& run, const NcclTestsOptions& options,
             CollectiveLog& log) {
  const std::string at = name + ": " + run.place + ": ";
  const auto refuse = [&](const std::string& why) { log.left_out.push_back(at + why); };
  if (run.rows.empty()) return tell(at, run, options, {}, log);
  if (run.is_cpu_time) {
    return refuse("it printed the CPU's time (-C 1), how long the calls took; run it without -C");
  }
  const std::optional<Ratio> ratio = ratio_of(run);
  const Judged judged = collective_of(run, ratio, options);
  if (!judged.collective) return refuse(judged.problem);
  std::optional<std::int64_t> ranks = run.ranks;
  if (options.ranks) ranks = options.ranks;
  if (!ranks && ratio) ranks = ranks_from(*ratio, *judged.collective);
  if (!ranks) return refuse("it does not say over how many ranks; say it with --ranks");
  if (*ranks < 2) return refuse("it ran over one rank, which communicates with nobody");
  if (*ranks > (std::int64_t{1} << 24)) return refuse("it is over more than 2^24 ranks");
  std::string wrong = contradiction(run, ratio, *judged.collective, *ranks);
  if (!wrong.empty()) return refuse(wrong);

  if (log.gpu.empty()) log.gpu = run.gpu;
  const CollectiveSample sample{.collective = *judged.collective,
                                .ranks = *ranks,
                                .nodes = std::min(run.nodes, *ranks),
                                .launch = run.is_blocking ? Launch::Alone : Launch::Queued};
  const Used used = add_rows(run, options, sample, log);
  if (!used.sizes.empty()) {
    log.read.push_back(at + std::string(to_string(sample.collective)) + " over " +
                       std::to_string(*ranks) + " ranks on " + counted(sample.nodes, "node") +
                       (run.gpu.empty() ? "" : ", " + run.gpu) + "; " + sizes_in_words(used.sizes) +
                       (options.buffers == Buffers::InPlace ? ", in place" : ", out of place") +
                       (run.is_blocking ? ", each alone (-z)" : ""));
  }
  if (run.groups > 1) {
    log.read.push_back(at + std::to_string(run.groups) +
                       " groups ran at the same time and may have shared links");
  }
  tell(at, run, options, used, log);
}

}  // namespace dovetail::imports
