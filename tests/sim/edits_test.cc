// A Patch changes times of a StepGraph and takes all of it back.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/edits.h"

#include <gtest/gtest.h>

#include <vector>

namespace dovetail::step {
namespace {

// A pair of ops of different kernels, and transfers of two curves.
StepGraph graph_of_two_curves() {
  StepGraph graph;
  graph.slots = {{SlotKind::Compute, 0, StreamId{0}}, {SlotKind::Transfers, 0, StreamId{1}}};
  graph.lane_sets = {{0}};
  graph.append({.work = Work::fixed(10), .kernel = models::KernelClass::Gemm}, {});
  graph.append({.work = Work::fixed(20), .kernel = models::KernelClass::Memory},
               std::vector<Edge>{{0, EdgeKind::Order}});
  for (const std::int32_t curve : {0, 1}) {
    graph.append({.kind = NodeKind::Transfer, .slot = 1},
                 {.isolated = 30, .back_to_back = 24, .latency = 6, .curve = curve}, {},
                 std::vector<Edge>{{1, EdgeKind::Event}});
  }
  return graph;
}

TEST(PatchTest, ScalesOneCurveOnly) {
  StepGraph graph = graph_of_two_curves();
  Patch patch(graph);
  patch.scale_curve(1, 0.5);
  EXPECT_EQ(graph.transfers[0].isolated, 30);
  EXPECT_EQ(graph.transfers[1].isolated, 15);
  EXPECT_EQ(graph.transfers[1].back_to_back, 12);
  EXPECT_EQ(graph.transfers[1].latency, 3);
  EXPECT_EQ(patch.first_changed(), 3);
}

TEST(PatchTest, ScalesOneClassOfKernels) {
  StepGraph graph = graph_of_two_curves();
  Patch patch(graph);
  patch.scale_kernels(models::KernelClass::Memory, 1.5);
  EXPECT_EQ(graph.work[0], Work::fixed(10));
  EXPECT_EQ(graph.work[1], Work::fixed(30));
  EXPECT_EQ(patch.first_changed(), 1);
}

TEST(PatchTest, TakesEverythingBackInOrder) {
  StepGraph graph = graph_of_two_curves();
  Patch patch(graph);
  EXPECT_EQ(patch.first_changed(), graph.size());
  patch.scale_kind(NodeKind::Compute, 2);
  patch.remove(0);
  patch.set_time(2, 7);
  patch.scale(2, 3);
  patch.set_release(1, 99);
  patch.set_lag(1, graph.edges_of(1).begin, 5);
  EXPECT_EQ(graph.work[0], Work::fixed(0));
  EXPECT_EQ(graph.transfers[0].isolated, 21);
  EXPECT_EQ(graph.release_of(1), 99);
  EXPECT_EQ(graph.edge(0).lag, 5);
  EXPECT_EQ(patch.first_changed(), 0);
  patch.undo();
  const StepGraph fresh = graph_of_two_curves();
  EXPECT_EQ(graph.work, fresh.work);
  EXPECT_EQ(graph.transfers[0].isolated, 30);
  EXPECT_EQ(graph.transfers[0].back_to_back, 24);
  EXPECT_EQ(graph.transfers[0].latency, 6);
  EXPECT_EQ(graph.release_of(1), 0);
  EXPECT_EQ(graph.edge(0).lag, 0);
  EXPECT_EQ(patch.first_changed(), graph.size());
}

}  // namespace
}  // namespace dovetail::step
