// Times one commit of n/10 evenly spaced insertions into n ops (rule R19; the table in RI3's
// setting).
//
//   editor_bench --benchmark_filter='batch_commit'
//
//   batch_commit    all insertions in one ProgramEditor: collecting and committing
//   one_at_a_time   one editor per insertion, each with its own commit: quadratic, so small n only
//
// Read batch_commit/100000: must stay below 100 ms. The reported complexity is fitted by the
// library; only ratios between rows mean something on a shared machine.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/editor.h"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::bench {
namespace {

using schedule::Op;
using schedule::Program;
using schedule::ProgramEditor;

constexpr std::int32_t kSpacing = 10;

Op op_of(OpId id, TensorId tensor) {
  return {.id = id,
          .name = "op" + std::to_string(id.value),
          .work = schedule::MemoryWork{.bytes = Bytes(4096), .flop = Flop(0)},
          .reads = {tensor},
          .writes = {tensor}};
}

Program program_of(std::int64_t ops) {
  Program program;
  program.name = "bench";
  program.groups.push_back({GroupId{0}, "dp", {Rank{0}}});
  program.tensors.push_back(
      {.id = TensorId{0}, .name = "x", .kind = schedule::TensorKind::Parameter, .shape = {}});
  for (std::int32_t i = 0; i < ops; ++i) program.ops.push_back(op_of(OpId{i}, TensorId{0}));
  return program;
}

void batch_commit(benchmark::State& state) {
  const Program original = program_of(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    Program program = original;
    state.ResumeTiming();
    ProgramEditor editor(std::move(program));
    for (std::int32_t i = 0; i < state.range(0); i += kSpacing) {
      editor.insert_before(OpId{i}, {op_of(editor.new_op_id(), TensorId{0})});
    }
    benchmark::DoNotOptimize(std::move(editor).commit());
  }
  state.SetComplexityN(state.range(0));
}

void one_at_a_time(benchmark::State& state) {
  const Program original = program_of(state.range(0));
  for (auto _ : state) {
    Program program = original;
    for (std::int32_t i = 0; i < state.range(0); i += kSpacing) {
      ProgramEditor editor(std::move(program));
      editor.insert_before(OpId{i}, {op_of(editor.new_op_id(), TensorId{0})});
      program = std::move(editor).commit();
    }
    benchmark::DoNotOptimize(program);
  }
  state.SetComplexityN(state.range(0));
}

BENCHMARK(batch_commit)
    ->RangeMultiplier(4)
    ->Range(2000, 512'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);
BENCHMARK(one_at_a_time)->Arg(2000)->Arg(8000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dovetail::bench

BENCHMARK_MAIN();
