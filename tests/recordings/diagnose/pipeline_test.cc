// Pipelines, uneven experts and stragglers: told in their own words, and no change gives more than what it is the cause of.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/statistics.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/words.h"
#include "tests/recordings/kineto/ddp_step.h"
#include "tests/recordings/kineto/gloo_step.h"
#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/made_trace.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::HasSubstr;
using testing::MadeEvents;
using ::testing::StartsWith;

JobTrace job_of_ranks(const std::vector<std::string>& texts) {
  std::vector<imports::Recording> traces;
  for (const std::string& text : texts) traces.push_back(testing::read_text(text));
  return imports::make_job(std::move(traces), {});
}

// GPipe: all forwards of a stage, then all backwards in turn. A message takes 50 us once both stages are there; who receives waits
// on a stream of its own from the time its last kernel ended.
struct MadePipeline {
  std::size_t stages = 4, micro_batches = 8;
  int steps = 3;
  double forward = 1000, backward = 2000, update = 300;
  bool tells_peers = true;        // in the args of its messages
  bool names_peers = false;       // in the annotation: "nccl:send 0->1"
  bool is_ring = false;           // messages lie within autograd's functions
  std::vector<double> slow = {};  // by stage: times all of its compute
};

class PipelineWriter {
 public:
  explicit PipelineWriter(const MadePipeline& made) : made_(made), free_(made.stages, 1000) {
    ranks_.resize(made.stages);
    issued_.assign(made.stages, 0);
    for (std::size_t s = 0; s < made.stages; ++s) {
      ranks_[s].rank = static_cast<int>(s);
      ranks_[s].world = static_cast<int>(made.stages);
    }
    for (int n = 0; n < made.steps; ++n) add_step(n);
  }
  [[nodiscard]] std::vector<std::string> texts() const {
    std::vector<std::string> result;
    for (const MadeEvents& rank : ranks_) result.push_back(rank.text());
    return result;
  }

 private:
  double times(std::size_t stage) const { return made_.slow.empty() ? 1 : made_.slow[stage]; }

  // The host is some milliseconds ahead and issues 10 us apart.
  double issue(std::size_t stage) { return issued_[stage] += 10; }

  void compute(std::size_t stage, const std::string& name, double from, double duration) {
    const double at = issue(stage);
    const bool is_backward = name == "backward";
    if (is_backward) {
      ranks_[stage].op("autograd::engine::evaluate_function: MmBackward0", at - 2, 8);
    }
    ranks_[stage].kernel(name, 7, from, duration, ranks_[stage].launch(1, at));
    free_[stage] = from + duration;
  }

  void message(std::size_t stage, const std::string& kind, std::size_t peer, double start,
               double end) {
    const double at = issue(stage);
    std::string args = R"("Collective name":")" + kind + R"(","In msg nelems":262144,)" +
                       R"("Out msg nelems":262144,"dtype":"BFloat16","Group size":)" +
                       std::to_string(made_.stages);
    if (made_.tells_peers) {
      const std::size_t from = kind == "send" ? stage : peer;
      const std::size_t to = kind == "send" ? peer : stage;
      args += R"(,"Src Rank":)" + std::to_string(from) + R"(,"Dst Rank":)" + std::to_string(to);
    }
    if (made_.is_ring) {
      ranks_[stage].op("autograd::engine::evaluate_function: RingBackward", at - 3, 9);
    }
    ranks_[stage].op("record_param_comms", at - 2, 7, args);
    if (made_.names_peers) {
      ranks_[stage].event("user_annotation",
                          "nccl:" + kind + " " + std::to_string(stage) +
                              (kind == "send" ? "->" : "<-") + std::to_string(peer),
                          1, at - 1, 5);
    }
    ranks_[stage].kernel("ncclDevKernel_SendRecv", kind == "send" ? 21 : 20, start, end - start,
                         ranks_[stage].launch(1, at), args);
  }

