// What the cuda backend computes on the host: known values, communicator ids, batches of products,
// and the map from device time to host time.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/communicator_plan.h"
#include "exec/cuda/clock_map.h"
#include "exec/cuda/gemm_plan.h"
#include "exec/cuda/watch.h"
#include "exec/values/expected.h"
#include "exec/values/pattern.h"
#include "tests/exec/combination.h"
#include "tests/exec/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::exec::cuda {
namespace {

using schedule::GemmWork;
using values::ExpectedTables;
using values::KnownWrite;
using values::kPatternPeriod;
using values::pattern_bits;
using values::pattern_key;
using values::pattern_value;
using values::salt_value;

ExpectedTables::ElementOf always(Element element) {
  return [element](TensorId) { return element; };
}

// What the filling kernel writes, element by element.
double known(const KnownWrite& write, std::int32_t step, std::int64_t i, Element element) {
  const std::int32_t bits = pattern_bits(element);
  return (pattern_value(pattern_key(write, step), i, bits) +
          salt_value(write.tensor, i / kPatternPeriod, bits)) *
         write.factor;
}

TEST(CudaKnownValuesTest, AreThoseOfTheCpuBackend) {
  std::vector<float> data(2000);
  values::fill({.tensor = TensorId{7},
                .step = 3,
                .rank = Rank{5},
                .writes_left = 1,
                .micro_step = 2,
                .factor = 0.5F},
               data);
  const KnownWrite write = {
      .tensor = 7, .rank = 5, .writes_left = 1, .micro_step = 2, .factor = 0.5};
  for (std::size_t i = 0; i < data.size(); ++i) {
    ASSERT_EQ(data[i], known(write, 3, static_cast<std::int64_t>(i), Element::F32)) << i;
  }
}

TEST(CudaKnownValuesTest, SumsOfReducedRangesAreExactIntegers) {
  // 42 ranks of bf16 give at most 42 x 6 = 252 < 2^8, 68 of f16 at most 68 x 30 = 2040 < 2^11.
  for (const Element element : {Element::BF16, Element::F16}) {
    const std::int32_t writes = element == Element::BF16 ? 42 : 68;
    const double most = element == Element::BF16 ? 256 : 2048;
    for (std::int64_t i = 0; i < 2048; ++i) {
      double sum = 0;
      for (std::int32_t rank = 0; rank < writes; ++rank) {
        sum += std::abs(known({.tensor = 3, .rank = rank}, 1, i, element));
      }
      ASSERT_LE(sum, most);
    }
  }
}

TEST(CudaKnownValuesTest, ReducedRangesStillTellRanksStepsAndTensorsApart) {
  const auto differing = [](const KnownWrite& a, std::int32_t step_a, const KnownWrite& b,
                            std::int32_t step_b) {
    int count = 0;
    for (std::int64_t i = 0; i < 256; ++i) {
      count += known(a, step_a, i, Element::BF16) != known(b, step_b, i, Element::BF16) ? 1 : 0;
    }
    return count;
  };
  // Three random bits agree once in eight: about 224 of 256 differ.
  EXPECT_GT(differing({.tensor = 1, .rank = 0}, 0, {.tensor = 1, .rank = 1}, 0), 180);
  EXPECT_GT(differing({.tensor = 1, .rank = 0}, 0, {.tensor = 1, .rank = 0}, 1), 180);
  EXPECT_GT(differing({.tensor = 1, .rank = 0}, 0, {.tensor = 2, .rank = 0}, 0), 150);
}

TEST(CudaExpectedTest, TablesGiveWhatTheCpuBackendExpects) {
  const std::vector<values::Term> terms = {
      {.tensor = TensorId{7}, .micro_step = 0, .factor = 0.25, .ranks = {Rank{0}, Rank{1}}},
      {.tensor = TensorId{7}, .micro_step = 1, .factor = 0.25, .ranks = {Rank{0}, Rank{1}}}};
  const values::Combination expected(terms, 9);
  ExpectedTables tables(always(Element::F32));
  const values::Content content = {{.begin = 0, .count = 1000, .source = 0, .terms = terms}};
  const std::vector<float> place(400);
  Array data;
  data.data = const_cast<float*>(place.data());
  data.count = 400;
  // Elements 300 .. 699 of the tensor.
  ASSERT_EQ(tables.compare(data, 300, content, 9), 1U);
  for (std::int64_t i = 0; i < 400; ++i) {
    ASSERT_EQ(tables.at(0, i), expected.at(static_cast<std::size_t>(300 + i))) << i;
  }
  EXPECT_EQ(tables.comparisons()[0].tolerance, 0);
}

TEST(CudaExpectedTest, PiecesBecomeComparisonsOfTheirOwn) {
  const std::vector<values::Term> terms = {{.tensor = TensorId{1}, .ranks = {Rank{0}}}};
  const values::Content content = {{.begin = 0, .count = 10, .source = 5, .terms = terms},
                                   {.begin = 10, .count = 20, .source = 0, .terms = {}}};
  ExpectedTables tables(always(Element::BF16));
  std::vector<std::uint16_t> place(25);
  const Array data = {.data = place.data(), .count = 25, .element = Element::BF16};
  ASSERT_EQ(tables.compare(data, 0, content, 0), 2U);
  EXPECT_EQ(tables.comparisons()[0].first, 5);
  EXPECT_EQ(tables.comparisons()[1].count, 15);
  // The second piece starts at element 10: 20 bytes further on; without terms zeros are expected.
  EXPECT_EQ(tables.comparisons()[1].data, place.data() + 10);
  EXPECT_EQ(tables.at(1, 3), 0);
}

TEST(CudaExpectedTest, AllowsRoundingOnlyWhereTheTypeRounds) {
  const auto tolerance = [](Element element, double factor, std::int32_t ranks) {
    values::Term term = {.tensor = TensorId{1}, .factor = factor, .ranks = {}};
    for (std::int32_t i = 0; i < ranks; ++i) term.ranks.push_back(Rank{i});
    ExpectedTables tables(always(element));
    const Array data = {.data = nullptr, .count = 4, .element = element};
    static_cast<void>(tables.compare(data, 0, {{0, 4, 0, {term}}}, 0));
    return tables.comparisons()[0].tolerance;
  };
  EXPECT_EQ(tolerance(Element::BF16, 1.0 / 8, 8), 0);
  EXPECT_GT(tolerance(Element::BF16, 1.0 / 3, 3), 0);
  EXPECT_GT(tolerance(Element::BF16, 1.0, 64), 0);  // 64 x 8 > 2^8
  EXPECT_EQ(tolerance(Element::F32, 1.0, 64), 0);
  // A wrong element differs by a third at least; three ranks must not hide that.
  EXPECT_LT(tolerance(Element::BF16, 1.0 / 3, 3), 1.0 / 3 + 0.05);
}

TEST(CudaExpectedTest, AllowsWhatANarrowerGradientRoundedBeforeItsSum) {
  const auto tolerance = [](double factor, std::int32_t ranks) {
    values::Term term = {.tensor = TensorId{1}, .factor = factor, .ranks = {}};
    for (std::int32_t i = 0; i < ranks; ++i) term.ranks.push_back(Rank{i});
    ExpectedTables tables(always(Element::BF16));
    const Array data = {.data = nullptr, .count = 4, .element = Element::F32};
    static_cast<void>(tables.compare(data, 0, {{0, 4, 0, {term}}}, 0));
    return tables.comparisons()[0].tolerance;
  };
  // InterleavedProbes 1 and 2 bf16 has steps of 2^-7: 5 x 1/3 = 1.66667 is stored up to 2^-8 away.
  EXPECT_GE(tolerance(1.0 / 3, 1), 1.0 / 256);
  EXPECT_LT(tolerance(1.0 / 3, 1), 1.0 / 3);  // and a wrong integer still shows
  // What no type rounds stays exact; 64 ranks may have been summed in bf16, where 2^8 is the limit.
  EXPECT_EQ(tolerance(1.0 / 4, 4), 0);
  EXPECT_GT(tolerance(1.0, 64), 0);
}

TEST(CudaExpectedTest, SquaresHaveNoData) {
  ExpectedTables tables(always(Element::F32));
  const values::Content content = {{0, 4, 0, {{.tensor = TensorId{1}, .ranks = {Rank{0}}}}}};
  EXPECT_EQ(tables.add_squares(content, 0), 1U);
  EXPECT_EQ(tables.comparisons()[0].data, nullptr);
}

// Two instances {0, 1} and {2, 3} of "pairs", and {0, 2}, {1, 3} of "across".
schedule::ScheduledProgram in_pairs() {
  const schedule::Program program = testing::three_layers_in_pairs(testing::Owes::PairsAndAcross);
  return testing::plan_of(program, testing::two_buckets_of(program));
}

TEST(CudaCommunicatorPlanTest, OneCommunicatorPerStreamGroupAndLimit) {
  const schedule::Program program = testing::three_layers(2);
  schedule::Schedule schedule = testing::two_buckets_of(program);
  schedule.buckets[1].max_ctas = 8;
  const schedule::ScheduledProgram plan = testing::plan_of(program, schedule);
  const std::vector<CommunicatorKey> keys = communicators_of(plan);
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[0], (CommunicatorKey{StreamId{1}, testing::kAll, 0}));
  EXPECT_EQ(keys[1], (CommunicatorKey{StreamId{1}, testing::kAll, 8}));
}

