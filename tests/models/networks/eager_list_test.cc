// The kernels of a model that nothing fuses are those that PyTorch dispatches: as many, with as many bytes and FLOP, forward and backward.
//
// Whole models, and autocast; by class of kernel, and every family: families_test.cc. The counts were taken from PyTorch 2.11 with transformers 5.17 on the meta device, loss as in transformers' causal models.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <variant>

#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::jobs {
namespace {

// Kernels of one phase; bytes of those that are bound by memory, but for attention, FLOP of products.
struct Kernels {
  std::int64_t memory = 0, products = 0, attention = 0;
  double bytes = 0, flop = 0;
};

struct Dispatched {
  std::string name, model;
  std::int64_t layers;  // 0: all
  std::string keys;
  Kernels forward, backward;
};

Kernels kernels_of_phase(const schedule::Program& program, schedule::Phase phase) {
  Kernels sum;
  for (const schedule::Op& op : program.ops) {
    if (op.phase != phase) continue;
    for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
      if (const auto* gemm = std::get_if<schedule::GemmWork>(&kernel)) {
        ++sum.products;
        sum.flop += 2 * static_cast<double>(gemm->m) * static_cast<double>(gemm->n) *
                    static_cast<double>(gemm->k);
        continue;
      }
      const auto& memory = std::get<schedule::MemoryWork>(kernel);
      if (memory.attention) {
        ++sum.attention;
        continue;
      }
      ++sum.memory;
      sum.bytes += static_cast<double>(memory.bytes.count());
    }
  }
  return sum;
}

void expect_alike(const Kernels& found, const Kernels& wanted) {
  constexpr double kCounts = 0.02, kBytes = 0.02;
  EXPECT_EQ(found.products, wanted.products);
  EXPECT_EQ(found.attention, wanted.attention);
  EXPECT_NEAR(static_cast<double>(found.memory), static_cast<double>(wanted.memory),
              kCounts * static_cast<double>(wanted.memory) + 2);
  EXPECT_NEAR(found.bytes / wanted.bytes, 1, kBytes);
  EXPECT_NEAR(found.flop / wanted.flop, 1, 1e-6);
}

class EagerListTest : public ::testing::TestWithParam<Dispatched> {};

TEST_P(EagerListTest, IsWhatPyTorchDispatches) {
  const Dispatched& wanted = GetParam();
  Job job = parse_job(wanted.model + ":" + wanted.keys + ",kernels=transformers");
  if (wanted.layers > 0) job.model.layers = wanted.layers;
  const schedule::Program program = program_of(job);
  {
    SCOPED_TRACE("forward");
    expect_alike(kernels_of_phase(program, schedule::Phase::Forward), wanted.forward);
  }
  SCOPED_TRACE("backward");
  expect_alike(kernels_of_phase(program, schedule::Phase::Backward), wanted.backward);
}

INSTANTIATE_TEST_SUITE_P(
    Models, EagerListTest,
    ::testing::Values(Dispatched{"llama",
                                 "llama3_8b",
                                 4,
                                 "gbs=1,mbs=1,seq=4096",
                                 {151, 30, 4, 17'734'893'960, 11'450'383'335'424},
                                 {261, 58, 4, 35'611'262'980, 22'900'765'622'272}},
                      Dispatched{"checkpoint",
                                 "llama3_8b",
                                 4,
                                 "gbs=1,mbs=1,seq=8192,recompute=full",
                                 {151, 30, 4, 35'469'713'800, 22'900'766'670'848},
                                 {377, 82, 8, 88'728'944'644, 56'246'891'708'416}},
                      Dispatched{"qwen3",
                                 "qwen3_0.6b",
                                 0,
                                 "gbs=1,mbs=1,seq=1024",
                                 {1319, 198, 28, 10'553'981'320, 1'220'576'149'504},
                                 {2598, 394, 28, 23'790'067'716, 2'441'152'036'864}},
                      Dispatched{"gpt2",
                                 "gpt2",
                                 0,
                                 "gbs=16,mbs=16,seq=1024",
                                 {162, 49, 12, 36'447'879'824, 4'047'897'624'576},
                                 {249, 98, 12, 60'504'383'492, 8'095'795'249'152}},
                      Dispatched{"gpt2_f32",
                                 "gpt2",
                                 0,
                                 "gbs=16,mbs=16,seq=1024,dtype=f32",
                                 {161, 49, 12, 56'426'300'073, 4'047'897'624'576},
                                 {248, 98, 12, 97'953'267'716, 8'095'795'249'152}},
                      Dispatched{"llama_autocast",
                                 "llama3_8b",
                                 4,
                                 "gbs=1,mbs=1,seq=4096,autocast=bf16",
                                 {188, 30, 4, 28'984'090'675, 11'450'382'811'136},
                                 {325, 58, 4, 52'178'911'236, 22'900'765'622'272}},
                      Dispatched{"checkpoint_autocast",
                                 "llama3_8b",
                                 4,
                                 "gbs=1,mbs=1,seq=8192,recompute=full,autocast=bf16",
                                 {188, 30, 4, 49'581'522'995, 22'900'765'622'272},
                                 {481, 82, 8, 122'795'294'724, 56'246'891'708'416}},
                      Dispatched{"qwen3_autocast",
                                 "qwen3_0.6b",
                                 0,
                                 "gbs=1,mbs=1,seq=1024,autocast=bf16",
                                 {1596, 198, 28, 17'272'076'339, 1'220'576'018'432},
                                 {2990, 394, 28, 35'340'656'644, 2'441'152'036'864}},
                      Dispatched{"gpt2_autocast",
                                 "gpt2",
                                 0,
                                 "gbs=16,mbs=16,seq=1024,autocast=bf16",
                                 {308, 49, 12, 65'807'830'185, 4'047'897'624'576},
                                 {443, 98, 12, 106'428'662'276, 8'095'795'249'152}}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace dovetail::jobs