  // From when on `to` may compute.
  double move(std::size_t from, std::size_t to) {
    const double sent = free_[from];
    const double posted = free_[to] + 1;
    const double end = std::max(sent, posted) + 50;
    message(from, "send", to, sent + 1, end);
    message(to, "recv", from, posted, end);
    return end + 2;
  }

  void add_step(int n) {
    const std::size_t last = made_.stages - 1;
    std::vector<double> begins;
    for (std::size_t s = 0; s < made_.stages; ++s) {
      issued_[s] = free_[s] - 500;
      begins.push_back(issued_[s] - 5);
    }
    for (std::size_t m = 0; m < made_.micro_batches; ++m) {
      for (std::size_t s = 0; s <= last; ++s) {
        const double ready = s == 0 ? free_[0] + 2 : move(s - 1, s);
        compute(s, "forward", ready, made_.forward * times(s));
      }
    }
    for (std::size_t m = 0; m < made_.micro_batches; ++m) {
      for (std::size_t s = made_.stages; s-- > 0;) {
        const double ready = s == last ? free_[s] + 2 : move(s + 1, s);
        compute(s, "backward", ready, made_.backward * times(s));
      }
    }
    for (std::size_t s = 0; s < made_.stages; ++s) {
      ranks_[s].event("user_annotation", "Optimizer.step#SGD.step", 1, issued_[s] + 5, 20);
      compute(s, "update", free_[s] + 2, made_.update);
      const double end = free_[s] + 5;
      ranks_[s].synchronize(1, issued_[s] + 10, end);
      ranks_[s].step(n + 1, begins[s], end - begins[s]);
      free_[s] = std::max(free_[s], end) + 505;
    }
  }

  MadePipeline made_;
  std::vector<MadeEvents> ranks_;
  std::vector<double> free_, issued_;  // by stage
};

// Each step some ranks have more to compute before all meet in an all-to-all and an all-reduce. `times` by step and rank.
std::vector<std::string> with_all_to_alls(const std::vector<std::vector<double>>& times,
                                          const std::string& kind) {
  const std::size_t ranks = times.front().size();
  std::vector<MadeEvents> made(ranks);
  double meet = 1000;
  std::vector<double> begin(ranks, 1000);
  for (std::size_t n = 0; n < times.size(); ++n) {
    std::vector<double> free(ranks, meet + 20);
    for (std::size_t r = 0; r < ranks; ++r) begin[r] = meet;
    double host = meet + 5;
    for (int layer = 0; layer < 4; ++layer) {
      double last = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        const double duration = 2000 * times[n][r];
        made[r].kernel("experts", 7, free[r], duration, made[r].launch(1, host));
        free[r] += duration;
        last = std::max(last, free[r]);
      }
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::string args = R"("Collective name":")" + kind +
                                 R"(","In msg nelems":1048576,"dtype":"BFloat16","Group size":)" +
                                 std::to_string(ranks);
        made[r].kernel("ncclDevKernel_SendRecv", 20, free[r] + 1, last + 300 - free[r],
                       made[r].launch(1, host + 5), args);
        free[r] = last + 303;
      }
      host += 10;
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      made[r].rank = static_cast<int>(r);
      made[r].world = static_cast<int>(ranks);
      made[r].synchronize(1, host, free[r] + 5);
      made[r].step(static_cast<int>(n) + 1, begin[r], free[r] + 10 - begin[r]);
      meet = free[r] + 10;
    }
  }
  std::vector<std::string> texts;
  for (const MadeEvents& rank : made) texts.push_back(rank.text());
  return texts;
}

// --- in their own words ---------------------------------------------------------------------------------