TEST(CudaCommunicatorPlanTest, EveryRankFindsTheIdOfItsInstance) {
  const schedule::ScheduledProgram plan = in_pairs();
  std::vector<CommunicatorKey> keys = {{StreamId{1}, testing::kPairs, 0},
                                       {StreamId{1}, testing::kAcross, 0}};
  // Ranks 0 and 2 lead pairs, 0 and 1 lead across: rank 0 makes ids a b, rank 1 c, rank 2 d.
  std::string all;
  char next = 'a';
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    all += ids_made_by(plan.program, keys, Rank{rank},
                       [&next] { return std::string(kIdBytes, next++); });
  }
  ASSERT_EQ(all.size(), 4 * kIdBytes);
  const auto letter = [&](std::int32_t rank, std::size_t key) {
    return id_of(plan.program, keys, Rank{rank}, key, all)[0];
  };
  EXPECT_EQ(letter(0, 0), 'a');
  EXPECT_EQ(letter(1, 0), 'a');
  EXPECT_EQ(letter(2, 0), 'd');
  EXPECT_EQ(letter(3, 0), 'd');
  EXPECT_EQ(letter(0, 1), 'b');
  EXPECT_EQ(letter(2, 1), 'b');
  EXPECT_EQ(letter(1, 1), 'c');
  EXPECT_EQ(letter(3, 1), 'c');
}

