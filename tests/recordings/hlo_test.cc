// HLO modules: dumps of three layouts of one model, and small modules of one matter each.
//
// The dumps (hlo/README.md) are a step of a perceptron with layers 128-256-256-64 and biases, SGD, on a batch of 32. Its
// parameters are 128*256 + 256 + 256*256 + 256 + 256*64 + 64 = 115,264 of f32: 461,056 bytes, and the loss is
// one element more. Forward multiplies 16 rows per device by each weight, backward twice for each but the first
// layer's, whose input needs no gradient: (3 * (128*256 + 256*256 + 256*64) - 128*256) * 16 * 2 FLOP.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/hlo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/file.h"
#include "recordings/hlo/groups.h"
#include "recordings/hlo/module.h"
#include "schedule/program_json.h"
#include "tests/support/errors.h"

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using schedule::Phase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kParameters = 115264;

ImportedHlo dump(const std::string& name) {
  const std::string path = std::string(DOVETAIL_SOURCE_DIR) + "/tests/recordings/hlo/" + name;
  const std::string text = read_file(path);
  return read_hlo({name, text});
}

std::vector<std::string> kinds(const ImportedHlo& step) {
  std::vector<std::string> words;
  for (const HloCollective& one : step.collectives) words.push_back(one.kind);
  return words;
}

std::int64_t owed_elements(const ImportedHlo& step) {
  std::int64_t sum = 0;
  for (const schedule::OwedGradient& one : schedule::owed_gradients(step.program)) {
    sum += one.numel;
  }
  return sum;
}

double product_flop(const ImportedHlo& step) {
  double sum = 0;
  for (const schedule::Op& op : step.program.ops) {
    if (std::holds_alternative<schedule::GemmWork>(op.work)) {
      sum += static_cast<double>(op.flop().count());
    }
  }
  return sum;
}

// A module around the lines of its entry computation.
std::string module_of(const std::string& lines, const std::string& before = "",
                      const std::string& header = "num_partitions=4") {
  return "HloModule m, is_scheduled=true, " + header +
         "\n\n%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
         "  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n\n" +
         before + "ENTRY %main (p: f32[8]) -> f32[8] {\n" + lines + "}\n";
}

ImportedHlo step_of(const std::string& lines, const std::string& before = "") {
  return read_hlo({"m.txt", module_of(lines, before)});
}

TEST(HloTest, DataParallelStepOwesEveryParameterOnce) {
  const ImportedHlo step = dump("cpu-dp.txt");
  EXPECT_EQ(step.program.world_size, 2);
  // XLA for CPUs combines the loss and all six gradients into one.
  ASSERT_EQ(step.collectives.size(), 1u);
  EXPECT_EQ(step.collectives[0].parts, 7u);
  EXPECT_EQ(step.collectives[0].bytes, Bytes(4 * (kParameters + 1)));
  EXPECT_EQ(step.collectives[0].type, "f32");
  EXPECT_THAT(step.collectives[0].groups, ElementsAre(ElementsAre(0, 1)));
  EXPECT_EQ(step.program.reductions.size(), 6u);
  EXPECT_EQ(owed_elements(step), kParameters);
}

TEST(HloTest, CountsTheProductsOfForwardAndBackward) {
  const double weights = 128 * 256 + 256 * 256 + 256 * 64;
  const double expected = (3 * weights - 128 * 256) * 16 * 2;
  EXPECT_EQ(product_flop(dump("cpu-dp.txt")), expected);
  // Two devices share each product of a layer whose weight they share: half of it each.
  EXPECT_EQ(product_flop(dump("cpu-tp.txt")), expected / 2);
}

TEST(HloTest, UpdatesAreTheOptimizerAndWriteWhatTheStepWasGiven) {
  const schedule::Program program = dump("cpu-dp.txt").program;
  std::size_t updates = 0;
  for (const schedule::Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    ++updates;
    ASSERT_EQ(op.writes.size(), 1u) << op.name;
    EXPECT_EQ(program.tensor(op.writes[0]).kind, schedule::TensorKind::Parameter) << op.name;
  }
  EXPECT_EQ(updates, 6u);
}