// Of 4 stages and 8 micro-batches the bubble is 3 x (1 ms + 2 ms) = 9 ms, and a little for messages: 9.0 to 9.8 ms.
TEST(PipelineTest, ABubbleIsNoStragglerAndNoLink) {
  for (const bool names : {false, true}) {
    const JobTrace job =
        job_of_ranks(PipelineWriter({.tells_peers = !names, .names_peers = names}).texts());
    ASSERT_TRUE(job.pipeline);
    EXPECT_EQ(job.pipeline->stages, 4);
    EXPECT_EQ(job.pipeline->micro_batches, 8);
    const Diagnosis diagnosis = diagnose(job);
    ASSERT_EQ(diagnosis.findings.front().kind, FindingKind::Pipeline) << headline(diagnosis);
    ASSERT_TRUE(diagnosis.stages && diagnosis.stages->of_schedule);
    EXPECT_NEAR(to_us(*diagnosis.stages->of_schedule), 9000, 100);
    EXPECT_NEAR(to_us(diagnosis.stages->bubble), 9400, 500);
    EXPECT_NEAR(to_us(*diagnosis.stages->zero_bubble), 6000, 150);  // 3 x 2 ms
    EXPECT_THAT(headline(diagnosis), StartsWith("pipeline of 4 stages, 8 micro-batches: "));
    EXPECT_THAT(headline(diagnosis), HasSubstr("(P-1)(F+B) = 3 x (1.00 ms + 2.00 ms)"));
    EXPECT_THAT(brief(diagnosis).left, HasSubstr("no bubble"));
    for (const RankDiagnosis& rank : diagnosis.ranks) {
      for (const WhatIf& what_if : rank.forecast.what_ifs) {
        if (what_if.change != Change::NoNetwork) continue;
        EXPECT_LT(what_if.gain.middle, std::chrono::microseconds(1700)) << rank.rank;
      }
    }
  }
}

// One stage of four takes half as long again: the bubble is longer than its schedule's, and it is said.
TEST(PipelineTest, AnUnevenStageIsSaid) {
  const Diagnosis diagnosis =
      diagnose(job_of_ranks(PipelineWriter({.slow = {1, 1.5, 1, 1}}).texts()));
  EXPECT_THAT(headline(diagnosis), HasSubstr("come of stages that are uneven or late"));
}

// One stage's trace alone: how many stages says the group, and its messages' own time is that of the shortest.
TEST(PipelineTest, OneStageAloneKnowsItsBubble) {
  const std::vector<std::string> all = PipelineWriter({}).texts();
  const JobTrace job = job_of_ranks({all[3]});
  ASSERT_TRUE(job.pipeline);
  EXPECT_EQ(job.pipeline->stages, 4);
  EXPECT_EQ(job.pipeline->micro_batches, 8);
  EXPECT_EQ(diagnose(job).findings.front().kind, FindingKind::Pipeline);
}

TEST(PipelineTest, ARingWithinAutogradIsNoPipeline) {
  EXPECT_FALSE(job_of_ranks(PipelineWriter({.is_ring = true}).texts()).pipeline);
}

// Kernels alone: all-to-alls and pipelines have one name there.
TEST(PipelineTest, KernelsThatTellNothingAreNoPipeline) {
  testing::MadeEvents events;
  events.step(1, 0, 10'000);
  for (int k = 0; k < 4; ++k) {
    events.kernel("gemm", 7, 100 + k * 2000, 1000, events.launch(1, 10 + k));
    events.kernel("ncclDevKernel_SendRecv", 20, 1101 + k * 2000, 900, events.launch(1, 20 + k));
  }
  EXPECT_FALSE(testing::job_of(events.text()).pipeline);
}

// Rank 2 computes 3 ms where the others do 2: they wait 1 ms in each of four all-to-alls; spread evenly all would take 2.25 ms:
// 3 ms less a step.
TEST(UnevenTest, ExpertsWithMoreTokensAreNoNetwork) {
  const std::vector<std::vector<double>> times(3, {1, 1, 1.5, 1});
  const Diagnosis diagnosis = diagnose(job_of_ranks(with_all_to_alls(times, "all_to_allv")));
  ASSERT_EQ(diagnosis.findings.front().kind, FindingKind::Uneven) << headline(diagnosis);
  EXPECT_TRUE(diagnosis.uneven->of_experts);
  EXPECT_EQ(diagnosis.uneven->ranks.front().rank, 2);
  EXPECT_NEAR(diagnosis.uneven->ranks.front().times, 1.333, 0.01);
  EXPECT_NEAR(to_us(diagnosis.uneven->gain), 3000, 10);
  EXPECT_THAT(headline(diagnosis), HasSubstr("rank 2 computes 1.33 times the mean"));
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (const WhatIf& what_if : rank.forecast.what_ifs) {
      if (what_if.change != Change::NoNetwork) continue;
      EXPECT_NEAR(to_us(what_if.gain.middle), 1200, 30) << rank.rank;  // four transfers of 300 us
    }
  }
}