TEST(CudaCommunicatorPlanTest, TooFewIdsAreAnErrorOfTheMachine) {
  const schedule::ScheduledProgram plan = in_pairs();
  const std::vector<CommunicatorKey> keys = {{StreamId{1}, testing::kPairs, 0}};
  EXPECT_THROW(static_cast<void>(id_of(plan.program, keys, Rank{3}, 0, std::string(kIdBytes, 'x'))),
               DeviceError);
}

TEST(CudaGemmPlanTest, BatchesFitTheirMemory) {
  // One f32 product of 1024^3 holds 3 x 4 MiB = 12 MiB; 21 of them fit into 256 MiB.
  const GemmWork work = {.m = 1024, .n = 1024, .k = 1024, .count = 50};
  const GemmBatches batches = batches_of(work, Element::F32);
  EXPECT_EQ(batches.batch, 21);
  EXPECT_EQ(batches.calls, 2);
  EXPECT_EQ(batches.rest, 8);
  EXPECT_EQ(room_of(work, Element::F32).a, 21 * 1024 * 1024);
}

TEST(CudaGemmPlanTest, EveryProductRunsOnce) {
  for (const std::int64_t count : {0, 1, 2, 7, 100, 1000}) {
    for (const std::int64_t size : {16, 500, 3000, 9000}) {
      const GemmWork work = {.m = size, .n = size, .k = size, .count = count};
      const GemmBatches batches = batches_of(work, Element::BF16);
      EXPECT_EQ(batches.batch * batches.calls + batches.rest, count);
      EXPECT_LE(batches.rest, batches.batch);
    }
  }
}

TEST(CudaClockMapTest, TakesTheNarrowestSample) {
  const std::vector<AnchorSample> samples = {{1000, 9000}, {20000, 24001}, {30000, 50000}};
  const Anchor anchor = best_anchor(samples);
  // 20000 .. 24001: the event lies in the middle, 2000.5 away at most.
  EXPECT_EQ(anchor.sample, 1U);
  EXPECT_EQ(anchor.at_ns, 22000);
  EXPECT_EQ(anchor.error_ns, 2001);
}

