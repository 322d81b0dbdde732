// Checks every collective of every transport on known values, between threads of this process or
// between the ranks of a job.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/array.h"
#include "exec/cpu/comm_thread.h"
#include "exec/cpu/gloo.h"
#include "exec/cpu/ring.h"
#include "exec/launch/local_ranks.h"
#include "exec/selftest/cases.h"
#include "exec/selftest/cpu.h"
#include "exec/selftest/known.h"

#include <array>
#include <atomic>
#include <memory>
#include <utility>

namespace dovetail::exec::selftest {
namespace {

using cpu::Transport;
using cpu::TransportKind;
using launch::Session;

// Elements per rank: none, one, around a segment's end, many.
constexpr std::array<std::int64_t, 5> kShares = {0, 1, 5, 1000, 16'411};

struct Tally {
  std::int64_t checked = 0;
  std::int64_t wrong = 0;
};

std::vector<float> known_data(std::int64_t rank, std::int64_t count) {
  std::vector<float> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    data[static_cast<std::size_t>(i)] = static_cast<float>(known_value(rank, i));
  }
  return data;
}

// The rank's result of one collective.
std::vector<float> result_of(const Expected& what, Transport& transport, std::int64_t rank) {
  const schedule::CollectiveTraits& traits = schedule::traits_of(what.kind);
  const std::int64_t whole = what.ranks * what.share;
  const bool gathers = traits.sends == schedule::Extent::Part;
  const bool scatters = traits.holds == schedule::Extent::Part;
  std::vector<float> sent = known_data(rank, gathers || traits.pair ? what.share : whole);
  std::vector<float> made(static_cast<std::size_t>(scatters ? what.share : whole));
  const auto array = [](std::vector<float>& of) {
    return Array{.data = of.data(), .count = std::ssize(of), .element = Element::F32};
  };
  cpu::call(transport, {.kind = what.kind,
                        .op = what.op,
                        .data = array(gathers ? made : sent),
                        .shard = array(gathers ? sent : made),
                        .label = "self-test",
                        .root = static_cast<std::size_t>(traits.pair ? 0 : what.root),
                        .index = static_cast<std::size_t>(rank)});
  return traits.is_cut() ? made : sent;
}

Tally check_case(const CollectiveCase& of, Transport& transport, std::int64_t rank,
                 std::int64_t ranks) {
  Tally tally;
  for (const std::int64_t share : kShares) {
    const Expected what = {
        .kind = of.kind, .op = of.op, .ranks = ranks, .share = share, .root = ranks - 1};
    const std::vector<float> result = result_of(what, transport, rank);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto expected = known_result(what, rank, static_cast<std::int64_t>(i));
      tally.wrong += result[i] == static_cast<float>(expected) ? 0 : 1;
    }
    tally.checked += static_cast<std::int64_t>(result.size());
  }
  return tally;
}

std::unique_ptr<Transport> open(Session& session, TransportKind kind) {
  return kind == TransportKind::Ring ? cpu::open_ring(session) : cpu::open_gloo(session);
}

// One case on threads, summed over ranks.
Tally on_threads(const CollectiveCase& of, TransportKind kind, std::int32_t ranks) {
  std::atomic<std::int64_t> checked = 0;
  std::atomic<std::int64_t> wrong = 0;
  launch::run_local_ranks({.ranks = ranks}, [&](Session& session) {
    const std::unique_ptr<Transport> transport = open(session, kind);
    const Tally mine = check_case(of, *transport, session.rank().value, ranks);
    checked += mine.checked;
    wrong += mine.wrong;
    session.barrier("the end of the self-test");  // nobody leaves while others still read
  });
  return {.checked = checked, .wrong = wrong};
}

Outcome verdict_on(const Tally& tally, const std::string& where) {
  const std::string words = where + ", f32, " + std::to_string(tally.checked) + " elements, " +
                            std::to_string(tally.wrong) + " wrong";
  return tally.wrong == 0 && tally.checked > 0 ? pass(words) : fail(words);
}

}  // namespace

std::vector<Row> transport_rows(TransportKind kind) {
  const std::string over = " over " + std::string(to_string(kind));
  std::vector<Row> rows;
  for (const CollectiveCase& of : kCollectiveCases) {
    rows.push_back(row_of({"cpu", name_of(of) + over}, [&]() -> Outcome {
      if (kind == TransportKind::Gloo) {
        if (!cpu::has_gloo()) return skipped("this build has no Gloo");
        const schedule::CollectiveTraits& traits = schedule::traits_of(of.kind);
        if (!traits.reduces() && !traits.is_half()) {
          return skipped("not wired to Gloo: the ring has it");
        }
      }
      const bool pair = schedule::traits_of(of.kind).pair;
      Tally sum;
      for (std::int32_t ranks = pair ? 2 : 1; ranks <= (pair ? 2 : kMostRanksTested); ++ranks) {
        const Tally tally = on_threads(of, kind, ranks);
        sum.checked += tally.checked;
        sum.wrong += tally.wrong;
      }
      return verdict_on(sum, pair ? "2 ranks" : "1, 2, 3 and 4 ranks");
    }));
  }
  return rows;
}

Row transport_row_of_job(Session& session) {
  const Title title{"cpu", std::to_string(session.size()) + " ranks as processes"};
  return row_of(title, [&] {
    const std::unique_ptr<Transport> transport = cpu::open_ring(session);
    Tally mine;
    for (const CollectiveCase& of : kCollectiveCases) {
      if (schedule::traits_of(of.kind).pair && session.size() != 2) continue;
      const Tally tally = check_case(of, *transport, session.rank().value, session.size());
      mine.checked += tally.checked;
      mine.wrong += tally.wrong;
    }
    const Exchange exchange = cpu::exchange_of(session);
    const std::array<std::int64_t, 2> numbers = {mine.checked, mine.wrong};
    Tally sum;
    for (const std::vector<std::int64_t>& of_rank : share(exchange, numbers)) {
      sum.checked += of_rank.at(0);
      sum.wrong += of_rank.at(1);
    }
    return verdict_on(sum, "every collective over ring");
  });
}

}  // namespace dovetail::exec::selftest