// A rank's trace alone: of all-to-alls of one size the shortest, 0.3 ms, is what each takes by itself; the rest is waiting.
TEST(UnevenTest, OneRankAloneTellsWaitingByItsShortestAllToAll) {
  const JobTrace job =
      imports::load_job({testing::trace_file("reported/experts-uneven-rank0.json.gz")}, {});
  const Diagnosis diagnosis = diagnose(job);
  for (const StepCauses& step : diagnosis.ranks[0].causes) {
    EXPECT_NEAR(to_us(step.by[static_cast<std::size_t>(Cause::Straggler)]), 12'000, 50);
    EXPECT_NEAR(to_us(step.exposed), 16'800, 50);
  }
}

// Another rank each step has more: nobody is called the one.
TEST(UnevenTest, WorkThatIsUnevenInTurnIsSaid) {
  const std::vector<std::vector<double>> times = {{1.5, 1, 1}, {1, 1.5, 1}, {1, 1, 1.5}};
  const Diagnosis diagnosis = diagnose(job_of_ranks(with_all_to_alls(times, "allreduce")));
  ASSERT_EQ(diagnosis.findings.front().kind, FindingKind::Uneven) << headline(diagnosis);
  EXPECT_THAT(headline(diagnosis), StartsWith("uneven work: another rank computes longest"));
}

TEST(UnevenTest, EvenWorkIsNotUneven) {
  const std::vector<std::vector<double>> times(3, {1, 1.01, 1, 1});
  EXPECT_FALSE(diagnose(job_of_ranks(with_all_to_alls(times, "all_to_allv"))).uneven);
}

// --- what a change may give --------------------------------------------------------------------------------

// What the steps lost to that of which a change is the end, in the middle.
Duration cause_of(const RankDiagnosis& rank, Change change) {
  std::vector<Duration> lost;
  for (const StepCauses& step : rank.causes) {
    const auto by = [&](Cause cause) { return step.by[static_cast<std::size_t>(cause)]; };
    Duration all{};
    switch (change) {
      case Change::NoNetwork:
        for (const Cause cause : {Cause::Link, Cause::ClosedLate, Cause::LaunchOrder,
                                  Cause::Serialised, Cause::NoPrefetch}) {
          all += by(cause);
        }
        break;
      case Change::NobodyLate:
        all = by(Cause::Straggler);
        break;
      case Change::NoBubble:
        all = by(Cause::Bubble);
        break;
      case Change::WaitAtUpdate:
        all = by(Cause::Serialised);
        break;
      case Change::Prefetch:
        all = by(Cause::NoPrefetch);
        break;
      case Change::KeepParameters:
        for (const ExposedCollective& share : step.collectives) {
          const auto collective = static_cast<std::size_t>(share.collective);
          if (rank.sharding->gathers_in_backward[collective] == 0) continue;
          all += share.exposed - share.by[static_cast<std::size_t>(Cause::Host)];
        }
        break;
      case Change::FusedOptimizer:
      case Change::NoRecording:
      case Change::NoHost:
        all = step.gpu_waits_for_host + by(Cause::Host);
    }
    lost.push_back(all);
  }
  return median(std::move(lost));
}

// At least one change of each job has something to give.
void expect_within_causes(const JobTrace& job, const std::string& name) {
  std::size_t changes = 0;
  const Diagnosis diagnosis = diagnose(job);
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (const WhatIf& what_if : rank.forecast.what_ifs) {
      const std::string where = name + ", rank " + std::to_string(rank.rank) + ": " +
                                std::string(to_string(what_if.change));
      ++changes;
      EXPECT_GT(cause_of(rank, what_if.change), Duration{}) << where;
      EXPECT_LE(what_if.gain.high, cause_of(rank, what_if.change)) << where;
      EXPECT_GE(what_if.gain.low, Duration{}) << where;
      EXPECT_LE(what_if.gain.low, what_if.gain.middle) << where;
      EXPECT_LE(what_if.gain.middle, what_if.gain.high) << where;
      EXPECT_LT(what_if.gain.low, what_if.gain.high) << where;
    }
  }
  EXPECT_GT(changes, 0U) << name;
}

TEST(WhatIfTest, NoChangeGivesMoreThanItsCauseOnKeptTraces) {
  expect_within_causes(testing::resnet50(), "resnet50");
  expect_within_causes(testing::dlrm_v100x8(), "dlrm");
  for (const auto& [way, ranks] : std::vector<std::pair<std::string, std::size_t>>{
           {"fsdp2", 2}, {"hsdp", 4}, {"pp", 2}, {"tp", 4}}) {
    expect_within_causes(testing::gloo_job(way, ranks), way);
  }
  for (const std::string name : {"eager", "compiled", "ddp-one", "ddp", "fsdp2"}) {
    expect_within_causes(testing::h100_job(name), name);
  }
  for (const std::string name :
       {"cuda-sync-multi-stream", "gpu-user-annotation", "rocm-mi250-toy", "uint64-args",
        "reported/weights-to-host", "reported/two-steps-apart", "reported/steps-missing"}) {
    expect_within_causes(imports::load_job({testing::trace_file(name + ".json.gz")}, {}), name);
  }
  for (const auto& [name, ranks] :
       std::vector<std::pair<std::string, int>>{{"experts-uneven", 4}, {"pipeline-cpu", 2}}) {
    std::vector<std::string> files;
    for (int rank = 0; rank < ranks; ++rank) {
      files.push_back(
          testing::trace_file("reported/" + name + "-rank" + std::to_string(rank) + ".json.gz"));
    }
    expect_within_causes(imports::load_job(files, {}), name);
  }
}

TEST(WhatIfTest, NoChangeGivesMoreThanItsCauseOnMadeTraces) {
  for (const std::size_t stages : {2U, 4U}) {
    for (const std::size_t micro_batches : {1U, 2U, 8U}) {
      expect_within_causes(
          job_of_ranks(PipelineWriter({.stages = stages, .micro_batches = micro_batches}).texts()),
          std::to_string(stages) + " stages, " + std::to_string(micro_batches));
    }
  }
  for (const double more : {1.0, 1.1, 2.0}) {
    for (const std::string kind : {"all_to_allv", "allreduce", "reduce_scatter"}) {
      expect_within_causes(
          job_of_ranks(with_all_to_alls(std::vector<std::vector<double>>(2, {1, more, 1}), kind)),
          kind + " " + std::to_string(more));
    }
  }
  for (const double comm : {500.0, 3000.0, 9000.0}) {
    for (const bool waits_each : {false, true}) {
      testing::DdpStep step{.comm_us = {comm, comm, comm}, .waits_each = waits_each};
      expect_within_causes(testing::job_of(trace_of(step)), "ddp " + std::to_string(comm));
    }
    testing::GlooStep gloo{.comm_us = {comm, comm}, .barrier_us = 700};
    expect_within_causes(testing::job_of(trace_of(gloo)), "gloo " + std::to_string(comm));
    expect_within_causes(
        testing::job_of(testing::text({.late_us = 200, .all_reduce_us = {comm, comm, comm}})),
        "late host " + std::to_string(comm));
  }
}

}  // namespace
}  // namespace dovetail::diagnose