TEST(CudaClockMapTest, TakesTheEmptyPairOffEverySpan) {
  const Anchor anchor = {.sample = 0, .at_ns = 1'000'000, .error_ns = 0};
  // 0.5 ms after the anchor, 0.1 ms long, 2 us of them the pair's own.
  const HostSpan span = to_host({.start_ms = 0.5F, .end_ms = 0.6F}, anchor, 2000);
  EXPECT_EQ(span.start_ns, 1'500'000);
  EXPECT_NEAR(static_cast<double>(span.end_ns), 1'598'000, 1);
}

TEST(CudaClockMapTest, NoSpanEndsBeforeItStarts) {
  const Anchor anchor = {.sample = 0, .at_ns = 0, .error_ns = 0};
  const HostSpan span = to_host({.start_ms = 0.5F, .end_ms = 0.501F}, anchor, 2000);
  EXPECT_EQ(span.start_ns, span.end_ns);
}

TEST(CudaClockMapTest, TheMedianIsNotMovedByOneSlowPair) {
  EXPECT_EQ(median_ns({0.001F, 0.5F, 0.002F}), 2000);
}

// What a watch did when it gave up.
struct Ending {
  std::string error;
  std::string told;
  int aborts = 0;
};

template <class Wait>
Ending ending_of(WatchOptions options, const std::string& library_error, const Wait& wait) {
  Ending ending;
  options.tell_others = [&](const std::string& message) { ending.told = message; };
  Watch watch(std::move(options));
  watch.set_library([&] { return library_error; }, [&] { ++ending.aborts; });
  try {
    wait(watch);
  } catch (const DeviceError& error) {
    ending.error = error.what();
  }
  return ending;
}

std::string all_reduce() { return "all-reduce of bucket 3"; }
bool never() { return false; }

TEST(CudaWatchTest, ReturnsWhenItIsDone) {
  int polls = 0;
  const Ending ending = ending_of({.rank = Rank{0}}, "", [&](Watch& watch) {
    watch.wait([&] { return ++polls == 3; }, all_reduce, Pace::Sleep);
  });
  EXPECT_EQ(polls, 3);
  EXPECT_EQ(ending.error, "");
  EXPECT_EQ(ending.aborts, 0);
}

TEST(CudaWatchTest, ADeadlineNamesRankAndCommandAndTellsTheOthers) {
  const Ending ending = ending_of({.rank = Rank{2}, .deadline = std::chrono::milliseconds(20)}, "",
                                  [](Watch& watch) { watch.wait(never, all_reduce, Pace::Sleep); });
  EXPECT_EQ(ending.error, "rank 2: all-reduce of bucket 3 did not end within 20 ms");
  EXPECT_EQ(ending.told, ending.error);
  EXPECT_EQ(ending.aborts, 1);
}

TEST(CudaWatchTest, AnErrorOfTheLibraryEndsTheWait) {
  const Ending ending = ending_of({.rank = Rank{0}}, "NCCL: remote error",
                                  [](Watch& watch) { watch.wait(never, all_reduce, Pace::Spin); });
  EXPECT_EQ(ending.error, "rank 0: NCCL: remote error during all-reduce of bucket 3");
  EXPECT_EQ(ending.aborts, 1);
}

TEST(CudaWatchTest, AFailedPeerEndsTheWait) {
  WatchOptions options = {.rank = Rank{0}};
  options.peer_failure = [] { return std::string("rank 1 died"); };
  const Ending ending = ending_of(std::move(options), "",
                                  [](Watch& watch) { watch.wait(never, all_reduce, Pace::Sleep); });
  EXPECT_EQ(ending.error, "rank 0: rank 1 died during all-reduce of bucket 3");
}

TEST(CudaWatchTest, ABlockedCallIsLeftBehindAtTheDeadline) {
  const auto peer_comes = std::make_shared<std::promise<void>>();
  const Ending ending = ending_of(
      {.rank = Rank{0}, .deadline = std::chrono::milliseconds(20)}, "", [&](Watch& watch) {
        watch.run([peer_comes] { peer_comes->get_future().wait(); }, "connecting group dp");
      });
  peer_comes->set_value();
  EXPECT_EQ(ending.error, "rank 0: connecting group dp did not end within 20 ms");
}

TEST(CudaWatchTest, AnErrorOfABlockedCallComesBack) {
  Watch watch({.rank = Rank{0}});
  EXPECT_THROW(watch.run([] { throw DeviceError("ncclCommInitRankConfig: no"); }, "connecting"),
               DeviceError);
}

}  // namespace
}  // namespace dovetail::exec::cuda