TEST(HloTest, ShardedParametersAreGatheredBeforeTheirLayers) {
  const ImportedHlo step = dump("cpu-fsdp.txt");
  EXPECT_THAT(kinds(step), ElementsAre("all-gather", "all-gather", "all-gather", "all-gather",
                                       "all-to-all", "all-gather", "all-to-all", "all-reduce"));
  EXPECT_EQ(step.collectives[0].bytes, Bytes(4 * 128 * 256));
  EXPECT_EQ(step.collectives[1].bytes, Bytes(4 * 256 * 256));
  EXPECT_EQ(step.collectives[2].bytes, Bytes(4 * 256 * 64));
  EXPECT_EQ(step.collectives[7].bytes, Bytes(4 * (kParameters + 1)));
  // Only the biases, which are not sharded, are updated in the size that was reduced.
  EXPECT_EQ(owed_elements(step), 256 + 256 + 64);
}

TEST(HloTest, TensorAndDataParallelGroupsAreToldApart) {
  const ImportedHlo step = dump("cpu-tp.txt");
  ASSERT_EQ(step.collectives.size(), 5u);
  for (const std::size_t own : {0u, 1u}) {
    EXPECT_FALSE(step.collectives[own].is_gradients);
    EXPECT_THAT(step.collectives[own].groups, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  }
  // Activations of 16 rows by 256, and with the loss.
  EXPECT_EQ(step.collectives[0].bytes, Bytes(4 * 16 * 256));
  EXPECT_EQ(step.collectives[1].bytes, Bytes(4 * (16 * 256 + 1)));
  EXPECT_TRUE(step.collectives[2].is_gradients);
  EXPECT_THAT(step.collectives[2].groups, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_EQ(step.program.groups.size(), 2u);
}

// 1024-2048-2048-512 on four GPUs: weights of 8, 16 and 4 MiB, biases of 8, 8 and 2 KiB.
TEST(HloTest, GpusThresholdOfTheCombinerIsSeenInTheModule) {
  // Default, 31,457,287 bytes: everything, 7,344,640 parameters and the loss, in one.
  const ImportedHlo all = dump("gpu-dp.txt");
  ASSERT_EQ(all.collectives.size(), 1u);
  EXPECT_TRUE(all.collectives[0].is_async);
  EXPECT_EQ(all.collectives[0].parts, 7u);
  EXPECT_EQ(all.collectives[0].bytes, Bytes(4 * 7344641));
  EXPECT_EQ(owed_elements(all), 7344640);
  // 5,000,000 bytes: weights of 8 and 16 MiB are above it and stay alone, the rest fits together.
  const ImportedHlo some = dump("gpu-dp-5000000.txt");
  std::vector<std::size_t> parts;
  for (const HloCollective& one : some.collectives) parts.push_back(one.parts);
  EXPECT_THAT(parts, ElementsAre(5, 1, 1));
  EXPECT_EQ(some.collectives[0].bytes, Bytes(4 * (2048 * 512 + 2048 + 2048 + 512 + 1)));
  EXPECT_EQ(owed_elements(some), 7344640);
  EXPECT_EQ(some.program.reductions.size(), 6u);
  // 1024 rows per GPU, as in the test above.
  const double weights = 1024 * 2048 + 2048 * 2048 + 2048 * 512;
  EXPECT_EQ(product_flop(some), (3 * weights - 1024 * 2048) * 1024 * 2);
}

// jaxlib 0.12: three weights of 4 MiB replicated over eight GPUs, all-reduces combined up to 8 MiB and 64 bytes.
TEST(HloTest, AnAllReduceThatXlaRunsAsAKernelOfItsOwnIsRead) {
  const ImportedHlo step = dump("gpu12-dp.txt");
  ASSERT_THAT(kinds(step), ElementsAre("all-reduce", "all-reduce"));
  // The loss and the weights whose gradients are first; the third, of no more than 4 MiB, stands in a fusion-start.
  EXPECT_EQ(step.collectives[0].bytes, Bytes(4 + (8 << 20)));
  EXPECT_EQ(step.collectives[0].parts, 3u);
  EXPECT_FALSE(step.collectives[0].is_kernel_of_xla);
  EXPECT_EQ(step.collectives[1].bytes, Bytes(4 << 20));
  EXPECT_TRUE(step.collectives[1].is_kernel_of_xla);
  for (const HloCollective& one : step.collectives) EXPECT_TRUE(one.is_async && one.is_gradients);
  EXPECT_EQ(owed_elements(step), 3 << 20);
  // JAX calls them weights[0..2]. XLA combines in the order of the step's results, and so computes the last layer's last.
  std::vector<std::string> names;
  for (const schedule::Reduction& owed : step.program.reductions) {
    names.push_back(step.program.tensor(owed.gradient).name);
  }
  EXPECT_THAT(names, ElementsAre("weights[1].grad", "weights[0].grad", "weights[2].grad"));
  EXPECT_THAT(step.left_out,
              Contains(HasSubstr("1 collective that XLA runs as kernels of its own")));
}

// Four weights of 4 MiB cut in eight; reduce-scatters are combined up to 1 MiB of what comes out, 512 KiB of each.
TEST(HloTest, ReduceScattersAreCombinedByTheShardsThatComeOut) {
  const ImportedHlo step = dump("gpu12-fsdp.txt");
  std::vector<std::size_t> parts;
  for (const HloCollective& one : step.collectives) {
    if (one.kind != "reduce-scatter") continue;
    EXPECT_EQ(one.bytes, Bytes(8 << 20));
    EXPECT_TRUE(one.is_async);
    parts.push_back(one.parts);
  }
  EXPECT_THAT(parts, ElementsAre(2, 2));
}

// jax.lax.scan over three layers: what stands in the loop is there in each of its turns.
TEST(HloTest, CollectivesOfScannedLayersComeOncePerTurn) {
  const auto count = [](const ImportedHlo& step, const std::string& kind) {
    return std::ranges::count(step.collectives, kind, &HloCollective::kind);
  };
  const ImportedHlo cut = dump("gpu12-scan-fsdp.txt");
  EXPECT_EQ(count(cut, "all-gather"), 3 + 3);  // forward, and again backward
  EXPECT_EQ(count(cut, "reduce-scatter"), 3);
  EXPECT_EQ(count(cut, "all-reduce"), 1);  // the loss
  const ImportedHlo whole = dump("gpu12-scan.txt");
  EXPECT_EQ(count(whole, "all-reduce"), 3 + 1);
  EXPECT_TRUE(whole.program.reductions.empty());
  EXPECT_THAT(whole.left_out, Contains(HasSubstr("3 reductions in the turns of loops")));
  // 128 rows per device: forward once, backward twice for each layer, whose input is the loop's state.
  EXPECT_EQ(product_flop(whole), 3.0 * 3 * 2 * 128 * 1024 * 1024);
}

TEST(HloTest, CopiesThatAreReadOtherwiseStay) {
  const std::string lines =
      "  %p = f32[8]{0} parameter(0)\n  %g = f32[8]{0} negate(%p)\n  %h = f32[8]{0} "
      "exponential(%p)\n"
      "  %c = f32[16]{0} concatenate(%g, %h), dimensions={0}\n"
      "  %r = f32[16]{0} all-reduce(%c), replica_groups={{0,1,2,3}}, to_apply=%add\n"
      "  %a = f32[8]{0} slice(%r), slice={[0:8]}\n";
  const std::string last = "  ROOT %u = f32[8]{0} subtract(%a, %b)\n";
  const auto parts = [&](const std::string& slice) {
    return step_of(lines + "  %b = f32[8]{0} slice(%r), slice={" + slice + "}\n" + last)
        .collectives.at(0)
        .parts;
  };
  EXPECT_EQ(parts("[8:16]"), 2u);
  EXPECT_EQ(parts("[7:15]"), 1u);
}

TEST(HloTest, ProgramsAreSoundAndComeBackFromTheirFiles) {
  for (const char* name :
       {"cpu-dp.txt", "cpu-fsdp.txt", "cpu-tp.txt", "gpu-dp.txt", "gpu-dp-5000000.txt",
        "gpu12-dp.txt", "gpu12-fsdp.txt", "gpu12-scan.txt", "gpu12-scan-fsdp.txt"}) {
    const schedule::Program program = dump(name).program;
    EXPECT_THAT(schedule::problems(program), ::testing::IsEmpty()) << name;
    EXPECT_EQ(schedule::parse_program("f", schedule::program_to_json(program)), program) << name;
  }
}

TEST(HloTest, AnAsynchronousPairIsOneCollective) {
  const ImportedHlo step = step_of(
      "  %p = f32[8]{0} parameter(0)\n"
      "  %g = f32[8]{0} negate(%p)\n"
      "  %ar = f32[8]{0} all-reduce-start(%g), replica_groups={{0,1,2,3}}, to_apply=%add\n"
      "  %x = f32[8]{0} exponential(%p)\n"
      "  %ad = f32[8]{0} all-reduce-done(%ar)\n"
      "  %ag = (f32[8]{0}, f32[32]{0}) all-gather-start(%x), dimensions={0}\n"
      "  %agd = f32[32]{0} all-gather-done(%ag)\n"
      "  %sl = f32[8]{0} slice(%agd), slice={[0:8]}\n"
      "  ROOT %u = f32[8]{0} subtract(%ad, %sl)\n");
  ASSERT_THAT(kinds(step), ElementsAre("all-reduce", "all-gather"));
  EXPECT_TRUE(step.collectives[0].is_async);
  EXPECT_EQ(step.collectives[1].bytes, Bytes(4 * 32));  // what is gathered
  // Expectation: the gather's reader depends on it, not on the operands that its start also returns.
  const auto slice = std::ranges::find(step.program.ops, "sl", &schedule::Op::name);
  ASSERT_NE(slice, step.program.ops.end());
  EXPECT_EQ(step.program.tensor(slice->reads.at(0)).name, "ag");
}

// (operands, results) and (operands, results, contexts), as jaxlib 0.12 prints them; with one operand and with two.
TEST(HloTest, AStartGivesItsOperandsBesideItsResults) {
  const std::string groups = "replica_groups={{0,1,2,3}}";
  const ImportedHlo step = step_of(
      "  %p = f32[8]{0} parameter(0)\n"
      "  %g = f32[8]{0} negate(%p)\n"
      "  %h = f32[8]{0} exponential(%p)\n"
      "  %ar = ((f32[8]{0}, f32[8]{0}), (f32[8]{0}, f32[8]{0})) all-reduce-start(%g, %h), " +
      groups +
      ", to_apply=%add\n"
      "  %ard = (f32[8]{0}, f32[8]{0}) all-reduce-done(%ar)\n"
      "  %a = f32[8]{0} get-tuple-element(%ard), index=0\n"
      "  %b = f32[8]{0} get-tuple-element(%ard), index=1\n"
      "  %rs = ((f32[8]{0}), f32[2]{0}) reduce-scatter-start(%a), " +
      groups +
      ", dimensions={0}, to_apply=%add\n"
      "  %rsd = f32[2]{0} reduce-scatter-done(%rs)\n"
      "  %cp = ((f32[2]{0}), f32[2]{0}, u32[], u32[]) collective-permute-start(%rsd), "
      "source_target_pairs={{0,1},{1,0}}\n"
      "  %cpd = f32[2]{0} collective-permute-done(%cp)\n"
      "  %cb = ((f32[8]{0}), f32[8]{0}, s32[]) collective-broadcast-start(%b), " +
      groups +
      "\n  %cbd = f32[8]{0} collective-broadcast-done(%cb)\n"
      "  %n = s64[4]{0} constant({2,2,2,2})\n"
      "  %ra = ((f32[8]{0}, f32[8]{0}, s64[4]{0}, s64[4]{0}, s64[4]{0}, s64[4]{0}), f32[8]{0}) "
      "ragged-all-to-all-start(%cbd, %p, %n, %n, %n, %n), " +
      groups +
      "\n  %rad = f32[8]{0} ragged-all-to-all-done(%ra)\n"
      "  ROOT %u = f32[8]{0} add(%rad, %rad)\n");
  ASSERT_THAT(kinds(step), ElementsAre("all-reduce", "reduce-scatter", "collective-permute",
                                       "collective-broadcast", "ragged-all-to-all"));
  std::vector<Bytes> sizes;
  for (const HloCollective& one : step.collectives) {
    EXPECT_TRUE(one.is_async) << one.name;
    sizes.push_back(one.bytes);
  }
  // Of the ragged one what it sends, without the output and the places.
  EXPECT_THAT(sizes, ElementsAre(Bytes(64), Bytes(32), Bytes(8), Bytes(32), Bytes(32)));
}

// A norm over both gradients leads from each to either weight; what reads a gradient reads its own weight.
TEST(HloTest, AGradientHasTheNameOfTheArgumentThatItUpdates) {
  const auto weight = [](const std::string& name, const std::string& number,
                         const std::string& jax) {
    return "  %" + name + " = f32[8]{0} parameter(" + number + "), metadata={op_name=\"" + jax +
           "\"}\n";
  };
  const std::string group = ", replica_groups={{0,1,2,3}}, to_apply=%add\n";
  const ImportedHlo step =
      step_of(weight("p", "0", "w[\\'a\\']") + weight("q", "1", "w[\\'b\\']") +
              "  %g = f32[8]{0} negate(%p)\n  %h = f32[8]{0} exponential(%q)\n"
              "  %r = f32[8]{0} all-reduce(%g)" +
              group + "  %s = f32[8]{0} all-reduce(%h)" + group +
              "  %n = f32[8]{0} add(%r, %s)\n"
              "  %cr = f32[8]{0} select(%r, %n, %p)\n  %cs = f32[8]{0} select(%s, %n, %q)\n"
              "  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%cr, %cs)\n");
  ASSERT_EQ(step.program.reductions.size(), 2u);
  EXPECT_EQ(step.program.tensor(step.program.reductions[0].gradient).name, "w['a'].grad");
  EXPECT_EQ(step.program.tensor(step.program.reductions[1].gradient).name, "w['b'].grad");
}

TEST(HloTest, WhatAnAsyncStartCallsIsAsynchronous) {
  const std::string called =
      "%called (x: f32[8]) -> f32[32] {\n  %x = f32[8]{0} parameter(0)\n"
      "  ROOT %ag = f32[32]{0} all-gather(%x), dimensions={0}\n}\n\n";
  const ImportedHlo step = step_of(
      "  %p = f32[8]{0} parameter(0)\n"
      "  %s = ((f32[8]{0}), f32[32]{0}, s32[]) async-start(%p), calls=%called\n"
      "  %v = ((f32[8]{0}), f32[32]{0}, s32[]) async-update(%s)\n"
      "  %d = f32[32]{0} async-done(%v)\n"
      "  ROOT %u = f32[8]{0} slice(%d), slice={[0:8]}\n",
      called);
  ASSERT_THAT(kinds(step), ElementsAre("all-gather"));
  EXPECT_TRUE(step.collectives[0].is_async);
  EXPECT_FALSE(step.collectives[0].is_kernel_of_xla);
}

// A copy of a slice beside compute, as jaxlib 0.12 starts it: the slice is read and written, not the whole.
TEST(HloTest, AFusionThatIsStartedCostsWhatItCosts) {
  const std::string fused =
      "%cut (x: f32[1024], i: s32[]) -> f32[8] {\n  %x = f32[1024]{0} parameter(0)\n"
      "  %i = s32[] parameter(1)\n"
      "  ROOT %s = f32[8]{0} dynamic-slice(%x, %i), dynamic_slice_sizes={8}\n}\n\n";
  const ImportedHlo step = step_of(
      "  %p = f32[1024]{0} parameter(0)\n  %c = s32[] constant(0)\n"
      "  %f = ((f32[1024]{0}, s32[]), f32[8]{0}, u32[]) fusion-start(%p, %c), kind=kLoop, "
      "calls=%cut\n"
      "  %d = f32[8]{0} fusion-done(%f)\n  ROOT %u = f32[8]{0} negate(%d)\n",
      fused);
  ASSERT_EQ(step.program.ops.size(), 2u);
  const auto& work = std::get<schedule::MemoryWork>(step.program.ops[0].work);
  EXPECT_EQ(work.bytes, Bytes(32 + 32 + 4));  // slice, result, place
}

TEST(HloTest, AnAllReduceThatAProductReadsIsNoGradient) {
  const std::string lines =
      "  %p = f32[4,4]{1,0} parameter(0)\n"
      "  %h = f32[4,4]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
      "  %ar = f32[4,4]{1,0} all-reduce(%h), replica_groups={{0,1,2,3}}, to_apply=%add\n";
  const ImportedHlo read = step_of(lines +
                                   "  ROOT %d = f32[4,4]{1,0} dot(%ar, %p), "
                                   "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n");
  EXPECT_TRUE(read.program.reductions.empty());
  const ImportedHlo updated = step_of(lines + "  ROOT %u = f32[4,4]{1,0} subtract(%p, %ar)\n");
  ASSERT_EQ(updated.program.reductions.size(), 1u);
  EXPECT_EQ(updated.program.ops.back().phase, Phase::Optimizer);
  EXPECT_TRUE(std::holds_alternative<schedule::Update>(updated.program.ops.back().effect));
}

TEST(HloTest, ALoopIsRolledOutAsOftenAsItTurns) {
  const std::string body =
      "%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {\n"
      "  %s = (s32[], f32[8]{0}) parameter(0)\n"
      "  %i = s32[] get-tuple-element(%s), index=0\n"
      "  %v = f32[8]{0} get-tuple-element(%s), index=1\n"
      "  %r = f32[8]{0} collective-permute(%v), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}\n"
      "  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %r)\n}\n\n";
  const ImportedHlo step = step_of(
      "  %p = f32[8]{0} parameter(0)\n  %c = s32[] constant(0)\n"
      "  %t = (s32[], f32[8]{0}) tuple(%c, %p)\n"
      "  %w = (s32[], f32[8]{0}) while(%t), condition=%cond, body=%body, "
      "backend_config={\"known_trip_count\":{\"n\":\"3\"}}\n"
      "  ROOT %o = f32[8]{0} get-tuple-element(%w), index=1\n",
      body);
  ASSERT_EQ(step.collectives.size(), 3u);
  EXPECT_EQ(step.collectives[2].name, "r#2");
  // 32 bytes per device: an all-to-all over four of S bytes moves 3/4 S, so S is 42.
  const auto& work = std::get<schedule::CollectiveWork>(step.program.ops[0].work);
  EXPECT_EQ(work.kind, schedule::Collective::AllToAll);
  EXPECT_EQ(work.bytes, Bytes(42));
  // Each turn reads what the one before wrote.
  EXPECT_EQ(step.program.ops[2].reads, step.program.ops[1].writes);
}

TEST(HloTest, APermutationJoinsTheDevicesBetweenWhichItSends) {
  const auto groups = [](const std::string& pairs) {
    return step_of(
               "  %p = f32[8]{0} parameter(0)\n  ROOT %r = f32[8]{0} collective-permute(%p), "
               "source_target_pairs=" +
               pairs + "\n")
        .collectives.at(0)
        .groups;
  };
  EXPECT_EQ(groups("{{0,1},{1,0},{2,3},{3,2}}"), (HloGroups{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups("{{3,1},{2,0}}"), (HloGroups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groups("{{2,3},{0,1},{1,2}}"), (HloGroups{{0, 1, 2, 3}}));
  // Devices that keep what they have wait no less: rank 0 stands for all.
  EXPECT_EQ(groups("{{1,2},{3,3}}"), (HloGroups{{1, 2}, {0, 3}}));
  EXPECT_EQ(groups("{{0,1},{1,3},{3,0}}"), (HloGroups{{0, 1, 2, 3}}));
}

// w in f32, of 8 devices: its gather is started, one op runs beside, and it is waited for long before a product reads it.
TEST(HloTest, AStartedCollectiveIsWaitedForWhereItsDoneStands) {
  const ImportedHlo step = step_of(
      "  %p = f32[8]{0} parameter(0)\n"
      "  %a = f32[8]{0} negate(%p)\n"
      "  %s = (f32[8]{0}, f32[32]{0}) all-gather-start(%a), dimensions={0}\n"
      "  %b = f32[8]{0} exponential(%p)\n"
      "  %d = f32[32]{0} all-gather-done(%s)\n"
      "  %c = f32[8]{0} tanh(%b)\n"
      "  %e = f32[8]{0} slice(%d), slice={[0:8]}\n"
      "  ROOT %u = f32[8]{0} add(%c, %e)\n");
  std::vector<std::string> names;
  for (const schedule::Op& op : step.program.ops) names.push_back(op.name);
  ASSERT_THAT(names, ElementsAre("a", "s", "b", "c waits", "c", "e", "u"));
  const schedule::Op& wait = step.program.ops[3];
  EXPECT_EQ(wait.reads, step.program.ops[1].writes);
  EXPECT_EQ(std::get<schedule::TimedWork>(wait.work).by_rank, std::vector{Duration{}});
  EXPECT_EQ(wait.issue, Duration{});
  const auto& gather = std::get<schedule::CollectiveWork>(step.program.ops[1].work);
  EXPECT_TRUE(gather.asynchronous);
  EXPECT_EQ(gather.purpose, schedule::Purpose::ParameterSync);
  EXPECT_THAT(step.read, Contains(HasSubstr("6 ops")));
  EXPECT_THAT(step.read, Contains(HasSubstr("1 collective waited for before something uses it")));
}

TEST(HloTest, ACollectiveBetweenProductsIsNotOneOfParameters) {
  const auto purpose = [](const std::string& first, const std::string& last) {
    const ImportedHlo step =
        step_of("  %p = f32[8,8]{1,0} parameter(0)\n  %a = f32[8,8]{1,0} " + first +
                "\n  %r = f32[8,8]{1,0} all-reduce(%a), replica_groups={{0,1,2,3}}, to_apply=%add\n"
                "  ROOT %u = f32[8,8]{1,0} " +
                last + "\n");
    for (const schedule::Op& op : step.program.ops) {
      if (const auto* work = std::get_if<schedule::CollectiveWork>(&op.work)) return work->purpose;
    }
    return schedule::Purpose::Reshard;
  };
  const std::string dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}";
  const std::string before = "dot(%p, %p)" + dims;
  const std::string behind = "dot(%r, %r)" + dims;
  EXPECT_EQ(purpose(before, behind), schedule::Purpose::TensorParallel);
  EXPECT_EQ(purpose("negate(%p)", behind), schedule::Purpose::ParameterSync);
  EXPECT_EQ(purpose(before, "tanh(%r)"), schedule::Purpose::ParameterSync);
}

TEST(HloTest, GroupsComeInFiveForms) {
  const auto groups = [](const std::string& form) {
    const std::string text = module_of(
        "  %p = f32[8]{0} parameter(0)\n  ROOT %r = f32[8]{0} all-reduce(%p), replica_groups=" +
        form + ", to_apply=%add\n");
    const Source file{"m.txt", text};
    const HloModule module = read_hlo_module(file);
    return hlo_groups(file, *module.entry->find("r"), 4);
  };
  const HloGroups rows = {{0, 1}, {2, 3}};
  const HloGroups columns = {{0, 2}, {1, 3}};
  EXPECT_EQ(groups("{{1,0},{2,3}}"), rows);
  EXPECT_EQ(groups("[2,2]<=[4]"), rows);
  EXPECT_EQ(groups("[2,2]<=[2,2]T(1,0)"), columns);
  EXPECT_EQ(groups("mesh['x'=2,'y'=2] {'y'}"), rows);
  EXPECT_EQ(groups("mesh['x'=2,'y'=2] {'x'}"), columns);
  EXPECT_EQ(groups("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}"), rows);
  EXPECT_EQ(groups("{}"), (HloGroups{{0, 1, 2, 3}}));
  EXPECT_THAT(groups("{{0},{1},{2},{3}}"), ::testing::IsEmpty());
  const auto refusal = [&](const std::string& form) { return error_of([&] { groups(form); }); };
  EXPECT_THAT(refusal("{{0,1},{2}}"), HasSubstr("r: groups of unequal size"));
  EXPECT_THAT(refusal("{{0,4}}"), HasSubstr("device 4 of 4"));
  EXPECT_THAT(refusal("{{0,1},{1,2}}"), HasSubstr("device 1 twice"));
  EXPECT_THAT(refusal("[2,3]<=[6]"), HasSubstr("in a form that is not known"));
  EXPECT_THAT(refusal("mesh['x'=2,'y'=2] {'z'}"), HasSubstr("in a form that is not known"));
}

TEST(HloTest, NamesWhatIsWrongAndWhere) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { read_hlo({"m.txt", text}); });
  };
  EXPECT_THAT(refusal("{}"), HasSubstr("m.txt: expected a line that begins with HloModule"));
  EXPECT_THAT(refusal("HloModule m\n"), HasSubstr("no ENTRY computation"));
  const std::string whole = module_of("  ROOT %p = f32[8]{0} parameter(0)\n");
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 3)), HasSubstr("it is cut off"));
  EXPECT_THAT(refusal(module_of("  ROOT %p = q7[8]{0} parameter(0)\n")),
              HasSubstr("line 10: element type q7 is not known"));
  EXPECT_THAT(refusal(module_of("  ROOT %x = f32[8]{0} negate(%nobody)\n")),
              HasSubstr("line 10: x: operand nobody is not made before it"));
  EXPECT_THAT(refusal(module_of("  ROOT %p = f32[9000000000000,8]{0} parameter(0)\n")),
              HasSubstr("more than 8 TiB"));
  EXPECT_THAT(refusal(module_of("  ROOT %p = f32[8]{0} parameter(0)\n", "",
                                "replica_count=2, num_partitions=2")),
              HasSubstr("replicas and partitions in one module"));
}

// XLA's runtime starts a kernel in 4.5 us, where PyTorch's Python takes 26; one that lies in a command buffer starts with its graph.
TEST(HloTest, ItsHostIsNoPython) {
  for (const char* const name : {"cpu-dp.txt", "gpu-dp.txt"}) {
    const ImportedHlo step = dump(name);
    for (const schedule::Op& op : step.program.ops) {
      EXPECT_EQ(op.issue, std::chrono::nanoseconds(4500)) << name;
    }
    EXPECT_EQ(step.program.bucket_call, std::chrono::nanoseconds(4500));
    EXPECT_THAT(step.read, Contains(HasSubstr("XLA's runtime in C++")));
  }
  const std::string text = R"(HloModule jit_step, is_scheduled=true

%command_buffer (x: f32[64,64], y: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64]{1,0} parameter(0)
  %y = f32[64,64]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,64]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (a: f32[64,64], b: f32[64,64]) -> f32[64,64] {
  %a = f32[64,64]{1,0} parameter(0)
  %b = f32[64,64]{1,0} parameter(1)
  %call = f32[64,64]{1,0} call(%a, %b), to_apply=%command_buffer
  ROOT %dot.2 = f32[64,64]{1,0} dot(%call, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
)";
  const ImportedHlo step = read_hlo({"step.txt", text});
  ASSERT_EQ(step.program.ops.size(), 2U);
  EXPECT_EQ(step.program.ops[0].issue, Duration{});
  EXPECT_EQ(step.program.ops[1].issue, std::chrono::nanoseconds(4500));
  EXPECT_THAT(step.read, Contains(HasSubstr("1 op in CUDA graphs")));
}

}  // namespace
}  // namespace dovetail::imports
